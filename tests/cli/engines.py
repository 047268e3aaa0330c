# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Where the command finds its engines.

$MODULES are the modules of this build, $MODULE_DIR where they would be installed.
"""
import json
import os
import shutil
import stat
import subprocess

from kit import STILE, expect, run_tests

MODULES = os.environ["MODULES"].split()
INSTALLED = os.environ["MODULE_DIR"]
BUILD = os.path.dirname(os.path.dirname(STILE))


def listed(t, command=STILE, cwd=None, **env):
    """name: what --engines --json says of it; without $STILE_MODULES."""
    done = subprocess.run([command, "--engines", "--json"], env={**t.env, **env}, cwd=cwd or t.dir,
                          capture_output=True, text=True, check=False)
    # With more rights than its user a process cannot be looked into, not even for leaks; nor does
    # it heed $ASAN_OPTIONS.
    path = os.path.join(cwd or t.dir, command)
    if not os.stat(path).st_mode & stat.S_ISUID or "LeakSanitizer" not in done.stderr:
        expect((done.returncode, done.stderr), (0, ""))
    return {one["engine"]: one for one in json.loads(done.stdout)}


def a_copy(t, path):
    """The command, as somebody else would have installed it."""
    os.makedirs(os.path.dirname(t.path(path)), exist_ok=True)
    return shutil.copy(STILE, t.path(path))


def modules_at(t, folder):
    """Empty files where modules would be."""
    os.makedirs(t.path(folder), exist_ok=True)
    for name in MODULES:
        with open(t.path(folder + "/" + name + ".so"), "w", encoding="utf-8"):
            pass


def a_tree(t, name):
    """A copy of the command in what looks like its build tree, whose modules are empty files."""
    os.makedirs(t.path(name + "/meson-private"))
    with open(t.path(name + "/meson-private/coredata.dat"), "w", encoding="utf-8"):
        pass
    modules_at(t, name + "/src")
    return a_copy(t, name + "/cli/stile")


def is_elsewhere(t, engines):
    """None of its modules is from a directory of the test."""
    for one in engines.values():
        assert not one.get("module", "").startswith(t.dir), one
        assert one.get("module", INSTALLED + "/x").startswith(INSTALLED + "/"), one


def a_build_tree_has_its_own(t):
    """right after a build, each engine of it is found, in any working directory"""
    engines = listed(t)
    expect("module" in engines["local"] or not engines["local"]["found"], False)
    for name in MODULES:
        expect(engines[name]["module"], "%s/src/%s.so" % (BUILD, name))
    done = t.stile("--engines")
    expect((done.returncode, done.stderr), (0, ""))
    assert "local" in done.stdout and "built in" in done.stdout, done.stdout
    expect(t.stile("--engines", "--joson").returncode, 64)


def they_can_be_used(t):
    """the engine of the tree is loaded: the server it does not reach is what is missing"""
    urls = {"redis": ["redis://127.0.0.1:1", "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"],
            "mysql": ["mysql://127.0.0.1:1/x"],
            "postgres": ["postgres://127.0.0.1:1/x", "host=127.0.0.1 port=1 dbname=x"]}
    for url in sum((urls.get(name, []) for name in MODULES), []):
        done = t.stile("run", "--try", "-e", url, "x", "--", "true")
        expect(done.returncode, 69, done.stderr)
        assert "not found" not in done.stderr, done.stderr


def installed_ones_only(t):
    """an installed command looks where its engines are installed, never beside itself or here"""
    stile = a_copy(t, "usr/bin/stile")
    for folder in ".", "src", "usr/src", "usr/bin", "usr/lib/stile", "build/src", "cli":
        modules_at(t, folder)
    is_elsewhere(t, listed(t, stile))
    is_elsewhere(t, listed(t, stile, cwd=t.path("usr/bin")))
    is_elsewhere(t, listed(t, "./stile", cwd=t.path("usr/bin"), PATH="."))
    is_elsewhere(t, listed(t, stile, STILE_MODULES=""))


def the_tree_of_the_command_itself(t):
    """a tree that everybody may write to, or that belongs to somebody else, is not trusted"""
    stile = a_tree(t, "tree")
    for name in MODULES:
        expect(listed(t, stile)[name]["module"], t.path("tree/src/" + name + ".so"))
    os.chmod(t.path("tree/src"), 0o757)
    is_elsewhere(t, listed(t, stile))
    os.chmod(t.path("tree/src"), 0o755)
    os.rename(t.path("tree/src"), t.path("elsewhere"))
    os.symlink(t.path("elsewhere"), t.path("tree/src"))
    is_elsewhere(t, listed(t, stile))
    os.unlink(t.path("tree/src"))
    os.rename(t.path("elsewhere"), t.path("tree/src"))
    if os.geteuid() == 0:
        os.chown(t.path("tree/src"), 65534, 65534)
        is_elsewhere(t, listed(t, stile))


def more_rights_than_its_user(t):
    """a set-user-ID command is led by neither its place nor the environment"""
    stile = a_tree(t, "tree")
    if os.geteuid() != 0:
        return
    os.chmod(t.dir, 0o755)
    for path in stile, t.path("tree/src"):
        os.chown(path, 65534, 65534)
    modules = MODULES and listed(t, stile)[MODULES[0]]["module"]
    assert not MODULES or modules.startswith(t.dir), modules
    os.chmod(stile, 0o4755)
    is_elsewhere(t, listed(t, stile))
    is_elsewhere(t, listed(t, stile, STILE_MODULES=t.path("tree/src")))


def a_missing_one(t):
    """one line: which, where it was looked for, and what shows more; 69"""
    for name in MODULES:
        url = {"zookeeper": "zk"}.get(name, name) + "://u:s3cret@h/x"
        for verb in ["run", "-e", url, "x", "--", "true"], ["doctor", url], ["ls", "-e", url]:
            done = t.stile(*verb, env={**t.env, "STILE_MODULES": "/no/such"})
            expect((done.returncode, done.stderr),
                   (69, "stile: %s engine not found; looked in /no/such (see stile --engines)\n" % name))
    if "redis" in MODULES and not os.path.exists(INSTALLED + "/redis.so"):
        stile = a_tree(t, "tree")
        os.unlink(t.path("tree/src/redis.so"))
        done = subprocess.run([stile, "ls", "-e", "redlock://a,b,c"], env=t.env, capture_output=True,
                              text=True, check=False)
        expect(done.stderr, "stile: redlock engine not found; looked in %s and %s (see stile "
               "--engines)\n" % (t.path("tree/src"), INSTALLED))


run_tests([
    a_build_tree_has_its_own,
    they_can_be_used,
    installed_ones_only,
    the_tree_of_the_command_itself,
    more_rights_than_its_user,
    a_missing_one,
])
