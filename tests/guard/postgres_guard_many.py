# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Eight processes with growing tokens on one resource, with random pauses between guard and write."""
import multiprocessing
import random
import time

import psycopg2

from postgres_guard_kit import (SERIALIZATION, STALE, address, connect, expect, on_database, run,
                                run_tests, seen)

PROCESSES, HOLDERS, WRITES = 8, 25, 3
LEVELS = "read committed", "read committed", "repeatable read", "serializable"


class Shared:
    """What all processes see: the next token, the largest that was acknowledged, what went wrong."""

    def __init__(self):
        self.tokens, self.acknowledged = multiprocessing.Value("q", 0), multiprocessing.Value("q", 0)
        self.counts = multiprocessing.Array("i", 3)  # done, refused, wrong

    def next_token(self):
        with self.tokens.get_lock():
            self.tokens.value += 1
            return self.tokens.value

    def acknowledge(self, token):
        with self.acknowledged.get_lock():
            self.acknowledged.value = max(self.acknowledged.value, token)

    def count(self, which):
        with self.counts.get_lock():
            self.counts[which] += 1


DONE, REFUSED, WRONG = range(3)


def write(cursor, token, level, pause_s):
    """The value that was replaced, or the SQLSTATE of a refusal."""
    try:
        cursor.execute("begin isolation level %s; select stile.guard('x', %d)" % (level, token))
        time.sleep(pause_s)
        cursor.execute("update doc set v = %s from (select v as old from doc) o returning o.old",
                       (token,))
        old = cursor.fetchone()[0]
        cursor.execute("commit")
        return old
    except psycopg2.Error as error:
        cursor.execute("rollback")
        return error.pgcode


def hold(cursor, shared, dice):
    """One holder: some writes with one token, until it is refused."""
    token, level = shared.next_token(), dice.choice(LEVELS)
    for _ in range(WRITES):
        old = SERIALIZATION
        while old == SERIALIZATION:
            old = write(cursor, token, level, dice.choice((0, 0.001, 0.01)))
        if old == STALE:
            shared.count(REFUSED)
            return
        shared.count(DONE if isinstance(old, int) and old <= token else WRONG)
        shared.acknowledge(token)
        least = shared.acknowledged.value
        if run(cursor, "select v from doc") < least or seen(cursor, "x")[0] < least:
            shared.count(WRONG)


def hammer(where, shared, seed):
    dice = random.Random(seed)
    connection = psycopg2.connect(**where)
    connection.autocommit = True
    for _ in range(HOLDERS):
        hold(connection.cursor(), shared, dice)


@on_database
def many(_, server):
    """The highest token only grows, and no earlier holder overwrites what a later one has written"""
    cursor = connect(server).cursor()
    cursor.execute("create table doc (v bigint); insert into doc values (0)")
    shared, seed = Shared(), random.randrange(2 ** 32)
    print("# seed %d" % seed)
    processes = [multiprocessing.Process(target=hammer, args=(address(server), shared, seed + n))
                 for n in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    expect([process.exitcode for process in processes], [0] * PROCESSES)
    done, refused, wrong = shared.counts
    print("# %d writes, %d holders were refused" % (done, refused))
    expect(wrong, 0)
    assert done > HOLDERS and refused > PROCESSES, (done, refused)
    expect(seen(cursor, "x")[0], shared.acknowledged.value)
    expect(run(cursor, "select v from doc"), shared.acknowledged.value)


run_tests([many])
