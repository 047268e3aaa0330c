# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Writes Lua scripts as C constants: embed_lua.py ENGINE FILE.lua... > scripts.c

FILE.lua becomes `const struct lua ENGINE_script_FILE`, declared in engines/ENGINE/scripts.h, with
the SHA1 under which a server keeps it; ENGINE_scripts[] lists them all, for a test. A line
`-- include: lib/x.lua` is replaced by that file. Comments, blank lines and indentation are left
out: every new connection sends the text once. A first line with the file's name stays, for SLOWLOG
and MONITOR.
"""
import hashlib
import json
import os
import re
import sys


def lines_of(path, root):
    with open(path, encoding="ascii") as file:
        for line in file:
            text = line.strip()
            include = re.fullmatch(r"-- include: (\S+)", text)
            if include:
                yield from lines_of(os.path.join(root, include.group(1)), root)
            elif text and not text.startswith("--"):
                yield text + "\n"


def write(engine, path):
    name = os.path.splitext(os.path.basename(path))[0]
    title = "-- stile %s/%s.lua\n" % (engine, name)
    lines = [title, *lines_of(path, os.path.dirname(path))]
    source = "".join(lines)
    print("\nconst struct lua %s_script_%s = {" % (engine, name))
    print("    .len = %d," % len(source))
    print('    .sha1 = "%s",' % hashlib.sha1(source.encode()).hexdigest())
    print("    .source =")
    for line in lines:
        print("        " + json.dumps(line))
    print("};")
    return name


print('#include "engines/%s/scripts.h"' % sys.argv[1])
names = [write(sys.argv[1], path) for path in sys.argv[2:]]
print("\nconst struct lua *const %s_scripts[] = {" % sys.argv[1])
for name in names:
    print("    &%s_script_%s," % (sys.argv[1], name))
print("    NULL,\n};")
