# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""dialect=amazon and a client written from the description of Amazon's lock client for Java alone:
each excludes the other, takes over from a dead one, and is let in by a release."""
import os
import pathlib
import sys
import time
import uuid

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(TESTS / "cli"), str(TESTS / "servers")]
from dynamodb_server import ENV, DynamoServer, is_installed  # noqa: E402
from kit import acquired, expect, run_tests, spin  # noqa: E402

TABLE = "lockTable"


class Client:
    """Its items, and nothing of stile's."""
    def __init__(self, server, owner, lease_ms=1000):
        self.server, self.owner, self.lease_ms = server, owner, lease_ms
        self.seen, self.since, self.version = None, 0, None

    def read(self, name):
        reply = self.server.call("GetItem", {"TableName": TABLE, "Key": {"key": {"S": name}},
                                             "ConsistentRead": True})
        return reply.get("Item")

    def put(self, name, condition, names, values):
        self.version = str(uuid.uuid4())
        try:
            self.server.call("PutItem", {
                "TableName": TABLE, "ConditionExpression": condition, "ExpressionAttributeNames": names,
                **({"ExpressionAttributeValues": values} if values else {}),
                "Item": {"key": {"S": name}, "ownerName": {"S": self.owner},
                         "leaseDuration": {"S": str(self.lease_ms)},
                         "recordVersionNumber": {"S": self.version}}})
        except OSError as error:
            expect(error.args[0], "ConditionalCheckFailedException")
            return False
        return True

    def try_it(self, name):
        """One look: takes it if it is free, released, or was seen unchanged for its lease."""
        item = self.read(name)
        if item is None:
            return self.put(name, "attribute_not_exists(#k)", {"#k": "key"}, None)
        if item.get("isReleased", {}).get("S") == "1":
            return self.put(name, "attribute_exists(#k) AND #r = :r",
                            {"#k": "key", "#r": "isReleased"}, {":r": {"S": "1"}})
        version = item["recordVersionNumber"]["S"]
        if version != self.seen:
            self.seen, self.since = version, time.monotonic()
        if time.monotonic() - self.since < int(item["leaseDuration"]["S"]) / 1000:
            return False
        return self.put(name, "attribute_exists(#k) AND #v = :v",
                        {"#k": "key", "#v": "recordVersionNumber"}, {":v": {"S": version}})

    def change(self, name, update, value, attribute):
        self.server.call("UpdateItem", {
            "TableName": TABLE, "Key": {"key": {"S": name}}, "UpdateExpression": update,
            "ConditionExpression": "attribute_exists(#k) AND #v = :v AND #o = :o",
            "ExpressionAttributeNames": {"#k": "key", "#v": "recordVersionNumber", "#o": "ownerName",
                                         **({"#x": attribute} if attribute else {})},
            "ExpressionAttributeValues": {":v": {"S": self.version}, ":o": {"S": self.owner},
                                          ":x": {"S": value}}})

    def beat(self, name):
        new = str(uuid.uuid4())
        self.change(name, "SET #v = :x", new, None)
        self.version = new

    def release(self, name, delete):
        if not delete:
            self.change(name, "SET #x = :x", "1", "isReleased")
            return
        self.server.call("DeleteItem", {
            "TableName": TABLE, "Key": {"key": {"S": name}}, "ConditionExpression": "#v = :v",
            "ExpressionAttributeNames": {"#v": "recordVersionNumber"},
            "ExpressionAttributeValues": {":v": {"S": self.version}}})


def on_table(case):
    def decorated(t):
        with DynamoServer() as server:
            server.create(TABLE)
            t.env.update(ENV, STILE_MODULES=os.environ["STILE_MODULES"],
                         STILE_ENGINE=server.url(TABLE, "&dialect=amazon&poll=50"))
            case(t, server)
    decorated.__name__, decorated.__doc__ = case.__name__, case.__doc__
    return decorated


def token_of(done):
    expect(done.returncode, 0, done.stderr)
    return int(acquired(done.stdout)[1])


@on_table
def theirs_keeps_us_out(t, server):
    """while theirs sends heartbeats we wait; released or deleted by it, the lock is ours, with a larger token"""
    last = 0
    for delete in False, True, False:
        theirs = Client(server, "theirs", 20000)
        spin(lambda client=theirs: client.try_it("x"))
        expect(t.stile("acquire", "--try", "x").returncode, 75)
        expect(t.show("x")["holders"][0]["command"], "theirs")
        theirs.beat("x")
        waiting = t.start("acquire", "--ttl", "1s", "x")
        theirs.release("x", delete)
        expect(waiting.wait(), 0)
        owner, token = acquired(waiting.process.stdout.read().decode())
        assert int(token) > last, (token, last)
        last = int(token)
        t.env["STILE_OWNER"] = owner
        expect(t.stile("release", "x").returncode, 0)
        del t.env["STILE_OWNER"]


@on_table
def ours_keeps_them_out(t, server):
    """while we renew theirs waits, longer than our lease; when we give it back it has it at once"""
    held = t.hold("x", "--ttl", "1s")
    theirs = Client(server, "theirs")
    until = time.monotonic() + 2.5
    while time.monotonic() < until:
        assert not theirs.try_it("x"), theirs.read("x")
        time.sleep(0.05)
    t.release(held)
    assert theirs.try_it("x")


@on_table
def the_dead_are_replaced(t, server):
    """in both directions, after the lease was seen to end, and not before"""
    theirs = Client(server, "theirs", 1000)
    assert theirs.try_it("x")
    start = time.monotonic()
    first = token_of(t.stile("acquire", "--ttl", "1s", "x"))
    assert time.monotonic() - start >= 1
    try:
        theirs.beat("x")
        assert False, "a heartbeat of the dead"
    except OSError as error:
        expect(error.args[0], "ConditionalCheckFailedException")
    start = time.monotonic()
    spin(lambda: theirs.try_it("x"))
    assert time.monotonic() - start >= 0.9
    theirs.release("x", True)
    assert token_of(t.stile("acquire", "--try", "x")) > first


@on_table
def broken_by_us(t, server):
    """stile ls and break see theirs; what is no lock of theirs is refused"""
    theirs = Client(server, "theirs")
    assert theirs.try_it("x")
    assert "x" in t.stile("ls").stdout
    expect(t.stile("break", "x").returncode, 0)
    token_of(t.stile("acquire", "--try", "x"))
    server.call("PutItem", {"TableName": TABLE, "Item": {"key": {"S": "odd"}, "ownerName": {"S": "me"}}})
    done = t.stile("acquire", "--try", "odd")
    assert done.returncode == 69 and "not of Amazon's lock client" in done.stderr, done
    expect(t.stile("acquire", "--try", "stile/tokens").returncode, 69)
    expect(t.stile("acquire", "--shared", "--try", "y").returncode, 69)


if not is_installed():
    print("1..0 # SKIP dynalite of npm is not installed: tools/npm-clients BUILD")
    sys.exit(0)
run_tests([theirs_keeps_us_out, ours_keeps_them_out, the_dead_are_replaced, broken_by_us])
