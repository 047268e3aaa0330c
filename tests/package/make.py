# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What the Makefile builds: little for the demo, the engines whose libraries are there, all in CI.

Usage: make.py SOURCE_ROOT BUILD_ROOT
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "headers"))
from tap import run_cases  # noqa: E402

SOURCE = sys.argv[1]
TEMP = tempfile.mkdtemp(prefix="stile-make-")
BUILD = os.path.join(TEMP, "build")
NOTHING = os.path.join(TEMP, "nothing")
# zookeeper and OpenSSL are left out: Meson finds OpenSSL without pkg-config, too.
HIDDEN = ["redis", "postgres", "mysql", "etcd", "dynamodb"]


def run(*command, check=True, **env):
    # A make above this one must not pass on its flags, nor CI its rules.
    clean = {name: value for name, value in os.environ.items()
             if not name.startswith(("MAKE", "MFLAGS", "PKG_CONFIG")) and name != "CI"}
    done = subprocess.run(command, env={**clean, **env}, cwd=SOURCE, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, "%s: %s%s" % (" ".join(command), done.stdout, done.stderr)
    return done


def make(*arguments, **env):
    return run("make", "--no-print-directory", "BUILD=" + BUILD, *arguments, **env).stdout


def left_out():
    with open(os.path.join(BUILD, "engines-left-out"), encoding="utf-8") as file:
        return file.read().strip().splitlines()


def steps(target):
    return run("ninja", "-C", BUILD, "-t", "inputs", target).stdout


def packages(name):
    """What tools/deps has in a list."""
    with open(os.path.join(SOURCE, "tools", "deps"), encoding="utf-8") as file:
        table = re.search(r"(?ms)^list_%s='\n(.*?)^'" % name, file.read()).group(1)
    return {line.split()[0] for line in table.splitlines()}


def demo_needs_no_library_of_an_engine():
    assert packages("build") == {"gcc", "libc6-dev", "meson", "ninja-build", "pkg-config"}
    os.mkdir(NOTHING)
    make("engines", PKG_CONFIG_LIBDIR=NOTHING)
    plan = make("-n", "run", PKG_CONFIG_LIBDIR=NOTHING).splitlines()
    assert [line.split(BUILD)[0].strip() for line in plan] == \
        ["tools/deps build", "ninja -C", "tools/demo"], plan
    assert plan[1].endswith(" cli/stile"), plan


def demo_compiles_the_command_only():
    inputs = steps("cli/stile")
    assert "cli/run.c" in inputs and "src/engines/local/local.c" in inputs, inputs
    strange = [line for line in inputs.splitlines()
               if re.search(r"(^|/)(tests|bench|examples)/|"
                         r"engines/(?!local|registry|postgres/keywords|redis/guard)", line)
               and line.endswith(".c")]
    assert not strange, strange


def engine_without_its_library_is_left_out_with_advice():
    lines = left_out()
    named = dict(re.fullmatch(r"  (\w+): apt-get install (.*)", line).groups() for line in lines[1:-1])
    assert sorted(named) == sorted([*HIDDEN, "cells", "sim"]), lines
    assert "tools/deps engines" in lines[-1], lines
    wanted = {package for text in named.values() for package in text.split()}
    assert wanted == packages("engines"), wanted ^ packages("engines")


def engine_left_out_fails_in_ci():
    for goal in "check", "test":
        assert "-Dauto_features=enabled" in make("-n", goal, "CI=true"), goal
        assert "auto_features" not in make("-n", goal), goal
    done = run("meson", "setup", os.path.join(TEMP, "ci"), "-Dauto_features=enabled", check=False,
               PKG_CONFIG_LIBDIR=NOTHING)
    assert done.returncode != 0 and "lmdb" in done.stdout, done.stdout[-500:]


def engine_whose_library_has_come_is_built():
    make("engines")
    assert left_out() == [], left_out()
    for name in HIDDEN:
        assert "src/%s.so" % name in steps("installed"), name


def what_is_installed_is_built_and_nothing_else():
    # `-t inputs` leaves out some of the direct ones.
    inputs = (steps("installed") + run("ninja", "-C", BUILD, "-t", "query", "installed").stdout).split()
    strange = [name for name in inputs if re.search(r"(^|/)(tests|bench|examples)/", name)]
    assert not strange, strange
    for target in json.loads(run("meson", "introspect", "--targets", BUILD).stdout):
        for name in target["filename"] if target["installed"] else []:
            assert os.path.relpath(name, BUILD) in inputs, name


def prefix_is_set_before_the_build():
    """It is compiled in: the directory of the engines."""
    plan = make("-n", "install", "prefix=/opt/stile")
    places = [plan.index(text) for text in ("meson configure %s -Dprefix=/opt/stile" % BUILD,
                                            "ninja -C %s installed" % BUILD, "meson install")]
    assert places == sorted(places), plan


CASES = [
    demo_needs_no_library_of_an_engine,
    demo_compiles_the_command_only,
    engine_without_its_library_is_left_out_with_advice,
    engine_left_out_fails_in_ci,
    engine_whose_library_has_come_is_built,
    what_is_installed_is_built_and_nothing_else,
    prefix_is_set_before_the_build,
]


try:
    sys.exit(run_cases(CASES))
finally:
    shutil.rmtree(TEMP)
