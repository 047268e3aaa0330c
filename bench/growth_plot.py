# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A page of plots for each engine: what one more costs among many waiters, and among many names held."""
import shutil
import subprocess
import sys

from plot import OURS, PEER, block

AXES = {"waiters": "waiters of one name", "held": "names held by one client"}
TIMES = {"waiters": "hand-over to the next waiter", "held": "acquire and release of one more name"}
EACH = {"waiters": "waiter", "held": "name"}


def panels(kind, rows):
    name = "rows_" + kind
    enough = min(1000, rows[-1]["size"])  # for the memory of each to be more than a share of the client's own
    points = [(row["size"], row["each_ns"] / 1e3, row["server_ns"] / 1e3, row["bytes_each"] / 1e3) for row in rows]
    return block(name, points) + """
set logscale xy; set xlabel '%s'; set xrange [%g:%g]; set key top left
set title '%s, in µs'; set yrange [1e-1:1e5]
plot $%s using 1:2 with linespoints pt 7 lc rgb '%s' title 'until it is held', \\
     '' using 1:3 with linespoints pt 7 lc rgb '%s' title 'CPU of the server'
unset logscale y; set yrange [0:*]; set title 'memory of the client for each %s, in KB'; unset key
plot $%s using ($1 >= %d ? $1 : 1/0):4 with linespoints pt 7 lc rgb '%s'
""" % (AXES[kind], rows[0]["size"] / 2, rows[-1]["size"] * 2, TIMES[kind], name, OURS, PEER, EACH[kind], name, enough, OURS)


def draw(path, engine, found):
    if not shutil.which("gnuplot"):
        print("bench: no plots: gnuplot is missing", file=sys.stderr)
        return
    drawn = [panels(kind, rows) for kind, rows in found.items() if rows]
    script = ("set terminal svg size 900,640 font 'sans,11' background '#ffffff'\nset encoding utf8\nset output '%s'\n"
              "set grid lc rgb '#d0d0d0'; set tics nomirror\nset multiplot layout %d,2 title '%s'\n%s\nunset multiplot\n"
              % (path, len(drawn), engine, "\n".join(drawn)))
    done = subprocess.run(["gnuplot"], input=script, capture_output=True, text=True, check=False)
    if done.returncode:
        print("bench: %s: %s" % (path, done.stderr.strip()), file=sys.stderr)
