// Reads a counter twice at a time, in a request; another one adds to it.
//
//     node beside.js PORT        the database is in DATABASE_URL
//
// GET / reads it at once, in a statement that takes half a second, and once more after a moment. With LATE in its environment the first one
// comes 200 ms behind the second. POST / adds one.
"use strict";
const { setTimeout: sleep } = require("node:timers/promises");
const express = require("express");
const { Pool } = require("pg");

const pool = new Pool({ connectionString: process.env.DATABASE_URL, max: 20 });
const app = express();
const late = "LATE" in process.env;

const read = async (after, statement) => {
    await sleep(after);
    return (await pool.query(statement)).rows[0].n;
};

app.get("/", async (_, response) => {
    const slow = read(late ? 200 : 0, "SELECT n FROM counter, pg_sleep(0.5)");
    const fast = read(late ? 0 : 300, "SELECT n FROM counter");
    response.json(await Promise.all([slow, fast]));
});

app.post("/", async (_, response) => {
    response.json((await pool.query("UPDATE counter SET n = n + 1 RETURNING n")).rows[0].n);
});

const server = app.listen(Number(process.argv[2]), "127.0.0.1");
process.on("SIGINT", () => server.close(() => process.exit()));
