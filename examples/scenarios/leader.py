#!/usr/bin/env python3
# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A leader and its paused predecessor: the old one wakes up and still believes that it leads.

    leader.py URL                     of an engine whose locks have leases: all but local:

The old leader and everything of stile around it are stopped, as when a virtual machine is paused. Another candidate is
elected and writes. Then the old leader's command is the first to run again, and writes before stile can stop it.
"""
import os
import signal
import subprocess
import sys
import tempfile
import time

# The leader's command. $1 is "old" or "new"; the old one is paused with its next write prepared.
LEADER = """
echo $$
[ "$1" = new ] || kill -STOP $$
echo "written by the $1 leader" >"draft.$1"
if %s; then echo accepted; else echo refused; fi
sleep 1000
"""
PLAIN, FENCED = 'mv "draft.$1" state', 'stile file put state <"draft.$1"'


def campaign(which, write, guard):
    return subprocess.Popen(["stile", "elect", "-q", "--ttl", "2s", *guard, "writer", "--", "sh", "-c", LEADER % write, "sh", which],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True)


def wait_until_stopped(pid):
    while open("/proc/%d/stat" % pid, encoding="utf-8").read().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.01)


def run(write, *guard):
    """What is in the file at the end, and what the old leader learned."""
    old = campaign("old", write, guard)
    command = int(old.stdout.readline())
    wait_until_stopped(command)
    os.killpg(old.pid, signal.SIGSTOP)  # the rest of the machine
    new = campaign("new", write, guard)
    new.stdout.readline()  # it leads: the old leader's lease is over
    assert new.stdout.readline() == "accepted\n"
    os.kill(command, signal.SIGCONT)
    answer = old.stdout.readline().strip()
    os.killpg(old.pid, signal.SIGCONT)
    for candidate in old, new:
        candidate.terminate()
        candidate.wait()
    with open("state", encoding="ascii") as state:
        return state.read().strip(), answer


os.environ["STILE_ENGINE"] = sys.argv[1]
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    print("%-16s %-22s %-26s %s" % ("", "the late write is", "the file was", "new leader's write lost"))
    for name, write, guard in (("mv", PLAIN, ()), ("stile file put", FENCED, ("--guard", "file:.#state"))):
        state, answer = run(write, *guard)
        print("%-16s %-22s %-26s %23d" % (name, answer, state, "new" not in state), flush=True)
    os.chdir("/")
