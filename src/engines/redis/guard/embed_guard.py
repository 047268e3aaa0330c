# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The guard of Redis as texts, from one source: a library for FUNCTION LOAD, and scripts for EVAL.

    embed_guard.py FILE.lua ... > texts.c     both, as C constants (texts.h)
    embed_guard.py --function FILE.lua ...    the library
    embed_guard.py --script FILE.lua          one script

FILE.lua is the body of a function of keys and args. In the library it is registered as
stile_guard_FILE, with the flags that its line `-- flags:` names, and what its lines `-- include:` name
stands once at the top. As a script it gets KEYS and ARGV, and each included file stands where its line
is: what comes before costs no call the making of its functions.
"""
import hashlib
import json
import pathlib
import re
import sys

LICENCE = "-- SPDX-FileCopyrightText: the stile authors\n-- SPDX-License-Identifier: Apache-2.0\n"
LIBRARY = """#!lua name=stile_guard
%s--
-- The guard of stile: writes that refuse the token of a holder that has been replaced.
-- Load it into every primary with FUNCTION LOAD REPLACE.
"""
INCLUDE = re.compile(r"^-- include: (\S+)\n", re.M)
FLAGS = re.compile(r"^-- flags: (.*)\n", re.M)


def read(path):
    """A file without the lines about its licence: the text that it becomes a part of has them."""
    text = path.read_text(encoding="ascii")
    assert text.startswith(LICENCE), path
    return text[len(LICENCE):]


def script(path):
    body = INCLUDE.sub(lambda found: read(path.parent / found.group(1)), read(path))
    head = re.match(r"(--.*\n)+", body).group()
    return "-- stile guard/%s.lua\n%s%slocal keys, args = KEYS, ARGV\n%s" % (
        path.stem, LICENCE, FLAGS.sub("", head), body[len(head):])


def function(path):
    text = read(path)
    flags = ", ".join("'%s'" % flag for found in FLAGS.findall(text) for flag in found.split())
    body = INCLUDE.sub("", FLAGS.sub("", text))
    head = re.match(r"(--.*\n)+", body).group()
    lines = "".join("  " + line if line.strip() else line
                    for line in body[len(head):].splitlines(keepends=True))
    return ("\n%sredis.register_function{function_name = 'stile_guard_%s', flags = {%s},\n"
            "callback = function(keys, args)\n%send}\n" % (head, path.stem, flags, lines))


def library(paths):
    included = dict.fromkeys(paths[0].parent / name for path in paths
                             for name in INCLUDE.findall(read(path)))
    return "".join([LIBRARY % LICENCE, *("\n" + read(path) for path in included),
                    *map(function, paths)])


def constant(name, text):
    """A member of an initialiser."""
    lines = "\n".join("        " + json.dumps(line) for line in text.splitlines(keepends=True))
    return ('    {.name = "%s", .len = %d, .sha1 = "%s", .source =\n%s},\n'
            % (name, len(text), hashlib.sha1(text.encode()).hexdigest(), lines))


def main(words):
    if words[0] == "--function":
        return library([pathlib.Path(word) for word in words[1:]])
    if words[0] == "--script":
        return script(pathlib.Path(words[1]))
    paths = [pathlib.Path(word) for word in words]
    return "".join([
        '#include "engines/redis/guard/texts.h"\n\n',
        "const struct redis_guard_text redis_guard_library =\n",
        constant("stile_guard", library(paths)).rstrip(",\n"), ";\n\n",
        "const struct redis_guard_text redis_guard_scripts[] = {\n",
        *(constant(path.stem, script(path)) for path in paths),
        "    {.name = NULL},\n};\n"])


sys.stdout.write(main(sys.argv[1:]))
