"""What is measured alike on every database: beside its bare client library and beside a peer."""
import contextlib
import functools
import json
import pathlib
import subprocess
from collections import namedtuple

from figures import NotMeasured, compare, row, time_text

HERE = pathlib.Path(__file__).resolve().parent

# start: a server; library: its subjects are LIBRARY, LIBRARY-wait and LIBRARY-row; peers: a program.
Database = namedtuple("Database", "name start library peer peers")


@contextlib.contextmanager
def server(bench, database, setup=True):
    """With its disk synced, as it should be."""
    bench.need_command()
    try:
        started = database.start()
    except (OSError, subprocess.CalledProcessError) as reason:
        raise NotMeasured(str(reason)) from reason
    with started:
        if setup:
            bench.output([bench.stile, "setup", started.url])
        yield started


def peer(bench, database, *args):
    """What the peer needs for the same, or None where it is missing."""
    try:
        return json.loads(bench.output(["/usr/bin/python3", str(HERE / database.peers),
                                        *map(str, args)]).stdout)
    except NotMeasured:
        return None


def peer_row(database, ours, theirs, bound=None):
    name = database.peer
    if not theirs:
        return row("  beside " + name, "", name + " is missing")
    ratio = ours / theirs["p50_ns"]
    return row("  beside " + name, time_text(ours), name + " " + time_text(theirs["p50_ns"]),
               ratio, "%.1f x" % bound if bound else "", ratio <= bound if bound else None)


def pair(database, bench):
    rows, samples = [], {}
    for told, subject, setup, most in (
            ("without a token", database.library, False, 1.1),
            ("with a token", database.library + "-row", True, 1.2)):
        with server(bench, database, setup) as started:
            lines = bench.run("pair", started.url, subject, bench.rounds(100), 64, 1, 1)
            theirs = peer(bench, database, "pair", started.port, 2000) if not setup else None
        samples[told] = lines
        ours, bare, ratio = compare(lines, "series", "one", "peer_one", "p50_ns")
        rows.append(row("%s: acquire+release, %s, p50" % (database.name, told), time_text(ours),
                        "%s %s" % (subject, time_text(bare)), ratio, "%.1f x" % most,
                        ratio <= most))
        if not setup:
            rows.append(peer_row(database, ours, theirs))
    return rows, {"server_pair": samples}


def handover(database, bench):
    """Two processes, each of which waits inside the server until the other one gives."""
    rows = []
    for told, setup in ("without a token", False), ("with a token", True):
        with server(bench, database, setup) as started:
            lines = bench.run("handover", started.url, bench.rounds(30), 100, "free")
            theirs = peer(bench, database, "handover", started.port, 50)
        ours, ping, ratio = compare(lines, "way", "stile", "ping", "p50_ns")
        rows.append(row("%s: hand-over, %s, p50" % (database.name, told), time_text(ours),
                        "select 1 " + time_text(ping), ratio))
        rows.append(peer_row(database, ours, theirs, None if setup else 1.0))
    return rows, {}


def crowd(database, bench):
    for_ms = 500 if bench.quick else 5000
    rows, samples, library = [], {}, database.library
    with server(bench, database, False) as started:
        bare = bench.run("crowd", started.url, library + "-wait", 8, for_ms)[0]
        found = bench.run("crowd", started.url, "stile", 8, for_ms)[0]
        theirs = peer(bench, database, "crowd", started.port, for_ms)
    with server(bench, database) as started:
        samples["with a token"] = bench.run("crowd", started.url, "stile", 8, for_ms)[0]
    samples["without a token"], samples[library] = found, bare
    rows.append(row(database.name + ": 8 processes: acquisitions a second",
                    "%.0f" % found["per_s"], "%s %.0f" % (library, bare["per_s"]),
                    found["per_s"] / bare["per_s"]))
    if theirs:
        rows.append(row("  beside " + database.peer, "%.0f" % found["per_s"],
                        "%s %.0f" % (database.peer, theirs["per_s"]),
                        found["per_s"] / theirs["per_s"], "1.0 x",
                        found["per_s"] >= theirs["per_s"]))
    else:
        rows.append(row("  beside " + database.peer, "", database.peer + " is missing"))
    rows.append(row("  with a token", "%.0f" % samples["with a token"]["per_s"]))
    rows.append(row("  least / most served", "%.3f" % found["least_to_most"],
                    "%s %.3f" % (library, bare["least_to_most"]), None, "0.95",
                    found["least_to_most"] >= 0.95))
    rows.append(row("  no hand-over", str(found["again"]), "%s %d" % (library, bare["again"]),
                    None, "0", found["again"] == 0))
    rows.append(row("  overlaps seen", str(found["overlaps"]), "", None, "0",
                    found["overlaps"] == 0))
    return rows, {"crowd": samples}


def all_of(database):
    return {"%s-%s" % (database.name, figure.__name__): functools.partial(figure, database)
            for figure in (pair, handover, crowd)}
