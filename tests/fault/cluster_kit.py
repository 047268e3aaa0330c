# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What tests on real clusters of consensus servers share, whichever engine it is.

A Cluster has three servers, which the tests of a file break and mend one after the other.
"""
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(TESTS / "cli"), str(TESTS / "servers")]
from forward import Forward  # noqa: E402
from grants import check, read_grant  # noqa: E402
from kit import PATIENCE, Running, expect, spin  # noqa: E402
from wire import Wire  # noqa: E402

SOAK = bool(os.environ.get("STILE_SOAK"))
CROWD_PATIENCE = PATIENCE * 20 if SOAK else PATIENCE


# ---- the cluster ----

class Cluster:
    """To be said by an engine's own: start(), leads(member), queue(name) in its order, remove(entry)
    and end_session(entry) behind its owner's back, executed(member), requests() and wakes() so far,
    expect_no_quorum(t)."""
    scheme = ""
    pace_ms = 200  # of each of ten crowds, while thousands come to one name
    old_leader_revokes = False  # leases that others have renewed, once it runs again
    requests_only = bytes  # what a client has sent, without its taking back of requests

    def __init__(self):
        self.server = self.start()
        self.members = self.server.members
        self.place = ""  # where the locks of a scenario are

    @property
    def url(self):
        return self.url_of(*(member.port for member in self.members))

    def use(self, t, url=None):
        t.env["STILE_ENGINE"] = url or self.url
        t.env["STILE_MODULES"] = os.environ["STILE_MODULES"]

    def running(self):
        return [m for m in self.members if m.process]

    def leader(self, among=None):
        """Once one is chosen."""
        found = []
        spin(lambda: found.extend(m for m in among or self.running() if self.leads(m)) or found)
        return found[0]

    def follower(self):
        leader = self.leader()
        return next(m for m in self.running() if m is not leader)

    def url_of(self, *ports):
        return "%s://%s/%s/" % (self.scheme, ",".join("127.0.0.1:%d" % port for port in ports),
                                self.place)

    def mend(self):
        for member in self.running():
            member.signal(signal.SIGCONT)
        self.server.restart()

    @contextlib.contextmanager
    def stopped(self, member):
        member.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            member.signal(signal.SIGCONT)

    @contextlib.contextmanager
    def wired(self):
        """A wire to each server, for clients that use this way."""
        with contextlib.ExitStack() as stack:
            yield Wires(self, [stack.enter_context(Wire(m.port)) for m in self.members])


class Wires:
    def __init__(self, cluster, wires):
        self.cluster, self.wires = cluster, wires
        self.url = cluster.url_of(*(wire.port for wire in wires))

    def fail(self, ways):
        for wire in self.wires:
            wire.fail(ways)

    def heal(self):
        for wire in self.wires:
            wire.heal()

    def cut(self):
        """All connections; what was on its way is lost."""
        for wire in self.wires:
            wire.cut()

    def in_use(self, other_than=None):
        """The one over which a client speaks."""
        found = [wire for wire in self.wires if wire is not other_than and wire.in_use()]
        return found[0] if found else None

    def member(self, wire):
        return self.cluster.members[self.wires.index(wire)]


def connected(server, pid):
    """The member that a process speaks with."""
    ports = {m.port: m for m in server.members}
    inodes = {os.readlink("/proc/%d/fd/%s" % (pid, fd)) for fd in os.listdir("/proc/%d/fd" % pid)}
    with open("/proc/net/tcp", encoding="ascii") as table:
        for row in list(table)[1:]:
            field = row.split()
            port = int(field[2].split(":")[1], 16)
            if "socket:[%s]" % field[9] in inodes and port in ports:
                return ports[port]
    return None


# ---- what the user does, and sees ----

def try_it(t, name="x", *options):
    return t.stile("run", "--try", *options, name, "--", "true").returncode


def token_of(t, name="x"):
    return t.show(name)["holders"][0]["token"]


def refused(t, *words, code=69):
    done = t.stile("run", "--try", "x", "--", "true")
    expect(done.returncode, code, done.stderr)
    for word in words:
        assert word in done.stderr, "no %r in %r" % (word, done.stderr)
    assert done.stderr.count("\n") <= 2, done.stderr
    return done.stderr


def lost(held, name="x", *words):
    code, said = held.wait(), held.err.end()
    expect(code, 76, said)
    for word in (name, *words):
        assert word in said, "no %r in %r" % (word, said)


def has_ended(pid):
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_for(t, name="x", others=1, ttl="4s"):
    """One that waits, in line."""
    waiting = t.start("run", "--ttl", ttl, name, "--", "sh", "-c", "echo $STILE_TOKEN")
    t.until(t.watch(name), lambda change: len(change["waiters"]) == others)
    return waiting


def granted(waiting):
    token = int(waiting.line())
    expect(waiting.wait(), 0)
    return token


# ---- an absence ----

def hold_over_restart(t, server):
    """Kills the server under a holder and restarts it: the holder, the name of its lock, and its TTL
    in seconds. The server was away for a fifth of that at most: a busy machine needs longer for a
    restart, so the TTL is made longer until it is long enough. The rest of it goes to the age of the
    last renewal, the pause before a client connects again, and the time to stop a command."""
    ttl_s = 12
    while True:
        name = "over-%d-s" % ttl_s
        held = t.hold(name, "--ttl", "%ds" % ttl_s)
        began = time.monotonic()
        server.kill()
        server.restart()
        code = try_it(t, name)
        away_s = time.monotonic() - began
        if away_s <= ttl_s / 5:
            expect(code, 75)
            return held, name, ttl_s
        print("# away for %.1f s" % away_s)
        held.process.stdin.close()
        held.wait()
        ttl_s = int(8 * away_s)


def outlives_a_restart(t, server):
    """A holder whose server was away for a short time keeps its lock for longer than its TTL."""
    held, name, ttl_s = hold_over_restart(t, server)
    end = time.monotonic() + ttl_s + 2
    while time.monotonic() < end:
        expect(t.stile("run", "--wait", "4s", name, "--", "true").returncode, 75)
    expect(held.process.poll(), None)
    expect(try_it(t, name), 75)
    t.release(held)


def outlives_forgotten_connections(t, port, url, times=1):
    """The only server accepts connections and forgets them: its holder tries again while there is
    time."""
    with Forward(port) as way:
        t.env["STILE_ENGINE"] = url % way.port
        held = t.hold("x", "--ttl", "6s")
        ended = held.process.poll
        wanted = way.accepted + way.forget_next(times) + 1
        spin(lambda: way.accepted >= wanted or ended() is not None)
        answers = way.answers
        spin(lambda: way.answers > answers + 1 or ended() is not None)
        expect(try_it(t), 75)
        t.release(held)


# ---- many at once ----

class Crowd:
    """Processes with many clients each; see crowd.c."""

    def __init__(self, t, url, name, clients, rounds=0, ttl_ms=3000, processes=1, pace_ms=0):
        command = [os.environ["CROWD"], url, name,
                   *map(str, (clients, rounds, ttl_ms, pace_ms))]
        self.said = open(t.path("crowd.said"), "a+", encoding="utf-8")
        read, write = os.pipe()
        self.processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=write, stderr=self.said,
                             env=dict(t.env, STILE_MODULES=os.environ["STILE_MODULES"]))
            for _ in range(processes)]
        t.started += map(Running, self.processes)
        os.close(write)
        self.ready, self.grants, self.changed = 0, [], threading.Condition()
        self.reader = threading.Thread(target=self.read, args=(os.fdopen(read),), daemon=True)
        self.reader.start()
        self.until(lambda: self.ready == processes)

    def read(self, lines):
        with lines:
            for line in lines:
                self.take(line)
        with self.changed:
            self.changed.notify_all()

    def take(self, line):
        with self.changed:
            if line == "ready\n":
                self.ready += 1
            else:
                self.grants.append(read_grant(line))
            self.changed.notify_all()

    def until(self, true):
        def over():
            return true() or any(process.poll() for process in self.processes)
        with self.changed:
            while not over() and self.changed.wait(CROWD_PATIENCE):
                pass
        assert true(), self.complaints()

    def more(self, grants):
        """Until that many more have been reported."""
        wanted = len(self.grants) + grants
        self.until(lambda: len(self.grants) >= wanted)

    def complaints(self):
        self.said.seek(0)
        return "%d ready, %d grants, %s" % (self.ready, len(self.grants), self.said.read())

    def end(self):
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            expect(process.wait(CROWD_PATIENCE), 0, self.complaints())
        self.reader.join()
        self.said.close()
        return self.grants


def until_in_line(cluster, name, wanted):
    """While more come, there is patience."""
    seen = None
    while seen != wanted:
        before = seen
        spin(lambda: len(cluster.queue(name)) != before, CROWD_PATIENCE)
        seen = len(cluster.queue(name))


@contextlib.contextmanager
def contending(t, cluster, *urls, may_revoke=False):
    """Whatever happens meanwhile, some want one lock all the time: it goes on, never with two
    holders at a time, tokens grow with each grant, and nothing is left in line."""
    crowds = [Crowd(t, url, "busy", 2) for url in urls or [cluster.url]]
    for crowd in crowds:
        crowd.more(4)
    yield
    for crowd in crowds:
        crowd.more(20)
    grants = sum((crowd.end() for crowd in crowds), [])
    print("# %d grants" % len(grants))
    check(grants, may_revoke=may_revoke)
    expect(cluster.queue("busy"), [])
