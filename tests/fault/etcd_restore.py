# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""An etcd that comes back with less than it had: restored from a snapshot, or with empty disks. What was
granted since then is known only to its holder."""
import os
import shutil
import signal
import subprocess

from cells_kit import Cells
from cluster_kit import connected, expect, spin
from etcd_fault_kit import await_settled, created, keys_of, revision_of
from etcd_server import EtcdServer
from keeper import Keeper
from kit import run_tests


def save(server):
    subprocess.run(["etcdctl", "--endpoints", server.members[0].client_url, "snapshot", "save",
                    server.dir + "/snapshot"], env=server.ctl_env(), check=True,
                   capture_output=True)


def forget(server):
    """The data of all members."""
    server.kill()
    for member in server.members:
        shutil.rmtree(member.dir + "/data")


def restore(server, *args):
    forget(server)
    for member in server.members:
        subprocess.run(["etcdctl", "snapshot", "restore", server.dir + "/snapshot",
                        "--name", member.name, "--data-dir", member.dir + "/data",
                        "--initial-cluster", server.cluster,
                        "--initial-advertise-peer-urls", member.peer_url, *args],
                       env=server.ctl_env(), check=True, capture_output=True)
        os.chmod(member.dir + "/data", 0o700)
    server.restart()


def write_until(server, revision):
    while revision_of(server) < revision:
        server.ctl("put", "filler", "")
    expect(revision_of(server), revision)


def on_keepers(number, members=1):
    """The test gets so many clients, whose leases are older than any snapshot it makes."""
    def decorate(case):
        def with_keepers(t):
            with EtcdServer(members) as server:
                t.env.update(STILE_ENGINE=server.url, STILE_MODULES=os.environ["STILE_MODULES"])
                keepers = [Keeper(server.url) for _ in range(number)]
                try:
                    for i, keeper in enumerate(keepers):
                        expect(keeper.try_it("keep%d" % i), "OK")
                    case(t, server, *keepers)
                finally:
                    for keeper in keepers:
                        keeper.close()
        with_keepers.__name__, with_keepers.__doc__ = case.__name__, case.__doc__
        return with_keepers
    return decorate


def lost_after(server, holder, come_back):
    """The holder has its lock when the server goes, and hears of its loss when that has come back."""
    expect(holder.try_it("x"), "OK")
    come_back()
    spin(lambda: not holder.holds("x"))
    assert holder.holds("keep0")
    assert "its key was removed" in holder.release("x")


@on_keepers(2)
def holder(t, server, ours, other):
    """Granted after the snapshot: its holder is notified when that is restored, though its lease is in it"""
    save(server)
    lost_after(server, ours, lambda: restore(server))
    expect(other.try_again_connected("x"), "OK")
    assert other.holds("x") and not ours.holds("x")


@on_keepers(1)
def same_revision_by_chance(t, server, ours):
    """Others have written as much as was lost: the revision is the same, the key is still missing"""
    save(server)
    expect(ours.try_it("x"), "OK")
    await_settled(server, keys_of(server)[0])
    before = created(server, keys_of(server)[0])
    ours.process.send_signal(signal.SIGSTOP)
    restore(server)
    write_until(server, before)
    ours.process.send_signal(signal.SIGCONT)
    spin(lambda: not ours.holds("x"))


@on_keepers(2)
def waiter(t, server, ours, waiting):
    """Its place was taken after the snapshot: it stands in line again, and gets the lock"""
    expect(ours.try_it("x"), "OK")
    save(server)
    waiting.ask("x", 600000)
    spin(lambda: len(keys_of(server)) == 2)
    await_settled(server, keys_of(server)[1])
    restore(server)
    spin(lambda: len(keys_of(server)) == 2)
    assert ours.holds("x")
    expect(ours.release("x"), "OK")
    expect(waiting.answer(), "OK")


@on_keepers(2)
def holder_and_waiter(t, server, ours, waiting):
    """Both came after the snapshot: the holder is notified, the waiter gets the lock"""
    save(server)
    expect(ours.try_it("x"), "OK")
    waiting.ask("x", 600000)
    spin(lambda: len(keys_of(server)) == 2)
    await_settled(server, keys_of(server)[1])
    restore(server)
    expect(waiting.answer(), "OK")
    spin(lambda: not ours.holds("x"))
    assert "its key was removed" in ours.release("x")


@on_keepers(1)
def released_since(t, server, ours):
    """Given back after the snapshot: the key that comes back with it is taken away"""
    expect(ours.try_it("x"), "OK")
    save(server)
    expect(ours.release("x"), "OK")
    restore(server)
    expect(len(keys_of(server)), 1)
    expect(t.stile("run", "--wait", "50s", "x", "--", "true").returncode, 0)
    assert ours.holds("keep0")


def replaced(server, ours, waiting):
    save(server)
    expect(ours.try_it("x"), "OK")
    waiting.ask("x", 600000)
    spin(lambda: len(keys_of(server)) == 2)
    for member in server.members:
        member.args = (*member.args, "--initial-cluster-token", "another")
    restore(server, "--initial-cluster-token", "another")
    expect(waiting.answer(), "OK")
    spin(lambda: not ours.holds("x"))


@on_keepers(2)
def another_cluster_id(t, server, ours, waiting):
    """Restored as a new cluster, as its manual wants it: the same"""
    replaced(server, ours, waiting)


@on_keepers(2, 3)
def another_cluster_id_of_three(t, server, ours, waiting):
    """Three members that were restored as a new cluster: the same, once all of them say so"""
    replaced(server, ours, waiting)


@on_keepers(2)
def wiped(t, server, ours, other):
    """A single member without its data: all that it had is lost, at once, and new locks are granted"""
    expect(ours.try_it("x"), "OK")
    other.ask("x", 600000)
    spin(lambda: len(keys_of(server)) == 2)
    forget(server)
    for member in server.members:
        member.start(server.cluster)
    assert server.await_healthy()
    spin(lambda: not ours.holds("x") and not ours.holds("keep0"))
    expect(other.answer(), "OK")


def cells_and_guards(t):
    """Cells and guards are as old as the snapshot, both of them; a version that was read since may come back"""
    with EtcdServer() as server:
        t.env.update(STILE_ENGINE=server.url, STILE_MODULES=os.environ["STILE_MODULES"])
        with Cells(t) as cells, Cells(t) as watching:
            first = cells.put("x", "old", token=5, issuer="etcd:x")
            cells.put("gone since", "v")
            save(server)
            late = cells.put("x", "late", token=9, issuer="etcd:x")
            expect(cells.tell("remove", "gone since").status, "OK")
            cells.put("made since", "v")
            watching.ask("watch", "x")
            expect(watching.answer().rest, "late")
            restore(server)
            found = []
            spin(lambda: found.append(cells.tell("get", "x")) or found[-1].status == "OK")
            expect(found[-1], ("OK", first, 5, "etcd:x", "old"))
            expect(watching.answer().rest, "old")
            expect(cells.list(), [("gone since", 1), ("x", 3)])
            # The guard fits its data: what was acknowledged to token 9 is gone, and 5 may write again.
            cells.refuse("STALE", "put", "x", "stale", token=4)
            cells.refuse("CONFLICT", "put", "x", "by version", version=late, token=9)
            again = cells.put("x", "again", token=5)
            assert first < again <= late, (first, again, late)
            # Raised to the newest token, as docs/fences.md advises, it refuses those before it.
            expect(cells.tell("raise", "x", token=9, issuer="etcd:x").status, "OK")
            cells.refuse("STALE", "put", "x", "late", token=5)
            cells.put("x", "end", token=9)
            while watching.answer().rest != "end":
                pass
            expect(watching.answer().status, "OK")


def lagging(t):
    """A member that was stopped for a while knows less than we do: nobody loses anything by that"""
    with EtcdServer(3) as server:
        named = server.members[:2]
        ours = Keeper("etcd://" + ",".join("127.0.0.1:%d" % m.port for m in named))
        try:
            expect(ours.try_it("keep0"), "OK")
            near = connected(server, ours.process.pid)
            far = next(m for m in named if m is not near)
            far.signal(signal.SIGSTOP)
            ours.ask("x", 60000)
            expect(ours.answer(), "OK")
            await_settled(server, keys_of(server)[0])
            far.signal(signal.SIGCONT)
            near.kill()
            spin(lambda: connected(server, ours.process.pid) is far)
            ours.ask("y", 60000)
            expect(ours.answer(), "OK")
            assert ours.holds("x") and ours.holds("keep0")
            expect(ours.release("x"), "OK")
        finally:
            ours.close()


run_tests([holder, same_revision_by_chance, waiter, holder_and_waiter, released_since,
           another_cluster_id, another_cluster_id_of_three, wiped, cells_and_guards, lagging])
