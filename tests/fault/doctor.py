# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What stile doctor finds on a live redis-server: each finding is provoked by the server's own
set-up, and gone once what it says was done."""
import contextlib
import json
import os
import re
import signal
import subprocess
import urllib.parse

import doctor_kit
import kit
from doctor_kit import (DURABLE, INFO, Puppet, examine, examine_all, follow, found, gone, on_server,
                        use)
from kit import expect, run_tests
from redis_groups import Cluster
from redis_server import RedisServer, die_with_parent, free_port


# ---- what is written to disk ----

@on_server(*DURABLE)
def healthy(t, server):
    """A server as it should be: nothing to worry about, exit code 0"""
    seen = examine(t)
    expect({name: one["severity"] for name, one in seen.items()}, {"server": "fine"})
    expect(seen["server"]["where"], "127.0.0.1:%d" % server.port)
    for word in "on disk", "evicts nothing", "no replicas":
        assert word in seen["server"]["what"], seen
    assert "Nothing to worry about" in t.stile("doctor").stdout
    expect(server.cli("DBSIZE"), "0", "it leaves nothing behind")


@on_server()
def memory_only(t, server):
    """No persistence: danger, until it is switched on"""
    one = found(t, "persistence", "danger", "memory only", "appendonly no")
    assert not any("REWRITE" in command for command in one["commands"]), one
    assert "configuration file" in one["cure"], one
    follow(one)
    gone(t, "persistence", "appendfsync")


@on_server("--save", "60 1")
def snapshots_only(t, server):
    """Snapshots alone: danger, too"""
    follow(found(t, "persistence", "danger", "snapshots"))
    gone(t, "persistence", "appendfsync")


@on_server("--appendonly", "yes")
def synced_once_a_second(t, server):
    """appendfsync everysec: a warning"""
    follow(found(t, "appendfsync", "warning", "everysec", "same token"))
    gone(t, "appendfsync")
    server.cli("CONFIG", "SET", "appendfsync", "no")
    follow(found(t, "appendfsync", "warning", "appendfsync no"))
    gone(t, "appendfsync")


@on_server(*DURABLE, "--no-appendfsync-on-rewrite", "yes")
def not_synced_while_rewriting(t, server):
    """appendfsync always that isn't: no-appendfsync-on-rewrite"""
    follow(found(t, "no-appendfsync-on-rewrite", "warning"))
    gone(t, "no-appendfsync-on-rewrite")


def written_to_its_configuration(t):
    """With a configuration file the advice outlives a restart"""
    path = t.path("redis.conf")
    with open(path, "w", encoding="utf-8") as file:
        file.write("# a server of a test\n")
    with RedisServer() as server:
        server.kill()
        server.process = subprocess.Popen(
            ["redis-server", path, "--port", str(server.port), "--bind", "127.0.0.1",
             "--dir", server.dir, "--save", "", "--logfile", ""], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
        for line in server.process.stdout:
            if "eady to accept" in line:
                break
        use(t, server)
        one = found(t, "persistence", "danger")
        expect(one["cure"], "")
        assert one["commands"][-1].endswith(" CONFIG REWRITE"), one
        follow(one)
        server.process.stdout.close()
        gone(t, "persistence")
    with open(path, encoding="utf-8") as file:
        written = file.read()
    assert "appendonly yes" in written and "appendfsync always" in written, written


@on_server("--appendonly", "yes")
def restarted(t, server):
    """Started less than a lease ago, and not durable: a warning that says how long to wait"""
    one = found(t, "restarted", "warning", "30 s", "profile")
    assert "Wait for" in one["cure"], one
    t.stile("acquire", "--try", "--ttl", "1h", "x")
    one = found(t, "restarted", "warning", "one of its locks")
    assert re.search(r" 3[45]\d\d s", one["what"]), one
    server.cli("CONFIG", "SET", "appendfsync", "always")
    gone(t, "restarted")  # it remembers


# ---- memory and clients ----

@on_server("--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl")
def evicting(t, server):
    """A policy that evicts: danger on a server that no lock would be taken on"""
    expect(t.stile("acquire", "--try", "x").returncode, 69)
    follow(found(t, "eviction", "danger", "volatile-ttl", "allow=eviction"))
    gone(t, "eviction")
    expect(t.stile("acquire", "--try", "x").returncode, 0)


@on_server("--maxmemory-policy", "allkeys-lru")
def would_evict(t, server):
    """A policy that would evict, without a limit: a note"""
    follow(found(t, "eviction", "note", "allkeys-lru"))
    gone(t, "eviction")


@on_server("--maxmemory", "1mb")
def memory_nearly_full(t, server):
    """Memory nearly full: a warning"""
    follow(found(t, "memory", "warning", "refuses new claims"))
    gone(t, "memory")


@on_server("--maxclients", "2")
def nearly_too_many_clients(t, server):
    """As many clients as it takes: a warning"""
    other = subprocess.Popen(["redis-cli", "-p", str(server.port), "SUBSCRIBE", "x"],
                             stdout=subprocess.PIPE)
    other.stdout.readline()
    try:
        one = json.loads(t.stile("doctor", "--json").stdout)["findings"]
        (one,) = [f for f in one if f["id"] == "clients"]
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
    follow(one)
    gone(t, "clients")


# ---- copies ----

@contextlib.contextmanager
def replica_of(server, *args):
    with RedisServer("--replicaof", "127.0.0.1", str(server.port), *args) as replica:
        kit.spin(lambda: info(replica, "master_link_status") == "up")
        yield replica


def info(server, field):
    lines = dict(line.split(":", 1) for line in server.cli("INFO").splitlines() if ":" in line)
    return lines.get(field)


@on_server(*DURABLE)
def replicas(t, server):
    """Replicas: a warning that names wait_replicas, which makes it a note"""
    with replica_of(server):
        one = found(t, "replicas", "warning", "1 replica", "failover")
        assert "wait_replicas=1" in one["cure"], one
        use(t, server, "redis://127.0.0.1:%d?wait_replicas=1")
        found(t, "replicas", "note", "wait_replicas")
        gone(t, "wait-replicas")
        use(t, server, "redis://127.0.0.1:%d?wait_replicas=2")
        found(t, "wait-replicas", "warning", "1 of the 2")
        expect(t.stile("acquire", "--try", "x").returncode, 69)


@on_server(*DURABLE)
def is_a_replica(t, server):
    """A replica: danger, with the address of its primary"""
    with replica_of(server, *DURABLE) as replica:
        use(t, replica)
        found(t, "replica", "danger", "127.0.0.1:%d" % server.port)
        replica.cli("REPLICAOF", "NO", "ONE")
        gone(t, "replica")


@contextlib.contextmanager
def sentinel_of(t, server):
    path, port = t.path("sentinel.conf"), free_port()
    with open(path, "w", encoding="utf-8") as file:
        file.write("port %d\nbind 127.0.0.1\ndir %s\nsentinel monitor m 127.0.0.1 %d 1\n"
                   % (port, t.dir, server.port))
    process = subprocess.Popen(["redis-server", path, "--sentinel"], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, preexec_fn=die_with_parent)
    try:
        kit.spin(lambda: server.cli("PUBSUB", "NUMSUB", "__sentinel__:hello").endswith("1"))
        yield port
    finally:
        process.kill()
        process.wait()


@on_server(*DURABLE)
def sentinel(t, server):
    """A Sentinel is distinguished from a server, and seen from the server that it watches"""
    with replica_of(server), sentinel_of(t, server) as port:
        found(t, "replicas", "warning", "1 Sentinel")
        t.env["STILE_ENGINE"] = "redis://127.0.0.1:%d" % port
        found(t, "sentinel", "danger", "redis+sentinel://")
        expect(list(examine(t)), ["sentinel"])
        t.env["STILE_ENGINE"] = "redis+sentinel://127.0.0.1:%d/m" % port
        expect(found(t, "replicas", "warning")["where"], "127.0.0.1:%d" % server.port)


def cluster(t):
    """A Cluster: every primary is looked at, and missed when it is down"""
    with Cluster(3, args=DURABLE) as group:
        use(t, group.nodes[0])
        t.env["STILE_ENGINE"] = group.url
        found(t, "cluster", "note", "3 primaries")
        servers = {one["where"] for one in examine_all(t) if one["id"] == "server"}
        expect(servers, {"127.0.0.1:%d" % node.port for node in group.nodes})
        group.nodes[1].cli("CONFIG", "SET", "appendfsync", "no")
        one = found(t, "appendfsync", "warning")
        expect(one["where"], "127.0.0.1:%d" % group.nodes[1].port)
        follow(one)
        gone(t, "appendfsync", "cluster-down", "down")
        group.nodes[2].kill()
        one = found(t, "down", "danger", "slots")
        expect(one["where"], "127.0.0.1:%d" % group.nodes[2].port)
        group.nodes[2].restart()
        gone(t, "down")


@on_server(*DURABLE, "--cluster-enabled", "yes")
def cluster_without_slots(t, server):
    """A node that no Cluster has made its own yet says so"""
    found(t, "cluster-down", "danger", "Names in slots")
    server.cli("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
    kit.spin(lambda: "cluster_state:ok" in server.cli("CLUSTER", "INFO"))
    gone(t, "cluster-down")


@on_server(*DURABLE)
def no_cluster(t, server):
    """A server that is no Cluster, where the URL wants one"""
    use(t, server, "redis+cluster://127.0.0.1:%d")
    found(t, "no-cluster", "danger", "redis://")


# ---- rights ----

def user(t, server, *rights):
    server.cli("ACL", "SETUSER", "low", "reset", "on", ">low", *rights)
    use(t, server, "redis://low:low@127.0.0.1:%d")


def grant(one):
    """As an administrator, for whom no password is needed here."""
    follow(one, **{" --user ADMIN --askpass": "", "NAME": "low"})


@on_server(*DURABLE)
def rights_are_missing(t, server):
    """An ACL that hides or forbids something: said, not failed, and cured by what is said"""
    everything = ("~*", "&*", "+@all")
    for name, severity, taken in (("config", "warning", "-config"), ("info", "danger", "-info"),
                                  ("scripts", "danger", "-eval"), ("commands", "danger", "-pttl"),
                                  ("messages", "danger", "-publish")):
        user(t, server, *everything, taken)
        one = found(t, name, severity, "ACL")
        assert all("--user ADMIN --askpass" in command for command in one["commands"]), one
        grant(one)
        gone(t, name)
    user(t, server, "~lock:*", "+@all")  # as one would write it
    seen = examine(t)
    expect({seen[name]["severity"] for name in ("keys", "messages")}, {"danger"})
    expect(t.stile("acquire", "--try", "x").returncode, 69)
    grant(seen["keys"])
    grant(seen["messages"])
    gone(t, "keys", "messages")
    expect(t.stile("acquire", "--try", "x").returncode, 0)


@on_server(*DURABLE, "--requirepass", "s3cret")
def passwords_are_not_shown(t, server):
    """With a password the commands ask for it, and a wrong one is 69"""
    use(t, server, "redis://:s3cret@127.0.0.1:%d")
    env = {**os.environ, "REDISCLI_AUTH": "s3cret"}
    subprocess.run(["redis-cli", "-p", str(server.port), "CONFIG", "SET", "appendfsync", "no"],
                   env=env, stdout=subprocess.DEVNULL, check=True)
    for args in [], ["--json"]:
        done = t.stile("doctor", *args)
        assert "s3cret" not in done.stdout and "--askpass CONFIG SET" in done.stdout, done.stdout
    use(t, server, "redis://:wr0ng@127.0.0.1:%d")
    done = t.stile("doctor")
    expect((done.returncode, done.stdout), (69, ""), done.stderr)
    assert "password" in done.stderr and "wr0ng" not in done.stderr, done.stderr


@on_server()
def over_a_socket(t, server):
    """A Unix socket: the commands go there"""
    t.env["STILE_ENGINE"] = "redis+unix://" + server.path
    one = found(t, "persistence", "danger")
    assert one["commands"][0].startswith("redis-cli -s %s CONFIG" % server.path), one
    follow(one)
    gone(t, "persistence")


def over_tls(t):
    """TLS: the commands carry what redis-cli needs for it"""
    keys, port = t.path("it's keys"), free_port()
    os.mkdir(keys)
    subprocess.run([doctor_kit.TESTS / "servers" / "certs", keys], check=True)
    with RedisServer("--tls-port", str(port), "--tls-auth-clients", "no",
                     "--tls-ca-cert-file", keys + "/ca.pem", "--tls-cert-file",
                     keys + "/server.pem", "--tls-key-file", keys + "/server.key") as server:
        use(t, server)
        t.env["STILE_ENGINE"] = "rediss://127.0.0.1:%d?ca=%s" % (
            port, urllib.parse.quote(keys + "/ca.pem"))
        one = found(t, "persistence", "danger")
        assert one["commands"][0].startswith("redis-cli -h 127.0.0.1 -p %d --tls " % port), one
        follow(one)
        gone(t, "persistence")


# ---- clocks and versions ----

def tell_apart(t):
    """What only another server would say: too old, loading, a disk that can't be written"""
    for version, extra, name, severity in (
            ("4.0.14", "", "version", "danger"), ("6.0.5", "", "version", "danger"),
            ("6.0.6", "", None, None), ("6.2.0", "", None, None), ("10.0.0", "", None, None),
            ("7.0.15", "loading:1\r\n", "loading", "warning"),
            ("7.0.15", "aof_last_write_status:err\r\n", "disk", "danger")):
        with contextlib.closing(Puppet(INFO % (version, extra))) as puppet:
            use(t, puppet)
            if name:
                found(t, name, severity)
            else:
                gone(t, "version")


def clocks_apart(t):
    """A clock that is far from ours: only a note, ahead or behind"""
    with RedisServer(*DURABLE, own_clock=True) as server:
        use(t, server)
        gone(t, "clock")
        for ahead, words in (100, "s ahead of ours"), (-100, "s behind ours"):
            server.jump(ahead)
            found(t, "clock", "note", words)
        server.jump(1)
        gone(t, "clock")


def restarted_long_ago(t):
    """A server that has run for longer than every lease is trusted again"""
    with RedisServer("--appendonly", "yes", own_clock=True) as server:
        use(t, server)
        found(t, "restarted", "warning")
        server.jump(31)
        kit.spin(lambda: int(info(server, "uptime_in_seconds")) > 30)
        gone(t, "restarted")


@on_server(*DURABLE)
def server_goes_away(t, server):
    """A server that stops answering: 69, within seconds"""
    server.process.send_signal(signal.SIGSTOP)
    try:
        done = t.stile("doctor")
    finally:
        server.process.send_signal(signal.SIGCONT)
    expect((done.returncode, done.stdout), (69, ""), done.stderr)
    assert "127.0.0.1:%d" % server.port in done.stderr, done.stderr


run_tests([healthy, memory_only, snapshots_only, synced_once_a_second, not_synced_while_rewriting,
           written_to_its_configuration, restarted, restarted_long_ago, evicting, would_evict,
           memory_nearly_full, nearly_too_many_clients, replicas, is_a_replica, sentinel, cluster,
           cluster_without_slots, no_cluster, rights_are_missing, passwords_are_not_shown,
           over_a_socket, over_tls, clocks_apart, tell_apart, server_goes_away])
