# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Nodes of redlock that were adopted: until every lease that they have forgotten is over they take no
claims and hand over nothing, whatever is asked of them."""
from redis_kit import acquire, expect, gets_in, run_tests, waiting
from kit import spin
from redlock_kit import DURABLE, on_nodes


def adopted_under_a_holder(t, nodes):
    """A holder that only nodes 0 and 1 know of; node 1 forgets it and is adopted. A waiter can
    have node 2, and needs one more."""
    nodes[2].kill()
    owner, token = acquire(t, "x", "--ttl", "120s")
    nodes[2].restart()
    nodes[1].cli("FLUSHALL")
    done = t.stile("doctor", "--adopt")
    assert "takes no claims for 120 s" in " ".join(done.stdout.split()), done.stdout
    waiter = waiting(t, "x")
    spin(lambda: nodes[1].cli("LLEN", "{lock:x}\x1fqueue") == "1")
    return owner, token, waiter


@on_nodes(*DURABLE, number=3)
def a_try_fails(t, nodes):
    """A try that fails takes back what it asked for: the quiet node is not handed to the waiter"""
    owner, token, waiter = adopted_under_a_holder(t, nodes)
    for _ in range(3):
        expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
        expect(nodes[1].cli("GET", "lock:x"), "", "the quiet node has given its key to nobody")
    expect(waiter.process.poll(), None)
    nodes[1].cli("HSET", "stile:node", "quiet", "1")  # the time is over, as far as it knows
    for node in nodes:
        node.cli("PEXPIRE", "lock:x", "1")
    assert gets_in(waiter) > token


@on_nodes(*DURABLE, number=3)
def a_waiter_gives_up(t, nodes):
    """A waiter that gives up, and `stile break`, hand the quiet node to nobody either"""
    owner, token, waiter = adopted_under_a_holder(t, nodes)
    expect(t.stile("run", "--wait", "100ms", "x", "--", "true").returncode, 75)
    t.stile("break", "x", "--token", str(token + 7))
    expect(nodes[1].cli("GET", "lock:x"), "", "the quiet node has given its key to nobody")
    expect(waiter.process.poll(), None)


@on_nodes(*DURABLE, number=3)
def a_foreign_key_is_there(t, nodes):
    """A plain client's key on the quiet node, taken away again: the node is handed over to nobody"""
    owner, token, waiter = adopted_under_a_holder(t, nodes)
    nodes[1].cli("SET", "lock:x", "somebody else's")
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
    nodes[1].cli("DEL", "lock:x")
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
    expect(nodes[1].cli("GET", "lock:x"), "")
    expect(waiter.process.poll(), None)


@on_nodes(*DURABLE, number=3)
def a_vote_comes_late(t, nodes):
    """A key that was left on a node whose record was deleted by hand: a quiet node takes no vote"""
    owner, _ = acquire(t, "x", "--ttl", "120s")
    nodes[1].cli("DEL", "stile:node")
    t.stile("doctor", "--adopt")
    group, highest = nodes[1].cli("HMGET", "stile:node", "group", "highest").split("\n")
    before = nodes[1].cli("GET", "{lock:x}\x1ffence")
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
    expect(nodes[1].cli("GET", "lock:x"), owner)
    expect(nodes[1].cli("GET", "{lock:x}\x1ffence"), before)
    expect(nodes[1].cli("HMGET", "stile:node", "group", "highest").split("\n"), [group, highest])


def token_of_a_run(t):
    done = t.stile("run", "--ttl", "400ms", "x", "--", "sh", "-c", "echo $STILE_TOKEN")
    expect(done.returncode, 0, done.stderr)
    return int(done.stdout)


@on_nodes(*DURABLE, number=3)
def a_backup_is_restored(t, nodes):
    """A node restored from a backup and adopted without its record: its old fences count for nothing"""
    fence = "{lock:x}\x1ffence"
    token_of_a_run(t)
    old = nodes[1].cli("GET", fence)
    nodes[2].kill()
    for _ in range(3):
        token = token_of_a_run(t)
    nodes[1].cli("SET", fence, old)
    nodes[1].cli("DEL", "stile:node")
    nodes[2].restart()
    t.stile("doctor", "--adopt")
    nodes[1].cli("HSET", "stile:node", "quiet", "1")
    nodes[0].kill()
    later = token_of_a_run(t)
    assert later > token, (later, token)


run_tests([a_try_fails, a_waiter_gives_up, a_foreign_key_is_there, a_vote_comes_late,
           a_backup_is_restored])
