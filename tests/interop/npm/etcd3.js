// The elections of etcd3 as its users have them, driven by lines: MODULES HOST:PORT
//     campaign NAME VALUE    -> waiting, if somebody else leads; in KEY, when it leads itself
//     free                   resigns -> out
//     leader NAME            -> leads VALUE | leads nobody
"use strict";

const [modules, host] = process.argv.slice(2);
const need = require("module").createRequire(modules + "/");
const { Etcd3 } = need("etcd3");

const TTL_S = 60;
const client = new Etcd3({ hosts: "http://" + host });
let campaign = null;

async function stand(name, value) {
    campaign = client.election(name, TTL_S).campaign(value);
    campaign.on("_isWaiting", () => console.log("waiting"));
    await campaign.wait();
    return "in " + (await campaign.getCampaignKey());
}

async function leader(name) {
    const observer = await client.election(name).observe();
    const value = observer.leader();
    await observer.cancel();
    return "leads " + (value === undefined ? "nobody" : value);
}

async function obey([verb, name, value]) {
    if (verb === "campaign") return stand(name, value);
    if (verb === "leader") return leader(name);
    await campaign.resign();
    return "out";
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
