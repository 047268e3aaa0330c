// SPDX-FileCopyrightText: the stile authors
// SPDX-License-Identifier: Apache-2.0
// A payment with stile_once through mysql2: MODULES PORT DATABASE KEY FINGERPRINT
// Prints "paid" or "stored" and the result, or the number and the SQLSTATE of the error.
"use strict";

const [modules, port, database, key, fingerprint] = process.argv.slice(2);
const need = require("module").createRequire(modules + "/");
const scope = "customer 4";

async function pay(session) {
    await session.beginTransaction();
    const [sets] = await session.execute("CALL stile_once(?, ?, ?, NULL)", [key, fingerprint, scope]);
    let { run, result } = sets[0][0];
    if (run) {
        const [paid] = await session.execute("INSERT INTO payment (once_key) VALUES (?)", [key]);
        result = JSON.stringify({ payment: paid.insertId });
        await session.execute("CALL stile_once_done(?, ?, ?)", [key, result, scope]);
    }
    await session.commit();
    return `${run ? "paid" : "stored"} ${result}`;
}

async function main() {
    const session = await need("mysql2/promise").createConnection({
        host: "127.0.0.1",
        port: Number(port),
        user: "root",
        database,
    });
    try {
        console.log(await pay(session));
    } catch (error) {
        await session.rollback();
        console.log(error.errno, error.sqlState);
    }
    await session.end();
}

main();
