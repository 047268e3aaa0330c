# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The guard of PostgreSQL, for tests: databases that `stile setup` has prepared, and sessions whose
statements may have to wait for one another."""
import atexit
import collections
import functools
import os
import pathlib
import select
import signal
import sys

import psycopg2
import psycopg2.extensions

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(TESTS / "cli"), str(TESTS / "fault"), str(TESTS / "servers")]
from kit import PATIENCE, Lines, children, expect, kill_and_await, run_tests  # noqa: E402,F401
from postgres_kit import on_server  # noqa: E402,F401
from postgres_server import PgBouncer, PostgresServer, die_with_parent, tool  # noqa: E402,F401
from sql_kit import use  # noqa: E402,F401

SCRIPT = TESTS.parent / "src" / "engines" / "postgres" / "guard.sql"
STALE, FOREIGN, UNGUARDED, MISUSE = "SG001", "SG002", "SG003", "SG004"
SERIALIZATION = "40001"


# One of a server that all tests of a file share.
Database = collections.namedtuple("Database", "port name")


@functools.lru_cache(maxsize=None)
def shared_server():
    server = PostgresServer("-c", "deadlock_timeout=%ds" % PATIENCE)
    atexit.register(server.stop)
    return server


def on_database(case):
    """The decorator of tests on a database of their own."""
    def with_database(t):
        server, name = shared_server(), case.__name__
        if not server.sql("select 1 from pg_namespace where nspname = 'stile'"):
            use(t, server)
            done = t.stile("setup")
            expect(done.returncode, 0, done.stderr)
        server.sql("create database %s template postgres" % name)
        case(t, Database(server.port, name))
    with_database.__name__, with_database.__doc__ = case.__name__, case.__doc__
    return with_database


def address(server, user="postgres"):
    return {"host": "127.0.0.1", "port": server.port, "user": user,
            "dbname": server.name if isinstance(server, Database) else "postgres"}


def connect(server, user="postgres"):
    connection = psycopg2.connect(**address(server, user))
    connection.autocommit = True
    return connection


def run(cursor, text, *values):
    """The first column of the first row, or None; of an error its SQLSTATE."""
    try:
        cursor.execute(text, values or None)
        return cursor.fetchone()[0] if cursor.description else None
    except psycopg2.Error as error:
        return error.pgcode


def refusal(cursor, text, *values):
    """What the server says of an error."""
    try:
        cursor.execute(text, values or None)
    except psycopg2.Error as error:
        return error
    raise AssertionError("passed: " + text)


def passes(cursor, resource, token, *more):
    """None, or the SQLSTATE of the refusal."""
    return run(cursor, "select stile.guard(%s)" % ", ".join(["%s"] * (2 + len(more))), resource,
               token, *more) or None


def fences(cursor, resource, token, issuer=""):
    """The same of stile.fence(): None, or the SQLSTATE of the refusal."""
    return run(cursor, "call stile.fence(%s, %s, %s)", resource, token, issuer)


def seen(cursor, resource):
    """The highest token and its issuer."""
    cursor.execute("select token, issuer from stile.guard_show(%s)", (resource,))
    return cursor.fetchone()


def kill_all(server):
    """kill -9 of all its processes. The postmaster is stopped first: it starts no others, and a process
    that ends by itself meanwhile keeps its pid. They must all be gone, or their shared memory keeps the
    next postmaster from starting."""
    server.signal(signal.SIGSTOP)
    pids = children(server.process.pid)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for pid in pids:
        kill_and_await(pid)
    server.kill(signal.SIGKILL)


class Session:
    """One whose statements are sent without waiting for their answers. `look` is a cursor of another
    one, with which it is seen whether a statement waits for a lock."""

    def __init__(self, server, look):
        self.connection = psycopg2.connect(**address(server), async_=1)
        self.look = look
        self._until_ready()
        self.cursor = self.connection.cursor()
        self.pid = self.connection.info.backend_pid

    def _ready(self, patience_s):
        state = self.connection.poll()
        if state == psycopg2.extensions.POLL_OK:
            return True
        wanted = [self.connection] if state == psycopg2.extensions.POLL_READ else []
        writing = [] if wanted else [self.connection]
        select.select(wanted, writing, [], patience_s)
        return self.connection.poll() == psycopg2.extensions.POLL_OK

    def _until_ready(self):
        for _ in range(int(PATIENCE)):
            if self._ready(1):
                return
        raise AssertionError("no answer")

    def waits(self):
        self.look.execute("select wait_event_type = 'Lock' from pg_stat_activity where pid = %s",
                          (self.pid,))
        return self.look.fetchone()[0]

    def send(self, text):
        """True: it is answered. False: it waits for a lock."""
        self.cursor.execute(text)
        while True:
            try:
                if self._ready(0.001):
                    return True
            except psycopg2.Error:
                self.connection.poll()
                raise
            if self.waits():
                return False

    def answered(self):
        return self._ready(0.001)

    def answer(self):
        self._until_ready()

    def value(self):
        return self.cursor.fetchone()[0]

    def close(self):
        self.connection.close()
