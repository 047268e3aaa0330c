# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What stile doctor finds on the members of an etcd cluster: one, three, one of them gone or stopped,
full, of two clusters, a learner."""
import os
import signal
import subprocess

from doctor_kit import examine, examine_all, found, gone
from kit import expect, run_tests, spin
from etcd_server import EtcdServer, Member


def use(t, url):
    t.env["STILE_ENGINE"] = url
    t.env["STILE_MODULES"] = os.environ["STILE_MODULES"]


def on_server(members=1, *args):
    """The test gets members that are started with these arguments."""
    def decorate(case):
        def with_server(t):
            with EtcdServer(members, *args) as server:
                use(t, server.url)
                case(t, server)
        with_server.__name__, with_server.__doc__ = case.__name__, case.__doc__
        return with_server
    return decorate


def where(member):
    return "127.0.0.1:%d" % member.port


def await_finding(t, name):
    """Until it is found, while what is looked at still changes."""
    spin(lambda: name in {one["id"] for one in examine_all(t)})


def await_grant(t):
    """Until the others have a leader again."""
    expect(t.stile("run", "--wait", "50s", "x", "--", "true").returncode, 0)


@on_server()
def one_member(t, server):
    """One member: a warning; its leases; what is known of its release; nothing is left behind"""
    found(t, "one-member", "warning", "tokens begin again")
    seen = examine(t)
    assert "2 s" in seen["lease"]["what"], seen
    expect(seen["alarms"]["severity"], "fine")
    known = [one for one in seen.values() if one["id"] == "version" or one["id"].startswith("old")]
    version = server.ctl("version").split()[2]
    assert known and all(version in one["what"] for one in known), known
    expect({one["where"] for one in known}, {where(server.members[0])})
    expect(server.ctl("lease", "list"), "found 0 leases")


@on_server(3)
def three_members(t, server):
    """Three sound ones, some of them named, one of them twice"""
    seen = examine_all(t)
    expect([one["what"] for one in seen if one["id"] == "members"],
           ["3 voting members, 3 of them answer here"])
    expect({one["severity"] for one in seen if not one["id"].startswith("old")}, {"fine"})
    first = server.members[0]
    use(t, "etcd://%s,localhost:%d" % (where(first), first.port))
    seen = examine_all(t)
    expect(sorted(one["what"].split()[2] for one in seen if one["id"] == "not-named"), ["m1", "m2"])
    expect(len([one for one in seen if one["id"] == "named-twice"]), 1)


@on_server(3)
def one_is_gone(t, server):
    """One of three killed, then stopped: which one, and how many more may fail; back again, all is well"""
    member = server.members[1]
    member.kill()
    await_grant(t)
    one = found(t, "down", "warning", "2 of 3", "with one less")
    expect(one["where"], where(member))
    server.restart(member)
    gone(t, "down")
    member.signal(signal.SIGSTOP)
    try:
        await_grant(t)
        expect(found(t, "down", "warning", "does not answer")["where"], where(member))
    finally:
        member.signal(signal.SIGCONT)


@on_server(3)
def two_are_gone(t, server):
    """Without a quorum the one that is left says so, and the others are named"""
    for member in server.members[:2]:
        member.kill()
    await_finding(t, "no-leader")
    one = found(t, "no-leader", "danger", "Nothing can be locked")
    expect(one["where"], where(server.members[2]))
    expect({one["where"] for one in examine_all(t) if one["id"] == "down"},
           set(map(where, server.members[:2])))
    server.kill()
    expect(t.stile("doctor").returncode, 69)


@on_server(1, "--quota-backend-bytes", "20000000")
def full(t, server):
    """No space left: which member, and what to do about it"""
    for i in range(40):
        done = subprocess.run(server.ctl_command("put", "big%d" % i), input="x" * 1000000, text=True,
                              capture_output=True, env=server.ctl_env(), check=False)
        if done.returncode:
            break
    one = found(t, "no-space", "danger", "m0 is full")
    expect(one["commands"][-1], "etcdctl alarm disarm")
    gone(t, "no-lease")


@on_server(1, "--heartbeat-interval", "1000", "--election-timeout", "10000")
def slow_elections(t, server):
    """An election timeout of 10 s: leases become long, and that is said"""
    found(t, "lease-long", "warning", "15 s", "--election-timeout")


def two_clusters(t):
    """Members of two clusters in one URL"""
    with EtcdServer() as one, EtcdServer() as other:
        use(t, "etcd://%s,%s" % (one.hosts, other.hosts))
        found(t, "other-cluster", "danger", "can hold the same one", "one cluster only")


@on_server()
def learner(t, server):
    """A learner in the URL is no member to ask; it does not count as one either"""
    late = Member(1, server.dir, "http", ())
    server.ctl("member", "add", late.name, "--learner", "--peer-urls", late.peer_url)
    late.start("%s,%s=%s" % (server.cluster, late.name, late.peer_url), "existing")
    try:
        use(t, "%s,%s" % (server.url, where(late)))
        await_finding(t, "learner")
        expect(found(t, "learner", "warning", "voting members")["where"], where(late))
        expect(examine(t)["one-member"]["severity"], "warning")
    finally:
        late.kill()


run_tests([one_member, three_members, one_is_gone, two_are_gone, full, slow_elections, two_clusters,
           learner])
