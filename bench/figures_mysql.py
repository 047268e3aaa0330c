# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The figures of mysql, on a server of their own, compared with bare libmariadb and MySQLdb."""
import functools
import pathlib
import sys

import figures_jobs
import figures_sql
from figures import compare, row, time_text
from places import PLACES

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "servers"))
from mysql_server import MysqlServer  # noqa: E402

MYSQL = figures_sql.Database(
    "mysql", functools.partial(MysqlServer, "--max-connections=60", durable=True), "libmariadb",
    "MySQLdb", "peers_mysql.py", None)
SHAPES = (("usual", "read, update, insert", (1.15, 1.3)), ("small", "one update", (None, None)))


def guard(bench):
    """Transactions of anybody's program, with the guard and without."""
    rows, samples = [], {}
    for shape, statements, most in SHAPES:
        for label, core in PLACES:
            with figures_sql.server(bench, MYSQL, True, 0) as started:
                lines = bench.run("guarded-mysql", started.port, shape, bench.rounds(60), 32, core + 1)
            samples["%s, %s" % (statements, label)] = lines
            for series, what, bound in (("equal", "guarded transaction", most[0]),
                                        ("raised", "  with a larger token", most[1]),
                                        ("apart", "  the guard in a message of its own", None),
                                        ("read", "  a bare locking SELECT in its place", None)):
                ours, bare, ratio = compare(lines, "series", series, "bare", "p50_ns")
                if series == "equal":
                    what = "mysql: %s, %s, %s, p50" % (what, statements, label)
                rows.append(row(what, time_text(ours), "without " + time_text(bare), ratio,
                                "%.2f x" % bound if bound else "", ratio <= bound if bound else None))
    return rows, {"guard": samples}


def cells(bench):
    """A cell that is replaced if its version is the one before, beside a row."""
    rows, samples = [], {}
    for size, label in (100, "100 bytes"), (65536, "64 KiB"):
        with figures_sql.server(bench, MYSQL, True, 0) as started:
            lines = bench.run("cells", started.url, "libmariadb", bench.rounds(60), 32, size, 2)
        samples[label] = lines
        for series, what in (("cell", ""), ("guarded", ", with the same token")):
            ours, bare, ratio = compare(lines, "series", series, "bare", "p50_ns")
            rows.append(row("mysql: cell swapped%s, %s, p50" % (what, label), time_text(ours),
                            "UPDATE " + time_text(bare), ratio, "1.2 x", ratio <= 1.2))
    return rows, {"cells": samples}


ALL = {**figures_sql.all_of(MYSQL), **figures_jobs.all_of(MYSQL), "mysql-guard": guard,
       "mysql-cells": cells}
