# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The figures of postgres, on a server of their own, compared with bare libpq and psycopg2."""
import functools
import os
import pathlib
import subprocess
import sys

import figures_jobs
import figures_sql
from figures import row

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "servers"))
from postgres_server import PostgresServer  # noqa: E402

POSTGRES = figures_sql.Database(
    "postgres", functools.partial(PostgresServer, "-c", "max_connections=60", durable=True), "libpq",
    "psycopg2", "peers_postgres.py", 1.2, "advisory", {"two cores": 1.15, "one core": 1.2}, 1500)
HELD = 200


def sessions(bench):
    with figures_sql.server(bench, POSTGRES) as postgres:
        program = subprocess.Popen([bench.program("keep"), postgres.url, str(HELD), "10000", "4"],
                                   stdout=subprocess.PIPE, text=True,
                                   env=dict(os.environ, STILE_ENGINE=postgres.url))
        with program:
            program.stdout.readline()
            n = int(postgres.sql("select count(*) from pg_stat_activity "
                                 "where application_name like 'stile%'"))
            held = int(postgres.sql("select count(*) from pg_locks where locktype = 'advisory'"))
            program.stdout.read()
    return [row("postgres: sessions of a client that holds %d names" % held, str(n), "", None, "3",
                n <= 3 and held == HELD)], {}


ALL = {**figures_sql.all_of(POSTGRES), "postgres-sessions": sessions,
       **figures_jobs.all_of(POSTGRES)}
