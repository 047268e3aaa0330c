# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A URL whose endpoints do not belong together: two programs would hold one lock, each in its own cluster."""
import contextlib

from cluster_kit import expect, refused
from etcd_fault_kit import keys_of, use
from etcd_server import EtcdServer
from keeper import Keeper
from kit import run_tests


@contextlib.contextmanager
def two_clusters():
    with EtcdServer() as one, EtcdServer() as other:
        yield one, other, "etcd://%s,%s" % (one.hosts, other.hosts)


def two_at_open(t):
    """Refused, whichever of the two is asked first"""
    with two_clusters() as (one, other, url):
        use(t, url)
        for _ in range(6):
            refused(t, "belongs to another cluster", "members of one cluster")
        expect(keys_of(one) + keys_of(other), [])


def second_one_comes_later(t):
    """Away at open: when the connection comes to it, nothing is asked of it"""
    with two_clusters() as (one, other, url):
        other.kill()
        ours = Keeper(url)
        try:
            expect(ours.try_it("x"), "OK")
            other.restart()
            one.kill()
            ours.ask("y", 4000)
            assert ours.answer() in ("UNREACHABLE", "UNCERTAIN")
            expect(keys_of(other, "y") + keys_of(other), [])
            one.restart()
            ours.ask("y", 60000)
            expect(ours.answer(), "OK")
            expect((len(keys_of(one, "y")), keys_of(other, "y")), (1, []))
        finally:
            ours.close()


def with_a_login(t):
    """The other members are asked without a login, and found to belong together"""
    with EtcdServer(3) as server:
        server.ctl("user", "add", "root:rootpw")
        server.ctl("user", "grant-role", "root", "root")
        server.ctl("auth", "enable")
        before = sum(m.executed("Authenticate") for m in server.members)
        use(t, "etcd://root:rootpw@" + server.hosts)
        done = t.stile("run", "--try", "x", "--", "true")
        expect(done.returncode, 0, done.stderr)
        expect(sum(m.executed("Authenticate") for m in server.members) - before, 1)


run_tests([two_at_open, second_one_comes_later, with_a_login])
