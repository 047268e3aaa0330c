# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""redlock of npm, versions 4 and 5, on the same servers and keys: one of them (redis://), three and
five (redlock://, with the fence and without). Each excludes the other, and frees only its own."""
import contextlib
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE.parent / "cli"), str(HERE.parent / "servers")]
from kit import Lines, acquired, expect, run_tests  # noqa: E402
from redis_server import RedisServer, die_with_parent  # noqa: E402

PACKAGES = os.environ["STILE_NPM"]  # where tools/npm-clients has put them
LEASE_MS, SHORT_MS = 60000, 1000


class Redlock:
    """The driver of npm/redlock.js."""

    def __init__(self, version, servers):
        self.process = subprocess.Popen(
            ["node", str(HERE / "npm" / "redlock.js"), PACKAGES, version,
             *(str(server.port) for server in servers)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=die_with_parent)
        self.out = Lines(self.process.stdout.fileno())

    def say(self, *words):
        self.process.stdin.write(" ".join(map(str, words)).encode() + b"\n")
        self.process.stdin.flush()

    def asked(self, *words):
        self.say(*words)
        return {"yes": True, "no": False}[self.out.next()]

    def take(self, ms=LEASE_MS):
        return self.asked("take", "x", ms)

    def free(self):
        return self.asked("free")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def try_it(t):
    return t.stile("run", "--try", "x", "--", "true").returncode


class Share:
    """The owner of a majority of the nodes, and those nodes. Others may get the key a little later."""

    def __init__(self, servers):
        seen = {server: server.cli("GET", "x") for server in servers}
        (self.owner,) = {value for value in seen.values()
                         if value and list(seen.values()).count(value) > len(servers) // 2}
        self.nodes = [server for server, value in seen.items() if value == self.owner]

    def expect_unchanged(self):
        expect([node.cli("GET", "x") for node in self.nodes], [self.owner] * len(self.nodes))


def ours_keeps_them_out(t, servers, other):
    """what we hold they don't get, and can't free"""
    expect(other.take(), True)
    expect(other.free(), True)
    held = t.hold("x")
    share = Share(servers)
    expect(other.take(), False)
    expect(other.free(), False)
    share.expect_unchanged()
    t.release(held)
    expect(other.take(), True)
    expect(other.free(), True)


def theirs_keeps_us_out(t, servers, other):
    """what they hold we don't get, and can't free"""
    expect(other.take(), True)
    share = Share(servers)
    expect(try_it(t), 75)
    expect(t.stile("run", "--wait", "300ms", "x", "--", "true").returncode, 75)
    expect(t.stile("release", "--owner", "0" * 40, "x").returncode, 76)
    share.expect_unchanged()
    expect(other.free(), True)
    expect(try_it(t), 0)


def we_wait_for_their_release(t, servers, other):
    """a waiter of ours gets what they free, long before it ends"""
    expect(other.take(), True)
    waiting = t.start("run", "--wait", "50s", "x", "--", "echo", "in")
    t.until(t.watch("x"), lambda change: len(change["waiters"]) == 1)
    expect(other.free(), True)
    expect(waiting.line(), "in")
    expect(waiting.wait(), 0)


def they_wait_for_our_release(t, servers, other):
    """a waiter of theirs gets what we free"""
    held = t.hold("x")
    other.say("wait", "x", LEASE_MS)
    expect(other.out.next(), "waiting")
    t.release(held)
    expect(other.out.next(), "yes")
    expect(try_it(t), 75)
    expect(other.free(), True)


def we_take_over_what_ended(t, servers, other):
    """after their time is over it is ours, and their late release frees nothing"""
    while not other.take(SHORT_MS):  # on a slow machine so short a time may be over at once
        pass
    held = t.hold("x")
    share = Share(servers)
    expect(other.free(), False)
    share.expect_unchanged()
    expect(try_it(t), 75)
    t.release(held)


def they_take_over_what_ended(t, servers, other):
    """after our time is over it is theirs, and our late release frees nothing"""
    done = t.stile("acquire", "--ttl", "%dms" % SHORT_MS, "x")
    expect(done.returncode, 0, done.stderr)
    owner = acquired(done.stdout)[0]
    other.say("wait", "x", LEASE_MS)
    while other.out.next() != "yes":
        pass
    share = Share(servers)
    for verb in "renew", "release":
        expect(t.stile(verb, "--owner", owner, "x").returncode, 76)
    share.expect_unchanged()
    expect(other.free(), True)


CASES = [ours_keeps_them_out, theirs_keeps_us_out, we_wait_for_their_release,
         they_wait_for_our_release, we_take_over_what_ended, they_take_over_what_ended]
ENGINES = {
    "redis": (1, "redis://%s?prefix="),
    "fenced_3": (3, "redlock://%s?prefix="),
    "fenced_5": (5, "redlock://%s?prefix="),
    "plain_3": (3, "redlock://%s?prefix=&fence=off"),
    "plain_5": (5, "redlock://%s?prefix=&fence=off"),
}


def scene(case, version, engine):
    number, url = ENGINES[engine]

    def one(t):
        with contextlib.ExitStack() as stack:
            servers = [stack.enter_context(RedisServer()) for _ in range(number)]
            t.env["STILE_ENGINE"] = url % ",".join("127.0.0.1:%d" % s.port for s in servers)
            t.env["STILE_MODULES"] = os.environ["STILE_MODULES"]
            case(t, servers, stack.enter_context(Redlock(version, servers)))
    one.__name__ = "%s_v%s_%s" % (case.__name__, version, engine)
    one.__doc__ = "redlock v%s, %s: %s" % (version, engine, case.__doc__)
    return one


def main():
    if not os.path.isdir(os.path.join(PACKAGES, "node_modules", "ioredis")):
        why = "redlock and ioredis of npm are not installed: tools/npm-clients BUILD"
        if os.environ.get("CI"):
            print("1..1\nnot ok 1 - %s" % why)
            sys.exit(1)
        print("1..0 # SKIP %s" % why)
        sys.exit(0)
    run_tests([scene(case, version, engine) for engine in ENGINES for version in ("4", "5")
               for case in CASES])


main()
