# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Runs `stile torture` on a place, and fails its servers through the script of --fault."""
import collections
import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile

PATIENCE_S = 300  # ends a run that would hang

# What is done to the workers, and how servers fail meanwhile. None: everything; "base": what the
# place needs for updates without a guard to be lost.
FAULTS = {
    "stop": ("base", None),
    "kill": ("base,kill", None),
    "cut": ("base,cut", None),
    "reset": ("base,reset", None),
    "slow": ("base,slow", None),
    "break": ("base,break", None),
    "all": ("base,all", None),
    "crash": ("base", "crash"),
    "freeze": ("base", "freeze"),
    "restart": ("base", "restart"),
    "twice": ("base", "twice"),
    "mixed": (None, "mixed"),
}

Outcome = collections.namedtuple("Outcome", "code report output")


class Script:
    """What --fault names. It asks this process, which has started the servers and must restart them:
    they end with their parent."""

    def __init__(self, folder, actions):
        self.path, self.actions = folder + "/fault", actions
        for name in "ask", "answer":
            os.mkfifo("%s/%s" % (folder, name))
        with open(self.path, "w", encoding="ascii") as file:
            file.write("#!/bin/sh\necho $1 >%s/ask\nread -r answer <%s/answer\n"
                       "[ \"$answer\" = done ]\n" % (folder, folder))
        os.chmod(self.path, 0o755)
        # Both ways: so neither end is ever missing.
        self.ask = os.open(folder + "/ask", os.O_RDWR)
        self.answer = os.open(folder + "/answer", os.O_RDWR)

    def serve(self):
        word = os.read(self.ask, 100).decode().strip()
        try:
            self.actions[word]()
            answer = b"done\n"
        except OSError as error:
            print("# %s: %s" % (word, error), flush=True)
            answer = b"failed\n"
        os.write(self.answer, answer)

    def close(self):
        os.close(self.ask)
        os.close(self.answer)


def wait(process, script):
    """Until it has ended; meanwhile the script is served."""
    watched = os.pidfd_open(process.pid)
    ready = [watched]
    while ready and process.poll() is None:
        ready = select.select([watched, script.ask], [], [], PATIENCE_S)[0]
        if script.ask in ready:
            script.serve()
    os.close(watched)
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
        print("# no end in %d s" % PATIENCE_S, flush=True)


def torture(place, fault, seconds, *options):
    """One run."""
    inject, servers_fail = FAULTS[fault]
    args = [os.environ["STILE"], "torture", place.url, "--json", "--for", "%ds" % seconds, *options]
    if inject:
        args += ["--inject", inject.replace("base", place.base)]
    with tempfile.TemporaryDirectory(prefix="stile-test-") as folder, \
            contextlib.closing(Script(folder, {"break": getattr(place, servers_fail or "heal"),
                                               "heal": place.heal})) as script, \
            open(folder + "/output", "w+", encoding="utf-8", errors="replace") as output:
        if servers_fail and place.members:
            args += ["--fault", script.path]
        process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=output, text=True)
        wait(process, script)
        text = process.communicate()[0]
        output.seek(0)
        return Outcome(process.returncode, json.loads(text) if text else None, output.read())


def applicable(place):
    return [fault for fault in FAULTS if fault in place.faults]
