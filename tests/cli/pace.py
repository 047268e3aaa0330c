# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""stile pace and stile run --pace on local:, as a person or a script uses them."""
import json
import os
import signal
import time

from kit import expect, run_tests, spin

# So long that no test waits for it to pass.
ONE = ("--rate", "1/1h")


def pace(t, *words):
    return t.stile("pace", *words)


def refused(done, code, text):
    expect((done.returncode, done.stdout), (code, ""))
    assert text in done.stderr, done.stderr


def starts_and_refusals(t):
    """a start is 0; a wait that would be too long is 75 at once, and says how long"""
    done = pace(t, "api", "--rate", "2/1h")
    expect((done.returncode, done.stdout, done.stderr), (0, "", ""))
    expect(json.loads(pace(t, "api", "--rate", "2/1h", "--json", "--try").stdout)["start"], True)
    for how in ("--try",), ("--wait", "100ms"):
        refused(pace(t, "api", "--rate", "2/1h", *how), 75, "stile: pace: pacing 'api': the next start is in 3")
        done = pace(t, "api", "--rate", "2/1h", "--json", "-q", *how)
        expect((done.returncode, done.stderr), (75, ""))
        seen = json.loads(done.stdout)
        expect((seen["name"], seen["start"]), ("api", False))
        assert 3000000 < seen["next_ms"] <= 3650000, seen


def waits(t):
    """a start that has to wait comes, in its time"""
    began = time.clock_gettime(time.CLOCK_BOOTTIME)
    for _ in range(3):
        expect(pace(t, "api", "--rate", "1/300ms").returncode, 0)
    assert time.clock_gettime(time.CLOCK_BOOTTIME) - began >= 0.6


def bursts(t):
    """--burst lets some start at once"""
    for _ in range(3):
        expect(pace(t, "api", "--rate", "1/1h", "--burst", "3", "--try").returncode, 0)
    refused(pace(t, "api", "--rate", "1/1h", "--burst", "3", "--try"), 75, "the next start is in 3")


def another_rate(t):
    """a name has one rate"""
    expect(pace(t, "api", *ONE).returncode, 0)
    refused(pace(t, "api", "--rate", "2/1h"), 75, "it is used with the rate 1/3600s")
    expect(pace(t, "other", "--rate", "2/1h").returncode, 0)


def damaged(t):
    """a cell that holds something else is left alone"""
    t.stile("cell", "put", "pace:api", input="mine")
    refused(pace(t, "api", *ONE), 69, "stile cell rm")
    expect(t.stile("cell", "get", "pace:api").stdout, "mine")


def usage(t):
    """rates that are none"""
    for rate in "5", "5/", "/1s", "0/1s", "1001/1s", "5/1", "5/1x", "5/5ms", "5/400d", "x/1s", "-1/1s", "99999999/1s", "":
        expect(pace(t, "api", "--rate", rate).returncode, 64, rate)
    refused(pace(t, "api"), 64, "--rate: missing")
    refused(pace(t, "--rate", "5/1s"), 64, "NAME: missing")
    refused(pace(t, "api", "--rate", "5/1s", "--burst", "1001"), 64, "at most 1000")
    refused(pace(t, "a" * 508, "--rate", "5/1s"), 64, "507 is the limit")
    refused(t.stile("run", "--burst", "5", "x", "--", "true"), 64, "goes with --pace only")
    expect(pace(t, "a" * 507, "--rate", "5/1s").returncode, 0)


def run_waits_under_the_lock(t):
    """run --pace holds the lock while it waits for the start, and --wait covers both"""
    expect(t.stile("run", "--pace", "1/1h", "x", "--", "true").returncode, 0)
    done = t.stile("run", "--pace", "1/1h", "--wait", "100ms", "x", "--", "echo", "ran")
    refused(done, 75, "stile: run: --pace: pacing 'x': the next start is in 3")
    expect(t.stile("run", "-q", "--try", "--pace", "1/1h", "x", "--", "echo", "ran").stderr, "")
    expect(t.stile("run", "-E", "9", "--try", "--pace", "1/1h", "x", "--", "echo", "ran").returncode, 9)
    # Nothing was done under the lock, so it is not kept.
    expect(t.stile("run", "--hold-at-least", "1h", "--try", "--pace", "1/1h", "x", "--", "true").returncode, 75)
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)
    waiting = t.start("run", "--pace", "1/1h", "x", "--", "echo", "ran")
    spin(lambda: t.show("x")["holders"])
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
    os.kill(waiting.pid, signal.SIGTERM)
    expect(waiting.wait(), -signal.SIGTERM)
    expect(waiting.out.end(), "")
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)


def run_ends_with_its_front_or_its_lock(t):
    """a killed front, or a broken lock, ends the wait for the start; the command never runs"""
    expect(t.stile("run", "--pace", "1/1h", "x", "--", "true").returncode, 0)
    waiting = t.start("run", "--pace", "1/1h", "x", "--", "echo", "ran")
    spin(lambda: t.show("x")["holders"])
    os.kill(waiting.pid, signal.SIGKILL)
    waiting.wait()
    spin(lambda: not t.show("x")["holders"])
    waiting = t.start("run", "--pace", "1/1h", "x", "--", "echo", "ran")
    spin(lambda: t.show("x")["holders"])
    expect(t.stile("break", "-y", "x").returncode, 0)
    expect(waiting.wait(), 76)
    expect(waiting.out.end(), "")


def run_starts_in_time(t):
    """commands that may overlap start at the rate"""
    began = time.clock_gettime(time.CLOCK_BOOTTIME)
    running = [t.start("run", "--slots", "6", "--pace", "2/500ms", "x", "--", "true") for _ in range(6)]
    for one in running:
        expect(one.wait(), 0)
    # Two at once, two after a window, and two after a further one.
    assert time.clock_gettime(time.CLOCK_BOOTTIME) - began >= 1.0


run_tests([starts_and_refusals, waits, bursts, another_rate, damaged, usage, run_waits_under_the_lock,
           run_ends_with_its_front_or_its_lock, run_starts_in_time])
