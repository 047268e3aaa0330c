# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The figures of zookeeper, on servers of their own with their disks synced, compared with the bare C client,
kazoo's Lock and Curator's InterProcessMutex."""
import contextlib
import json
import pathlib
import re
import statistics
import sys

from figures import NotMeasured, compare, row, runkill_at, time_text

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "servers"))
from zookeeper_server import JARS, ZookeeperServer  # noqa: E402

PEERS = {
    "kazoo": ["/usr/bin/python3", str(HERE / "peers_zookeeper.py")],
    "Curator": ["java", "-Xmx128m", "-XX:+UseSerialGC",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp",
                JARS + "curator-recipes.jar:" + JARS + "slf4j-simple.jar",
                str(HERE / "PeersCurator.java")],
}
PARKED_MS = 50
IN_FLIGHT = 64
CROWD = 8
SESSION_PACKETS = 3  # to begin it, to see that it works, to end it


@contextlib.contextmanager
def server(bench, warm_up=None):
    """One that has run for a while: a Java program is several times slower at first."""
    try:
        started = ZookeeperServer(durable=True)
    except OSError as reason:
        raise NotMeasured(str(reason)) from reason
    with started:
        if warm_up:
            warm_up(started)
        else:
            bench.run("inflight", started.url, "zookeeper", 1, IN_FLIGHT,
                      100 if bench.quick else 4000)
        yield started


def peer(bench, name, *args):
    """What another client needs for the same, or None where it is missing."""
    try:
        return json.loads(bench.output([*PEERS[name], *map(str, args)]).stdout)
    except NotMeasured:
        return None


def peers(bench, *args):
    return {name: peer(bench, name, *args) for name in PEERS}


def peer_rows(found, ours):
    return [row("  compared with " + name, time_text(ours), "%s %s" % (name, time_text(theirs["p50_ns"])),
                ours / theirs["p50_ns"]) if theirs else row("  compared with " + name, "", name + " is missing")
            for name, theirs in found.items()]


def pair(bench):
    with server(bench) as zookeeper:
        lines = bench.run("pair", zookeeper.url, "zookeeper", bench.rounds(100), 64, 1, 1)
        theirs = peers(bench, "pair", zookeeper.hosts, bench.rounds(1000))
    ours, bare, ratio = compare(lines, "series", "one", "peer_one", "p50_ns")
    return [row("zookeeper: acquire+release, p50", time_text(ours), "C client " + time_text(bare),
                ratio, "1.1 x", ratio <= 1.1)] + peer_rows(theirs, ours), {
                    "server_pair": {"zookeeper": lines}}


def packets_received(zookeeper):
    return int(re.search(r"zk_packets_received\s+(\d+)", zookeeper.say("mntr")).group(1))


def crowd_of(bench, zookeeper, name, for_ms):
    """One crowd: its rate, and how many packets the server got for an acquisition."""
    before = packets_received(zookeeper)
    if name == "stile":
        found = bench.run("crowd", zookeeper.url, "stile", CROWD, for_ms)[0]
        found["acquired"] = sum(found["served"])
    else:
        found = peer(bench, name, "crowd", zookeeper.hosts, for_ms)
    if found:
        found["packets"] = (packets_received(zookeeper) - before
                            - CROWD * SESSION_PACKETS) / found["acquired"]
    return found


def crowd_row(label, found, name, least):
    """Ours and another client in the rounds in which both ran."""
    rate = statistics.median(one["stile"]["per_s"] for one in found)
    both = [one for one in found if one.get(name)]
    if not both:
        return row(label, "%.0f" % rate, name + " is missing")
    ratio = statistics.median(one["stile"]["per_s"] / one[name]["per_s"] for one in both)
    theirs = statistics.median(one[name]["per_s"] for one in both)
    return row(label, "%.0f" % rate, "%s %.0f" % (name, theirs), ratio,
               "%.1f x" % least if least else "", ratio >= least if least else None)


def crowd(bench):
    """Curator takes seconds to start: not in every round."""
    rounds, for_ms = (1, 500) if bench.quick else (10, 1500)
    with server(bench) as zookeeper:
        found = [{name: crowd_of(bench, zookeeper, name, for_ms)
                  for name in ("stile", "kazoo", "Curator")[:3 if i < 3 else 2]}
                 for i in range(rounds)]
    ours = [one["stile"] for one in found]
    packets = statistics.median(one["packets"] for one in ours)
    return [
        crowd_row("zookeeper: 8 processes, per second", found, "kazoo", 1.5),
        crowd_row("  compared with Curator", found, "Curator", None),
        row("  packets per acquisition", "%.2f" % packets, ", ".join(
            "%s %.2f" % (name, found[0][name]["packets"]) for name in PEERS if found[0][name]),
            None, "5", round(packets, 1) <= 5),  # sessions are renewed, too
        row("  least / most served", "%.3f" % min(one["least_to_most"] for one in ours)),
        row("  overlaps seen", str(sum(one["overlaps"] for one in ours)), "", None, "0",
            not any(one["overlaps"] for one in ours)),
    ], {"crowd": {"stile": ours[-1]}}


def cpu_row(lines):
    ours, bare, ratio = compare(lines, "subject", "stile", "zookeeper", "mean_cpu_ns")
    return row("  CPU of the client per pair", time_text(ours), "C client " + time_text(bare),
               ratio)


def in_flight(bench):
    with server(bench) as zookeeper:
        lines = bench.run("inflight", zookeeper.url, "zookeeper", bench.rounds(40), IN_FLIGHT, 200)
    ours, bare, ratio = compare(lines, "subject", "stile", "zookeeper", "per_s")
    return [row("zookeeper: %d names in flight" % IN_FLIGHT, "%.0f pairs/s" % ours,
                "C client %.0f" % bare, ratio, "0.75 x", ratio >= 0.75), cpu_row(lines)], {}


def handover(bench):
    """The waiter has been parked for a while; and the bare client has been idle for as long."""
    with server(bench) as zookeeper:
        lines = bench.run("handover", zookeeper.url, bench.rounds(20), 20, "free", PARKED_MS)
        theirs = peers(bench, "handover", zookeeper.hosts, bench.rounds(100))
    ours, bare, ratio = compare(lines, "way", "stile", "ping", "p50_ns")
    return [row("zookeeper: hand-over, parked for %d ms, p50" % PARKED_MS, time_text(ours),
                "bare write " + time_text(bare), ratio, "2 x", ratio <= 2)] + peer_rows(
                    theirs, ours), {}


def cells(bench):
    """A value that is replaced if its version is the one before, and a bare setData that does the same."""
    def swap(url, rounds, size):
        return bench.run("cells", url, "zookeeper", bench.rounds(rounds), 64, size, 1)
    rows = []
    for label, size in (("100 bytes", 100), ("64 KiB", 65536)):
        with server(bench, lambda started: swap(started.url + "/warm", 20, 100)) as zookeeper:
            lines = swap(zookeeper.url, 40, size)
        for series, what in (("cell", ""), ("guarded", ", with the same token")):
            ours, bare, ratio = compare(lines, "series", series, "bare", "p50_ns")
            rows.append(row("zookeeper: cell swapped%s, %s, p50" % (what, label), time_text(ours),
                            "bare setData " + time_text(bare), ratio, "1.2 x", ratio <= 1.2))
    return rows, {}


def runkill(bench):
    with server(bench, lambda started: runkill_at(bench, "warm", started.url, 50)) as zookeeper:
        return runkill_at(bench, "zookeeper", zookeeper.url, bench.rounds(100))


def memory(bench):
    """A client that holds one name."""
    with server(bench) as zookeeper:
        rss_kib = bench.run("keep", zookeeper.url, 1, 10000, 1)[-1]["rss_kib"]
        theirs = peers(bench, "pair", zookeeper.hosts, 100)
    return [row("zookeeper: memory of a client", "%.1f MB" % (rss_kib / 1024), ", ".join(
        "%s %.0f MB" % (name, found["rss_kib"] / 1024) for name, found in theirs.items() if found),
        None, "12 MB", rss_kib < 12 * 1024)], {}


ALL = {"zookeeper-pair": pair, "zookeeper-crowd": crowd, "zookeeper-inflight": in_flight,
       "zookeeper-handover": handover, "zookeeper-runkill": runkill, "zookeeper-memory": memory,
       "zookeeper-cells": cells}
