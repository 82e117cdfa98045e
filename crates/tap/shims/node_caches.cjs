// What requests see in caches of the process. What is there depends on who has filled a cache, and on
// whether it has expired. In a replay a request sees what it saw: nothing, or what this other request
// put there, even if a third one has put something there since.
//
//   recorded   a request puts something there ─▶ it has a number, which is told
//              a request looks there ──────────▶ the number of what it sees is told
//   replayed   a request puts something there ─▶ it is kept by the number that it had
//              a request looks there ──────────▶ it is given what has the number that it saw
//
// Who may wait does so for what is not there yet, if a request of the recording puts it there. Originally
// it was there at once. So the request's timers stand still meanwhile: a page that is rendered would else
// be sent without the part that waits.
//
// Who looks and cannot wait is kept back before: what a request is told by its database, and the request
// itself, come when what it sees next is there.
"use strict";
const { AsyncResource } = require("async_hooks");
const timers = require("timers");
const { replace } = require("./node_pins.cjs");
const runtime = require("./node_runtime.cjs");

const [PUTS, SEEN, PUT, SEES_NEXT] = [6, 7, 8, 11].map(place => place * 2 ** 32);
const NUMBER = 8;
// There was nothing; there was something, and it is not known who put it there.
const NOTHING = 0n;
const UNKNOWN = 1n;
// Above so many bits of a number stands what else a look tells.
const NUMBER_BITS = 58n;
// So many things are known by their numbers, the latest that were put.
const KEPT_MAX = 1 << 16;
// So often a request looks into a cache and it is told.
const LOOKS_MAX = 1000;
// So long one is waited for, and once. Changed code may not put it there.
const WAIT = 5000;
// So long somebody is kept back for it, once. It may be put there by who waits for this one.
const KEPT_BACK = 300;

const asked = Buffer.alloc(4 * NUMBER);
const kept = new Map();
const missed = new Set();
const waiting = new Map();
let current = () => undefined;
let replays = false;

function hash(text) {
    let [low, high] = [0x811c9dc5, 0x9e3779b9];
    for (let at = 0; at < text.length; at += 1) {
        low = Math.imul(low ^ text.charCodeAt(at), 0x01000193);
        high = Math.imul(high ^ low, 0x85ebca6b);
    }
    return (BigInt(high >>> 0) << 32n) | BigInt(low >>> 0);
}

function writes(turn, cache, key, value) {
    [turn.number, cache, key, BigInt.asUintN(64, value)].forEach((one, at) => asked.writeBigUInt64LE(one, at * NUMBER));
}

function asks(what) {
    return runtime.ask(asked, what) === NUMBER ? asked.readBigInt64LE() : undefined;
}

// A cache by its name. A key is a text.
class Cache {
    constructor(name) {
        this.name = hash(name);
        // Of what cannot be known by itself, by key.
        this.latest = new Map();
        this.numbers = new WeakMap();
        this.awaited = new WeakMap();
        this.looks = new WeakMap();
    }

    // The request at work puts something there. `by` is an object that stands for it, if there is one.
    put(key, value, by = value) {
        const turn = current();
        const number = turn ? this.#number(turn, key) : UNKNOWN;
        if (replays) {
            if (number > UNKNOWN) keep(number, value);
            return;
        }
        if (by !== null && typeof by === "object") this.numbers.set(by, number);
        remember(this.latest, key, number);
    }

    #number(turn, key) {
        const all = this.#awaited(turn);
        const number = all.get(key);
        all.delete(key);
        if (number) return number;
        writes(turn, this.name, hash(key), 0n);
        return asks(PUTS) || UNKNOWN;
    }

    // While recording: the request at work is to put something there, maybe behind its answer and behind all
    // else that it does. Then nothing more is told of it, so its number is told now.
    // Returns it.
    willPut(key) {
        const turn = current();
        if (!turn) return UNKNOWN;
        const number = this.#number(turn, key);
        this.#awaited(turn).set(key, number);
        return number;
    }

    // Numbers of what a request is to put there, by key.
    #awaited(turn) {
        if (!this.awaited.has(turn)) this.awaited.set(turn, new Map());
        return this.awaited.get(turn);
    }

    // Of what is there: who put it there. What is known by itself no longer, since a cache gives copies, is
    // what was put there last.
    numberOf(key, by) {
        const known = by !== null && typeof by === "object" && this.numbers.get(by);
        return known || this.latest.get(key) || UNKNOWN;
    }

    // What has this number, in an array, if it is there.
    kept(number) {
        return kept.has(number) ? [kept.get(number)] : undefined;
    }

    // While recording: the request at work saw what has this number. `more` is a small number.
    saw(key, number, more = 0) {
        const turn = current();
        if (!turn || !this.#isTold(turn)) return;
        writes(turn, this.name, hash(key), number | (BigInt(more) << NUMBER_BITS));
        runtime.tell(asked, SEEN);
    }

    // Some programs look without end.
    #isTold(turn) {
        const looks = (this.looks.get(turn) || 0) + 1;
        this.looks.set(turn, looks);
        return looks <= LOOKS_MAX;
    }

    // In a replay: what it saw, and what was told beside that; `undefined`: it did not look so often.
    again(key) {
        const turn = current();
        if (!turn) return undefined;
        writes(turn, this.name, hash(key), 0n);
        const told = asks(SEEN);
        if (told === undefined) return undefined;
        return { number: BigInt.asUintN(Number(NUMBER_BITS), told), more: Number(told >> NUMBER_BITS) };
    }

    // What has this number, in an array; `undefined`: it is not there, and does not come. `stands`: it
    // was not waited for originally.
    async waitFor(key, number, stands) {
        if (kept.has(number)) return [kept.get(number)];
        writes({ number: 0n }, this.name, hash(key), number);
        if (missed.has(number) || asks(PUT) !== 1n) return undefined;
        const still = stands && standing(current());
        try {
            return await come(number);
        } finally {
            if (still) still.goesOn();
        }
    }
}

function come(number, patience = WAIT, inVain = missed) {
    return new Promise(resolve => {
        const all = waiting.get(number) || [];
        waiting.set(number, [...all, resolve]);
        const misses = () => {
            if (!kept.has(number)) inVain.add(number);
            resolve(undefined);
        };
        realTimeout(misses, patience).unref();
    });
}

// A promise of what a request sees next, or of its not coming; `undefined`: nothing is waited for.
const late = new Set();
function seesNext(turn) {
    if (!replays || !turn) return undefined;
    asked.writeBigUInt64LE(turn.number);
    const number = runtime.ask(asked.subarray(0, NUMBER), SEES_NEXT) === NUMBER && asked.readBigInt64LE();
    const isAwaited = number > UNKNOWN && !kept.has(number) && !missed.has(number) && !late.has(number);
    return isAwaited ? come(number, KEPT_BACK, late) : undefined;
}

// A request whose timers stand still, by its turn.
class Standing {
    looks = 0;
    held = [];

    goesOn() {
        this.looks -= 1;
        if (this.looks > 0) return;
        for (const work of this.held.splice(0)) realImmediate(work);
    }
}
const still = new WeakMap();
const { setTimeout: realTimeout, setImmediate: realImmediate } = timers;

function standing(turn) {
    if (!still.has(turn)) still.set(turn, new Standing());
    const own = still.get(turn);
    own.looks += 1;
    return own;
}

function holdTimers() {
    const held = real => function (work) {
        const turn = current();
        if (!turn || typeof work !== "function") return Reflect.apply(real, this, arguments);
        const runs = function () {
            const own = still.get(turn);
            if (!own || own.looks === 0) return Reflect.apply(work, this, arguments);
            own.held.push(AsyncResource.bind(() => Reflect.apply(work, this, arguments)));
        };
        return Reflect.apply(real, this, [runs, ...[...arguments].slice(1)]);
    };
    for (const owner of [timers, globalThis]) {
        replace(owner, "setTimeout", held);
        replace(owner, "setImmediate", held);
    }
}

function keep(number, value) {
    remember(kept, number, value);
    missed.delete(number);
    for (const resolve of waiting.get(number) || []) resolve([value]);
    waiting.delete(number);
}

function remember(map, key, value) {
    map.delete(key);
    map.set(key, value);
    if (map.size > KEPT_MAX) map.delete(map.keys().next().value);
}

module.exports = {
    NOTHING,
    UNKNOWN,
    Cache,
    begin(turn, isReplay) {
        current = turn;
        replays = isReplay;
        if (replays) holdTimers();
    },
    replays: () => replays,
    seesNext,
};
