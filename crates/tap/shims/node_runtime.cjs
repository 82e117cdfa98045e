// What Node and Bun do each in its own way. Bun has Node's modules, and its own server beside them.
//
//   ask, tell        the reserved descriptor; see `hooks::reserved` in the tap. Bun's `fs` makes system
//                    calls by itself, which the tap does not see, so there it is the tap's functions
//   requestOf        by what the request is asked for that a server of Node's has just read
//   onEmitter        an emitter is made, of whatever class
//   replaceWrites    what a socket is given to write
//   onServe          a server of Bun's has read a request, and its function is about to be called
"use strict";
const EventEmitter = require("events");
const { Socket } = require("net");

const RESERVED = 0x48494e44;
const isBun = typeof Bun !== "undefined";

const { ask, tell } = isBun ? byLibrary() : byDescriptor();

function byDescriptor() {
    const { readSync, writeSync } = require("fs");
    return {
        ask: (bytes, place) => readSync(RESERVED, bytes, 0, bytes.length, place),
        tell: (bytes, place) => writeSync(RESERVED, bytes, 0, bytes.length, place),
    };
}

function byLibrary() {
    // Else it would be loaded now, by half.
    if (!(process.env.LD_PRELOAD || "").includes(__dirname)) throw new Error("the tap is not there");
    const { dlopen } = require("bun:ffi");
    const args = ["i32", "ptr", "u64_fast"];
    const at = [...args, "i64_fast"];
    const returns = "i64_fast";
    // It is loaded already, and found by the file that it is.
    const { symbols } = dlopen(require("path").join(__dirname, "libhindcast_tap.so"), {
        read: { args, returns },
        write: { args, returns },
        pread: { args: at, returns },
        pwrite: { args: at, returns },
    });
    const called = (alone, placed) => (bytes, place) =>
        place === null
            ? alone(RESERVED, bytes, bytes.length)
            : placed(RESERVED, bytes, bytes.length, place);
    return {
        ask: called(symbols.read, symbols.pread),
        tell: called(symbols.write, symbols.pwrite),
    };
}

// Where bytes of this socket come from; -1: not known.
function descriptorOf(socket) {
    if (!socket || socket.encrypted || !socket._handle) return -1;
    const descriptor = socket._handle.fd;
    return typeof descriptor === "number" ? descriptor : -1;
}

// By what the request is asked for that a socket has brought; -1: it has no number. Bun calls who serves
// as soon as it has read a head, and says nothing of the descriptor: it is what the thread read last.
function requestOf(socket) {
    return isBun ? null : descriptorOf(socket);
}

function onEmitter(made) {
    if (isBun) {
        // Its constructor calls no function that can be replaced. It sets this.
        Object.defineProperty(EventEmitter.prototype, "_events", {
            configurable: true,
            get: () => undefined,
            set(value) {
                Object.defineProperty(this, "_events", { value, writable: true, enumerable: true, configurable: true });
                made(this);
            },
        });
        return;
    }
    const { init } = EventEmitter;
    EventEmitter.init = function () {
        made(this);
        return Reflect.apply(init, this, arguments);
    };
}

// `make` gets what writes, and returns what is to: a function of a socket, whether these are several
// chunks, the chunks, their encoding, and what is called when they are written. Returns whether the
// runtime is known.
function replaceWrites(make) {
    const { prototype } = Socket;
    if (!isBun) {
        const real = prototype._writeGeneric;
        if (typeof real !== "function") return false;
        const writes = make((socket, ...given) => Reflect.apply(real, socket, given));
        prototype._writeGeneric = function (several, data, encoding, done) {
            return writes(this, several, data, encoding, done);
        };
        return true;
    }
    // What writes several makes one of them, and gives it to this.
    const { _write } = prototype;
    if (typeof _write !== "function") return false;
    const writes = make((socket, several, ...given) => Reflect.apply(_write, socket, given));
    prototype._write = function (...given) {
        return writes(this, false, ...given);
    };
    return true;
}

// `serves` gets a function that serves a request, and returns the one that is called in its place.
function onServe(serves) {
    if (!isBun || typeof Bun.serve !== "function") return;
    const isMethod = name => /^[A-Z]+$/.test(name);
    const route = handler => {
        if (typeof handler === "function") return serves(handler);
        const isByMethod = handler && Object.getPrototypeOf(handler) === Object.prototype && Object.keys(handler).every(isMethod);
        return isByMethod ? mapped(handler, route) : handler;
    };
    const options = given => {
        if (!given || typeof given !== "object" || "onNodeHTTPRequest" in given) return given;
        const { fetch, routes } = given;
        const ours = {};
        if (typeof fetch === "function") ours.fetch = serves(fetch);
        if (routes) ours.routes = mapped(routes, route);
        // What it has besides stays, and so does what is frozen.
        return Object.setPrototypeOf(ours, given);
    };
    const { serve } = Bun;
    Bun.serve = function (given) {
        const server = Reflect.apply(serve, Bun, [options(given)]);
        const { reload } = server;
        if (typeof reload === "function") server.reload = given => Reflect.apply(reload, server, [options(given)]);
        return server;
    };
}

function mapped(object, make) {
    return Object.fromEntries(Object.entries(object).map(([name, value]) => [name, make(value)]));
}

module.exports = { ask, tell, descriptorOf, requestOf, onEmitter, replaceWrites, onServe };
