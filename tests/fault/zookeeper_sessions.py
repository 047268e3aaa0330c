# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Sessions of ZooKeeper that move to another server, servers that only read, are silent or away, users
that are kept apart, and URLs that ask for what is not there."""
import contextlib
import os
import socket
import time

from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from cluster_kit import (connected, expect, granted, lost, refused, spin, token_of, try_it,
                         wait_for)
from keeper import Keeper
from kit import run_tests
from zookeeper_kit import Other, end_session, move_session, nodes_of, on_server


# ---- sessions ----

def owner_of(server, node, name="x"):
    with Other(server) as client:
        return client.exists("/%s/%s" % (name, node)).ephemeralOwner


@on_server(3)
def session_moved(t, server):
    """A session moves to another server behind our back: we follow it, and nothing is lost or left"""
    held = t.hold("x")
    waiting = wait_for(t)
    ours = Keeper(server.url)
    try:
        expect(ours.try_it("keep"), "OK")
        for session, pid in ((owner_of(server, nodes_of(server)[0]), held.warden()),
                             (owner_of(server, nodes_of(server, "keep")[0], "keep"),
                              ours.process.pid)):
            here = connected(server, pid)
            move_session(next(m for m in server.members if m is not here), session)
        t.release(held)  # the server that it speaks with hangs up on what changes anything
        granted(waiting)
        status = ours.try_it("x")
        assert status in ("OK", "UNCERTAIN", "UNREACHABLE"), status
        spin(lambda: ours.try_it("y") == "OK")
        expect(len(nodes_of(server)), int(status == "OK"))  # in doubt is taken away
        expect(try_it(t, "keep"), 75)
    finally:
        ours.close()


@on_server()
def session_ended(t, server):
    """A client whose session is ended loses what it held, and claims again in a new one"""
    ours = Keeper(server.url)
    try:
        expect(ours.try_it("x"), "OK")
        end_session(server, owner_of(server, nodes_of(server)[0]))
        expect(nodes_of(server), [])
        held = t.hold("x")
        spin(lambda: ours.try_it("y") == "OK")
        expect(ours.try_it("x"), "HELD")
        t.release(held)
        expect(ours.try_it("x"), "OK")
        expect(try_it(t), 75)
    finally:
        ours.close()


@on_server(3, java=["-Dreadonlymode.enabled=true"])
def read_only_server(t, server):
    """One that is cut off and read-only: nothing is granted there, and what is held ends in time"""
    held = t.hold("x", "--ttl", "4s")
    token = token_of(t)
    for member in server.members[:2]:
        member.kill()
    last = server.members[2]
    spin(lambda: "Mode: read-only" in last.say("srvr"))
    lost(held)
    refused(t)
    server.restart()
    held = t.hold("x", "--wait", "20s")
    assert token_of(t) > token
    t.release(held)
    expect(nodes_of(server), [])


# ---- ways to a server ----

class Door:
    """A port where somebody listens, and says nothing."""

    def __init__(self, port=0):
        self.listener = socket.create_server(("127.0.0.1", port))
        self.port = self.listener.getsockname()[1]
        self.guests = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for guest in (*self.guests, self.listener):
            guest.close()

    def was_met(self):
        self.listener.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            self.guests.append(self.listener.accept()[0])
        return bool(self.guests)

    def turn_away(self, guests):
        """So many, one after the other; how long that took."""
        self.listener.settimeout(60)
        begun = time.monotonic()
        for _ in range(guests):
            self.listener.accept()[0].close()
        return time.monotonic() - begun


@on_server()
def silent_server(t, server):
    """One that takes connections and says nothing is left for another one, in time"""
    with Door() as door:
        t.env["STILE_ENGINE"] = "zk://127.0.0.1:%d,%s" % (door.port, server.hosts)
        while not door.was_met():  # whom it asks first is left to chance
            expect(try_it(t), 0)


@on_server()
def nobody_hammers(t, server):
    """Servers that are down are asked less and less often, and those that wait come back"""
    ours = Keeper(server.url)
    try:
        expect(ours.try_it("keep"), "OK")
        server.kill()
        with Door(server.members[0].port) as door:
            took = door.turn_away(12)
        print("# twelve times in %.1f s" % took)
        assert took > 0.5, took  # by chance not in one of 10,000 runs
        server.restart()
        ours.ask("x", 60000)
        expect(ours.answer(), "OK")
    finally:
        ours.close()


# ---- users, and what is not there ----

@on_server()
def users_are_kept_apart(t, server):
    """Below a path that one user has made, another one gets nothing, and an error says why"""
    t.env["STILE_ENGINE"] = "zk://ann:one@%s/team" % server.hosts
    held = t.hold("x")
    t.env["STILE_ENGINE"] = "zk://%s/team?password_file=two" % server.hosts
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 64, "a password without a user")
    t.env["STILE_ENGINE"] = "zk://bob:two@%s/team" % server.hosts
    done = t.stile("run", "--try", "x", "--", "true")
    expect(done.returncode, 69, done.stderr)
    assert "ACL" in done.stderr and "user and password" in done.stderr, done.stderr
    assert "two" not in done.stderr, done.stderr
    secret = os.path.join(t.dir, "secret")
    with open(secret, "w", encoding="utf-8") as file:
        file.write("one\n")
    t.env["STILE_ENGINE"] = "zk://ann@%s/team?password_file=%s" % (server.hosts, secret)
    expect(try_it(t), 75)
    t.release(held)
    expect(try_it(t), 0)


@on_server()
def a_release_that_is_refused(t, server):
    """A release that the server refuses is repeated, and frees the lock once it is allowed"""
    ours = Keeper(server.url)
    try:
        expect(ours.try_it("x"), "OK")
        with Other(server) as client:
            client.set_acls("/x", [make_acl("world", "anyone", read=True, create=True, admin=True)])
            expect(ours.release("x"), "REFUSED")
            client.set_acls("/x", OPEN_ACL_UNSAFE)
        spin(lambda: not nodes_of(server))
        expect(ours.try_it("x"), "OK")
    finally:
        ours.close()


def urls_that_are_refused(t):
    """URLs that ask for what there is not are refused, with what to do instead"""
    t.env["STILE_MODULES"] = os.environ["STILE_MODULES"]
    for url, words in (("zk://%s/?ca=/some/file", ("TLS", "zks://")),
                       ("zks://%s/?ca=/nowhere/at/all", ("/nowhere/at/all",)),
                       ("zk://%s/?sasl=yes", ("SASL", "digest")),
                       ("zk://%s/?dialect=other", ("curator", "curator-rw", "kazoo")),
                       ("zk://%s/a//b", ("path",))):
        done = t.stile("run", "--try", "-e", url % "127.0.0.1:1", "x", "--", "true")
        assert done.returncode in (64, 69), done
        assert all(word in done.stderr for word in words), done.stderr
        assert done.stderr.count("\n") <= 2, done.stderr


run_tests([session_moved, session_ended, read_only_server, silent_server, nobody_hammers,
           users_are_kept_apart, a_release_that_is_refused, urls_that_are_refused])
