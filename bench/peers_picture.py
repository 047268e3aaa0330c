# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The table of bench/peers_run.py as a picture: a row for each client, a bar for each kind of work.

Bars are logarithmic and start at the best value of the column among all clients of that engine, so that a bar twice
as long is not twice as slow: the number stands beside it. A short bar is a fast client.
"""
import html
import math

OURS, PEER, TEXT, FAINT = "#1b6ca8", "#c9a227", "#1f2328", "#59636e"
LEFT, COLUMN, ROW, HEAD, BAR = 190, 250, 22, 62, 150
COLUMNS = (("pair", "take and give back a free lock"), ("handover", "hand over to a process that waits"),
           ("crowd", "eight processes on one lock"))


def text(x, y, words, size=12, colour=TEXT, weight="normal"):
    return ('<text x="%.0f" y="%.0f" font-size="%d" fill="%s" font-weight="%s">%s</text>'
            % (x, y, size, colour, weight, html.escape(words)))


def slowness(work, value):
    """Larger is slower, for rates, too."""
    return 1e9 / value if work == "crowd" else value


def bar(x, y, share, ours):
    return ('<rect x="%.0f" y="%.0f" width="%.1f" height="11" rx="2" fill="%s"/>'
            % (x, y, max(3, share * BAR), OURS if ours else PEER))


def row(y, name, works, best, decades, text_of):
    ours = name.startswith("stile")
    out = [text(24, y + 10, name, 12, TEXT, "bold" if ours else "normal")]
    for i, (work, _) in enumerate(COLUMNS):
        x = LEFT + i * COLUMN
        share = math.log10(slowness(work, works[work]) / best[work]) / decades
        out.append(bar(x, y, 0.04 + 0.96 * share, ours))
        out.append(text(x + max(3, (0.04 + 0.96 * share) * BAR) + 6, y + 10, text_of(work, works[work]), 11, FAINT))
    return out


def draw(path, results, text_of):
    """results: {title of an engine: [(client, {work: value})]}"""
    decades = max(math.log10(max(slowness(work, works[work]) for _, works in clients)
                             / min(slowness(work, works[work]) for _, works in clients))
                  for clients in results.values() for work, _ in COLUMNS) or 1
    out, y = [], HEAD
    for title, clients in results.items():
        best = {work: min(slowness(work, works[work]) for _, works in clients) for work, _ in COLUMNS}
        out.append(text(8, y + 12, title, 12, FAINT, "bold"))
        y += ROW
        for name, works in clients:
            out += row(y, name, works, best, decades, text_of)
            y += ROW
        y += 8
    heads = [text(8, 20, "stile beside other clients, on the same servers in one run", 14, TEXT, "bold"),
             text(8, 38, "A short bar is a fast client. Bars are logarithmic; numbers are medians.", 11, FAINT)]
    heads += [text(LEFT + i * COLUMN, HEAD - 4, title, 12, TEXT) for i, (_, title) in enumerate(COLUMNS)]
    width = LEFT + len(COLUMNS) * COLUMN
    with open(path, "w", encoding="utf-8") as file:
        file.write('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" '
                   'font-family="sans-serif"><rect width="100%%" height="100%%" fill="#ffffff"/>\n%s\n</svg>\n'
                   % (width, y, width, y, "\n".join(heads + out)))
