# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""DynamoDB in trouble: throttled, failing, silent in the middle, answering nonsense; items deleted by
hand."""
import os
import pathlib
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from dynamodb_kit import TESTS, acquire, claims, expect, item, release, run_if_installed, with_proxy  # noqa: E402,I001
from dynamodb_proxy import (CUT_REPLY, FAIL, FAIL_AFTER, FOREIGN, GARBAGE, LATE, LOSE_REPLY,  # noqa: E402
                            LOSE_REQUEST, THROTTLE, Answer)
from kit import STILE, acquired  # noqa: E402

IN_DOUBT = [LOSE_REPLY, CUT_REPLY, FAIL_AFTER, FOREIGN]
HARMLESS = [THROTTLE, FAIL, LOSE_REQUEST, GARBAGE]
AGAIN = 3  # how often in a row


@with_proxy
def trouble_is_waited_out(t, server, proxy):
    """throttled, 5xx, cut, nonsense: acquire, renew and release succeed a moment later, once each"""
    for i, action in enumerate(HARMLESS + IN_DOUBT):
        name = "trouble%d" % i
        rule = proxy.rule("UpdateItem", action, 1 if action in (FOREIGN, GARBAGE) else AGAIN)
        if action == FOREIGN:  # withdrawn, and asked for again: so it has to wait
            owner, token = acquire(t, name, "--wait", "30s")
        else:
            owner, token = acquire(t, name)
        rule.hit()
        expect(len(claims(server, name)), 1, action)
        expect(list(claims(server, name)), [owner], action)
        if action != FOREIGN:
            proxy.rule("UpdateItem", action, 1, containing="REMOVE #c.#me")
        done = release(t, name, owner)
        expect((done.returncode, done.stderr), (0, ""), action)
        expect(claims(server, name), {}, action)
        after, larger = acquire(t, name)
        assert larger > token, (action, larger, token)
        release(t, name, after)


@with_proxy
def writes_in_conflict(t, _server, proxy):
    """another program's transaction, or another region, has the item: a claim, a release and a put are repeated"""
    for kind in "TransactionConflictException", "ReplicatedWriteConflictException":
        def conflict(containing="", answer=Answer(400, b'{"__type":"com.amazonaws#%s"}' % kind.encode())):
            return proxy.rule("UpdateItem", answer, AGAIN, containing)
        rules = [conflict("SET #c = :c"), conflict("REMOVE #c.#me")]
        owner, _ = acquire(t, kind, "--try")
        expect(release(t, kind, owner).returncode, 0)
        rules.append(conflict("#l = :l"))
        expect(t.stile("cell", "put", kind).returncode, 0)
        expect([rule.left for rule in rules], [0, 0, 0])


@with_proxy
def late_claim_is_not_granted(t, server, proxy):
    """a try without an answer is withdrawn: its requests that arrive later are not granted"""
    proxy.rule("UpdateItem", LATE, 1000, containing="SET #c = :c")
    done = t.stile("acquire", "--try", "--ttl", "1s", "x")
    assert done.returncode == 69, done
    proxy.rules.clear()
    assert len(proxy.late) > 0
    for status, answer in proxy.let_go():
        assert status == 400 and b"ConditionalCheckFailed" in answer, answer
    expect(claims(server, "x"), {})
    acquire(t, "x", "--try")


@with_proxy
def late_repetition_is_not_granted(t, server, proxy):
    """one attempt was granted, and its twin arrives after the release"""
    proxy.rule("UpdateItem", LATE, 1, containing="SET #c = :c")
    held = t.hold("x")
    t.release(held)
    for status, answer in proxy.let_go():
        assert status == 400 and b"ConditionalCheckFailed" in answer, answer
    expect(claims(server, "x"), {})


@with_proxy
def dead_holder_and_tries(t, server, proxy):
    """a try sees a claim once: it takes over a minute after the lease by the service's clock, not before"""
    acquire(t, "x", "--ttl", "1s")
    expect(t.stile("acquire", "--try", "x").returncode, 75)
    proxy.ahead_s = 55
    expect(t.stile("acquire", "--try", "x").returncode, 75)
    proxy.ahead_s = 120
    acquire(t, "x", "--try")


@with_proxy
def renewing_holder_is_waited_for(t, _server, _proxy):
    """a waiter outlasts the lease of a holder that renews it, and does not get the lock"""
    held = t.hold("x", "--ttl", "3s")
    expect(t.stile("acquire", "--wait", "6s", "x").returncode, 75)
    t.release(held)


@with_proxy
def throttled_holder_keeps_its_lock(t, server, proxy):
    """renewals are refused for a second of a lease of three: the lock is not lost"""
    held = t.hold("x", "--ttl", "3s")
    rule = proxy.rule("UpdateItem", THROTTLE, 4)
    rule.hit()
    before = claims(server, "x")
    until = time.monotonic() + 30
    while claims(server, "x") == before and time.monotonic() < until:
        time.sleep(0.02)
    assert claims(server, "x") != before
    t.release(held)


@with_proxy
def holder_without_answers_stops_in_time(t, _server, proxy):
    """nothing is answered any longer: the command is stopped before its lease is over"""
    held = t.start("run", "--ttl", "2s", "x", "--", "sh", "-c", "echo in; exec sleep 60")
    expect(held.line(), "in")
    proxy.rule("UpdateItem", LOSE_REQUEST, 1000)
    proxy.rule("GetItem", LOSE_REQUEST, 1000)
    expect(held.wait(), 76)
    proxy.rules.clear()


@with_proxy
def example_of_a_guard(t, server, _proxy):
    """examples/fenced-dynamodb.sh: an item of the user's own refuses the late writer"""
    done = subprocess.run([str(TESTS.parent / "examples" / "fenced-dynamodb.sh"), t.env["STILE_ENGINE"]],
                          env={**t.env, "PATH": os.path.dirname(STILE) + ":" + t.env["PATH"]},
                          capture_output=True, text=True, check=False)
    expect((done.returncode, done.stdout), (0, "the late write was refused\n"), done.stderr)
    balance = server.call("GetItem", {"TableName": "locks", "Key": {"key": {"S": "app/balance"}}})["Item"]
    expect((balance["balance"]["N"], balance["fence"]["N"]), ("70", item(server, "balance")["token"]["N"]))


# ---- tokens ----

COUNTER = {"TableName": "locks", "Key": {"key": {"S": "stile/tokens"}}}
COUNTING, SEALING = "if_not_exists(#t", "#u = :u"
OF_ANOTHER = Answer(200, b'{"Attributes":{"key":{"S":"lock/other"},"token":{"N":"99000"},"for":{"S":"other"}}}')


def delete(server, name):
    server.call("DeleteItem", {"TableName": "locks", "Key": {"key": {"S": "lock/" + name}}})


def grow(tokens):
    assert tokens == sorted(set(tokens)), tokens


@with_proxy
def deleted_item(t, server, proxy):
    """an item deleted by hand, free or held, never takes its token back; its holder hears of it"""
    tokens = []
    for _ in range(3):
        owner, token = acquire(t, "x")
        tokens.append(token)
        expect(release(t, "x", owner).returncode, 0)
        tokens.append(acquire(t, "y")[1])
        delete(server, "x")
        delete(server, "y")
    grow(tokens)
    held = t.start("run", "--ttl", "2s", "x", "--", "sh", "-c", "echo $STILE_TOKEN; exec sleep 60")
    tokens.append(int(held.line()))
    delete(server, "x")
    tokens.append(acquire(t, "x", "--try")[1])
    expect(held.wait(), 76)
    server.call("DeleteItem", COUNTER)  # the whole table is emptied
    proxy.ahead_s = 2
    delete(server, "x")
    tokens.append(acquire(t, "x", "--try")[1])
    grow(tokens)


@with_proxy
def deleted_under_many(t, server, proxy):
    """readers and slots whose item is deleted: each of the next ones has a larger token of its own"""
    for mode in ["--shared"], ["--slots", "3"]:
        name = mode[0].strip("-")
        first = [acquire(t, name, *mode)[1] for _ in range(3)]
        delete(server, name)
        counted = proxy.rule("UpdateItem", LATE, 1, containing=SEALING)  # the first one's: it asks again
        slow = t.start("acquire", *mode, name)
        counted.hit()
        second = [acquire(t, name, *mode)[1] for _ in range(2)]  # they join an item without tokens
        expect(slow.wait(), 0)
        for status, answer in proxy.let_go():
            assert status == 400 and b"ConditionalCheckFailed" in answer, answer
        proxy.late.clear()
        grow(first)
        grow(second)
        assert max(first) < min(second)
        stored = [int(claim["M"]["k"]["N"]) for claim in claims(server, name).values()]
        expect(len(set(stored)), 3, stored)
        assert min(stored) > max(first) and set(second) < set(stored), (stored, first, second)


@with_proxy
def deleted_all_the_time(t, server, _proxy):
    """three clients and an operator that deletes whatever is granted: a grant that began after another had ended
    has the larger token"""
    grants, failures = [], []

    def work():
        for _ in range(10):
            began = time.monotonic()
            done = subprocess.run([STILE, "acquire", "--wait", "60s", "x"], env=t.env, capture_output=True, text=True,
                                  check=False)
            if done.returncode:
                failures.append(done.stderr)
                return
            grants.append((began, time.monotonic(), int(acquired(done.stdout)[1])))
            delete(server, "x")
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect((failures, len(grants)), ([], 30))
    expect(len({token for _, _, token in grants}), 30)
    for _, ended, token in grants:
        assert all(later > token for began, _, later in grants if began > ended), sorted(grants)


@with_proxy
def late_block(t, server, proxy):
    """a block of tokens that was counted long ago arrives at an item made since: it is refused"""
    proxy.rule("UpdateItem", LATE, 1000, containing=SEALING)
    done = t.stile("acquire", "--try", "--ttl", "1s", "x")
    expect(done.returncode, 69, done.stderr)
    proxy.rules.clear()
    delete(server, "x")
    owner, token = acquire(t, "x")
    assert proxy.late
    for status, answer in proxy.let_go():
        assert status == 400 and b"ConditionalCheckFailed" in answer, answer
    expect(list(claims(server, "x")), [owner])
    expect(int(item(server, "x")["token"]["N"]), token)


@with_proxy
def used_up_block(t, server, _proxy):
    """the last token of a block, and the first of the next, in one item and with readers"""
    owner, token = acquire(t, "x")
    release(t, "x", owner)
    until = int(item(server, "x")["until"]["N"])
    expect(until, token + 2 ** 10 - 1)
    for mode in [], ["--shared"]:
        acquired_before = acquire(t, "other")[1] if not mode else until
        server.call("UpdateItem", {"TableName": "locks", "Key": {"key": {"S": "lock/x"}},
                                   "UpdateExpression": "SET #t = #u - :1",
                                   "ExpressionAttributeNames": {"#t": "token", "#u": "until"},
                                   "ExpressionAttributeValues": {":1": {"N": "1"}}})
        until = int(item(server, "x")["until"]["N"])
        owners, tokens = zip(*[acquire(t, "x", *mode) for _ in range(3 if mode else 1)])
        for owner in owners:
            release(t, "x", owner)
        if not mode:
            owner, last = acquire(t, "x")
            tokens += last,
            release(t, "x", owner)
        expect(tokens[0], until)
        grow(list(tokens))
        assert tokens[1] > acquired_before


@with_proxy
def trouble_while_counting(t, server, proxy):
    """the counter, or the write that stores its token, is throttled, cut or answered with another's answer"""
    tokens = []
    for which in COUNTING, SEALING:
        for action in [*HARMLESS, *IN_DOUBT, OF_ANOTHER]:
            rule = proxy.rule("UpdateItem", action, 1, containing=which)
            owner, token = acquire(t, "x", "--wait", "30s")
            rule.hit()
            expect(int(item(server, "x")["token"]["N"]), token, str(action))
            expect(list(claims(server, "x")), [owner], str(action))
            expect(release(t, "x", owner).returncode, 0, str(action))
            tokens.append(token)
            delete(server, "x")
    grow(tokens)


run_if_installed([trouble_is_waited_out, writes_in_conflict, late_claim_is_not_granted, late_repetition_is_not_granted,
                  dead_holder_and_tries, renewing_holder_is_waited_for, throttled_holder_keeps_its_lock,
                  holder_without_answers_stops_in_time, example_of_a_guard, deleted_item, deleted_under_many,
                  deleted_all_the_time, late_block, used_up_block, trouble_while_counting])
