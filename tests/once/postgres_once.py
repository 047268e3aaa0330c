# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""stile.once() in PostgreSQL: the first caller runs, others wait for its commit and get its result."""
from postgres_once_kit import (MISUSE, OTHER, PAYMENTS, SCRIPT, SERIALIZATION, UNFINISHED, PostgresServer,
                               Session, complete, connect, expect, kill_all, on_database, once, refusal,
                               run, run_tests)

ASK = "select run::text || coalesce(result::text, '') from stile.once('k')"
LEVELS = "read committed", "repeatable read", "serializable"


@on_database
def stored(_, server):
    """The first caller runs; later ones get its result, which may be null"""
    cursor = connect(server).cursor()
    complete(cursor, "k", '{"paid": 5, "to": "caf\u00e9"}')
    expect(once(cursor, "k"), (False, {"paid": 5, "to": "caf\u00e9"}))
    complete(cursor, "none", None)
    expect(once(cursor, "none"), (False, None))
    cursor.execute("begin")
    expect(once(cursor, "own"), (True, None))
    cursor.execute("select stile.once_done('own', '1')")
    expect(once(cursor, "own"), (False, 1))  # in the same transaction, too
    cursor.execute("rollback")
    cursor.execute("begin")
    expect(once(cursor, "own"), (True, None))


@on_database
def waits(_, server):
    """Others wait for the first one's end: its commit gives them the result, its rollback the turn"""
    first = connect(server).cursor()
    look = connect(server).cursor()
    others = [Session(server, look) for _ in range(3)]
    first.execute("begin")
    once(first, "k")
    for other in others:
        other.send("begin")
        expect(other.send(ASK), False)
    first.execute("rollback")
    ready = []
    while not ready:
        ready = [other for other in others if other.answered()]
    runner = ready[0]
    expect((len(ready), runner.value()), (1, "true"))
    others.remove(runner)
    runner.send("select stile.once_done('k', '7')")
    while not all(other.waits() for other in others):
        assert not any(other.answered() for other in others)
    runner.send("commit")
    for other in others:
        other.answer()
        expect(other.value(), "false7")
        other.send("commit")


@on_database
def bounded(_, server):
    """lock_timeout limits the wait; a terminated first caller ends it"""
    first, second = connect(server), connect(server).cursor()
    cursor = first.cursor()
    cursor.execute("begin")
    once(cursor, "k")
    second.execute("set lock_timeout = '10ms'")
    expect(run(second, ASK), "55P03")
    second.execute("set lock_timeout = 0; begin")
    waiter = Session(server, connect(server).cursor())
    waiter.send("begin")
    expect(waiter.send(ASK), False)
    second.execute("select pg_terminate_backend(%s)", (first.info.backend_pid,))
    waiter.answer()
    expect(waiter.value(), "true")


@on_database
def two_keys(_, server):
    """Two transactions with two keys in opposite order: one fails with 40P01, the other runs both"""
    one, two = Session(server, connect(server).cursor()), connect(server).cursor()
    one.send("begin; select stile.once('a')")
    two.execute("set deadlock_timeout = '10ms'; begin; select stile.once('b')")
    expect(one.send("select run from stile.once('b')"), False)
    expect(run(two, "select stile.once('a')"), "40P01")
    one.answer()
    expect(one.value(), True)


@on_database
def fingerprints(_, server):
    """Another fingerprint is refused, also of a caller that waited; none counts as one"""
    cursor = connect(server).cursor()
    cursor.execute("begin")
    once(cursor, "k", "f1")
    other = Session(server, connect(server).cursor())
    expect(other.send("select run from stile.once('k', 'f2')"), False)
    cursor.execute("select stile.once_done('k', '1'); commit")
    try:
        other.answer()
        raise AssertionError("passed")
    except Exception as error:  # of psycopg2
        expect(getattr(error, "pgcode", error), OTHER)
    error = refusal(cursor, "select stile.once('k', 'f2')")
    expect((error.pgcode, error.diag.message_primary, error.diag.message_hint),
           (OTHER, "once('k') was used with another fingerprint", "A new request needs a new key."))
    expect(run(cursor, "select stile.once('k')"), OTHER)
    expect(once(cursor, "k", "f1"), (False, 1))
    complete(cursor, "without", "2")
    expect(run(cursor, "select stile.once('without', 'f2')"), OTHER)
    for none in None, "":
        expect(once(cursor, "without", none), (False, 2))


@on_database
def unfinished(_, server):
    """A commit without a result is refused, and nothing of its transaction is kept"""
    cursor = connect(server).cursor()
    cursor.execute(PAYMENTS)
    cursor.execute("begin")
    once(cursor, "k", scope="c")
    cursor.execute("insert into payment (key) values ('k')")
    error = refusal(cursor, "commit")
    expect((error.pgcode, error.diag.message_primary), (UNFINISHED, "once('k', scope => 'c') has no result"))
    assert "stile.once_done" in error.diag.message_hint, error.diag.message_hint
    expect(run(cursor, "select count(*) from payment"), 0)
    expect(run(cursor, "select stile.once('alone')"), UNFINISHED)  # a transaction of its own
    expect(run(cursor, "select count(*) from stile.once_key"), 0)
    cursor.execute("begin")
    once(cursor, "k")
    expect(run(cursor, "select stile.once('k')"), UNFINISHED)  # twice in one transaction
    cursor.execute("rollback")


@on_database
def constraints(_, server):
    """Constraints that the caller has made immediate do not refuse once(), and are still checked"""
    cursor = connect(server).cursor()
    cursor.execute("begin; set constraints all immediate")
    expect(once(cursor, "k"), (True, None))
    expect(run(cursor, "set constraints all immediate"), UNFINISHED)
    cursor.execute("rollback")


@on_database
def savepoints(_, server):
    """A savepoint that is rolled back takes the key with it, and the result"""
    cursor = connect(server).cursor()
    cursor.execute("begin; savepoint s")
    once(cursor, "k")
    cursor.execute("rollback to s; commit")  # without a result: there is nothing to store one for
    expect(run(cursor, "select count(*) from stile.once_key"), 0)
    cursor.execute("begin")
    once(cursor, "k")
    cursor.execute("savepoint s; select stile.once_done('k', '1'); rollback to s")
    expect(run(cursor, "commit"), UNFINISHED)
    cursor.execute("begin; savepoint s")
    once(cursor, "k")
    cursor.execute("release s; select stile.once_done('k', '2'); commit")
    expect(once(cursor, "k"), (False, 2))


@on_database
def done_by_others(_, server):
    """Only the transaction that runs stores a result, and only one"""
    cursor = connect(server).cursor()
    expect(run(cursor, "select stile.once_done('k', '1')"), MISUSE)
    complete(cursor, "k", "1")
    for misuse in "select stile.once('k')", "select", "select run from stile.once('other')":
        cursor.execute("begin; " + misuse)
        error = refusal(cursor, "select stile.once_done('k', '2')")
        expect(error.pgcode, MISUSE)
        cursor.execute("rollback")
    cursor.execute("begin; select stile.once('n'); select stile.once_done('n', '1')")
    expect(run(cursor, "select stile.once_done('n', '2')"), MISUSE)
    cursor.execute("rollback; begin; select stile.once('n', scope => 'c')")
    expect(run(cursor, "select stile.once_done('n', '2')"), MISUSE)
    cursor.execute("rollback")
    expect(once(cursor, "k"), (False, 1))


@on_database
def isolation(_, server):
    """At REPEATABLE READ and SERIALIZABLE a caller that has waited fails with 40001; repeated, it
    gets the result"""
    first, look = connect(server).cursor(), connect(server).cursor()
    for number, level in enumerate(LEVELS):
        first.execute("begin isolation level " + level)
        once(first, level)
        other = Session(server, look)
        other.send("begin isolation level " + level)
        ask = "select result::text from stile.once('%s')" % level
        expect(other.send(ask), False)
        first.execute("select stile.once_done(%s, %s); commit", (level, str(number)))
        try:
            other.answer()
            expect((level, other.value()), (LEVELS[0], "0"))
        except Exception as error:  # of psycopg2
            expect((getattr(error, "pgcode", error), level != LEVELS[0]), (SERIALIZATION, True))
        look.execute("begin isolation level %s; %s" % (level, ask))
        expect(look.fetchone()[0], str(number))
        look.execute("commit")


@on_database
def snapshots(_, server):
    """An older snapshot that lacks the result never runs the work again"""
    first, second = connect(server).cursor(), connect(server).cursor()
    for level in LEVELS[1:]:
        second.execute("begin isolation level %s; select 1 from stile.version" % level)
        complete(first, level, "1")
        expect(run(second, "select stile.once(%s)", level), SERIALIZATION)
        second.execute("rollback")


@on_database
def neighbours(_, server):
    """First callers of different keys neither wait for nor fail each other, at any level"""
    sessions = [connect(server).cursor() for _ in range(8)]
    for level in LEVELS:
        for number, cursor in enumerate(sessions):
            cursor.execute("begin isolation level " + level)
            expect(once(cursor, str(number), scope=level), (True, None))
        for number, cursor in enumerate(sessions):
            cursor.execute("select stile.once_done(%s, '1', %s); commit", (str(number), level))


@on_database
def names(_, server):
    """Keys are bytes: no two parts join, nothing is folded, cut or read as SQL"""
    cursor = connect(server).cursor()
    odd = ["k", "K", "k ", " k", "'; drop table stile.once_key; --", "%s %n", "caf\u00e9", "cafe\u0301",
           "\U0001f980" * 128, "x" * 511 + "'", "a, b", '"', "\\"]
    for key in odd:
        complete(cursor, key, '"%d"' % odd.index(key))
        complete(cursor, "k", '"scope %d"' % odd.index(key), scope=key)
    for scope, key in ("a", "bc"), ("ab", "c"), ("", "abc"):
        complete(cursor, key, '"%s"' % scope, scope=scope)
    for key in odd:
        expect(once(cursor, key), (False, str(odd.index(key))))
        expect(once(cursor, "k", scope=key), (False, "scope %d" % odd.index(key)))
    for bad in "", None, "x" * 513, "\U0001f980" * 129, "a\nb", "\x7f", "\x1b[2J":
        expect(run(cursor, "select stile.once(%s)", bad), MISUSE)
        if bad != "":
            expect(run(cursor, "select stile.once('k', scope => %s)", bad), MISUSE)
    try:
        once(cursor, "a\0b")
        raise AssertionError("a NUL has passed")
    except ValueError:
        pass
    expect(run(cursor, "select stile.once('k', %s)", "f" * 513), MISUSE)


@on_database
def sizes(_, server):
    """A result has at most 1 MiB"""
    cursor = connect(server).cursor()
    largest = '"%s"' % ("x" * (2 ** 20 - 2))
    complete(cursor, "k", largest)
    expect(len(once(cursor, "k")[1]), 2 ** 20 - 2)
    cursor.execute("begin; select stile.once('l')")
    expect(run(cursor, "select stile.once_done('l', %s)", largest[:-1] + 'x"'), MISUSE)
    cursor.execute("rollback")


@on_database
def expiry(_, server):
    """A key whose result has expired runs again, with any fingerprint, for one caller"""
    cursor, look = connect(server).cursor(), connect(server).cursor()
    complete(cursor, "k", "1", keep="1 microsecond", fingerprint="f1")
    cursor.execute("begin")
    expect(once(cursor, "k"), (True, None))
    other = Session(server, look)
    expect(other.send(ASK), False)  # waits for the one that has taken it over
    cursor.execute("select stile.once_done('k', '2'); commit")
    other.answer()
    expect(other.value(), "false2")
    expect(once(cursor, "k"), (False, 2))
    complete(cursor, "l", "1", keep="1 microsecond")
    cursor.execute("begin; select stile.once('l'); rollback; begin")
    expect(once(cursor, "l"), (True, None))
    cursor.execute("rollback; begin; select stile.once('l')")
    expect(run(cursor, "commit"), UNFINISHED)
    for bad in "0", "-1 day", "101 years":
        expect(run(cursor, "select stile.once('k', keep => %s)", bad), MISUSE)
    complete(cursor, "default", "3", keep=None)
    expect(run(cursor, "select expires_at - done_at between '23:59:59' and '24:00:01' from stile.once_key "
                       "where key = 'default'"), True)


@on_database
def pruned(_, server):
    """once_prune() deletes what has expired, so many at a time, and waits for no caller"""
    cursor, taker = connect(server).cursor(), connect(server).cursor()
    for number in range(5):
        complete(cursor, str(number), "1", keep="1 microsecond")
    complete(cursor, "kept", "1")
    taker.execute("begin; select stile.once('0')")
    expect([run(cursor, "select stile.once_prune(3)") for _ in range(3)], [3, 1, 0])
    taker.execute("rollback")
    expect(run(cursor, "select stile.once_prune()"), 1)
    expect(once(cursor, "kept"), (False, 1))
    # One that prunes and is not done yet.
    complete(cursor, "k", "1", keep="1 microsecond")
    taker.execute("begin; select stile.once_prune()")
    other = Session(server, connect(server).cursor())
    other.send("begin")
    expect(other.send(ASK), False)
    taker.execute("commit")
    other.answer()
    expect(other.value(), "true")


@on_database
def rights(_, server):
    """A role needs usage and execute, and cannot touch the table; others can do nothing"""
    owner = connect(server).cursor()
    owner.execute("create role once_app login; create role once_other login; "
                  "grant usage on schema stile to once_app, once_other; "
                  "grant execute on function stile.once, stile.once_done to once_app")
    app = connect(server, "once_app").cursor()
    complete(app, "k", "1", scope="c")
    expect(once(app, "k", scope="c"), (False, 1))
    app.execute("begin; select stile.once('l')")
    expect(run(app, "commit"), UNFINISHED)
    for text in ("select * from stile.once_key", "delete from stile.once_key",
                 "update stile.once_key set result = '2'", "insert into stile.once_key values ('', 'm')",
                 "select stile.once_prune()", "select stile.once_claim('k', '', '', '1 day')",
                 "alter table stile.once_key disable trigger all"):
        expect((text, run(app, text)), (text, "42501"))
    other = connect(server, "once_other").cursor()
    for text in "select stile.once('k')", "select stile.once_done('k', '1')":
        expect(run(other, text), "42501")
    # What a caller's own schemas contain is not used.
    owner.execute("create schema once_app authorization once_app")
    app.execute("create function once_app.clock_timestamp() returns timestamptz language sql as "
                "'select null::timestamptz'; set search_path = once_app, pg_catalog")
    complete(app, "pinned", "1")
    expect(once(app, "pinned"), (False, 1))


@on_database
def installed_again(t, server):
    """once.sql alone, and `stile setup`, may be run again: results and privileges stay"""
    cursor = connect(server).cursor()
    complete(cursor, "k", "1")
    cursor.execute("create role once_kept; grant execute on function stile.once to once_kept")
    for _ in range(2):
        cursor.execute(SCRIPT.read_text(encoding="ascii"))
    expect(once(cursor, "k"), (False, 1))
    expect(run(cursor, "select has_function_privilege('once_kept', 'stile.once(text,text,text,interval)', "
                       "'execute')"), True)
    cursor.execute("drop schema stile cascade")
    cursor.execute(SCRIPT.read_text(encoding="ascii"))
    complete(cursor, "k", "2")
    cursor.execute("drop table stile.once_key cascade")
    url = "postgres://postgres@127.0.0.1:%d/%s" % (server.port, server.name)
    expect(t.stile("setup", "-e", url).returncode, 0)
    complete(cursor, "k", "3")


@on_database
def planted(t, server):
    """What another role has put into the schema before setup is not trusted with the owner's rights"""
    owner = connect(server).cursor()
    url = "postgres://postgres@127.0.0.1:%d/%s" % (server.port, server.name)
    owner.execute("drop schema stile cascade; create role once_evil login; "
                  "grant create on database \"%s\" to once_evil" % server.name)
    connect(server, "once_evil").cursor().execute("create schema stile; create table stile.mine ()")
    for refused in t.stile("setup", "-e", url), t.stile("guard", "install", url):
        expect(refused.returncode, 69)
        assert "belongs to once_evil" in refused.stderr, refused.stderr
    assert "belongs to once_evil" in refusal(owner, SCRIPT.read_text(encoding="ascii")).pgerror
    owner.execute("rollback; alter schema stile owner to postgres")
    expect(t.stile("setup", "-e", url).returncode, 69)  # the table
    owner.execute("drop table stile.mine; grant create on schema stile to once_evil")
    expect(t.stile("setup", "-e", url).returncode, 69)
    owner.execute("revoke create on schema stile from once_evil")
    expect(t.stile("setup", "-e", url).returncode, 0)


def crashed(_):
    """kill -9 of the server: what was committed is there, what was open runs again, and a prepared
    transaction keeps its turn"""
    with PostgresServer("-c", "max_prepared_transactions=2", durable=True) as server:
        cursor = connect(server).cursor()
        cursor.execute(SCRIPT.read_text(encoding="ascii"))
        cursor.execute(PAYMENTS)
        opened = connect(server).cursor()
        opened.execute("begin; select stile.once('open'); insert into payment (key) values ('open')")
        cursor.execute("begin; select stile.once('prepared'); select stile.once_done('prepared', '1')")
        cursor.execute("insert into payment (key) values ('prepared'); prepare transaction 'p'")
        cursor.execute("begin; select stile.once('k'); insert into payment (key) values ('k')")
        cursor.execute("select stile.once_done('k', '1'); commit")
        kill_all(server)
        assert server._run(), server.log  # pylint: disable=protected-access
        cursor = connect(server).cursor()
        expect(once(cursor, "k"), (False, 1))
        waiter = Session(server, connect(server).cursor())
        expect(waiter.send("select run from stile.once('prepared')"), False)
        cursor.execute("commit prepared 'p'")
        waiter.answer()
        expect(waiter.value(), False)
        cursor.execute("select array_agg(key order by key) from payment")
        expect(cursor.fetchone()[0], ["k", "prepared"])
        complete(cursor, "open", "1")


run_tests([stored, waits, bounded, two_keys, fingerprints, unfinished, constraints, savepoints, done_by_others,
           isolation, snapshots, neighbours, names, sizes, expiry, pruned, rights, installed_again, planted, crashed])
