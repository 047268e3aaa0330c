# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What stile doctor finds on the servers of a ZooKeeper ensemble: one, three, two, some of them gone,
stopped or read-only, of two ensembles, set up otherwise, or silent about themselves."""
import os
import signal

from doctor_kit import examine, examine_all, found, gone
from kit import expect, run_tests, spin
from zookeeper_server import ZookeeperServer


def use(t, url):
    t.env["STILE_ENGINE"] = url
    t.env["STILE_MODULES"] = os.environ["STILE_MODULES"]


def on_server(members=1, *settings, **more):
    """The test gets servers that are started with these settings."""
    def decorate(case):
        def with_server(t):
            with ZookeeperServer(members, *settings, **more) as server:
                use(t, server.url)
                case(t, server)
        with_server.__name__, with_server.__doc__ = case.__name__, case.__doc__
        return with_server
    return decorate


def where(member):
    return "127.0.0.1:%d" % member.port


def mode(member):
    return [line[6:] for line in member.say("srvr").splitlines() if line.startswith("Mode: ")]


def await_quorum(*members):
    """Until they serve again, with one of them as leader."""
    spin(lambda: ["leader"] in [mode(member) for member in members])


@on_server()
def one_server(t, server):
    """One server: a warning; its sessions; named twice it is still one"""
    found(t, "one-server", "warning", "tokens start again")
    seen = examine(t)
    expect(seen["session"]["severity"], "fine")
    assert "from 1000 to 10000 ms" in seen["session-bounds"]["what"], seen
    use(t, "%s,localhost:%d" % (server.url, server.members[0].port))
    gone(t, "other-ensemble", "down", "even")


@on_server(1, "4lw.commands.whitelist=srvr", "tickTime=4000", "minSessionTimeout=12000")
def silent_and_slow(t, server):
    """Words that are closed, and the setting that opens them; a session longer than asked for"""
    found(t, "closed-words", "note", "ruok, conf, mntr", "4lw.commands.whitelist=")
    found(t, "session", "note", "12000 ms given")
    gone(t, "tick-time", "session-bounds")


@on_server(1, "tickTime=4000", "minSessionTimeout=12000")
def slow(t, server):
    """A long tick endangers locks; long sessions keep those of the dead"""
    found(t, "tick-time", "danger", "4000 ms", "tickTime=2000")
    found(t, "session-bounds", "warning", "12000", "minSessionTimeout")


@on_server(3)
def three_servers(t, server):
    """Three sound ones, one of them as leader; all but one left out of the URL"""
    seen = examine_all(t)
    expect({one["severity"] for one in seen}, {"fine"})
    leader = [m for m in server.members if mode(m) == ["leader"]][0]
    expect([one["what"] for one in seen if one["id"] == "servers"],
           ["3 voting servers, 3 of them answered; the leader is " + where(leader)])
    use(t, "zk://" + where(leader))
    found(t, "not-named", "note", "1 of 3")
    follower = [m for m in server.members if m is not leader][0]
    follower.kill()
    spin(lambda: "behind" in examine(t))
    found(t, "behind", "warning", "2 of 3")


@on_server(3)
def some_are_gone(t, server):
    """One of three killed, then stopped; then two: which ones, and what can still be locked"""
    first, second, last = server.members
    first.kill()
    await_quorum(second, last)
    expect(found(t, "down", "warning", "2 of the 3", "refused")["where"], where(first))
    server.restart(first)
    gone(t, "down", "behind")
    first.signal(signal.SIGSTOP)
    try:
        await_quorum(second, last)
        expect([(one["where"], one["what"]) for one in examine_all(t) if one["id"] == "down"],
               [(where(first), "it does not answer (Connection timed out)")])
    finally:
        first.signal(signal.SIGCONT)
    first.kill()
    second.kill()
    spin(lambda: "not currently serving" in last.say("srvr"))
    expect(found(t, "no-quorum", "danger", "nothing can be locked")["where"], where(last))
    found(t, "down", "danger", "0 of the 3")
    server.kill()
    done = t.stile("doctor")
    expect(done.returncode, 69)
    assert where(server.members[0]) + ": Connection refused" in done.stderr, done.stderr


@on_server(2, java=["-Dreadonlymode.enabled=true"])
def two_servers(t, server):
    """An even number; one of two gone, so the other one is read-only"""
    found(t, "even", "note", "0 failures, as many as 1")
    server.members[0].kill()
    spin(lambda: mode(server.members[1]) == ["read-only"])
    expect(found(t, "read-only", "danger", "can be locked")["where"], where(server.members[1]))


def two_ensembles(t):
    """Servers that know nothing of each other in one URL"""
    with ZookeeperServer() as one, ZookeeperServer() as other:
        use(t, "zk://%s,%s" % (one.hosts, other.hosts))
        found(t, "other-ensemble", "danger", "both hold", "one ensemble")


run_tests([one_server, silent_and_slow, slow, three_servers, some_are_gone, two_servers,
           two_ensembles])
