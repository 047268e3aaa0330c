"""What stile doctor finds on a live redis-server: each finding is provoked by the server's own
set-up, and gone once what it says was done."""
import contextlib
import json
import os
import pathlib
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(TESTS / "cli"), str(TESTS / "servers")]
import kit  # noqa: E402
from kit import expect, run_tests  # noqa: E402
from redis_server import RedisServer, die_with_parent, free_port  # noqa: E402

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
CODES = {"fine": 0, "note": 0, "warning": 1, "danger": 2}


def on_server(*args):
    """The test gets a server that is started with these arguments."""
    def decorate(case):
        def with_server(t):
            with RedisServer(*args) as server:
                use(t, server)
                case(t, server)
        with_server.__name__, with_server.__doc__ = case.__name__, case.__doc__
        return with_server
    return decorate


def use(t, server, url="redis://127.0.0.1:%d"):
    t.env["STILE_ENGINE"] = url % server.port
    t.env["STILE_MODULES"] = os.environ["STILE_MODULES"]


def examine(t, *args):
    """All findings, and by their ids. The exit code is that of the worst."""
    done = t.stile("doctor", "--json", *args)
    assert done.returncode in (0, 1, 2), done
    found = json.loads(done.stdout)["findings"]
    expect(done.returncode, max([CODES[one["severity"]] for one in found] or [0]), done.stdout)
    text = t.stile("doctor", *args)
    for one in found:
        assert one["what"][:9] in " ".join(text.stdout.split()), text.stdout
    return {one["id"]: one for one in found}


def found(t, name, severity, *words):
    """That finding, as severe as this, with these words in it."""
    seen = examine(t)
    assert name in seen, (name, seen)
    one = seen[name]
    expect(one["severity"], severity, name)
    for word in words:
        assert word in one["what"] + " " + one["why"] + " " + one["cure"], (word, one)
    assert one["why"], one
    assert one["commands"] or one["cure"] or severity == "note", one
    return one


def gone(t, *names):
    seen = examine(t)
    assert not set(names) & set(seen), seen


def follow(one, **replacing):
    """Does what a finding says."""
    assert one["commands"], one
    for command in one["commands"]:
        for word, text in replacing.items():
            command = command.replace(word, text)
        done = subprocess.run(shlex.split(command), capture_output=True, text=True, check=True)
        assert "OK" in done.stdout, (command, done.stdout)


# ---- what is written to disk ----

@on_server(*DURABLE)
def healthy(t, server):
    """A server as it should be: nothing to worry about, exit code 0"""
    seen = examine(t)
    expect({name: one["severity"] for name, one in seen.items()}, {"server": "fine"})
    expect(seen["server"]["where"], "127.0.0.1:%d" % server.port)
    for word in "on disk", "evicts nothing", "no replicas":
        assert word in seen["server"]["what"], seen
    assert "Nothing to worry about" in t.stile("doctor").stdout
    expect(server.cli("DBSIZE"), "0", "it leaves nothing behind")


@on_server()
def memory_only(t, server):
    """No persistence: danger, until it is switched on"""
    one = found(t, "persistence", "danger", "memory only", "appendonly no")
    assert not any("REWRITE" in command for command in one["commands"]), one
    assert "configuration file" in one["cure"], one
    follow(one)
    gone(t, "persistence", "appendfsync")


@on_server("--save", "60 1")
def snapshots_only(t, server):
    """Snapshots alone: danger, too"""
    follow(found(t, "persistence", "danger", "snapshots"))
    gone(t, "persistence", "appendfsync")


@on_server("--appendonly", "yes")
def synced_once_a_second(t, server):
    """appendfsync everysec: a warning"""
    follow(found(t, "appendfsync", "warning", "everysec", "same token"))
    gone(t, "appendfsync")
    server.cli("CONFIG", "SET", "appendfsync", "no")
    follow(found(t, "appendfsync", "warning", "appendfsync no"))
    gone(t, "appendfsync")


@on_server(*DURABLE, "--no-appendfsync-on-rewrite", "yes")
def not_synced_while_rewriting(t, server):
    """appendfsync always that isn't: no-appendfsync-on-rewrite"""
    follow(found(t, "no-appendfsync-on-rewrite", "warning"))
    gone(t, "no-appendfsync-on-rewrite")


def written_to_its_configuration(t):
    """With a configuration file the advice outlives a restart"""
    path = t.path("redis.conf")
    with open(path, "w", encoding="utf-8") as file:
        file.write("# a server of a test\n")
    with RedisServer() as server:
        server.kill()
        server.process = subprocess.Popen(
            ["redis-server", path, "--port", str(server.port), "--bind", "127.0.0.1",
             "--dir", server.dir, "--save", "", "--logfile", ""], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
        for line in server.process.stdout:
            if "eady to accept" in line:
                break
        use(t, server)
        one = found(t, "persistence", "danger")
        expect(one["cure"], "")
        assert one["commands"][-1].endswith(" CONFIG REWRITE"), one
        follow(one)
        server.process.stdout.close()
        gone(t, "persistence")
    with open(path, encoding="utf-8") as file:
        written = file.read()
    assert "appendonly yes" in written and "appendfsync always" in written, written


@on_server("--appendonly", "yes")
def restarted(t, server):
    """Started less than a lease ago, and not durable: a warning that says how long to wait"""
    one = found(t, "restarted", "warning", "30 s", "profile")
    assert "Wait for" in one["cure"], one
    t.stile("acquire", "--try", "--ttl", "1h", "x")
    found(t, "restarted", "warning", "3599 s", "one of its locks")
    server.cli("CONFIG", "SET", "appendfsync", "always")
    gone(t, "restarted")  # it remembers


# ---- memory and clients ----

@on_server("--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl")
def evicting(t, server):
    """A policy that evicts: danger on a server that no lock would be taken on"""
    expect(t.stile("acquire", "--try", "x").returncode, 69)
    follow(found(t, "eviction", "danger", "volatile-ttl", "allow=eviction"))
    gone(t, "eviction")
    expect(t.stile("acquire", "--try", "x").returncode, 0)


@on_server("--maxmemory-policy", "allkeys-lru")
def would_evict(t, server):
    """A policy that would evict, without a limit: a note"""
    follow(found(t, "eviction", "note", "allkeys-lru"))
    gone(t, "eviction")


@on_server("--maxmemory", "1mb")
def memory_nearly_full(t, server):
    """Memory nearly full: a warning"""
    follow(found(t, "memory", "warning", "refuses new claims"))
    gone(t, "memory")


@on_server("--maxclients", "2")
def nearly_too_many_clients(t, server):
    """As many clients as it takes: a warning"""
    other = subprocess.Popen(["redis-cli", "-p", str(server.port), "SUBSCRIBE", "x"],
                             stdout=subprocess.PIPE)
    other.stdout.readline()
    try:
        one = json.loads(t.stile("doctor", "--json").stdout)["findings"]
        (one,) = [f for f in one if f["id"] == "clients"]
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
    follow(one)
    gone(t, "clients")


# ---- copies ----

@contextlib.contextmanager
def replica_of(server, *args):
    with RedisServer("--replicaof", "127.0.0.1", str(server.port), *args) as replica:
        kit.spin(lambda: info(replica, "master_link_status") == "up")
        yield replica


def info(server, field):
    lines = dict(line.split(":", 1) for line in server.cli("INFO").splitlines() if ":" in line)
    return lines.get(field)


@on_server(*DURABLE)
def replicas(t, server):
    """Replicas: a warning that names wait_replicas, which makes it a note"""
    with replica_of(server):
        one = found(t, "replicas", "warning", "1 replica", "failover")
        assert "wait_replicas=1" in one["cure"], one
        use(t, server, "redis://127.0.0.1:%d?wait_replicas=1")
        found(t, "replicas", "note", "wait_replicas")
        gone(t, "wait-replicas")
        use(t, server, "redis://127.0.0.1:%d?wait_replicas=2")
        found(t, "wait-replicas", "warning", "1 of the 2")
        expect(t.stile("acquire", "--try", "x").returncode, 69)


@on_server(*DURABLE)
def is_a_replica(t, server):
    """A replica: danger, with the address of its primary"""
    with replica_of(server, *DURABLE) as replica:
        use(t, replica)
        found(t, "replica", "danger", "127.0.0.1:%d" % server.port)
        replica.cli("REPLICAOF", "NO", "ONE")
        gone(t, "replica")


@contextlib.contextmanager
def sentinel_of(t, server):
    path, port = t.path("sentinel.conf"), free_port()
    with open(path, "w", encoding="utf-8") as file:
        file.write("port %d\nbind 127.0.0.1\ndir %s\nsentinel monitor m 127.0.0.1 %d 1\n"
                   % (port, t.dir, server.port))
    process = subprocess.Popen(["redis-server", path, "--sentinel"], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, preexec_fn=die_with_parent)
    try:
        kit.spin(lambda: server.cli("PUBSUB", "NUMSUB", "__sentinel__:hello").endswith("1"))
        yield port
    finally:
        process.kill()
        process.wait()


@on_server(*DURABLE)
def sentinel(t, server):
    """A Sentinel is told from a server, and seen from the server that it watches"""
    with replica_of(server), sentinel_of(t, server) as port:
        found(t, "replicas", "warning", "1 Sentinel")
        t.env["STILE_ENGINE"] = "redis://127.0.0.1:%d" % port
        found(t, "sentinel", "danger", "redis+sentinel://")
        expect(list(examine(t)), ["sentinel"])


@on_server(*DURABLE, "--cluster-enabled", "yes")
def cluster(t, server):
    """A node of a Cluster is noted"""
    found(t, "cluster", "note", "Only this node")


# ---- rights ----

def user(t, server, *rights):
    server.cli("ACL", "SETUSER", "low", "reset", "on", ">low", *rights)
    use(t, server, "redis://low:low@127.0.0.1:%d")


def grant(one):
    """As an administrator: who is not asked for a password here."""
    follow(one, **{" --user ADMIN --askpass": "", "NAME": "low"})


@on_server(*DURABLE)
def rights_are_missing(t, server):
    """An ACL that hides or forbids something: said, not failed, and cured by what is said"""
    everything = ("~*", "&*", "+@all")
    for name, severity, taken in (("config", "warning", "-config"), ("info", "danger", "-info"),
                                  ("scripts", "danger", "-eval"), ("commands", "danger", "-pttl"),
                                  ("messages", "danger", "-publish")):
        user(t, server, *everything, taken)
        one = found(t, name, severity, "ACL")
        assert all("--user ADMIN --askpass" in command for command in one["commands"]), one
        grant(one)
        gone(t, name)
    user(t, server, "~lock:*", "+@all")  # as one would write it
    seen = examine(t)
    expect({seen[name]["severity"] for name in ("keys", "messages")}, {"danger"})
    expect(t.stile("acquire", "--try", "x").returncode, 69)
    grant(seen["keys"])
    grant(seen["messages"])
    gone(t, "keys", "messages")
    expect(t.stile("acquire", "--try", "x").returncode, 0)


@on_server(*DURABLE, "--requirepass", "s3cret")
def passwords_are_not_shown(t, server):
    """With a password the commands ask for it, and a wrong one is 69"""
    use(t, server, "redis://:s3cret@127.0.0.1:%d")
    env = {**os.environ, "REDISCLI_AUTH": "s3cret"}
    subprocess.run(["redis-cli", "-p", str(server.port), "CONFIG", "SET", "appendfsync", "no"],
                   env=env, stdout=subprocess.DEVNULL, check=True)
    for args in [], ["--json"]:
        done = t.stile("doctor", *args)
        assert "s3cret" not in done.stdout and "--askpass CONFIG SET" in done.stdout, done.stdout
    use(t, server, "redis://:wr0ng@127.0.0.1:%d")
    done = t.stile("doctor")
    expect((done.returncode, done.stdout), (69, ""), done.stderr)
    assert "password" in done.stderr and "wr0ng" not in done.stderr, done.stderr


@on_server()
def over_a_socket(t, server):
    """A Unix socket: the commands go there"""
    t.env["STILE_ENGINE"] = "redis+unix://" + server.path
    one = found(t, "persistence", "danger")
    assert one["commands"][0].startswith("redis-cli -s %s CONFIG" % server.path), one
    follow(one)
    gone(t, "persistence")


# ---- clocks and versions ----

class Puppet:
    """Answers as a server does that can't be had here: INFO as it is told, and a clock of its own."""

    def __init__(self, info_text, ahead=0):
        self.info, self.ahead = info_text, ahead
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.socket.accept()
                with client, client.makefile("rb") as lines:
                    self.answer(client, lines)

    def answer(self, client, lines):
        for line in lines:
            n = int(line[1:])
            words = [lines.read(int(lines.readline()[1:]) + 2)[:-2] for _ in range(n)]
            client.sendall(self.reply(words[0]))

    def reply(self, command):
        if command == b"INFO":
            return b"$%d\r\n%s\r\n" % (len(self.info), self.info.encode())
        if command == b"TIME":
            seconds = b"%d" % (time.time() + self.ahead)
            return b"*2\r\n$%d\r\n%s\r\n$6\r\n500000\r\n" % (len(seconds), seconds)
        return b"+PONG\r\n" if command in (b"CLIENT", b"AUTH", b"SELECT") else b"*0\r\n"

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join()


INFO = ("redis_version:%s\r\nredis_mode:standalone\r\nuptime_in_seconds:9999\r\nmaxmemory:0\r\n"
        "maxmemory_policy:noeviction\r\nrole:master\r\nconnected_slaves:0\r\naof_enabled:1\r\n%s")


def tell_apart(t):
    """What only another server would say: too old, loading, a disk that can't be written"""
    for version, extra, name, severity in (
            ("4.0.14", "", "version", "danger"), ("6.0.5", "", "version", "danger"),
            ("6.0.6", "", None, None), ("6.2.0", "", None, None), ("10.0.0", "", None, None),
            ("7.0.15", "loading:1\r\n", "loading", "warning"),
            ("7.0.15", "aof_last_write_status:err\r\n", "disk", "danger")):
        with contextlib.closing(Puppet(INFO % (version, extra))) as puppet:
            use(t, puppet)
            if name:
                found(t, name, severity)
            else:
                gone(t, "version")


def clocks_apart(t):
    """A clock that is far from ours: only a note, ahead or behind"""
    for ahead, words in (100, "s ahead of ours"), (-100, "s behind ours"), (1, None):
        with contextlib.closing(Puppet(INFO % ("7.0.15", ""), ahead)) as puppet:
            use(t, puppet)
            if words:
                found(t, "clock", "note", words)
            else:
                gone(t, "clock")


def restarted_long_ago(t):
    """A server that has run for longer than every lease is trusted again"""
    for seconds, is_new in ("29", True), ("30", False), ("999999", False):
        text = INFO.replace("9999", seconds) % ("7.0.15", "")
        with contextlib.closing(Puppet(text)) as puppet:
            use(t, puppet)
            expect("restarted" in examine(t), is_new, seconds)


@on_server(*DURABLE)
def server_goes_away(t, server):
    """A server that stops answering: 69, within seconds"""
    server.process.send_signal(signal.SIGSTOP)
    try:
        done = t.stile("doctor")
    finally:
        server.process.send_signal(signal.SIGCONT)
    expect((done.returncode, done.stdout), (69, ""), done.stderr)
    assert "127.0.0.1:%d" % server.port in done.stderr, done.stderr


run_tests([healthy, memory_only, snapshots_only, synced_once_a_second, not_synced_while_rewriting,
           written_to_its_configuration, restarted, restarted_long_ago, evicting, would_evict,
           memory_nearly_full, nearly_too_many_clients, replicas, is_a_replica, sentinel, cluster,
           rights_are_missing, passwords_are_not_shown, over_a_socket, clocks_apart, tell_apart,
           server_goes_away])
