# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""stile_once under twenty callers that retry; the same retries without it pay twice."""
import contextlib

import MySQLdb

from mysql_once_kit import (DEADLOCK, LEVELS, PAYMENTS, SCRIPT, WAITED, MysqlServer, World, expect,
                            in_worlds, run_tests)
from storm import CALLERS, KEYS, Storm

REPEAT = DEADLOCK, WAITED


def transaction(where, work):
    """What work(session) returns; None: the transaction has to be repeated."""
    session = where["world"].session(level=where["level"])
    with contextlib.closing(session.connection):
        try:
            session.begin()
            return work(session)
        except MySQLdb.Error as error:
            if error.args[0] not in REPEAT:
                raise
            if error.args[0] == DEADLOCK:
                where["deadlock"]()
            return None


def charge(session, key):
    session.run("INSERT INTO payment (once_key) VALUES (%s)", key)
    return session.ask("SELECT LAST_INSERT_ID()")


def pay_once(where, key, fate):
    def work(session):
        run, result = session.run("CALL stile_once(%s, 'f', 'customer 4', NULL)", key)[0]
        if run:
            result = str(charge(session, key))
            fate.working()
            session.run("CALL stile_once_done(%s, %s, 'customer 4')", key, result)
        session.run("COMMIT")
        fate.committed()
        return int(result)
    return transaction(where, work)


def pay(where, key, fate):
    def work(session):
        number = charge(session, key)
        fate.working()
        session.run("COMMIT")
        fate.committed()
        return number
    return transaction(where, work)


def stormed(world, pay_one):
    deadlocks = Storm(pay_one, [])  # its counter is shared by all callers
    storm = Storm(pay_one, [{"world": world, "level": level, "deadlock": lambda: deadlocks.count(0)}
                            for level in LEVELS])
    answers = storm.run()
    print("# %d deadlocks" % deadlocks.counts[0])
    return answers


def many(world):
    """Each key is paid once, and every caller gets the number of that payment"""
    session = world.session()
    session.run(PAYMENTS)
    answers = stormed(world, pay_once)
    rows = session.run("SELECT id FROM payment ORDER BY once_key")
    expect(answers, [{row[0]} for row in rows])
    expect((len(rows), len(set.union(*answers))), (KEYS, KEYS))


def without(world):
    """Without once, the same retries pay more than once"""
    session = world.session()
    session.run(PAYMENTS)
    stormed(world, pay)
    paid, keys = session.run("SELECT COUNT(*), COUNT(DISTINCT once_key) FROM payment")[0]
    print("# without once: %d payments for %d keys" % (paid, keys))
    assert paid >= CALLERS * KEYS, paid


def main():
    with MysqlServer() as server:
        run_tests(in_worlds(server, [many, without], lambda server: World(server, SCRIPT)))


main()
