# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A MariaDB of a test's own: on a free loopback port and a Unix socket, in a temporary directory.
It ends with the test, even if that is killed.

    with MysqlServer("--max-connections=10") as server:
        server.port, server.socket, server.sql("select 1"), server.url

    with MysqlServer(may_be_full=True) as server:
        server.fill()  # its disk

It has a database `tests` and a user `root` without a password."""
import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time

from own_server import ATTEMPTS, NO_SYNC, OwnServer, die_with_parent, free_port, preloading

PATIENCE_S = 60
SMALL = ["--innodb-log-file-size=4M", "--innodb-buffer-pool-size=16M",
         "--aria-pagecache-buffer-size=8M", "--key-buffer-size=1M"]
# By default its writes pass the system's cache by, and wait for the disk even without a sync.
HASTY = ["--innodb-flush-method=fsync", "--innodb-log-file-buffering=ON"] if NO_SYNC else []


def tool(name):
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if not found:
        raise OSError("there is no %s: install the package mariadb-server" % name)
    return found


def place():
    """Making a data directory waits for the disk a hundred times; memory is quicker."""
    try:
        fast = os.statvfs("/dev/shm")
        roomy = fast.f_bavail * fast.f_frsize > 1 << 29 and os.access("/dev/shm", os.W_OK)
    except OSError:
        roomy = False
    return "/dev/shm" if roomy else None


class MysqlServer(OwnServer):
    program = "mariadbd"
    template = None  # made once, and copied for each server

    def __init__(self, *args, may_be_full=False, durable=False):
        self.args, self.may_be_full = list(args), may_be_full
        self.dir = tempfile.mkdtemp(prefix="stile-test-", dir=None if durable else place())
        self.data = self.dir + "/data"
        self.socket = self.dir + "/socket"
        self.user = ["--user=root"] if os.getuid() == 0 else []
        self.process = None
        try:
            self._init()
            for _ in range(ATTEMPTS):
                self.port = free_port()
                if self._run():
                    self.sql("create database if not exists tests", database="")
                    return
            raise OSError("mariadbd does not start: " + self.log)
        except BaseException:
            self.stop()
            raise

    def _init(self):
        if not MysqlServer.template:
            base = tempfile.mkdtemp(prefix="stile-test-", dir=place())
            atexit.register(shutil.rmtree, base, ignore_errors=True)
            self._install(base + "/data")
            MysqlServer.template = base + "/data"
        shutil.copytree(MysqlServer.template, self.data)

    def _env(self):
        """A server that starts deletes what others have in the same place for temporary files."""
        if not self.may_be_full:
            return {**preloading(), "TMPDIR": self.dir}
        return {**preloading(os.environ["STILE_FULL_LIBRARY"]), "TMPDIR": self.dir,
                "STILE_TEST_FULL": self._full}

    @property
    def _full(self):
        return self.dir + "/full"

    def fill(self, full=True):
        """Its disk is full: no file of its own can grow."""
        if full:
            open(self._full, "w", encoding="ascii").close()
        else:
            os.remove(self._full)

    def _install(self, data):
        done = subprocess.run([tool("mariadb-install-db"), "--no-defaults", *self.user,
                               "--datadir=" + data, "--skip-test-db", "--skip-name-resolve",
                               "--auth-root-authentication-method=normal", *SMALL, *HASTY],
                              check=False, cwd="/", text=True, capture_output=True,
                              env=self._env())
        if done.returncode:
            raise OSError("mariadb-install-db: " + done.stdout + done.stderr)

    def _run(self):
        with open(self.dir + "/log", "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [tool("mariadbd"), "--no-defaults", *self.user, "--datadir=" + self.data,
                 "--port=%d" % self.port, "--bind-address=127.0.0.1", "--socket=" + self.socket,
                 "--pid-file=" + self.dir + "/pid", "--skip-name-resolve", "--skip-log-bin",
                 *SMALL, *HASTY, *self.args],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd="/",
                env=self._env(), preexec_fn=die_with_parent)
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until and self.process.poll() is None:
            if self._answers():
                return True
            time.sleep(0.02)
        self.kill()
        return False

    def _answers(self):
        return subprocess.run([tool("mariadb-admin"), *self.place, "ping"], check=False,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0

    @property
    def place(self):
        return ["--no-defaults", "--protocol=tcp", "-h", "127.0.0.1", "-P", str(self.port), "-u",
                "root"]

    @property
    def log(self):
        with open(self.dir + "/log", encoding="utf-8", errors="replace") as log:
            return log.read()

    @property
    def url(self):
        return "mysql://root@127.0.0.1:%d/tests" % self.port

    def shut_down(self):
        """In an orderly way, without waiting for its clients."""
        self.kill(signal.SIGTERM)

    def sql(self, text, database="tests"):
        """What the client prints, without its last newline."""
        done = subprocess.run([tool("mariadb"), *self.place, "-N", "-B", "-e", text,
                               *([database] if database else [])],
                              capture_output=True, text=True, check=True)
        return done.stdout.rstrip("\n")
