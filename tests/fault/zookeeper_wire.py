# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What a ZooKeeper server may send, be or become: nodes of other programs among the locks, answers
that were damaged on the way, numbers that run out, data that is gone, an address that has changed,
TLS."""
import os
import shutil
import subprocess
import time

from cluster_kit import (SOAK, TESTS, expect, lost, outlives_forgotten_connections, refused, spin,
                         try_it)
from forward import Damage, Forward
from keeper import Keeper
from kit import run_tests
from own_server import free_port
from zookeeper_kit import Other, nodes_of, on_server, set_numbers
from zookeeper_server import ZookeeperServer

DIALECTS = ("curator", "curator-rw", "kazoo")
SEEDS = 2000 if SOAK else 16


# ---- nodes of other programs ----

@on_server()
def nobodys_nodes(t, server):
    """Persistent nodes of an application are neither shown nor deleted, whatever their names are"""
    with Other(server) as client:
        for path in ("/app/config", "/app/lock-0000000001", "/app/x__lock__0000000001",
                     "/app/_c_x-__WRIT__0000000001", "/brokers/ids/1", "/brokers/topics"):
            client.create(path, b"db=prod", makepath=True)
        for dialect in DIALECTS:
            t.env["STILE_ENGINE"] = "%s/?dialect=%s" % (server.url, dialect)
            expect(t.stile("ls").stdout.count("app") + t.stile("ls").stdout.count("brokers"), 0)
            expect(t.show("app")["holders"], [])
            for name in ("app", "brokers"):
                assert "is free" in t.stile("break", "-y", name).stdout
        expect(sorted(client.get_children("/app")),
               sorted(["config", "lock-0000000001", "x__lock__0000000001",
                       "_c_x-__WRIT__0000000001"]))
        expect(client.exists("/brokers/ids/1") and client.exists("/brokers/topics") and True, True)


@on_server()
def a_claim_that_never_ends(t, server):
    """A persistent node with a claim's name is in the way of every client: a waiter says so"""
    with Other(server) as client:
        client.create("/x/_c_dead-lock-0000000000", b"", makepath=True)
        client.create("/x/_c_dead-lock-", b"", ephemeral=True, sequence=True)
        for child in client.get_children("/x"):
            if child != "_c_dead-lock-0000000000":
                client.delete("/x/" + child)
        done = t.stile("run", "--wait", "20s", "x", "--", "true")
        expect(done.returncode, 69, done.stderr)
        assert "persistent" in done.stderr and "/x" in done.stderr, done.stderr
        expect(client.get_children("/x"), ["_c_dead-lock-0000000000"])
        client.delete("/x/_c_dead-lock-0000000000")
    expect(try_it(t), 0)


# ---- numbers ----

@on_server(1, java=["-Dzookeeper.digest.enabled=false", "-Dznode.container.checkIntervalMs=600000"])
def numbers_run_out(t, server):
    """Near the last number of a name nobody is granted it, and the message says what to do"""
    expect(try_it(t), 0)
    set_numbers(server, "/x", 2147483646)
    keepers = [Keeper(server.url) for _ in range(4)]
    try:
        expect([one.try_it("x") for one in keepers], ["REFUSED"] * 4)
    finally:
        for one in keepers:
            one.close()
    done = t.stile("run", "--try", "x", "--", "true")
    expect(done.returncode, 69)
    assert "numbers" in done.stderr and "/x" in done.stderr and "delete" in done.stderr, done.stderr
    expect(nodes_of(server), [])
    with Other(server) as client:
        client.delete("/x")
    expect(try_it(t), 0)


# ---- damage ----

def commands(url, seed):
    name = "f%d" % seed
    return (("run", "--wait", "1s", "--ttl", "4s", "-e", url, "held", "--", "true"),
            ("run", "--wait", "1s", "-e", url, name, "--", "sleep", "0.1"),
            ("run", "--shared", "--wait", "1s", "-e", url, name, "--", "true"),
            ("run", "--hold-at-least", "1ms", "--lock-delay", "1ms", "--wait", "1s", "-e", url, name,
             "--", "true"),
            ("ls", "-e", url), ("show", "-e", url, "held"), ("doctor", url),
            ("break", "-y", "-e", url, name))


@on_server()
def damaged_answers(t, server):
    """Whatever is changed in what a server sends, no client crashes or hangs"""
    ours = Keeper(server.url)
    try:
        expect(ours.try_it("held"), "OK")
        for seed in range(SEEDS):
            with Damage(server.members[0].port, seed) as damage:
                choices = commands("zk://127.0.0.1:%d" % damage.port, seed)
                done = t.stile(*choices[seed % len(choices)])
                assert 0 <= done.returncode < 128, (seed, done)
        assert ours.holds("held")
    finally:
        ours.close()


# ---- servers that lose their data, or move ----

@on_server()
def data_that_is_gone(t, server):
    """A server that comes back without its data: what was held is lost, and its clients go on"""
    for _ in range(5):
        expect(try_it(t, "warm"), 0)
    ours = Keeper(server.url)
    try:
        expect(ours.try_it("x"), "OK")
        held = t.hold("y", "--ttl", "4s")
        server.kill()
        member = server.members[0]
        shutil.rmtree(member.dir + "/data")
        os.makedirs(member.dir + "/data")
        server.restart()
        lost(held, "y")
        spin(lambda: ours.try_it("other") == "OK")
        expect(try_it(t, "other"), 75)
    finally:
        ours.close()


class Names:
    """A resolver of the test's own, for what t starts."""

    def __init__(self, t):
        self.path = t.path("hosts")
        t.env["STILE_TEST_HOSTS"] = self.path
        t.env["LD_PRELOAD"] = os.environ["STILE_HOSTS_LIBRARY"]
        # A sanitizer wants to be the first library, and does without.
        t.env["ASAN_OPTIONS"] = t.env.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"

    def are(self, address):
        with open(self.path + ".new", "w", encoding="utf-8") as file:
            file.write("server.test %s\n" % address)
        os.rename(self.path + ".new", self.path)


@on_server()
def another_address(t, server):
    """A name that means another address by now is looked up again, and the session goes on there"""
    names = Names(t)
    names.are("127.0.0.1")
    port = server.members[0].port
    with Forward(port) as before:
        t.env["STILE_ENGINE"] = "zk://server.test:%d" % before.port
        held = t.hold("x", "--ttl", "20s")
        waiting = t.start("run", "--ttl", "20s", "x", "--", "true")
        spin(lambda: len(nodes_of(server)) == 2)
        with Forward(port, "127.0.0.2", before.port) as behind:
            names.are("127.0.0.2")
            before.close()
            spin(lambda: behind.accepted >= 2)
            t.release(held)
            expect(waiting.wait(), 0)
    expect(nodes_of(server), [])


@on_server()
def forgotten_connections(t, server):
    """Connections that the server accepts and forgets: the holder tries again in time"""
    outlives_forgotten_connections(t, server.members[0].port, "zk://127.0.0.1:%d", 2)


def silent_name_server(t):
    """A name server that does not answer costs the patience of open(), not its own"""
    names = Names(t)
    names.are("-")
    t.env["STILE_MODULES"] = os.environ["STILE_MODULES"]
    t.env["STILE_ENGINE"] = "zk://server.test:1"
    begun = time.monotonic()
    refused(t, "server.test")
    assert time.monotonic() - begun < 25


# ---- TLS ----

def secure(t):
    """Options of a server with a TLS port, too."""
    subprocess.run([TESTS / "servers" / "certs", t.path("")], check=True)
    store = t.path("store.pem")
    with open(store, "w", encoding="utf-8") as file:
        for part in ("server.key", "server.pem"):
            with open(t.path(part), encoding="utf-8") as source:
                file.write(source.read())
    return ["-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            "-Dzookeeper.ssl.keyStore.location=" + store, "-Dzookeeper.ssl.keyStore.type=PEM",
            "-Dzookeeper.ssl.clientAuth=none"]


def tls(t):
    """zks:// speaks TLS and verifies the server; a stranger's CA, and plain against TLS, are refused"""
    t.env["STILE_MODULES"] = os.environ["STILE_MODULES"]
    port = free_port()
    with ZookeeperServer(1, java=secure(t), tls_port=port) as server:
        for url, words in (("zks://127.0.0.1:%d?ca=" + t.path("stranger.pem"), "not trusted"),
                           ("zks://127.0.0.1:%d", "not trusted"), ("zk://127.0.0.1:%d", "")):
            t.env["STILE_ENGINE"] = url % port
            refused(t, words)
        t.env["STILE_ENGINE"] = "zks://127.0.0.1:%d?ca=%s" % (port, t.path("ca.pem"))
        held = t.hold("x")
        expect(try_it(t), 75)
        waiting = t.start("run", "x", "--", "true")
        spin(lambda: len(nodes_of(server)) == 2)
        t.release(held)
        expect(waiting.wait(), 0)
        assert "127.0.0.1:%d" % port in t.stile("doctor", t.env["STILE_ENGINE"]).stdout
        expect(nodes_of(server), [])


run_tests([nobodys_nodes, a_claim_that_never_ends, numbers_run_out, damaged_answers,
           data_that_is_gone, another_address, forgotten_connections,
           silent_name_server, tls])
