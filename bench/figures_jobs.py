# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs: eight workers that claim and finish what is there, compared with pgbench on a bare table: it deletes
what it has locked with SKIP LOCKED, or, as a worker with a lease has to, marks it first and deletes it
in another transaction."""
import functools
import os
import re
import shutil
import statistics

import figures_sql
from figures import NotMeasured, row

WORKERS = 8
FILL = {
    "postgres": "insert into stile.job (queue, state, run_at, added_at, payload) select 'q', 'ready', "
                "now(), now(), i::text::bytea from generate_series(0, %d) i",
    "mysql": "insert into stile_job (queue, state, run_at, added_at, payload) select 'q', 'ready', "
             "utc_timestamp(6), utc_timestamp(6), seq from seq_0_to_%d",
}
FIRST = "(select id from bare where %s order by id for update skip locked limit 1)"
BARE = "delete from bare where id = " + FIRST % "true" + " returning payload;\n"
MARKED = ("update bare set until = now() + '30 s' where id = " + FIRST % "until < now()"
          + " returning id \\gset\ndelete from bare where id = :id;\n")


def pgbench(bench, started, n, text):
    """Jobs a second, of n."""
    if not shutil.which("pgbench"):
        raise NotMeasured("pgbench is missing: install the package postgresql")
    script = os.path.join(bench.directory, "bare.sql")
    with open(script, "w", encoding="utf-8") as file:
        file.write(text)
    started.sql("insert into bare (payload) select i::text::bytea from generate_series(1, %d) i" % n)
    said = bench.output(["pgbench", "-n", "-c", str(WORKERS), "-j", "2", "-t", str(n // WORKERS), "-M",
                         "prepared", "-f", script, "-h", "127.0.0.1", "-p", str(started.port), "-U",
                         "postgres", "postgres"]).stdout
    return float(re.search(r"tps = ([\d.]+)", said).group(1))


def ours(bench, database, started, n, batch):
    started.sql(FILL[database.name] % (n - 1))
    return bench.run("jobs", started.url, "q", WORKERS, batch, n)[0]


def jobs(database, bench):
    n, rounds = (2000, 2) if bench.quick else (20000 if database.name == "postgres" else 5000, 5)
    batches = (1, 8)
    found, bare, marked = {batch: [] for batch in batches}, [], []
    with figures_sql.server(bench, database) as started:
        if database.name == "postgres":
            started.sql("create table bare (id bigint generated always as identity primary key, "
                        "payload bytea, until timestamptz not null default '-infinity')")
        for _ in range(rounds):
            if database.name == "postgres":
                bare.append(pgbench(bench, started, n, BARE))
                marked.append(pgbench(bench, started, n, MARKED))
            for batch in batches:
                found[batch].append(ours(bench, database, started, n, batch))
    rows = []
    for batch, peers, name, must in (8, bare, "pgbench", 0.8), (1, bare, "pgbench", None), \
            (1, marked, "pgbench, marking", None):
        rates = [one["per_s"] for one in found[batch]]
        ratio = statistics.median(a / b for a, b in zip(rates, peers)) if peers else None
        if peers or peers is bare:
            rows.append(row("%s: jobs, %d workers, %d at a time, per second"
                            % (database.name, WORKERS, batch), "%.0f" % statistics.median(rates),
                            "%s %.0f" % (name, statistics.median(peers)) if peers else "", ratio,
                            "%.1f x" % must if must and peers else "",
                            ratio >= must if must and peers else None))
    all_runs = [one for batch in batches for one in found[batch]]
    wrong = sum(one["lost"] + one["twice"] for one in all_runs)
    rows.append(row("  lost or run twice, of %d" % sum(one["jobs"] for one in all_runs), str(wrong), "", None,
                    "0", wrong == 0))
    return rows, {}


def all_of(database):
    return {database.name + "-jobs": functools.partial(jobs, database)}
