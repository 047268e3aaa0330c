# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Why a lock was lost, and how long a claim has waited, in a database: sql_losses.py postgres|mysql."""
import json
import socket
import sys

import sql_kit
from keeper import Keeper
from kit import expect, run_tests, spin

POSTGRES = sys.argv.pop(1) == "postgres"
if POSTGRES:
    from postgres_server import PgBouncer, PostgresServer as Server
else:
    from mysql_server import MysqlServer as Server

MODES = "advisory" if POSTGRES else "getlock", "row", "table"
on_server = sql_kit.on_servers_of(Server)


def url_of(server, mode):
    return server.url + ("" if mode == MODES[0] else "?mode=" + mode)


def holder(url, ttl_ms=60000, renew_ms=0):
    keeper = Keeper(url)
    keeper.ask("x", 0, ttl_ms, renew_ms)
    expect(keeper.answer(), "OK")
    return keeper


def reason(keeper):
    spin(lambda: not keeper.holds("x"))
    why = keeper.order("!x")
    keeper.close()
    return why


# ---- why it was lost ----

@on_server()
def broken(t, server):
    """stile break: its host and pid, where the database can tell the holder"""
    for mode in MODES:
        url = url_of(server, mode)
        # Only a renewal finds out on mysql. On postgres one would race with the notification.
        keeper = holder(url, renew_ms=200 if mode == "table" and not POSTGRES else 0)
        breaker = t.start("break", "-e", url, "-y", "x")
        expect(breaker.wait(), 0)
        why = reason(keeper)
        if POSTGRES:
            expect(why, "taken by stile break (%s pid %d)" % (socket.gethostname(), breaker.process.pid))
        assert "stile break" in why, why


def broken_behind_a_pooler(t, server):
    """pgbouncer tells the holder nothing: its renewal finds the row gone"""
    with PgBouncer(server) as pooler:
        url = "postgres://postgres@127.0.0.1:%d/postgres?mode=table" % pooler.port
        keeper = holder(url, renew_ms=200)
        expect(t.start("break", "-e", url, "-y", "x").wait(), 0)
        expect(reason(keeper), "its row is gone: taken by stile break, or deleted by another client")


def lies_about_a_break(_t, server):
    """Any role may notify: what it says of itself is cut and cleaned"""
    for said in "", "%s 1" % ("h" * 300), "\x1b[31mred 7", "host", "host 99999999999999999999999":
        keeper = holder(url_of(server, "table"))
        channel = server.sql("select channel from stile.claim")
        owner = server.sql("select owner from stile.claim")
        server.sql("select pg_notify('%s', E'x %s %s'), pg_notify('%s', 'x'), pg_notify('%s', 'x ')"
                   % (channel, owner, said.replace("\x1b", "\\x1b"), channel, channel))
        why = reason(keeper)
        assert why.startswith("taken by stile break"), why
        assert why.isprintable() and len(why) < 120, why


@on_server()
def ended_by_the_server(_t, server):
    """A session that is ended in the server: by which means, as the server says"""
    for mode in MODES[:2]:
        keeper = holder(url_of(server, mode))
        if POSTGRES:
            server.sql("select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() "
                       "and application_name like 'stile%'")
        else:
            for line in server.sql("select id from information_schema.processlist where "
                                   "id <> connection_id() and user = 'root'").split():
                server.sql("kill " + line)
        why = reason(keeper)
        assert "administrator" in why and "stile break" in why, why


# ---- how long it has waited ----

def age_of_waiter(t, url, name):
    waiters = json.loads(t.stile("show", "--json", "-e", url, name).stdout)["waiters"]
    return waiters[0]["age_ms"] if waiters else 0  # between two waits inside the server


@on_server()
def age_of_waiters(t, server):
    """A waiter's age is that of its wait, however often it asks anew inside the server"""
    for mode in MODES:
        url = url_of(server, mode)
        held = t.hold("x", "-e", url, "--ttl", "60s")
        waiting = t.start("run", "-e", url, "x", "--", "true")
        spin(lambda: json.loads(t.stile("show", "--json", "-e", url, "x").stdout)["waiters"])
        spin(lambda: age_of_waiter(t, url, "x") > 2000)
        t.release(held)
        expect(waiting.wait(), 0)


@on_server()
def kept_names(t, server):
    """A kept name shows the holder that left it, and the age of those it keeps waiting"""
    for mode in MODES:
        url = url_of(server, mode)
        left = t.start("run", "-e", url, "--hold-at-least", "60s", "x", "--", "true")
        expect(left.wait(), 0)
        waiting = t.start("run", "-e", url, "x", "--", "true")
        spin(lambda: json.loads(t.stile("show", "--json", "-e", url, "x").stdout)["waiters"])
        shown = json.loads(t.stile("show", "--json", "-e", url, "x").stdout)
        (ghost,) = shown["holders"]
        expect((ghost["ghost"], ghost["host"], ghost["pid"]),
               (True, socket.gethostname(), left.process.pid))
        assert 0 < ghost["expires_ms"] <= 60000 and ghost["age_ms"] > 0, ghost
        if POSTGRES or mode == "table":  # elsewhere it is idle, and the server knows only its address
            expect((shown["waiters"][0]["host"], shown["waiters"][0]["pid"]),
                   (socket.gethostname(), waiting.process.pid))
            spin(lambda: age_of_waiter(t, url, "x") > 1000)
        waiting.process.terminate()
        waiting.wait()


tests = [broken, ended_by_the_server, age_of_waiters, kept_names]
if POSTGRES:
    tests += [on_server(mode="table")(broken_behind_a_pooler), on_server(mode="table")(lies_about_a_break)]
run_tests(tests)
