# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Samples as one page of panels, drawn by gnuplot."""
import shutil
import subprocess
import sys

OURS, PEER, THIRD = "#1b6ca8", "#c9a227", "#8a8a8a"
TERMINALS = {"svg": "svg size 1200,760 font 'sans,12' background '#ffffff'",
             "png": "pngcairo size 1200,760 font 'sans,10'"}


def block(name, lines):
    return "$%s << EOD\n%s\nEOD\n" % (name, "\n".join(" ".join(map(str, line)) for line in lines))


def median(values):
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def panel_pair(lines):
    titles = (("peer_one", "flock"), ("one", "stile"), ("among", "beside\\n10,000"),
              ("peer_each", "flock,\\neach"), ("each", "stile,\\neach"))
    boxes, dots = [], []
    for x, (series, _) in enumerate(titles):
        values = [line["p50_ns"] for line in lines if line["series"] == series]
        boxes.append((x, median(values), 1 if series.startswith("peer") else 0))
        dots += [(x, value) for value in values]
    tics = ", ".join('"%s" %d' % (title, x) for x, (_, title) in enumerate(titles))
    return (block("pair", boxes) + block("pair_all", dots) + """
set title 'acquire and release, uncontended: p50 of each round, ns'
set xtics (%s); set yrange [0:*]; set xrange [-0.6:4.6]
plot $pair using 1:2:($3 == 1 ? %d : %d) with boxes lc rgb variable notitle, \\
     $pair_all using ($1+0.3*(rand(0)-0.5)):2 with points pt 7 ps 0.25 lc rgb '#303030' notitle
""" % (tics, int(PEER[1:], 16), int(OURS[1:], 16)))


def bars(name, title, series, groups):
    """groups: a label and a value for each of the series."""
    plots = ", ".join("%s using %d%s lc rgb '%s' title '%s'"
                      % ("''" if i else "$" + name, i + 2, "" if i else ":xtic(1)", colour, label)
                      for i, (label, colour) in enumerate(series))
    return block(name, [['"%s"' % label, *values] for label, values in groups]) + """
set title '%s'
set style data histogram; set style histogram clustered gap 1
set yrange [0:*]; set xrange [*:*]; set xtics auto; set key below
plot %s
unset key
""" % (title, plots)


def medians(lines, key, names, value, scale):
    return [median([line[value] for line in lines if line[key] == name]) / scale for name in names]


def panel_handover(places):
    return bars("handover", "hand-over between two waiting processes: p50, us",
                (("futex", PEER), ("socket", THIRD), ("stile", OURS)),
                [(label, medians(places[place], "way", ("futex", "socket", "stile"), "p50_ns", 1e3))
                 for place, label in (("apart", "two cores"), ("together", "one core"))])


def panel_server_pair(places):
    return bars("server_pair", "acquire and release, uncontended: p50, us",
                (("the bare client library", PEER), ("stile", OURS)),
                [(label, medians(lines, "series", ("peer_one", "one"), "p50_ns", 1e3))
                 for label, lines in places.items()])


def panel_server_handover(places):
    return bars("server_handover", "hand-over to a waiting process: p50, us",
                (("a bare PING", PEER), ("stile", OURS)),
                [(label, medians(lines, "way", ("ping", "stile"), "p50_ns", 1e3))
                 for label, lines in places.items()])


def panel_threads(places):
    return bars("threads", "threads of one client: pairs a second",
                (("1 thread", PEER), ("16 threads", OURS)),
                [(label, medians(lines, "threads", (1, 16), "per_s", 1))
                 for label, lines in places.items()])


def panel_crowd(found):
    """found: for each subject, what each process was served."""
    colours = {"flock": PEER, "plain": PEER}
    most = {name: max(lines["served"]) or 1 for name, lines in found.items()}
    shares = zip(*(sorted(n / most[name] for n in lines["served"])
                   for name, lines in found.items()))
    return bars("crowd", "8 processes on one name: share of the most-served",
                [(name, colours.get(name, OURS)) for name in found],
                [(i + 1, values) for i, values in enumerate(shares)])


def panel_kill(samples):
    blocks, plots = "", []
    for name, values, title, colour in (
            ("kill_flock", samples.get("kill", {}).get("flock"), "flock(2)", PEER),
            ("kill_stile", samples.get("kill", {}).get("stile"), "stile", OURS),
            ("kill_run", samples.get("runkill", []), "stile run, tree and all", THIRD)):
        if values:
            blocks += block(name, [(v / 1e6, 100 * (i + 1) / len(values))
                                   for i, v in enumerate(sorted(values))])
            plots.append("$%s using 1:2 with steps lw 2 lc rgb '%s' title '%s'"
                         % (name, colour, title))
    return blocks + """
set title 'kill -9 until the next one runs: %% of kills within ms'
set xtics auto; set xrange [0.1:100]; set yrange [0:105]; set logscale x; set key bottom right
plot %s
unset logscale; unset key
""" % ", ".join(plots)


def panel_spawn(lines):
    blocks, plots = "", []
    widest = 3 * median([line["took_ns"] for line in lines]) / 1e6
    for name, colour in (("flock", PEER), ("stile", OURS)):
        values = sorted(line["took_ns"] for line in lines if line["command"] == name)
        blocks += block("spawn_" + name, [(v / 1e6, 100 * (i + 1) / len(values))
                                          for i, v in enumerate(values)])
        plots.append("$spawn_%s using 1:2 with steps lw 2 lc rgb '%s' title '%s'"
                     % (name, colour, {"flock": "flock x true", "stile": "stile run x true"}[name]))
    return blocks + """
set title 'a whole process: %% of runs within ms'
set xtics auto; set xrange [0:%.1f]; set yrange [0:105]; set key bottom right
plot %s
unset key
""" % (widest, ", ".join(plots))


def panel_many(medians):
    rows = [(size, cost["make_ns"], cost["take_ns"], cost["give_ns"])
            for size, cost in medians.items()]
    return block("many", rows) + """
set title 'many locks of one client: ns for each'
set xtics 10000; set xrange [0:*]; set yrange [0:*]; set key bottom right
plot $many using 1:2 with linespoints pt 7 lc rgb '%s' title 'make', \\
     '' using 1:3 with linespoints pt 7 lc rgb '%s' title 'take', \\
     '' using 1:4 with linespoints pt 7 lc rgb '%s' title 'give'
unset key
""" % (THIRD, OURS, PEER)


PANELS = (("pair", panel_pair), ("handover", panel_handover), ("server_pair", panel_server_pair),
          ("server_handover", panel_server_handover), ("threads", panel_threads),
          ("crowd", panel_crowd), ("spawn", panel_spawn), ("many", panel_many))


def panels(samples):
    drawn = [make(samples[name]) for name, make in PANELS if name in samples]
    return drawn + ([panel_kill(samples)] if {"kill", "runkill"} & set(samples) else [])


def draw(samples, base):
    """The files written; none, and a line that says why, where gnuplot can't."""
    drawn = panels(samples)
    if not drawn:
        return []
    if not shutil.which("gnuplot"):
        print("bench: no plots: gnuplot is missing", file=sys.stderr)
        return []
    written = []
    for kind, terminal in TERMINALS.items():
        script = ("set terminal %s\nset output '%s.%s'\nset style fill solid 0.9 border -1\n"
                  "set boxwidth 0.7\nset grid ytics lc rgb '#d0d0d0'\nset tics nomirror\n"
                  "unset key\nset multiplot layout 2,3\n%s\nunset multiplot\n"
                  % (terminal, base, kind, "\n".join(drawn)))
        done = subprocess.run(["gnuplot"], input=script, capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            print("bench: no %s: %s" % (kind, done.stderr.strip().splitlines()[-1:]),
                  file=sys.stderr)
            continue
        written.append("%s.%s" % (base, kind))
    return written
