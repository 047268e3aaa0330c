# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Other clients on the same server and key: redis-cli as in any tutorial, and redis-py's Lock. Each
pair excludes in both directions, and neither frees the other's lock."""
import os
import pathlib
import sys

import redis

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(TESTS / "cli"), str(TESTS / "servers")]
from kit import acquired, expect, run_tests  # noqa: E402
from redis_server import RedisServer  # noqa: E402

FREE = "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) else return 0 end"


class ByHand:
    """SET NX PX and the script that every tutorial has."""

    def __init__(self, server):
        self.server = server

    def take(self, ms=60000):
        return self.server.cli("SET", "lock:x", "me", "NX", "PX", str(ms)) == "OK"

    def free(self):
        return self.server.cli("EVAL", FREE, "1", "lock:x", "me") == "1"


class RedisPy:
    def __init__(self, server):
        self.client = redis.Redis(port=server.port)
        self.lock = None

    def take(self, ms=60000):
        self.lock = self.client.lock("lock:x", timeout=ms and ms / 1000)
        return self.lock.acquire(blocking=False)

    def free(self):
        try:
            self.lock.release()
        except redis.exceptions.LockError:
            return False
        return True


class RedisPyWithoutEnd(RedisPy):
    """Its default: a key without expiry."""

    def take(self, ms=None):
        return super().take(ms)


def with_each(case):
    """Once for every kind of client."""
    def of(kind):
        def one(t):
            with RedisServer() as server:
                t.env["STILE_ENGINE"] = "redis://127.0.0.1:%d" % server.port
                t.env["STILE_MODULES"] = os.environ["STILE_MODULES"]
                case(t, server, kind(server))
        one.__name__ = "%s_%s" % (case.__name__, kind.__name__)
        one.__doc__ = "%s: %s" % (kind.__name__, case.__doc__)
        return one
    return [of(kind) for kind in (ByHand, RedisPy, RedisPyWithoutEnd)]


def try_it(t):
    return t.stile("run", "--try", "x", "--", "true").returncode


def ours_keeps_them_out(t, server, other):
    """what we hold they don't get, and can't free"""
    held = t.hold("x")
    owner = server.cli("GET", "lock:x")
    expect(other.take(), False)
    if isinstance(other, ByHand):
        expect(other.free(), False)
    expect(server.cli("GET", "lock:x"), owner)
    t.release(held)
    expect(other.take(), True)


def theirs_keeps_us_out(t, server, other):
    """what they hold we don't get, and don't free"""
    expect(other.take(), True)
    value = server.cli("GET", "lock:x")
    expect(try_it(t), 75)
    expect(t.stile("run", "--wait", "300ms", "x", "--", "true").returncode, 75)
    expect(t.stile("release", "--owner", "0" * 40, "x").returncode, 76)
    expect(server.cli("GET", "lock:x"), value)
    expect(other.free(), True)
    expect(try_it(t), 0)


def we_wait_for_their_release(t, server, other):
    """a waiter of ours gets what they free, without a word and long before it ends"""
    expect(other.take(), True)
    waiting = t.start("run", "--wait", "30s", "x", "--", "echo", "in")
    t.until(t.watch("x"), lambda change: len(change["waiters"]) == 1)
    expect(other.free(), True)
    expect(waiting.line(), "in")
    expect(waiting.wait(), 0)


def they_take_over_what_ended(t, server, other):
    """after our time is over it is theirs, and our late release frees nothing"""
    done = t.stile("acquire", "--ttl", "300ms", "x")
    expect(done.returncode, 0, done.stderr)
    owner = acquired(done.stdout)[0]
    while not other.take():
        pass
    value = server.cli("GET", "lock:x")
    for verb in "renew", "release":
        expect(t.stile(verb, "--owner", owner, "x").returncode, 76)
    expect(server.cli("GET", "lock:x"), value)
    expect(other.free(), True)


def we_take_over_what_ended(t, server, other):
    """after their time is over it is ours, and their late release frees nothing"""
    if isinstance(other, RedisPyWithoutEnd):
        return
    expect(other.take(300), True)
    held = t.hold("x")
    expect(other.free(), False)
    expect(try_it(t), 75)
    t.release(held)


def readers_keep_them_out(t, server, other):
    """readers and slots keep them out as well, and the other way round"""
    for mode in ["--shared"], ["--slots", "2"]:
        held = t.hold("x", *mode)
        expect(other.take(), False)
        t.release(held)
        expect(other.take(), True)
        expect(t.stile("run", "--try", *mode, "x", "--", "true").returncode, 75)
        expect(other.free(), True)


def shown_as_theirs(t, server, other):
    """show and ls list their lock; it has no token, and break of a token of ours spares it"""
    t.release(t.hold("x"))
    token = t.show("x")["token"]
    expect(other.take(), True)
    shown = t.show("x")
    expect((shown["token"], [holder.get("token") for holder in shown["holders"]]), (token, [None]))
    assert "x" in t.stile("ls").stdout
    assert t.stile("break", "-y", "--token", str(token), "x").returncode != 0
    expect(other.free(), True)


run_tests([test for case in (
    ours_keeps_them_out, theirs_keeps_us_out, we_wait_for_their_release, they_take_over_what_ended,
    we_take_over_what_ended, readers_keep_them_out, shown_as_theirs) for test in with_each(case)])
