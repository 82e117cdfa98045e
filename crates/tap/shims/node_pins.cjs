// What code in Node draws and reads of the clock while it works for a request comes from the tap, so
// that a replay draws and reads the same. What Node keeps from one request to the next (blocks of random
// bytes, the state of `Math.random`) would be in another state in a replay. Node's own modules have
// taken their clock and generator before this is loaded, and keep them.
//
//   turn of the code that asks ──▶ the tap ──▶ bytes, or the time
//
// Code that works for no request, at the start above all, draws for the thread. It gets the time that it
// would have got without.
"use strict";
const crypto = require("crypto");
const fs = require("fs");
const Module = require("module");
const url = require("url");
const runtime = require("./node_runtime.cjs");

const DRAW = 2 ** 32;
const CLOCK = 2 * 2 ** 32;
// A number of a request.
const NUMBER = 8;
// What a request reads of the clock after so many times costs no more than without.
const READINGS = 10000;
// Of so many readings of a request it is told what code asks, or until so many in a row were of the same
// code: who hashes a password in JavaScript looks at the clock in each round. That costs some microseconds
// each time.
const ASKED = 2000;
const ALIKE = 200;
// Of so many numbers of `Math.random` outside of requests.
const OUTSIDE_ASKED = 2000;
// Numbers of `Math.random` that are drawn at once.
const RANDOMS = 32;

const number = Buffer.alloc(NUMBER);
const asked = Buffer.alloc(2 * NUMBER);

// Numbers of `Math.random` that are drawn and not given yet.
class Randoms {
    randoms = undefined;
    used = 0;

    // `undefined`: it is Node's to give.
    next(turn, code) {
        if (!this.randoms || this.used === this.randoms.length) {
            this.randoms = drawn(turn, RANDOMS * NUMBER, code);
            this.used = 0;
            if (!this.randoms) return undefined;
        }
        const high = this.randoms.readUInt32LE(this.used) >>> 5;
        const low = this.randoms.readUInt32LE(this.used + 4) >>> 6;
        this.used += NUMBER;
        return (high * 2 ** 26 + low) / 2 ** 53;
    }
}

// How a turn begins.
class Pins extends Randoms {
    readings = 0;
    // The code that read last, and how many readings in a row were its.
    code = 0;
    alike = 0;
    // The time that was read last, in milliseconds.
    time = 0;

    random() {
        return this.next(this, 0);
    }

    // What code reads the clock; 0: it is not asked any more.
    reader() {
        this.readings += 1;
        if (this.readings > ASKED || this.alike >= ALIKE) return 0;
        const code = caller();
        this.alike = code === this.code ? this.alike + 1 : 1;
        return (this.code = code);
    }
}

// What works for no request. What happens first there, and what then, depends on what else there is to do.
// So its numbers are drawn by the code that asks, as long as that is not asked without end.
class Outside extends Randoms {
    number = 0n;
    asked = 0;
    byCode = new Map();

    random() {
        if (this.asked >= OUTSIDE_ASKED) return this.next(this, 0);
        this.asked += 1;
        const code = caller();
        if (!this.byCode.has(code)) this.byCode.set(code, new Randoms());
        return this.byCode.get(code).next(this, code);
    }
}

// Bytes that nobody has drawn before, for the code that asks; `undefined`: they are Node's to draw.
function drawn(turn, length, code = caller()) {
    const bytes = Buffer.alloc(Math.max(length, 2 * NUMBER));
    bytes.writeBigUInt64LE(turn.number);
    bytes.writeUInt32LE(code, NUMBER);
    const count = runtime.ask(bytes, DRAW);
    return count === bytes.length ? bytes.subarray(0, length) : undefined;
}

function put(bytes, place) {
    if (bytes) place.set(bytes);
}

// A function in the place of another one, with all that belongs to that.
function replace(owner, name, make) {
    const own = Object.getOwnPropertyDescriptor(owner, name);
    if (!own || typeof own.value !== "function" || !own.writable) return;
    const made = make(own.value);
    Object.defineProperties(made, Object.getOwnPropertyDescriptors(own.value));
    Object.defineProperty(owner, name, { ...own, value: made });
}

// What part of an array is filled.
function part(array, offset, size) {
    const width = array.BYTES_PER_ELEMENT || 1;
    const from = (offset || 0) * width;
    const length = size === undefined ? array.byteLength - from : size * width;
    return new Uint8Array(array.buffer || array, (array.byteOffset || 0) + from, length);
}

// As Node computes it: what is above the last multiple of the range is drawn again.
function integer(turn, least, bound) {
    const BYTES = 6;
    const range = bound - least;
    const limit = 2 ** (8 * BYTES) - (2 ** (8 * BYTES) % range);
    for (;;) {
        const bytes = drawn(turn, BYTES);
        if (!bytes) return undefined;
        const value = bytes.readUIntBE(0, BYTES);
        if (value < limit) return least + (value % range);
    }
}

function uuid(turn) {
    const bytes = drawn(turn, 16);
    if (!bytes) return undefined;
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    return textOfUuid(bytes);
}

function textOfUuid(bytes) {
    return bytes.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

// In each, Node's own function looks at what it is given, and says what is wrong with that. What is
// drawn in the background is drawn in the order in which it is asked for.
function pinCrypto(current) {
    for (const name of ["randomBytes", "pseudoRandomBytes", "prng", "rng"]) {
        replace(crypto, name, real => function randomBytes(size, callback) {
            const turn = current();
            if (!turn) return Reflect.apply(real, this, arguments);
            if (callback === undefined) {
                const bytes = real(size);
                put(drawn(turn, bytes.length), bytes);
                drawWhatIsCopied(bytes, randomBytes, current);
                return bytes;
            }
            let pinned;
            real(size, typeof callback !== "function" ? callback : function (error, bytes) {
                if (!error) put(pinned, bytes);
                return Reflect.apply(callback, this, arguments);
            });
            pinned = drawn(turn, size);
        });
    }
    replace(crypto, "randomFillSync", real => function randomFillSync(array, offset, size) {
        const turn = current();
        const filled = Reflect.apply(real, this, arguments);
        if (turn) {
            const place = part(array, offset, size);
            put(drawn(turn, place.length), place);
        }
        leaveNoneOver(array, randomFillSync);
        return filled;
    });
    replace(crypto, "randomFill", real => function randomFill(array, ...more) {
        const [turn, callback] = [current(), more[more.length - 1]];
        if (!turn || typeof callback !== "function") return Reflect.apply(real, this, arguments);
        let pinned;
        let place;
        const filled = function (error) {
            if (!error) put(pinned, place);
            return Reflect.apply(callback, this, arguments);
        };
        real(array, ...more.slice(0, -1), filled);
        place = part(array, ...more.slice(0, -1));
        pinned = drawn(turn, place.length);
    });
    replace(crypto, "randomInt", real => function randomInt(least, bound, callback) {
        const turn = current();
        if (!turn) return Reflect.apply(real, this, arguments);
        const alone = bound === undefined || typeof bound === "function";
        const done = alone ? bound : callback;
        const pinned = () => (alone ? integer(turn, 0, least) : integer(turn, least, bound));
        if (done === undefined) {
            const value = Reflect.apply(real, this, arguments);
            return pinned() ?? value;
        }
        let value;
        const say = function (error, own) {
            return Reflect.apply(done, this, error ? arguments : [undefined, value ?? own]);
        };
        const again = typeof done === "function" ? say : done;
        Reflect.apply(real, this, alone ? [least, again] : [least, bound, again]);
        value = pinned();
    });
    replace(crypto, "randomUUID", real => randomUuid(real, current));
    const web = crypto.webcrypto && Object.getPrototypeOf(crypto.webcrypto);
    if (!web) return;
    replace(web, "randomUUID", real => randomUuid(real, current));
    replace(web, "getRandomValues", real => function getRandomValues(array) {
        const filled = Reflect.apply(real, this, arguments);
        const turn = current();
        const place = turn && part(array);
        if (turn && place.length) put(drawn(turn, place.length), place);
        leaveNoneOver(array, getRandomValues);
        return filled;
    });
}

function randomUuid(real, current) {
    return function randomUUID() {
        const own = Reflect.apply(real, this, arguments);
        const turn = current();
        return (turn && uuid(turn)) || own;
    };
}

function pinMath(current) {
    replace(Math, "random", real => function random() {
        const turn = current();
        return (turn && turn.random()) ?? real();
    });
}

function pinClock(current) {
    const RealDate = Date;
    const realNow = Date.now;
    leavePools(RealDate, realNow);
    function now(turn) {
        if (turn.readings < READINGS) {
            const code = turn.reader();
            asked.writeBigUInt64LE(turn.number);
            asked.fill(0, NUMBER);
            asked.writeUInt32LE(code, NUMBER);
            if (runtime.ask(asked, CLOCK) === NUMBER) {
                return (turn.time = Number(asked.readBigInt64LE() / 1000000n));
            }
        }
        return Math.max(turn.time, realNow());
    }
    replace(Date, "now", () => ({ now() {
        const turn = current();
        return turn ? now(turn) : realNow();
    } }).now);
    const Pinned = new Proxy(RealDate, {
        construct(real, given, target) {
            const turn = given.length === 0 && current();
            const time = turn ? [now(turn)] : given;
            return Reflect.construct(real, time, target === Pinned ? real : target);
        },
        apply() {
            return new Pinned().toString();
        },
    });
    RealDate.prototype.constructor = Pinned;
    globalThis.Date = Pinned;
}

// What is made of the frames of the code that called a function.
function frames(asking, limit, make) {
    const [before, prepare] = [Error.stackTraceLimit, Error.prepareStackTrace];
    const at = {};
    Error.stackTraceLimit = limit;
    Error.prepareStackTrace = (_, all) => make(all);
    Error.captureStackTrace(at, asking);
    const made = at.stack;
    [Error.stackTraceLimit, Error.prepareStackTrace] = [before, prepare];
    return made;
}

// Which code asks, as a number: the function, and the innermost one of another file that it works for,
// since a library that knows the time is called from here and there. Lines are others in changed code.
const FRAMES = 8;
const hashes = new Map();
function caller() {
    const code = frames(caller, FRAMES, functions);
    if (!hashes.has(code)) {
        let hash = 0;
        const name = code.replace(LONG_PATHS, "");
        for (let at = 0; at < name.length; at += 1) hash = Math.imul(hash ^ name.charCodeAt(at), 0x01000193);
        if (hashes.size >= HASHES_MAX) hashes.clear();
        hashes.set(code, hash >>> 0);
    }
    return hashes.get(code);
}

// The two functions with their files, a line each. Where the shims are is another place each time.
//
// Behind a wait the frames are of those who wait, and some are passed over. So code of a service that
// waits only where a cache lacks something has other frames then. Of such code the second function counts
// only where it has called the first one itself.
function functions(all) {
    let first;
    let code = "";
    for (const frame of all) {
        const file = frame.getFileName();
        if (!file || file === first || file.startsWith("node:") || file.startsWith(__dirname)) continue;
        if (first && !isLibrary.test(first) && (isLibrary.test(file) || isWaiting(frame))) break;
        code += `${file} ${frame.getFunctionName()}\n`;
        if (first) break;
        first = file;
    }
    return code;
}

const isLibrary = /[\\/]node_modules[\\/]/;
// Node 10 and Bun have no such method.
function isWaiting(frame) {
    return typeof frame.isAsync === "function" && frame.isAsync();
}

// What is in front of a file and its folder may be another one for changed code.
const LONG_PATHS = /^.*[\\/](?=[^\\/\n]*[\\/][^\\/\n]*$)/gm;
// Some programs make code without end.
const HASHES_MAX = 4096;

// Pools of connections read the clock more or less often, by who else wants a connection.
const isPool = /[\\/]node_modules[\\/](tarn|generic-pool|sequelize-pool|pg-pool)[\\/]/;
const isStrict = /^\s*(\/\*[^]*?\*\/\s*|\/\/.*\s*)*["']use strict["']/;
function leavePools(RealDate, now) {
    const get = (of, name) => (name === "now" ? now : Reflect.get(of, name));
    const value = new Proxy(RealDate, { get });
    Object.defineProperty(globalThis, Symbol.for("hindcast real date"), { value });
    const compile = Module.prototype._compile;
    Module.prototype._compile = function _compile(text, file) {
        if (!isPool.test(file)) return Reflect.apply(compile, this, arguments);
        const strict = isStrict.test(text) ? '"use strict";' : "";
        const given = `${strict}const Date=globalThis[Symbol.for("hindcast real date")];`;
        return Reflect.apply(compile, this, [given + text, ...[...arguments].slice(1)]);
    };
}

// `nanoid` and `uuid` fill a block with random bytes and cut the ids of many requests from it. They look
// at its length to see whether it has enough left: such a block says that it has none, so that it is filled
// again for each id, in whose turn that is. However they are loaded, they come here to have it filled.
const isPackage = /[\\/]node_modules[\\/](nanoid|uuid)[\\/]/;
// The least that is a block and not an id.
const BLOCK = 128;
function leaveNoneOver(array, filling) {
    if (array.byteLength < BLOCK || Object.hasOwn(array, "length")) return;
    if (!isBlock(frames(filling, 1, all => all[0]))) return;
    Object.defineProperty(array, "length", { value: 0 });
    if (!Buffer.isBuffer(array)) return;
    // It would cut what is there by that length. Other arrays know how long they are.
    for (const cut of ["subarray", "slice"]) Object.defineProperty(array, cut, { value: Uint8Array.prototype.subarray });
}

function isBlock(frame) {
    const file = frame?.getFileName();
    if (!file) return false;
    return isPackage.test(file) || reads(frame, file, USED_UP, AROUND);
}

// In a bundle packages have no name. What they do to find out whether enough is left looks the same,
// whatever the names are: an offset is compared with the block's length, the block is filled, and the
// offset is 0 again.
const NAME = "[\\w$]+";
const USED_UP = new RegExp(
    [`(${NAME})\\+${NAME}>(${NAME})\\.length`, `(${NAME})>(${NAME})\\.length-\\d+`]
        .map((compares, at) => `${compares}[^;]{0,160}?\\(\\${2 * at + 2}\\)[,;]?\\${2 * at + 1}=0`)
        .join("|"),
);
// So much of the code in front of the call and behind it, and of so many places.
const AROUND = 300;
const PLACES_MAX = 64;
const CODE_MAX = 1 << 26;
const places = new Map();

function reads(frame, file, pattern, around) {
    const [line, column] = [frame.getLineNumber(), frame.getColumnNumber()];
    const place = `${file}:${line}:${column}`;
    if (!places.has(place)) {
        if (places.size >= PLACES_MAX) return false;
        places.set(place, pattern.test(codeAround(file, line, column, around)));
    }
    return places.get(place);
}

// Without what a minifier leaves out.
function codeAround(file, line, column, around) {
    try {
        const path = file.startsWith("file:") ? url.fileURLToPath(file) : file;
        if (fs.statSync(path).size > CODE_MAX) return "";
        const code = fs.readFileSync(path, "utf8");
        let at = 0;
        for (let left = line - 1; left > 0; left -= 1) at = code.indexOf("\n", at) + 1;
        at += column - 1;
        return code.slice(Math.max(0, at - around), at + around).replace(/\s+/g, "");
    } catch {
        return "";
    }
}

// `@fastify/session` copies ids from such a block, and counts for itself how much is left. Of that each
// copy is drawn anew, for who makes it.
const copies = /[\\/]node_modules[\\/]@fastify[\\/]session[\\/]/;
function drawWhatIsCopied(block, drawing, current) {
    if (block.length < BLOCK || !isCopied(frames(drawing, 1, all => all[0]))) return;
    const copy = function (target, at, from = 0, to = this.length) {
        const turn = current();
        const place = this.subarray(from, to);
        if (turn) put(drawn(turn, place.length), place);
        return Buffer.prototype.copy.apply(this, arguments);
    };
    Object.defineProperty(block, "copy", { value: copy });
}

const COPIED = new RegExp(`\\.copy\\(${NAME},0,(${NAME}),\\(?\\1\\+=24`);
function isCopied(frame) {
    const file = frame?.getFileName();
    if (!file) return false;
    return copies.test(file) || reads(frame, file, COPIED, 2 * AROUND);
}

// Ids of `uuid`'s version 7 have the latest time that any request has read, or count on from it. It keeps
// the two as properties of an object that has no others, however it is loaded, and begins with no time.
// They are of each request by itself: in a replay others come in between, or do not.
function keepTimesApart(current) {
    Object.defineProperty(Object.prototype, "msecs", {
        configurable: true,
        get: () => undefined,
        set(value) {
            if (typeof this !== "object" || this === null) return;
            if (value === -Infinity && Reflect.ownKeys(this).length === 0) partByTurn(this, ["msecs", "seq"], current);
            if (Object.hasOwn(this, "msecs")) this.msecs = value;
            else Reflect.defineProperty(this, "msecs", { value, writable: true, enumerable: true, configurable: true });
        },
    });
}

function partByTurn(object, names, current) {
    const [parts, others] = [new WeakMap(), Object.create(null)];
    const part = () => {
        const turn = current();
        if (!turn) return others;
        if (!parts.has(turn)) parts.set(turn, Object.create(null));
        return parts.get(turn);
    };
    for (const name of names) {
        Object.defineProperty(object, name, {
            get: () => part()[name],
            set(value) {
                part()[name] = value;
            },
        });
    }
}

// Hashes of passwords in native code draw their salts in threads that work for no request. They take
// one that they are given: at this place of the arguments, or as this option there.
const SALTS = {
    "@node-rs/bcrypt": { names: ["hash", "hashSync"], place: 2 },
    "@node-rs/argon2": { names: ["hash", "hashSync", "hashRaw", "hashRawSync"], place: 1, option: "salt" },
};
const SALTED = /(?:^|[\\/]node_modules[\\/])(@node-rs[\\/](?:bcrypt|argon2))(?:[\\/]index\.js)?$/;
const SALT = 16;
const salted = new WeakSet();
function giveSalts(name, loaded) {
    const { names, place, option } = SALTS[name];
    if (salted.has(loaded)) return;
    salted.add(loaded);
    for (const one of names) {
        replace(loaded, one, real => function hash(...given) {
            const value = given[place];
            const chosen = option ? value && value[option] : value;
            if (!currentTurn() || chosen !== undefined && chosen !== null) return Reflect.apply(real, this, given);
            const salt = crypto.randomBytes(SALT);
            while (given.length <= place) given.push(undefined);
            given[place] = option ? { ...value, [option]: salt } : salt;
            return Reflect.apply(real, this, given);
        });
    }
}
let currentTurn = () => undefined;

// `current` gives the turn of the code that asks, if it has one.
module.exports = current => {
    // Whether anything is pinned.
    if (runtime.ask(number.fill(0), CLOCK) !== NUMBER) return;
    currentTurn = current;
    const outside = new Outside();
    // Without a key of the recording it would be asked for in vain, each time.
    const drawing = drawn(outside, NUMBER, 0) ? () => current() || outside : current;
    pinCrypto(drawing);
    pinMath(drawing);
    pinClock(current);
    keepTimesApart(current);
    if (globalThis.Bun) require("./node_bun.cjs")({ current, drawn, replace, textOfUuid });
    Module.syncBuiltinESMExports();
};
module.exports.Pins = Pins;
module.exports.replace = replace;
// A package was loaded by this name.
module.exports.loaded = (name, exports) => {
    // An ES module asks for it by its file.
    const [, salts] = SALTED.exec(name) || [];
    if (salts && exports) giveSalts(salts.replace("\\", "/"), exports);
};
