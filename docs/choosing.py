#!/usr/bin/env python3
# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/choosing.md and README.md, from the table behind `stile advise`.

Usage: choosing.py write|check STILE
"""
import json
import os
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
BEGIN, END = "<!-- stile advise --table -->\n", "<!-- end of the table -->\n"


def rules_of(stile):
    return json.loads(subprocess.run([stile, "advise", "--table", "--json"], check=True, stdout=subprocess.PIPE).stdout)


def one_of(words):
    return ", ".join(words[:-1]) + (" or " if len(words) > 1 else "") + words[-1]


def condition(rule):
    """The answers that a rule wants, in words; engines only where they decide."""
    when = rule["when"]
    parts = [one_of(when["access"])] if "access" in when else []
    for flag, text in ("writes-to", "to %s"), ("hold", "takes %s"), ("contention", "%s contention"), ("for", "for %s"):
        if flag in when:
            parts.append(text % one_of(when[flag]))
    if rule["kind"] == "lock" and "access" not in when:
        parts.append("you have %s" % one_of(when["engines"]))
    return "; ".join(parts)


def code(text):
    return "`%s`" % text.replace("|", "\\|")


def commands(rule):
    others = [code(rule[key]) + " (%s)" % name for key, name in (("in_mysql", "MySQL"), ("in_sqlite", "SQLite"))
              if rule[key]]
    return "; ".join([code(rule["command"])] + others)


def engines(rule):
    return ", ".join(rule["when"]["engines"]) or "none"


def whole_table(rules):
    lines = ["| | if | use | engines, the best first | type |", "|---|---|---|---|---|"]
    for number, rule in enumerate(rules, 1):
        lines.append("| %d | %s | [%s](#%s) | %s | %s |" % (number, condition(rule), rule["use"], rule["rule"], engines(rule),
                                                        commands(rule)))
    lines.append("")
    for rule in rules:
        page, _, part = rule["read"].partition("#")
        more = "" if page == "docs/choosing.md" else " [%s](%s)" % (
            page, os.path.basename(page) + (part and "#" + part))
        lines.append('- <a id="%s"></a>**%s** (%s): %s%s' % (rule["rule"], rule["use"], rule["rule"], rule["why"], more))
    return "\n".join(lines) + "\n"


def short_table(rules):
    lines = ["| you have | use |", "|---|---|"]
    lines += ["| %s | [%s](docs/choosing.md#%s) |" % (rule["brief"], rule["use"], rule["rule"]) for rule in rules if rule["brief"]]
    return "\n".join(lines) + "\n"


def replaced(text, table):
    assert text.count(BEGIN) == 1 and text.count(END) == 1
    return re.sub("(?s)(?<=%s).*(?=%s)" % (re.escape(BEGIN), re.escape(END)), lambda _: "\n" + table + "\n", text)


def main(how, stile):
    rules = rules_of(stile)
    wrong = []
    for name, table in ("docs/choosing.md", whole_table(rules)), ("README.md", short_table(rules)):
        path = os.path.join(ROOT, name)
        with open(path, encoding="utf-8") as file:
            before = file.read()
        after = replaced(before, table)
        if how == "write":
            with open(path, "w", encoding="utf-8") as file:
                file.write(after)
        elif after != before:
            wrong.append(name)
    if wrong:
        sys.exit("%s: not the table behind stile advise; run docs/choosing.py write STILE" % " and ".join(wrong))


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("write", "check"):
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
