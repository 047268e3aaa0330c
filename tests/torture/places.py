# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Servers of every engine, and the ways in which they fail.

    with PLACES["etcd-3"]() as place:
        place.url, place.crash(), place.heal()
"""
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "servers"))
from dynamodb_server import ENV as DYNAMO_ENV, DynamoServer, is_installed  # noqa: E402,F401
from etcd_server import EtcdServer  # noqa: E402
from mysql_server import MysqlServer  # noqa: E402
from postgres_server import PostgresServer  # noqa: E402
from redis_server import RedisServer  # noqa: E402
from zookeeper_server import ZookeeperServer  # noqa: E402

WITHOUT_PROXY = ("stop", "kill", "break", "all", "mixed")
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid), encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


class Place:
    """One server or several, of which the engine survives the loss of one; all of them keep what they
    have written."""
    base = "stop"  # what makes updates without a guard be lost
    faults = (*WITHOUT_PROXY, "cut", "reset", "slow", "crash", "freeze", "restart", "twice")

    def __init__(self, servers, members, url, start, orderly=lambda member: member.kill(signal.SIGTERM)):
        self.servers, self.members, self.url = servers, members, url
        self.start, self.orderly = start, orderly
        self.turn, self.stopped = 0, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.heal()
        self.servers.close()

    def next(self):
        self.turn += 1
        return self.members[self.turn % len(self.members)]

    def next_to_freeze(self):
        return self.next()

    # ---- how they fail ----

    def crash(self):
        """One is killed; every other time, all of them."""
        member = self.next()
        for one in self.members if self.turn % 2 == 0 else [member]:
            one.kill()

    def freeze(self):
        """One is stopped, with all its processes."""
        member = self.next_to_freeze()
        member.signal(signal.SIGSTOP)
        self.stopped = [member.process.pid, *children(member.process.pid)]
        for pid in self.stopped[1:]:
            os.kill(pid, signal.SIGSTOP)

    def restart(self):
        """One ends in its own way, and starts again with the heal."""
        self.orderly(self.next())

    def twice(self):
        """One is killed as soon as it or another one is back after a crash."""
        self.next().kill()
        self.heal()
        self.next().kill()

    def mixed(self):
        (self.crash, self.freeze, self.restart)[self.turn % 3]()

    def heal(self):
        for pid in reversed(self.stopped):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.stopped = []
        gone = [member for member in self.members if not member.process]
        if gone:
            self.start(gone)


class Local(Place):
    """No server and no lease: only a broken lock is lost."""
    base = "break"
    faults = WITHOUT_PROXY

    def __init__(self):
        servers = contextlib.ExitStack()
        folder = servers.enter_context(tempfile.TemporaryDirectory(prefix="stile-test-"))
        super().__init__(servers, [], "local:" + folder, None)


class Etcd(Place):
    def next_to_freeze(self):
        """No leader whose return would end leases that are held: docs/guarantees.md promises less there."""
        member = self.next()
        if len(self.members) > 1 and member.old_leader_revokes() and member.leads():
            member = self.next()
        return member


def restart_each(members):
    for member in members:
        member.restart()


def redis():
    servers = contextlib.ExitStack()
    server = servers.enter_context(RedisServer(*DURABLE))
    return Place(servers, [server], "redis://127.0.0.1:%d" % server.port, restart_each)


def redlock(query=""):
    servers = contextlib.ExitStack()
    nodes = [servers.enter_context(RedisServer(*DURABLE)) for _ in range(5)]
    url = "redlock://" + ",".join("127.0.0.1:%d" % node.port for node in nodes) + query
    return Place(servers, nodes, url, restart_each)


def consensus(kind, members, place=Place):
    servers = contextlib.ExitStack()
    server = servers.enter_context(kind(members))
    return place(servers, server.members, server.url, lambda gone: server.restart())


def database(kind, options, query):
    servers = contextlib.ExitStack()
    server = servers.enter_context(kind(*options))
    subprocess.run([os.environ["STILE"], "setup", server.url], check=True, stdout=subprocess.DEVNULL)
    return Place(servers, [server], server.url + query, restart_each,
                 orderly=lambda member: member.shut_down())


class Dynamo(Place):
    """dynalite keeps what it has in memory: it can be stopped, but not killed. Nothing is between it and
    the workers, as its address is a parameter of the URL."""
    faults = (*WITHOUT_PROXY, "freeze")

    def __init__(self):
        servers = contextlib.ExitStack()
        server = servers.enter_context(DynamoServer())
        server.create("torture")
        os.environ.update(DYNAMO_ENV)
        super().__init__(servers, [server], server.url("torture", "&poll=20"), None)

    mixed = Place.freeze


def postgres(query=""):
    return database(PostgresServer, ["-c", "max_connections=120"], query)


def mysql(query=""):
    return database(MysqlServer, ["--max-connections=200"], query)


PLACES = {
    "local": Local,
    "redis": redis,
    "redlock": redlock,
    "redlock-plain": lambda: redlock("?fence=off"),
    "etcd-1": lambda: consensus(EtcdServer, 1, Etcd),
    "etcd-3": lambda: consensus(EtcdServer, 3, Etcd),
    "zookeeper-1": lambda: consensus(ZookeeperServer, 1),
    "zookeeper-3": lambda: consensus(ZookeeperServer, 3),
    "dynamodb": Dynamo,
    "postgres": postgres,
    "postgres-table": lambda: postgres("?mode=table"),
    "postgres-row": lambda: postgres("?mode=row"),
    "mysql": mysql,
    "mysql-table": lambda: mysql("?mode=table"),
    "mysql-row": lambda: mysql("?mode=row"),
}
