// Every request writes rows with its own name: Express, and a pool of `pg` that is smaller than the load. Nothing here knows of
// tracing.
//
//     node marks.js PORT        the database is in DATABASE_URL, the size of the pool in POOL, and in WORKERS how many
//                               processes share the port, if more than one
"use strict";
const cluster = require("cluster");
const workers = Number(process.env.WORKERS || 0);
if (workers && cluster.isPrimary) {
    process.on("SIGINT", () => {
        for (const worker of Object.values(cluster.workers)) worker.process.kill("SIGINT");
    });
    for (let number = 0; number < workers; number += 1) cluster.fork();
    return;
}
const express = require("express");
const { Client, Pool } = require("pg");

const connectionString = process.env.DATABASE_URL;
const pool = new Pool({ connectionString, max: Number(process.env.POOL || 3) });
// One for all requests, in whose queue they wait.
const shared = new Client({ connectionString });
shared.connect();
const INSERT = "INSERT INTO mark VALUES ($1, $2)";
const app = express();

app.post("/transaction/:name", async (request, response) => {
    const client = await pool.connect();
    try {
        await client.query("BEGIN");
        await client.query(INSERT, [request.params.name, 1]);
        await client.query(INSERT, [request.params.name, 2]);
        await client.query("COMMIT");
    } finally {
        client.release();
    }
    response.send(request.params.name);
});

app.post("/pool/:name", async (request, response) => {
    await Promise.all([1, 2].map(step => pool.query(INSERT, [request.params.name, step])));
    const counted = await pool.query("SELECT count(*) FROM mark WHERE name = $1", [request.params.name]);
    response.send(counted.rows[0].count);
});

app.post("/queue/:name", async (request, response) => {
    await shared.query(INSERT, [request.params.name, 1]);
    response.send(request.params.name);
});

app.post("/callbacks/:name", (request, response, next) => {
    const name = request.params.name;
    pool.connect((error, client, release) => {
        if (error) return next(error);
        client.query("BEGIN");
        client.query(INSERT, [name, 1], () => {
            client.query("COMMIT", () => {
                release();
                pool.query(INSERT, [name, 2], () => response.send(name));
            });
        });
    });
});

const server = app.listen(Number(process.argv[2]), "127.0.0.1");
process.on("SIGINT", () => server.close(() => process.exit()));
