# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A redis-server of a test's own: on a free loopback port and a Unix socket, in a temporary
directory, without persistence; it ends with the test, even if that is killed.

    with RedisServer("--requirepass", "x") as server:
        server.port, server.path, server.cli("PING")

    with RedisServer(own_clock=True) as server:
        server.jump(3600)  # its clock, by so many seconds
"""
import os
import signal
import struct
import subprocess
import tempfile

from own_server import ATTEMPTS, OwnServer, die_with_parent, free_port, preloading


class RedisServer(OwnServer):
    program = "redis-server"
    ready = "eady to accept connections"
    host = "127.0.0.1"

    def __init__(self, *args, own_clock=False):
        self.args, self.env, self.process = args, preloading(), None
        self.dir = tempfile.mkdtemp(prefix="stile-test-")
        if own_clock:
            self.env = {**preloading(os.environ["STILE_CLOCK_LIBRARY"]),
                        "STILE_TEST_CLOCK": self.dir + "/clock"}
            self.jump(0)
        self.path = self.dir + "/socket"
        for _ in range(ATTEMPTS):
            self.port = free_port()
            if self._run():
                return
        log = self.log
        self.stop()
        raise OSError("redis-server (package redis-server) does not start: " + log)

    def command(self):
        program = os.environ.get("STILE_TEST_REDIS_SERVER", self.program)
        return [program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.dir,
                "--unixsocket", self.path, "--save", "", "--appendonly", "no", "--daemonize", "no",
                "--logfile", "", *self.args]

    def _run(self):
        self.process = subprocess.Popen(
            self.command(),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=self.env, preexec_fn=die_with_parent)
        self.log = ""
        for line in self.process.stdout:
            self.log += line
            if self.ready in line:
                self.process.stdout.close()  # it ignores SIGPIPE
                return True
        self.kill()
        return False

    def pause(self):
        """Until go_on(): connections are accepted by the kernel, and nothing is answered."""
        self.signal(signal.SIGSTOP)

    def go_on(self):
        self.signal(signal.SIGCONT)

    def jump(self, seconds):
        """Its clock is ahead of the true time by so much, at once."""
        with open(self.dir + "/clock", "r+b" if self.process else "wb") as file:
            file.write(struct.pack("=q", seconds))

    def cli(self, *command):
        """What redis-cli prints, without its last newline."""
        done = subprocess.run(["redis-cli", "-h", self.host, "-p", str(self.port), *command],
                              capture_output=True, text=True, check=True)
        return done.stdout.rstrip("\n")
