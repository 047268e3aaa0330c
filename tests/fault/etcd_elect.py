# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A candidate on etcd whose lease ends while it campaigns does not lead by it (etcd#22387)."""
import json
import subprocess

from cluster_kit import expect, spin
from etcd_fault_kit import keys_of, lease_of, on_server
from kit import run_tests

SCRIPT = "echo $STILE_TOKEN; read line"


def elect(t, *options):
    return t.start("elect", "--once", *options, "x", "--", "sh", "-c", SCRIPT,
                   stdin=subprocess.PIPE)


def revision_of_first(server):
    return json.loads(server.ctl("get", keys_of(server)[0], "-w", "json"))["kvs"][0][
        "create_revision"]


@on_server()
def session_ended_in_a_campaign(t, server):
    """The candidate joins the queue again, behind the others, and leads with the key it has then"""
    leader = elect(t)
    leader.line()
    first = elect(t, "--proclaim", "first")
    spin(lambda: len(keys_of(server)) == 2)
    old = keys_of(server)[1]
    second = elect(t, "--proclaim", "second")
    spin(lambda: len(keys_of(server)) == 3)
    server.ctl("lease", "revoke", lease_of(old))
    spin(lambda: len(keys_of(server)) == 3 and old not in keys_of(server))
    leader.process.stdin.close()
    expect(leader.wait(), 1)
    expect(int(second.line()), revision_of_first(server))
    expect(json.loads(t.stile("leader", "--json", "x").stdout)["value"], "second")
    second.process.stdin.close()
    expect(second.wait(), 1)
    expect(int(first.line()), revision_of_first(server))
    expect(json.loads(t.stile("leader", "--json", "x").stdout)["value"], "first")
    first.process.stdin.close()
    expect(first.wait(), 1)
    expect(keys_of(server), [])


run_tests([session_ended_in_a_campaign])
