# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""pg and mysql2 of npm on the same databases and names: each excludes with us in both directions."""
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE.parent / "cli"), str(HERE.parent / "servers")]
from kit import Lines, expect, run_tests  # noqa: E402
from mysql_server import MysqlServer  # noqa: E402
from postgres_server import PostgresServer, die_with_parent  # noqa: E402

PACKAGES = os.environ["STILE_NPM"]  # where tools/npm-clients has put them
SERVERS = {"pg": PostgresServer, "mysql2": MysqlServer}


class Other:
    """The driver of npm/sql.js."""

    def __init__(self, client, server):
        self.process = subprocess.Popen(
            ["node", str(HERE / "npm" / "sql.js"), PACKAGES, client, str(server.port)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=die_with_parent)
        self.out = Lines(self.process.stdout.fileno())

    def say(self, *words):
        self.process.stdin.write(" ".join(words).encode() + b"\n")
        self.process.stdin.flush()

    def asked(self, *words):
        self.say(*words)
        return {"yes": True, "no": False}[self.out.next()]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def try_it(t, name="x"):
    return t.stile("run", "--try", name, "--", "true").returncode


def both_exclude(t, other):
    """what one has the other doesn't get, and can't free"""
    for name in "x", "order:17", "\u00e9t\u00e9":
        held = t.hold(name)
        expect(other.asked("take", name), False, name)
        expect(other.asked("free", name), False, name)
        expect(try_it(t, name), 75, name)
        t.release(held)
        expect(other.asked("take", name), True, name)
        expect(try_it(t, name), 75, name)
        expect(other.asked("free", name), True, name)
        expect(try_it(t, name), 0, name)


def both_wait(t, other):
    """a waiter gets it when the other releases it"""
    held = t.hold("x")
    watched = t.watch("x")
    other.say("wait", "x")
    expect(other.out.next(), "waiting")
    t.until(watched, lambda change: len(change["waiters"]) == 1)
    t.release(held)
    expect(other.out.next(), "yes")
    waiting = t.start("run", "x", "--", "echo", "in")
    t.until(watched, lambda change: len(change["waiters"]) == 1)
    expect(other.asked("free", "x"), True)
    expect(waiting.line(), "in")
    expect(waiting.wait(), 0)


def scene(case, client):
    def one(t):
        with SERVERS[client]() as server:
            t.env.update(STILE_ENGINE=server.url, STILE_MODULES=os.environ["STILE_MODULES"])
            expect(t.stile("setup").returncode, 0)
            with Other(client, server) as other:
                case(t, other)
    one.__name__, one.__doc__ = "%s_%s" % (case.__name__, client), client + ": " + case.__doc__
    return one


def main():
    if not all(os.path.isdir(os.path.join(PACKAGES, "node_modules", client)) for client in SERVERS):
        why = "pg and mysql2 of npm are not installed: tools/npm-clients BUILD"
        if os.environ.get("CI"):
            print("1..1\nnot ok 1 - %s" % why)
            sys.exit(1)
        print("1..0 # SKIP %s" % why)
        sys.exit(0)
    run_tests([scene(case, client) for client in SERVERS for case in (both_exclude, both_wait)])


main()
