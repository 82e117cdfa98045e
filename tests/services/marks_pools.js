// Every request writes rows with its own name: Express, with the pools of Knex, Sequelize and generic-pool, each smaller than the
// load.
//
//     node marks_pools.js PORT        the database is in DATABASE_URL
"use strict";
const express = require("express");
const generic = require("generic-pool");
const knex = require("knex");
const { Client } = require("pg");
const { Sequelize } = require("sequelize");

const connectionString = process.env.DATABASE_URL;
const max = 3;
const builder = knex({ client: "pg", connection: connectionString, pool: { min: 0, max } });
const sequelize = new Sequelize(connectionString, { logging: false, pool: { max } });
const clients = generic.createPool(
    {
        async create() {
            const client = new Client({ connectionString });
            await client.connect();
            return client;
        },
        destroy: client => client.end(),
    },
    { max },
);

// Two connections at a time, and then one whose transaction has seen what others wrote.
const SEEN = "SELECT count(*) FROM mark";
const INSERT = "INSERT INTO mark VALUES ($1, $2)";
const ways = {
    async knex(name) {
        await Promise.all([1, 2].map(step => builder("mark").insert({ name, step })));
        await builder.transaction(async transaction => {
            await transaction.raw(SEEN);
            await transaction("mark").insert({ name, step: 3 });
        }, { isolationLevel: "repeatable read" });
    },
    async sequelize(name) {
        const insert = (step, transaction) => sequelize.query(INSERT, { bind: [name, step], transaction });
        await Promise.all([1, 2].map(step => insert(step)));
        await sequelize.transaction({ isolationLevel: "REPEATABLE READ" }, async transaction => {
            await sequelize.query(SEEN, { transaction });
            await insert(3, transaction);
        });
    },
    async generic(name) {
        await Promise.all([1, 2].map(step => clients.use(client => client.query(INSERT, [name, step]))));
        await clients.use(async client => {
            await client.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
            await client.query(SEEN);
            await client.query(INSERT, [name, 3]);
            await client.query("COMMIT");
        });
    },
};

const app = express();
app.post("/:way/:name", async (request, response) => {
    await ways[request.params.way](request.params.name);
    response.send(request.params.name);
});
const server = app.listen(Number(process.argv[2]), "127.0.0.1");
process.on("SIGINT", () => server.close(() => process.exit()));
