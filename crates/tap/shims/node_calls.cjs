// Whom else a service calls. ioredis and node-redis put commands of several requests on one connection, from
// queues and in one write; `fetch` has a queue for each address. So it is told by command:
//
//   a command is made ──────▶ it has the turn of who makes it
//   its bytes are made ─────▶ its turn and its length stand in a list
//   a socket is written to ─▶ what stands there is of this socket
//   bytes go out ───────────▶ they are cut by these lengths, and each part is told for its request
//   `fetch` sends its head ─▶ the socket is for who asked, until the next one is sent
//
// In a replay whoever has the other end looks whose turn it is when it has read the bytes. So a part is
// sent there when those of other requests in front of it are answered.
"use strict";
const channels = require("diagnostics_channel");

const TURN = Symbol("hindcast turn");
const BOUND = Symbol("hindcast bound");
// Answers to these are not one for each, or come unasked.
const UNCOUNTED = /^\*\d+\r\n\$\d+\r\n([sp]?subscribe|monitor|client\r\n\$\d+\r\nreply)\r/i;
const HEAD_MAX = 64;

// Commands whose bytes are made, and which are to be written next.
const made = [];

// Counts answers of Redis.
class Answers {
    line = "";
    skip = 0;
    // Of an answer that has not come to its end.
    left = 0;
    isPush = false;

    take(chunk, answered) {
        for (let at = 0; at < chunk.length; ) {
            if (this.skip > 0) {
                const skipped = Math.min(this.skip, chunk.length - at);
                this.skip -= skipped;
                at += skipped;
                if (this.skip === 0) this.ends(answered);
                continue;
            }
            const end = chunk.indexOf(10, at);
            this.line += chunk.toString("latin1", at, end < 0 ? chunk.length : end);
            if (end < 0) return;
            at = end + 1;
            this.begins(answered);
        }
    }

    begins(answered) {
        const { line } = this;
        const [type, length] = [line[0], Number(line.slice(1))];
        this.line = "";
        if (this.left === 0) {
            this.left = 1;
            this.isPush = type === ">";
        }
        if ("*~>".includes(type)) this.left += Math.max(0, length);
        // An attribute is in front of what it is of.
        else if (type === "%" || type === "|") this.left += 2 * length + (type === "|" ? 1 : 0);
        else if ("$=!".includes(type) && length >= 0) {
            this.skip = length + 2;
            return;
        }
        this.ends(answered);
    }

    ends(answered) {
        this.left -= 1;
        if (this.left === 0 && !this.isPush) answered();
    }
}

// The commands of one socket. `put` writes bytes for a turn.
class Commands {
    // Of those that are to be written.
    next = [];
    answers = new Answers();
    pending = 0;
    owner = undefined;
    held = [];

    constructor(put, holds) {
        this.put = put;
        this.holds = holds;
    }

    // Returns parts that are of one request each; `undefined`: it is not known whose they are.
    cut(bytes) {
        const parts = [];
        let from = 0;
        while (from < bytes.length && this.next.length > 0) {
            const { turn, length } = this.next.shift();
            const last = parts[parts.length - 1];
            if (last && last.turn === turn) {
                last.commands += 1;
                last.to += length;
            } else {
                parts.push({ turn, commands: 1, from, to: from + length });
            }
            if (this.holds && UNCOUNTED.test(bytes.toString("latin1", from, from + HEAD_MAX))) this.lets();
            from += length;
        }
        if (from !== bytes.length) {
            this.next.length = 0;
            return undefined;
        }
        return parts.map(part => ({ ...part, bytes: bytes.subarray(part.from, part.to) }));
    }

    writes(bytes) {
        const unknown = { turn: undefined, commands: 0, bytes };
        for (const part of this.cut(bytes) || [unknown]) {
            if (this.holds && !this.isFree(part)) this.held.push(part);
            else this.sends(part);
        }
    }

    isFree(part) {
        return this.held.length === 0 && (this.pending === 0 || this.owner === part.turn);
    }

    sends(part) {
        this.owner = part.turn;
        this.pending += part.commands;
        this.put(part.bytes, part.turn);
    }

    // Nothing is held from now on.
    lets() {
        this.holds = false;
        this.held.splice(0).forEach(part => this.sends(part));
    }

    reads(bytes) {
        if (!this.holds) return;
        this.answers.take(bytes, () => (this.pending = Math.max(0, this.pending - 1)));
        while (this.held.length > 0 && (this.pending === 0 || this.owner === this.held[0].turn)) {
            this.sends(this.held.shift());
        }
    }
}

function isMade(turn, ...parts) {
    made.push({ turn, length: parts.reduce((sum, part) => sum + Buffer.byteLength(part), 0) });
}

function bindCommand(prototype, storage) {
    const { initPromise, toWritable } = prototype;
    if (typeof initPromise !== "function" || typeof toWritable !== "function") return;
    if (toWritable[BOUND]) return;
    prototype.initPromise = function () {
        if (!(TURN in this)) this[TURN] = storage.getStore();
        return Reflect.apply(initPromise, this, arguments);
    };
    prototype.toWritable = function () {
        const bytes = Reflect.apply(toWritable, this, arguments);
        isMade(this[TURN], bytes);
        return bytes;
    };
    prototype.toWritable[BOUND] = true;
}

// A script is a class of its own, whose bytes the class of all commands makes. Told by both, they would
// count twice.
function commandsPrototype(command) {
    let found;
    for (let of = command; of; of = Object.getPrototypeOf(of)) {
        if (Object.hasOwn(of, "toWritable") && typeof of.toWritable === "function") found = of;
    }
    return found;
}

// A client of ioredis is an emitter. In a bundle its commands have no name: they are known by what they
// can do, when the first one is sent.
function findCommands(prototype, storage) {
    if (!("sendCommand" in prototype)) return;
    if ("_executeMulti" in prototype && "_executePipeline" in prototype) bindClient(prototype, storage);
    if (!("resetCommandQueue" in prototype)) return;
    const { sendCommand } = prototype;
    if (typeof sendCommand !== "function") return;
    prototype.sendCommand = function (command) {
        const of = commandsPrototype(command);
        if (of && !of.toWritable[BOUND]) {
            bindCommand(of, storage);
            command[TURN] = storage.getStore();
        }
        return Reflect.apply(sendCommand, this, arguments);
    };
}

// node-redis, from version 5 on, has its queue and its encoder where nothing of Node's leads to. Its
// clients and their sockets are emitters: what a client is given to send waits here until the socket is
// given the same bytes to write.
const SENT = Symbol("hindcast sent");
const KIND = Symbol("hindcast kind");
let isNamed = false;
let making;

// An emitter is made; the socket of a client is made while the client is.
function isMaking(emitter) {
    const kind = emitter[KIND];
    if (kind === "client") making = [];
    if (kind) Object.defineProperty(emitter, SENT, { value: making, configurable: true });
}

function bindClient(prototype, storage) {
    if (prototype[KIND]) return;
    Object.defineProperty(prototype, KIND, { value: "client" });
    const waits = (client, all, send) => (isNamed ? send() : listed(client, all, send));
    const listed = async (client, all, send) => {
        const turn = storage.getStore();
        const sent = client[SENT];
        const own = sent ? all.filter(isEncoded).map(words => ({ words, turn })) : [];
        sent?.push(...own);
        try {
            return await send();
        } finally {
            // What was not written never will be.
            for (const one of own) if (!one.isWritten) sent.splice(sent.indexOf(one), 1);
        }
    };
    const { sendCommand } = prototype;
    prototype.sendCommand = function (words) {
        return waits(this, [words], () => Reflect.apply(sendCommand, this, arguments));
    };
    for (const [name, before, behind] of [["_executeMulti", [["MULTI"]], [["EXEC"]]], ["_executePipeline", [], []]]) {
        const execute = prototype[name];
        prototype[name] = function (commands) {
            const all = [...before, ...commands.map(({ args }) => args), ...behind];
            return waits(this, all, () => Reflect.apply(execute, this, arguments));
        };
    }
}

function findSocket(prototype) {
    if (prototype[KIND] || !("socketEpoch" in prototype && "isReady" in prototype && "write" in prototype)) return;
    const { write } = prototype;
    Object.defineProperty(prototype, KIND, { value: "socket" });
    prototype.write = function (commands) {
        const isTold = isNamed || !this[SENT];
        return Reflect.apply(write, this, [isTold ? commands : told(commands, this[SENT])]);
    };
}

function* told(commands, sent) {
    for (const parts of commands) {
        const bytes = joined(parts);
        const at = sent.findIndex(({ words }) => bytes.equals(encoded(words)));
        const [one] = at < 0 ? [] : sent.splice(at, 1);
        if (one) one.isWritten = true;
        isMade(one?.turn, bytes);
        yield parts;
    }
}

const isWord = word => typeof word === "string" || Buffer.isBuffer(word);
const isEncoded = words => Array.isArray(words) && words.every(isWord);
const joined = parts => Buffer.concat(parts.map(part => Buffer.from(part)));

function encoded(words) {
    const each = words.map(word => ["\r\n$" + Buffer.byteLength(word) + "\r\n", word]);
    return joined([`*${words.length}`, ...each.flat(), "\r\n"]);
}

// By their words.
const turns = new WeakMap();

function bindCommandsQueue({ prototype }, storage) {
    const { addCommand } = prototype;
    if (typeof addCommand !== "function" || addCommand[BOUND]) return;
    prototype.addCommand = function (words) {
        if (words && typeof words === "object") turns.set(words, storage.getStore());
        return Reflect.apply(addCommand, this, arguments);
    };
    prototype.addCommand[BOUND] = true;
}

function bindEncoder(module) {
    isNamed = true;
    const encode = module.default;
    if (encode[BOUND]) return;
    module.default = function (words) {
        const parts = Reflect.apply(encode, this, arguments);
        isMade(turns.get(words), ...parts);
        return parts;
    };
    module.default[BOUND] = true;
}

const isIoredis = /(^|[\\/])ioredis([\\/]built([\\/](index(\.js)?)?)?)?$/;
const isQueue = /(^|[\\/])commands-queue(\.js)?$/;
const isEncoder = /(^|[\\/])RESP2?[\\/]encoder(\.js)?$/;

function loaded(request, exported, storage) {
    if (isIoredis.test(request) && exported && exported.Command) {
        bindCommand(exported.Command.prototype, storage);
    } else if (isQueue.test(request) && exported && typeof exported.default === "function") {
        bindCommandsQueue(exported.default, storage);
    } else if (isEncoder.test(request) && exported && typeof exported.default === "function") {
        bindEncoder(exported);
    }
}

// `fetch`, and whatever else is made with undici.
const FETCHES = Symbol("hindcast fetches");
function findFetches(storage) {
    if (typeof channels.subscribe !== "function") return;
    const asked = new WeakMap();
    channels.subscribe("undici:request:create", ({ request }) => {
        asked.set(request, storage.getStore());
    });
    channels.subscribe("undici:client:sendHeaders", ({ request, socket }) => {
        if (socket) socket[FETCHES] = { turn: asked.get(request) };
    });
}

module.exports = { Commands, FETCHES, findCommands, findFetches, findSocket, isMaking, loaded, made };
