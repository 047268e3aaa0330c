# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Cells on redis-servers: what redis-cli sees and does, the guard that scripts of users share with them,
what others may have put there, writes whose answer is lost, failovers, moving slots and rights."""
import os
import re
import sys

from redis_guard_kit import FORMS, TESTS, load_all, stale

sys.path += [str(TESTS / "fault")]  # behind the client of Redis, which a file there is called like
from redis_kit import expect, on_server, run_tests, spin, use, with_proxy  # noqa: E402
from cells_kit import Cells  # noqa: E402
from proxy import LOSE_REPLY, LOSE_REQUEST  # noqa: E402
from redis_groups import Cluster, Watched, replicate, until  # noqa: E402
from redis_server import RedisServer  # noqa: E402

DOCS = TESTS.parent / "docs" / "guarantees.md"
CELL, GUARD = "stile:cell:{x}", "stile:guard:{x}"


def use_url(t, url):
    t.env["STILE_ENGINE"] = url
    t.env["STILE_MODULES"] = os.environ["STILE_MODULES"]


# ---- by hand ----

@on_server()
def by_hand(t, server):
    """redis-cli reads a value and its guard; a value set by hand is a cell"""
    with Cells(t) as cells:
        version = cells.put("x", "plain text", token=5, issuer="redis:x")
        expect(server.cli("GET", CELL), "plain text")
        expect(server.cli("HGETALL", GUARD), "version\n%d\ntoken\n5\nissuer\nredis:x" % version)
        server.cli("SET", CELL, "by hand")
        expect(cells.get("x")[1:], (version, 5, "redis:x", "by hand"))
        server.cli("SET", "stile:cell:{new}", "by hand")
        found = cells.get("new").version
        assert found > 0, found
        cells.refuse("CONFLICT", "put", "new", "again", version=0)
        assert cells.put("new", "again", version=found) > found
        server.cli("SET", "stile:cell:{more}", "by hand")
        found = cells.get("more").version
        cells.expect_ok(cells.tell("remove", "more"))
        assert cells.put("more", "after its removal") > found
        server.cli("DEL", CELL)
        expect(cells.get("x").version, 0)
        cells.refuse("CONFLICT", "put", "x", "gone", version=version, token=5)
        assert cells.put("x", "back", version=0, token=5) > version


@on_server()
def one_guard(t, server):
    """The guard of a cell is that of a resource with its name: functions and scripts share it"""
    client = load_all(server)
    with Cells(t) as cells:
        for form in FORMS:
            name = form.__name__ + "{a}}"  # its own tag
            for name in (name, name.lower()[:3], "a}" + name, "{}" + name):
                guard = form(client)
                key = guard.call("key", [name]).decode()
                cells.expect_ok(cells.tell("raise", name, token=8, issuer="redis:x"))
                expect(guard.call("show", [key]), [b"8", b"redis:x"])
                expect(guard.call("raise", [key], 7, ""), stale(7, name, 8))
                expect(guard.call("raise", [key], 9, ""), b"9")
                expect(cells.refuse("STALE", "put", name, "late", token=8).token, 9)
                version = cells.put(name, "in time", token=9)
                expect(guard.call("reset", [key], 0, ""), b"OK")
                expect(cells.get(name)[1:4], (version, 0, ""))


@on_server()
def strange(t, server):
    """What others have put there is refused or passed over, and does no harm"""
    with Cells(t) as cells:
        cells.put("y", "abc")
        for key in ("stile:cell:x", "stile:cell:{}", "stile:cell:{x", "stile:cell:{z}x", "stile:cell:{x}{x",
                    "stile:cell:{%s}" % ("n" * 513), "stile:cell:{a\nb}", "stile:cell:", "stile:cell:{y}y"):
            server.cli("SET", key, "nobody's")
        server.cli("RPUSH", "stile:cell:{list}", "x")
        expect(cells.list(), [("y", 3)])
        assert "another program" in cells.refuse("REFUSED", "get", "list").rest
        server.cli("SET", "stile:guard:{text}", "x")
        for words in ("get", "text"), ("put", "text", "v"), ("raise", "text", "token=3"):
            assert "another program" in cells.refuse("REFUSED", *words).rest
        for token in ("abc", "-1", "007", "1e3", "1" * 20, "9999999999999999999"):
            cells.expect_ok(cells.tell("reset", "x"))
            cells.put("x", "here", token=3)
            server.cli("HSET", GUARD, "token", token)
            for words in ("put", "x", "late", "token=4"), ("remove", "x", "token=4"), ("raise", "x", "token=4"):
                if token != "9999999999999999999":  # too large, but a number
                    cells.refuse("CORRUPT", *words)
            expect(server.cli("GET", CELL), "here")
        cells.expect_ok(cells.tell("reset", "x"))
        server.cli("HSET", GUARD, "version", "abc")
        assert cells.tell("put", "x", "late").status != "OK"
        expect(server.cli("GET", CELL), "here")


@on_server()
def damaged(t, server):
    """Cells with damaged guards are reported by name; the list has all others"""
    with Cells(t) as cells:
        for name in "abcde":
            cells.put(name, "v", token=3)
    server.cli("HSET", "stile:guard:{b}", "token", "abc")
    for last in ("b",), ("b", "d"):
        if "d" in last:
            server.cli("SET", "stile:guard:{d}", "x")
        for options in (), ("--json",):
            done = t.stile("cell", "ls", *options)
            expect(done.returncode, 69, done.stderr)
            found = [name for name in "abcde" if re.search(r'(^|": ?")%s[" ]' % name, done.stdout, re.M)]
            expect(found, [name for name in "abcde" if name not in last], done.stdout)
            assert "'%s'" % last[-1] in done.stderr, done.stderr


@on_server()
def many(t, server):
    """A long list has each cell once, in order; a prefix may contain what SCAN takes for a pattern"""
    with Cells(t) as cells:
        names = sorted("n%03d%s" % (i, ("", "{t}", "}", "*[a]?\\")[i % 4]) for i in range(200))
        for name in names:
            cells.put(name, "abc", token=1)
        for i in range(30):
            cells.put("n-gone%d" % i, "x")
            cells.expect_ok(cells.tell("remove", "n-gone%d" % i))
        expect(cells.list(), [(name, 3) for name in names])
        for prefix in "n1", "n003*[", "n003*[a]?\\", "n001{t}", "n002}", "none", "*":
            expect(cells.list(prefix), [(name, 3) for name in names if name.startswith(prefix)], prefix)


@on_server("--maxmemory", "3mb", "--maxmemory-policy", "noeviction")
def full(t, server):
    """A server without memory refuses a put, and still raises, removes and resets"""
    with Cells(t) as cells:
        version = cells.put("x", "here", token=5)
        server.cli("CONFIG", "SET", "maxmemory", "100kb")
        assert "OOM" in cells.refuse("REFUSED", "put", "x", "more", token=5).rest
        expect(cells.get("x")[1:3], (version, 5))
        cells.expect_ok(cells.tell("raise", "x", token=6))
        cells.refuse("STALE", "remove", "x", token=5)
        cells.expect_ok(cells.tell("remove", "x", token=7))
        expect(cells.get("x")[1:3], (0, 7))
        cells.expect_ok(cells.tell("reset", "x", token=1))


# ---- lost answers ----

@on_server()
def cut_off_while_updating(t, server):
    """The connection of `cell update` is made anew while its command runs"""
    # The second client is the redis-cli itself.
    command = ("cli='redis-cli -p %d'; $cli CLIENT KILL TYPE normal >&2; "
               'while list=$($cli CLIENT LIST) && [ "$(echo "$list" | wc -l)" != 2 ]; do :; done; '
               "echo v" % server.port)
    done = t.stile("cell", "update", "x", "--", "sh", "-c", command)
    expect(done.returncode, 0, done.stderr)
    expect(server.cli("GET", CELL), "v")


@with_proxy()
def answer_lost(t, server, proxy):
    """A write whose answer is lost is UNCERTAIN: with a version, its repetition is a CONFLICT"""
    with Cells(t, "redis://127.0.0.1:%d" % proxy.port) as cells:
        version = cells.put("x", "before")
        rule = proxy.once("cell_put", LOSE_REPLY)
        cells.refuse("UNCERTAIN", "put", "x", "after", version=version)
        rule.hit()
        expect(server.cli("GET", CELL), "after")
        spin(lambda: cells.tell("get", "x").status == "OK")
        cells.refuse("CONFLICT", "put", "x", "again", version=version)
        rule = proxy.once("cell_guard", LOSE_REPLY)
        cells.refuse("UNCERTAIN", "remove", "x", token=7)
        rule.hit()
        spin(lambda: cells.tell("get", "x").status == "OK")
        expect(cells.get("x")[1:3], (0, 7))


@with_proxy()
def request_lost(t, server, proxy):
    """A write that was lost on its way is UNCERTAIN, too; a read changes nothing, and is UNREACHABLE"""
    with Cells(t, "redis://127.0.0.1:%d" % proxy.port) as cells:
        version = cells.put("x", "before")
        cells.get("x")  # and its script is known
        rule = proxy.once("cell_put", LOSE_REQUEST)
        cells.refuse("UNCERTAIN", "put", "x", "lost")
        rule.hit()
        spin(lambda: cells.tell("get", "x").status == "OK")
        expect(cells.get("x").version, version)
        rule = proxy.once("cell_get", LOSE_REPLY)
        cells.refuse("UNREACHABLE", "get", "x")
        rule.hit()
        spin(lambda: cells.tell("get", "x").status == "OK")
        rule = proxy.once("cell_list", LOSE_REPLY)
        cells.refuse("UNREACHABLE", "list", "")
        rule.hit()
        spin(lambda: cells.tell("get", "x").status == "OK")
        server.kill()
        spin(lambda: cells.tell("put", "x", "nobody is there").status == "UNREACHABLE")
        cells.refuse("UNREACHABLE", "list", "")


# ---- several servers ----

def replaced(t):
    """A demoted primary refuses a write, which goes to the next one; nothing is lost"""
    with Watched() as group:
        use_url(t, group.url)
        with Cells(t) as cells:
            version = cells.put("x", "before", token=5, issuer="redis:x")
            group.replicated()
            old = group.primary()
            group.sentinels[0].cli("SENTINEL", "FAILOVER", "tests")
            until(lambda: group.primary() is not old, "failover")
            # Till then it takes writes, and forgets them. The Sentinels would do it in ten seconds.
            old.cli("REPLICAOF", "127.0.0.1", str(group.primary().port))
            spin(lambda: cells.tell("raise", "x", token=6).status == "OK")
            cells.refuse("STALE", "put", "x", "late", token=5)
            assert cells.put("x", "after", version=version, token=6) > version
            expect(group.primary().cli("GET", CELL), "after")
            expect(cells.list(), [("x", 5)])


def slot_moves(t):
    """Cells of a Cluster follow their slot, and a list has those of all nodes"""
    with Cluster(3) as cluster:
        use_url(t, cluster.url)
        with Cells(t) as cells:
            names = ["n%d" % i for i in range(30)]
            for name in names:
                cells.put(name, "abc", token=5)
            old = cluster.owner("n0")
            new = next(node for node in cluster.nodes if node is not old)
            cluster.move(cluster.slot("n0"), old, new)
            cells.refuse("STALE", "put", "n0", "late", token=4)
            cells.put("n0", "abc", token=6)
            expect(new.cli("GET", "stile:cell:{n0}"), "abc")
            expect(cells.list(), [(name, 3) for name in sorted(names)])


def replicas_counted(t):
    """With wait_replicas a write is OK once the replicas have it, and else UNCERTAIN"""
    with RedisServer("--repl-diskless-sync-delay", "0") as server:
        with RedisServer("--replicaof", "127.0.0.1", str(server.port)) as replica:
            until(lambda: "online" in server.cli("INFO", "replication"), "replication")
            use(t, server, "redis://127.0.0.1:%d?wait_replicas=1&wait_timeout=2500")
            with Cells(t) as cells:
                for i in range(20):
                    cells.put("x", "v%d" % i, token=i + 1)
                    expect(replica.cli("GET", CELL), "v%d" % i)
                cells.expect_ok(cells.tell("raise", "x", token=30))
                expect(replica.cli("HGET", GUARD, "token"), "30")
                cells.refuse("STALE", "put", "x", "late", token=29)
                cells.expect_ok(cells.tell("remove", "x", token=30))
                expect(replica.cli("EXISTS", CELL), "0")
            use(t, server, "redis://127.0.0.1:%d?wait_replicas=1&wait_timeout=100")
            replica.pause()
            with Cells(t) as cells:
                assert "only 0 of 1" in cells.refuse("UNCERTAIN", "put", "x", "alone", token=30).rest
                replica.go_on()
                replicate(server, 1)
                cells.put("x", "together", token=30)
                expect(replica.cli("GET", CELL), "together")


# ---- rights ----

@on_server()
def rights(t, server):
    """The documented ACL suffices for cells, and without it a cell is refused, with the reason"""
    rows = dict(re.findall(r"^\| `([^`]*)` \| (.*) \|$", DOCS.read_text(encoding="utf-8"), re.M))
    locks, more = (re.findall(r"`([~&+][^`]*)`", rows["ACL " + mode]) for mode in ("redis", "cells"))
    use(t, server, "redis://low:low@127.0.0.1:%d")
    expect(server.cli("ACL", "SETUSER", "low", "on", ">low", *locks), "OK")
    with Cells(t) as cells:
        assert "ACL" in cells.refuse("REFUSED", "put", "x", "v").rest
        server.cli("ACL", "SETUSER", "low", *more)
        cells.put("x", "v", token=5, issuer="redis:x")
        expect(cells.list(), [("x", 1)])
        cells.expect_ok(cells.tell("raise", "x", token=6))
        cells.expect_ok(cells.tell("remove", "x", token=6))
        cells.expect_ok(cells.tell("reset", "x"))


if __name__ == "__main__":
    run_tests([by_hand, one_guard, strange, damaged, many, full, cut_off_while_updating, answer_lost, request_lost,
               replaced, slot_moves, replicas_counted, rights])
