# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""`stile torture` as a command: its options, what it writes and leaves behind, and how it ends."""
import contextlib
import json
import os
import pathlib
import signal
import socket
import sys
import xml.etree.ElementTree

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(TESTS / "cli"), str(TESTS / "servers")]
from kit import children, expect, run_tests, spin  # noqa: E402
from driver import torture  # noqa: E402
from places import Place, restart_each  # noqa: E402
from redis_server import RedisServer  # noqa: E402

CLIENTS = 8
RUNS_MAX = 5


def use(t, url=None):
    t.env.update(STILE_MODULES=os.environ["STILE_MODULES"], TMPDIR=t.path("tmp"))
    os.makedirs(t.path("tmp"), exist_ok=True)
    os.makedirs(t.path("engine"), exist_ok=True)
    if url:
        t.env["STILE_ENGINE"] = url


def begin(t, *args, **how):
    """A run whose workers hold locks."""
    running = t.start("torture", "--for", "1h", "--json", *args, **how)
    spin(lambda: len(children(running.pid)) >= CLIENTS)
    spin(lambda: "stile-torture-" in t.stile("ls", "--json").stdout)
    return running


def end(running, code=(0, 1)):
    running.kill(signal.SIGINT)
    ended = running.wait()
    assert ended in code, (ended, running.err.end())
    return json.loads(running.out.end())


def leaves_nothing(t):
    expect(json.loads(t.stile("cell", "ls", "--json").stdout), [])
    expect(os.listdir(t.path("tmp")), [])


def wrong_usage(t):
    """Wrong options and outputs that cannot be written are refused before anything begins"""
    use(t)
    for args, wanted in {
            ("--for", "5s"): "at least 6s", ("--for", "2h"): "at most 1h", ("--clients", "1"): "2 to 64",
            ("--clients", "65"): "2 to 64", ("--names", "33"): "1 to 32", ("--inject", "fault"): "list of",
            ("--inject", "stop,bite"): "list of"}.items():
        done = t.stile("torture", *args)
        expect((done.returncode, wanted in done.stderr), (64, True), done.stderr)
    for option in "--history", "--timeline":
        done = t.stile("torture", option, t.path("missing/file"))
        expect(done.returncode, 74, done.stderr)
        assert "missing/file" in done.stderr and option in done.stderr, done.stderr
    leaves_nothing(t)


def no_server(t):
    """Without a server, or with a wrong URL, it ends at once and says why"""
    use(t)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    for url in "redis://127.0.0.1:%d" % port, "postgres://127.0.0.1:%d/x" % port:
        done = t.stile("torture", url)
        expect(done.returncode, 69, done.stderr)
        assert "%d" % port in done.stderr and not done.stdout, done.stderr
    expect(t.stile("torture", "mongo://x").returncode, 64)


def silent_server(t):
    """Ctrl-C ends it while a server that accepts connections says nothing"""
    use(t)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        running = t.start("torture", "redis://127.0.0.1:%d" % silent.getsockname()[1])
        connection = silent.accept()[0]
        running.kill(signal.SIGINT)
        expect(running.wait(), 69)
        assert "interrupted" in running.err.end()
        connection.close()


def interrupted(t):
    """Ctrl-C ends a run early and in order: a report, the files, and nothing left behind"""
    use(t)
    running = begin(t, "--timeline", t.path("a.svg"), "--history", t.path("events"))
    report = end(running)
    assert report["acquisitions"] > 0 and report["with_guard"]["lost"] == 0, report
    with open(t.path("events"), encoding="utf-8") as file:
        lines = file.read().splitlines()
    assert sum(" granted " in line for line in lines) == report["acquisitions"], len(lines)
    drawn = xml.etree.ElementTree.parse(t.path("a.svg")).getroot()
    assert drawn.tag.endswith("svg") and len(drawn) > CLIENTS, drawn
    for name in "a.svg", "events":
        expect(os.stat(t.path(name)).st_mode & 0o777, 0o600)
    leaves_nothing(t)


def page(t):
    """A timeline ending in .html is a page, and a report for readers ends with the verdict"""
    use(t)
    running = t.start("torture", "--inject", "break", "--timeline", t.path("a.html"))
    spin(lambda: len(children(running.pid)) >= CLIENTS)
    running.kill(signal.SIGINT)
    code, printed = running.wait(), running.out.end()
    assert ("\nholds: " if code == 0 else "\nno verdict: ") in printed, (code, printed)
    with open(t.path("a.html"), encoding="utf-8") as file:
        text = file.read()
    assert text.startswith("<!doctype html>") and "</svg>" in text, text[:200]


def toothless(t):
    """A run in which nothing is lost without the guard proves nothing, and exits with 1"""
    use(t)
    running = begin(t, "--inject", "cut")
    expect(end(running, code=(1,))["verdict"], "none")
    assert "there is no server" in running.err.end()


def killed(t):
    """If it is killed, its workers die with it"""
    use(t)
    running = begin(t)
    workers = [t.guard(pid) for pid in children(running.pid)]
    running.kill(signal.SIGKILL)
    running.wait()
    spin(lambda: not any(os.path.exists("/proc/%d/stat" % pid) and
                         open("/proc/%d/stat" % pid, encoding="utf-8").read().split()[2] != "Z"
                         for pid in workers))


def impatient(t):
    """A second Ctrl-C does not wait for workers that do not end"""
    use(t)
    running = begin(t, "--inject", "kill")
    os.kill(children(running.pid)[0], signal.SIGSTOP)  # not by torture, which would let it go on
    running.kill(signal.SIGINT)
    spin(lambda: len(children(running.pid)) == 1)
    report = end(running)
    assert report["acquisitions"] > 0, report
    leaves_nothing(t)


def crash(t):
    """A worker that crashes breaks a promise"""
    use(t)
    running = begin(t)
    os.kill(children(running.pid)[0], signal.SIGSEGV)
    spin(lambda: len(children(running.pid)) >= CLIENTS)
    report = end(running, code=(80,))
    expect(report["violation"]["rule"], "crashed", report)


def no_more_processes(t):
    """When no process can be started, no other one is signalled"""
    use(t)
    t.env.update(LD_PRELOAD=os.environ["STILE_NOFORK_LIBRARY"],
                 ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0")
    for forks, said in ("0", "cannot start a process"), ("4", "cannot start the workers"):
        t.env["STILE_TEST_FORKS"] = forks
        done = t.stile("torture")
        expect((done.returncode, said in done.stderr), (69, True), done.stderr)
    t.env["STILE_TEST_FORKS"] = str(2 + CLIENTS)
    done = t.stile("torture", "--inject", "kill,break", "--for", "6s")
    expect(done.returncode, 69, done.stderr)
    assert "the counters cannot be read" in done.stderr, done.stderr


def snapshot(server):
    """But for the counter of tokens, which all names share."""
    keys = set(server.cli("KEYS", "*").split("\n")) - {"stile:\x1ftoken"}
    return {key: server.cli("--no-raw", "DUMP", key) for key in keys}


def names_of_others(t):
    """What belongs to others is neither changed nor removed"""
    with RedisServer() as server:
        use(t, "redis://127.0.0.1:%d" % server.port)
        put = t.stile("cell", "put", "--token", "7", "stile-torture", input="mine", text=True)
        expect(put.returncode, 0, put.stderr)
        expect(t.stile("acquire", "--ttl", "1h", "stile-torture-x").returncode, 0)
        server.cli("SET", "stile-torture-", "mine")
        before = snapshot(server)
        report = end(begin(t, "--inject", "break,kill"))
        assert report["acquisitions"] > 0, report
        after = snapshot(server)
        for key, value in before.items():
            expect(after.get(key), value, key)
        # Counters of tokens stay for an hour at most.
        left = [key for key in after.keys() - before.keys() if int(server.cli("PTTL", key)) < 0]
        expect(left, [])


def calm(t):
    """A lock that is given back is free at once: waiters do not wait for the end of a lease"""
    with RedisServer() as server:
        use(t, "redis://127.0.0.1:%d" % server.port)
        done = t.stile("torture", "--json", "--inject", "slow", "--clients", "16", "--for", "6s")
        report = json.loads(done.stdout)
        expect((done.returncode, report["violation"]), (1, None), report)
        assert report["handovers"]["n"] >= 4, report


class Forgetful(Place):
    """It keeps nothing on its disk, and starts again at once."""

    def crash(self):
        self.members[0].kill()
        self.members[0].restart()


def forgetful(_):
    """A server that forgets is found out: two hold a lock, and the guard forgets as well"""
    servers = contextlib.ExitStack()
    server = servers.enter_context(RedisServer())
    with Forgetful(servers, [server], "redis://127.0.0.1:%d" % server.port, restart_each) as place:
        outcomes = []
        while len(outcomes) < RUNS_MAX and 80 not in [outcome.code for outcome in outcomes]:
            outcomes.append(torture(place, "crash", 8))
        expect(outcomes[-1].code, 80, outcomes)
        assert outcomes[-1].report["violation"]["sentence"], outcomes[-1]


def no_tokens(t):
    """Without tokens there is no guard, and the counters are files that go at the end"""
    servers = [RedisServer() for _ in range(3)]
    try:
        use(t, "redlock://" + ",".join("127.0.0.1:%d" % s.port for s in servers) + "?fence=off")
        running = t.start("torture", "--for", "1h", "--json")
        spin(lambda: len(children(running.pid)) >= CLIENTS)
        spin(lambda: os.listdir(t.path("tmp")) and os.listdir(
            os.path.join(t.path("tmp"), *os.listdir(t.path("tmp")))))
        report = end(running)
        expect(report["with_guard"], None)
        assert "no tokens" in running.err.end()
        expect(os.listdir(t.path("tmp")), [])
    finally:
        for server in servers:
            server.stop()


def script(t):
    """The script is called with break and heal, in turn and healed at the end; failures are reported"""
    use(t)
    calls = t.path("calls")
    with open(t.path("fail"), "w", encoding="ascii") as file:
        file.write("#!/bin/sh\necho $1 >>%s\nexit 3\n" % calls)
    os.chmod(t.path("fail"), 0o755)
    running = t.start("torture", "--for", "1h", "--json", "--fault", t.path("fail"))
    spin(lambda: os.path.exists(calls))
    report = end(running)
    with open(calls, encoding="ascii") as file:
        words = file.read().split()
    expect(words, ["break", "heal"] * (len(words) // 2))
    expect(report["fault_failures"], len(words))
    assert "--fault" in running.err.end()


run_tests([wrong_usage, no_server, silent_server, interrupted, page, toothless, killed, impatient, crash,
           no_more_processes, names_of_others, calm, forgetful,
           no_tokens, script])
