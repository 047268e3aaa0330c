# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What the tests on ZooKeeper servers of their own share."""
import contextlib
import os
import re
import socket
import struct
import subprocess

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from cluster_kit import TESTS, spin
from zookeeper_server import JARS, ZookeeperServer

SECRET = 0xB3415C00  # of the server, from which it makes the password of a session


def on_server(members=1, *settings, **more):
    def decorate(case):
        def with_server(t):
            with ZookeeperServer(members, *settings, **more) as server:
                t.env["STILE_ENGINE"] = server.url
                t.env["STILE_MODULES"] = os.environ["STILE_MODULES"]
                case(t, server)
        with_server.__name__, with_server.__doc__ = case.__name__, case.__doc__
        return with_server
    return decorate


class Other:
    """Somebody else on the same server, for a moment."""

    def __init__(self, server):
        self.client = KazooClient(server.hosts)

    def __enter__(self):
        self.client.start()
        return self.client

    def __exit__(self, *_):
        self.client.stop()
        self.client.close()


def nodes_of(server, name="x"):
    """In the order in which they stand in line."""
    with Other(server) as client:
        try:
            return sorted(client.get_children("/" + name), key=lambda node: node[-10:])
        except NoNodeError:
            return []


def connected(server):
    """The sessions that have a connection to it."""
    return {int(found, 16) for found in re.findall(r"sid=0x([0-9a-f]+)", server.say("cons"))}


def password_of(session):
    """The server makes it with java.util.Random, so anybody can end anybody's session."""
    seed = ((session ^ SECRET) ^ 0x5DEECE66D) & ((1 << 48) - 1)
    password = b""
    for _ in range(4):
        seed = (seed * 0x5DEECE66D + 0xB) & ((1 << 48) - 1)
        password += (seed >> 16).to_bytes(4, "little")
    return password


def speak(member, session, then=b""):
    """Goes on with a session through this server: the connection, and what it answers. All is sent
    at once, because its client comes back at once."""
    connection = socket.create_connection(("127.0.0.1", member.port), 10)
    hello = struct.pack(">iqiqi", 0, 0, 10000, session, 16) + password_of(session) + b"\0"
    answer = b""
    with contextlib.suppress(ConnectionResetError):
        connection.sendall(struct.pack(">i", len(hello)) + hello + then)
        while len(answer) < 20 and (part := connection.recv(20 - len(answer))):
            answer += part
    return connection, answer


def move_session(member, session):
    connection, answer = speak(member, session)
    connection.close()
    assert struct.unpack(">iiiq", answer)[3] == session, answer


def end_session(server, session):
    """Until the server no longer knows it."""
    def is_over():
        connection, answer = speak(server.members[0], session, struct.pack(">iii", 8, 1, -11))
        with connection, contextlib.suppress(ConnectionResetError):
            while connection.recv(4096):
                pass
        return len(answer) == 20 and struct.unpack(">iiiq", answer)[3] == 0
    spin(is_over)


def set_numbers(server, path, *numbers):
    """The next sequential number below a node, and the node's version; "-" leaves the number."""
    jars = ":".join(JARS + jar for jar in ("zookeeper.jar", "slf4j-simple.jar"))
    server.kill()
    subprocess.run(["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", jars,
                    "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
                    str(TESTS / "servers" / "Numbers.java"), server.members[0].dir + "/data", path,
                    *map(str, numbers)], check=True)
    server.restart()
