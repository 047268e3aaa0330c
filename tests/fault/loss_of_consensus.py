# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A holder on etcd or ZooKeeper that learns why its lock is gone."""
import os
import re
import socket
import subprocess

from cluster_kit import expect
from kit import PATIENCE

BREAKER = r"taken by stile break \(%s pid (\d+)\)" % re.escape(socket.gethostname())


def breaks(t, name="x"):
    """Its pid."""
    breaker = t.start("break", "-y", name)
    expect(breaker.wait(), 0)
    return breaker.pid


class Holder:
    """See lose.c."""

    def __init__(self, t, *args, name="x"):
        self.process = subprocess.Popen([os.environ["LOSE"], t.env["STILE_ENGINE"], name, *args],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=t.env)
        expect(self.process.stdout.readline(), "held\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.process.communicate(timeout=PATIENCE)
        finally:
            self.process.kill()

    def reason(self):
        return self.process.stdout.readline().rstrip("\n")

    def lost_to(self, breaker):
        reason = self.reason()
        match = re.fullmatch(BREAKER, reason)
        assert match, reason
        expect(int(match.group(1)), breaker)

    def lost_because(self, *words):
        reason = self.reason()
        assert any(word in reason for word in words), reason
