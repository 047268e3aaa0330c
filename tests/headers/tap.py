# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Runs functions as TAP cases; an assertion that fails is reported under its case."""


class Skip(Exception):
    """Raised by a case that can't be decided here."""


def run_cases(cases):
    """The exit status."""
    failed = 0
    print("1..%d" % len(cases))
    for number, case in enumerate(cases, 1):
        try:
            case()
            print("ok %d - %s" % (number, case.__name__), flush=True)
        except Skip as why:
            print("ok %d - %s # SKIP %s" % (number, case.__name__, why), flush=True)
        except (AssertionError, OSError) as error:
            failed += 1
            print("not ok %d - %s" % (number, case.__name__))
            print("# " + str(error).replace("\n", "\n# "), flush=True)
    return 1 if failed else 0
