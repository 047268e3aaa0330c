# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""kazoo's Election and Curator's LeaderLatch on the same paths as stile elect: one leader at a time, which
both sides see with its value."""
import json
import os
import pathlib
import subprocess
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE.parent / "cli"), str(HERE.parent / "servers")]
from kazoo.client import KazooClient  # noqa: E402
from kit import Lines, PATIENCE, expect, run_tests, spin  # noqa: E402
from zookeeper_server import JARS, ZookeeperServer, die_with_parent  # noqa: E402

CLASSES = ":".join(JARS + jar for jar in ("curator-recipes.jar", "slf4j-simple.jar"))


def use(t, path, dialect):
    t.env["STILE_ENGINE"] = "%s/%s?dialect=%s" % (zookeeper.url, path, dialect)
    t.env["STILE_MODULES"] = os.environ["STILE_MODULES"]


def elect(t, value):
    """A candidate of ours; close its stdin to end its leadership."""
    return t.start("elect", "--once", "--proclaim", value, "x", "--", "sh", "-c",
                   "echo $STILE_TOKEN; cat", stdin=subprocess.PIPE)


def resign(ours):
    ours.process.stdin.close()
    expect(ours.wait(), 0)


def in_line(t, n):
    t.until(t.watch("x"), lambda change: len(change["waiters"]) == n)


def leader_of(t):
    return json.loads(t.stile("leader", "--json", "x").stdout)


class KazooLeader(threading.Thread):
    """Leads an Election of kazoo's until it is let go."""

    def __init__(self, election):
        super().__init__(daemon=True)
        self.election, self.leads, self.over = election, threading.Event(), threading.Event()
        self.start()

    def run(self):
        self.election.run(self.lead)

    def lead(self):
        self.leads.set()
        assert self.over.wait(PATIENCE)

    def end(self):
        self.over.set()
        self.join(PATIENCE)
        assert not self.is_alive()


def kazoo_and_ours(t):
    """an Election of kazoo's and ours lead in turn, and each sees the other by its identifier"""
    use(t, "kazoo", "kazoo")
    client = KazooClient(zookeeper.hosts)
    client.start()
    try:
        watched = t.start("leader", "--watch", "--json", "x")
        expect(json.loads(watched.line())["leads"], False)
        election = client.Election("/kazoo/x", "theirs")
        theirs = KazooLeader(election)
        assert theirs.leads.wait(PATIENCE)
        change = json.loads(watched.line())
        expect((change["leads"], change["value"]), (True, "theirs"))
        expect(t.stile("elect", "--try", "x", "--", "true").returncode, 75)
        ours = elect(t, "ours")
        in_line(t, 1)
        expect(election.contenders(), ["theirs", "ours"])
        theirs.end()
        token = int(ours.line())
        spin(lambda: leader_of(t)["pid"] == ours.pid)  # its data has no room for that: recorded
        leader = leader_of(t)
        expect((leader["token"], leader["value"]), (token, "ours"))
        again = KazooLeader(client.Election("/kazoo/x", "theirs again"))
        in_line(t, 1)
        expect(client.Election("/kazoo/x").contenders(), ["ours", "theirs again"])
        assert not again.leads.is_set()
        resign(ours)
        assert again.leads.wait(PATIENCE)
        expect(leader_of(t)["value"], "theirs again")
        again.end()
        expect(leader_of(t)["leads"], False)
    finally:
        client.stop()
        client.close()


class Latches:
    """The driver of curator/Latches.java."""

    def __init__(self):
        self.process = subprocess.Popen(
            ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", CLASSES,
             "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", str(HERE / "curator" / "Latches.java"),
             zookeeper.hosts], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            preexec_fn=die_with_parent)
        self.out = Lines(self.process.stdout.fileno())
        expect(self.out.next(), "ready")

    def say(self, *words):
        self.process.stdin.write(" ".join(words).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, *words):
        self.say(*words)
        return self.out.next()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def latch_and_ours(t):
    """a LeaderLatch of Curator's and ours lead in turn, and each sees the other by its id"""
    use(t, "latch", "curator-latch")
    with Latches() as latches:
        expect(latches.ask("start", "theirs", "/latch/x"), "theirs leads")
        leader = leader_of(t)
        expect((leader["leads"], leader["value"]), (True, "theirs"))
        expect(t.stile("elect", "--try", "x", "--", "true").returncode, 75)
        ours = elect(t, "ours")
        in_line(t, 1)
        latches.say("start", "third", "/latch/x")
        in_line(t, 2)
        expect(latches.ask("leader", "third"), "third sees theirs")
        expect(latches.ask("close", "theirs"), "theirs closed")
        assert int(ours.line()) > leader["token"]
        expect(leader_of(t)["value"], "ours")
        expect(latches.ask("leader", "third"), "third sees ours")
        resign(ours)
        expect(latches.out.next(), "third leads")
        expect(leader_of(t)["value"], "third")
        expect(latches.ask("close", "third"), "third closed")
        expect(leader_of(t)["leads"], False)


with ZookeeperServer() as zookeeper:
    run_tests([kazoo_and_ours, latch_and_ours])
