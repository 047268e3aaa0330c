# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A Redis Cluster whose slots move, whose nodes are killed or change places, or that is down."""
import atexit
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(TESTS / "cli"), str(TESTS / "servers")]
from kit import expect, run_tests  # noqa: E402
from redis_kit import renewed  # noqa: E402
from redis_groups import Cluster, Pretender, certificates, replicate, until  # noqa: E402
from redis_server import RedisServer  # noqa: E402

ODD = ["{", "}", "{}", "{}a", "a}b", "a{b", "}{", "{a}{b}", "a{}{b}c", "{a}:fence"]


def use(t, url):
    t.env["STILE_ENGINE"] = url
    t.env["STILE_MODULES"] = os.environ["STILE_MODULES"]


SHARED = {}


def on_cluster(replicas=0):
    """The test gets a Cluster of three nodes. It takes seconds to make one, so tests share it: each
    breaks another node of it, if any."""
    def decorate(case):
        def with_cluster(t):
            if replicas not in SHARED:
                SHARED[replicas] = Cluster(3, replicas)
                atexit.register(SHARED[replicas].stop)
            use(t, SHARED[replicas].url)
            case(t, SHARED[replicas])
        with_cluster.__name__, with_cluster.__doc__ = case.__name__, case.__doc__
        return with_cluster
    return decorate


def hold_and_wait(t, name, ttl="20s", words="in"):
    held = t.hold(name, "--ttl", ttl)
    return held, wait_for(t, name, 1, words)


def wait_for(t, name, place, words="in"):
    """Somebody in line, there."""
    waiting = t.start("run", name, "--", "echo", words)
    t.until(t.watch(name), lambda change: len(change["waiters"]) == place)
    return waiting


def goes_in(waiting, words="in"):
    expect(waiting.line(), words)
    expect(waiting.wait(), 0)


def token_of(t, name):
    done = t.stile("acquire", "--try", name)
    expect(done.returncode, 0, done.stderr)
    return int(re.search(r"STILE_TOKEN=(\d+)", done.stdout).group(1))


def tried(t, name, code):
    done = t.stile("run", "--try", name, "--", "true")
    expect(done.returncode, code, done.stderr)
    return done.stderr


@contextlib.contextmanager
def stopped(node):
    node.pause()
    try:
        yield
    finally:
        node.go_on()


def by_hand(node, *command):
    """As redis-cli -c, which follows MOVED."""
    return subprocess.run(["redis-cli", "-c", "-p", str(node.port), *command], text=True,
                          stdout=subprocess.PIPE, check=True).stdout.strip()


# ---- the ordinary ----

@on_cluster()
def names_on_all_nodes(t, cluster):
    """Every name has its node, whatever braces it has; list, show, watch and break find it"""
    names = [cluster.name_on(node) for node in cluster.nodes] + ODD
    held = [t.hold(name, "--ttl", "20s") for name in names]
    for name in names:
        tried(t, name, 75)
        expect(by_hand(cluster.nodes[0], "SET", "lock:" + name, "me", "NX"), "")
    listed = re.findall(r"(?m)^(\S+)", t.stile("ls").stdout)[1:]
    expect(listed, sorted(names))
    watched = [t.watch(name) for name in names[:3]]
    for name, change in zip(names, watched):
        t.until(change, lambda change: change["holders"])
        expect(t.stile("break", name).returncode, 0)
        t.until(change, lambda change: not change["holders"])
    for one in held[:3]:
        expect(one.wait(), 76)
    for one in held[3:]:
        t.release(one)
    for name in names:
        expect(by_hand(cluster.nodes[1], "SET", "lock:" + name, "me", "NX", "PX", "60000"), "OK")
        tried(t, name, 75)
        by_hand(cluster.nodes[1], "DEL", "lock:" + name)


@on_cluster()
def any_node_will_do(t, cluster):
    """A plain redis:// URL of any node works as the cluster does; it has one database"""
    for node in cluster.nodes:
        use(t, "redis://127.0.0.1:%d" % node.port)
        for other in cluster.nodes:
            tried(t, cluster.name_on(other), 0)
        use(t, "redis://127.0.0.1:%d/1" % node.port)
        assert "database 0" in tried(t, "x", 69)
    use(t, "redis+unix://" + cluster.nodes[0].path)
    tried(t, cluster.name_on(cluster.nodes[2]), 0)
    with RedisServer() as alone:
        use(t, "redis+cluster://127.0.0.1:%d" % alone.port)
        assert "redis://" in tried(t, "x", 69)


@on_cluster()
def served_in_order_on_each_node(t, cluster):
    """Waiters on any node are notified there, and served in order"""
    names = [cluster.name_on(node) for node in cluster.nodes]
    held = [t.hold(name, "--ttl", "20s") for name in names]
    waiting = []
    for place in range(1, 6):
        for name in names:
            waiting.append(t.start("run", name, "--", "sh", "-c",
                                   "echo %d >>%s" % (place, t.path(name))))
            t.until(t.watch(name), lambda change: len(change["waiters"]) == place)
    for one in held:
        t.release(one)
    for one in waiting:
        expect(one.wait(), 0)
    for name in names:
        with open(t.path(name), encoding="utf-8") as file:
            expect(file.read().split(), ["1", "2", "3", "4", "5"])


# ---- slots move ----

@on_cluster()
def slot_moves(t, cluster):
    """A slot moves under a holder, a waiter and a newcomer (ASK, TRYAGAIN, MOVED)"""
    start, to = cluster.nodes[:2]
    name = cluster.name_on(start)
    slot = cluster.slot("lock:" + name)
    held, waiting = hold_and_wait(t, name)
    second = wait_for(t, name, 2)
    token = t.show(name)["token"]
    coming = []

    def between():
        coming.append(t.start("run", "y{lock:%s}" % name, "--", "echo", "new"))
        until(lambda: "cmdstat_asking" in to.cli("INFO", "commandstats"), "ASK")
        expect(coming[0].process.poll(), None)

    cluster.move(slot, start, to, between)
    goes_in(coming[0], "new")
    tried(t, name, 75)
    t.release(held)
    goes_in(waiting)
    goes_in(second)
    assert token_of(t, name) > token
    assert t.show(name)["token"] > token


@on_cluster()
def line_moves(t, cluster):
    """A waiter that the new node takes for dead, because it listens on the old one, joins the queue again"""
    start, to = cluster.nodes[1:]
    name = cluster.name_on(start)
    held, waiting = hold_and_wait(t, name, ttl="120s")
    leaving = wait_for(t, name, 2)
    cluster.move(cluster.slot("lock:" + name), start, to)
    leaving.kill(signal.SIGTERM)  # whose withdrawal looks after the line
    leaving.wait()
    until(lambda: to.cli("PUBSUB", "NUMSUB", "stile:" + to.cli(
        "ZRANGE", "{lock:%s}\x1fqueue" % name, "0", "0")[:16]).endswith("\n1"), "the return")
    t.release(held)
    goes_in(waiting)


@on_cluster()
def slot_stays_between(t, cluster):
    """A slot that is neither here nor there: UNREACHABLE after a while, and nothing is granted"""
    start, to = cluster.nodes[:2]
    name = cluster.name_on(start)
    slot = str(cluster.slot("lock:" + name))
    owner = re.search(r"STILE_OWNER=(\w+)", t.stile("acquire", "--try", name).stdout).group(1)
    to.cli("CLUSTER", "SETSLOT", slot, "IMPORTING", start.id)
    start.cli("CLUSTER", "SETSLOT", slot, "MIGRATING", to.id)
    start.cli("MIGRATE", "127.0.0.1", str(to.port), "", "0", "5000", "KEYS", "lock:" + name)
    assert "TRYAGAIN" in tried(t, name, 69)
    start.cli("CLUSTER", "SETSLOT", slot, "STABLE")
    to.cli("CLUSTER", "SETSLOT", slot, "STABLE")
    cluster.move(int(slot), start, to)
    tried(t, name, 75)
    expect(t.stile("release", "--owner", owner, name).returncode, 0)


# ---- nodes ----

@on_cluster(replicas=1)
def node_is_stopped(t, cluster):
    """SIGSTOP of a node: renewals find its replica, though no connection ends"""
    node = cluster.nodes[2]
    name = cluster.name_on(node)
    held, waiting = hold_and_wait(t, name, ttl="30s")
    replicate(node, 1)
    with cluster.replacing_the_dead(), stopped(node):
        new = node.replicas[0]
        until(lambda: new.cli("ROLE").startswith("master"), "failover")
        renewed(new, name)
        cluster.settle(without=[node])
        tried(t, name, 75)
        t.release(held)
        goes_in(waiting)


@on_cluster(replicas=1)
def node_is_killed(t, cluster):
    """kill -9 of a node: its names go on at its replica, those of others at once"""
    node, other = cluster.nodes[:2]
    name, far = cluster.name_on(node), cluster.name_on(other)
    held, waiting = hold_and_wait(t, name, ttl="60s")
    token = t.show(name)["token"]
    held_far, waiting_far = hold_and_wait(t, far)
    replicate(node, 1)
    with cluster.replacing_the_dead():
        node.kill()
        t.release(held_far)
        goes_in(waiting_far)
        expect(t.stile("run", "--wait", "60s", "y{lock:%s}" % name, "--", "true").returncode, 0)
        cluster.settle()
        tried(t, name, 75)
        t.release(held)
        goes_in(waiting)
        assert token_of(t, name) > token


@on_cluster(replicas=1)
def node_is_demoted(t, cluster):
    """CLUSTER FAILOVER: the node lives on as a replica, its names have moved"""
    node = cluster.nodes[1]
    name = cluster.name_on(node)
    held, waiting = hold_and_wait(t, name)
    cluster.demote(node)
    tried(t, name, 75)
    t.release(held)
    goes_in(waiting)


@on_cluster(replicas=1)
def replicas_are_counted(t, cluster):
    """wait_replicas= is about the node that granted it"""
    use(t, cluster.url + "?wait_replicas=1&wait_timeout=300")
    names = [cluster.name_on(node) for node in cluster.nodes]
    for name in names:
        tried(t, name, 0)
    with stopped(cluster.nodes[0].replicas[0]):
        assert "wait_replicas" in tried(t, names[0], 69)
        tried(t, names[1], 0)
        expect(cluster.nodes[0].cli("EXISTS", "lock:" + names[0]), "0")


# ---- down ----

@on_cluster()
def cluster_is_down(t, cluster):
    """CLUSTERDOWN: UNREACHABLE with the server's text; a waiter gets the lock when it is back"""
    node = cluster.nodes[0]
    name, slot = cluster.name_on(node), "0"
    for one in cluster.nodes:
        one.cli("CLUSTER", "DELSLOTS", slot)
    until(lambda: all("cluster_state:fail" in one.cli("CLUSTER", "INFO")
                      for one in cluster.nodes), "the failure")
    assert "CLUSTERDOWN" in tried(t, name, 69)
    waiting = t.start("run", "--wait", "60s", name, "--", "echo", "in")
    node.cli("CLUSTER", "ADDSLOTS", slot)
    goes_in(waiting)


def over_tls(t):
    """rediss+cluster://: every node is spoken to in TLS, and verified"""
    os.mkdir(t.path("keys"))
    with Cluster(2, tls=certificates(t.path("keys"))) as cluster:
        hosts = ",".join("127.0.0.1:%d" % node.tls for node in cluster.nodes)
        use(t, "rediss+cluster://%s?ca=%s/ca.pem" % (hosts, t.path("keys")))
        for node in cluster.nodes:
            tried(t, cluster.name_on(node), 0)
        use(t, "rediss+cluster://%s?ca=%s/stranger.pem" % (hosts, t.path("keys")))
        assert "certificate" in tried(t, "x", 69)


class Circle(Pretender):
    """Sends everybody to itself."""

    def reply(self, words, known):
        address = "127.0.0.1:%d" % self.port
        if words[0] == "INFO":
            return "$32\r\ncluster_enabled:1\r\nmaxmemory:0\r\n\r\n"
        if words[0] == "CLUSTER":
            return "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n" % self.port
        if words[0].startswith("EVAL"):
            return "-MOVED 1 %s\r\n" % address
        return "+OK\r\n"


def sent_in_circles(t):
    """A client that is redirected again and again gives up"""
    with Circle() as circle:
        use(t, "redis+cluster://127.0.0.1:%d" % circle.port)
        assert "another node" in tried(t, "x", 69)


class Babbler(Circle):
    """Has strange ideas of a cluster."""

    table = moved = None

    def reply(self, words, known):
        if words[0] == "CLUSTER" and self.table:
            return self.table
        if words[0].startswith("EVAL") and self.moved:
            return self.moved % self.port if "%d" in self.moved else self.moved
        return super().reply(words, known)


def table_makes_no_sense(t):
    """A table of slots that makes no sense is not used"""
    node = "*2\r\n$9\r\n127.0.0.1\r\n:1\r\n"
    with Babbler() as babbler:
        use(t, "redis+cluster://127.0.0.1:%d" % babbler.port)
        for table in ("*0\r\n", "+OK\r\n", "*1\r\n:1\r\n", "*1\r\n*0\r\n",
                      "*1\r\n*3\r\n:0\r\n:16384\r\n" + node,
                      "*1\r\n*3\r\n:-1\r\n:5\r\n" + node,
                      "*1\r\n*3\r\n:9\r\n:5\r\n" + node,
                      "*1\r\n*3\r\n:0\r\n:5\r\n*0\r\n",
                      "*1\r\n*3\r\n:0\r\n:5\r\n+x\r\n",
                      "*1\r\n*3\r\n:0\r\n:5\r\n*2\r\n$1\r\nx\r\n:0\r\n",
                      "*1\r\n*3\r\n:0\r\n:5\r\n*2\r\n$1\r\nx\r\n:65536\r\n",
                      "-ERR no such command\r\n"):
            babbler.table = table
            assert "table of the cluster" in tried(t, "x", 69), table


def redirect_makes_no_sense(t):
    """A redirection without a target is ignored; without a host it means the same one"""
    with Babbler() as babbler:
        use(t, "redis+cluster://127.0.0.1:%d" % babbler.port)
        for moved in ("-MOVED \r\n", "-MOVED x\r\n", "-MOVED 1\r\n", "-MOVED 1 \r\n",
                      "-MOVED 1 x\r\n", "-MOVED 99999 x:1\r\n", "-MOVED -1 x:1\r\n",
                      "-MOVED 1 x:99999\r\n", "-MOVED 1 %s:1\r\n" % ("x" * 300), "-ASK 1 \r\n",
                      "-MOVED 1 :%d\r\n", "-ASK 1 :%d\r\n"):
            babbler.moved = moved
            assert "another node" in tried(t, "x", 69), moved
        babbler.table = "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$-1\r\n:%d\r\n" % babbler.port
        babbler.moved = ":7\r\n"
        tried(t, "x", 0)


def nobody_there(t):
    """Each node of the URL is tried, and named if none answers"""
    with Cluster(1) as cluster:
        gone = Pretender()
        gone.stop()
        use(t, "redis+cluster://127.0.0.1:%d,127.0.0.1:%d" % (gone.port, cluster.nodes[0].port))
        tried(t, "x", 0)
        cluster.nodes[0].kill()
        said = tried(t, "x", 69)
        for port in gone.port, cluster.nodes[0].port:
            assert "127.0.0.1:%d" % port in said, said


run_tests([names_on_all_nodes, any_node_will_do, served_in_order_on_each_node, slot_moves,
           line_moves, slot_stays_between, cluster_is_down, replicas_are_counted, node_is_demoted,
           node_is_stopped, node_is_killed, over_tls, sent_in_circles, table_makes_no_sense,
           redirect_makes_no_sense, nobody_there])
