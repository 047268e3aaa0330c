# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Generated schedules: every seed holds, and a seed gives the same trace each time.

Usage: seeds.py STILE_SIM ENGINE
"""
import os
import subprocess
import sys

# The share of each engine: 10,000 together, within three minutes.
SHARES = {"redis": 2000, "redlock": 2200, "sentinel": 1500, "cluster": 1500, "etcd": 1500,
          "zookeeper": 1300}

# Seeds that found something, for as long as they mean the same.
KEPT = {"redis": (8528, 13276, 14494, 23607),
        "redlock": (4084, 4476, 13735),
        "etcd": (512, 1558, 5021, 5898, 5930, 6311, 6699, 9913),
        "zookeeper": (6879, 21443, 44192, 108344)}

SIM, ENGINE = sys.argv[1:3]
SEEDS = str(SHARES[ENGINE] * (100 if os.environ.get("STILE_SOAK") else 1))


def run(*args):
    return subprocess.run([SIM, "--engine", ENGINE, *args], capture_output=True, text=True,
                          check=False)


def report(number, ok, what, output):
    print("%sok %d - %s" % ("" if ok else "not ", number, what), flush=True)
    for line in output.splitlines():
        print("# " + line)


print("1..5")
done = run("--seeds", SEEDS)
report(1, done.returncode == 0, "%s: %s seeds hold" % (ENGINE, SEEDS), done.stdout + done.stderr)
first, second = (run("--seed", "17", "--trace").stdout for _ in range(2))
report(2, first == second and len(first) > 1000, "the same seed, the same trace", "")
wrong = run("--seeds", "many")
none = run("--seeds", "0")  # nothing was tried, so nothing holds
said = "stile: sim: --seeds: 'many' is not a whole number above 0; see stile sim --help\n"
report(3, wrong.returncode == none.returncode == 64 and wrong.stderr == said,
       "nonsense is a usage error that names its option", wrong.stderr)
broken = [done for done in (run("--seed", str(seed)) for seed in KEPT.get(ENGINE, ())) if done.returncode]
report(4, not broken, "seeds that were kept", "".join(done.stdout + done.stderr for done in broken))
with open("/dev/full", "w", encoding="ascii") as full:
    unwritten = subprocess.run([SIM, "--engine", ENGINE, "--seeds", "1"], stdout=full,
                               stderr=subprocess.PIPE, text=True, check=False)
report(5, unwritten.returncode == 74, "results that could not be written are no success",
       unwritten.stderr)
