# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A process with one client, which holds one lock while it asks for another."""
import contextlib
import os
import subprocess

from kit import spin


class Keeper:
    def __init__(self, url, err=None):
        self.process = subprocess.Popen([os.environ["KEEP"], url], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=err, text=True)

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def ask(self, name, wait_ms=0, *ttl_and_renew_ms):
        self.say("\t".join(map(str, (name, wait_ms, *ttl_and_renew_ms))))

    def answer(self):
        """The status."""
        return self.process.stdout.readline().strip()

    def try_it(self, name):
        self.ask(name)
        return self.answer()

    def try_again_connected(self, name):
        """The status of the first try over a connection that works. Until the client has noticed that
        its server was away, and has found it again, a try is UNCERTAIN or UNREACHABLE."""
        found = []
        spin(lambda: found.append(self.try_it(name)) or found[-1] not in ("UNCERTAIN", "UNREACHABLE"))
        return found[-1]

    def release(self, name):
        self.say("-" + name)
        return self.answer()

    def holds(self, name):
        self.say("?" + name)
        return {"held": True, "not held": False}[self.answer()]

    def order(self, line):
        """The answer to any line."""
        self.say(line)
        return self.answer()

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
