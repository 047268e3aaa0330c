# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""An etcd with many keys, most of them other programs': large values, long names, keys below a lock's name."""
import json
import urllib.request

from cluster_kit import SOAK, expect, try_it
from etcd_fault_kit import on_server, text64
from keeper import Keeper
from kit import PATIENCE, run_tests

BELOW = 20000 if SOAK else 6000


def ask(server, path, body):
    request = urllib.request.Request(server.members[0].client_url + path,
                                     json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)


def put_all(server, keys, value="", lease=0):
    for i in range(0, len(keys), 100):
        ask(server, "/v3/kv/txn", {"success": [
            {"request_put": {"key": text64(key), "value": text64(value), "lease": str(lease)}}
            for key in keys[i:i + 100]]})


def listed(t, *prefix):
    done = t.stile("ls", "--json", *prefix)
    expect(done.returncode, 0, done.stderr)
    return [one["name"] for one in json.loads(done.stdout)]


@on_server()
def large_values(t, server):
    """A thousand keys of 5 kB that are none of ours: ls, show and break look at keys alone"""
    put_all(server, ["data/app/%d" % i for i in range(1000)], "v" * 5000)
    held = t.hold("x")
    expect(listed(t), ["x"])
    seats = t.hold("seats", "--slots", "2")
    expect(listed(t), ["seats", "x"])
    expect(len(t.show("seats")["holders"]), 1)
    expect(t.stile("break", "-y", "seats").returncode, 0)
    expect(seats.wait(), 76)
    t.release(held)


@on_server()
def large_keys(t, server):
    """Keys of 60 kB below the name: they come in smaller pages, and waiters do not delay them"""
    lease = ask(server, "/v3/lease/grant", {"TTL": 3600})["ID"]
    for i in range(80):
        put_all(server, ["x/%02d%s/1" % (i, "k" * 60000)], "", lease)
    for options in ["--try"], ["--wait", "20s"]:
        expect(t.stile("run", *options, "x", "--", "true").returncode, 0)
    expect(t.stile("run", "--try", "--shared", "x", "--", "true").returncode, 0)
    expect(t.stile("show", "x").returncode, 0)
    expect(listed(t), [])


def longer_names(server):
    """Locks of others below jobs/, in 10 MB of keys, by one lease."""
    lease = ask(server, "/v3/lease/grant", {"TTL": 3600})["ID"]
    put_all(server, ["jobs/%06d%s/%x" % (i, "j" * 700, int(lease)) for i in range(BELOW)], "",
            lease)


@on_server()
def many_longer_names(t, server):
    """Thousands of locks below jobs/: jobs itself is tried, waited for, shared, shown, and left free"""
    longer_names(server)
    ours = Keeper(server.url)
    try:
        expect(ours.try_it("keep"), "OK")
        expect(try_it(t, "jobs"), 0)
        expect(try_it(t, "jobs", "--shared"), 0)
        expect(try_it(t, "jobs", "--slots", "2"), 0)
        expect(ours.try_it("jobs"), "OK")
        expect(len(t.show("jobs")["holders"]), 1)
        for mode in [], ["--shared"], ["--slots", "2"]:
            expect(try_it(t, "jobs", *mode), 75)
        waiting = t.start("run", "jobs", "--", "true")
        seat = t.start("run", "--slots", "2", "jobs", "--", "true")
        t.until(t.watch("jobs"), lambda change: len(change["waiters"]) == 2)
        expect(ours.release("jobs"), "OK")
        expect((waiting.wait(), seat.wait()), (0, 0))
        expect(len(t.show("jobs")["holders"]), 0)
        assert ours.holds("keep")
    finally:
        ours.close()


@on_server()
def foreign_key(t, server):
    """A key of another program below the name, without a lease: show and run agree on it, break leaves it"""
    server.ctl("put", "config/db", "secret")
    expect(try_it(t, "config"), 75)
    (holder,) = t.show("config")["holders"]
    assert "config/db" in holder["command"], holder
    assert "secret" not in t.stile("show", "config").stdout
    expect(listed(t), [])
    done = t.stile("break", "-y", "config")
    expect(done.returncode, 69, done.stderr)
    assert "'config/db' of another program" in done.stderr, done.stderr
    waiting = t.start("run", "config", "--", "true")
    t.until(t.watch("config"), lambda change: len(change["waiters"]) == 1)
    expect(server.ctl("get", "--print-value-only", "config/db"), "secret")
    server.ctl("del", "config/db")
    expect(waiting.wait(), 0)
    expect(t.show("config")["holders"], [])


run_tests([large_values, large_keys, many_longer_names, foreign_key])
