# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The ACL that a user of locks needs, in each mode: these are the rules of docs/guarantees.md, and
users that lock here are allowed nothing else."""
import pathlib
import re

from redis_kit import (DURABLE, RedisServer, acquire, expect, gets_in, on_server, refused,
                       run_tests, use, waiting)
from redis_groups import Cluster, Pretender, Watched, has_replicas, until
from redlock_kit import on_nodes, url_of
from doctor_kit import examine

DOCS = pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "guarantees.md"


def documented(mode):
    """The rules as the documentation has them."""
    rows = re.findall(r"^\| `([^`]*)` \| (.*) \|$", DOCS.read_text(encoding="utf-8"), re.M)
    (rules,) = [rules for name, rules in rows if name == "ACL " + mode]
    return re.findall(r"`([~&+][^`]*)`", rules)


RULES = {mode: documented(mode) for mode in ("redis", "sentinel", "sentinels", "cluster", "redlock",
                                             "wait_replicas", "doctor", "cells")}


def allow(server, *modes):
    rules = [rule for mode in modes for rule in RULES[mode]]
    expect(server.cli("ACL", "SETUSER", "low", "reset", "on", ">low", *rules), "OK")


def basics(t, modes=((), ("--shared",), ("--slots", "2"))):
    """What the contract is about: hold, be excluded, wait, get in, look, break, renew, release."""
    for options in modes:
        held = t.hold("x", "--ttl", "3s", *options)
        expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
        waiter = waiting(t, "x")
        expect(len(t.show("x")["waiters"]), 1)
        assert "x" in t.stile("ls").stdout
        t.release(held)
        gets_in(waiter)
    owner, _ = acquire(t, "y", "--ttl", "60s")
    expect(t.stile("renew", "--owner", owner, "y").returncode, 0)
    expect(t.stile("release", "--owner", owner, "y").returncode, 0)
    acquire(t, "y", "--ttl", "60s", "--hold-at-least", "1s")
    done = t.stile("break", "y")
    expect(done.returncode, 0, done.stderr)


def nothing_missing(t):
    seen = examine(t)
    missing = {"info", "scripts", "commands", "keys", "messages", "wait", "config", "node-key"}
    expect(missing & set(seen), set(), seen)


@on_server(*DURABLE)
def one_server(t, server):
    """redis: the documented rules suffice, and the doctor misses nothing"""
    allow(server, "redis")
    use(t, server, "redis://low:low@127.0.0.1:%d")
    basics(t)
    allow(server, "redis", "doctor")
    nothing_missing(t)
    expect(examine(t)["cell-commands"]["severity"], "note")
    allow(server, "redis", "cells", "doctor")
    expect("cell-commands" in examine(t), False)


@on_server(*DURABLE)
def each_of_them_is_needed(t, server):
    """redis: without any one of the documented commands, the doctor names it and how to allow it"""
    use(t, server, "redis://low:low@127.0.0.1:%d")
    for rule in RULES["redis"] + RULES["cells"]:
        if not rule.startswith("+") or rule in ("+client|setname", "+select"):
            continue
        allow(server, "redis", "cells", "doctor")
        server.cli("ACL", "SETUSER", "low", "-" + rule[1:])
        seen = examine(t)
        commands = " ".join(sum((one["commands"] for one in seen.values()), []))
        assert rule in commands, (rule, commands)
        expect("cell-commands" in seen, rule in RULES["cells"])
        expect("commands" in seen and rule in RULES["cells"], False, seen)


def waits_for_replicas(t):
    """wait_replicas needs WAIT, and the doctor says so"""
    with RedisServer(*DURABLE) as server:
        with RedisServer("--replicaof", "127.0.0.1", str(server.port)):
            until(lambda: has_replicas(server, 1), "replication")
            use(t, server, "redis://low:low@127.0.0.1:%d?wait_replicas=1")
            allow(server, "redis", "doctor")
            assert "wait" in examine(t)
            allow(server, "redis", "doctor", "wait_replicas")
            nothing_missing(t)
            acquire(t, "x")


def sentinels(t):
    """redis+sentinel: the rules of the servers, and those of the Sentinels"""
    with Watched() as group:
        for server in group.servers:
            allow(server, "redis", "sentinel", "doctor")
        for sentinel in group.sentinels:
            allow(sentinel, "sentinels")
        use(t, group.servers[0])
        with open(t.path("word"), "w", encoding="utf-8") as file:
            file.write("low\n")
        t.env["STILE_ENGINE"] = "%s?sentinel_user=low&sentinel_password_file=%s" % (
            group.url.replace("://", "://low:low@"), t.path("word"))
        basics(t, modes=((),))
        nothing_missing(t)


def cluster(t):
    """redis+cluster: the rules of each node"""
    with Cluster(2, args=DURABLE) as nodes:
        for node in nodes.all:
            allow(node, "redis", "cluster", "doctor")
        use(t, nodes.nodes[0])
        t.env["STILE_ENGINE"] = nodes.url.replace("://", "://low:low@")
        basics(t)
        nothing_missing(t)


@on_nodes(*DURABLE, number=3)
def redlock(t, nodes):
    """redlock: the rules of each node"""
    for node in nodes:
        allow(node, "redlock", "doctor")
    t.env["STILE_ENGINE"] = url_of([node.port for node in nodes]).replace("://", "://low:low@")
    basics(t, modes=((),))
    nothing_missing(t)
    t.env["STILE_ENGINE"] += "?fence=no"
    expect(t.stile("run", "--try", "plain", "--", "true").returncode, 0)


class ActiveReplica(Pretender):
    """What KeyDB says of itself."""

    def reply(self, words, known):
        info = ("# Server\r\nredis_version:6.3.4\r\n# Replication\r\nrole:active-replica\r\n"
                "master_host:127.0.0.1\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n")
        if words[0] == "INFO":
            return "$%d\r\n%s\r\n" % (len(info), info)
        if words[:2] == ["CONFIG", "GET"]:
            return "*2\r\n$%d\r\n%s\r\n$3\r\nyes\r\n" % (len(words[2]), words[2])
        if words[0] == "SUBSCRIBE":
            return "*3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:1\r\n" % (len(words[1]), words[1])
        return "+OK\r\n"


def active_replica(t):
    """KeyDB's active replicas are refused: two of them would grant the same lock"""
    with ActiveReplica() as server:
        use(t, server)
        refused(t, "KeyDB", "active-replica")
        expect(examine(t)["active-replica"]["severity"], "danger")


run_tests([one_server, each_of_them_is_needed, waits_for_replicas, sentinels, cluster, redlock,
           active_replica])
