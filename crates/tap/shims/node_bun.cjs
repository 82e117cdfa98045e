// What Bun draws by functions that Node does not have.
"use strict";
const runtime = require("./node_runtime.cjs");

const HANDED = 12 * 2 ** 32;
const NUMBER = 8;
const asked = Buffer.alloc(NUMBER);
const { setTimeout } = globalThis;

// Ids of Bun's that are made of the time count on for all requests within a millisecond, as `uuid`'s do. Of
// each request by itself they begin anew.
const COUNTED = 12;
function keepIdsApart({ current, drawn, replace, textOfUuid }) {
    const latest = new WeakMap();
    replace(Bun, "randomUUIDv7", real => function randomUUIDv7(encoding, time) {
        const own = Reflect.apply(real, this, arguments);
        const turn = current();
        const bytes = turn && drawn(turn, 16);
        if (!bytes) return own;
        const at = Number(time ?? Date.now());
        const before = latest.get(turn);
        // The highest bit is left for counting on.
        const drawnCount = bytes.readUInt16BE(6) & (2 ** (COUNTED - 1) - 1);
        const count = before && before.at === at ? (before.count + 1) % 2 ** COUNTED : drawnCount;
        latest.set(turn, { at, count });
        bytes.writeUIntBE(at, 0, 6);
        bytes.writeUInt16BE(0x7000 | count, 6);
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        if (typeof own !== "string") return Buffer.from(bytes);
        if (encoding === "base64" || encoding === "base64url") return bytes.toString(encoding);
        return textOfUuid(bytes);
    });
}

// Bun draws the salts of its passwords where it hashes: in threads that work for no request. Whose the next
// one is, is said before; so until it is drawn, no other one is hashed.
const LOOKS_AGAIN = 1;
function handSalts({ current, replace }) {
    let last;
    const hand = number => {
        asked.writeBigUInt64LE(number);
        runtime.tell(asked, HANDED);
    };
    const isHanded = () => runtime.ask(asked, HANDED) === NUMBER && asked.readBigUInt64LE() !== 0n;
    async function isDrawn(hashed) {
        let isOver = false;
        hashed.then(() => (isOver = true), () => (isOver = true));
        while (!isOver && isHanded()) await new Promise(done => setTimeout(done, LOOKS_AGAIN));
        hand(0n);
    }
    replace(Bun.password, "hash", real => async function hash(...given) {
        const turn = current();
        if (!turn) return Reflect.apply(real, this, given);
        const before = last;
        let free;
        const own = (last = new Promise(done => (free = done)));
        if (before) await before;
        const release = () => {
            if (last === own) last = undefined;
            free();
        };
        let hashed;
        try {
            hand(turn.number);
            hashed = Reflect.apply(real, this, given);
        } catch (error) {
            hand(0n);
            release();
            throw error;
        }
        isDrawn(hashed).then(release);
        return hashed;
    });
    replace(Bun.password, "hashSync", real => function hashSync() {
        const turn = current();
        if (!turn) return Reflect.apply(real, this, arguments);
        const tells = told => {
            asked.writeBigUInt64LE(told);
            runtime.tell(asked, null);
        };
        tells(turn.number);
        try {
            return Reflect.apply(real, this, arguments);
        } finally {
            tells(0n);
        }
    });
}

module.exports = pins => {
    keepIdsApart(pins);
    handSalts(pins);
};
