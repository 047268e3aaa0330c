# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""`etcdctl lock` and `etcdctl elect` on the same names: each excludes the other, the line is kept across
all of them, observers of an election see one leader, ours included, and nobody leaves a key behind."""
import os
import pathlib
import subprocess
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(TESTS / "cli"), str(TESTS / "servers")]
from kit import PATIENCE, expect, run_tests  # noqa: E402
from etcd_server import EtcdServer  # noqa: E402


class Etcdctl:
    """A lock or a campaign: prints its key once it holds, and holds until its end. With a value behind
    it, that of a campaign."""

    def __init__(self, server, *command):
        self.process = subprocess.Popen(server.ctl_command(*command),
                                        env=server.ctl_env(), text=True, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def line(self):
        return self.process.stdout.readline().rstrip("\n")

    def key(self):
        return self.line().strip()

    def leader(self):
        """What an observer, or the winner, prints next."""
        return self.line(), self.line()

    def end(self):
        self.process.terminate()
        self.process.wait(PATIENCE)
        self.process.stdout.close()


def on_server(url="etcd://%s"):
    def decorate(case):
        def with_server(t):
            t.others = []
            with EtcdServer() as server:
                t.env["STILE_ENGINE"] = url % server.hosts
                t.env["STILE_MODULES"] = os.environ["STILE_MODULES"]
                try:
                    case(t, server)
                finally:
                    for other in t.others:
                        if other.process.poll() is None:
                            other.end()
        with_server.__name__, with_server.__doc__ = case.__name__, case.__doc__
        return with_server
    return decorate


def start(t, server, *command):
    t.others.append(Etcdctl(server, *command))
    return t.others[-1]


def other(t, server, name, *options):
    return start(t, server, "lock", *options, name)


def in_line(t, name, n):
    t.until(t.watch(name), lambda change: len(change["waiters"]) == n)


def try_it(t, name, *options):
    return t.stile("run", "--try", *options, name, "--", "true").returncode


def keys(server, prefix=""):
    """But the records of last holders."""
    found = server.ctl("get", "--prefix", "--keys-only", prefix).splitlines()
    return [key for key in found if key and "\0" not in key and "\1stile/" not in key]


@on_server()
def theirs_keeps_us_out(t, server):
    """what etcdctl holds we don't get; when it ends we do, with a greater token"""
    theirs = other(t, server, "x")
    key = theirs.key()
    assert key.startswith("x/"), key
    expect(try_it(t, "x"), 75)
    expect(try_it(t, "x", "--shared"), 75)
    expect(try_it(t, "x", "--slots", "3"), 75)
    token = t.show("x")["holders"][0]["token"]
    waiting = t.start("run", "x", "--", "sh", "-c", "echo $STILE_TOKEN")
    in_line(t, "x", 1)
    theirs.end()
    assert int(waiting.line()) > token
    expect(waiting.wait(), 0)
    expect(keys(server), [])


@on_server()
def ours_keeps_them_out(t, server):
    """what we hold, in every mode, etcdctl waits for; and gets when we give it back"""
    for mode in [], ["--shared"], ["--slots", "2"]:
        held = t.hold("x", *mode)
        theirs = other(t, server, "x")
        in_line(t, "x", 1)
        t.release(held)
        assert theirs.key().startswith("x/")
        expect(try_it(t, "x"), 75)
        theirs.end()
        expect(keys(server), [])


@on_server()
def one_line_for_all(t, server):
    """ours, theirs, ours, theirs: served in the order in which they came"""
    held = t.hold("x")
    first = other(t, server, "x")
    in_line(t, "x", 1)
    second = t.start("run", "x", "--", "sh", "-c", "echo in; read line", stdin=subprocess.PIPE)
    in_line(t, "x", 2)
    third = other(t, server, "x")
    in_line(t, "x", 3)
    t.release(held)
    first.key()
    expect(len(t.show("x")["waiters"]), 2)
    first.end()
    expect(second.line(), "in")
    expect(len(t.show("x")["waiters"]), 1)
    second.process.stdin.close()
    assert third.key().startswith("x/")
    third.end()
    expect(keys(server), [])


@on_server()
def they_honour_a_hold(t, server):
    """hold_at_least keeps etcdctl waiting after our end, whichever came first"""
    held = t.hold("x", "--hold-at-least", "3s")
    theirs = other(t, server, "x")
    in_line(t, "x", 1)
    t.release(held)
    shown = t.show("x")
    expect([(h["ghost"], len(shown["waiters"])) for h in shown["holders"]], [(True, 1)])
    assert theirs.key().startswith("x/")
    theirs.end()
    expect(keys(server), [])


@on_server()
def a_dead_one_of_theirs(t, server):
    """etcdctl killed with -9: we get it when its lease ends"""
    theirs = other(t, server, "x", "--ttl", "3")
    theirs.key()
    theirs.process.kill()
    expect(t.stile("run", "--wait", "20s", "x", "--", "true").returncode, 0)
    expect(keys(server), [])


@on_server("etcd://%s//locks/")
def below_a_prefix(t, server):
    """the path of the URL is the prefix of the key, as it stands; slashes in names as well"""
    theirs = other(t, server, "/locks/team/x")
    theirs.key()
    expect(try_it(t, "team/x"), 75)
    expect(try_it(t, "team"), 0)
    theirs.end()
    held = t.hold("team/x")
    assert keys(server)[0].startswith("/locks/team/x/")
    t.release(held)


@on_server()
def they_are_shown_and_broken(t, server):
    """ls, show and break know their locks as well"""
    theirs = other(t, server, "x")
    theirs.key()
    assert "x" in t.stile("ls").stdout
    expect([holder["mode"] for holder in t.show("x")["holders"]], ["exclusive"])
    expect(t.stile("break", "-y", "x").returncode, 0)
    expect(try_it(t, "x"), 0)


@on_server("etcd://%s?dialect=etcd3")
def a_key_that_is_the_name(t, server):
    """with dialect=etcd3 another client's key keeps us out, and a lock we hold has that key"""
    server.ctl("put", "x", "")
    expect(try_it(t, "x"), 75)
    expect(keys(server), ["x"])
    waiting = t.start("run", "x", "--", "sh", "-c", "echo $STILE_TOKEN; read line", stdin=subprocess.PIPE)
    in_line(t, "x", 1)
    server.ctl("del", "x")
    waiting.line()
    expect(keys(server)[0], "x")
    t.release(waiting)
    expect(keys(server), [])
    expect(t.stile("run", "--shared", "x", "--", "true").returncode, 69)


# ---- elections ----

@on_server()
def their_leader_keeps_us_out(t, server):
    """while one of etcdctl elect leads we wait, and show prints its value; then we lead"""
    theirs = start(t, server, "elect", "x", "web1:8080")
    key, value = theirs.leader()
    expect((key[:2], value), ("x/", "web1:8080"))
    expect(try_it(t, "x"), 75)
    shown = t.show("x")["holders"][0]
    expect((shown["mode"], shown["proclaimed"]), ("exclusive", "web1:8080"))
    assert "web1:8080" in t.stile("show", "x").stdout
    assert "web1:8080" in t.stile("ls").stdout
    waiting = t.start("run", "x", "--", "sh", "-c", "echo $STILE_TOKEN")
    in_line(t, "x", 1)
    theirs.end()
    assert int(waiting.line()) > shown["token"]
    expect(waiting.wait(), 0)
    expect(keys(server), [])


@on_server()
def they_see_our_leader(t, server):
    """an observer sees ours lead under its own value, then theirs, and nobody in between"""
    observer = start(t, server, "elect", "--listen", "x")
    ours = t.hold("x", "--proclaim", "ours: 1")
    expect(observer.leader(), (keys(server, "x/")[0], "ours: 1"))
    expect(t.show("x")["holders"][0]["proclaimed"], "ours: 1")
    theirs = start(t, server, "elect", "x", "theirs")
    in_line(t, "x", 1)
    expect(t.show("x")["waiters"][0]["proclaimed"], "theirs")
    last = t.start("run", "--proclaim", "ours: 2", "x", "--", "sh", "-c", "echo in; read line",
                   stdin=subprocess.PIPE)
    in_line(t, "x", 2)
    t.release(ours)
    expect(theirs.leader()[1], "theirs")
    expect(observer.leader()[1], "theirs")
    theirs.end()
    expect(last.line(), "in")
    expect(observer.leader()[1], "ours: 2")
    last.process.stdin.close()
    last.wait()
    observer.end()
    expect(keys(server), [])


@on_server()
def a_hold_leads_on(t, server):
    """what --hold-at-least keeps is the same leader to an observer, with two keys of one revision"""
    observer = start(t, server, "elect", "--listen", "x")
    ours = t.hold("x", "--hold-at-least", "4s", "--proclaim", "ours")
    expect(observer.leader()[1], "ours")
    t.release(ours)
    expect(observer.leader()[1], "ours")
    theirs = start(t, server, "elect", "x", "theirs")
    expect(theirs.leader()[1], "theirs")
    expect(observer.leader()[1], "theirs")


@on_server()
def a_value_that_changes(t, server):
    """a new value in a held key is reported to watchers, and is no loss for the holder"""
    held = t.hold("x", "--ttl", "20s", "--proclaim", "before")
    key = keys(server, "x/")[0]
    watched = t.watch("x")
    expect(watched.change()["holders"][0]["proclaimed"], "before")
    server.ctl("put", "--lease", key.split("/")[1], key, "after")
    expect(t.until(watched, lambda now: now["holders"][0]["proclaimed"] == "after")["token"],
           t.show("x")["token"])
    expect(try_it(t, "x"), 75)
    t.release(held)
    expect(keys(server), [])


@on_server()
def who_says_nothing(t, server):
    """a lock without a value says process and host to etcdctl; show has them without it"""
    observer = start(t, server, "elect", "--listen", "x")
    held = t.hold("x")
    shown = t.show("x")["holders"][0]
    expect(observer.leader()[1], "%d@%s" % (shown["pid"], shown["host"]))
    expect(shown["proclaimed"], "")
    t.release(held)


run_tests([theirs_keeps_us_out, ours_keeps_them_out, one_line_for_all, they_honour_a_hold,
           a_dead_one_of_theirs, below_a_prefix, they_are_shown_and_broken, a_key_that_is_the_name,
           their_leader_keeps_us_out, they_see_our_leader, a_hold_leads_on, a_value_that_changes,
           who_says_nothing])
