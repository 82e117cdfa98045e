// Records service.js, sends it transfers that meet, replays them. node main_job.js PORT DATABASE_URL TRACE
"use strict";
const assert = require("assert");
const { HindcastError, record, replay, requests } = require("hindcast");

async function main(port, database, trace) {
    const url = `http://127.0.0.1:${port}`;
    process.env.DATABASE_URL = database;
    const recording = await record([process.execPath, require.resolve("./service.js"), port], trace, { url });
    // Always in the same direction: transfers that meet wait for each other, and are no deadlock.
    const transfers = Array.from({ length: 12 }, (_, at) => fetch(`${url}/${(at % 3) * 2 + 1}/${(at % 3) * 2}/5`, { method: "POST" }));
    for (const answer of await Promise.all(transfers)) assert.equal(answer.status, 200);
    await recording.stop();

    assert.equal((await requests(trace)).length, 12);
    const verdict = await replay(trace, { postgres: database });
    assert.ok(verdict.faithful, JSON.stringify(verdict.divergences));
    assert.equal(verdict.counts.requests, 12);
    const failed = await replay(`${trace}-that-is-not-there`).catch((error) => error);
    assert.ok(failed instanceof HindcastError && failed.hint && failed.exitCode === 3, failed);
}

main(...process.argv.slice(2)).catch((error) => {
    console.error(error);
    process.exit(1);
});
