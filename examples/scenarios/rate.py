#!/usr/bin/env python3
# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""One call per second to a third party, from five workers.

    rate.py URL                       of an engine with a clock: redis, postgres, mysql, zookeeper or local

The third party refuses a call that comes less than a second after one that it has accepted. A lock would not help: it
limits how many calls run at a time, not how soon the next one starts.
"""
import subprocess
import sys
import threading
import time

WORKERS = 5


class ThirdParty:
    def __init__(self):
        self.accepted, self.refused, self.one_at_a_time = 0.0, 0, threading.Lock()

    def call(self):
        with self.one_at_a_time:
            now = time.monotonic()
            if now < self.accepted + 1:
                self.refused += 1  # "429 Too Many Requests"
            else:
                self.accepted = now


def plain(third_party, meet):
    meet.wait()  # they come at the same moment
    third_party.call()


def paced(third_party, meet):
    """Two seconds instead of one: what counts is when a call arrives, and one may be slower than the next."""
    meet.wait()
    subprocess.run(["stile", "pace", "-e", sys.argv[1], "third-party", "--rate", "1/2s"], check=True)
    third_party.call()


def run(way):
    """How many calls were refused."""
    third_party, meet = ThirdParty(), threading.Barrier(WORKERS)
    workers = [threading.Thread(target=way, args=(third_party, meet)) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return third_party.refused


print("%-46s %s" % ("", "refused"))
print("%-46s %7d" % ("each worker calls", run(plain)))
print("%-46s %7d" % ("stile pace third-party --rate 1/2s, then call", run(paced)))
