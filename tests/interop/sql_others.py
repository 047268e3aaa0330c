# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What the tests of other clients of a database have in common."""
import os
import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(TESTS / "cli"), str(TESTS / "servers")]
from kit import expect  # noqa: E402


def with_servers_of(kind, other_kind):
    """The decorator of tests that get a server of this kind, and another's session on it."""
    def with_server(case):
        def one(t):
            with kind() as server:
                t.env.update(STILE_ENGINE=server.url, STILE_MODULES=os.environ["STILE_MODULES"])
                expect(t.stile("setup").returncode, 0)
                other = other_kind(server)
                try:
                    case(t, server, other)
                finally:
                    other.connection.close()
        one.__name__, one.__doc__ = case.__name__, case.__doc__
        return one
    return with_server


def try_it(t, name):
    return t.stile("run", "--try", name, "--", "true").returncode


def exclude(t, other, name, key=None):
    """Ours keeps theirs out, theirs keeps ours out, and neither frees the other's. key: what the
    name is for them."""
    key = name if key is None else key
    held = t.hold(name)
    expect(other.take(key), False, name)
    expect(other.free(key), False, name)
    expect(try_it(t, name), 75, name)
    t.release(held)
    expect(other.take(key), True, name)
    expect(try_it(t, name), 75, name)
    # No server keeps since when.
    expect([holder["age_ms"] for holder in t.show(name)["holders"]], [None], name)
    expect(other.take(key), True, name)  # theirs is re-entrant
    expect(other.free(key), True, name)
    expect(try_it(t, name), 75, name)
    expect(other.free(key), True, name)
    expect(try_it(t, name), 0, name)
