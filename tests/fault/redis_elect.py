# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Leaders on Redis that are stopped past their TTL, and leaders that die."""
import json
import os
import signal

from redis_kit import expect, kill_at_once, on_server, run_tests

# Writes with its token when the test says so, and reports the exit code.
WRITER = """echo $$ $STILE_TOKEN; while read value <%s; do
printf $value | stile cell put --token $STILE_TOKEN data >&2; echo wrote $?; done"""


def lead(t, *options, fifo):
    os.mkfifo(t.path(fifo))
    running = t.start("elect", "--ttl", "1s", *options, "x", "--", "sh", "-c", WRITER % t.path(fifo))
    running.fifo = t.path(fifo)
    begun(running)
    return running


def begun(running):
    running.command, running.token = map(int, running.line().split())


def write(running, value):
    with open(running.fifo, "w", encoding="ascii") as file:
        print(value, file=file)
    return running.line()


def observe(t):
    running = t.start("leader", "--watch", "--json", "x")
    running.change = lambda: json.loads(running.line())
    return running


@on_server()
def paused_leader(t, server):
    """A leader stopped past its TTL: its late write is refused, its tree is stopped, it campaigns again"""
    first = lead(t, "--proclaim", "first", fifo="first")
    expect(write(first, "one"), "wrote 0")
    warden, command = first.warden(), first.command
    os.kill(warden, signal.SIGSTOP)
    os.kill(command, signal.SIGSTOP)
    second = lead(t, "--proclaim", "second", fifo="second")
    assert second.token > first.token
    expect(write(second, "two"), "wrote 0")
    os.kill(command, signal.SIGCONT)  # before its warden can stop it
    expect(write(first, "late"), "wrote 77")
    expect(t.stile("cell", "get", "data").stdout, "two")
    os.kill(warden, signal.SIGCONT)
    t.until(t.watch("x"), lambda change: len(change["waiters"]) == 1)
    assert not os.path.exists("/proc/%d" % command), "its tree lives on while another leads"
    leader = json.loads(t.stile("leader", "--json", "x").stdout)
    expect((leader["token"], leader["value"]), (second.token, "second"))
    second.kill(signal.SIGTERM)
    expect(second.wait(), -signal.SIGTERM)
    before = second.token
    begun(first)
    assert first.token > before
    expect(write(first, "three"), "wrote 0")
    first.kill(signal.SIGTERM)
    expect(first.wait(), -signal.SIGTERM)


@on_server()
def killed_leader(t, server):
    """A leader killed with -9 and nobody there: the watch reports that nobody leads, then the next one"""
    first = lead(t, "--proclaim", "first", fifo="first")
    watched = observe(t)
    t.until(watched, lambda change: change.get("value") == "first")
    kill_at_once(first)
    expect(watched.change()["leads"], False)
    second = lead(t, "--proclaim", "second", fifo="second")
    change = t.until(watched, lambda change: change.get("value") == "second")
    expect(change["token"], second.token)
    second.kill(signal.SIGTERM)
    second.wait()
    expect(t.until(watched, lambda change: not change["leads"])["leads"], False)


run_tests([paused_leader, killed_leader])
