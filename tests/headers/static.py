# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The command with all engines inside, as -Ddefault_library=static builds it.

Usage: static.py STILE ENGINE,... LIBRARY...
"""
import json
import os
import re
import subprocess
import sys
import tempfile

from tap import run_cases

STILE, ENGINES, LIBRARIES = sys.argv[1], sys.argv[2].split(","), sys.argv[3:]
# What the names begin with that the objects of an engine's folder share with others. mysql_ and
# mariadb_ belong to the client library.
PREFIXES = {
    "dynamodb": ("ddb_",),
    "local": ("local_",),
    "etcd": ("etcd_",),
    "kit": ("doctor_", "leased_", "link_"),
    "mysql": ("maria_",),
    "postgres": ("postgres_",),
    "redis": ("redis_", "redlock_"),
    "sql": ("sql_",),
    "zookeeper": ("zk_",),
}
URLS = {
    "redis": "redis://127.0.0.1:1",
    "redlock": "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
    "postgres": "host=127.0.0.1 port=1 dbname=x user=x",
    "mysql": "mysql://x@127.0.0.1:1/x",
    "etcd": "etcd://127.0.0.1:1",
    "zookeeper": "zk://127.0.0.1:1",
    "dynamodb": "dynamodb://table?region=eu-test-1&endpoint=http://127.0.0.1:1",
}


def stile(*args):
    """Where no module would be found."""
    return subprocess.run([STILE, *args], env={**os.environ, "STILE_MODULES": "/no/such"},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def built():
    """The engines of this build: one without its libraries is listed, and not found."""
    listed = json.loads(stile("--engines", "--json").stdout)
    assert sorted(one["engine"] for one in listed) == sorted(ENGINES), listed
    return [one["engine"] for one in listed if one["found"]]


def every_engine_is_inside():
    listed = json.loads(stile("--engines", "--json").stdout)
    assert built() and not [one for one in listed if "module" in one], listed


def a_lock_is_taken():
    with tempfile.TemporaryDirectory(prefix="stile-static-") as folder:
        done = stile("run", "-e", "local:" + folder, "x", "--", "echo", "held")
        assert (done.returncode, done.stdout) == (0, "held\n"), done


def every_engine_looks_for_its_server():
    for engine in built():
        if engine == "local":
            continue
        done = stile("run", "--try", "-e", URLS[engine], "x", "--", "true")
        assert done.returncode == 69 and "127.0.0.1" in done.stderr, (engine, done)
        assert "not found" not in done.stderr, done


def names_carry_the_prefix_of_their_engine():
    """Those of an engine's library, and of objects of its folder in others."""
    for library in LIBRARIES:
        output = subprocess.run(["nm", "-g", "--defined-only", library], capture_output=True, text=True,
                              check=True).stdout
        assert output, library
        for member in output.split("\n\n"):
            inside = re.match(r"\s*engines_([a-z]+)_", member)
            folder = inside.group(1) if inside else os.path.basename(os.path.dirname(library))
            wrong = [name for name in re.findall(r"(?m)^[0-9a-f]+ [A-Z] (\w+)$", member)
                     if not name.startswith(PREFIXES.get(folder, ""))]
            assert not wrong, (folder, wrong)


CASES = [every_engine_is_inside, every_engine_looks_for_its_server,
         names_carry_the_prefix_of_their_engine] + ([a_lock_is_taken] if "local" in ENGINES else [])

sys.exit(run_cases(CASES))
