# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Three ZooKeeper servers that are killed, stopped and cut off, sessions and nodes that go behind our
back, and very many waiters."""
import contextlib
import logging

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from cluster_kit import (Cluster, connected, expect, has_ended, lost, refused, spin, token_of,
                         try_it)
from consensus import DEADLINE, run_scenarios
from wire import BOTH, Wire
from zookeeper_kit import end_session
from zookeeper_server import ZookeeperServer


class ZookeeperCluster(Cluster):
    scheme = "zk"
    other = None

    def start(self):
        return ZookeeperServer(3, "syncLimit=4", "maxSessionTimeout=60000")

    def close(self):
        self.leave()
        self.server.stop()

    def expect_no_quorum(self, t):
        refused(t, "no ZooKeeper server answers")

    def leads(self, member):
        return "Mode: leader" in member.say("srvr")

    def ask(self, do):
        """As another client, which is always connected."""
        if not self.other:
            self.other = KazooClient(self.server.hosts, timeout=30)
            self.other.start()
        return self.other.retry(do)

    def leave(self):
        if self.other:
            self.other.stop()
            self.other.close()

    def queue(self, name):
        path = "/%s/%s" % (self.place, name)
        try:
            # A leader that was stopped and does not know of the next one answers sync() by itself.
            nodes = self.ask(lambda: self.other.set("/", b"") and self.other.get_children(path))
        except NoNodeError:
            return []
        return ["%s/%s" % (path, node) for node in sorted(nodes, key=lambda node: node[-10:])]

    def remove(self, entry):
        self.ask(lambda: self.other.delete(entry))

    def end_session(self, entry):
        end_session(self.server, self.ask(lambda: self.other.exists(entry)).ephemeralOwner)

    def count(self, word, *members):
        return sum(int(row.split()[-1]) for member in members or self.members
                   for row in member.say("mntr").splitlines() if row.startswith(word + "\t"))

    def executed(self, member):
        return self.count("zk_packets_received", member)

    def requests(self):
        """With signs of life, which come with time."""
        return self.count("zk_packets_received")

    def wakes(self):
        return self.count("zk_sum_node_deleted_watch_count")


class Parted(ZookeeperCluster):
    """A follower can be cut off from its leader, which it notices only after 10 s."""

    def __init__(self, stack):
        self.stack, self.wires = stack, {}
        super().__init__()

    def start(self):
        return ZookeeperServer(3, "syncLimit=20", way=self.way)

    def way(self, one, other):
        wire = self.stack.enter_context(Wire(other.peer_port))
        self.wires[one.number, other.number] = wire
        return wire.port if one is not other else other.peer_port

    def cut_off(self, follower):
        self.wires[follower.number, self.leader().number].fail(BOTH)


def hold_through(t, cluster, member, *options):
    """A holder that speaks with this server, and may go elsewhere."""
    while True:
        held = t.hold("free", *options)
        if connected(cluster.server, held.warden()) is member:
            return held
        t.release(held)


def follower_cut_off(t, _):
    """A follower is cut off without noticing: a client goes elsewhere if it can, or loses its lock in time"""
    with contextlib.ExitStack() as stack:
        cluster = Parted(stack)
        stack.callback(cluster.close)
        follower = cluster.follower()
        others = cluster.url_of(*(m.port for m in cluster.members if m is not follower))
        cluster.use(t)
        free = hold_through(t, cluster, follower, "--ttl", "9s")
        cluster.use(t, cluster.url_of(follower.port))
        held = t.hold("x", "--ttl", "3s")
        token = token_of(t)
        cluster.cut_off(follower)
        cluster.use(t, others)
        next_one = t.hold("x", "--wait", "50s")
        assert has_ended(held.command), "two holders"
        lost(held, "x", DEADLINE)
        assert token_of(t) > token
        t.release(next_one)
        spin(lambda: connected(cluster.server, free.warden()) not in (None, follower))
        expect(try_it(t, "free"), 75)
        t.release(free)
        expect(try_it(t, "free"), 0)


logging.disable()
run_scenarios(ZookeeperCluster, follower_cut_off)
