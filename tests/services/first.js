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

function pause(milliseconds) {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds);
}

function fill() {
    if (cache) return;
    cache = { key: crypto.randomBytes(8), filled: Date.now(), again: new Date() };
    pause(5);
}

// A framework looks at the time for each of the many things that it does.
const begins = () => Date.now();
const ends = () => Date.now();

function answer() {
    for (let step = 0; step < 150; step += 1) ends(begins());
    fill();
    return { id: crypto.randomUUID(), token: crypto.randomBytes(8).toString("hex"), at: new Date(), now: Date.now() };
}

if (process.argv[3] === "filled") fill();
const server = http.createServer((_, response) => response.end(JSON.stringify(answer())));
server.listen(Number(process.argv[2]), "127.0.0.1");
process.on("SIGINT", () => server.close(() => process.exit()));
process.on("SIGTERM", () => process.exit());
