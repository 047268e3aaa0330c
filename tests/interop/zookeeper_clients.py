# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""kazoo's Lock, ReadLock and WriteLock on the same paths: each excludes the other, the line is kept
across both, and nobody leaves a node behind."""
import os
import pathlib
import subprocess
import sys
import threading

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(TESTS / "cli"), str(TESTS / "servers")]
from kazoo.client import KazooClient  # noqa: E402
from kit import PATIENCE, expect, run_tests  # noqa: E402
from zookeeper_server import ZookeeperServer  # noqa: E402


class KazooWait(threading.Thread):
    """One that waits for a lock of kazoo's, in a thread of its own."""

    def __init__(self, lock):
        super().__init__(daemon=True)
        self.lock = lock
        self.start()

    def run(self):
        self.lock.acquire(timeout=PATIENCE)

    def granted(self):
        self.join(PATIENCE)
        assert self.lock.is_acquired
        return self.lock


def on_server(path="/locks"):
    """One server for all tests: with each client's session goes what it has there."""
    def decorate(case):
        def with_client(t):
            t.env["STILE_ENGINE"] = zookeeper.url + path + "?dialect=kazoo"
            t.env["STILE_MODULES"] = os.environ["STILE_MODULES"]
            client = KazooClient(zookeeper.hosts)
            client.start()
            try:
                case(t, client)
            finally:
                client.stop()
                client.close()
        with_client.__name__, with_client.__doc__ = case.__name__, case.__doc__
        return with_client
    return decorate


def in_line(t, name, n):
    t.until(t.watch(name), lambda change: len(change["waiters"]) == n)


def try_it(t, name, *options):
    return t.stile("run", "--try", *options, name, "--", "true").returncode


def left(client, path):
    return client.get_children(path) if client.exists(path) else []


@on_server()
def theirs_keeps_us_out(t, client):
    """what kazoo holds we don't get; when it gives it back we do, with a greater token"""
    lock = client.Lock("/locks/x", "kazoo here")
    lock.acquire()
    expect(try_it(t, "x"), 75)
    holder = t.show("x")["holders"][0]
    expect(holder["proclaimed"], "kazoo here")
    waiting = t.start("run", "x", "--", "sh", "-c", "echo $STILE_TOKEN")
    in_line(t, "x", 1)
    lock.release()
    assert int(waiting.line()) > holder["token"]
    expect(waiting.wait(), 0)
    expect(left(client, "/locks/x"), [])


@on_server()
def ours_keeps_them_out(t, client):
    """what we hold kazoo does not get, waits for, and gets when we give it back"""
    held = t.hold("x")
    expect(client.Lock("/locks/x").acquire(blocking=False), False)
    theirs = KazooWait(client.Lock("/locks/x"))
    in_line(t, "x", 1)
    expect(len(client.Lock("/locks/x").contenders()), 2)
    t.release(held)
    lock = theirs.granted()
    expect(try_it(t, "x"), 75)
    lock.release()
    expect(left(client, "/locks/x"), [])


@on_server()
def one_line_for_all(t, client):
    """ours, theirs, ours, theirs: served in the order in which they came"""
    held = t.hold("x")
    first = KazooWait(client.Lock("/locks/x"))
    in_line(t, "x", 1)
    second = t.start("run", "x", "--", "sh", "-c", "echo in; read line", stdin=subprocess.PIPE)
    in_line(t, "x", 2)
    third = KazooWait(client.Lock("/locks/x"))
    in_line(t, "x", 3)
    t.release(held)
    lock = first.granted()
    expect(len(t.show("x")["waiters"]), 2)
    lock.release()
    expect(second.line(), "in")
    expect(len(t.show("x")["waiters"]), 1)
    second.process.stdin.close()
    third.granted().release()
    expect(left(client, "/locks/x"), [])


@on_server()
def readers_and_writers(t, client):
    """their readers and ours share; writers of both wait for readers of both"""
    theirs = client.ReadLock("/locks/x")
    theirs.acquire()
    expect(try_it(t, "x"), 75)
    ours = t.hold("x", "--shared")
    expect(client.WriteLock("/locks/x").acquire(blocking=False), False)
    theirs.release()
    expect(client.WriteLock("/locks/x").acquire(blocking=False), False)
    waiting = KazooWait(client.WriteLock("/locks/x"))
    in_line(t, "x", 1)
    expect(try_it(t, "x", "--shared"), 75)
    t.release(ours)
    writer = waiting.granted()
    expect(try_it(t, "x", "--shared"), 75)
    writer.release()
    expect(left(client, "/locks/x"), [])


@on_server()
def one_line_for_readers_and_writers(t, client):
    """a reader behind a writer waits for it, ours or theirs: no claim overtakes"""
    held = t.hold("x", "--shared")
    writer = KazooWait(client.WriteLock("/locks/x"))
    in_line(t, "x", 1)
    reader = t.start("run", "--shared", "x", "--", "sh", "-c", "echo in; read line",
                     stdin=subprocess.PIPE)
    in_line(t, "x", 2)
    second = t.start("run", "x", "--", "sh", "-c", "echo in; read line", stdin=subprocess.PIPE)
    in_line(t, "x", 3)
    late = KazooWait(client.ReadLock("/locks/x"))
    in_line(t, "x", 4)
    t.release(held)
    writer.granted().release()
    expect(reader.line(), "in")
    expect(len(t.show("x")["waiters"]), 2)
    reader.process.stdin.close()
    expect(second.line(), "in")
    expect(len(t.show("x")["waiters"]), 1)
    second.process.stdin.close()
    late.granted().release()
    expect(left(client, "/locks/x"), [])


@on_server()
def slots_keep_all_of_them_out(t, client):
    """what holds a slot is an exclusive lock to each of theirs"""
    held = t.hold("x", "--slots", "2")
    for theirs in client.Lock, client.ReadLock, client.WriteLock:
        expect(theirs("/locks/x").acquire(blocking=False), False)
    expect(try_it(t, "x", "--slots", "2"), 0)
    t.release(held)
    client.Lock("/locks/x").acquire()
    expect(try_it(t, "x", "--slots", "2"), 75)
    expect(try_it(t, "x", "--shared"), 75)


@on_server()
def a_dead_one_of_theirs(t, client):
    """kazoo's session ends: we get it at once"""
    client.Lock("/locks/x").acquire()
    waiting = t.start("run", "x", "--", "echo", "in")
    in_line(t, "x", 1)
    client.stop()
    expect(waiting.line(), "in")
    expect(waiting.wait(), 0)


@on_server()
def what_we_keep_is_open_to_them(t, client):
    """what is left of hold-at-least keeps ours out, and is no lock of theirs, whatever they take"""
    expect(t.stile("run", "--hold-at-least", "300s", "x", "--", "true").returncode, 0)
    expect(try_it(t, "x"), 75)
    for theirs in client.Lock, client.ReadLock, client.WriteLock:
        lock = theirs("/locks/x")
        expect(lock.acquire(blocking=False), True)
        lock.release()
    expect(t.stile("break", "-y", "x").returncode, 0)
    expect(left(client, "/locks/x"), [])


@on_server("/some/deep/path")
def they_are_shown_and_broken(t, client):
    """ls, show and break know their locks as well; slashes in names are escaped"""
    lock = client.Lock("/some/deep/path/a%2Fb", "kazoo here")
    lock.acquire()
    expect(try_it(t, "a/b"), 75)
    assert "a/b" in t.stile("ls").stdout
    expect([holder["mode"] for holder in t.show("a/b")["holders"]], ["exclusive"])
    expect(t.stile("break", "-y", "a/b").returncode, 0)
    expect(try_it(t, "a/b"), 0)


CASES = [theirs_keeps_us_out, ours_keeps_them_out, one_line_for_all, readers_and_writers,
         one_line_for_readers_and_writers, slots_keep_all_of_them_out, a_dead_one_of_theirs,
         what_we_keep_is_open_to_them, they_are_shown_and_broken]

with ZookeeperServer() as zookeeper:
    run_tests(CASES)
