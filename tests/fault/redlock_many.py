# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Many names at once on the nodes of redlock: what can't be asked yet waits in the client, everything is
granted, and each name costs each node the same few requests, however many there are."""
import os
import re
import signal
import subprocess
import threading

from redis_kit import SOAK, expect, run_tests
from kit import spin
from redlock_kit import on_nodes

NAMES = 50000 if SOAK else 2000
WAIT_MS = "280000"
SCRIPTS_MAX = 5  # for each name and node: both phases, the release, and some to spare


def scripts_run(node):
    stats = node.cli("INFO", "commandstats")
    return sum(int(calls) for calls in re.findall(r"cmdstat_eval(?:sha)?:calls=(\d+)", stats))


def start_burst(t, names):
    return subprocess.Popen([os.environ["BURST"], t.env["STILE_ENGINE"], str(names), WAIT_MS],
                            env=t.env, stdout=subprocess.PIPE, text=True)


def check_burst(nodes, process, names, most):
    said = process.communicate(timeout=290)[0]
    expect((process.returncode, said), (0, "granted %d released %d\n" % (names, names)))
    counts = [scripts_run(node) / names for node in nodes]
    assert max(counts) <= most, "scripts for each name: %s" % counts
    for node in nodes:  # the last requests may still be on their way to the slowest
        spin(lambda: not node.cli("--scan", "--pattern", "lock:burst-*"))


def reset(nodes):
    for node in nodes:
        node.cli("CONFIG", "RESETSTAT")


@on_nodes(number=3)
def all_at_once(t, nodes):
    """New names, all claimed at once by one client"""
    for names in 100, NAMES:
        for node in nodes:
            node.cli("EVAL", "for _,k in ipairs(redis.call('KEYS','{lock:burst*')) do "
                     "redis.call('DEL',k) end", "0")
        reset(nodes)
        check_burst(nodes, start_burst(t, names), names, SCRIPTS_MAX)


@on_nodes(number=3, params="?fence=off")
def all_at_once_plain(t, nodes):
    """The same without fences"""
    reset(nodes)
    check_burst(nodes, start_burst(t, NAMES), NAMES, SCRIPTS_MAX)


@on_nodes(number=3)
def one_node_stops(t, nodes):
    """A node that is stopped in the middle of it: the others are enough, and it is not asked again
    and again"""
    reset(nodes)
    process = start_burst(t, NAMES)
    spin(lambda: scripts_run(nodes[0]) > 50)
    nodes[2].pause()
    resumed = threading.Timer(3, nodes[2].go_on)
    resumed.start()
    try:
        said = process.communicate(timeout=290)[0]
    finally:
        resumed.join()
    expect((process.returncode, said), (0, "granted %d released %d\n" % (NAMES, NAMES)))
    counts = [scripts_run(node) / NAMES for node in nodes]
    assert max(counts) <= 3 * SCRIPTS_MAX, counts


@on_nodes(number=3)
def all_are_slow(t, nodes):
    """Nodes that stop for a moment, one after the other: nothing fails"""
    process = start_burst(t, NAMES)
    spin(lambda: scripts_run(nodes[0]) > 50)
    for node in nodes:
        node.signal(signal.SIGSTOP)
    nodes_on = threading.Timer(0.5, lambda: [node.go_on() for node in nodes])
    nodes_on.start()
    said = process.communicate(timeout=290)[0]
    nodes_on.join()
    expect((process.returncode, said), (0, "granted %d released %d\n" % (NAMES, NAMES)))


run_tests([all_at_once, all_at_once_plain, one_node_stops, all_are_slow])
