# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The guard of PostgreSQL through the clients that its users have: psql, psycopg2 and pg of npm, each
straight and through pgbouncer, which gives each transaction to whichever session is free."""
import os
import pathlib
import subprocess

import psycopg2

from postgres_guard_kit import (STALE, UNGUARDED, Database, Lines, PgBouncer, address,
                                connect, die_with_parent, expect, on_database, run, run_tests, seen,
                                shared_server, tool)

HERE = pathlib.Path(__file__).resolve().parent
FENCE = "CALL stile.fence('x', %d, '')"
PACKAGES = os.environ["STILE_NPM"]  # where tools/npm-clients has put them


def through_both(case):
    """Straight, then through a pooler with fewer sessions than there are clients."""
    def both(t, database):
        cursor = connect(database).cursor()
        cursor.execute("create table doc (v int); insert into doc values (0)")
        case(database, cursor)
        with PgBouncer(shared_server()) as pooler:
            cursor.execute("delete from stile.guarded")
            case(Database(pooler.port, database.name), cursor)
    both.__name__, both.__doc__ = case.__name__, case.__doc__
    return on_database(both)


@through_both
def psql(server, cursor):
    """psql: a stale token stops the script, and its SQLSTATE is shown"""
    def script(token, guard="SELECT stile.guard('x', %d)"):
        where = address(server)
        return subprocess.run(
            [tool("psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose", "-h",
             where["host"], "-p", str(where["port"]), "-U", where["user"], where["dbname"]],
            input="BEGIN\\; %s;\nUPDATE doc SET v = %d;\nCOMMIT;\n" % (guard % token, token),
            capture_output=True, text=True, check=False)
    expect(script(34).returncode, 0)
    expect(script(35, FENCE).returncode, 0)
    for done in script(33), script(33, FENCE):
        expect(done.returncode, 3)
        assert "SG001: stale token 33 for x: the highest seen is 35" in done.stderr, done.stderr
        assert "highest=35" in done.stderr, done.stderr
    expect(run(cursor, "select v from doc"), 35)


@through_both
def psycopg(server, cursor):
    """psycopg2: as part of its own transactions"""
    connections = [psycopg2.connect(**address(server)) for _ in range(8)]

    def write(connection, token):
        with connection, connection.cursor() as mine:
            mine.execute("select stile.guard(%s, %s, 'redis:a')" if connections.index(connection) % 2
                         else "call stile.fence(%s, %s, 'redis:a')", ("x", token))
            mine.execute("update doc set v = %s", (token,))
    for token, connection in enumerate(connections, 1):
        write(connection, token)
    for connection in connections:
        try:
            write(connection, 7)
            assert False, "a stale token has passed"
        except psycopg2.Error as error:
            expect((error.pgcode, error.diag.message_detail), (STALE, "highest=8 issuer=redis:a"))
    write(connections[0], 8)
    expect(run(cursor, "select v from doc"), 8)


@through_both
def required(server, cursor):
    """guard_required: the guard of one transaction does not count for the next one of its session"""
    cursor.execute("select stile.guard_required('doc', 'x')")
    connections = [connect(server) for _ in range(12)]
    for connection in connections:
        mine = connection.cursor()
        mine.execute("begin; select stile.guard('x', 1); update doc set v = v + 1; commit")
    for connection in connections:
        expect(run(connection.cursor(), "update doc set v = v + 1"), UNGUARDED)
        expect(run(connection.cursor(), "begin; update doc set v = v + 1; commit"), UNGUARDED)
        connection.cursor().execute("rollback")
    cursor.execute("drop trigger stile_guard_required on doc")


@through_both
def npm(server, cursor):
    """pg of npm: code and detail of the error; tokens beyond 2^53"""
    other = subprocess.Popen(["node", str(HERE / "guard_pg.js"), PACKAGES, str(server.port), server.name],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=die_with_parent)
    answers = Lines(other.stdout.fileno())

    def asked(*words):
        other.stdin.write(" ".join(map(str, words)).encode() + b"\n")
        other.stdin.flush()
        return answers.next()
    with other:
        largest = 2 ** 53 + 1
        for verb, token in (("write", 5), ("bound", 6), ("called", 7), ("write", largest),
                            ("bound", largest), ("called", largest)):
            expect(asked(verb, "x", token, token % 100), "done")
        for verb in "write", "bound", "called":
            expect(asked(verb, "x", largest - 1, 1), "SG001 highest=%d issuer=" % largest)
        other.stdin.close()
    expect(run(cursor, "select v from doc"), largest % 100)
    expect(seen(cursor, "x"), (largest, ""))


def main():
    cases = [psql, psycopg, required, npm]
    if not os.path.isdir(os.path.join(PACKAGES, "node_modules", "pg")) and not os.environ.get("CI"):
        print("# pg of npm is not installed: tools/npm-clients BUILD")
        cases.remove(npm)
    run_tests(cases)


main()
