# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The figures of redis and redlock, on servers of their own, compared with bare hiredis and redis-py."""
import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

from figures import (NotMeasured, column, compare, pair_syscalls, row, runkill_at, runkill_in_modes,
                     time_text)
from places import PLACES, cores, pinned

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "servers"))
from redis_server import RedisServer  # noqa: E402

PEERS = str(HERE / "peers_redis.py")
PARKED = 8


@contextlib.contextmanager
def server(core=None):
    """On the nth core that we may use, or wherever it likes."""
    try:
        started = RedisServer()
    except OSError as reason:
        raise NotMeasured(str(reason)) from reason
    with started:
        if core is not None:
            os.sched_setaffinity(started.process.pid, {cores()[core]})
        started.url = "redis://127.0.0.1:%d" % started.port
        yield started


@contextlib.contextmanager
def nodes(core=None):
    """Five of them; what follows redlock://"""
    with contextlib.ExitStack() as stack:
        ports = [stack.enter_context(server(core)).port for _ in range(5)]
        yield ",".join("127.0.0.1:%d" % port for port in ports)


def lines_of(bench, core, name, *args):
    out = bench.output(pinned(core, [bench.program(name), *args])).stdout
    return [json.loads(line) for line in out.splitlines()]


def peer(bench, core, *args):
    """What redis-py needs for the same, or None where it is missing."""
    try:
        return json.loads(bench.output(pinned(core, ["/usr/bin/python3", PEERS, *args])).stdout)
    except NotMeasured:
        return None


def peer_row(label, ours, theirs):
    if not theirs:
        return row("  compared with redis-py's Lock", "", "redis-py is missing")
    return row("  compared with redis-py's Lock", label, "redis-py " + time_text(theirs["p50_ns"]),
               ours / theirs["p50_ns"])


def pair(bench):
    rows, samples = [], {}
    for label, core in PLACES:
        with server(0) as redis:
            lines = bench.run("pair", redis.url, "hiredis", bench.rounds(200), 200, 1, core + 1)
            theirs = peer(bench, core, "pair", redis.port, 2000)
        samples[label] = lines
        ours, bare, ratio = compare(lines, "series", "one", "peer_one", "p50_ns")
        rows.append(row("redis: acquire+release, %s, p50" % label, time_text(ours),
                        "hiredis " + time_text(bare), ratio, "1.2 x", ratio <= 1.2))
        rows.append(peer_row(time_text(ours), ours, theirs))
    with server() as redis:
        # Under strace a pair takes so long that the background thread looks around in each one.
        rows.append(pair_syscalls(bench, redis.url, 1000, "hiredis 5", "-q"))
    return rows, {"server_pair": samples}


def threads(bench):
    """On one core there is nothing to be gained but the switches between the two."""
    rows, samples = [], {}
    for label, core in PLACES:
        with server(0) as redis:
            lines = lines_of(bench, core, "threads", redis.url, bench.rounds(15), 16, 400)
        one, all_of_them, ratio = (
            statistics.median(values) for values in (
                column(lines, "threads", 1, "per_s"), column(lines, "threads", 16, "per_s"),
                [b / a for a, b in zip(column(lines, "threads", 1, "per_s"),
                                       column(lines, "threads", 16, "per_s"))]))
        samples[label] = lines
        rows.append(row("redis: 16 threads, 16 names, %s" % label, "%.0f pairs/s" % all_of_them,
                        "one thread %.0f" % one, ratio, "3 x" if core else "",
                        ratio >= 3 if core else None))
    return rows, {"threads": samples}


def handover(bench):
    """Both clients on one core; the server there, too, or on the other one."""
    rows, samples = [], {}
    for label, core in PLACES:
        with server(core) as redis:
            lines = bench.run("handover", redis.url, bench.rounds(60), 200, "together")
            theirs = peer(bench, 0, "handover", redis.port, 20)
        samples[label] = lines
        ours, ping, ratio = compare(lines, "way", "stile", "ping", "p50_ns")
        rows.append(row("redis: hand-over, %s, p50" % label, time_text(ours),
                        "PING " + time_text(ping), ratio, "5 x", ratio <= 5))
        rows.append(peer_row(time_text(ours), ours, theirs))
    return rows, {"server_handover": samples}


def crowd(bench):
    for_ms = 500 if bench.quick else 5000
    with server() as redis:
        found = bench.run("crowd", redis.url, "stile", 8, for_ms)[0]
    return [
        row("redis: 8 processes, %.1f s: least / most served" % (for_ms / 1000),
            "%.3f" % found["least_to_most"], "", None, "0.9", found["least_to_most"] >= 0.9),
        row("  acquisitions per second", "%.0f" % found["per_s"], "", None, "3,000",
            found["per_s"] >= 3000),
        row("  twice in a row, though another had asked", str(found["again"]), "", None, "0", found["again"] == 0),
        row("  overlaps seen", str(found["overlaps"]), "", None, "0", found["overlaps"] == 0),
    ], {"crowd": {"stile": found}}


def rss_kib(pid, front):
    """Of `stile run`: the front and its warden."""
    with open("/proc/%d/status" % pid, encoding="ascii") as file:
        status = file.read()
    with open("/proc/%d/task/%d/children" % (pid, pid), encoding="ascii") as file:
        children = [int(child) for child in file.read().split()]
    if os.readlink("/proc/%d/exe" % pid) != os.readlink("/proc/%d/exe" % front):
        return 0
    return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) + sum(
        rss_kib(child, front) for child in children)


def wait_for(condition, what):
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    raise NotMeasured(what)


def in_line(redis):
    """Without what stands there for pollers."""
    entries = redis.cli("ZRANGE", "{lock:x}\x1fqueue", "0", "-1").split("\n")
    return len([entry for entry in entries if entry not in ("", "~gap")])


def parked(bench):
    """One holds for ten minutes, others wait, nothing changes: whatever is asked, a waiter asks."""
    bench.need_command()
    seconds = 1 if bench.quick else 5
    command = [bench.stile, "run", "--ttl", "10m", "x", "--", "sleep", "600"]
    with server() as redis, contextlib.ExitStack() as stack:
        env = dict(os.environ, STILE_ENGINE=redis.url)
        started = []
        for n in range(PARKED + 1):
            process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            started.append(process.pid)
            wait_for(lambda want=n: redis.cli("EXISTS", "lock:x") == "1" and
                     in_line(redis) == want, "they do not wait")
        time.sleep(0.2)
        redis.cli("CONFIG", "RESETSTAT")
        time.sleep(seconds)
        calls = re.search(r"cmdstat_evalsha:calls=(\d+)", redis.cli("INFO", "commandstats"))
        rss = max(rss_kib(pid, pid) for pid in started)
    theirs = None
    with server() as redis:
        theirs = peer(bench, 0, "pair", redis.port, 100)
    more = int(calls.group(1)) if calls else 0  # not what they call in turn
    return [
        row("redis: checks of a parked waiter per second", "%.2f" % (more / PARKED / seconds), "",
            None, "2", more <= 2 * PARKED * seconds),
        row("  memory of each `stile run`", "%.1f MB" % (rss / 1024),
            "redis-py %.1f MB" % (theirs["rss_kib"] / 1024) if theirs else "", None, "10 MB",
            rss < 10240),
    ], {}


def keep(bench):
    locks, seconds = (1000, 4) if bench.quick else (10000, 12)
    with server() as redis:
        program = subprocess.Popen([bench.program("keep"), redis.url, str(locks), "10000",
                                    str(seconds)], stdout=subprocess.PIPE, text=True)
        with program:
            program.stdout.readline(), program.stdout.readline()
            redis.cli("CONFIG", "RESETSTAT")
            line = program.stdout.readline()
            calls = re.search(r"cmdstat_evalsha:calls=(\d+)", redis.cli("INFO", "commandstats"))
    if program.returncode or not line:
        raise NotMeasured("bench-keep: status %d" % program.returncode)
    found = json.loads(line)
    return [
        row("redis: renewal of %d claims, TTL 10 s" % locks, "%.2f %% of a core"
            % (100 * found["cpu"]), "", None, "2 %", found["cpu"] <= 0.02 and not found["lost"]),
        row("  commands per second", "%.1f" % (int(calls.group(1)) / seconds if calls else 0)),
        row("  memory of the client", "%.1f MB" % (found["rss_kib"] / 1024)),
    ], {}


def runkill(bench):
    with server() as redis:
        return runkill_at(bench, "redis", redis.url, bench.rounds(100))


def guarded(bench):
    rows, samples = [], {}
    for label, core in PLACES:
        with server(0) as redis:
            lines = lines_of(bench, core, "guarded", redis.port, bench.rounds(100), 200)
        samples[label] = lines
        for form, bare in (("script", "EVALSHA"), ("function", "FCALL")):
            for series, what, most in ((form, "", "1.2 x"), (form + "_raised", ", a new token", "")):
                ours, limit, ratio = compare(lines, "series", series, form + "_bare", "p50_ns")
                rows.append(row("redis: guarded SET, %s%s, %s, p50" % (form, what, label),
                                time_text(ours), "%s SET %s" % (bare, time_text(limit)), ratio, most,
                                ratio <= 1.2 if most else None))
    return rows, {"guarded": samples}


def cells(bench):
    """A value that is replaced if its version is the one before, and a bare script that does the same."""
    rows = []
    for label, core in PLACES:
        with server(0) as redis:
            lines = bench.run("cells", redis.url, "hiredis", bench.rounds(100), 200, 100, core + 1)
        for series, what in (("cell", ""), ("guarded", ", with the same token")):
            ours, bare, ratio = compare(lines, "series", series, "bare", "p50_ns")
            rows.append(row("redis: cell swapped%s, %s, p50" % (what, label), time_text(ours),
                            "EVALSHA " + time_text(bare), ratio, "1.2 x", ratio <= 1.2))
    return rows, {}


def redlock_pair(bench):
    rows, samples = [], {}
    for label, core in PLACES:
        with nodes(0) as hosts:
            for mode, query, most in (("plain", "?fence=off&prefix=plain:", 1.1),
                                      ("fenced", "", 1.7)):
                lines = bench.run("pair", "redlock://" + hosts + query, "hiredis",
                                  bench.rounds(100), 100, 1, core + 1)
                samples["%s, %s" % (mode, label)] = lines
                ours, bare, ratio = compare(lines, "series", "one", "peer_one", "p50_ns")
                rows.append(row("redlock: acquire+release, %s, %s, p50" % (mode, label),
                                time_text(ours), "hiredis, 5 nodes " + time_text(bare), ratio,
                                "%.1f x" % most, ratio <= most))
    return rows, {"server_pair": samples}


def redlock_crowd(bench):
    for_ms = 500 if bench.quick else 5000
    rows, samples = [], {}
    for mode, query in (("fenced", ""), ("plain", "?fence=off&prefix=plain:")):
        with nodes() as hosts:
            found = bench.run("crowd", "redlock://" + hosts + query, "stile", 8, for_ms)[0]
        samples[mode] = found
        rows += [row("redlock: 8 processes, %s: least / most served" % mode,
                     "%.3f" % found["least_to_most"], "", None, "0.5",
                     found["least_to_most"] >= 0.5),
                 row("  acquisitions per second", "%.0f" % found["per_s"], "", None, "500",
                     found["per_s"] >= 500),
                 row("  overlaps seen", str(found["overlaps"]), "", None, "0",
                     found["overlaps"] == 0)]
    return rows, {"crowd": samples}


def redlock_runkill(bench):
    with nodes() as hosts:
        return runkill_in_modes(bench, "redlock", "redlock://" + hosts,
                                {"fenced": "", "plain": "?fence=off"})


REDLOCK = {"redlock-pair": redlock_pair, "redlock-crowd": redlock_crowd,
           "redlock-runkill": redlock_runkill}
ALL = {"redis-pair": pair, "redis-threads": threads, "redis-handover": handover,
       "redis-crowd": crowd, "redis-parked": parked, "redis-keep": keep, "redis-runkill": runkill,
       "redis-guarded": guarded, "redis-cells": cells}
