#!/usr/bin/env python3
# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A client that is cut off while it holds a lock: does it stop before the next one starts?

    cutoff.py redis://HOST:PORT                                 needs redis-py

Both holders reach the server through a cable that is cut once they work: nothing arrives, and nothing reports an error.
The lease ends on the server, and another program gets the lock.
"""
import select
import socket
import subprocess
import sys
import threading
import time

import redis

url = sys.argv[1]


class Cable:
    """Passes bytes between clients and the server until it is cut."""

    def __init__(self, server):
        host, _, port = server.partition("//")[2].partition(":")
        self.target, self.whole = (host, int(port)), True
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "redis://127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            ends = [self.listener.accept()[0], socket.create_connection(self.target)]
            threading.Thread(target=self.carry, args=(ends,), daemon=True).start()

    def carry(self, ends):
        while True:
            for end in select.select(ends, [], [])[0]:
                data = end.recv(65536)
                if not data:
                    return
                if self.whole:
                    ends[end is ends[0]].sendall(data)


def setnx():
    """The holder has checked its lock once, and works on. Nothing tells it that the lock is gone."""
    cable, near = Cable(url), redis.Redis.from_url(url)
    near.delete("job")
    redis.Redis.from_url(cable.url).set("job", "a", nx=True, px=1000)
    work = subprocess.Popen(["sleep", "1000"])
    cable.whole = False
    while not near.set("job", "b", nx=True, px=1000):
        time.sleep(0.01)
    both = work.poll() is None  # now that b has the lock
    work.kill()
    work.wait()
    return both


def stile():
    """stile run knows when its lease ends without asking, and stops the whole tree before that."""
    cable = Cable(url)
    holder = subprocess.Popen(["stile", "run", "-e", cable.url, "--ttl", "2s", "job", "--", "sh", "-c", "echo $$; sleep 1000"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    work = holder.stdout.readline().strip()
    cable.whole = False
    look = "if [ -d /proc/%s ]; then echo alive; fi" % work
    seen = subprocess.run(["stile", "run", "-q", "-e", url, "job", "--", "sh", "-c", look], capture_output=True, text=True)
    return seen.stdout == "alive\n" or holder.wait() != 76


print("%-34s %s" % ("", "works on beside the next holder"))
print("%-34s %31d" % ("SET NX PX, checked once", setnx()))
print("%-34s %31d" % ("stile run", stile()))
