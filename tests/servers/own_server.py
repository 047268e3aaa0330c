# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What servers of a test's own have in common: each is a process on free loopback ports, with a
directory, and ends with the test, even if that is killed."""
import ctypes
import os
import shutil
import signal
import socket

ATTEMPTS = 5  # somebody else may get the port first
PR_SET_PDEATHSIG = 1
CRASHES = [-number for number in (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL,
                                  signal.SIGSEGV)]
CRASH_LINES = 60
# Set for tests, not for the bench: on a slow disk a server that syncs outlasts any patience.
NO_SYNC = os.environ.get("STILE_NOSYNC_LIBRARY")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def die_with_parent(number=signal.SIGKILL):
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def preloading(*libraries):
    """The environment of a server with these libraries, and one that waits for no disk."""
    wanted = [*libraries, NO_SYNC, os.environ.get("LD_PRELOAD")]
    return {**os.environ, "LD_PRELOAD": " ".join(filter(None, wanted))}


class Process:
    process = None

    def kill(self, number=signal.SIGKILL):
        """And wait until it is gone."""
        if self.process:
            self.process.send_signal(number)
            self.process.wait()
            self.process = None

    def signal(self, number):
        self.process.send_signal(number)
        if number == signal.SIGSTOP:  # its threads hear of it one by one, and go on until then
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)


class Directory:
    """What is in self.dir goes with it."""
    def stop(self):
        self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class OwnServer(Process, Directory):
    program = "the server"

    def stop(self):
        if self.process and self.process.poll() in CRASHES:
            self._show_crash()
        super().stop()

    def _show_crash(self):
        """Its log goes with its directory, and a crash may not happen again soon."""
        lines = self.log.splitlines()
        first = next((i for i, line in enumerate(lines) if "signal" in line), -CRASH_LINES)
        print("# %s has crashed:" % self.program)
        for line in lines[first:][:CRASH_LINES]:
            print("#   " + line)

    def restart(self):
        """The same directory, port and arguments again."""
        if not self._run():
            raise OSError("%s does not start again: %s" % (self.program, self.log))
