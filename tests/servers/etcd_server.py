# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""An etcd of a test's own: one member or several, on free loopback ports, in a temporary directory;
they end with the test, even if that is killed.

    with EtcdServer() as server:
        server.url, server.ctl("get", "key")
    with EtcdServer(3) as cluster:
        cluster.members[0].kill()
"""
import json
import os
import signal
import subprocess
import tempfile
import time
import urllib.request

from own_server import ATTEMPTS, NO_SYNC, Directory, Process, die_with_parent, free_port

PATIENCE_S = 30
HASTY = ["--unsafe-no-fsync"] if NO_SYNC else []  # Go calls no library that could be preloaded


class Member(Process):
    def __init__(self, number, directory, scheme, args):
        self.name = f"m{number}"
        self.dir = f"{directory}/{self.name}"
        self.scheme = scheme
        self.args = args
        self.port, self.peer_port = free_port(), free_port()
        os.mkdir(self.dir, 0o700)

    @property
    def client_url(self):
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def peer_url(self):
        return f"http://127.0.0.1:{self.peer_port}"

    def start(self, cluster, state="new"):
        log = open(self.dir + "/log", "a", encoding="utf-8")
        self.process = subprocess.Popen(
            ["etcd", "--name", self.name, "--data-dir", self.dir + "/data",
             "--listen-client-urls", self.client_url, "--advertise-client-urls", self.client_url,
             "--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url,
             "--initial-cluster", cluster, "--initial-cluster-state", state,
             "--logger=zap", "--log-level=warn", *HASTY, *self.args],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=die_with_parent,
            env={**os.environ, "ETCD_UNSUPPORTED_ARCH": os.uname().machine})
        log.close()

    def log(self):
        with open(self.dir + "/log", encoding="utf-8") as log:
            return log.read()

    def version(self):
        with urllib.request.urlopen(self.client_url + "/version", timeout=5) as answer:
            return json.load(answer)["etcdserver"]

    def old_leader_revokes(self):
        """A leader that was stopped ends leases that were renewed meanwhile. Fixed in 3.4.31 and 3.5.13."""
        version = tuple(map(int, self.version().split(".")))
        return version < (3, 4, 31) or (3, 5) <= version < (3, 5, 13)

    def leads(self):
        return self.metric("etcd_server_is_leader") == 1

    def metric(self, name, *without):
        """The sum of all with this name; 0 if it does not answer."""
        try:
            with urllib.request.urlopen(self.client_url + "/metrics", timeout=5) as answer:
                rows = answer.read().decode().splitlines()
        except OSError:
            return 0.0
        return sum(float(row.split()[-1]) for row in rows
                   if row.startswith(name) and not any(word in row for word in without))

    def executed(self, method):
        """How many such requests so far."""
        return self.metric('grpc_server_handled_total{grpc_code="OK",grpc_method="%s"' % method)


class EtcdServer(Directory):
    def __init__(self, members=1, *args, scheme="http", ctl_args=()):
        self.ctl_args = ctl_args
        for _ in range(ATTEMPTS):
            self.dir = tempfile.mkdtemp(prefix="stile-test-")
            self.members = [Member(i, self.dir, scheme, args) for i in range(members)]
            self.cluster = ",".join(f"{m.name}={m.peer_url}" for m in self.members)
            for member in self.members:
                member.start(self.cluster)
            if self.await_healthy():
                return
            log = self.members[0].log()
            self.stop()
        raise OSError("etcd (package etcd-server) does not start: " + log)

    @property
    def hosts(self):
        return ",".join(f"127.0.0.1:{m.port}" for m in self.members)

    @property
    def url(self):
        return "etcd://" + self.hosts

    def await_healthy(self):
        """Until a write is answered; False if a member has ended."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            if any(m.process is None or m.process.poll() is not None for m in self.members):
                return False
            if self._ctl("endpoint", "health").returncode == 0:
                return True
            time.sleep(0.05)
        return False

    def restart(self, member=None):
        """The same directories and ports again."""
        for m in [member] if member else self.members:
            if not m.process:
                m.start(self.cluster, "existing")
        if all(m.process for m in self.members) and not self.await_healthy():
            raise OSError("etcd does not start again: " + self.members[0].log())

    def kill(self, number=signal.SIGKILL):
        for member in self.members:
            member.kill(number)

    def ctl_command(self, *command):
        endpoints = ",".join(m.client_url for m in self.members)
        return ["etcdctl", "--endpoints", endpoints, *self.ctl_args, *command]

    def ctl_env(self):
        return {**os.environ, "ETCDCTL_API": "3"}

    def _ctl(self, *command):
        return subprocess.run(self.ctl_command(*command), env=self.ctl_env(), capture_output=True,
                              text=True, timeout=PATIENCE_S)

    def ctl(self, *command):
        """What etcdctl prints, without its last newline. Its own patience is short for a busy machine."""
        done = self._ctl("--command-timeout=%ds" % (PATIENCE_S - 5), *command)
        if done.returncode:
            raise OSError(f"etcdctl {command}: {done.stderr}")
        return done.stdout.rstrip("\n")
