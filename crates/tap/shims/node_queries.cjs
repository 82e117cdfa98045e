// postgres.js puts queries of several requests on one connection, one behind the other and in one
// write, and runs what waits in its queue for who freed a connection. So it is told by query:
//
//   a query is awaited ──▶ it has the turn of who awaits it
//   it is executed ──────▶ its turn stands in the queue of its connection
//   its bytes are written ▶ they begin with its first message and end with its last
//   another request's are in front of it ──▶ it is sent when these are answered
//
// So a connection is one request's at a time, and who has the other end never reads bytes of two.
// A query is known by what it is made of, before anything is sent, however the driver was loaded.
"use strict";
const { Messages } = require("./node_messages.cjs");

const TURN = Symbol("hindcast turn");
const STATE = Symbol("hindcast state");
// What can begin a query, and what ends it.
const BEGINS = "PBQS";
const ENDS = "QS";
// What goes on with a copy.
const COPIES = "dcf";
const SESSION = 8;

// By process and secret of the server.
const pipelines = new Map();
let known = false;

// Looks for the prototype of queries: they are promises of a class of their own, and set this property
// before anything else of them is known.
const FIRST = "canceller";
function find(storage) {
    Object.defineProperty(Object.prototype, FIRST, {
        configurable: true,
        get: () => undefined,
        set(value) {
            if (typeof this !== "object" || this === null) return;
            const prototype = Object.getPrototypeOf(this);
            if (this instanceof Promise && isOfQueries(prototype)) {
                delete Object.prototype[FIRST];
                bindQueries(prototype, storage);
            }
            Reflect.defineProperty(this, FIRST, { value, writable: true, enumerable: true, configurable: true });
        },
    });
}

function isOfQueries(prototype) {
    const methods = ["handle", "execute", "cursor", "describe", "forEach", "values"];
    return prototype && methods.every(name => typeof prototype[name] === "function");
}

function bindQueries(prototype, storage) {
    known = true;
    const { handle } = prototype;
    prototype.handle = function () {
        if (!(TURN in this)) {
            const turn = (this[TURN] = storage.getStore());
            for (const name of ["forEachFn", "cursorFn"]) {
                const work = this[name];
                if (typeof work !== "function") continue;
                this[name] = (...given) => storage.run(turn, () => work(...given));
            }
        }
        return Reflect.apply(handle, this, arguments);
    };
    // It is told of its connection as it is put there.
    Object.defineProperty(prototype, "state", {
        configurable: true,
        get() {
            return this[STATE];
        },
        set(state) {
            this[STATE] = state;
            const pipeline = state && pipelines.get(`${state.pid}/${state.secret}`);
            if (pipeline) pipeline.turns.push(this[TURN]);
        },
    });
}

// A connection. `put` writes bytes for a turn.
class Pipeline {
    asked = new Messages();
    answered = new Messages();
    // Of the queries that are to be written.
    turns = [];
    // Whether the last one goes on.
    open = false;
    // How many are not answered, and whose they are.
    pending = 0;
    owner = undefined;
    held = [];
    session = undefined;

    constructor(put) {
        this.put = put;
    }

    writes(bytes) {
        for (const run of this.runs(bytes)) {
            if (run.queries > 0 && !this.isFree(run)) this.held.push(run);
            else this.sends(run);
        }
    }

    // Parts that are written for one request each.
    runs(bytes) {
        const marks = this.marks(bytes);
        const turns = this.turns.splice(0);
        // The driver failed to make one of them. Which one is not known.
        const isSure = turns.length === marks.filter(mark => mark.begins).length;
        const runs = [{ from: 0, queries: 0, turn: this.owner }];
        for (const { from, begins } of marks) {
            const last = runs[runs.length - 1];
            const turn = begins && isSure ? turns.shift() : undefined;
            if (!begins) last.turn = undefined;
            else if (from <= 0) Object.assign(last, { turn, queries: 1 });
            else if (last.queries > 0 && last.turn === turn) last.queries += 1;
            else runs.push({ from, queries: 1, turn });
        }
        runs.forEach((run, index) => {
            const next = runs[index + 1];
            run.bytes = bytes.subarray(run.from, next ? next.from : bytes.length);
        });
        return runs;
    }

    // Where queries begin, and what is the session's own.
    marks(bytes) {
        const marks = [];
        this.asked.take(bytes, (type, from) => {
            const begins = !this.open && BEGINS.includes(type);
            // What waits is sent before the session ends.
            if (type === "X") this.held.splice(0).forEach(run => this.sends(run));
            if (begins || (!this.open && !COPIES.includes(type))) marks.push({ from, begins });
            this.open = (this.open || begins) && !ENDS.includes(type);
        });
        return marks;
    }

    isFree(run) {
        return this.held.length === 0 && (this.pending === 0 || this.owner === run.turn);
    }

    sends(run) {
        if (run.queries > 0) this.owner = run.turn;
        this.pending += run.queries;
        this.put(run.bytes, run.turn);
    }

    reads(bytes) {
        this.answered.take(bytes, (type, from) => {
            const until = from + 5 + SESSION;
            if (type === "K" && from >= 0 && until <= bytes.length) {
                const [pid, secret] = [4, 0].map(back => bytes.readUInt32BE(until - 4 - back));
                this.ends();
                this.session = `${pid}/${secret}`;
                pipelines.set(this.session, this);
            }
            if (type === "Z" && this.pending > 0) this.pending -= 1;
        });
        while (this.held.length > 0 && (this.pending === 0 || this.owner === this.held[0].turn)) {
            this.sends(this.held.shift());
        }
    }

    ends() {
        if (pipelines.get(this.session) === this) pipelines.delete(this.session);
    }
}

// In a replay more requests may wait with a connection than originally. A pool of one stays: it may
// be there for the order.
function enlarge(connections) {
    const { entries } = Object;
    Object.entries = function (of) {
        const all = Reflect.apply(entries, this, arguments);
        // It may be a text, in which nothing can be looked for so.
        const has = name => typeof of === "object" && of !== null && name in of;
        const isDriver = has("max_pipeline") && has("fetch_types") && has("max_lifetime");
        if (isDriver && Array.isArray(all)) {
            all.reduce = function () {
                const options = Reflect.apply(Array.prototype.reduce, this, arguments);
                if (options && options.max > 1 && options.max < connections) {
                    options.max = connections;
                }
                return options;
            };
        }
        return all;
    };
}

module.exports = { Pipeline, enlarge, find, isKnown: () => known };
