# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL of a test's own: on a free loopback port and a Unix socket, in a temporary directory.
It ends with the test, even if that is killed.

    with PostgresServer("-c", "max_connections=10") as server:
        server.port, server.dir, server.sql("select 1"), server.url

Root may not run it: then it is run by the user postgres, whom Debian's package makes."""
import atexit
import functools
import glob
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from own_server import ATTEMPTS, OwnServer, die_with_parent, free_port, preloading

PATIENCE_S = 60


def end_with_parent():
    """At once, with all its processes. SIGKILL would leave those behind for a while."""
    die_with_parent(signal.SIGQUIT)


def tool(name):
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/" + name)) or [shutil.which(name)]
    if not found[-1]:
        raise OSError("there is no %s: install the package postgresql" % name)
    return found[-1]


@functools.lru_cache(maxsize=None)
def made(prefix):
    where = tempfile.mkdtemp(prefix="stile-test-")
    atexit.register(shutil.rmtree, where, ignore_errors=True)
    if prefix:
        os.chmod(where, 0o755)
        shutil.chown(where, "postgres", "postgres")
    subprocess.run([*prefix, tool("initdb"), "-D", where + "/data", "-A", "trust", "-U", "postgres",
                    "--no-sync", "-E", "UTF8", "--locale=C"], check=True, cwd="/",
                   stdout=subprocess.DEVNULL)
    return where + "/data"


def template(prefix):
    """A database that was never started: copied, it is there ten times as soon as made anew."""
    return made(tuple(prefix))


class PostgresServer(OwnServer):
    program = "postgres"
    """durable: a crash of the machine would lose nothing, as it is by default; tests that don't
    crash it are faster without. may_be_full: fill() fills its disk."""

    def __init__(self, *args, durable=False, may_be_full=False):
        self.args, self.may_be_full = list(args), may_be_full
        if not durable:
            self.args += ["-c", "fsync=off", "-c", "full_page_writes=off"]
        self.dir = tempfile.mkdtemp(prefix="stile-test-")
        self.data = self.dir + "/data"
        self.process = None
        self.prefix = []
        if os.getuid() == 0:
            os.chmod(self.dir, 0o755)
            shutil.chown(self.dir, "postgres", "postgres")
            self.prefix = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        try:
            self._init()
            for _ in range(ATTEMPTS):
                self.port = free_port()
                if self._run():
                    return
            raise OSError("postgres does not start: " + self.log)
        except BaseException:
            self.stop()
            raise

    def _init(self):
        subprocess.run([*self.prefix, "cp", "-a", "--reflink=auto", template(self.prefix), self.data],
                       check=True)

    @property
    def _full(self):
        return self.dir + "/full"

    def fill(self, full=True):
        """No file of its grows, from now on."""
        if full:
            open(self._full, "w", encoding="ascii").close()
        else:
            os.remove(self._full)

    def _run(self):
        env = preloading()
        if self.may_be_full:
            env = {**preloading(os.environ["STILE_FULL_LIBRARY"]), "STILE_TEST_FULL": self._full}
        with open(self.dir + "/log", "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [*self.prefix, tool("postgres"), "-D", self.data, "-c",
                 "listen_addresses=127.0.0.1", "-c", "port=%d" % self.port, "-c",
                 "unix_socket_directories=" + self.dir, *self.args],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd="/",
                env=env, preexec_fn=end_with_parent)
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until and self.process.poll() is None:
            if self._answers():
                return True
            time.sleep(0.02)
        self.kill()
        return False

    def _answers(self):
        return subprocess.run([tool("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)],
                              check=False).returncode == 0

    @property
    def log(self):
        with open(self.dir + "/log", encoding="utf-8", errors="replace") as log:
            return log.read()

    @property
    def url(self):
        return "postgres://postgres@127.0.0.1:%d/postgres" % self.port

    def kill(self, number=signal.SIGQUIT):
        """And wait until it is gone. SIGQUIT is a crash for it: nothing is written, and recovery
        follows."""
        super().kill(number)

    def shut_down(self):
        """In an orderly way, without waiting for its clients."""
        self.kill(signal.SIGINT)

    def promote(self):
        self.sql("select pg_promote()")

    def answers_sql(self):
        """Not while it recovers from a crash."""
        try:
            return self.sql("select 1") == "1"
        except subprocess.CalledProcessError:
            return False

    def sql(self, text, *options):
        """What psql prints, without its last newline."""
        done = subprocess.run([tool("psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h",
                               "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-c", text,
                               *options],
                              capture_output=True, text=True, check=True)
        return done.stdout.rstrip("\n")


class Copied(PostgresServer):
    """A server that began as a base backup of another one. standby: it follows that one, until promote()."""

    def __init__(self, source, standby=False, **how):
        self.source, self.standby = source, standby
        super().__init__(**how)

    def _init(self):
        subprocess.run([*self.prefix, tool("pg_basebackup"), "-D", self.data, "-h", "127.0.0.1", "-p",
                        str(self.source.port), "-U", "postgres", "-c", "fast", "--no-sync",
                        *(["-R"] if self.standby else [])], check=True, cwd="/")


class PgBouncer:
    """A pooler in front of a server, by transaction."""

    def __init__(self, server, mode="transaction"):
        self.port = free_port()
        self.url = "postgres://postgres@127.0.0.1:%d/postgres" % self.port
        settings = {"listen_addr": "127.0.0.1", "listen_port": self.port, "auth_type": "any",
                    "pool_mode": mode, "default_pool_size": 6, "max_client_conn": 200,
                    "unix_socket_dir": "", "logfile": ""}
        with open(server.dir + "/pooler.ini", "w", encoding="utf-8") as file:
            file.write("[databases]\n* = host=127.0.0.1 port=%d user=postgres\n[pgbouncer]\n"
                       % server.port)
            file.writelines("%s = %s\n" % pair for pair in settings.items())
        self.process = subprocess.Popen(
            [*server.prefix, shutil.which("pgbouncer", path="/usr/sbin:/usr/bin"),
             server.dir + "/pooler.ini"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            cwd="/", preexec_fn=end_with_parent)
        for line in self.process.stderr:
            if "process up" in line:
                break
        else:
            raise OSError("pgbouncer does not start")
        # It would stop when the pipe is full, with a line for each connection.
        self.reader = threading.Thread(target=self.process.stderr.read, daemon=True)
        self.reader.start()

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stderr.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
