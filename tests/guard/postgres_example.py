# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""examples/fenced-postgres.sh does what it says, and stays short enough to be read."""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.join(HERE, "..", "..")
sys.path[:0] = [os.path.join(SOURCE, "tests", folder) for folder in ("servers", "headers")]

from postgres_server import PostgresServer, tool  # noqa: E402
from tap import run_cases  # noqa: E402

EXAMPLE = os.path.join(SOURCE, "examples", "fenced-postgres.sh")
PATIENCE_S = 60
LINES_MAX = 80


def run_example(url):
    folders = [os.path.dirname(os.environ["STILE"]), os.path.dirname(tool("psql")), os.environ["PATH"]]
    return subprocess.run([EXAMPLE, url], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          env={**os.environ, "PATH": ":".join(folders)}, timeout=PATIENCE_S, check=False)


def the_late_transaction_is_refused():
    with PostgresServer() as server:
        for _ in range(2):  # it may be repeated
            done = run_example(server.url)
            assert done.returncode == 0, done.stderr
            seen, *entries = done.stdout.splitlines()
            assert re.fullmatch(r"ledger: token \d+ of local:ledger", seen), seen
            assert entries == ["opening balance", "100 paid in"], entries
            assert re.search(r"stale token \d+ for ledger: the highest seen is \d+", done.stderr), done.stderr
            server.sql("select stile.guard_reset('ledger', 0, '')")  # its next locks are other ones


def it_is_short():
    with open(EXAMPLE, encoding="ascii") as file:
        assert len(file.readlines()) < LINES_MAX


if __name__ == "__main__":
    sys.exit(run_cases([the_late_transaction_is_refused, it_is_short]))
