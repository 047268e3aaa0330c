# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""No wake-up is lost: whichever process died and whatever was deleted by hand, a living waiter checks
by itself, long before its wait is over. Each waits for SOON; without that look it would sleep for
half a minute or for an hour."""
import os
import signal

from redis_kit import (RedisServer, acquire, beside, everybody, expect, gets_in, nothing_left,
                       on_server, owner_of, run_tests, signal_all, use, waiting)
from redis_groups import until

SOON = "--wait", "25s"
QUEUE = beside("x", "queue")


def all_of(waiter):
    return waiter.pid, waiter.warden()


def kill_together(*groups):
    """At one instant, so that none of them sees another one's end."""
    pids = [pid for group in groups for pid in group]
    signal_all(pids, signal.SIGSTOP)
    signal_all(pids, signal.SIGKILL)


# ---- deaths ----

@on_server()
def holder_and_waiters_die(t, server):
    """The holder and the first two waiters die together: the third gets in"""
    held = t.hold("x", "--ttl", "2s")
    dying = [waiting(t, "x"), waiting(t, "x")]
    third = waiting(t, "x", *SOON)
    kill_together(everybody(held), *map(all_of, dying))
    gets_in(third)
    nothing_left(server)


@on_server()
def slot_and_waiters_die(t, server):
    """The holder of one of two slots dies together with the first two waiters; the other slot is
    renewed all the time"""
    slots = "--slots", "2"
    stays = t.hold("x", "--ttl", "2s", *slots)
    dies = t.hold("x", "--ttl", "2s", *slots)
    dying = [waiting(t, "x", *slots), waiting(t, "x", *slots)]
    third = waiting(t, "x", *SOON, *slots)
    kill_together(everybody(dies), *map(all_of, dying))
    gets_in(third)
    t.release(stays)
    nothing_left(server)


@on_server()
def heard_but_dead(t, server):
    """Waiters that are stopped are heard for, like those of a host that lost its power: each is
    passed over, however many there are"""
    held = t.hold("x", "--ttl", "60s")
    stopped = [waiting(t, "x") for _ in range(3)]
    last = waiting(t, "x", *SOON)
    for waiter in stopped:
        os.kill(waiter.warden(), signal.SIGSTOP)
    t.release(held)
    gets_in(last)
    for waiter in stopped:
        os.kill(waiter.warden(), signal.SIGCONT)
        gets_in(waiter)
    nothing_left(server)


@on_server()
def all_waiters_die(t, server):
    """All waiters have died when the release is to leave the key free for a moment: the queue goes"""
    held = t.hold("x", "--ttl", "60s")
    waiters = [waiting(t, "x") for _ in range(3)]
    expect(server.cli("ZADD", QUEUE, "XX", "CH", "1", "~gap"), "1")
    kill_together(*map(all_of, waiters))
    until(lambda: len(server.cli("PUBSUB", "CHANNELS", "stile:*").split()) == 1, "the waiters' end")
    t.release(held)
    nothing_left(server)


@on_server()
def all_waiters_die_unnoticed(t, server):
    """The first waiter is granted the lock after it has died, and so have the others: nobody is
    shown in line once the grant has ended"""
    held = t.hold("x", "--ttl", "60s")
    waiters = [waiting(t, "x") for _ in range(3)]
    for waiter in waiters:
        os.kill(waiter.warden(), signal.SIGSTOP)
    t.release(held)
    kill_together(*map(all_of, waiters))
    t.until(t.watch("x"), lambda change: not change["holders"] and not change["waiters"])
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)
    nothing_left(server)


# ---- by hand ----

@on_server()
def key_deleted(t, server):
    """DEL by hand under a holder that lives on without its process: the waiter gets in"""
    acquire(t, "x", "--ttl", "1h")
    waiter = waiting(t, "x", *SOON)
    server.cli("DEL", "lock:x")
    gets_in(waiter)


@on_server()
def key_deleted_after_a_death(t, server):
    """DEL by hand after the holder was killed: the waiter gets in"""
    held = t.hold("x", "--ttl", "1h")
    waiter = waiting(t, "x", *SOON)
    kill_together(everybody(held))
    server.cli("DEL", "lock:x")
    gets_in(waiter)


@on_server()
def key_cut_short(t, server):
    """PEXPIRE by hand, or a key without an end that is deleted: the waiter gets in"""
    acquire(t, "x", "--ttl", "1h")
    waiter = waiting(t, "x", *SOON)
    server.cli("PEXPIRE", "lock:x", "100")
    gets_in(waiter)
    acquire(t, "x", "--ttl", "1h")
    server.cli("PERSIST", "lock:x")
    waiter = waiting(t, "x", *SOON)
    server.cli("DEL", "lock:x")
    gets_in(waiter)


@on_server()
def queue_expired(t, server):
    """The queue ends before a long lease does: it is there again before the release"""
    owner, _ = acquire(t, "x", "--ttl", "2h")
    waiters = [waiting(t, "x", *SOON) for _ in range(2)]
    server.cli("PEXPIRE", QUEUE, "1")
    expect(t.stile("release", "--owner", owner, "x").returncode, 0)
    for waiter in waiters:
        gets_in(waiter)
    nothing_left(server)


@on_server()
def queue_deleted_under_newcomers(t, server):
    """The queue is deleted by hand, and a newcomer makes another: nobody is forgotten"""
    owner, _ = acquire(t, "x", "--ttl", "2h")
    waiters = [waiting(t, "x", *SOON) for _ in range(3)]
    server.cli("DEL", QUEUE)
    waiters.append(t.start("run", *SOON, "x", "--", "sh", "-c", "echo $STILE_TOKEN"))
    until(lambda: len(t.show("x")["waiters"]) == 4, "all in line again")
    expect(t.stile("release", "--owner", owner, "x").returncode, 0)
    expect(len({gets_in(waiter) for waiter in waiters}), 4)
    nothing_left(server)


@on_server()
def flushed_under_a_detached_holder(t, server):
    """FLUSHALL under waiters, without a holder that renews: all get in, with larger tokens"""
    _, token = acquire(t, "x", "--ttl", "1h")
    waiters = [waiting(t, "x", *SOON) for _ in range(3)]
    server.cli("FLUSHALL")
    assert min(gets_in(waiter) for waiter in waiters) > token
    nothing_left(server)


@on_server()
def broken_record(t, server):
    """The record in the key is cut off by hand: the holder goes on, and hands over"""
    held = t.hold("x", "--ttl", "2s")
    token = t.show("x")["token"]
    waiter = waiting(t, "x", *SOON)
    server.cli("SET", "lock:x", owner_of(server), "KEEPTTL")
    renewed = int(server.cli("PTTL", "lock:x"))
    until(lambda: int(server.cli("PTTL", "lock:x")) > renewed, "a renewal")
    t.release(held)
    assert gets_in(waiter) > token
    nothing_left(server)


# ---- clocks ----

def clock_set_forward(t):
    """The server's clock is set forward past the lease: the waiter gets in"""
    with RedisServer(own_clock=True) as server:
        use(t, server)
        acquire(t, "x", "--ttl", "1h")
        waiter = waiting(t, "x", *SOON)
        server.jump(7200)
        gets_in(waiter)
        t.end_all()


def clock_set_back(t):
    """The server's clock is set back: newcomers do not overtake, and tokens grow"""
    with RedisServer(own_clock=True) as server:
        use(t, server)
        held = t.hold("x", "--ttl", "60s")
        token = t.show("x")["token"]
        first = waiting(t, "x", *SOON)
        server.jump(-7200)
        second, third = waiting(t, "x", *SOON), waiting(t, "x", *SOON)
        t.release(held)
        tokens = [gets_in(waiter) for waiter in (first, second, third)]
        expect(tokens, sorted(tokens))
        assert tokens[0] > token
        t.end_all()


run_tests([holder_and_waiters_die, slot_and_waiters_die, heard_but_dead, all_waiters_die,
           all_waiters_die_unnoticed, key_deleted,
           key_deleted_after_a_death, key_cut_short, queue_expired, queue_deleted_under_newcomers,
           flushed_under_a_detached_holder, broken_record, clock_set_forward, clock_set_back])
