# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The guard of MySQL through mysql2 of npm."""
import os
import pathlib
import subprocess

from mysql_guard_kit import MysqlServer, expect, in_worlds, run_tests, with_data

PACKAGES = os.environ["STILE_NPM"]  # where tools/npm-clients has put them
HERE = pathlib.Path(__file__).resolve().parent
MOST = 2 ** 63 - 1


def mysql2(world):
    """mysql2 of npm: errno and sqlState say why; tokens are exact; one message for begin and guard"""
    text = with_data(world)

    def write(token, words, *one):
        return subprocess.run(["node", str(HERE / "guard_mysql2.js"), PACKAGES, str(world.server.port),
                               world.database, str(token), words, *one], capture_output=True,
                              text=True, check=True).stdout.strip()

    expect(write(33, "by 33"), "ok")
    expect(write(MOST - 1, "largest"), "ok")
    expect(write(MOST - 1, "again", "one"), "ok")
    expect(write(MOST - 2, "late"), "31001 SG001")
    expect(write(MOST - 2, "late", "one"), "31001 SG001")
    expect(text(), "again")
    expect(write(0, "none"), "31004 SG004")


def main():
    if not os.path.isdir(os.path.join(PACKAGES, "node_modules", "mysql2")):
        why = "mysql2 of npm is not installed: tools/npm-clients BUILD"
        print("1..1\nnot ok 1 - %s" % why if os.environ.get("CI") else "1..0 # SKIP %s" % why)
        raise SystemExit(1 if os.environ.get("CI") else 0)
    with MysqlServer() as server:
        run_tests(in_worlds(server, [mysql2]))


main()
