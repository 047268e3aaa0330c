# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL that is killed, restarted, stopped, full, or does not want us; sessions that are ended
under their locks; and what the user of stile hears of it."""
import os
import re
import signal
import subprocess

from cluster_kit import outlives_forgotten_connections
from postgres_kit import OURS, count_in, findings, lost, on_server, refused, token_of, use, wait_for
import sql_scenes
from kit import acquired, expect, run_tests, spin
from postgres_server import PgBouncer, PostgresServer, free_port, tool

server_crashes = on_server(durable=True)(sql_scenes.server_crashes)
server_is_shut_down = on_server()(sql_scenes.server_is_shut_down)
holder_is_killed = on_server()(sql_scenes.holder_is_killed)
hostile_defaults = on_server(
    "-c", "lock_timeout=50ms", "-c", "statement_timeout=80ms", "-c", "idle_session_timeout=1s",
    "-c", "idle_in_transaction_session_timeout=1s",
    "-c", "default_transaction_isolation=serializable", "-c", "default_transaction_read_only=on",
    "-c", "synchronous_commit=off")(sql_scenes.hostile_defaults)
sessions_are_bounded = on_server()(sql_scenes.sessions_are_bounded)


# ---- the server ends ----

@on_server()
def server_is_stopped(t, server):
    """A server that stands still: its holder is lost at its own deadline"""
    held = t.hold("x", "--ttl", "2s")
    pids = [int(pid) for pid in server.sql("select pid " + OURS).split()]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        lost(held)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    expect(t.stile("run", "x", "--", "true").returncode, 0)


@on_server()
def nobody_there(t, server):
    """No server: UNREACHABLE at once, with the address"""
    server.kill()
    refused(t, "127.0.0.1", str(server.port), "refused; Is")


# ---- sessions end ----

@on_server()
def backend_is_terminated(t, server):
    """pg_terminate_backend: the holder is notified at once, whichever session it was"""
    sql_scenes.session_is_ended(
        t, lambda: server.sql("select pg_terminate_backend(pid) from pg_locks "
                              "where locktype = 'advisory'"))


@on_server()
def waiter_is_terminated(t, server):
    """A waiter whose session is ended asks again, on another one"""
    held = t.hold("x", "--ttl", "60s")
    waiting = wait_for(t)
    server.sql("select pg_terminate_backend(pid) from pg_locks where not granted")
    watched = t.watch("x")
    t.until(watched, lambda change: len(change["waiters"]) == 1)
    t.release(held)
    waiting.line()
    expect(waiting.wait(), 0)


@on_server()
def waiter_is_cancelled(t, server):
    """pg_cancel_backend of a wait that is wanted: it is asked for again"""
    held = t.hold("x", "--ttl", "60s")
    waiting = wait_for(t)
    server.sql("select pg_cancel_backend(pid) from pg_locks where not granted")
    t.until(t.watch("x"), lambda change: len(change["waiters"]) == 1)
    t.release(held)
    waiting.line()
    expect(waiting.wait(), 0)
    expect(server.sql("select count(*) from pg_locks where locktype = 'advisory'"), "0")


# ---- answers in doubt ----

def through_cutter(t, server, words, params=""):
    url = "postgres://postgres@127.0.0.1:%d/postgres"
    done = sql_scenes.cut_off(t, server, words, url + params)
    until_free = "select count(*) from pg_locks where locktype = 'advisory'"
    spin(lambda: server.sql(until_free) == "0")
    expect(server.sql("select count(*) from stile.claim"), "0")
    return done


@on_server()
def grant_in_doubt(t, server):
    """A grant whose answer is lost is gone with its session, and asked for again"""
    expect(count_in(token_of(t)), 1)
    done = through_cutter(t, server, b"pg_try_advisory_lock(hash")
    expect((done.returncode, count_in(done.stdout)), (0, 3), done.stderr)


@on_server()
def release_in_doubt(t, server):
    """A release whose answer is lost: it may have been lost before, and that is reported"""
    done = through_cutter(t, server, b"pg_advisory_unlock($1")
    expect((done.returncode, count_in(done.stdout)), (76, 1), done.stderr)


@on_server()
def row_in_doubt(t, server):
    """mode=table: a row whose grant nobody heard of is withdrawn, and asked for again"""
    done = through_cutter(t, server, b"table_claim", "?mode=table")
    expect((done.returncode, done.stdout), (0, "2\n"), done.stderr)


@on_server()
def row_release_in_doubt(t, server):
    """mode=table: a release is repeated until it is answered"""
    done = through_cutter(t, server, b"table_release", "?mode=table")
    expect((done.returncode, done.stdout), (0, "1\n"), done.stderr)


@on_server()
def another_server_takes_over(t, server):
    """Of several servers in the URL the next is found when the first is gone"""
    with PostgresServer() as other:
        use(t, other)
        expect(t.stile("setup").returncode, 0)
        use(t, server, "postgres://postgres@127.0.0.1:%d,127.0.0.1:%d/postgres"
            % (server.port, other.port))
        held = t.hold("x", "--ttl", "60s")
        waiting = wait_for(t)
        server.kill()
        lost(held)
        expect(count_in(waiting.line()), 1)
        expect(waiting.wait(), 0)


# ---- mode=table ----

def table(case):
    """The same, with leases in rows."""
    def with_table(t, server):
        t.env["STILE_ENGINE"] += "?mode=table"
        case(t, server)
    with_table.__name__, with_table.__doc__ = case.__name__, case.__doc__
    return with_table


def acquire(t, name, *options):
    """Owner and token of a claim that outlives its process."""
    done = t.stile("acquire", "--try", *options, name)
    expect(done.returncode, 0, done.stderr)
    owner, token = acquired(done.stdout)
    return owner, int(token)


@on_server(durable=True)
@table
def rows_survive_a_crash(t, server):
    """mode=table: after a crash all is as it was, holders go on, tokens grow"""
    held = t.hold("x", "--ttl", "30s")
    owner, token = acquire(t, "y", "--ttl", "60s")
    server.kill()
    server.restart()
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
    expect(t.stile("renew", "--owner", owner, "y").returncode, 0)
    expect(t.stile("release", "--owner", owner, "y").returncode, 0)
    assert acquire(t, "y")[1] > token
    t.release(held)


@on_server("-c", "wal_writer_delay=10s", durable=True)
@table
def handed_over_and_synced(t, server):
    """mode=table: a release that was answered survives a crash, also where the next holder has not confirmed yet"""
    owner, _ = acquire(t, "x", "--ttl", "60s")
    server.sql("insert into stile.claim (owner, name, mode, slots, held, confirmed, token, ttl_ms, since, expires_at, "
               "host, pid, command) select 'w', 'x', 'exclusive', 1, false, false, 0, 60000, now(), "
               "now() + interval '60 s', 'h', 1, 'c'")
    expect(t.stile("release", "--owner", owner, "x").returncode, 0)
    server.kill()
    server.restart()
    expect(server.sql("select string_agg(owner || ' ' || held::text, ',') from stile.claim"), "w true")


@on_server()
@table
def rows_outlive_sessions(t, server):
    """mode=table: sessions that are ended take nothing with them, and waiters keep their places"""
    held = t.hold("x", "--ttl", "20s")
    first, second = wait_for(t), wait_for(t)
    server.sql("select pg_terminate_backend(pid) " + OURS)
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
    t.release(held)
    assert int(first.line()) < int(second.line())
    expect((first.wait(), second.wait()), (0, 0))
    expect(server.sql("select count(*) from stile.claim"), "0")


@on_server()
def forgotten_connections(t, server):
    """mode=table: connections that the server accepts and forgets: the holder tries again in time"""
    outlives_forgotten_connections(
        t, server.port, "postgres://postgres@127.0.0.1:%d/postgres?mode=table")


@on_server()
@table
def row_is_deleted(t, server):
    """mode=table: a row that somebody deletes is a loss, heard of with the next renewal"""
    held = t.hold("x", "--ttl", "3s")
    server.sql("delete from stile.claim")
    lost(held)


@on_server()
def pooler(t, server):
    """A pooler: refused, with what to say instead; mode=table works through it"""
    with PgBouncer(server) as bouncer:
        use(t, server, bouncer.url)
        refused(t, "pooler", "mode=table")
        t.env["STILE_ENGINE"] += "?mode=table"
        held = t.hold("x", "--ttl", "60s")
        waiting = wait_for(t)
        t.release(held)
        expect(int(waiting.line()), 2)
        expect(waiting.wait(), 0)
    with PgBouncer(server, "session") as bouncer:
        use(t, server, bouncer.url + "?allow=pooler")
        expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)


@on_server()
def table_without_schema(t, server):
    """mode=table without the schema: refused, with what to run"""
    server.sql("drop schema stile cascade")
    t.env["STILE_ENGINE"] += "?mode=table"
    refused(t, "stile setup")


# ---- what a role or a database is set to ----

@on_server("-c", "max_connections=6", "-c", "superuser_reserved_connections=0")
def too_many_connections(t, server):
    """max_connections: a clear error, the holder goes on, the waiter is served"""
    held = t.hold("x", "--ttl", "60s")
    others = [subprocess.Popen([tool("psql"), "-X", "-h", "127.0.0.1", "-p", str(server.port),
                                "-U", "postgres"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL) for _ in range(5)]
    try:
        for other in others:
            other.stdin.write(b"\\echo in\nselect 1;\n")
            other.stdin.flush()
            other.stdout.readline()
        spin(lambda: t.stile("ls").returncode != 0)
        refused(t, "max_connections")
        expect(held.process.poll(), None)
    finally:
        for other in others:
            other.kill()
            other.communicate()
    t.release(held)


# ---- not for us ----

@on_server()
def passwords(t, server):
    """A wrong password is refused, and none is ever shown"""
    server.sql("create role ann login superuser password 'secret-of-ann'")
    with open(server.data + "/pg_hba.conf", "w", encoding="utf-8") as file:
        file.write("host all ann 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n")
    server.sql("select pg_reload_conf()")
    place = "127.0.0.1:%d/postgres" % server.port
    spin(lambda: "password" in t.stile("caps", "postgres://ann@" + place).stderr)
    for word in "wrong-word", "x", "ann":
        use(t, server, "postgres://ann:%s@%s" % (word, place))
        said = refused(t)
        assert "wrong-word" not in said, said
    use(t, server, "postgres://ann:secret-of-ann@" + place)
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)
    with open(t.path("pass"), "w", encoding="utf-8") as file:
        file.write("127.0.0.1:*:*:ann:secret-of-ann\n")
    os.chmod(t.path("pass"), 0o600)
    use(t, server, "postgres://ann@" + place)
    t.env["PGPASSFILE"] = t.path("pass")
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)


@on_server()
def as_libpq_has_it(t, server):
    """Keyword strings, the environment and services of libpq, which exclude with a URL of the same place"""
    words = "host=127.0.0.1 port=%d user=postgres dbname='postgres'" % server.port
    held = t.hold("x")
    t.env.update(PGHOST="127.0.0.1", PGPORT=str(server.port), PGUSER="postgres")
    with open(t.path("services"), "w", encoding="utf-8") as file:
        file.write("[here]\n" + words.replace(" ", "\n").replace("'", ""))
    t.env["PGSERVICEFILE"] = t.path("services")
    ways = words, words + " sessions=2", "postgres:", "postgres:///postgres", "postgres:?service=here"
    for way in ways:
        use(t, server, way)
        expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
    t.release(held)
    for way in ways:
        use(t, server, way)
        expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)
    use(t, server, words + " password='hunter two'")
    said = t.stile("run", "x", "--", "sh", "-c", "echo $STILE_ENGINE").stdout
    assert "127.0.0.1" in said and "hunter" not in said and "user" not in said, said


@on_server()
def permission_is_missing(t, server):
    """A role without rights on the schema hears which ones"""
    server.sql("create role low login")
    use(t, server, "postgres://low@127.0.0.1:%d/postgres" % server.port)
    refused(t, "permission", "GRANT")
    refused(t, "permission", "owner", "--print", verb=("setup",))
    server.sql("grant usage on schema stile to low; grant all on all tables in schema stile to low")
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)


@on_server()
def far_away_is_verified(t, server):
    """A host that isn't this one is reached with a verified certificate only, unless written"""
    use(t, server, "postgres://postgres@192.0.2.1/postgres?hostaddr=127.0.0.1&port=%d"
        % server.port)
    refused(t, "SSL", "verify-full")
    t.env["STILE_ENGINE"] += "&sslmode=prefer"
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)
    t.env["PGSERVICEFILE"] = t.path("services")
    use(t, server, "postgres:?service=far")
    service = "[far]\nhost=192.0.2.1\nhostaddr=127.0.0.1\nport=%d\nuser=postgres\n" % server.port
    for mode in "", "sslmode=disable\n":
        with open(t.path("services"), "w", encoding="utf-8") as file:
            file.write(service + mode)
        if mode:
            expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)
        else:
            refused(t, "SSL", "verify-full")


@on_server("-c", "wal_level=replica", "-c", "max_wal_senders=4")
def standby(t, server):
    """A standby is refused, with where to go"""
    server.sql("checkpoint")
    backup = server.dir + "/copy"
    subprocess.run([*server.prefix, tool("pg_basebackup"), "-h", "127.0.0.1", "-p",
                    str(server.port), "-U", "postgres", "-D", backup, "-R", "-c", "fast",
                    "--no-sync"], check=True, cwd="/")
    other = PostgresServer.__new__(PostgresServer)
    other.__dict__.update(server.__dict__, data=backup, dir=server.dir, process=None)
    other.port = free_port()
    try:
        other.restart()
        use(t, other)
        refused(t, "standby", "primary")
        expect(findings(t)["standby"], "danger")
        expect(findings(t, server.url)["replication"], "warning")
    finally:
        other.kill()


# ---- the schema ----

@on_server()
def schema(t, server):
    """setup may be repeated; a newer schema is refused; without it there are no tokens"""
    refused(t, "mode=table", verb=("run", "--slots", "2", "x", "--", "true"))
    server.sql("create database latin template template0 encoding latin1 lc_collate 'C' lc_ctype 'C'")
    use(t, server, server.url[:-len("postgres")] + "latin")
    for name, code in ("\u00fc", 0), ("\u65e5", 69):
        done = t.stile("run", name, "--", "true")
        expect(done.returncode, code, done.stderr)
    assert "UTF8, or a name" in done.stderr, done.stderr
    use(t, server)
    expect(count_in(token_of(t)), 1)
    expect(t.stile("setup").returncode, 0)
    expect(count_in(token_of(t)), 2)
    server.sql("insert into stile.version values (99)")
    refused(t, "99", "newer")
    refused(t, "newer", verb=("setup",))
    server.sql("drop schema stile cascade")
    done = t.stile("run", "x", "--", "sh", "-c", "echo ${STILE_TOKEN-none}")
    expect(done.stdout, "none\n", done.stderr)
    assert "stile setup" in t.stile("caps").stdout
    printed = t.stile("setup", "--print")
    subprocess.run([tool("psql"), "-X", "-q", "-h", "127.0.0.1", "-p", str(server.port), "-U",
                    "postgres"], input=printed.stdout, text=True, check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    expect(count_in(token_of(t)), 1)


@on_server()
def cleanup_keeps_tokens(t, server):
    """Names that are cleared away leave their tokens used"""
    for _ in range(3):
        last = token_of(t)
    held = t.hold("y", "--ttl", "60s")
    t.env["STILE_ENGINE"] += "?mode=table"
    _, there = acquire(t, "z", "--ttl", "60s")
    server.sql("delete from stile.claim")
    t.env["STILE_ENGINE"] = server.url
    expect(server.sql("select stile.cleanup('0 s')"), "2")
    expect(server.sql("select name from stile.lock"), "y")
    assert token_of(t) > last
    t.release(held)
    t.env["STILE_ENGINE"] += "?mode=table"
    assert acquire(t, "z")[1] > there


@on_server()
def people_can_read_it(t, server):
    """stile.locks shows which client holds what"""
    held = t.hold("order 17", "--ttl", "60s")
    row = server.sql("select name, host, pid > 0, token % 1048576, expires_at is null, command "
                     "from stile.locks").split("|")
    expect(row[0], "order 17")
    expect(row[1:5], [os.uname().nodename[:64], "t", "1", "t"])
    assert re.search("stile|sh", row[5]), row
    t.release(held)
    expect(server.sql("select count(*) from stile.locks"), "0")


# ---- the doctor ----

@on_server(durable=True)
def doctor_finds_nothing(t, server):
    """doctor: a server as it should be"""
    fine = {"fsync": "fine", "connections": "fine"}
    expect(findings(t), dict(fine, locks="fine"))
    expect(findings(t, server.url + "?mode=table"), fine)


@on_server("-c", "max_connections=12")
def doctor_finds_all(t, server):
    """doctor: what endangers tokens and locks, also where locking is refused"""
    found = findings(t)
    expect(found, {"fsync": "danger", "full_page_writes": "warning", "connections": "warning",
                   "locks": "fine"})
    server.sql("alter table stile.lock set unlogged; create role low login")
    expect(findings(t)["unlogged"], "danger")
    expect(findings(t, server.url.replace("postgres@", "low@"))["rights"], "danger")
    with PgBouncer(server) as bouncer:
        expect(findings(t, bouncer.url)["pooler"], "danger")
        assert "pooler" not in findings(t, bouncer.url + "?mode=table")
    server.sql("drop schema stile cascade")
    expect(findings(t)["schema"], "warning")
    expect(findings(t, server.url + "?mode=table")["schema"], "danger")


# ---- how many sessions ----

@on_server()
def few_sessions(t, server):
    """Many names that one client holds need one session"""
    names = ["n%d" % i for i in range(64)]
    held = t.start("run", "--ttl", "60s", *names, "--", "sh", "-c", "echo in; read line",
                   stdin=subprocess.PIPE)
    expect(held.line(), "in")
    assert int(server.sql("select count(*) " + OURS)) <= 3
    expect(server.sql("select count(*) from pg_locks where locktype = 'advisory'"), "64")
    held.process.stdin.close()
    held.wait()


run_tests([server_crashes, server_is_shut_down, server_is_stopped, nobody_there,
           backend_is_terminated, waiter_is_terminated, waiter_is_cancelled, holder_is_killed,
           hostile_defaults, too_many_connections, sessions_are_bounded, passwords,
           as_libpq_has_it, permission_is_missing, far_away_is_verified, standby, schema, cleanup_keeps_tokens,
           people_can_read_it, few_sessions, rows_survive_a_crash, handed_over_and_synced,
           rows_outlive_sessions, forgotten_connections, row_is_deleted, pooler, table_without_schema,
           doctor_finds_nothing, doctor_finds_all, grant_in_doubt, release_in_doubt, row_in_doubt,
           row_release_in_doubt, another_server_takes_over])
