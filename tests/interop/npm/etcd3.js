// SPDX-FileCopyrightText: the stile authors
// SPDX-License-Identifier: Apache-2.0
// The elections and the Lock of etcd3 as its users have them, driven by lines: MODULES HOST:PORT
//     campaign NAME VALUE    -> waiting, if somebody else leads; in KEY, when it leads itself
//     lock NAME              -> in NAME | taken
//     contend NAME N         locks it N times, as soon as it can -> TOKEN SINCE UNTIL, each time; out
//     free                   resigns, or unlocks -> out
//     leader NAME            -> leads VALUE | leads nobody
"use strict";

const [modules, host] = process.argv.slice(2);
const need = require("module").createRequire(modules + "/");
const { Etcd3, EtcdLockFailedError } = need("etcd3");

const TTL_S = 60;
const client = new Etcd3({ hosts: "http://" + host });
let campaign = null;
let held = null;

async function stand(name, value) {
    campaign = client.election(name, TTL_S).campaign(value);
    campaign.on("_isWaiting", () => console.log("waiting"));
    await campaign.wait();
    return "in " + (await campaign.getCampaignKey());
}

async function lock(name) {
    try {
        held = await client.lock(name).ttl(TTL_S).acquire();
    } catch (error) {
        if (!(error instanceof EtcdLockFailedError)) throw error;
        return "taken";
    }
    return "in " + name;
}

async function contend(name, times) {
    while (times > 0) {
        if ((await lock(name)) === "taken") continue;
        const since = process.hrtime.bigint();
        await new Promise((done) => setTimeout(done, 1));
        console.log(`0 ${since} ${process.hrtime.bigint()}`);
        await free();
        times--;
    }
    return "out";
}

async function free() {
    if (held) await held.release();
    else await campaign.resign();
    held = null;
    return "out";
}

async function leader(name) {
    const observer = await client.election(name).observe();
    const value = observer.leader();
    await observer.cancel();
    return "leads " + (value === undefined ? "nobody" : value);
}

async function obey([verb, name, value]) {
    if (verb === "campaign") return stand(name, value);
    if (verb === "lock") return lock(name);
    if (verb === "contend") return contend(name, Number(value));
    if (verb === "leader") return leader(name);
    return free();
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
