# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""stile run on an engine whose leases run out, and the verbs for claims that outlive their process.

$STILE_TEST is the command with a scripted engine inside: test:/FILE?ttl=MS&renew=...&detached=1.
"""
import json
import os
import re
import signal
import subprocess
import time

import kit
from kit import expect, run_tests

kit.STILE = os.environ["STILE_TEST"]


def engine(t, **params):
    """A server in a file of its own."""
    t.env["STILE_ENGINE"] = "test:%s?%s" % (t.path("server"), "&".join(
        "%s=%s" % one for one in params.items()))


def expires_ns(t):
    """When the server forgets the lock, on CLOCK_BOOTTIME."""
    with open(t.path("server"), encoding="utf-8") as file:
        return int(file.read().split()[3])


STUBBORN = """
    trap "echo term" TERM
    sh -c 'trap "" TERM; echo up >%s; while :; do sleep 0.01; done' >%s &
    while :; do sleep 0.01; done
"""


def stopped_before_the_deadline(t, **params):
    """Nobody of the tree is alive when the lease ends, though nobody heeds SIGTERM."""
    engine(t, ttl=6000, **params)
    life = t.fifo("life")
    running = t.start("run", "--ttl", "6s", "--grace", "3s", "x", "--", "sh", "-c",
                      STUBBORN % (t.path("life"), t.path("life")))
    expect(life.next(), "up")
    end_ns = expires_ns(t)
    expect(life.end(), "")
    dead_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    code, said = running.wait(), running.err.end()
    expect((code, running.out.end()), (76, "term\n"), said)
    assert re.search(r"stile: x: not renewed, the lease ends in \d+ ms; stopping", said), said
    assert dead_ns < end_ns, "alive %d ms too long" % ((dead_ns - end_ns) / 1e6)


def unknown_renewals_stop_it_before_the_deadline(t):
    """row 25, row 9: renewals in doubt: the tree is dead before the lease ends"""
    stopped_before_the_deadline(t, renew="unknown")


def unanswered_renewals_stop_it_before_the_deadline(t):
    """row 25, row 1: renewals without an answer: the tree is dead before the lease ends"""
    stopped_before_the_deadline(t, renew="never")


def session_leases_too(t):
    """row 25: a session's lease: the tree is dead before it ends"""
    stopped_before_the_deadline(t, renew="unknown", lease="session")


def cleaning_up_before_the_deadline(t):
    """a command that heeds SIGTERM ends by it, and run reports the loss all the same"""
    engine(t, ttl=4500, renew="never")
    running = t.start("run", "--ttl", "4500ms", "x", "--", "sh", "-c",
                      'trap "echo cleaned; exit 0" TERM; sleep 1000 & wait')
    expect((running.wait(), running.line()), (76, "cleaned"))


def renewal_that_says_lost(t):
    """row 1: a renewal that finds the lock gone stops the command at once"""
    engine(t, ttl=3000, renew="lost")
    running = t.start("run", "--ttl", "3s", "x", "--", "sleep", "1000")
    code, said = running.wait(), running.err.end()
    expect(code, 76, said)
    assert "x: the lock is lost" in said, said


def renewals_go_on_though_the_job_is_stopped(t):
    """a run that is stopped for longer than its TTL still holds the lock: the warden renews"""
    engine(t, ttl=2000)
    running = t.start("run", "--ttl", "2s", "x", "--", "sh", "-c", "echo up; sleep 5; echo done")
    expect(running.line(), "up")
    running.kill(signal.SIGSTOP)
    expect(running.line(), "done")
    running.kill(signal.SIGCONT)
    expect((running.wait(), running.err.end()), (0, ""))


def another_ttl_than_asked_for(t):
    """an engine that rounds a TTL, or has bounds: run says what it is, unless it is to be quiet"""
    engine(t, ttl=2000)
    done = t.stile("run", "--ttl", "1500ms", "x", "--", "true")
    expect((done.returncode, done.stderr),
           (0, "stile: run: the engine uses a TTL of 2 s instead of 1.5 s\n"))
    for options in ["-q", "--ttl", "1500ms"], ["--ttl", "2s"], []:
        done = t.stile("run", *options, "x", "--", "true")
        expect((done.returncode, done.stderr), (0, ""))


def claim_without_an_answer(t):
    """row 25: a server that never answers: --wait and a signal end the wait"""
    engine(t, grant="never")
    expect(t.stile("run", "--wait", "50ms", "x", "--", "echo").returncode, 75)
    waiter = t.start("run", "x", "--", "echo", "ran")
    kit.spin(lambda: kit.children(waiter.pid))
    waiter.kill(signal.SIGTERM)
    expect((waiter.wait(), waiter.out.end()), (-signal.SIGTERM, ""))


def acquired(t, *options):
    done = t.stile("acquire", "--json", *options, "x")
    expect(done.returncode, 0, done.stderr)
    return json.loads(done.stdout)


def acquire_renew_release(t):
    """acquire, renew, release: three processes, one claim"""
    engine(t, detached=1)
    done = t.stile("acquire", "--ttl", "1h", "x")
    shown = subprocess.run(["sh", "-ec", 'eval "$1"; env', "sh", done.stdout], check=True, text=True,
                           env={"PATH": os.environ["PATH"]}, stdout=subprocess.PIPE).stdout
    values = dict(line.split("=") for line in shown.splitlines() if line.startswith("STILE_"))
    expect(set(values), {"STILE_OWNER", "STILE_TOKEN", "STILE_ISSUER"}, done.stderr)
    expect(values["STILE_ISSUER"], "test:x")
    as_in_the_manual = 'claim=$("$0" acquire --try x) || exit; eval "$claim"; echo went on'
    done = subprocess.run(["sh", "-c", as_in_the_manual, kit.STILE], check=False, text=True,
                          env=t.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    expect((done.returncode, done.stdout), (75, ""))
    expect(t.stile("run", "--try", "x", "--", "echo", "ran").returncode, 75)
    before = expires_ns(t)
    env = {**t.env, "STILE_OWNER": values["STILE_OWNER"]}
    done = t.stile("renew", "--ttl", "2h", "--json", "x", env=env)
    expect(done.returncode, 0, done.stderr)
    assert json.loads(done.stdout)["expires_ms"] > 3600 * 1000, done.stdout
    assert expires_ns(t) > before
    expect(t.stile("release", "--owner", values["STILE_OWNER"], "x").returncode, 0)
    expect(t.stile("renew", "x", env=env).returncode, 76)
    expect(t.stile("release", "x", env=env).returncode, 76)
    again = acquired(t, "--try", "--ttl", "1h")
    assert again["token"] > int(values["STILE_TOKEN"]) and again["expires_ms"] > 0, again


def foreign_owner_changes_nothing(t):
    """renew and release with a foreign owner: 76, and the lock stays whose it is"""
    engine(t, detached=1)
    mine = acquired(t, "--ttl", "1h")
    for verb in "renew", "release":
        done = t.stile(verb, "--owner", "somebody-else", "x")
        expect((done.returncode, done.stdout), (76, ""), done.stderr)
        assert mine["owner"] not in done.stderr, done.stderr
    expect(t.stile("acquire", "--try", "x").returncode, 75)
    expect(t.stile("release", "--owner", mine["owner"], "x").returncode, 0)


def acquire_that_cannot_be_told(t):
    """acquire that can't print its owner value gives the lock back: 74"""
    engine(t, detached=1)
    with open("/dev/full", "w", encoding="utf-8") as full:
        expect(t.stile("acquire", "--ttl", "1h", "x", stdout=full).returncode, 74)
    acquired(t, "--try", "--ttl", "1h")


def signal_ends_acquire(t):
    """row 25: acquire dies of the signal that ends its wait"""
    engine(t, detached=1)
    acquired(t, "--ttl", "1h")
    waiter = t.start("acquire", "x", stdin=subprocess.DEVNULL)
    # It takes signals before it asks the server.
    kit.spin(lambda: int(masked(waiter.pid), 16) & 1 << signal.SIGINT - 1)
    waiter.kill(signal.SIGINT)
    expect((waiter.wait(), waiter.out.end()), (-signal.SIGINT, ""))


def masked(pid):
    with open("/proc/%d/status" % pid, encoding="utf-8") as file:
        return re.search(r"(?m)^SigBlk:\s*(\w+)$", file.read()).group(1)


run_tests([
    unknown_renewals_stop_it_before_the_deadline,
    unanswered_renewals_stop_it_before_the_deadline,
    session_leases_too,
    cleaning_up_before_the_deadline,
    renewal_that_says_lost,
    renewals_go_on_though_the_job_is_stopped,
    another_ttl_than_asked_for,
    claim_without_an_answer,
    acquire_renew_release,
    foreign_owner_changes_nothing,
    acquire_that_cannot_be_told,
    signal_ends_acquire,
])
