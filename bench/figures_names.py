# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Names that nobody has used before, on every engine: ENGINE-fresh takes them one after the other, beside one
that is in use; ENGINE-burst claims many of them at once."""
import contextlib
import functools
import statistics

import figures_etcd
import figures_mysql
import figures_postgres
import figures_redis
import figures_sql
import figures_zookeeper
from figures import column, compare, row, time_text

PAIRS = 64
SIZES = (100, 1000, 10000, 50000)
FEW = (100, 1000)
FLAT = 1.5  # times as long for each claim of a large burst as for each of a small one


@contextlib.contextmanager
def local(bench):
    yield "local:" + bench.path("names")


@contextlib.contextmanager
def url_of(server):
    with server as started:
        yield started.url


@contextlib.contextmanager
def redlock(_):
    with figures_redis.nodes() as hosts:
        yield "redlock://" + hosts


# How to start a server, and how many times as long as a used name a fresh one may take: ZooKeeper has to create
# its parent.
ENGINES = {
    "local": (local, None),
    "redis": (lambda bench: url_of(figures_redis.server()), 1.3),
    "redlock": (redlock, 1.3),
    "postgres": (lambda bench: url_of(figures_sql.server(bench, figures_postgres.POSTGRES)), 1.3),
    "mysql": (lambda bench: url_of(figures_sql.server(bench, figures_mysql.MYSQL)), 1.3),
    "etcd": (lambda bench: url_of(figures_etcd.server()), 1.3),
    "zookeeper": (lambda bench: url_of(figures_zookeeper.server(bench)), 2),
}


def fresh(engine, bench):
    server, most = ENGINES[engine]
    with server(bench) as url:
        lines = bench.run("fresh", url, bench.rounds(30), PAIRS)
    first, used, ratio = compare(lines, "series", "fresh", "used", "p50_ns")
    return [row("%s: first use of a name, p50" % engine, time_text(first), "a used name " + time_text(used), ratio,
                "%.1f x" % most if most else "", ratio <= most if most else None)], {"fresh": lines}


def burst(engine, bench):
    """Each size in turn; a quick run stops at a thousand."""
    server, _ = ENGINES[engine]
    sizes, rounds = (FEW, 3) if bench.quick else (SIZES, 1)
    with server(bench) as url:
        lines = [line for line in bench.run("burst", url, rounds, *sizes) if line["claims"] > 1]
    each = {n: statistics.median(column(lines, "claims", n, "take_ns")) for n in sizes}
    least = min(each.values())
    rows = [row("%s: %d claims at once, each" % (engine, n), time_text(each[n]), "released in " + time_text(
        statistics.median(column(lines, "claims", n, "give_ns"))), each[n] / least,
                "%.1f x the least" % FLAT if n > FEW[0] else "", each[n] <= FLAT * least if n > FEW[0] else None)
            for n in sizes]
    failed = sum(line["failed"] for line in lines)
    return rows + [row("  failed", str(failed), "", None, "0", failed == 0)], {"burst": lines}


def all_of(engine):
    if engine not in ENGINES:
        return {}
    return {"%s-%s" % (engine, figure.__name__): functools.partial(figure, engine) for figure in (fresh, burst)}
