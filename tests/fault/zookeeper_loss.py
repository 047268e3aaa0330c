# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Why a lock on ZooKeeper was lost, and which process keeps a name, as their users hear of it."""
import signal
import socket

from cluster_kit import expect, spin
from kit import run_tests
from loss_of_consensus import Holder, breaks
from zookeeper_kit import Other, nodes_of, on_server

REMOVED = "removed by another client"


def settle(server):
    """The holder watches its node, and for marks."""
    node = nodes_of(server)[0]
    spin(lambda: node in server.say("wchp") and "%stile/break-" in server.say("wchp"))


@on_server()
def broken(t, server):
    """The holder knows which process has broken its lock, or at least that one has"""
    for _ in range(3):
        with Holder(t) as holder:
            settle(server)
            breaker = breaks(t)
            reason = holder.reason()
            assert reason in ("taken by stile break (%s pid %d)" % (socket.gethostname(), breaker),
                              "taken by stile break"), reason
    with Other(server) as client:
        expect([n for n in client.get_children("/%stile") if n.startswith("break")], [])


@on_server()
def broken_while_it_watches(t, server):
    """A mark that has been read before the node goes names the process"""
    with Holder(t) as holder:
        settle(server)
        node = nodes_of(server)[0]
        with Other(server) as client:
            stat = client.get("/x/" + node)[1]
            mark = "4711 %s %d %d" % (socket.gethostname(), 1, stat.czxid)
            path = "/%%stile/break-%x" % stat.ephemeralOwner
            client.create(path, mark.encode(), ephemeral=True, makepath=True)
            spin(lambda: path in server.say("wchp"))
            client.delete("/x/" + node)
            holder.lost_because("taken by stile break (%s pid 4711)" % socket.gethostname())


@on_server()
def strange_marks(t, server):
    """Marks of other locks, and what is no mark, explain nothing"""
    for mark in (b"", b"\xff" * 5000, b"1 a", b"1 a 2 3", b"x y z", b"1 a 0x", b"\0\n"):
        with Holder(t) as holder:
            settle(server)
            node = nodes_of(server)[0]
            with Other(server) as client:
                stat = client.get("/x/" + node)[1]
                path = "/%%stile/break-%x" % stat.ephemeralOwner
                client.create(path, mark, ephemeral=True, makepath=True)
                client.delete(path)
                client.delete("/x/" + node)
                holder.lost_because(REMOVED, "taken by stile break")


@on_server()
def broken_while_stopped(t, server):
    """A process that was stopped while its lock was broken loses it with the first event"""
    with Holder(t, "60000") as holder:
        settle(server)
        holder.process.send_signal(signal.SIGSTOP)
        breaks(t)
        holder.process.send_signal(signal.SIGCONT)
        holder.lost_because("taken by stile break")


@on_server()
def removed(t, server):
    """A node that somebody deletes"""
    with Holder(t) as holder:
        settle(server)
        with Other(server) as client:
            client.delete("/x/" + nodes_of(server)[0])
        holder.lost_because(REMOVED)


@on_server()
def not_renewed(t, server):
    """A session that has expired while its process was stopped"""
    with Holder(t, "4000") as holder:
        settle(server)
        holder.process.send_signal(signal.SIGSTOP)
        spin(lambda: nodes_of(server) == [])
        holder.process.send_signal(signal.SIGCONT)
        holder.lost_because("not renewed", "without a renewal")


@on_server()
def kept_by_a_hold(t, server):
    """A hold shows the process that left it, since when it keeps the name, and until when"""
    run = t.stile("run", "--hold-at-least", "300s", "x", "--", "true")
    expect(run.returncode, 0)
    one = t.show("x")["holders"][0]
    with Other(server) as client:
        pid = int(client.get("/x/" + nodes_of(server)[0])[0].split()[0])
    assert one["ghost"] and one["command"] and 290000 < one["expires_ms"] <= 300000, one
    expect((one["host"], one["pid"]), (socket.gethostname(), pid))
    spin(lambda: t.show("x")["holders"][0]["age_ms"] > one["age_ms"])


run_tests([broken, broken_while_it_watches, strange_marks, broken_while_stopped, removed,
           not_renewed, kept_by_a_hold])
