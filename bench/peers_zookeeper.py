# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""kazoo's Lock at the same work: see peers.py."""
from kazoo.client import KazooClient

import peers


def lock_at(hosts):
    client = KazooClient(hosts)
    client.start()
    return client.Lock("/kazoo/peer")


if __name__ == "__main__":
    peers.run(lock_at)
