# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A holder on several nodes learns at once that its lock is gone, and why; with fences and
without. The leases are so long that no renewal could report it, except where a test is about
renewals."""
import contextlib
import re
import socket
from urllib.parse import quote

from redis_kit import beside, expect, run_tests, spin
from loss_kit import BREAKER, Keeper, breaks
from redlock_kit import have_seen, on_nodes, on_ways, through_all, url_of
from proxy import KEEP, STOP

PLAIN = "?fence=off"


def both(decorator, case):
    """The test, with fences and without."""
    def named(params, says):
        def with_params(*args):
            case(*args, params)
        with_params.__name__, with_params.__doc__ = case.__name__, case.__doc__ + says
        return decorator(params=params)(with_params)
    return [named("", ""), named(PLAIN, " (without fences)")]


def subscribed(nodes, name="x", prefix="lock:"):
    """On all nodes, whether or not all of them have the key."""
    (owner,) = {node.cli("GET", prefix + name) for node in nodes} - {""}
    for node in nodes:
        spin(lambda node=node: node.cli("PUBSUB", "CHANNELS", "stile:" + owner[:16]))
    return owner


def first_hold(keeper, nodes):
    """A client waits for a majority only. After this it is connected to all nodes and subscribed."""
    for name in map(str, range(1000)):
        keeper.hold(name)
        if all(node.cli("EXISTS", "lock:" + name) == "1" for node in nodes):
            subscribed(nodes, name)
            return name


def until_checked(ways, times):
    """On a majority: a node that came too late to vote is not asked."""
    spin(lambda: sum(way.asked("check") >= times for way in ways) >= 3)


@contextlib.contextmanager
def deaf(t, ways, params, **how):
    """A holder that is not subscribed yet, and the rules that let its subscriptions go on."""
    rules = [way.once("subscribe", STOP) for way in ways]
    with through_all(t, ways, params):
        keeper = Keeper(t)
    with keeper:
        keeper.hold(**how)
        for rule in rules:
            rule.hit()
        yield keeper, rules


def before_the_subscription(t, nodes, ways, params):
    """Broken between the grant and the subscriptions: reported once those are in effect"""
    with deaf(t, ways, params) as (keeper, rules):
        breaker = breaks(t)
        for rule in rules:
            rule.let_go()
        keeper.lost_to(breaker)


def before_the_answers(t, nodes, ways, params):
    """The messages that it was broken overtake the answers that grant it"""
    with through_all(t, ways, params), Keeper(t) as keeper:
        first = first_hold(keeper, nodes)
        kind = "set" if params else "fence"
        if not params:
            have_seen(nodes, 1000)
        rules = [way.once(kind, KEEP) for way in ways]
        keeper.ask_for("x")
        for rule in rules:
            rule.hit()
        breaker = breaks(t)
        for rule in rules:
            rule.let_go()
        expect(keeper.hear(), "OK")
        keeper.lost_to(breaker)
        expect(keeper.ask("?" + first), "held")


def unharmed(t, nodes, ways, params):
    """What was not broken is not lost when the subscriptions are interrupted"""
    with through_all(t, ways, params), Keeper(t) as keeper:
        keeper.hold()
        until_checked(ways, 1)
        for way in ways:
            way.cut("subscribe")
        until_checked(ways, 2)
        expect(keeper.ask("-x"), "OK")


def message(t, nodes, params):
    """Subscribed holders learn from the messages which process has broken their lock"""
    with Keeper(t) as keeper:
        first_hold(keeper, nodes)
        keeper.hold()
        keeper.lost_to(breaks(t))


def mark(t, nodes, ways, params):
    """A renewal, or a release, finds the mark of the process that has broken it"""
    with deaf(t, ways, params, ttl=3000) as (keeper, _):
        keeper.lost_to(breaks(t))
    with deaf(t, ways, params) as (keeper, _):
        breaker = breaks(t)
        said = re.search(BREAKER, keeper.ask("-x"))
        expect(said and int(said.group(1)), breaker)
    for node in nodes:
        assert 0 < int(node.cli("PTTL", beside("x", "broken"))) <= 3600000


def some_nodes(t, nodes, params):
    """Keys deleted by hand: on two nodes of five it goes on, on three it is lost"""
    with Keeper(t) as keeper:
        first_hold(keeper, nodes)
        keeper.hold(ttl=3000)
        for node in nodes[:2]:
            node.cli("DEL", "lock:x")
        pttl = int(nodes[4].cli("PTTL", "lock:x"))
        spin(lambda: int(nodes[4].cli("PTTL", "lock:x")) < pttl)
        spin(lambda: int(nodes[4].cli("PTTL", "lock:x")) > 2900)
        expect(keeper.ask("?x"), "held")
        nodes[2].cli("DEL", "lock:x")
        keeper.lost_because("^on 3 of 5 nodes its key is gone")


def replaced(t, nodes, params):
    """Another client's value in the keys"""
    with Keeper(t) as keeper:
        keeper.hold(ttl=3000)
        for node in nodes:
            node.cli("SET", "lock:x", "secret", "PX", "3600000")
        keeper.lost_because("^on [345] of 5 nodes its key now has another client's value$")


def kept(t, nodes, params):
    """A name that is kept without a holder shows the process that left it, until its end"""
    expect(t.start("run", "--hold-at-least", "60s", "x", "--", "true").wait(), 0)
    (ghost,) = t.show("x")["holders"]
    assert ghost["ghost"], ghost
    expect((ghost["host"], ghost["command"]), (socket.gethostname(), "true"))
    assert ghost["pid"] > 0 and 0 < ghost["age_ms"] < 60000, ghost
    assert 0 < ghost["expires_ms"] <= 60000, ghost
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
    token = ("--token", str(ghost["token"])) if not params else ()
    expect(t.stile("break", *token, "x").returncode, 0)
    expect(t.show("x")["holders"], [])


def not_known(t, nodes, params):
    """Since when a waiter waits is not known, and shown as such"""
    with Keeper(t) as keeper:
        keeper.hold()
        waiter = t.start("run", "x", "--", "true")
        spin(lambda: t.show("x")["waiters"])
        (shown,) = t.show("x")["waiters"]
        expect((shown["age_ms"], shown["host"]), (None, socket.gethostname()))
        expect(t.stile("show", "x").stdout.split("\n")[2].split()[:4],
               ["waiting", "exclusive", "-", "-"])
        expect(keeper.ask("-x"), "OK")
        expect(waiter.wait(), 0)


def not_listed(t, nodes, params):
    """Marks and records are no locks, with any prefix"""
    for prefix in "", "lock:", "{", "{lock:x":
        url = url_of([node.port for node in nodes], params or "?fence=on")
        t.env["STILE_ENGINE"] = url + "&prefix=" + quote(prefix)
        with Keeper(t) as keeper:
            keeper.hold()
            expect(keeper.ask("+x"), "OK")
            subscribed(nodes, prefix=prefix)
            breaks(t)
            keeper.reason()
        for part in "broken", "last":
            assert sum(bool(node.cli("KEYS", "*\x1f" + part)) for node in nodes) >= 3, part
        expect(t.stile("ls", "--json").stdout, "[]\n")


ON_WAYS = before_the_subscription, before_the_answers, unharmed, mark
ON_NODES = message, some_nodes, replaced, kept, not_known, not_listed
run_tests([test for case in ON_WAYS for test in both(on_ways, case)] +
          [test for case in ON_NODES for test in both(on_nodes, case)])
