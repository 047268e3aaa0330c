# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Eight processes want one lock while servers are stopped, connections are cut and clocks jump, in a
random order that a seed repeats (STILE_SEED): never two holders, and tokens in the order of grants."""
import contextlib
import os
import random
import select
import subprocess
import time

from grants import check, read_grant
from redis_kit import DURABLE, SOAK, RedisServer, expect, run_tests
from redlock_kit import nothing_left, url_of

CONTEND = os.environ["CONTEND"]
PROCESSES = 8
PATIENT = "?node_timeout=5000"  # a machine that is short of time is no silent node
ROUNDS, TROUBLES = (1000, 200) if SOAK else (60, 12)
SEED = int(os.environ.get("STILE_SEED", "0")) or random.randrange(1, 1 << 32)


def start(t, url):
    env = dict(t.env, STILE_MODULES=os.environ["STILE_MODULES"])
    return [subprocess.Popen([CONTEND, url, "x", str(ROUNDS)], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, env=env, text=True)
            for _ in range(PROCESSES)]


def make_trouble(processes, troubles, dice):
    """One after the other; how long each lasts, and the pause behind it, is part of it."""
    with contextlib.ExitStack() as stack:
        left = [os.pidfd_open(one.pid) for one in processes]
        for fd in left:
            stack.callback(os.close, fd)
        for _ in range(TROUBLES):
            undo = dice.choice(troubles)()
            time.sleep(dice.uniform(0.001, 0.25))
            if undo:
                undo()
            ready, _, _ = select.select(left, [], [], dice.uniform(0.001, 0.25))
            left = [fd for fd in left if fd not in ready]
            if not left:
                return


def contend(t, url, troubles, dice, with_token=True):
    processes = start(t, url)
    try:
        for one in processes:
            first = one.stdout.readline()
            expect(first, "ready\n", "" if first else one.stderr.read())
        make_trouble(processes, troubles, dice)
        grants = []
        for one in processes:
            out, said = one.communicate()
            expect((one.returncode, said), (0, ""))
            grants += map(read_grant, out.splitlines())
    finally:
        for one in processes:
            if one.poll() is None:
                one.kill()
                one.wait()
    print("# seed %d: %d grants" % (SEED, len(grants)))
    assert len(grants) > PROCESSES, grants
    check(grants, with_token)
    t.env["STILE_ENGINE"] = url
    t.env["STILE_MODULES"] = os.environ["STILE_MODULES"]
    expect(t.stile("run", "x", "--", "true").returncode, 0)


# ---- what may happen ----

def stop(servers, dice, most):
    def trouble():
        some = dice.sample(servers, dice.randint(1, most))
        for server in some:
            server.pause()
        return lambda: [server.go_on() for server in some]
    return trouble


def restart(servers, dice):
    def trouble():
        server = dice.choice(servers)
        server.kill()
        return server.restart
    return trouble


def cut(servers, dice):
    def trouble():
        server = dice.choice(servers)
        for kind in "normal", "pubsub":
            server.cli("CLIENT", "KILL", "TYPE", kind)
    return trouble


def jump(servers, dice):
    """Always the same one: a minority."""
    def trouble():
        servers[0].jump(dice.choice([-3600, 0, 3600]))
    return trouble


@contextlib.contextmanager
def servers(number, *args, own_clock=False):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(RedisServer(*args, own_clock=own_clock))
               for _ in range(number)]


# ---- the tests ----

def redis(t):
    """redis: a server that is stopped, killed and restarted with its data; cut connections"""
    dice = random.Random(SEED)
    with servers(1, *DURABLE) as one:
        contend(t, "redis://127.0.0.1:%d" % one[0].port,
                [stop(one, dice, 1), restart(one, dice), cut(one, dice)], dice)
        nothing_left(one)


def redlock(t):
    """redlock: up to three nodes stopped at once, nodes restarted with their data, one wrong clock"""
    dice = random.Random(SEED)
    with servers(5, *DURABLE, own_clock=True) as nodes:
        url = url_of([node.port for node in nodes], PATIENT)
        contend(t, url, [stop(nodes, dice, 3), stop(nodes, dice, 2), restart(nodes, dice),
                         cut(nodes, dice), jump(nodes, dice)], dice)


def redlock_plain(t):
    """redlock without a fence: up to two nodes stopped at once, cut connections"""
    dice = random.Random(SEED)
    with servers(5) as nodes:
        url = url_of([node.port for node in nodes], PATIENT + "&fence=off")
        contend(t, url, [stop(nodes, dice, 2), cut(nodes, dice)], dice, with_token=False)


print("# STILE_SEED=%d" % SEED)
run_tests([redis, redlock, redlock_plain])
