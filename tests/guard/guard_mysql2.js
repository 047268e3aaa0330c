// SPDX-FileCopyrightText: the stile authors
// SPDX-License-Identifier: Apache-2.0
// mysql2 as its users have it, one guarded write: MODULES PORT DATABASE TOKEN TEXT [one]
// Prints "ok", or the error's number and SQLSTATE. With `one`, START TRANSACTION and the guard are
// sent together.
"use strict";

const [modules, port, database, token, text, one] = process.argv.slice(2);
const need = require("module").createRequire(modules + "/");

async function write(session) {
    // A token is passed as a text: a number of JavaScript has only 53 bits.
    const guard = "CALL stile_guard('r', ?, 'redis:r')";
    if (one) {
        await session.query("START TRANSACTION; " + guard, [token]);
    } else {
        await session.beginTransaction();
        await session.execute(guard, [token]);
    }
    await session.execute("UPDATE data SET text = ? WHERE id = 1", [text]);
    await session.commit();
}

async function main() {
    const session = await need("mysql2/promise").createConnection({
        host: "127.0.0.1",
        port: Number(port),
        user: "root",
        database,
        multipleStatements: Boolean(one),
    });
    try {
        await write(session);
        console.log("ok");
    } catch (error) {
        await session.rollback();
        console.log(error.errno, error.sqlState);
    }
    await session.end();
}

main();
