# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The guard of MySQL for tests: one server for all tests of a file, a database for each test, with
guard.sql and nothing else of stile in it."""
import itertools
import pathlib
import subprocess
import sys
import threading

import MySQLdb

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(TESTS / "cli"), str(TESTS / "servers")]
from kit import expect, run_tests, spin  # noqa: E402,F401
from mysql_server import MysqlServer, tool  # noqa: E402,F401

GUARD = (TESTS.parent / "src" / "engines" / "mysql" / "guard.sql").read_text(encoding="ascii")
STALE, FOREIGN, UNGUARDED, MISUSE, DEADLOCK, WAITED = 31001, 31002, 31003, 31004, 1213, 1205
LEVELS = "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"


class Session:
    """One connection, as anybody's program has it, with autocommit unless a transaction is open."""

    def __init__(self, server, database="tests", user="root", level=None):
        self.connection = MySQLdb.connect(host="127.0.0.1", port=server.port, user=user, passwd="",
                                          db=database, charset="utf8mb4", autocommit=True)
        if level:
            self.run("SET SESSION TRANSACTION ISOLATION LEVEL " + level)

    def run(self, text, *values):
        with self.connection.cursor() as cursor:
            cursor.execute(text, values or None)
            return cursor.fetchall()

    def ask(self, text, *values):
        return self.run(text, *values)[0][0]

    def guard(self, resource, token, issuer="", how="stile_guard"):
        self.run("CALL %s(%%s, %%s, %%s)" % how, resource, token, issuer)

    def begin(self, *guard, **how):
        self.run("START TRANSACTION")
        if guard:
            self.guard(*guard, **how)

    def highest(self, resource):
        """Its token and issuer, as committed."""
        return self.run("SELECT token, CONVERT(issuer USING utf8mb4) FROM stile_guard WHERE resource = %s",
                        resource)[0]


def refused(code, call, *args, **how):
    """The message of the error."""
    try:
        call(*args, **how)
    except MySQLdb.Error as error:
        expect(error.args[0], code, error.args[1])
        return error.args[1]
    raise AssertionError("passed: %r" % (args,))


class Later:
    """A call in a thread of its own, which is expected to wait for a lock."""

    def __init__(self, server, call, *args, **how):
        self.error = None
        self.server = server
        self.thread = threading.Thread(target=self._run, args=(call, args, how), daemon=True)
        self.thread.start()

    def _run(self, call, args, how):
        try:
            call(*args, **how)
        except MySQLdb.Error as error:
            self.error = error.args[0]

    def waits(self, in_all=1):
        """The server says that so many wait for a row."""
        observer = Session(self.server)
        spin(lambda: int(observer.run("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'")[0][1])
             == in_all)
        assert self.thread.is_alive()
        return self

    def result(self):
        """None, or the number of the error."""
        self.thread.join()
        return self.error


class World:
    """A database of its own on the server, with the guard in it."""
    numbers = itertools.count()

    def __init__(self, server, script=GUARD):
        self.server = server
        self.database = "tests%d" % next(World.numbers)
        server.sql("CREATE DATABASE " + self.database, database="")
        done = self.shell(script)
        expect(done.returncode, 0, done.stderr)

    def shell(self, text):
        """What `mariadb` makes of this."""
        return subprocess.run([tool("mariadb"), *self.server.place, "-N", self.database], input=text,
                              text=True, capture_output=True, check=False)

    def session(self, **how):
        return Session(self.server, self.database, **how)

    def later(self, call, *args, **how):
        return Later(self.server, call, *args, **how)


def with_data(world):
    """Makes a table with one row. Returns what reads the row."""
    session = world.session()
    session.run("CREATE TABLE data (id INT PRIMARY KEY, text VARCHAR(20))")
    session.run("INSERT INTO data VALUES (1, 'before')")
    return lambda: session.ask("SELECT text FROM data WHERE id = 1")


def in_worlds(server, cases, world=World):
    """Gives each case a world on the server instead of a scene."""
    def one_of(case):
        def one(_):
            case(world(server))
        one.__name__, one.__doc__ = case.__name__, case.__doc__
        return one
    return [one_of(case) for case in cases]
