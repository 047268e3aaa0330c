# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What stile doctor finds on the nodes of redlock, and what --adopt does about one that forgot."""
import contextlib
import json
import re
import subprocess
import threading

import doctor_kit
import kit
from doctor_kit import DURABLE, examine, examine_all, follow, found, gone
from kit import expect, run_tests
from redis_server import RedisServer


def use_nodes(t, nodes, host="127.0.0.1", params=""):
    t.env["STILE_ENGINE"] = "redlock://" + ",".join(
        "%s:%d" % (host, node.port) for node in nodes) + params
    t.env["STILE_MODULES"] = doctor_kit.os.environ["STILE_MODULES"]


def on_nodes(number, *args, params="", own_clock=False):
    """The test gets so many servers that are started with these arguments."""
    def decorate(case):
        def with_nodes(t):
            with contextlib.ExitStack() as servers:
                nodes = [servers.enter_context(RedisServer(*args, own_clock=own_clock))
                         for _ in range(number)]
                use_nodes(t, nodes, params=params)
                case(t, nodes)
        with_nodes.__name__, with_nodes.__doc__ = case.__name__, case.__doc__
        return with_nodes
    return decorate


def acquire(t, name, *options):
    done = t.stile("acquire", "--try", *options, name)
    expect(done.returncode, 0, done.stderr)
    return int(re.search(r"STILE_TOKEN=(\d+)", done.stdout).group(1))


def where(node):
    return "127.0.0.1:%d" % node.port


def forget(node):
    node.cli("FLUSHALL")


def ids(seen):
    return sorted({one["id"] for one in seen})


# ---- the group ----

@on_nodes(5, *DURABLE)
def healthy(t, nodes):
    """Five sound nodes: a note before they are a group, which looking does not make them; then 0"""
    one = found(t, "no-group", "note", "first client")
    expect(one["cure"], "")
    expect([node.cli("DBSIZE") for node in nodes], ["0"] * 5)
    acquire(t, "x")
    seen = examine_all(t)
    expect(ids(seen), ["group", "server"])
    expect({one["where"] for one in seen if one["id"] == "server"}, set(map(where, nodes)))
    assert "5 of 5" in seen[-1]["what"], seen[-1]
    assert "Nothing to worry about" in t.stile("doctor").stdout


@on_nodes(3, *DURABLE)
def not_yet_complete(t, nodes):
    """Without a group all nodes have to answer once"""
    nodes[0].kill()
    found(t, "no-group", "warning", "all nodes once")
    expect(t.stile("acquire", "--try", "x").returncode, 69)
    nodes[0].restart()
    found(t, "no-group", "note")


@on_nodes(5, *DURABLE, own_clock=True)
def one_forgot(t, nodes):
    """A node that forgot is found, adopted, quiet for the longest lease, and counts again"""
    token = acquire(t, "x", "--ttl", "600s")
    forget(nodes[1])
    one = found(t, "forgot", "warning", "does not count")
    expect((one["where"], one["commands"]), (where(nodes[1]), ["stile doctor --adopt URL"]))
    expect(nodes[1].cli("EXISTS", "stile:node"), "0", "looking changes nothing")
    seen = examine_all(t, "--adopt")
    expect((seen[0]["id"], seen[0]["severity"], seen[0]["where"]),
           ("adopted", "note", where(nodes[1])))
    assert " 600 s" in seen[0]["what"] and "epoch 2" in seen[0]["what"], seen[0]
    expect(int(nodes[1].cli("HGET", "stile:node", "highest")), token)
    gone(t, "forgot")
    found(t, "quiet", "note", "no claims for")
    groups = {node.cli("HGET", "stile:node", "group") for node in nodes}
    assert len(groups) == 1 and ".2-" in groups.pop(), groups
    for node in nodes:
        node.jump(601)
    gone(t, "quiet")
    nodes[0].kill()
    nodes[2].kill()  # three are left, and the adopted one is among them
    assert acquire(t, "x") > token


@on_nodes(5, *DURABLE)
def adopted_while_others_lock(t, nodes):
    """Tokens grow through every adoption, two of them at once included"""
    tokens, ended = [], threading.Event()

    def lock_on():
        while not ended.is_set():
            done = t.stile("run", "--ttl", "500ms", "--wait", "5s", "x", "--", "sh", "-c",
                           "echo $STILE_TOKEN")
            tokens.extend(map(int, done.stdout.split()))

    acquire(t, "y", "--ttl", "1s")
    locking = threading.Thread(target=lock_on)
    locking.start()
    try:
        for rounds, node in enumerate(nodes * 2, 1):
            kit.spin(lambda: len(tokens) > rounds and "quiet" not in ids(examine_all(t)))
            forget(node)
            both = [t.start("doctor", "--adopt") for _ in range(2)]
            for adopting in both:
                adopting.wait()
            del both
            # Not gone(), which looks twice: the adopted node's quiet time may end between.
            assert "forgot" not in ids(examine_all(t))
    finally:
        ended.set()
        locking.join()
    expect(tokens, sorted(set(tokens)))


@on_nodes(5, *DURABLE)
def nothing_to_adopt(t, nodes):
    """--adopt without a node that forgot: says so, and changes nothing"""
    acquire(t, "x")
    before = nodes[0].cli("HGETALL", "stile:node")
    seen = examine_all(t, "--adopt")
    expect((seen[0]["id"], seen[0]["severity"]), ("nothing-to-adopt", "note"))
    expect(nodes[0].cli("HGETALL", "stile:node"), before)
    expect(t.stile("doctor", "--adopt").returncode, 0)


@on_nodes(5, *DURABLE)
def most_forgot(t, nodes):
    """No majority remembers: --adopt refuses, changes nothing, and says what that means"""
    acquire(t, "x")
    for node in nodes[:3]:
        forget(node)
    one = found(t, "forgot", "danger", "majority")
    expect(one["commands"], [])
    before = nodes[4].cli("HGETALL", "stile:node")
    done = t.stile("doctor", "--adopt", "--json")
    expect(done.returncode, 2)
    first = json.loads(done.stdout)["findings"][0]
    expect((first["id"], first["severity"]), ("not-adopted", "danger"))
    for word in "2 of 5", "tokens", "prefix=", "guards":
        assert word in " ".join(map(str, first.values())), first
    expect([node.cli("EXISTS", "stile:node") for node in nodes], ["0", "0", "0", "1", "1"])
    expect(nodes[4].cli("HGETALL", "stile:node"), before)
    expect(t.stile("acquire", "--try", "y").returncode, 69)


@on_nodes(3, *DURABLE)
def foreign_node(t, nodes):
    """A node of another group is reported, and adopted by the command that the finding names"""
    acquire(t, "x")
    nodes[0].cli("HSET", "stile:node", "group", "00000000000000ff.1")
    one = found(t, "foreign", "warning", "does not count", "other group")
    expect(one["where"], where(nodes[0]))
    expect(one["commands"][1:], ["stile doctor --adopt URL"])
    expect(subprocess.run(one["commands"][0].split(), capture_output=True, text=True,
                          check=True).stdout, "1\n")
    t.stile("doctor", "--adopt")
    gone(t, "foreign", "forgot")


@on_nodes(3, *DURABLE, "--user", "low", "on", ">low", "~lock:*", "~{lock:*", "&*", "+@all")
def node_key_is_denied(t, nodes):
    """An ACL that hides the node's own key: danger, cured by what is said"""
    acquire(t, "x")
    t.env["STILE_ENGINE"] = t.env["STILE_ENGINE"].replace("//", "//low:low@")
    one = found(t, "node-key", "danger", "stile:node", "ACL")
    for finding in examine_all(t):
        if finding["id"] == "node-key":
            follow(finding, **{" --user ADMIN --askpass": "", "NAME": "low"})
    assert one["commands"], one
    gone(t, "node-key")


# ---- down ----

@on_nodes(5, *DURABLE)
def nodes_down(t, nodes):
    """Nodes that are down: a warning, danger without a majority, 69 if all are"""
    acquire(t, "x")
    for n, severity in (1, "warning"), (2, "warning"), (3, "danger"):
        nodes[n - 1].kill()
        seen = [one for one in examine_all(t) if one["id"] == "down"]
        expect([one["severity"] for one in seen], [severity] * n)
        expect({one["where"] for one in seen}, set(map(where, nodes[:n])))
    for node in nodes[3:]:
        node.kill()
    for how in [], ["--adopt"], ["--json"]:
        done = t.stile("doctor", *how)
        expect((done.returncode, done.stdout), (69, ""), done.stderr)
        assert "0 of 5" in done.stderr, done.stderr
    for node in nodes:
        node.restart()
    gone(t, "down", "forgot")


# ---- independence ----

@on_nodes(2, *DURABLE)
def too_few(t, nodes):
    """Fewer than three nodes: danger, on what no lock would be taken on"""
    expect(t.stile("acquire", "--try", "x").returncode, 64)
    found(t, "few-nodes", "danger", "2 nodes", "three")
    use_nodes(t, nodes[:1])
    found(t, "few-nodes", "danger", "1 node:")


@on_nodes(4, *DURABLE)
def even_number(t, nodes):
    """An even number of nodes is noted"""
    found(t, "even", "note", "4 nodes", "3")
    use_nodes(t, nodes[:3])
    gone(t, "even")


@on_nodes(3, *DURABLE)
def one_server_twice(t, nodes):
    """One server under two addresses: danger"""
    url = t.env["STILE_ENGINE"]
    t.env["STILE_ENGINE"] = url.replace("127.0.0.1:%d" % nodes[1].port,
                                        "localhost:%d" % nodes[0].port)
    one = found(t, "same-server", "danger", "one server", "one memory")
    expect(one["where"], "127.0.0.1:%d and localhost:%d" % (nodes[0].port, nodes[0].port))
    expect(t.stile("acquire", "--try", "x").returncode, 69)
    t.env["STILE_ENGINE"] = url
    gone(t, "same-server")


@on_nodes(3, *DURABLE)
def replicate_one_another(t, nodes):
    """Nodes of which one replicates the other: danger, and so is each by itself"""
    nodes[2].cli("REPLICAOF", "127.0.0.1", str(nodes[0].port))
    kit.spin(lambda: "master_link_status:up" in nodes[2].cli("INFO", "replication"))
    seen = examine(t)
    expect(seen["replicate"]["severity"], "danger")
    expect(seen["replicate"]["where"], "%s and %s" % (where(nodes[0]), where(nodes[2])))
    expect((seen["replica"]["severity"], seen["replica"]["where"]), ("danger", where(nodes[2])))
    expect((seen["replicas"]["severity"], seen["replicas"]["where"]), ("warning", where(nodes[0])))
    assert "wait_replicas" not in seen["replicas"]["cure"], seen
    nodes[2].cli("REPLICAOF", "NO", "ONE")
    kit.spin(lambda: "connected_slaves:0" in nodes[0].cli("INFO", "replication"))
    gone(t, "replicate", "replica", "replicas")


@on_nodes(3, *DURABLE, own_clock=True)
def clocks_apart(t, nodes):
    """A node whose clock differs from the others': a warning, for that node"""
    for node in nodes:
        node.jump(300)  # all of them, and so nobody of them
    gone(t, "clocks", "clock")
    for jump, words in (390, "s ahead of"), (200, "s behind"):
        nodes[2].jump(jump)
        one = found(t, "clocks", "warning", words, "NTP")
        seconds = float(re.search(r"([0-9.]+) s", one["what"]).group(1))
        assert 80 < seconds < 110, one
        expect([one["where"] for one in examine_all(t) if one["id"] == "clocks"],
               [where(nodes[2])])
    nodes[2].jump(300)
    gone(t, "clocks")


# ---- what is written to disk ----

def cure_all(t, name):
    for one in examine_all(t):
        if one["id"] == name:
            follow(one)


@on_nodes(3)
def in_memory_only(t, nodes):
    """Nodes without persistence: what that means for a node that knows it has forgotten"""
    found(t, "persistence", "warning", "memory only", "--adopt")
    gone(t, "restarted")
    acquire(t, "x")
    nodes[0].kill()
    nodes[0].restart()
    found(t, "forgot", "warning")
    cure_all(t, "persistence")
    t.stile("doctor", "--adopt")
    gone(t, "persistence", "forgot")


@on_nodes(3, "--save", "60 1")
def snapshots_only(t, nodes):
    """Snapshots: a node that comes back with old votes is dangerous"""
    found(t, "persistence", "danger", "snapshots")
    cure_all(t, "persistence")
    gone(t, "persistence")


@on_nodes(3, "--appendonly", "yes")
def restarted(t, nodes):
    """A node that was restarted less than the longest lease ago, and may have forgotten the latest"""
    found(t, "appendfsync", "warning", "everysec")
    acquire(t, "x", "--ttl", "1h")
    nodes[0].kill()
    nodes[0].restart()
    found(t, "restarted", "warning", "3600 s")
    cure_all(t, "appendfsync")
    gone(t, "restarted", "appendfsync")


@on_nodes(3, params="?fence=off")
def without_fences(t, nodes):
    """fence=off: no group, and nothing to adopt; a node that forgets votes twice"""
    found(t, "persistence", "warning", "votes again")
    gone(t, "no-group", "forgot", "group")
    found(t, "restarted", "warning")
    done = t.stile("doctor", "--adopt")
    expect((done.returncode, done.stdout), (69, ""), done.stderr)
    assert "fence=off" in done.stderr, done.stderr


@on_nodes(3, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
def evicting(t, nodes):
    """Nodes that evict: each is reported, though none would be opened"""
    expect(t.stile("acquire", "--try", "x").returncode, 69)
    expect(len([one for one in examine_all(t) if one["id"] == "eviction"]), 3)
    cure_all(t, "eviction")
    gone(t, "eviction")
    acquire(t, "x")


run_tests([healthy, not_yet_complete, one_forgot, adopted_while_others_lock, nothing_to_adopt,
           most_forgot, foreign_node, node_key_is_denied, nodes_down, too_few, even_number,
           one_server_twice, replicate_one_another, clocks_apart, in_memory_only, snapshots_only,
           restarted, without_fences, evicting])
