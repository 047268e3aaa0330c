"""etcd3 of npm on the same names. Its elections have the keys of concurrency.Election below "election/":
each excludes the other, the line is kept across both, one leader is seen by all, and nobody leaves a
key behind."""
import os
import sys

from etcd_kit import (HERE, expect, in_line, keys, leave, on_server, run_tests, try_it, wait_for)

PACKAGES = os.environ["STILE_NPM"]  # where tools/npm-clients has put them
NAME = "election/x"


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


def main():
    if not os.path.isdir(os.path.join(PACKAGES, "node_modules", "etcd3")):
        why = "etcd3 of npm is not installed: tools/npm-clients BUILD"
        print("1..1\nnot ok 1 - %s" % why if os.environ.get("CI") else "1..0 # SKIP %s" % why)
        sys.exit(1 if os.environ.get("CI") else 0)
    run_tests([theirs_keeps_us_out, ours_keeps_them_out, one_line_for_both])


main()
