# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Eight processes with growing tokens hammer one resource of Redis, with random pauses between check
and write. Half of them call functions, half scripts."""
import os
import random
import time

from redis_guard_kit import FORMS, RedisServer, connect, expect, load_all, run_tests

PROCESSES, ROUNDS, PAUSE_S = 8, 150, 0.004
G, LOG, LATEST = "stile:guard:{r}", "{r}:log", "{r}:latest"
COUNTER = "{r}:counter"


def hammer(server, number, report):
    """Takes a token, checks it, pauses, writes; reports each token with its fate."""
    draw, client = random.Random(number), connect(server)
    guard = FORMS[number % len(FORMS)](client)
    for _ in range(ROUNDS):
        token = client.incr(COUNTER)
        refused = isinstance(guard.call("check", [G], token, "redis:r"), str)
        time.sleep(draw.random() * PAUSE_S)
        for again in range(draw.randint(1, 3)):  # a holder writes more than once
            value = "%d.%d" % (token, again)
            reply = guard.call("run", [G, LOG, LATEST], token, "redis:r",
                               3, "RPUSH", LOG, value, 3, "SET", LATEST, value)
            passed = isinstance(reply, list)
            assert not (refused and passed), "what a check refuses can never pass again"
            assert passed or reply.startswith("-STALE "), reply
            report.write("%s %d\n" % (value, passed))


def start(server, number, path):
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        with open(path, "w", encoding="ascii") as report:
            hammer(server, number, report)
        status = 0
    finally:
        os._exit(status)


def token_of(value):
    return int(value.split(".")[0])


def nothing_is_overwritten(t):
    """the highest token only grows, and no earlier holder writes behind a later one"""
    with RedisServer() as server:
        client = load_all(server)
        paths = [t.path(str(number)) for number in range(PROCESSES)]
        pids = [start(server, number, path) for number, path in enumerate(paths)]
        highest = [0]
        while client.llen(LOG) < 100:
            highest.append(int(client.hget(G, "token") or 0))
        for pid in pids:
            expect(os.waitpid(pid, 0)[1], 0)
        highest.append(int(client.hget(G, "token")))
        expect(highest, sorted(highest))
        log = [value.decode() for value in client.lrange(LOG, 0, -1)]
        fates = {}
        for path in paths:
            with open(path, encoding="ascii") as report:
                fates.update(line.split() for line in report)
        tokens = [token_of(value) for value in log]
        expect(tokens, sorted(tokens))
        expect(sorted(log), sorted(value for value, passed in fates.items() if passed == "1"))
        expect(client.get(LATEST).decode(), log[-1])
        expect(client.hgetall(G), {b"token": str(tokens[-1]).encode(), b"issuer": b"redis:r"})
    refused = len(fates) - len(log)
    print("# %d written, %d refused" % (len(log), refused))
    assert refused > ROUNDS, "the processes did not get in one another's way"


if __name__ == "__main__":
    run_tests([nothing_is_overwritten])
