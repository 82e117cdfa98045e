// Asks for two lists at a time, and for the authors of each when it is there: in one statement for all that it does not
// know yet, as loaders of GraphQL do. Which authors that are depends on which list is there first, and is part of the answer.
// The list that SLOW in the environment names takes longer. With CHANGED it asks for none of the old pages.
//
//     node loads.js PORT        the database is in DATABASE_URL
"use strict";
const express = require("express");
const { Pool } = require("pg");

const pool = new Pool({
    connectionString: process.env.DATABASE_URL,
    max: 20,
    options: `-c loads.slow=${process.env.SLOW}`,
});
const app = express();

const wait = "SELECT pg_sleep(CASE WHEN current_setting('loads.slow') = $1 THEN 0.1 ELSE 0 END)";
const pages = kind => pool.query(`SELECT author FROM page, (${wait}) AS waited WHERE kind = $1 ORDER BY id`, [kind]);
const marks = ids => ids.map((_, at) => `$${at + 1}`).join(", ");

app.get("/", async (_, response) => {
    const asked = [];
    const known = new Map();
    const load = async ids => {
        const wanted = [...new Set(ids)].filter(id => !known.has(id));
        if (wanted.length > 0) {
            asked.push(wanted);
            const found = pool.query(`SELECT id, name FROM author WHERE id IN (${marks(wanted)})`, wanted);
            wanted.forEach(id => known.set(id, found));
        }
        const found = await Promise.all(ids.map(id => known.get(id)));
        return found.map(({ rows }, at) => rows.find(({ id }) => id === ids[at]).name);
    };
    const of = async kind => load((await pages(kind)).rows.map(({ author }) => author));
    const kinds = process.env.CHANGED ? ["new"] : ["new", "old"];
    response.json({ names: await Promise.all(kinds.map(of)), asked });
});

app.post("/:author", async (request, response) => {
    await pool.query("INSERT INTO page (kind, author) VALUES ('new', $1)", [request.params.author]);
    response.send("written");
});

const server = app.listen(Number(process.argv[2]), "127.0.0.1");
process.on("SIGINT", () => server.close(() => process.exit()));
