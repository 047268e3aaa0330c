# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What `stile setup` creates in a PostgreSQL, which users may use it and how it is changed; and servers that only
pass for one."""
import json
import subprocess

import psycopg2

from postgres_kit import count_in, findings, on_server, refused, token_of, use
from kit import acquired, expect, run_tests, spin
from postgres_server import tool


def connect(server, user="postgres"):
    connection = psycopg2.connect(host="127.0.0.1", port=server.port, user=user, dbname="postgres")
    return connection, connection.cursor()


# ---- search_path ----

@on_server()
def functions_pin_their_path(t, server):
    """A user with CREATE on public gets nothing run by the callers of our functions"""
    expect(server.sql("select count(*) from pg_proc p join pg_namespace n on n.oid = p.pronamespace "
                      "where n.nspname = 'stile' and not exists (select from unnest(p.proconfig) c "
                      "where c = 'search_path=pg_catalog, pg_temp')"), "0")
    server.sql("""create table caught (who text);
        create function public.times(bigint, interval) returns interval language plpgsql as
        $$ begin insert into public.caught values (current_user); return interval '0'; end $$;
        create operator public.* (leftarg = bigint, rightarg = interval, function = public.times);
        create function public.hashtextextended(text, integer) returns bigint language plpgsql as
        $$ begin insert into public.caught values (current_user); return 1; end $$""")
    server.sql("select stile.lock('x'); select stile.try_lock('x'); select stile.lock_shared('y'); "
               "select stile.job_add('q', 'x', null, 5); select * from stile.job_claim('q', 1, 100, 5, "
               "'w', 'h', 1); select stile.cleanup()")
    t.env["STILE_ENGINE"] += "?mode=table"
    expect(count_in(token_of(t)), 1)
    expect(server.sql("select count(*) from caught"), "0")


# ---- setup ----

@on_server()
def setup_again_changes_nothing(t, server):
    """setup, run again, waits for nobody and makes nobody wait"""
    connection, cursor = connect(server)
    cursor.execute("insert into stile.lock (name, token, key, sub, shared, owner, host, pid, command, "
                   "since) values ('open', 1, 1, 1, false, '', '', 1, '', now())")
    cursor.execute("select * from stile.locks, stile.job")
    before = server.sql("select sum(xmin::text::bigint) from pg_proc")
    done = t.stile("setup")
    expect(done.returncode, 0, done.stderr)
    expect(server.sql("select sum(xmin::text::bigint) from pg_proc"), before)
    printed = t.stile("setup", "--print").stdout
    done = subprocess.run([tool("psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p",
                           str(server.port), "-U", "postgres"], input=printed, text=True,
                          capture_output=True, check=False)
    expect(done.returncode, 0, done.stderr)
    connection.rollback()
    connection.close()
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)


@on_server()
def schema_before_this_one(t, server):
    """A schema of the version before: locks work, caps says that setup is due, and setup brings it up"""
    server.sql("delete from stile.version where version = 3; drop table stile.waiting cascade; "
               "drop function stile.grant, stile.cell_write; comment on table stile.version is null")
    expect(count_in(token_of(t)), 1)
    held = t.hold("x", "--ttl", "60s")
    waiting = t.start("run", "x", "--", "sh", "-c", "echo $STILE_TOKEN")
    spin(lambda: server.sql("select count(*) from pg_locks where not granted") == "1")
    t.release(held)
    expect(count_in(waiting.line()), 3)
    expect(waiting.wait(), 0)
    assert "stile setup" in t.stile("caps").stdout
    expect(findings(t)["schema-version"], "warning")
    expect(findings(t)["cells"], "note")
    expect(t.stile("cell", "get", "x").returncode, 69)
    expect(t.stile("setup").returncode, 0)
    assert not {"schema-version", "cells"} & set(findings(t))
    expect(t.stile("cell", "get", "x").returncode, 1)
    expect(json.loads(t.stile("caps", "--json").stdout)["fifo"], True)


@on_server()
def setup_keeps_roles_working(t, server):
    """A role that was granted rights on the schema before: it locks and waits after setup as it did"""
    server.sql("create role \"the App\" login; create role seer login; "
               "alter default privileges revoke execute on functions from public; "
               "revoke execute on all functions in schema stile from public; "
               "delete from stile.version where version = 3; "
               "drop table stile.waiting, stile.job_idle cascade; "
               "drop function stile.grant, stile.park, stile.unpark, stile.wake, stile.mark, stile.briefly, "
               "stile.job_claim, stile.job_wake, stile.job_adding, stile.job_mark, stile.job_leave; "
               "comment on table stile.version is null; "
               "grant usage on schema stile to \"the App\", seer; grant select on stile.lock to seer; "
               "grant all on all tables in schema stile to \"the App\"; "
               "grant execute on all functions in schema stile to \"the App\"")
    owner = t.env["STILE_ENGINE"]
    use(t, server, server.url.replace("postgres@", "the%20App@"))
    expect(count_in(token_of(t)), 1)
    expect(t.stile("setup", owner).returncode, 0)
    assert "rights" not in findings(t)
    held = t.hold("x", "--ttl", "60s")
    waiting = t.start("run", "x", "--", "sh", "-c", "echo $STILE_TOKEN")
    spin(lambda: server.sql("select count(*) from stile.waiting") == "1")
    t.release(held)
    expect(count_in(waiting.line()), 3)
    expect(waiting.wait(), 0)
    worker = t.start("jobs", "work", "q", "--", "cat")
    spin(lambda: server.sql("select count(*) from stile.job_idle where settled") == "1")
    expect(t.stile("jobs", "add", "q", input="done\n").returncode, 0)
    expect(worker.line(), "done")
    worker.process.terminate()
    expect(worker.wait(), 0)
    expect(server.sql("select has_table_privilege('seer', 'stile.waiting', 'select'), "
                      "has_table_privilege('seer', 'stile.waiting', 'insert')"), "t|f")
    server.sql("revoke all on stile.waiting from \"the App\"; comment on table stile.version is null")
    expect(t.stile("setup", owner).returncode, 0)
    expect(findings(t)["rights"], "danger")  # what is revoked afterwards stays so


# ---- what must last ----

@on_server("-c", "synchronous_commit=off", "-c", "wal_writer_delay=10s", durable=True, mode="table")
def rows_last_whatever_the_role_says(t, server):
    """mode=table with synchronous_commit=off: what was renewed or given back stays so after a crash"""
    done = t.stile("acquire", "--try", "--ttl", "60s", "x")
    owner = acquired(done.stdout)[0]
    expect(t.stile("acquire", "--try", "--ttl", "60s", "y").returncode, 0)
    expect(t.stile("renew", "--owner", owner, "--ttl", "600s", "x").returncode, 0)
    server.kill()
    server.restart()
    assert float(server.sql("select extract(epoch from expires_at - clock_timestamp()) "
                            "from stile.claim where name = 'x'")) > 100
    expect(t.stile("release", "--owner", owner, "x").returncode, 0)
    server.kill()
    server.restart()
    expect(server.sql("select string_agg(name, ' ') from stile.claim"), "y")


# ---- rights ----

@on_server()
def doctor_names_missing_rights(t, server):
    """doctor: a role without one right hears exactly which"""
    server.sql("create role low login; grant usage on schema stile to low; "
               "grant select, insert, update on all tables in schema stile to low; "
               "grant delete on stile.claim, stile.job, stile.row_lock, stile.counter to low")
    use(t, server, server.url.replace("postgres@", "low@"))
    done = t.stile("doctor", "--json")
    (found,) = (one for one in json.loads(done.stdout)["findings"] if one["id"] == "rights")
    assert "DELETE" in " ".join(found["commands"]) and "stile.waiting" in " ".join(found["commands"]), found
    assert "stile.claim" not in " ".join(found["commands"]), found
    server.sql("grant all on all tables in schema stile to low")
    assert "rights" not in findings(t)
    done = t.stile("doctor", "--json")
    (found,) = (one for one in json.loads(done.stdout)["findings"] if one["id"] == "cell-rights")
    expect(found["severity"], "note")
    expect(t.stile("guard", "raise", t.env["STILE_ENGINE"], "x", "1").returncode, 69)
    server.sql(*found["commands"])
    assert "cell-rights" not in findings(t)
    expect(t.stile("guard", "raise", t.env["STILE_ENGINE"], "x", "1").returncode, 0)
    expect(t.stile("once", "x", "--", "true").returncode, 0)
    expect(t.stile("cell", "ls").returncode, 0)
    expect(t.stile("guard", "reset", t.env["STILE_ENGINE"], "x", "1").returncode, 0)


# ---- servers that are none ----

@on_server("-c", "allow_system_table_mods=on")
def locks_that_lock_nothing(t, server):
    """A server whose advisory locks are stubs is refused, with what to say instead"""
    server.sql("alter function pg_try_advisory_lock(int, int) rename to real_try; "
               "create function pg_catalog.pg_try_advisory_lock(int, int) returns boolean "
               "language sql as 'select true'")
    refused(t, "advisory locks", "mode=table")
    t.env["STILE_ENGINE"] += "?mode=table"
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)


# ---- room for locks ----

@on_server("-c", "max_locks_per_transaction=10", "-c", "max_connections=20")
def room_for_locks(t, server):
    """One client takes a quarter of the server's lock table, and the server goes on for others"""
    caps = json.loads(t.stile("caps", "--json").stdout)
    expect(caps["most_locks"], 10 * 20 // 4)
    names = ["n%d" % i for i in range(caps["most_locks"] + 1)]
    done = t.stile("run", "--try", *names, "--", "true")
    expect(done.returncode, 69, done.stderr)
    assert "locks=" in done.stderr and "mode=table" in done.stderr, done.stderr
    expect(t.stile("run", "--try", *names[1:], "--", "true").returncode, 0)
    expect(findings(t)["locks"], "fine")
    for mode in "?locks=%d" % len(names), "?mode=table":
        use(t, server, server.url + mode)
        expect(t.stile("run", "--try", *names, "--", "true").returncode, 0)
    use(t, server, server.url + "?locks=none")
    refused(t, "locks=", code=64)


run_tests([functions_pin_their_path, setup_again_changes_nothing, schema_before_this_one,
           setup_keeps_roles_working, rows_last_whatever_the_role_says, doctor_names_missing_rights,
           locks_that_lock_nothing, room_for_locks])
