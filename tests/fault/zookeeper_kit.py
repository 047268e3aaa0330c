"""What the tests on ZooKeeper servers of their own share."""
import os

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from zookeeper_server import ZookeeperServer

SECRET = 0xB3415C00  # of the server, from which it makes the password of a session


def on_server(members=1, **more):
    def decorate(case):
        def with_server(t):
            with ZookeeperServer(members, **more) as server:
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


def password_of(session):
    """The server makes it with java.util.Random, so anybody can end anybody's session."""
    seed = ((session ^ SECRET) ^ 0x5DEECE66D) & ((1 << 48) - 1)
    password = b""
    for _ in range(4):
        seed = (seed * 0x5DEECE66D + 0xB) & ((1 << 48) - 1)
        password += (seed >> 16).to_bytes(4, "little")
    return password
