// SPDX-FileCopyrightText: the stile authors
// SPDX-License-Identifier: Apache-2.0
// The guard of Redis through ioredis: MODULES one|cluster PORT TEXTS, driven by lines.
// TEXTS is a file with {"library": text, "scripts": {name: text}}. A line ["function" | "script", name,
// keys, args] is answered by [reply], or by {"error": text}.
"use strict";

const fs = require("fs");
const [modules, kind, port, file] = process.argv.slice(2);
const Redis = require("module").createRequire(modules + "/")("ioredis");
const { library, scripts } = JSON.parse(fs.readFileSync(file));
const address = { host: "127.0.0.1", port: Number(port) };
const redis = kind === "cluster" ? new Redis.Cluster([address]) : new Redis(address);

function call(form, name, keys, args) {
    return form === "script"
        ? redis["guard_" + name](keys.length, ...keys, ...args)
        : redis.fcall("stile_guard_" + name, keys.length, ...keys, ...args);
}

async function answer(line) {
    try {
        return [await call(...JSON.parse(line))];
    } catch (error) {
        return { error: error.message };
    }
}

async function main() {
    for (const [name, lua] of Object.entries(scripts)) redis.defineCommand("guard_" + name, { lua });
    await new Promise((done) => redis.once("ready", done));
    const primaries = kind === "cluster" ? redis.nodes("master") : [redis];
    for (const node of primaries) await node.call("FUNCTION", "LOAD", "REPLACE", library);
    for await (const line of require("readline").createInterface({ input: process.stdin }))
        console.log(JSON.stringify(await answer(line)));
    redis.disconnect();
}

main();
