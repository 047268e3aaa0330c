# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A request was sent, and no answer came: it may or may not have been executed. In each
case the user gets a true answer, and nothing is left behind."""
import signal

from redis_kit import (COUNTER, acquire, acquired, expect, gets_in, lost, nothing_left, owner_of, run_tests,
                       through, ended_with, waiting, with_proxy)
from proxy import LATE, LOSE_REPLY, LOSE_REQUEST, MUTE, SLOW, STOP

BOTH = LOSE_REQUEST, LOSE_REPLY


# ---- asking ----

@with_proxy()
def a_try(t, server, proxy):
    """A try in doubt says so, and is withdrawn"""
    for action in BOTH:
        rule = proxy.once("claim", action)
        with through(t, proxy):
            ended_with(t.stile("run", "--try", "x", "--", "true"), 69, "no answer", "connection broke")
        rule.hit()
        nothing_left(server)
    token = int(server.cli("GET", COUNTER))  # one of the two was granted before it was withdrawn
    expect(acquire(t, "x")[1], token + 1)


@with_proxy()
def a_claim_that_waits(t, server, proxy):
    """A waiter asks again, and is granted once"""
    for action in BOTH:
        rule = proxy.once("claim", action)
        with through(t, proxy):
            expect(t.stile("run", "x", "--", "true").returncode, 0)
        rule.hit()
        nothing_left(server)


@with_proxy()
def one_in_line(t, server, proxy):
    """A queued waiter that asks again in doubt keeps its place"""
    held = t.hold("x", "--ttl", "60s")
    with through(t, proxy):
        first = waiting(t, "x", "--ttl", "60s")
    second = waiting(t, "x", "--ttl", "60s")
    for action in BOTH:
        rule = proxy.once("claim", action)
        heard = proxy.asked("subscribe")
        proxy.cut("subscribe")  # a client without notifications checks
        rule.hit()
        proxy.until_asked("subscribe", heard + 1)  # a waiter that does not listen is passed over
    expect(len(t.show("x")["waiters"]), 2)
    t.release(held)
    assert gets_in(first) < gets_in(second)
    nothing_left(server)


@with_proxy()
def a_confirmation(t, server, proxy):
    """A waiter that was notified, and whose confirmation is in doubt, gets the lock all the same"""
    for action in BOTH:
        held = t.hold("x", "--ttl", "60s")
        token = t.show("x")["token"]
        with through(t, proxy):
            waiter = waiting(t, "x")
        rule = proxy.once("confirm", action)
        t.release(held)
        rule.hit()
        assert gets_in(waiter) > token
        nothing_left(server)


@with_proxy()
def a_resumption(t, server, proxy):
    """`stile renew` in doubt says so and takes nothing back; repeated it succeeds"""
    owner, _ = acquire(t, "x", "--ttl", "60s")
    for action in BOTH:
        for verb in "renew", "release":
            rule = proxy.once("confirm", action)
            with through(t, proxy):
                ended_with(t.stile(verb, "--owner", owner, "x"), 69, "x", "no answer")
            rule.hit()
            expect(owner_of(server), owner)
    expect(t.stile("renew", "--owner", owner, "x").returncode, 0)
    expect(t.stile("release", "--owner", owner, "x").returncode, 0)
    nothing_left(server)


# ---- holding ----

@with_proxy()
def a_renewal(t, server, proxy):
    """A renewal in doubt is no loss: it is asked again over the next connection"""
    with through(t, proxy):
        held = t.hold("x", "--ttl", "3s")
    token = t.show("x")["token"]
    for action in BOTH:
        rule = proxy.once("renew", action)
        rule.hit()
        proxy.until_asked("renew", proxy.asked("renew") + 2)
        expect(held.process.poll(), None)
        expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
    t.release(held)
    expect(acquire(t, "x")[1], token + 1)


@with_proxy()
def a_release(t, server, proxy):
    """A release in doubt is repeated: done, and not a loss"""
    for action in BOTH:
        rule = proxy.once("release", action)
        with through(t, proxy):
            done = t.stile("run", "x", "--", "true")
        expect((done.returncode, done.stderr), (0, ""))
        rule.hit()
        nothing_left(server)
    owner, _ = acquire(t, "x", "--ttl", "60s")
    rule = proxy.once("release", LOSE_REPLY)
    with through(t, proxy):
        expect(t.stile("release", "--owner", owner, "x").returncode, 0)
    rule.hit()
    nothing_left(server)


@with_proxy()
def a_release_with_a_hold(t, server, proxy):
    """A release in doubt keeps its hold_at_least, executed once or twice"""
    for name, action in zip("xy", BOTH):
        rule = proxy.once("release", action)
        with through(t, proxy):
            done = t.stile("run", "--hold-at-least", "60s", name, "--", "true")
        expect((done.returncode, done.stderr), (0, ""))
        rule.hit()
        assert server.cli("GET", "lock:" + name).startswith("~h")
        expect(t.stile("run", "--try", name, "--", "true").returncode, 75)


@with_proxy()
def a_withdrawal(t, server, proxy):
    """A waiter that gets SIGTERM leaves the queue, though its first withdrawal is lost"""
    held = t.hold("x", "--ttl", "60s")
    for action in BOTH:
        with through(t, proxy):
            waiter = waiting(t, "x")
        rule = proxy.once("release", action)
        waiter.kill(signal.SIGTERM)
        rule.hit()
        waiter.wait()
        expect(t.show("x")["waiters"], [])
    t.release(held)
    nothing_left(server)


# ---- one way only ----

@with_proxy()
def answers_stay_away(t, server, proxy):
    """Nothing comes back: a try is withdrawn unheard, a holder loses its lock at its deadline"""
    with through(t, proxy):
        proxy.once("claim", MUTE)
        ended_with(t.stile("run", "--try", "y", "--", "true"), 69, "no answer")
        held = t.hold("x", "--ttl", "2s")
    nothing_left(server, "y")
    proxy.accept(False)
    proxy.once("renew", MUTE)
    lost(held)
    nothing_left(server, "x")


@with_proxy()
def requests_stay_away(t, server, proxy):
    """Nothing goes out: a holder loses its lock at its deadline, and what comes late from it harms nobody"""
    with through(t, proxy):
        held = t.hold("x", "--ttl", "2s")
    proxy.accept(False)
    rule = proxy.once("renew", STOP)
    token = t.show("x")["token"]
    lost(held)
    rule.hit()
    done = t.stile("acquire", "--ttl", "60s", "x")  # its lease ends on the server, too
    owner, later = acquired(done.stdout)
    assert int(later) > token
    rule.let_go()
    expect(owner_of(server), owner)
    assert int(server.cli("PTTL", "lock:x")) > 30000, "it was somebody else's to renew"


@with_proxy()
def a_claim_comes_late(t, server, proxy):
    """A claim that arrives after its own withdrawal ends with its lease"""
    rule = proxy.once("claim", LATE)
    with through(t, proxy):
        ended_with(t.stile("run", "--try", "--ttl", "1s", "x", "--", "true"), 69, "no answer")
    nothing_left(server)
    rule.let_go()
    ghost = owner_of(server)
    expect(len(ghost), 40)
    token = t.show("x")["token"]
    expect(t.stile("release", "--owner", ghost[:-1] + "x", "x").returncode, 64)
    waiter = t.start("run", "x", "--", "sh", "-c", "echo $STILE_TOKEN")
    assert gets_in(waiter) > token
    nothing_left(server)


@with_proxy()
def a_late_release(t, server, proxy):
    """A release that arrives after its lease frees nobody else's"""
    with through(t, proxy):
        held = t.hold("x", "--ttl", "1s")
    rule = proxy.once("release", LATE)
    proxy.accept(False)
    held.process.stdin.close()
    rule.hit()
    done = t.stile("acquire", "--ttl", "60s", "x")
    owner = acquired(done.stdout)[0]
    rule.let_go()
    expect(owner_of(server), owner)
    proxy.accept(True)


@with_proxy()
def answers_come_slowly(t, server, proxy):
    """Answers that come byte by byte are answers"""
    for kind in "info", "claim", "release":
        proxy.once(kind, SLOW)
    with through(t, proxy):
        expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)
    nothing_left(server)


run_tests([a_try, a_claim_that_waits, one_in_line, a_confirmation, a_resumption, a_renewal,
           a_release, a_release_with_a_hold, a_withdrawal, answers_stay_away, requests_stay_away,
           a_claim_comes_late, a_late_release, answers_come_slowly])
