# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The guard of PostgreSQL: its rule, what a removal leaves, tables that require it, and privileges."""
import subprocess

from postgres_guard_kit import (FOREIGN, MISUSE, SCRIPT, STALE, UNGUARDED, address, connect, expect,
                                fences, kill_all, on_database, on_server, passes, refusal, run, run_tests, seen,
                                tool)

LARGEST = 2 ** 63 - 1


# ---- the rule ----

@on_database
def rule(_, server):
    """A smaller token is refused with the highest; an equal one passes unless strict"""
    cursor = connect(server).cursor()
    for token in 5, 34, 34:
        expect(passes(cursor, "accounts", token), None)
    error = refusal(cursor, "select stile.guard('accounts', 33)")
    expect((error.pgcode, error.diag.message_primary, error.diag.message_detail),
           (STALE, "stale token 33 for accounts: the highest seen is 34", "highest=34 issuer="))
    expect(passes(cursor, "accounts", 34, "", True), STALE)
    expect(passes(cursor, "accounts", 35, "", True), None)
    expect(passes(cursor, "other", 1), None)
    tokens = [1, 9, 10, 2 ** 31, 2 ** 53, 2 ** 53 + 1, LARGEST - 1, LARGEST]
    for i, token in enumerate(tokens):
        expect(passes(cursor, "large", token), None)
        for smaller in tokens[:i]:
            expect(passes(cursor, "large", smaller), STALE)
    expect(seen(cursor, "large"), (LARGEST, ""))


@on_database
def issuers(_, server):
    """A token of another issuer is refused, whatever it is; one without is only compared"""
    cursor = connect(server).cursor()
    expect(passes(cursor, "x", 5), None)
    expect(passes(cursor, "x", 4, "redis:a"), STALE)
    expect(seen(cursor, "x"), (5, ""))
    expect(passes(cursor, "x", 5, "redis:a"), None)
    expect(seen(cursor, "x"), (5, "redis:a"))
    error = refusal(cursor, "select stile.guard('x', 9, 'etcd:a')")
    expect((error.pgcode, error.diag.message_primary, error.diag.message_detail),
           (FOREIGN, "token of etcd:a for x, whose tokens come from redis:a",
            "highest=5 issuer=redis:a"))
    expect(passes(cursor, "x", 3, "etcd:a"), FOREIGN)
    expect(passes(cursor, "x", 5, "etcd:a"), FOREIGN)
    expect(passes(cursor, "x", 6), None)
    expect(passes(cursor, "x", 6, None), None)
    expect(passes(cursor, "x", 5, "redis:a"), STALE)
    expect(seen(cursor, "x"), (6, "redis:a"))
    cursor.execute("select stile.guard_reset('x', 2, 'etcd:a')")
    expect(passes(cursor, "x", 7, "redis:a"), FOREIGN)
    expect(passes(cursor, "x", 1, "etcd:a"), STALE)
    expect(passes(cursor, "x", 2, "etcd:a"), None)
    cursor.execute("select stile.guard_reset('x')")
    expect(seen(cursor, "x"), (0, ""))
    expect(passes(cursor, "x", 1, "redis:a"), None)


@on_database
def misuse(_, server):
    """No token, no resource, and names that no lock could have"""
    cursor = connect(server).cursor()
    for token in 0, -1, None:
        expect(passes(cursor, "x", token), MISUSE)
    for name in "", None, "n" * 513, "a\nb", "a\x7fb":
        expect(passes(cursor, name, 1), MISUSE)
    for issuer in "i" * 601, "a\tb":
        expect(passes(cursor, "x", 1, issuer), MISUSE)
    expect(run(cursor, "select stile.guard_reset('x', -1)"), MISUSE)
    expect(run(cursor, "select count(*) from stile.guard_show()"), 0)
    for name in "n" * 512, "\u00e9t\u00e9 *'%\\":
        expect(passes(cursor, name, 1, "i" * 600), None)
        expect(seen(cursor, name), (1, "i" * 600))


@on_database
def fence(_, server):
    """stile.fence() follows the same rule, and shares its tokens with stile.guard()"""
    cursor = connect(server).cursor()
    for token, refused in (5, None), (5, None), (34, None), (33, STALE), (0, MISUSE), (None, MISUSE):
        expect(fences(cursor, "x", token), refused, token)
    expect(passes(cursor, "x", 33), STALE)
    expect(passes(cursor, "x", 35, "redis:a"), None)
    for token, issuer, refused in ((35, "redis:a", None), (36, "etcd:a", FOREIGN), (34, None, STALE),
                                   (36, None, None), (37, "", None), (38, "redis:a", None)):
        expect(fences(cursor, "x", token, issuer), refused, (token, issuer))
    expect(seen(cursor, "x"), (38, "redis:a"))
    for name, issuer in ("", ""), (None, ""), ("a\nb", ""), ("y", "a\tb"), ("y", "i" * 601):
        expect(fences(cursor, name, 1, issuer), MISUSE, (name, issuer))
    expect(run(cursor, "begin; call stile.fence('x', 37, '')"), STALE)
    expect(run(cursor, "select 1"), "25P02")
    cursor.execute("rollback; select stile.guard_remove('x')")
    expect(fences(cursor, "x", 37), STALE)
    expect(fences(cursor, "x", 38), None)
    expect(run(cursor, "select stile.guard_prune('0')"), 0)


@on_database
def in_one_message(_, server):
    """begin and the guard in one message; a refusal ends the transaction"""
    cursor = connect(server).cursor()
    cursor.execute("create table account (id int primary key, balance int)")
    cursor.execute("begin; select stile.guard('x', 5)")
    cursor.execute("insert into account values (1, 1); commit")
    expect(run(cursor, "begin; select stile.guard('x', 4)"), STALE)
    expect(run(cursor, "update account set balance = 2"), "25P02")
    cursor.execute("rollback")
    expect(run(cursor, "select stile.guard('x', 4); update account set balance = 2"), STALE)
    expect(run(cursor, "select balance from account"), 1)
    expect(run(cursor, "select stile.guard(token => 5, resource => 'x', strict => true)"), STALE)


# ---- removal ----

@on_database
def removal_never_reopens(_, server):
    """What was removed refuses smaller tokens as before, and after a prune as well"""
    cursor = connect(server).cursor()
    for name, token, issuer in ("a", 50, "redis:l"), ("b", 7, "redis:l"), ("c", 60, ""):
        expect(passes(cursor, name, token, issuer), None)
    expect(run(cursor, "select stile.guard_prune('0')"), 0)
    for name in "a", "b", "c":
        expect(run(cursor, "select stile.guard_remove(%s)", name), True)
    expect(run(cursor, "select stile.guard_remove('d')"), False)
    expect(passes(cursor, "a", 49, "redis:l"), STALE)
    expect(passes(cursor, "a", 51, "etcd:l"), FOREIGN)
    expect(run(cursor, "select stile.guard_prune('1 hour')"), 0)
    expect(run(cursor, "select stile.guard_prune('0')"), 2)
    expect(seen(cursor, "a"), None)
    expect(seen(cursor, "c"), (60, ""))  # its tokens may come from any issuer
    for token, issuer, refused in ((49, "redis:l", STALE), (49, "", STALE), (1, "etcd:l", None),
                                   (50, "redis:l", None)):
        expect(passes(cursor, "a%s" % issuer, token, issuer), refused)
    expect(passes(cursor, "b", 8, "redis:l"), STALE)
    expect(passes(cursor, "b", 50, "redis:l", True), STALE)
    expect(passes(cursor, "c", 59, "redis:l"), STALE)


@on_database
def removal_is_undone_by_a_token(_, server):
    """A resource that is used again is no longer pruned"""
    cursor = connect(server).cursor()
    expect(passes(cursor, "a", 5, "redis:l"), None)
    cursor.execute("select stile.guard_remove('a')")
    expect(passes(cursor, "a", 5, "redis:l"), None)
    expect(run(cursor, "select stile.guard_prune('0')"), 0)
    cursor.execute("select stile.guard_reset('a')")
    expect(passes(cursor, "a", 4, "redis:l"), None)


# ---- tables that require a guard ----

@on_database
def required(_, server):
    """A table refuses the writes of transactions that have called no guard"""
    cursor = connect(server).cursor()
    cursor.execute("create table t (id int primary key, v int); insert into t values (1, 1); "
                   "select stile.guard_required('t'); select stile.guard_required('t')")
    writes = ("insert into t values (2, 2)", "update t set v = 3 where id = 1", "delete from t",
              "truncate t", "insert into t values (1, 1) on conflict (id) do update set v = 9",
              "with w as (update t set v = 4 returning v) select * from w")
    for write in writes:
        expect(run(cursor, write), UNGUARDED, write)
    cursor.execute("select stile.guard('x', 5)")  # of a transaction of its own
    expect(run(cursor, writes[0]), UNGUARDED)
    for write in writes:
        cursor.execute("begin; select stile.guard('x', 5)")
        cursor.execute(write + "; rollback")
    cursor.execute("begin; select stile.guard('x', 5); update t set v = 7; commit")
    expect(run(cursor, "select v from t"), 7)
    for token in 5, 6:
        cursor.execute("begin; call stile.fence('x', %d, ''); update t set v = 8; commit" % token)
        expect(run(cursor, writes[0]), UNGUARDED)
    expect(run(cursor, "select stile.guard_required('stile.guard_floor'::regclass::oid + 0)"), "42883")
    cursor.execute("create view w as select 1 as one")
    expect(run(cursor, "select stile.guard_required('w')"), "42809")


@on_database
def required_of_one_resource(_, server):
    """A table may require the guard of a certain resource, among others"""
    cursor = connect(server).cursor()
    cursor.execute("create table t (v int); select stile.guard_required('t', 'it''s x')")
    write = "insert into t values (1); commit"
    for guards, refused in ((["y"], True), (["it's x"], False), (["y", "it's x", "z"], False),
                            (["t's x", "it's x2"], True)):
        cursor.execute("begin; " + "".join("select stile.guard('%s', 5);" % name.replace("'", "''")
                                           for name in guards))
        expect(run(cursor, write), UNGUARDED if refused else None, guards)
        cursor.execute("rollback")


@on_database
def required_and_not_fooled(_, server):
    """A guard that was rolled back to a savepoint, and settings made by hand, count for nothing"""
    cursor = connect(server).cursor()
    cursor.execute("create table t (v int); select stile.guard_required('t'); select stile.guard('x', 5)")
    write = "insert into t values (1)"
    cursor.execute("begin; savepoint s; select stile.guard('x', 6); rollback to s")
    expect(run(cursor, write), UNGUARDED)
    cursor.execute("rollback")
    cursor.execute("begin; savepoint s; select stile.guard('x', 6); release s")
    expect(run(cursor, write + "; rollback"), None)
    cursor.execute("begin; select stile.guard('x', 5); savepoint s; select stile.guard('x', 6); "
                   "rollback to s")
    expect(run(cursor, write + "; rollback"), None)
    cursor.execute("begin; savepoint s; call stile.fence('x', 5, ''); rollback to s")
    expect(run(cursor, write), UNGUARDED)
    cursor.execute("rollback")
    for token, resource, refused in (4, "x", True), (6, "x", True), (5, "y", True), (5, "x", False):
        cursor.execute("begin; select set_config('stile.guarded', pg_current_xact_id() || "
                       "E'\\n%d %s\\n', true)" % (token, resource))
        expect(run(cursor, write), UNGUARDED if refused else None, (token, resource))
        cursor.execute("rollback")
    cursor.execute("begin; select stile.guard('x', 5); "
                   "select set_config('stile.guarded', current_setting('stile.guarded'), false); commit")
    expect(run(cursor, write), UNGUARDED)
    expect(run(cursor, "do $$ begin begin perform stile.guard('x', 4); exception when sqlstate 'SG001' "
                       "then null; end; insert into t values (1); end $$"), UNGUARDED)
    expect(run(cursor, "select count(*) from t"), 0)


@on_database
def required_of_partitions(_, server):
    """A partitioned table's parts refuse as well, also those that are made later"""
    cursor = connect(server).cursor()
    cursor.execute("create table t (id int, v int) partition by range (id); "
                   "create table t1 partition of t for values from (0) to (10); "
                   "select stile.guard_required('t'); "
                   "create table t2 partition of t for values from (10) to (20)")
    for write in "insert into t values (1)", "insert into t1 values (1)", "insert into t2 values (11)", \
                 "truncate t", "truncate t1":
        expect(run(cursor, write), UNGUARDED, write)
    cursor.execute("begin; select stile.guard('x', 1); insert into t values (1, 1), (11, 1); "
                   "update t set v = 2; delete from t1; commit")
    expect(run(cursor, "select sum(v) from t"), 2)


# ---- privileges, setup ----

@on_database
def privileges(_, server):
    """A role needs USAGE and EXECUTE, and cannot lower a token; other roles may do nothing"""
    owner = connect(server).cursor()
    owner.execute("create role app login; create role other login; create table t (v int); "
                  "grant insert on t to app; grant usage on schema stile to app, other; "
                  "grant execute on function stile.guard to app; select stile.guard_required('t')")
    app, other = connect(server, "app").cursor(), connect(server, "other").cursor()
    expect(passes(app, "x", 5), None)
    expect(passes(app, "x", 4), STALE)
    app.execute("begin; select stile.guard('x', 6, 'redis:a'); insert into t values (1); commit")
    denied = "42501"
    expect(passes(other, "x", 7), denied)
    for cursor in app, other:
        expect(fences(cursor, "x", 7), denied)
        for text in ("select stile.guard_reset('x')", "select stile.guard_remove('x')",
                     "select stile.guard_prune('0')", "select * from stile.guard_show()",
                     "update stile.guarded set token = 1", "delete from stile.guarded",
                     "select stile.guard_pass('x', 9, '', false)", "delete from stile.guard_state"):
            expect(run(cursor, text), denied, text)
    owner.execute("grant execute on procedure stile.fence to app")
    expect(fences(app, "x", 6), None)
    owner.execute("grant execute on function stile.guard to public; select 1")
    expect(server_runs_script(server), 0)
    expect(passes(other, "x", 7), None)  # what was granted stays


def server_runs_script(server):
    done = subprocess.run([tool("psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p",
                           str(server.port), "-U", "postgres", "-d", address(server)["dbname"], "-f",
                           str(SCRIPT)],
                          capture_output=True, text=True, check=False)
    assert "ERROR" not in done.stderr, done.stderr
    return done.returncode


@on_server()
def alone_and_again(t, server):
    """The script alone is enough, may be repeated, and does not pass for the schema of locks"""
    cursor = connect(server).cursor()
    cursor.execute("drop schema stile cascade")
    for _ in range(2):
        expect(server_runs_script(server), 0)
        expect(passes(cursor, "x", 5, "redis:a"), None)
    expect(t.stile("run", "--try", "x", "--", "sh", "-c", "test -z $STILE_TOKEN").returncode, 0)
    expect(t.stile("setup").returncode, 0)
    expect(passes(cursor, "x", 4), STALE)
    cursor.execute("update stile.guard_state set version = version + 1")
    assert "newer" in str(refusal(cursor, SCRIPT.read_text())), "an older script has changed a newer one"


@on_database
def paths_are_pinned(_, server):
    """Objects in the caller's search_path are never used"""
    cursor = connect(server).cursor()
    expect(run(cursor, "select count(*) from pg_proc p where p.pronamespace = 'stile'::regnamespace "
                       "and not 'search_path=pg_catalog, pg_temp' = any (p.proconfig)"), 0)
    cursor.execute("create schema trap; create function trap.set_config(text, text, boolean) returns text "
                   "language sql as 'select 1 / 0'; create function trap.hashtextextended(text, int) "
                   "returns bigint language sql as 'select 1 / 0'; set search_path = trap, pg_catalog; "
                   "create temp table guarded (resource text)")
    for token in 5, 5, 6:
        expect(passes(cursor, "x", token), None)
        expect(fences(cursor, "x", token), None)


# ---- crashes ----

@on_server("-c", "synchronous_commit=off", "-c", "wal_writer_delay=10s")
def a_crash_forgets_nothing(_, server):
    """kill -9 of all processes of the server right after a guarded commit"""
    cursor = connect(server).cursor()
    cursor.execute("create table t (v int); insert into t values (0); set synchronous_commit = on; "
                   "create table on_disk ()")
    for token in range(1, 4):
        cursor = connect(server).cursor()
        cursor.execute("begin; select stile.guard('x', %s); update t set v = %s; commit", (token, token))
        kill_all(server)
        server.restart()
        cursor = connect(server).cursor()
        expect(seen(cursor, "x"), (token, ""))
        expect(run(cursor, "select v from t"), token)
        expect(passes(cursor, "x", token - 1) if token > 1 else STALE, STALE)


run_tests([rule, issuers, misuse, fence, in_one_message, removal_never_reopens,
           removal_is_undone_by_a_token, required, required_of_one_resource, required_and_not_fooled,
           required_of_partitions, privileges, alone_and_again, paths_are_pinned,
           a_crash_forgets_nothing])
