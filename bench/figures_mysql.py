# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The figures of mysql, on a server of their own, compared with bare libmariadb and MySQLdb."""
import functools
import pathlib
import sys

import figures_jobs
import figures_sql

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "servers"))
from mysql_server import MysqlServer  # noqa: E402

# MariaDB's own defaults: a test's server has less, and flushes pages all the time.
SIZES = "--innodb-buffer-pool-size=128M", "--innodb-log-file-size=96M"
MYSQL = figures_sql.Database(
    "mysql", functools.partial(MysqlServer, "--max-connections=60", *SIZES, durable=True),
    "libmariadb", "MySQLdb", "peers_mysql.py", None, "getlock")

ALL = {**figures_sql.all_of(MYSQL), **figures_jobs.all_of(MYSQL)}
