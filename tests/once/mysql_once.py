# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""stile_once in MariaDB: the first caller runs, others wait for its commit and get its result."""
import signal

import MySQLdb

from mysql_once_kit import (DEADLOCK, DENIED, LEVELS, MISUSE, OTHER, PAYMENTS, SCRIPT, UNFINISHED, WAITED,
                            MysqlServer, World, asked, complete, done, expect, in_worlds, once, refused,
                            run_tests)


def expire(session, key):
    session.run("UPDATE stile_once_key SET expires_at = UTC_TIMESTAMP(6) WHERE once_key = %s", key)


def stored(world):
    """The first caller runs; later ones get its result, which may be NULL"""
    session = world.session()
    complete(session, "k", '{"to": "caf\u00e9 \U0001f980"}')
    expect(asked(session, "k"), (0, '{"to": "caf\u00e9 \U0001f980"}'))
    complete(session, "none", None)
    expect(asked(session, "none"), (0, None))
    session.begin()
    expect(once(session, "own"), (1, None))
    done(session, "own", "1")
    expect(once(session, "own"), (0, "1"))  # in the same transaction, too
    session.run("ROLLBACK")
    expect(asked(session, "own"), (1, None))


def waiting(world, key, level=None, **how):
    """A caller that waits, and the list of what it gets."""
    got = []

    def ask():
        session = world.session(level=level)
        session.begin()
        got.extend(once(session, key, **how))
        session.run("COMMIT")
    return world.later(ask).waits(), got


def waits(world):
    """A caller waits for the first one's end, at every level: a commit gives it the result, a rollback
    the turn"""
    for level in LEVELS:
        first = world.session(level=level)
        first.begin()
        expect(once(first, level), (1, None))
        later, got = waiting(world, level, level)
        done(first, level, "7")
        first.run("COMMIT")
        expect((later.result(), got), (None, [0, "7"]))
        first.begin()
        once(first, level + "2")
        later, got = waiting(world, level + "2", level)
        first.run("ROLLBACK")
        expect((later.result(), got), (None, [1, None]))


def killed(world):
    """A first caller that is killed passes the turn on"""
    first = world.session()
    first.begin()
    once(first, "k")
    later, got = waiting(world, "k")
    world.session().run("KILL %d" % first.connection.thread_id())
    expect((later.result(), got), (None, [1, None]))


def bounded(world):
    """innodb_lock_wait_timeout limits the wait"""
    first, second = world.session(), world.session()
    first.begin()
    once(first, "k")
    second.run("SET innodb_lock_wait_timeout = 1")
    second.begin()
    refused(WAITED, once, second, "k")
    second.run("ROLLBACK")


def two_keys(world):
    """Two transactions with two keys in opposite order: one is a deadlock, the other runs both"""
    one, two = world.session(), world.session()
    for session, key in (one, "a"), (two, "b"):
        session.begin()
        once(session, key)
    later = world.later(once, one, "b").waits()
    try:
        expect(once(two, "a"), (1, None))
        expect(later.result(), DEADLOCK)
    except MySQLdb.Error as error:
        expect((error.args[0], later.result()), (DEADLOCK, None))


def interrupted(world):
    """A wait that KILL QUERY has ended may be repeated in the same transaction"""
    first, second = world.session(), world.session()
    for session in first, second:
        session.begin()
    once(first, "k")
    later = world.later(once, second, "k").waits()
    world.session().run("KILL QUERY %d" % second.connection.thread_id())
    expect(later.result(), 1317)
    done(first, "k", "1")
    first.run("COMMIT")
    expect(once(second, "k"), (0, "1"))


def snapshots(world):
    """A snapshot that lacks the result gets it all the same; a SELECT after a wait sees what was
    committed before"""
    for level in LEVELS:
        old, first = world.session(level=level), world.session(level=level)
        old.begin()
        if level != "SERIALIZABLE":  # there a SELECT would keep others from inserting
            old.run("SELECT COUNT(*) FROM payment")
        complete(first, level, "1")
        expect(once(old, level), (0, "1"))
        old.run("ROLLBACK")
        first.begin()
        once(first, level + "2")
        seen = []

        def second(level=level, seen=seen):
            session = world.session(level=level)
            session.begin()
            once(session, level + "2")
            seen.append(session.ask("SELECT COUNT(*) FROM payment WHERE once_key = %s", level))
            session.run("COMMIT")
        later = world.later(second).waits()
        first.run("INSERT INTO payment (once_key) VALUES (%s)", level)
        done(first, level + "2", "1")
        first.run("COMMIT")
        expect((later.result(), seen), (None, [1]))


def fingerprints(world):
    """Another fingerprint is refused; none counts as one"""
    session = world.session()
    complete(session, "k", "1", fingerprint="f1")
    session.begin()
    expect(refused(OTHER, once, session, "k", "f2"),
           "stile_once k was used with another fingerprint: a new request needs a new key")
    for other in "F1", "", None:
        refused(OTHER, once, session, "k", other)
    session.run("ROLLBACK")
    expect(asked(session, "k", fingerprint="f1"), (0, "1"))
    complete(session, "without", "2")
    for none in None, "":
        expect(asked(session, "without", fingerprint=none), (0, "2"))
    long = "\U0001f980" * 128
    complete(session, long, "1", fingerprint="f1")
    session.begin()
    assert len(refused(OTHER, once, session, long, "f2")) < 128


def unfinished(world):
    """A commit without a result is not refused here, but the key is, until a person looks at it"""
    session, other = world.session(), world.session()
    session.begin()
    once(session, "k")
    expect(refused(UNFINISHED, once, session, "k"),
           "stile_once k has no result: CALL stile_once_done before the COMMIT of its work")
    session.run("COMMIT")
    for later in session, other:
        later.begin()
        refused(UNFINISHED, once, later, "k")
        later.run("ROLLBACK")
    other.begin()
    refused(MISUSE, done, other, "k", "1")
    other.run("ROLLBACK")
    other.run("DELETE FROM stile_once_key WHERE once_key = 'k'")
    complete(other, "k", "1")


def done_by_others(world):
    """Only the transaction that runs stores a result, and only one"""
    session, other = world.session(), world.session()
    complete(session, "k", "1")
    session.begin()
    once(session, "k")
    refused(MISUSE, done, session, "k", "2")
    session.run("ROLLBACK")
    session.begin()
    expect(refused(MISUSE, done, session, "n", "2"),
           "stile_once n was not called first in this transaction, or was not told to run")
    once(session, "n")
    refused(MISUSE, done, session, "n", "2", "c")
    done(session, "n", "1")
    refused(MISUSE, done, session, "n", "2")
    session.run("ROLLBACK")
    expect(asked(other, "k"), (0, "1"))


def without_transaction(world):
    """A call that would be a transaction of its own is refused; autocommit = 0 opens one"""
    session = world.session()
    expect(refused(MISUSE, once, session, "k"), "no transaction is open: START TRANSACTION first")
    expect(session.ask("SELECT COUNT(*) FROM stile_once_key"), 0)
    session.run("SET autocommit = 0")
    expect(once(session, "k"), (1, None))
    done(session, "k", "1")
    session.run("COMMIT")
    expect(asked(world.session(), "k"), (0, "1"))


def names(world):
    """Keys are bytes: no two parts join, nothing is folded, cut or read as SQL"""
    session = world.session()
    odd = ["k", "K", "k ", " k", "'; DROP TABLE stile_once_key; --", "%s %n", "caf\u00e9", "cafe\u0301",
           "\U0001f980" * 128, "x" * 511 + "'", "a, b", '"', "\\"]
    for number, key in enumerate(odd):
        complete(session, key, str(number))
        complete(session, "k", "scope %d" % number, scope=key)
    for scope, key in ("a", "bc"), ("ab", "c"), ("", "abc"):
        complete(session, key, scope, scope=scope)
    for number, key in enumerate(odd):
        expect(asked(session, key), (0, str(number)))
        expect(asked(session, "k", scope=key), (0, "scope %d" % number))
    session.begin()
    for bad in "", None, "x" * 513, "\U0001f980" * 129, "a\nb", "\x7f", "\x1b[2J", "a\0b":
        refused(MISUSE, once, session, bad)
        if bad != "":
            refused(MISUSE, once, session, "k", scope=bad)
    refused(MISUSE, once, session, "k", "f" * 513)
    refused(MISUSE, once, session, "k", keep_s=0)


def sizes(world):
    """A result has at most 1 MiB"""
    session = world.session()
    complete(session, "k", "x" * 2 ** 20)
    expect(len(asked(session, "k")[1]), 2 ** 20)
    session.begin()
    once(session, "l")
    refused(MISUSE, done, session, "l", "x" * (2 ** 20 + 1))


def expiry(world):
    """A key whose result has expired runs again, with any fingerprint, for one caller"""
    session, other = world.session(), world.session()
    complete(session, "k", "1", fingerprint="f1")
    expire(other, "k")
    session.begin()
    expect(once(session, "k"), (1, None))
    later, got = waiting(world, "k")
    done(session, "k", "2")
    session.run("COMMIT")
    expect((later.result(), got), (None, [0, "2"]))
    complete(session, "short", "1", keep_s=1)
    complete(session, "default", "1")
    expect(session.run("SELECT once_key, TIMESTAMPDIFF(SECOND, done_at, expires_at) FROM stile_once_key "
                       "ORDER BY 1"), ((b"default", 86400), (b"k", 86400), (b"short", 1)))


def taken_over_by_two(world):
    """Two that take over an expired key at the same time: one runs, the other is a deadlock"""
    one, two = world.session(), world.session()
    complete(one, "k", "1")
    expire(one, "k")
    one.begin()
    one.run("SELECT 1 FROM stile_once_key LOCK IN SHARE MODE")  # as far as stile_once is by then
    later, got = waiting(world, "k")
    try:
        once(one, "k")
        done(one, "k", "2")
        one.run("COMMIT")
        expect(later.result(), DEADLOCK)
    except MySQLdb.Error as error:
        expect((error.args[0], later.result(), got), (DEADLOCK, None, [1, None]))


def pruned(world):
    """stile_once_prune deletes what has expired, so many at a time"""
    session = world.session()
    for key in "abcd":
        complete(session, key, "1")
        expire(session, key)
    complete(session, "kept", "1")
    expect([session.ask("CALL stile_once_prune(3)") for _ in range(3)], [3, 1, 0])
    expect(asked(session, "kept"), (0, "1"))


def rights(world):
    """A user needs EXECUTE, and cannot touch the table"""
    root = world.session()
    root.run("CREATE USER app")
    for name in "stile_once", "stile_once_done":
        root.run("GRANT EXECUTE ON PROCEDURE %s TO app" % name)
    app = world.session(user="app")
    complete(app, "k", "1", scope="c")
    expect(asked(app, "k", scope="c"), (0, "1"))
    for text, code in (("SELECT * FROM stile_once_key", 1142), ("DELETE FROM stile_once_key", 1142),
                       ("UPDATE stile_once_key SET result = '2'", 1142), ("CALL stile_once_prune(1)", DENIED)):
        refused(code, app.run, text)
    root.run("CREATE USER other")
    root.run("GRANT SELECT ON stile_once_key TO other")
    other = world.session(user="other")
    other.begin()
    refused(DENIED, once, other, "k", scope="c")


def installed_again(world):
    """once.sql may be run again: results and privileges stay"""
    session = world.session()
    complete(session, "k", "1")
    expect(world.shell(SCRIPT).returncode, 0)
    expect(asked(session, "k"), (0, "1"))


def in_procedures(world):
    """A procedure of the user's own gets run and result in variables"""
    session = world.session()
    session.begin()
    session.run("CALL stile_once_begin('k', NULL, '', 60, @run, @result)")
    expect(session.run("SELECT @run, @result"), ((1, None),))
    done(session, "k", "1")
    session.run("CALL stile_once_begin('k', NULL, '', 60, @run, @result)")
    expect(session.run("SELECT @run, @result"), ((0, "1"),))


def crashed(_):
    """kill -9 of the server: what was committed is there, and what was open runs again"""
    with MysqlServer(durable=True) as server:
        world = World(server, SCRIPT)
        session, opened = world.session(), world.session()
        session.run(PAYMENTS)
        opened.begin()
        once(opened, "open")
        opened.run("INSERT INTO payment (once_key) VALUES ('open')")
        session.begin()
        once(session, "k")
        session.run("INSERT INTO payment (once_key) VALUES ('k')")
        done(session, "k", "1")
        session.run("COMMIT")
        server.kill(signal.SIGKILL)
        assert server._run(), server.log  # pylint: disable=protected-access
        session = world.session()
        expect(asked(session, "k"), (0, "1"))
        expect(session.run("SELECT once_key FROM payment"), (("k",),))
        complete(session, "open", "2")


def with_setup(t):
    """`stile setup` creates the procedures, also where an earlier version has run it"""
    with MysqlServer() as server:
        for _ in range(2):
            expect(t.stile("setup", "-e", server.url).returncode, 0)
            server.sql("START TRANSACTION; CALL stile_once('k', NULL, '', NULL); "
                       "CALL stile_once_done('k', '1', ''); COMMIT")
            server.sql("DROP PROCEDURE stile_once; DROP TABLE stile_once_key")


def main():
    with MysqlServer() as server:
        def world(_):
            made = World(server, SCRIPT)
            made.session().run(PAYMENTS)
            return made
        cases = [stored, waits, killed, bounded, two_keys, interrupted, snapshots, fingerprints, unfinished,
                 done_by_others, without_transaction, names, sizes, expiry, taken_over_by_two, pruned, rights,
                 installed_again, in_procedures]
        run_tests(in_worlds(server, cases, world) + [crashed, with_setup])


main()
