# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Two and three processes that take one lock of an etcd as fast as they can: the deletion of a key may
be reported before a claim learns that it has to wait for it. A client that missed that would wait for
ever."""
import os
import subprocess

from cluster_kit import SOAK, check, expect, read_grant
from etcd_server import EtcdServer, die_with_parent
from kit import run_tests

CONTEND = os.environ["CONTEND"]
ROUNDS, PATIENCE_S = (10000, 1000) if SOAK else (1000, 120)
GIVE_BACK_AT_ONCE = "1"


def in_turn(number):
    def case(t):
        with EtcdServer() as server:
            env = dict(t.env, STILE_MODULES=os.environ["STILE_MODULES"])
            contenders = [
                subprocess.Popen([CONTEND, server.url, "x", str(ROUNDS), GIVE_BACK_AT_ONCE],
                                 stdout=subprocess.PIPE, text=True, env=env,
                                 preexec_fn=die_with_parent) for _ in range(number)]
            grants = []
            for one in contenders:
                out, _ = one.communicate(timeout=PATIENCE_S)
                expect(one.returncode, 0)
                grants += map(read_grant, out.splitlines()[1:])
            expect(len(grants), number * ROUNDS)
            check(grants)
    case.__name__ = "in_turn_%d" % number
    case.__doc__ = "%d processes, %d times each: all are served, never two at once" % (number, ROUNDS)
    return case


run_tests([in_turn(2), in_turn(3)])
