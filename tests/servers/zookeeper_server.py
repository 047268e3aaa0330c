# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A ZooKeeper of a test's own: one server or several, on free loopback ports, in a temporary
directory; they end with the test, even if that is killed.

    with ZookeeperServer() as server:
        server.url, server.say("mntr")
    with ZookeeperServer(3) as ensemble:
        ensemble.members[0].kill()
"""
import os
import signal
import socket
import ssl
import subprocess
import tempfile
import time

from own_server import ATTEMPTS, Directory, Process, die_with_parent, free_port, preloading

PATIENCE_S = 150  # three that start on a busy machine: 70 s were seen
JARS = "/usr/share/java/"
TICK_MS = 500
HASTY = ["-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no"]  # starts soon, waits for no disk


def speaks_tls(port):
    """Once a JVM has answered one handshake, the next ones take much less time."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as connection:
            context.wrap_socket(connection).close()
        return True
    except OSError:
        return False


class Member(Process):
    def __init__(self, number, directory, java):
        self.number, self.java = number, java
        self.dir = f"{directory}/{number}"
        self.port, self.peer_port, self.elect_port = free_port(), free_port(), free_port()
        os.mkdir(self.dir, 0o700)

    def configure(self, members, settings, way):
        lines = [f"tickTime={TICK_MS}", "initLimit=20", "syncLimit=10", f"dataDir={self.dir}/data",
                 f"clientPort={self.port}", "clientPortAddress=127.0.0.1", "maxClientCnxns=0",
                 "admin.enableServer=false", "4lw.commands.whitelist=*", *settings]
        if len(members) > 1:
            lines += [f"server.{m.number}=127.0.0.1:{way(self, m)}:{m.elect_port}" for m in members]
        os.makedirs(self.dir + "/data", exist_ok=True)
        with open(self.dir + "/zoo.cfg", "w", encoding="utf-8") as config:
            config.write("\n".join(lines) + "\n")
        with open(self.dir + "/data/myid", "w", encoding="utf-8") as myid:
            myid.write(f"{self.number}\n")

    def start(self):
        log = open(self.dir + "/log", "a", encoding="utf-8")
        jars = ":".join(JARS + jar for jar in ("zookeeper.jar", "slf4j-simple.jar", "netty-codec.jar"))
        self.process = subprocess.Popen(
            ["java", "-Xmx256m", "-XX:+UseSerialGC", *self.java, "-cp", jars,
             "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
             "org.apache.zookeeper.server.quorum.QuorumPeerMain", self.dir + "/zoo.cfg"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=die_with_parent,
            env=preloading())
        log.close()

    def log(self):
        with open(self.dir + "/log", encoding="utf-8") as log:
            return log.read()

    def say(self, word, patience_s=2):
        """The answer to a four-letter word; "" if there is none."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), patience_s) as connection:
                connection.sendall(word.encode())
                connection.settimeout(patience_s)
                answer = b""
                while part := connection.recv(65536):
                    answer += part
                return answer.decode()
        except OSError:
            return ""


class ZookeeperServer(Directory):
    def __init__(self, members=1, *settings, durable=False, java=(), tls_port=None,
                 way=lambda one, other: other.peer_port):
        """durable: as people run it, with its disk synced; java: options of that; tls_port: a
        second port, which a server opens only after it has begun to serve on its first; way: the port
        over which one follows the other."""
        self.tls_port = tls_port
        for _ in range(ATTEMPTS):
            self.dir = tempfile.mkdtemp(prefix="stile-test-")
            self.members = [Member(i + 1, self.dir, [*([] if durable else HASTY), *java])
                            for i in range(members)]
            for member in self.members:
                member.configure(self.members, [*settings, *self.tls_settings()], way)
                member.start()
            if self.await_serving():
                return
            log = self.members[0].log()
            self.stop()
        raise OSError("zookeeper (package zookeeper) does not start: " + log)

    @property
    def hosts(self):
        return ",".join(f"127.0.0.1:{m.port}" for m in self.members)

    @property
    def url(self):
        return "zk://" + self.hosts

    def tls_settings(self):
        if not self.tls_port:
            return []
        return [f"secureClientPort={self.tls_port}", "secureClientPortAddress=127.0.0.1"]

    def await_serving(self):
        """Until all of them serve; False if one has ended. A server that is starting accepts
        connections and forgets some of them, so it is asked again soon."""
        begun = time.monotonic()
        while (passed_s := time.monotonic() - begun) < PATIENCE_S:
            patience_s = min(0.2 + passed_s / 10, 2)
            if any(m.process is None or m.process.poll() is not None for m in self.members):
                return False
            if (all("Mode: " in m.say("srvr", patience_s) for m in self.members) and
                    (not self.tls_port or speaks_tls(self.tls_port))):
                return True
            time.sleep(0.05)
        return False

    def restart(self, member=None):
        """The same directories and ports again."""
        for m in [member] if member else self.members:
            if not m.process:
                m.start()
        if all(m.process for m in self.members) and not self.await_serving():
            raise OSError("zookeeper does not start again: " + self.members[0].log())

    def say(self, word):
        return self.members[0].say(word)

    def kill(self, number=signal.SIGKILL):
        for member in self.members:
            member.kill(number)
