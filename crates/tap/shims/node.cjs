// Tells the tap on whose behalf Node, or Bun, writes to its database: loaded by `node --require`, which
// also loads it in worker threads, and by `bun --preload`. Without the tap it does nothing.
//
//   a request is emitted ──▶ its turn, with its number, is the store of its async context
//   a socket is written to ─▶ the store's number is told of the socket
//   bytes are drawn, or the clock is read ──▶ for the store's number (node_pins.cjs)
//   a socket is answered ───▶ listeners run for nobody; promises keep their own contexts
//
// A driver may write for one request while it works for another, from a queue. So a socket is
// nobody's unless its driver is known: `pg`, whose queues are bound to contexts here, postgres.js
// (node_queries.cjs), ioredis, node-redis and `fetch` (node_calls.cjs), and Node's own HTTP client. TLS,
// HTTP/2 and drivers in native code have none.
"use strict";
(() => {
    const bytes = Buffer.alloc(8);
    let runtime;
    try {
        runtime = require("./node_runtime.cjs");
        if (runtime.ask(bytes, null) !== 8) return;
    } catch {
        return;
    }
    const { AsyncLocalStorage } = require("async_hooks");
    const http = require("http");
    const Module = require("module");
    const { Socket } = require("net");
    const { descriptorOf } = runtime;
    let write;
    if (!AsyncLocalStorage || !runtime.replaceWrites(real => (write = real, writes))) return;

    // Of a replay.
    const connections = Number(process.env.HINDCAST_POOL || 0);
    const storage = new AsyncLocalStorage();
    const pin = require("./node_pins.cjs");
    const { Messages } = require("./node_messages.cjs");
    const queries = require("./node_queries.cjs");
    const calls = require("./node_calls.cjs");
    const caches = require("./node_caches.cjs");
    const kept = require("./node_kept.cjs");
    const next = require("./node_next.cjs");
    require("./node_cluster.cjs").begin(connections > 0);
    queries.find(storage);
    calls.findFetches(storage);
    class Turn extends pin.Pins {
        constructor(number) {
            super();
            this.number = number;
        }
    }
    pin(() => storage.getStore());
    caches.begin(() => storage.getStore(), connections > 0);
    const WIRE = Symbol("hindcast wire");
    const WAITS = Symbol("hindcast waits");
    const BOUND = Symbol("hindcast bound");
    let serves = false;

    function bound(work) {
        const turn = storage.getStore();
        return function () {
            return storage.run(turn, () => Reflect.apply(work, this, arguments));
        };
    }

    // Requests.
    const emitOfServer = http.Server.prototype.emit;
    http.Server.prototype.emit = function emit(event, request, response) {
        if (event !== "request" && event !== "checkContinue" && event !== "upgrade") {
            return Reflect.apply(emitOfServer, this, arguments);
        }
        begins();
        const turn = turnOf(request && request.socket, response);
        const emits = () => storage.run(turn, () => Reflect.apply(emitOfServer, this, arguments));
        const next = event === "request" && caches.seesNext(turn);
        if (!next) return emits();
        next.then(emits);
        return true;
    };

    // Those of Bun's own server.
    runtime.onServe(serve => function () {
        begins();
        return storage.run(turnBy(null), () => Reflect.apply(serve, this, arguments));
    });

    function begins() {
        if (serves) return;
        serves = true;
        // What is told of no socket is nobody's.
        bytes.fill(0);
        runtime.tell(bytes, null);
    }

    function turnOf(socket, response) {
        const place = runtime.requestOf(socket);
        // A request that came before the one in front of it was answered has no number of its own.
        const waits = response && socket && socket._httpMessage && socket._httpMessage !== response;
        return place === -1 || waits ? undefined : turnBy(place);
    }

    function turnBy(place) {
        runtime.ask(bytes, place);
        const number = bytes.readBigUInt64LE();
        return number ? new Turn(number) : undefined;
    }

    // A connection to Postgres. It is one request's until all that was asked is answered.
    class Wire {
        asked = new Messages();
        answered = new Messages();
        // How many answers are to come, and whether something was asked since without an end.
        pending = 0;
        open = false;
        // Whether the session has begun.
        begun = false;
        owner = undefined;

        // Returns on whose behalf.
        writes(chunks, turn) {
            const counts = { P: 0, B: 0, ends: 0 };
            const { pending, open } = this;
            for (const chunk of chunks) {
                this.asked.take(chunk, type => {
                    const ends = "QSF\0".includes(type);
                    if (ends) this.pending += 1;
                    this.open = !ends;
                    counts[ends ? "ends" : type] += 1;
                });
            }
            // What has no context goes on with what was begun.
            const goesOn = pending === 0 && open && turn === undefined;
            if (counts.P > 1 || counts.B > 1 || counts.ends > 1) this.owner = undefined;
            else if (pending === 0 && !open) this.owner = turn;
            else if (this.owner !== turn && !goesOn) this.owner = undefined;
            return this.owner;
        }

        reads(chunk) {
            this.answered.take(chunk, type => {
                if (type === "Z") this.begun = true;
                if (type === "Z" && this.pending > 0) this.pending -= 1;
                if (type === "Z" && this.pending === 0) this.open = false;
            });
        }
    }
    const toBuffer = chunk => (Buffer.isBuffer(chunk) ? chunk : Buffer.from(chunk));
    const TLS_ASKED = 80877103;
    const NAMES_ITSELF = "application_name\0postgres.js\0";

    // `false`: not Postgres, or a driver that may write for one request while it works for another.
    function wireOf(socket, chunk) {
        if (socket[WIRE] !== undefined) return socket[WIRE];
        const begins = Buffer.isBuffer(chunk) && chunk.length >= 8 && chunk[0] === 0;
        const plain = begins && chunk.readUInt32BE(4) !== TLS_ASKED;
        if (plain && !socket[BOUND] && queries.isKnown()) {
            return (socket[WIRE] = new queries.Pipeline(putInto(socket)));
        }
        const known = plain && (socket[BOUND] || chunk.includes(NAMES_ITSELF, "latin1"));
        return (socket[WIRE] = known ? new Wire() : false);
    }

    function putInto(socket) {
        const done = failed => failed && socket.destroy(failed);
        return (bytes, turn) => {
            tell(socket, turn ? turn.number : 0n);
            write(socket, false, bytes, "buffer", done);
        };
    }

    const COMMANDS = Symbol("hindcast commands");
    const writeOfStream = Socket.prototype.write;
    Socket.prototype.write = function () {
        if (calls.made.length > 0) {
            // In a replay the other end looks late.
            this[COMMANDS] ||= new calls.Commands(putInto(this), connections > 0);
            this[COMMANDS].next.push(...calls.made.splice(0));
        }
        return Reflect.apply(writeOfStream, this, arguments);
    };

    // Writes. One that waits for the connection comes here again, in the connection's context.
    function writes(socket, several, data, encoding, done) {
        const goesOut = () => write(socket, several, data, encoding, done);
        if (socket._server) return goesOut();
        let turn = storage.getStore();
        if (socket.connecting) {
            socket[WAITS] = { turn };
            return goesOut();
        }
        if (socket[WAITS]) {
            turn = socket[WAITS].turn;
            socket[WAITS] = undefined;
        }
        const chunks = several ? data.map(entry => entry.chunk) : [data];
        const wire = wireOf(socket, chunks[0]);
        const parted = wire instanceof queries.Pipeline ? wire : !wire && socket[COMMANDS];
        if (parted) {
            parted.writes(Buffer.concat(chunks.map(toBuffer)));
            return done();
        }
        if (wire) turn = wire.writes(chunks.map(toBuffer), turn);
        else if (socket[calls.FETCHES]) turn = socket[calls.FETCHES].turn;
        else if (!(socket._httpMessage instanceof http.ClientRequest)) turn = undefined;
        tell(socket, turn ? turn.number : 0n);
        return goesOut();
    }

    const TOLD = Symbol("hindcast told");
    function tell(socket, number) {
        const descriptor = descriptorOf(socket);
        if (!serves || descriptor < 0 || (TOLD in socket && socket[TOLD] === number)) return;
        socket[TOLD] = number;
        bytes.writeBigUInt64LE(number);
        runtime.tell(bytes, descriptor);
    }

    // What a socket is answered runs for nobody: not for who made the connection. The connections of
    // `pg` are one request's at a time, for which its callbacks run.
    const emitOfSocket = Socket.prototype.emit;
    const BACK = Symbol("hindcast kept back");
    Socket.prototype.emit = function emit(event) {
        if (this._server) return Reflect.apply(emitOfSocket, this, arguments);
        const emits = () => emitFor(this, arguments);
        if (this[BACK]) {
            this[BACK].push(emits);
            return true;
        }
        const wire = this[WIRE];
        const next = event === "data" && wire && this[BOUND] && wire.begun && caches.seesNext(wire.owner);
        if (!next) return emits();
        this[BACK] = [emits];
        next.then(() => {
            const all = this[BACK];
            this[BACK] = undefined;
            all.forEach(one => one());
        });
        return true;
    };

    function emitFor(socket, all) {
        const [event, chunk] = all;
        const wire = socket[WIRE];
        if (event === "close" && wire instanceof queries.Pipeline) wire.ends();
        const answers = wire && event === "data" && Buffer.isBuffer(chunk);
        // What a login to the database draws is not the request's.
        const turn = answers && socket[BOUND] && wire.begun ? wire.owner : undefined;
        if (answers) wire.reads(chunk);
        else if (socket[COMMANDS] && event === "data") socket[COMMANDS].reads(toBuffer(chunk));
        return storage.run(turn, () => Reflect.apply(emitOfSocket, socket, all));
    }

    // `pg`: who waits for a connection, or in a connection's queue, keeps its context.
    function bindCallback(prototype, name, and) {
        const work = prototype[name];
        if (typeof work !== "function" || work[BOUND]) return;
        prototype[name] = function (callback) {
            if (and) and(this);
            if (typeof callback === "function") arguments[0] = bound(callback);
            return Reflect.apply(work, this, arguments);
        };
        prototype[name][BOUND] = true;
    }

    function bindQueue(prototype) {
        const work = prototype.query;
        if (typeof work !== "function" || work[BOUND]) return;
        prototype.query = function query() {
            const result = Reflect.apply(work, this, arguments);
            const queue = this._queryQueue || this.queryQueue;
            const last = queue && queue[queue.length - 1];
            if (last && !last[BOUND] && typeof last.submit === "function") {
                last[BOUND] = true;
                last.submit = bound(last.submit);
            }
            return result;
        };
        prototype.query[BOUND] = true;
    }

    // In a replay more requests may hold a connection and wait than originally, and what they wait
    // for needs one: a pool is as large as that takes.
    if (connections) queries.enlarge(connections);
    function enlarge(options) {
        if (options && options.max < connections) options.max = connections;
    }

    // `pg`'s connections and pools are emitters of classes of their own. They are known by what they can
    // do when the first one is made, however the driver was loaded: in a bundle it has no name.
    const seen = new WeakSet();
    runtime.onEmitter(emitter => {
        const prototype = Object.getPrototypeOf(emitter);
        if (prototype && !seen.has(prototype)) {
            seen.add(prototype);
            if ("_pulseQueryQueue" in prototype) bindClient(prototype);
            else if (isPool(prototype)) {
                bindCallback(prototype, "connect", pool => enlarge(pool.options));
            } else if (connections && "_dispense" in prototype) enlargeGeneric(prototype);
            else {
                calls.findCommands(prototype, storage);
                calls.findSocket(prototype);
            }
        }
        calls.isMaking(emitter);
    });

    // Those of `pg` 6 take a client where they connect.
    function isPool(prototype) {
        return "_pulseQueue" in prototype || ("take" in prototype && prototype.take === prototype.connect);
    }

    function bindClient(prototype) {
        bindQueue(prototype);
        bindCallback(prototype, "connect", client => {
            const stream = client.connection && client.connection.stream;
            if (stream) stream[BOUND] = true;
        });
    }

    // `generic-pool`.
    function enlargeGeneric(prototype) {
        const { acquire } = prototype;
        if (typeof acquire !== "function") return;
        prototype.acquire = function () {
            enlarge(this._config);
            return Reflect.apply(acquire, this, arguments);
        };
    }

    // The pools of Knex (`tarn`) and Sequelize (`sequelize-pool`) are of classes that nothing of Node's
    // is told of, and have no name in a bundle. Each has a property that others have not, and sets it
    // when it is made.
    if (connections) {
        enlargeWhatSets("pendingAcquires", pool => pool);
        enlargeWhatSets("_inUseObjects", pool => pool._factory);
    }
    function enlargeWhatSets(name, optionsOf) {
        Object.defineProperty(Object.prototype, name, {
            configurable: true,
            get: () => undefined,
            set(value) {
                Object.defineProperty(this, name, { value, writable: true, enumerable: true, configurable: true });
                const options = optionsOf(this);
                if (typeof this.acquire === "function" && options && typeof options.max === "number") enlarge(options);
            },
        });
    }

    const load = Module._load;
    Module._load = function _load(request, parent) {
        if (typeof request === "string") next.loading(request, parent);
        const loaded = Reflect.apply(load, this, arguments);
        if (typeof request !== "string") return loaded;
        pin.loaded(request, loaded);
        calls.loaded(request, loaded, storage);
        kept.loaded(request, loaded);
        return loaded;
    };
})();
