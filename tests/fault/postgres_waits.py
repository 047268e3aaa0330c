# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What waiting costs a PostgreSQL: no snapshot that lasts, few connections; and in which order it ends."""
import os
import shutil
import subprocess

import psycopg2

from postgres_kit import OURS, count_in, lost, on_server, token_of, use, wait_for
from kit import expect, run_tests, spin
from postgres_server import PostgresServer, free_port, tool

WAITERS = 60 if "STILE_SOAK" in os.environ else 6
OLD = ("select count(*) " + OURS + " and backend_xmin is not null "
       "and clock_timestamp() - query_start > interval '2 s'")


def connect(server):
    connection = psycopg2.connect(host="127.0.0.1", port=server.port, user="postgres",
                                  dbname="postgres")
    connection.autocommit = True
    return connection, connection.cursor()


def copy_of(server):
    """A standby of it, which logs what it is asked."""
    server.sql("checkpoint")
    data = server.dir + "/copy"
    subprocess.run([*server.prefix, tool("pg_basebackup"), "-h", "127.0.0.1", "-p", str(server.port),
                    "-U", "postgres", "-D", data, "-R", "-c", "fast", "--no-sync"],
                   check=True, cwd="/")
    copy = PostgresServer.__new__(PostgresServer)
    os.mkdir(server.dir + "/of-copy")
    copy.__dict__.update(server.__dict__, data=data, dir=server.dir + "/of-copy", process=None,
                         args=server.args + ["-c", "log_statement=all"])
    if server.prefix:
        shutil.chown(copy.dir, "postgres", "postgres")
    copy.port = free_port()
    copy.restart()
    return copy


def is_vacuumed(server):
    """A statement that is just being answered, of a watch or a renewal, keeps a snapshot as well."""
    connection, cursor = connect(server)
    cursor.execute("vacuum (verbose) things")
    said = "\n".join(connection.notices)
    connection.close()
    return "tuples: 1000 removed" in said


def index_is_made_under_a_wait(t, server):
    server.sql("create table things (id int)")
    server.sql("insert into things select generate_series(1, 1000)")
    held = t.hold("x", "--ttl", "60s")
    waiting = wait_for(t)
    server.sql("create index concurrently things_id on things (id)")
    server.sql("delete from things")
    spin(lambda: is_vacuumed(server))
    t.release(held)
    waiting.line()
    expect(waiting.wait(), 0)


@on_server()
def waiters_keep_no_snapshot(t, server):
    """CREATE INDEX CONCURRENTLY and VACUUM do not wait for those that wait for a lock"""
    index_is_made_under_a_wait(t, server)


@on_server()
def bare_waiters_keep_no_snapshot(t, server):
    """The same without the schema"""
    server.sql("drop schema stile cascade")
    server.sql("create table things (id int)")
    held = t.hold("x", "--ttl", "60s")
    waiting = t.start("run", "x", "--", "echo", "in")
    spin(lambda: server.sql("select count(*) from pg_locks where not granted") == "1")
    server.sql("create index concurrently things_id on things (id)")
    t.release(held)
    expect(waiting.line(), "in")
    expect(waiting.wait(), 0)


@on_server(mode="row")
def row_waiters_keep_no_snapshot(t, server):
    """mode=row: no statement of a waiter lasts"""
    held = t.hold("x", "--ttl", "60s")
    waiting = wait_for(t)
    first = server.sql("select max(query_start) %s and wait_event_type = 'Lock'" % OURS)
    spin(lambda: first < server.sql("select max(query_start) %s and wait_event_type = 'Lock'"
                                    % OURS))
    expect(server.sql(OLD), "0")
    t.release(held)
    waiting.line()
    expect(waiting.wait(), 0)


@on_server("-c", "max_connections=%d" % max(40, WAITERS * 100 // 60))
def waiters_have_one_connection(t, server):
    """Each `stile run` that waits has one connection, and they are served in the order they came"""
    held = t.hold("x", "--ttl", "60s")
    waiting = []
    for _ in range(WAITERS):
        waiting.append(t.start("run", "--ttl", "60s", "x", "--", "sh", "-c", "echo $STILE_TOKEN"))
        spin(lambda: server.sql("select count(*) from stile.waiting") == str(len(waiting)))
    assert int(server.sql("select count(*) " + OURS)) <= WAITERS + 2
    expect(server.sql(OLD), "0")
    t.release(held)
    expect([count_in(one.line()) for one in waiting], list(range(2, WAITERS + 2)))
    expect([one.wait() for one in waiting], [0] * WAITERS)
    expect(server.sql("select count(*) from stile.waiting"), "0")


@on_server("-c", "max_connections=100")
def sixty_wait_at_once(t, server):
    """Sixty that began at once, on a server with a hundred connections: an application connects"""
    server.sql("create role app login")
    held = t.hold("x", "--ttl", "60s")
    waiting = [t.start("run", "--ttl", "60s", "x", "--", "true") for _ in range(60)]
    most = 0

    def are_parked():
        nonlocal most
        most = max(most, int(server.sql("select count(*) " + OURS)))
        return server.sql("select count(*) from stile.waiting") == "60"

    spin(are_parked)
    assert most <= 60 + 2, most
    apps = [psycopg2.connect(host="127.0.0.1", port=server.port, user="app", dbname="postgres")
            for _ in range(20)]
    for app in apps:
        app.close()
    t.release(held)
    expect([one.wait() for one in waiting], [0] * 60)


@on_server("-c", "log_statement=all", "-c", "log_line_prefix=<%p>")
def looks_at_the_pace_asked_for(t, server):
    """poll=: the pace of one that waits behind plain SQL"""
    connection, cursor = connect(server)
    waiting = []
    for poll in 0, 20:
        name = "n%d" % poll
        cursor.execute("select pg_advisory_lock(hashtextextended('%s', 0))" % name)
        use(t, server, server.url + "?poll=%d" % poll)
        waiting.append(t.start("run", name, "--", "true"))
        spin(lambda: server.sql("select count(*) from stile.waiting") == str(len(waiting)))
    slow, fast = server.sql("select backend from stile.waiting order by ticket").split()

    def looks(backend):
        return server.log.count("<%s>LOG:  execute" % backend)

    before = looks(slow), looks(fast)
    spin(lambda: looks(slow) >= before[0] + 4)
    assert looks(fast) - before[1] > 4 * (looks(slow) - before[0]), (before, looks(slow), looks(fast))
    connection.close()
    expect([one.wait() for one in waiting], [0, 0])


@on_server()
def places_end_with_their_processes(t, server):
    """A waiter that is killed leaves no place that others stand behind; newcomers do not pass by"""
    held = t.hold("x", "--ttl", "60s")
    first, second = (t.start("run", "x", "--", "sh", "-c", "echo $STILE_TOKEN") for _ in range(2))
    spin(lambda: server.sql("select count(*) from stile.waiting") == "2")
    first.process.kill()
    first.wait()
    spin(lambda: server.sql("select count(*) " + OURS) == "2")
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
    t.release(held)
    expect(count_in(second.line()), 2)
    expect(second.wait(), 0)
    expect(server.sql("select count(*) from stile.waiting"), "0")


@on_server()
def foreign_holder_gives_back(t, server):
    """Behind a holder that wakes nobody: plain SQL"""
    connection, cursor = connect(server)
    cursor.execute("select pg_advisory_lock(hashtextextended('x', 0))")
    waiting = t.start("run", "x", "--", "sh", "-c", "echo $STILE_TOKEN")
    spin(lambda: server.sql("select count(*) from stile.waiting") == "1")
    cursor.execute("select pg_advisory_unlock(hashtextextended('x', 0))")
    expect(count_in(waiting.line()), 1)
    expect(waiting.wait(), 0)
    connection.close()


@on_server()
def wait_times_out(t, server):
    """A wait that ends leaves nothing in the line, before it is parked and after"""
    held = t.hold("x", "--ttl", "60s")
    for wait in "200ms", "1500ms":
        expect(t.stile("run", "--wait", wait, "x", "--", "true").returncode, 75)
    expect(server.sql("select count(*) from stile.waiting"), "0")
    t.release(held)
    expect(server.sql("select count(*) from pg_locks where locktype = 'advisory'"), "0")


# ---- what may pass is waited out ----

@on_server()
def a_row_is_locked_by_another(t, server):
    """A transaction that has locked the name's row: a grant with a hold waits for it, as long as the caller waits"""
    expect(t.stile("run", "--hold-at-least", "1ms", "x", "--", "true").returncode, 0)
    connection, cursor = connect(server)
    cursor.execute("begin")
    cursor.execute("select from stile.lock where name = 'x' for update")
    waiting = t.start("run", "--ttl", "2s", "--hold-at-least", "1ms", "x", "--", "sh", "-c", "echo $STILE_TOKEN")
    spin(lambda: "lock timeout" in server.log)
    connection.close()
    assert int(waiting.line()) > 1
    expect(waiting.wait(), 0)


@on_server()
def a_verdict_is_repeated(t, server):
    """A job that is done while its row is locked: said again until it is answered"""
    expect(t.stile("jobs", "add", "q", input="one").returncode, 0)
    os.mkfifo(t.path("go"))
    worker = t.start("jobs", "work", "--once", "--lease", "60s", "q", "--", "sh", "-c",
                     "echo in; read line < %s" % t.path("go"))
    expect(worker.line(), "in")
    connection, cursor = connect(server)
    cursor.execute("begin")
    cursor.execute("select from stile.job for update")
    with open(t.path("go"), "w", encoding="ascii") as go:
        go.write("on\n")
    spin(lambda: "lock timeout" in server.log)
    connection.close()
    expect(worker.wait(), 0, worker.err.end())
    expect(server.sql("select count(*) from stile.job"), "0")


@on_server("-c", "wal_level=replica", "-c", "max_wal_senders=4", "-c", "hot_standby=on")
def a_standby_is_promoted(t, server):
    """The primary dies: a waiter goes on when its standby has been promoted"""
    copy = copy_of(server)
    try:
        use(t, server, "postgres://postgres@127.0.0.1:%d,127.0.0.1:%d/postgres"
            % (server.port, copy.port))
        held = t.hold("x", "--ttl", "60s")
        waiting = t.start("run", "x", "--", "echo", "in")
        spin(lambda: server.sql("select count(*) from stile.waiting") == "1")
        server.kill()
        lost(held)
        spin(lambda: "stile_answer" in copy.log)
        copy.sql("select pg_promote()")
        expect(waiting.line(), "in")
        expect(waiting.wait(), 0)
    finally:
        copy.kill()


run_tests([a_row_is_locked_by_another, a_verdict_is_repeated, a_standby_is_promoted,
           waiters_keep_no_snapshot, bare_waiters_keep_no_snapshot, row_waiters_keep_no_snapshot,
           waiters_have_one_connection, sixty_wait_at_once, looks_at_the_pace_asked_for,
           places_end_with_their_processes, foreign_holder_gives_back, wait_times_out])
