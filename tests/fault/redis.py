# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A redis-server that is killed, stopped, emptied, full, or does not want us; and what the user of
stile hears of it."""
import signal
import subprocess

from redis_kit import (DURABLE, RedisServer, acquire, expect, lost, on_server, owner_of, refused, run_tests,
                       use)


# ---- killed and restarted ----

@on_server(*DURABLE)
def restart_with_its_data(t, server):
    """kill -9 of a server that keeps its data: the holder keeps its lock, the token grows"""
    held = t.hold("x", "--ttl", "20s")
    token = t.show("x")["token"]
    server.kill()
    server.restart()
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
    t.release(held)
    owner, later = acquire(t, "x")
    assert later > token, (token, later)
    server.kill()
    server.restart()
    expect(t.stile("renew", "--owner", owner, "x").returncode, 0)
    expect(t.stile("release", "--owner", owner, "x").returncode, 0)
    assert acquire(t, "x")[1] > later


@on_server()
def restart_without_its_data(t, server):
    """kill -9 of a server that keeps nothing: the next renewal finds that out"""
    held = t.hold("x", "--ttl", "6s")
    server.kill()
    server.restart()
    lost(held)


# ---- stopped ----

@on_server()
def stopped_past_the_ttl(t, server):
    """A stopped server: its holder is lost at its own deadline"""
    held = t.hold("x", "--ttl", "2s")
    server.process.send_signal(signal.SIGSTOP)
    try:
        lost(held)
        refused(t, "127.0.0.1:%d" % server.port)
    finally:
        server.process.send_signal(signal.SIGCONT)
    expect(t.stile("run", "x", "--", "true").returncode, 0)


# ---- connections ----

@on_server()
def connections_are_cut(t, server):
    """CLIENT KILL of every connection: the holder keeps the lock, the waiter gets it"""
    held = t.hold("x", "--ttl", "20s")
    waiting = t.start("run", "x", "--", "echo", "in")
    t.until(t.watch("x"), lambda change: len(change["waiters"]) == 1)
    for kind in "normal", "pubsub":
        server.cli("CLIENT", "KILL", "TYPE", kind)
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
    t.release(held)
    expect(waiting.line(), "in")
    expect(waiting.wait(), 0)


@on_server("--maxclients", "3")
def too_many_clients(t, server):
    """maxclients: a clear error, and the holder goes on"""
    held = t.hold("x", "--ttl", "20s")  # two connections
    other = subprocess.Popen(["redis-cli", "-p", str(server.port), "SUBSCRIBE", "x"],
                             stdout=subprocess.PIPE)
    other.stdout.readline()
    try:
        refused(t, "maxclients")
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
    t.release(held)


# ---- what is kept is taken away ----

@on_server()
def scripts_are_forgotten(t, server):
    """SCRIPT FLUSH: nobody notices"""
    held = t.hold("x", "--ttl", "20s")
    server.cli("SCRIPT", "FLUSH")
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
    server.cli("SCRIPT", "FLUSH")
    t.release(held)
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)


@on_server()
def everything_is_flushed(t, server):
    """FLUSHALL under a holder: the next renewal notices"""
    held = t.hold("x", "--ttl", "6s")
    server.cli("FLUSHALL")
    lost(held)


@on_server()
def key_is_deleted(t, server):
    """DEL of the key by hand: lost, and the late holder frees nobody else's"""
    held = t.hold("x", "--ttl", "6s")
    server.cli("DEL", "lock:x")
    owner, _ = acquire(t, "x", "--ttl", "60s")
    lost(held)
    expect(owner_of(server), owner)


@on_server()
def key_of_another_type(t, server):
    """Something at the key that is no lock is left alone, and does not cost other locks"""
    server.cli("RPUSH", "lock:x", "a")
    refused(t, "x", "another program", "prefix")
    expect(server.cli("LRANGE", "lock:x", "0", "-1"), "a")
    several = t.hold("a", "--ttl", "6s", "b")
    server.cli("DEL", "lock:a")
    server.cli("RPUSH", "lock:a", "a")
    lost(several, "a")
    expect(server.cli("EXISTS", "lock:b"), "0")


# ---- full ----

@on_server("--maxmemory", "6mb", "--maxmemory-policy", "noeviction")
def memory_is_full(t, server):
    """OOM: nothing new is granted, the holder can renew and release"""
    owner, _ = acquire(t, "x", "--ttl", "60s")
    shared, _ = acquire(t, "s", "--ttl", "60s", "--shared")
    server.cli("CONFIG", "SET", "maxmemory", "1mb")
    refused(t, "y", "memory", verb=("acquire", "--try", "y"))
    for one, options in (owner, ["x"]), (shared, ["--shared", "s"]):
        for verb in "renew", "release":
            done = t.stile(verb, "--owner", one, *options)
            expect(done.returncode, 0, verb + done.stderr)
    expect(server.cli("EXISTS", "lock:x", "lock:s"), "0")


@on_server("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
def locks_may_be_evicted(t, server):
    """A server that may evict locks is refused, unless that is allowed"""
    refused(t, "noeviction", "allow=eviction")
    t.env["STILE_ENGINE"] += "?allow=eviction"
    acquire(t, "x")


# ---- not for us ----

@on_server("--user", "ann", "on", ">secret-of-ann", "~*", "&*", "+@all",
           "--requirepass", "secret-of-all")
def passwords(t, server):
    """A wrong password is refused, and none is ever shown"""
    for user in "", ":wrong-word@", "ann:wrong-word@", "nobody:wrong-word@":
        use(t, server, "redis://" + user + "127.0.0.1:%d")
        said = refused(t, "password")
        for word in "wrong-word", "secret":
            assert word not in said, said
    for user in ":secret-of-all@", "ann:secret-of-ann@":
        use(t, server, "redis://" + user + "127.0.0.1:%d")
        expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)
    t.env["STILE_ENGINE"] = "redis://127.0.0.1:%d?password_file=%s" % (server.port, t.path("word"))
    with open(t.path("word"), "w", encoding="utf-8") as file:
        file.write("secret-of-all\n")
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)


@on_server("--user", "low", "on", ">low", "~*", "&*", "+@all", "-eval", "-evalsha")
def permission_is_missing(t, server):
    """A user whose ACL does not allow scripts hears which one it is"""
    use(t, server, "redis://low:low@127.0.0.1:%d")
    refused(t, "ACL", "eval")


@on_server()
def replica(t, server):
    """A replica is refused"""
    with RedisServer("--replicaof", "127.0.0.1", str(server.port)) as other:
        use(t, other)
        refused(t, "replica", "primary")


@on_server()
def nobody_there(t, server):
    """No server: UNREACHABLE at once, with the address"""
    server.kill()
    refused(t, "127.0.0.1:%d" % server.port)


# ---- for scripts ----

@on_server()
def owner_values(t, server):
    """acquire, renew, release: the owner value is the proof"""
    owner, token = acquire(t, "x", "--ttl", "60s")
    expect(owner_of(server), owner)
    other = owner[:-1] + ("0" if owner[-1] != "0" else "1")
    for verb in "renew", "release":
        expect(t.stile(verb, "--owner", other, "x").returncode, 76)
    expect(t.stile("renew", "--owner", owner, "--ttl", "600s", "x").returncode, 0)
    assert int(server.cli("PTTL", "lock:x")) > 500000
    expect(t.stile("release", "--owner", owner, "x").returncode, 0)
    expect(t.stile("release", "--owner", owner, "x").returncode, 76)
    expect(server.cli("EXISTS", "lock:x"), "0")
    assert acquire(t, "x")[1] > token


run_tests([restart_with_its_data, restart_without_its_data, stopped_past_the_ttl,
           connections_are_cut, too_many_clients, scripts_are_forgotten,
           everything_is_flushed, key_is_deleted, key_of_another_type, memory_is_full,
           locks_may_be_evicted, passwords, permission_is_missing, replica, nobody_there,
           owner_values])
