# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What the tests share in which a holder learns why its lock is gone."""
import os
import re
import socket
import subprocess

from redis_kit import expect, spin

HOUR = 3600000
BREAKER = r"taken by stile break \(%s pid (\d+)\)" % re.escape(socket.gethostname())


def breaks(t, name="x"):
    """Its pid."""
    breaker = t.start("break", name)
    expect(breaker.wait(), 0, breaker.err.end())
    return breaker.pid


class Keeper:
    """A client that holds locks; see keep.c. Its leases are so long that no renewal reports a loss,
    unless a test asks for shorter ones."""

    def __init__(self, t):
        self.process = subprocess.Popen([os.environ["KEEP"], t.env["STILE_ENGINE"]], env=t.env,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        encoding="utf-8", errors="replace")

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self):
        return self.process.stdout.readline().rstrip("\n")

    def ask(self, line):
        self.tell(line)
        return self.hear()

    def ask_for(self, name="x", ttl=HOUR, mode=None):
        words = [name, "0", str(ttl), "0"]
        self.tell("\t".join(words + [mode] if mode else words))

    def hold(self, *args, **how):
        self.ask_for(*args, **how)
        expect(self.hear(), "OK")
        return self

    def reason(self, name="x"):
        """Why it was lost, as soon as it was."""
        spin(lambda: self.ask("!" + name) != "held")
        return self.ask("!" + name)

    def lost_because(self, pattern, name="x"):
        reason = self.reason(name)
        match = re.search(pattern, reason)
        assert match, "no %r in %r" % (pattern, reason)
        return match

    def lost_to(self, breaker, name="x"):
        expect(int(self.lost_because(BREAKER, name).group(1)), breaker)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()
