# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A ZooKeeper server that is killed or stopped, nodes that are made in doubt, names that are kept
when they have no holder, and what stile reports about it."""
import os
import signal

from cluster_kit import (expect, granted, lost, outlives_a_restart, refused, spin, token_of, try_it,
                         wait_for)
from keeper import Keeper
from kit import run_tests
from zookeeper_kit import connected, nodes_of, on_server


# ---- killed and restarted ----

# The time that a server takes to come back depends on how busy the machine is: a session has to be
# longer.
LONG_SESSIONS = "maxSessionTimeout=600000"


@on_server(1, LONG_SESSIONS)
def restart(t, server):
    """kill -9 of the server: the holder keeps its lock, a waiter gets it, the token grows"""
    held = t.hold("x", "--ttl", "600s")
    token = token_of(t)
    waiting = wait_for(t)
    sessions = connected(server)
    server.kill()
    server.restart()
    expect(try_it(t), 75)
    # A release has a patience of its own, and the pause before a client connects again may be longer.
    spin(lambda: sessions <= connected(server))
    t.release(held)
    assert granted(waiting) > token
    expect(nodes_of(server), [])


@on_server(1, LONG_SESSIONS)
def renewal_goes_on_after_a_restart(t, server):
    """A holder outlives a short absence of its server, for longer than its TTL"""
    outlives_a_restart(t, server)


@on_server()
def released_while_it_is_away(t, server):
    """A release that nobody hears: the next one is not kept for longer than the session"""
    held = t.hold("x", "--ttl", "3s")
    server.kill()
    held.process.stdin.close()
    held.wait()
    server.restart()
    expect(t.stile("run", "--wait", "20s", "x", "--", "true").returncode, 0)
    expect(nodes_of(server), [])


@on_server()
def nobody_there(t, server):
    """No server at all: a clear word, at once"""
    server.kill()
    refused(t, "stile doctor")


# ---- stopped ----

@on_server()
def stopped_past_the_session(t, server):
    """A stopped server: its holder is lost at its own deadline, and later nothing is left"""
    held = t.hold("x", "--ttl", "3s")
    token = token_of(t)
    server.members[0].signal(signal.SIGSTOP)
    try:
        lost(held)
        refused(t)
    finally:
        server.members[0].signal(signal.SIGCONT)
    held = t.hold("x", "--wait", "20s")
    assert token_of(t) > token
    t.release(held)
    expect(nodes_of(server), [])


@on_server()
def created_in_doubt(t, server):
    """A node whose creation was not answered is found by its GUID, and taken away"""
    ours = Keeper(server.url)
    try:
        expect(ours.try_it("keep"), "OK")
        expect(ours.try_it("x/before"), "OK")
        server.members[0].signal(signal.SIGSTOP)
        try:
            assert ours.try_it("x") != "OK"
        finally:
            server.members[0].signal(signal.SIGCONT)
        spin(lambda: t.stile("run", "--wait", "25s", "x", "--", "true").returncode == 0)
        expect(nodes_of(server), [])
    finally:
        ours.close()


# ---- kept without a holder ----

def kept(t, name="x"):
    """By a ghost, from everybody."""
    holder = t.show(name)["holders"][0]
    assert holder["ghost"], holder
    expect(try_it(t, name), 75)


def broken(t, server, name="x"):
    expect(t.stile("break", "-y", name).returncode, 0)
    expect(try_it(t, name), 0)
    expect(nodes_of(server, name), [])


@on_server()
def hold_outlives_the_server(t, server):
    """hold_at_least is on the servers' disks: kill -9 ends neither it nor its time"""
    expect(t.stile("run", "--hold-at-least", "300s", "x", "--", "true").returncode, 0)
    left = t.show("x")["holders"][0]["expires_ms"]
    server.kill()
    server.restart()
    kept(t)
    assert t.show("x")["holders"][0]["expires_ms"] < left
    broken(t, server)


@on_server()
def kept_slots_and_kept_by_readers(t, server):
    """a ghost keeps one slot, or lets readers in, as its holder did"""
    slots = ("--slots", "2")
    expect(t.stile("run", "--hold-at-least", "300s", *slots, "x", "--", "true").returncode, 0)
    held = t.hold("x", *slots)
    expect(try_it(t, "x", *slots), 75)
    waiting = t.start("run", *slots, "x", "--", "sh", "-c", "echo $STILE_TOKEN")
    t.until(t.watch("x"), lambda change: len(change["waiters"]) == 1)
    t.release(held)
    granted(waiting)
    kept(t)
    expect(t.stile("run", "--hold-at-least", "300s", "--shared", "y", "--", "true").returncode, 0)
    expect(try_it(t, "y", "--shared"), 0)
    kept(t, "y")
    broken(t, server)
    broken(t, server, "y")


@on_server()
def delay_after_the_session(t, server):
    """lock-delay begins when a session has ended without a release, and delays waiters as well"""
    held = t.hold("x", "--ttl", "3s", "--lock-delay", "300s")
    waiting = wait_for(t)
    os.kill(held.warden(), signal.SIGKILL)
    t.until(t.watch("x"), lambda change: any(one["ghost"] for one in change["holders"]))
    expect(len(t.show("x")["waiters"]), 1)
    kept(t)
    expect(t.stile("break", "-y", "x").returncode, 0)
    granted(waiting)
    expect(nodes_of(server), [])


@on_server()
def held_with_a_hold_and_broken(t, server):
    """break ends a holder together with what it would leave behind"""
    held = t.hold("x", "--hold-at-least", "300s", "--lock-delay", "300s")
    waiting = wait_for(t)
    expect(t.stile("break", "-y", "x").returncode, 0)
    granted(waiting)
    lost(held)
    expect(nodes_of(server), [])


run_tests([
    restart, renewal_goes_on_after_a_restart, released_while_it_is_away, nobody_there,
    stopped_past_the_session, created_in_doubt, hold_outlives_the_server,
    kept_slots_and_kept_by_readers, delay_after_the_session, held_with_a_hold_and_broken])
