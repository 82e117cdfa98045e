// Asks for several products at a time, each by the same statement on a connection of its own. In which order it asks is up
// to ORDER in the environment: forwards, or backwards.
//
//     node products.js PORT        the database is in DATABASE_URL
"use strict";
const express = require("express");
const { Pool } = require("pg");

const PRODUCTS = [1, 2, 3, 4, 5];
const order = process.env.ORDER === "backwards" ? [...PRODUCTS].reverse() : PRODUCTS;
const pool = new Pool({ connectionString: process.env.DATABASE_URL, max: 2 * PRODUCTS.length });
const text = "SELECT name, price FROM product WHERE id = $1";
const app = express();

const ways = {
    bound: id => pool.query(text, [id]),
    prepared: id => pool.query({ name: "product", text, values: [id] }),
    literal: id => pool.query(text.replace("$1", id)),
    async transaction(id) {
        const client = await pool.connect();
        try {
            await client.query("BEGIN");
            const found = await client.query(text, [id]);
            await client.query("COMMIT");
            return found;
        } finally {
            client.release();
        }
    },
};

app.get("/:way", async (request, response) => {
    const asked = new Map(order.map(id => [id, ways[request.params.way](id)]));
    const found = await Promise.all(PRODUCTS.map(id => asked.get(id)));
    response.json(found.map(({ rows: [{ name, price }] }) => [name, price]));
});

app.post("/raise", async (_, response) => {
    await pool.query("UPDATE product SET price = price + 1");
    response.send("raised");
});

// A request that finds one connection, while others are being opened, may have all of its reads by that one, behind each other.
async function open() {
    const clients = await Promise.all(Array.from({ length: pool.options.max }, () => pool.connect()));
    clients.forEach(client => client.release());
}

open().then(() => {
    const server = app.listen(Number(process.argv[2]), "127.0.0.1");
    process.on("SIGINT", () => server.close(() => process.exit()));
});
