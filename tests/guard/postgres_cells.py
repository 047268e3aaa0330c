# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Cells on PostgreSQL: the guard that they share with users' transactions, writes that wait or whose
answer is lost, what a prune leaves, names, roles, poolers and crashes."""
import json

from postgres_guard_kit import (STALE, PgBouncer, Session, connect, expect, kill_all, on_server, passes,
                                run, run_tests, seen, use)
from cells_kit import Cells
from cutter import Cutter
from mixer import Mixer


@on_server()
def one_guard(t, server):
    """The guard of a cell is that of the resource with its name, in users' transactions"""
    cursor = connect(server).cursor()
    with Cells(t) as cells:
        cells.put("x", "one", token=5, issuer="redis:x")
        expect(passes(cursor, "x", 4), STALE)
        expect(passes(cursor, "x", 6), None)
        expect(cells.refuse("STALE", "put", "x", "late", token=5).token, 6)
        cells.put("x", "two", token=6)
        expect(run(cursor, "select stile.guard_remove('x')"), True)
        expect(cells.get("x")[1:4], (0, 6, "redis:x"))
        expect(passes(cursor, "y", 7), None)
        cells.refuse("STALE", "put", "y", "without a token")
        cells.expect_ok(cells.tell("raise", "y", token=8))
        expect(passes(cursor, "y", 7), STALE)
        cells.expect_ok(cells.tell("reset", "y", token=2, issuer="etcd:y"))
        expect(seen(cursor, "y"), (2, "etcd:y"))


@on_server()
def waiting(t, server):
    """A write waits for a transaction with a guard; a read and an equal raise do not"""
    look = connect(server).cursor()
    holder = Session(server, look)
    with Cells(t) as cells:
        version = cells.put("x", "before", token=5)
        holder.send("begin; select stile.guard('x', 5)")
        expect(cells.get("x").version, version)
        cells.expect_ok(cells.tell("raise", "x", token=5))
        cells.refuse("STALE", "put", "x", "late", token=4)
        cells.refuse("CONFLICT", "put", "x", "late", token=6, version=version + 1)
        answer = cells.refuse("UNREACHABLE", "put", "x", "too early", token=6)
        assert "transaction" in answer.rest, answer
        expect(cells.get("x")[1:3], (version, 5))
        cells.ask("put", "x", "in time", token=6)
        holder.send("commit")
        expect(cells.expect_ok(cells.answer()).token, 6)


@on_server()
def answer_lost(t, server):
    """A write whose answer is lost is UNCERTAIN: with a version, its repetition is a CONFLICT"""
    with Cutter(server.port, b"cut-put") as cutter:
        use(t, server, server.url.replace(str(server.port), str(cutter.port)))
        with Cells(t) as cells:
            cells.put("x", "here")
            cells.refuse("UNCERTAIN", "put", "cut-put", "written", version=0)
            expect(cutter.cut, 1)
            cells.refuse("CONFLICT", "put", "cut-put", "again", version=0)
            expect(cells.get("cut-put").rest, "written")
    with Cutter(server.port, b"cut-get") as cutter:
        use(t, server, server.url.replace(str(server.port), str(cutter.port)))
        with Cells(t) as cells:
            cells.refuse("UNREACHABLE", "get", "cut-get")
            expect(cutter.cut, 1)
            expect(cells.get("cut-get").version, 0)


@on_server()
def pruned(t, server):
    """After a prune neither a version nor an old token comes back"""
    cursor = connect(server).cursor()
    with Cells(t) as cells:
        for _ in range(3):
            version = cells.put("x", "one", token=5, issuer="redis:x")
        cells.expect_ok(cells.tell("remove", "x", token=6))
        last = cells.put("free", "without a token")
        cells.expect_ok(cells.tell("remove", "free"))
        expect(run(cursor, "select stile.guard_prune('0')"), 2)
        expect(run(cursor, "select count(*) from stile.guarded"), 0)
        cells.refuse("STALE", "put", "x", "late", token=5, issuer="redis:x")
        assert cells.put("free", "again") > max(version, last)
        cells.refuse("STALE", "put", "free", "late", token=5, issuer="redis:x")
        assert cells.put("x", "again", token=6, issuer="redis:x") > version


@on_server()
def names(t, server):
    """Keys that are no UTF-8, in byte order, and prefixes that end within a character"""
    keys = [b"k", b"k\xc3", b"k\xc3\xa9", b"k\xe9", b"k\xff\xfe", b"l%"]
    for key in reversed(keys):
        expect(t.stile("cell", "put", key, input="v").returncode, 0)
    for prefix, found in (b"k", keys[:5]), (b"k\xc3", keys[1:3]), (b"k\xc3\xa9", keys[2:3]), (b"", keys):
        done = t.stile("cell", "ls", "--json", prefix)
        expect(done.returncode, 0, done.stderr)
        expect(done.stdout.count('"key"'), len(found), done.stdout)
    for key in keys:
        done = t.stile("cell", "get", key)
        expect((done.returncode, done.stdout), (0, "v"), key)
    listed = t.stile("cell", "ls", errors=None).stdout.splitlines()[1:]
    expect([line.split()[0] for line in listed],
           [b"k", b"k\\xc3", b"k\xc3\xa9", b"k\\xe9", b"k\\xff\\xfe", b"l%"])


@on_server()
def installed_alone(t, server):
    """guard install is enough for cells and guards; without it, the error says what to do"""
    connect(server).cursor().execute("drop schema stile cascade")
    done = t.stile("cell", "put", "x", input="v")
    expect(done.returncode, 69, done.stderr)
    assert "stile setup" in done.stderr and "guard install" in done.stderr, done.stderr
    expect(t.stile("guard", "install", server.url).returncode, 0)
    expect(t.stile("guard", "raise", server.url, "x", "5").returncode, 0)
    expect(t.stile("guard", "check", server.url, "x", "4").returncode, 77)
    expect(t.stile("cell", "put", "--token", "5", "x", input="v").returncode, 0)
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)  # there is no schema of locks


@on_server()
def roles(t, server):
    """A role needs USAGE and EXECUTE, and nothing on the tables"""
    owner = connect(server).cursor()
    owner.execute("create role app login; grant usage on schema stile to app; "
                  "grant select on stile.version to app")
    use(t, server, server.url.replace("postgres@", "app@") + "?mode=table")
    with Cells(t) as cells:
        assert "GRANT" in cells.refuse("REFUSED", "put", "x", "v").rest
        owner.execute("grant execute on function stile.cell_write, stile.cell_get, stile.cell_list, "
                      "stile.cell_reset to app")
        version = cells.put("x", "v", token=3)
        expect(cells.get("x")[1:3], (version, 3))
        expect(cells.list(), [("x", 1)])
        cells.expect_ok(cells.tell("reset", "x"))


@on_server()
def mixed_up(t, server):
    """Through a pooler that mixes up answers, another client's is taken for none of ours"""
    with Mixer(server.port, b"cell_write") as mixer:
        use(t, server, "postgres://postgres@127.0.0.1:%d/postgres?mode=table" % mixer.port)
        with Cells(t) as cells:
            cells.put("other", "one")
            mixer.mixing = True
            answer = cells.refuse("UNCERTAIN", "put", "x", "two", token=9)
            expect(mixer.mixed, 1, answer)
            expect(cells.get("other").token, 0)


@on_server("-c", "synchronous_commit=off", "-c", "wal_writer_delay=10s")
def a_crash_forgets_nothing(t, server):
    """kill -9 of the server right after a put through a pooler, whose sessions keep their defaults"""
    connect(server).cursor().execute("set synchronous_commit = on; create table on_disk ()")
    for value in "one", "two":
        with PgBouncer(server) as pooler:
            use(t, server, pooler.url + "?mode=table")
            with Cells(t) as cells:
                version = cells.put("x", value, token=5)
                kill_all(server)
        server.restart()
        use(t, server)
        with Cells(t) as cells:
            expect(cells.get("x"), ("OK", version, 5, "", value))


# ---- cells with an end ----

def end_all(cursor):
    cursor.execute("update stile.guarded set ends_at = clock_timestamp() where ends_at is not null")


@on_server()
def ended(t, server):
    """From its end on, a cell is absent for every function, and its guard with it"""
    cursor = connect(server).cursor()
    with Cells(t) as cells:
        for key in "get", "guard", "raise", "remove", "reset", "put":
            version = cells.put(key, "kept", token=50, issuer="redis:x", keep=60000)
        expect(passes(cursor, "guard", 49), STALE)
        expect(passes(cursor, "guard", 51), None)
        expect(seen(cursor, "guard"), (51, "redis:x"))
        end_all(cursor)
        expect(seen(cursor, "guard"), None)
        expect(cells.get("get"), ("OK", 0, 0, "", ""))
        expect(cells.list(), [])
        expect(run(cursor, "select stile.guard_remove('remove')"), False)
        cells.expect_ok(cells.tell("remove", "remove"))
        cells.refuse("CONFLICT", "put", "put", "late", version=version)
        expect(passes(cursor, "guard", 3, "etcd:x"), None)
        expect(seen(cursor, "guard"), (3, "etcd:x"))
        cells.expect_ok(cells.tell("raise", "raise", token=4))
        cells.expect_ok(cells.tell("reset", "reset", token=5))
        end_all(cursor)
        expect([cells.get(key)[1:4] for key in ("guard", "raise", "reset")],
               [(0, 3, "etcd:x"), (0, 4, ""), (0, 5, "")])
        assert cells.put("put", "again", token=1) > version


@on_server()
def ended_in_bounds(t, server):
    """Puts with an end delete those that are over, a few each, and no version comes back"""
    cursor = connect(server).cursor()
    with Cells(t) as cells:
        cells.put("stays", "for ever", token=7, issuer="redis:x")
        version = cells.put("k0", "v", token=7, issuer="redis:x", keep=60000)
        cursor.execute("do $$ begin for i in 1..2000 loop "
                       "perform stile.cell_keep('k' || i, 'v', null, 7, 'redis:x', false, 0); "
                       "end loop; end $$")
        end_all(cursor)
        cells.put("k2001", "v", keep=60000)
        left = run(cursor, "select count(*) from stile.guarded")
        assert left <= 10, left
        expect(run(cursor, "select count(*) from stile.guard_floor"), 0)
        assert cells.put("k0", "again", token=1, issuer="redis:x", keep=60000) > version
        expect(cells.get("stays").rest, "for ever")


@on_server()
def ended_while_locked(t, server):
    """A transaction that has passed the guard keeps the row of an ended cell; nobody waits for it"""
    look = connect(server).cursor()
    holder = Session(server, look)
    with Cells(t) as cells:
        cells.put("x", "kept", token=5, keep=60000)
        end_all(look)
        holder.send("begin; select stile.guard('x', 2)")
        cells.put("y", "kept", keep=60000)
        holder.send("commit")
        expect(cells.get("x")[1:3], (0, 2))


@on_server()
def schema_without_ends(t, server):
    """With an older schema, --keep is refused with what to do; setup adds ends for the same roles"""
    owner = connect(server).cursor()
    owner.execute("create role app login; grant usage on schema stile to app; "
                  "grant select on stile.version to app; grant execute on function stile.cell_write, "
                  "stile.cell_get to app")
    owner.execute("drop function stile.cell_keep; drop index stile.guarded_ends; "
                  "alter table stile.guarded drop column ends_at; "
                  "update stile.guard_state set version = 1; comment on table stile.version is null")
    done = t.stile("cell", "put", "--keep", "1m", "x", input="v")
    expect(done.returncode, 69, done.stderr)
    assert "stile setup" in done.stderr, done.stderr
    expect(json.loads(t.stile("caps", "--json").stdout)["keeps"], False)
    expect(t.stile("setup").returncode, 0)
    use(t, server, server.url.replace("postgres@", "app@") + "?mode=table")
    expect(t.stile("cell", "put", "--keep", "1m", "x", input="v").returncode, 0)


@on_server("-c", "synchronous_commit=off", "-c", "wal_writer_delay=10s")
def a_crash_changes_no_end(t, server):
    """kill -9 of the server: a cell with an end is there until then, and not after"""
    connect(server).cursor().execute("set synchronous_commit = on; create table on_disk ()")
    with Cells(t) as cells:
        version = cells.put("x", "kept", token=5, keep=60000)
        brief = cells.put("y", "kept", keep=1)
        kill_all(server)
    server.restart()
    use(t, server)
    with Cells(t) as cells:
        expect(cells.get("x"), ("OK", version, 5, "", "kept"))
        expect(cells.get("y").version, 0)
        assert cells.put("y", "again", keep=60000) > brief


run_tests([one_guard, waiting, answer_lost, pruned, names, installed_alone, roles, mixed_up,
           a_crash_forgets_nothing, ended, ended_in_bounds, ended_while_locked, schema_without_ends,
           a_crash_changes_no_end])
