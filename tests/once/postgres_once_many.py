# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""stile.once() under twenty callers that retry, straight and through pgbouncer; the same retries without
it pay twice."""
import contextlib

import psycopg2

from postgres_once_kit import (PAYMENTS, SERIALIZATION, Database, PgBouncer, address, connect, expect,
                               on_database, run_tests, shared_server)
from storm import CALLERS, KEYS, Storm

REPEAT = SERIALIZATION, "40P01"


def transaction(where, work):
    """What work(cursor) returns; None: the transaction has to be repeated."""
    with contextlib.closing(psycopg2.connect(**where["address"])) as connection:
        connection.set_session(isolation_level=where["level"])
        try:
            return work(connection, connection.cursor())
        except psycopg2.Error as error:
            if error.pgcode not in REPEAT:
                raise
            return None


def charge(cursor, key):
    cursor.execute("insert into payment (key, amount) values (%s, 5) returning id", (key,))
    return cursor.fetchone()[0]


def pay_once(where, key, fate):
    def work(connection, cursor):
        cursor.execute("select run, result from stile.once(%s, 'f', 'customer 4')", (key,))
        run, result = cursor.fetchone()
        if run:
            result = {"payment": charge(cursor, key)}
            fate.working()
            cursor.execute("select stile.once_done(%s, jsonb_build_object('payment', %s), 'customer 4')",
                           (key, result["payment"]))
        connection.commit()
        fate.committed()
        return result["payment"]
    return transaction(where, work)


def pay(where, key, fate):
    def work(connection, cursor):
        number = charge(cursor, key)
        fate.working()
        connection.commit()
        fate.committed()
        return number
    return transaction(where, work)


def payments(cursor):
    cursor.execute("select count(*), count(distinct key) from payment")
    return cursor.fetchone()


def stormed(server, pay_one):
    """The answers of all callers, half of them behind a pooler with fewer sessions, at all levels."""
    with PgBouncer(shared_server()) as pooler:
        places = server, Database(pooler.port, server.name)
        return Storm(pay_one, [{"address": address(place), "level": level} for place in places for level in
                               ("READ COMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")]).run()


@on_database
def many(_, server):
    """Each key is paid once, and every caller gets the number of that payment"""
    cursor = connect(server).cursor()
    cursor.execute(PAYMENTS)
    answers = stormed(server, pay_once)
    expect(payments(cursor), (KEYS, KEYS))
    cursor.execute("select id from payment order by key")
    expect(answers, [{row[0]} for row in cursor.fetchall()])
    expect(len(set.union(*answers)), KEYS)


@on_database
def without(_, server):
    """Without once, the same retries pay more than once"""
    cursor = connect(server).cursor()
    cursor.execute(PAYMENTS)
    stormed(server, pay)
    paid, keys = payments(cursor)
    print("# without once: %d payments for %d keys" % (paid, keys))
    assert paid >= CALLERS * KEYS, paid


run_tests([many, without])
