"""Jobs: eight workers that claim and finish what is there, beside pgbench, which deletes what it has
locked with SKIP LOCKED from a bare table."""
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
BARE = ("delete from bare where id = (select id from bare order by id for update skip locked limit 1) "
        "returning payload;\n")


def pgbench(bench, started, n):
    """Jobs a second, of n."""
    if not shutil.which("pgbench"):
        raise NotMeasured("pgbench is missing: install the package postgresql-contrib")
    script = os.path.join(bench.directory, "bare.sql")
    with open(script, "w", encoding="utf-8") as file:
        file.write(BARE)
    started.sql("insert into bare (payload) select i::text::bytea from generate_series(1, %d) i" % n)
    said = bench.output(["pgbench", "-n", "-c", str(WORKERS), "-j", "2", "-t", str(n // WORKERS), "-M",
                         "prepared", "-f", script, "-h", "127.0.0.1", "-p", str(started.port), "-U",
                         "postgres", "postgres"]).stdout
    return float(re.search(r"tps = ([\d.]+)", said).group(1))


def ours(bench, database, started, n, batch):
    started.sql(FILL[database.name] % (n - 1))
    return bench.run("jobs", started.url, "q", WORKERS, batch, n)[0]


def jobs(database, bench):
    n, rounds = (2000, 2) if bench.quick else (20000, 5)
    batches = (1, 8)
    found, bare = {batch: [] for batch in batches}, []
    with figures_sql.server(bench, database) as started:
        if database.name == "postgres":
            started.sql("create table bare (id bigint generated always as identity primary key, "
                        "payload bytea)")
        for _ in range(rounds):
            if database.name == "postgres":
                bare.append(pgbench(bench, started, n))
            for batch in batches:
                found[batch].append(ours(bench, database, started, n, batch))
    rows = []
    for batch in reversed(batches):
        rates = [one["per_s"] for one in found[batch]]
        ratio = statistics.median(a / b for a, b in zip(rates, bare)) if bare else None
        rows.append(row("%s: jobs, %d workers, %d at a time, a second" % (database.name, WORKERS, batch),
                        "%.0f" % statistics.median(rates),
                        "pgbench %.0f" % statistics.median(bare) if bare else "", ratio,
                        "0.8 x" if bare else "", ratio >= 0.8 if bare else None))
    all_runs = [one for batch in batches for one in found[batch]]
    wrong = sum(one["lost"] + one["twice"] for one in all_runs)
    rows.append(row("  lost or twice, of %d" % sum(one["jobs"] for one in all_runs), str(wrong), "", None,
                    "0", wrong == 0))
    return rows, {}


def all_of(database):
    return {database.name + "-jobs": functools.partial(jobs, database)}
