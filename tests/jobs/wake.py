# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Which workers of a PostgreSQL queue are woken by what comes into it: some where some wait, none and
without a word where nobody does, and never too few."""
import os
import pathlib
import select
import signal
import subprocess
import sys
import time

import psycopg2
import psycopg2.extensions as pg

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(TESTS / "cli"), str(TESTS / "servers")]
from kit import expect, run_tests, spin  # noqa: E402
from postgres_server import PostgresServer  # noqa: E402

SERVER = None
ADDS = 1000 if os.environ.get("STILE_SOAK") else 200
LOOK_S = 5  # a worker that is not woken looks by itself, after this long at the earliest


def connect(user="postgres", level=pg.ISOLATION_LEVEL_AUTOCOMMIT):
    connection = psycopg2.connect(host="127.0.0.1", port=SERVER.port, user=user, dbname="postgres")
    connection.set_isolation_level(level)
    return connection, connection.cursor()


def add(cursor, queue):
    cursor.execute("select stile.job_add(%s, 'x')", (queue,))


def heard(connection, cursor):
    """The channels with notifications since the last call."""
    cursor.execute("select 1")
    connection.poll()
    channels = [note.channel for note in connection.notifies]
    connection.notifies.clear()
    return channels


def count(what, queue):
    return int(SERVER.sql("select count(*) from stile.%s where queue = '%s'" % (what, queue)))


def work(t, queue, n):
    """So many workers, which wait by now."""
    t.env.update(STILE_ENGINE=SERVER.url, STILE_MODULES=os.environ["STILE_MODULES"])
    workers = [t.start("jobs", "work", queue, "--", "true") for _ in range(n)]
    spin(lambda: count("job_idle", queue + "' and settled and '' = '") == n)
    return workers


def is_done_in_time(queue):
    begun = time.monotonic()
    spin(lambda: count("job", queue) == 0)
    return time.monotonic() - begun < LOOK_S


def end(workers):
    for worker in workers:
        worker.process.send_signal(signal.SIGTERM)
    for worker in workers:
        worker.wait()


# ---- nobody waits ----

def nobody_waits(t):
    """Nothing is notified: a transaction that adds can be prepared"""
    listener, listening = connect()
    listening.execute("listen stile_job")
    _, cursor = connect()
    cursor.execute("begin")
    add(cursor, "quiet")
    cursor.execute("prepare transaction 'added'")
    cursor.execute("commit prepared 'added'")
    expect(heard(listener, listening), [])
    expect(count("job", "quiet"), 1)
    workers = work(t, "gone", 2)
    end(workers)
    spin(lambda: SERVER.sql("select count(*) from pg_stat_activity where application_name like 'stile%'") == "0")
    cursor.execute("begin")
    add(cursor, "gone")  # their rows may still be there, and mean nobody
    cursor.execute("prepare transaction 'added'")
    cursor.execute("commit prepared 'added'")
    SERVER.sql("select stile.cleanup()")
    expect(count("job_idle", "gone"), 0)


# ---- some wait ----

def two_of_six(t):
    """Six wait: one job wakes two at most, and is done"""
    workers = work(t, "six", 6)
    listener, listening = connect()
    for channel in SERVER.sql("select channel from stile.job_idle where queue = 'six'").split():
        listening.execute("listen " + channel)
    listening.execute("listen stile_job")
    _, cursor = connect()
    for _ in range(5):
        add(cursor, "six")
        assert is_done_in_time("six")
        assert 1 <= len(heard(listener, listening)) <= 2
    end(workers)


def none_is_lost(t):
    """Added one at a time, all are begun at once; also while workers are killed"""
    workers = work(t, "often", 4)
    _, cursor = connect()
    late = 0
    for i in range(ADDS):
        if i in (ADDS // 3, ADDS // 2):
            os.kill(workers[0].process.pid, signal.SIGKILL)
            workers.pop(0).wait()
        add(cursor, "often")
        late += not is_done_in_time("often")
    expect(late, 0)
    end(workers)


def bursts_spread(t):
    """Many in one transaction, while a few wait: all of those work"""
    t.env.update(STILE_ENGINE=SERVER.url, STILE_MODULES=os.environ["STILE_MODULES"])
    workers = [t.start("jobs", "work", "burst", "--", "sh", "-c", "echo; read x < " + t.path("gate"))
               for _ in range(4)]
    os.mkfifo(t.path("gate"))
    spin(lambda: count("job_idle", "burst' and settled and '' = '") == 4)
    begun = time.monotonic()
    SERVER.sql("insert into stile.job (queue, state, run_at, added_at, payload) select 'burst', 'ready', "
               "now(), now(), 'x' from generate_series(1, 3); select stile.job_add('burst', 'x')")
    for worker in workers:
        worker.line()
    assert time.monotonic() - begun < LOOK_S
    SERVER.sql("delete from stile.job where queue = 'burst'")
    with open(t.path("gate"), "w", encoding="ascii") as gate:
        gate.write("\n" * 4)
    end(workers)


# ---- transactions that last ----

def added_before_it_waited(t):
    """A job that was added before the worker began to wait, and committed after: begun at once"""
    _, cursor = connect()
    cursor.execute("begin")
    add(cursor, "long")
    t.env.update(STILE_ENGINE=SERVER.url, STILE_MODULES=os.environ["STILE_MODULES"])
    worker = t.start("jobs", "work", "long", "--", "true")
    spin(lambda: count("job_idle", "long' and seen is not null and '' = '") == 1)
    expect(count("job_idle", "long' and settled and '' = '"), 0)
    cursor.execute("commit")
    assert is_done_in_time("long")
    spin(lambda: count("job_idle", "long' and settled and '' = '") == 1)
    end([worker])


def snapshots_from_before(t):
    """REPEATABLE READ and SERIALIZABLE: never rolled back because of waiters, and those are woken"""
    for level in pg.ISOLATION_LEVEL_REPEATABLE_READ, pg.ISOLATION_LEVEL_SERIALIZABLE:
        queue = "old%d" % level
        users = [connect(level=level) for _ in range(2)]
        for _, cursor in users:
            cursor.execute("select count(*) from pg_class")
        workers = work(t, queue, 2)
        for _ in range(10):
            for _, cursor in users:
                add(cursor, queue)
            for connection, cursor in users:
                connection.commit()
                cursor.execute("select count(*) from pg_class")
            assert is_done_in_time(queue)
        end(workers)


# ---- what is older, or may less ----

def an_older_library(t):
    """Workers that listen for all that comes, and name no channel, are notified"""
    worker, cursor = connect()
    cursor.execute("listen stile_job")
    claim = "select due_ms from stile.job_claim('older', 1, 1000, 5, 'w', 'h', 1, null)"
    spin(lambda: cursor.execute(claim) or not cursor.fetchall())
    SERVER.sql("select stile.job_add('older', 'x')")
    assert select.select([worker], [], [], 60)[0]
    expect(heard(worker, cursor), ["stile_job"])
    worker.close()


def those_that_may_not_look(t):
    """Added by a role without rights on the table of waiting workers: all are notified"""
    SERVER.sql("create role adder login; grant usage on schema stile to adder; "
               "grant select, insert on stile.job to adder")
    workers = work(t, "blind", 2)
    _, cursor = connect("adder")
    for _ in range(5):
        add(cursor, "blind")
        assert is_done_in_time("blind")
    end(workers)


def an_older_schema(t):
    """A schema without the list of waiters: it wakes workers of this library all the same"""
    SERVER.sql("delete from stile.version where version = 3; "
               "alter function stile.job_claim rename to job_claim_now; "
               "create function stile.job_claim(text, int, bigint, int, text, text, int, "
               "p_done bigint[] default null) returns table (id bigint, token bigint, tries integer, key text, "
               "payload bytea, last_error text, age_ms bigint, due_ms bigint) language sql as "
               "$$ select * from stile.job_claim_now($1, $2, $3, $4, $5, $6, $7, $8, '') $$; "
               "create or replace function stile.job_wake(p_queue text, p_most integer default 2) "
               "returns void language sql as $$ select pg_notify('stile_job', 'j ' || p_queue) $$; "
               "comment on table stile.version is null")
    t.env.update(STILE_ENGINE=SERVER.url, STILE_MODULES=os.environ["STILE_MODULES"])
    worker = t.start("jobs", "work", "before", "--", "true")
    _, cursor = connect()
    for _ in range(5):
        spin(lambda: SERVER.sql("select count(*) from pg_stat_activity where query like '%job_claim%' "
                                "and state = 'idle' and application_name like 'stile%'") == "1")
        add(cursor, "before")
        assert is_done_in_time("before")
    end([worker])
    SERVER.sql("drop function stile.job_claim_now")
    expect(t.stile("setup").returncode, 0)
    end(work(t, "before", 1))


if __name__ == "__main__":
    with PostgresServer("-c", "max_prepared_transactions=5") as SERVER:
        subprocess.run([os.environ["STILE"], "setup", SERVER.url], check=True)
        status = run_tests([nobody_waits, two_of_six, none_is_lost, bursts_spread, added_before_it_waited,
                            snapshots_from_before, an_older_library, those_that_may_not_look,
                            an_older_schema])
    sys.exit(status)
