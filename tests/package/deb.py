# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""`make deb` says what it could not do, and fails if lintian complains. The tools it calls are stand-ins.

Usage: deb.py SOURCE_ROOT BUILD_ROOT
"""
import glob
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "headers"))
from tap import run_cases  # noqa: E402

SOURCE = sys.argv[1]
FILES = ["tools/deb", "tools/demo", "debian/changelog"]

# Each leaves a file or a line by which it is known to have run.
TOOLS = {
    "dpkg-buildpackage": 'touch ../stile_0_amd64.deb "../$(basename "$PWD" | tr - _)-0stile1_amd64.changes"',
    "lintian": "exit 0",
    "id": "echo 0",
    "unshare": "exit 0",
    "debootstrap": "echo 'E: no mirror'; exit 1",
}


class Scene:
    """A repository of its own, with little in it."""

    def __init__(self, **tools):
        self.where = tempfile.mkdtemp(prefix="stile-deb-")
        self.tree = os.path.join(self.where, "tree")
        for name in FILES:
            path = os.path.join(self.tree, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            shutil.copy(os.path.join(SOURCE, name), path)
        os.mkdir(os.path.join(self.where, "bin"))
        for name, text in {**TOOLS, **tools}.items():
            path = os.path.join(self.where, "bin", name)
            with open(path, "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\n%s\n" % text)
            os.chmod(path, 0o755)
        for command in (["init", "-q"], ["add", "."],
                        ["-c", "user.name=x", "-c", "user.email=x@x.invalid", "commit", "-qm", "x"]):
            subprocess.run(["git", *command], cwd=self.tree, check=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.where)

    def run(self, **env):
        clean = {name: value for name, value in os.environ.items() if name != "CI"}
        clean["PATH"] = os.path.join(self.where, "bin") + ":" + clean["PATH"]
        return subprocess.run([os.path.join(self.tree, "tools", "deb"), os.path.join(self.where, "out")],
                              env={**clean, **env}, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, check=False)


def check_not_done(scene, reason):
    """Said aloud, with the packages kept; in CI it is a failure."""
    done = scene.run()
    assert done.returncode == 0 and "NOT DONE: " in done.stderr and reason in done.stderr, done
    assert any(name.endswith(".deb") for name in os.listdir(os.path.join(scene.where, "out")))
    assert not os.path.exists(os.path.join(scene.where, "out", "root"))
    assert scene.run(CI="true").returncode == 1


def without_root_packages_are_built_only():
    with Scene(id="echo 1000") as scene:
        check_not_done(scene, "sudo make deb")


def without_namespaces_packages_are_built_only():
    with Scene(unshare="exit 1") as scene:
        check_not_done(scene, "unshare is refused")


def without_a_mirror_packages_are_built_only():
    with Scene() as scene:
        check_not_done(scene, "debootstrap failed (E: no mirror)")


def complaint_of_lintian_is_a_failure():
    with Scene(lintian="echo 'W: stile: odd'; exit 2") as scene:
        done = scene.run()
        assert done.returncode == 2 and "W: stile: odd" in done.stdout, done


def failed_build_shows_its_end():
    with Scene(**{"dpkg-buildpackage": "echo broken; exit 1"}) as scene:
        done = scene.run()
        assert done.returncode == 1 and "broken" in done.stderr and "build.log" in done.stderr, done


def only_what_is_committed_is_packaged():
    with Scene(id="echo 1000") as scene:
        with open(os.path.join(scene.tree, "unfinished"), "w", encoding="utf-8") as file:
            file.write("x")
        done = scene.run()
        assert "not committed are left out" in done.stderr, done
        exported = glob.glob(os.path.join(scene.where, "out", "stile-*", "*"))
        assert sorted(map(os.path.basename, exported)) == ["debian", "tools"], exported


CASES = [
    without_root_packages_are_built_only,
    without_namespaces_packages_are_built_only,
    without_a_mirror_packages_are_built_only,
    complaint_of_lintian_is_a_failure,
    failed_build_shows_its_end,
    only_what_is_committed_is_packaged,
]


sys.exit(run_cases(CASES))
