# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The matrix of `stile torture`: every fault on every engine and mode.

Usage: matrix.py SECONDS PLACE...

Prints a table for each place as its runs end, and what they have in common at last. The exit status
is 1 if a promise was broken, or if nothing was lost without the guard on some place.
"""
import sys

from driver import applicable, torture
from places import PLACES

COLUMNS = "%-8s  %-9s %8s %9s %12s %12s %7s"
# Many workers on many names: their updates are counted as well.
CROWD = ("--clients", "16", "--names", "8")


def head(name):
    return (COLUMNS + "  %s") % ("fault", "verdict", "grants", "reported", "without", "with guard",
                                 "late", name)


def of(tally):
    """Updates that were lost, of those that were acknowledged."""
    return "%d of %d" % (tally["lost"], tally["updates"]) if tally else "-"


def row_of(fault, outcome):
    report = outcome.report
    if report is None:
        return "%-8s  exit code %d: %s" % (fault, outcome.code, outcome.output[-200:])
    verdict = "BROKEN" if report["verdict"] == "violated" else "survived"
    return (COLUMNS % (fault, verdict, report["acquisitions"], report["losses"],
                       of(report["without_guard"]), of(report["with_guard"]),
                       report["late_losses"])).rstrip()


class Sum:
    """Of all runs on one place."""

    def __init__(self):
        self.runs = self.survived = self.losses = self.late = 0
        self.without, self.guarded = {"lost": 0, "updates": 0}, None

    def add(self, outcome):
        self.runs += 1
        self.survived += outcome.code in (0, 1)
        if outcome.report is None:
            return
        self.losses += outcome.report["losses"]
        self.late += outcome.report["late_losses"]
        for key in self.without:
            self.without[key] += outcome.report["without_guard"][key]
        if outcome.report["with_guard"]:
            self.guarded = self.guarded or {"lost": 0, "updates": 0}
            for key in self.guarded:
                self.guarded[key] += outcome.report["with_guard"][key]

    def row(self, name):
        return "%-14s %9s %9d %5d %15s %13s" % (
            name, "%d of %d" % (self.survived, self.runs), self.losses, self.late,
            of(self.without), of(self.guarded))

    def is_well(self):
        return self.survived == self.runs and self.without["lost"] > 0


def run_place(name, seconds, before=""):
    """Its row of the matrix, and the runs it consists of, printed as they end."""
    found = Sum()
    print(before + head(name), flush=True)
    with PLACES[name]() as place:
        for fault in applicable(place):
            outcome = torture(place, fault, seconds, *CROWD)
            found.add(outcome)
            print(before + row_of(fault, outcome), flush=True)
            if outcome.code not in (0, 1):
                complain(outcome)
    return found


def complain(outcome):
    for line in outcome.output.splitlines()[-20:]:
        print("# " + line)
    print("# %s" % outcome.report, flush=True)


def main(seconds, names):
    sums = {name: run_place(name, seconds) for name in names}
    print("\n%-14s %9s %9s %5s %15s %13s" % ("engine", "survived", "reported", "late", "without guard",
                                           "with guard"))
    for name, found in sums.items():
        print(found.row(name))
    return 0 if all(found.is_well() for found in sums.values()) else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:] or list(PLACES)))
