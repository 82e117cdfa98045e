// Every request writes rows with its own name: Express and postgres.js, whose few connections have queries of several requests in
// them, one behind the other. Nothing here knows of tracing.
//
//     node marks_postgres.js PORT       the database is in DATABASE_URL; as an ES module if MODULE is set, as CommonJS otherwise
"use strict";
const express = require("express");
const { pathToFileURL } = require("url");

async function load() {
    if (!process.env.MODULE) return require("postgres");
    const file = require.resolve("postgres").replace("/cjs/src/", "/src/");
    return (await import(pathToFileURL(file))).default;
}

load().then(postgres => {
    // A replay's pools are enlarged where the options' entries are asked for. Texts have some, too.
    if (Object.entries("ab").length !== 2) throw new Error("a text has other entries");
    // What a new connection asks for types is no request's.
    const sql = postgres(process.env.DATABASE_URL, { max: 3, fetch_types: false });
    const app = express();
    const way = (name, work) =>
        app.post(`/${name}/:name`, (request, response, next) => {
            work(request.params.name).then(() => response.send(request.params.name), next);
        });

    way("single", name => sql`INSERT INTO mark VALUES (${name}, 1)`);

    way("several", async name => {
        await Promise.all([1, 2, 3].map(step => sql`INSERT INTO mark VALUES (${name}, ${step})`));
        await sql`SELECT count(*) FROM mark WHERE name = ${name}`;
    });

    way("transaction", name =>
        sql.begin(async own => {
            await own`INSERT INTO mark VALUES (${name}, 1)`;
            await Promise.all([2, 3].map(step => own`INSERT INTO mark VALUES (${name}, ${step})`));
        }),
    );

    // By the simple protocol, and with a callback for each row.
    way("rows", async name => {
        const kept = [];
        await sql.unsafe(`INSERT INTO mark VALUES ('${name}', 1)`);
        await sql`SELECT generate_series(2, 3) AS step`.forEach(row => {
            kept.push(sql`INSERT INTO mark VALUES (${name}, ${row.step})`.execute());
        });
        await Promise.all(kept);
    });

    const server = app.listen(Number(process.argv[2]), "127.0.0.1");
    process.on("SIGINT", () => server.close(() => process.exit()));
});
