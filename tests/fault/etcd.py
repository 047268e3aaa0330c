# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""An etcd that is killed, stopped, compacted, full, or does not want us, and what the user of stile
hears of it."""
import http.server
import json
import os
import signal
import subprocess
import threading

from cluster_kit import (TESTS, expect, granted, lost, outlives_a_restart,
                         outlives_forgotten_connections, refused, spin, token_of, try_it, wait_for)
from etcd_fault_kit import (await_settled, created, enable_auth, keys_of, lease_of, on_server, put,
                            revision_of, use)
from etcd_server import EtcdServer, free_port
from keeper import Keeper
from kit import run_tests


def diagnosis(t, *words):
    """What the doctor says of a danger."""
    done = t.stile("doctor")
    expect(done.returncode, 2, done.stdout + done.stderr)
    for word in words:
        assert word in done.stdout, "no %r in %r" % (word, done.stdout)


# ---- dialect=etcd3 ----

@on_server()
def left_behind(t, server):
    """A plain key of ours whose own key somebody has deleted goes before the next one is put"""
    ours = Keeper(server.url + "?dialect=etcd3")
    try:
        expect(ours.try_it("y"), "OK")
        server.ctl("put", "x", "", "--lease=" + lease_of(keys_of(server, "y")[0]))
        before = revision_of(server)
        expect(ours.try_it("x"), "OK")
        plain = json.loads(server.ctl("get", "x", "-w", "json"))["kvs"][0]
        assert plain["create_revision"] > before, plain
    finally:
        ours.close()
    expect(server.ctl("get", "--prefix", "--keys-only", "x"), "")


@on_server()
def own_ghost_of_before(t, server):
    """A waiter whose key somebody deletes does not wait for its own ghost, which is older than the next key"""
    held = t.hold("x", "--ttl", "30s")
    waiting = t.start("run", "--ttl", "30s", "--hold-at-least", "1s", "x", "--", "sh", "-c", "echo $STILE_TOKEN")
    spin(lambda: len(keys_of(server)) == 3)
    own = next(key for key in keys_of(server) if key + "-1" in keys_of(server))
    server.ctl("del", own)
    t.release(held)
    granted(waiting)


@on_server()
def ghost_of_a_deleted_key(t, server):
    """A waiter whose key somebody deletes takes its ghost along when it gives up, while its client keeps another lock"""
    held = t.hold("x", "--ttl", "30s")
    ours = Keeper(server.url)
    try:
        expect(ours.try_it("keep"), "OK")
        ours.ask("x", 1500, 30000, 10000, "hold=5000")
        spin(lambda: len(keys_of(server, "x")) == 3)
        server.ctl("del", next(key for key in keys_of(server, "x") if key + "-1" in keys_of(server, "x")))
        expect(ours.answer(), "TIMEOUT")
        t.release(held)
        expect(keys_of(server, "x"), [])
    finally:
        ours.close()


# ---- queues that are longer than one answer shows ----

LONG = 80


def stand_in_line(server, place, value="1@other"):
    lease = server.ctl("lease", "grant", "600").split()[1]
    for i in range(LONG):
        put(server, "%s/%08x" % (place, i), value, lease)
    return lease


@on_server()
def own_key_of_before(t, server):
    """A key of ours from before is not taken for the one that a claim puts, be the line short or long"""
    ours = Keeper(server.url)
    try:
        expect(ours.try_it("keep"), "OK")
        lease = lease_of(keys_of(server, "keep")[0])
        others = stand_in_line(server, "long")
        for name in "short", "long":
            own = "%s/%s" % (name, lease)
            server.ctl("put", "--lease=" + lease, own, "")
            before = revision_of(server)
            ours.ask(name, 30000)
            spin(lambda: own in keys_of(server, name) and created(server, own) > before)
            if name == "long":
                server.ctl("lease", "revoke", others)
            expect(ours.answer(), "OK")
            assert created(server, own) > before
    finally:
        ours.close()
    expect(keys_of(server, "short") + keys_of(server, "long"), [])


@on_server()
def behind_a_long_line(t, server):
    """A claim behind a long queue waits for the one before it, and checks when that one goes"""
    others = stand_in_line(server, "x")
    ours = Keeper(server.url)
    try:
        expect(ours.try_it("keep"), "OK")
        await_settled(server, keys_of(server, "keep")[0])
        ours.ask("x", 30000)
        spin(lambda: len(keys_of(server)) == LONG + 1)
        *early, _, last, own = keys_of(server)
        await_settled(server, own)
        asked = server.members[0].executed("Txn")
        for key in early[LONG // 2:]:
            server.ctl("del", key)
        server.ctl("del", last)
        spin(lambda: server.members[0].executed("Txn") > asked)
        server.ctl("lease", "revoke", others)
        expect(ours.answer(), "OK")
        expect(server.members[0].executed("Txn") - asked, 2)
    finally:
        ours.close()


@on_server()
def missed_behind_a_long_line(t, server):
    """All before it go while it cannot hear of it: it gets the lock once it can"""
    others = stand_in_line(server, "x")
    ours = Keeper(server.url)
    try:
        ours.ask("x", 60000)
        spin(lambda: len(keys_of(server)) == LONG + 1)
        await_settled(server, keys_of(server)[-1])
        ours.process.send_signal(signal.SIGSTOP)
        server.kill()
        server.restart()
        server.ctl("lease", "revoke", others)
        ours.process.send_signal(signal.SIGCONT)
        expect(ours.answer(), "OK")
    finally:
        ours.close()
    expect(keys_of(server), [])


@on_server()
def modes_in_long_lines(t, server):
    """A claim behind a long queue of slots, of readers, or of a longer name: a try, and a wait"""
    def code(*args):
        return t.stile("run", *args, "--", "true").returncode
    stand_in_line(server, "seats/slots", "%d other" % LONG)
    stand_in_line(server, "readers/read")
    stand_in_line(server, "name/longer")
    for wait in ["--try"], ["--wait", "1s"]:
        expect(code(*wait, "--slots", str(LONG), "seats"), 75)
        expect(code(*wait, "--slots", str(LONG + 1), "seats"), 0)
        expect(code(*wait, "--shared", "seats"), 75)
        expect(code(*wait, "readers"), 75)
        expect(code(*wait, "--shared", "readers"), 0)
        expect(code(*wait, "name"), 0)
    for name in "seats", "readers", "name":
        expect(len(keys_of(server, name)), LONG)


# ---- killed and restarted ----

@on_server()
def restart(t, server):
    """kill -9 of the server: the holder keeps its lock, a waiter gets it, the token grows"""
    held = t.hold("x", "--ttl", "600s")
    token = token_of(t)
    waiting = wait_for(t)
    server.kill()
    server.restart()
    expect(try_it(t), 75)
    t.release(held)
    assert granted(waiting) > token
    expect(keys_of(server), [])


@on_server()
def renewal_goes_on_after_a_restart(t, server):
    """A holder outlives a short absence of its server, for longer than its TTL"""
    outlives_a_restart(t, server)


@on_server()
def released_while_it_is_away(t, server):
    """A release that nobody hears: the next one is not kept for longer than the lease"""
    held = t.hold("x", "--ttl", "3s")
    server.kill()
    held.process.stdin.close()
    held.wait()
    server.restart()
    expect(t.stile("run", "--wait", "20s", "x", "--", "true").returncode, 0)
    expect(keys_of(server), [])


@on_server()
def asked_to_leave(t, server):
    """The server ends in an orderly way (GOAWAY) and comes back: nobody loses anything"""
    held = t.hold("x", "--ttl", "600s")
    waiting = wait_for(t)
    server.kill(signal.SIGTERM)
    server.restart()
    expect(try_it(t), 75)
    t.release(held)
    granted(waiting)
    expect(keys_of(server), [])


@on_server()
def nobody_there(t, server):
    """No server at all: a clear word, at once"""
    server.kill()
    refused(t, "127.0.0.1:%d" % server.members[0].port)


@on_server()
def short_ttls(t, server):
    """A TTL below what the server allows becomes that, and run says so"""
    done = t.stile("run", "--ttl", "500ms", "x", "--", "sh", "-c", "stile show --json x")
    expect((done.returncode, done.stderr),
           (0, "stile: run: the engine uses a TTL of 2 s instead of 0.5 s\n"))
    assert 0 < json.loads(done.stdout)["holders"][0]["expires_ms"] <= 2000, done.stdout
    assert "rounded up" in t.stile("caps").stdout
    expect(keys_of(server), [])


# ---- stopped ----

@on_server()
def stopped_past_the_ttl(t, server):
    """A stopped server: its holder is lost at its own deadline, and later nothing is left"""
    held = t.hold("x", "--ttl", "3s")
    token = token_of(t)
    server.members[0].signal(signal.SIGSTOP)
    try:
        lost(held)
        refused(t, "127.0.0.1:%d" % server.members[0].port)
    finally:
        server.members[0].signal(signal.SIGCONT)
    held = t.hold("x")
    assert token_of(t) > token
    t.release(held)
    expect(keys_of(server), [])


@on_server()
def compacted_while_waiting(t, server):
    """The revision of a watch is compacted: a waiter checks again, a holder whose key is gone is notified"""
    held = t.hold("x", "--ttl", "30s")
    other = t.hold("y", "--ttl", "30s")
    waiting = t.start("run", "--ttl", "60s", "x", "--", "sh", "-c", "echo $STILE_TOKEN")
    t.until(t.watch("x"), lambda change: len(change["waiters"]) == 1)
    for process in waiting, other:
        os.kill(process.warden(), signal.SIGSTOP)
    t.release(held)
    server.ctl("del", keys_of(server, "y")[0])
    for _ in range(3):
        server.ctl("put", "filler", "x")
    server.ctl("compact", str(revision_of(server)))
    server.kill()
    server.restart()
    for process in waiting, other:
        os.kill(process.warden(), signal.SIGCONT)
    granted(waiting)
    lost(other, "y")


@on_server()
def executed_after_its_withdrawal(t, server):
    """A claim that was given up is executed late: its key is found and taken away"""
    ours = Keeper(server.url)
    try:
        expect(ours.try_it("keep"), "OK")
        server.members[0].signal(signal.SIGSTOP)
        try:
            assert ours.try_it("x") != "OK"
        finally:
            server.members[0].signal(signal.SIGCONT)
        spin(lambda: keys_of(server) == [])
        lease = lease_of(keys_of(server, "keep")[0])
        server.ctl("put", "--lease=" + lease, "x/" + lease, "")
        expect(t.stile("run", "--wait", "25s", "x", "--", "true").returncode, 0)
        expect(len(keys_of(server, "keep")), 1)
    finally:
        ours.close()


# ---- refusals ----

@on_server()
def logins(t, server):
    """Users and roles: none, wrong, not allowed, right; and a login that the server forgets"""
    enable_auth(server, "app/", password="s3cret/pw")
    refused(t, "the server wants a user")
    use(t, "etcd://:wrong@%s/app/" % server.hosts)
    refused(t, "without its user", code=64)
    use(t, "etcd://worker:wrong@%s/app/" % server.hosts)
    assert "wrong@" not in refused(t, "user or password is wrong")
    use(t, "etcd://worker:s3cret%%2Fpw@%s/other/" % server.hosts)
    refused(t, "roles")
    use(t, "etcd://worker:s3cret%%2Fpw@%s/app/" % server.hosts)
    held = t.hold("x", "--ttl", "9s")
    waiting = wait_for(t)
    root = ["--user", "root:rootpw"]
    server.ctl(*root, "auth", "disable")
    server.ctl("auth", "enable")
    t.stile("run", "--wait", "4s", "x", "--", "true")
    t.release(held)
    granted(waiting)
    with open(t.path("secret"), "w", encoding="ascii") as file:
        file.write("s3cret/pw\n")
    use(t, "etcd://worker@%s/app/?password_file=%s" % (server.hosts, t.path("secret")))
    expect(try_it(t), 0)


@on_server(1, "--auth-token-ttl", "1")
def logins_that_expire(t, server):
    """Login tokens that last a second are renewed, by holders and by waiters"""
    enable_auth(server, "app/", password="s3cret/pw")
    use(t, "etcd://worker:s3cret%%2Fpw@%s/app/" % server.hosts)
    held = t.hold("x", "--ttl", "9s")
    waiting = wait_for(t)
    expect(t.stile("run", "--wait", "5s", "x", "--", "true").returncode, 75)
    expect(held.process.poll(), None)
    t.release(held)
    granted(waiting)


@on_server(1, "--quota-backend-bytes", "20000000")
def full(t, server):
    """No space left: a clear word"""
    def is_full():
        put = subprocess.run(server.ctl_command("put", "big"), input="x" * 1000000, text=True,
                             capture_output=True, env=server.ctl_env(), check=False)
        return "database space exceeded" in put.stderr
    spin(is_full)
    refused(t, "the database is full", "alarm disarm")
    diagnosis(t, "NOSPACE", "etcdctl defrag --cluster")


@on_server()
def forgotten_connections(t, server):
    """Connections that the server accepts and forgets: the holder tries again in time"""
    outlives_forgotten_connections(t, server.members[0].port, "etcd://127.0.0.1:%d", 2)


def not_etcd(t):
    """What answers is no etcd: a clear word"""
    class Quiet(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass
    with http.server.HTTPServer(("127.0.0.1", free_port()), Quiet) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        use(t, "etcd://127.0.0.1:%d" % web.server_port)
        refused(t, "127.0.0.1:%d" % web.server_port)
        web.shutdown()


def certificates(t):
    """TLS: a stranger's CA, a missing client certificate, plain against TLS; then all as it should"""
    subprocess.run([TESTS / "servers" / "certs", t.path("")], check=True)
    ca, client = t.path("ca.pem"), t.path("client.pem")
    args = ["--cert-file", t.path("server.pem"), "--key-file", t.path("server.key"),
            "--client-cert-auth", "--trusted-ca-file", ca]
    ctl = ["--cacert", ca, "--cert", client, "--key", t.path("client.key")]
    with EtcdServer(1, *args, scheme="https", ctl_args=ctl) as server:
        use(t, "etcds://%s?ca=%s" % (server.hosts, t.path("stranger.pem")))
        refused(t, "not trusted")
        use(t, "etcds://%s?ca=%s" % (server.hosts, ca))
        refused(t, "client certificate")
        use(t, server.url)
        refused(t)
        use(t, "etcds://%s?ca=%s&cert=%s&key=%s" % (server.hosts, ca, client,
                                                    t.path("client.key")))
        expect(try_it(t), 0)


run_tests([
    restart, renewal_goes_on_after_a_restart, released_while_it_is_away, asked_to_leave,
    nobody_there, short_ttls, stopped_past_the_ttl, compacted_while_waiting,
    executed_after_its_withdrawal, left_behind, own_key_of_before, behind_a_long_line,
    missed_behind_a_long_line, modes_in_long_lines, logins, logins_that_expire, full, forgotten_connections,
    not_etcd, certificates])
