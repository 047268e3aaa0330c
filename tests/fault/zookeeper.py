"""A ZooKeeper that is killed, stopped or cut in half; nodes and sessions that go behind our back;
and what the user of stile hears of it."""
import os
import pathlib
import signal
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(TESTS / "cli"), str(TESTS / "servers")]
from kazoo.client import KazooClient  # noqa: E402
from kazoo.exceptions import NoNodeError  # noqa: E402
from keeper import Keeper  # noqa: E402
from kit import expect, run_tests, spin  # noqa: E402
from zookeeper_server import ZookeeperServer  # noqa: E402


def on_server(members=1):
    def decorate(case):
        def with_server(t):
            with ZookeeperServer(members) as server:
                t.env["STILE_ENGINE"] = server.url
                t.env["STILE_MODULES"] = os.environ["STILE_MODULES"]
                case(t, server)
        with_server.__name__, with_server.__doc__ = case.__name__, case.__doc__
        return with_server
    return decorate


class Other:
    """Somebody else on the same server, for a moment."""

    def __init__(self, server):
        self.client = KazooClient(server.hosts)

    def __enter__(self):
        self.client.start()
        return self.client

    def __exit__(self, *_):
        self.client.stop()
        self.client.close()


def nodes_of(server, name="x"):
    """In the order in which they stand in line."""
    with Other(server) as client:
        try:
            return sorted(client.get_children("/" + name), key=lambda node: node[-10:])
        except NoNodeError:
            return []


def remove(server, node, name="x"):
    """Returns a later transaction."""
    with Other(server) as client:
        client.delete("/%s/%s" % (name, node))
        client.create("/later", ephemeral=True)
        return client.exists("/later").czxid


def try_it(t, name="x", *options):
    return t.stile("run", "--try", *options, name, "--", "true").returncode


def token_of(t, name="x"):
    return t.show(name)["holders"][0]["token"]


def refused(t):
    done = t.stile("run", "--try", "x", "--", "true")
    expect(done.returncode, 69, done.stderr)
    assert done.stderr.count("\n") <= 2, done.stderr


def lost(held, name="x"):
    code, said = held.wait(), held.err.end()
    expect(code, 76, said)
    assert name in said, said


def wait_for(t, name="x", others=1):
    """One that waits, in line."""
    waiting = t.start("run", "--ttl", "4s", name, "--", "sh", "-c", "echo $STILE_TOKEN")
    t.until(t.watch(name), lambda change: len(change["waiters"]) == others)
    return waiting


def granted(waiting):
    token = int(waiting.line())
    expect(waiting.wait(), 0)
    return token


# ---- killed and restarted ----

@on_server()
def restart(t, server):
    """kill -9 of the server: the holder keeps its lock, who waits gets it, the token grows"""
    held = t.hold("x", "--ttl", "20s")
    token = token_of(t)
    waiting = wait_for(t)
    server.kill()
    server.restart()
    expect(try_it(t), 75)
    t.release(held)
    assert granted(waiting) > token
    expect(nodes_of(server), [])


@on_server()
def renewal_goes_on_after_a_restart(t, server):
    """A holder outlives a short absence of its server, for longer than its TTL"""
    held = t.hold("x", "--ttl", "8s")
    server.kill()
    server.restart()
    for _ in range(9):
        t.stile("run", "--wait", "1200ms", "x", "--", "true")
    expect(held.process.poll(), None)
    expect(try_it(t), 75)
    t.release(held)


@on_server()
def released_while_it_is_away(t, server):
    """A release that nobody hears: the next one is not kept for longer than the session"""
    held = t.hold("x", "--ttl", "3s")
    server.kill()
    held.process.stdin.close()
    held.wait()
    server.restart()
    expect(t.stile("run", "--wait", "20s", "x", "--", "true").returncode, 0)
    expect(nodes_of(server), [])


@on_server()
def nobody_there(t, server):
    """No server at all: a clear word, at once"""
    server.kill()
    refused(t)


# ---- stopped ----

@on_server()
def stopped_past_the_session(t, server):
    """A stopped server: its holder is lost at its own deadline, and later nothing is left"""
    held = t.hold("x", "--ttl", "3s")
    token = token_of(t)
    server.members[0].signal(signal.SIGSTOP)
    try:
        lost(held)
        refused(t)
    finally:
        server.members[0].signal(signal.SIGCONT)
    held = t.hold("x", "--wait", "20s")
    assert token_of(t) > token
    t.release(held)
    expect(nodes_of(server), [])


@on_server()
def waiter_stopped_past_its_session(t, server):
    """Who waits is stopped until its session is over: it stands in line again, and gets it"""
    held = t.hold("x", "--ttl", "20s")
    waiting = wait_for(t)
    old = nodes_of(server)[1]
    os.kill(waiting.warden(), signal.SIGSTOP)
    t.until(t.watch("x"), lambda change: not change["waiters"])
    os.kill(waiting.warden(), signal.SIGCONT)
    t.until(t.watch("x"), lambda change: len(change["waiters"]) == 1)
    assert old not in nodes_of(server)
    t.release(held)
    granted(waiting)
    expect(nodes_of(server), [])


# ---- behind our back ----

@on_server()
def node_deleted(t, server):
    """The holder's node is deleted: it is told, and does not free what is another's"""
    held = t.hold("x", "--ttl", "20s")
    remove(server, nodes_of(server)[0])
    next_one = t.hold("x", "--wait", "10s")
    lost(held)
    expect(len(nodes_of(server)), 1)
    t.release(next_one)


@on_server()
def waiting_node_deleted(t, server):
    """The node of one who waits is deleted: it stands in line again, and gets it"""
    held = t.hold("x", "--ttl", "20s")
    waiting = wait_for(t)
    later = remove(server, nodes_of(server)[1])
    t.release(held)
    assert granted(waiting) > later
    expect(nodes_of(server), [])


@on_server()
def created_in_doubt(t, server):
    """A node whose creation was not answered is found by its GUID, and taken away"""
    ours = Keeper(server.url)
    try:
        expect(ours.try_it("keep"), "OK")
        expect(ours.try_it("x/before"), "OK")
        server.members[0].signal(signal.SIGSTOP)
        try:
            assert ours.try_it("x") != "OK"
        finally:
            server.members[0].signal(signal.SIGCONT)
        spin(lambda: t.stile("run", "--wait", "25s", "x", "--", "true").returncode == 0)
        expect(nodes_of(server), [])
    finally:
        ours.close()


# ---- kept when nobody has it any more ----

def kept(t, name="x"):
    """By a ghost, from everybody."""
    holder = t.show(name)["holders"][0]
    assert holder["ghost"], holder
    expect(try_it(t, name), 75)


def broken(t, server, name="x"):
    expect(t.stile("break", "-y", name).returncode, 0)
    expect(try_it(t, name), 0)
    expect(nodes_of(server, name), [])


@on_server()
def hold_outlives_the_server(t, server):
    """hold_at_least is on the servers' disks: kill -9 ends neither it nor its time"""
    expect(t.stile("run", "--hold-at-least", "300s", "x", "--", "true").returncode, 0)
    left = t.show("x")["holders"][0]["expires_ms"]
    server.kill()
    server.restart()
    kept(t)
    assert t.show("x")["holders"][0]["expires_ms"] < left
    broken(t, server)


@on_server()
def kept_slots_and_kept_by_readers(t, server):
    """a ghost keeps one slot, or lets readers in, as its holder did"""
    slots = ("--slots", "2")
    expect(t.stile("run", "--hold-at-least", "300s", *slots, "x", "--", "true").returncode, 0)
    held = t.hold("x", *slots)
    expect(try_it(t, "x", *slots), 75)
    waiting = t.start("run", *slots, "x", "--", "sh", "-c", "echo $STILE_TOKEN")
    t.until(t.watch("x"), lambda change: len(change["waiters"]) == 1)
    t.release(held)
    granted(waiting)
    kept(t)
    expect(t.stile("run", "--hold-at-least", "300s", "--shared", "y", "--", "true").returncode, 0)
    expect(try_it(t, "y", "--shared"), 0)
    kept(t, "y")
    broken(t, server)
    broken(t, server, "y")


@on_server()
def delay_after_the_session(t, server):
    """lock-delay begins when a session has ended without a release, and keeps who waits already"""
    held = t.hold("x", "--ttl", "3s", "--lock-delay", "300s")
    waiting = wait_for(t)
    os.kill(held.warden(), signal.SIGKILL)
    t.until(t.watch("x"), lambda change: any(one["ghost"] for one in change["holders"]))
    expect(len(t.show("x")["waiters"]), 1)
    kept(t)
    expect(t.stile("break", "-y", "x").returncode, 0)
    granted(waiting)
    expect(nodes_of(server), [])


@on_server()
def held_with_a_hold_and_broken(t, server):
    """break ends a holder together with what it would leave behind"""
    held = t.hold("x", "--hold-at-least", "300s", "--lock-delay", "300s")
    waiting = wait_for(t)
    expect(t.stile("break", "-y", "x").returncode, 0)
    granted(waiting)
    lost(held)
    expect(nodes_of(server), [])


# ---- three members ----

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


@on_server(3)
def member_killed(t, server):
    """The server we speak with is killed: the next one is asked, and nothing is lost"""
    held = t.hold("x")
    waiting = wait_for(t)
    member = connected(server, held.warden())
    member.kill()
    others = [m for m in server.members if m is not member]
    spin(lambda: all("Mode: " in m.say("srvr") for m in others))  # if it led, they choose another
    spin(lambda: connected(server, held.warden()) not in (None, member))
    expect(held.process.poll(), None)
    expect(try_it(t), 75)
    t.release(held)
    granted(waiting)


@on_server(3)
def quorum_lost_and_back(t, server):
    """Two of three are gone: a clear word, loss at the deadline; back again, all is well"""
    held = t.hold("x", "--ttl", "4s")
    token = token_of(t)
    for member in server.members[:2]:
        member.kill()
    lost(held)
    refused(t)
    server.restart()
    held = t.hold("x", "--wait", "20s")
    assert token_of(t) > token
    t.release(held)
    expect(nodes_of(server), [])


run_tests([restart, renewal_goes_on_after_a_restart, released_while_it_is_away, nobody_there,
           stopped_past_the_session, waiter_stopped_past_its_session, node_deleted,
           waiting_node_deleted, created_in_doubt, hold_outlives_the_server,
           kept_slots_and_kept_by_readers, delay_after_the_session, held_with_a_hold_and_broken, member_killed, quorum_lost_and_back])
