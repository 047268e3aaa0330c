# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""examples/payment-postgres.sh does what it says, and stays short enough to be read."""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.join(HERE, "..", "..")
sys.path[:0] = [os.path.join(SOURCE, "tests", folder) for folder in ("servers", "headers")]

from postgres_server import PostgresServer, tool  # noqa: E402
from tap import run_cases  # noqa: E402

EXAMPLE = os.path.join(SOURCE, "examples", "payment-postgres.sh")
PATIENCE_S = 60
LINES_MAX = 80


def one_payment():
    folders = [os.path.dirname(os.environ["STILE"]), os.path.dirname(tool("psql")), os.environ["PATH"]]
    with PostgresServer() as server:
        for _ in range(2):  # it may be repeated
            done = subprocess.run([EXAMPLE, server.url], stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, env={**os.environ, "PATH": ":".join(folders)},
                                  timeout=PATIENCE_S, check=False)
            assert done.returncode == 0, done.stderr
            assert [" ".join(line.split()) for line in done.stdout.splitlines()] == [
                "without once: 2 payments", '20 {"amount": 5, "payment": 1}', "with once: 1 payment",
                '{"amount": 7, "payment": 2}', "ann|5", "bob|7"], done.stdout
            assert "was used with another fingerprint" in done.stderr, done.stderr


def it_is_short():
    with open(EXAMPLE, encoding="ascii") as file:
        assert len(file.readlines()) < LINES_MAX


if __name__ == "__main__":
    sys.exit(run_cases([one_payment, it_is_short]))
