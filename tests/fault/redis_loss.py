# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A holder learns at once that its lock is gone, and why. The leases are so long that no renewal
could report it, except where a test is about renewals."""
import contextlib
import re
import socket
from urllib.parse import quote

from redis_kit import (acquire, beside, ended_with, expect, on_server, owner_of, run_tests, spin,
                       through, with_proxy)
from loss_kit import BREAKER, Keeper, breaks
from proxy import KEEP, STOP

MODES = None, "shared", "2"


def subscribed(server, name="x"):
    """The owner value of an exclusive holder, once its client is subscribed."""
    owner = owner_of(server, name)
    spin(lambda: server.cli("PUBSUB", "CHANNELS", "stile:" + owner[:16]))
    return owner


@contextlib.contextmanager
def deaf(t, proxy, **how):
    """A holder that is not subscribed yet, and the rule that lets its subscription go on."""
    rule = proxy.once("subscribe", STOP)
    with through(t, proxy):
        keeper = Keeper(t)
    with keeper:
        keeper.hold(**how)
        rule.hit()
        yield keeper, rule


# ---- when ----

@with_proxy()
def before_the_subscription(t, server, proxy):
    """Broken between the grant and the subscription: reported once that is in effect"""
    for mode in MODES:
        with deaf(t, proxy, mode=mode) as (keeper, rule):
            breaker = breaks(t)
            rule.let_go()
            keeper.lost_to(breaker)


@with_proxy()
def while_reconnecting(t, server, proxy):
    """Broken while the subscription is interrupted: reported once it is back"""
    with through(t, proxy), Keeper(t) as keeper:
        keeper.hold()
        subscribed(server)
        rule = proxy.once("subscribe", STOP)
        proxy.cut("subscribe")
        rule.hit()
        breaker = breaks(t)
        rule.let_go()
        keeper.lost_to(breaker)


@with_proxy()
def before_the_answer(t, server, proxy):
    """The message that it was broken overtakes the answer that grants it"""
    with through(t, proxy), Keeper(t) as keeper:
        keeper.hold("first")
        proxy.until_asked("check", 1)  # it was held before it was subscribed
        rule = proxy.once("claim", KEEP)
        keeper.ask_for("x")
        rule.hit()
        breaker = breaks(t)
        rule.let_go()
        expect(keeper.hear(), "OK")
        keeper.lost_to(breaker)
        expect(keeper.ask("?first"), "held")


@with_proxy()
def unharmed(t, server, proxy):
    """What was not broken is not lost when the subscription is interrupted"""
    with through(t, proxy), Keeper(t) as keeper:
        for mode in MODES:
            keeper.hold(str(mode), mode=mode)
        proxy.until_asked("check", 1)
        proxy.cut("subscribe")
        proxy.until_asked("check", 4)
        for mode in MODES:
            expect(keeper.ask("-" + str(mode)), "OK")


@with_proxy()
def for_earlier_grants(t, server, proxy):
    """A break of all holders that arrives late ends no later grant. (The command names a single one.)"""
    for mode in MODES[1:]:
        with Keeper(t) as one, Keeper(t) as other:
            one.hold(mode=mode)
            other.hold(mode=mode)
            rule = proxy.once("latest", KEEP)
            with through(t, proxy):
                breaker = t.start("break", "x")
            rule.hit()
            expect([one.ask("-x"), other.ask("-x")], ["OK", "OK"])
            one.hold(mode=mode)
            rule.let_go()
            expect(breaker.wait(), 75, breaker.err.end())
            expect([one.ask("?x"), one.ask("-x")], ["held", "OK"])


# ---- why ----

@on_server()
def message(t, server):
    """A subscribed holder learns from the message which process has broken its lock"""
    with Keeper(t) as keeper:
        keeper.hold("first")
        subscribed(server, "first")
        for mode in MODES:
            keeper.hold(mode=mode)
            keeper.lost_to(breaks(t))


@with_proxy()
def mark(t, server, proxy):
    """A renewal finds the mark of the process that has broken it; the mark expires"""
    for mode in MODES:
        with deaf(t, proxy, ttl=3000, mode=mode) as (keeper, _):
            keeper.lost_to(breaks(t))
    assert 0 < int(server.cli("PTTL", beside("x", "broken"))) <= 3600000


@with_proxy()
def mark_at_release(t, server, proxy):
    """So does a release"""
    for mode in MODES:
        with deaf(t, proxy, mode=mode) as (keeper, _):
            breaker = breaks(t)
            said = re.search(BREAKER, keeper.ask("-x"))
            expect(said and int(said.group(1)), breaker)


@on_server()
def hostile_message(t, server):
    """Nothing that anybody publishes reaches the terminal unread"""
    for by in "", " ", " 5", " x y", " 5 \x1b[2J", " -1 host", " 5 " + 80 * "h":
        with Keeper(t) as keeper:
            keeper.hold()
            owner = subscribed(server)
            server.cli("PUBLISH", "stile:" + owner[:16], "b " + owner + by)
            keeper.lost_because("^taken by stile break$")


@on_server()
def deleted(t, server):
    """The key was deleted by hand"""
    for mode in MODES:
        with Keeper(t) as keeper:
            keeper.hold(ttl=3000, mode=mode)
            server.cli("DEL", "lock:x")
            keeper.lost_because("^its key is gone")


@on_server()
def replaced(t, server):
    """Another client has replaced the value, or the key, in one step"""
    for command in ("SET", "other", "secret", "PX", "3600000"), ("RPUSH", "other", "secret"):
        server.cli("DEL", "lock:x")
        server.cli(*command)
        with Keeper(t) as keeper:
            keeper.hold(ttl=3000)
            server.cli("RENAME", "other", "lock:x")
            keeper.lost_because("^its key now has another client's value$")


@on_server()
def taken(t, server):
    """Another client of ours has the key, as after one was deleted by hand"""
    acquire(t, "y", "--ttl", "1h")
    with Keeper(t) as keeper:
        keeper.hold(ttl=3000)
        server.cli("RENAME", "lock:y", "lock:x")
        keeper.lost_because("another stile client holds the lock now$")


@on_server()
def damaged_mark(t, server):
    """A mark of another kind hides no loss, and is overwritten by the next break"""
    server.cli("RPUSH", beside("x", "broken"), "y")
    with Keeper(t) as keeper:
        keeper.hold(ttl=3000)
        server.cli("DEL", "lock:x")
        keeper.lost_because("^its key is gone")
    with Keeper(t) as keeper:
        keeper.hold()
        subscribed(server)
        keeper.lost_to(breaks(t))
    expect(server.cli("TYPE", beside("x", "broken")), "string")


@on_server()
def many_marks(t, server):
    """However often a name is broken, its marks stay small"""
    server.cli("SET", beside("x", "broken"), 9000 * "y")
    for _ in range(3):
        server.cli("SET", "lock:x", 40 * "a", "PX", "60000")
        breaks(t)
    expect(server.cli("STRLEN", beside("x", "broken")), "8192")


@on_server()
def resumed(t, server):
    """`stile renew` and `stile release` of a lock that was broken"""
    owner, _ = acquire(t, "x", "--ttl", "1h")
    breaks(t)
    for verb in "renew", "release":
        assert re.search(BREAKER, ended_with(t.stile(verb, "--owner", owner, "x"), 76, "x"))


# ---- what a hold keeps ----

@on_server()
def kept(t, server):
    """A name that is kept without a holder shows the process that left it, and all of it expires"""
    for mode in (), ("--shared",), ("--slots", "2"):
        runner = t.start("run", "--hold-at-least", "60s", *mode, "x", "--", "true")
        expect(runner.wait(), 0)
        (ghost,) = t.show("x")["holders"]
        assert ghost["ghost"], ghost
        expect((ghost["host"], ghost["command"]), (socket.gethostname(), "true"))
        assert ghost["pid"] > 0 and ghost["token"] > 0 and ghost["age_ms"] > 0, ghost
        assert 0 < ghost["expires_ms"] <= 60000, ghost
        for key in server.cli("KEYS", "*lock:x*").split("\n"):
            if key.endswith("\x1flast"):
                continue  # the record, which outlives it
            assert 0 < int(server.cli("PTTL", key)) <= 61000, key
        expect(t.stile("break", "--token", str(ghost["token"]), "x").returncode, 0)
        expect(t.show("x")["holders"], [])
        server.cli("FLUSHALL")


@on_server()
def kept_after_release(t, server):
    """The same, where another process released it than acquired it: the acquirer is shown"""
    owner, _ = acquire(t, "x", "--hold-at-least", "60s")
    before = t.show("x")["holders"][0]
    expect(t.stile("release", "--owner", owner, "x").returncode, 0)
    (ghost,) = t.show("x")["holders"]
    assert ghost["ghost"], ghost
    expect((ghost["host"], ghost["pid"], ghost["command"]),
           (before["host"], before["pid"], before["command"]))


@on_server()
def not_known(t, server):
    """Since when another client has held its key is not known, and shown as such"""
    server.cli("SET", "lock:x", "theirs", "PX", "3600000")
    expect(t.show("x")["holders"][0]["age_ms"], None)
    row = t.stile("show", "x").stdout.split("\n")[1].split()
    expect(row[:4], ["held", "exclusive", "-", "-"])
    expect(t.stile("ls").stdout.split("\n")[1].split()[5], "-")


@on_server()
def not_listed(t, server):
    """Marks and records are no locks, with any prefix"""
    for prefix in "", "lock:", "{", "{lock:x":
        t.env["STILE_ENGINE"] = "redis://127.0.0.1:%d?prefix=%s" % (server.port, quote(prefix))
        with Keeper(t) as keeper:
            keeper.hold()
            expect(keeper.ask("+x"), "OK")
            breaks(t)
            keeper.reason()
        for part in "broken", "last":
            assert server.cli("KEYS", "*\x1f" + part), part
        expect(t.stile("ls", "--json").stdout, "[]\n")
        server.cli("FLUSHALL")


run_tests([before_the_subscription, while_reconnecting, before_the_answer, unharmed,
           for_earlier_grants, message, mark,
           mark_at_release, hostile_message, deleted, replaced, taken, damaged_mark, many_marks,
           resumed, kept, kept_after_release, not_known,
           not_listed])
