#!/usr/bin/python3
# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Other clients of the same locks beside stile, on the same servers and in one run.

bench/peers_run.py [BUILD] [--only ENGINE,...] [--rounds N] [--picture FILE.svg]

Three kinds of work: a process that takes and gives back a free lock; one that gives it to another process that has
waited for 50 ms or more; eight processes that want it all the time. The clients of an engine take turns, round by
round; a figure is the median of the rounds. Prints a table and writes BUILD/bench/peers.json.
"""
import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import figures  # noqa: E402
import figures_etcd  # noqa: E402
import figures_mysql  # noqa: E402
import figures_postgres  # noqa: E402
import figures_redis  # noqa: E402
import figures_sql  # noqa: E402
import figures_zookeeper  # noqa: E402
import peers_picture  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
WORKS = ("pair", "handover", "crowd")
PAIRS, HANDOVERS, CROWD_MS, PROCESSES, PARKED_MS = 400, 20, 1500, 8, 50


class Peer:
    """A program that prints a line of JSON: COMMAND... WORK PLACE COUNT."""

    def __init__(self, bench, name, command, place):
        self.bench, self.name, self.command, self.place = bench, name, command, place

    def __call__(self, work, count):
        out = self.bench.output([*self.command, work, str(self.place), str(count)]).stdout
        return json.loads(out)["per_s" if work == "crowd" else "p50_ns"]


class Stile:
    """Our own client, by programs in C."""

    name = "stile"

    def __init__(self, bench, url, subject="stile", parked="stile"):
        self.bench, self.url, self.subject, self.parked = bench, url, subject, parked

    def __call__(self, work, count):
        if work == "pair":
            lines = self.bench.run("pair", self.url, self.subject, 2, count, 1)
            return figures.column(lines, "series", "peer_one", "p50_ns")[-1]
        if work == "handover":
            lines = self.bench.run("handover", self.url, 1, count, "free", PARKED_MS)
            return figures.column(lines, "way", self.parked, "p50_ns")[0]
        return self.bench.run("crowd", self.url, self.subject, PROCESSES, count)[0]["per_s"]


class Flock(Stile):
    """flock(2), from the same programs; its hand-over is the peer's of Python."""

    name = "flock(2)"

    def __init__(self, bench, directory):
        super().__init__(bench, directory, "flock")
        self.waits = Peer(bench, "", python("peers_flock.py"), os.path.join(directory, "parked"))

    def __call__(self, work, count):
        return self.waits(work, count) if work == "handover" else super().__call__(work, count)


class Go(Peer):
    """The one whose arguments stand the other way round."""

    def __init__(self, bench, etcd):
        go = figures_etcd.Go(bench, etcd)
        super().__init__(bench, "Go, concurrency.Mutex", [go.program], etcd.hosts)

    def __call__(self, work, count):
        more = {"pair": [count], "handover": [count, PARKED_MS], "crowd": [PROCESSES, count]}[work]
        out = self.bench.output([*self.command, self.place, work, *map(str, more)]).stdout
        return json.loads(out)["per_s" if work == "crowd" else "p50_ns"]


def python(file):
    return ["/usr/bin/python3", os.path.join(HERE, file)]


def node(bench, client):
    modules = os.path.join(os.path.dirname(bench.programs), "tests", "interop", "npm")
    return ["node", os.path.join(HERE, "peers_redis.js"), modules, client]


def npm_clients(bench, ports, *clients):
    names = {"redlock-v4": "node-redlock 4", "redlock-v5": "node-redlock 5", "redis-semaphore": "redis-semaphore"}
    return [Peer(bench, names[client], node(bench, client), ports) for client in clients]


# ---- for each engine: its servers, and the clients that are compared ----

@contextlib.contextmanager
def local(bench):
    with tempfile.TemporaryDirectory(prefix="stile-bench-") as directory:
        places = [os.path.join(directory, name) for name in ("ours", "theirs")]
        for place in places:
            os.mkdir(place, mode=0o700)
        yield [Stile(bench, places[0]), Flock(bench, places[1])]


@contextlib.contextmanager
def redis(bench):
    with figures_redis.server() as server:
        yield [Stile(bench, server.url), Peer(bench, "redis-py", python("peers_redis.py"), server.port),
               *npm_clients(bench, server.port, "redis-semaphore", "redlock-v4", "redlock-v5")]


@contextlib.contextmanager
def redlock(bench):
    with figures_redis.nodes() as hosts:
        ports = ",".join(host.split(":")[1] for host in hosts.split(","))
        plain = Stile(bench, "redlock://%s?fence=off&prefix=plain:" % hosts)
        plain.name = "stile, without tokens"
        yield [Stile(bench, "redlock://" + hosts), plain,
               *npm_clients(bench, ports, "redlock-v4", "redlock-v5", "redis-semaphore")]


@contextlib.contextmanager
def etcd(bench):
    with figures_etcd.server() as server:
        yield [Stile(bench, server.url), Go(bench, server)]


@contextlib.contextmanager
def zookeeper(bench):
    with figures_zookeeper.server(bench) as server:
        yield [Stile(bench, server.url)] + [Peer(bench, name, command, server.hosts)
                                            for name, command in figures_zookeeper.PEERS.items()]


@contextlib.contextmanager
def database(described, bench):
    with figures_sql.server(bench, described) as server:
        yield [Stile(bench, server.url),
               Peer(bench, described.peer, python(described.peers), server.port)]


ENGINES = {
    "local": local, "redis": redis, "redlock": redlock, "etcd": etcd, "zookeeper": zookeeper,
    "postgres": lambda bench: database(figures_postgres.POSTGRES, bench),
    "mysql": lambda bench: database(figures_mysql.MYSQL, bench),
}
TITLES = {
    "local": "one machine", "redis": "Redis", "redlock": "five Redis servers", "etcd": "etcd, one member",
    "zookeeper": "ZooKeeper, one server", "postgres": "PostgreSQL", "mysql": "MariaDB",
}


# ---- the run ----

def measure_engine(bench, engine, rounds):
    """[(client, {work: median})]; a client that cannot run is left out, with a line that says why."""
    counts = {"pair": PAIRS, "handover": HANDOVERS, "crowd": CROWD_MS}
    with ENGINES[engine](bench) as clients:
        found = {client.name: {work: [] for work in WORKS} for client in clients}
        for _ in range(rounds):
            for client in [client for client in clients if client.name in found]:
                print("bench: %s, %s ..." % (engine, client.name), file=sys.stderr)
                try:
                    for work in WORKS:
                        found[client.name][work].append(client(work, counts[work]))
                except figures.NotMeasured as reason:
                    print("bench: %s: %s" % (client.name, reason), file=sys.stderr)
                    del found[client.name]
        if Stile.name not in found:
            raise figures.NotMeasured("stile itself could not be measured")
    return [(name, {work: statistics.median(values) for work, values in works.items()})
            for name, works in found.items()]


def text_of(work, value):
    return "{:,.0f} /s".format(value) if work == "crowd" else figures.time_text(value).replace("us", "µs")


def table(results):
    """Each value, and how many times as fast stile is."""
    lines = [("engine", "client", "a free lock", "", "hand-over", "", "8 processes", "")]
    for engine, clients in results.items():
        ours = clients[0][1]
        for name, works in clients:
            cells = []
            for work in WORKS:
                faster = works[work] / ours[work]
                faster = 1 / faster if work == "crowd" else faster
                cells += [text_of(work, works[work]), "" if name == "stile" else "x %.1f" % faster]
            lines.append((engine if name == "stile" else "", name, *cells))
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip()
                     for line in lines)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("build", nargs="?", default="build", help="build directory (build)")
    parser.add_argument("--only", metavar="ENGINE,...", default=",".join(ENGINES),
                        help="some of: " + ", ".join(ENGINES))
    parser.add_argument("--rounds", type=int, default=3, help="how often each client runs (3)")
    parser.add_argument("--picture", metavar="FILE.svg", help="draw the table")
    options = parser.parse_args()
    options.engines = options.only.split(",")
    for engine in options.engines:
        if engine not in ENGINES:
            parser.error("no such engine: %s; there are: %s" % (engine, ", ".join(ENGINES)))
    return options


def main():
    options = arguments()
    results = {}
    with tempfile.TemporaryDirectory(prefix="stile-bench-") as directory:
        bench = figures.Bench(options.build, directory, False)
        for engine in options.engines:
            try:
                results[engine] = measure_engine(bench, engine, options.rounds)
            except figures.NotMeasured as reason:
                print("bench: %s: %s" % (engine, reason), file=sys.stderr)
    path = os.path.join(options.build, "bench", "peers.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)
    if options.picture:
        peers_picture.draw(options.picture, {TITLES[engine]: found for engine, found in results.items()}, text_of)
    print(table(results))
    print("\n'x 2.0': stile is twice as fast. written: %s" % path)
    return 0 if len(results) == len(options.engines) else 1


if __name__ == "__main__":
    sys.exit(main())
