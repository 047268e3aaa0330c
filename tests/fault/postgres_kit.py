# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What the tests of PostgreSQL servers in trouble have in common."""
import json

from sql_kit import count_in, lost, on_servers_of, refused, token_of, use, wait_for
from postgres_server import PostgresServer

__all__ = ["OURS", "count_in", "findings", "lost", "on_server", "refused", "token_of", "use", "wait_for"]

on_server = on_servers_of(PostgresServer)

OURS = "from pg_stat_activity where application_name like 'stile%'"


def findings(t, url=None):
    done = t.stile("doctor", "--json", *([url] if url else []))
    assert done.returncode in (0, 1, 2), done.stderr
    found = json.loads(done.stdout)["findings"]
    return {one["id"]: one["severity"] for one in found}
