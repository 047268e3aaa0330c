# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Other clients on the same database: psql by hand, psycopg2, our SQL functions in a transaction, and
the keys of other libraries. Each pair excludes in both directions."""
import hashlib
import zlib

import psycopg2

from sql_others import exclude, expect, try_it, with_servers_of
from kit import run_tests
from postgres_server import PostgresServer

HASHED = "hashtextextended('%s', 0)"


def signed(number, bits):
    return number - (1 << bits) if number >> (bits - 1) else number


def madelson(name):
    """Short names in ASCII: 7 bits a character, a zero, ones up to 64 bits, as two integers."""
    bits = "".join(format(ord(c), "07b") for c in name) + "0"
    both = int(bits.ljust(64, "1"), 2)
    return "%d, %d" % (signed(both >> 32, 32), signed(both & 0xffffffff, 32))


def pals(name):
    return signed(int.from_bytes(hashlib.sha1(name.encode()).digest()[:8], "little"), 64)


class Other:
    """A session of psycopg2, as anybody's program has it."""

    def __init__(self, server):
        self.connection = psycopg2.connect(host="127.0.0.1", port=server.port, user="postgres",
                                           dbname="postgres")
        self.connection.autocommit = True

    def ask(self, text):
        with self.connection.cursor() as cursor:
            cursor.execute(text)
            return cursor.fetchone()[0]

    def take(self, key):
        return self.ask("select pg_try_advisory_lock(%s)" % key)

    def free(self, key):
        return self.ask("select pg_advisory_unlock(%s)" % key)


with_server = with_servers_of(PostgresServer, Other)


@with_server
def plain_names(t, server, other):
    """pg_advisory_lock(hashtextextended(name, 0))"""
    for name in "x", "order:17", "\u00e9t\u00e9", "a b", "it's":
        exclude(t, other, name, HASHED % name.replace("'", "''"))


@with_server
def psql_by_hand(t, server, other):
    """The same from psql, which waits for us and we for it"""
    held = t.hold("x")
    expect(server.sql("select pg_try_advisory_lock(hashtextextended('x', 0))"), "f")
    t.release(held)
    expect(server.sql("select pg_try_advisory_lock(hashtextextended('x', 0))"), "t")
    expect(try_it(t, "x"), 0)  # psql has ended


@with_server
def numbers(t, server, other):
    """#12345 and #1,42 are the integers themselves, in spaces of their own"""
    for name, key in ("#12345", "12345"), ("#-7", "-7"), ("#1,42", "1, 42"), ("#-1,-2", "-1, -2"):
        exclude(t, other, name, key)
    held = t.hold("#42")
    expect(try_it(t, "#0,42"), 0)
    t.release(held)


@with_server
def dialects(t, server, other):
    """The keys of with_advisory_lock, django-pglocks, pals and madelson"""
    url, name = t.env["STILE_ENGINE"], "nightly report"
    crc = zlib.crc32(name.encode())
    for dialect, key in (("with_advisory_lock", "%d, 0" % (crc & 0x7fffffff)),
                         ("django-pglocks", "%d" % signed(crc, 32)),
                         ("pals", "%d" % pals(name)), ("madelson", "%d" % pals(name)),
                         ("sql", HASHED % name)):
        t.env["STILE_ENGINE"] = url + "?dialect=" + dialect
        exclude(t, other, name, key)
        expect(t.show(name)["holders"], [])
    t.env["STILE_ENGINE"] = url + "?dialect=madelson"
    exclude(t, other, "nightly", madelson("nightly"))


@with_server
def they_wait_for_us(t, server, other):
    """A waiter in pg_advisory_lock() gets it when we release it, and we when they do"""
    held = t.hold("x")
    watched = t.watch("x")
    with other.connection.cursor() as cursor:
        waiting = t.start("run", "x", "--", "echo", "in")
        t.until(watched, lambda change: len(change["waiters"]) == 1)
        t.release(held)
        expect(waiting.line(), "in")
        cursor.execute("select pg_advisory_lock(%s)" % HASHED % "x")
        expect(waiting.wait(), 0)
        waiting = t.start("run", "x", "--", "echo", "in")
        t.until(watched, lambda change: len(change["waiters"]) == 1)
        cursor.execute("select pg_advisory_unlock(%s)" % HASHED % "x")
        expect(waiting.line(), "in")


@with_server
def in_a_transaction(t, server, other):
    """stile.lock, stile.try_lock and stile.lock_shared end with the transaction"""
    other.connection.autocommit = False
    for function in "lock", "try_lock", "lock_shared":
        other.ask("select stile.%s('x')" % function)
        expect(try_it(t, "x"), 75, function)
        expect(t.stile("run", "--try", "--shared", "x", "--", "true").returncode,
               0 if function == "lock_shared" else 75)
        other.connection.rollback()
        expect(try_it(t, "x"), 0, function)
    held = t.hold("x", "--shared")
    expect(other.ask("select stile.try_lock('x')"), False)
    other.ask("select stile.lock_shared('x')")
    other.connection.commit()
    t.release(held)


@with_server
def readers(t, server, other):
    """Our readers and theirs read together"""
    held = t.hold("x", "--shared")
    expect(other.ask("select pg_try_advisory_lock_shared(%s)" % HASHED % "x"), True)
    expect(other.take(HASHED % "x"), False)
    expect(try_it(t, "x"), 75)
    t.release(held)
    expect(try_it(t, "x"), 75)
    expect(other.ask("select pg_advisory_unlock_shared(%s)" % HASHED % "x"), True)
    expect(try_it(t, "x"), 0)


@with_server
def seen_and_broken(t, server, other):
    """A session that isn't ours is shown as a holder, and ended by break"""
    expect(other.take(HASHED % "x"), True)
    (holder,) = t.show("x")["holders"]
    assert not holder.get("token"), holder
    expect(t.stile("break", "--yes", "x").returncode, 0)
    expect(try_it(t, "x"), 0)
    try:
        other.ask("select 1")
        raise AssertionError("its session lives")
    except psycopg2.Error:
        pass


@with_server
def rows(t, server, other):
    """mode=row: SELECT ... FOR UPDATE and FOR SHARE of our row by anybody"""
    t.env["STILE_ENGINE"] += "?mode=row"
    lock = "select 1 from stile.row_lock where name = 'x' for %s nowait"
    other.connection.autocommit = False
    held = t.hold("x")
    for how in "update", "share":
        try:
            other.ask(lock % how)
            raise AssertionError("both have it")
        except psycopg2.errors.LockNotAvailable:
            other.connection.rollback()
    t.release(held)
    expect(other.ask(lock % "update"), 1)
    expect(try_it(t, "x"), 75)
    waiting = t.start("run", "x", "--", "echo", "in")
    t.until(t.watch("x"), lambda change: len(change["waiters"]) == 1)
    other.connection.commit()
    expect(waiting.line(), "in")
    expect(waiting.wait(), 0)
    held = t.hold("x", "--shared")
    expect(other.ask(lock % "share"), 1)
    expect(t.stile("run", "--try", "--shared", "x", "--", "true").returncode, 0)
    t.release(held)
    expect(try_it(t, "x"), 75)
    other.connection.rollback()
    expect(try_it(t, "x"), 0)


# What ShedLock's JdbcTemplateLockProvider says to PostgreSQL with usingDbTime.
UTC = "timezone('utc', current_timestamp)"
SHED_TABLE = ("create table shedlock (name varchar(64) not null, lock_until timestamp not null, "
              "locked_at timestamp not null, locked_by varchar(255) not null, primary key (name))")
SHED_TAKE = ("insert into shedlock (name, lock_until, locked_at, locked_by) values ('x', " + UTC +
             " + cast('%s' as interval), " + UTC + ", 'jvm') on conflict (name) do update set "
             "lock_until = " + UTC + " + cast('%s' as interval), locked_at = " + UTC +
             ", locked_by = 'jvm' where shedlock.name = 'x' and shedlock.lock_until <= " + UTC)
SHED_FREE = ("update shedlock set lock_until = case when locked_at + cast('%s' as interval) > " + UTC +
             " then locked_at + cast('%s' as interval) else " + UTC +
             " end where name = 'x' and locked_by = 'jvm'")


@with_server
def shedlock(t, server, other):
    """ShedLock's statements on ShedLock's table: lockAtMostFor, lockAtLeastFor, never a row deleted"""
    server.sql(SHED_TABLE)
    t.env["STILE_ENGINE"] += "?mode=table&table=shedlock&dialect=shedlock"

    def said(statement, time):
        with other.connection.cursor() as cursor:
            cursor.execute(statement.replace("%s", time))
            return cursor.rowcount

    held = t.hold("x")
    expect(said(SHED_TAKE, "10 minutes"), 0)
    expect(said(SHED_FREE, "0"), 0)
    expect(try_it(t, "x"), 75)
    t.release(held)
    expect(said(SHED_TAKE, "10 minutes"), 1)
    expect(try_it(t, "x"), 75)
    (holder,) = t.show("x")["holders"]
    expect(holder["host"], "jvm")
    expect(said(SHED_FREE, "10 minutes"), 1)
    expect(try_it(t, "x"), 75)  # kept for lockAtLeastFor
    expect(said(SHED_FREE, "0"), 1)
    expect(t.stile("run", "--try", "--hold-at-least", "10m", "x", "--", "true").returncode, 0)
    expect(said(SHED_TAKE, "10 minutes"), 0)
    expect(t.stile("break", "--yes", "x").returncode, 0)
    expect(said(SHED_TAKE, "10 milliseconds"), 1)
    expect(t.stile("run", "x", "--", "true").returncode, 0)  # it runs out
    expect(server.sql("select count(*) from shedlock"), "1")
    done = t.stile("run", "--try", "y" * 65, "--", "true")
    expect(done.returncode, 69)
    assert "too long" in done.stderr and "shorten the name" in done.stderr, done.stderr


run_tests([plain_names, psql_by_hand, numbers, dialects, they_wait_for_us, in_a_transaction,
           readers, seen_and_broken, rows, shedlock])
