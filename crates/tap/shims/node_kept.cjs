// What programs keep in caches of packages: `lru-cache`, `node-cache`, and `keyv` with what it keeps in
// memory, which `cache-manager` and others have behind them. See node_caches.cjs.
//
// Most of these look at once, and a loop cannot wait: what is not there yet in a replay is as it comes. A
// request is sent after those that had been answered and whose entries it saw, so that is rare.
"use strict";
const { Cache, NOTHING, UNKNOWN, replays } = require("./node_caches.cjs");
const { replace } = require("./node_pins.cjs");

const BOUND = Symbol("hindcast bound");
const packages = {
    "lru-cache": exported => bind(exported.LRUCache || exported, bindLru),
    "node-cache": exported => bind(exported, bindNodeCache),
    keyv: exported => bind(exported.Keyv || exported.default || exported, bindKeyv),
};

// A package was loaded by this name.
function loaded(name, exported) {
    if (exported && Object.hasOwn(packages, name)) packages[name](exported);
}

function bind(made, how) {
    const prototype = typeof made === "function" && made.prototype;
    if (!prototype || Object.hasOwn(prototype, BOUND)) return;
    Object.defineProperty(prototype, BOUND, { value: true });
    how(prototype);
}

// A key as a text, if it is one or a number.
const textOf = key => (typeof key === "string" ? `s${key}` : typeof key === "number" ? `n${key}` : undefined);

// The caches of a program are told apart by what they are made with.
const caches = new WeakMap();
function cacheOf(of, made) {
    if (!caches.has(of)) caches.set(of, new Cache(made.map(String).join(" ")));
    return caches.get(of);
}

// A look that gives at once what the request saw. `real` gives what is there.
function looks(cache, key, real) {
    if (!replays()) {
        const value = real();
        tells(cache, key, value);
        return value;
    }
    const seen = cache.again(key);
    if (!seen || seen.number === UNKNOWN) return real();
    if (seen.number === NOTHING) return undefined;
    const found = cache.kept(seen.number);
    return found ? found[0] : real();
}

// Who finds nothing is likely to put something there.
function tells(cache, key, value) {
    const isThere = value !== undefined && value !== null;
    cache.saw(key, isThere ? cache.numberOf(key, value) : NOTHING);
    if (!isThere) cache.willPut(key);
}

// Of `has`: whether there was something.
function has(cache, key, real) {
    if (replays()) {
        const seen = cache.again(`?${key}`);
        return seen ? seen.more === 1 : real();
    }
    const is = real();
    cache.saw(`?${key}`, UNKNOWN, is ? 1 : 0);
    return is;
}

let lookFor;
function bindLru(prototype) {
    const { get } = prototype;
    lookFor = (of, key) => Reflect.apply(get, of, [key]);
    const lru = of => cacheOf(of, ["lru", of.max, of.ttl, of.fetchMethod]);
    const isFetched = value => value instanceof Promise && "__staleWhileFetching" in value;
    looksBy(prototype, ["get", "peek"], lru, looks);
    looksBy(prototype, ["has"], lru, has);
    puts(prototype, lru, value => !isFetched(value));
    replace(prototype, "fetch", real => function (key, options) {
        const [cache, text] = [lru(this), textOf(key)];
        if (text === undefined || typeof this.fetchMethod !== "function") return Reflect.apply(real, this, arguments);
        return replays() ? fetchAgain(this, cache, text, key, options) : fetchAnew(this, cache, text, real, key, options);
    });
}

// Numbers of what is being fetched, by cache and key.
const flights = new WeakMap();

function fetchAnew(of, cache, text, real, key, options) {
    const status = (options && options.status) || {};
    const fetching = Reflect.apply(real, of, [key, { ...options, status }]);
    const { fetch, returnedStale } = status;
    const isOwn = fetch === "miss" || fetch === "stale" || fetch === "refresh";
    if (!flights.has(cache)) flights.set(cache, new Map());
    if (isOwn) flights.get(cache).set(text, cache.willPut(text));
    if (isOwn && !returnedStale) cache.saw(text, NOTHING);
    else if (fetch === "inflight" && !returnedStale) cache.saw(text, flights.get(cache).get(text) || UNKNOWN);
    else fetching.then(value => cache.saw(text, cache.numberOf(text, value), isOwn ? 1 : 0), () => {});
    return fetching;
}

// What is fetched here is in no one's way: the package gives up what it fetches when something else is put
// there.
async function fetchAgain(of, cache, text, key, options) {
    const own = async () => {
        const given = { signal: new AbortController().signal, options: options || {}, context: options && options.context };
        const value = await of.fetchMethod(key, undefined, given);
        of.set(key, value);
        return value;
    };
    const seen = cache.again(text);
    if (seen && seen.number === NOTHING) return own();
    if (seen && seen.more === 1) own().catch(() => {});
    const found = seen && seen.number !== UNKNOWN && (await cache.waitFor(text, seen.number, false));
    if (found) return found[0];
    return lookFor(of, key) ?? own();
}

function bindNodeCache(prototype) {
    const node = of => cacheOf(of, ["node", of.options && of.options.stdTTL]);
    looksBy(prototype, ["get"], node, (cache, key, real) => copied(looks(cache, key, real)));
    looksBy(prototype, ["has"], node, has);
    puts(prototype, node, () => true);
}

// `node-cache` gives copies.
function copied(value) {
    try {
        return typeof value === "object" && replays() ? structuredClone(value) : value;
    } catch {
        return value;
    }
}

function bindKeyv(prototype) {
    const keyv = of => cacheOf(of, ["keyv", of.namespace || (of.opts && of.opts.namespace), of.ttl || (of.opts && of.opts.ttl)]);
    const isInMemory = of => {
        const store = of.store || (of.opts && of.opts.store);
        return store instanceof Map || /^Cacheable|^KeyvCacheable/.test((store && store.constructor.name) || "");
    };
    replace(prototype, "get", real => async function (key, options) {
        const text = textOf(key);
        if (text === undefined || !isInMemory(this)) return Reflect.apply(real, this, arguments);
        const [cache, isRaw] = [keyv(this), Boolean(options && options.raw)];
        if (!replays()) {
            const found = await Reflect.apply(real, this, arguments);
            tells(cache, text, isRaw ? found && found.value : found);
            return found;
        }
        const seen = cache.again(text);
        if (seen && seen.number === NOTHING) return undefined;
        const found = seen && seen.number !== UNKNOWN && (await cache.waitFor(text, seen.number, true));
        if (!found) return Reflect.apply(real, this, arguments);
        const read = await written(this, { value: found[0] });
        return isRaw ? read : read.value;
    });
    puts(prototype, keyv, () => true);
}

// As it comes back from what `keyv` writes.
async function written(of, entry) {
    if (typeof of.serializeData === "function") return of.deserializeData(await of.serializeData(entry));
    const { serialize, deserialize } = of.opts || {};
    return serialize && deserialize ? deserialize(await serialize(entry)) : entry;
}

function looksBy(prototype, names, known, look) {
    for (const name of names) {
        replace(prototype, name, real => function (key) {
            const text = textOf(key);
            const own = () => Reflect.apply(real, this, arguments);
            return text === undefined ? own() : look(known(this), text, own);
        });
    }
}

function puts(prototype, known, isValue) {
    replace(prototype, "set", real => function (key, value) {
        const text = textOf(key);
        if (text !== undefined && isValue(value)) known(this).put(text, value);
        return Reflect.apply(real, this, arguments);
    });
}

module.exports = { loaded };
