# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Locks of an etcd that can't be given back at once: a balancer answers for its members, or a role does not
allow it. Whatever it is, no name stays locked for ever while its client lives."""
from cluster_kit import expect, granted, spin
from balancer import Balancer
from etcd_fault_kit import keys_of, on_server, use
from keeper import Keeper
from kit import run_tests


def balanced(case):
    @on_server()
    def with_balancer(t, server):
        with Balancer(server.members[0].port) as balancer:
            case(t, server, balancer, "etcd://127.0.0.1:%d" % balancer.port)
    with_balancer.__name__, with_balancer.__doc__ = case.__name__, case.__doc__
    return with_balancer


def refuse_some(balancer):
    """Until the clients have been refused a few times."""
    balancer.fail()
    seen = len(balancer.refused)
    spin(lambda: len(balancer.refused) >= seen + 4)


@balanced
def released_while_a_balancer_answers(t, server, balancer, url):
    """A release that a balancer answers with 503 is repeated, though the lease lives on"""
    ours = Keeper(url)
    try:
        expect(ours.try_it("keep"), "OK")
        expect(ours.try_it("x"), "OK")
        refuse_some(balancer)
        expect(ours.release("x"), "UNREACHABLE")
        balancer.heal()
        expect(t.stile("run", "--wait", "50s", "x", "--", "true").returncode, 0)
        assert ours.holds("keep")
    finally:
        ours.close()


@balanced
def waits_while_a_balancer_answers(t, server, balancer, url):
    """503 ends no wait, neither of queued claims nor of those that come meanwhile"""
    held = t.hold("x")
    use(t, url)
    waiting = t.start("run", "x", "--", "sh", "-c", "echo $STILE_TOKEN")
    other = Keeper(url)
    try:
        spin(lambda: len(keys_of(server)) == 2)
        expect(other.try_it("keep"), "OK")
        refuse_some(balancer)
        other.ask("y", 600000)
        refuse_some(balancer)
        balancer.heal()
        expect(other.answer(), "OK")
        use(t, server.url)
        t.release(held)
        granted(waiting)
    finally:
        other.close()


# ---- roles ----

ROOT = "--user", "root:rootpw"


def allow(server, *names):
    for name in names:
        server.ctl("role", "grant-permission", "locks", "--prefix=true", "readwrite", name + "/")


def on_role(*names):
    """The test is a user whose role covers these names, as `etcdctl lock` needs it, and nothing else."""
    def decorate(case):
        @on_server()
        def with_role(t, server):
            server.ctl("user", "add", "root:rootpw")
            server.ctl("user", "grant-role", "root", "root")
            server.ctl("role", "add", "locks")
            allow(server, *names)
            server.ctl("user", "add", "worker:pw")
            server.ctl("user", "grant-role", "worker", "locks")
            server.ctl("auth", "enable")
            server.ctl_args = ROOT
            url = "etcd://worker:pw@" + server.hosts
            use(t, url)
            case(t, server, url)
        with_role.__name__, with_role.__doc__ = case.__name__, case.__doc__
        return with_role
    return decorate


def watchers(server):
    return server.members[0].metric("etcd_debugging_mvcc_watcher_total")


@on_role("x", "y")
def role_of_etcdctl_lock(t, server, url):
    """A role that suffices for `etcdctl lock` suffices for us, however long the lock is held"""
    ours = Keeper(url)
    try:
        expect(ours.try_it("y"), "OK")
        expect(ours.try_it("x"), "OK")
        spin(lambda: watchers(server) >= 2)  # held for long enough to be watched
        expect(len(t.show("x")["holders"]), 1)
        waiting = t.start("run", "x", "--", "sh", "-c", "echo $STILE_TOKEN")
        spin(lambda: len(keys_of(server)) == 2)
        expect(ours.release("x"), "OK")
        granted(waiting)
        expect(keys_of(server), [])
    finally:
        ours.close()
    expect(keys_of(server, "y"), [])


@on_role("x")
def what_a_role_lacks(t, server, url):
    """A name that no role covers: the message says which permission is missing"""
    done = t.stile("run", "--try", "other", "--", "true")
    expect(done.returncode, 69)
    assert "--prefix=true readwrite 'other/'" in done.stderr, done.stderr
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)


def forbid(server, name):
    server.ctl("role", "revoke-permission", "locks", "--prefix=true", name + "/")


@on_role("x", "y", "z")
def forbidden_while_held(t, server, url):
    """The role loses the name while it is held: free once its lease is over, which takes no new claims"""
    ours = Keeper(url)
    try:
        for name in "x", "y":
            ours.ask(name, 0, 4000)
            expect(ours.answer(), "OK")
        forbid(server, "x")
        expect(ours.release("x"), "REFUSED")
        ours.ask("z", 0, 4000)
        expect(ours.answer(), "OK")
        assert lease(server, "z") != lease(server, "y"), "the lease is given up"
        assert ours.holds("y") and len(keys_of(server)) == 1
        expect(ours.release("y"), "OK")
        spin(lambda: keys_of(server) == [])
        assert ours.holds("z")
        allow(server, "x")
        expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)
    finally:
        ours.close()


def lease(server, name):
    return keys_of(server, name)[0].rsplit("/", 1)[1]


@on_role("x", "y")
def forbidden_beside_a_waiter(t, server, url):
    """A waiter that lives by the lease which is given up waits on, by another one"""
    held = t.hold("y")
    ours = Keeper(url)
    try:
        ours.ask("x", 0, 4000)
        expect(ours.answer(), "OK")
        ours.ask("&y", 600000, 4000)
        expect(ours.answer(), "OK")
        spin(lambda: len(keys_of(server, "y")) == 2)
        before = lease(server, "x")
        assert before in keys_of(server, "y")[1]
        forbid(server, "x")
        expect(ours.release("x"), "REFUSED")
        spin(lambda: keys_of(server) == [])
        spin(lambda: len(keys_of(server, "y")) == 2 and before not in keys_of(server, "y")[1])
        t.release(held)
        spin(lambda: ours.holds("y"))
    finally:
        ours.close()


run_tests([released_while_a_balancer_answers, waits_while_a_balancer_answers, role_of_etcdctl_lock,
           what_a_role_lacks, forbidden_while_held, forbidden_beside_a_waiter])
