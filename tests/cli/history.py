# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Who ran last: what stile run records, and how stile show prints it; why a lock was lost."""
import os
import re
import signal
import socket
import time

from kit import children, expect, kill_quietly, run_tests, spin

HOST = socket.gethostname()
LINE = r"last: (\S+) pid (\d+) \((.*)\), (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)"


def last_line(t, name="x", **how):
    """The second line of a free name."""
    done = t.stile("show", name, **how)
    expect((done.returncode, done.stderr), (0, ""))
    free, last = done.stdout.splitlines()
    assert free.startswith(name + " is free"), done.stdout
    return last


def ran_and_ended(t):
    """a line with host, pid, label, times and exit code; JSON has the same"""
    expect(t.show("x")["last"], None)
    expect(t.stile("show", "x").stdout, "x is free\n")
    before = time.time()
    running = t.start("run", "--label", "night shift", "x", "--", "sh", "-c", "exit 3")
    expect(running.wait(), 3)
    last = last_line(t, env=dict(t.env, TZ="UTC"))
    host, pid, label, start = re.match(LINE, last).groups()
    expect((host, int(pid), label), (HOST, running.pid, "night shift"))
    assert re.search(r" to (\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d, exit 3$", last), last
    seen = t.show("x")["last"]
    expect({k: seen[k] for k in ("host", "pid", "command", "exit_code")},
           {"host": HOST, "pid": running.pid, "command": "night shift", "exit_code": 3})
    assert before - 1 <= seen["from_ms"] / 1000 <= seen["until_ms"] / 1000 <= time.time() + 1, seen
    expect(seen["token"], t.show("x")["token"])
    expect(start, time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seen["from_ms"] // 1000)))


def local_time(t):
    """times are those of the reader's time zone, whatever it is called"""
    expect(t.stile("run", "x", "--", "true").returncode, 0)
    ms = t.show("x")["last"]["from_ms"]
    for zone, offset in ("UTC", 0), ("ABC-05:30", 19800), ("ABC+11", -39600), ("no such zone", 0):
        start = re.match(LINE, last_line(t, env=dict(t.env, TZ=zone))).group(4)
        expect(start, time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(ms // 1000 + offset)), zone)


def exit_codes(t):
    """the command's own code; 128+N if a signal ended it; 127 if it is not there"""
    for command, code in (("exit 0", 0), ("exit 255", 255), ("kill -TERM $$", 143),
                          ("kill -9 $$", 137)):
        t.stile("run", "x", "--", "sh", "-c", command)
        assert last_line(t).endswith(", exit %d" % code), (command, last_line(t))
    expect(t.stile("run", "x", "--", t.path("no-such-command")).returncode, 127)
    assert "(no-such-command)" in last_line(t), last_line(t)
    expect(t.show("x")["last"]["exit_code"], 127)


def every_name(t):
    """each of several names has its record, with its own token"""
    expect(t.stile("run", "c", "a", "b", "--", "sh", "-c", "exit 9").returncode, 9)
    for name in "abc":
        seen = t.show(name)
        expect((seen["last"]["exit_code"], seen["last"]["token"]), (9, seen["token"]))


def while_it_runs(t):
    """nothing is said twice of a holder; its record has no end yet"""
    t.stile("run", "x", "--", "sh", "-c", "exit 5")
    held = t.hold("x")
    spin(lambda: t.show("x")["last"]["pid"] == held.pid)
    seen = t.show("x")["last"]
    expect((seen["until_ms"], seen["exit_code"]), (None, None))
    assert "last:" not in t.stile("show", "x").stdout, t.stile("show", "x").stdout
    t.release(held)
    expect(t.show("x")["last"]["exit_code"], 1)


def nothing_of_the_end(t):
    """a warden killed with -9 leaves a start without an end"""
    held = t.hold("x")
    spin(lambda: t.show("x")["last"] is not None)
    (warden,) = children(held.pid)
    kill_quietly(warden)
    held.wait()
    assert last_line(t).endswith(", end not recorded"), last_line(t)
    assert ", exit" not in last_line(t)
    seen = t.show("x")["last"]
    expect((seen["pid"], seen["until_ms"], seen["exit_code"]), (held.pid, None, None))


def front_killed(t):
    """the front killed with -9: the warden kills the tree, and records that"""
    held = t.hold("x")
    watched = t.watch("x")
    held.kill(signal.SIGKILL)
    t.until(watched, lambda change: not change["holders"])
    expect(t.show("x")["last"]["exit_code"], 137)


def records_that_cannot_be_kept(t):
    """a directory in the place of the file: run and show work without, and are silent"""
    expect(t.stile("run", "x", "--", "true").returncode, 0)
    os.unlink(t.path("engine/history"))
    os.mkdir(t.path("engine/history"))
    done = t.stile("run", "x", "--", "sh", "-c", "exit 4")
    expect((done.returncode, done.stderr), (4, ""))
    done = t.stile("show", "x")
    expect((done.returncode, done.stderr, len(done.stdout.splitlines())), (0, "", 1))
    expect(t.show("x")["last"], None)


def labels_of_strangers(t):
    """what others chose neither moves the cursor nor breaks the line"""
    t.stile("run", "--label", "a\033[2J\nb (c), 1999 \u202e", "x", "--", "true")
    last = last_line(t)
    assert "(a?[2J?b (c), 1999 \\xe2\\x80\\xae)" in last, last


def kept_names(t):
    """a name that is kept: show and ls name the process that left it, and how it ended"""
    running = t.start("run", "--hold-at-least", "1h", "x", "--", "sh", "-c", "exit 2")
    expect(running.wait(), 2)
    (kept,) = t.show("x")["holders"]
    expect((kept["ghost"], kept["pid"], kept["host"]), (True, running.pid, HOST))
    shown = t.stile("show", "x").stdout.splitlines()
    assert shown[1].startswith("kept ") and shown[2].endswith(", exit 2"), shown
    listed = t.stile("ls").stdout
    assert re.search(r"nobody, kept for \S+ more by %d@%s\n" % (running.pid, re.escape(HOST)),
                     listed), listed


def reason_of_a_loss(t):
    """run says why the lock was lost; its record has the end"""
    held = t.hold("x")
    spin(lambda: t.show("x")["last"] is not None)
    expect(t.stile("break", "-y", "x").returncode, 0)
    expect(held.wait(), 76)
    expect(held.err.end(),
           "stile: x: the lock is lost: taken by `stile break`; stopping the command\n")
    expect(t.show("x")["last"]["exit_code"], 143)


run_tests([ran_and_ended, local_time, exit_codes, every_name, while_it_runs, nothing_of_the_end,
           front_killed, records_that_cannot_be_kept, labels_of_strangers, kept_names,
           reason_of_a_loss])
