# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""stile once on local:, as a person, a script or cron uses it."""
import json
import os
import re
import signal
import subprocess

from kit import STILE, children, expect, run_tests, spin

OUTPUT_MAX = 60 * 1024
CROWD = 6
# Notes that it ran, says so, and goes on when its stdin ends.
WAITING = "echo ran >>%s; echo $STILE_TOKEN; cat"


def once(t, *words, code=0, out=None, err="", **how):
    done = t.stile("once", *words, **how)
    expect(done.returncode, code, done.stderr)
    if out is not None:
        expect(done.stdout, out)
    assert err in done.stderr and bool(err) == bool(done.stderr), done.stderr
    return done.stdout


def runs(t):
    """How often WAITING or NOTING ran."""
    try:
        with open(t.path("runs"), encoding="utf-8") as file:
            return len(file.readlines())
    except FileNotFoundError:
        return 0


def begin(t, key, *options, command=None):
    """A runner whose command has begun; close its stdin to end it. Its first line is its token."""
    running = t.start("once", *options, key, "--", "sh", "-c", command or WAITING % t.path("runs"),
                      stdin=subprocess.PIPE)
    running.token = int(running.line())
    return running


def show(t, key):
    done = t.stile("once", "--show", "--json", key)
    seen = json.loads(done.stdout)
    expect(done.returncode, 1 if seen["state"] == "none" else 0)
    return seen


# ---- results ----

def results(t):
    """the first caller runs, later ones get its output and exit code"""
    once(t, "k", "--", "sh", "-c", "printf 'a\\000b\\n'; echo said >&2", out="a\0b\n", err="said")
    once(t, "k", "--", "echo", "again", out="a\0b\n")
    once(t, "other", "--", "true", out="")
    once(t, "other", "--", "echo", "again", out="")
    seen = show(t, "k")
    expect({key: seen[key] for key in ("key", "state", "code", "size", "output_stored", "fingerprint")},
           {"key": "k", "state": "done", "code": 0, "size": 4, "output_stored": True, "fingerprint": ""})
    table = once(t, "--show", "k").splitlines()
    assert re.match(r"done +0 +%d +\S+ +4 +- +-$" % seen["token"], table[1]), table


def waiters(t):
    """callers that come meanwhile wait, and get the result of the one run"""
    first = begin(t, "k")
    watched = t.watch("once:k")
    others = [t.start("once", "k", "--", "sh", "-c", "echo ran >>" + t.path("runs")) for _ in range(CROWD)]
    t.until(watched, lambda change: len(change["waiters"]) == CROWD)
    first.process.stdin.close()
    for other in others:
        expect((other.wait(), other.out.end()), (0, "%d\n" % first.token))
    expect((first.wait(), runs(t)), (0, 1))


def all_at_once(t):
    """of many that start at the same time, one runs"""
    script = "echo ran >>%s; echo $$" % t.path("runs")
    running = [t.start("once", "k", "--", "sh", "-c", script) for _ in range(CROWD)]
    seen = {(one.wait(), one.out.end()) for one in running}
    expect((len(seen), runs(t)), (1, 1), seen)


def failures(t):
    """a failed run stores nothing; with --keep-failures it does, and a death by signal is 128+N"""
    fails = "echo ran >>%s; echo out; exit 3" % t.path("runs")
    for _ in range(2):
        once(t, "k", "--fingerprint", "f", "--", "sh", "-c", fails, code=3, out="out\n")
    expect((runs(t), show(t, "k")["state"]), (2, "none"))
    for _ in range(2):
        once(t, "--keep-failures", "k", "--", "sh", "-c", fails, code=3, out="out\n")
    expect(runs(t), 3)
    once(t, "--keep-failures", "killed", "--", "sh", "-c", "kill -9 $$", code=-9)
    once(t, "killed", "--", "true", code=137)


def ended_by_its_user(t):
    """a run that a signal to stile ends is no result, and a command that is not there is none"""
    running = begin(t, "k", "--keep-failures")
    running.kill(signal.SIGTERM)
    expect(running.wait(), -signal.SIGTERM)
    expect(show(t, "k")["state"], "none")
    once(t, "--keep-failures", "k", "--", "/no/such/command", code=127, err="No such file")
    once(t, "--keep-failures", "k", "--", "/", code=126, err="ermission denied")
    once(t, "k", "--", "echo", "done", out="done\n")


def fingerprints(t):
    """another fingerprint is refused, while it runs and afterwards"""
    running = begin(t, "k", "--fingerprint", "one")
    once(t, "--fingerprint", "two", "k", "--", "true", code=79, out="", err="another fingerprint")
    running.process.stdin.close()
    expect(running.wait(), 0)
    once(t, "--fingerprint", "two", "k", "--", "true", code=79, out="", err="another fingerprint")
    once(t, "k", "--", "true", code=79, out="", err="another fingerprint")
    once(t, "--fingerprint", "one", "k", "--", "true", out="%d\n" % running.token)
    expect(show(t, "k")["fingerprint"], "one")


def impatient(t):
    """--try and --wait exit with 75, or with CODE, while another process runs it"""
    running = begin(t, "k")
    once(t, "--try", "k", "--", "true", code=75, out="", err="held by")
    once(t, "--wait", "30ms", "k", "--", "true", code=75, out="", err="held by")
    once(t, "-q", "-E", "9", "--try", "k", "--", "true", code=9, out="")
    running.process.stdin.close()
    expect(running.wait(), 0)
    once(t, "--try", "k", "--", "true", out="%d\n" % running.token)


def keeping(t):
    """a result is kept for --keep, then it is run again"""
    once(t, "--keep", "100ms", "k", "--", "echo", "1", out="1\n")
    spin(lambda: t.stile("once", "k", "--", "echo", "2").stdout == "2\n")
    once(t, "--keep", "forever", "for-ever", "--", "echo", "1", out="1\n")
    once(t, "for-ever", "--", "echo", "2", out="1\n")


# ---- output ----

def large(t):
    """output of up to 60 KiB is stored; of more, the exit code, and both say so"""
    def write(size):
        return "head -c %d /dev/zero | tr '\\0' x" % size
    once(t, "fits", "--", "sh", "-c", write(OUTPUT_MAX), out="x" * OUTPUT_MAX)
    once(t, "fits", "--", "true", out="x" * OUTPUT_MAX)
    for size in OUTPUT_MAX + 1, 1000000:
        key = "large-%d" % size
        once(t, key, "--", "sh", "-c", write(size), out="x" * size, err="not stored")
        once(t, key, "--", "true", out="", err="its output (%d bytes) was too large" % size)
        once(t, "-q", key, "--", "true", out="")
        expect(show(t, key)["output_stored"], False)


def unread(t):
    """a stdout that is closed loses nothing for others"""
    def closed(*words):
        reading, writing = os.pipe()
        os.close(reading)
        done = t.stile("once", "k", "--", *words, stdout=writing)
        os.close(writing)
        return done
    done = closed("sh", "-c", "echo one; echo two")
    expect(done.returncode, 74, done.stderr)
    assert "stdout" in done.stderr, done.stderr
    expect(closed("true").returncode, 74)
    once(t, "k", "--", "true", out="one\ntwo\n")


def begin_unread(t, size):
    """A run whose output is more than a pipe holds, and is not read; and where to read it. Its command has ended, if
    two pipes hold the output, also where pieces that fill no page leave room unused."""
    reading, writing = os.pipe()
    script = "head -c %d /dev/zero; echo wrote >&2" % size
    running = subprocess.Popen([STILE, "once", "k", "--", "sh", "-c", script], env=t.env, stdout=writing,
                               stderr=subprocess.PIPE)
    os.close(writing)
    if size <= 100000:
        expect(running.stderr.readline(), b"wrote\n")
        (warden,) = children(running.pid)
        spin(lambda: not children(warden))
    return running, reading


def blocked(t):
    """a stdout that takes nothing keeps the command waiting, and the lock; nothing is lost"""
    size = 300000
    running, reading = begin_unread(t, size)
    got = len(os.read(reading, 1))
    once(t, "--try", "k", "--", "true", code=75, err="held by")
    while data := os.read(reading, 65536):
        got += len(data)
    os.close(reading)
    expect((got, running.wait(60)), (size, 0))
    running.stderr.close()
    once(t, "k", "--", "true", err="(%d bytes)" % size)


def given_up(t):
    """a signal ends the wait for a stdout that takes nothing; what was run is not run again"""
    running, reading = begin_unread(t, 100000)
    once(t, "--try", "k", "--", "true", code=75, err="held by")
    running.send_signal(signal.SIGTERM)
    expect(running.wait(60), 74)
    said = running.stderr.read().decode()
    running.stderr.close()
    os.close(reading)
    assert "not complete" in said, said
    once(t, "k", "--", "echo", "again", out="", err="was not stored")


def of_the_tree(t):
    """what a process writes that the command left behind belongs to the output"""
    once(t, "-q", "k", "--", "sh", "-c", "(sleep 0.2; echo late) & echo early", out="early\nlate\n")
    once(t, "k", "--", "true", out="early\nlate\n")


# ---- runners that die ----

def killed(t):
    """a runner whose front, warden or both are killed is replaced, with a larger token"""
    token = 0
    for victims in ("front",), ("warden",), ("front", "warden"):
        running = begin(t, "k")
        assert running.token > token
        token = running.token
        pids = {"front": running.pid, "warden": running.warden()}
        (command,) = children(pids["warden"])
        t.guard(command)
        for victim in victims:
            os.kill(pids[victim], signal.SIGSTOP)
        for victim in victims:
            os.kill(pids[victim], signal.SIGKILL)
        running.wait()
        running.process.stdin.close()  # a command that outlives both ends with it
    assert int(once(t, "k", "--", "sh", "-c", "echo $STILE_TOKEN")) > token
    expect(runs(t), 3)


def states(t):
    """--show distinguishes none, running, interrupted and done; --forget removes what is not running"""
    expect(show(t, "k")["state"], "none")
    once(t, "--show", "k", code=1, out="", err="nothing is stored")
    running = begin(t, "k", "--fingerprint", "f")
    seen = show(t, "k")
    expect((seen["state"], seen["token"], seen["fingerprint"]), ("running", running.token, "f"))
    assert re.search(r"running .* \d+@\S+ sh$", once(t, "--show", "k").splitlines()[1])
    once(t, "--forget", "k", code=75, err="being run")
    running.kill(signal.SIGKILL)
    running.wait()
    spin(lambda: show(t, "k")["state"] == "interrupted")
    once(t, "--fingerprint", "g", "k", "--", "true", code=79, err="another fingerprint")
    once(t, "--forget", "k", out="")
    once(t, "--fingerprint", "g", "k", "--", "echo", "new", out="new\n")
    expect(show(t, "k")["state"], "done")
    once(t, "--forget", "k", out="")
    once(t, "--forget", "k", out="")
    once(t, "k", "--", "echo", "newer", out="newer\n")


# ---- keys and what is stored ----

def odd_keys(t):
    """keys may be any text of up to 507 bytes"""
    for key in "a b", "100%s%n", "é€", "once:k", "a/b", "k" * 507:
        once(t, key, "--", "echo", key, out=key + "\n")
        once(t, key, "--", "true", out=key + "\n")
        expect(show(t, key)["key"], key)
    once(t, "k" * 508, "--", "true", code=64, err="508 bytes, 507 is the limit")
    once(t, "", "--", "true", code=64, err="empty")
    once(t, "a\nb", "--", "true", code=64, err="control character")
    once(t, "--fingerprint", "f" * 513, "f", "--", "true", code=64, err="512 bytes")


def hostile(t):
    """what another program has stored is refused with a reason, and --forget removes it"""
    good = "stile-once 1 done 0 7 1 0 1 whole\nx"
    t.stile("cell", "put", "once:good", input=good)
    once(t, "good", "--", "true", out="x")
    wrong = ("text", "", "\n", good + "x", good[:-1], good.replace(" 1 ", " 2 ", 1), good.replace("done", "gone"),
             good.replace(" 0 7", " 00 7"), good.replace(" 0 7", " +0 7"), good.replace(" 0 7", " 4294967296 7"),
             good.replace(" 7 1", " -7 1"), good.replace(" 7 1", " 99999999999999999999 1"),
             good.replace("0 1 whole", "-1 2 whole"), good.replace("0 1 whole", "99999 1 whole"),
             good.replace("whole", "cut"), good.replace("whole", "whole "), good.replace("done", "running"),
             "x" * 65536)
    for number, value in enumerate(wrong):
        key = "wrong-%d" % number
        t.stile("cell", "put", "once:" + key, input=value)
        once(t, key, "--", "true", code=69, out="", err="no record of once")
        once(t, "--show", key, code=69, out="", err="no record of once")
    once(t, "--forget", "wrong-0", out="")
    once(t, "wrong-0", "--", "echo", "new", out="new\n")
    # A number that no exit code can be is a failure.
    t.stile("cell", "put", "once:far", input="stile-once 1 done 256 7 1 0 0 whole\n")
    once(t, "far", "--", "true", code=1, out="")


def environment(t):
    """the command finds its lock, and a run inside itself is refused"""
    seen = once(t, "k", "--", "sh", "-c", "echo $STILE_NAME $STILE_ISSUER $STILE_TOKEN")
    assert re.match(r"once:k local:once:k \d+\n$", seen), seen
    inner = [STILE, "once", "x", "--", "true"]
    once(t, "x", "--", *inner, code=64, err="would never be granted")
    once(t, "y", "--", *inner, out="")


# ---- slots ----

def slots(t):
    """--slot adds the slot that the clock is in, and without an engine says how far it reaches"""
    once(t, "--slot", "1d", "k", "--", "echo", "x", out="x\n")
    keys = t.stile("cell", "ls", "once:k@").stdout
    assert re.search(r"^once:k@\d{4}-\d\d-\d\dT00:00Z ", keys, re.M), keys
    once(t, "--slot", "7s", "s", "--", "true")
    keys = t.stile("cell", "ls", "once:s@").stdout
    assert re.search(r"^once:s@\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", keys, re.M), keys
    env = dict(t.env)
    del env["STILE_ENGINE"]
    # The default engine keeps its state in /var/lib: in one of the test's own.
    done = subprocess.run(["unshare", "--map-root-user", "--mount", "sh", "-c",
                           'mount -t tmpfs none /var/lib && exec "$@"', "sh",
                           STILE, "once", "--slot", "1d", "k", "--", "true"],
                          env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    expect(done.returncode, 0, done.stderr)
    assert "this machine only" in done.stderr, done.stderr


def refusals(t):
    """usage errors name the option"""
    for words, text in ((["k"], "no -- found"), ([], "no -- found"), (["--show"], "KEY: missing"),
                        (["--show", "--forget", "k"], "--forget"), (["--show", "k", "--", "true"], "no command"),
                        (["--json", "k", "--", "true"], "--json"), (["k", "l", "--", "true"], "too many"),
                        (["--slot", "100ms", "k", "--", "true"], "whole seconds"),
                        (["--slot", "0s", "k", "--", "true"], "whole seconds"),
                        (["--slot", "400d", "k", "--", "true"], "a year"),
                        (["--keep", "0s", "k", "--", "true"], "more than 0"),
                        (["--keep", "4000d", "k", "--", "true"], "ten years"),
                        (["--keep", "ever", "k", "--", "true"], "--keep"),
                        (["--try", "--wait", "1s", "k", "--", "true"], "--wait"),
                        (["k", "--"], "CMD: missing")):
        once(t, *words, code=64, out="", err=text)
    assert "usage: stile once" in once(t, "--help")


run_tests([results, waiters, all_at_once, failures, ended_by_its_user, fingerprints, impatient, keeping, large, unread,
           blocked, given_up, of_the_tree, killed, states, odd_keys, hostile, environment, slots, refusals])
