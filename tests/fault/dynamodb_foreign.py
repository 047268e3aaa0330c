# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""DynamoDB behind a proxy that mixes up answers and adds pages of its own; a table with items of other programs."""
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from dynamodb_kit import acquire, claims, expect, item, release, run_if_installed, with_proxy  # noqa: E402,I001
from dynamodb_proxy import Answer  # noqa: E402
from kit import STILE, spin  # noqa: E402

CLAIM = (b'"claims":{"M":{"other":{"M":{"m":{"S":"x"},"n":{"N":"0"},"r":{"N":"7"},"t":{"N":"60000"},"d":{"N":"0"},'
         b'"h":{"N":"0"},"i":{"S":"7 elsewhere sleep"}}}}}')
CELL = b'"live":{"BOOL":true},"size":{"N":"5"},"value":{"B":"b3RoZXI="},"fence":{"N":"0"},"change":{"S":"c0ffee"}'


def of_another(member, key):
    return Answer(200, b'{"%s":{"key":{"S":"%s"},"v":{"N":"1"},"version":{"N":"7"},"token":{"N":"7"},%s,%s}}'
                  % (member, key, CLAIM, CELL))


def put(server, key, **attributes):
    server.call("PutItem", {"TableName": "locks", "Item": {"key": {"S": key}, **attributes}})


# ---- answers of other requests ----

@with_proxy
def readings_of_another(t, server, proxy):
    """the item of another name: a waiter reads again, show and break do nothing, a cell is not taken for another's"""
    owner, _ = acquire(t, "x", "--ttl", "1h")
    for key in b"lock/y", b"cell/y":
        rule = proxy.rule("GetItem", of_another(b"Item", key))
        waiting = t.start("acquire", "--wait", "30s", "x")
        rule.hit()
        spin(lambda seen=proxy.operations["GetItem"]: proxy.operations["GetItem"] > seen + 1)
        waiting.kill(15)
        expect(waiting.wait(), -15)
        for verb in ["show", "x"], ["break", "x"], ["cell", "get", "k"], ["cell", "put", "k"]:
            rule = proxy.rule("GetItem", of_another(b"Item", key), 1000)
            done = t.stile(*verb)
            assert done.returncode == 69 and "about another item" in done.stderr, (verb, done)
            assert "elsewhere" not in done.stdout and "other" not in done.stdout, done
            rule.left = 0
    expect(list(claims(server, "x")), [owner])


@with_proxy
def writings_of_another(t, server, proxy):
    """a release or a withdrawal that is not executed and answered like another: it is repeated; a put is not done"""
    answer = of_another(b"Attributes", b"lock/y")
    for name, write, options in ("x", "REMOVE #c.#me", []), ("y", "SET #c.#me.#g", ["--hold-at-least", "1h"]):
        owner, _ = acquire(t, name, *options)
        rule = proxy.rule("UpdateItem", of_another(b"Attributes", b"lock/z"), 1, containing=write)
        expect((release(t, name, owner).returncode, rule.left), (0, 0))
        expect([claim["M"].get("g") for claim in claims(server, name).values()], [{"BOOL": True}] if options else [])
    proxy.rule("UpdateItem", answer, 1, containing="SET #c = :c")  # in doubt: it is withdrawn, and marked
    rule = proxy.rule("UpdateItem", answer, 1, containing="ADD #g :g")
    expect(t.stile("acquire", "--try", "x").returncode, 69)
    expect((rule.left, len(item(server, "x")["gone"]["SS"]), claims(server, "x")), (0, 1, {}))
    expect(t.stile("cell", "put", "k", input="old").returncode, 0)
    rule = proxy.rule("UpdateItem", answer, 1)
    done = t.stile("cell", "put", "k", input="new")
    expect((rule.left, done.returncode, t.stile("cell", "get", "k").stdout), (0, 69, "old"), done.stderr)


@with_proxy
def renewals_of_before(t, server, proxy):
    """renewals are not executed, and each is answered like the one before: the command is stopped in time"""
    for options, key in ("", "lock/x"), ("&dialect=amazon", "x"):
        held = t.start("run", "-e", t.env["STILE_ENGINE"] + options, "--ttl", "3s", "x", "--", "sh", "-c",
                       "echo in; exec sleep 100")
        expect(held.line(), "in")
        def stored(key=key):
            return server.call("GetItem", {"TableName": "locks", "Key": {"key": {"S": key}}})["Item"]
        spin(lambda before=stored(), now=stored: now() != before)
        proxy.rule("UpdateItem", Answer(200, json.dumps({"Attributes": stored()}).encode()), 1000)
        expect(held.wait(), 76)
        proxy.rules.clear()


@with_proxy
def same_page(t, _server, proxy):
    """a cache answers each page of a list with the first one: the list ends, and says so"""
    proxy.rule("Scan", Answer(200, b'{"Items":[],"LastEvaluatedKey":{"key":{"S":"lock/x"}}}'), 1000)
    for verb in ["ls"], ["cell", "ls"]:
        done = t.stile(*verb)
        assert done.returncode == 69 and "same page" in done.stderr, done


# ---- the time of others ----

@with_proxy
def pages_of_the_proxy(t, _server, proxy):
    """502 from a proxy whose clock is a day behind: renewals keep the service's time, by which others judge them"""
    held = t.hold("x", "--ttl", "6s")
    page = Answer(502, b"<html>", {"Date": time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() - 86400))})
    rule = proxy.rule("UpdateItem", page, 1000, containing="#a = :a")
    spin(lambda: len(set(rule.bodies)) > 1)
    rule.left = 0
    for body in rule.bodies:
        written = int(json.loads(body)["ExpressionAttributeValues"][":a"]["N"])
        assert abs(written - time.time()) < 3600, body
    t.release(held)


@with_proxy
def no_time_at_all(t, server, proxy):
    """a compatible service that sends no Date: a try does not compare its own clock with a claim's"""
    acquire(t, "x", "--ttl", "1s")
    server.call("UpdateItem", {"TableName": "locks", "Key": {"key": {"S": "lock/x"}},
                               "UpdateExpression": "SET claims.#id.a = :a",
                               "ExpressionAttributeNames": {"#id": next(iter(claims(server, "x")))},
                               "ExpressionAttributeValues": {":a": {"N": "1700000000"}}})
    proxy.dateless = True
    expect(t.stile("acquire", "--try", "x").returncode, 75)
    _, token = acquire(t, "y", "--ttl", "1s")
    expect([claim["M"]["a"]["N"] for claim in claims(server, "y").values()], ["0"])
    proxy.dateless = False
    expect(t.stile("acquire", "--try", "y").returncode, 75)
    assert acquire(t, "y", "--wait", "30s")[1] > token


# ---- items of others ----

def claim_with(**attributes):
    whole = {"m": {"S": "x"}, "r": {"N": "7"}, "t": {"N": "3600000"}, "i": {"S": "7 elsewhere sleep"}, **attributes}
    return {"M": {"id": {"M": {name: value for name, value in whole.items() if value}}}}


@with_proxy
def items_of_others(t, server, proxy):
    """claims that are none are neither over nor waited for; a list leaves them out; an odd date is no date"""
    v, token = {"N": "1"}, {"N": "5"}
    for name, attributes in (("no map", {"claims": {"M": {"id": {"S": "x"}}}, "v": v}),
                             ("empty", {"claims": {"M": {"id": {"M": {}}}}, "v": v}),
                             ("no version", {"claims": claim_with()}),
                             ("no lease", {"claims": claim_with(t=None), "v": v}),
                             ("negative lease", {"claims": claim_with(t={"N": "-1"}), "v": v}),
                             ("huge lease", {"claims": claim_with(t={"N": "1" + 30 * "0"}), "v": v}),
                             ("binary", {"claims": claim_with(r={"B": "AAAA"}), "v": v}),
                             ("mode", {"claims": claim_with(m={"S": "?"}), "v": v})):
        put(server, "lock/" + name, token=token, **attributes)
        for verb in ["acquire", "--try", name], ["acquire", "--wait", "60s", name], ["show", name]:
            done = t.stile(*verb)
            assert done.returncode == 69 and "of another program" in done.stderr, (verb, done)
    put(server, "lock/odd date", claims=claim_with(a={"N": str(2 ** 64 - 5)}), v=v, token=token)
    expect(t.stile("acquire", "--try", "odd date").returncode, 75)
    put(server, "cell/odd", live={"BOOL": True}, size={"N": "0"}, version=v, fence={"N": "0"})
    for verb in "get", "put":
        done = t.stile("cell", verb, "odd")
        assert done.returncode == 69 and "of another program" in done.stderr, (verb, done)
    expect(t.stile("cell", "put", "even").returncode, 0)
    expect([cell["key"] for cell in json.loads(t.stile("cell", "ls", "--json").stdout)], ["even"])
    acquire(t, "mine")
    expect([lock["name"] for lock in json.loads(t.stile("ls", "--json").stdout)], ["mine", "odd date"])
    url = t.env["STILE_ENGINE"] + "&dialect=amazon"
    put(server, "job", ownerName={"S": "me"})
    expect(t.stile("acquire", "-e", url, "mine").returncode, 0)
    expect([lock["name"] for lock in json.loads(t.stile("ls", "-e", url, "--json").stdout)], ["mine"])


@with_proxy
def many_odd_names(t, server, _proxy):
    """a page of 500 names, each of 500 commas, with claims that proclaim some more"""
    names = ["%04d" % i + '"\\"{[' + 503 * "," for i in range(500)]
    for at in range(0, len(names), 25):
        server.call("BatchWriteItem", {"RequestItems": {"locks": [{"PutRequest": {"Item": {
            "key": {"S": "lock/" + name}, "claims": claim_with(p={"S": 50 * ","}), "v": {"N": "1"}}}} for name in names[at:at + 25]]}})
    expect([lock["name"] for lock in json.loads(t.stile("ls", "--json").stdout)], names)


# ---- descriptors of others ----

@with_proxy
def sockets_with_a_byte(t, _server, _proxy):
    """stdin is a socket with one byte in it, stdout one with a byte that was not read: both reach the command"""
    ours, its_stdin = socket.socketpair()
    reader, its_stdout = socket.socketpair()
    with contextlib.ExitStack() as sockets:
        for one in ours, its_stdin, reader, its_stdout:
            sockets.enter_context(one)
        ours.send(b"i")
        ours.shutdown(socket.SHUT_WR)
        its_stdout.send(b"o")
        done = subprocess.run([STILE, "run", "x", "--", "cat"], stdin=its_stdin, stdout=its_stdout, env=t.env,
                              stderr=subprocess.PIPE, check=False)
        its_stdout.close()
        expect((done.returncode, reader.recv(16)), (0, b"oi"), done.stderr)


run_if_installed([readings_of_another, writings_of_another, renewals_of_before, same_page, pages_of_the_proxy, no_time_at_all,
                  items_of_others, many_odd_names, sockets_with_a_byte])
