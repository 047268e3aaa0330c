# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Three etcd members that are killed, stopped and cut off, leases and keys that go behind our back,
and very many waiters."""
import json

from cluster_kit import SOAK, Cluster, Crowd, check, expect, refused, spin
from consensus import (SCENARIOS, holder_entry_removed, holder_stopped, late_withdrawal, leader_killed,
                       run_scenarios, waiter_session_ended)
from etcd_server import EtcdServer
from wire import BOTH


class EtcdCluster(Cluster):
    scheme = "etcd"
    query = ""
    pace_ms = 400  # for each claim, one of the members reads the whole queue

    def start(self):
        return EtcdServer(3, ctl_args=["--command-timeout=25s"])

    def url_of(self, *ports):
        return super().url_of(*ports) + self.query

    @property
    def old_leader_revokes(self):
        return self.members[0].old_leader_revokes()

    def close(self):
        self.server.stop()

    def expect_no_quorum(self, t):
        refused(t, "the members have no leader")
        done = t.stile("doctor")
        expect(done.returncode, 2, done.stdout + done.stderr)
        assert "sees no leader" in done.stdout, done.stdout

    def leads(self, member):
        return member.leads()

    def queue(self, name):
        place = "%s/%s" % (self.place, name)
        line = self.server.ctl("get", "--prefix", "--keys-only", "--sort-by", "CREATE", place + "/")
        return line.split() or self.server.ctl("get", "--keys-only", place).split()

    def remove(self, entry):
        expect(self.server.ctl("del", entry), "1")

    def end_session(self, entry):
        self.server.ctl("lease", "revoke", entry.rsplit("/", 1)[1])

    @staticmethod
    def requests_only(data):
        """Frames of HTTP/2, without RST_STREAM and GOAWAY."""
        kept = b""
        while len(data) >= 9:
            end = 9 + int.from_bytes(data[:3], "big")
            kept += b"" if data[3] in (3, 7) else data[:end]
            data = data[end:]
        return kept

    def executed(self, member):
        return member.executed("Txn")

    def requests(self):
        """Without the keep-alives, which come with time."""
        return sum(member.metric("grpc_server_msg_received_total", "LeaseKeepAlive")
                   for member in self.members)

    def wakes(self):
        return sum(member.metric("etcd_debugging_mvcc_events_total")
                   for member in self.members)


def compacted_while_cut_off(t, cluster):
    """Changes made while clients were cut off are compacted: waiters check again, in order"""
    with cluster.wired() as wires:
        held = t.hold("x", "--ttl", "15s")
        crowd = Crowd(t, wires.url, "x", 10, rounds=1, ttl_ms=15000)
        spin(lambda: len(cluster.queue("x")) == 11)
        wires.fail(BOTH)
        t.release(held)
        cluster.server.ctl("put", "filler", "x")
        revision = json.loads(cluster.server.ctl("get", "filler", "-w", "json"))["header"]
        cluster.server.ctl("compact", str(revision["revision"]))
        wires.cut()
        wires.heal()
        crowd.until(lambda: len(crowd.grants) == 10)
        check(crowd.end())


def with_etcd3(scenario):
    def case(t, cluster):
        cluster.query = "?dialect=etcd3"
        try:
            cluster.use(t)
            scenario(t, cluster)
        finally:
            cluster.query = ""
    case.__name__, case.__doc__ = "etcd3_" + scenario.__name__, "etcd3: " + scenario.__doc__
    return case


SOME = [leader_killed, holder_stopped, late_withdrawal, holder_entry_removed, waiter_session_ended]

run_scenarios(EtcdCluster, compacted_while_cut_off, *map(with_etcd3, SCENARIOS if SOAK else SOME))
