// What the first request needs, the others find: a cache of the process, for which it draws and looks at
// the time. Each request is answered with a number and a time of its own.
//
//     node first.js PORT [filled]
//
// With `filled` it is full from the beginning.
"use strict";
const crypto = require("crypto");
const http = require("http");
let cache;

function fill() {
    cache ??= { key: crypto.randomBytes(8), filled: Date.now(), again: new Date() };
}

function answer() {
    fill();
    return { id: crypto.randomUUID(), token: crypto.randomBytes(8).toString("hex"), at: new Date(), now: Date.now() };
}

if (process.argv[3] === "filled") fill();
const server = http.createServer((_, response) => response.end(JSON.stringify(answer())));
server.listen(Number(process.argv[2]), "127.0.0.1");
process.on("SIGINT", () => server.close(() => process.exit()));
process.on("SIGTERM", () => process.exit());
