// Shows the stack of an error, as frameworks do while one develops, and draws behind a wait that some requests have.
//
//     stacks.js PORT WAITING      a POST to /WAITING waits before it draws, as who fills a cache
"use strict";
const crypto = require("crypto");
const express = require("express");
const { setTimeout: wait } = require("timers/promises");

const [port, waiting] = process.argv.slice(2);
const app = express();
// Down to what the shim has put in the place of a function of Node's.
Error.stackTraceLimit = 50;
app.get("/", (request, response) => response.send(new Error("none").stack));
app.post("/:name", async (request, response) => {
    if (request.params.name === waiting) await wait(2);
    response.send(crypto.randomUUID());
});
app.listen(Number(port), "127.0.0.1");
