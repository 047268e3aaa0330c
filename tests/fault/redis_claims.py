# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What is stored with a claim, for how long, and under which keys."""
import os
import signal
import subprocess

from redis_kit import (COUNTER, acquire, acquired, beside, everybody, expect, gets_in, on_server,
                       renewed, run_tests, signal_all, spin, waiting)

HOUR_MS = 3600 * 1000
CROWD = 70000  # more than a connection has room for
MODES = {"x": [], "s": ["--shared"], "n": ["--slots", "3"]}


def pttl(server, name="x"):
    return int(server.cli("PTTL", "lock:" + name))


def go_on(t, verb, owner, *more, name="x"):
    done = t.stile(verb, "--owner", owner, *more, name)
    expect(done.returncode, 0, done.stderr)


# ---- what was requested ----

@on_server()
def ttl_is_kept(t, server):
    """renew without --ttl keeps the TTL of acquire, in every mode; with it, the new one is kept"""
    for mode in MODES.values():
        owner, token = acquire(t, "x", "--ttl", "1h", *mode)
        for verb, least, most in ([], 55, 60), (["--ttl", "2h"], 115, 120), ([], 115, 120):
            go_on(t, "renew", owner, *verb)
            left = pttl(server) / 60000
            assert least < left <= most, (mode, verb, left)
            expect(t.show("x")["holders"][0]["token"], token)
        go_on(t, "release", owner)
        expect(server.cli("EXISTS", "lock:x"), "0")


@on_server()
def hold_is_kept(t, server):
    """hold_at_least outlives the process that asked for it, and counts from the grant"""
    for name, mode in MODES.items():
        owner, _ = acquire(t, name, "--ttl", "1s", "--hold-at-least", "60s", *mode)
        go_on(t, "renew", owner, name=name)
        assert 1000 < pttl(server, name) <= 60000
        go_on(t, "release", owner, name=name)
        expect(t.stile("run", "--try", name, "--", "true").returncode, 75)
        shown = t.show(name)["holders"]
        expect([holder["ghost"] for holder in shown], [True])
        assert 0 < shown[0]["expires_ms"] <= 60000


@on_server()
def mode_is_kept(t, server):
    """renew and release need not know whether it is shared, or one of how many slots"""
    for mode in MODES.values():
        owners = [acquire(t, "x", "--ttl", "60s", *mode)[0] for _ in range(1 if not mode else 2)]
        for owner in owners:
            go_on(t, "renew", owner)
        expect(len(t.show("x")["holders"]), len(owners))
        for owner in owners:
            go_on(t, "release", owner)
        expect(t.show("x")["holders"], [])


@on_server()
def delay_is_kept(t, server):
    """A claim that was resumed keeps its lock-delay: the key outlives the lease by it"""
    owner, _ = acquire(t, "x", "--ttl", "10s", "--lock-delay", "60s")
    go_on(t, "renew", owner)
    assert 60000 < pttl(server) <= 70000


@on_server()
def handed_over_and_resumed(t, server):
    """A claim that waited for its turn is stored like any other"""
    held = t.hold("x", "--ttl", "60s")
    waiter = t.start("acquire", "--ttl", "1h", "--hold-at-least", "2h", "x")
    watched = t.watch("x")
    t.until(watched, lambda change: len(change["waiters"]) == 1)
    t.release(held)
    owner = acquired(waiter.line())[0]
    expect(waiter.wait(), 0)
    go_on(t, "renew", owner)
    assert 115 < pttl(server) / 60000 <= 120


def passed(server, ms, name="x"):
    """As if so much time had passed since the lease of an exclusive lock was last extended."""
    server.cli("PEXPIRE", "lock:" + name, str(pttl(server, name) - ms))


def age(t, name="x"):
    return t.show(name)["holders"][0]["age_ms"]


@on_server()
def age_is_kept(t, server):
    """An exclusive grant stores no time until its lease is extended: its age shows before and after that"""
    owner, _ = acquire(t, "x", "--ttl", "60s")
    passed(server, 20000)
    assert 20000 <= age(t) < 50000
    go_on(t, "renew", owner)
    assert 20000 <= age(t) < 50000
    held = t.hold("y", "--ttl", "20s")
    passed(server, 12000, "y")
    renewed(server, "y")
    assert 12000 <= age(t, "y") < 50000
    t.release(held)


@on_server()
def hold_counts_from_the_grant(t, server):
    """What is left of hold_at_least is counted from the grant, whether its lease was extended or not"""
    for extended in False, True:
        owner, _ = acquire(t, "x", "--ttl", "1s", "--hold-at-least", "60s")
        passed(server, 20000)
        if extended:
            go_on(t, "renew", owner)
        go_on(t, "release", owner)
        assert 5000 < pttl(server) <= 40000
        shown = t.show("x")["holders"][0]
        assert shown["ghost"] and shown["age_ms"] >= 20000 and shown["token"], shown
        server.cli("DEL", "lock:x")


@on_server()
def queue_is_kept(t, server):
    """The queue lives on while its waiters ask again, though nobody joins it"""
    held = t.hold("x", "--ttl", "60s")
    waiter = waiting(t, "x")
    queue = beside("x", "queue")
    server.cli("PEXPIRE", queue, "600000")
    server.cli("CLIENT", "KILL", "TYPE", "pubsub")
    spin(lambda: int(server.cli("PTTL", queue)) > 3000000)
    t.release(held)
    gets_in(waiter)


# ---- for how long ----

def ends(server):
    """Of each key but the counter and the records of last holders, which last for 30 days: in how many
    ms it ends."""
    keys = set(server.cli("KEYS", "*").split("\n")) - {COUNTER, ""}
    found = {key: int(server.cli("PTTL", key)) for key in keys}
    records = {key for key in keys if key.endswith("\x1flast")}
    assert all(0 < found[key] <= 30 * 86400000 for key in records), found
    return {key: found[key] for key in keys - records}


@on_server()
def nothing_outlives_its_use(t, server):
    """After many names only the counter is left; what a killed holder and killed waiters leave
    ends within the hour"""
    names = ["name-%d" % i for i in range(60)]
    for some in (names[i:i + 20] for i in range(0, len(names), 20)):
        expect(t.stile("run", *some, "--", "true").returncode, 0)
    for mode in ["--shared"], ["--slots", "2"]:
        expect(t.stile("run", *mode, "x", "--", "true").returncode, 0)
    expect(ends(server), {})
    held = t.hold("x", "--ttl", "30s")
    waiters = [waiting(t, "x") for _ in range(2)]
    pids = [*everybody(held)] + [pid for w in waiters for pid in (w.pid, w.warden())]
    signal_all(pids, signal.SIGSTOP)
    signal_all(pids, signal.SIGKILL)
    left = ends(server)
    assert len(left) >= 4, left
    assert all(0 < ms <= HOUR_MS for ms in left.values()), left


@on_server()
def keys_live_together(t, server):
    """What is beside a key lives as long as the key, also under a lease of two hours"""
    for mode in ["--shared"], ["--slots", "2"]:
        owner, _ = acquire(t, "x", "--ttl", "2h", *mode)
        for _ in range(2):
            for part in "members", "info":
                left = int(server.cli("PTTL", beside("x", part)))
                assert left >= pttl(server) - 100, part  # read later, so it can only be less
            go_on(t, "renew", owner)
        go_on(t, "release", owner)


@on_server()
def people_are_known(t, server):
    """The owner of a claim that outlives its process stays known while it is renewed; and nothing
    about a client is stored twice"""
    owner, _ = acquire(t, "x", "--ttl", "2h")
    go_on(t, "renew", owner)
    (holder,) = t.show("x")["holders"]
    assert holder["pid"] and "stile" in holder["command"], holder
    described = [key for key in ends(server) if "client:" in key]
    expect(described, ["stile:\x1fclient:" + owner[:16]])
    assert 2 * HOUR_MS < ends(server)[described[0]] <= 3 * HOUR_MS
    held = t.start("run", *("n%d" % i for i in range(20)), "--", "sh", "-c", "echo in; sleep 600")
    expect(held.line(), "in")
    expect(len([key for key in ends(server) if "client:" in key]), 2)


# ---- tokens ----

@on_server()
def tokens_never_come_back(t, server):
    """One counter for all names: after all keys of a name are gone, after FLUSHALL, and after an
    earlier version's counters, tokens are larger"""
    server.cli("SET", "{lock:x}:fence", "123456789")
    seen = 123456789
    for round_ in range(3):
        for mode in MODES.values():
            owner, token = acquire(t, "x", *mode)
            assert token > seen, (token, seen)
            expect(t.show("x")["token"], token)
            go_on(t, "release", owner)
            seen = token
        if round_ == 1:
            server.cli("FLUSHALL")
    server.cli("SET", COUNTER, "5")  # by hand, or from a backup of something else
    assert acquire(t, "x")[1] > seen


@on_server()
def one_counter_for_all_prefixes(t, server):
    """The same key by another prefix and name is the same lock, and its tokens grow"""
    seen = 0
    for prefix, name in ("lock:", "x"), ("", "lock:x"), ("lo", "ck:x"), ("lock:", "x"):
        t.env["STILE_ENGINE"] = "redis://127.0.0.1:%d?prefix=%s" % (server.port, prefix)
        owner, token = acquire(t, name)
        assert token > seen, (prefix, token, seen)
        go_on(t, "release", owner, name=name)
        seen = token


# ---- names ----

@on_server()
def names_stay_apart(t, server):
    """Without a prefix, names that look like other keys of ours are locks of their own"""
    t.env["STILE_ENGINE"] = "redis://127.0.0.1:%d?prefix=" % server.port
    names = ["x", "{x}", "{x}:by", "{x}:queue", "{x}by", "stile:token", "stile:client:x", "{x}x",
             "{{x}}x", "{}x", "x}"]
    owners = {name: acquire(t, name, "--ttl", "60s")[0] for name in names}
    waiters = [waiting(t, name) for name in ("x", "{x}:by")]
    for name in names:
        expect(t.stile("run", "--try", name, "--", "true").returncode, 75, name)
    listed = t.stile("ls").stdout
    for name in names:
        assert name in listed, (name, listed)
    for name, owner in owners.items():
        go_on(t, "release", owner, name=name)
    for waiter in waiters:
        gets_in(waiter)
    expect([key for key in ends(server) if "client:" not in key], [])


@on_server()
def prefix_without_control_characters(t, server):
    """A prefix that could be taken for another key of ours is refused"""
    for text in "%1f", "a%01", "%7F":
        t.env["STILE_ENGINE"] = "redis://127.0.0.1:%d?prefix=%s" % (server.port, text)
        done = t.stile("ls")
        expect(done.returncode, 64, done.stderr)
        assert "prefix" in done.stderr, done.stderr


@on_server()
def more_than_a_connection_holds(t, server):
    """Claimed and given back at once by one client; what cannot be asked yet waits in it"""
    done = subprocess.run([os.environ["BURST"], t.env["STILE_ENGINE"], str(CROWD), "280000"],
                          env=t.env, stdout=subprocess.PIPE, text=True, check=False)
    expect((done.returncode, done.stdout), (0, "granted %d released %d\n" % (CROWD, CROWD)))
    expect(server.cli("--scan", "--pattern", "lock:burst-*"), "")


run_tests([ttl_is_kept, hold_is_kept, mode_is_kept, delay_is_kept, handed_over_and_resumed,
           age_is_kept, hold_counts_from_the_grant, queue_is_kept,
           nothing_outlives_its_use, keys_live_together, people_are_known, tokens_never_come_back,
           one_counter_for_all_prefixes, names_stay_apart, prefix_without_control_characters,
           more_than_a_connection_holds])
