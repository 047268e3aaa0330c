# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Five nodes of redlock of which some are down, stopped, empty, or a little ahead of time: the status
that the user sees, never two holders, and tokens that only grow."""
import os
import signal
import socket
import subprocess

from redis_kit import (acquire, acquired, expect, gets_in, kill_at_once, lost, refused, run_tests,
                       signal_all, ended_with, waiting, warden_and_command)
from redlock_kit import DURABLE, nothing_left, on_nodes, use_nodes


def busy(t, name="x"):
    expect(t.stile("run", "--try", name, "--", "true").returncode, 75)


def works(t, nodes, after, name="x"):
    """A pair, a wait and a hand-over; tokens grow from `after` on, and nothing is left."""
    held = t.hold(name, "--ttl", "60s")
    token = t.show(name)["token"]
    assert token > after, (token, after)
    waiter = waiting(t, name)
    busy(t, name)
    t.release(held)
    later = gets_in(waiter)
    assert later > token, (later, token)
    nothing_left(nodes, name)
    return later


# ---- down ----

@on_nodes(*DURABLE)
def some_down(t, nodes):
    """One and two of five down: everything goes on; and when they are back with their data"""
    token = works(t, nodes, 0)
    for node in nodes[:2]:
        node.kill()
        token = works(t, nodes, token)
    for node in nodes[:2]:
        node.restart()
    for node in nodes[3:]:
        node.kill()
    works(t, nodes, token)  # three, of which two have missed the last tokens


@on_nodes(*DURABLE)
def most_down(t, nodes):
    """Three of five down: the error names them, the holder is notified, a waiter gets in when one is back"""
    held = t.hold("x", "--ttl", "2s")
    token = t.show("x")["token"]
    waiter = waiting(t, "x")
    for node in nodes[:3]:
        node.kill()
    refused(t, "2 of 5 nodes", "127.0.0.1:%d" % nodes[0].port)
    lost(held)
    expect(waiter.process.poll(), None)
    nodes[0].restart()
    assert gets_in(waiter) > token
    for node in nodes[1:3]:
        node.restart()
    works(t, nodes, token)


@on_nodes(*DURABLE)
def all_restarted(t, nodes):
    """All of them killed and back with their data: the holder keeps it, tokens grow"""
    held = t.hold("x", "--ttl", "60s")
    token = t.show("x")["token"]
    for node in nodes:
        node.kill()
        node.restart()
    busy(t)
    t.release(held)
    works(t, nodes, token)


def turn_away(port, times):
    """At the port of a server that is down: each attempt comes after a longer pause."""
    with socket.create_server(("127.0.0.1", port)) as door:
        for _ in range(times):
            door.accept()[0].close()


@on_nodes(*DURABLE)
def back_at_the_end(t, nodes):
    """Two nodes that are back when the holder ends have nothing of it, however rarely it tried them"""
    held = t.hold("x", "--ttl", "60s")
    for node in nodes[:2]:
        node.kill()
    turn_away(nodes[0].port, 16)
    for node in nodes[:2]:
        node.restart()
    t.release(held)
    nothing_left(nodes)


# ---- stopped ----

@on_nodes(*DURABLE)
def some_stopped(t, nodes):
    """Two of five stopped: everything goes on, and what they were asked meanwhile ends in order"""
    token = works(t, nodes, 0)
    for node in nodes[:2]:
        node.pause()
    held = t.hold("x", "--ttl", "60s")
    busy(t)
    waiter = waiting(t, "x")
    t.release(held)
    assert gets_in(waiter) > token + 1
    for node in nodes[:2]:
        node.go_on()
    works(t, nodes, token + 2)


@on_nodes(*DURABLE)
def most_stopped(t, nodes):
    """Three of five stopped: refused, the holder is notified, and nothing is left when they wake up"""
    held = t.hold("x", "--ttl", "2s")
    token = t.show("x")["token"]
    for node in nodes[2:]:
        node.pause()
    refused(t, "2 of 5 nodes", verb=("acquire", "--try", "y"))
    lost(held)
    for node in nodes[2:]:
        node.go_on()
    nothing_left(nodes, "y")
    works(t, nodes, token)


# ---- empty ----

@on_nodes()
def one_empty(t, nodes):
    """A node that was restarted empty does not count: no second holder by its vote"""
    held = t.hold("x", "--ttl", "60s")
    nodes[0].kill()
    nodes[0].restart()
    busy(t)
    for node in nodes[1:3]:
        node.cli("DEL", "lock:x")  # three are free, and two of them count
    busy(t)
    expect([node.cli("EXISTS", "lock:x") for node in nodes], ["0", "0", "0", "1", "1"])
    nodes[3].cli("DEL", "lock:x")  # whether or not the holder has found the first one again
    held.process.stdin.close()
    lost(held)
    for node in nodes[3:]:
        node.kill()
    refused(t, "only 2 of 5 nodes have kept", "stile doctor")


@on_nodes()
def most_empty(t, nodes):
    """Three restarted empty: the holder is notified, and everybody else is refused"""
    held = t.hold("x", "--ttl", "3s")
    for node in nodes[:3]:
        node.kill()
        node.restart()
    refused(t, "only 2 of 5 nodes have kept", "stile doctor", "tokens")
    lost(held)
    refused(t, "only 2 of 5 nodes have kept")
    expect(t.stile("doctor", "--adopt").returncode, 2)
    keys = [key for node in nodes[:3] for key in node.cli("KEYS", "*").split("\n") if key]
    expect([key for key in keys if not key.endswith("\x1flast")], [])  # but the holder's last record


@on_nodes(*DURABLE)
def one_flushed(t, nodes):
    """FLUSHALL on one node under a holder: it keeps its lock; adopted, the node counts again"""
    held = t.hold("x", "--ttl", "3s")
    token = t.show("x")["token"]
    nodes[0].cli("FLUSHALL")
    busy(t)
    expect(nodes[0].cli("EXISTS", "lock:x"), "0", "nothing was granted there")
    t.release(held)
    token = works(t, nodes, token)
    expect(t.stile("doctor", "--adopt").returncode in (0, 1), True)
    assert nodes[0].cli("HGET", "stile:node", "group"), "adopted"
    works(t, nodes, token)


@on_nodes(*DURABLE)
def most_flushed(t, nodes):
    """FLUSHALL on three: the holder is notified, and nobody gets it; the refusal says why"""
    held = t.hold("x", "--ttl", "3s")
    for node in nodes[:3]:
        node.cli("FLUSHALL")
    refused(t, "only 2 of 5 nodes have kept")
    lost(held)
    refused(t, "only 2 of 5 nodes have kept")
    expect([node.cli("EXISTS", "lock:x") for node in nodes[:3]], ["0"] * 3)


# ---- clocks ----

@on_nodes(*DURABLE, own_clock=True)
def clock_jumps(t, nodes):
    """A clock that jumps on one node frees the key there: no second holder, tokens grow"""
    held = t.hold("x", "--ttl", "60s")
    token = t.show("x")["token"]
    nodes[0].jump(3600)
    busy(t)
    expect(nodes[0].cli("EXISTS", "lock:x"), "0")
    nodes[1].jump(3600)
    busy(t)
    waiter = waiting(t, "x")
    expect(held.process.poll(), None)
    t.release(held)
    assert gets_in(waiter) > token
    for node in nodes[:2]:
        node.jump(-3600)
    works(t, nodes, token)


@on_nodes(*DURABLE, own_clock=True)
def clocks_jump(t, nodes):
    """Clocks that jump on three: the next one has the larger token, and the first is notified"""
    held = t.hold("x", "--ttl", "6s")
    token = t.show("x")["token"]
    for node in nodes[:3]:
        node.jump(3600)
    owner, later = acquire(t, "x", "--ttl", "60s")
    assert later > token
    lost(held)
    expect(t.stile("renew", "--owner", owner, "x").returncode, 0)


# ---- holders ----

@on_nodes(*DURABLE)
def holder_stopped(t, nodes):
    """A holder stopped past its TTL: the next one's token is larger, and the late one is notified"""
    held = t.hold("x", "--ttl", "1s")
    token = t.show("x")["token"]
    pids = warden_and_command(held)
    signal_all(pids, signal.SIGSTOP)
    next_one = t.hold("x", "--ttl", "60s")
    later = t.show("x")["token"]
    assert later > token, (token, later)
    os.kill(pids[0], signal.SIGCONT)
    lost(held)
    expect(next_one.process.poll(), None)
    t.release(next_one)
    nothing_left(nodes)


@on_nodes(number=3)
def end_on_a_majority(t, nodes):
    """A node that has missed the end of the last record: show takes it from another"""
    expect(t.stile("run", "x", "--", "sh", "-c", "exit 3").returncode, 3)
    key = "{lock:x}\x1flast"
    fields = nodes[1].cli("GET", key).split()
    fields[4:6] = "0", "-1"  # order, version, token, from, until, exit, ...
    nodes[2].cli("SET", key, " ".join(fields))
    nodes[0].kill()
    expect(t.show("x")["last"]["exit_code"], 3)


@on_nodes(*DURABLE)
def holder_killed(t, nodes):
    """A holder killed with -9: a waiter gets in when its lease is over"""
    held = t.hold("x", "--ttl", "1s")
    token = t.show("x")["token"]
    waiter = waiting(t, "x")
    kill_at_once(held)
    assert gets_in(waiter) > token
    nothing_left(nodes)


@on_nodes(*DURABLE)
def all_killed(t, nodes):
    """The holder and all waiters killed with -9: nobody is shown in line when the lease is over"""
    held = t.hold("x", "--ttl", "1s")
    waiters = [waiting(t, "x") for _ in range(2)]
    watched = t.watch("x")
    t.until(watched, lambda change: len(change["waiters"]) == 2)
    for waiter in waiters:
        signal_all((waiter.pid, waiter.warden()), signal.SIGKILL)
    kill_at_once(held)
    t.until(watched, lambda change: not change["holders"] and not change["waiters"])
    works(t, nodes, 0)


@on_nodes(*DURABLE)
def what_stays(t, nodes):
    """lock-delay and hold_at_least after kill -9; lock-delay after a missed deadline"""
    for name, option in ("d", "--lock-delay"), ("h", "--hold-at-least"):
        kill_at_once(t.hold(name, "--ttl", "1s", option, "60s"))
    held = t.hold("m", "--ttl", "1s", "--lock-delay", "60s")
    pids = held.warden(), held.pid
    signal_all(pids, signal.SIGSTOP)
    acquire(t, "later", "--ttl", "1s")  # over on the nodes: all before it are over, too
    expect(t.stile("run", "later", "--", "true").returncode, 0)
    signal_all(pids, signal.SIGCONT)
    lost(held, "m")
    for name in "dhm":
        for node in nodes:
            assert int(node.cli("PTTL", "lock:" + name)) > 30000, (name, node.cli("KEYS", "*"))
        busy(t, name)


# ---- what it is not for ----

@on_nodes()
def refusals(t, nodes):
    """Shared locks and slots are unsound on redlock, and refused; so are two nodes, and one twice"""
    for mode in ["--shared"], ["--slots", "2"]:
        ended_with(t.stile("run", "--try", *mode, "x", "--", "true"), 69, "redlock")
    use_nodes(t, nodes[:2])
    refused(t, "3", code=64)
    use_nodes(t, [nodes[0], *nodes[:3]])
    refused(t, "twice", code=64)


@on_nodes()
def deleted_by_hand(t, nodes):
    """A key deleted by hand on all nodes, which nobody announces: the waiter finds out by itself"""
    _, token = acquire(t, "x", "--ttl", "600s")
    waiter = waiting(t, "x")
    for node in nodes:
        node.cli("DEL", "lock:x")
    assert gets_in(waiter) > token


@on_nodes(params="?prefix=")
def names_that_look_like_keys(t, nodes):
    """Without a prefix: names that look like another's keys are free, and the nodes' own is refused"""
    names = "x", "{x}", "{x}:fence", "{x}:queue", "{x}fence", "stile:nodes"
    held = t.start("run", "--try", *names, "--", "sh", "-c", "echo $STILE_TOKENS; read line",
                   stdin=subprocess.PIPE)
    tokens = held.line().split()
    expect(len(tokens), len(names))
    for name in names:
        expect(t.stile("run", "--try", name, "--", "true").returncode, 75, name)
    t.release(held)
    done = t.stile("run", "--try", "stile:node", "--", "true")
    expect(done.returncode, 69, done.stderr)
    assert "choose another" in done.stderr, done.stderr


@on_nodes(params="?fence=off")
def plain(t, nodes):
    """fence=off: no token, and none is promised; nodes may be empty, and count all the same"""
    done = t.stile("caps", "--json")
    assert '"token":false' in done.stdout.replace(" ", ""), done.stdout
    done = t.stile("acquire", "--try", "--ttl", "60s", "x")
    expect(done.returncode, 0, done.stderr)
    assert "STILE_TOKEN=" not in done.stdout, done.stdout
    assert "unset STILE_TOKEN STILE_ISSUER;" in done.stdout  # an earlier lock's
    busy(t)
    expect([node.cli("EXISTS", "stile:node") for node in nodes], ["0"] * 5)
    for node in nodes[:2]:
        node.kill()
        node.restart()
    busy(t)
    owner = acquired(done.stdout)[0]
    expect(t.stile("release", "--owner", owner, "x").returncode, 0)
    held = t.hold("x", "--ttl", "60s")
    waiter = t.start("run", "x", "--", "echo", "in")
    t.until(t.watch("x"), lambda change: len(change["waiters"]) == 1)
    t.release(held)
    expect(waiter.line(), "in")
    expect(waiter.wait(), 0)
    nothing_left(nodes)


run_tests([some_down, most_down, all_restarted, back_at_the_end, some_stopped, most_stopped, one_empty, most_empty,
           one_flushed, most_flushed, clock_jumps, clocks_jump, holder_stopped, end_on_a_majority,
           holder_killed, all_killed, what_stays, refusals, deleted_by_hand,
           names_that_look_like_keys, plain])
