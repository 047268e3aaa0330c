# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Rows as an aligned table of text."""

HEADINGS = ("", "stile", "compared with", "ratio", "target", "met")


def cells(row):
    if row["reached"] is None:
        met = "not measured" if row["must"] else ""
    else:
        met = "yes" if row["reached"] else "NO"
    ratio = "" if row["ratio"] is None else "%.2f" % row["ratio"]
    return row["what"], row["ours"], row["beside"], ratio, row["must"], met


def render(rows):
    lines = [HEADINGS] + [cells(row) for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADINGS))]
    lines.insert(1, tuple("-" * width for width in widths))
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip()
                     for line in lines)
