# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What the tests with other clients of etcd share: a server and programs of theirs that are driven by
lines, for each case; and the questions that are asked of ours."""
import contextlib
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
TESTS = HERE.parent
sys.path += [str(TESTS / "cli"), str(TESTS / "servers"), str(TESTS / "fault")]
from grants import check, read_grant  # noqa: E402, F401
from kit import Lines, PATIENCE, expect, run_tests  # noqa: E402, F401
from etcd_server import EtcdServer, die_with_parent  # noqa: E402


class Other:
    """Takes by a line, and says "in KEY" when it has got it; gives back by "free"."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        preexec_fn=die_with_parent)
        self.out = Lines(self.process.stdout.fileno())

    def say(self, *words):
        self.process.stdin.write(" ".join(map(str, words)).encode() + b"\n")
        self.process.stdin.flush()

    def take(self, *words):
        self.say(*words)
        return self.came_in()

    def came_in(self):
        """Its key."""
        word, _, key = self.out.next().partition(" ")
        expect(word, "in")
        return key

    def leader(self, name):
        self.say("leader", name)
        word, _, value = self.out.next().partition(" ")
        expect(word, "leads")
        return value

    def free(self):
        self.say("free")
        expect(self.out.next(), "out")

    def end(self):
        """And its session with it."""
        self.process.stdin.close()
        expect(self.process.wait(PATIENCE), 0)


def on_server(command, url="etcd://%s"):
    """command(server, ...) starts a program of theirs."""
    def decorate(case):
        def with_server(t):
            with contextlib.ExitStack() as stack:
                server = stack.enter_context(EtcdServer())
                t.env["STILE_ENGINE"] = url % server.hosts
                t.env["STILE_MODULES"] = os.environ["STILE_MODULES"]

                def start(*args):
                    other = Other(command(server, *args))
                    stack.callback(other.process.stdout.close)
                    stack.callback(other.process.wait)
                    stack.callback(other.process.kill)
                    return other
                case(t, server, start)
        with_server.__name__, with_server.__doc__ = case.__name__, case.__doc__
        return with_server
    return decorate


def try_it(t, name, *options):
    return t.stile("run", "--try", *options, name, "--", "true").returncode


def in_line(t, name, n):
    t.until(t.watch(name), lambda change: len(change["waiters"]) == n)


def wait_for(t, name, *options):
    return t.start("run", *options, name, "--", "sh", "-c", "echo $STILE_TOKEN; cat",
                   stdin=subprocess.PIPE)


def leave(waiting):
    waiting.process.stdin.close()
    expect(waiting.wait(), 0)


def keys(server, prefix=""):
    """But the records of last holders."""
    found = server.ctl("get", "--prefix", "--keys-only", prefix).splitlines()
    return [key for key in found if key and "\0" not in key and "\1stile/" not in key]
