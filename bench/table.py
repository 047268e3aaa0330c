"""Rows as an aligned table for people."""

HEADINGS = ("", "ours", "beside it", "ratio", "must reach", "reached")


def cells(row):
    if row["reached"] is None:
        verdict = "not measured" if row["must"] else ""
    else:
        verdict = "yes" if row["reached"] else "NO"
    ratio = "" if row["ratio"] is None else "%.2f" % row["ratio"]
    return row["what"], row["ours"], row["beside"], ratio, row["must"], verdict


def render(rows):
    lines = [HEADINGS] + [cells(row) for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADINGS))]
    lines.insert(1, tuple("-" * width for width in widths))
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip()
                     for line in lines)
