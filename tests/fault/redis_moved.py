# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A primary that is replaced behind an address that stays: a virtual IP, a TCP proxy or a DNS name.
The old primary lives on as a replica and keeps its clients, which must notice and go to the new one."""
import contextlib
import os

from redis_kit import (Proxy, RedisServer, expect, gets_in, lost, nothing_left, refused,
                       renewed, run_tests, use, waiting)
from redis_groups import SOON, has_replicas, replicate, until


class Pair:
    """A primary and its replica, and an address that leads to one of them: connections that are
    made there stay where they are when it is moved."""

    def __init__(self, old, new, vip):
        self.old, self.new, self.vip = old, new, vip

    def fail_over(self):
        """The address still leads to the old one."""
        replicate(self.old, 1)
        self.new.cli("REPLICAOF", "NO", "ONE")
        self.old.cli("REPLICAOF", "127.0.0.1", str(self.new.port))

    def move(self):
        self.vip.target = self.new.port

    def renewed(self, name):
        """Until a holder has renewed on the new primary."""
        renewed(self.new, name)


@contextlib.contextmanager
def pair(*args):
    with RedisServer(*SOON, *args) as old:
        with RedisServer(*SOON, *args, "--replicaof", "127.0.0.1", str(old.port)) as new:
            until(lambda: has_replicas(old, 1), "replication")
            with Proxy(old.port) as vip:
                yield Pair(old, new, vip)


def behind_a_vip(*args):
    def decorate(case):
        def with_pair(t):
            with pair(*args) as servers:
                use(t, servers.vip)
                try:
                    case(t, servers)
                finally:
                    t.end_all()
        with_pair.__name__, with_pair.__doc__ = case.__name__, case.__doc__
        return with_pair
    return decorate


@behind_a_vip()
def held_waited_for_and_released(t, servers):
    """A VIP that moves: held locks are renewed at the new primary, a waiter gets in, new claims work"""
    held = t.hold("x", "--ttl", "6s")
    token = t.show("x")["token"]
    kept = t.hold("y", "--ttl", "600s")  # its renewal is far away: its release is the first to notice
    waiter = waiting(t, "x")
    servers.fail_over()
    servers.move()
    servers.renewed("x")
    expect(t.stile("run", "--try", "z", "--", "true").returncode, 0)
    t.release(kept)
    expect(kept.err.end(), "")
    t.release(held)
    expect(held.err.end(), "")
    assert gets_in(waiter) > token
    for name in "x", "y", "z":
        nothing_left(servers.new, name)


@behind_a_vip()
def release_comes_first(t, servers):
    """The first request after the move is a release: it reaches the new primary, and no holder is notified"""
    held = t.hold("x", "--ttl", "600s")
    servers.fail_over()
    servers.move()
    t.release(held)
    expect(held.err.end(), "")
    nothing_left(servers.new)


@behind_a_vip()
def until_the_address_moves(t, servers):
    """While the address still leads to the old primary, waiters go on waiting and do not hammer it"""
    held = t.hold("x", "--ttl", "12s")
    waiter = waiting(t, "x")
    servers.fail_over()
    refused(t, "replica", "primary")
    until(lambda: servers.vip.asked("role") >= 4, "looking for the primary")
    expect(waiter.process.poll(), None)
    assert servers.vip.asked("subscribe") < 50, servers.vip.counts
    servers.move()
    servers.renewed("x")
    t.release(held)
    gets_in(waiter)
    nothing_left(servers.new)


@behind_a_vip("--replica-serve-stale-data", "no")
def replica_without_its_primary(t, servers):
    """MASTERDOWN is waited out as READONLY is"""
    held = t.hold("x", "--ttl", "6s")
    token = t.show("x")["token"]
    waiter = waiting(t, "x")
    replicate(servers.old, 1)
    servers.new.cli("REPLICAOF", "NO", "ONE")
    servers.old.cli("REPLICAOF", "127.0.0.1", "1")  # nobody is there
    servers.move()
    servers.renewed("x")
    t.release(held)
    assert gets_in(waiter) > token
    nothing_left(servers.new)


@behind_a_vip()
def acl_hides_the_role(t, servers):
    """A user without ROLE finds the new primary all the same"""
    for server in servers.old, servers.new:
        server.cli("ACL", "SETUSER", "low", "on", ">low", "~*", "&*", "+@all", "-role")
    use(t, servers.vip, "redis://low:low@127.0.0.1:%d")
    held = t.hold("x", "--ttl", "6s")
    servers.fail_over()
    servers.move()
    servers.renewed("x")
    t.release(held)
    expect(held.err.end(), "")
    nothing_left(servers.new)


@behind_a_vip()
def lock_did_not_come_along(t, servers):
    """A lock that the new primary has never heard of is lost, and its holder hears of it"""
    held = t.hold("x", "--ttl", "6s")
    servers.fail_over()
    servers.new.cli("DEL", "lock:x")
    servers.move()
    lost(held)
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)


def name_resolves_elsewhere(t):
    """A DNS name that leads elsewhere: it is resolved again, not remembered"""
    hosts = t.path("hosts")

    def leads_to(address):
        with open(hosts + ".new", "w", encoding="utf-8") as file:
            file.write("redis.stile.test %s\n" % address)
        os.rename(hosts + ".new", hosts)

    with RedisServer(*SOON) as old:
        with RedisServer(*SOON, "--port", str(old.port), "--bind", "127.0.0.2", "--replicaof",
                         "127.0.0.1", str(old.port)) as new:
            new.host, new.port = "127.0.0.2", old.port
            until(lambda: has_replicas(old, 1), "replication")
            leads_to("127.0.0.1")
            use(t, old, "redis://redis.stile.test:%d")
            t.env.update(LD_PRELOAD=os.environ["STILE_NAMES_LIBRARY"], STILE_TEST_HOSTS=hosts,
                         ASAN_OPTIONS="verify_asan_link_order=0")
            held = t.hold("x", "--ttl", "6s")
            token = t.show("x")["token"]
            waiter = waiting(t, "x")
            replicate(old, 1)
            new.cli("REPLICAOF", "NO", "ONE")
            old.cli("REPLICAOF", "127.0.0.2", str(new.port))
            leads_to("127.0.0.2")
            renewed(new)
            t.release(held)
            assert gets_in(waiter) > token
            nothing_left(new)


run_tests([held_waited_for_and_released, release_comes_first, until_the_address_moves, replica_without_its_primary, acl_hides_the_role,
           lock_did_not_come_along, name_resolves_elsewhere])
