// SPDX-FileCopyrightText: the stile authors
// SPDX-License-Identifier: Apache-2.0
// The guard of PostgreSQL through pg: MODULES PORT DATABASE, driven by lines.
//     write RESOURCE TOKEN VALUE   begin and the guard in one message, then the row, then commit
//     bound RESOURCE TOKEN VALUE   the same with values that are bound, from a pool
//     called RESOURCE TOKEN VALUE  the same with stile.fence
// Each line is answered by "done", or by the code and the detail of the error.
"use strict";

const [modules, port, database] = process.argv.slice(2);
const { Client, Pool } = require("module").createRequire(modules + "/")("pg");
const address = { host: "127.0.0.1", port: Number(port), user: "postgres", database };
const session = new Client(address);
const pool = new Pool(address);

async function write(client, value) {
    await client.query("UPDATE doc SET v = $1", [value]);
    await client.query("COMMIT");
    return "done";
}

async function bound(guard, resource, token, value) {
    const client = await pool.connect();
    try {
        await client.query("BEGIN");
        await client.query(guard, [resource, token]);
        return await write(client, value);
    } finally {
        await client.query("ROLLBACK");
        client.release();
    }
}

const verbs = {
    async write(resource, token, value) {
        const name = session.escapeLiteral(resource);
        await session.query(`BEGIN; SELECT stile.guard(${name}, ${token})`);
        return write(session, value);
    },
    bound: (...args) => bound("SELECT stile.guard($1, $2)", ...args),
    called: (...args) => bound("CALL stile.fence($1, $2, '')", ...args),
};

async function answer([verb, ...args]) {
    try {
        return await verbs[verb](...args);
    } catch (error) {
        await session.query("ROLLBACK");
        return `${error.code} ${error.detail}`;
    }
}

async function main() {
    await session.connect();
    for await (const line of require("readline").createInterface({ input: process.stdin }))
        console.log(await answer(line.split(" ")));
    process.exit(0);
}

main();
