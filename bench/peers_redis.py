# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""redis-py's Lock at the same work: see peers.py. Its waiters look every 100 ms, so they have waited for
any time of it."""
import random

import redis

import peers

if __name__ == "__main__":
    peers.run(lambda port: redis.Redis(port=int(port)).lock("peer", timeout=30),
              lambda: random.uniform(0.02, 0.12))
