# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Payments through pg and mysql2 of npm: four processes with one key at the same time."""
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = os.environ["STILE_NPM"]  # where tools/npm-clients has put them
sys.path += [str(HERE.parent / "guard")]
from mysql_once_kit import PAYMENTS as MYSQL_PAYMENTS, SCRIPT, MysqlServer, World  # noqa: E402
from postgres_once_kit import (PAYMENTS, Database, PgBouncer, connect, expect, on_database,  # noqa: E402
                               run_tests, shared_server)


def start(script, port, database, fingerprint):
    return subprocess.Popen(["node", str(HERE / script), PACKAGES, str(port), database, "order-17", fingerprint],
                            stdout=subprocess.PIPE, text=True)


def answers(*payments):
    processes = [start(*payment) for payment in payments]
    return sorted(process.communicate()[0].strip() for process in processes)


ONE_PAID = ['paid {"payment":1}'] + ['stored {"payment":1}'] * 3


@on_database
def pg(_, server):
    """pg: one pays, the others get its result as an object, also through a pooler"""
    connect(server).cursor().execute(PAYMENTS)
    with PgBouncer(shared_server()) as pooler:
        payments = [("once_pg.js", place.port, place.name, "f")
                    for place in (server, Database(pooler.port, server.name)) for _ in range(2)]
        expect(answers(*payments), ONE_PAID)
    expect(answers(("once_pg.js", server.port, server.name, "g")), ["SG005"])


def mysql2(_):
    """mysql2: one pays, the others get its result"""
    with MysqlServer() as server:
        world = World(server, SCRIPT)
        world.session().run(MYSQL_PAYMENTS)
        expect(answers(*[("once_mysql2.js", server.port, world.database, "f")] * 4), ONE_PAID)
        expect(answers(("once_mysql2.js", server.port, world.database, "g")), ["31005 SG005"])


def main():
    present = [case for case, package in ((pg, "pg"), (mysql2, "mysql2"))
               if os.environ.get("CI") or os.path.isdir(os.path.join(PACKAGES, "node_modules", package))]
    if not present:
        print("1..0 # SKIP pg and mysql2 of npm are not installed: tools/npm-clients BUILD")
    else:
        run_tests(present)


main()
