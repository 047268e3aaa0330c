# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Every way in which a PostgreSQL comes back: tokens grow, although no grant waits for the disk. What is tested here is
argued in docs/guarantees.md and modelled in sim/models/token_epochs.pml."""
import contextlib
import shutil
import signal
import subprocess

import psycopg2

from postgres_kit import findings, on_server, refused, token_of, use
from kit import expect, run_tests, spin
from postgres_server import Copied, PostgresServer, tool

ON_DISK = "select epoch from stile.epoch"
NOW = "extract(epoch from clock_timestamp())::bigint - 1577836800"


def epoch_of(server):
    return int(server.sql(ON_DISK))


def drawn(server):
    """A token from the functions in the database, as every client gets it."""
    return int(server.sql("select stile.next_token()"))


def clock_passes(server):
    """The clock is beyond the present epoch: each that begins takes its number from there."""
    spin(lambda: server.sql("select %s > (%s)" % (NOW, ON_DISK)) == "t")


@contextlib.contextmanager
def copied(t, source, **how):
    with Copied(source, **how) as server:
        use(t, server)
        yield server


# ---- the server goes and comes back ----

@on_server()
def comes_back(t, server):
    """Killed, stopped at once, stopped in an orderly way, a backend killed: a new epoch, and larger tokens"""
    def kill_a_backend():
        connection = psycopg2.connect(host="127.0.0.1", port=server.port, user="postgres", dbname="postgres")
        subprocess.run(["kill", "-9", str(connection.info.backend_pid)], check=True)
        spin(lambda: "all server processes terminated" in server.log)
        spin(server.answers_sql)

    def end_with(number):
        server.kill(number)
        server.restart()

    for end in (lambda: end_with(signal.SIGKILL), lambda: end_with(signal.SIGQUIT),
                lambda: end_with(signal.SIGINT), kill_a_backend):
        before = [token_of(t), token_of(t), token_of(t, "y")]
        expect(before, list(range(before[0], before[0] + 3)))
        epoch = epoch_of(server)
        expect(before[0] // 2**20, epoch)
        end()
        after = token_of(t)
        assert after > before[2], (before, after)
        assert epoch_of(server) > epoch


@on_server("-c", "wal_writer_delay=10s", durable=True)
def no_grant_waits_for_the_disk(t, server):
    """Grants are not in the log on disk when they are reported, but their epoch is, and a hold"""
    last = token_of(t)
    server.sql("checkpoint")
    flushed = server.sql("select pg_current_wal_flush_lsn()")
    for _ in range(5):
        last = token_of(t)
    after = server.sql("select pg_current_wal_flush_lsn()")
    # Pages of the log that are full may be written at any time, by the WAL writer.
    assert after == flushed or int(after.split("/")[1], 16) % 8192 == 0, (after, flushed)
    server.kill(signal.SIGKILL)
    server.restart()
    assert int(server.sql("select coalesce(max(token), 0) from stile.lock where name = 'x'")) < last
    first = token_of(t)
    assert first > last
    server.kill(signal.SIGKILL)
    server.restart()
    expect(epoch_of(server), first // 2**20)
    expect(t.stile("run", "--hold-at-least", "60s", "h", "--", "true").returncode, 0)
    server.kill(signal.SIGKILL)
    server.restart()
    expect(t.stile("run", "--try", "h", "--", "true").returncode, 75)


@on_server()
def an_epoch_is_used_up(t, server):
    """The last token of an epoch is followed by the first one of the next"""
    epoch = token_of(t) // 2**20
    clock_passes(server)
    server.sql("select setval('stile.tokens', ends - 3) from stile.life")
    last = [token_of(t) for _ in range(4)]
    expect([token // 2**20 for token in last[:2]], [epoch, epoch])
    assert last == sorted(set(last)) and last[2] // 2**20 > epoch, last
    expect(epoch_of(server), last[3] // 2**20)


@on_server()
def first_callers_at_once(_t, server):
    """Many first callers after a crash: one epoch, and no token twice"""
    server.kill(signal.SIGKILL)
    server.restart()
    many = [subprocess.Popen([tool("psql"), "-X", "-q", "-A", "-t", "-h", "127.0.0.1", "-p", str(server.port), "-U",
                              "postgres", "-c", "select stile.next_token() from generate_series(1, 50)"],
                             stdout=subprocess.PIPE, text=True) for _ in range(6)]
    tokens = [int(line) for one in many for line in one.communicate()[0].split()]
    expect(len(set(tokens)), 300)
    expect({token // 2**20 for token in tokens}, {epoch_of(server)})


# ---- another server continues ----

@on_server()
def standby_is_promoted(t, server):
    """A standby is promoted: one that has everything, and one that lacks the last epoch"""
    before = token_of(t)
    with contextlib.ExitStack() as stack:
        near, late = (stack.enter_context(Copied(server, standby=True)) for _ in range(2))
        late.shut_down()
        server.kill()
        server.restart()
        before = max(before, token_of(t))
        clock_passes(server)
        spin(lambda: near.sql(ON_DISK) == server.sql(ON_DISK))
        server.kill()
        for standby in near, late:
            if standby is late:
                standby.restart()
            standby.promote()
            use(t, standby)
            assert token_of(t) > before, standby is late


@on_server("-c", "wal_log_hints=on", "-c", "wal_keep_size=64MB")
def primary_is_rewound(t, server):
    """pg_rewind: an old primary follows the new one, and is promoted again"""
    token_of(t)
    with Copied(server, standby=True, durable=True) as standby:
        standby.promote()
        before = token_of(t)  # the old primary goes on for a while
        server.shut_down()
        use(t, standby)
        before = max(before, token_of(t))
        standby.sql("checkpoint")
        subprocess.run([*server.prefix, tool("pg_rewind"), "-D", server.data, "-R", "--source-server",
                        "host=127.0.0.1 port=%d user=postgres dbname=postgres" % standby.port],
                       check=True, capture_output=True, cwd="/")
        server.restart()
        spin(lambda: server.sql(ON_DISK) == standby.sql(ON_DISK))
        standby.kill()
    server.promote()
    use(t, server)
    assert token_of(t) > before


# ---- an older copy ----

@on_server()
def backup_is_restored(t, server):
    """A base backup that lacks the last epoch, and a copy of the files of a server at rest"""
    token_of(t)
    with Copied(server) as backup:
        backup.shut_down()
        server.shut_down()
        subprocess.run(["cp", "-a", server.data, server.dir + "/at-rest"], check=True)
        server.restart()
        before = max(token_of(t) for _ in range(3))
        clock_passes(server)
        server.shut_down()
        backup.restart()
        use(t, backup)
        assert token_of(t) > before
    shutil.rmtree(server.data)
    subprocess.run(["mv", server.dir + "/at-rest", server.data], check=True)
    server.restart()
    use(t, server)
    assert token_of(t) > before


@on_server()
def dump_is_restored(t, server):
    """pg_dump: the counter is in it, and is not believed, in this server or in another one"""
    token_of(t)
    dump = subprocess.run([tool("pg_dump"), "-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres", "-n", "stile",
                           "postgres"], capture_output=True, text=True, check=True).stdout
    before = max(token_of(t) for _ in range(3))
    clock_passes(server)
    with PostgresServer() as other:
        for place in other, server:
            place.sql("drop schema if exists stile cascade")
            subprocess.run([tool("psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", str(place.port),
                            "-U", "postgres"], input=dump, text=True, check=True, stdout=subprocess.DEVNULL)
            use(t, place)
            assert token_of(t) > before


@on_server()
def data_alone_is_restored(t, server):
    """The rows of the counter are put back, in the same table of the same server"""
    token_of(t)
    server.sql("create table public.kept as select started, file, made_by, ends from stile.life")
    kept = server.sql("select last_value from stile.tokens")
    before = max(token_of(t) for _ in range(3))
    server.sql("delete from stile.life; select setval('stile.tokens', %s); delete from stile.lock; "
               "insert into stile.life (started, file, made_by, ends) select * from public.kept" % kept)
    assert token_of(t) > before


@on_server()
def database_is_copied(t, server):
    """CREATE DATABASE ... TEMPLATE: the copy has epochs of its own"""
    before = token_of(t)
    server.sql("create database copy template postgres", "-d", "template1")
    use(t, server, server.url[:-len("postgres")] + "copy")
    assert token_of(t) // 2**20 > before // 2**20


# ---- its tables are changed ----

@on_server()
def counter_is_cleared(t, server):
    """TRUNCATE, DELETE and VACUUM FULL of the counter: the next epoch"""
    before = token_of(t)
    for change in "truncate stile.life", "delete from stile.life", "vacuum full stile.life", "drop sequence stile.tokens; "\
            "create unlogged sequence stile.tokens":
        server.sql(change)
        after = token_of(t)
        assert after > before, change
        before = after


@on_server()
def counter_is_dropped(t, server):
    """A part of it is dropped, or the row of the epoch deleted: nothing is granted until setup is run again"""
    for change in "drop sequence stile.tokens", "drop table stile.life", "drop table stile.epoch; truncate stile.life", \
            "delete from stile.epoch; truncate stile.life", "drop function stile.next_epoch(); truncate stile.life":
        token = token_of(t)
        clock_passes(server)
        server.sql(change)
        refused(t)
        expect(t.stile("setup").returncode, 0)
        assert token_of(t) > token, change


@on_server()
def counter_is_logged(t, server):
    """ALTER TABLE SET LOGGED: refused, as a crash would not be noticed; the doctor says what to do"""
    before = token_of(t)
    server.sql("alter table stile.life set logged")
    refused(t, "stile.life is logged")
    expect(findings(t)["life"], "danger")
    server.sql("alter table stile.life set unlogged")
    assert "life" not in findings(t)
    assert token_of(t) > before


# ---- from before there were epochs ----

OLD = """
drop function stile.next_epoch, stile.next_token;
drop table stile.epoch, stile.life;
drop sequence stile.tokens;
create or replace function stile.granted(
    p_name text, p_key bigint, p_sub smallint, p_shared boolean, p_hold_ms bigint,
    p_delay_ms bigint, p_owner text, p_host text, p_pid integer, p_command text
) returns text language sql set search_path = pg_catalog, pg_temp as $$
    insert into stile.lock as l (name, token, key, sub, shared, owner, host, pid, command, since, backend)
    values (p_name, 1, p_key, p_sub, p_shared, p_owner, p_host, p_pid, p_command, clock_timestamp(), pg_backend_pid())
    on conflict (name) do update set token = l.token + 1, backend = pg_backend_pid(), since = clock_timestamp()
    returning 'g ' || l.token
$$;
do $do$ begin
    execute regexp_replace(pg_get_functiondef('stile.grant'::regproc), E'-- What follows, .*?\n    end if;\n', '');
end $do$;
comment on table stile.version is null;
"""


@on_server()
def upgraded(t, server):
    """Rows that counted before, and a client that was open: after setup all tokens are larger, for all"""
    server.sql(OLD)
    expect([token_of(t), token_of(t)], [1, 2])
    expect(findings(t)["tokens"], "note")
    held = t.hold("y", "--ttl", "60s")
    waiting = t.start("run", "--ttl", "60s", "y", "--", "sh", "-c", "echo $STILE_TOKEN")
    spin(lambda: server.sql("select count(*) from stile.waiting") == "1")
    server.sql("update stile.lock set token = 8000000000000000 where name = 'x'")
    expect(t.stile("setup").returncode, 0)
    assert "tokens" not in findings(t)
    t.release(held)
    tokens = [int(waiting.line()), token_of(t), token_of(t, "y")]
    expect(waiting.wait(), 0)
    assert 8000000000000000 < tokens[0] < tokens[1] < tokens[2] < 2**63, tokens


@on_server()
def downgraded_and_upgraded(t, server):
    """An older `stile setup` was run after this one: the next one continues above it"""
    before = token_of(t)
    server.sql(OLD.split("drop sequence stile.tokens;")[1])
    counted = [token_of(t, "y"), token_of(t)]
    server.sql("update stile.lock set token = token + 5000000")
    expect(t.stile("setup").returncode, 0)
    assert before < counted[1] < drawn(server) - 5000000 < token_of(t), (before, counted)


@on_server()
def older_calls_are_over(t, server):
    """Grants without a row begin when no call of the functions of before is under way: setup waits for it, and says so"""
    server.sql(OLD.split("drop sequence stile.tokens;")[1])
    older = psycopg2.connect(host="127.0.0.1", port=server.port, user="postgres", dbname="postgres",
                             application_name="stile+:1@host older")
    other = psycopg2.connect(host="127.0.0.1", port=server.port, user="postgres", dbname="postgres")
    for connection in older, other:
        connection.cursor().execute("select 1")
    done = t.stile("setup")
    assert done.returncode != 0 and "had a transaction open" in done.stderr, (done.returncode, done.stderr)
    expect(server.sql("select to_regproc('stile.draw') is null"), "t")
    assert token_of(t) < token_of(t)
    older.close()
    expect(t.stile("setup").returncode, 0)
    expect(server.sql("select to_regproc('stile.draw') is null"), "f")
    other.close()
    assert token_of(t) < token_of(t)


run_tests([comes_back, no_grant_waits_for_the_disk, an_epoch_is_used_up, first_callers_at_once, standby_is_promoted,
           primary_is_rewound, backup_is_restored, dump_is_restored, data_alone_is_restored, database_is_copied,
           counter_is_cleared, counter_is_dropped, counter_is_logged, upgraded, downgraded_and_upgraded,
           older_calls_are_over])
