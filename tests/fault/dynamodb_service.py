# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""DynamoDB as it must not be trusted: TLS with the wrong certificate, tables that are not fit for locks, rights
that are missing, a clock that is off, answers that are hostile."""
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from dynamodb_kit import TESTS, acquire, claims, expect, item, release, run_if_installed, with_proxy  # noqa: E402,I001
from dynamodb_proxy import DENY, SKEWED, Answer, DynamoProxy  # noqa: E402
from dynamodb_server import call  # noqa: E402
from kit import acquired, spin  # noqa: E402

RIGHTS = {"GetItem": "right-read", "UpdateItem": "right-write", "Scan": "right-scan",
          "DescribeTable": "right-describe", "DescribeTimeToLive": "right-ttl"}
DAY_S = 86400


def doctor(t, url=None):
    """The findings: id -> severity."""
    done = t.stile("doctor", "--json", *([url] if url else []))
    return {finding["id"]: finding["severity"] for finding in json.loads(done.stdout)["findings"]}


# ---- TLS ----

def tls_url(t, server, proxy, host, *ca):
    return "dynamodb://locks?region=eu-test-1&poll=50&endpoint=https://%s:%d%s" % (
        host, proxy.port, "".join("&ca=" + t.path(name) for name in ca))


@with_proxy
def verified_tls(t, server, _proxy):
    """https: by name and by address with ca=, kept alive; refused with another CA, another host, after its end"""
    subprocess.run([TESTS / "servers" / "certs", t.path("")], check=True)
    with DynamoProxy(server.port, certificate=t.path("server.pem")) as proxy:
        for host in "localhost", "127.0.0.1":
            url = tls_url(t, server, proxy, host, "ca.pem")
            expect(t.stile("run", "-e", url, "x", "--", "true").returncode, 0)
            assert proxy.operations.total() > 0
            assert "plain" not in doctor(t, url), host
    for certificate, ca, word in (("server", [], "certificate"), ("server", ["stranger.pem"], "certificate"),
                                  ("elsewhere", ["ca.pem"], "subject name"), ("expired", ["ca.pem"], "expired"),
                                  ("server", ["missing.pem"], "missing.pem")):
        with DynamoProxy(server.port, certificate=t.path(certificate + ".pem")) as proxy:
            url = tls_url(t, server, proxy, "127.0.0.1", *ca)
            for verb in ["run", "--try", "x", "--", "true"], ["ls"], ["setup", url]:
                done = t.stile(*verb[:1], *([] if verb[0] == "setup" else ["-e", url]), *verb[1:])
                assert done.returncode == 69 and word in done.stderr, (certificate, ca, done)
            expect(proxy.operations.total(), 0, certificate)


@with_proxy
def redirected(t, _server, proxy):
    """an endpoint that sends clients elsewhere: no signature follows, and no lock is granted"""
    elsewhere = DynamoProxy(_server.port)
    with elsewhere:
        for status in 301, 307:
            to = {"Location": "http://127.0.0.1:%d/" % elsewhere.port}
            rule = proxy.rule("DescribeTable", Answer(status, b"", to), 1000)
            done = t.stile("run", "--try", "x", "--", "true")
            assert done.returncode == 69 and "endpoint" in done.stderr, done
            rule.left = 0
        expect(elsewhere.operations.total(), 0)


# ---- what setup and doctor see ----

@with_proxy
def unfit_tables(t, server, proxy):
    """a missing table, another key, a sort key, a number, a global one: refused, and the doctor says why"""
    def found(url, *ids):
        findings = doctor(t, url)
        assert set(ids) <= set(findings), (ids, findings)
    url = server.url("missing")
    expect(t.stile("ls", "-e", url).returncode, 69)
    found(url, "table-missing")
    server.create("other", "id")
    server.call("CreateTable", {
        "TableName": "sorted", "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("key", "at")],
        "KeySchema": [{"AttributeName": "key", "KeyType": "HASH"}, {"AttributeName": "at", "KeyType": "RANGE"}]})
    server.create("numbers", AttributeDefinitions=[{"AttributeName": "key", "AttributeType": "N"}])
    for name, what in ("other", "id (S)"), ("sorted", "key (S) and at (S)"), ("numbers", "key (N)"):
        done = t.stile("ls", "-e", server.url(name))
        assert done.returncode == 69 and "is %s; it must be key (S) alone" % what in done.stderr, done
        found(server.url(name), "key-schema")
        assert t.stile("setup", server.url(name)).returncode == 69
    proxy.replicas = [{"RegionName": "eu-test-2", "ReplicaStatus": "ACTIVE"}]
    done = t.stile("ls")
    assert done.returncode == 69 and "last writer wins" in done.stderr, done
    expect(doctor(t)["global-table"], "danger")
    expect(t.stile("ls", "-e", t.env["STILE_ENGINE"] + "&allow=global").returncode, 0)
    expect(doctor(t, t.env["STILE_ENGINE"] + "&allow=global")["global-table"], "warning")


@with_proxy
def setup_enables_ttl(t, server, proxy):
    """the table and its TTL, again without harm; doctor misses it before; items end long after their claims"""
    url = server.url("fresh", "&poll=50", proxy.port)
    assert "ttl" in doctor(t)
    expect(t.stile("setup", url).returncode, 0)
    expect(proxy.ttl, {"fresh": "ends"})
    again = t.stile("setup", url)
    expect((again.returncode, again.stderr), (0, ""))
    assert not {"ttl", "key-schema", "table-missing", "provisioned"} & set(doctor(t, url)), doctor(t, url)
    t.env["STILE_ENGINE"] = t.env["STILE_ENGINE"].replace("locks", "fresh")
    def days(name):
        stored = server.call("GetItem", {"TableName": "fresh", "Key": {"key": {"S": "lock/" + name}}})["Item"]
        return (int(stored["ends"]["N"]) - time.time()) / DAY_S
    for name, options, least in (("x", [], 30), ("long", ["--ttl", "90d"], 120), ("many", ["--shared"], 1100),
                                 ("kept", ["--hold-at-least", "2d"], 32)):
        owner, _ = acquire(t, name, *options)
        assert least - 0.1 < days(name) < least + 1, (name, days(name))
        t.env["STILE_OWNER"] = owner
        expect(t.stile("renew", name).returncode, 0)  # it knows no more of the lock than its name
        del t.env["STILE_OWNER"]
        assert 1099 < days(name) < 1101, (name, days(name))
    held = t.hold("y", "--ttl", "1s")
    first = days("y")
    spin(lambda: days("y") > first)
    t.release(held)


@with_proxy
def setup_without_rights(t, server, proxy):
    """what may not be called is named; where the TTL cannot be had, locks work all the same"""
    url = server.url("locks", "", proxy.port)
    for operation in "CreateTable", "DescribeTable", "UpdateTimeToLive":
        rule = proxy.rule(operation, DENY)
        done = t.stile("setup", url)
        assert done.returncode == 69 and "may not call " + operation in done.stderr, done
        assert not rule.left
    unknown = b'{"__type":"com.amazon.coral.service#UnknownOperationException"}'
    proxy.rule("UpdateTimeToLive", Answer(400, unknown))
    expect(t.stile("setup", url).returncode, 0)
    expect(t.stile("run", "x", "--", "true").returncode, 0)


@with_proxy
def missing_rights(t, _server, proxy):
    """each right on its own, and what still works without it"""
    expect(set(doctor(t)) & set(RIGHTS.values()), set())
    for operation, finding in RIGHTS.items():
        rule = proxy.rule(operation, DENY, 1000)
        found = doctor(t)
        expect({name for name in found if name.startswith("right-")}, {finding})
        expect(found[finding], "danger" if operation in ("GetItem", "UpdateItem") else "note")
        done = t.stile("run", "--try", "x", "--", "true")
        expect(done.returncode, 69 if operation == "UpdateItem" else 0, operation)
        assert operation != "UpdateItem" or "may not call UpdateItem: User: arn:aws" in done.stderr, done
        expect(t.stile("ls").returncode, 69 if operation == "Scan" else 0, operation)
        rule.left = 0
    for operation in RIGHTS:
        proxy.rule(operation, DENY, 1000)
    expect({name for name in doctor(t) if name.startswith("right-")}, set(RIGHTS.values()))
    proxy.rules.clear()


@with_proxy
def clock_is_off(t, _server, proxy):
    """a minute: a warning, in both directions; four: a danger; refused signatures: a finding, and the error says so"""
    for ahead_s, severity in (-100, "warning"), (100, "warning"), (-280, "danger"), (280, "danger"), (20, None):
        proxy.ahead_s = ahead_s
        expect(doctor(t).get("clock"), severity, ahead_s)
        expect(t.stile("run", "x", "--", "true").returncode, 0)
    for operation in RIGHTS:
        proxy.rule(operation, SKEWED, 1000)
    expect(doctor(t)["signature"], "danger")
    done = t.stile("run", "--try", "x", "--", "true")
    assert done.returncode == 69 and "Signature expired" in done.stderr and "stile doctor" in done.stderr, done
    proxy.rules.clear()


# ---- hostile answers ----

DEEP = b'{"Attributes":' * 5000
HOSTILE = [
    (200, b""), (200, b"{}"), (200, b"[]"), (200, b"null"), (200, b"0" * 100000), (200, DEEP), (200, b'"\x1b[2J"'),
    (200, b'{"Attributes":null,"Item":null,"Table":null}'),
    (200, b'{"Attributes":{"key":{"S":"lock/x"},"claims":{"M":[1,2]},"token":{"N":"-1"}},'
          b'"Item":{"key":{"S":"lock/x"},"claims":{"S":"none"}}}'),
    (200, b'{"Attributes":{"key":{"S":"lock/x"},"claims":{"M":{"a":{"M":{"t":{"N":"1e400"}}}}},'
          b'"token":{"N":"99999999999999999999999999999999999999"}}}'),
    (200, b'{"Item":{"key":{"S":"lock/x"},"claims":{"M":{' +
          b",".join(b'"%d":{"M":{}}' % i for i in range(20000)) + b'}}}}'),
    (200, b'{"Attributes":{"key":{"S":"' + b"x" * (5 << 20) + b'"}}}'),
    (400, b'{"__type":"com.amazonaws#\x1b[2JOdd\\u0007Exception","message":"\x1b]0;x\\u001b[31m"}'),
    (400, b'{"__type":7,"message":{}}'), (400, b'{"__type":"#","message":""}'), (400, b"<html>"), (418, b"{}"),
    (403, b'{"__type":"com.amazonaws#' + b"A" * 70000 + b'"}'), (204, b""), (502, b"<html>bad gateway"),
    (200, b'{"Items":[{"key":{"S":"lock/\\u001b[31m"},"claims":{"M":{"a":{"M":{}}}}},{"key":{"N":"7"}},7,null],'
          b'"LastEvaluatedKey":{"key":{"S":"lock/x"}}}'),
]


def check_words(done):
    assert done.returncode in (0, 69, 75, 76), done
    text = done.stdout + done.stderr
    assert all(letter >= " " or letter == "\n" for letter in text), repr(text)
    assert len(done.stderr) < 2000, done.stderr


@with_proxy
def hostile_answers(t, server, proxy):
    """each to each operation: the command ends with a status of its own, prints no control characters, and what
    the lock was before it is afterwards"""
    owner, token = acquire(t, "held", "--ttl", "1h")
    for status, body in HOSTILE:
        for operation, verb in (("UpdateItem", ["acquire", "--try", "--ttl", "900ms", "x"]), ("GetItem", ["show", "x"]),
                                ("Scan", ["ls"]), ("DescribeTable", ["ls"])):
            rule = proxy.rule(operation, Answer(status, body), 3)
            done = t.stile(*verb)
            check_words(done)
            assert not done.stdout or operation != "UpdateItem" or done.returncode == 0, done
            rule.left = 0
            if done.returncode == 0 and verb[0] == "acquire":
                expect(release(t, "x", acquired(done.stdout)[0]).returncode, 0, done)
    expect(list(claims(server, "held")), [owner])
    expect(int(item(server, "held")["token"]["N"]), token)
    acquire(t, "x", "--wait", "30s")


@with_proxy
def hostile_renewals(t, server, proxy):
    """a renewal is answered with every one of them in turn: the lock is kept, or its loss is announced in time"""
    held = t.hold("x", "--ttl", "3s")
    for status, body in HOSTILE:
        before = claims(server, "x")
        rule = proxy.rule("UpdateItem", Answer(status, body))
        rule.hit()
        spin(lambda seen=before: claims(server, "x") != seen)
    t.release(held)


# ---- the table goes away ----

@with_proxy
def table_deleted(t, server, _proxy):
    """under a holder and a waiter: the command is stopped in time, the waiter is refused; a new table grants larger
    tokens"""
    held = t.start("run", "--ttl", "2s", "x", "--", "sh", "-c", "echo $STILE_TOKEN; exec sleep 60")
    token = int(held.line())
    waiting = t.start("acquire", "--wait", "20s", "x")
    server.call("DeleteTable", {"TableName": "locks"})
    expect(held.wait(), 76)
    expect(waiting.wait(), 69)
    with contextlib.suppress(OSError):
        while True:
            call(server.port, "DescribeTable", {"TableName": "locks"})
    expect(t.stile("setup").returncode, 0)
    assert acquire(t, "x", "--try")[1] > token


@with_proxy
def long_and_short_leases(t, server, proxy):
    """two clients with different leases: each waits for the other's as long as that one's is"""
    acquire(t, "short", "--ttl", "1s")
    start = time.monotonic()
    acquire(t, "short", "--ttl", "60s", "--wait", "30s")
    assert 1 <= time.monotonic() - start < 20
    start = time.monotonic()
    expect(t.stile("acquire", "--ttl", "1s", "--wait", "3s", "short").returncode, 75)
    assert time.monotonic() - start >= 3


@with_proxy
def odd_names(t, server, _proxy):
    """512 bytes, bytes that are no UTF-8, percent signs: each its own lock, listed as it is"""
    names = ["n" * 512, os.fsdecode(b"\xff" * 512), "100%", "100%25", "%FF", os.fsdecode(b"\xff"), "a/b", "stile/tokens"]
    tokens = [acquire(t, name)[1] for name in names]
    expect(len(set(tokens)), len(names))
    for name in names:
        expect(t.stile("acquire", "--try", name).returncode, 75, name)
    listed = json.loads(t.stile("ls", "--json").stdout)
    expect({bytes.fromhex(entry["name_hex"]) if "name_hex" in entry else entry["name"].encode() for entry in listed},
           {os.fsencode(name) for name in names})


run_if_installed([verified_tls, redirected, unfit_tables, setup_enables_ttl, setup_without_rights, missing_rights,
                  clock_is_off, hostile_answers, hostile_renewals, table_deleted, long_and_short_leases, odd_names])
