// Notes of people who log in: Express and a pool of `pg`, at READ COMMITTED. What is drawn and read of the clock goes by the ways
// that applications and their frameworks take.
//
//     node notes.js PORT        the database is in DATABASE_URL
//
// POST /login/NAME makes a session, whose token is a cookie, and answers with what writing takes. POST /note/TEXT writes a note, and GET /notes
// lists them, for who has a session that has not expired.
"use strict";
const crypto = require("crypto");
const { promisify } = require("util");
const express = require("express");
const { Pool } = require("pg");

const pool = new Pool({ connectionString: process.env.DATABASE_URL, max: 20 });
const randomBytes = promisify(crypto.randomBytes);
const randomInt = promisify(crypto.randomInt);
const LIFETIME = Number(process.env.LIFETIME) * 1000;
const app = express();
app.disable("etag");

app.post("/login/:name", async (request, response) => {
    const token = (await randomBytes(24)).toString("base64url");
    const csrf = Buffer.from(globalThis.crypto.getRandomValues(new Uint8Array(12))).toString("hex");
    const expires = new Date(Date.now() + LIFETIME);
    const insert = "INSERT INTO session (token, csrf, person, expires) VALUES ($1, $2, $3, $4)";
    await pool.query(insert, [token, csrf, request.params.name, expires]);
    response.cookie("session", token, { httpOnly: true }).send({ csrf, until: expires });
});

async function personOf(client, request) {
    const token = /session=([^;]+)/.exec(request.headers.cookie || "");
    const select = "SELECT person, csrf FROM session WHERE token = $1 AND expires > $2";
    const found = await client.query(select, [token && decodeURIComponent(token[1]), new Date()]);
    return found.rows[0];
}

app.post("/note/:text", async (request, response) => {
    const client = await pool.connect();
    try {
        await client.query("BEGIN");
        const person = await personOf(client, request);
        if (!person || person.csrf !== request.headers["x-csrf"]) {
            await client.query("ROLLBACK");
            return response.status(401).end();
        }
        const counted = await client.query("UPDATE counter SET n = n + 1 RETURNING n");
        const id = crypto.randomUUID();
        const insert = "INSERT INTO note (id, person, text, number, written) VALUES ($1, $2, $3, $4, $5)";
        await client.query(insert, [id, person.person, request.params.text, counted.rows[0].n, new Date()]);
        await client.query("COMMIT");
        const salt = crypto.randomFillSync(Buffer.alloc(4)).toString("hex");
        const lots = [Math.random(), crypto.randomInt(1e9), await randomInt(5, 1e9)];
        response.send({ id, number: counted.rows[0].n, at: Date.now(), salt, lots });
    } finally {
        client.release();
    }
});

app.get("/notes", async (request, response) => {
    const person = await personOf(pool, request);
    if (!person) return response.status(401).end();
    const select = "SELECT id, text, number, written FROM note WHERE person = $1 ORDER BY number";
    response.send((await pool.query(select, [person.person])).rows);
});

const server = app.listen(Number(process.argv[2]), "127.0.0.1");
process.on("SIGINT", () => server.close(() => process.exit()));
process.on("SIGTERM", () => process.exit());
