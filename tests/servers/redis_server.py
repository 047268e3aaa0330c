"""A redis-server of a test's own: on a free loopback port and a Unix socket, in a temporary
directory, without persistence; it ends with the test, even if that is killed.

    with RedisServer("--requirepass", "x") as server:
        server.port, server.path, server.cli("PING")
"""
import ctypes
import shutil
import signal
import socket
import subprocess
import tempfile

ATTEMPTS = 5  # somebody else may get the port first
PR_SET_PDEATHSIG = 1


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class RedisServer:
    ready = "eady to accept connections"

    def __init__(self, *args):
        self.args = args
        self.dir = tempfile.mkdtemp(prefix="stile-test-")
        self.path = self.dir + "/socket"
        self.process = None
        for _ in range(ATTEMPTS):
            self.port = free_port()
            if self._run():
                return
        log = self.log
        self.stop()
        raise OSError("redis-server (package redis-server) does not start: " + log)

    def command(self):
        return ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.dir,
                "--unixsocket", self.path, "--save", "", "--appendonly", "no", "--daemonize", "no",
                "--logfile", "", *self.args]

    def _run(self):
        self.process = subprocess.Popen(
            self.command(),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            preexec_fn=die_with_parent)
        self.log = ""
        for line in self.process.stdout:
            self.log += line
            if self.ready in line:
                self.process.stdout.close()  # it ignores SIGPIPE
                return True
        self.kill()
        return False

    def restart(self):
        """The same directory, port and arguments again."""
        if not self._run():
            raise OSError("redis-server does not start again: " + self.log)

    def kill(self, number=signal.SIGKILL):
        """And wait until it is gone."""
        if self.process:
            self.process.send_signal(number)
            self.process.wait()
            self.process = None

    def stop(self):
        self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)

    def cli(self, *command):
        """What redis-cli prints, without its last newline."""
        done = subprocess.run(["redis-cli", "-h", "127.0.0.1", "-p", str(self.port), *command],
                              capture_output=True, text=True, check=True)
        return done.stdout.rstrip("\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
