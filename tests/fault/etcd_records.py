# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Where the records of last holders are in an etcd, how long they last, and what may happen to them."""
import json
import re

from cluster_kit import expect, spin
from etcd_fault_kit import created, enable_auth, keys_of, on_server, use
from kit import run_tests
from loss_of_consensus import Holder

DAY = 86400


def key_of(name="x", prefix=""):
    return prefix + "\1stile/last/" + name


def record_of(server, name="x", prefix=""):
    return server.ctl("get", "--print-value-only", key_of(name, prefix)).rstrip("\n")


def recorded(t, server, name="x", prefix=""):
    """By a holder that has gone since. Its token, and the lease of the record."""
    with Holder(t, name=name):
        token = created(server, keys_of(server, prefix + name)[0])
        spin(lambda: record_of(server, name, prefix).startswith("%020d " % token))
    stored = json.loads(server.ctl("get", key_of(name, prefix), "-w", "json"))["kvs"][0]
    spin(lambda: keys_of(server, prefix + name) == [])
    return token, "%x" % stored["lease"]


@on_server()
def readable(t, server):
    """etcdctl shows the record, in words, and that it goes after 30 days"""
    token, lease = recorded(t, server)
    assert re.fullmatch(r"%020d 1 %d \d{13} 0 -1 \d+ \S+ lose" % (token, token), record_of(server)), \
        record_of(server)
    left = json.loads(server.ctl("lease", "timetolive", lease, "-w", "json"))
    assert 30 * DAY < left["ttl"] <= 30 * DAY + 3600, left


@on_server()
def few_leases(t, server):
    """Many clients share a few leases"""
    for name in "abcdef":
        recorded(t, server, name)
        recorded(t, server, name)
    leases = [line for line in server.ctl("lease", "list").split() if line.startswith("571e")]
    assert 0 < len(leases) <= 12, leases  # each name has one, and a second when an hour begins


@on_server()
def revoked(t, server):
    """A lease that somebody revokes takes its records with it, and is granted again"""
    _, lease = recorded(t, server)
    server.ctl("lease", "revoke", lease)
    expect(record_of(server), "")
    recorded(t, server)


@on_server()
def overwritten(t, server):
    """What is no record is replaced; a later record is not"""
    for strange in "zzz", "", "x" * 100000, ":", " 1":
        server.ctl("put", key_of(), "--", strange)
        recorded(t, server)
    later = "%020d 1 later" % (2 ** 64 - 1)
    server.ctl("put", key_of(), later)
    with Holder(t), Holder(t, name="y"):
        spin(lambda: record_of(server, "y"))
        expect(record_of(server), later)


@on_server()
def unseen(t, server):
    """Records are no locks, for ls, for `etcdctl lock`, and for every dialect"""
    for dialect in "mutex", "rwmutex", "etcd3":
        use(t, server.url + "?dialect=" + dialect)
        for name in "x", "1a2b3c4d5e6f7081", "a/1a2b3c4d5e6f7081":
            recorded(t, server, name)
            expect(server.ctl("lock", name, "true"), "")
        expect(json.loads(t.stile("ls", "--json").stdout), [])


@on_server()
def denied(t, server):
    """A role for the name alone: nothing is recorded, and nothing else suffers"""
    enable_auth(server, "p/x/")
    root = ["--user", "root:rootpw"]
    use(t, "etcd://worker:pw@%s/p/" % server.hosts)
    with Holder(t):
        expect(len(t.show("x")["holders"]), 1)
    expect(server.ctl(*root, "get", key_of(prefix="p/")), "")
    server.ctl(*root, "role", "grant-permission", "locks", "readwrite", "p/", "p/\2")
    with Holder(t, name="x"):
        spin(lambda: server.ctl(*root, "get", key_of(prefix="p/")))


run_tests([readable, few_leases, revoked, overwritten, unseen, denied])
