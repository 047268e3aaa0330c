// SPDX-FileCopyrightText: the stile authors
// SPDX-License-Identifier: Apache-2.0
// redlock as its users have it, driven by lines: MODULES VERSION PORT...
//     take KEY MS   once               -> yes | no
//     wait KEY MS   until it is there  -> yes | waiting, then yes
//     free          what was taken     -> yes | no
//     loop KEY MS HOLD   time and again, each time for HOLD ms -> "in" each time
"use strict";

const [modules, version, ...ports] = process.argv.slice(2);
const need = require("module").createRequire(modules + "/");
const Redis = need("ioredis");
const V4 = version === "4";
const Redlock = V4 ? need("redlock-v4") : need("redlock-v5").default;

const UNLIMITED = { retryCount: -1, retryDelay: 20, retryJitter: 20 };
const redlock = new Redlock(ports.map((port) => new Redis({ host: "127.0.0.1", port })), {
    retryCount: 0,
});
redlock.on(V4 ? "clientError" : "error", () => {}); // the call itself reports what failed

let lock = null;

async function acquire(key, ms, options) {
    lock = V4
        ? await redlock.lockWithOptions(key, ms, options)
        : await redlock.acquire([key], ms, options);
}

// "No" is an answer of the nodes: whatever else goes wrong must not pass for it.
function isRefusal(error) {
    return V4 ? error.name === "LockError" : error.name === "ExecutionError";
}

async function answer(action) {
    try {
        await action();
        return "yes";
    } catch (error) {
        if (!isRefusal(error)) throw error;
        return "no";
    }
}

async function loop(key, ms, hold) {
    for (;;) {
        await acquire(key, ms, UNLIMITED);
        console.log("in");
        await new Promise((done) => setTimeout(done, hold));
        await answer(() => (V4 ? lock.unlock() : lock.release()));
    }
}

async function obey([verb, key, ms, hold]) {
    if (verb === "loop") return loop(key, Number(ms), Number(hold));
    if (verb === "free") return answer(() => (V4 ? lock.unlock() : lock.release()));
    const first = await answer(() => acquire(key, Number(ms), {}));
    if (verb === "take" || first === "yes") return first;
    console.log("waiting");
    return answer(() => acquire(key, Number(ms), UNLIMITED));
}

async function main() {
    for await (const line of require("readline").createInterface({ input: process.stdin }))
        console.log(await obey(line.split(" ")));
    process.exit(0);
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
