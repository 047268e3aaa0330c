# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Requests to the nodes of redlock that may or may not have been executed, and nodes that get a
withdrawal late."""
from redis_kit import acquire, acquired, expect, gets_in, lost, run_tests, ended_with, waiting
from redlock_kit import DURABLE, have_seen, nothing_left, on_nodes, on_ways, through_all
from proxy import LATE, LOSE_REPLY, LOSE_REQUEST, MUTE, SLOW, STOP

BOTH = LOSE_REQUEST, LOSE_REPLY


def all_hit(rules):
    for rule in rules:
        rule.hit()


def rule_all(ways, kind, action):
    return [way.once(kind, action) for way in ways]


def hold_on_all(t, ways):
    """Held, and every node was asked: three would do, and the others might never be reached."""
    before = [way.asked("claim") for way in ways]
    with through_all(t, ways):
        held = t.hold("x", "--ttl", "60s")
    for way, asked in zip(ways, before):
        way.until_asked("claim", asked + 1)
    return held


# ---- asking ----

@on_ways(*DURABLE)
def a_minority_in_doubt(t, nodes, ways):
    """Answers of two nodes are lost: granted by the others, and nothing is left on the two"""
    for action in BOTH:
        rules = rule_all(ways[:2], "claim", action)
        held = hold_on_all(t, ways)
        all_hit(rules)
        t.release(held)
        nothing_left(nodes, ways=ways)


@on_ways(*DURABLE)
def a_majority_in_doubt(t, nodes, ways):
    """Answers of four nodes are lost: a try says so, and is withdrawn everywhere"""
    for action in BOTH:
        rules = rule_all(ways[:4], "claim", action)
        with through_all(t, ways):
            said = ended_with(t.stile("run", "--try", "x", "--", "true"), 69, "of 5 nodes answer")
        for way in ways:
            assert said.count(":%d" % way.port) <= 1, said
        all_hit(rules)
        nothing_left(nodes, ways=ways)


@on_ways(*DURABLE)
def phase_two_in_doubt(t, nodes, ways):
    """Votes that are lost on the way: two do no harm, four are asked for again"""
    before = 0
    for some in ways[:2], ways[:4]:
        for action in BOTH:
            have_seen(nodes, before + 1000)
            rules = rule_all(some, "fence", action)
            held = hold_on_all(t, ways)
            all_hit(rules)
            token = t.show("x")["token"]
            assert token > before, (token, before)
            before = token
            t.release(held)
            nothing_left(nodes, ways=ways)


@on_ways(*DURABLE)
def a_claim_that_waits(t, nodes, ways):
    """A waiter asks again, however many answers were lost"""
    for action in BOTH:
        rules = rule_all(ways, "claim", action)
        with through_all(t, ways):
            gets_in(t.start("run", "x", "--", "sh", "-c", "echo $STILE_TOKEN"))
        all_hit(rules)
        nothing_left(nodes, ways=ways)


@on_ways(*DURABLE)
def one_in_line(t, nodes, ways):
    """A queued waiter that was cut off from all nodes is handed the lock when it is back"""
    held = t.hold("x", "--ttl", "600s")
    token = t.show("x")["token"]
    with through_all(t, ways):
        waiter = waiting(t, "x")
    for way in ways:
        way.accept(False)
        way.cut()
    t.release(held)
    for way in ways:
        way.accept(True)
    assert gets_in(waiter) > token
    nothing_left(nodes, ways=ways)


@on_ways(*DURABLE)
def claims_come_late(t, nodes, ways):
    """Claims that arrive after their own withdrawal, on two nodes: they end with their lease"""
    rules = rule_all(ways[:2], "claim", LATE)
    with through_all(t, ways):
        expect(t.stile("run", "--try", "--ttl", "1s", "x", "--", "true").returncode, 0)
    for rule in rules:
        rule.hit()
        rule.let_go()
    expect([len(node.cli("GET", "lock:x")) for node in nodes], [40, 40, 0, 0, 0])
    token = t.show("x")["token"]
    assert acquire(t, "x", "--ttl", "60s")[1] > token  # three are enough


# ---- holding ----

@on_ways(*DURABLE)
def a_renewal(t, nodes, ways):
    """Renewals in doubt, on two nodes and on all: asked again, and held all the while"""
    with through_all(t, ways):
        held = t.hold("x", "--ttl", "3s")
    token = t.show("x")["token"]
    for some in ways[:2], ways:
        for action in BOTH:
            rules = rule_all(some, "renew", action)
            all_hit(rules)
            ways[4].until_asked("renew", ways[4].asked("renew") + 2)
            expect(held.process.poll(), None)
            expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
    t.release(held)
    assert acquire(t, "x")[1] == token + 1


@on_ways(*DURABLE)
def a_release(t, nodes, ways):
    """A release in doubt, on two nodes and on all, is repeated: done, and not a loss"""
    for some in ways[:2], ways:
        for action in BOTH:
            held = hold_on_all(t, ways)
            rules = rule_all(some, "release", action)
            t.release(held)
            expect(held.err.end(), "")
            all_hit(rules)
            # Done by a majority it is done: what the others never heard ends with its lease.
            nothing_left(nodes if len(some) == 5 else nodes[2:], ways=ways)
            for node in nodes:
                node.cli("DEL", "lock:x")


@on_ways(*DURABLE)
def most_answers_stay_away(t, nodes, ways):
    """Nothing comes back from three nodes: the holder loses its lock at its deadline, nothing is left"""
    with through_all(t, ways):
        held = t.hold("x", "--ttl", "2s")
    for way in ways[:3]:
        way.accept(False)
    rule_all(ways[:3], "renew", MUTE)
    lost(held)
    for way in ways[:3]:
        way.accept(True)
    nothing_left(nodes, ways=ways)


@on_ways(*DURABLE)
def most_requests_stay_away(t, nodes, ways):
    """Nothing reaches three nodes: the holder is notified, and what comes late harms nobody"""
    with through_all(t, ways):
        held = t.hold("x", "--ttl", "2s")
    for way in ways[:3]:
        way.accept(False)
    rules = rule_all(ways[:3], "renew", STOP)
    token = t.show("x")["token"]
    lost(held)
    all_hit(rules)
    done = t.stile("acquire", "--ttl", "60s", "x")
    owner, later = acquired(done.stdout)
    assert int(later) > token
    for rule in rules:
        rule.let_go()
    expect([node.cli("GET", "lock:x") for node in nodes], [owner] * 5)


@on_ways(*DURABLE)
def answers_come_slowly(t, nodes, ways):
    """Answers that come byte by byte are answers"""
    have_seen(nodes, 1000)
    for kind in "claim", "fence", "release":
        rule_all(ways, kind, SLOW)
    with through_all(t, ways):
        expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)
    nothing_left(nodes, ways=ways)


# ---- late nodes ----

@on_nodes(*DURABLE)
def withdrawn_on_late_nodes(t, nodes):
    """Nodes that were stopped while a claim was made and given up have nothing of it later"""
    held = t.hold("x", "--ttl", "60s")
    for node in nodes[:2]:
        node.pause()
    for verb in ["--try"], ["--wait", "200ms"]:
        expect(t.stile("run", *verb, "x", "--", "true").returncode, 75)
    t.release(held)
    for node in nodes[:2]:
        node.go_on()
    nothing_left(nodes)


run_tests([a_minority_in_doubt, a_majority_in_doubt, phase_two_in_doubt, a_claim_that_waits,
           one_in_line, claims_come_late, a_renewal, a_release, most_answers_stay_away,
           most_requests_stay_away, answers_come_slowly, withdrawn_on_late_nodes])
