#!/usr/bin/env python3
# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The four failures of plain SETNX, and the same with stile.

    setnx.py redis://HOST:PORT

a, b and c are three programs. Each case counts locks that are stuck for ever, or programs that work at the same
time as another one.
"""
import re
import subprocess
import sys
import time

import redis

url = sys.argv[1]
a, b, c = (redis.Redis.from_url(url) for _ in range(3))
a.delete("dead", "short", "theirs", "half")


def acquire(name, *options):
    """The owner value of the lock, or None. The lock is a's, b's or c's for its TTL, and nobody renews it."""
    done = subprocess.run(["stile", "acquire", "-e", url, *options, name], capture_output=True, text=True)
    return re.search(r"STILE_OWNER=(\w+)", done.stdout).group(1) if done.returncode == 0 else None


def the_holder_dies():
    a.setnx("dead", "a")  # and a is killed before it can delete the key
    stuck = not b.setnx("dead", "b") and b.ttl("dead") == -1
    acquire("dead", "--ttl", "1s")
    return stuck, acquire("dead", "--wait", "1m") is None


def the_work_takes_longer():
    a.set("short", "a", nx=True, px=100)
    while not b.set("short", "b", nx=True, px=100):  # a is still at work
        time.sleep(0.01)
    both_at_work = 1
    # stile run renews its lock of 1s during work of 3s. b's command looks whether a's still runs.
    holder = subprocess.Popen(["stile", "run", "--ttl", "1s", "-e", url, "short", "--", "sh", "-c", "echo $$; sleep 3"],
                              stdout=subprocess.PIPE, text=True)
    work = holder.stdout.readline().strip()
    looked = subprocess.run(["stile", "run", "-q", "-e", url, "short", "--", "kill", "-0", work], stderr=subprocess.DEVNULL)
    holder.wait()
    return both_at_work, looked.returncode == 0


def it_deletes_their_lock():
    a.set("theirs", "a", nx=True, px=100)
    while not b.set("theirs", "b", nx=True, px=60000):
        time.sleep(0.01)
    a.delete("theirs")  # a is done and releases "its" lock, which is b's
    both_at_work = c.set("theirs", "c", nx=True, px=60000)
    late = acquire("theirs", "--ttl", "1s")
    acquire("theirs", "--wait", "1m", "--ttl", "1m")
    subprocess.run(["stile", "release", "-e", url, "--owner", late, "theirs"], stderr=subprocess.DEVNULL)  # exits 76
    return both_at_work, acquire("theirs", "--try") is not None


def it_dies_before_expire():
    a.setnx("half", "a")  # and a is killed before EXPIRE
    stuck = b.ttl("half") == -1
    acquire("half", "--ttl", "1s")  # one step: the key never exists without its expiry
    return stuck, a.pttl("lock:half") == -1


print("%-44s %5s %7s" % ("", "SETNX", "stile"))
for case, title in ((the_holder_dies, "no expiry, and the holder dies: stuck"),
                    (the_work_takes_longer, "expiry shorter than the work: both at work"),
                    (it_deletes_their_lock, "deleting somebody else's lock: both at work"),
                    (it_dies_before_expire, "SETNX, then EXPIRE, killed in between: stuck")):
    print("%-44s %5d %7d" % (title, *map(bool, case())), flush=True)
