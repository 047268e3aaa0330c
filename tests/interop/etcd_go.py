"""etcd's own Go client on the same names: concurrency.Mutex and Election, and the RWMutex of its
recipes. Each excludes the other, the line is kept across both, and nobody leaves a key behind."""
import contextlib
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
TESTS = HERE.parent
sys.path += [str(TESTS / "cli"), str(TESTS / "servers")]
from kit import Lines, PATIENCE, expect, run_tests  # noqa: E402
from etcd_server import EtcdServer, die_with_parent  # noqa: E402

PROGRAM = os.environ["STILE_GO_LOCKS"]
CONTEND = os.environ["CONTEND"]


class Go:
    """The driver of go/locks.go."""

    def __init__(self, server, ttl):
        self.process = subprocess.Popen([PROGRAM, server.hosts, str(ttl)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, preexec_fn=die_with_parent)
        self.out = Lines(self.process.stdout.fileno())

    def say(self, *words):
        self.process.stdin.write(" ".join(map(str, words)).encode() + b"\n")
        self.process.stdin.flush()

    def take(self, *words):
        self.say(*words)
        return self.came_in()

    def came_in(self):
        """Its key."""
        word, _, key = self.out.next().partition(" ")
        expect(word, "in")
        return key

    def free(self):
        self.say("free")
        expect(self.out.next(), "out")

    def end(self):
        """And its session with it."""
        self.process.stdin.close()
        expect(self.process.wait(PATIENCE), 0)


def on_server(url="etcd://%s"):
    def decorate(case):
        def with_server(t):
            with contextlib.ExitStack() as stack:
                server = stack.enter_context(EtcdServer())
                t.env["STILE_ENGINE"] = url % server.hosts
                t.env["STILE_MODULES"] = os.environ["STILE_MODULES"]

                def go(ttl=60):
                    other = Go(server, ttl)
                    stack.callback(other.process.stdout.close)
                    stack.callback(other.process.wait)
                    stack.callback(other.process.kill)
                    return other
                case(t, server, go)
        with_server.__name__, with_server.__doc__ = case.__name__, case.__doc__
        return with_server
    return decorate


def try_it(t, name, *options):
    return t.stile("run", "--try", *options, name, "--", "true").returncode


def in_line(t, name, n):
    t.until(t.watch(name), lambda change: len(change["waiters"]) == n)


def wait_for(t, name, *options):
    return t.start("run", *options, name, "--", "sh", "-c", "echo $STILE_TOKEN; cat",
                   stdin=subprocess.PIPE)


def leave(waiting):
    waiting.process.stdin.close()
    expect(waiting.wait(), 0)


def keys(server, prefix=""):
    found = server.ctl("get", "--prefix", "--keys-only", prefix).splitlines()
    return [key for key in found if key and "\0" not in key]


@on_server()
def a_mutex_keeps_us_out(t, server, go):
    """what a Mutex holds we don't get in any mode; then we do, with a greater token"""
    theirs = go()
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


@on_server()
def ours_keeps_a_mutex_out(t, server, go):
    """what we hold, in every mode, a Mutex waits for; and gets when we give it back"""
    theirs = go()
    for mode in [], ["--shared"], ["--slots", "2"]:
        held = t.hold("x", *mode)
        theirs.say("lock", "x")
        in_line(t, "x", 1)
        t.release(held)
        theirs.came_in()
        expect(try_it(t, "x"), 75)
        theirs.free()
        expect(keys(server), [])


@on_server()
def one_line_for_both(t, server, go):
    """ours, theirs, ours, theirs: served in the order in which they came"""
    held, first, third = t.hold("x"), go(), go()
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


@on_server()
def a_dead_mutex(t, server, go):
    """its holder killed with -9: ours when its lease ends; a waiter killed delays nobody for longer"""
    theirs, other = go(3), go(3)
    theirs.take("lock", "x")
    other.say("lock", "x")
    in_line(t, "x", 1)
    theirs.process.kill()
    other.process.kill()
    expect(t.stile("run", "--wait", "30s", "x", "--", "true").returncode, 0)
    expect(keys(server), [])


@on_server("etcd://%s?dialect=rwmutex")
def readers_share(t, server, go):
    """readers of both kinds hold together, a writer of either kind waits for all of them"""
    theirs, writer = go(), go()
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


@on_server("etcd://%s?dialect=rwmutex")
def writers_exclude(t, server, go):
    """what we write-lock no reader or writer of theirs gets, and they come in behind us in order"""
    reader, writer = go(), go()
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


@on_server()
def their_writer_and_our_readers(t, server, go):
    """without the dialect as well, a writer of theirs and our readers exclude each other"""
    theirs = go()
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


@on_server()
def elections(t, server, go):
    """an Election and ours have one leader at a time, who is seen by both with its value"""
    theirs, observer = go(), go()
    ours = t.hold("x", "--proclaim", "ours")
    observer.say("leader", "x")
    expect(observer.out.next(), "leads ours")
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
    observer.say("leader", "x")
    expect(observer.out.next(), "leads ours again")
    leave(waiting)
    expect(keys(server), [])


@on_server()
def all_at_once(t, server, go):
    """four of ours and two of theirs, time and again: never two holders, tokens grow, all are served"""
    ours = [subprocess.Popen([CONTEND, t.env["STILE_ENGINE"], "x", "100"], stdout=subprocess.PIPE,
                             text=True, env=t.env, preexec_fn=die_with_parent) for _ in range(4)]
    theirs = [go(), go()]
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
    grants = sorted(tuple(map(int, grant.split())) for grant in grants)
    expect(len(grants), 4 * 100 + 2 * 20)
    for one, other in zip(grants, grants[1:]):
        assert one[0] < other[0] and one[2] <= other[1], "two holders: %r %r" % (one, other)
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
               all_at_once])


main()
