# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What README.md shows is something that runs.

Usage: readme.py SOURCE_ROOT BUILD_ROOT STILE COMPILER...

The commands run on local:, with programs of the same names that do nothing; engines that a line names are
replaced, too. Those that need a database must at least be understood.
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT, BUILD, STILE = sys.argv[1:4]
COMPILER = sys.argv[4:]
sys.path.insert(0, os.path.join(ROOT, "tests", "headers"))

from tap import run_cases  # noqa: E402

PATIENCE_S = 60
USAGE = 64
PROGRAMS = ("deploy.sh", "encode", "read-it", "close-the-day", "report", "send",
            "scheduler", "ask-the-weather")
SNIPPET = """
#include <stdio.h>
#include <stile.h>
int write_to_the_ledger(void *order, uint64_t token);
int pay_all(void);
%s
int pay_all(void)
{
    int order = 0;
%s
    return 0;
}
"""


def blocks(language):
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        return re.findall(r"(?ms)^```%s\n(.*?)^```$" % language, file.read())


def commands():
    """Each command line of the shell blocks, without the times of a crontab."""
    lines = [line for block in blocks("") for line in block.splitlines()]
    lines = [re.sub(r"^\S+ \S+ \S+ \S+ \S+  (?=stile )", "", line) for line in lines]
    found = [line for line in lines if line.startswith("stile ")]
    assert len(found) > 10, found
    return found


def make_place(place):
    os.mkdir(os.path.join(place, "bin"))
    os.symlink(STILE, os.path.join(place, "bin", "stile"))
    for name in [*PROGRAMS, "bin/psql"]:
        path = os.path.join(place, name)
        with open(path, "w", encoding="ascii") as file:
            file.write("#!/bin/sh\nexit 0\n")
        os.chmod(path, 0o700)
    with open(os.path.join(place, "letter"), "w", encoding="ascii") as file:
        file.write("Dear customer\n")


def run(line, place):
    """Its exit status; one that would go on for ever has 0 once it has printed something."""
    for url in "redis://locks.example", "postgres://db.example/app":
        line = line.replace(url, "local:" + os.path.join(place, "instead"))
    line = re.sub("^(stile elect .*) -- ", r"\1 --once -- ", line)  # it would campaign again
    env = {**os.environ, "HOME": place, "STILE_ENGINE": "local:" + os.path.join(place, "locks"),
           "PATH": os.path.join(place, "bin") + ":" + os.environ["PATH"]}
    process = subprocess.Popen(["sh", "-c", "exec " + line], cwd=place, env=env, text=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if line.startswith(("stile watch", "stile leader")):
        printed = process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.communicate()
        return 0 if printed else 1, printed
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out + err


def commands_run():
    place = tempfile.mkdtemp(prefix="stile-readme-")
    try:
        make_place(place)
        for line in commands():
            status, said = run(line, place)
            if line.startswith(("stile jobs", "stile break")):
                assert status != USAGE, line + ": " + said  # local: has no jobs; nothing is held
            else:
                assert status == 0, "%s: exit %d: %s" % (line, status, said)
    finally:
        shutil.rmtree(place)


def targets_exist():
    with open(os.path.join(ROOT, "Makefile"), encoding="utf-8") as file:
        known = re.findall(r"(?m)^([a-z]+):", file.read())
    named = [line.split()[1] for block in blocks("") for line in block.splitlines()
             if line.startswith("make ")]
    assert named and set(named) <= set(known), (named, known)


def snippet_compiles():
    (block,) = blocks("c")
    function = block[block.index("static int pay"):block.index("struct stile_client *client;")]
    statements = block[block.index("struct stile_client *client;"):]
    command = [*COMPILER, "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I",
               os.path.join(ROOT, "include"), "-x", "c", "-"]
    done = subprocess.run(command, input=SNIPPET % (function, statements), text=True,
                          capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def links_lead_somewhere():
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        links = re.findall(r"\]\(([^)#]+)", file.read())
    missing = [link for link in links
               if "://" not in link and not os.path.exists(os.path.join(ROOT, link))]
    assert links and not missing, missing


def pictures_are_drawn_from_their_data():
    for script in "docs/picture.py", "bench/stock.py":
        done = subprocess.run([sys.executable, os.path.join(ROOT, script), "check"],
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def advice_is_one_table():
    """README.md and docs/choosing.md have the rules of stile advise."""
    done = subprocess.run([sys.executable, os.path.join(ROOT, "docs", "choosing.py"), "check", STILE],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    sys.exit(run_cases([commands_run, targets_exist, snippet_compiles, links_lead_somewhere,
                        pictures_are_drawn_from_their_data, advice_is_one_table]))
