# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What the tests of faults on redis-servers share."""
import contextlib
import os
import pathlib
import signal
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(TESTS / "cli"), str(TESTS / "servers")]
from kit import acquired, expect, run_tests, spin  # noqa: E402,F401
from proxy import Proxy  # noqa: E402
from redis_server import RedisServer  # noqa: E402

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
SOAK = bool(os.environ.get("STILE_SOAK"))


def use(t, server, url="redis://127.0.0.1:%d"):
    t.env["STILE_ENGINE"] = url % server.port
    t.env["STILE_MODULES"] = os.environ["STILE_MODULES"]


def on_server(*args):
    """The test gets a server that is started with these arguments."""
    def decorate(case):
        def with_server(t):
            with RedisServer(*args) as server:
                use(t, server)
                case(t, server)
        with_server.__name__, with_server.__doc__ = case.__name__, case.__doc__
        return with_server
    return decorate


def with_proxy(*args):
    """And a way to it on which things get lost. What the test starts goes there directly, unless
    it says through()."""
    def decorate(case):
        @on_server(*args)
        def with_both(t, server):
            with Proxy(server.port) as proxy:
                try:
                    case(t, server, proxy)
                finally:
                    t.end_all()
        with_both.__name__, with_both.__doc__ = case.__name__, case.__doc__
        return with_both
    return decorate


@contextlib.contextmanager
def through(t, proxy, url="redis://127.0.0.1:%d"):
    direct = t.env["STILE_ENGINE"]
    t.env["STILE_ENGINE"] = url % proxy.port
    try:
        yield
    finally:
        t.env["STILE_ENGINE"] = direct


def acquire(t, name, *options):
    """Owner and token of a claim that outlives its process."""
    done = t.stile("acquire", "--try", *options, name)
    expect(done.returncode, 0, done.stderr)
    owner, token = acquired(done.stdout)
    return owner, int(token)


def ended_with(done, code, *words):
    """A command has ended so, and has said one or two lines with these words."""
    expect(done.returncode, code, done.stderr)
    for word in words:
        assert word in done.stderr, "no %r in %r" % (word, done.stderr)
    assert 0 < done.stderr.count("\n") <= 2, done.stderr
    return done.stderr


def refused(t, *words, code=69, verb=("acquire", "--try", "x")):
    done = t.stile(*verb)
    expect(done.stdout, "")
    return ended_with(done, code, *words)


def lost(held, name="x"):
    code, said = held.wait(), held.err.end()
    expect(code, 76, said)
    assert name in said, said


def waiting(t, name, *options):
    """A `stile run` that stands in line, and says its token once it is in."""
    before = len(t.show(name)["waiters"])
    waiter = t.start("run", *options, name, "--", "sh", "-c", "echo $STILE_TOKEN")
    watched = t.watch(name)
    t.until(watched, lambda change: len(change["waiters"]) > before)
    watched.kill(signal.SIGKILL)
    watched.wait()
    return waiter


def gets_in(waiter):
    """Its token."""
    token = int(waiter.line())
    expect(waiter.wait(), 0)
    return token


def beside(name, part):
    """A key that belongs to the lock of this name."""
    return "{lock:%s}\x1f%s" % (name, part)


COUNTER = "stile:\x1ftoken"


def owner_of(server, name="x"):
    """Of an exclusive lock: the record of the grant follows it in the key."""
    return server.cli("GET", "lock:" + name).partition(" ")[0]


def nothing_left(server, name="x"):
    """No key, nobody in line; only the counter of tokens stays."""
    keys = ["lock:" + name] + [beside(name, part) for part in
                               ("queue", "members", "info")]
    expect(server.cli("EXISTS", *keys), "0", server.cli("KEYS", "*"))


def renewed(server, name="x"):
    """Until a lease is seen to grow, by whichever client; it must not end before that."""
    seen = [1 << 62]

    def grows():
        now = int(server.cli("PTTL", "lock:" + name))
        assert now > 0, "the lease has ended"
        seen.append(now)
        return now > seen[-2]
    spin(grows)


def everybody(held):
    """The warden, the front, which outlives it, and the command."""
    return held.warden(), held.pid, held.command


def warden_and_command(held):
    """For tests that stop a holder and let it go on. Its front is left out: it would pass a SIGCONT on
    to the warden, perhaps while LeakSanitizer attaches to it there, which then waits for ever."""
    return held.warden(), held.command


def signal_all(pids, number):
    for pid in pids:
        os.kill(pid, number)


def kill_at_once(held):
    """So that no process is left that could release anything."""
    pids = everybody(held)
    signal_all(pids, signal.SIGSTOP)
    signal_all(pids, signal.SIGKILL)
    held.wait()
