// SPDX-FileCopyrightText: the stile authors
// SPDX-License-Identifier: Apache-2.0
// Locks of npm at the same work as peers.py:
//     node peers_redis.js MODULES CLIENT pair|handover|crowd PORT,... TIMES|MILLISECONDS
// CLIENT is redlock-v4, redlock-v5 or redis-semaphore. A line of JSON: p50_ns; of a crowd: per_s, acquired.
//
// Everything is as its users get it, but for the number of retries, which has no limit here.
"use strict";

const { fork } = require("child_process");
const [modules, client, work, ports, count] = process.argv.slice(2);
const need = require("module").createRequire(modules + "/");
const TTL_MS = 10000;
const CROWD = 8;
// A waiter looks again after this long; so it has waited for any part of it when the lock is given back.
const LOOKS_EVERY_MS = { "redlock-v4": 200, "redlock-v5": 200, "redis-semaphore": 10 };

const now = () => Number(process.hrtime.bigint());
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

function connections() {
    const Redis = need("ioredis");
    return ports.split(",").map((port) => new Redis({ host: "127.0.0.1", port }));
}

function redlock4() {
    const redlock = new (need("redlock-v4"))(connections(), { retryCount: -1 });
    redlock.on("clientError", () => {});
    let held;
    return {
        acquire: async (name) => (held = await redlock.lock(name, TTL_MS)),
        release: () => held.unlock(),
    };
}

function redlock5() {
    const redlock = new (need("redlock-v5").default)(connections(), { retryCount: -1 });
    redlock.on("error", () => {});
    let held;
    return {
        acquire: async (name) => (held = await redlock.acquire([name], TTL_MS)),
        release: () => held.release(),
    };
}

function semaphore() {
    const { Mutex, RedlockMutex } = need("redis-semaphore");
    const nodes = connections();
    const options = { lockTimeout: TTL_MS, acquireTimeout: 600000 };
    let held;
    return {
        acquire: (name) => {
            held = nodes.length > 1 ? new RedlockMutex(nodes, name, options) : new Mutex(nodes[0], name, options);
            return held.acquire();
        },
        release: () => held.release(),
    };
}

const lock = { "redlock-v4": redlock4, "redlock-v5": redlock5, "redis-semaphore": semaphore }[client]();

function median(took) {
    return took.sort((a, b) => a - b)[Math.floor(took.length / 2)];
}

async function pair(times) {
    const took = [];
    for (let i = -times; i < times; i++) { // once over before it counts: the compiler's share
        const start = now();
        await lock.acquire("peer-pair");
        await lock.release();
        took[Math.max(i, 0)] = now() - start;
    }
    return { p50_ns: median(took) };
}

// Another process: it begins with a message, and runs "waiter" or "member" in place of the work.
function start(role) {
    const child = fork(__filename, [modules, client, role, ports, count]);
    let next;
    child.on("message", (message) => next(message));
    child.on("exit", (code) => code && fail(new Error("a " + role + " has failed")));
    child.heard = () => new Promise((done) => (next = done));
    return child;
}

function toldBy(parent) {
    return new Promise((done) => parent.once("message", done));
}

async function waiter() {
    process.send("ready");
    while (await toldBy(process)) {
        process.send("asks");
        await lock.acquire("peer-handover");
        const taken = now();
        await lock.release();
        process.send(taken);
    }
    process.exit(0);
}

async function handover(times) {
    const other = start("waiter");
    await other.heard();
    const took = [];
    for (let i = 0; i < times; i++) {
        await lock.acquire("peer-handover");
        const asks = other.heard();
        other.send(true);
        await asks;
        await sleep(50 + Math.random() * LOOKS_EVERY_MS[client]);
        const taken = other.heard(), gave = now();
        await lock.release();
        took.push((await taken) - gave);
    }
    other.send(false);
    return { p50_ns: median(took) };
}

async function member() {
    let stop = false, served = 0;
    process.send("ready");
    await toldBy(process);
    toldBy(process).then(() => (stop = true));
    for (; !stop; served++) {
        await lock.acquire("peer-crowd");
        await lock.release();
        await new Promise(setImmediate); // messages are read between two turns only
    }
    process.send(served);
}

async function crowd(forMs) {
    const members = Array.from({ length: CROWD }, () => start("member"));
    await Promise.all(members.map((one) => one.heard()));
    members.forEach((one) => one.send("go"));
    const began = now();
    await sleep(forMs);
    const counts = members.map((one) => one.heard());
    members.forEach((one) => one.send("stop"));
    const acquired = (await Promise.all(counts)).reduce((a, b) => a + b);
    const perS = (acquired * 1e9) / (now() - began);
    members.forEach((one) => one.kill());
    return { per_s: perS, acquired };
}

// A member that fails ends the run, and members end with it.
process.on("disconnect", () => process.exit(1));

async function main() {
    const found = await { pair, handover, crowd, waiter, member }[work](Number(count));
    if (found) {
        console.log(JSON.stringify(found));
        process.exit(0);
    }
}

function fail(error) {
    console.error(error.message);
    process.exit(1);
}

main().catch(fail);
