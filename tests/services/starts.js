// Ids that are made of what was drawn when the service was loaded, as `cuid2` makes them: a counter that begins anywhere and a
// fingerprint; and cookies that are signed by a key that nobody has configured.
//
//     node starts.js PORT        the database is in DATABASE_URL
"use strict";
const crypto = require("crypto");
const express = require("express");
const { Pool } = require("pg");

const KEY = crypto.randomBytes(32);
const FINGERPRINT = crypto.randomUUID();
let counter = Math.floor(Math.random() * 476782367);

const pool = new Pool({ connectionString: process.env.DATABASE_URL, max: 4 });
const signed = name => `${name}.${crypto.createHmac("sha256", KEY).update(name).digest("hex")}`;
const app = express();

app.post("/login/:name", (request, response) => {
    response.set("Set-Cookie", `session=${signed(request.params.name)}`);
    response.json({ hello: request.params.name });
});

app.post("/note/:text", async (request, response) => {
    const cookie = (request.get("cookie") || "").replace("session=", "");
    const [name] = cookie.split(".");
    if (cookie !== signed(name)) return response.status(401).json({ error: "nobody knows you" });
    counter += 1;
    const id = `${FINGERPRINT}-${counter}-${crypto.randomBytes(4).toString("hex")}`;
    await pool.query("INSERT INTO note VALUES ($1, $2, $3)", [id, name, request.params.text]);
    response.json({ note: id });
});

const server = app.listen(Number(process.argv[2]), "127.0.0.1");
process.on("SIGINT", () => server.close(() => process.exit()));
