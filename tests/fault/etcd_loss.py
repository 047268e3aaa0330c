# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Why a lock on etcd was lost, and which process keeps a name, as their users hear of it."""
import signal
import socket

from cluster_kit import expect, spin
from etcd_fault_kit import await_settled, enable_auth, keys_of, lease_of, on_server, revision_of, use
from kit import run_tests
from loss_of_consensus import Holder, breaks

REMOVED = "removed by another client"


def settle(server):
    await_settled(server, keys_of(server)[0])


# ---- broken ----

@on_server()
def broken_at_once(t, server):
    """A lock that is broken right after its grant, before its key is watched"""
    for _ in range(3):
        with Holder(t) as holder:
            holder.lost_to(breaks(t))


@on_server()
def broken_later(t, server):
    """A lock that has been held for a while: exclusive, and with a hold"""
    for options in (), ("0", "3000"):
        with Holder(t, *options) as holder:
            settle(server)
            holder.lost_to(breaks(t))


@on_server()
def broken_while_stopped(t, server):
    """A process that was stopped while its lock was broken"""
    with Holder(t, "60000") as holder:
        settle(server)
        holder.process.send_signal(signal.SIGSTOP)
        breaker = breaks(t)
        holder.process.send_signal(signal.SIGCONT)
        holder.lost_to(breaker)


@on_server()
def broken_while_cut_off(t, server):
    """A holder without a connection looks for its key, and for the reason, when it is back"""
    with Holder(t, "60000") as holder:
        settle(server)
        holder.process.send_signal(signal.SIGSTOP)
        server.kill()
        server.restart()
        breaker = breaks(t)
        holder.process.send_signal(signal.SIGCONT)
        holder.lost_to(breaker)


@on_server()
def nothing_is_left(t, server):
    """What a break leaves for the holder goes with the holder's lease"""
    with Holder(t) as holder:
        holder.lost_to(breaks(t))
        holder.process.wait()
    spin(lambda: server.ctl("get", "--prefix", "--keys-only", "").split() == ["\1stile/last/x"])


@on_server()
def a_proclaimed_value_stays(t, server):
    """Observers never see another value than the one that was proclaimed"""
    held = t.hold("x", "--proclaim", "10.0.0.1:80")
    settle(server)
    key, before = keys_of(server)[0], revision_of(server)
    breaks(t)
    held.process.wait()
    for revision in range(before, revision_of(server) + 1):
        value = server.ctl("get", "--print-value-only", "--rev", str(revision), key).strip()
        assert value in ("10.0.0.1:80", ""), value


@on_server()
def broken_by_a_restricted_user(t, server):
    """A role for the name alone: the lock is broken, and the reason is known where its watch was"""
    enable_auth(server, "x/")
    use(t, "etcd://worker:pw@%s" % server.hosts)
    with Holder(t) as holder:
        breaks(t)
        holder.lost_because("taken by stile break", REMOVED)
    record = t.stile("run", "x", "--", "true")
    expect(record.returncode, 0, record.stderr)
    expect(t.show("x")["holders"], [])


# ---- not broken ----

@on_server()
def removed(t, server):
    """A key that somebody deletes, and a lease that somebody revokes"""
    with Holder(t) as holder:
        settle(server)
        server.ctl("del", keys_of(server)[0])
        holder.lost_because(REMOVED)
    with Holder(t) as holder:
        settle(server)
        server.ctl("lease", "revoke", lease_of(keys_of(server)[0]))
        holder.lost_because(REMOVED, "before its time")


@on_server()
def not_renewed(t, server):
    """A lease that has expired while its process was stopped"""
    with Holder(t, "2000") as holder:
        settle(server)
        holder.process.send_signal(signal.SIGSTOP)
        spin(lambda: keys_of(server) == [])
        holder.process.send_signal(signal.SIGCONT)
        holder.lost_because("not renewed", "without a renewal")


# ---- kept without a holder ----

def check_kept(t, host, pid=None, command="stile"):
    one = t.show("x")["holders"][0]
    assert one["ghost"], one
    expect(one["host"], host)
    assert pid is None or one["pid"] == pid, (one, pid)
    assert 0 < one["expires_ms"] <= 302000, one
    return one


@on_server()
def kept_by_a_hold(t, server):
    """A hold shows the process that left it, and since when it keeps the name"""
    run = t.stile("run", "--hold-at-least", "300s", "x", "--", "true")
    expect(run.returncode, 0)
    value = server.ctl("get", "--prefix", "--print-value-only", "x/").split()[0]
    pid, host = value.split("@")
    expect(host, socket.gethostname())
    one = check_kept(t, host, int(pid))
    assert one["command"], one
    spin(lambda: t.show("x")["holders"][0]["age_ms"] > one["age_ms"])


@on_server()
def kept_by_a_restricted_user(t, server):
    """A role for the name alone: at least the process is known"""
    enable_auth(server, "x/")
    use(t, "etcd://worker:pw@%s" % server.hosts)
    run = t.stile("run", "--hold-at-least", "300s", "x", "--", "true")
    expect(run.returncode, 0)
    assert check_kept(t, socket.gethostname())["pid"] > 0


run_tests([broken_at_once, broken_later, broken_while_stopped, broken_while_cut_off, nothing_is_left,
           a_proclaimed_value_stays, broken_by_a_restricted_user, removed, not_renewed,
           kept_by_a_hold, kept_by_a_restricted_user])
