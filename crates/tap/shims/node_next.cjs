// Caches of Next.js: pages that it keeps, what `unstable_cache` and `fetch` keep, and answers that
// several requests wait for together. See node_caches.cjs; why is in
// docs/design/0171-what-caches-of-node-showed.md.
//
// Its classes are in bundles, where they have no names. They are known by properties that they set when
// they are made.
"use strict";
const fs = require("fs");
const path = require("path");
const { Cache, NOTHING, UNKNOWN, replays } = require("./node_caches.cjs");

const BOUND = Symbol("hindcast bound");
const isNext = /(^next([\\/]|$)|[\\/]node_modules[\\/]next[\\/]dist[\\/])/;
let looks = false;

// Something is about to be loaded.
function loading(request, parent) {
    if (looks || !(isNext.test(request) || (parent && isNext.test(parent.filename || "")))) return;
    looks = true;
    whatSets("hasCustomCacheHandler", ["get", "set"], bindIncremental);
    whatSets("schedulerFn", ["batch"], bindBatcher);
    if (FOLDER) whatSets("flushToDisk", ["getFilePath"], bindFiles);
}

function whatSets(name, methods, bind) {
    Object.defineProperty(Object.prototype, name, {
        configurable: true,
        get: () => undefined,
        set(value) {
            Object.defineProperty(this, name, { value, writable: true, enumerable: true, configurable: true });
            const prototype = Object.getPrototypeOf(this);
            const has = method => prototype && typeof prototype[method] === "function";
            if (methods.every(has) && !prototype[BOUND]) {
                Object.defineProperty(prototype, BOUND, { value: true });
                bind(prototype);
            }
        },
    });
}

const entries = new Cache("next entries");
const FETCH = "FETCH";
const isFetch = (value, ctx) => (value && value.kind === FETCH) || (ctx && (ctx.kind === FETCH || ctx.fetchCache === true));
// An entry is fresh, or stale, or of a tag that has been revalidated.
const STALE = [false, true, -1];
const staleOf = entry => Math.max(0, STALE.indexOf(entry.isStale || false));
// What is the same object where it is put and where it is seen.
const objectOf = value => (value && value.kind === FETCH ? value.data : value);

function bindIncremental(prototype) {
    const { get, set } = prototype;
    prototype.set = function (key, value, ctx) {
        entries.put(String(key), { value, ctx }, objectOf(value));
        return Reflect.apply(set, this, arguments);
    };
    prototype.get = async function (key, ctx) {
        if (!replays()) {
            const entry = await Reflect.apply(get, this, arguments);
            const number = entry ? entries.numberOf(String(key), objectOf(entry.value)) : NOTHING;
            entries.saw(String(key), number, entry ? staleOf(entry) : 0);
            if (!entry || staleOf(entry)) entries.willPut(String(key));
            return entry;
        }
        const seen = entries.again(String(key));
        if (!seen) return Reflect.apply(get, this, arguments);
        if (seen.number === NOTHING) return null;
        const found = seen.number > UNKNOWN && (await entries.waitFor(String(key), seen.number, true));
        const entry = await Reflect.apply(get, this, arguments);
        if (!found) return entry && { ...entry, isStale: STALE[seen.more] };
        return { ...entryOf(found[0], ctx), ...entry, value: valueOf(found[0], ctx), isStale: STALE[seen.more] };
    };
}

function valueOf({ value, ctx: put }, ctx) {
    if (!isFetch(value, ctx)) return value;
    return { kind: FETCH, data: value.data, revalidate: ctx.revalidate || put.revalidate || value.revalidate };
}

function entryOf({ value, ctx: put }, ctx) {
    return isFetch(value, ctx) ? {} : { cacheControl: put && put.cacheControl, revalidateAfter: false };
}

// Its files are a replay's own, with copies of what was there before the replayed period. The folder, and
// when the period begins, in microseconds since 1970.
const [, FOLDER, UNTIL] = /^(.+):(-?\d+)$/.exec(process.env.HINDCAST_FILES || "") || [];

function bindFiles(prototype) {
    const { getFilePath } = prototype;
    prototype.getFilePath = function () {
        const real = Reflect.apply(getFilePath, this, arguments);
        if (typeof real !== "string") return real;
        // What Next.js puts behind or in the place of the ending stays.
        [real, real.replace(/\.(html|body)$/, ".meta")].forEach(copy);
        return own(real);
    };
}

const own = real => path.join(FOLDER, "next", path.resolve(real));

function copy(real) {
    try {
        const { mtime, atime } = fs.statSync(real);
        if (mtime.getTime() * 1000 >= Number(UNTIL) || fs.existsSync(own(real))) return;
        fs.mkdirSync(path.dirname(own(real)), { recursive: true });
        fs.copyFileSync(real, own(real));
        fs.utimesSync(own(real), atime, mtime);
    } catch {
        // It is not there, or is no file.
    }
}

// Who comes while an answer is made waits for that one.
function bindBatcher(prototype) {
    const { batch } = prototype;
    const caches = new WeakMap();
    prototype.batch = async function (key, work) {
        if (!caches.has(this)) caches.set(this, new Cache(`next batch ${this.cacheKeyFn ? 1 : 0}`));
        const cache = caches.get(this);
        const name = JSON.stringify(key);
        if (!replays()) {
            let ran = false;
            const runs = function () {
                ran = true;
                cache.put(name, undefined);
                return Reflect.apply(work, this, arguments);
            };
            try {
                return await Reflect.apply(batch, this, [key, runs]);
            } finally {
                cache.saw(name, ran ? NOTHING : cache.numberOf(name));
            }
        }
        const seen = cache.again(name);
        const found = seen && seen.number > UNKNOWN && (await cache.waitFor(name, seen.number, false));
        if (found) return found[0].promise;
        const own = { promise: undefined };
        const runs = function () {
            cache.put(name, own);
            return Reflect.apply(work, this, arguments);
        };
        // It did not wait for another one, even if there is one.
        const alone = seen && seen.number === NOTHING;
        const of = alone ? Object.create(this, { pending: { value: new Map() } }) : this;
        return (own.promise = Reflect.apply(batch, of, [key, runs]));
    };
}

module.exports = { loading };
