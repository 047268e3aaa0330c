# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A mixed crowd on one key: ours, redis-py and node-redlock, each of which takes it again as soon as
it has given it back. Ours stand in a queue, the others poll, and nobody starves. Prints how often
each had it; with STILE_SOAK set for longer, and then nobody may be below a tenth of the mean."""
import collections
import os
import pathlib
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE.parent / "cli"), str(HERE.parent / "servers")]
from kit import run_tests  # noqa: E402
from redis_server import RedisServer, die_with_parent  # noqa: E402

PACKAGES = os.environ.get("STILE_NPM", "")
PATIENCE_S, SOAK_S = 120, 60
ENOUGH = 5  # times that each must have had it
HOLD_MS = 10

REDIS_PY = """
import sys, time, redis
client = redis.Redis(port=int(sys.argv[1]))
while True:
    with client.lock("x", timeout=10, sleep=float(sys.argv[2])):
        print("in", flush=True)
        time.sleep(%f)
""" % (HOLD_MS / 1000)


class Crowd:
    def __init__(self, server):
        self.server, self.processes = server, []
        self.counts, self.names = collections.Counter(), []

    def add(self, name, command, **how):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                   preexec_fn=die_with_parent, **how)
        name = "%s %d" % (name, len(self.processes) + 1)
        self.processes.append(process)
        self.names.append(name)
        threading.Thread(target=self.count, args=(name, process), daemon=True).start()
        return process

    def count(self, name, process):
        for line in process.stdout:
            self.counts[name] += line != b"ready\n"

    def ours(self):
        looks = HOLD_MS * 5 + 1  # five in a millisecond
        asan = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"  # stdbuf preloads
        self.add("stile", ["stdbuf", "-oL", os.environ["CONTEND"], "redis://127.0.0.1:%d?prefix="
                           % self.server.port, "x", "1000000", str(looks)],
                 env={**os.environ, "ASAN_OPTIONS": asan})

    def redis_py(self, pause):
        self.add("redis-py", [sys.executable, "-c", REDIS_PY, str(self.server.port), str(pause)])

    def redlock(self, version):
        process = self.add("redlock", ["node", str(HERE / "npm" / "redlock.js"), PACKAGES, version,
                                       str(self.server.port)], stdin=subprocess.PIPE)
        process.stdin.write(b"loop x 10000 %d\n" % HOLD_MS)
        process.stdin.flush()

    def least(self):
        return min(self.counts[name] for name in self.names)

    def mean(self):
        return sum(self.counts.values()) / len(self.names)

    def say(self):
        print("# mean %.0f; %s" % (self.mean(), ", ".join(
            "%s: %d" % (name, self.counts[name]) for name in self.names)))

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()


def mixed(t, ours, others):
    with RedisServer() as server:
        crowd = Crowd(server)
        began = time.monotonic()
        try:
            for _ in range(ours):
                crowd.ours()
            others(crowd)
            while crowd.least() < ENOUGH or os.environ.get("STILE_SOAK") and \
                    time.monotonic() - began < SOAK_S:
                assert time.monotonic() - began < PATIENCE_S, crowd.counts
                time.sleep(0.05)
        finally:
            crowd.end()
            crowd.say()
        if os.environ.get("STILE_SOAK"):
            assert crowd.least() >= crowd.mean() / 10


def one_of_ours(t):
    """One of ours among two of redis-py"""
    mixed(t, 1, lambda crowd: [crowd.redis_py(0.02) for _ in range(2)])


def a_queue_of_ours(t):
    """Four of ours, whose queue never runs dry, and two of redis-py"""
    mixed(t, 4, lambda crowd: [crowd.redis_py(0.05) for _ in range(2)])


def a_slow_one(t):
    """Three of ours, and one of redis-py that tries again after 300 ms: gaps are long enough for it"""
    mixed(t, 3, lambda crowd: crowd.redis_py(0.3))


def an_unequal_pair(t):
    """Two of ours, and two of redis-py of which one tries six times as often as the other"""
    mixed(t, 2, lambda crowd: [crowd.redis_py(pause) for pause in (0.05, 0.3)])


def all_kinds(t):
    """Three of ours, one of redis-py, redlock 4 and redlock 5, at the pace that each has by default"""
    def others(crowd):
        crowd.redis_py(0.1)
        crowd.redlock("4")
        crowd.redlock("5")
    mixed(t, 3, others)


WITH_NODE = [all_kinds] if os.path.exists(os.path.join(PACKAGES, ".installed")) else []
run_tests([one_of_ours, a_queue_of_ours, a_slow_one, an_unequal_pair, *WITH_NODE])
