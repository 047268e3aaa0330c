# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""stile.once() for tests, on databases that `stile setup` has prepared."""
import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(TESTS / "guard")]
from postgres_guard_kit import (Database, PgBouncer, PostgresServer, Session, address,  # noqa: E402,F401
                                connect, expect, kill_all, on_database, refusal, run, run_tests,
                                shared_server)

SCRIPT = TESTS.parent / "src" / "engines" / "postgres" / "once.sql"
MISUSE, OTHER, UNFINISHED, SERIALIZATION = "SG004", "SG005", "SG006", "40001"
PAYMENTS = "create table payment (id serial primary key, key text, amount int)"


def once(cursor, key, fingerprint=None, scope="", keep="24 hours"):
    """run and result."""
    cursor.execute("select run, result from stile.once(%s, %s, %s, %s)", (key, fingerprint, scope, keep))
    return cursor.fetchone()


def complete(cursor, key, result, scope="", **how):
    """A whole transaction of the first caller."""
    cursor.execute("begin")
    expect(once(cursor, key, scope=scope, **how), (True, None))
    cursor.execute("select stile.once_done(%s, %s, %s)", (key, result, scope))
    cursor.execute("commit")
