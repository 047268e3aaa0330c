# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""How many nodes a group of redlock has is part of its name: a client of another size is refused, and
`stile doctor --resize` changes it without two holders or a token that comes back, whatever is
running, and wherever it is cut short."""
import contextlib
import json
import signal

from redis_kit import (Proxy, SOAK, acquire, expect, gets_in, lost, refused, run_tests, waiting)
from kit import spin
from proxy import KEEP, STOP
from redlock_kit import DURABLE, on_nodes, use_nodes

TTL = ("--ttl", "400ms")


def group_of(node):
    return node.cli("HGET", "stile:node", "group")


def resize(t, nodes, code=(0, 1)):
    """What was found; all of these nodes are in one group afterwards."""
    use_nodes(t, nodes)
    done = t.stile("doctor", "--resize", "--json")
    assert done.returncode in code, (done.stdout, done.stderr)
    seen = json.loads(done.stdout)["findings"]
    if 2 not in code:
        groups = {group_of(node) for node in nodes}
        assert len(groups) == 1 and ".%d" % len(nodes) in groups.pop(), groups
    return {one["id"]: one for one in seen}


def refused_as(t, nodes, *words, verb=("acquire", "--try", "x")):
    use_nodes(t, nodes)
    refused(t, *words, verb=verb)


def flush(nodes):
    for node in nodes:
        node.cli("FLUSHALL")


def works(t, nodes, after, name="x"):
    """A grant, as soon as the quiet time is over, with a token that has grown."""
    use_nodes(t, nodes)
    done = t.stile("run", *TTL, name, "--", "sh", "-c", "echo $STILE_TOKEN")
    expect(done.returncode, 0, done.stderr)
    token = int(done.stdout)
    assert token > after, (token, after)
    return token


# ---- another number ----

@on_nodes(*DURABLE)
def another_number(t, nodes):
    """A group of three, and a client that names five, or three of them and others: refused"""
    flush(nodes)
    use_nodes(t, nodes[:3])
    acquire(t, "x", *TTL)
    refused_as(t, nodes, "group of 3 nodes", "names 5", "stile doctor --resize")
    refused_as(t, nodes[:4], "group of 3 nodes", "names 4")
    done = t.stile("doctor", "--adopt")
    expect(done.returncode, 2)
    assert "group of 3 nodes" in " ".join(done.stdout.split()), done.stdout
    expect([node.cli("EXISTS", "stile:node") for node in nodes[3:]], ["0", "0"])
    flush(nodes)
    use_nodes(t, nodes)
    acquire(t, "x", *TTL)
    refused_as(t, nodes[:3], "group of 5 nodes", "names 3")
    nodes[4].kill()
    refused_as(t, nodes[:4], "group of 5 nodes", "names 4")
    nodes[4].restart()
    use_nodes(t, nodes)
    acquire(t, "y", *TTL)


@on_nodes(*DURABLE, number=4)
def another_node_in_its_place(t, nodes):
    """Two clients with three nodes each, of which they share two: never two majorities"""
    flush(nodes)
    use_nodes(t, nodes[:3])
    acquire(t, "first", *TTL)
    nodes[2].kill()
    owner, token = acquire(t, "x", "--ttl", "60s")  # on nodes 0 and 1
    others = [nodes[0], nodes[1], nodes[3]]
    use_nodes(t, others)
    t.stile("doctor", "--adopt")  # takes the seat of node 2, which may come back
    group = group_of(nodes[0])
    expect(group_of(nodes[3]), group)
    nodes[2].restart()
    use_nodes(t, nodes[:3])
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
    spin(lambda: t.stile("run", "--try", "y", *TTL, "--", "true").returncode == 0)
    assert group_of(nodes[2]) != group, "it must not be a fourth member"
    nodes[0].kill()
    expect(t.stile("acquire", "--try", "z").returncode, 69)
    nodes[0].restart()
    use_nodes(t, others)
    expect(t.stile("release", "--owner", owner, "x").returncode, 0)
    works(t, others, token)


# ---- changing it ----

def while_in_use(t, nodes, before, after):
    """A holder and a waiter of the old size, and then one of the new."""
    flush(nodes)
    use_nodes(t, before)
    held = t.hold("x", "--ttl", "2s")
    token = t.show("x")["token"]
    waiter = waiting(t, "x", "--ttl", "2s")
    seen = resize(t, after)
    assert " 2 s" in seen["resized"]["what"], seen
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 75, "it is quiet")
    later = t.start("run", *TTL, "x", "--", "sh", "-c", "echo $STILE_TOKEN; sleep 0.1")
    lost(held)
    next_token = gets_in(later)
    assert next_token > token, (next_token, token)
    told_to_go(waiter)
    refused_as(t, before, "--resize" if len(before) >= len(after) else "names 3")
    return works(t, after, next_token)


def told_to_go(waiter):
    code, said = waiter.wait(), waiter.err.end()
    expect(code, 69, said)
    assert "was given other nodes" in said, said


@on_nodes(*DURABLE)
def from_three_to_five(t, nodes):
    """Growing under a holder and a waiter: both lose it before anybody of the new size gets in"""
    while_in_use(t, nodes, nodes[:3], nodes)
    seen = resize(t, nodes)
    assert "nothing-to-resize" in seen, seen


@on_nodes(*DURABLE)
def from_five_to_three(t, nodes):
    """Shrinking; a holder whose nodes are those that leave"""
    while_in_use(t, nodes, nodes, nodes[:3])
    flush(nodes)
    use_nodes(t, nodes)
    acquire(t, "first", "--ttl", "2s")
    for node in nodes[:2]:
        node.kill()
    _, token = acquire(t, "x", "--ttl", "2s")
    for node in nodes[:2]:
        node.restart()
    resize(t, nodes[:3])
    works(t, nodes[:3], token)


@on_nodes(*DURABLE, number=4)
def one_for_another(t, nodes):
    """A node in the place of another, while all are up"""
    while_in_use(t, nodes, nodes[:3], nodes[1:])


@on_nodes(*DURABLE, number=6)
def what_is_refused(t, nodes):
    """Too few of the old nodes; a node of another group; a new node that does not answer"""
    flush(nodes)
    use_nodes(t, nodes[:3])
    _, token = acquire(t, "x", *TTL)
    seen = resize(t, [nodes[0], *nodes[3:5]], (2,))
    assert "1 of the group's 3 nodes" in seen["not-resized"]["what"], seen
    use_nodes(t, nodes[3:])
    acquire(t, "x", *TTL)
    seen = resize(t, nodes[:4], (2,))
    assert "another group" in seen["not-resized"]["what"], seen
    flush(nodes[3:])
    nodes[4].kill()
    seen = resize(t, nodes[:5], (2,))
    assert "not every node" in seen["not-resized"]["what"], seen
    works(t, nodes[:3], token)  # nothing was closed
    nodes[4].restart()
    resize(t, nodes[:5])
    works(t, nodes[:5], token)


@on_nodes(*DURABLE)
def members_that_were_away(t, nodes):
    """An old node that is down while the group grows is opened later; a new one that forgets then
    is adopted"""
    flush(nodes)
    use_nodes(t, nodes[:3])
    _, token = acquire(t, "x", *TTL)
    resize(t, nodes)
    nodes[2].kill()
    token = works(t, nodes, token)
    nodes[2].restart()
    nodes[3].cli("FLUSHALL")
    use_nodes(t, nodes)
    t.stile("doctor", "--adopt")
    expect(len({group_of(node) for node in nodes}), 1)
    token = works(t, nodes, token)
    seen = resize(t, nodes[:3])
    assert "resized" in seen, seen
    works(t, nodes[:3], token)


# ---- cut short ----

class CutShort:
    """`stile doctor --resize` of three nodes to five, whose request of one kind to some of the nodes,
    or the answer, never arrives, and which is killed then."""

    def __init__(self, t, nodes, ways):
        self.t, self.nodes, self.ways = t, nodes, ways

    def begin(self, kind, where, action):
        flush(self.nodes)
        use_nodes(self.t, self.nodes[:3])
        _, self.token = acquire(self.t, "x", *TTL)
        rules = [self.ways[i].once(kind, action) for i in where]
        use_nodes(self.t, self.ways)
        resizing = self.t.start("doctor", "--resize")
        for rule in rules:
            rule.hit()
        resizing.kill(signal.SIGKILL)
        resizing.wait()
        return rules

    def check(self, kind, where, action):
        rules = self.begin(kind, where, action)
        self.at_most_one_group()
        resize(self.t, self.nodes)
        for rule in rules if action == STOP else []:
            rule.let_go()  # what a dead client has said may still come
        groups = {group_of(node) for node in self.nodes}
        expect(len(groups), 1, groups)
        refused_as(self.t, self.nodes[:3], "names 3")
        self.token = works(self.t, self.nodes, self.token)
        expect({group_of(node) for node in self.nodes}, groups)
        for way in self.ways:
            way.cut()

    def at_most_one_group(self):
        """Of the old size and of the new, not both can open: each needs a majority of its nodes."""
        opened = []
        for nodes in self.nodes[:3], self.nodes:
            use_nodes(self.t, nodes)
            done = self.t.stile("run", "--try", *TTL, "y", "--", "true")
            assert done.returncode in (0, 69, 75), done.stderr
            opened += [len(nodes)] if done.returncode != 69 else []
        assert len(opened) <= 1, opened


@on_nodes(*DURABLE)
def cut_short(t, nodes):
    """Killed at every step, with its last requests lost, carried out or late: it is repeated"""
    with contextlib.ExitStack() as stack:
        ways = [stack.enter_context(Proxy(node.port)) for node in nodes]
        scene = CutShort(t, nodes, ways)
        old, new, everywhere = (0, 1, 2), (3, 4), (0, 1, 2, 3, 4)
        steps = [("hsetnx", new), ("change", old), ("close", old), ("adopt", everywhere)]
        for kind, whole in steps:
            some = [whole, whole[:1], whole[1:]] if not SOAK else [
                [i for i in whole if mask & 1 << i] for mask in range(1, 32)]
            for where in filter(None, some):
                for action in STOP, KEEP:
                    scene.check(kind, where, action)


@on_nodes(*DURABLE, number=6)
def two_at_once(t, nodes):
    """Two administrators change the group at once, each in another way: one of the two succeeds"""
    for _ in range(8 if SOAK else 3):
        flush(nodes)
        use_nodes(t, nodes[:3])
        _, token = acquire(t, "x", *TTL)
        running = []
        for target in nodes[:5], [*nodes[:3], nodes[5]]:
            use_nodes(t, target)
            running.append((target, t.start("doctor", "--resize")))
        for _, one in running:
            one.wait()
        live = []
        for target, _ in running:
            use_nodes(t, target)
            done = t.stile("run", "--wait", "30s", *TTL, "x", "--", "sh", "-c", "echo $STILE_TOKEN")
            if done.returncode == 0:
                live.append(int(done.stdout))
        expect(len(live), 1)
        assert live[0] > token, (live, token)
        refused_as(t, nodes[:3], "nodes")


# ---- groups of the release before ----

def forget_sizes(nodes):
    for node in nodes:
        node.cli("HDEL", "stile:node", "n", "seat", "seats")


@on_nodes(*DURABLE)
def made_by_an_older_release(t, nodes):
    """A group without a size on record: all nodes must answer once, from one group"""
    flush(nodes)
    use_nodes(t, nodes[:3])
    _, token = acquire(t, "x", *TTL)
    forget_sizes(nodes[:3])
    nodes[2].kill()
    refused_as(t, nodes[:3], "older release", "all of its nodes must answer once")
    nodes[2].restart()
    refused_as(t, nodes, "older release")
    seen = resize(t, nodes, (2,))
    assert "older release" in seen["not-resized"]["what"], seen
    works(t, nodes[:3], token)
    expect({node.cli("HGET", "stile:node", "n") for node in nodes[:3]}, {"3"})
    nodes[2].kill()
    works(t, nodes[:3], token)
    nodes[2].restart()
    refused_as(t, nodes, "group of 3 nodes")


@on_nodes(*DURABLE)
def fewer_nodes_with_old_fences(t, nodes):
    """From five to three, two of which missed the last grants: no token is granted again"""
    token = works(t, nodes, 0)
    for node in nodes[1:3]:
        node.kill()
    for _ in range(3):
        token = works(t, nodes, token)
    for node in nodes[1:3]:
        node.restart()
    resize(t, nodes[:3])
    for node in nodes[1:3]:
        node.cli("HSET", "stile:node", "quiet", "1")  # the time is over, as far as it knows
    nodes[0].kill()
    works(t, nodes[:3], token)


run_tests([another_number, another_node_in_its_place, from_three_to_five, from_five_to_three,
           fewer_nodes_with_old_fences, one_for_another, what_is_refused, members_that_were_away,
           cut_short, two_at_once, made_by_an_older_release])
