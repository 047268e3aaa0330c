# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A primary that Sentinels watch is killed, stopped or demoted; and Sentinels that know little."""
import os
import pathlib
import re
import signal
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(TESTS / "cli"), str(TESTS / "servers")]
from kit import expect, run_tests  # noqa: E402
from redis_groups import (NAME, SOON, Sentinel, Spokesman, Watched, as_arguments,  # noqa: E402
                          certificates, has_replicas, replicate, until)
from redis_server import RedisServer, free_port  # noqa: E402


def use(t, url):
    t.env["STILE_ENGINE"] = url
    t.env["STILE_MODULES"] = os.environ["STILE_MODULES"]


def told_by(*spokesmen):
    return "redis+sentinel://%s/%s" % (
        ",".join("127.0.0.1:%d" % one.port for one in spokesmen), NAME)


def watched(case):
    """The test gets a primary, a replica and three Sentinels."""
    def with_group(t):
        with Watched() as group:
            use(t, group.url)
            case(t, group)
    with_group.__name__, with_group.__doc__ = case.__name__, case.__doc__
    return with_group


def hold_and_wait(t, name="x", ttl="20s"):
    """A holder and a waiter."""
    held = t.hold(name, "--ttl", ttl)
    waiting = t.start("run", name, "--", "echo", "in")
    t.until(t.watch(name), lambda change: len(change["waiters"]) == 1)
    return held, waiting


def token_of(t, name):
    done = t.stile("acquire", "--try", name)
    expect(done.returncode, 0, done.stderr)
    return int(re.search(r"STILE_TOKEN=(\d+)", done.stdout).group(1))


def goes_in(waiting):
    expect(waiting.line(), "in")
    expect(waiting.wait(), 0)


def refused(t, *words):
    done = t.stile("run", "--try", "x", "--", "true")
    expect(done.returncode, 69, done.stderr)
    for word in words:
        assert word in done.stderr, "no %r in %r" % (word, done.stderr)
    assert done.stderr.count("\n") <= 2, done.stderr


# ---- failover ----

@watched
def primary_is_killed(t, group):
    """kill -9 of the primary: the holder keeps the lock, a waiter gets in, the token grows"""
    held, waiting = hold_and_wait(t)
    token = t.show("x")["token"]
    group.replicated()
    group.primary().kill()
    expect(t.stile("run", "--wait", "60s", "y", "--", "true").returncode, 0)
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
    t.release(held)
    goes_in(waiting)
    assert token_of(t, "x") > token


@watched
def primary_is_stopped(t, group):
    """SIGSTOP of the primary: it does not answer, but a Sentinel names the next one"""
    held, waiting = hold_and_wait(t)
    group.replicated()
    primary = group.primary()
    primary.process.send_signal(signal.SIGSTOP)
    try:
        until(lambda: group.primary() is not primary, "failover")
        t.release(held)
        goes_in(waiting)
    finally:
        primary.process.send_signal(signal.SIGCONT)


@watched
def lock_is_forgotten(t, group):
    """A lock that did not reach the replica in time is lost, and its holder hears of it"""
    held = t.hold("x", "--ttl", "9s")
    group.replicated()
    primary, replica = group.servers
    replica.cli("CONFIG", "SET", "replica-read-only", "no")
    replica.cli("DEL", "lock:x")
    primary.kill()
    code, said = held.wait(), held.err.end()
    expect(code, 76, said)
    expect(t.stile("run", "--wait", "60s", "x", "--", "true").returncode, 0)


# ---- demotion ----

def primary_is_demoted(t):
    """READONLY from a primary that became a replica: the holder keeps the lock"""
    with RedisServer(*SOON) as old, RedisServer(*SOON, "--replicaof", "127.0.0.1",
                                                str(old.port)) as new:
        with Spokesman(old) as spokesman:
            until(lambda: has_replicas(old, 1), "replication")
            use(t, told_by(spokesman))
            held, waiting = hold_and_wait(t)
            replicate(old, 1)
            new.cli("REPLICAOF", "NO", "ONE")
            old.cli("REPLICAOF", "127.0.0.1", str(new.port))
            spokesman.answer = new
            t.release(held)
            goes_in(waiting)
            expect(new.cli("EXISTS", "lock:x"), "0")


def sentinel_is_late(t):
    """A replica is not taken for the primary, whichever Sentinel names it: the next one is asked"""
    with RedisServer(*SOON) as primary, RedisServer(*SOON, "--replicaof", "127.0.0.1",
                                                    str(primary.port)) as replica:
        with Spokesman(replica) as late, Spokesman(primary) as knows:
            use(t, told_by(late, knows))
            expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)
            use(t, told_by(late))
            refused(t, "127.0.0.1:%d" % replica.port, NAME, "not a primary")


# ---- Sentinels that are of no use ----

def nobody_names_it(t):
    """Not there, silent, or without knowledge: each is named, and the next one is asked"""
    with RedisServer() as primary, Spokesman(primary) as knows:
        with Spokesman(None) as ignorant, Spokesman("") as silent:
            gone = Spokesman(None)
            gone.stop()
            use(t, told_by(gone, ignorant, silent, knows))
            expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)
            use(t, told_by(gone, ignorant, silent))
            refused(t, NAME, "127.0.0.1:%d: connecting" % gone.port,
                    "127.0.0.1:%d does not know" % ignorant.port,
                    "127.0.0.1:%d: no answer" % silent.port)


def sentinel_wants_a_password(t):
    """Sentinels have a password of their own"""
    with RedisServer() as primary, Spokesman(primary, "watchword") as spokesman:
        use(t, told_by(spokesman))
        refused(t, "password")
        with open(t.path("word"), "w", encoding="utf-8") as file:
            file.write("watchword\n")
        use(t, told_by(spokesman) + "?sentinel_password_file=" + t.path("word"))
        expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)


def primary_wants_a_password(t):
    """User and password of the URL are for the primary; a wrong one is refused at once"""
    with RedisServer("--requirepass", "open-up") as primary, Spokesman(primary) as spokesman:
        for user in "", ":wrong-word@":
            use(t, told_by(spokesman).replace("//", "//" + user))
            refused(t, "127.0.0.1:%d" % primary.port, "password")
        use(t, told_by(spokesman).replace("//", "//:open-up@"))
        expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)


def over_tls(t):
    """rediss+sentinel://: Sentinel and primary speak TLS"""
    os.mkdir(t.path("keys"))
    options, port = certificates(t.path("keys")), free_port()

    def lines(sentinel):
        return ["port 0", "tls-port %d" % sentinel.port, "tls-replication yes",
                *("%s %s" % option for option in options.items()),
                "sentinel monitor %s 127.0.0.1 %d 1" % (NAME, port)]

    with RedisServer("--tls-port", str(port), *as_arguments(options)), Sentinel(lines) as sentinel:
        use(t, "rediss+sentinel://127.0.0.1:%d/%s?ca=%s/ca.pem"
            % (sentinel.port, NAME, t.path("keys")))
        done = t.stile("run", "--try", "x", "--", "true")
        expect(done.returncode, 0, done.stderr)


def url_is_incomplete(t):
    """A URL without the primary's name, or with parameters of another kind, is refused"""
    for url in "redis+sentinel://127.0.0.1", "redis+sentinel:///tests", \
            "redis://127.0.0.1?sentinel_user=x":
        use(t, url)
        expect(t.stile("run", "--try", "x", "--", "true").returncode, 64, url)


run_tests([primary_is_killed, primary_is_stopped, lock_is_forgotten, primary_is_demoted,
           sentinel_is_late, nobody_names_it, sentinel_wants_a_password, primary_wants_a_password,
           over_tls, url_is_incomplete])
