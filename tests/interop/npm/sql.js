// SPDX-FileCopyrightText: the stile authors
// SPDX-License-Identifier: Apache-2.0
// pg and mysql2 as their users have them, driven by lines: MODULES pg|mysql2 PORT
//     take NAME   once, without waiting      -> yes | no
//     wait NAME   until it is there          -> waiting, then yes
//     free NAME   what was taken             -> yes | no
"use strict";

const [modules, client, port] = process.argv.slice(2);
const need = require("module").createRequire(modules + "/");

const HASHED = "hashtextextended($1, 0)";

async function openPg() {
    const { Client } = need("pg");
    const session = new Client({ host: "127.0.0.1", port: Number(port), user: "postgres" });
    await session.connect();
    const ask = async (text, name) => Object.values((await session.query(text, [name])).rows[0])[0];
    return {
        take: (name) => ask(`SELECT pg_try_advisory_lock(${HASHED})`, name),
        wait: async (name) => (await ask(`SELECT pg_advisory_lock(${HASHED})`, name)) === "",
        free: (name) => ask(`SELECT pg_advisory_unlock(${HASHED})`, name),
    };
}

async function openMysql2() {
    const session = await need("mysql2/promise").createConnection({
        host: "127.0.0.1",
        port: Number(port),
        user: "root",
    });
    const ask = async (text, name) => Object.values((await session.query(text, [name]))[0][0])[0] === 1;
    return {
        take: (name) => ask("SELECT GET_LOCK(?, 0)", name),
        wait: (name) => ask("SELECT GET_LOCK(?, 600)", name),
        free: (name) => ask("SELECT RELEASE_LOCK(?)", name),
    };
}

async function main() {
    const session = await { pg: openPg, mysql2: openMysql2 }[client]();
    for await (const line of require("readline").createInterface({ input: process.stdin })) {
        const [verb, name] = line.split(" ");
        if (verb === "wait") console.log("waiting");
        console.log((await session[verb](name)) ? "yes" : "no");
    }
    process.exit(0);
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
