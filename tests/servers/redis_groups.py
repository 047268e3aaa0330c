# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Several redis-servers that belong together: a primary with replicas and Sentinels, a Cluster.

    with Watched() as group:     # a primary, a replica, three Sentinels
        group.url, group.primary, group.replicas
    with Cluster(3, replicas=1) as cluster:
        cluster.url, cluster.nodes, cluster.owner("lock:x")
"""
import contextlib
import os
import pathlib
import socket
import subprocess
import threading
import time

from redis_server import RedisServer, free_port

PATIENCE = 60.0
NAME = "tests"
SOON = ("--repl-diskless-sync-delay", "0")
# After so many ms without an answer a node of a Cluster is taken for dead. On a machine under load
# that happens to nodes which are only slow, and the others would replace them in any test.
IMPATIENT, PATIENT = "1500", "15000"
FAILOVER_ENDS = 6.0  # a manual one that has no votes by then, after 5 s, was given up


def until(condition, what):
    """For changes that no event reports."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, what + " did not happen in %d s" % PATIENCE
        time.sleep(0.01)


def certificates(directory):
    """Made there, and the options that show them to clients."""
    subprocess.run([str(pathlib.Path(__file__).resolve().parent / "certs"), directory], check=True)
    return {"tls-auth-clients": "no", "tls-ca-cert-file": directory + "/ca.pem",
            "tls-cert-file": directory + "/server.pem", "tls-key-file": directory + "/server.key"}


def as_arguments(options):
    return [word for name, value in options.items() for word in ("--" + name, value)]


def has_replicas(server, n):
    """That are in step with it."""
    role = server.cli("ROLE").split("\n")
    return role[0] == "master" and len(role) >= 2 + 3 * n


def replicate(server, n):
    """Until n replicas have what it has: WAIT is about what its own connection has written."""
    subprocess.run(["redis-cli", "-p", str(server.port)], input="PUBLISH tests 1\nWAIT %d 0\n" % n,
                   text=True, stdout=subprocess.DEVNULL, check=True)


class Sentinel(RedisServer):
    ready = "+monitor"

    def __init__(self, lines):
        self.lines = lines
        super().__init__()

    def command(self):
        path = self.dir + "/sentinel.conf"
        with open(path, "w", encoding="utf-8") as file:
            file.write("port %d\nbind 127.0.0.1\ndir %s\n%s\n"
                       % (self.port, self.dir, "\n".join(self.lines(self))))
        return ["redis-server", path, "--sentinel"]


class Watched:
    """They know one another from the start: to find that out would take them seconds."""

    def __init__(self, replicas=1, args=(), sentinels=()):
        self.more = list(sentinels)
        args = (*SOON, *args)
        self.servers, self.sentinels = [RedisServer(*args)], []
        try:
            for _ in range(replicas):
                self.servers.append(RedisServer("--replicaof", "127.0.0.1",
                                                str(self.servers[0].port), *args))
            until(lambda: has_replicas(self.servers[0], replicas), "replication")
            for _ in range(3):
                self.sentinels.append(Sentinel(self.lines))
            for sentinel in self.sentinels:
                for other in self.sentinels:
                    if other is not sentinel:
                        self.introduce(sentinel, other)
        except BaseException:
            self.stop()
            raise

    def lines(self, sentinel):
        sentinel.id = os.urandom(20).hex()
        return ["sentinel myid " + sentinel.id,
                "sentinel monitor %s 127.0.0.1 %d 2" % (NAME, self.servers[0].port),
                "sentinel down-after-milliseconds %s 1000" % NAME,
                "sentinel failover-timeout %s 3000" % NAME,
                *("sentinel known-replica %s 127.0.0.1 %d" % (NAME, server.port)
                  for server in self.servers[1:]), *self.more]

    @staticmethod
    def introduce(sentinel, other):
        """As it would say hello on the primary's channel."""
        hello = "127.0.0.1,%d,%s,0,%s,127.0.0.1,%s,0" % (
            other.port, other.id, NAME, sentinel.cli("SENTINEL", "GET-MASTER-ADDR-BY-NAME",
                                                    NAME).split("\n")[1])
        sentinel.cli("PUBLISH", "__sentinel__:hello", hello)

    @property
    def url(self):
        return "redis+sentinel://%s/%s" % (
            ",".join("127.0.0.1:%d" % sentinel.port for sentinel in self.sentinels), NAME)

    def primary(self):
        """As the Sentinels see it."""
        answer = self.sentinels[0].cli("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME).split("\n")
        (server,) = [server for server in self.servers if str(server.port) == answer[1]]
        return server

    def replicated(self):
        """Until the replicas have what was written."""
        replicate(self.servers[0], len(self.servers) - 1)

    def stop(self):
        for server in self.sentinels + self.servers:
            server.stop()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class Pretender:
    """Answers as a redis-server would: reply() is to be defined."""

    password = None

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.open = [self.listener]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            self.open.append(client)
            threading.Thread(target=self.talk, args=(client,), daemon=True).start()

    def talk(self, client):
        known = self.password is None
        with client.makefile("rwb") as file:
            try:
                while line := file.readline():
                    words = []
                    for _ in range(int(line[1:])):
                        size = int(file.readline()[1:])
                        words.append(file.read(size + 2)[:-2].decode())
                    known = known or words == ["AUTH", self.password]
                    file.write(self.reply(words, known).encode())
                    file.flush()
            except (OSError, ValueError):
                pass

    def stop(self):
        for one in self.open:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            one.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class Spokesman(Pretender):
    """Says as a Sentinel would whatever the test wants: a server's address, None, or nothing at
    all (""); with a password only to clients that send it."""

    def __init__(self, answer, password=None):
        self.answer, self.password = answer, password
        super().__init__()

    def reply(self, words, known):
        if not known:
            return "-%s.\r\n" % ("WRONGPASS no" if words[0] == "AUTH" else "NOAUTH no")
        if words[0] == "SUBSCRIBE":
            return "*3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:1\r\n" % (len(words[1]), words[1])
        if words[0] != "SENTINEL":
            return "+OK\r\n"
        if self.answer is None:
            return "*-1\r\n"
        if self.answer == "":
            return ""
        port = str(self.answer.port)
        return "*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%s\r\n" % (len(port), port)


class Cluster:
    """Nodes in the order of their slots; nodes[i].replicas are theirs."""

    def __init__(self, n=3, replicas=0, args=(), tls=None):
        """tls: what certificates() says."""
        self.nodes, self.all, self.moved, self.args, self.tls = [], [], {}, args, tls
        try:
            for i in range(n * (1 + replicas)):
                self.all.append(self.start())
            self.nodes = self.all[:n]
            self.join(replicas)
        except BaseException:
            self.stop()
            raise

    def start(self):
        for _ in range(4):
            try:
                return self.start_one()
            except OSError:  # somebody else got its second or third port first
                pass
        return self.start_one()

    def start_one(self):
        bus, tls, more = free_port(), free_port(), []
        if self.tls:
            more = as_arguments({**self.tls, "tls-port": str(tls), "tls-cluster": "yes"})
        node = RedisServer("--cluster-enabled", "yes", "--cluster-port", str(bus),
                           "--cluster-node-timeout", IMPATIENT, *SOON, *self.args, *more)
        node.bus, node.tls, node.replicas = bus, tls, []
        node.id = node.cli("CLUSTER", "MYID")
        return node

    def join(self, replicas):
        n = len(self.nodes)
        for i, node in enumerate(self.nodes):
            first, last = 16384 * i // n, 16384 * (i + 1) // n - 1
            node.cli("CLUSTER", "ADDSLOTSRANGE", str(first), str(last))
        for epoch, node in enumerate(self.all):
            node.cli("CLUSTER", "SET-CONFIG-EPOCH", str(epoch + 1))
            for other in self.all[:epoch]:
                port = other.tls if self.tls else other.port
                node.cli("CLUSTER", "MEET", "127.0.0.1", str(port), str(other.bus))
        known = "cluster_known_nodes:%d" % len(self.all)
        until(lambda: all(known in node.cli("CLUSTER", "INFO") for node in self.all), "joining")
        for i, node in enumerate(self.all[n:]):
            owner = self.nodes[i % n]
            until(lambda: "OK" in node.cli("CLUSTER", "REPLICATE", owner.id), "replication")
            owner.replicas.append(node)
        until(lambda: all(self.is_linked(node, replicas) for node in self.all), "replication")
        self.settle()
        self.take_for_dead_after(PATIENT)

    @staticmethod
    def is_linked(node, replicas):
        return has_replicas(node, replicas) or "connected" in node.cli("ROLE")

    @staticmethod
    def is_well(node):
        answer = node.cli("CLUSTER", "INFO")
        return "cluster_state:ok" in answer and "cluster_slots_ok:16384" in answer

    @staticmethod
    def primaries(node):
        """The owners of the slots, as this node sees them: id and slots of each."""
        rows = [row.split() for row in node.cli("CLUSTER", "NODES").split("\n")]
        return sorted((row[0], *row[8:]) for row in rows if "master" in row[2] and row[8:])

    def settle(self, without=()):
        """Until all running nodes agree on the owners of the slots, and serve them."""
        nodes = [node for node in self.all if node.process and node not in without]
        until(lambda: all(self.is_well(node) for node in nodes) and
              len({str(self.primaries(node)) for node in nodes}) == 1, "the cluster")

    def take_for_dead_after(self, ms):
        for node in self.all:
            if node.process:
                node.cli("CONFIG", "SET", "cluster-node-timeout", ms)

    @contextlib.contextmanager
    def replacing_the_dead(self):
        """A primary that is killed or stopped meanwhile is soon replaced by its replica."""
        self.take_for_dead_after(IMPATIENT)
        try:
            yield
        finally:
            self.take_for_dead_after(PATIENT)

    def demote(self, node):
        """It changes places with its replica, which both agree on."""
        def is_replica():
            return node.cli("ROLE").startswith("slave")

        def attempt():
            answer = node.replicas[0].cli("CLUSTER", "FAILOVER")
            end = time.monotonic() + FAILOVER_ENDS
            while answer == "OK" and not is_replica() and time.monotonic() < end:
                time.sleep(0.01)
            return is_replica()
        until(attempt, "failover")
        self.settle()

    @property
    def url(self):
        return "redis+cluster://" + ",".join("127.0.0.1:%d" % node.port for node in self.nodes)

    def slot(self, key):
        return int(self.nodes[-1].cli("CLUSTER", "KEYSLOT", key))

    def owner(self, key):
        slot = self.slot(key)
        return self.moved.get(slot) or self.nodes[slot * len(self.nodes) // 16384]

    def move(self, slot, start, to, between=lambda: None):
        """A slot with all its keys from one node to another."""
        to.cli("CLUSTER", "SETSLOT", str(slot), "IMPORTING", start.id)
        start.cli("CLUSTER", "SETSLOT", str(slot), "MIGRATING", to.id)
        between()
        while keys := start.cli("CLUSTER", "GETKEYSINSLOT", str(slot), "100"):
            start.cli("MIGRATE", "127.0.0.1", str(to.port), "", "0", "5000", "KEYS",
                      *keys.split("\n"))
        for node in [to, start] + [node for node in self.nodes if node not in (to, start)]:
            node.cli("CLUSTER", "SETSLOT", str(slot), "NODE", to.id)
        self.moved[slot] = to

    def name_on(self, node, head="x"):
        """A name whose lock is there."""
        return next(name for name in (head + str(i) for i in range(1000))
                    if self.owner("lock:" + name) is node)

    def stop(self):
        for node in self.all:
            node.stop()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
