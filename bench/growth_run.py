#!/usr/bin/python3
# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""How an engine grows: many waiters of one name, and many names held, by one client.

bench/growth_run.py [BUILD] [--only ENGINE,...] [--plots DIRECTORY]

For each size: the time of a hand-over or of another acquire+release, the CPU that the server needs for it, and the
client's memory for each waiter or lock. Prints a table, writes BUILD/bench/growth.json, and draws a page of plots for
each engine.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import figures  # noqa: E402
import growth_plot  # noqa: E402
import peers_run  # noqa: E402

TIMES = {"waiters": 1000, "held": 1000}
PATIENCE = 300
# Until where: zookeeper bounds the nodes of a session, postgres its lock table, mysql sessions; etcd, redlock and the
# databases need minutes for a million.
WAITERS = {"postgres": 1000, "mysql": 1000}
HELD = {"local": 1000000, "redis": 1000000, "redlock": 100000, "etcd": 100000, "zookeeper": 10000,
        "postgres": 1000, "mysql": 10000}


def sizes(kind, engine):
    most = WAITERS.get(engine, 10000) if kind == "waiters" else HELD[engine]
    return [size for size in (1, 10, 100, 1000, 10000, 100000, 1000000)
            if size <= most and (kind == "waiters" or size >= 100)]


def ticks(pid):
    try:
        with open("/proc/%s/stat" % pid, encoding="utf-8") as file:
            fields = file.read().rsplit(")", 1)[1].split()
    except OSError:
        return None, 0
    return int(fields[1]), sum(map(int, fields[11:15]))  # its parent; time of its own and of its dead children


def children_cpu_s(besides):
    """The CPU of all processes that this one has started, directly or not, but for one: the servers."""
    found = {int(pid): ticks(pid) for pid in os.listdir("/proc") if pid.isdigit()}

    def is_server(pid):
        while pid in found and pid != besides:
            if found[pid][0] == os.getpid():
                return True
            pid = found[pid][0]
        return False
    return sum(spent for pid, (_, spent) in found.items() if is_server(pid)) / os.sysconf("SC_CLK_TCK")


def measure(bench, place, kind, size):
    """None if it takes too long."""
    times = TIMES[kind]
    program = subprocess.Popen([bench.program("growth"), place, kind, str(size), str(times)], text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        there = program.stdout.readline()
        before = children_cpu_s(program.pid)
        out, err = program.communicate("\n", timeout=PATIENCE)
        cpu_s = children_cpu_s(program.pid) - before
    except (subprocess.TimeoutExpired, BrokenPipeError):
        program.kill()
        out, err = program.communicate()
    if program.returncode or not there or not out:
        raise figures.NotMeasured((err.strip().splitlines() or ["no end within %d s" % PATIENCE])[-1])
    return {"size": size, "bytes_each": json.loads(there)["bytes_each"],
            "each_ns": json.loads(out.splitlines()[-1])["each_ns"], "server_ns": cpu_s * 1e9 / times}


def measure_engine(bench, engine):
    found = {}
    for kind in TIMES:
        found[kind] = []
        for size in sizes(kind, engine):
            print("bench: %s, %d %s ..." % (engine, size, kind), file=sys.stderr, flush=True)
            try:
                with peers_run.ENGINES[engine](bench) as clients:
                    place = clients[0].url if ":" in clients[0].url else "local:" + clients[0].url
                    found[kind].append(measure(bench, place, kind, size))
            except figures.NotMeasured as reason:
                print("bench: %s, %d %s: %s" % (engine, size, kind, reason), file=sys.stderr)
                break
    return found


def table(results):
    lines = [("engine", "", "size", "each", "server's CPU", "client's memory")]
    for engine, kinds in results.items():
        for kind, rows in kinds.items():
            for row in rows:
                lines.append((engine, kind, str(row["size"]), figures.time_text(row["each_ns"]),
                              figures.time_text(row["server_ns"]) if row["server_ns"] else "",
                              "%.0f B" % row["bytes_each"] if row["size"] >= 1000 else ""))
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip()
                     for line in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("build", nargs="?", default="build", help="build directory (build)")
    parser.add_argument("--only", metavar="ENGINE,...", default=",".join(peers_run.ENGINES),
                        help="some of: " + ", ".join(peers_run.ENGINES))
    parser.add_argument("--plots", metavar="DIRECTORY", help="where to draw (BUILD/bench)")
    options = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory(prefix="stile-bench-") as directory:
        bench = figures.Bench(options.build, directory, False)
        for engine in options.only.split(","):
            results[engine] = measure_engine(bench, engine)
    folder = os.path.join(options.build, "bench")
    with open(os.path.join(folder, "growth.json"), "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)
    for engine, found in results.items():
        growth_plot.draw(os.path.join(options.plots or folder, "growth-%s.svg" % engine), engine, found)
    print(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
