"""Three ZooKeeper servers that are killed, stopped and cut off, sessions and nodes that go behind our
back, and very many who wait."""
import logging

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from cluster_kit import Cluster, refused
from consensus import run_scenarios
from zookeeper_kit import password_of
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
        """As somebody else, who is always there."""
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
            nodes = self.ask(lambda: self.other.sync("/") and self.other.get_children(path))
        except NoNodeError:
            return []
        return ["%s/%s" % (path, node) for node in sorted(nodes, key=lambda node: node[-10:])]

    def remove(self, entry):
        self.ask(lambda: self.other.delete(entry))

    def end_session(self, entry):
        session = self.ask(lambda: self.other.exists(entry)).ephemeralOwner
        thief = KazooClient(self.server.hosts, client_id=(session, password_of(session)))
        thief.start()
        thief.stop()
        thief.close()

    def requests(self, members):
        return sum(int(row.split()[-1]) for member in members
                   for row in member.say("mntr").splitlines()
                   if row.startswith("zk_packets_received"))


logging.disable()
run_scenarios(ZookeeperCluster)
