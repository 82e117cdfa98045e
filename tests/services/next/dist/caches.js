// Caches with the properties by which those of Next.js are known, since a bundle gives them no names.
"use strict";

class IncrementalCache {
    constructor() {
        this.hasCustomCacheHandler = false;
        this.entries = new Map();
    }

    async get(key, { revalidate }) {
        const kept = this.entries.get(key);
        const isStale = kept && performance.now() - kept.since > revalidate;
        return kept ? { isStale, value: { kind: "FETCH", data: kept.value.data, revalidate } } : null;
    }

    async set(key, value) {
        this.entries.set(key, { value, since: performance.now() });
    }
}

class Batcher {
    constructor() {
        this.cacheKeyFn = undefined;
        this.schedulerFn = work => process.nextTick(work);
        this.pending = new Map();
    }

    async batch(key, work) {
        if (!this.pending.has(key)) {
            const made = new Promise((resolve, reject) => {
                this.schedulerFn(() => work(key, resolve).then(resolve, reject).finally(() => this.pending.delete(key)));
            });
            this.pending.set(key, made);
        }
        return this.pending.get(key);
    }
}

module.exports = { Batcher, IncrementalCache };
