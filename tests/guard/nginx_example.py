# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""examples/fenced-api.sh does what it says, with what the command prints, and stays short enough to be
read."""
import os
import re
import subprocess
import sys

from nginx_kit import PATIENCE_S, SOURCE, expect, printed
from tap import run_cases

EXAMPLE = os.path.join(SOURCE, "examples", "fenced-api.sh")
STILE = os.environ["STILE"]
LINES_MAX = 80


def the_late_request_is_refused():
    path = "%s:%s" % (os.path.dirname(STILE), os.environ["PATH"])
    done = subprocess.run([EXAMPLE], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          env={**os.environ, "PATH": path}, timeout=PATIENCE_S, check=False)
    expect((done.returncode, done.stderr), (0, ""))
    first, second, third, last = done.stdout.splitlines()
    expect((first, second, last), ("200 opening balance", "200 100 paid in", "100 paid in"))
    early, late = map(int, re.fullmatch(r"412 stale token (\d+) for ledger: the highest seen is (\d+)",
                                        third).groups())
    assert early < late


def it_is_short():
    with open(EXAMPLE, encoding="ascii") as file:
        expect(len(file.readlines()) < LINES_MAX, True)


def run_nginx(*args):
    return subprocess.run([STILE, "guard", "nginx", *args], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=PATIENCE_S, check=False)


def the_command_prints_what_is_tested():
    given = {"LISTEN": "127.0.0.1:81", "UPSTREAM": "http://10.0.0.1", "STATE": "/srv/guard", "REQUIRE": "all"}
    options = {"LISTEN": "--listen", "UPSTREAM": "--upstream", "STATE": "--state-dir", "REQUIRE": "--require"}
    done = run_nginx(*[word for name in given for word in (options[name], given[name])])
    expect((done.returncode, done.stderr), (0, ""))
    tested = printed(**{**given, "MEMORY": "10m", "WAIT_MS": "10000", "SETTLE_MS": "60000"})
    expect(done.stdout == tested, True)
    expect("@" in run_nginx().stdout, False)


def values_stay_within_their_directives():
    for value in "8080; root /", "a{b", "a}b", 'a"b', "a\\b", "a\nb", "$host", "":
        expect((run_nginx("--listen", value).returncode, run_nginx("--state-dir", value).returncode), (64, 64))


if __name__ == "__main__":
    sys.exit(run_cases([
        the_late_request_is_refused,
        it_is_short,
        the_command_prints_what_is_tested,
        values_stay_within_their_directives,
    ]))
