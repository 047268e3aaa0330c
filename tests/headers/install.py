# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Installs into a directory of its own and uses what is there as a stranger would.

Usage: install.py SOURCE_ROOT BUILD_ROOT PREFIX SANITIZERS shared|static
"""
import os
import shutil
import subprocess
import sys
import tempfile

from tap import run_cases

SOURCE, BUILD, PREFIX, SANITIZE, KIND = sys.argv[1:6]
ROOT = tempfile.mkdtemp(prefix="stile-install-")
INSTALLED = os.path.join(ROOT, PREFIX.lstrip("/"))


def run(*command, **env):
    done = subprocess.run(command, env={**os.environ, **env}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, "%s: %s%s" % (" ".join(command), done.stdout, done.stderr)
    return done.stdout


def find(name):
    for folder, _, names in os.walk(ROOT):
        if name in names:
            return os.path.join(folder, name)
    raise AssertionError(name + " is not installed")


def install():
    run("meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", ROOT)


def everything_is_installed():
    install()
    here = {os.path.relpath(os.path.join(folder, name), INSTALLED)
            for folder, _, names in os.walk(ROOT) for name in names}
    for path in ("bin/stile", "include/stile.h", "include/stile.hpp", "share/doc/stile/README.md",
                 "share/doc/stile/LICENSE", "share/doc/stile/guarantees.md",
                 "share/doc/stile/examples/guard.cpp", "include/stile/file.h", "include/stile/jobs.h",
                 "share/man/man1/stile.1",
                 "share/man/man3/stile.3", "share/bash-completion/completions/stile",
                 "share/zsh/site-functions/_stile", "share/fish/vendor_completions.d/stile.fish"):
        assert path in here, (path, sorted(here))
    for name in "libstile.a", "stile.pc":
        find(name)
    shared = sorted(path for path in here if ".so" in path)
    assert bool(shared) == (KIND == "shared"), shared
    if shared:
        find("libstile.so")
        find("libstile.so.0")


def flags(*wanted):
    """What pkg-config says, with the directory we installed into in front."""
    return run("pkg-config", *wanted, "stile", PKG_CONFIG_PATH=os.path.dirname(find("stile.pc")),
               PKG_CONFIG_SYSROOT_DIR=ROOT).split()


def compile_hello(*link):
    out = os.path.join(ROOT, "hello")
    sanitize = [] if SANITIZE == "none" else ["-fsanitize=" + SANITIZE]
    run("cc", "-std=c11", *sanitize, "-o", out, os.path.join(SOURCE, "tests/headers/c11.c"), *link)
    return out


def program_finds_the_shared_library():
    hello = compile_hello(*flags("--cflags", "--libs"))
    output = run(hello, LD_LIBRARY_PATH=os.path.dirname(find("libstile.so.0")))
    assert "not ok" not in output and "ok 5" in output, output


def program_needs_no_shared_library():
    """Without a shared library all that the archive needs is public, and the rest may be shared."""
    how = ["--static"] if KIND == "shared" else []
    link = [find("libstile.a") if f == "-lstile" else f for f in flags("--cflags", "--libs", *how)]
    hello = compile_hello(*link)
    assert "ok 5" in run(hello, LD_LIBRARY_PATH="")
    assert "libstile" not in run("ldd", hello)


def programs_have_names_of_their_own():
    """What is not of the API is no name for the linker, in an archive either."""
    source = os.path.join(ROOT, "own.c")
    with open(source, "w", encoding="utf-8") as file:
        file.write("#include <stile.h>\n"
                   + "".join("int %s(void);\nint %s(void) { return 0; }\n" % (name, name)
                             for name in ("error_set", "client_new", "lock_start", "url_parse"))
                   + "int main(void) { return stile_version()[0] - '0'; }\n")
    how = ["--static"] if KIND == "shared" else []
    link = [find("libstile.a") if f == "-lstile" else f for f in flags("--cflags", "--libs", *how)]
    sanitize = [] if SANITIZE == "none" else ["-fsanitize=" + SANITIZE]
    out = os.path.join(ROOT, "own")
    run("cc", *sanitize, "-o", out, source, *link)
    run(out)


def cpp_example_compiles():
    for compiler in "g++", "clang++":
        if shutil.which(compiler) and SANITIZE == "none":
            run(compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-o", os.path.join(ROOT, "guard"),
                os.path.join(INSTALLED, "share/doc/stile/examples/guard.cpp"),
                *flags("--cflags", "--libs"))


def everything_is_uninstalled():
    """And nothing else: a file of others stays."""
    kept = os.path.join(INSTALLED, "include", "stile", "kept.h")
    with open(kept, "w", encoding="utf-8"):
        pass
    run(os.path.join(SOURCE, "tools", "uninstall"), BUILD, ROOT)
    left = [os.path.join(folder, name) for folder, _, names in os.walk(INSTALLED) for name in names]
    assert left == [kept], left
    os.unlink(kept)
    run(os.path.join(SOURCE, "tools", "uninstall"), BUILD, ROOT)
    ours = [folder for folder, _, _ in os.walk(INSTALLED) if os.path.basename(folder) == "stile"]
    assert not ours, ours


def another_version_keeps_its_links():
    """libstile.so may belong to a version that was installed later."""
    link = find("libstile.so")
    os.unlink(link)
    os.symlink("libstile.so.99", link)
    run(os.path.join(SOURCE, "tools", "uninstall"), BUILD, ROOT)
    assert os.path.islink(link) and os.readlink(link) == "libstile.so.99"
    assert not os.path.lexists(link + ".0")
    os.unlink(link)
    install()


def command_runs_alone():
    stile = os.path.join(INSTALLED, "bin", "stile")
    assert run(stile, "--version", LD_LIBRARY_PATH="").startswith("stile ")
    assert "libstile" not in run("ldd", stile)


CASES = [
    everything_is_installed,
    program_needs_no_shared_library,
    programs_have_names_of_their_own,
    cpp_example_compiles,
    command_runs_alone,
] + ([program_finds_the_shared_library, another_version_keeps_its_links] if KIND == "shared" else [])
CASES += [everything_is_uninstalled]


try:
    sys.exit(run_cases(CASES))
finally:
    shutil.rmtree(ROOT)
