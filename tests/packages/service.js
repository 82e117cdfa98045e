// Accounts between which money is moved, on `pg` alone. node service.js PORT, the database in DATABASE_URL.
"use strict";
const http = require("http");
const { Pool } = require("pg");

const pool = new Pool({ connectionString: process.env.DATABASE_URL, max: 8 });

async function move(from, to, amount) {
    const client = await pool.connect();
    try {
        await client.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
        await client.query("UPDATE account SET balance = balance + $1 WHERE id = $2", [amount, to]);
        const left = await client.query("UPDATE account SET balance = balance - $1 WHERE id = $2 RETURNING balance", [amount, from]);
        await client.query("COMMIT");
        return left.rows[0].balance;
    } catch (error) {
        await client.query("ROLLBACK");
        return error.code;
    } finally {
        client.release();
    }
}

const server = http.createServer(async (request, response) => {
    const [from, to, amount] = request.url.slice(1).split("/").map(Number);
    response.end(String(await move(from, to, amount)));
});
server.listen(Number(process.argv[2]), "127.0.0.1");
process.on("SIGINT", () => server.close(() => process.exit()));
