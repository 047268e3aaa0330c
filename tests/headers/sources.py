# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Headers, layers, symbols and style, checked against the files themselves.

Usage: sources.py SOURCE_ROOT BUILD_ROOT ARCHIVE SHARED|'' COMPILER...
"""
import glob
import json
import os
import re
import shutil
import subprocess
import sys

from tap import Skip, run_cases

ROOT, BUILD, ARCHIVE, SHARED_LIBRARY = sys.argv[1:5]
COMPILER = sys.argv[5:]
FUNCTION_LINES_MAX = 70

# A file of this folder may include only what starts with one of these. "." is its own folder. The
# order is that of a request: stile.h, core, engine, io, base; nothing includes upwards.
LAYERS = {
    "src/base/": ("stile.h", "base/"),
    "src/io/": ("base/", "io/"),
    "src/engines/": ("stile.h", "base/", "io/", "engines/engine.h", "engines/module.h", "engines/kit/",
                     "."),
    "src/engines/kit/": ("stile.h", "base/", "io/", "engines/engine.h", "."),
    "src/core/": ("stile.h", "base/", "io/", "engines/engine.h", "engines/module.h",
                  "engines/registry.h", "core/"),
    "src/recipes/": ("stile.h", "base/", "io/", "engines/engine.h", "core/", "."),
    # Headers without anything of the library.
    "cli/": ("stile.h", "base/build_tree.h", "base/nearest.h", "engines/redis/guard/texts.h", "."),
}


# redlock speaks to its nodes through the small headers of redis; sql/ is for both databases.
SHARED = {
    "src/engines/mysql/": ("engines/sql/",),
    "src/engines/postgres/": ("engines/sql/",),
    "src/engines/redis/": ("engines/redis/guard/texts.h",),
    "src/engines/redlock/": tuple("engines/redis/%s.h" % name for name in (
        "address", "connection", "doctor_probe", "errors", "identity", "inspect", "keys", "loss", "lua",
        "reply")),
}


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def files(folder, *endings):
    found = [path for ending in endings
             for path in glob.glob(os.path.join(ROOT, folder, "**", "*" + ending), recursive=True)]
    assert found, folder
    return sorted(os.path.relpath(path, ROOT) for path in found)


def includes_of(path):
    return re.findall(r'(?m)^\s*#\s*include\s+[<"]([^">]+)[">]', read(path))


def own_headers():
    """As they are included: io/loop.h, cli.h."""
    return ({os.path.relpath(path, "src") for path in files("src", ".h")}
            | {os.path.basename(path) for path in files("cli", ".h")} | {"stile.h"})


def is_allowed(include, path, allowed):
    if "." in allowed:
        folder = os.path.dirname(path)
        for way in folder + "/" + include, "src/" + include:
            if os.path.dirname(way) == folder and os.path.exists(os.path.join(ROOT, way)):
                return True
    return any(include == a or (a.endswith("/") and include.startswith(a)) for a in allowed)


def no_include_goes_upwards():
    ours = own_headers()
    for folder, allowed in LAYERS.items():
        for path in files(folder, ".c", ".h"):
            shared = SHARED.get(os.path.dirname(path) + "/", ())
            for include in includes_of(path):
                assert ".." not in include, "%s includes %s" % (path, include)
                if include in ours:
                    assert is_allowed(include, path, allowed + shared), "%s includes %s" % (path, include)


def flags_of(package):
    """Where its headers are, if not where all are."""
    output = subprocess.run(["pkg-config", "--cflags", package], capture_output=True, text=True,
                          check=False)
    return output.stdout.split()


def every_header_compiles_alone():
    flags = ["-std=gnu11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE=",
             "-I" + ROOT, "-I" + os.path.join(ROOT, "src"), "-I" + os.path.join(ROOT, "include"),
             "-I" + os.path.join(ROOT, "cli"), "-I" + os.path.join(ROOT, "tests"),
             "-I" + os.path.join(BUILD, "src"), *flags_of("libpq"), *flags_of("libmariadb")]
    for path in files("src", ".h") + files("cli", ".h") + files("include", ".h"):
        done = subprocess.run([*COMPILER, *flags, "-xc", "-"], capture_output=True, text=True,
                              input='#include "%s"\n' % path * 2, check=False)
        assert done.returncode == 0, path + ": " + done.stderr


def exports_of(library):
    output = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True,
                          check=True).stdout
    exported = sorted(line.split()[-1].split("@")[0] for line in output.splitlines()
                      if line.split()[-2] != "A")  # a version's own name
    return [name for name in exported if not name.startswith("__odr_asan")]


def a_module_exports_one_symbol():
    for module in glob.glob(os.path.join(BUILD, "src", "*.so")):
        if not os.path.basename(module).startswith("libstile."):
            assert exports_of(module) == ["stile_engines"], (module, exports_of(module))


def listed_symbols():
    listed = read("tests", "headers", "symbols.txt").split()
    assert listed == sorted(listed), "symbols.txt is not in order"
    assert all(name.startswith("stile_") for name in listed), listed
    return listed


def exports_are_those_of_the_list():
    if not SHARED_LIBRARY:
        raise Skip("no shared library in this build")
    ours, listed = exports_of(SHARED_LIBRARY), listed_symbols()
    assert ours == listed, "exported or listed, not both: %s" % sorted(set(ours) ^ set(listed))


def exports_have_a_version():
    """By which a package knows the library that a program needs."""
    if not SHARED_LIBRARY:
        raise Skip("no shared library in this build")
    output = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", SHARED_LIBRARY],
                            capture_output=True, text=True, check=True).stdout
    bare = [line for line in re.findall(r"(?m) [TDBRW] (stile_\S+)$", output)
            if not re.fullmatch(r"stile_\w+@@STILE_0\.\d+", line)]
    assert not bare and "@@STILE_0.2" in output, bare


def the_archive_has_no_other_global_names():
    """A program may have an error_set() of its own."""
    output = subprocess.run(["nm", "-g", "--defined-only", ARCHIVE], capture_output=True, text=True,
                            check=True).stdout
    ours = {name for name in re.findall(r"(?m)^[0-9a-f]+ [A-Z] (\w+)$", output)
            if not name.startswith("__")}
    assert ours == set(listed_symbols()), sorted(ours ^ set(listed_symbols()))


def declarations_are_those_of_the_list():
    headers = "".join(read(path) for path in files("include", ".h"))
    header = re.sub(r"/\*.*?\*/", "", headers, flags=re.S)
    header = re.sub(r"(?m)^#(?:.*\\\n)*.*$", "", header)
    declared = re.findall(r"STILE_API[^;]*?\b(stile_\w+)\(", header)
    listed = read("tests", "headers", "symbols.txt").split()
    assert sorted(declared) == listed, sorted(set(declared) ^ set(listed))


def objects():
    """One object file of each source that was compiled."""
    with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as file:
        commands = json.load(file)
    found = {}
    for command in commands:
        path = os.path.normpath(os.path.join(command["directory"], command["file"]))
        found.setdefault(os.path.relpath(path, ROOT), os.path.join(BUILD, command["output"]))
    return found


def symbols_of(path):
    """What an object file defines for others, and what it needs of them."""
    listed = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
    kinds = [line.split()[-2:] for line in listed.splitlines()]
    return ({name for kind, name in kinds if kind in "TDBRVWC" and not name.startswith("__")},
            {name for kind, name in kinds if kind == "U"})


def folders():
    """The symbols of each source file, by folder."""
    found = {}
    for path, compiled in objects().items():
        if path.startswith(("src/", "cli/")) and os.path.exists(compiled):
            found.setdefault(os.path.dirname(path), {})[path] = symbols_of(compiled)
    return found


def circle_in(calls):
    """Files that call each other in a circle, or nothing: what calls nobody is taken out until
    only circles, and what leads to them, are left."""
    left = dict(calls)
    while True:
        ends = [path for path, called in left.items() if not called & left.keys()]
        if not ends:
            return sorted(left)
        for path in ends:
            del left[path]


def files_of_a_folder_do_not_call_in_circles():
    for folder, sources in folders().items():
        home = {name: path for path, (defined, _) in sources.items() for name in defined}
        calls = {path: {home[name] for name in needed if name in home} - {path}
                 for path, (_, needed) in sources.items()}
        assert not circle_in(calls), "%s: among %s" % (folder, ", ".join(circle_in(calls)))


def every_mutant_applies():
    """`make mutants` runs them; that each still fits the code is checked here."""
    for patch in files("tests/mutants", ".patch"):
        done = subprocess.run(["patch", "-p1", "--fuzz=0", "--dry-run", "--reject-file=-", "-i",
                               os.path.join(ROOT, patch)], cwd=ROOT, capture_output=True, text=True,
                              check=False)
        assert done.returncode == 0, "%s: %s" % (patch, done.stdout)


def functions_are_short():
    for path in files("src", ".c", ".h") + files("cli", ".c", ".h"):
        start = None
        for number, line in enumerate(read(path).splitlines(), 1):
            if line == "{":
                start = number
            elif line == "}" and start:
                length = number - start - 1
                assert length <= FUNCTION_LINES_MAX, "%s:%d: %d lines" % (path, start, length)
                start = None


def every_source_names_its_licence():
    """Programs that collect licences look for these lines at the top of a file."""
    folders = [os.path.relpath(path, ROOT) for path in glob.glob(os.path.join(ROOT, "*"))
               if os.path.isdir(path) and not os.path.basename(path).startswith("build")]
    paths = [path for folder in folders for ending in SOURCES
             for path in glob.glob(os.path.join(ROOT, folder, "**", "*" + ending), recursive=True)]
    assert len(paths) > 500, len(paths)
    for path in paths + glob.glob(os.path.join(ROOT, "tools", "*")):
        path = os.path.relpath(path, ROOT)
        if path.startswith("tests/headers/0.1.0/") or path.endswith(".in") or \
                os.path.isdir(os.path.join(ROOT, path)):
            continue
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            top = file.read(300)
        assert "SPDX-License-Identifier: Apache-2.0" in top and "the stile authors" in top, path


def nothing_is_left_to_do_later():
    for folder in "src", "cli", "include":
        for path in files(folder, ".c", ".h"):
            left = re.findall(r"\b(?:TODO|FIXME|XXX|HACK)\b", read(path))
            assert not left, (path, left)


# The phrases that DESIGN's English rules name and that no correct sentence needs. "who" stands only
# behind a person.
PERSON = r"(?:user|administrator|anyone|someone|everyone|reader|developer|operator|author)s?"
SLIPS = re.compile(r"\bthe own\b|\bany ?more\b|\bwhat who\b|\bhow-manieth\b"
                   r"|(?<![-\w\"'(])(?:(?P<person>\b%s,? )|\b)who(?:ever)?\b(?=[ ,])" % PERSON, re.I)
SOURCES = (".c", ".h", ".cpp", ".hpp", ".py", ".sh", ".lua", ".sql", ".js", ".css", ".html",
           "meson.build")
PROSE = (".c", ".h", ".py", ".lua", ".sql", ".md", ".1", ".3", ".patch", ".pml", ".build", ".js",
         ".css", ".html")
EXEMPT = "docs/style.md", "tests/headers/sources.py"  # they quote what they forbid


def slips_in(text):
    """Comments are read without their line breaks and stars."""
    flat = re.sub(r"\s*\n\s*(?:\*(?!/)|//|#|--)?\s*", " ", text)
    return [match.group() for match in SLIPS.finditer(flat) if not match["person"]]


def prose_has_named_subjects():
    assert slips_in("/* Woken is\n * who waits. */") and slips_in("it was not ours any\n * more")
    assert slips_in("Who waits, polls") and slips_in("the own key")
    assert not slips_in("an administrator\n * who may, and anyone who reads; whose turn it is")
    for folder in "src", "cli", "include", "man", "docs", "tests", "bench", "sim", "examples", "web":
        for path in files(folder, *PROSE):
            if path not in EXEMPT and not path.startswith("tests/headers/0.1.0/"):
                assert not slips_in(read(path)), "%s: %s" % (path, slips_in(read(path)))


def layout_is_clang_format_s():
    if not shutil.which("clang-format"):
        raise Skip("clang-format is not installed")
    version = subprocess.run(["clang-format", "--version"], capture_output=True, text=True,
                             check=True).stdout
    if " 14." not in version:
        raise Skip("the layout is that of clang-format 14, as in Debian 12")
    paths = [path for folder in ("src", "cli", "include", "tests", "examples", "bench")
             for path in files(folder, ".[ch]", ".[ch]pp")]
    done = subprocess.run(["clang-format", "--dry-run", "-Werror", *paths], cwd=ROOT,
                          capture_output=True, text=True, check=False)
    wrong = sorted(set(re.findall(r"(?m)^(\S+?):\d+:\d+: error", done.stderr)))
    assert done.returncode == 0, "make format: " + " ".join(wrong)


sys.exit(run_cases([
    no_include_goes_upwards,
    every_header_compiles_alone,
    exports_are_those_of_the_list,
    exports_have_a_version,
    the_archive_has_no_other_global_names,
    a_module_exports_one_symbol,
    declarations_are_those_of_the_list,
    files_of_a_folder_do_not_call_in_circles,
    every_mutant_applies,
    functions_are_short,
    every_source_names_its_licence,
    nothing_is_left_to_do_later,
    prose_has_named_subjects,
    layout_is_clang_format_s,
]))
