// SPDX-FileCopyrightText: the stile authors
// SPDX-License-Identifier: Apache-2.0
// A payment with stile.once() through pg: MODULES PORT DATABASE KEY FINGERPRINT
// Prints "paid" or "stored" and the result, or the code of the error.
"use strict";

const [modules, port, database, key, fingerprint] = process.argv.slice(2);
const { Pool } = require("module").createRequire(modules + "/")("pg");
const pool = new Pool({ host: "127.0.0.1", port: Number(port), user: "postgres", database });
const scope = "customer 4";

async function pay(client) {
    await client.query("BEGIN");
    const once = await client.query("SELECT * FROM stile.once($1, $2, scope => $3)", [key, fingerprint, scope]);
    let { run, result } = once.rows[0];
    if (run) {
        const paid = await client.query("INSERT INTO payment (key) VALUES ($1) RETURNING id", [key]);
        result = { payment: paid.rows[0].id };
        await client.query("SELECT stile.once_done($1, $2, scope => $3)", [key, result, scope]);
    }
    await client.query("COMMIT");
    return `${run ? "paid" : "stored"} ${JSON.stringify(result)}`;
}

async function main() {
    const client = await pool.connect();
    try {
        console.log(await pay(client));
    } catch (error) {
        await client.query("ROLLBACK");
        console.log(error.code);
    }
    client.release();
    await pool.end();
}

main();
