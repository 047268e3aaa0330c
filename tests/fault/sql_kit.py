# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What the tests of databases in trouble have in common."""
import os
import pathlib
import struct
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(TESTS / "cli"), str(TESTS / "servers")]
from kit import expect  # noqa: E402


def use(t, server, url=None):
    t.env["STILE_ENGINE"] = url or server.url
    t.env["STILE_MODULES"] = os.environ["STILE_MODULES"]


def on_servers_of(kind):
    """The decorator of tests on servers of this kind, which are started with its arguments, and have
    what `stile setup` makes."""
    def on_server(*args, mode=None, **how):
        def decorate(case):
            def with_server(t):
                with kind(*args, **how) as server:
                    use(t, server, server.url + ("?mode=" + mode if mode else ""))
                    done = t.stile("setup")
                    expect(done.returncode, 0, done.stderr)
                    case(t, server)
            with_server.__name__, with_server.__doc__ = case.__name__, case.__doc__
            return with_server
        return decorate
    return on_server


def refused(t, *words, code=69, verb=("run", "--try", "x", "--", "true")):
    done = t.stile(*verb)
    expect(done.returncode, code, done.stderr)
    for word in words:
        assert word in done.stderr, "no %r in %r" % (word, done.stderr)
    assert done.stderr.count("\n") <= 2, done.stderr
    return done.stderr


def lost(held):
    code, said = held.wait(), held.err.end()
    expect(code, 76, said)
    assert "x" in said, said
    return said


def wait_for(t, name="x", *options):
    """One that waits, seen to be in the server's queue."""
    watched = t.watch(name)
    before = len(watched.change()["waiters"])
    waiting = t.start("run", *options, name, "--", "sh", "-c", "echo $STILE_TOKEN")
    t.until(watched, lambda change: len(change["waiters"]) == before + 1)
    return waiting


def token_of(t, name="x"):
    done = t.stile("run", name, "--", "sh", "-c", "echo $STILE_TOKEN")
    expect(done.returncode, 0, done.stderr)
    return int(done.stdout)


def count_in(token):
    """Which one it is of its epoch's tokens; one from before there were epochs is itself"""
    return int(token) % 2**20


def client_clock_jumps(t):
    """A clock that jumps on the client: neither a loss nor a second holder"""
    clock = t.path("clock")
    plain = dict(t.env)
    with open(clock, "wb") as file:
        file.write(struct.pack("q", 0))
    t.env.update(LD_PRELOAD=os.environ["STILE_CLOCK_LIBRARY"], STILE_TEST_CLOCK=clock,
                 ASAN_OPTIONS="verify_asan_link_order=0")
    held = t.hold("x", "--ttl", "1s")
    t.env = plain
    for seconds in 86400, -86400:
        with open(clock, "r+b") as file:
            file.write(struct.pack("q", seconds))
        expect(t.stile("run", "--wait", "1500ms", "x", "--", "true").returncode, 75)
        expect(held.process.poll(), None)
    t.release(held)
    expect(count_in(token_of(t)), 2)
