# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Manual and completion, checked against header and command.

Usage: house.py SOURCE_ROOT STILE
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

from tap import run_cases

ROOT, COMMAND = sys.argv[1:3]


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def run(*command, **env):
    return subprocess.run(command, env={**os.environ, **env}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)


HEADER = read("include", "stile.h")
JOBS = read("include", "stile", "jobs.h")
LINES = re.sub(r"(?m)^#(?:.*\\\n)*.*$", "", re.sub(r"/\*.*?\*/", "", HEADER + JOBS, flags=re.S))
DECLARED = set(re.findall(r"(?:STILE_API|static inline)[^;]*?\b(stile_\w+)\(", LINES))
STATUSES = re.findall(r'\bX\((\w+), "([^"]*)"\)', HEADER)
VERSION = re.search(r'#define STILE_VERSION +"([^"]*)"', HEADER).group(1)


def plain(roff):
    """The words of a manual page, without its fonts."""
    roff = re.sub(r"(?m)^\.[BIR]{1,2} ", "", roff)
    return re.sub(r"\\f.|\\%|\\&", "", roff).replace("\\-", "-").replace('"', "")


def manual_has_every_function():
    synopsis = read("man", "stile.3").split(".SH DESCRIPTION")[0]
    named = set(re.findall(r"\b(stile_\w+)\(", plain(synopsis)))
    assert named == DECLARED, sorted(named ^ DECLARED)


def manual_describes_every_function():
    text = read("man", "stile.3").split(".SH DESCRIPTION")[1]
    named = set(re.findall(r"\b(stile_\w+)\b", text))
    assert not DECLARED - named, sorted(DECLARED - named)


def manual_has_every_status_with_its_text():
    table = read("man", "stile.3").split(".SH RETURN VALUE")[1].split(".PP")[0]
    named = re.findall(r"(?m)^\.T[PQ].*\n\.B STILE_(\w+)\n(.*)$", table)
    assert named and named == STATUSES, set(named) ^ set(STATUSES)


def manual_is_of_this_version():
    for page in "stile.1", "stile.3":
        assert '"stile %s"' % VERSION in read("man", page), page
    assert "version: '%s'" % VERSION in read("meson.build")
    assert "## " + VERSION in read("CHANGELOG.md")
    number = re.search(r"#define STILE_VERSION_NUM 0x(\w+)", HEADER).group(1)
    assert number == "".join("%02x" % int(part) for part in VERSION.split(".")), number


def manual_has_no_warnings():
    for page in sorted(glob.glob(os.path.join(ROOT, "man", "*.[1-8]"))):
        done = run("man", "-l", "--warnings=w", page, LC_ALL="C.UTF-8", MANWIDTH="80")
        assert done.returncode == 0 and not done.stderr, page + ": " + done.stderr
        wide = [line for line in done.stdout.splitlines() if len(line) > 80]
        assert len(done.stdout) > 1000 and not wide, (page, wide)


def verbs():
    """As the command itself prints them."""
    found = re.findall(r"(?m)^  stile ([a-z|]+)", run(COMMAND, "--help").stdout)
    names = "|".join(found).split("|")
    assert len(names) >= 9, names
    return names


def options(verb):
    helped = run(COMMAND, verb, "--help")
    assert helped.returncode == 0 and not helped.stderr, helped.stderr
    return sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", helped.stdout)))


def manual_has_every_option_of_the_command():
    page = plain(read("man", "stile.1"))
    for verb in verbs():
        assert re.search(r"\bstile %s\b" % verb, page), verb
        for option in options(verb):
            assert re.search(r"(?<![\w-])%s(?![\w-])" % option, page), (verb, option)


def complete(*words, **env):
    """What bash would offer for the last of these words."""
    script = """
        source "$1"; shift
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _stile "$1" "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}"
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    done = run("bash", "--norc", "-c", script, "bash", os.path.join(ROOT, "cli", "stile.bash"),
               COMMAND, *words, **env)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.split()


def completion_offers_verbs_and_options():
    assert sorted(complete("")) == sorted(verbs() + ["--engines", "--help", "--version"]), complete("")
    assert complete("rel") == ["release"]
    for verb in verbs():
        offered = sorted(set(complete(verb, "--")))
        assert offered == options(verb), (verb, offered)
    assert complete("run", "--profile", "f") == ["financial"]
    assert "true" in complete("run", "x", "--", "tru")


def completion_offers_names():
    with tempfile.TemporaryDirectory(prefix="stile-house-") as folder:
        engine = "local:" + folder
        done = run(COMMAND, "run", "--hold-at-least", "1h", "order-17", "--", "true",
                   STILE_ENGINE=engine)
        assert done.returncode == 0, done.stderr
        assert complete("show", "or", STILE_ENGINE=engine) == ["order-17"]
        assert complete("show", "x", STILE_ENGINE=engine) == []


CASES = [
    manual_has_every_function,
    manual_describes_every_function,
    manual_has_every_status_with_its_text,
    manual_is_of_this_version,
    manual_has_no_warnings,
    manual_has_every_option_of_the_command,
    completion_offers_verbs_and_options,
    completion_offers_names,
]


sys.exit(run_cases(CASES))
