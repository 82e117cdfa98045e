// Makes the tables, by asking the application for objects of each kind.
"use strict";
const { spawn } = require("child_process");
const net = require("net");
const headers = {
    "X-Parse-Application-Id": "app",
    "X-Parse-Master-Key": "master",
    "Content-Type": "application/json",
};

async function freePort() {
    const server = net.createServer().listen(0, "127.0.0.1");
    await new Promise(done => server.once("listening", done));
    const { port } = server.address();
    await new Promise(done => server.close(done));
    return port;
}

async function main() {
    const port = await freePort();
    const send = async (target, body) => {
        const options = body && { method: "POST", headers, body: JSON.stringify(body) };
        const answer = await fetch(`http://127.0.0.1:${port}/parse/${target}`, options);
        if (!answer.ok) throw new Error(`${target}: ${await answer.text()}`);
        return answer.json();
    };
    const application = spawn("node", ["index.js", String(port)], { stdio: "inherit" });
    try {
        for (let isThere = false; !isThere; ) {
            await new Promise(done => setTimeout(done, 100));
            isThere = await send("health").then(() => true, () => application.exitCode !== null);
        }
        const { objectId: board } = await send("classes/Board", { name: "all", writes: 0 });
        const login = { username: "first", password: "a password" };
        const { objectId } = await send("users", { ...login, email: "first@example.com" });
        await send("login", login);
        const owner = { __type: "Pointer", className: "_User", objectId };
        // As many as a list has room for when the application is changed, and one more.
        for (const text of ["first", "second", "third"]) {
            await send("classes/Note", { text, board, tags: ["a"], likes: 1, owner });
        }
        await send("classes/Item", { n: 1, of: 100 });
    } finally {
        application.kill();
    }
}

main();
