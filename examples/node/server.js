"use strict";
// Accounts with a ledger: Express and pg.
//
// A withdrawal reads the balance and writes an entry in one transaction. Two of them under snapshot isolation write
// different rows, so neither notices the other, and together they overdraw the account (write skew).

const express = require("express");
const { Pool } = require("pg");

const TRANSACTION_ATTEMPTS_MAX = 20;
const SERIALIZATION_FAILURE = "40001";
const DEADLOCK_DETECTED = "40P01";
const UNIQUE_VIOLATION = "23505";
const FOREIGN_KEY_VIOLATION = "23503";

const pool = new Pool({ connectionString: process.env.DATABASE_URL, max: 10 });
// A pool without this listener ends the process when an idle connection is lost.
pool.on("error", (error) => console.error("lost an idle connection:", error.message));

class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Runs `attempt` again if the database could not serialize it. */
async function retrying(attempt) {
  for (let attemptsLeft = TRANSACTION_ATTEMPTS_MAX - 1; ; attemptsLeft--) {
    try {
      return await attempt();
    } catch (error) {
      const again = error.code === SERIALIZATION_FAILURE || error.code === DEADLOCK_DETECTED;
      if (!again || attemptsLeft === 0) throw error;
    }
  }
}

/** Runs `work` in a transaction of its own. */
function inTransaction(work, begin = "BEGIN") {
  return retrying(async () => {
    const client = await pool.connect();
    let lost;
    try {
      await client.query(begin);
      const result = await work(client);
      await client.query("COMMIT");
      return result;
    } catch (error) {
      await client.query("ROLLBACK").catch((reason) => (lost = reason));
      throw error;
    } finally {
      client.release(lost);
    }
  });
}

async function balanceOf(client, account) {
  const { rows } = await client.query("SELECT coalesce(sum(amount), 0)::int AS balance FROM entry WHERE account_id = $1", [
    account,
  ]);
  return rows[0].balance;
}

async function enter(client, account, amount, note) {
  const { rows } = await client.query(
    "INSERT INTO entry (account_id, amount, note) VALUES ($1, $2, $3) RETURNING id, amount, at",
    [account, amount, note],
  );
  return rows[0];
}

const app = express();
app.use(express.json());

app.post("/accounts", async (request, response) => {
  const { owner, opening } = request.body;
  const opened = await inTransaction(async (client) => {
    const { rows } = await client.query("INSERT INTO account (owner) VALUES ($1) RETURNING id, owner, opened_at", [owner]);
    const entry = await enter(client, rows[0].id, opening, { opening: true });
    return { ...rows[0], entry };
  });
  response.status(201).json(opened);
});

app.get("/accounts/:id", async (request, response) => {
  const found = await inTransaction(async (client) => {
    // A named statement is prepared once per connection.
    const { rows } = await client.query({
      name: "account",
      text: "SELECT id, owner, opened_at FROM account WHERE id = $1 AND NOT closed",
      values: [request.params.id],
    });
    return rows[0] && { ...rows[0], balance: await balanceOf(client, request.params.id) };
  }, "BEGIN READ ONLY");
  if (!found) throw new Refused(404, "there is no such account");
  response.json(found);
});

app.post("/accounts/:id/withdrawals", async (request, response) => {
  const { amount, note } = request.body;
  const entry = await inTransaction(async (client) => {
    const balance = await balanceOf(client, request.params.id);
    if (balance < amount) throw new Refused(409, `only ${balance} left`);
    return enter(client, request.params.id, -amount, note ?? null);
  });
  response.status(201).json(entry);
});

app.post("/transfers", async (request, response) => {
  const { from, to, amount } = request.body;
  const entries = await inTransaction(async (client) => {
    const { rowCount } = await client.query("SELECT id FROM account WHERE id = ANY ($1) ORDER BY id FOR UPDATE", [
      [from, to],
    ]);
    if (rowCount !== 2) throw new Refused(404, "there is no such account");
    if ((await balanceOf(client, from)) < amount) throw new Refused(409, "not enough left");
    return [await enter(client, from, -amount, { to }), await enter(client, to, amount, { from })];
  });
  response.status(201).json({ entries });
});

// One statement, committed by itself.
app.put("/accounts/:id/preferences", async (request, response) => {
  const { rows } = await retrying(() =>
    pool.query(
      `INSERT INTO preference AS p (account_id, settings) VALUES ($1, $2)
       ON CONFLICT (account_id) DO UPDATE SET settings = p.settings || excluded.settings, changes = p.changes + 1, changed_at = now()
       RETURNING settings, changes, changed_at`,
      [request.params.id, request.body],
    ),
  );
  response.json(rows[0]);
});

app.get("/accounts/:id/statement", async (request, response) => {
  const { rows } = await pool.query(
    `SELECT count(*)::int AS entries, coalesce(sum(amount), 0)::int AS balance,
            jsonb_agg(jsonb_build_object('id', id, 'amount', amount, 'note', note) ORDER BY id DESC) AS newest_first
     FROM entry WHERE account_id = $1`,
    [request.params.id],
  );
  response.json(rows[0]);
});

// No parameters, so it travels by the simple protocol.
app.get("/totals", async (_request, response) => {
  const { rows } = await pool.query("SELECT count(*)::int AS accounts, sum(amount)::int AS money FROM entry");
  response.json(rows[0]);
});

app.use((error, _request, response, _next) => {
  const status =
    error instanceof Refused
      ? error.status
      : { [UNIQUE_VIOLATION]: 409, [FOREIGN_KEY_VIOLATION]: 404 }[error.code] ?? error.statusCode ?? 500;
  if (status === 500) console.error(error);
  response.status(status).json({ error: error.message });
});

const server = app.listen(process.env.PORT, "127.0.0.1", (error) => {
  if (error) throw error;
  console.log(`listening on port ${process.env.PORT}`);
});
process.on("SIGTERM", () => server.close(() => pool.end()));
