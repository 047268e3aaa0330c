# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The guard for nginx across reloads, killed workers, restarts, a full dictionary and an upstream that
does not answer: no token is forgotten, and no request is passed on beside an older one."""
import os
import shutil
import signal
import sys

from nginx_kit import Nginx, expect, finish_in_order, free_port, guarded, in_flight, spin
from tap import run_cases

SOON = {"WAIT_MS": "250"}  # what has to wait gets 503
BUSY = "not passed on: older requests for accounts are in flight\n"


def expect_busy(nginx, token):
    answer = nginx.request("accounts", token)
    expect((answer.status, answer.text), (503, BUSY))


# ---- reload ----

@guarded()
def a_reload_keeps_what_old_workers_have_in_flight(nginx, upstream):
    older, gate, _ = in_flight(nginx, upstream, "accounts", 33)
    nginx.reload()
    newer = nginx.begin("accounts", 34)
    nginx.until_raised("accounts", 34)
    nginx.ping()
    expect(upstream.events, [("begin", "33")])
    finish_in_order(upstream, gate, older, newer)


@guarded()
def a_reload_with_another_dictionary_waits_for_old_workers(nginx, upstream):
    """They cannot be seen in the new one."""
    older, gate, _ = in_flight(nginx, upstream, "accounts", 33)
    nginx.configure(MEMORY="2m")
    nginx.reload(ready=False)
    newer = nginx.begin("accounts", 34)
    spin(lambda: "waiting for the workers of an earlier nginx" in nginx.log)
    nginx.ping()
    expect(upstream.events, [("begin", "33")])
    finish_in_order(upstream, gate, older, newer)
    expect(nginx.status("accounts", 33), 412)


@guarded()
def lines_of_workers_are_given_back(nginx, _):
    for _ in range(3):
        nginx.reload()
        spin(lambda: len(nginx.worker_pids()) == 2 and len(nginx.joined()) == 2)
    expect(os.path.getsize(os.path.join(nginx.state, "workers")) <= 4 * 44, True)


# ---- a worker that is killed ----

@guarded(**SOON)
def requests_of_a_killed_worker_stay_in_flight(nginx, upstream):
    expect(nginx.status("orders", 1), 200)
    upstream.await_arrival(1)
    _, _, worker = in_flight(nginx, upstream, "accounts", 33)
    os.kill(worker, signal.SIGKILL)
    nginx.await_successor(worker)
    expect_busy(nginx, 34)
    expect_busy(nginx, 34)
    expect(nginx.status("accounts", 33), 412)
    expect(nginx.status("orders", 2), 200)  # it had nothing of this resource
    expect([token for _, token in upstream.events], ["1", "1", "33", "2", "2"])


@guarded(**SOON)
def a_killed_worker_does_not_keep_its_holder_out(nginx, upstream):
    _, _, worker = in_flight(nginx, upstream, "accounts", 33)
    os.kill(worker, signal.SIGKILL)
    nginx.await_successor(worker)
    expect(nginx.status("accounts", 33), 200)


@guarded(SETTLE_MS="100")
def a_killed_worker_does_not_block_for_ever(nginx, upstream):
    _, _, worker = in_flight(nginx, upstream, "accounts", 33)
    os.kill(worker, signal.SIGKILL)
    expect(nginx.status("accounts", 34), 200)
    spin(lambda: len(nginx.joined()) == 2)  # its line is given back


# ---- restart ----

@guarded()
def a_restart_forgets_nothing(nginx, _):
    names = ["accounts", "a b", "caf%C3%A9"]
    for name in names:
        expect(nginx.status(name, 33, "redis:a"), 200)
        expect(nginx.status(name, 34), 200)
    nginx.kill(signal.SIGQUIT)
    nginx.restart()
    for name in names:
        expect(nginx.status(name, 33), 412)
        expect(nginx.status(name, 35, "etcd:a"), 409)
        expect(nginx.status(name, 34, "redis:a"), 200)
        expect(nginx.status(name, 35, "redis:a"), 200)  # at once: nothing was in flight


@guarded(**SOON)
def a_crash_forgets_nothing(nginx, upstream):
    """What was in flight is unknown afterwards. It had the highest token or none."""
    expect(nginx.status("orders", 5), 200)
    upstream.await_arrival(5)
    in_flight(nginx, upstream, "accounts", 33)
    nginx.kill()
    nginx.restart()
    expect(nginx.status("accounts", 32), 412)
    expect(nginx.status("accounts", 33), 200)
    expect_busy(nginx, 34)
    expect(nginx.status("accounts", 33), 412)
    expect(nginx.status("orders", 6), 503)
    expect(nginx.status("orders", 5), 412)
    expect(nginx.status("new", 1), 200)


@guarded(**SOON)
def a_crash_while_a_larger_token_waits(nginx, upstream):
    """The larger one is remembered, and the smaller one may still be at work."""
    in_flight(nginx, upstream, "accounts", 33)
    expect_busy(nginx, 34)
    nginx.kill()
    nginx.restart()
    expect_busy(nginx, 34)
    expect(nginx.status("accounts", 33), 412)
    nginx.kill()
    nginx.restart()  # and still
    expect_busy(nginx, 34)


@guarded(SETTLE_MS="100")
def a_crash_does_not_block_for_ever(nginx, upstream):
    in_flight(nginx, upstream, "accounts", 33)
    nginx.kill()
    nginx.restart()
    expect(nginx.status("accounts", 34), 200)
    spin(lambda: len(nginx.joined()) == 2)


@guarded()
def a_second_nginx_waits_for_the_first(nginx, upstream):
    second = Nginx(upstream.port, start=False, WAIT_MS="1")
    with second:
        second.configure(STATE=nginx.state)
        second.process = second.spawn()
        spin(lambda: "waiting for the workers of an earlier nginx" in second.log)
        answer = second.request("accounts", 33)
        expect((answer.status, answer.text), (503, "the guard is not ready; see nginx's error log\n"))
        expect(nginx.status("accounts", 34), 200)
        nginx.kill(signal.SIGQUIT)
        spin(lambda: second.status("accounts", 33) == 412)


# ---- the journal ----

@guarded()
def an_unfinished_line_is_left_out(nginx, _):
    expect(nginx.status("accounts", 33), 200)
    path = os.path.join(nginx.state, "journal")
    with open(path, "a", encoding="ascii") as file:
        file.write("\n99\tw\t\taccounts\t1234567")  # of a worker that was killed
    expect(nginx.status("accounts", 34), 200)
    nginx.kill()
    nginx.restart()
    expect(nginx.request("accounts", 33).headers["Fencing-Highest"], "34")
    assert "1 unfinished lines" in nginx.log, nginx.log


@guarded()
def a_damaged_line_is_not_left_out(nginx, _):
    expect(nginx.status("accounts", 33), 200)
    path = os.path.join(nginx.state, "journal")
    with open(path, encoding="ascii") as file:
        whole = file.read()
    nginx.configure(WAIT_MS="250")
    for damaged in whole.replace("33", "31"), whole.replace("33", "x3"), whole[:-1] + "!", "\nrubbish":
        nginx.kill(signal.SIGQUIT)
        with open(path, "w", encoding="ascii") as file:
            file.write(damaged)
        said = nginx.log.count("damaged line")
        nginx.process = nginx.spawn()
        spin(lambda: nginx.log.count("damaged line") > said)
        expect(nginx.status("accounts", 32), 503)
    # In one step: a worker that reads an empty journal has forgotten all tokens.
    with open(path + ".whole", "w", encoding="ascii") as file:
        file.write(whole)
    shutil.copystat(path, path + ".whole")
    os.chown(path + ".whole", os.stat(path).st_uid, os.stat(path).st_gid)
    os.replace(path + ".whole", path)
    spin(lambda: nginx.status("accounts", 32) == 412)


@guarded()
def the_journal_is_compacted(nginx, _):
    path = os.path.join(nginx.state, "journal")
    expect(nginx.status("accounts", 33, "redis:a"), 200)
    expect(nginx.status("orders", 7), 200)
    with open(path, "a", encoding="ascii") as file:
        file.write("\n" * 2**20)
    expect(nginx.status("accounts", 34), 200)
    expect(os.path.getsize(path) < 1000, True)
    nginx.kill()
    nginx.restart()
    expect(nginx.request("accounts", 1).headers["Fencing-Highest"], "34")
    expect(nginx.status("accounts", 35, "etcd:a"), 409)
    expect(nginx.request("orders", 1).headers["Fencing-Highest"], "7")


@guarded()
def nothing_passes_that_is_not_written(nginx, upstream):
    expect(nginx.status("accounts", 33), 200)
    os.unlink(os.path.join(nginx.state, "journal"))
    os.chmod(nginx.state, 0o500)
    expect(nginx.status("accounts", 33), 200)  # it needs no line
    expect(nginx.status("accounts", 34), 503)
    expect(nginx.status("accounts", 33, "redis:a"), 503)
    expect(nginx.status("orders", 1), 503)
    expect(nginx.status("accounts", 33, "etcd:a"), 503)  # nor was the other issuer remembered
    os.chmod(nginx.state, 0o700)
    expect(nginx.status("accounts", 34, "etcd:a"), 200)
    expect([token for what, token in upstream.events if what == "end"], ["33", "33", "34"])


@guarded()
def an_operator_can_reset(nginx, upstream):
    expect(nginx.status("accounts", 33, "redis:a"), 200)
    expect(nginx.status("orders", 5), 200)
    older, gate, _ = in_flight_after(upstream, nginx)
    with open(os.path.join(nginx.state, "reset"), "w", encoding="ascii") as file:
        file.write("7\tetcd:a\taccounts\nnonsense\n0\t\torders\n")
    nginx.reload()
    assert "not TOKEN<tab>ISSUER<tab>RESOURCE" in nginx.log, nginx.log
    expect(nginx.status("accounts", 8, "redis:a"), 409)
    expect(nginx.status("accounts", 6, "etcd:a"), 412)
    expect(nginx.status("orders", 1, "zk:a"), 200)
    newer = nginx.begin("accounts", 8, "etcd:a")
    spin(lambda: nginx.request("accounts", 1).headers["Fencing-Highest"] == "8")
    finish_in_order(upstream, gate, older, newer)
    nginx.kill(signal.SIGQUIT)
    nginx.restart()
    expect(nginx.status("accounts", 8, "redis:a"), 409)
    expect(nginx.status("accounts", 7, "etcd:a"), 412)
    expect(os.path.exists(os.path.join(nginx.state, "reset")), False)


def in_flight_after(upstream, nginx):
    """One more of accounts, after others."""
    while not upstream.arrived.empty():
        upstream.arrived.get()
    return in_flight(nginx, upstream, "accounts", 34)


# ---- memory ----

@guarded(MEMORY="64k")
def a_full_dictionary_forgets_nothing(nginx, upstream):
    known = []
    while nginx.status("resource-%d" % len(known), 5) == 200:
        known.append("resource-%d" % len(known))
        assert len(known) < 1000
    refused = nginx.request("one-more", 5)
    expect((refused.status, refused.text),
           (503, "the guard's memory is full; enlarge lua_shared_dict\n"))
    for name in known:
        expect(nginx.status(name, 4), 412)
        expect(nginx.status(name, 6), 200)  # those that are known go on
        expect(nginx.status(name, 5), 412)
    nginx.kill(signal.SIGQUIT)
    nginx.restart()
    expect({nginx.status(name, 5) for name in known}, {412})
    expect("one-more" in {line[3] for line in nginx.journal()}, False)
    expect(len(known) > 50, True)


# ---- the upstream ----

@guarded(location="proxy_read_timeout 50ms;", **SOON)
def an_upstream_that_times_out_may_still_be_at_work(nginx, upstream):
    late, gate, _ = in_flight(nginx, upstream, "accounts", 33)
    expect(late.end().status, 504)
    expect(nginx.status("accounts", 33), 200)  # its own holder may go on
    expect_busy(nginx, 34)
    expect(nginx.status("orders", 1), 200)
    nginx.reload()  # the old worker ends, and what it has left behind stays
    expect_busy(nginx, 34)
    gate.set()


@guarded(location="proxy_read_timeout 50ms;", SETTLE_MS="100")
def an_upstream_that_times_out_does_not_block_for_ever(nginx, upstream):
    late, gate, _ = in_flight(nginx, upstream, "accounts", 33)
    expect(late.end().status, 504)
    expect(nginx.status("accounts", 34), 200)
    gate.set()


@guarded(**SOON)
def an_answer_that_breaks_off_may_still_be_at_work(nginx, upstream):
    upstream.answers["broken"] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
    broken = nginx.begin("accounts", 33, body="broken")
    broken.join()
    expect(str(broken.problem), "IncompleteRead(5 bytes read)")
    expect_busy(nginx, 34)


@guarded()
def answers_of_every_kind_come_to_an_end(nginx, upstream):
    upstream.answers.update({
        "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "until-close": b"HTTP/1.0 200 OK\r\n\r\nhello",
        "empty": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "no-content": b"HTTP/1.1 204 No Content\r\n\r\n",
        "not-modified": b"HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\n\r\n",
        "failed": b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 5\r\n\r\nsorry",
        "large": b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1000000,
    })
    for token, body in enumerate(list(upstream.answers), 33):
        assert nginx.status("accounts", token, body=body) in (200, 204, 304, 500), body
    expect(nginx.status("accounts", 99, method="HEAD"), 200)
    expect(nginx.status("accounts", 100), 200)


@guarded(SETTLE_MS="100")
def an_internal_redirect_is_the_same_request(nginx, upstream):
    upstream.answers["redirected"] = (b"HTTP/1.1 200 OK\r\nX-Accel-Redirect: /elsewhere\r\n"
                                      b"Content-Length: 0\r\n\r\n")
    expect(nginx.status("accounts", 33, body="redirected"), 200)
    expect(nginx.status("accounts", 34), 200)
    expect([token for what, token in upstream.events if what == "end"], ["33", "33", "34"])


@guarded()
def a_journal_that_cannot_be_read_is_not_taken_for_empty(nginx, _):
    expect(nginx.status("accounts", 33), 200)
    nginx.kill(signal.SIGQUIT)
    path = os.path.join(nginx.state, "journal")
    os.rename(path, path + ".kept")
    os.mkdir(path)
    nginx.configure(WAIT_MS="250")
    nginx.process = nginx.spawn()
    spin(lambda: "stile guard: " in nginx.log)
    expect(nginx.status("accounts", 32), 503)
    os.rmdir(path)
    os.rename(path + ".kept", path)
    spin(lambda: nginx.status("accounts", 32) == 412)


@guarded()
def what_was_never_sent_is_not_in_flight(nginx, _):
    nginx.configure(UPSTREAM="http://127.0.0.1:%d" % free_port())
    nginx.reload()
    spin(lambda: len(nginx.worker_pids()) == 2)
    expect(nginx.status("accounts", 33), 502)
    expect(nginx.status("accounts", 34), 502)


if __name__ == "__main__":
    sys.exit(run_cases([
        a_reload_keeps_what_old_workers_have_in_flight,
        a_reload_with_another_dictionary_waits_for_old_workers,
        lines_of_workers_are_given_back,
        requests_of_a_killed_worker_stay_in_flight,
        a_killed_worker_does_not_keep_its_holder_out,
        a_killed_worker_does_not_block_for_ever,
        a_restart_forgets_nothing,
        a_crash_forgets_nothing,
        a_crash_while_a_larger_token_waits,
        a_crash_does_not_block_for_ever,
        a_second_nginx_waits_for_the_first,
        an_unfinished_line_is_left_out,
        a_damaged_line_is_not_left_out,
        the_journal_is_compacted,
        nothing_passes_that_is_not_written,
        an_operator_can_reset,
        a_full_dictionary_forgets_nothing,
        an_upstream_that_times_out_may_still_be_at_work,
        an_upstream_that_times_out_does_not_block_for_ever,
        an_answer_that_breaks_off_may_still_be_at_work,
        answers_of_every_kind_come_to_an_end,
        an_internal_redirect_is_the_same_request,
        a_journal_that_cannot_be_read_is_not_taken_for_empty,
        what_was_never_sent_is_not_in_flight,
    ]))
