# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Holders and servers that are stopped, holders that die, clocks that jump; what is kept for how
long, and that the token shows which one is late."""
import os
import signal

from redis_kit import (Proxy, RedisServer, acquire, expect, gets_in, kill_at_once, lost,
                       nothing_left, on_server, run_tests, signal_all, through, use, waiting,
                       warden_and_command)

MODES = {"x": [], "s": ["--shared"], "n": ["--slots", "1"]}


# ---- holders ----

@on_server()
def holder_stopped(t, server):
    """A holder stopped past its TTL: the next one's token is larger, and the late one is notified"""
    held = t.hold("x", "--ttl", "1s")
    token = t.show("x")["token"]
    pids = warden_and_command(held)
    signal_all(pids, signal.SIGSTOP)
    next_one = t.hold("x", "--ttl", "60s")
    later = t.show("x")["token"]
    assert later > token, (token, later)
    os.kill(pids[0], signal.SIGCONT)
    lost(held)
    expect(t.show("x")["token"], later)
    expect(next_one.process.poll(), None)
    t.release(next_one)
    nothing_left(server)


@on_server()
def waiter_stopped(t, server):
    """A waiter that is stopped when its turn comes is passed over, and gets it later"""
    held = t.hold("x", "--ttl", "60s")
    stopped = waiting(t, "x")
    behind = waiting(t, "x")
    warden = stopped.warden()
    os.kill(warden, signal.SIGSTOP)
    t.release(held)
    first = gets_in(behind)
    os.kill(warden, signal.SIGCONT)
    assert gets_in(stopped) > first
    nothing_left(server)


# ---- what stays after a holder ----

@on_server()
def killed_with_a_delay(t, server):
    """lock-delay after kill -9: nobody gets it for so long after the lease"""
    for name, mode in MODES.items():
        held = t.hold(name, "--ttl", "1s", "--lock-delay", "60s", *mode)
        kill_at_once(held)
        assert int(server.cli("PTTL", "lock:" + name)) > 30000
        expect(t.stile("run", "--try", "--ttl", "1s", name, "--", "true").returncode, 75)


@on_server()
def killed_with_a_hold(t, server):
    """hold_at_least after kill -9: nobody gets it for so long after the grant"""
    for name, mode in MODES.items():
        held = t.hold(name, "--ttl", "1s", "--hold-at-least", "60s", *mode)
        kill_at_once(held)
        assert int(server.cli("PTTL", "lock:" + name)) > 30000
        expect(t.stile("run", "--try", "--ttl", "1s", name, "--", "true").returncode, 75)


@on_server()
def missed_with_a_delay(t, server):
    """lock-delay after a live holder missed its deadline: clearing away does not cut it short"""
    held = {name: t.hold(name, "--ttl", "1s", "--lock-delay", "60s", *mode)
            for name, mode in MODES.items()}
    plain = t.hold("plain", "--ttl", "1s")
    pids = [one.warden() for one in (*held.values(), plain)]
    signal_all(pids, signal.SIGSTOP)
    acquire(t, "later", "--ttl", "1s")  # over on the server: all before it are over, too
    expect(t.stile("run", "later", "--", "true").returncode, 0)
    signal_all(pids, signal.SIGCONT)
    lost(plain, "plain")
    nothing_left(server, "plain")
    for name in held:
        lost(held[name], name)
        assert int(server.cli("PTTL", "lock:" + name)) > 30000, server.cli("KEYS", "*")
        expect(t.stile("run", "--try", name, "--", "true").returncode, 75)
    assert server.cli("GET", "lock:x").startswith("~h")


# ---- servers ----

@on_server()
def stopped_under_a_waiter(t, server):
    """A server that is stopped for a while: waiters still wait, in the old order"""
    held = t.hold("x", "--ttl", "60s")
    first, second = waiting(t, "x"), waiting(t, "x")
    server.pause()
    server.go_on()
    t.release(held)
    assert gets_in(first) < gets_in(second)
    nothing_left(server)


@on_server()
def stopped_before_a_release(t, server):
    """A release that a stopped server does not answer says so, and is done when it wakes up"""
    held = t.hold("x", "--ttl", "60s")
    server.pause()
    held.process.stdin.close()
    expect(held.wait(), 1)  # the command's own
    assert "answer" in held.err.end()  # core and the connection notice it at about the same time
    server.go_on()
    nothing_left(server)


# ---- clocks ----

def with_own_clock(case):
    def with_server(t):
        with RedisServer(own_clock=True) as server:
            use(t, server)
            case(t, server)
    with_server.__name__, with_server.__doc__ = case.__name__, case.__doc__
    return with_server


@with_own_clock
def clock_forward(t, server):
    """The server's clock jumps ahead: the early holder has the larger token, the first is notified"""
    for name, mode in MODES.items():
        held = t.hold(name, "--ttl", "3s", *mode)
        token = t.show(name)["token"]
        server.jump(3600)
        owner, later = acquire(t, name, "--ttl", "60s", *mode)
        assert later > token
        lost(held, name)
        expect(t.stile("renew", "--owner", owner, *mode, name).returncode, 0)
        server.jump(0)


@with_own_clock
def clock_back(t, server):
    """The server's clock jumps back: the holder goes on, and a renewal uses the new time"""
    with Proxy(server.port) as proxy:
        with through(t, proxy):
            held = t.hold("x", "--ttl", "3s")
        waiter = waiting(t, "x")
        token = t.show("x")["token"]
        server.jump(-3600)
        proxy.until_asked("renew", proxy.asked("renew") + 2)
        assert int(server.cli("PTTL", "lock:x")) < 60000
        expect(held.process.poll(), None)
        t.release(held)
    assert gets_in(waiter) > token
    nothing_left(server)


run_tests([holder_stopped, waiter_stopped, killed_with_a_delay, killed_with_a_hold,
           missed_with_a_delay, stopped_under_a_waiter, stopped_before_a_release, clock_forward,
           clock_back])
