# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Cells and guards of the command on MySQL, beside transactions of anybody's program."""
import json
import os

from mysql_guard_kit import GUARD, STALE, MysqlServer, World, expect, refused, run_tests, spin

WAITS = "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'"
UNREACHABLE, ABSENT, STALE_EXIT, FOREIGN_EXIT = 69, 1, 77, 78


def with_world(case):
    def one(t):
        world = World(SERVER, case.script)
        t.url = "mysql://root@127.0.0.1:%d/%s" % (SERVER.port, world.database)
        t.env.update(STILE_ENGINE=t.url, STILE_MODULES=os.environ["STILE_MODULES"])
        case(t, world)
    case.script = getattr(case, "script", GUARD)
    one.__name__, one.__doc__ = case.__name__, case.__doc__
    return one


def empty(case):
    """Its database has nothing in it."""
    case.script = ""
    return case


def put(t, key, text, *options):
    return t.stile("cell", "put", *options, key, input=text)


def cell(t, key):
    return json.loads(t.stile("cell", "get", "--json", key).stdout)


def until_it_waits(session):
    spin(lambda: session.run(WAITS)[0][1] == "1")


@with_world
def one_namespace(t, world):
    """The guard of a cell is that of SQL transactions on the resource of its name"""
    session = world.session()
    session.guard("k", 34, "redis:k", how="stile_guard_raise")
    done = put(t, "k", "late", "--token", "33", "--issuer", "redis:k")
    expect((done.returncode, done.stdout), (STALE_EXIT, ""))
    assert "34" in done.stderr, done.stderr
    expect(put(t, "k", "foreign", "--token", "35", "--issuer", "etcd:k").returncode, FOREIGN_EXIT)
    expect(put(t, "k", "none").returncode, STALE_EXIT)
    expect(put(t, "k", "new", "--token", "35", "--issuer", "redis:k").returncode, 0)
    session.begin()
    refused(STALE, session.guard, "k", 34)
    session.run("ROLLBACK")
    expect(t.stile("guard", "raise", t.url, "k", "36").returncode, 0)
    session.begin()
    refused(STALE, session.guard, "k", 35)
    session.run("ROLLBACK")
    expect(session.run("SELECT resource, token, issuer, cell_size FROM stile_guards"),
           (("k", 36, "redis:k", 3),))


@with_world
def compared_with_its_version(t, world):
    """A cell is replaced only if it has the version that was asked for"""
    first = put(t, "k", "first", "--if-version", "0").stdout.strip()
    expect(put(t, "k", "again", "--if-version", "0").returncode, ABSENT)
    second = put(t, "k", "second", "--if-version", first).stdout.strip()
    expect(put(t, "k", "late", "--if-version", first).returncode, ABSENT)
    expect(t.stile("cell", "rm", "--if-version", first, "k").returncode, ABSENT)
    expect(t.stile("cell", "get", "k").stdout, "second")
    expect(t.stile("cell", "rm", "--if-version", second, "k").returncode, 0)
    expect(put(t, "k", "late", "--if-version", second).returncode, ABSENT)
    expect(t.stile("cell", "get", "k").returncode, ABSENT)


@with_world
def waits_for_a_transaction(t, world):
    """A write waits for a transaction that has called the guard, and is answered when that ends"""
    session = world.session()
    expect(put(t, "k", "old", "--token", "33").returncode, 0)
    session.begin("k", 33)
    writing = t.start("cell", "put", "--token", "34", "k")
    until_it_waits(world.session())
    # What waits is not the session that would hold locks.
    expect(world.session().ask("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = %s "
                               "AND COMMAND = 'Sleep' AND ID NOT IN (%s, CONNECTION_ID())",
                               world.database, session.connection.thread_id()), 1)
    expect(cell(t, "k")["token"], 33)
    session.run("COMMIT")
    expect(writing.wait(), 0)
    expect(cell(t, "k")["token"], 34)


@with_world
def gives_up(t, world):
    """A row that stays locked: the write fails, and has changed nothing"""
    session = world.session()
    put(t, "k", "old")
    session.run("START TRANSACTION")
    session.run("SELECT * FROM stile_guard FOR UPDATE")
    done = put(t, "k", "new")
    expect(done.returncode, UNREACHABLE, done.stderr)
    session.run("COMMIT")
    expect(t.stile("cell", "get", "k").stdout, "old")


@with_world
def stopped(t, world):
    """A write that is stopped in the server is in doubt, and leaves no lock behind"""
    session = world.session()
    put(t, "k", "old")
    session.run("START TRANSACTION")
    session.run("SELECT * FROM stile_guard FOR UPDATE")
    writing = t.start("cell", "put", "k")
    until_it_waits(world.session())
    admin = world.session()
    admin.run("KILL QUERY %s", admin.ask("SELECT ID FROM information_schema.PROCESSLIST WHERE DB = %s "
                                         "AND COMMAND = 'Query' AND ID <> CONNECTION_ID()",
                                         world.database))
    expect(writing.wait(), UNREACHABLE)
    assert "interrupted" in writing.err.end()
    session.run("COMMIT")
    expect(put(t, "k", "new").returncode, 0)


@with_world
def versions_never_return(t, world):
    """The version of a cell is not used again, even after its tombstone was pruned"""
    session = world.session()
    seen = []
    for options in (), ("--token", "9", "--issuer", "redis:k"), ():
        for text in "a", "b":
            done = put(t, "k", text, *options)
            expect(done.returncode, 0, done.stderr)
            seen.append(int(done.stdout))
        expect(t.stile("cell", "rm", *options, "k").returncode, 0)
        session.run("CALL stile_guard_prune(0)")
        expect(session.ask("SELECT COUNT(*) FROM stile_guard"), 0)
    expect(seen, sorted(set(seen)))
    session.guard("k", 50, "redis:k", how="stile_guard_raise")
    session.run("CALL stile_guard_remove('k')")
    session.run("CALL stile_guard_prune(0)")
    for verb in ("cell", "put", "--token", "49", "--issuer", "redis:k", "k"), \
            ("guard", "raise", "--issuer", "redis:k", t.url, "k", "49"), \
            ("guard", "check", "--issuer", "redis:k", t.url, "k", "49"):
        expect(t.stile(*verb).returncode, STALE_EXIT, verb)
    expect(session.ask("SELECT COUNT(*) FROM stile_guard"), 0)  # refused, and nothing is left of it


@with_world
@empty
def without_tables(t, world):
    """Without the table cells are refused, with what to do; installing the guard alone is enough"""
    session = world.session()
    for verb in ("cell", "get", "k"), ("cell", "rm", "k"), ("guard", "raise", t.url, "k", "5"):
        done = t.stile(*verb)
        expect(done.returncode, UNREACHABLE, done.stderr)
        assert "stile guard install URL" in done.stderr, done.stderr
    for _ in range(2):
        expect(t.stile("guard", "install", t.url).returncode, 0)
    expect(session.run("SHOW TABLES"), (("stile_guard",), ("stile_guard_floor",), ("stile_guards",)))
    expect(t.stile("guard", "raise", t.url, "k", "5").returncode, 0)
    expect(put(t, "k", "text", "--token", "5").returncode, 0)
    expect(t.stile("guard", "check", t.url, "k", "4").returncode, STALE_EXIT)
    for _ in range(2):
        expect(t.stile("setup", t.url).returncode, 0)
    expect(t.stile("cell", "get", "k").stdout, "text")
    printed = t.stile("guard", "install", "--print", t.url).stdout
    expect(printed, GUARD)
    expect(t.stile("guard", "sql", "--dialect", "mysql").stdout, printed)


@with_world
def without_privileges(t, world):
    """A user that may not use the table is told so"""
    admin = world.session()
    admin.run("CREATE USER other@'127.0.0.1'")
    admin.run("GRANT CREATE ON %s.* TO other@'127.0.0.1'" % world.database)
    admin.run("GRANT SELECT, INSERT, UPDATE ON stile_guard TO other@'127.0.0.1'")
    t.env["STILE_ENGINE"] = t.url.replace("root@", "other@")
    done = put(t, "k", "text")
    expect(done.returncode, UNREACHABLE)
    assert "denied" in done.stderr, done.stderr
    admin.run("DROP USER other@'127.0.0.1'")


# ---- cells with an end ----

def end_all(session):
    session.run("UPDATE stile_guard SET ends_at = UTC_TIMESTAMP(6) WHERE ends_at IS NOT NULL")


def keep(t, key, *options):
    """The version."""
    done = put(t, key, "kept", "--keep", "1h", *options)
    expect(done.returncode, 0, done.stderr)
    return int(done.stdout)


@with_world
def ended(t, world):
    """From its end on, a cell is absent for every procedure, and its guard with it"""
    session, token = world.session(), ("--token", "50", "--issuer", "redis:x")
    for key in "guard", "raise", "remove", "reset", "sql-reset", "cas", "put":
        version = keep(t, key, *token)
    session.begin()
    refused(STALE, session.guard, "guard", 49)
    session.guard("guard", 51)
    session.run("COMMIT")
    expect(cell(t, "guard")["token"], 51)
    end_all(session)
    expect(session.run("SELECT * FROM stile_guards"), ())
    expect(t.stile("cell", "ls", "--json").stdout, "[]\n")
    expect((cell(t, "put")["version"], cell(t, "put")["token"]), (0, None))
    session.run("CALL stile_guard_remove('remove')")
    expect(t.stile("cell", "rm", "remove").returncode, 0)
    expect(put(t, "cas", "late", "--if-version", str(version)).returncode, ABSENT)
    session.begin("guard", 3, "etcd:x")
    session.run("COMMIT")
    expect(t.stile("guard", "raise", t.url, "raise", "4").returncode, 0)
    expect(t.stile("guard", "reset", t.url, "reset", "5").returncode, 0)
    session.run("CALL stile_guard_reset('sql-reset', 6, '')")
    end_all(session)
    expect([(cell(t, key)["version"], cell(t, key)["token"])
            for key in ("guard", "raise", "reset", "sql-reset")], [(0, 3), (0, 4), (0, 5), (0, 6)])
    assert int(put(t, "put", "again", "--token", "1").stdout) > version
    end_all(session)
    expect(cell(t, "put")["value"], "again")


@with_world
def ended_in_bounds(t, world):
    """Puts with an end delete those that are over, a few each, and no version comes back"""
    session = world.session()
    expect(put(t, "stays", "for ever", "--token", "7", "--issuer", "redis:x").returncode, 0)
    version = keep(t, "k0", "--token", "7", "--issuer", "redis:x")
    with session.connection.cursor() as cursor:
        for i in range(1, 1000):
            cursor.callproc("stile_cell_write", ("put 0", "k%d" % i, "v", None, 7, "redis:x", 0, 1))
            cursor.fetchall()
            cursor.nextset()
    end_all(session)
    keep(t, "k1000")
    left = session.ask("SELECT COUNT(*) FROM stile_guard")
    assert left <= 10, left
    expect(session.ask("SELECT COUNT(*) FROM stile_guard_floor"), 1)
    session.run("DELETE FROM stile_guard WHERE resource = 'k0'")
    assert keep(t, "k0", "--token", "1", "--issuer", "redis:x") > version
    expect(cell(t, "stays")["value"], "for ever")


@with_world
def ended_while_locked(t, world):
    """A put does not wait for the row of an ended cell that a transaction has locked"""
    session = world.session()
    keep(t, "x", "--token", "5")
    end_all(session)
    session.begin("x", 2)
    keep(t, "y")
    session.run("COMMIT")
    expect((cell(t, "x")["version"], cell(t, "x")["token"]), (0, 2))


@with_world
def tables_without_ends(t, world):
    """With an older table, --keep is refused with what to do, all else works, and setup adds ends"""
    session = world.session()
    session.run("ALTER TABLE stile_guard DROP COLUMN ends_at")
    done = put(t, "k", "text", "--keep", "1m")
    expect(done.returncode, UNREACHABLE, done.stderr)
    assert "stile setup" in done.stderr, done.stderr
    expect(json.loads(t.stile("caps", "--json").stdout)["keeps"], False)
    expect(cell(t, "k")["version"], 0)
    expect(t.stile("setup", t.url).returncode, 0)
    expect(json.loads(t.stile("caps", "--json").stdout)["keeps"], True)
    keep(t, "k")


@with_world
def ends_without_privileges(t, world):
    """A user that may not delete rows can't leave more of them behind"""
    admin = world.session()
    admin.run("CREATE USER keeper@'127.0.0.1'")
    admin.run("GRANT EXECUTE, CREATE, SELECT ON %s.* TO keeper@'127.0.0.1'" % world.database)
    admin.run("GRANT SELECT, INSERT, UPDATE ON stile_guard TO keeper@'127.0.0.1'")
    admin.run("GRANT SELECT, UPDATE ON stile_guard_floor TO keeper@'127.0.0.1'")
    t.env["STILE_ENGINE"] = t.url.replace("root@", "keeper@")
    expect(put(t, "k", "text").returncode, 0)
    done = put(t, "k", "text", "--keep", "1m")
    expect(done.returncode, UNREACHABLE)
    assert "DELETE command denied" in done.stderr, done.stderr
    expect(cell(t, "k")["value"], "text")
    admin.run("DROP USER keeper@'127.0.0.1'")


with MysqlServer() as SERVER:
    run_tests([one_namespace, compared_with_its_version, waits_for_a_transaction, gives_up, stopped,
               versions_never_return, without_tables, without_privileges, ended, ended_in_bounds,
               ended_while_locked, tables_without_ends, ends_without_privileges])
