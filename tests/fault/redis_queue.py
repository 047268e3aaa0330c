# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The queue when connections break, servers restart or lose their data: no wake-up is missed, no
waiter is forgotten, and waiters are quiet."""
import os
import signal

from redis_kit import (DURABLE, Proxy, acquire, beside, expect, gets_in, lost, nothing_left,
                       on_server, owner_of, run_tests, spin, through, waiting, with_proxy)
from keeper import Keeper
from proxy import KEEP
from redis_groups import until


# ---- connections ----

def wake_up_is_missed(t, server, proxy, *kinds):
    """Connections of these kinds are cut, and made again only after the release."""
    held = t.hold("x", "--ttl", "600s")
    token = t.show("x")["token"]
    with through(t, proxy):
        waiter = waiting(t, "x", "--ttl", "60s")
    proxy.accept(False)
    for kind in kinds:
        proxy.cut(kind)
    t.release(held)
    proxy.accept(True)
    assert gets_in(waiter) > token
    nothing_left(server)


@with_proxy()
def deaf(t, server, proxy):
    """A waiter that missed its notification checks when it listens again"""
    wake_up_is_missed(t, server, proxy, "subscribe")


@with_proxy()
def dumb(t, server, proxy):
    """A waiter that is notified and cannot answer does so when it can"""
    wake_up_is_missed(t, server, proxy, "claim")


@with_proxy()
def cut_off(t, server, proxy):
    """A waiter that was cut off altogether gets in when it is back"""
    wake_up_is_missed(t, server, proxy, "claim", "subscribe")


@with_proxy()
def answered_late(t, server, proxy):
    """A waiter whose claim is answered late, and that was passed over meanwhile, finds that out"""
    held = t.hold("x", "--ttl", "600s")
    token = t.show("x")["token"]
    with through(t, proxy):
        waiter = waiting(t, "x")
    looks = proxy.asked("look")
    rule = proxy.once("claim", KEEP)
    proxy.cut("subscribe")  # a waiter that missed messages sends its claim again
    rule.hit()
    assert proxy.asked("look") < looks + 15, "the claim came with the next timer only"
    proxy.accept(False)
    proxy.cut("subscribe")
    t.release(held)
    nothing_left(server)
    subscribed = proxy.asked("subscribe")
    proxy.accept(True)
    proxy.until_asked("subscribe", subscribed + 1)
    until(lambda: server.cli("PUBSUB", "CHANNELS", "stile:*"), "subscription")
    looks = proxy.asked("look")
    rule.let_go()
    assert gets_in(waiter) > token
    expect(proxy.asked("look"), looks)  # it did not have to find out by a timer
    nothing_left(server)


@with_proxy()
def passed_over(t, server, proxy):
    """A waiter that does not listen is passed over, and does not keep the others waiting"""
    held = t.hold("x", "--ttl", "60s")
    with through(t, proxy):
        away = waiting(t, "x", "--ttl", "60s")
    second, third = waiting(t, "x"), waiting(t, "x")
    proxy.accept(False)
    proxy.cut()
    t.release(held)
    assert gets_in(second) < gets_in(third)
    expect(away.process.poll(), None)
    proxy.accept(True)
    gets_in(away)
    nothing_left(server)


@with_proxy()
def not_subscribed_yet(t, server, proxy):
    """A waiter that is not queued because its subscription is late: no later handle overtakes it, nor
    does a single try"""
    owner, _ = acquire(t, "x", "--ttl", "600s")
    rule = proxy.once("subscribe", KEEP)
    keeper = Keeper("redis://127.0.0.1:%d" % proxy.port)
    try:
        keeper.ask("&x", 60000)
        expect(keeper.answer(), "OK")
        rule.hit()
        expect(t.stile("release", "--owner", owner, "x").returncode, 0)
        expect(keeper.try_it("x"), "HELD")
        keeper.ask("&x", 60000)
        expect(keeper.answer(), "OK")
        expect(keeper.try_it("y"), "OK")  # answered behind all that was sent before
        expect(keeper.holds("x"), False)
        rule.let_go()
        spin(lambda: len(owner_of(server)) == 40)
    finally:
        keeper.close()
    nothing_left(server)


def modes_in_line(server):
    """Of the waiters for x, in the server's order; without the entry for clients that poll."""
    entries = server.cli("ZRANGE", beside("x", "queue"), "0", "-1").split("\n")
    return [entry.split()[1] for entry in entries if " " in entry]


def writer_and_reader(keeper, proxy):
    """A writer whose first answer is late, and after it a reader, which needs no such answer. Returns
    the rule that keeps it, when the requests have reached the server."""
    asked = proxy.asked("claim")
    late = proxy.once("claim", KEEP)
    keeper.ask("&x", 60000)
    expect(keeper.answer(), "OK")
    late.hit()
    keeper.ask("&x", 60000, 0, 0, "shared")
    expect(keeper.answer(), "OK")
    proxy.until_asked("claim", asked + 2)
    return late


def in_order(t, server, keeper, owner, late):
    late.let_go()
    spin(lambda: len(modes_in_line(server)) == 2)
    expect(modes_in_line(server), ["x", "s"])
    keeper.close()
    expect(t.stile("release", "--owner", owner, "x").returncode, 0)
    nothing_left(server)


@with_proxy()
def found_taken_late(t, server, proxy):
    """A claim that learns late that the lock is taken: no later handle joins the queue before it"""
    owner, _ = acquire(t, "x", "--ttl", "600s")
    keeper = Keeper("redis://127.0.0.1:%d" % proxy.port)
    try:
        expect(keeper.try_it("y"), "OK")
        until(lambda: server.cli("PUBSUB", "CHANNELS", "stile:*"), "subscription")
        expect(keeper.try_it("z"), "OK")
        in_order(t, server, keeper, owner, writer_and_reader(keeper, proxy))
    finally:
        keeper.close()


@with_proxy()
def found_taken_late_and_not_subscribed(t, server, proxy):
    """The same, when the subscription begins meanwhile, which sends all that wait"""
    owner, _ = acquire(t, "x", "--ttl", "600s")
    subscription = proxy.once("subscribe", KEEP)
    keeper = Keeper("redis://127.0.0.1:%d" % proxy.port)
    try:
        expect(keeper.try_it("y"), "OK")
        subscription.hit()
        late = writer_and_reader(keeper, proxy)
        asked = proxy.asked("claim")
        subscription.let_go()
        proxy.until_asked("claim", asked + 1)
        in_order(t, server, keeper, owner, late)
    finally:
        keeper.close()


@on_server()
def killed_again_and_again(t, server):
    """CLIENT KILL of all, time and again: the holder holds, the line is served"""
    held = t.hold("x", "--ttl", "60s")
    token = t.show("x")["token"]
    waiters = [waiting(t, "x") for _ in range(3)]
    for _ in range(5):
        for kind in "normal", "pubsub":
            server.cli("CLIENT", "KILL", "TYPE", kind)
        expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
    t.release(held)
    tokens = [gets_in(waiter) for waiter in waiters]
    expect(len(set(tokens)), 3)
    assert min(tokens) > token, tokens
    nothing_left(server)


@on_server()
def freed_in_silence(t, server):
    """Another client's key is deleted while the first in line can't look: nobody overtakes it"""
    server.cli("SET", "lock:x", "me", "PX", "60000")
    first = waiting(t, "x")
    os.kill(first.warden(), signal.SIGSTOP)
    server.cli("DEL", "lock:x")
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
    os.kill(first.warden(), signal.SIGCONT)
    gets_in(first)
    nothing_left(server)


# ---- servers ----

@on_server(*DURABLE)
def restarted_with_its_data(t, server):
    """kill -9 of a server that keeps its data: all are still in line"""
    held = t.hold("x", "--ttl", "60s")
    token = t.show("x")["token"]
    waiters = [waiting(t, "x") for _ in range(3)]
    server.kill()
    server.restart()
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
    t.release(held)
    assert sorted(gets_in(waiter) for waiter in waiters) == [token + 1, token + 2, token + 3]
    nothing_left(server)


@on_server()
def restarted_without_its_data(t, server):
    """kill -9 of a server without persistence: the holder is notified, a waiter gets in"""
    held = t.hold("x", "--ttl", "3s")
    waiters = [waiting(t, "x", "--ttl", "3s") for _ in range(2)]
    server.kill()
    server.restart()
    lost(held)
    for waiter in waiters:
        gets_in(waiter)
    nothing_left(server)


@on_server()
def flushed(t, server):
    """FLUSHALL under a queue: the holder is notified, a waiter gets in"""
    held = t.hold("x", "--ttl", "3s")
    waiters = [waiting(t, "x") for _ in range(2)]
    server.cli("FLUSHALL")
    lost(held)
    for waiter in waiters:
        gets_in(waiter)
    nothing_left(server)


@on_server()
def scripts_forgotten(t, server):
    """SCRIPT FLUSH under a line: nobody notices"""
    held = t.hold("x", "--ttl", "60s")
    first, second = waiting(t, "x"), waiting(t, "x")
    server.cli("SCRIPT", "FLUSH")
    t.release(held)
    assert gets_in(first) < gets_in(second)
    nothing_left(server)


def set_clock_back(server):
    """The queue as a server finds it whose clock was set back by an hour, with a gap that is due."""
    server.cli("EVAL", "for _, entry in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do "
               "redis.call('ZINCRBY', KEYS[1], 3600000000, entry) end "
               "redis.call('ZADD', KEYS[1], 1, '~gap')", "1", beside("x", "queue"))


@on_server()
def clock_set_back(t, server):
    """A clock set back by an hour, when it is the turn of clients that poll: waiters get in, in order"""
    held = t.hold("x", "--ttl", "60s")
    first, second = waiting(t, "x"), waiting(t, "x")
    set_clock_back(server)
    t.release(held)
    assert gets_in(first) < gets_in(second)
    nothing_left(server)


@on_server()
def clock_set_back_under_readers(t, server):
    """The same under a reader: the script that finds the gap ends, and the server goes on"""
    held = t.hold("x", "--shared", "--ttl", "60s")
    writer = waiting(t, "x")
    set_clock_back(server)
    expect(t.stile("run", "--shared", "--try", "x", "--", "true").returncode, 75)
    t.release(held)
    gets_in(writer)
    nothing_left(server)


# ---- quiet ----

@with_proxy()
def parked(t, server, proxy):
    """While the holder renews, for longer than its TTL, a waiter only looks, once a second or so"""
    with Proxy(server.port) as way:
        with through(t, way):
            held = t.hold("x", "--ttl", "2s")
        with through(t, proxy):
            waiters = [waiting(t, "x") for _ in range(3)]
        sent, looked = proxy.asked(), proxy.asked("look")
        way.until_asked("renew", way.asked("renew") + 5)
        looked = proxy.asked("look") - looked
        expect(proxy.asked() - sent, looked)
        assert looked > 0
        t.release(held)
        for waiter in waiters:
            gets_in(waiter)
    nothing_left(server)


@with_proxy(*DURABLE)
def renewal_over_another_connection(t, server, proxy):
    """A holder outlives a restart of its server and cuts of its connection, for two leases"""
    with through(t, proxy):
        held = t.hold("x", "--ttl", "2s")
    server.kill()
    server.restart()
    for _ in range(3):
        proxy.until_asked("renew", proxy.asked("renew") + 2)  # the first of them was answered
        proxy.cut()
        expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
    expect(held.process.poll(), None)
    t.release(held)
    nothing_left(server)


run_tests([deaf, dumb, cut_off, answered_late, passed_over, not_subscribed_yet,
           found_taken_late, found_taken_late_and_not_subscribed, killed_again_and_again,
           freed_in_silence, restarted_with_its_data, restarted_without_its_data, flushed,
           scripts_forgotten, clock_set_back, clock_set_back_under_readers, parked, renewal_over_another_connection])
