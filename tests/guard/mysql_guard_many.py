# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Eight processes with growing tokens on one resource, and a server that is killed."""
import json
import os
import random
import time

import MySQLdb

from mysql_guard_kit import (DEADLOCK, LEVELS, STALE, MysqlServer, World, expect, in_worlds, refused,
                             run_tests)

PROCESSES, TURNS = 8, 60
KILLS = 3
PAUSE_S = 0.004


# ---- eight processes ----

class Holder:
    """One of the processes: draws tokens, pauses, and writes what a late holder would."""

    def __init__(self, world, number):
        self.session = world.session(level=LEVELS[number % len(LEVELS)])
        self.random = random.Random(number)
        self.told = {"written": [], "raised": [], "stale": 0, "deadlocks": 0}

    def pause(self):
        time.sleep(self.random.random() * PAUSE_S)

    def draw(self):
        self.session.run("UPDATE counter SET n = LAST_INSERT_ID(n + 1)")
        return self.session.ask("SELECT LAST_INSERT_ID()")

    def write(self, token, how):
        self.session.begin("r", token, "redis:r", how=how)
        (saw,) = self.session.run("SELECT token FROM data")[0]
        self.pause()
        self.session.run("UPDATE data SET token = %s", token)
        self.session.run("INSERT INTO history (token, saw) VALUES (%s, %s)", token, saw)
        self.session.run("COMMIT")
        self.told["written"].append(token)

    def turn(self):
        token = self.draw()
        self.pause()
        if self.random.random() < 0.5:
            self.session.guard("r", token, "redis:r", how="stile_guard_raise")
            self.told["raised"].append(token)
        for _ in range(self.random.randint(1, 3)):
            self.write(token, self.random.choice(["stile_guard", "stile_guard", "stile_guard_strict"]))

    def work(self):
        for _ in range(TURNS):
            try:
                self.turn()
            except MySQLdb.Error as error:
                kind = {STALE: "stale", DEADLOCK: "deadlocks"}[error.args[0]]
                self.told[kind] += 1
                self.session.run("ROLLBACK")
        return self.told


def in_process(world, number):
    """Starts a holder. Returns the end of the pipe that says what it was told."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(out)
        try:
            os.write(into, json.dumps(Holder(world, number).work()).encode())
        finally:
            os._exit(0)
    os.close(into)
    return pid, out


def told_by_all(world):
    holders = [in_process(world, number) for number in range(PROCESSES)]
    told = []
    for pid, out in holders:
        with open(out, encoding="ascii") as file:
            text = file.read()
        os.waitpid(pid, 0)
        assert text, "a process has failed"
        told.append(json.loads(text))
    return told


def eight_processes(world):
    """Nothing that a later holder was told is written is overwritten by an earlier one"""
    session = world.session()
    session.run("CREATE TABLE counter (n BIGINT)")
    session.run("INSERT INTO counter VALUES (0)")
    session.run("CREATE TABLE data (token BIGINT)")
    session.run("INSERT INTO data VALUES (0)")
    session.run("CREATE TABLE history (seq BIGINT AUTO_INCREMENT PRIMARY KEY, token BIGINT, saw BIGINT)")
    told = told_by_all(world)
    history = session.run("SELECT token, saw FROM history ORDER BY seq")
    tokens = [token for token, _ in history]
    expect(sorted(token for one in told for token in one["written"]), sorted(tokens))
    expect(tokens, sorted(tokens), "the highest token only grows")
    before = 0
    for i, (token, saw) in enumerate(history):  # each has read what all earlier holders wrote
        before = max([before] + [t for t in tokens[max(0, i - 9):i] if t != token])
        assert before <= saw <= token, history[max(0, i - 9):i + 1]
    passed = tokens + [token for one in told for token in one["raised"]]
    expect(session.highest("r"), (max(passed), "redis:r"))
    stale, deadlocks = (sum(one[kind] for one in told) for kind in ("stale", "deadlocks"))
    print("# %d written, %d stale, %d deadlocks" % (len(tokens), stale, deadlocks))
    assert stale > 0, "too tame to show anything"


# ---- a server that is killed ----

class SyncedServer(MysqlServer):
    """It waits for its disk, as servers do outside of tests."""

    def __init__(self):
        super().__init__("--innodb-flush-log-at-trx-commit=1", "--innodb-flush-method=O_DIRECT",
                         durable=True)

    def _env(self):
        return {**super()._env(), "LD_PRELOAD": os.environ.get("LD_PRELOAD", "")}


def killed(_):
    """After kill -9 right after a guarded commit the highest token is still there"""
    with SyncedServer() as server:
        world = World(server)
        world.session().run("CREATE TABLE data (token BIGINT)")
        for token in range(1, KILLS + 1):
            session = world.session()
            session.begin("r", token, "redis:r")
            session.run("INSERT INTO data VALUES (%s)", token)
            session.run("COMMIT")
            server.kill()
            server.restart()
            session = world.session()
            expect(session.highest("r"), (token, "redis:r"))
            expect(session.ask("SELECT COUNT(*) FROM data"), token)
            if token > 1:
                session.begin()
                refused(STALE, session.guard, "r", token - 1, "redis:r")


with MysqlServer() as SERVER:
    CASES = in_worlds(SERVER, [eight_processes]) + [killed]
    run_tests(CASES)
