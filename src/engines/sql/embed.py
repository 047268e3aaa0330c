# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Writes files as one C string: embed.py FILE... NAME > NAME.c"""
import fileinput
import json
import sys

*files, name = sys.argv[1:]
print("extern const char %s[];" % name)
print("const char %s[] =" % name)
for line in fileinput.input(files, encoding="ascii"):
    print("    " + json.dumps(line))
print("    ;")
