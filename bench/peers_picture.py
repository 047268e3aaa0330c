# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The table of bench/peers_run.py as a picture: a row for each client, a bar for each kind of work.

Bars are logarithmic and start at the best value of the column among all clients of that engine, so that a bar twice
as long is not twice as slow: the number stands beside it. A short bar is a fast client.
"""
import html
import math

STYLE = """<style>
  text { font: 12px ui-sans-serif, system-ui, sans-serif; fill: #24292f }
  .small { font-size: 11px; fill: #57606a } .strong { font-weight: bold } .title { font-size: 14px }
  .ours { fill: #1b6ca8 } .peer { fill: #c9a227 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #8d96a0 }
    .ours { fill: #4aa3e0 } .peer { fill: #b8922a }
  }
</style>"""
NOTE = ("A short bar is a fast client. Bars are logarithmic; numbers are medians. stile serves waiters in order; "
        "flock(2) and redis-py do not.")
LEFT, COLUMN, ROW, HEAD, BAR = 190, 250, 22, 62, 150
COLUMNS = (("pair", "take and give back a free lock"), ("handover", "hand over to a process that waits"),
           ("crowd", "eight processes on one lock"))


def text(x, y, words, classes=""):
    return '<text x="%.0f" y="%.0f"%s>%s</text>' % (x, y, classes and ' class="%s"' % classes, html.escape(words))


def slowness(work, value):
    """Larger is slower, for rates, too."""
    return 1e9 / value if work == "crowd" else value


def bar(x, y, share, ours):
    return ('<rect x="%.0f" y="%.0f" width="%.1f" height="11" rx="2" class="%s"/>'
            % (x, y, max(3, share * BAR), "ours" if ours else "peer"))


def row(y, name, works, best, decades, text_of):
    ours = name.startswith("stile")
    out = [text(24, y + 10, name, "strong" if ours else "")]
    for i, (work, _) in enumerate(COLUMNS):
        x = LEFT + i * COLUMN
        share = 0.04 + 0.96 * math.log10(slowness(work, works[work]) / best[work]) / decades
        out.append(bar(x, y, share, ours))
        out.append(text(x + max(3, share * BAR) + 6, y + 10, text_of(work, works[work]), "small"))
    return out


def draw(path, results, text_of):
    """results: {title of an engine: [(client, {work: value})]}"""
    decades = max(math.log10(max(slowness(work, works[work]) for _, works in clients)
                             / min(slowness(work, works[work]) for _, works in clients))
                  for clients in results.values() for work, _ in COLUMNS) or 1
    out, y = [], HEAD + 10
    for title, clients in results.items():
        best = {work: min(slowness(work, works[work]) for _, works in clients) for work, _ in COLUMNS}
        out.append(text(8, y + 12, title, "small strong"))
        y += ROW
        for name, works in clients:
            out += row(y, name, works, best, decades, text_of)
            y += ROW
        y += 8
    heads = [text(8, 20, "stile beside other clients, on the same servers in one run", "strong title"),
             text(8, 38, NOTE, "small")]
    heads += [text(LEFT + i * COLUMN, HEAD, title) for i, (_, title) in enumerate(COLUMNS)]
    width = LEFT + len(COLUMNS) * COLUMN
    with open(path, "w", encoding="utf-8") as file:
        file.write('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img">\n'
                   '<title>stile beside other clients of the same locks</title>\n%s\n%s\n</svg>\n'
                   % (width, y, STYLE, "\n".join(heads + out)))
