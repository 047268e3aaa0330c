# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""stile elect and stile leader: the command runs while its process leads, and no longer."""
import json
import os
import signal
import subprocess

from kit import children, expect, run_tests, spin


def lead(t, name, *options, script="echo $STILE_TOKEN; read line"):
    """A candidate that leads, with its token; close its stdin to end its command."""
    running = t.start("elect", *options, name, "--", "sh", "-c", script, stdin=subprocess.PIPE)
    running.token = int(running.line())
    return running


def observe(t, name):
    """One dict for every change of the leader."""
    running = t.start("leader", "--watch", "--json", name)
    running.change = lambda: json.loads(running.line())
    return running


def in_line(t, name, n):
    t.until(t.watch(name), lambda change: len(change["waiters"]) == n)


def leader_of(t, name):
    done = t.stile("leader", "--json", name)
    leader = json.loads(done.stdout)
    expect(done.returncode, 0 if leader["leads"] else 1, done.stderr)
    return leader


def nobody(t):
    """nobody leads: exit 1, and it is said"""
    done = t.stile("leader", "x")
    expect((done.returncode, done.stdout, done.stderr), (1, "x  nobody leads\n", ""))
    expect(leader_of(t, "x"), {"name": "x", "leads": False})


def leads_and_resigns(t):
    """the leader is shown with its value while its command runs; --once ends as the command did"""
    running = lead(t, "x", "--once", "--proclaim", "10.0.0.1:80", "--label", "web",
                   script="echo $STILE_TOKEN; read line; exit 3")
    leader = leader_of(t, "x")
    expect((leader["pid"], leader["command"], leader["token"], leader["value"]),
           (running.pid, "web", running.token, "10.0.0.1:80"))
    line = t.stile("leader", "x").stdout
    assert line.startswith("x  led by %d@" % running.pid) and "proclaims 10.0.0.1:80" in line, line
    expect(t.show("x")["holders"][0]["token"], running.token)
    running.process.stdin.close()
    expect(running.wait(), 3)
    expect(leader_of(t, "x")["leads"], False)


def not_elected(t):
    """--try and --wait: 75, and the command has not run"""
    lead(t, "x")
    for option in ["--try"], ["--wait", "100ms"]:
        done = t.stile("elect", *option, "x", "--", "echo", "ran")
        expect((done.returncode, done.stdout), (75, ""))


def another_leads_next(t):
    """a command that ends: its process resigns, the next candidate leads, and then it again"""
    first = lead(t, "x", "--proclaim", "first")
    watched = observe(t, "x")
    t.until(watched, lambda change: change["leads"])
    second = t.start("elect", "--once", "--proclaim", "second", "x", "--", "sh", "-c",
                     "echo $STILE_TOKEN; read line", stdin=subprocess.PIPE)
    in_line(t, "x", 1)
    first.process.stdin.close()
    token = int(second.line())
    assert token > first.token
    change = t.until(watched, lambda change: change.get("value") == "second")
    expect((change["token"], change["pid"]), (token, second.pid))
    assert "campaigning again in 1 s" in first.err.next()
    second.process.stdin.close()
    expect(second.wait(), 1)
    assert int(first.line()) > token  # its stdin is at its end: the command ends at once
    assert "campaigning again in 2 s" in first.err.next()
    first.kill(signal.SIGTERM)
    expect(first.wait(), -signal.SIGTERM)
    expect(t.until(watched, lambda change: not change["leads"])["leads"], False)


def lost_and_led_again(t):
    """a leader whose lock is broken: its whole tree is gone, and it campaigns and leads again"""
    running = lead(t, "x", "--proclaim", "v",
                   script="sleep 600 & echo $STILE_TOKEN; echo $! >>%s; wait" % t.path("pids"))
    expect(t.stile("break", "--yes", "x").returncode, 0)
    assert int(running.line()) > running.token
    with open(t.path("pids"), encoding="ascii") as file:
        before = int(file.read().split()[0])
    assert not os.path.exists("/proc/%d" % before), "the old tree lives in the new leadership"
    expect(leader_of(t, "x")["value"], "v")
    assert "lost" in running.err.next()
    running.kill(signal.SIGTERM)
    running.wait()


def lost_once(t):
    """with --once a loss is 76"""
    running = lead(t, "x", "--once")
    expect(t.stile("break", "--yes", "x").returncode, 0)
    expect(running.wait(), 76)


def ended_by_sigterm(t):
    """SIGTERM stops a tree that ignores it, resigns, and ends; a candidate that waits ends at once"""
    running = lead(t, "x", "--grace", "200ms",
                   script="trap '' TERM; echo $STILE_TOKEN; while :; do sleep 600; done")
    waiter = t.start("elect", "x", "--", "true")
    in_line(t, "x", 1)
    waiter.kill(signal.SIGTERM)
    expect(waiter.wait(), -signal.SIGTERM)
    running.kill(signal.SIGTERM)
    expect(running.wait(), -signal.SIGKILL)
    expect(leader_of(t, "x")["leads"], False)


def ended_in_a_pause(t):
    """SIGTERM between two leaderships ends it"""
    running = t.start("elect", "x", "--", "true")
    assert "campaigning again" in running.err.next()
    running.kill(signal.SIGTERM)
    expect(running.wait(), -signal.SIGTERM)


def reloads(t):
    """SIGHUP is the command's; when the command ends later, its process campaigns again"""
    running = lead(t, "x", script="trap 'echo reloaded; exit 0' HUP; echo $STILE_TOKEN; "
                                  "while :; do sleep 0.05; done")
    running.kill(signal.SIGHUP)
    expect(running.line(), "reloaded")
    assert "campaigning again" in running.err.next()
    assert int(running.line()) > running.token
    running.kill(signal.SIGTERM)
    running.wait()


def killed(t):
    """the front killed with -9: the tree is gone before the next candidate leads"""
    running = lead(t, "x", script="sleep 600 & echo $STILE_TOKEN; echo $! >%s; wait" % t.path("pid"))
    spin(lambda: os.path.exists(t.path("pid")) and os.path.getsize(t.path("pid")) > 0)
    with open(t.path("pid"), encoding="ascii") as file:
        pid = int(file.read())
    check = "if kill -0 %d 2>/dev/null; then echo alive; else echo gone; fi" % pid
    second = t.start("elect", "--once", "x", "--", "sh", "-c", check)
    in_line(t, "x", 1)
    running.kill(signal.SIGKILL)
    expect(second.line(), "gone")
    expect(second.wait(), 0)


def descriptors_do_not_pile_up(t):
    """the front keeps copies for one leadership only"""
    running = lead(t, "x", script="echo $STILE_TOKEN; read line")
    # Between two leaderships the front has some more or some fewer, so the first count is a rough one: a
    # copy left behind by each leadership would add eight to it.
    count = len(os.listdir("/proc/%d/fd" % running.pid))
    for _ in range(8):
        expect(t.stile("break", "--yes", "x").returncode, 0)
        running.line()
    spin(lambda: len(os.listdir("/proc/%d/fd" % running.pid)) < count + 8)
    expect(len(children(running.pid)), 1)
    running.kill(signal.SIGTERM)
    running.wait()


def raises_a_guard(t):
    """--guard: the guard has seen the token of each leadership before its command starts"""
    running = lead(t, "x", "--guard", "#orders",
                   script="echo $STILE_TOKEN; stile guard show --json $STILE_ENGINE $STILE_RESOURCE; "
                          "read line")
    expect(json.loads(running.line())["highest"], running.token)
    expect(t.stile("break", "--yes", "x").returncode, 0)
    later = int(running.line())
    assert later > running.token
    expect(json.loads(running.line())["highest"], later)
    running.kill(signal.SIGTERM)
    running.wait()


def not_executable(t):
    """a command that cannot be executed is no reason to campaign again"""
    expect(t.stile("elect", "x", "--", t.path("none")).returncode, 127)
    expect(t.stile("elect", "x", "--", "/").returncode, 126)


def odd_values(t):
    """values and names with spaces, %, control characters and UTF-8 are printed safely"""
    value = "a b%s\u00e4\t\x1b[31m"
    lead(t, "n %d", "--proclaim", value)
    expect(leader_of(t, "n %d")["value"], value)
    line = t.stile("leader", "n %d").stdout
    assert "\x1b" not in line and "proclaims a b%s\u00e4" in line, line
    done = t.stile("elect", "--proclaim", "v" * 1025, "y", "--", "true")
    expect(done.returncode, 64)
    assert "1025 bytes, 1024 is the limit" in done.stderr, done.stderr
    done = t.stile("elect", "--proclaim", "v", "y" * 507, "--", "true")
    expect(done.returncode, 69)
    assert "at most 506 bytes" in done.stderr, done.stderr
    expect(t.stile("elect", "--once", "--proclaim", "v", "y" * 506, "--", "true").returncode, 0)


run_tests([nobody, leads_and_resigns, not_elected, another_leads_next, lost_and_led_again, lost_once,
           ended_by_sigterm, ended_in_a_pause, reloads, killed, descriptors_do_not_pile_up,
           raises_a_guard, not_executable, odd_values])
