# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The files of debian/ agree with what is built: each installed file has its package, the symbols and the
versions are those of the library.

Usage: debian.py SOURCE_ROOT BUILD_ROOT LIBSTILE
"""
import fnmatch
import glob
import json
import os
import pathlib
import re
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "headers"))
from tap import run_cases  # noqa: E402

SOURCE, BUILD, LIBRARY = sys.argv[1:4]
DEBIAN = os.path.join(SOURCE, "debian")


def read(*path):
    with open(os.path.join(SOURCE, *path), encoding="utf-8") as file:
        return file.read()


def run(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, "%s: %s" % (" ".join(command), done.stderr)
    return done.stdout


def paragraphs(text):
    """Those of a control file, each a dict."""
    return [dict(re.findall(r"(?ms)^([\w-]+):[ \n]*(.*?)(?=^\S|\Z)", part))
            for part in re.split(r"\n\s*\n", text.strip())]


SOURCE_PART, *BINARY_PARTS = paragraphs(read("debian", "control"))
PACKAGES = [part["Package"].strip() for part in BINARY_PARTS]
MESON_VERSION = re.search(r"version: '([^']*)'", read("meson.build")).group(1)


def installed():
    """What `make install` puts where, with the prefix of a package; links of the library included.
    The page of `make page` is in no package: its build fetches sources."""
    options = {option["name"]: option["value"]
               for option in json.loads(run("meson", "introspect", "--buildoptions", BUILD))}
    paths = set()
    plan = json.loads(run("meson", "introspect", "--installed", BUILD))
    for path in plan.values():
        inside = os.path.relpath(path, options["prefix"])
        assert not inside.startswith(".."), path
        if not os.path.basename(path).startswith("stile-play"):
            paths.add("usr/" + inside)
    for path in list(paths):
        versioned = re.fullmatch(r"(.*/lib\w+\.so)\.(\d+)\.[\d.]+", path)
        if versioned:
            paths |= {versioned.group(1), versioned.group(1) + "." + versioned.group(2)}
    return paths


def claims(package):
    """Its patterns, without the directory that may follow one."""
    with open(os.path.join(DEBIAN, package + ".install"), encoding="utf-8") as file:
        return [line.split()[0] for line in file if line.strip() and not line.startswith("#")]


def matches(path, pattern):
    """As dh_install does: a pattern may name a directory, and * does not match a slash."""
    parts, wanted = path.split("/"), pattern.split("/")
    return len(parts) >= len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))


def every_file_belongs_to_one_package():
    for path in sorted(installed()):
        owners = [package for package in PACKAGES
                  if any(matches(path, pattern) for pattern in claims(package))]
        assert len(owners) == 1, "%s is in %s" % (path, owners or "no package: see debian/*.install")


def every_pattern_finds_a_file():
    paths = installed()
    for package in PACKAGES:
        for pattern in claims(package):
            assert any(matches(path, pattern) for path in paths), (package, pattern)


def every_install_file_has_its_package():
    named = {os.path.basename(path)[:-len(".install")]
             for path in glob.glob(os.path.join(DEBIAN, "*.install"))}
    assert named == set(PACKAGES), named ^ set(PACKAGES)


def every_engine_has_its_package():
    modules = {os.path.basename(path)[:-3] for path in installed() if re.search(r"/stile/\w+\.so$", path)}
    engines = {package[len("stile-engine-"):] for package in PACKAGES if package.startswith("stile-engine-")}
    assert modules == engines, modules ^ engines
    for part in BINARY_PARTS:
        if part["Package"].strip() in ("stile", "libstile0"):
            for engine in engines:
                assert "stile-engine-" + engine in part["Suggests"], (part["Package"], engine)


def symbols_are_those_of_the_library():
    """With their versions, each as old as the release that has first exported it."""
    first, second, *lines = read("debian", "libstile0.symbols").splitlines()
    soname = re.search(r"SONAME\s+(\S+)", run("objdump", "-p", LIBRARY)).group(1)
    assert first == soname + " libstile0 #MINVER#", first
    assert second == "* Build-Depends-Package: libstile-dev", second
    listed = dict(re.fullmatch(r" (\S+@\S+) (\S+)", line).groups() for line in lines)
    exported = set()
    for line in run("nm", "-D", "--with-symbol-versions", "--defined-only", LIBRARY).splitlines():
        kind, symbol = line.split()[-2:]
        name, _, version = symbol.partition("@@")
        exported.add("%s@%s" % (name, name if kind == "A" else version or "Base"))
    assert set(listed) == exported, \
        "debian/update-symbols brings debian/libstile0.symbols up to date: %s" % (set(listed) ^ exported)
    names = {symbol.split("@")[0] for symbol in listed if not symbol.startswith("STILE_")}
    assert names == set(read("tests", "headers", "symbols.txt").split())


def versions_agree():
    newest = re.match(r"stile \(([^)]*)\)", read("debian", "changelog")).group(1)
    assert newest.split("-")[0] == MESON_VERSION, (newest, MESON_VERSION)
    needs = re.search(r"meson_version: '>= ([\d.]+)'", read("meson.build")).group(1)
    assert "meson (>= %s)" % needs in SOURCE_PART["Build-Depends"]


def build_needs_every_library():
    table = re.search(r"(?ms)^list_engines='\n(.*?)^'", read("tools", "deps")).group(1)
    for line in table.splitlines():
        assert " " + line.split()[0] + "," in " " + SOURCE_PART["Build-Depends"].replace("\n", " "), line


def another_version_of_an_engine_is_kept_out():
    """The library refuses an engine of another build, so dpkg must not let them be installed together."""
    for part in BINARY_PARTS:
        if part["Package"].startswith("stile-engine-"):
            for other in "stile", "libstile0":
                for sign in "<<", ">>":
                    assert "%s (%s ${binary:Version})" % (other, sign) in part["Breaks"], part["Package"]


CASES = [
    every_file_belongs_to_one_package,
    every_pattern_finds_a_file,
    every_install_file_has_its_package,
    every_engine_has_its_package,
    symbols_are_those_of_the_library,
    versions_agree,
    build_needs_every_library,
    another_version_of_an_engine_is_kept_out,
]


sys.exit(run_cases(CASES))
