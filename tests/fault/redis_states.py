# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A redis-server that is loading, read-only, full, crowded, without its replicas, or has something
else where locks are kept."""
import os
import socket

from redis_kit import (COUNTER, RedisServer, acquire, beside, expect, gets_in, lost, nothing_left, on_server,
                       owner_of, refused, run_tests, ended_with, waiting)
from redis_groups import SOON, has_replicas, replicate, until
from redis_server import free_port


class Admin:
    """A connection of our own, made while there is room for it."""

    def __init__(self, server):
        self.socket = socket.create_connection(("127.0.0.1", server.port))
        self.lines = self.socket.makefile("rb")

    def ask(self, words):
        self.socket.sendall(words.encode() + b"\r\n")
        return self.lines.readline().decode().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.lines.close()
        self.socket.close()


# ---- loading ----

@on_server("--rdbcompression", "no")
def loading(t, server):
    """LOADING: a try reports it, a waiter gets in when it is done, a held lock stays held"""
    with Admin(server) as admin:
        for i in range(400):
            admin.ask("SET big:%d %s" % (i, os.urandom(500).hex()))
    owner, token = acquire(t, "x", "--ttl", "600s")
    server.cli("SAVE")
    server.kill()
    server.args += ("--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024")
    server.ready = "Loading RDB"
    server.restart()
    refused(t, "loading", "LOADING")
    waiter = t.start("run", "y", "--", "sh", "-c", "echo $STILE_TOKEN")
    ended_with(t.stile("renew", "--owner", owner, "x"), 69, "x", "loading")
    server.cli("CONFIG", "SET", "key-load-delay", "0")
    assert gets_in(waiter) > token
    expect(t.stile("renew", "--owner", owner, "x").returncode, 0)
    expect(t.stile("release", "--owner", owner, "x").returncode, 0)
    assert acquire(t, "x")[1] > token


# ---- read-only ----

@on_server()
def demoted(t, server):
    """READONLY without a new primary: nothing is granted, renewed or released; waiters go on waiting"""
    held = t.hold("x", "--ttl", "2s")
    released = t.hold("y", "--ttl", "60s")
    waiter = waiting(t, "x")
    server.cli("REPLICAOF", "127.0.0.1", str(free_port()))
    released.process.stdin.close()
    expect(released.wait(), 1)  # the command's own
    assert "ends with its lease" in (said := released.err.end()), said
    lost(held)
    refused(t, "replica", "primary")
    expect(waiter.process.poll(), None)
    server.cli("REPLICAOF", "NO", "ONE")
    gets_in(waiter)
    token = t.show("y")["token"]
    expect(t.stile("run", "--try", "y", "--", "true").returncode, 75)
    expect(t.stile("break", "y").returncode, 0)
    assert acquire(t, "y")[1] > token


# ---- full ----

@on_server()
def full_under_waiters(t, server):
    """OOM: a queued waiter is handed the lock all the same; a newcomer is refused, and is not queued"""
    held = t.hold("x", "--ttl", "60s")
    token = t.show("x")["token"]
    first, second = waiting(t, "x"), waiting(t, "x")
    server.cli("CONFIG", "SET", "maxmemory", "1mb")
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
    ended_with(t.stile("run", "x", "--", "true"), 69, "memory", "maxmemory")
    expect(len(t.show("x")["waiters"]), 2)
    t.release(held)
    expect([gets_in(first), gets_in(second)], [token + 1, token + 2])
    nothing_left(server)


@on_server()
def crowded(t, server):
    """maxclients: a waiter that lost its connections gets in when there is room again"""
    held = t.hold("x", "--ttl", "60s")
    waiter = waiting(t, "x")
    with Admin(server) as admin:
        expect(admin.ask("CONFIG SET maxclients 1"), "+OK")
        expect(admin.ask("CLIENT KILL TYPE pubsub"), ":%d" % 2)  # the holder's ears, the waiter's
        refused(t, "maxclients")
        t.release(held)
        expect(waiter.process.poll(), None)
        expect(admin.ask("CONFIG SET maxclients 1000"), "+OK")
    gets_in(waiter)
    nothing_left(server)


# ---- replicas ----

def with_replica(case):
    """The test gets a primary and its replica, which a grant waits for."""
    @on_server(*SOON)
    def with_both(t, server):
        with RedisServer("--replicaof", "127.0.0.1", str(server.port), *SOON) as replica:
            until(lambda: has_replicas(server, 1), "replication")
            replicate(server, 1)
            t.env["STILE_ENGINE"] += "?wait_replicas=1&wait_timeout=2500"
            case(t, server, replica)
    with_both.__name__, with_both.__doc__ = case.__name__, case.__doc__
    return with_both


@with_replica
def replicated(t, server, replica):
    """wait_replicas: granted when the replica has it, else refused and nothing is left"""
    owner, token = acquire(t, "x", "--ttl", "60s")
    expect(owner_of(replica), owner)
    replica.pause()
    url = t.env["STILE_ENGINE"]
    t.env["STILE_ENGINE"] = url.replace("2500", "300")
    ended_with(t.stile("run", "--try", "y", "--", "true"), 69, "only 0 of 1 replicas", "wait_replicas")
    nothing_left(server, "y")
    ended_with(t.stile("run", "z", "--", "true"), 69, "only 0 of 1 replicas")
    nothing_left(server, "z")
    expect(t.stile("renew", "--owner", owner, "x").returncode, 0)
    expect(owner_of(server), owner, "it is its owner's")
    replica.go_on()
    t.env["STILE_ENGINE"] = url
    expect(t.stile("renew", "--owner", owner, "x").returncode, 0)
    expect(t.stile("release", "--owner", owner, "x").returncode, 0)
    assert acquire(t, "x")[1] > token


@with_replica
def replicated_in_line(t, server, replica):
    """wait_replicas: a waiter that is handed a lock that no replica has is refused, and hands it on"""
    t.env["STILE_ENGINE"] = "redis://127.0.0.1:%d" % server.port
    held = t.hold("x", "--ttl", "60s")
    t.env["STILE_ENGINE"] += "?wait_replicas=1&wait_timeout=300"
    strict = waiting(t, "x")
    t.env["STILE_ENGINE"] = "redis://127.0.0.1:%d" % server.port
    easy = waiting(t, "x")
    replica.pause()
    t.release(held)
    code, said = strict.wait(), strict.err.end()
    expect(code, 69, said)
    assert "replicas" in said, said
    gets_in(easy)
    replica.go_on()
    nothing_left(server)


@on_server()
def numbers_in_the_url(t, server):
    """wait_replicas and wait_timeout take numbers within reason"""
    for words in "wait_replicas=x", "wait_replicas=", "wait_replicas=101", "wait_timeout=-1", \
            "wait_timeout=2501", "wait_timeout=99999999999999999999":
        t.env["STILE_ENGINE"] = "redis://127.0.0.1:%d?%s" % (server.port, words)
        refused(t, words.partition("=")[0], "number", code=64)
    t.env["STILE_ENGINE"] = "redis://127.0.0.1:%d?allow=everything" % server.port
    refused(t, "allow", code=64)


@on_server("--requirepass", "secret-word")
def password_files(t, server):
    """password_file: one that can't be read or is wrong is refused, and the word is not shown"""
    path = t.path("word")
    t.env["STILE_ENGINE"] = "redis://127.0.0.1:%d?password_file=%s" % (server.port, path)
    refused(t, "password_file")
    for word, words in ("", ["password"]), ("wrong-word\n", ["password"]):
        with open(path, "w", encoding="utf-8") as file:
            file.write(word)
        said = refused(t, *words)
        assert "word\n" not in said and "wrong-word" not in said, said
    with open(path, "w", encoding="utf-8") as file:
        file.write("secret-word\r\n")
    acquire(t, "x")


# ---- something else is there ----

@on_server()
def other_types(t, server):
    """Something else beside the key: refused, nothing is changed, and no key is left"""
    for part, key, verb in ("token", COUNTER, "RPUSH"), ("queue", beside("queue", "queue"), "SET"):
        server.cli(verb, key, "a")
        for verb in ["run", "--try"], ["run", "--wait", "10s"], ["run", "--shared", "--try"]:
            ended_with(t.stile(*verb, part, "--", "true"), 69, "another program")
        expect(server.cli("EXISTS", "lock:" + part), "0")
        expect(server.cli("EXISTS", key), "1")
        server.cli("DEL", key)
    server.cli("SET", COUNTER, "no number")
    ended_with(t.stile("run", "--try", "odd", "--", "true"), 69, "not an integer")
    expect(server.cli("EXISTS", "lock:odd"), "0")


run_tests([loading, demoted, full_under_waiters, crowded, replicated, replicated_in_line,
           numbers_in_the_url, password_files, other_types])
