# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What a refusal, a wait and a lock without a token print, and hints that work as they are printed.

$STILE_TEST is the command with a scripted engine inside: test:/FILE?grant=busy&show=never&bare=1.
"""
import json
import os
import re
import shlex
import subprocess

import kit
from kit import Lines, expect, run_tests

HOST = re.escape(os.uname().nodename)
CLOCK = r"(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d"


def scripted(t, **params):
    """Runs the test build, on a server in a file of its own."""
    t.env["STILE_ENGINE"] = "test:%s?%s" % (t.path("server"), "&".join(
        "%s=%s" % one for one in params.items()))

    def stile(*args, **how):
        return subprocess.run([os.environ["STILE_TEST"], *args], env=t.env, capture_output=True,
                              text=True, check=False, timeout=kit.PATIENCE,
                              stdin=subprocess.DEVNULL, **how)
    return stile


def said(done, pattern, code=75):
    expect(done.returncode, code, done.stderr)
    found = re.fullmatch("stile: " + pattern + "\n", done.stderr)
    assert found, done.stderr
    return found


def type_hint(t, done):
    """What is behind `see: `, in a shell, as a reader would type it."""
    hint = done.stderr.partition("; see: ")[2]
    assert hint.startswith("stile show"), done.stderr
    hint = shlex.quote(kit.STILE) + hint[len("stile"):].rstrip() + " --json"
    return json.loads(subprocess.run(["sh", "-c", hint], env=t.env, check=True,
                                     stdout=subprocess.PIPE).stdout)


def a_refusal_names_the_holder(t):
    """75: host, pid, command and since when; the hint works as it is printed"""
    held = t.hold("x")
    done = t.stile("run", "--try", "x", "--", "true")
    said(done, r"x: held by %s pid %d \(sh\) since %s; see: stile show x" % (HOST, held.pid, CLOCK))
    expect(type_hint(t, done)["holders"][0]["pid"], held.pid)
    done = t.stile("run", "--wait", "20ms", "x", "--", "true")
    said(done, r"x: not granted in time; held by %s pid %d .*; see: stile show x" % (HOST, held.pid))
    expect(t.stile("run", "-q", "--try", "x", "--", "true").stderr, "")
    t.release(held)


def hints_for_odd_names_and_engines(t):
    """the hint repeats -e, and quotes what a shell would read otherwise"""
    url = t.env.pop("STILE_ENGINE") + "?allow=fuse"
    for name in "it's", "a b", "$HOME", "*", "x;y", "\N{SNOWMAN}":
        held = t.hold(name, "-e", url)
        done = t.stile("run", "-e", url, "--try", name, "--", "true")
        expect(done.returncode, 75)
        seen = type_hint(t, done)
        expect((seen["name"], seen["holders"][0]["pid"]), (name, held.pid))
        t.release(held)


def a_long_name_has_no_half_hint(t):
    """a hint that is too long to be printed whole is left out"""
    held = t.hold("n" * 512)
    done = t.stile("run", "--try", "n" * 512, "--", "true")
    said(done, r"n{512}: held by %s pid %d \(sh\) since %s" % (HOST, held.pid, CLOCK))
    t.release(held)


def a_kept_name(t):
    """while a hold keeps a name: until when, not `held by another`"""
    expect(t.stile("run", "--hold-at-least", "1h", "x", "--", "true").returncode, 0)
    said(t.stile("run", "--try", "x", "--", "true"),
         r"x: kept until %s( \(by %s( pid \d+)?\))?; see: stile show x" % (CLOCK, HOST))


def several_holders(t):
    """shared holders and slots: the first, and how many more"""
    held = [t.hold("x", "--shared") for _ in range(3)]
    said(t.stile("run", "--try", "x", "--", "true"),
         r"x: held by %s pid %d \(sh\) since %s and 2 more; see: stile show x" % (
             HOST, held[0].pid, CLOCK))
    for one in held:
        t.release(one)


def the_holder_has_gone(t):
    """a holder that has gone meanwhile is not invented"""
    stile = scripted(t, grant="busy")
    said(stile("run", "--try", "x", "--", "true"),
         "x: held until a moment ago; try again; see: stile show x")


def the_engine_does_not_say(t):
    """an engine that does not answer the look delays the refusal by a second, and nothing is made up"""
    stile = scripted(t, grant="busy", show="never")
    said(stile("run", "--try", "x", "--", "true"), "x: held by another; see: stile show x")
    stile = scripted(t, grant="busy", show="never", detached="1")
    said(stile("acquire", "--try", "x"), "x: held by another; see: stile show x")


def acquire_names_it_too(t):
    """acquire: the holder of a lock that was not granted"""
    stile = scripted(t, detached="1")
    expect(stile("acquire", "--ttl", "1h", "x").returncode, 0)
    said(stile("acquire", "--try", "x"), "x: held by .* since %s; see: stile show x" % CLOCK)


def a_wait_is_reported_in_a_log(t):
    """without a terminal: a line after ten seconds, with the holder and the place in the queue"""
    held, watched = t.hold("x"), t.watch("x")
    waiters = []
    for number, quiet in enumerate(((), ("-q",), ())):
        waiters.append(t.start("run", *quiet, "x", "--", "true"))
        t.until(watched, lambda change: len(change["waiters"]) == number + 1)
    for waiter, ahead in (waiters[0], ""), (waiters[2], ", 2 ahead"):
        line = waiter.err.next()
        assert re.fullmatch(r"stile: waiting for 'x' \(held by %s pid %d for [\dms]+%s\)" % (
            HOST, held.pid, ahead), line), line
    t.release(held)
    for waiter in waiters:
        expect((waiter.wait(), waiter.err.end()), (0, ""))


def a_log_that_is_not_read(t):
    """a report that stderr has no room for is dropped, and the wait goes on"""
    held = t.hold("x")
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"full" * 1024)
    except BlockingIOError:
        os.set_blocking(writer, True)
    waiter = subprocess.Popen([kit.STILE, "run", "--wait", "11s", "x", "--", "true"], env=t.env,
                              stdin=subprocess.DEVNULL, stderr=writer)
    os.close(writer)
    expect(waiter.wait(kit.PATIENCE), 75)
    assert "stile" not in Lines(reader).end()
    os.close(reader)
    t.release(held)


def no_token(t):
    """a lock without a token: one line says how to get one; --require-token does not run CMD"""
    stile = scripted(t, bare="1")
    done = stile("run", "x", "--", "sh", "-c", "echo ran ${STILE_TOKEN-without}")
    expect((done.returncode, done.stdout), (0, "ran without\n"))
    line = "stile: run: no fencing token: nothing is set up; run `stile setup` first\n"
    expect(done.stderr, line)
    expect(stile("run", "-q", "x", "--", "true").stderr, "")
    done = stile("run", "-e", t.env["STILE_ENGINE"], "x", "--", "true")
    assert "`stile setup -e 'test:" in done.stderr, done.stderr
    for quiet in (), ("-q",):
        done = stile("run", *quiet, "--require-token", "x", "--", "echo", "ran")
        expect((done.returncode, done.stdout, done.stderr), (69, "", line))
    expect(stile("run", "--require-token", "-E", "9", "x", "--", "true").returncode, 9)
    stile = scripted(t, bare="1", grant="never")  # not even waited for
    expect(stile("run", "--require-token", "x", "--", "true").returncode, 69)
    stile = scripted(t)
    done = stile("run", "--require-token", "x", "--", "sh", "-c", "echo ${STILE_TOKEN:?}")
    expect((done.returncode, done.stderr), (0, ""))


run_tests([
    a_refusal_names_the_holder,
    hints_for_odd_names_and_engines,
    a_long_name_has_no_half_hint,
    a_kept_name,
    several_holders,
    the_holder_has_gone,
    the_engine_does_not_say,
    acquire_names_it_too,
    a_wait_is_reported_in_a_log,
    a_log_that_is_not_read,
    no_token,
])
