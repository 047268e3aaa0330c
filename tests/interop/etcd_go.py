# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""etcd's own Go client on the same names: concurrency.Mutex and Election, and the RWMutex of its
recipes. Each excludes the other, the line is kept across both, and nobody leaves a key behind."""
import json
import os
import subprocess
import sys

from etcd_kit import (HERE, Lines, PATIENCE, TESTS, check, die_with_parent, expect, in_line, keys, leave,
                      on_server, read_grant, run_tests, try_it, wait_for)

PROGRAM = os.environ["STILE_GO_LOCKS"]
CONTEND = os.environ["CONTEND"]
PROCLAIM = os.environ["PROCLAIM"]
RWMUTEX = "etcd://%s?dialect=rwmutex"  # where exclusive locks of ours are; shared ones always are


def go(server, ttl=60):
    return [PROGRAM, server.hosts, str(ttl)]


@on_server(go)
def a_mutex_keeps_us_out(t, server, start):
    """what a Mutex holds we don't get in any mode; then we do, with a greater token"""
    theirs = start()
    expect(theirs.take("lock", "x"), keys(server)[0])
    for mode in [], ["--shared"], ["--slots", "3"]:
        expect(try_it(t, "x", *mode), 75)
    token = t.show("x")["holders"][0]["token"]
    waiting = wait_for(t, "x")
    in_line(t, "x", 1)
    theirs.free()
    assert int(waiting.line()) > token
    leave(waiting)
    expect(keys(server), [])


@on_server(go)
def ours_keeps_a_mutex_out(t, server, start):
    """what we hold, in every mode, a Mutex waits for; and gets when we give it back"""
    theirs = start()
    for mode in [], ["--shared"], ["--slots", "2"]:
        held = t.hold("x", *mode)
        theirs.say("lock", "x")
        in_line(t, "x", 1)
        t.release(held)
        theirs.came_in()
        expect(try_it(t, "x"), 75)
        theirs.free()
        expect(keys(server), [])


@on_server(go)
def one_line_for_both(t, server, start):
    """ours, theirs, ours, theirs: served in the order in which they came"""
    held, first, third = t.hold("x"), start(), start()
    first.say("lock", "x")
    in_line(t, "x", 1)
    second = wait_for(t, "x")
    in_line(t, "x", 2)
    third.say("lock", "x")
    in_line(t, "x", 3)
    t.release(held)
    first.came_in()
    expect(len(t.show("x")["waiters"]), 2)
    first.free()
    second.line()
    expect(len(t.show("x")["waiters"]), 1)
    leave(second)
    third.came_in()
    third.free()
    expect(keys(server), [])


@on_server(go)
def a_dead_mutex(t, server, start):
    """its holder killed with -9: ours when its lease ends; a waiter killed delays nobody for longer"""
    theirs, other = start(3), start(3)
    theirs.take("lock", "x")
    other.say("lock", "x")
    in_line(t, "x", 1)
    theirs.process.kill()
    other.process.kill()
    expect(t.stile("run", "--wait", "30s", "x", "--", "true").returncode, 0)
    expect(keys(server), [])


@on_server(go, RWMUTEX)
def readers_share(t, server, start):
    """readers of both kinds hold together, a writer of either kind waits for all of them"""
    theirs, writer = start(), start()
    ours = t.hold("x", "--shared")
    theirs.take("read", "x")
    expect(try_it(t, "x", "--shared"), 0)
    expect(try_it(t, "x"), 75)
    expect({key.rpartition("/")[0] for key in keys(server)}, {"x/read"})
    writer.say("write", "x")
    in_line(t, "x", 1)
    t.release(ours)
    expect(len(t.show("x")["waiters"]), 1)
    theirs.free()
    writer.came_in()
    expect(try_it(t, "x", "--shared"), 75)
    expect(try_it(t, "x"), 75)
    writer.free()
    expect(keys(server), [])


@on_server(go, RWMUTEX)
def writers_exclude(t, server, start):
    """what we write-lock no reader or writer of theirs gets, and they come in behind us in order"""
    reader, writer = start(), start()
    ours = t.hold("x")
    expect(keys(server)[0].rpartition("/")[0], "x/write")
    reader.say("read", "x")
    in_line(t, "x", 1)
    writer.say("write", "x")
    in_line(t, "x", 2)
    late = wait_for(t, "x", "--shared")
    in_line(t, "x", 3)
    t.release(ours)
    reader.came_in()
    expect(len(t.show("x")["waiters"]), 2)
    reader.free()
    writer.came_in()
    expect(len(t.show("x")["waiters"]), 1)
    writer.free()
    late.line()
    leave(late)
    expect(keys(server), [])


@on_server(go)
def their_writer_and_our_readers(t, server, start):
    """without the dialect as well, a writer of theirs and our readers exclude each other"""
    theirs = start()
    theirs.take("write", "x")
    expect(try_it(t, "x", "--shared"), 75)
    theirs.free()
    ours = t.hold("x", "--shared")
    theirs.say("write", "x")
    in_line(t, "x", 1)
    t.release(ours)
    theirs.came_in()
    theirs.free()
    expect(keys(server), [])


@on_server(go)
def elections(t, server, start):
    """an Election and ours have one leader at a time, which both see with its value"""
    theirs, observer = start(), start()
    ours = t.hold("x", "--proclaim", "ours")
    expect(observer.leader("x"), "ours")
    theirs.say("campaign", "x", "theirs")
    in_line(t, "x", 1)
    t.release(ours)
    expect(theirs.came_in(), keys(server)[0])
    expect(t.show("x")["holders"][0]["proclaimed"], "theirs")
    expect(try_it(t, "x"), 75)
    waiting = wait_for(t, "x", "--proclaim", "ours again")
    in_line(t, "x", 1)
    theirs.free()
    waiting.line()
    expect(observer.leader("x"), "ours again")
    leave(waiting)
    expect(keys(server), [])


@on_server(go)
def proclaimed_again(t, server, start):
    """a value that a leader changes is seen by the other side, on both; a late change creates no key"""
    theirs, observer = start(), start()
    watched = t.start("leader", "--watch", "--json", "x")
    expect(json.loads(watched.line())["leads"], False)
    theirs.take("campaign", "x", "one")
    expect(json.loads(watched.line())["value"], "one")
    theirs.say("proclaim", "two")
    expect(theirs.out.next(), "out")
    change = json.loads(watched.line())
    expect((change["leads"], change["value"]), (True, "two"))
    observer.say("observe", "x")
    expect(observer.out.next(), "leads two")
    ours = subprocess.Popen([PROCLAIM, t.env["STILE_ENGINE"], "x"], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, env=t.env, preexec_fn=die_with_parent)
    out = Lines(ours.stdout.fileno())
    in_line(t, "x", 1)
    theirs.free()
    expect(out.next(), "leads")
    expect(observer.out.next(), "leads 1")
    ours.stdin.write(b"2\n")
    ours.stdin.flush()
    expect(out.next(), "OK")
    expect(observer.out.next(), "leads 2")
    server.ctl("del", keys(server)[0])
    ours.stdin.write(b"3\n")
    ours.stdin.flush()
    expect(out.next(), "LOST")
    expect(keys(server), [])
    ours.stdin.close()
    expect(ours.wait(PATIENCE), 0)
    ours.stdout.close()


@on_server(go)
def all_at_once(t, server, start):
    """four of ours and two of theirs, time and again: never two holders, tokens grow, all are served"""
    ours = [subprocess.Popen([CONTEND, t.env["STILE_ENGINE"], "x", "100"], stdout=subprocess.PIPE,
                             text=True, env=t.env, preexec_fn=die_with_parent) for _ in range(4)]
    theirs = [start(), start()]
    for one in theirs:
        one.say("contend", "x", 20)
    grants = []
    for one in theirs:
        while (line := one.out.next()) != "out":
            grants.append(line)
        one.end()
    for one in ours:
        out, _ = one.communicate(timeout=PATIENCE)
        expect(one.returncode, 0)
        grants += out.splitlines()[1:]
    expect(len(grants), 4 * 100 + 2 * 20)
    check([read_grant(grant) for grant in grants])
    expect(keys(server), [])


def main():
    built = subprocess.run([str(TESTS.parent / "tools" / "go-build"), str(HERE / "go" / "locks.go"),
                            PROGRAM], check=False, capture_output=True, text=True)
    if built.returncode:
        print("1..1\nnot ok 1 - go/locks.go is not built: packages golang-go and "
              "golang-etcd-server-dev\n# %s" % built.stderr.replace("\n", "\n# "))
        sys.exit(1)
    run_tests([a_mutex_keeps_us_out, ours_keeps_a_mutex_out, one_line_for_both, a_dead_mutex,
               readers_share, writers_exclude, their_writer_and_our_readers, elections,
               proclaimed_again, all_at_once])


main()
