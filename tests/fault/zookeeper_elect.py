# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A candidate on ZooKeeper whose session ends while it campaigns does not lead by it (CURATOR-604)."""
import json
import subprocess

from cluster_kit import expect, spin
from kit import run_tests
from zookeeper_kit import Other, end_session, nodes_of, on_server

SCRIPT = "echo $STILE_TOKEN; read line"


def elect(t, *options):
    return t.start("elect", "--once", *options, "x", "--", "sh", "-c", SCRIPT,
                   stdin=subprocess.PIPE)


def stat_of(server, node):
    with Other(server) as client:
        return client.exists("/x/" + node)


@on_server()
def session_ended_in_a_campaign(t, server):
    """The candidate joins the queue again, behind the others, and leads with the node it has then"""
    leader = elect(t)
    leader.line()
    first = elect(t, "--proclaim", "first")
    spin(lambda: len(nodes_of(server)) == 2)
    old = nodes_of(server)[1]
    second = elect(t, "--proclaim", "second")
    spin(lambda: len(nodes_of(server)) == 3)
    end_session(server, stat_of(server, old).ephemeralOwner)
    spin(lambda: len(nodes_of(server)) == 3 and old not in nodes_of(server))
    leader.process.stdin.close()
    expect(leader.wait(), 1)
    expect(int(second.line()), stat_of(server, nodes_of(server)[0]).czxid)
    expect(json.loads(t.stile("leader", "--json", "x").stdout)["value"], "second")
    second.process.stdin.close()
    expect(second.wait(), 1)
    expect(int(first.line()), stat_of(server, nodes_of(server)[0]).czxid)
    expect(json.loads(t.stile("leader", "--json", "x").stdout)["value"], "first")
    first.process.stdin.close()
    expect(first.wait(), 1)
    expect(nodes_of(server), [])


run_tests([session_ended_in_a_campaign])
