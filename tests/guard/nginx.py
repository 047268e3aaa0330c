# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The guard for nginx keeps the rule: a smaller token is refused, an equal one passes, a larger one is
remembered at once and passes when requests with smaller ones have ended."""
import os
import signal
import socket
import struct
import sys

from nginx_kit import expect, finish_in_order, guarded, in_flight, spin, stop_at_rest
from tap import run_cases

TOKEN_MAX = 2**63 - 1
UNREAD = struct.pack("ii", 1, 0)  # SO_LINGER: close() resets the connection


# ---- the rule ----

@guarded()
def stale_tokens_are_refused(nginx, upstream):
    expect(nginx.status("accounts", 33), 200)
    expect(nginx.status("accounts", 33), 200)
    expect(nginx.status("accounts", 34), 200)
    stale = nginx.request("accounts", 33)
    expect((stale.status, stale.headers["Fencing-Highest"], stale.text),
           (412, "34", "stale token 33 for accounts: the highest seen is 34\n"))
    expect([token for what, token in upstream.events if what == "end"], ["33", "33", "34"])


@guarded(WAIT_MS="5000")
def tokens_are_compared_as_numbers(nginx, _):
    """As decimals of any length, and never as doubles, which cannot tell these apart."""
    for token in 9, 10, 99, 100, TOKEN_MAX - 2, TOKEN_MAX - 1, TOKEN_MAX:
        expect(nginx.status("accounts", token), 200)
        expect(nginx.status("accounts", token - 1), 412)
    expect(nginx.request("accounts", 2).headers["Fencing-Highest"], str(TOKEN_MAX))


@guarded()
def resources_are_independent(nginx, upstream):
    first, gate, _ = in_flight(nginx, upstream, "accounts", 33)
    expect(nginx.status("orders", 2), 200)
    expect(nginx.status("orders", 3), 200)
    expect(nginx.status("orders", 2), 412)
    gate.set()
    expect(first.end().status, 200)


@guarded()
def issuers_are_kept_apart(nginx, _):
    expect(nginx.status("accounts", 5), 200)
    expect(nginx.status("accounts", 6, "redis:a"), 200)
    for token in 5, 6, 7:
        foreign = nginx.request("accounts", token, "etcd:a")
        expect((foreign.status, foreign.headers["Fencing-Issuer"], foreign.text),
               (409, "redis:a", "token of etcd:a for accounts, whose tokens come from redis:a\n"))
    expect(nginx.status("accounts", 7), 200)  # without an issuer, only tokens are compared
    expect(nginx.status("accounts", 7, "redis:a"), 200)
    expect(nginx.status("accounts", 6, "redis:a"), 412)


@guarded()
def an_issuer_is_recorded_with_an_equal_token(nginx, _):
    expect(nginx.status("accounts", 5), 200)
    expect(nginx.status("accounts", 4, "etcd:a"), 412)
    expect(nginx.status("accounts", 5, "redis:a"), 200)
    expect(nginx.status("accounts", 5, "etcd:a"), 409)


@guarded()
def reading_raises(nginx, _):
    expect(nginx.status("accounts", 34, method="GET"), 200)
    expect(nginx.status("accounts", 33), 412)
    expect(nginx.status("accounts", 35, method="HEAD"), 200)
    expect(nginx.status("accounts", 34), 412)


# ---- waiting for requests in flight ----

@guarded(workers=1)
def a_larger_token_waits_in_one_worker(nginx, upstream):
    older, gate, _ = in_flight(nginx, upstream, "accounts", 33)
    newer = nginx.begin("accounts", 34)
    nginx.until_raised("accounts", 34)
    expect(nginx.status("accounts", 33), 412)  # although 34 still waits
    nginx.ping()
    expect(upstream.events, [("begin", "33")])
    finish_in_order(upstream, gate, older, newer)


@guarded()
def a_larger_token_waits_for_another_worker(nginx, upstream):
    older, gate, worker = in_flight(nginx, upstream, "accounts", 33)
    stop_at_rest(worker)  # so that the other one accepts the next connections
    newer = nginx.begin("accounts", 34)
    nginx.until_raised("accounts", 34)
    nginx.ping()
    expect(upstream.events, [("begin", "33")])
    os.kill(worker, signal.SIGCONT)
    finish_in_order(upstream, gate, older, newer)


@guarded()
def equal_tokens_run_at_the_same_time(nginx, upstream):
    first, gate, _ = in_flight(nginx, upstream, "accounts", 33)
    others = [in_flight(nginx, upstream, "accounts", 33)[0] for _ in range(5)]
    newer = nginx.begin("accounts", 34)
    nginx.until_raised("accounts", 34)
    gate.set()
    for running in [first, *others, newer]:
        expect(running.end().status, 200)
    expect(upstream.events[-2:], [("begin", "34"), ("end", "34")])


@guarded()
def a_waiting_request_can_become_stale(nginx, upstream):
    older, gate, _ = in_flight(nginx, upstream, "accounts", 33)
    waiting = nginx.begin("accounts", 34)
    nginx.until_raised("accounts", 34)
    newest = nginx.begin("accounts", 35)
    stale = waiting.end()
    expect((stale.status, stale.headers["Fencing-Highest"]), (412, "35"))
    finish_in_order(upstream, gate, older, newest)
    expect([token for _, token in upstream.events], ["33", "33", "35", "35"])


@guarded(WAIT_MS="1")
def waiting_ends_unpassed(nginx, upstream):
    older, gate, _ = in_flight(nginx, upstream, "accounts", 33)
    busy = nginx.request("accounts", 34)
    expect((busy.status, busy.headers["Retry-After"], busy.text),
           (503, "1", "not passed on: older requests for accounts are in flight\n"))
    expect(nginx.status("accounts", 33), 412)  # it is remembered all the same
    gate.set()
    expect(older.end().status, 200)
    spin(lambda: nginx.status("accounts", 34) == 200)
    expect(upstream.events[:3], [("begin", "33"), ("end", "33"), ("begin", "34")])


# ---- clients ----

def send_raw(nginx, token, body, length=None, reset=False):
    """A request whose client does not wait for the answer."""
    client = socket.create_connection(("127.0.0.1", nginx.port))
    if reset:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, UNREAD)
    client.sendall(("POST / HTTP/1.1\r\nHost: x\r\nFencing-Resource: accounts\r\nFencing-Token: %d\r\n"
                    "Content-Length: %d\r\n\r\n%s" % (token, length or len(body), body)).encode())
    return client


def client_leaves(nginx, upstream, reset):
    gate = upstream.gate("gate")
    client = send_raw(nginx, 33, "gate", reset=reset)
    upstream.await_arrival(33)
    client.close()
    newer = nginx.begin("accounts", 34)
    nginx.until_raised("accounts", 34)
    nginx.ping()
    expect(upstream.events, [("begin", "33")])
    gate.set()
    expect(newer.end().status, 200)
    expect(upstream.events, [("begin", "33"), ("end", "33"), ("begin", "34"), ("end", "34")])


@guarded()
def a_client_that_leaves_is_still_in_flight(nginx, upstream):
    client_leaves(nginx, upstream, reset=False)


@guarded()
def a_client_that_is_killed_is_still_in_flight(nginx, upstream):
    """Until the upstream has answered, and no longer: it need not settle."""
    client_leaves(nginx, upstream, reset=True)


@guarded(WAIT_MS="5000")
def a_client_that_stops_within_its_body_is_not_in_flight(nginx, upstream):
    client = send_raw(nginx, 33, "half", length=9)
    nginx.ping()
    expect(nginx.status("accounts", 34), 200)
    client.sendall(b"other")
    assert client.recv(4096).startswith(b"HTTP/1.1 412 ")
    client.close()
    expect([token for _, token in upstream.events], ["34", "34"])


# ---- headers ----

MALFORMED = [
    {"token": 1}, {"resource": "a"}, {"issuer": "redis:a"}, {"token": 1, "issuer": "redis:a"},
    *({"resource": "a", "token": token} for token in (
        0, -1, "01", "+1", "1.0", "1e3", "0x10", "1 2", "1,2", "", TOKEN_MAX + 1, 10**19, "9" * 600)),
    *({"resource": resource, "token": 1} for resource in ("", "%", "%4", "%zz", "%00", "a%0ab", "%7F", "a" * 513)),
    *({"resource": "a", "token": 1, "issuer": issuer} for issuer in ("", "%", "%01", "a" * 601)),
    {"resource": "a", "token": 1, "headers": [("Fencing-Token", 2)]},
    {"resource": "a", "token": 1, "headers": [("fencing-resource", "b")]},
    {"resource": "a", "token": 1, "issuer": "redis:a", "headers": [("Fencing-Issuer", "redis:b")]},
    {"resource": "a", "token": 1, "headers": [("X-%d" % i, "1") for i in range(100)]},
]


@guarded()
def malformed_requests_are_refused(nginx, upstream):
    for how in MALFORMED:
        answer = nginx.request(**how)
        assert answer.status == 400 and answer.text.count("\n") == 1, "%r: %r" % (how, answer)
    expect(upstream.events, [])


@guarded()
def names_are_percent_decoded(nginx, _):
    names = ["a" * 512, "a b", "caf\u00e9", "100%", "a/b?c=d"]
    for name in names:
        encoded = "".join("%%%02X" % byte for byte in name.encode())
        expect(nginx.status(encoded, 5), 200)
        expect(nginx.status(encoded, 4), 412)
    for name in "a b", "a/b?c=d", "caf\u00e9".encode():  # the same, as far as HTTP can say them
        expect(nginx.status(name, 4), 412)
    stale = nginx.request("100%25", 4)
    expect(stale.text, "stale token 4 for 100%25: the highest seen is 5\n")
    spin(lambda: {line[3] for line in nginx.journal()} == set(names))


@guarded()
def writes_need_a_token(nginx, upstream):
    expect(nginx.status(), 428)
    expect(nginx.status(method="DELETE"), 428)
    expect(nginx.status(method="GET"), 200)
    expect(upstream.events, [])


@guarded(REQUIRE="all")
def all_requests_can_need_a_token(nginx, _):
    expect(nginx.status(), 428)
    expect(nginx.status(method="GET"), 428)
    expect(nginx.status("accounts", 1, method="GET"), 200)


@guarded(REQUIRE="none")
def a_token_can_be_optional(nginx, _):
    expect(nginx.status(), 200)
    expect(nginx.status("accounts", 2), 200)
    expect(nginx.status("accounts", 1), 412)
    expect(nginx.status("accounts"), 400)


if __name__ == "__main__":
    sys.exit(run_cases([
        stale_tokens_are_refused,
        tokens_are_compared_as_numbers,
        resources_are_independent,
        issuers_are_kept_apart,
        an_issuer_is_recorded_with_an_equal_token,
        reading_raises,
        a_larger_token_waits_in_one_worker,
        a_larger_token_waits_for_another_worker,
        equal_tokens_run_at_the_same_time,
        a_waiting_request_can_become_stale,
        waiting_ends_unpassed,
        a_client_that_leaves_is_still_in_flight,
        a_client_that_is_killed_is_still_in_flight,
        a_client_that_stops_within_its_body_is_not_in_flight,
        malformed_requests_are_refused,
        names_are_percent_decoded,
        writes_need_a_token,
        all_requests_can_need_a_token,
        a_token_can_be_optional,
    ]))
