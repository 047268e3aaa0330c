# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The record of a name's last holder in a database: sql_records.py postgres|mysql. What the engine's
contract says is tested there; here is the table: which users may use it, that it may be missing or locked, that it
does not grow for ever, and that its writers do not block each other."""
import re
import subprocess
import sys
import threading

import sql_kit
from keeper import Keeper
from kit import expect, run_tests, spin

POSTGRES = sys.argv.pop(1) == "postgres"
if POSTGRES:
    import psycopg2
    from postgres_kit import findings
    from postgres_server import PgBouncer, PostgresServer as Server
    TABLE, OLD_DAY, LOCK = "stile.last_holder", "current_date - 40", "lock table stile.last_holder"
else:
    import MySQLdb
    from mysql_kit import findings
    from mysql_server import MysqlServer as Server
    TABLE, OLD_DAY = "stile_last_holder", "curdate() - interval 40 day"
    LOCK = "lock tables stile_last_holder write"

MODES = "advisory" if POSTGRES else "getlock", "row", "table"
on_server = sql_kit.on_servers_of(Server)


def connect(server):
    if POSTGRES:
        return psycopg2.connect(host="127.0.0.1", port=server.port, user="postgres", dbname="postgres")
    return MySQLdb.connect(host="127.0.0.1", port=server.port, user="root", passwd="", db="tests")


def url_of(server, mode, user=None):
    url = server.url.replace("postgres@" if POSTGRES else "root@", user + "@") if user else server.url
    return url + ("" if mode == MODES[0] else "?mode=" + mode)


def keep(url, *lines):
    """The answers to these lines, and what was logged."""
    keeper = Keeper(url, subprocess.PIPE)
    answers = [keeper.order(line) for line in lines]
    keeper.process.stdin.close()
    logged = keeper.process.stderr.read()
    keeper.process.stderr.close()
    keeper.close()
    return answers, logged


def without_tokens(kept):
    """What keep() returned with each token as N; and the tokens."""
    answers, logged = kept
    pattern = r"(?<=token )\d+"
    return (([re.sub(pattern, "N", answer) for answer in answers], logged),
            [int(token) for answer in answers for token in re.findall(pattern, answer)])


def note(t):
    """The severity of what the doctor says about records; None: nothing."""
    found = findings(t)
    if POSTGRES:
        return found.get("records")
    return next((severity for severity, name in found if name == "records"), None)


def has(server, where="true"):
    return int(server.sql("select count(*) from %s where %s" % (TABLE, where)))


# ---- what is stored ----

@on_server()
def each_mode_has_its_own(_t, server):
    """Each mode has its own tokens, and its own record of a name"""
    for mode in MODES:
        url = url_of(server, mode)
        seen = []
        for _ in 1, 2:
            kept, tokens = without_tokens(keep(url, "x", "+x", "*x", "=x", "*x"))
            expect(kept, (["OK", "OK", "token N exit -1 by keep", "OK", "token N ended exit 7 by keep"], ""))
            seen += tokens
        assert seen[0] == seen[1] < seen[2] == seen[3], seen
        server.sql("update %s set token = 9000000000000000000 where mode = '%s'" % (TABLE, mode))
        expect(without_tokens(keep(url, "x", "+x", "=x", "-x", "*x")),
               ((["OK", "OK", "OK", "OK", "token N ended exit 7 by keep"], ""), seen[3:]))
        expect(keep(url, "*y"), (["none"], ""))
    expect(server.sql("select mode from %s order by mode" % TABLE).split(), sorted(MODES))


@on_server()
def names_as_they_are(t, server):
    """Any name, in quotes, long, or no text at all"""
    for mode in MODES:
        for name in "caf\u00e9", "it's \\ \"so\"", "%s;--", "n" * 512:
            expect(without_tokens(keep(url_of(server, mode), name, "+" + name, "*" + name))[0][0][2],
                   "token N exit -1 by keep")
        url = url_of(server, mode)
        done = t.stile("run", "-e", url, b"\xff\xfe", "--", "true")
        expect(done.returncode, 0, done.stderr)


def holder_that_waited(t, server):
    """A holder that had to wait has one connection, and records with it"""
    held = t.hold("x", "--ttl", "60s")
    keeper = Keeper(server.url)
    keeper.ask("x", 60000, 60000)
    spin(lambda: server.sql("select count(*) from pg_locks where not granted") == "1")
    t.release(held)
    expect(keeper.answer(), "OK")
    expect(keeper.order("+x"), "OK")
    spin(lambda: has(server) == 1)
    expect(server.sql("select count(*) from pg_stat_activity where application_name like '%keep'"), "1")
    expect(keeper.order("=x"), "OK")
    expect(keeper.order("-x"), "OK")
    assert keeper.order("*x").endswith(" ended exit 7 by keep")
    keeper.close()


def through_a_pooler(_t, server):
    """pgbouncer, transaction pooling: as without it"""
    with PgBouncer(server) as pooler:
        url = "postgres://postgres@127.0.0.1:%d/postgres?mode=table" % pooler.port
        expect(keep(url, "x", "+x", "=x", "-x", "*x"),
               (["OK", "OK", "OK", "OK", "token 1 ended exit 7 by keep"], ""))


# ---- the table is missing, locked, or not for everyone ----

def without_the_table(t, server, mode):
    url = url_of(server, mode)
    answers, said = keep(url, "x", "+x", "=x", "*x", "-x")
    expect(answers, ["OK", "UNSUPPORTED", "UNSUPPORTED", "none", "OK"])
    assert said.count("stile setup URL") == 2, said
    expect(t.stile("show", "-e", url, "x").returncode, 0)


@on_server()
def missing(t, server):
    """A schema from before there were records: all else works, doctor and log say what to do"""
    server.sql("drop table " + TABLE)
    for mode in MODES:
        without_the_table(t, server, mode)
    expect(note(t), "note")
    expect(t.stile("setup").returncode, 0)
    expect(note(t), None)
    expect(without_tokens(keep(server.url, "x", "+x", "*x"))[0][0][2], "token N exit -1 by keep")


@on_server()
def no_schema(t, server):
    """No schema: locks have no token and no record, and caps says what to do"""
    if POSTGRES:
        server.sql("drop schema stile cascade")
    else:
        server.sql("drop database tests; create database tests")
    without_the_table(t, server, MODES[0])
    caps = t.stile("caps").stdout
    assert "stile setup URL" in caps, caps
    assert '"token":false' in t.stile("caps", "--json").stdout.replace(" ", "")


@on_server()
def locked_table(_t, server):
    """A table that someone has locked: it is given up, and the lock is not lost meanwhile"""
    for mode in MODES:
        connection = connect(server)
        connection.cursor().execute(LOCK)
        keeper = Keeper(url_of(server, mode), subprocess.PIPE)
        keeper.ask("x", 0, 4000)
        expect(keeper.answer(), "OK")
        expect(keeper.order("+x"), "OK")
        said = keeper.process.stderr.readline()
        assert "not recorded" in said, said
        assert keeper.holds("x")
        connection.rollback()
        connection.close()
        expect(keeper.order("=x"), "OK")
        assert keeper.order("*x").endswith(" ended exit 7 by keep")
        keeper.process.stderr.close()
        keeper.close()


@on_server()
def setup_grants_it(t, server):
    """A user that was granted the other tables records after `stile setup` as well"""
    if POSTGRES:
        server.sql("drop table stile.last_holder; drop function stile.remember; create role app login; "
                   "alter default privileges revoke execute on functions from public; "
                   "grant usage on schema stile to app; grant all on all tables in schema stile to app; "
                   "revoke execute on all functions in schema stile from public; "
                   "grant execute on all functions in schema stile to app")
    else:
        server.sql("drop table stile_last_holder; create user app@'127.0.0.1'; "
                   "grant execute on tests.* to app@'127.0.0.1'")
        for table in server.sql("select table_name from information_schema.tables where "
                                "table_schema = 'tests' and table_type = 'BASE TABLE'").split():
            server.sql("grant select, insert, update, delete on %s to app@'127.0.0.1'" % table)
    url = url_of(server, MODES[0], "app")
    expect(t.stile("setup").returncode, 0)
    t.env["STILE_ENGINE"] = url
    expect(note(t), None)
    expect(without_tokens(keep(url, "x", "+x", "*x"))[0], (["OK", "OK", "token N exit -1 by keep"], ""))


@on_server()
def not_for_this_user(t, server):
    """A user that may not use the table: locks and show work, and doctor names the privilege"""
    if POSTGRES:
        server.sql("create role app login; grant usage on schema stile to app; "
                   "grant all on all tables in schema stile to app; revoke all on stile.last_holder from app")
    else:
        server.sql("create user app@'127.0.0.1'; grant execute on tests.* to app@'127.0.0.1'; "
                   "grant select on tests.* to app@'127.0.0.1'")
        for table in server.sql("select table_name from information_schema.tables where "
                                "table_schema = 'tests' and table_type = 'BASE TABLE' and "
                                "table_name <> 'stile_last_holder'").split():
            server.sql("grant insert, update, delete on %s to app@'127.0.0.1'" % table)
    recorded = "UNSUPPORTED" if POSTGRES else "OK"  # it may read the table there
    for mode in MODES:
        answers, said = keep(url_of(server, mode, "app"), "x", "+x", "*x", "-x")
        expect(answers, ["OK", recorded, "none", "OK"])
        assert "record" in said, said
    done = t.stile("doctor", "--json", url_of(server, MODES[0], "app"))
    assert "last_holder" in done.stdout and "GRANT" in done.stdout, done.stdout


# ---- it does not grow for ever ----

def age(server, count):
    """As many records of long ago."""
    if POSTGRES:
        server.sql("insert into stile.last_holder select 'old' || i, 'table', 1, '1 1 1 1 0 1 h c', "
                   "current_date - 40 from generate_series(1, %d) i" % count)
    else:
        server.sql("insert into stile_last_holder select concat('old', seq), 'table', 1, "
                   "'1 1 1 1 0 1 h c', %s from seq_1_to_%d" % (OLD_DAY, count))


@on_server()
def old_ones_go(_t, server):
    """Records of more than 30 days ago are deleted by the writers of others, and no younger ones"""
    age(server, 100)
    server.sql("update %s set stored_on = %s where name = 'old7'" % (TABLE, OLD_DAY.replace("40", "29")))
    keeper = Keeper(server.url)
    expect(keeper.order("x"), "OK")

    def none_left():
        expect(keeper.order("+x"), "OK")
        return has(server, "name like 'old%'") == 1
    spin(none_left)
    expect(server.sql("select name from %s order by name" % TABLE).split(), ["old7", "x"])
    keeper.close()


@on_server("-c", "deadlock_timeout=10ms") if POSTGRES else on_server()
def writers_do_not_block_each_other(_t, server):
    """Many clients that record old names while others delete them: none is a deadlock's victim"""
    age(server, 2000)
    said = []

    def write(first):
        names = ["old%d" % (1 + (first * 250 + i) % 1000) for i in range(120)]
        url = url_of(server, "table")
        said.append(keep(url, *[word + name for name in names for word in ("", "+", "=", "-")])[1])
        said.append(keep(url, *[word + name for name in reversed(names) for word in ("", "+", "-")])[1])
    threads = [threading.Thread(target=write, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(said, [""] * 8)


tests = [each_mode_has_its_own, names_as_they_are, missing, no_schema, locked_table, setup_grants_it,
         not_for_this_user, old_ones_go, writers_do_not_block_each_other]
if POSTGRES:
    tests += [on_server()(holder_that_waited), on_server(mode="table")(through_a_pooler)]
run_tests(tests)
