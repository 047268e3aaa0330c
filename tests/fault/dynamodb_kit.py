# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What the tests of DynamoDB in trouble share: a dynalite with the table "locks", and a way to it."""
import os
import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(TESTS / "cli"), str(TESTS / "servers")]
from dynamodb_proxy import DynamoProxy  # noqa: E402
from dynamodb_server import ENV, DynamoServer, is_installed  # noqa: E402
from kit import acquired, expect, run_tests  # noqa: E402


def with_proxy(case):
    """The test gets a dynalite with the table "locks", and a way to it."""
    def decorated(t):
        with DynamoServer() as server, DynamoProxy(server.port) as proxy:
            server.create("locks")
            t.env.update(ENV, STILE_MODULES=os.environ["STILE_MODULES"], HOME=t.dir,
                         STILE_ENGINE=server.url("locks", "&poll=50", proxy.port))
            case(t, server, proxy)
    decorated.__name__, decorated.__doc__ = case.__name__, case.__doc__
    return decorated


def acquire(t, name, *options):
    """Owner and token of a claim that outlives its process."""
    done = t.stile("acquire", *options, name)
    expect(done.returncode, 0, done.stderr)
    owner, token = acquired(done.stdout)
    return owner, int(token)


def release(t, name, owner):
    t.env["STILE_OWNER"] = owner
    done = t.stile("release", name)
    del t.env["STILE_OWNER"]
    return done


def item(server, name):
    return server.call("GetItem", {"TableName": "locks", "Key": {"key": {"S": "lock/" + name}}})["Item"]


def claims(server, name):
    return item(server, name).get("claims", {}).get("M", {})


def run_if_installed(cases):
    if is_installed():
        run_tests(cases)
    else:
        print("1..0 # SKIP dynalite of npm is not installed: tools/npm-clients BUILD")
