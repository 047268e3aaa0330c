# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""flock(2) at the same work: see peers.py."""
import fcntl
import os

import peers


class Flock:
    def __init__(self, path):
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def acquire(self):
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def release(self):
        fcntl.flock(self.file, fcntl.LOCK_UN)


if __name__ == "__main__":
    peers.run(Flock)
