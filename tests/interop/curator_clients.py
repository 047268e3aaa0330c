# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Curator's InterProcessMutex and InterProcessReadWriteLock on the same paths: each excludes the
other, the line is kept across both, and nobody leaves a node behind."""
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE.parent / "cli"), str(HERE.parent / "servers")]
from kit import Lines, expect, run_tests  # noqa: E402
from zookeeper_server import JARS, ZookeeperServer, die_with_parent  # noqa: E402

CLASSES = ":".join(JARS + jar for jar in ("curator-recipes.jar", "slf4j-simple.jar"))


class Curator:
    """The driver of curator/Locks.java. One for all tests: it takes seconds to start."""

    def __init__(self, hosts):
        self.process = subprocess.Popen(
            ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", CLASSES,
             "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", str(HERE / "curator" / "Locks.java"),
             hosts], stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=die_with_parent)
        self.out, self.heard, self.made = Lines(self.process.stdout.fileno()), [], 0

    def say(self, *words):
        self.process.stdin.write(" ".join(map(str, words)).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, number):
        """The next one that is about this lock; others may have come before it."""
        while not any(line[0] == str(number) for line in self.heard):
            self.heard.append(self.out.next().split())
        line = next(line for line in self.heard if line[0] == str(number))
        self.heard.remove(line)
        return line[1]

    def lock(self, kind, path):
        self.made += 1
        self.say("new", self.made, kind, path)
        return CuratorLock(self, self.made)

    def left(self, path):
        self.say("left", path)
        return int(self.answer(0))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class CuratorLock:
    def __init__(self, curator, number):
        self.curator, self.number = curator, number

    def attempt(self):
        self.curator.say("try", self.number)
        return {"yes": True, "no": False}[self.curator.answer(self.number)]

    def wait(self):
        self.curator.say("wait", self.number)

    def granted(self):
        expect(self.curator.answer(self.number), "yes")

    def take(self):
        self.wait()
        self.granted()

    def free(self):
        self.curator.say("free", self.number)
        expect(self.curator.answer(self.number), "freed")


def in_line(t, n):
    t.until(t.watch("x"), lambda change: len(change["waiters"]) == n)


def try_it(t, *options):
    return t.stile("run", "--try", *options, "x", "--", "true").returncode


def start_waiting(t, *options):
    return t.start("run", *options, "x", "--", "sh", "-c", "echo in; read line",
                   stdin=subprocess.PIPE)


def theirs_keeps_us_out(t, curator, path):
    """what they hold we don't get; when they give it back we do, with a greater token"""
    lock = curator.lock("mutex", path)
    lock.take()
    expect(try_it(t), 75)
    holder = t.show("x")["holders"][0]
    waiting = t.start("run", "x", "--", "sh", "-c", "echo $STILE_TOKEN")
    in_line(t, 1)
    lock.free()
    assert int(waiting.line()) > holder["token"]
    expect(waiting.wait(), 0)
    expect(curator.left(path), 0)


def ours_keeps_them_out(t, curator, path):
    """what we hold they don't get, wait for, and get when we give it back"""
    held, lock = t.hold("x"), curator.lock("mutex", path)
    expect(lock.attempt(), False)
    expect(curator.left(path), 1)
    lock.wait()
    in_line(t, 1)
    t.release(held)
    lock.granted()
    expect(try_it(t), 75)
    lock.free()
    expect(curator.left(path), 0)


def one_line_for_all(t, curator, path):
    """ours, theirs, ours, theirs: served in the order in which they came"""
    held, first, third = t.hold("x"), curator.lock("mutex", path), curator.lock("mutex", path)
    first.wait()
    in_line(t, 1)
    second = start_waiting(t)
    in_line(t, 2)
    third.wait()
    in_line(t, 3)
    t.release(held)
    first.granted()
    expect(len(t.show("x")["waiters"]), 2)
    first.free()
    expect(second.line(), "in")
    expect(len(t.show("x")["waiters"]), 1)
    second.process.stdin.close()
    third.granted()
    third.free()
    expect(curator.left(path), 0)


def who_gives_up_leaves_the_line(t, curator, path):
    """one of ours that stops waiting is not in the way of theirs behind it"""
    held, lock = t.hold("x"), curator.lock("mutex", path)
    waiting = start_waiting(t)
    in_line(t, 1)
    lock.wait()
    in_line(t, 2)
    waiting.process.terminate()
    in_line(t, 1)
    t.release(held)
    lock.granted()
    lock.free()
    expect(curator.left(path), 0)


def shared_and_slots_keep_the_mutex_out(t, curator, path):
    """our readers and slots are exclusive locks to their mutex"""
    for options in ("--shared",), ("--slots", "2"):
        held, lock = t.hold("x", *options), curator.lock("mutex", path)
        expect(lock.attempt(), False)
        t.release(held)
        lock.take()
        expect(try_it(t, *options), 75)
        lock.free()
    expect(curator.left(path), 0)


def keep(t, curator, path, *kinds):
    """What is left of hold-at-least keeps ours out, and is no lock of theirs."""
    expect(t.stile("run", "--hold-at-least", "300s", "x", "--", "true").returncode, 0)
    expect(try_it(t), 75)
    for kind in kinds:
        lock = curator.lock(kind, path)
        expect(lock.attempt(), True)
        lock.free()
    expect(t.stile("break", "-y", "x").returncode, 0)
    expect(curator.left(path), 0)


def what_we_keep_is_open_to_the_mutex(t, curator, path):
    """what keeps a name for ours is not in the way of their mutex"""
    keep(t, curator, path, "mutex")


def what_we_keep_is_open_to_readers_and_writers(t, curator, path):
    """nor in the way of their readers and writers"""
    keep(t, curator, path, "read", "write")


def they_are_shown_and_broken(t, curator, path):
    """ls, show and break know their locks as well"""
    lock = curator.lock("mutex", path)
    lock.take()
    expect([holder["mode"] for holder in t.show("x")["holders"]], ["exclusive"])
    assert "x" in t.stile("ls").stdout.split()
    expect(t.stile("break", "-y", "x").returncode, 0)
    expect(try_it(t), 0)
    expect(curator.left(path), 0)


def readers_and_writers(t, curator, path):
    """their readers and ours share; writers of both wait for readers of both"""
    reader, writer = curator.lock("read", path), curator.lock("write", path)
    reader.take()
    expect(try_it(t), 75)
    ours = t.hold("x", "--shared")
    expect(sorted(holder["mode"] for holder in t.show("x")["holders"]), ["shared"] * 2)
    expect(writer.attempt(), False)
    reader.free()
    expect(writer.attempt(), False)
    writer.wait()
    in_line(t, 1)
    expect(try_it(t, "--shared"), 75)
    t.release(ours)
    writer.granted()
    expect(try_it(t, "--shared"), 75)
    expect(try_it(t), 75)
    writer.free()
    expect(curator.left(path), 0)


def our_writer_keeps_theirs_out(t, curator, path):
    """what we hold alone neither their readers nor their writers get; both get it afterwards"""
    held = t.hold("x")
    reader, writer = curator.lock("read", path), curator.lock("write", path)
    expect(reader.attempt(), False)
    expect(writer.attempt(), False)
    reader.wait()
    in_line(t, 1)
    writer.wait()
    in_line(t, 2)
    t.release(held)
    reader.granted()
    expect(len(t.show("x")["waiters"]), 1)
    reader.free()
    writer.granted()
    writer.free()
    expect(curator.left(path), 0)


def one_line_for_readers_and_writers(t, curator, path):
    """a reader behind a writer waits for it, ours or theirs: no claim overtakes"""
    held = t.hold("x", "--shared")
    writer, late = curator.lock("write", path), curator.lock("read", path)
    writer.wait()
    in_line(t, 1)
    reader = start_waiting(t, "--shared")
    in_line(t, 2)
    second = start_waiting(t)
    in_line(t, 3)
    late.wait()
    in_line(t, 4)
    t.release(held)
    writer.granted()
    writer.free()
    expect(reader.line(), "in")
    expect(len(t.show("x")["waiters"]), 2)
    reader.process.stdin.close()
    expect(second.line(), "in")
    second.process.stdin.close()
    late.granted()
    late.free()
    expect(curator.left(path), 0)


def slots_keep_readers_and_writers_out(t, curator, path):
    """what holds a slot is a write lock to theirs"""
    held = t.hold("x", "--slots", "2")
    for kind in "read", "write":
        lock = curator.lock(kind, path)
        expect(lock.attempt(), False)
    expect(try_it(t, "--slots", "2"), 0)
    t.release(held)
    lock.take()
    expect(try_it(t, "--slots", "2"), 75)
    lock.free()
    expect(curator.left(path), 0)


def a_dead_one_of_theirs(t, curator, path):
    """their session ends: we get it at once. The last one: it was the session of all"""
    curator.lock("mutex", path).take()
    waiting = t.start("run", "x", "--", "echo", "in")
    in_line(t, 1)
    curator.say("end")
    expect(curator.answer(0), "ended")
    expect(waiting.line(), "in")
    expect(waiting.wait(), 0)


def with_curator(case, server, curator):
    """Each test has a path of its own on the same server."""
    dialect = "curator-rw" if case in READ_WRITE else "curator"

    def run(t):
        t.env["STILE_ENGINE"] = "%s/%s?dialect=%s" % (server.url, case.__name__, dialect)
        t.env["STILE_MODULES"] = os.environ["STILE_MODULES"]
        case(t, curator, "/%s/x" % case.__name__)
    run.__name__, run.__doc__ = case.__name__, case.__doc__
    return run


MUTEX = [theirs_keeps_us_out, ours_keeps_them_out, one_line_for_all, who_gives_up_leaves_the_line,
         shared_and_slots_keep_the_mutex_out, what_we_keep_is_open_to_the_mutex,
         they_are_shown_and_broken]
READ_WRITE = [readers_and_writers, our_writer_keeps_theirs_out, one_line_for_readers_and_writers,
              slots_keep_readers_and_writers_out, what_we_keep_is_open_to_readers_and_writers]

with ZookeeperServer() as zookeeper, Curator(zookeeper.hosts) as driver:
    expect(driver.answer(0), "ready")
    run_tests([with_curator(case, zookeeper, driver)
               for case in (*MUTEX, *READ_WRITE, a_dead_one_of_theirs)])
