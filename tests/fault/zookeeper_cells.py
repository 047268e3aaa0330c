# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Cells in ZooKeeper: connections that break and sessions that end in between, servers that lag
behind, nodes that others write and delete, data that is no cell, numbers that overflow,
the leader's clock."""
import contextlib
import os
import re

from kazoo.exceptions import NoAuthError

from cells_kit import Cells
from cluster_kit import expect, spin
from cutter import Cutter
from kit import run_tests
from wire import BOTH, Wire
from zookeeper_kit import Other, connected, end_session, on_server, set_numbers
from zookeeper_server import ZookeeperServer

HEAD = b"stile-cell 1 live "


def shard_of(key):
    value = 0xcbf29ce484222325
    for byte in key.encode():
        value = (value ^ byte) * 0x100000001b3 % (1 << 64)
    return "%02x" % (value & 0xff)


def node_of(key, own="%stile"):
    return "/%s/cells/%s/%s" % (own, shard_of(key), key)


# ---- in doubt ----

def retried(cells, *words, **named):
    """The answer over a connection that works."""
    found = []
    spin(lambda: found.append(cells.tell(*words, **named)) or found[-1].status != "UNREACHABLE")
    return found[-1]


@on_server()
def cut_before_the_answer(t, server):
    """A write whose answer is lost is UNCERTAIN; it happened, and is not repeated by its version"""
    beside = next(key for key in map(str, range(9999)) if shard_of(key) == shard_of("x"))
    with Cells(t) as cells:
        first = cells.put("x", "first")
    for words, request, version in ((HEAD, ("put", "x", "second"), first),
                                    (b"stile-cell 1 gone ", ("remove", "x"), first + 1),
                                    (HEAD, ("put", beside, "third"), 0)):
        with Cutter(server.members[0].port, words) as way, \
                Cells(t, "zk://127.0.0.1:%d" % way.port) as cells:
            cells.refuse("UNCERTAIN", *request, version=version)
            expect(way.cut, 1)
            expect(retried(cells, *request, version=version).status, "CONFLICT")
    with Cells(t) as cells:
        expect(cells.get("x").version, 0)
        expect(cells.get(beside).rest, "third")
        assert cells.put("x", "again") > first + 1


@on_server()
def server_away(t, server):
    """What could not be sent is UNREACHABLE and did not happen; the next one finds the server again"""
    with Cells(t) as cells:
        first = cells.put("x", "first")
        server.kill()
        spin(lambda: cells.tell("put", "x", "lost").status == "UNREACHABLE")
        cells.refuse("UNREACHABLE", "get", "x")
        cells.refuse("UNREACHABLE", "list", "")
        server.restart()
        expect(retried(cells, "get", "x"), ("OK", first, 0, "", "first"))
        expect(cells.put("x", "second", version=first), first + 1)


@on_server()
def session_ended(t, server):
    """A session ends under writes and a watch: each write says what became of it, the watch goes on"""
    with Cells(t) as cells, Cells(t) as watching:
        version = cells.put("x", "0")
        watching.ask("watch", "x")
        expect(watching.answer().version, version)
        for i in range(3):
            for session in connected(server):
                end_session(server, session)
            answer = cells.tell("put", "x", str(i), version=version)
            now = retried(cells, "get", "x")
            if answer.status == "OK":
                expect((now.version, now.rest), (answer.version, str(i)))
            elif answer.status == "UNREACHABLE":
                expect(now.version, version)
            else:
                expect(answer.status, "UNCERTAIN")
            version = now.version
        expect(retried(cells, "put", "x", "end", version=version).version, version + 1)
        while (seen := watching.answer()).rest != "end":
            assert seen.version <= version, seen
        expect(watching.answer().status, "OK")


# ---- a server that lags behind ----

@contextlib.contextmanager
def parted():
    """Of three servers the leader and a follower, and the wire between them."""
    with contextlib.ExitStack() as stack:
        wires = {}

        def way(one, other):
            wire = wires[one.number, other.number] = stack.enter_context(Wire(other.peer_port))
            return wire.port if one is not other else other.peer_port
        server = stack.enter_context(ZookeeperServer(3, "syncLimit=40", way=way))
        leader = next(m for m in server.members if "Mode: leader" in m.say("srvr"))
        follower = next(m for m in server.members if m is not leader)
        yield leader, follower, wires[follower.number, leader.number]


def received(member):
    return int(re.search(r"zk_packets_received\s+(\d+)", member.say("mntr")).group(1))


def lagging_server(t):
    """A get through a server that is behind waits until it has seen what was acknowledged before"""
    t.env["STILE_MODULES"] = os.environ["STILE_MODULES"]
    with parted() as (leader, follower, wire), \
            Cells(t, "zk://127.0.0.1:%d" % leader.port) as ahead, \
            Cells(t, "zk://127.0.0.1:%d" % follower.port) as behind:
        first = ahead.put("x", "old")
        expect(behind.get("x").version, first)
        wire.fail(BOTH)
        second = ahead.put("x", "new", version=first, token=7)
        before = received(follower)
        behind.ask("get", "x")
        spin(lambda: received(follower) > before)
        wire.heal()
        expect(behind.answer(), ("OK", second, 7, "", "new"))
        behind.refuse("STALE", "put", "x", "late", version=second)


# ---- nodes that others write ----

@on_server()
def written_by_hand(t, server):
    """What another client reads and writes is the cell; what was remembered of it no longer counts"""
    key = "a b/%"
    path = "/%%stile/cells/%s/a b%%2F%%25" % shard_of(key)
    with Cells(t) as cells, Other(server) as other:
        first = cells.put(key, "value", version=0, token=5, issuer="zk:orders of today")
        data, stat = other.get(path)
        expect(data, b"stile-cell 1 live %d 5 zk:orders of today\nvalue" % first)
        expect(stat.ephemeralOwner, 0)
        other.set(path, b"stile-cell 1 live %d 9 \nby hand" % (first + 1))
        expect(cells.refuse("STALE", "put", key, "x", token=8).token, 9)
        expect(cells.get(key), ("OK", first + 1, 9, "", "by hand"))
        expect(cells.put(key, "ours", version=first + 1, token=9, issuer="redis:x"), first + 2)
        expect(other.get(path)[0], b"stile-cell 1 live %d 9 redis:x\nours" % (first + 2))
        expect(cells.tell("remove", key, token=9).status, "OK")
        expect(other.get(path)[0], b"stile-cell 1 gone %d 9 redis:x\n" % (first + 2))
        other.set(path, b"stile-cell 1 gone %d 0 \n" % (first + 2))
        expect(cells.put(key, "without a token"), first + 3)


@on_server()
def deleted_by_hand(t, server):
    """Even if somebody deletes the nodes, no version comes back"""
    with Cells(t) as cells, Other(server) as other:
        last = 0
        for _ in range(3):
            for i in range(3):
                version = cells.put("x", str(i))
                assert version > last, (version, last)
                last = version
            other.delete("/%stile/cells", recursive=True)
            expect(cells.get("x").version, 0)


DAMAGE = (b"stile-cell 2 live 1 0 \n", b"stile-cell 1 dead 1 0 \n", b"stile-cell 1 live 0 0 \n",
          b"stile-cell 1 live -1 0 \n", b"stile-cell 1 live 99999999999999999999 0 \nx",
          b"stile-cell 1 live 1 9223372036854775808 \nx", b"stile-cell 1 live 01 0 \nx",
          b"stile-cell 1 live 1 0 no end", b"stile-cell 1 live 1 0 a\tb\nx",
          b"stile-cell 1 live 1 0 " + b"i" * 601 + b"\nx", b"stile-cell 1 gone 1 0 \nvalue",
          b"stile-cell 1 live 1 0 \n" + b"v" * 65537, b"stile-cell ")
FOREIGN = (b"", b"\0\xff" * 9, b"stile-cel", b"{\"json\": 1}", b"stile-cell\n")


@on_server()
def no_cells(t, server):
    """Data that is no cell is CORRUPT and stays as it is; a listing skips what is not stile's"""
    with Cells(t) as cells, Other(server) as other:
        cells.put("ok", "value")
        other.create(node_of("bad"), b"", makepath=True)
        for data in DAMAGE + FOREIGN:
            other.set(node_of("bad"), data)
            for request in (("get", "bad"), ("put", "bad", "v"), ("remove", "bad"),
                            ("raise", "bad", "token=5"), ("reset", "bad")):
                assert node_of("bad") in cells.refuse("CORRUPT", *request).rest
            if data in DAMAGE:
                assert node_of("bad") in cells.refuse("CORRUPT", "list", "").rest
            else:
                expect(cells.list(), [("ok", 5)])
            expect(cells.list("o"), [("ok", 5)])
            expect(other.get(node_of("bad"))[0], data)
        other.delete(node_of("bad"))
        for path in ("zz/x", "00/%", "00/%zz", "long", "ff/ok", shard_of("ok") + "/ok/below"):
            other.create("/%stile/cells/" + path, HEAD + b"1 0 \nx", makepath=True)
        expect(cells.list(), [("ok", 5)])


@on_server()
def users_apart(t, server):
    """Each user's cells are the user's own"""
    urls = [server.url.replace("//", "//%s@" % user) for user in ("ann:secret", "bob:secret")]
    with Cells(t, urls[0]) as ann, Cells(t, urls[1]) as bob, Cells(t) as anyone, \
            Other(server) as other:
        version = ann.put("x", "ann's")
        bob.put("x", "bob's")
        anyone.put("x", "anyone's")
        expect(ann.get("x"), ("OK", version, 0, "", "ann's"))
        expect(anyone.get("x").rest, "anyone's")
        owns = [name for name in other.get_children("/") if name.startswith("%stile-")]
        expect(len(owns), 2)
        for own in owns:
            with contextlib.suppress(NoAuthError):
                other.get(node_of("x", own))
                raise AssertionError(own)


# ---- numbers ----

@on_server(1, java=["-Dzookeeper.digest.enabled=false", "-Dznode.container.checkIntervalMs=600000"])
def node_version_overflows(t, server):
    """A node's version passes the one that stands for any: every write is compared all the same"""
    with Cells(t) as cells:
        version = cells.put("x", "value")
    set_numbers(server, node_of("x"), "-", -3)
    with Cells(t) as ours, Cells(t) as others, Other(server) as other:
        expect(ours.get("x").version, version)
        for i in range(4):
            expect(others.get("x").version, version)  # remembers its node's version
            expect(ours.put("x", str(i), version=version), version + 1)
            assert other.get(node_of("x"))[1].version != -1
            others.refuse("CONFLICT", "put", "x", "late", version=version)
            version += 1
        expect(ours.get("x").rest, "3")
    set_numbers(server, node_of("x"), "-", -1)
    with Cells(t) as cells, Other(server) as other:
        cells.refuse("CORRUPT", "put", "x", "unsafe", version=version)
        other.set(node_of("x"), other.get(node_of("x"))[0])
        expect(cells.put("x", "safe", version=version), version + 1)


# ---- the leader's clock ----

@on_server()
def clock_of_the_leader(t, server):
    """A start is dated by the write that read the clock, rounded up; a clock that was removed is made anew"""
    with Other(server) as other:
        for name in "x", "y":
            expect(t.stile("pace", name, "--rate", "1/1h", "--try").returncode, 0)
            expect(t.stile("pace", name, "--rate", "1/1h", "--try").returncode, 75)
            other.delete("/%stile/clock")
        expect(t.stile("pace", "z", "--rate", "1/1h", "--try").returncode, 0)
        seen_us = int(other.get(node_of("pace:z"))[0].split()[-3])
        expect(seen_us, (other.exists("/%stile/clock").mtime + 1) * 1000)
        # Its node is no cell, and no name.
        expect(t.stile("ls").stdout.count("clock"), 0)
        expect(t.stile("cell", "ls").stdout.count("clock"), 0)


run_tests([
    cut_before_the_answer, server_away, session_ended, lagging_server, written_by_hand,
    deleted_by_hand, no_cells, users_apart, node_version_overflows,
    clock_of_the_leader,
])
