// A cluster's primary accepts connections for its workers and deals them out in turn. Which worker has a
// connection is told, and in a replay a worker that did not have it leaves it to the next one: it answers as
// one that is about to end, and the primary looks for another.
"use strict";
const cluster = require("cluster");
const runtime = require("./node_runtime.cjs");

const [GIVEN, PASSES_ON] = [9, 10].map(place => place * 2 ** 32);
const bytes = Buffer.alloc(8);

function begin(isReplay) {
    if (cluster.isWorker) receives(isReplay);
    else if (cluster.schedulingPolicy === cluster.SCHED_RR) cluster.once("fork", passesOn);
}

function passesOn() {
    runtime.tell(bytes, PASSES_ON);
}

function receives(isReplay) {
    const { emit } = process;
    process.emit = function (event, message, handle) {
        const isNew = event === "internalMessage" && message && message.act === "newconn";
        const descriptor = isNew && handle ? handle.fd : -1;
        if (!(descriptor >= 0)) return Reflect.apply(emit, this, arguments);
        if (isReplay && isAnothers(descriptor)) {
            handle.close();
            return process.send({ cmd: "NODE_CLUSTER", ack: message.seq, accepted: false });
        }
        runtime.tell(bytes, GIVEN + descriptor);
        return Reflect.apply(emit, this, arguments);
    };
}

function isAnothers(descriptor) {
    const count = runtime.ask(bytes, GIVEN + descriptor);
    return count === bytes.length && bytes.readBigUInt64LE() === 1n;
}

module.exports = { begin };
