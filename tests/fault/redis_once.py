# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""stile once while runners die and stop, requests get lost, and clocks differ."""
import calendar
import json
import os
import signal
import struct
import subprocess
import time

from redis_kit import RedisServer, expect, on_server, run_tests, signal_all, through, use, with_proxy
from kit import children
from proxy import LOSE_REPLY, LOSE_REQUEST

HOSTS, SLOT = 20, 60
SAYING = "echo $STILE_TOKEN; cat"  # and ends with its stdin


def begin(t, *options):
    """A runner of the key k whose command has begun."""
    running = t.start("once", "--ttl", "1s", *options, "k", "--", "sh", "-c", SAYING, stdin=subprocess.PIPE)
    running.token = int(running.line())
    return running


def finish(running):
    running.process.stdin.close()
    return running.wait(), running.err.end()


def again(t, *words):
    """The output of a caller that runs it, if it does: its token."""
    done = t.stile("once", *words, "k", "--", "sh", "-c", "echo $STILE_TOKEN")
    expect(done.returncode, 0, done.stderr)
    return int(done.stdout)


def state(t):
    return json.loads(t.stile("once", "--show", "--json", "k").stdout)["state"]


# ---- runners ----

@on_server()
def stopped(t, server):
    """A runner that is stopped past its lease is replaced; continued, it exits with 76, and the newer result stays"""
    running = begin(t)
    pids = [*children(running.warden()), running.warden()]  # continued first, the warden ends the others
    signal_all(pids, signal.SIGSTOP)
    token = again(t)
    assert token > running.token
    signal_all(pids, signal.SIGCONT)
    code, said = finish(running)
    expect(code, 76, said)
    expect(again(t), token)


@on_server()
def killed(t, server):
    """A runner whose processes are all killed is replaced when its lease is over"""
    running = begin(t)
    pids = [running.pid, running.warden(), *children(running.warden())]
    signal_all(pids, signal.SIGSTOP)
    signal_all(pids, signal.SIGKILL)
    running.wait()
    expect(state(t), "running")
    assert again(t) > running.token
    expect(state(t), "done")


# ---- lost requests and answers ----

@with_proxy()
def beginning(t, server, proxy):
    """The record of a beginning is in doubt: it is read again, and the command runs once"""
    for action in LOSE_REQUEST, LOSE_REPLY:
        rule = proxy.once("cell_put", action)
        with through(t, proxy):
            token = again(t)
        rule.hit()
        expect(again(t), token)
        expect(t.stile("once", "--forget", "k").returncode, 0)


@with_proxy()
def result(t, server, proxy):
    """The result is in doubt: it is stored once, and its runner knows"""
    for action in LOSE_REQUEST, LOSE_REPLY:
        with through(t, proxy):
            running = begin(t)
        rule = proxy.once("cell_put", action)
        expect(finish(running), (0, ""))
        rule.hit()
        expect(again(t), running.token)
        expect(t.stile("once", "--forget", "k").returncode, 0)


@with_proxy()
def result_unread(t, server, proxy):
    """The result is in doubt, and the look at it is not answered either: it is no loss"""
    with through(t, proxy):
        running = begin(t)
    rules = [proxy.once(kind, LOSE_REPLY) for kind in ("cell_put", "cell_get")]
    expect(finish(running), (0, ""))
    for rule in rules:
        rule.hit()
    expect(again(t), running.token)


@with_proxy()
def failure(t, server, proxy):
    """The end of a failed run is in doubt: nothing is stored, and its runner exits as its command"""
    for action in LOSE_REQUEST, LOSE_REPLY:
        with through(t, proxy):
            running = t.start("once", "--ttl", "1s", "k", "--", "sh", "-c", "echo; cat; exit 3", stdin=subprocess.PIPE)
            running.line()
        rule = proxy.once("cell_guard", action)
        expect(finish(running), (3, ""))
        rule.hit()
        expect(state(t), "none")


@on_server()
def refused(t, server):
    """A server that is full refuses the result: its runner says that the command has run, and the next one runs it"""
    running = begin(t)
    server.cli("config", "set", "maxmemory", "1")
    code, error = finish(running)
    expect(code, 69, error)
    assert "OOM" in error and "has ended with 0, and its result is not stored" in error, error
    server.cli("config", "set", "maxmemory", "0")
    assert again(t) != running.token


@with_proxy()
def reading(t, server, proxy):
    """A look that is not answered fails before anything runs"""
    rule = proxy.once("cell_get", LOSE_REPLY)
    with through(t, proxy):
        done = t.stile("once", "k", "--", "echo", "ran")
    rule.hit()
    expect((done.returncode, done.stdout), (69, ""), done.stderr)
    expect(state(t), "none")


def server_gone(t):
    """A server that dies during the run: the tree is stopped before the lease ends, exit 76"""
    with RedisServer() as server:
        use(t, server)
        running = begin(t)
        server.process.kill()
        server.process.wait()
    code = running.wait()
    running.process.stdin.close()
    expect(code, 76, running.err.end())


# ---- cron ----

class Host:
    """Its clock is wrong by up to most of a slot. cron starts its job when this clock has come to the minute, or a
    little later."""

    def __init__(self, t, number):
        self.t, self.clock = t, t.path("clock-%d" % number)
        self.ahead = (number * 2 - HOSTS) * SLOT * 0.9 / HOSTS
        self.late = number % 7

    def comes_at(self, minute):
        """By the true clock."""
        return minute + self.late - self.ahead

    def start(self, minute, slot="1m", key="job"):
        now = int(time.time())
        with open(self.clock, "wb") as file:
            file.write(struct.pack("q", int(minute + self.late) - now))
        env = {**self.t.env, "LD_PRELOAD": os.environ["STILE_CLOCK_LIBRARY"], "STILE_TEST_CLOCK": self.clock,
               "ASAN_OPTIONS": "verify_asan_link_order=0"}
        script = "echo %d >>%s; echo $STILE_NAME" % (minute, self.t.path("runs"))
        return self.t.start("once", "--slot", slot, key, "--", "sh", "-c", script, env=env)


@on_server()
def slots(t, server):
    """Twenty hosts whose clocks are off by most of a slot, in the order in which they come: each minute runs once"""
    first = int(time.time()) // 86400 * 86400 + 7 * 3600
    minutes = [first + SLOT * i for i in range(3)]
    hosts = [Host(t, number) for number in range(HOSTS)]
    plan = sorted((host.comes_at(minute), number, minute) for number, host in enumerate(hosts) for minute in minutes)
    order = [minute for _, _, minute in plan]
    assert order != sorted(order), "the minutes of different hosts overlap"
    running = [(minute, hosts[number].start(minute)) for _, number, minute in plan]
    for minute, one in running:
        stamp = time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(minute))
        expect((one.wait(), one.out.end()), (0, "once:job@%s\n" % stamp), one.err.end())
    with open(t.path("runs"), encoding="utf-8") as file:
        expect(sorted(map(int, file)), minutes)


@on_server()
def summer_time(t, server):
    """01:30 in Berlin, around the day on which summer time begins: a slot of an hour runs each, one of a day leaves
    out the second of two in one UTC day"""
    host = Host(t, HOSTS // 2)
    times = [calendar.timegm((2026, 3, day, hour, 30, 0)) for day, hour in ((28, 0), (29, 0), (29, 23), (30, 23))]
    for slot, left_out in ("1h", []), ("1d", [2]):
        for number, minute in enumerate(times):
            expect(host.start(minute, slot, slot).wait(), 0)
            with open(t.path("runs"), encoding="utf-8") as file:
                expect(str(minute) in file.read().split(), number not in left_out, slot)
        os.remove(t.path("runs"))


run_tests([stopped, killed, beginning, result, result_unread, failure, refused, reading, server_gone, slots,
           summer_time])
