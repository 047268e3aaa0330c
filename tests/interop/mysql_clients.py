# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Other clients on the same server: mariadb by hand, and MySQLdb. Each excludes with us in both
directions."""
import json
import subprocess

import MySQLdb

from sql_others import exclude, expect, try_it, with_servers_of
from kit import run_tests
from mysql_server import MysqlServer


class Other:
    """A session of MySQLdb, as anybody's program has it."""

    def __init__(self, server):
        self.connection = MySQLdb.connect(host="127.0.0.1", port=server.port, user="root",
                                          passwd="", charset="utf8mb4", autocommit=True)

    def ask(self, text, *values):
        cursor = self.connection.cursor()
        cursor.execute(text, values or None)
        return cursor.fetchone()[0]

    def take(self, name, seconds=0):
        return self.ask("select get_lock(%s, %s)", name, seconds)

    def free(self, name):
        return self.ask("select release_lock(%s)", name)


with_server = with_servers_of(MysqlServer, Other)


@with_server
def plain_names(t, server, other):
    """GET_LOCK(name) with the very same name"""
    for name in "x", "order:17", "a b", "it's", "Capital", "\u00e9t\u00e9", "n" * 192, "50%":
        exclude(t, other, name)


@with_server
def names_stay_apart(t, server, other):
    """Names that GET_LOCK could not distinguish are locked under a hash"""
    long = "n" * 200
    expect(other.take("n" * 192), 1)
    for name in long, long + "m", "N" * 192:
        expect(try_it(t, name), 0)
    held = t.hold(long)
    expect(try_it(t, long + "m"), 0)
    expect(try_it(t, long), 75)
    (key,) = server.sql("select lock_name from stile_lock where name = repeat('n', 200)").split()
    assert key.startswith("nnn") and "#" in key and len(key) <= 64, key
    expect(other.take(key), 0)
    expect(try_it(t, key), 0)  # a name that looks like a hash is none
    t.release(held)


@with_server
def mariadb_by_hand(t, server, other):
    """The same from the mariadb client, whose end frees it"""
    held = t.hold("x")
    expect(server.sql("select get_lock('x', 0), is_free_lock('x')"), "0\t0")
    t.release(held)
    expect(server.sql("select is_free_lock('x'), get_lock('x', 10)"), "1\t1")
    expect(try_it(t, "x"), 0)


@with_server
def each_waits_for_the_other(t, server, other):
    """A waiter in GET_LOCK gets it when we release it, and we when they do"""
    watched = t.watch("x")
    expect(other.take("x"), 1)
    waiting = t.start("run", "x", "--", "sh", "-c", "echo in; read line; true",
                      stdin=subprocess.PIPE)
    t.until(watched, lambda change: len(change["waiters"]) == 1)
    expect(other.free("x"), 1)
    expect(waiting.line(), "in")
    expect(other.take("x", 0), 0)
    waiting.process.stdin.close()
    expect(other.take("x", 60), 1)
    expect(waiting.wait(), 0)
    other.free("x")


@with_server
def seen_and_broken(t, server, other):
    """A session that isn't ours is shown as a holder, and ended by break"""
    expect(other.take("x"), 1)
    (holder,) = t.show("x")["holders"]
    assert not holder.get("token"), holder
    expect(t.stile("break", "--yes", "x").returncode, 0)
    expect(try_it(t, "x"), 0)
    try:
        other.ask("select 1")
        raise AssertionError("its session lives")
    except MySQLdb.Error:
        pass


# What ShedLock's JdbcTemplateLockProvider says to MySQL with usingDbTime.
UTC = "utc_timestamp(3)"
SHED_TABLE = ("create table shedlock (name varchar(64) not null, lock_until timestamp(3) not null, "
              "locked_at timestamp(3) not null default current_timestamp(3), "
              "locked_by varchar(255) not null, primary key (name))")
SHED_INSERT = ("insert ignore into shedlock (name, lock_until, locked_at, locked_by) values ('x', "
               "timestampadd(microsecond, %d, " + UTC + "), " + UTC + ", 'jvm')")
SHED_TAKE = ("update shedlock set lock_until = timestampadd(microsecond, %d, " + UTC +
             "), locked_at = " + UTC + ", locked_by = 'jvm' where name = 'x' and lock_until <= " + UTC)
SHED_FREE = ("update shedlock set lock_until = if(timestampadd(microsecond, %d, locked_at) > " + UTC +
             ", timestampadd(microsecond, %d, locked_at), " + UTC +
             ") where name = 'x' and locked_by = 'jvm'")
MINUTES = 600_000_000


@with_server
def shedlock(t, server, other):
    """ShedLock's statements on ShedLock's table: lockAtMostFor, lockAtLeastFor, never a row deleted"""
    server.sql("set global time_zone = '+05:45'")
    server.sql(SHED_TABLE)
    other.connection.close()
    other.__init__(server)
    other.connection.select_db("tests")
    t.env["STILE_ENGINE"] += "?mode=table&table=shedlock&dialect=shedlock"

    def said(statement, micros):
        cursor = other.connection.cursor()
        cursor.execute(statement.replace("%d", str(micros)))
        return cursor.rowcount

    expect(said(SHED_INSERT, MINUTES), 1)
    expect(try_it(t, "x"), 75)
    (holder,) = t.show("x")["holders"]
    expect(holder["host"], "jvm")
    expect(said(SHED_FREE, MINUTES // 2), 1)
    expect(try_it(t, "x"), 75)  # kept for lockAtLeastFor
    expect(said(SHED_FREE, 0), 1)
    held = t.hold("x")
    expect(said(SHED_INSERT, MINUTES), 0)
    expect(said(SHED_TAKE, MINUTES), 0)
    expect(said(SHED_FREE, 0), 0)
    expect(try_it(t, "x"), 75)
    expect([name["name"] for name in json.loads(t.stile("ls", "--json").stdout)], ["x"])
    t.release(held)
    expect(said(SHED_TAKE, MINUTES), 1)
    expect(said(SHED_FREE, 0), 1)
    expect(t.stile("run", "--try", "--hold-at-least", "10m", "x", "--", "true").returncode, 0)
    expect(said(SHED_TAKE, MINUTES), 0)
    expect(t.stile("break", "--yes", "x").returncode, 0)
    expect(said(SHED_TAKE, 10_000), 1)
    expect(t.stile("run", "x", "--", "true").returncode, 0)  # it runs out
    expect(server.sql("select count(*) from shedlock"), "1")
    done = t.stile("run", "--try", "y" * 65, "--", "true")
    expect(done.returncode, 69)
    assert "too long" in done.stderr and "shorten the name" in done.stderr, done.stderr


run_tests([plain_names, names_stay_apart, mariadb_by_hand, each_waits_for_the_other,
           seen_and_broken, shedlock])
