// Asks others for four requests at a time, on connections that all of them share: in one turn of the loop, by commands that
// all say the same. And takes ids of sessions from a block that all of them share. In which order is up to ORDER in the
// environment: forwards, or backwards.
//
//     node asks.js PORT HTTP-PORT REDIS-SOCKET      the database is in DATABASE_URL
"use strict";
const sessionId = require("@fastify/session/lib/idGenerator")();
const express = require("express");
const Redis = require("ioredis");
const { Pool } = require("pg");

const TOGETHER = 4;
const [port, http, path] = process.argv.slice(2);
const backwards = process.env.ORDER === "backwards";
const pool = new Pool({ connectionString: process.env.DATABASE_URL, max: TOGETHER });
const plain = { path, enableReadyCheck: false, disableClientInfo: true };
const old = new Redis(plain);
const gathers = new Redis({ ...plain, enableAutoPipelining: true });
const script = { numberOfKeys: 1, lua: "return redis.call('INCR', KEYS[1])" };
old.defineCommand("counts", script);
const [newer, older] = [require("redis"), require("redis-4")].map(driver =>
    driver.createClient({ socket: { path }, disableClientInfo: true }),
);

const ways = {
    ioredis: () => old.incr("calls"),
    scripted: async () => [await old.counts("calls"), await old.incr("calls"), await old.counts("calls")].join(),
    gathered: () => gathers.incr("calls"),
    pipeline: async () => {
        const all = await old.pipeline().incr("calls").get("calls").exec();
        return all.map(([, value]) => value).join();
    },
    "node-redis": () => newer.incr("calls"),
    "node-redis-pipeline": async () => (await newer.multi().incr("calls").get("calls").execAsPipeline()).join(),
    "node-redis-4": () => older.incr("calls"),
    session: async () => sessionId(),
    fetch: async () => (await fetch(`http://127.0.0.1:${http}/rates`)).text(),
};

// Requests that wait until all have come.
let waiting = [];
const app = express();
app.post("/:way/:number", async (request, response) => {
    const { way, number } = request.params;
    await new Promise(goOn => {
        waiting.push({ number, goOn });
        if (waiting.length < TOGETHER) return;
        const all = waiting.sort((one, other) => one.number - other.number);
        waiting = [];
        (backwards ? all.reverse() : all).forEach(each => each.goOn());
    });
    const text = `${way} ${number} ${await ways[way]()}`;
    await pool.query("INSERT INTO seen (text) VALUES ($1)", [text]);
    response.send(text);
});

Promise.all([newer.connect(), older.connect(), old.ping(), gathers.ping()]).then(() => {
    const server = app.listen(Number(port), "127.0.0.1");
    process.on("SIGINT", () => server.close(() => process.exit()));
});
