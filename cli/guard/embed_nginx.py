# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the guard's configuration for nginx, with its Lua inside, as a C string:
embed_nginx.py nginx.conf nginx.lua > nginx.c

What stands between @ signs is replaced when it is printed; @nginx.lua@ is replaced here.
"""
import json
import sys

PLACE = "@nginx.lua@\n"


def join(conf_path, lua_path):
    with open(conf_path, encoding="ascii") as conf, open(lua_path, encoding="ascii") as lua:
        text, code = conf.read(), lua.read()
    assert text.count(PLACE) == 1 and "@" not in code
    return text.replace(PLACE, "".join("        " + line if line.strip() else line
                                       for line in code.splitlines(keepends=True)))


def main():
    print("extern const char guard_nginx_text[];")
    print("const char guard_nginx_text[] =")
    for line in join(*sys.argv[1:3]).splitlines(keepends=True):
        print("    " + json.dumps(line))
    print("    ;")


if __name__ == "__main__":
    main()
