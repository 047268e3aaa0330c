# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What is measured alike on every database: beside its bare client library and a peer."""
import contextlib
import functools
import json
import pathlib
import shutil
import statistics
import subprocess
from collections import namedtuple

from figures import NotMeasured, column, compare, row, runkill_in_modes, syscalls_of_pair, time_text
from places import PLACES, pinned, staying_on

HERE = pathlib.Path(__file__).resolve().parent

PARKED_MS = 50  # peers.py waits for as long

# Transactions that are guarded: what is in them, and how many times as long they may take with the
# same token and with a larger one. The target counts for pgbench's; the others show what it hides.
SHAPES = (("standard", "pgbench's", (1.15, 1.3)), ("usual", "read, update, insert", (None, None)),
          ("small", "one update", (None, None)))

# start: a server; library: its subjects are LIBRARY, LIBRARY-wait and LIBRARY-row; peers: a program;
# with_token: how many times LIBRARY-row a pair with a token may take, or None; sessions: the mode by
# default; to_bare: how many times LIBRARY a pair with a token may take in each of PLACES, or None; rows_per_s: what
# eight processes should reach with mode=table, or None.
Database = namedtuple("Database", "name start library peer peers with_token sessions to_bare rows_per_s",
                      defaults=(None, None))
WAITERS, WAITERS_PER_S = 500, 300


@contextlib.contextmanager
def server(bench, database, setup=True, core=None):
    """With its disk synced, as it should be. On the nth core that we may use, or wherever it likes."""
    bench.need_command()
    try:
        with staying_on(core):
            started = database.start()
    except (OSError, subprocess.CalledProcessError) as reason:
        raise NotMeasured(str(reason)) from reason
    with started:
        if setup:
            bench.output([bench.stile, "setup", started.url])
        yield started


def peer(bench, database, *args, core=None):
    """What the peer needs for the same, or None where it is missing."""
    try:
        return json.loads(bench.output(pinned(core, ["/usr/bin/python3", HERE / database.peers,
                                                     *args])).stdout)
    except NotMeasured:
        return None


def peer_row(database, ours, theirs, bound=None):
    name = database.peer
    if not theirs:
        return row("  compared with " + name, "", name + " is missing")
    ratio = ours / theirs["p50_ns"]
    return row("  compared with " + name, time_text(ours), name + " " + time_text(theirs["p50_ns"]),
               ratio, "%.1f x" % bound if bound else "", ratio <= bound if bound else None)


def syscalls(bench, database):
    """Of the calling thread: under strace a pair takes so long that the other looks around in each."""
    if not shutil.which("strace"):
        return row("  syscalls per pair", "strace is missing")
    with server(bench, database, False) as started:
        ours, bare = (syscalls_of_pair(bench, started.url, 500, "-q", whose)
                      for whose in ("stile", database.library))
    return row("  syscalls per pair", "%.2f" % ours, "%s %.2f" % (database.library, bare))


def pair(database, bench):
    rows, samples = [], {}
    for label, core in PLACES:
        with server(bench, database, False, 0) as started:
            lines = bench.run("pair", started.url, database.library, bench.rounds(200), 64, 1,
                              core + 1)
            theirs = peer(bench, database, "pair", started.port, 2000, core=core)
        samples["without a token, " + label] = lines
        ours, bare, ratio = compare(lines, "series", "one", "peer_one", "p50_ns")
        rows.append(row("%s: acquire+release, without a token, %s, p50" % (database.name, label),
                        time_text(ours), "%s %s" % (database.library, time_text(bare)), ratio,
                        "1.1 x", ratio <= 1.1))
        rows.append(peer_row(database, ours, theirs))
    rows.append(syscalls(bench, database))
    for label, core in PLACES:
        bounds = [("-row", database.with_token)]
        if database.to_bare:
            bounds += [("", database.to_bare[label])]
        for suffix, most in bounds:
            with server(bench, database, True, 0) as started:
                lines = bench.run("pair", started.url, database.library + suffix, bench.rounds(60), 64,
                                  1, core + 1)
            samples["with a token, %s, beside %s" % (label, database.library + suffix)] = lines
            ours, bare, ratio = compare(lines, "series", "one", "peer_one", "p50_ns")
            rows.append(row("%s: acquire+release, with a token, %s, p50" % (database.name, label),
                            time_text(ours), "%s %s" % (database.library + suffix, time_text(bare)), ratio,
                            "%.2f x" % most if most else "", ratio <= most if most else None))
    return rows, {"server_pair": samples}


def parked(bench, database, started):
    """To a waiter that has waited for a while, in turn with the peer: medians of both, and of the
    ratios of the rounds. None for the peer where it is missing."""
    ours, theirs = [], []
    for _ in range(bench.rounds(50) // 10 or 1):
        lines = bench.run("handover", started.url, 1, 20, "free", PARKED_MS)
        ours += column(lines, "way", "stile", "p50_ns")
        found = peer(bench, database, "handover", started.port, 20)
        theirs += [found["p50_ns"]] if found else []
    if len(theirs) < len(ours):
        return statistics.median(ours), None, None
    return (statistics.median(ours), statistics.median(theirs),
            statistics.median(a / b for a, b in zip(ours, theirs)))


def handover(database, bench):
    """Two processes, each of which waits inside the server until the other one gives."""
    rows = []
    for label, setup in ("without a token", False), ("with a token", True):
        with server(bench, database, setup) as started:
            lines = bench.run("handover", started.url, bench.rounds(30), 100, "free")
            ours, theirs, ratio = parked(bench, database, started)
        at_once, ping, to_ping = compare(lines, "way", "stile", "ping", "p50_ns")
        rows.append(row("%s: hand-over, %s, p50" % (database.name, label), time_text(at_once),
                        "select 1 " + time_text(ping), to_ping))
        what = "  to a waiter parked for %d ms, compared with %s" % (PARKED_MS, database.peer)
        if theirs is None:
            rows.append(row(what, time_text(ours), database.peer + " is missing"))
            continue
        rows.append(row(what, time_text(ours), "%s %s" % (database.peer, time_text(theirs)), ratio,
                        "1.1 x" if setup else "1.0 x", ratio <= (1.1 if setup else 1)))
    return rows, {}


def crowds(bench, database, for_ms):
    """Bare, ours and the peer's in turn: a list of each; without a token, as the peer has none."""
    found = {"bare": [], "ours": [], "peer": []}
    with server(bench, database, False) as started:
        for _ in range(3):
            found["bare"] += bench.run("crowd", started.url, database.library + "-wait", 8, for_ms)
            found["ours"] += bench.run("crowd", started.url, "stile", 8, for_ms)
            found["peer"].append(peer(bench, database, "crowd", started.port, for_ms))
    return found


def crowds_with_a_token(bench, database, for_ms):
    """Ours and the peer's in turn, on a server whose first epoch has begun."""
    found = {"ours": [], "peer": []}
    with server(bench, database) as started:
        bench.output([bench.stile, "run", "-e", started.url, "first", "--", "true"])
        for _ in range(5):
            found["ours"] += bench.run("crowd", started.url, "stile", 8, for_ms)
            found["peer"].append(peer(bench, database, "crowd", started.port, for_ms))
    return found


def beside(name, ours, theirs, bound=None, what=""):
    """Acquisitions a second, median over the rounds."""
    if None in theirs:
        return row("  compared with " + name, "", name + " is missing")
    ratio = statistics.median(a["per_s"] / b["per_s"] for a, b in zip(ours, theirs))
    per_s = [statistics.median(one["per_s"] for one in some) for some in (ours, theirs)]
    return row("  acquisitions per second, %scompared with %s" % (what, name), "%.0f" % per_s[0],
               "%s %.0f" % (name, per_s[1]), ratio, "%.1f x" % bound if bound else "",
               ratio >= bound if bound else None)


def total(found, which):
    return sum(sum(one[which]) if which == "served" else one[which] for one in found)


def handed_over(ours, what):
    """How many acquisitions were by another process than the one before."""
    served, again = total(ours, "served"), total(ours, "again")
    return row("  hand-overs, %s" % what, "%d of %d" % (served - again, served), "", (served - again) / served,
               "all", again == 0)


def crowd(database, bench):
    """Of the shares the worst round counts, of what went wrong the sum."""
    for_ms, library = 400 if bench.quick else 2000, database.library
    found = crowds(bench, database, for_ms)
    counted = crowds_with_a_token(bench, database, for_ms)
    ours, bare = found["ours"], found["bare"]
    least = [min(one["least_to_most"] for one in some) for some in (ours, bare)]
    overlaps = total(ours + counted["ours"], "overlaps")
    return [
        row("%s: 8 processes: least / most served" % database.name, "%.3f" % least[0],
            "%s %.3f" % (library, least[1]), None, "0.95", least[0] >= 0.95),
        beside(database.peer, ours, found["peer"], 1.0),
        beside(library, ours, bare),
        beside(database.peer, counted["ours"], counted["peer"], 1.0, "with a token, "),
        handed_over(ours, "without a token"),
        handed_over(counted["ours"], "with a token"),
        row("  twice in a row, %s of %d" % (library, total(bare, "served")), str(total(bare, "again"))),
        row("  overlaps seen", str(overlaps), "", None, "0", overlaps == 0),
    ], {"crowd": {"without a token": ours[0], library: bare[0], "with a token": counted["ours"][0]}}


def guard(database, bench):
    """Transactions of anybody's program, with the guard and without."""
    rows, samples = [], {}
    for shape, statements, most in SHAPES:
        for label, core in PLACES:
            with server(bench, database, True, 0) as started:
                lines = bench.run("guarded-" + database.name, started.port, shape, bench.rounds(60), 32,
                                  core + 1)
            samples["%s, %s" % (statements, label)] = lines
            for series, what, bound in (("equal", "guarded transaction", most[0]),
                                        ("raised", "  with a larger token", most[1]),
                                        ("select", "  the guard as a function", None),
                                        ("apart", "  the guard in a message of its own", None),
                                        ("read", "  a bare locking SELECT in its place", None)):
                if not column(lines, "series", series, "p50_ns"):
                    continue
                ours, bare, ratio = compare(lines, "series", series, "bare", "p50_ns")
                if series == "equal":
                    what = "%s: %s, %s, %s, p50" % (database.name, what, statements, label)
                rows.append(row(what, time_text(ours), "without " + time_text(bare), ratio,
                                "%.2f x" % bound if bound else "", ratio <= bound if bound else None))
    return rows, {"guard": samples}


def cells(database, bench):
    """A cell that is replaced if its version is the one before, beside a row."""
    rows, samples = [], {}
    for size, label in (100, "100 bytes"), (65536, "64 KiB"):
        with server(bench, database, True, 0) as started:
            lines = bench.run("cells", started.url, database.library, bench.rounds(60), 32, size, 2)
        samples[label] = lines
        for series, what in (("cell", ""), ("guarded", ", with the same token")):
            ours, bare, ratio = compare(lines, "series", series, "bare", "p50_ns")
            rows.append(row("%s: cell swapped%s, %s, p50" % (database.name, what, label), time_text(ours),
                            "UPDATE " + time_text(bare), ratio, "1.2 x", ratio <= 1.2))
    return rows, {"cells": samples}


def many_waiters(bench, url):
    """Of one client, with the name going round: hand-overs a second."""
    with subprocess.Popen([bench.program("growth"), url, "waiters", str(WAITERS), "500" if bench.quick else "2000"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        program.stdout.readline()
        out, _ = program.communicate("\n")
    if program.returncode or not out:
        raise NotMeasured("bench-growth: no end")
    return 1e9 / json.loads(out.splitlines()[-1])["each_ns"]


def table(database, bench):
    """mode=table: eight processes, and a long queue, each on a server of its own."""
    crowds_of_rows = []
    with server(bench, database) as started:
        url = started.url + "?mode=table"
        bench.output([bench.stile, "run", "-e", url, "first", "--", "true"])
        for _ in range(5):
            crowds_of_rows += bench.run("crowd", url, "stile", 8, 400 if bench.quick else 2000)
    with server(bench, database) as started:
        queue_per_s = many_waiters(bench, started.url + "?mode=table")
    per_s, least = statistics.median(column(crowds_of_rows, "subject", "stile", "per_s")), database.rows_per_s
    return [row("%s: mode=table, 8 processes, per second" % database.name, "%.0f" % per_s, "", None,
                str(least or ""), per_s >= least if least else None),
            handed_over(crowds_of_rows, "mode=table"),
            row("  %d waiters, hand-overs per second" % WAITERS, "%.0f" % queue_per_s, "", None, str(WAITERS_PER_S),
                queue_per_s >= WAITERS_PER_S)], {"table": crowds_of_rows}


def runkill(database, bench):
    with server(bench, database) as started:
        return runkill_in_modes(bench, database.name, started.url,
                                {database.sessions: "", "table": "?mode=table", "row": "?mode=row"})


def all_of(database):
    return {"%s-%s" % (database.name, figure.__name__): functools.partial(figure, database)
            for figure in (pair, handover, crowd, table, runkill, guard, cells)}
