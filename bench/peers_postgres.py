# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""psycopg2 at the same work: see peers_sql.py."""
import sys

import psycopg2

import peers_sql

TRY = "select pg_try_advisory_lock(hashtextextended('peer', 0))"
WAIT = "select pg_advisory_lock(hashtextextended('peer', 0))"
GIVE = "select pg_advisory_unlock(hashtextextended('peer', 0))"


def cursor_at(port):
    connection = psycopg2.connect(host="127.0.0.1", port=port, user="postgres", dbname="postgres")
    connection.autocommit = True
    return connection.cursor()


if __name__ == "__main__":
    peers_sql.run(sys.modules[__name__])
