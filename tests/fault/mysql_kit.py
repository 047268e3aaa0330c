"""What the tests of MariaDB servers in trouble have in common."""
import json
import os
import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(TESTS / "cli"), str(TESTS / "servers")]
from kit import expect  # noqa: E402
from mysql_server import MysqlServer  # noqa: E402


def use(t, server, url=None):
    t.env["STILE_ENGINE"] = url or server.url
    t.env["STILE_MODULES"] = os.environ["STILE_MODULES"]


def on_server(*args, mode=None, **how):
    """The test gets a server that is started with these arguments, and has the tables."""
    def decorate(case):
        def with_server(t):
            with MysqlServer(*args, **how) as server:
                use(t, server, server.url + ("?mode=" + mode if mode else ""))
                done = t.stile("setup")
                expect(done.returncode, 0, done.stderr)
                case(t, server)
        with_server.__name__, with_server.__doc__ = case.__name__, case.__doc__
        return with_server
    return decorate


def refused(t, *words, code=69, verb=("run", "--try", "x", "--", "true")):
    done = t.stile(*verb)
    expect(done.returncode, code, done.stderr)
    for word in words:
        assert word in done.stderr, "no %r in %r" % (word, done.stderr)
    assert done.stderr.count("\n") <= 2, done.stderr
    return done.stderr


def lost(held):
    code, said = held.wait(), held.err.end()
    expect(code, 76, said)
    assert "x" in said, said
    return said


def wait_for(t, name="x", *options):
    """One that waits, seen to be in the server's queue."""
    watched = t.watch(name)
    before = len(watched.change()["waiters"])
    waiting = t.start("run", *options, name, "--", "sh", "-c", "echo $STILE_TOKEN")
    t.until(watched, lambda change: len(change["waiters"]) == before + 1)
    return waiting


def token_of(t, name="x"):
    done = t.stile("run", name, "--", "sh", "-c", "echo $STILE_TOKEN")
    expect(done.returncode, 0, done.stderr)
    return int(done.stdout)


def findings(t):
    done = t.stile("doctor", "--json")
    return {(found["severity"], found["id"]) for found in json.loads(done.stdout)["findings"]}
