#!/usr/bin/env python3
# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The paused writer: its lease runs out while it sleeps, and it writes when it wakes.

    paused.py URL         of an engine whose locks have leases: redis, redlock, postgres or mysql with mode=table

Anna takes the lock, reads the balance and is stopped, as by a garbage collector or a suspended laptop. Ben takes the
lock after her lease and books 100. Then Anna continues. Storage without a fence believes her; `stile file put` compares
her token with the highest one it has seen.
"""
import os
import signal
import subprocess
import sys
import tempfile

# Anna's program: $1 is how she writes. She holds the lock for its TTL and stops between reading and writing.
ANNA = """
claim=$(stile acquire --ttl 1s account) || exit
eval "$claim"
old=$(cat balance)
kill -STOP $$
echo $((old + 1)) >draft
"""
BEN = "echo $(($(cat balance) + 100)) >draft-ben; "
PLAIN, FENCED = "mv %s balance", "stile file put balance <%s"


def run(write, *guard):
    """The balance after both have written."""
    with open("balance", "w", encoding="ascii") as file:
        file.write("0\n")
    anna = subprocess.Popen(["sh", "-c", ANNA + write % "draft"])
    os.waitid(os.P_PID, anna.pid, os.WSTOPPED)
    # Granted when Anna's lease is over, and not before.
    subprocess.run(["stile", "run", "-q", *guard, "account", "--", "sh", "-c", BEN + write % "draft-ben"], check=True)
    anna.send_signal(signal.SIGCONT)
    anna.wait()
    with open("balance", encoding="ascii") as file:
        return int(file.read()), anna.returncode


os.environ["STILE_ENGINE"] = sys.argv[1]
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    plain, _ = run(PLAIN)
    fenced, code = run(FENCED, "--guard", "file:.#balance")
    print("%-28s %8s %s" % ("", "balance", "Ben's entry lost"))
    print("%-28s %8d %16d" % ("mv draft balance", plain, plain < 100))
    print("%-28s %8d %16d" % ("stile file put", fenced, fenced < 100))
    print("Anna's stile file put exited with %d" % code)
    os.chdir("/")
