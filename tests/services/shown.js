// Keeps a list as Next.js keeps what `unstable_cache` is to keep, in caches that look like those of Next.
//
//     node shown.js PORT        the database is in DATABASE_URL, and in FOR how many milliseconds a list is fresh; of four workers with
//                               CLUSTER in the environment
//
// POST /NAME adds a note, and answers how often that one came to this process. GET /list answers the notes as they are kept; what is not fresh is
// answered, and is read again behind that. GET /page is sent in the next turn of the loop, with the list if it is there by then, as
// a page that is rendered. GET /together answers all who come while it is made. GET /kept/WAY answers the notes as a package keeps them.
"use strict";
const cluster = require("node:cluster");
if ("CLUSTER" in process.env && cluster.isPrimary) {
    for (let worker = 0; worker < 4; worker += 1) cluster.fork();
    process.on("SIGINT", () => Object.values(cluster.workers).forEach(worker => worker.process.kill("SIGINT")));
    return;
}
const express = require("express");
const { Keyv } = require("keyv");
const { LRUCache } = require("lru-cache");
const { Batcher, IncrementalCache } = require("next/dist/caches.js");
const NodeCache = require("node-cache");
const { Pool } = require("pg");

const pool = new Pool({ connectionString: process.env.DATABASE_URL, max: 20 });
const app = express();

const cache = new IncrementalCache();
const batcher = new Batcher();
const FETCH = { kind: "FETCH", revalidate: Number(process.env.FOR) };
const came = new Map();

async function count() {
    const { rows } = await pool.query("SELECT count(*)::int AS notes, now() AS at FROM note");
    return rows[0];
}

async function read() {
    const data = await count();
    await cache.set("list", { kind: "FETCH", data }, { fetchCache: true });
    return data;
}

const ttl = FETCH.revalidate;
const lru = new LRUCache({ max: 10, ttl });
const fetched = new LRUCache({ max: 10, ttl, fetchMethod: count });
const copied = new NodeCache({ stdTTL: ttl / 1000 });
const written = new Keyv({ ttl });

async function filled(cache) {
    const kept = await cache.get("notes");
    if (kept) return kept;
    const made = await count();
    await cache.set("notes", made);
    return made;
}

const ways = {
    lru: () => filled(lru),
    fetched: () => fetched.fetch("notes"),
    copied: () => filled(copied),
    written: () => filled(written),
};

async function list() {
    const entry = await cache.get("list", FETCH);
    if (!entry) return read();
    if (entry.isStale) read();
    return entry.value.data;
}

app.post("/:name", async ({ params: { name } }, response) => {
    came.set(name, (came.get(name) || 0) + 1);
    const { rows } = await pool.query("INSERT INTO note DEFAULT VALUES RETURNING id");
    response.json([rows[0].id, came.get(name)]);
});

app.get("/list", async (_, response) => response.json(await list()));

app.get("/page", async (_, response) => {
    await pool.query("UPDATE seen SET times = times + 1");
    let part = "none";
    list().then(found => (part = found));
    setImmediate(() => response.json(part));
});

app.get("/kept/:way", async ({ params: { way } }, response) => response.json(await ways[way]()));

app.get("/together", async (_, response) => {
    response.json(await batcher.batch("report", async () => {
        const { rows } = await pool.query("SELECT count(*)::int AS notes, now() AS at FROM note, pg_sleep(0.02)");
        return rows[0];
    }));
});

const server = app.listen(Number(process.argv[2]), "127.0.0.1");
// What is read behind an answer comes to its end.
process.on("SIGINT", () => server.close(() => pool.end().then(() => process.exit())));
