# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Where the records of last holders are in a ZooKeeper, and what may happen to them."""
import contextlib

from kazoo.exceptions import NoNodeError

from cluster_kit import expect, spin
from kit import run_tests
from loss_of_consensus import Holder
from zookeeper_kit import Other, nodes_of, on_server

LINES_MAX = 4096


def bucket_of(name):
    sum_ = 0xCBF29CE484222325
    for byte in name.encode():
        sum_ = (sum_ ^ byte) * 0x100000001B3 % 2 ** 64
    return "last-%03x" % (sum_ & 0xFFF)


def data_of(client, name, folder="/%stile"):
    try:
        return client.get(folder + "/" + bucket_of(name))[0].decode(errors="replace")
    except NoNodeError:
        return ""


def is_recorded(client, name, folder="/%stile"):
    return any(line.startswith(name + "\t") for line in data_of(client, name, folder).split("\n"))


def neighbours(n):
    """Names that share a node."""
    found, i, bucket = [], 0, bucket_of("n0")
    while len(found) < n:
        if bucket_of("n%d" % i) == bucket:
            found.append("n%d" % i)
        i += 1
    return found


@on_server()
def several_at_once(t, server):
    """Clients that write to one node at the same time do not overwrite each other"""
    names = neighbours(6)
    with contextlib.ExitStack() as stack:
        for holder in [stack.enter_context(Holder(t, name=name)) for name in names]:
            expect(holder.process.poll(), None)
        client = stack.enter_context(Other(server))
        for name in names:
            spin(lambda: is_recorded(client, name))  # pylint: disable=cell-var-from-loop


@on_server()
def damaged(t, server):
    """Strange data is replaced, and what somebody has removed comes back"""
    with Other(server) as client:
        for data in None, b"", b"\xff\0\n" * 1000, b"x\t1", b"a\t1\tb\n" * 20000:
            path = "/%stile/" + bucket_of("x")
            if data is not None:
                client.set(path, data)
            with Holder(t):
                spin(lambda: is_recorded(client, "x"))
            assert len(client.get(path)[0]) <= LINES_MAX
            spin(lambda: nodes_of(server) == [])
            client.set(path, b"")
        client.delete("/%stile", recursive=True)
        with Holder(t):
            spin(lambda: is_recorded(client, "x"))


@on_server()
def users(t, server):
    """Each user's records are its own, as all its nodes are"""
    url = t.env["STILE_ENGINE"]
    for user in "alice:1", "bob:2":
        t.env["STILE_ENGINE"] = url.replace("zk://", "zk://%s@" % user) + "/" + user[:-2]
        with Other(server) as client, Holder(t):
            client.add_auth("digest", user)
            base = "/" + user[:-2]
            folders = []
            spin(lambda: folders.extend(n for n in client.get_children(base) if "%stile-" in n) or folders)
            spin(lambda: is_recorded(client, "x", base + "/" + folders[0]))
            acl = client.get_acls(base + "/" + folders[0])[0][0]
            expect(acl.id.id.split(":")[0], user[:-2])


@on_server()
def unseen(t, server):
    """Records are no names"""
    with Other(server) as client:
        with Holder(t):
            spin(lambda: is_recorded(client, "x"))
        spin(lambda: nodes_of(server) == [])
    expect(t.stile("ls", "--json").stdout.strip(), "[]")


run_tests([several_at_once, damaged, users, unseen])
