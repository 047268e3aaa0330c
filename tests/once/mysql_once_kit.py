# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""stile_once for tests: databases with once.sql and nothing else of stile in them."""
import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(TESTS / "guard")]
from mysql_guard_kit import (DEADLOCK, LEVELS, MISUSE, WAITED, MysqlServer, World, expect,  # noqa: E402,F401
                             in_worlds, refused, run_tests)

SCRIPT = (TESTS.parent / "src" / "engines" / "mysql" / "once.sql").read_text(encoding="ascii")
OTHER, UNFINISHED, DENIED = 31005, 31006, 1370
PAYMENTS = "CREATE TABLE payment (id INT AUTO_INCREMENT PRIMARY KEY, once_key VARCHAR(40))"


def once(session, key, fingerprint=None, scope="", keep_s=None):
    """run and result."""
    return session.run("CALL stile_once(%s, %s, %s, %s)", key, fingerprint, scope, keep_s)[0]


def done(session, key, result, scope=""):
    session.run("CALL stile_once_done(%s, %s, %s)", key, result, scope)


def complete(session, key, result, scope="", **how):
    """A whole transaction of the first caller."""
    session.begin()
    expect(once(session, key, scope=scope, **how), (1, None))
    done(session, key, result, scope)
    session.run("COMMIT")


def asked(session, key, **how):
    """run and result, in a transaction that ends at once."""
    session.begin()
    answer = once(session, key, **how)
    session.run("ROLLBACK")
    return answer
