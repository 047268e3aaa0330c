# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What can happen to a database and to the sessions of its clients. Each case is written once, and
happens to both: wrap it in the on_server() of a kit."""
import os
import signal

from cutter import Cutter
from sql_kit import count_in, expect, lost, refused, token_of, use, wait_for


def server_crashes(t, server):
    """A crash right after a grant: the holder is notified, and the next token is larger"""
    last = 0
    for _ in range(3):
        held = t.hold("x", "--ttl", "60s")
        token = t.show("x")["token"]
        assert token > last, (last, token)
        server.kill()  # what was not on the disk is gone
        lost(held)
        server.restart()
        last = token_of(t)
        assert last > token, (token, last)


def server_is_shut_down(t, server):
    """A shutdown: the loss is reported at once, a waiter goes on after the restart"""
    held = t.hold("x", "--ttl", "60s")
    waiting = wait_for(t)
    server.shut_down()
    lost(held)
    server.restart()
    assert int(waiting.line()) > 1
    expect(waiting.wait(), 0)


def session_is_ended(t, end):
    """end() ends whatever session holds x: the holder is notified, whichever session it was."""
    held = t.hold("x", "--ttl", "60s")
    end()
    lost(held)
    first = t.hold("x", "--ttl", "60s")
    waiting = t.start("run", "--ttl", "60s", "x", "--", "sh", "-c", "echo in; sleep 100")
    t.until(t.watch("x"), lambda change: len(change["waiters"]) == 1)
    t.release(first)
    expect(waiting.line(), "in")
    end()
    lost(waiting)


def holder_is_killed(t, server):
    """kill -9 of an idle holder, and of one that waits for another lock: free at once"""
    held = t.hold("x", "--ttl", "60s")
    warden = t.guard(held.warden())
    waiting = wait_for(t)
    os.kill(warden, signal.SIGKILL)  # it has the session
    waiting.line()
    expect(waiting.wait(), 0)
    blocker = t.hold("y", "--ttl", "60s")
    both = t.start("run", "--ttl", "60s", "x", "y", "--", "true")
    t.until(t.watch("y"), lambda change: len(change["waiters"]) == 1)
    expect(len(t.show("x")["holders"]), 1)
    os.kill(t.guard(both.warden()), signal.SIGKILL)
    expect(t.stile("run", "x", "--", "true").returncode, 0)
    t.release(blocker)


def cut_off(t, server, words, url):
    """What `stile run` does when the answer to these words never comes; url has a %d for a port."""
    with Cutter(server.port, words) as cutter:
        use(t, server, url % cutter.port)
        done = t.stile("run", "--wait", "20s", "x", "--", "sh", "-c", "echo $STILE_TOKEN")
        expect(cutter.cut, 1)
    use(t, server)
    return done


def hostile_defaults(t, server):
    """Time limits and modes that a server or a role has by default are not ours"""
    held = t.hold("x", "--ttl", "60s")
    waiting = wait_for(t)
    expect(t.stile("run", "--wait", "1500ms", "x", "--", "true").returncode, 75)
    expect(held.process.poll(), None)
    t.release(held)
    waiting.line()
    expect(waiting.wait(), 0)


def sessions_are_bounded(t, server):
    """sessions=: one more than that is refused, with what to say"""
    t.env["STILE_ENGINE"] += "?sessions=2"
    held = [t.hold(name, "--ttl", "60s") for name in ("a", "b")]
    done = t.stile("run", "--wait", "300ms", "a", "--", "true")
    expect(done.returncode, 75, done.stderr)
    t.env["STILE_ENGINE"] = server.url + "?sessions=1"
    refused(t, "sessions=", code=64)
    for one in held:
        t.release(one)


def holder_is_stopped(t, server):
    """A holder that is stopped past its lease: the next one has a larger token, and it is notified"""
    held = t.hold("x", "--ttl", "2s")
    stopped = [held.warden(), held.pid]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        expect(count_in(token_of(t)), 2)
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    lost(held)
    expect(count_in(token_of(t)), 3)
