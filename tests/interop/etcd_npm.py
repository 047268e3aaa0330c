# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""etcd3 of npm on the same names. Its elections have the keys of concurrency.Election below "election/":
each excludes the other, the line is kept across both, one leader is seen by all, and nobody leaves a
key behind. Its Lock is one key, the name itself: with dialect=etcd3 each excludes the other."""
import os
import signal
import subprocess
import sys
import time

from etcd_kit import (HERE, PATIENCE, check, die_with_parent, expect, in_line, keys, leave, on_server,
                      read_grant, run_tests, try_it, wait_for)

PACKAGES = os.environ["STILE_NPM"]  # where tools/npm-clients has put them
CONTEND = os.environ["CONTEND"]
NAME = "election/x"
PLAIN = "etcd://%s?dialect=etcd3"


def node(server):
    return ["node", str(HERE / "npm" / "etcd3.js"), PACKAGES, server.hosts]


def waits(theirs, value="theirs"):
    theirs.say("campaign", "x", value)
    expect(theirs.out.next(), "waiting")


@on_server(node)
def theirs_keeps_us_out(t, server, start):
    """while theirs leads we get it in no mode; then we do, with a greater token"""
    theirs = start()
    expect(theirs.take("campaign", "x", "theirs"), keys(server)[0])
    for mode in [], ["--shared"], ["--slots", "3"]:
        expect(try_it(t, NAME, *mode), 75)
    shown = t.show(NAME)["holders"][0]
    expect(shown["proclaimed"], "theirs")
    waiting = wait_for(t, NAME)
    in_line(t, NAME, 1)
    theirs.free()
    assert int(waiting.line()) > shown["token"]
    leave(waiting)
    expect(keys(server), [])


@on_server(node)
def ours_keeps_them_out(t, server, start):
    """what we hold, in every mode, they wait for; and lead when we give it back"""
    theirs = start()
    for mode in [], ["--shared"], ["--slots", "2"]:
        held = t.hold(NAME, "--proclaim", "ours", *mode)
        expect(theirs.leader("x"), "2 ours" if "--slots" in mode else "ours")
        waits(theirs)
        t.release(held)
        theirs.came_in()
        expect(try_it(t, NAME), 75)
        expect(theirs.leader("x"), "theirs")
        theirs.free()
        expect(theirs.leader("x"), "nobody")
        expect(keys(server), [])


@on_server(node)
def one_line_for_both(t, server, start):
    """ours, theirs, ours, theirs: served in the order in which they came"""
    held, first, third = t.hold(NAME), start(), start()
    waits(first)
    second = wait_for(t, NAME)
    in_line(t, NAME, 2)
    waits(third)
    t.release(held)
    first.came_in()
    expect(len(t.show(NAME)["waiters"]), 2)
    first.free()
    second.line()
    expect(len(t.show(NAME)["waiters"]), 1)
    leave(second)
    third.came_in()
    third.free()
    expect(keys(server), [])


def taken(theirs, name="x"):
    theirs.say("lock", name)
    expect(theirs.out.next(), "taken")


@on_server(node, PLAIN)
def their_lock_keeps_us_out(t, server, start):
    """while their Lock has it we don't get it; a waiter gets it when they release it"""
    theirs = start()
    theirs.take("lock", "x")
    expect(try_it(t, "x"), 75)
    expect(keys(server), ["x"])
    waiting = wait_for(t, "x")
    in_line(t, "x", 1)
    shown = t.show("x")
    expect(len(shown["holders"]), 1)
    assert "x" in t.stile("ls").stdout
    theirs.free()
    assert int(waiting.line()) > 0
    taken(theirs)
    leave(waiting)
    expect(keys(server), [])


@on_server(node, PLAIN)
def ours_keeps_their_lock_out(t, server, start):
    """what we hold they don't get, though others of ours wait for it, until we give it back"""
    theirs, held = start(), t.hold("x")
    expect(len(t.show("x")["holders"]), 1)
    taken(theirs)
    waiting = wait_for(t, "x")
    in_line(t, "x", 1)
    t.release(held)
    waiting.line()
    taken(theirs)
    leave(waiting)
    theirs.take("lock", "x")
    theirs.free()
    expect(keys(server), [])


@on_server(node, PLAIN)
def names_as_they_stand(t, server, start):
    """also those that are escaped elsewhere; and a holder of x/y or x/cafe does not block x"""
    theirs, others = start(), start()
    for name in "x/read", "50%", "a b":
        held = t.hold(name)
        expect(server.ctl("get", "--keys-only", name).strip(), name)
        t.release(held)
    theirs.take("lock", "x/y")
    others.take("lock", "x/cafe")
    expect(try_it(t, "x"), 0)
    expect(try_it(t, "x/y"), 75)
    expect(try_it(t, "x/cafe"), 75)
    theirs.free()
    others.free()
    expect(keys(server), [])


@on_server(node, PLAIN)
def who_is_killed_leaves_nothing(t, server, start):
    """both keys go with the lease of a killed holder, and their Lock gets it"""
    theirs, held = start(), t.hold("x", "--ttl", "2s")
    watched = t.watch("x")
    t.until(watched, lambda change: change["holders"])
    held.kill(signal.SIGKILL)
    t.until(watched, lambda change: not change["holders"])
    expect(keys(server), [])
    theirs.take("lock", "x")


def clocks_apart():
    """What our programs' clock is ahead of node's, which stands still while the machine sleeps."""
    def once():
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - before
    return min(once() for _ in range(100))


@on_server(node, PLAIN)
def all_at_once(t, server, start):
    """three of ours and two of theirs, time and again: never two holders, tokens grow, all are served"""
    ours = [subprocess.Popen([CONTEND, t.env["STILE_ENGINE"], "x", "100"], stdout=subprocess.PIPE,
                             text=True, env=t.env, preexec_fn=die_with_parent) for _ in range(3)]
    theirs, grants, ahead = [start(), start()], [], clocks_apart()
    for one in theirs:
        one.say("contend", "x", 20)
    for one in theirs:
        while (line := one.out.next()) != "out":
            token, since, last, lost = read_grant(line)
            grants.append((token, since + ahead, last + ahead, lost))
    for one in ours:
        out, _ = one.communicate(timeout=PATIENCE)
        expect(one.returncode, 0)
        grants += map(read_grant, out.splitlines()[1:])
    expect(len(grants), 3 * 100 + 2 * 20)
    check(grants, with_token=False)
    check([grant for grant in grants if grant[0]])
    expect(keys(server), [])


@on_server(node, PLAIN)
def breaking(t, server, start):
    """what is broken is free for all, ours and theirs; and one key that is deleted by hand leaves none"""
    theirs, held = start(), t.hold("x")
    expect(t.stile("break", "x").returncode, 0)
    theirs.take("lock", "x")
    expect(t.stile("break", "x").returncode, 0)
    expect(try_it(t, "x"), 0)
    expect(keys(server), [])
    held.wait()
    held = t.hold("x")
    server.ctl("del", next(key for key in keys(server) if key != "x"))
    held.wait()
    expect(keys(server), [])


def main():
    if not os.path.isdir(os.path.join(PACKAGES, "node_modules", "etcd3")):
        why = "etcd3 of npm is not installed: tools/npm-clients BUILD"
        print("1..1\nnot ok 1 - %s" % why if os.environ.get("CI") else "1..0 # SKIP %s" % why)
        sys.exit(1 if os.environ.get("CI") else 0)
    run_tests([theirs_keeps_us_out, ours_keeps_them_out, one_line_for_both, their_lock_keeps_us_out,
               ours_keeps_their_lock_out, names_as_they_stand, who_is_killed_leaves_nothing,
               all_at_once, breaking])


main()
