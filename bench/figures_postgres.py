"""The figures of postgres, on a server of their own, beside bare libpq and psycopg2."""
import contextlib
import json
import os
import pathlib
import subprocess
import sys

from figures import NotMeasured, compare, row, time_text

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "servers"))
from postgres_server import PostgresServer  # noqa: E402

PEERS = str(HERE / "peers_postgres.py")
HELD = 200


@contextlib.contextmanager
def server(bench, setup=True):
    """With its disk synced, as it should be."""
    bench.need_command()
    try:
        started = PostgresServer("-c", "max_connections=60", durable=True)
    except (OSError, subprocess.CalledProcessError) as reason:
        raise NotMeasured(str(reason)) from reason
    with started:
        if setup:
            bench.output([bench.stile, "setup", started.url])
        yield started


def peer(bench, *args):
    """What psycopg2 needs for the same, or None where it is missing."""
    try:
        return json.loads(bench.output(["/usr/bin/python3", PEERS, *map(str, args)]).stdout)
    except NotMeasured:
        return None


def peer_row(ours, theirs, bound=None):
    if not theirs:
        return row("  beside psycopg2", "", "psycopg2 is missing")
    ratio = ours / theirs["p50_ns"]
    return row("  beside psycopg2", time_text(ours), "psycopg2 " + time_text(theirs["p50_ns"]),
               ratio, "%.1f x" % bound if bound else "", ratio <= bound if bound else None)


def pair(bench):
    rows, samples = [], {}
    for told, subject, setup, most in (("without a token", "libpq", False, 1.1),
                                       ("with a token", "libpq-row", True, 1.2)):
        with server(bench, setup) as postgres:
            lines = bench.run("pair", postgres.url, subject, bench.rounds(100), 64, 1, 1)
            theirs = peer(bench, "pair", postgres.port, 2000) if not setup else None
        samples[told] = lines
        ours, bare, ratio = compare(lines, "series", "one", "peer_one", "p50_ns")
        rows.append(row("postgres: acquire+release, %s, p50" % told, time_text(ours),
                        "%s %s" % (subject, time_text(bare)), ratio, "%.1f x" % most,
                        ratio <= most))
        if not setup:
            rows.append(peer_row(ours, theirs))
    return rows, {"server_pair": samples}


def handover(bench):
    """Two processes, each of which waits inside the server until the other one gives."""
    rows = []
    for told, setup in ("without a token", False), ("with a token", True):
        with server(bench, setup) as postgres:
            lines = bench.run("handover", postgres.url, bench.rounds(30), 100, "free")
            theirs = peer(bench, "handover", postgres.port, 50)
        ours, ping, ratio = compare(lines, "way", "stile", "ping", "p50_ns")
        rows.append(row("postgres: hand-over, %s, p50" % told, time_text(ours),
                        "select 1 " + time_text(ping), ratio))
        rows.append(peer_row(ours, theirs, None if setup else 1.0))
    return rows, {}


def crowd(bench):
    for_ms = 500 if bench.quick else 5000
    rows, samples = [], {}
    with server(bench, False) as postgres:
        bare = bench.run("crowd", postgres.url, "libpq-wait", 8, for_ms)[0]
        found = bench.run("crowd", postgres.url, "stile", 8, for_ms)[0]
        theirs = peer(bench, "crowd", postgres.port, for_ms)
    with server(bench) as postgres:
        samples["with a token"] = bench.run("crowd", postgres.url, "stile", 8, for_ms)[0]
    samples["without a token"], samples["libpq"] = found, bare
    rows.append(row("postgres: 8 processes: acquisitions a second", "%.0f" % found["per_s"],
                    "libpq %.0f" % bare["per_s"], found["per_s"] / bare["per_s"]))
    if theirs:
        rows.append(row("  beside psycopg2", "%.0f" % found["per_s"],
                        "psycopg2 %.0f" % theirs["per_s"], found["per_s"] / theirs["per_s"],
                        "1.0 x", found["per_s"] >= theirs["per_s"]))
    else:
        rows.append(row("  beside psycopg2", "", "psycopg2 is missing"))
    rows.append(row("  with a token", "%.0f" % samples["with a token"]["per_s"]))
    rows.append(row("  least / most served", "%.3f" % found["least_to_most"],
                    "libpq %.3f" % bare["least_to_most"], None, "0.95",
                    found["least_to_most"] >= 0.95))
    rows.append(row("  no hand-over", str(found["again"]), "libpq %d" % bare["again"], None, "0",
                    found["again"] == 0))
    rows.append(row("  overlaps seen", str(found["overlaps"]), "", None, "0",
                    found["overlaps"] == 0))
    return rows, {"crowd": samples}


def sessions(bench):
    with server(bench) as postgres:
        program = subprocess.Popen([bench.program("keep"), postgres.url, str(HELD), "10000", "4"],
                                   stdout=subprocess.PIPE, text=True,
                                   env=dict(os.environ, STILE_ENGINE=postgres.url))
        with program:
            program.stdout.readline()
            n = int(postgres.sql("select count(*) from pg_stat_activity "
                                 "where application_name like 'stile%'"))
            held = int(postgres.sql("select count(*) from pg_locks where locktype = 'advisory'"))
            program.stdout.read()
    return [row("postgres: sessions of a client that holds %d names" % held, str(n), "", None, "3",
                n <= 3 and held == HELD)], {}


ALL = {"postgres-pair": pair, "postgres-handover": handover, "postgres-crowd": crowd,
       "postgres-sessions": sessions}
