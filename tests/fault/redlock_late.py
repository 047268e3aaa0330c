# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Nodes of redlock that come up after a client was opened get the checks of open(): before a node has
answered them, and while it fails them, it does not vote."""
from redis_kit import Proxy, acquire, expect, gets_in, run_tests, waiting
from kit import spin
from redlock_kit import DURABLE, on_nodes, use_nodes

EVICTING = ("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")


def is_listened_to(node):
    """From here on the waiter would ask it for its key."""
    return node.cli("PUBSUB", "CHANNELS", "stile:*")


def in_need_of_the_third(t, nodes):
    """A waiter that has node 0, can't have node 1, and looks again and again for node 2, which has
    been down since before it was started."""
    owner, _ = acquire(t, "x", "--ttl", "120s")
    waiter = waiting(t, "x")
    nodes[1].cli("SET", "lock:x", "somebody else's")
    expect(t.stile("release", "--owner", owner, "x").returncode in (0, 76), True)
    return waiter


def does_not_count(t, node, waiter):
    spin(lambda: is_listened_to(node))
    for _ in range(5):  # others that come and go take turns with it
        expect(t.stile("run", "--try", "x", "--", "true").returncode in (69, 75), True)
    expect(waiter.process.poll(), None)
    expect(node.cli("GET", "lock:x"), "", "it was not even asked")


@on_nodes(*DURABLE, number=3)
def it_evicts(t, nodes):
    """A node that comes up and evicts does not vote; once it comes up without, it does"""
    nodes[2].kill()
    waiter = in_need_of_the_third(t, nodes)
    nodes[2].args += EVICTING
    nodes[2].restart()
    does_not_count(t, nodes[2], waiter)
    nodes[2].kill()
    nodes[2].args = DURABLE
    nodes[2].restart()
    gets_in(waiter)


@on_nodes(*DURABLE, number=3)
def it_is_sound(t, nodes):
    """A node that comes up as it should be votes"""
    nodes[2].kill()
    waiter = in_need_of_the_third(t, nodes)
    nodes[2].restart()
    gets_in(waiter)


@on_nodes(*DURABLE, number=3)
def it_is_a_replica(t, nodes):
    """A node that comes up as another one's replica does not vote"""
    nodes[2].kill()
    waiter = in_need_of_the_third(t, nodes)
    nodes[2].args += ("--replicaof", "127.0.0.1 %d" % nodes[1].port, "--replica-read-only", "no")
    nodes[2].restart()
    spin(lambda: is_listened_to(nodes[2]))
    expect(t.stile("run", "--try", "x", "--", "true").returncode in (69, 75), True)
    expect(waiter.process.poll(), None)


@on_nodes(*DURABLE, number=3)
def it_is_one_of_the_others(t, nodes):
    """An address that turns out to lead to a server that votes already does not vote again"""
    with Proxy(nodes[2].port) as way:
        nodes[2].kill()

        class Address:
            port = way.port
        use_nodes(t, [*nodes[:2], Address])
        try:
            waiter = in_need_of_the_third(t, nodes)
            way.do(lambda: setattr(way, "target", nodes[0].port))
            way.until_asked("info", 1)
            way.until_asked("subscribe", 1)
            expect(waiter.process.poll(), None)
            expect(sum(way.asked(kind) for kind in ("claim", "fence")), 0)
        finally:
            t.end_all()


run_tests([it_evicts, it_is_sound, it_is_a_replica, it_is_one_of_the_others])
