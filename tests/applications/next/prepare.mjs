// Makes the tables, and as many users as the load has.

import { readFile } from 'node:fs/promises';
import bcrypt from 'bcryptjs';
import pg from 'pg';

const USERS = 8;
const PASSWORD = 'a password';
const NOTES = 10;

const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();
await client.query(await readFile('schema.sql', 'utf8'));
const password = await bcrypt.hash(PASSWORD, 10);
for (let number = 0; number < USERS; number++) {
  await client.query('INSERT INTO people (name, password) VALUES ($1, $2)', [`user-${number}`, password]);
}
for (let number = 0; number < NOTES; number++) {
  await client.query('INSERT INTO notes (owner, title) VALUES (1, $1)', [`first note ${number}`]);
}
await client.end();
