# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What can happen to a cluster of three and to its clients. Each case is written once, and happens to
every engine: the user hears of it in a word that fits, there is no second holder, tokens grow, and
nothing is left in line."""
import contextlib
import os
import signal

from cluster_kit import (SOAK, Crowd, check, connected, contending, expect, granted, lost, spin,
                         token_of, try_it, until_in_line, wait_for)
from keeper import Keeper
from kit import run_tests
from wire import BOTH, DOWN, UP

DEADLINE = "not renewed"


# ---- servers ----

def one_killed(t, cluster, victim):
    held = t.hold("x", "--ttl", "60s")
    token = token_of(t)
    waiting = wait_for(t, ttl="60s")
    with contending(t, cluster):
        victim(held).kill()
        cluster.leader()
    expect(held.process.poll(), None)
    expect(try_it(t), 75)
    t.release(held)
    assert granted(waiting) > token


def leader_killed(t, cluster):
    """The leader is killed: another is elected, the holder keeps the lock, a waiter gets it"""
    one_killed(t, cluster, lambda held: cluster.leader())


def follower_killed(t, cluster):
    """A follower is killed: its clients go elsewhere, and nothing is lost"""
    def victim(held):
        ours = connected(cluster.server, held.warden())
        return ours if ours is not cluster.leader() else cluster.follower()
    one_killed(t, cluster, victim)


def leader_stopped(t, cluster):
    """The leader is stopped for longer than a lease: a client that can go elsewhere keeps its lock"""
    leader = cluster.leader()
    held = t.hold("x", "--ttl", "60s")
    token = token_of(t)
    waiting = wait_for(t, ttl="60s")
    cluster.use(t, cluster.url_of(leader.port))
    tied = t.hold("tied", "--ttl", "3s")
    cluster.use(t)
    with contending(t, cluster, may_revoke=cluster.old_leader_revokes):
        with cluster.stopped(leader):
            lost(tied, "tied", DEADLINE)
            cluster.leader([m for m in cluster.members if m is not leader])
        expect(t.stile("run", "--wait", "50s", "tied", "--", "true").returncode, 0)
    expect(held.process.poll(), None)
    expect(try_it(t), 75)
    t.release(held)
    assert granted(waiting) > token
    expect(cluster.queue("tied"), [])


def quorum_lost_and_back(t, cluster):
    """Two of three are gone: a clear word, loss at the deadline; back again, all is well"""
    held = t.hold("x", "--ttl", "3s")
    token = token_of(t)
    with contending(t, cluster):
        for member in cluster.members[:2]:
            member.kill()
        lost(held, "x", DEADLINE)
        cluster.expect_no_quorum(t)
        cluster.mend()
        held = t.hold("x", "--wait", "50s")
    assert token_of(t) > token
    t.release(held)


def restarted_while_100_wait(t, cluster):
    """All are killed and started again while 100 clients wait: each is served once, in order"""
    held = t.hold("x", "--ttl", "60s")
    token = token_of(t)
    crowd = Crowd(t, cluster.url, "x", 100, rounds=1, ttl_ms=60000)
    until_in_line(cluster, "x", 101)
    cluster.server.kill()
    cluster.mend()
    expect(held.process.poll(), None)
    t.release(held)
    crowd.until(lambda: len(crowd.grants) == 100)
    grants = crowd.end()
    expect(len(grants), 100)
    check(grants)
    assert grants[0][0] > token


# ---- clients ----

def holder_stopped(t, cluster):
    """A holder is stopped past its session: notified when it continues, and it releases no other claim"""
    held = t.hold("x", "--ttl", "3s")
    token = token_of(t)
    os.kill(held.warden(), signal.SIGSTOP)
    with contending(t, cluster):
        next_one = t.hold("x", "--wait", "50s")
    os.kill(held.warden(), signal.SIGCONT)
    lost(held)
    assert token_of(t) > token
    expect(len(cluster.queue("x")), 1)
    t.release(next_one)


def waiter_stopped(t, cluster):
    """A waiter is stopped past its session: it joins the queue again, and gets the lock"""
    held = t.hold("x", "--ttl", "60s")
    waiting = wait_for(t, ttl="3s")
    old = cluster.queue("x")[1]
    os.kill(waiting.warden(), signal.SIGSTOP)
    spin(lambda: len(cluster.queue("x")) == 1)
    os.kill(waiting.warden(), signal.SIGCONT)
    spin(lambda: len(cluster.queue("x")) == 2)
    assert old not in cluster.queue("x")
    t.release(held)
    granted(waiting)


# ---- the way between ----

def cut_off(t, cluster):
    """Cut off in one direction or both past the lease: the loss is reported in time, and the next one gets the lock"""
    with contextlib.ExitStack() as stack:
        parts = []
        for ways in UP, DOWN, BOTH:
            name, wires = "-".join(ways), stack.enter_context(cluster.wired())
            cluster.use(t, wires.url)
            held = t.hold(name, "--ttl", "3s")
            cluster.use(t)
            parts.append((ways, name, wires, held, token_of(t, name), wait_for(t, name)))
        urls = [wires.url for _, _, wires, *_ in parts]
        with contending(t, cluster, cluster.url, *urls):
            for ways, _, wires, *_ in parts:
                wires.fail(ways)
            for _, name, _, held, token, waiting in parts:
                lost(held, name, DEADLINE)
                assert granted(waiting) > token
            for _, _, wires, *_ in parts:
                wires.heal()
    for name in "up", "down", "up-down":
        expect(cluster.queue(name), [])


def one_way_of_three(t, cluster):
    """The way to one server is cut, in one direction or both: the lock is kept through another"""
    with contextlib.ExitStack() as stack:
        parts = []
        for ways in UP, DOWN, BOTH:
            name, wires = "-".join(ways), stack.enter_context(cluster.wired())
            cluster.use(t, wires.url)
            parts.append((ways, name, wires, t.hold(name, "--ttl", "15s"), wires.in_use()))
        cluster.use(t)
        for ways, _, _, _, wire in parts:
            wire.fail(ways)
        for _, name, wires, held, wire in parts:
            spin(lambda: wires.in_use(other_than=wire))
            expect(try_it(t, name), 75)
            wire.heal()
            expect(held.process.poll(), None)
            t.release(held)
            expect(cluster.queue(name), [])


def late_withdrawal(t, cluster):
    """A withdrawal that comes late, when the same client holds the lock: it is of no effect"""
    with contextlib.ExitStack() as stack:
        wires = stack.enter_context(cluster.wired())
        ours = stack.enter_context(contextlib.closing(Keeper(wires.url)))
        expect(ours.try_it("keep"), "OK")
        held = t.hold("x")
        wire = wires.in_use()
        ours.ask("x", 3000)
        spin(lambda: len(cluster.queue("x")) == 2)
        expect(t.stile("run", "--wait", "500ms", "x", "--", "true").returncode, 75)
        wire.fail(UP)  # by now it has nothing to say but that it goes
        expect(ours.answer(), "TIMEOUT")
        spin(lambda: len(cluster.queue("x")) == 1)
        t.release(held)
        expect(ours.try_it("x"), "OK")
        kept = cluster.queue("x")
        before = cluster.executed(wires.member(wire))
        wire.heal(cluster.requests_only)
        spin(lambda: cluster.executed(wires.member(wire)) > before)
        for _ in range(10):  # more than one request comes late
            expect(try_it(t), 75)
        expect(cluster.queue("x"), kept)


# ---- behind our back ----

def holder_taken_from(t, cluster, how):
    held = t.hold("x", "--ttl", "60s")
    token = token_of(t)
    how(cluster.queue("x")[0])
    next_one = t.hold("x", "--wait", "50s")
    lost(held)
    assert token_of(t) > token
    expect(len(cluster.queue("x")), 1)
    t.release(next_one)


def waiter_taken_from(t, cluster, how):
    held = t.hold("x", "--ttl", "60s")
    token = token_of(t)
    waiting = wait_for(t)
    old = cluster.queue("x")[1]
    how(old)
    t.release(held)
    assert granted(waiting) > token
    assert old not in cluster.queue("x")


def holder_session_ended(t, cluster):
    """The holder's session is ended by another: it is notified, and releases no other claim"""
    holder_taken_from(t, cluster, cluster.end_session)


def holder_entry_removed(t, cluster):
    """The holder's entry is removed by another: it is notified, and releases no other claim"""
    holder_taken_from(t, cluster, cluster.remove)


def waiter_session_ended(t, cluster):
    """The session of a waiter is ended by another client: it joins the queue again, and gets the lock"""
    waiter_taken_from(t, cluster, cluster.end_session)


def waiter_entry_removed(t, cluster):
    """The entry of a waiter is removed by another client: it joins the queue again, and gets the lock"""
    waiter_taken_from(t, cluster, cluster.remove)


# ---- many ----

def peak_mb(pid):
    with open("/proc/%d/status" % pid, encoding="ascii") as status:
        return next(int(row.split()[1]) for row in status if row.startswith("VmHWM")) // 1024


def many_wait(t, cluster):
    """Very many wait for one name: in order, and each that goes wakes one"""
    processes, clients, pace_ms = (10, 500, cluster.pace_ms) if SOAK else (2, 150, 0)
    total = processes * clients
    held = t.hold("x", "--ttl", "60s")
    crowd = Crowd(t, cluster.url, "x", clients, rounds=1, ttl_ms=60000, processes=processes,
                  pace_ms=pace_ms)
    until_in_line(cluster, "x", total + 1)
    before = cluster.wakes(), cluster.requests()
    t.release(held)
    crowd.until(lambda: len(crowd.grants) > total // 2)
    wakes = (cluster.wakes() - before[0]) / len(crowd.grants)
    requests = (cluster.requests() - before[1]) / len(crowd.grants)
    print("# clients %s MB, servers %s MB" % ([peak_mb(p.pid) for p in crowd.processes],
                                              [peak_mb(m.process.pid) for m in cluster.members]))
    print("# for each of %d: %.1f woken, %.1f requests" % (total, wakes, requests))
    crowd.until(lambda: len(crowd.grants) == total)
    grants = crowd.end()
    check(grants)
    expect(len(grants), total)
    assert wakes < 4, "each that goes wakes %.1f" % wakes


SCENARIOS = [leader_killed, follower_killed, leader_stopped, quorum_lost_and_back,
             restarted_while_100_wait, holder_stopped, waiter_stopped, cut_off, one_way_of_three,
             late_withdrawal, holder_session_ended, holder_entry_removed, waiter_session_ended,
             waiter_entry_removed, many_wait]


def run_scenarios(cluster_class, *own):
    """One cluster for all of them; each finds it whole, and leaves nothing in line."""
    def on(cluster, scenario):
        def case(t):
            cluster.mend()
            cluster.place = scenario.__name__
            cluster.use(t)
            scenario(t, cluster)
            expect(cluster.queue("x"), [])
        case.__name__, case.__doc__ = scenario.__name__, scenario.__doc__
        return case
    with contextlib.closing(cluster_class()) as cluster:
        run_tests([on(cluster, scenario) for scenario in (*SCENARIOS, *own)])
