# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The figures of etcd, on servers of their own with their disks synced, compared with a bare transaction and
deletion over our own connection, and concurrency.Mutex of etcd's Go client."""
import contextlib
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys

from figures import NotMeasured, compare, row, runkill_at, time_text

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "servers"))
from etcd_server import EtcdServer  # noqa: E402

PARKED_MS = 250  # a watch that began late is served by then, of whichever client
IN_FLIGHT = 64
PAIRS = 64


@contextlib.contextmanager
def server(members=1):
    try:
        started = EtcdServer(members)
    except OSError as reason:
        raise NotMeasured(str(reason)) from reason
    with started:
        yield started


class Go:
    """The same work by etcd's Go client."""

    def __init__(self, bench, etcd):
        self.bench, self.etcd = bench, etcd
        self.program = os.path.join(bench.programs, "go", "peers_etcd")
        bench.output([str(HERE.parent / "tools" / "go-build"), str(HERE / "peers_etcd.go"),
                      self.program], 600)

    def __call__(self, *args):
        return json.loads(self.bench.output([self.program, self.etcd.hosts,
                                             *map(str, args)]).stdout)


def medians(rounds, *names):
    return [statistics.median(one[name] for one in rounds) for name in names]


def ratio_of(rounds, ours, theirs):
    return statistics.median(one[ours] / one[theirs] for one in rounds)


def one_round(bench, etcd, go):
    lines = bench.run("pair", etcd.url, "etcd", 1, PAIRS, 1, 1)
    return {"ours": lines[1]["p50_ns"], "bare": lines[0]["p50_ns"], "lines": lines,
            "go": go("pair", PAIRS)["p50_ns"], "go_bare": go("bare", PAIRS)["p50_ns"]}


def pair(bench):
    with server() as etcd:
        go = Go(bench, etcd)
        rounds = [one_round(bench, etcd, go) for _ in range(bench.rounds(30))]
    ours, bare, theirs, their_bare = medians(rounds, "ours", "bare", "go", "go_bare")
    ratio = ratio_of(rounds, "ours", "go")
    return [
        row("etcd: acquire+release, p50", time_text(ours), "Go's Mutex " + time_text(theirs), ratio,
            "1 x, aim 0.85", ratio <= 1),
        row("  compared with a bare transaction and deletion", time_text(ours),
            "bare " + time_text(bare), ratio_of(rounds, "ours", "bare")),
        row("  Go's Mutex compared with Go, bare", time_text(theirs), "Go, bare " + time_text(their_bare),
            ratio_of(rounds, "go", "go_bare")),
    ], {"server_pair": {"etcd": [line for one in rounds for line in one["lines"]]}}


def cpu_of(command):
    """Of all its threads."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(getattr(after, name) - getattr(before, name) for name in ("ru_utime", "ru_stime"))


def cpu(bench):
    """What more pairs add to a run of ours."""
    few = 300
    with server() as etcd:
        go = Go(bench, etcd)
        command = [bench.program("pair"), etcd.url, "solo"]
        rounds = []
        for _ in range(bench.rounds(10)):
            less, more = (cpu_of([*command, str(pairs)]) for pairs in (few, 3 * few))
            rounds.append({"ours": (more - less) * 1e9 / (2 * few),
                           "go": go("pair", 2 * few)["cpu_ns"]})
    ours, theirs = medians(rounds, "ours", "go")
    ratio = ratio_of(rounds, "ours", "go")
    return [row("etcd: CPU of the client per pair", time_text(ours), "Go " + time_text(theirs),
                ratio, "0.4 x", ratio <= 0.4)], {}


def crowd(bench):
    rounds, for_ms = (1, 500) if bench.quick else (4, 2500)
    rows = []
    for members in 1, 3:
        with server(members) as etcd:
            go = Go(bench, etcd)
            found = [{"ours": bench.run("crowd", etcd.url, "stile", 8, for_ms)[0],
                      "go": go("crowd", 8, for_ms)["per_s"]} for _ in range(rounds)]
        rates = [{"ours": one["ours"]["per_s"], "go": one["go"]} for one in found]
        ours, theirs = medians(rates, "ours", "go")
        ratio = ratio_of(rates, "ours", "go")
        overlaps = sum(one["ours"]["overlaps"] for one in found)
        rows += [
            row("etcd: 8 processes, per second, members: %d" % members, "%.0f" % ours,
                "Go %.0f" % theirs, ratio, "5 x", ratio >= 5),
            row("  least / most served",
                "%.3f" % min(one["ours"]["least_to_most"] for one in found)),
            row("  overlaps seen", str(overlaps), "", None, "0", overlaps == 0),
        ]
    return rows, {"crowd": {"stile": found[0]["ours"]}}


def in_flight(bench):
    with server() as etcd:
        lines = bench.run("inflight", etcd.url, "etcd", bench.rounds(20), IN_FLIGHT, 400)
    ours, bare, ratio = compare(lines, "subject", "stile", "etcd", "per_s")
    return [row("etcd: %d names in flight" % IN_FLIGHT, "%.0f pairs/s" % ours,
                "bare %.0f" % bare, ratio, "0.75 x", ratio >= 0.75)], {}


def handover(bench):
    """At once, and to a waiter that has been parked for a while; a bare put has been idle as long."""
    with server() as etcd:
        go = Go(bench, etcd)
        at_once = bench.run("handover", etcd.url, bench.rounds(20), 40, "free")
        parked = bench.run("handover", etcd.url, bench.rounds(10), 10, "free", PARKED_MS)
        theirs = go("handover", bench.rounds(50), PARKED_MS)["p50_ns"]
    rows = []
    for label, lines, most in (("", at_once, 2.5), (", parked for %d ms" % PARKED_MS, parked, 2)):
        ours, put, ratio = compare(lines, "way", "stile", "ping", "p50_ns")
        rows.append(row("etcd: hand-over%s, p50" % label, time_text(ours), "bare put "
                        + time_text(put), ratio, "%.1f x" % most, ratio <= most))
    rows.append(row("  compared with Go's Mutex, parked", time_text(ours), "Go " + time_text(theirs),
                    ours / theirs))
    return rows, {}


def cells(bench):
    """A value that is replaced if its version is the one before, beside a bare transaction."""
    rows = []
    for label, size in (("100 bytes", 100), ("64 KiB", 65536)):
        with server() as etcd:
            lines = bench.run("cells", etcd.url, "etcd", bench.rounds(40), 32, size, 1)
        for series, what in (("cell", ""), ("guarded", ", with the same token")):
            ours, bare, ratio = compare(lines, "series", series, "bare", "p50_ns")
            rows.append(row("etcd: cell swapped%s, %s, p50" % (what, label), time_text(ours),
                            "bare " + time_text(bare), ratio, "1.2 x", ratio <= 1.2))
    return rows, {}


def runkill(bench):
    with server() as etcd:
        return runkill_at(bench, "etcd", etcd.url, bench.rounds(100))


def memory(bench):
    """A client that holds one name."""
    with server() as etcd:
        rss_kib = bench.run("keep", etcd.url, 1, 10000, 1)[-1]["rss_kib"]
        theirs = Go(bench, etcd)("pair", 100)["rss_kib"]
    return [row("etcd: memory of a client", "%.1f MB" % (rss_kib / 1024),
                "Go %.0f MB" % (theirs / 1024), None, "12 MB", rss_kib < 12 * 1024)], {}


ALL = {"etcd-pair": pair, "etcd-cpu": cpu, "etcd-crowd": crowd, "etcd-inflight": in_flight,
       "etcd-handover": handover, "etcd-runkill": runkill, "etcd-memory": memory,
       "etcd-cells": cells}
