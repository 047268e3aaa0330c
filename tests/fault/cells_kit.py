# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A client of cells, which a test drives line by line: see cells.c."""
import collections
import os
import subprocess

from cluster_kit import expect
from kit import PATIENCE

Answer = collections.namedtuple("Answer", "status version token issuer rest")


class Cells:
    def __init__(self, t, url=None):
        self.process = subprocess.Popen([os.environ["CELLS"], url or t.env["STILE_ENGINE"]],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=t.env)
        self.expect_ok(self.answer())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.process.communicate(timeout=PATIENCE)
        finally:
            self.process.kill()

    @staticmethod
    def expect_ok(answer):
        expect(answer.status, "OK", answer.rest)
        return answer

    # ---- what is asked, and later answered ----

    def ask(self, verb, key, *words, **named):
        line = "\t".join([verb, key, *words, *("%s=%s" % pair for pair in named.items())])
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self):
        status, version, token, issuer, rest = self.process.stdout.readline().rstrip("\n").split("\t", 4)
        return Answer(status, int(version), int(token), issuer, rest)

    # ---- at once ----

    def tell(self, *words, **named):
        self.ask(*words, **named)
        return self.answer()

    def get(self, key):
        return self.expect_ok(self.tell("get", key))

    def put(self, key, value, *words, **named):
        """The new version."""
        return self.expect_ok(self.tell("put", key, value, *words, **named)).version

    def refuse(self, status, *words, **named):
        answer = self.tell(*words, **named)
        expect(answer.status, status, answer.rest)
        return answer

    def list(self, prefix=""):
        """Keys and sizes."""
        self.ask("list", prefix)
        found = []
        while (answer := self.expect_ok(self.answer())).rest:
            key, size = answer.rest.rsplit(" ", 1)
            found.append((key, int(size)))
        return found
