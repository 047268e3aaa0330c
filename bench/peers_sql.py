# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Clients of a database at the same work: see peers.py. A peer has cursor_at(port), and the statements
TRY, WAIT and GIVE."""
import peers


class SqlLock:
    def __init__(self, peer, port):
        self.peer, self.cursor = peer, peer.cursor_at(int(port))

    def execute(self, statement):
        self.cursor.execute(statement)
        self.cursor.fetchone()

    def attempt(self):
        self.execute(self.peer.TRY)

    def acquire(self):
        self.execute(self.peer.WAIT)

    def release(self):
        self.execute(self.peer.GIVE)


def run(peer):
    peers.run(lambda port: SqlLock(peer, port))
