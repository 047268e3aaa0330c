# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A program of examples/scenarios/ does the damage that it shows, and its remedy does none; docs/scenarios.md
prints what it prints.

Usage: scenario.py NAME, with the servers of its own that it needs
"""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path[:0] = [os.path.join(ROOT, "tests", folder) for folder in ("servers", "headers")]

from postgres_server import PostgresServer, tool  # noqa: E402
from redis_server import RedisServer  # noqa: E402
from tap import run_cases  # noqa: E402

PATIENCE_S = 240
LINES = 82  # with the two of the licence
NAME = sys.argv.pop()
PROGRAM = os.path.join(ROOT, "examples", "scenarios", NAME)

# The servers, and the last numbers of each line: damage first, and then none.
SCENARIOS = {
    "setnx.py": ("redis", [[1, 0]] * 4),
    "stock.py": ("postgres", [[9], [0], [0], [0], [0]]),
    "seat.py": ("postgres", [[9], [0]]),
    "cache.sh": ("redis host port", [[9], [0]]),
    "deadlock.sh": ("redis", [[1], [0]]),
    "granularity.sh": ("redis", [[1], [5], [1], [0]]),
    "paused.py": ("redis", [[1, 1], [100, 0], [77]]),
    "cutoff.py": ("redis", [[1], [0]]),
    "payment.py": ("postgres", [[10, 10], [0, 0]]),
    "leader.py": ("redis", [[1], [0]]),
    "rate.py": ("redis", [[4], [0]]),
    "invoices.sh": ("redis", [[19], [0]]),
}


def run_program(*servers):
    """What it prints."""
    env = {**os.environ, "AS_HOST": os.path.join(HERE, "as_host.py"),
           "PATH": os.path.dirname(tool("psql")) + ":" + os.environ["PATH"]}
    command = [sys.executable, PROGRAM] if NAME.endswith(".py") else [PROGRAM]
    done = subprocess.run([*command, *servers], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env,
                          timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def on_servers(kind):
    if kind.startswith("postgres"):
        with PostgresServer() as server:
            subprocess.run(["stile", "setup", server.url], check=True)
            return run_program(server.url)
    with RedisServer() as server:
        if kind.endswith("port"):
            return run_program("127.0.0.1", str(server.port))
        return run_program("redis://127.0.0.1:%d" % server.port)


def numbers(line):
    """Those at the end of a line, also before a word or two."""
    found = re.search(r"(?:\s+\d+)+(?= *[a-z ]*$)", line)
    return [int(number) for number in found.group().split()] if found else []


def damage_is_shown_and_prevented():
    kind, wanted = SCENARIOS[NAME]
    printed = on_servers(kind)
    seen = [row for row in map(numbers, printed.splitlines()) if row]
    assert seen == wanted, printed
    assert printed == documented(), "docs/scenarios.md shows something else than\n" + printed


def documented():
    """The block of docs/scenarios.md that begins with the program's name."""
    with open(os.path.join(ROOT, "docs", "scenarios.md"), encoding="utf-8") as file:
        (block,) = re.findall(r"(?ms)^```console\n\$ [^\n]*%s[^\n]*\n(.*?)^```$" % re.escape(NAME), file.read())
    return block


def it_is_short():
    with open(PROGRAM, encoding="utf-8") as file:
        lines = len(file.readlines())
    assert lines < LINES, "%s has %d lines" % (NAME, lines)


if __name__ == "__main__":
    sys.exit(run_cases([damage_is_shown_and_prevented, it_is_short]))
