# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Twenty callers that retry the same payments. Transactions are rolled back in the middle of their work,
connections are dropped, callers are killed with -9 between once and commit, and commits succeed whose
callers never learn of it."""
import multiprocessing
import os
import random
import signal
import time

CALLERS, KEYS = 20, 6
NOT_YET = -1


class Abandoned(Exception):
    """The caller has given up this try, with its connection."""


class Fate:
    """What happens to one try."""

    def __init__(self, dice):
        self.dice = dice

    def working(self):
        """Between once and commit. The work takes a moment, in which others come to wait."""
        time.sleep(self.dice.random() * 0.02)
        if self.dice.random() < 0.7:
            if self.dice.random() < 0.5:
                os.kill(os.getpid(), signal.SIGKILL)
            raise Abandoned

    def committed(self):
        """The answer to the commit is lost."""
        if self.dice.random() < 0.2:
            raise Abandoned


class Storm:
    """pay(where, key, fate): one try, in a connection and a transaction of its own. It returns the
    number of the payment, or None if it has to be repeated."""

    def __init__(self, pay, where):
        self.pay, self.where = pay, where
        self.seed = random.randrange(2 ** 32)
        self.answers = multiprocessing.RawArray("q", [NOT_YET] * (CALLERS * KEYS))
        self.counts = multiprocessing.Array("q", 3)  # tries, repeated, killed

    def count(self, which):
        with self.counts.get_lock():
            self.counts[which] += 1

    def attempt(self, caller, key, dice):
        self.count(0)
        try:
            paid = self.pay(self.where[caller % len(self.where)], "order-%d" % key, Fate(dice))
        except Abandoned:
            paid = None
        if paid is None:
            self.count(1)
        else:
            self.answers[caller * KEYS + key] = paid

    def caller(self, number, life):
        dice = random.Random("%d %d %d" % (self.seed, number, life))
        for key in range(KEYS):
            while self.answers[number * KEYS + key] == NOT_YET:
                self.attempt(number, key, dice)

    def start(self, number, life):
        process = multiprocessing.Process(target=self.caller, args=(number, life))
        process.start()
        return process

    def run(self):
        """For each key the set of answers that the callers got."""
        print("# seed %d" % self.seed)
        lives = [0] * CALLERS
        alive = {number: self.start(number, 0) for number in range(CALLERS)}
        while alive:
            for number, process in list(alive.items()):
                process.join()
                del alive[number]
                if process.exitcode == -signal.SIGKILL:
                    self.count(2)
                    lives[number] += 1
                    alive[number] = self.start(number, lives[number])
                elif process.exitcode:
                    raise AssertionError("a caller has failed")
        print("# %d callers, %d keys: %d tries, of which %d were repeated and %d killed" % (
            CALLERS, KEYS, *self.counts))
        return [set(self.answers[key::KEYS]) for key in range(KEYS)]
