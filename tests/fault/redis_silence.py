# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Connections that go silent and never end: a firewall that has forgotten them, a host that is gone.
A holder must notice early enough to renew over another connection."""
from redis_kit import (expect, gets_in, kill_at_once, nothing_left, on_server, renewed, run_tests, through,
                       waiting, with_proxy)
from cluster_kit import outlives_forgotten_connections
from redlock_kit import on_ways, through_all


def survives(*options):
    @with_proxy()
    def case(t, server, proxy):
        with through(t, proxy):
            held = t.hold("x", *options)
        proxy.freeze()
        renewed(server)
        t.release(held)
        expect(held.err.end(), "")
        nothing_left(server)
    case.__name__ = "survives"
    case.__doc__ = "A holder whose connection goes silent keeps its lock: %s" % (" ".join(options)
                                                                                 or "by default")
    return case


@with_proxy()
def twice_in_a_row(t, server, proxy):
    """The next connection goes silent as well: there is time for a third"""
    with through(t, proxy):
        held = t.hold("x", "--ttl", "12s")
    greeted = proxy.asked("client")
    proxy.freeze()
    proxy.until_asked("client", greeted + 1)
    proxy.freeze()
    renewed(server)
    t.release(held)
    expect(held.err.end(), "")


@on_server()
def forgotten_connections(t, server):
    """Connections that the server accepts and forgets: the holder tries again in time"""
    outlives_forgotten_connections(t, server.port, "redis://127.0.0.1:%d")


@with_proxy()
def release_over_a_silent_connection(t, server, proxy):
    """A release that gets no answer is repeated over the next connection"""
    with through(t, proxy):
        held = t.hold("x", "--ttl", "4s")
    proxy.freeze()
    t.release(held)
    nothing_left(server)


@with_proxy()
def waiter_hears_nothing(t, server, proxy):
    """A waiter whose connections go silent gets in, and hears again"""
    first = t.hold("x", "--ttl", "2s")
    with through(t, proxy):
        waiter = waiting(t, "x", "--ttl", "2s")
    proxy.freeze()
    t.release(first)
    gets_in(waiter)
    nothing_left(server)


@with_proxy()
def several_leases(t, server, proxy):
    """The shortest lease counts, whichever asks"""
    with through(t, proxy):
        long, short = t.hold("x", "--ttl", "600s"), t.hold("z", "--ttl", "4s")
    proxy.freeze()
    renewed(server, "z")
    t.release(short)
    nothing_left(server, "z")
    kill_at_once(long)


@on_ways()
def redlock_holder(t, nodes, ways):
    """redlock: a holder whose connections to all nodes go silent at once keeps its lock"""
    with through_all(t, ways):
        held = t.hold("x", "--ttl", "6s")
    for way in ways:
        way.freeze()
    renewed(nodes[0])
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
    t.release(held)
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)


@on_ways()
def redlock_release(t, nodes, ways):
    """redlock: a release over connections that went silent is sent again over others"""
    with through_all(t, ways):
        held = t.hold("x", "--ttl", "6s")
    for way in ways:
        way.freeze()
    t.release(held)
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)


run_tests([survives(), survives("--ttl", "2s"), survives("--profile", "financial"), twice_in_a_row,
           release_over_a_silent_connection, waiter_hears_nothing, several_leases,
           forgotten_connections, redlock_holder, redlock_release])
