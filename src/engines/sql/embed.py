# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Writes a file as a C string: embed.py FILE NAME > FILE.c"""
import json
import sys

with open(sys.argv[1], encoding="ascii") as file:
    lines = file.readlines()
print("extern const char %s[];" % sys.argv[2])
print("const char %s[] =" % sys.argv[2])
for line in lines:
    print("    " + json.dumps(line))
print("    ;")
