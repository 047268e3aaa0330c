# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""`stile torture` on real servers that are killed and stopped meanwhile.

Usage: torture.py PLACE...

A short run on each place in which everything goes wrong; with STILE_SOAK, its row of the matrix.
Whatever the timing, the promises are kept, and with the guard no update is lost. Without it some must
be, or the run has shown nothing: it is repeated until it has, but not for ever.
"""
import os
import sys

from driver import torture
from matrix import complain, run_place
from places import PLACES, is_installed

RUNS_MAX = 5
SHORT_S, SOAK_S = 10, 20


def count(outcome, key):
    return (outcome.report[key] or {"lost": 0})["lost"]


def run_until_it_bites(place):
    """What is wrong, or None."""
    for _ in range(RUNS_MAX):
        outcome = torture(place, "mixed", SHORT_S)
        if outcome.code not in (0, 1) or count(outcome, "with_guard"):
            complain(outcome)
            return "a promise was broken"
        if place.members and not outcome.report["injected"]["fault"]:
            complain(outcome)
            return "no server was broken"
        if count(outcome, "without_guard"):
            return None
    return "nothing was lost without the guard in %d runs" % RUNS_MAX


def short(name):
    with PLACES[name]() as place:
        return run_until_it_bites(place)


def full(name):
    found = run_place(name, SOAK_S, "# ")
    print("# " + found.row(name), flush=True)
    if found.survived < found.runs:
        return "a promise was broken"
    return None if found.is_well() else "nothing was lost without the guard"


def main(names):
    soak, failed = os.environ.get("STILE_SOAK"), 0
    print("1..%d" % len(names), flush=True)
    for number, name in enumerate(names, 1):
        if name == "dynamodb" and not is_installed():
            print("ok %d - %s # SKIP dynalite of npm is not installed: tools/npm-clients BUILD"
                  % (number, name), flush=True)
            continue
        wrong = full(name) if soak else short(name)
        failed += wrong is not None
        print("%sok %d - %s%s" % ("not " if wrong else "", number, name,
                                  "\n# " + wrong if wrong else ""), flush=True)
    return 1 if failed else 0


sys.exit(main(sys.argv[1:]))
