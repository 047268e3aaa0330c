# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""One client with so many locks that the paths of their nodes are more than 1 MB: more than a server
takes in one packet, or reads back from its own log. With STILE_SOAK, 50,000 of them."""
import os
import re
import signal
import subprocess

from cluster_kit import SOAK, expect, spin
from forward import Forward
from kit import run_tests
from zookeeper_kit import on_server

PATIENCE = 900 if SOAK else 120
TTL_MS = 60000 if SOAK else 15000
# Names of this length take 2.5 MB altogether, five sessions; a server reads back 2 MB.
LOCKS, LENGTH = (50000, 12) if SOAK else (4500, 500)


class Hoard:
    """A client that asks for all of them at once."""

    def __init__(self, url, locks=LOCKS, length=LENGTH, ttl_ms=TTL_MS):
        self.process = subprocess.Popen(
            [os.environ["HOARD"], url, str(locks), str(length), str(ttl_ms)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def answer(self):
        return self.process.stdout.readline().strip()

    def ask(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.answer()


def count(server, word):
    return sum(int(row.split()[-1]) for row in server.say("mntr").splitlines()
               if row.startswith(word + "\t"))


def sessions(server):
    """Those that have nodes."""
    return int(re.search(r"Sessions with Ephemerals \((\d+)\)", server.say("dump")).group(1))


# The limits of a server as it comes, but with sessions that are longer than what a busy machine
# takes for anything here.
SETTINGS = ("maxSessionTimeout=120000",)
JAVA = ["-Xmx2g"] if SOAK else ["-Xmx1g"]


@on_server(1, *SETTINGS, java=JAVA)
def a_burst_a_break_and_a_death(t, server):
    """All are granted at once, kept over broken connections, and freed by a death; the server starts again"""
    with Forward(server.members[0].port) as way, \
            Hoard("zk://127.0.0.1:%d" % way.port) as hoard:
        expect(hoard.answer(), "held %d" % LOCKS)
        spin(lambda: count(server, "zk_watch_count") >= LOCKS, PATIENCE)
        before = way.accepted
        assert sessions(server) >= 3
        way.cut()
        spin(lambda: count(server, "zk_watch_count") >= LOCKS and way.accepted > before, PATIENCE)
        expect(hoard.ask("count"), "held %d" % LOCKS)
        expect(way.accepted - before, before)
        os.kill(hoard.process.pid, signal.SIGKILL)
        spin(lambda: count(server, "zk_ephemerals_count") == 0, PATIENCE)
    server.kill()
    server.restart()
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)


run_tests([a_burst_a_break_and_a_death])
