// Parse Server, as its documentation has it.
"use strict";
const express = require("express");
const { ParseServer } = require("parse-server");

async function main(port) {
    const server = new ParseServer({
        databaseURI: process.env.DATABASE_URL,
        appId: "app",
        masterKey: "master",
        serverURL: `http://127.0.0.1:${port}/parse`,
        cloud: "./cloud.js",
        silent: true,
        logsFolder: null,
        allowClientClassCreation: true,
        encodeParseObjectInCloudFunction: true,
    });
    await server.start();
    const app = express();
    app.use("/parse", server.app);
    app.listen(port, "127.0.0.1");
}

main(Number(process.argv[2]));
