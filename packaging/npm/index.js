"use strict";
// The `hindcast` command from JavaScript: record a service, list what was recorded, replay it.
const { execFile, spawn } = require("child_process");
const { once } = require("events");
const net = require("net");
const path = require("path");

const program = path.join(__dirname, "bin", "hindcast");

/** Something could not be done: what, why, and what to do next. */
class HindcastError extends Error {
    constructor(message, causes = [], hint = undefined, exitCode = undefined) {
        super([message, ...causes.map((cause) => `Cause: ${cause}`), ...(hint ? [`Hint: ${hint}`] : [])].join("\n"));
        Object.assign(this, { name: "HindcastError", causes, hint, exitCode });
    }

    /** From what the command wrote: `Error: …`, `Cause: …` any number of times, `Hint: …`. */
    static of(said, exitCode) {
        const parts = said.split(/^(Error|error|Cause|Hint): /m).slice(1);
        const texts = (kind) => parts.filter((_, at) => at % 2 && parts[at - 1].toLowerCase() === kind).map((text) => text.trim());
        const message = texts("error").pop() ?? (said.trim() || `hindcast ended with ${exitCode}`);
        return new HindcastError(message, texts("cause"), texts("hint").pop(), exitCode);
    }
}

/** `{ keepGoing: true, ignore: ["a", "b"] }` as the command line has it. `undefined` and `false` say nothing. */
function options(given) {
    return Object.entries(given).flatMap(([name, value]) => {
        const flag = `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
        if (value === true) return [flag];
        if (value === undefined || value === null || value === false) return [];
        return [value].flat().map((one) => `${flag}=${one}`);
    });
}

/** Runs the command to its end, and gives what it printed. */
function run(words, allowed = [0]) {
    return new Promise((resolve, reject) => {
        execFile(program, words, { maxBuffer: Infinity }, (error, stdout, stderr) => {
            const code = error ? error.code : 0;
            allowed.includes(code) ? resolve(stdout) : reject(HindcastError.of(stderr || String(error), code));
        });
    });
}

/** Replays a recording, by the options of `hindcast replay`. A divergence is a result: the verdict has it. */
async function replay(trace, given = {}) {
    return JSON.parse(await run(["replay", "--json", "--trace", trace, ...options(given)], [0, 1]));
}

/** The recorded requests, in order of arrival. */
async function requests(trace, given = {}) {
    const lines = await run(["ls", "--json", "--limit", "0", "--trace", trace, ...options(given)]);
    return lines.split("\n").filter(Boolean).map((line) => JSON.parse(line));
}

/**
 * Starts a service by its command and records it, by the options of `hindcast record`. With `url` it waits until the service accepts
 * connections there. A base is taken first unless `base` is "none". `stop()` ends both and completes the recording.
 */
async function record(command, trace, { url, patience = 60_000, base = "template", ...given } = {}) {
    const words = ["record", "--trace", trace, ...options({ base, ...given }), "--", ...command];
    // In a group of its own, so that Ctrl-C on a terminal reaches the service once, by `stop`.
    const recorder = spawn(program, words, { stdio: ["ignore", "pipe", "pipe"], detached: true });
    let said = "";
    for (const stream of [recorder.stdout, recorder.stderr]) stream.on("data", (text) => (said += text));
    const ended = once(recorder, "close");
    const stop = async () => {
        recorder.kill("SIGINT");
        const [code] = await ended;
        if (code !== 0) throw HindcastError.of(said, code);
    };
    const deadline = Date.now() + patience;
    while (url && !(await listens(new URL(url)))) {
        if (recorder.exitCode !== null || recorder.signalCode !== null) throw HindcastError.of(said, recorder.exitCode);
        if (Date.now() > deadline) {
            await stop().catch(() => {});
            throw new HindcastError(`the service does not accept connections at ${url} after ${patience} ms`, [said.trim()]);
        }
        await new Promise((resolve) => setTimeout(resolve, 20));
    }
    return { stop, said: () => said };
}

function listens(url) {
    return new Promise((resolve) => {
        const socket = net.connect(url.port || (url.protocol === "https:" ? 443 : 80), url.hostname);
        socket.once("connect", () => resolve(true)).once("error", () => resolve(false));
        socket.once("connect", () => socket.destroy());
    });
}

module.exports = { HindcastError, program, record, replay, requests };
