# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""stile run: what the command gets, how it ends, names, waiting."""
import os
import re
import signal
import subprocess
import sys

from kit import COUNTING, STILE, children, expect, run_tests, spin

PYTHON = sys.executable


def exit_codes_are_the_commands_own(t):
    """exit codes are the command's own, and it dies of the signal that ended the command"""
    for code in 0, 1, 3, 75, 255:
        expect(t.stile("run", "x", "--", "sh", "-c", "exit %d" % code).returncode, code)
    for sig in signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1:
        done = t.stile("run", "x", "--", "sh", "-c", "kill -%d $$" % sig)
        expect((done.returncode, done.stderr), (-sig, ""))


def what_cannot_be_executed(t):
    """126 and 127 as a shell, and the lock is free again"""
    missing = t.stile("run", "x", "--", "no-such-command")
    expect(missing.returncode, 127)
    expect(missing.stderr, "stile: no-such-command: No such file or directory\n")
    refused = t.stile("run", "x", "--", t.dir)
    expect(refused.returncode, 126)
    assert "ermission denied" in refused.stderr, refused.stderr
    os.mkdir(t.path("closed"), 0)
    env = {**t.env, "PATH": t.path("closed") + ":" + t.env["PATH"]}
    expect(t.stile("run", "x", "--", "no-such-command", env=env).returncode, 127)
    os.chmod(t.path("closed"), 0o700)
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)


def stdin_stdout_stderr_are_the_commands(t):
    """row 26: stdin, stdout and stderr are the command's"""
    text = "".join("line %d\n" % i for i in range(10000))
    done = t.stile("run", "x", "--", "sh", "-c", "cat; echo oops >&2", input=text, text=True)
    expect((done.returncode, done.stdout, done.stderr), (0, text, "oops\n"))


def stdin_is_not_read_ahead(t):
    """stdin is left to the next command of a script"""
    done = subprocess.run(["sh", "-c", '"$0" run x -- head -n 1 >/dev/null; cat', STILE],
                          input=b"one\n", env=t.env, stdout=subprocess.PIPE, check=False)
    expect(done.stdout, b"")
    script = '"$0" run x -- true; read line; echo "$line"'
    done = subprocess.run(["sh", "-c", script, STILE], input=b"mine\n", env=t.env,
                          stdout=subprocess.PIPE, check=False)
    expect(done.stdout, b"mine\n")


PRINT_OURS = "env | grep ^STILE_ | sort"


def environment_tells_of_the_lock(t):
    """the command finds name, token and engine in its environment"""
    seen = []
    for _ in range(2):
        done = t.stile("run", "the name", "--", "sh", "-c", PRINT_OURS)
        values = dict(line.split("=", 1) for line in done.stdout.splitlines())
        expect(set(values), {"STILE_NAME", "STILE_TOKEN", "STILE_ISSUER", "STILE_ENGINE"})
        expect(values["STILE_ISSUER"], "local:the name")
        expect(values["STILE_NAME"], "the name")
        expect(values["STILE_ENGINE"], t.env["STILE_ENGINE"])
        seen.append(int(values["STILE_TOKEN"]))
    assert 0 < seen[0] < seen[1], seen


def nested_run_replaces_the_variables(t):
    """row 26: a nested run shows its command the inner lock and nothing of the outer"""
    inner = [STILE, "run", "inner", "--", "sh", "-c", PRINT_OURS]
    done = t.stile("run", "outer", "other", "--", *inner)
    values = dict(line.split("=", 1) for line in done.stdout.splitlines())
    expect(set(values), {"STILE_NAME", "STILE_TOKEN", "STILE_ISSUER", "STILE_ENGINE"},
           done.stderr)
    expect((values["STILE_NAME"], values["STILE_ISSUER"]), ("inner", "local:inner"))


def several_names_in_canonical_order(t):
    """several names: all are held, listed in byte order, each with its token; STILE_NAME is the first"""
    for name in "b", "c", "c":
        t.stile("run", name, "--", "true")
    done = t.stile("run", "c", "a", "b", "--", "sh", "-c",
                   'echo "$STILE_NAME"; echo "$STILE_NAMES"; echo "$STILE_TOKEN"; '
                   'echo "$STILE_TOKENS"; "$0" ls | tail -n +2 | cut -d" " -f1', STILE)
    lines = done.stdout.splitlines()
    expect(lines[:4], ["c", "a", "b", "c"], done.stderr)
    tokens = lines[5:8]
    expect(lines[4], tokens[2])
    assert int(tokens[1]) > 1 and int(tokens[2]) > 1, lines
    expect(lines[8:], ["a", "b", "c"])


def several_names_all_or_none(t):
    """several names: none is kept if one of them is not granted"""
    held = t.hold("b")
    done = t.stile("run", "--try", "a", "b", "c", "--", "echo", "ran")
    expect((done.returncode, done.stdout), (75, ""))
    done = t.stile("run", "--wait", "50ms", "c", "b", "a", "--", "echo", "ran")
    expect((done.returncode, done.stdout), (75, ""))
    for name in "a", "c":
        expect(t.show(name)["holders"], [], name)
    expect(t.show("b")["waiters"], [])
    t.release(held)


def opposite_orders_do_not_deadlock(t):
    """several names: runs that name them in opposite orders all end"""
    runs = [t.start("run", *("ab" if i % 2 else "ba"), "--", "sh", "-c", "echo $STILE_NAMES")
            for i in range(10)]
    for running in runs:
        expect((running.wait(), running.line()), (0, "a b"))


def try_and_wait(t):
    """--try and --wait end with 75 and name the command that shows the holder; -q prints nothing"""
    held = t.hold("x")
    done = t.stile("run", "--try", "x", "--", "echo", "ran")
    expect((done.returncode, done.stdout), (75, ""))
    assert re.fullmatch(r"stile: x: held by \S+ pid %d \(sh\) since \S+; see: stile show x\n" % held.pid,
                        done.stderr), done.stderr
    done = t.stile("run", "--wait", "20ms", "x", "--", "echo", "ran")
    expect((done.returncode, done.stdout), (75, ""))
    assert "not granted in time" in done.stderr, done.stderr
    expect(t.stile("run", "-q", "--try", "x", "--", "echo").stderr, "")
    expect(t.show("x")["waiters"], [])
    t.release(held)


def waits_for_its_turn(t):
    """without --try it waits, and runs when the holder has ended"""
    held, watched = t.hold("x"), t.watch("x")
    waiter = t.start("run", "x", "--", "echo", "my turn")
    t.until(watched, lambda change: len(change["waiters"]) == 1)
    expect(waiter.process.poll(), None)
    t.release(held)
    expect((waiter.line(), waiter.wait()), ("my turn", 0))


def signal_ends_a_wait(t):
    """row 25, row 6: run dies of a signal that ends its wait and leaves nothing in the queue"""
    held, watched = t.hold("x"), t.watch("x")
    for sig in signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1:
        waiter = t.start("run", "x", "--", "echo", "ran")
        t.until(watched, lambda change: len(change["waiters"]) == 1)
        waiter.kill(sig)
        expect((waiter.wait(), waiter.out.end(), waiter.err.end()), (-sig, "", ""))
        t.until(watched, lambda change: change["waiters"] == [])
    t.release(held)


def signal_ends_a_wait_for_several(t):
    """row 25: a signal ends a wait for several names and gives back those it had"""
    held, watched = t.hold("b"), t.watch("b")
    waiter = t.start("run", "b", "a", "--", "echo", "ran")
    t.until(watched, lambda change: len(change["waiters"]) == 1)
    expect(len(t.show("a")["holders"]), 1)
    waiter.kill(signal.SIGTERM)
    expect(waiter.wait(), -signal.SIGTERM)
    expect(t.show("a")["holders"], [])
    t.release(held)


def start_counting(t, **how):
    counted = "SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"
    running = t.start("run", "x", "--", PYTHON, "-c", COUNTING % (counted,), stdin=subprocess.PIPE,
                      **how)
    expect(running.line(), "counting")
    return running


def end_counting(running):
    running.process.stdin.close()
    expect(running.wait(), 0)


def signals_are_passed_on_once(t):
    """signals sent to us reach the command, once each, and end nobody else"""
    running = start_counting(t)
    seen = []
    for sig in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
                signal.SIGTERM):
        running.kill(sig)
        seen.append(sig.name + "=1")
        expect(running.line(), " ".join(seen))
    end_counting(running)
    expect(running.out.end(), "")


def signals_to_the_warden_are_passed_on(t):
    """the pid that stile show prints is run's own; what the warden is sent is passed on too"""
    running = start_counting(t)
    (holder,) = t.show("x")["holders"]
    expect(holder["pid"], running.pid)
    os.kill(running.warden(), signal.SIGTERM)
    expect(running.line(), "SIGTERM=1")
    end_counting(running)


def signals_to_the_group_are_seen_once(t):
    """a signal to the whole process group is not passed on a second time"""
    running = start_counting(t, start_new_session=True)
    warden = running.warden()
    # More than once: the kernel makes one of two equal signals that wait for the same process.
    for n in range(1, 16):
        os.killpg(running.pid, signal.SIGUSR1)
        expect(running.line(), "SIGUSR1=%d" % n + (" SIGUSR2=%d" % (n - 1) if n > 1 else ""))
        # What the warden alone is sent is passed on later than a doubled signal would have been.
        os.kill(warden, signal.SIGUSR2)
        expect(running.line(), "SIGUSR1=%d SIGUSR2=%d" % (n, n))
    end_counting(running)


def pending(pid):
    with open("/proc/%d/status" % pid, encoding="utf-8") as file:
        return int(re.search(r"(?m)^ShdPnd:\s*(\w+)$", file.read()).group(1), 16)


def end_in_the_middle_of_signals(t):
    """a command that ends while signals are still being passed on is waited for"""
    for _ in range(12):
        running = t.start("run", "x", "--", "sh", "-c", "echo up; exec sleep 1000")
        expect(running.line(), "up")
        os.kill(running.warden(), signal.SIGSTOP)
        # The first one ends the command; the warden still has all the others before it then.
        for sig in [signal.SIGTERM] + [signal.SIGUSR1] * 1500:
            running.kill(sig)
            spin(lambda: pending(running.pid) == 0)
        # Through the front: what the warden itself is sent would make it look again later.
        running.kill(signal.SIGCONT)
        expect(running.wait(), -signal.SIGTERM)


def dispositions_are_those_we_were_started_with(t):
    """an ignored SIGHUP (nohup) stays ignored, all else is as before"""
    def prepare():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, [signal.SIGWINCH])

    def masks(*command):
        # Python's own ignored SIGPIPE and SIGXFSZ are put back by subprocess.
        done = subprocess.run([*command, "grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"],
                              env=t.env, preexec_fn=prepare, stdout=subprocess.PIPE, check=True)
        return done.stdout

    expect(masks(STILE, "run", "x", "--"), masks("env"))


def ignored_hangup_does_not_end_a_wait(t):
    """nohup stile run: a SIGHUP does not end its wait"""
    held, watched = t.hold("x"), t.watch("x")
    waiter = t.start("run", "x", "--", "echo", "my turn",
                     preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    t.until(watched, lambda change: len(change["waiters"]) == 1)
    waiter.kill(signal.SIGHUP)
    t.release(held)
    expect((waiter.line(), waiter.wait()), ("my turn", 0))


def started_with_signals_ignored(t):
    """the tests set the signals they need: nohup make test, a parent that ignores or blocks them"""
    def prepare():
        for sig in signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGCHLD:
            signal.signal(sig, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, [signal.SIGTERM, signal.SIGUSR1])

    done = subprocess.run([PYTHON, __file__, "signals_are_passed_on_once", "signal_ends_a_wait"],
                          preexec_fn=prepare,
                          stdout=subprocess.PIPE, text=True, check=False)
    expect(done.returncode, 0, done.stdout)


def descriptors_are_not_leaked(t):
    """the command has no descriptor of ours but the one that the lock lives by"""
    plain = subprocess.run(["ls", "/proc/self/fd"], stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, check=True).stdout
    done = t.stile("run", "--leave", "x", "y", "--", "ls", "/proc/self/fd")
    expect(done.stdout.encode(), plain)
    done = t.stile("run", "x", "y", "--", "ls", "-l", "/proc/self/fd")
    expect(re.findall(r"(\d+) -> (.*)", done.stdout)[2], ("100", t.path("engine/live")))
    expect(done.stdout.count(" -> "), plain.count(b"\n") + 1)


def shared_and_slots(t):
    """--shared lets readers in together, --slots N so many"""
    readers = [t.hold("r", "--shared") for _ in range(2)]
    expect(t.stile("run", "--try", "r", "--", "true").returncode, 75)
    for held in readers:
        t.release(held)
    expect(t.stile("run", "--try", "r", "--", "true").returncode, 0)
    users = [t.hold("s", "--slots", "2") for _ in range(2)]
    expect(t.stile("run", "--try", "--slots=2", "s", "--", "true").returncode, 75)
    t.release(users[0])
    expect(t.stile("run", "--try", "--slots=2", "s", "--", "true").returncode, 0)
    t.release(users[1])


def twenty_copies_one_runs(t):
    """row 28: of twenty copies with --try --hold-at-least exactly one runs"""
    copies = [t.start("run", "-q", "--try", "--hold-at-least", "1h", "job", "--", "echo", "ran")
              for _ in range(20)]
    codes = sorted(copy.wait() for copy in copies)
    expect(codes, [0] + [75] * 19)
    expect("".join(copy.out.end() for copy in copies), "ran\n")
    # And the clock of a host that comes late changes nothing.
    expect(t.stile("run", "--try", "job", "--", "echo").returncode, 75)
    (ghost,) = t.show("job")["holders"]
    expect(ghost["ghost"], True)


def hold_survives_kill(t):
    """row 28: --hold-at-least is kept though run and warden are killed with -9"""
    held = t.hold("job", "--hold-at-least", "1h")
    for pid in held.warden(), held.pid:
        os.kill(pid, signal.SIGKILL)
    held.wait()
    expect(t.stile("run", "--try", "job", "--", "echo").returncode, 75)


run_tests([
    exit_codes_are_the_commands_own,
    what_cannot_be_executed,
    stdin_stdout_stderr_are_the_commands,
    stdin_is_not_read_ahead,
    environment_tells_of_the_lock,
    nested_run_replaces_the_variables,
    several_names_in_canonical_order,
    several_names_all_or_none,
    opposite_orders_do_not_deadlock,
    try_and_wait,
    waits_for_its_turn,
    signal_ends_a_wait,
    signal_ends_a_wait_for_several,
    signals_are_passed_on_once,
    signals_to_the_warden_are_passed_on,
    signals_to_the_group_are_seen_once,
    end_in_the_middle_of_signals,
    dispositions_are_those_we_were_started_with,
    ignored_hangup_does_not_end_a_wait,
    started_with_signals_ignored,
    descriptors_are_not_leaked,
    shared_and_slots,
    twenty_copies_one_runs,
    hold_survives_kill,
])
