# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The figures: which program measures them, what is computed from its lines, what must be reached.

A figure returns rows for the table and samples for the plots. A row:
  what, ours, beside   texts
  ratio                ours to the limit or peer of the same round, median over rounds; or None
  must, reached        text of the target ("": for comparison only), and whether it was met
"""
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import tempfile

MANY_SIZES = (1000, 10000, 20000, 40000)
MANY_TIMES = ("make_ns", "take_ns", "give_ns")


class NotMeasured(Exception):
    """Why a figure could not be had."""


class Bench:
    """Where programs and state are, and how long to take."""

    def __init__(self, build, directory, quick):
        os.environ["STILE_MODULES"] = os.path.join(os.path.abspath(build), "src")
        self.programs = os.path.join(os.path.abspath(build), "bench")
        self.stile = os.path.join(os.path.abspath(build), "cli", "stile")
        self.directory = directory
        self.quick = quick

    def rounds(self, full):
        return max(3, full // 10) if self.quick else full

    def path(self, name):
        """A directory for one engine, empty at first, and with room for flock's files."""
        path = os.path.join(self.directory, name)
        os.makedirs(path, mode=0o700, exist_ok=True)
        return path

    def program(self, name):
        return os.path.join(self.programs, "bench-" + name)

    def run(self, name, *args):
        """The lines of one of our programs."""
        return [json.loads(line) for line in
                self.output([self.program(name), *map(str, args)]).stdout.splitlines()]

    def output(self, command, timeout=120):
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  timeout=timeout, check=False)
        except OSError as error:
            raise NotMeasured("%s: %s" % (command[0], error.strerror)) from error
        except subprocess.TimeoutExpired as error:
            raise NotMeasured("%s: no end within %d s" % (command[0], timeout)) from error
        if done.returncode != 0:
            said = done.stderr.strip().splitlines()
            raise NotMeasured(said[-1] if said else "%s: status %d" % (command[0], done.returncode))
        return done

    def need_command(self):
        if not os.access(self.stile, os.X_OK):
            raise NotMeasured("the stile command has not been built")


def row(what, ours, beside="", ratio=None, must="", reached=None):
    return {"what": what, "ours": ours, "beside": beside, "ratio": ratio, "must": must,
            "reached": reached}


def missing(name, reason):
    return row(name, reason, must="to be measured")


def percentile(values, p):
    """By nearest rank: p99 of 100 values is the second largest."""
    return sorted(values)[max(0, math.ceil(p / 100 * len(values)) - 1)]


def column(lines, key, field, value):
    return [line[value] for line in lines if line[key] == field]


def time_text(ns):
    if ns < 1e3:
        return "%.0f ns" % ns
    return "%.2f us" % (ns / 1e3) if ns < 1e6 else "%.2f ms" % (ns / 1e6)


def compare(lines, key, ours, peer, value):
    """Medians of both, and the median of the ratios of neighbours in the same round."""
    a, b = column(lines, key, ours, value), column(lines, key, peer, value)
    if not a or len(a) != len(b):
        raise NotMeasured("no lines for %s or %s" % (ours, peer))
    return (statistics.median(a), statistics.median(b),
            statistics.median(x / y for x, y in zip(a, b)))


def pair_rows(what, lines, ours, peer):
    rows = []
    for value, label in (("p50_ns", "p50"), ("mean_cpu_ns", "mean CPU")):
        a, b, ratio = compare(lines, "series", ours, peer, value)
        rows.append(row("%s, %s" % (what, label), time_text(a), "flock(2) " + time_text(b), ratio,
                        "0.25 x", ratio <= 0.25))
    return rows


def syscalls_of_pair(bench, place, few, threads, *whose):
    """What one more pair adds to the syscalls of a run, as strace counts them."""
    counts = []
    for pairs in (few, 3 * few):
        path = os.path.join(bench.directory, "strace")
        bench.output(["strace", threads, "-c", "-o", path, bench.program("pair"), place, "solo",
                      str(pairs), *whose])
        with open(path, encoding="utf-8") as file:
            total = re.search(r"^100.00\s+\S+\s+\S+\s+(\d+)", file.read(), re.M)
        counts.append(int(total.group(1)))
    return max(0, counts[1] - counts[0]) / (2 * few)


def pair_syscalls(bench, place, few, beside, threads="-f"):
    if not shutil.which("strace"):
        return row("syscalls per pair", "strace is missing")
    return row("syscalls per pair", "%.2f" % syscalls_of_pair(bench, place, few, threads), beside)


def pair(bench):
    rounds, pairs = bench.rounds(40), 20000
    lines = bench.run("pair", bench.path("one"), "flock", rounds, pairs, 1, 1)
    crowded = bench.run("pair", bench.path("among"), "flock", rounds, pairs, 10000, 1)
    ours = [line for line in lines + crowded if not line["series"].startswith("peer")]
    switches, count = (sum(line[key] for line in ours) for key in ("switches", "pairs"))
    rows = pair_rows("acquire+release, one name", lines, "one", "peer_one")
    rows += pair_rows("  with 10,000 other names held", crowded, "among", "peer_one")
    rows += pair_rows("  each of 10,000 in turn", crowded, "each", "peer_each")
    rows.append(row("voluntary context switches in %d pairs" % count, str(switches), must="none",
                    reached=switches == 0))
    try:
        rows.append(pair_syscalls(bench, bench.path("solo"), 1000, "flock(2) 2"))
    except NotMeasured as reason:
        rows.append(row("syscalls per pair", "not counted: %s" % reason))
    return rows, {"pair": lines + crowded}


def handover(bench):
    rows, samples = [], {}
    for place, label in (("apart", "two cores"), ("together", "one core")):
        lines = bench.run("handover", bench.path(place), bench.rounds(30), 2000, place)
        samples[place] = lines
        ours, limit, ratio = compare(lines, "way", "stile", "futex", "p50_ns")
        rows.append(row("hand-over, %s, p50" % label, time_text(ours), "futex " + time_text(limit),
                        ratio, "2 x", ratio <= 2))
        ours, limit, ratio = compare(lines, "way", "stile", "socket", "p50_ns")
        rows.append(row("  compared with a socket and epoll", time_text(ours),
                        "socket " + time_text(limit), ratio))
        turns = [line for line in lines if line["way"] == "stile"]
        again = sum(line["again"] for line in turns)
        share = again / (again + sum(line["handovers"] for line in turns))
        rows.append(row("  taken twice in a row", "%.2f %%" % (100 * share)))
    return rows, {"handover": samples}


def crowd(bench):
    for_ms = 500 if bench.quick else 5000
    found = {}
    for subject in ("stile", "flock"):
        found[subject] = bench.run("crowd", bench.path("crowd"), subject, 8, for_ms)[0]
    found["fair"] = bench.run("crowd", "local:%s?fair=1" % bench.path("crowd"), "stile", 8, for_ms)[0]
    return crowd_rows("8 processes, %.1f s" % (for_ms / 1000), found["stile"], found["flock"]) + crowd_rows(
        "8 processes with fair=1", found["fair"], found["flock"]), {"crowd": found}


def crowd_rows(title, ours, peer):
    return [
        row(title + ": least / most served",
            "%.3f" % ours["least_to_most"], "flock(2) %.3f" % peer["least_to_most"], None, "0.8",
            ours["least_to_most"] >= 0.8),
        row("  overlaps seen", str(ours["overlaps"]), "flock(2) %d" % peer["overlaps"], None, "0",
            ours["overlaps"] == 0),
        row("  acquisitions per second", "%.0f" % ours["per_s"], "flock(2) %.0f" % peer["per_s"],
            ours["per_s"] / peer["per_s"]),
    ]


def kill(bench):
    lines = bench.run("kill", bench.path("kill"), bench.rounds(100))
    ours, peer = (column(lines, "subject", s, "took_ns") for s in ("stile", "flock"))
    rows = []
    for p, must in ((50, ""), (99, "10 ms")):
        a, b = percentile(ours, p), percentile(peer, p)
        rows.append(row("holder killed -> next holds, p%d" % p, time_text(a),
                        "flock(2) " + time_text(b), a / b, must, a <= 10e6 if must else None))
    return rows, {"kill": {"stile": ours, "flock": peer}}


def runkill_lines(bench, kills, directory, *command):
    return bench.run("runkill", bench.path(directory), kills, bench.program("tree"), *command)


def runkill_at(bench, engine, url, kills):
    """The same where a server keeps the locks."""
    bench.need_command()
    lines = runkill_lines(bench, kills, "trees-" + engine, bench.stile, "run", "--ttl", "10s", "-e",
                          url, "tree", "--")
    ours, both = [line["took_ns"] for line in lines], sum(line["both_alive"] for line in lines)
    rows = [row("%s: stile run killed -> next tree runs, p%d" % (engine, p),
                time_text(percentile(ours, p)), "", None, "100 ms" if p == 99 else "",
                percentile(ours, p) <= 100e6 if p == 99 else None) for p in (50, 99)]
    rows.append(row("  both trees alive", "%d of %d" % (both, len(lines)), "", None, "never",
                    both == 0))
    return rows, {"runkill": ours}


def runkill_in_modes(bench, engine, url, queries):
    """One after the other, on the same servers."""
    rows = []
    for mode, query in queries.items():
        rows += runkill_at(bench, "%s %s" % (engine, mode), url + query, bench.rounds(100))[0]
    return rows, {}


def runkill(bench):
    """flock -o gives back at once and leaves the tree alone: its time is that of the start of the
    next one, and the check for two trees alive must find them."""
    bench.need_command()
    kills = bench.rounds(100)
    lines = runkill_lines(bench, kills, "trees", bench.stile, "run",
                          "-e", "local:" + bench.path("state"), "tree", "--")
    orphans = runkill_lines(bench, kills // 2, "orphans", "flock", "-o",
                            os.path.join(bench.path("orphans"), "lock"))
    ours, peer = ([line["took_ns"] for line in some] for some in (lines, orphans))
    both, seen = (sum(line["both_alive"] for line in some) for some in (lines, orphans))
    if seen != len(orphans):
        raise NotMeasured("the check for two trees alive saw only %d of %d under flock -o"
                          % (seen, len(orphans)))
    rows = []
    for p, must in ((50, ""), (99, "50 ms")):
        a, b = percentile(ours, p), percentile(peer, p)
        rows.append(row("stile run killed -> next tree runs, p%d" % p, time_text(a),
                        "flock -o " + time_text(b), a / b, must, a <= 50e6 if must else None))
    rows.append(row("  both trees alive", "%d of %d" % (both, len(lines)),
                    "flock -o %d of %d" % (seen, len(orphans)), None, "never", both == 0))
    return rows, {"runkill": ours}


def spawn(bench):
    bench.need_command()
    lines = bench.run("spawn", bench.rounds(300),
                      "stile", bench.stile, "run", "-e", "local:" + bench.path("spawn"), "x",
                      "--", "true", "---",
                      "flock", "flock", os.path.join(bench.path("spawn"), "x.flock"), "true")
    ours, peer, ratio = compare(lines, "command", "stile", "flock", "took_ns")
    return [row("stile run x -- true, p50", time_text(ours), "flock(1) " + time_text(peer), ratio,
                "1.5 x", ratio <= 1.5)], {"spawn": lines}


def many_medians(lines):
    """One line a size: the median of each value."""
    medians = {}
    for size in sorted({line["locks"] for line in lines}):
        same = [line for line in lines if line["locks"] == size]
        medians[size] = {key: statistics.median(line[key] for line in same)
                         for key in same[0] if key not in ("subject", "locks")}
    return medians


def many_row(what, size, cost):
    return row(what,
               "make %s, take %s, give %s" % tuple(time_text(cost[key]) for key in MANY_TIMES),
               "memory %.0f B, file %.0f B each" % (cost["memory_bytes"] / size,
                                                    cost["file_bytes"] / size))


def many_files(bench):
    """flock(2) needs a file and a descriptor for each, of which there may be too few."""
    try:
        line = bench.run("many", bench.path("files"), "flock", 10000)[0]
    except NotMeasured as reason:
        return [row("  10000 files with flock(2)", str(reason))]
    return [many_row("  10000 files with flock(2)", 10000, line)]


def many_growth(medians, few, most):
    """How much more one of many costs than one of few, in time, and what each one between takes."""
    slow, quick = (sum(medians[size][key] for key in MANY_TIMES) for size in (most, few))
    grown = sum(medians[most][key] - medians[few][key] for key in ("memory_bytes", "file_bytes"))
    return slow / quick, grown / (most - few)


def many(bench):
    lines = []
    for turn in range(11):  # the first open is one sample of each, which any preemption spoils
        for size in MANY_SIZES:
            lines += bench.run("many", bench.path("many-%d-%d" % (turn, size)), "stile", size)
    medians = many_medians(lines)
    rows = [many_row("%d locks of one client" % size, size, cost)
            for size, cost in medians.items()]
    rows += many_files(bench)
    growth, _ = many_growth(medians, 10000, 40000)
    rows.append(row("  one of 40,000 to one of 10,000", "", "", growth, "linear: 2 x", growth <= 2))
    growth, each = many_growth(medians, 1000, 40000)
    rows.append(row("  one of 40,000 to one of 1,000", "%.0f B more for each" % each, "", growth))
    return rows, {"many": medians}


def names_opened(bench, few, most):
    """Opening after few and after many names, in turn; lines of both."""
    lines = []
    for turn in range(11):  # the first open is one sample of each, which any preemption spoils
        for size in few, most:
            place = bench.path("names-open-%d-%d" % (turn, size))
            lines += bench.run("names", place, "open", size, 50)
    return lines


def names_open_rows(lines, few, most):
    rows = []
    for left, label in (("used", "used before"), ("held", "held by a process that died"),
                       ("kept", "kept by a hold")):
        def median(size, key, left=left):
            return statistics.median(line[key] for line in lines
                                     if line["names"] == size and line["left"] == left)
        for key, which in ("first_ns", "first open"), ("p50_ns", "later opens"):
            ratio = median(most, key) / median(few, key)
            rows.append(row("  %s, %d names %s" % (which, most, label),
                            "%.0f us" % (median(most, key) / 1e3),
                            "%d: %.0f us" % (few, median(few, key) / 1e3), ratio, "the same: 1.5 x",
                            ratio <= 1.5))
    return rows


def names_flat_rows(some, many, bare_some, bare_many):
    """What one of many costs, compared with one of some: the caches' part is in the bare table as well."""
    rows = []
    for key, what in (("take_ns", "acquire"), ("give_ns", "release"), ("again_ns", "each again in turn")):
        beside = "" if key not in bare_many else "bare table %s, %.1f x" % (
            time_text(bare_many[key]), bare_many[key] / bare_some[key])
        growth = many[key] / some[key]
        rows.append(row("  %s, one of %d to one of %d" % (what, many["names"], some["names"]),
                        "%s to %s" % (time_text(many[key]), time_text(some[key])), beside, growth))
    return rows


def names(bench):
    in_turn, at_once = (1000000, 100000) if bench.quick else (10000000, 1000000)
    some_in_turn = bench.run("names", bench.path("names-turn-some"), "turn", 10000)[0]
    turn = bench.run("names", bench.path("names-turn"), "turn", in_turn)[0]
    bare_some, some = bench.run("names", bench.path("names-held-some"), "held", 10000)
    bare, held = bench.run("names", bench.path("names-held"), "held", at_once)
    opened = names_opened(bench, 10, at_once)
    rows = [row("%d names in turn" % in_turn, "%.1f us each, file %.1f MiB" % (
                turn["each_ns"] / 1e3, turn["file_bytes"] / 2**20), "", None, "10 MiB",
                turn["file_bytes"] <= 10 * 2**20),
            row("  one of %d to one of 10000" % in_turn, "", "", turn["each_ns"] / some_in_turn["each_ns"],
                "flat: 1.5 x", turn["each_ns"] <= 1.5 * some_in_turn["each_ns"]),
            row("%d names held at once" % at_once, "acquire %.1f, release %.1f us; %.0f B each" % (
                held["take_ns"] / 1e3, held["give_ns"] / 1e3, held["file_bytes"] / at_once)),
            row("  file when all are released", "%.1f MiB" % (held["left_bytes"] / 2**20),
                "full: %.1f MiB" % (held["file_bytes"] / 2**20), None, "10 MiB",
                held["left_bytes"] <= 10 * 2**20)]
    rows += names_flat_rows(some, held, bare_some, bare)
    rows += names_open_rows(opened, 10, at_once)
    return rows, {"names": {"turn": turn, "held": held, "bare": bare, "open": opened}}


def cells(bench):
    """A value that is replaced if its version is the one before, beside LMDB's own transaction: on the
    disk of the temporary directory, and in memory, where no sync hides the rest."""
    rows = []
    places = [("", bench.path("cells"), bench.rounds(100), 10)]
    shm = tempfile.mkdtemp(prefix="stile-bench-", dir="/dev/shm") if os.path.isdir("/dev/shm") else None
    if shm:
        places.append((", in memory", shm, bench.rounds(40), 1000))
    try:
        for where, place, rounds, calls in places:
            for label, size in (("100 bytes", 100), ("64 KiB", 65536)):
                path = tempfile.mkdtemp(dir=place)
                lines = bench.run("cells", "local:" + path, "lmdb", rounds, calls, size, 1)
                for series, what in (("cell", ""), ("guarded", ", with the same token")):
                    ours, bare, ratio = compare(lines, "series", series, "bare", "p50_ns")
                    must = "" if where else "1.2 x"
                    rows.append(row("local: cell swapped%s%s, %s, p50" % (what, where, label),
                                    time_text(ours), "LMDB " + time_text(bare), ratio, must,
                                    ratio <= 1.2 if must else None))
    finally:
        if shm:
            shutil.rmtree(shm)
    return rows, {}


ALL = {"pair": pair, "handover": handover, "crowd": crowd, "kill": kill, "runkill": runkill,
       "spawn": spawn, "many": many, "names": names, "cells": cells}
