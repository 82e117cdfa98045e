// Ids by packages that keep blocks of random bytes, or the time that was read last, imported as modules and required, and a hash of a password whose salt native
// code draws.
//
//     node ids.js PORT [filled]
//
// With `filled` some were made before it listens.
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { hashSync } from "@node-rs/argon2";
import { customAlphabet, nanoid } from "nanoid";
import { v4, v7 } from "uuid";

const required = createRequire(import.meta.url)("uuid");
const digits = customAlphabet("0123456789", 12);
const cheap = { memoryCost: 64, timeCost: 1 };
const seed = { random: undefined };
const all = new Set();
function ids() {
    const made = [nanoid(), nanoid(64), digits(), v4(seed), required.v4(seed), v7(), v7(), required.v7(), hashSync("secret", cheap)];
    for (const id of made) {
        if (all.has(id)) throw new Error(`the same id again: ${id}`);
        all.add(id);
    }
    return made;
}
const before = process.argv[3] === "filled" ? 5 : 2;
for (let made = 0; made < before; made++) ids();

if (process.argv[3] === "filled") {
    // Somebody has read a later time than all requests will.
    const { now } = Date;
    Date.now = () => now() + 3600000;
    for (const make of [v7, required.v7]) make();
    Date.now = now;
}

const server = createServer((_, response) => response.end(JSON.stringify(ids())));
server.listen(Number(process.argv[2]), "127.0.0.1");
process.on("SIGINT", () => server.close(() => process.exit()));
process.on("SIGTERM", () => process.exit());
