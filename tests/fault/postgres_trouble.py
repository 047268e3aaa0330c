# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL that is full, whose transactions get in each other's way, or whose client's clock jumps;
and mode=row, whose locks are transactions."""
import os
import signal
import threading

import psycopg2

from postgres_kit import OURS, count_in, findings, lost, on_server, refused, token_of, use, wait_for
import sql_scenes
from sql_kit import client_clock_jumps
from kit import expect, run_tests, spin
from cutter import Rewriter
from postgres_server import PgBouncer

BLOCKED = "select count(*) " + OURS + " and wait_event_type = 'Lock'"

row_with_hostile_defaults = on_server(
    "-c", "lock_timeout=50ms", "-c", "statement_timeout=80ms", "-c", "idle_session_timeout=1s",
    "-c", "idle_in_transaction_session_timeout=1s",
    "-c", "default_transaction_isolation=serializable", "-c", "default_transaction_read_only=on",
    mode="row")(sql_scenes.hostile_defaults)


def other(server):
    """A session of anybody's, in a transaction."""
    connection = psycopg2.connect(host="127.0.0.1", port=server.port, user="postgres",
                                  dbname="postgres")
    return connection, connection.cursor()


def kill_both(t, held):
    for pid in held.warden(), held.pid:
        os.kill(t.guard(pid), signal.SIGKILL)


# ---- a full disk ----

@on_server(may_be_full=True)
def disk_is_full(t, server):
    """A full disk: a claim with a hold reports it and leaves nothing behind, others are granted, tokens grow"""
    held = t.hold("x", "--ttl", "60s")
    server.fill()
    connection, cursor = other(server)
    try:
        cursor.execute("insert into stile.lock (name, token, key, sub, shared, owner, host, pid, "
                       "command, since) select 'y' || n, 1, n, 1, false, '', '', 1, "
                       "repeat('c', 200), now() from generate_series(1, 1000) n")
        raise AssertionError("it does not get full")
    except psycopg2.errors.DiskFull:
        connection.close()
    done = t.stile("run", "--try", "--hold-at-least", "1ms", "z" * 500, "--", "true")
    expect(done.returncode, 69, done.stderr)
    assert "extend file" in done.stderr, done.stderr
    expect(server.sql("select count(*) from pg_locks where locktype = 'advisory'"), "1")
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
    assert token_of(t, "y") > 1
    expect(held.process.poll(), None)
    t.release(held)
    server.fill(False)
    expect(t.stile("run", "--try", "--hold-at-least", "1ms", "z" * 500, "--", "true").returncode, 0)
    assert token_of(t) > 1


# ---- transactions in each other's way ----

WITH_ROWS = "--hold-at-least", "1ms"  # other grants write none

@on_server()
def deadlock_victim(t, server):
    """A transaction that has the row of one lock wants another one that we hold: reported, and released"""
    expect(t.stile("run", *WITH_ROWS, "b", "--", "true").returncode, 0)
    connection, cursor = other(server)
    cursor.execute("select 1 from stile.lock where name = 'b' for update")
    both = t.start("run", "--ttl", "60s", *WITH_ROWS, "a", "b", "--", "true")
    spin(lambda: server.sql(BLOCKED) == "1")  # it has a, and counts b

    def want():
        cursor.execute("select pg_advisory_xact_lock(hashtextextended('a', 0))")
        connection.commit()

    wanting = threading.Thread(target=want)
    wanting.start()
    expect(both.wait(), 69)
    assert "deadlock" in both.err.end()
    wanting.join()
    connection.close()
    expect(server.sql("select count(*) from pg_locks where locktype = 'advisory'"), "0")
    assert token_of(t, "b") > 1


@on_server("-c", "default_transaction_isolation=serializable")
def serialization_failures(t, server):
    """A default of serializable that we can't change, behind a pooler: asked again, and all are served"""
    with PgBouncer(server) as pooler:
        use(t, server, pooler.url + "?mode=table")
        crowd = [t.start("run", "x", "--", "sh", "-c", "echo $STILE_TOKEN") for _ in range(8)]
        tokens = sorted(int(one.line()) for one in crowd)
        expect([one.wait() for one in crowd], [0] * 8)
        expect(len(set(tokens)), 8)


@on_server()
def killed_in_a_statement(t, server):
    """A holder that is killed while the server runs a statement for it: free within a second"""
    expect(t.stile("run", *WITH_ROWS, "b", "--", "true").returncode, 0)
    connection, cursor = other(server)
    cursor.execute("select 1 from stile.lock where name = 'b' for update")
    both = t.start("run", "--ttl", "60s", *WITH_ROWS, "a", "b", "--", "true")
    spin(lambda: server.sql(BLOCKED) == "1")
    waiting = wait_for(t, "a")
    kill_both(t, both)
    assert int(waiting.line()) > 1  # the row is locked all the while
    expect(waiting.wait(), 0)
    connection.close()


# ---- time ----

@on_server()
def client_clock_is_changed(t, server):
    """A clock that jumps on the client: neither a loss nor a second holder"""
    client_clock_jumps(t)


# ---- mode=row ----

@on_server(mode="row")
def row_backend_is_terminated(t, server):
    """mode=row: the holder's transaction is ended: it is notified, the next one has a larger token"""
    held = t.hold("x", "--ttl", "60s")
    waiting = wait_for(t)
    server.sql("select pg_terminate_backend(pid) %s and state = 'idle in transaction'" % OURS)
    lost(held)
    expect(count_in(waiting.line()), 2)
    expect(waiting.wait(), 0)


@on_server(durable=True, mode="row")
def row_server_crashes(t, server):
    """mode=row: a crash right after a grant: the holder is notified, and the next token is larger"""
    before = token_of(t)
    held = t.hold("x", "--ttl", "60s")
    server.kill()
    lost(held)
    server.restart()
    assert token_of(t) > before + 1


@on_server(mode="row")
def row_holder_is_killed(t, server):
    """mode=row: a holder that is killed is free at once, and cleanup takes no row that is locked"""
    held = t.hold("x", "--ttl", "60s")
    server.sql("select stile.cleanup('0 seconds')")
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
    waiting = wait_for(t)
    kill_both(t, held)
    assert int(waiting.line()) > 1
    expect(waiting.wait(), 0)
    server.sql("select stile.cleanup('0 seconds')")
    expect(server.sql("select count(*) from stile.row_lock"), "0")
    assert token_of(t) > 2


@on_server(mode="row")
def row_without_room(t, server):
    """mode=row: more than sessions= is refused, with what to say"""
    t.env["STILE_ENGINE"] += "&sessions=2"
    done = t.stile("run", "a", "b", "--", "true")
    expect(done.returncode, 69, done.stderr)
    assert "sessions=" in done.stderr, done.stderr
    expect(t.stile("run", "a", "--", "true").returncode, 0)
    expect(server.sql("select count(*) from pg_locks where locktype = 'advisory'"), "0")


@on_server(mode="row")
def row_table_is_locked(t, server):
    """mode=row: a table that is locked for longer than a statement waits: a waiter goes on afterwards"""
    connection, cursor = other(server)
    cursor.execute("lock table stile.row_lock in access exclusive mode")
    waiting = t.start("run", "--ttl", "2s", "x", "--", "sh", "-c", "echo $STILE_TOKEN")
    spin(lambda: server.log.count("due to lock timeout") > 4)
    connection.close()
    expect(count_in(waiting.line()), 1)
    expect(waiting.wait(), 0)


@on_server(mode="row")
def row_without_a_transaction(t, server):
    """mode=row: a transaction that the server does not begin is an error, never a grant"""
    with Rewriter(server.port, b"begin\0", b"bogus\0") as way:
        use(t, server, "postgres://postgres@127.0.0.1:%d/postgres?mode=row" % way.port)
        refused(t, "bogus", verb=("run", "--try", "x", "--", "true"))
        refused(t, "bogus", verb=("run", "x", "--", "true"))


@on_server("-c", "log_statement=all", "-c", "log_line_prefix=%p ", mode="row")
def row_listens_before_it_locks(t, server):
    """mode=row: a session listens before its transaction, whose end would undo that"""
    expect(count_in(token_of(t)), 1)
    logged = [line.split(" ", 1) for line in server.log.splitlines() if "execute" in line]
    locking = {pid for pid, text in logged if text.endswith(": begin")}
    assert locking, server.log
    for pid in locking:
        texts = [text.rpartition(": ")[2] for other_pid, text in logged if other_pid == pid]
        assert texts.index("listen stile") < texts.index("begin"), texts


@on_server(mode="row")
def row_may_not_be_made(t, server):
    """mode=row: a role without the right to make a row takes those that are there; others are refused"""
    expect(count_in(token_of(t)), 1)
    server.sql("create role low login; grant usage on schema stile to low; "
               "grant select, insert, update, delete on all tables in schema stile to low; "
               "grant usage on all sequences in schema stile to low; "
               "revoke insert on stile.row_lock from low")
    use(t, server, server.url.replace("postgres@", "low@") + "?mode=row")
    expect(count_in(token_of(t)), 2)
    refused(t, "row_lock", verb=("run", "y", "--", "true"))


@on_server("-c", "max_connections=30", mode="row")
def row_and_the_doctor(t, server):
    """mode=row: without the schema refused, with what to run; the doctor knows what it needs"""
    expect(findings(t)["connections"], "fine")
    expect(findings(t, t.env["STILE_ENGINE"] + "&sessions=40")["connections"], "warning")
    server.sql("drop schema stile cascade")
    refused(t, "mode=row", "stile setup")
    expect(findings(t)["schema"], "danger")
    expect(findings(t, server.url)["schema"], "warning")


run_tests([disk_is_full, deadlock_victim, serialization_failures, killed_in_a_statement,
           client_clock_is_changed, row_with_hostile_defaults, row_backend_is_terminated,
           row_server_crashes, row_holder_is_killed, row_without_room, row_table_is_locked, row_without_a_transaction,
           row_listens_before_it_locks, row_may_not_be_made, row_and_the_doctor])
