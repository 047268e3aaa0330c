# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The guard of MySQL: the rule, and two sessions one step at a time."""
import MySQLdb

from mysql_guard_kit import (DEADLOCK, FOREIGN, GUARD, LEVELS, MISUSE, STALE, UNGUARDED, MysqlServer,
                             World, expect, in_worlds, refused, run_tests, with_data)

MOST = 2 ** 63 - 1
COLUMN_TOO_LARGE = 1264
CHANGED = 1020
DENIED = 1370
GUARDED = ("START TRANSACTION; CALL stile_guard('r', %d, 'redis:r'); "
           "UPDATE data SET text = '%s' WHERE id = 1; COMMIT;")


# ---- the rule ----

def smaller_is_stale(world):
    """A smaller token is refused, an equal one passes, a larger one passes and is remembered"""
    session = world.session()
    for token in 33, 33, 34, 2 ** 53 + 1, MOST:
        session.begin("accounts", token)
        session.run("COMMIT")
        expect(session.highest("accounts"), (token, ""))
    for _ in range(2):
        session.guard("accounts2", 34, how="stile_guard_raise")
    session.begin()
    said = refused(STALE, session.guard, "accounts2", 33)
    expect(said, "stale token 33 for accounts2: the highest seen is 34")
    expect(session.ask("SELECT @stile_guard_highest"), 34)
    for token in MOST - 1, 2 ** 53, 34, 1:
        refused(STALE, session.guard, "accounts", token)
        refused(STALE, session.guard, "accounts", token, how="stile_guard_strict")
        refused(STALE, session.guard, "accounts", token, how="stile_guard_raise")
    session.run("COMMIT")  # in spite of the refusals
    expect(session.highest("accounts"), (MOST, ""))


def strict_refuses_equal(world):
    """A strict guard refuses an equal token, too"""
    session = world.session()
    session.begin("r", 5, how="stile_guard_strict")
    session.run("COMMIT")
    session.begin()
    expect(refused(STALE, session.guard, "r", 5, how="stile_guard_strict"),
           "stale token 5 for r: the highest seen is 5")
    session.guard("r", 6, "redis:a", how="stile_guard_strict")
    refused(STALE, session.guard, "r", 6, "redis:a", how="stile_guard_strict")
    session.run("COMMIT")
    expect(session.highest("r"), (6, "redis:a"))


def issuers_differ(world):
    """A token of another issuer is refused whatever its number; one without an issuer is compared"""
    session = world.session()
    session.begin("r", 5)
    session.guard("r", 5, "redis:a")  # recorded with an equal token
    session.run("COMMIT")
    expect(session.highest("r"), (5, "redis:a"))
    session.begin()
    for token in 1, 5, 6, MOST:
        for how in "stile_guard", "stile_guard_strict", "stile_guard_raise":
            expect(refused(FOREIGN, session.guard, "r", token, "etcd:a", how=how),
                   "token of etcd:a for r, whose tokens come from redis:a")
    refused(STALE, session.guard, "r", 4, "redis:a")
    refused(STALE, session.guard, "r", 4, None)
    session.guard("r", 6, None)
    session.guard("r", 6, "redis:a")
    session.run("COMMIT")
    expect(session.highest("r"), (6, "redis:a"))
    session.run("CALL stile_guard_reset('r', 2, 'etcd:a')")
    session.begin("r", 2, "etcd:a")
    session.run("COMMIT")
    session.run("CALL stile_guard_reset('r', 0, '')")
    session.begin("r", 1, "zk:a")
    session.run("COMMIT")
    expect(session.highest("r"), (1, "zk:a"))


def names_are_bytes(world):
    """Names are compared byte by byte; long ones are cut in messages, the numbers never"""
    session = world.session()
    names = ["r", "R", "r ", "\u00e9", "e", "n" * 512, "n" * 511, b"\xff\xfe", "\u00e9" * 256]
    for i, name in enumerate(names):
        session.guard(name, MOST - i, "redis:" + "i" * 594, how="stile_guard_raise")
    for i, name in enumerate(names):
        expect(session.highest(name)[0], MOST - i)
        said = refused(STALE, session.guard, name, 9, how="stile_guard_raise")
        assert said.startswith("stale token 9 for ") and said.endswith(" is %d" % (MOST - i)), said
        assert len(said) <= 128, said
        said = refused(FOREIGN, session.guard, name, 9, "\u00e9" * 300, how="stile_guard_raise")
        assert len(said) <= 128, said


def misuse(world):
    """No token, no name, too long a name: refused, and nothing is remembered"""
    session = world.session()
    session.begin()
    for how in "stile_guard", "stile_guard_strict", "stile_guard_raise":
        for resource, token, issuer in (("r", 0, ""), ("r", -1, ""), ("r", None, ""), ("", 1, ""),
                                        (None, 1, ""), ("n" * 513, 1, ""), ("a\x1fb", 1, ""),
                                        ("a\x7f", 1, ""), ("r", 1, "i" * 601), ("r", 1, "a\nb"),
                                        ("r", 1, "\x7f"), ("r", 33.5, ""), ("r", 0.5, "")):
            refused(MISUSE, session.guard, resource, token, issuer, how=how)
        refused(COLUMN_TOO_LARGE, session.guard, "r", MOST + 1, how=how)
    session.run("COMMIT")
    expect(session.ask("SELECT COUNT(*) FROM stile_guard"), 0)


def misuse_of_a_known_resource(world):
    """A fraction is not rounded to a token that passes, and no odd issuer becomes that of a resource"""
    session = world.session()
    session.guard("r", 34, how="stile_guard_raise")
    session.begin()
    for how in "stile_guard", "stile_guard_strict", "stile_guard_raise":
        for token in 33.5, 33.9999, "33.5", "34.4", 35.5, "34.000000000000000000000000000001":
            said = refused(MISUSE, session.guard, "r", token, how=how)
            expect(said, "a token is a whole number from 1 on, not %s" % token)
        for issuer in "a\nb", "\x7f", "i" * 601:
            for token in 34, 35:
                refused(MISUSE, session.guard, "r", token, issuer, how=how)
    refused(MISUSE, session.run, "CALL stile_guard_reset('r', 1.5, '')")
    refused(MISUSE, session.run, "CALL stile_guard_reset('r', 1, 'a\nb')")
    session.run("COMMIT")
    expect(session.highest("r"), (34, ""))
    session.begin("r", "34.0")  # a fraction of nothing is none
    session.run("COMMIT")


def without_transaction(world):
    """A guard that would protect nothing is refused; a raise may stand alone"""
    session = world.session()
    for how in "stile_guard", "stile_guard_strict":
        assert "no transaction" in refused(MISUSE, session.guard, "r", 1, how=how)
    expect(session.ask("SELECT COUNT(*) FROM stile_guard"), 0)
    session.guard("r", 1, how="stile_guard_raise")
    session.run("SET autocommit = 0")
    session.guard("r", 2)
    session.run("ROLLBACK")
    expect(session.highest("r"), (1, ""))


def as_on_mysql(world):
    """The same where the server does not say whether a transaction is open, as MySQL does not"""
    assert "/*M!100003 @@in_transaction = 0 AND */" in GUARD
    other = World(world.server, GUARD.replace("/*M!100003 @@in_transaction = 0 AND */", ""))
    without_transaction(other)
    smaller_is_stale(other)
    strict_refuses_equal(World(world.server, GUARD.replace("/*M!100103 OR REPLACE */", "")))


def run_again(world):
    """guard.sql may be run again, and forgets nothing"""
    session = world.session()
    mode = session.ask("SELECT @@sql_mode")
    session.guard("r", 7, "redis:a", how="stile_guard_raise")
    expect(world.shell(GUARD + "SELECT @@sql_mode = '%s';" % mode).stdout.strip(), "1")
    expect(session.highest("r"), (7, "redis:a"))
    session.begin()
    refused(STALE, session.guard, "r", 6)


def with_few_privileges(world):
    """The privileges that guard.sql names are enough, and without them nothing passes"""
    admin = world.session()
    admin.run("CREATE TABLE accounts (id INT PRIMARY KEY, n INT)")
    admin.run("CREATE USER app@'127.0.0.1'")
    admin.run("GRANT SELECT, INSERT, UPDATE, DELETE ON accounts TO app@'127.0.0.1'")
    app = world.session(user="app")
    app.begin()
    refused(DENIED, app.guard, "r", 1)
    admin.run("GRANT SELECT, INSERT, UPDATE ON stile_guard TO app@'127.0.0.1'")
    admin.run("GRANT SELECT, UPDATE ON stile_guard_floor TO app@'127.0.0.1'")
    admin.run("GRANT EXECUTE ON %s.* TO app@'127.0.0.1'" % world.database)
    app = world.session(user="app")
    for token, how in (1, "stile_guard"), (2, "stile_guard_strict"), (3, "stile_guard_raise"):
        app.begin("r", token, how=how)
        app.run("COMMIT")
    app.begin()
    refused(STALE, app.guard, "r", 2)
    admin.run("DROP USER app@'127.0.0.1'")


def mariadb_by_hand(world):
    """The mariadb client: a script ends at a stale token, and nothing of it is written"""
    text = with_data(world)
    expect(world.shell(GUARDED % (34, "by 34")).returncode, 0)
    done = world.shell(GUARDED % (33, "by 33"))
    expect(done.returncode, 1)
    assert ("ERROR 31001 (SG001) at line 1: stale token 33 for r: the highest seen is 34" in
            done.stderr), done.stderr
    expect(text(), "by 34")
    for statement, state in (("START TRANSACTION; CALL stile_guard('r', 35, 'etcd:r')", "31002 (SG002)"),
                             ("CALL stile_guard_trigger()", "31003 (SG003)"),
                             ("CALL stile_guard_raise('r', 0, '')", "31004 (SG004)")):
        assert state in world.shell(statement).stderr, statement
    expect(world.shell("SELECT resource, token, issuer FROM stile_guards").stdout, "r\t34\tredis:r\n")


# ---- removal ----

def removal_never_reopens(world):
    """A removed resource keeps its highest token, before a prune and after it"""
    session = world.session()
    for name, issuer in ("r", "redis:r"), ("s", ""), ("live", "redis:r"):
        session.guard(name, 50, issuer, how="stile_guard_raise")
    session.run("CALL stile_guard_remove('r')")
    session.run("CALL stile_guard_remove('s')")

    def refuse_late_ones():
        session.begin()
        for name, issuer in ("r", "redis:r"), ("r", ""), ("s", "redis:r"), ("s", ""):
            refused(STALE, session.guard, name, 49, issuer)
            refused(STALE, session.guard, name, 49, issuer, how="stile_guard_raise")
            refused(STALE, session.guard, name, 50, issuer, how="stile_guard_strict")
        session.run("COMMIT")

    refuse_late_ones()
    session.run("CALL stile_guard_prune(1)")  # removed today
    expect(session.ask("SELECT COUNT(*) FROM stile_guard"), 3)
    session.run("UPDATE stile_guard SET removed_at = removed_at - INTERVAL 25 HOUR")
    session.run("CALL stile_guard_prune(1)")
    expect(session.run("SELECT resource FROM stile_guard ORDER BY resource"), ((b"live",), (b"s",)))
    refuse_late_ones()
    refuse_late_ones()  # the first ones may have created the row
    session.guard("r", 50, "redis:r", how="stile_guard_raise")
    session.guard("other", 1, "redis:other", how="stile_guard_raise")  # another lock's tokens
    session.run("CALL stile_guard_remove('live')")
    session.run("CALL stile_guard_remove('r')")
    session.run("CALL stile_guard_prune(0)")
    session.guard("r", 51, "redis:r", how="stile_guard_raise")
    session.run("CALL stile_guard_remove('r')")
    session.run("CALL stile_guard_prune(0)")
    session.begin()
    refused(STALE, session.guard, "r", 50, "redis:r")
    refused(STALE, session.guard, "r", 51, "redis:r", how="stile_guard_strict")


def pruned_under_way(world):
    """A prune beside a late holder: whichever comes first, the late one is refused"""
    for how in "stile_guard", "stile_guard_raise":
        late, admin, remover = world.session(), world.session(), world.session()
        admin.guard("r", 50, "redis:r", how="stile_guard_raise")
        remover.begin()
        remover.run("CALL stile_guard_remove('r')")
        late.begin()
        waiting = world.later(late.guard, "r", 49, "redis:r", how=how).waits()
        pruning = world.later(admin.run, "CALL stile_guard_prune(0)").waits(2)
        remover.run("COMMIT")
        assert waiting.result() in (STALE, DEADLOCK), waiting.error
        late.run("ROLLBACK")
        if pruning.result() == DEADLOCK:
            admin.run("CALL stile_guard_prune(0)")
        expect(admin.ask("SELECT COUNT(*) FROM stile_guard"), 0)
        late.begin()
        refused(STALE, late.guard, "r", 49, "redis:r", how=how)
        late.run("ROLLBACK")
        admin.run("DELETE FROM stile_guard")
        admin.run("UPDATE stile_guard_floor SET token = 0")


# ---- two sessions, one step at a time ----

def interleaved(world, level, at):
    """The holder of 34 raises after the at-th step of 33's transaction, then reads."""
    old, new = world.session(level=level), world.session(level=level)
    old.run("REPLACE INTO data VALUES (1, 'before')")
    old.run("CALL stile_guard_reset('r', 33, '')")
    steps = (lambda: old.run("START TRANSACTION"), lambda: old.guard("r", 33),
             lambda: old.run("SELECT text FROM data WHERE id = 1"),
             lambda: old.run("UPDATE data SET text = 'by 33' WHERE id = 1"),
             lambda: old.run("COMMIT"))
    for step in steps[:at]:
        step()
    new.begin()
    raised = world.later(new.guard, "r", 34)
    if at < 2:  # 33's guard was not called yet
        expect(raised.result(), None)
        new.run("COMMIT")
        old.run("START TRANSACTION")
        refused(STALE, old.guard, "r", 33)
        old.run("ROLLBACK")
    else:
        if at < len(steps):
            raised.waits()
        for step in steps[at:]:
            step()
        expect(raised.result(), None)
        expect(new.ask("SELECT text FROM data WHERE id = 1"), "by 33")  # also in a snapshot
        new.run("COMMIT")
        old.begin()
        refused(STALE, old.guard, "r", 33)
        old.run("ROLLBACK")
    expect(new.ask("SELECT text FROM data WHERE id = 1"), "before" if at < 2 else "by 33")


def at_every_point(world):
    """A new holder at every point of an old one's transaction, on every isolation level"""
    with_data(world)
    for level in LEVELS:
        for at in range(6):
            interleaved(world, level, at)


def old_snapshot(world):
    """A snapshot from before the new holder's raise does not let the old one pass"""
    for setting in "OFF", "ON":  # of servers that refuse to lock what is newer than the snapshot
        for level in LEVELS[:2]:  # SERIALIZABLE has no snapshots
            old, new = world.session(level=level), world.session()
            old.run("SET SESSION innodb_snapshot_isolation = " + setting)
            new.run("CALL stile_guard_reset('r', 33, '')")
            old.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            expect(old.highest("r"), (33, ""))
            new.guard("r", 34, how="stile_guard_raise")
            try:
                old.guard("r", 33)
                raise AssertionError("passed on %s, %s" % (level, setting))
            except MySQLdb.Error as error:
                wanted = (STALE, CHANGED) if setting == "ON" else (STALE,)
                assert error.args[0] in wanted, error
            old.run("ROLLBACK")


def one_holder_in_parallel(world):
    """Transactions with the highest token do not wait for each other"""
    for level in LEVELS:
        world.session().run("CALL stile_guard_reset('r', 33, 'redis:r')")
        sessions = [world.session(level=level) for _ in range(3)]
        for i, session in enumerate(sessions):
            session.run("SET SESSION innodb_lock_wait_timeout = 1")
            session.begin("r", 33, "redis:r" if i else "")
        new = world.session(level=level)
        new.begin()
        raising = world.later(new.guard, "r", 34).waits()
        sessions[0].guard("r", 33)  # once more: it has the lock already
        for session in sessions:
            session.run("COMMIT")
        expect(raising.result(), None)
        new.run("COMMIT")


def two_raise_at_once(world):
    """Two larger tokens at once: the second waits, and nothing passes behind a larger one"""
    for level in LEVELS:
        for how in "stile_guard_strict", "stile_guard_raise":
            for first, second, result in (34, 35, None), (35, 34, STALE):
                world.session().run("CALL stile_guard_reset('r', 33, '')")
                one, two = world.session(level=level), world.session(level=level)
                one.begin("r", first, how=how)
                two.begin()
                waiting = world.later(two.guard, "r", second, how=how).waits()
                one.run("COMMIT")
                expect(waiting.result(), result, (level, how, first))
                two.run("COMMIT")
                expect(two.highest("r"), (35, ""))


def both_shared_before(world):
    """Two holders of the highest token that both raise in the same transaction: one is a deadlock"""
    for level in LEVELS:
        world.session().run("CALL stile_guard_reset('r', 33, '')")
        one, two = world.session(level=level), world.session(level=level)
        one.begin("r", 33)
        two.begin("r", 33)
        waiting = world.later(one.guard, "r", 34).waits()
        results = [None]
        try:
            two.guard("r", 35)
        except MySQLdb.Error as error:
            results = [error.args[0]]
            two.run("ROLLBACK")
        results.append(waiting.result())
        assert sorted(results, key=str) == [DEADLOCK, None], results
        one.run("ROLLBACK")
        two.run("ROLLBACK")


def first_of_a_resource(world):
    """A resource's first two transactions at once: the second waits and is compared"""
    for number, level in enumerate(LEVELS):
        for how in "stile_guard", "stile_guard_strict", "stile_guard_raise":
            for first, second in (1, 2), (2, 1):
                name = "new %d %s %d" % (number, how, first)
                one, two = world.session(level=level), world.session(level=level)
                one.begin(name, first, how=how)
                two.begin()
                waiting = world.later(two.guard, name, second, how=how).waits()
                one.run("COMMIT")
                expect(waiting.result(), None if second > first else STALE, name)
                two.run("COMMIT")
                expect(two.highest(name), (2, ""))


def rolled_back(world):
    """A raise that is rolled back was none, and one that waited for it is not refused"""
    one, two = world.session(), world.session()
    for name in "r", "s":
        if name == "s":
            one.guard(name, 1, how="stile_guard_raise")
        one.begin(name, 9)
        two.begin()
        waiting = world.later(two.guard, name, 8).waits()
        one.run("ROLLBACK")
        expect(waiting.result(), None)
        two.run("COMMIT")
        expect(two.highest(name), (8, ""))


# ---- a table that must not be written without a guard ----

def required(world):
    """A table with triggers refuses writes without a guard, with an old one, and after a refusal"""
    session, other = world.session(), world.session()
    session.run("CREATE TABLE accounts (id INT PRIMARY KEY, n INT)")
    session.run("INSERT INTO accounts VALUES (0, 0)")
    statements = world.shell("CALL stile_guard_required('accounts')").stdout
    expect(statements.count("CREATE TRIGGER"), 3)
    expect(world.shell(statements).stderr, "")
    writes = ("INSERT INTO accounts VALUES (1, 1)", "UPDATE accounts SET n = 5", "DELETE FROM accounts")
    for write in writes:
        refused(UNGUARDED, session.run, write)
    session.begin("r", 33)
    session.run(writes[0])
    session.run("ROLLBACK")
    for write in writes:  # the raise was rolled back with the rest
        refused(UNGUARDED, session.run, write)
    session.begin("r", 33)
    for write in writes:
        session.run(write)
    session.run("ROLLBACK")
    session.begin("r", 33)
    session.run(writes[0])
    session.run("COMMIT")
    other.guard("r", 34, how="stile_guard_raise")
    for write in writes[1:]:  # what the session was told before is checked again
        refused(STALE, session.run, write)
    session.begin()
    refused(STALE, session.guard, "r", 33)
    refused(UNGUARDED, session.run, writes[1])  # in spite of the refusal
    session.run("ROLLBACK")
    for token, code in (33.5, MISUSE), (MOST + 1, COLUMN_TOO_LARGE), (None, MISUSE):
        session.begin()
        refused(code, session.guard, "r", token)
        refused(UNGUARDED, session.run, writes[1])
        session.run("ROLLBACK")
    session.begin("r", "034")  # another spelling of the highest
    session.run(writes[1])
    session.run("ROLLBACK")
    session.begin("r", 34)
    session.run(writes[1])
    raising = world.later(other.guard, "r", 35, how="stile_guard_raise").waits()
    session.run("COMMIT")
    expect(raising.result(), None)


def required_of_any_name(world):
    """The statements fit tables of any name"""
    session = world.session()
    for name in "it's", "back`tick", "n" * 64, "Ta ble":
        session.run("CREATE TABLE `%s` (id INT)" % name.replace("`", "``"))
        for (statement,) in session.run("CALL stile_guard_required(%s)", name):
            session.run(statement)
        refused(UNGUARDED, session.run, "INSERT INTO `%s` VALUES (1)" % name.replace("`", "``"))


with MysqlServer() as SERVER:
    run_tests(in_worlds(SERVER, [
        smaller_is_stale, strict_refuses_equal, issuers_differ, names_are_bytes, misuse,
        misuse_of_a_known_resource,
        without_transaction, as_on_mysql, run_again, with_few_privileges, mariadb_by_hand, removal_never_reopens,
        pruned_under_way, at_every_point, old_snapshot, one_holder_in_parallel, two_raise_at_once,
        both_shared_before, first_of_a_resource, rolled_back, required, required_of_any_name]))
