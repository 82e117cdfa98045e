// Tells the tap whose turn it is in Node: loaded by `node --require`, which also loads it in worker
// threads. Without the tap it does nothing.
//
//   a request is emitted ──▶ its number is the store of its async context
//   a socket is written to ─▶ the store's number is told, and 0 after the write
//   a socket is answered ───▶ listeners run for who wrote to it last
//
// What waits in a driver's queue or for a pool's connection and is called back from there (`pg`'s
// `Pool.query`, two queries at once on one client) is told as whose answer freed it, which may be
// another request. HTTP/2, TLS and drivers in native code have no turn.
"use strict";
(() => {
    const fs = require("fs");
    const RESERVED = 0x48494e44;
    const bytes = Buffer.alloc(8);
    try {
        if (fs.readSync(RESERVED, bytes, 0, 8, null) !== 8) return;
    } catch {
        return;
    }
    const { AsyncLocalStorage } = require("async_hooks");
    const http = require("http");
    const { Socket } = require("net");
    const write = Socket.prototype._writeGeneric;
    if (!AsyncLocalStorage || typeof write !== "function") return;

    const storage = new AsyncLocalStorage();
    // Of a socket: whom its answers are for, whether several wrote before it was answered, and
    // whether it was answered since.
    const STATE = Symbol("hindcast");
    let serves = false;

    function tell(number) {
        bytes.writeBigUInt64LE(number);
        fs.writeSync(RESERVED, bytes, 0, 8, null);
    }

    const emitOfServer = http.Server.prototype.emit;
    http.Server.prototype.emit = function emit(event, request) {
        if (event !== "request" && event !== "checkContinue" && event !== "upgrade") {
            return Reflect.apply(emitOfServer, this, arguments);
        }
        serves = true;
        let number = 0n;
        if (!(request && request.socket && request.socket.encrypted)) {
            fs.readSync(RESERVED, bytes, 0, 8, null);
            number = bytes.readBigUInt64LE();
        }
        return storage.run(number, () => Reflect.apply(emitOfServer, this, arguments));
    };

    // A write that waits for the connection comes here again, in the connection's context.
    const WAITS = Symbol("hindcast waits");
    Socket.prototype._writeGeneric = function _writeGeneric() {
        if (!serves || this._server) return Reflect.apply(write, this, arguments);
        let number = storage.getStore();
        if (this.connecting) {
            this[WAITS] = { number };
        } else if (this[WAITS]) {
            number = this[WAITS].number;
            this[WAITS] = undefined;
        }
        const state = this[STATE];
        if (!state || state.answered) {
            this[STATE] = { number, answered: false };
        } else if (state.number !== number) {
            state.number = undefined;
        }
        // What the kernel does not take at once is written later, when it is nobody's turn.
        tell(number || 0n);
        try {
            return Reflect.apply(write, this, arguments);
        } finally {
            tell(0n);
        }
    };

    const emitOfSocket = Socket.prototype.emit;
    Socket.prototype.emit = function emit(event) {
        const state = this[STATE];
        if (!state || (event !== "data" && event !== "readable")) {
            return Reflect.apply(emitOfSocket, this, arguments);
        }
        state.answered = true;
        return storage.run(state.number, () => Reflect.apply(emitOfSocket, this, arguments));
    };
})();
