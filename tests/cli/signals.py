# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Signals of stile run: each one reaches the command exactly once, whatever its process group, and
run dies of the one that ended the command."""
import os
import pty
import select
import signal
import subprocess
import sys

from kit import COUNTING, PATIENCE, STILE, children, expect, run_tests, spin

PYTHON = sys.executable
NAMES = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGABRT", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGWINCH",
         "SIGURG", "SIGTERM")
# What a program does before it counts.
PLACES = {
    "in the caller's group": "",
    "in its own group": "os.setpgid(0, 0)",
    "in its own session": "os.setpgid(0, 0) if os.getpid() == os.getsid(0) else os.setsid()",
}


def counting(names, before=""):
    return "import os\n%s\n%s" % (before, COUNTING % (names,))


def start_counting(t, before="", names=NAMES):
    running = t.start("run", "x", "--", PYTHON, "-c", counting(names, before),
                      stdin=subprocess.PIPE, start_new_session=True)
    expect(running.line(), "counting")
    return running


def end_counting(running):
    running.process.stdin.close()
    expect((running.wait(), running.out.end()), (0, ""), running.err.end())


def counted(names):
    return " ".join("%s=1" % name for name in sorted(names, key=lambda n: signal.Signals[n]))


def sent_to_run(t):
    """what run is sent reaches the command once: in run's group, in its own, in its own session"""
    for place, before in PLACES.items():
        running = start_counting(t, before)
        for n, name in enumerate(NAMES, 1):
            running.kill(signal.Signals[name])
            expect(running.line(), counted(NAMES[:n]), place)
        end_counting(running)


def sent_to_the_group(t):
    """what run's process group is sent reaches the command once, wherever it is"""
    for place, before in PLACES.items():
        running = start_counting(t, before)
        for n, name in enumerate(NAMES, 1):
            os.killpg(running.pid, signal.Signals[name])
            expect(running.line(), counted(NAMES[:n]), place)
        end_counting(running)


def behind_a_double_fork(t):
    """a command that forks twice and stays to wait: the one that was started gets the signals"""
    before = ("if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
              "        import signal\n        signal.pause()\n    os._exit(0)\nos.wait()\n")
    running = start_counting(t, before)
    for n, name in enumerate(NAMES, 1):
        running.kill(signal.Signals[name])
        expect(running.line(), counted(NAMES[:n]))
    running.process.stdin.close()
    said = running.err.next()
    assert "the command has ended; the lock is kept" in said, said
    running.kill(signal.SIGTERM)
    expect(running.wait(), 0)


# Prints the value of every real-time signal, in its order.
VALUES = """
import os, signal, sys
%s
wanted = {signal.SIGRTMIN + 2, signal.SIGRTMIN + 3}
signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
os.write(1, b"up\\n")
while True:
    info = signal.sigwaitinfo(wanted)
    if info.si_signo == signal.SIGRTMIN + 3:
        break
    os.write(1, b"%%d\\n" %% info.si_status)
"""


def real_time_signals(t):
    """real-time signals reach the command, as many as were sent, to run and to its group"""
    for before in PLACES.values():
        for send in os.kill, os.killpg:
            running = t.start("run", "x", "--", PYTHON, "-c", VALUES % before,
                              start_new_session=True)
            expect(running.line(), "up")
            for _ in range(20):
                send(running.pid, signal.SIGRTMIN + 2)
            # Passed on behind the others.
            running.kill(signal.SIGRTMIN + 3)
            expect((running.wait(), running.out.end().count("\n")), (0, 20), (before, send))


def rests_in(pid, program):
    """It is that program by now, and waits in a system call."""
    with open("/proc/%d/comm" % pid, encoding="utf-8") as comm, \
            open("/proc/%d/syscall" % pid, encoding="utf-8") as call:
        return comm.read().strip() == program and call.read()[0].isdigit()


def one_by_one(t):
    """a sender that signals run and the warden one by one still ends the command"""
    for front_first in True, False:
        running = t.start("run", "x", "--", "sh", "-c", "echo up; exec sleep 1000")
        expect(running.line(), "up")
        both = [running.pid, running.warden()]
        (command,) = children(both[1])
        spin(lambda: rests_in(command, "sleep"))
        # Stopped, so that each has its signal before the other one is done with it.
        os.kill(both[1], signal.SIGSTOP)
        for pid in both if front_first else reversed(both):
            os.kill(pid, signal.SIGTERM)
        os.kill(both[1], signal.SIGCONT)
        expect(running.wait(), -signal.SIGTERM)


def by_its_command_line(t):
    """pkill -TERM -f 'stile run NAME' ends it; with -KILL the tree is dead before the lock is free"""
    for sig in signal.SIGTERM, signal.SIGKILL:
        name = "pk" + os.path.basename(t.dir)
        running = t.start("run", name, "--", "sh", "-c",
                          "echo up; sleep 1000 & sleep 1000; true", start_new_session=True)
        expect(running.line(), "up")
        expect(subprocess.run(["pkill", "-%d" % sig, "-f", "stile run " + name],
                              check=False).returncode, 0)
        expect(running.wait(), -sig)
        expect(t.stile("run", "--wait", "%ds" % PATIENCE, name, "--", "true").returncode, 0)
        expect(running.out.end(), "", "somebody has the pipe open")


def below_timeout(t):
    """timeout(1) around run and inside it"""
    done = subprocess.run(["timeout", "0.5", STILE, "run", "t", "--", "timeout", "1000", "sleep",
                           "1000"], env=t.env, timeout=PATIENCE, check=False)
    expect(done.returncode, 124)
    expect(t.stile("run", "--try", "t", "--", "true").returncode, 0)
    expect(t.stile("run", "t", "--", "timeout", "0.1", "sleep", "1000").returncode, 124)


def an_alarm_that_was_set_before(t):
    """an alarm set before exec, the poor man's timeout, ends the command"""
    done = t.stile("run", "x", "--", "sleep", "1000",
                   preexec_fn=lambda: signal.setitimer(signal.ITIMER_REAL, 0.3))
    expect(done.returncode, -signal.SIGALRM)


def stopped_and_continued(t):
    """SIGTSTP to run alone stops run and the command, SIGCONT continues both"""
    # Under a shell of its own, so that the group is not an orphaned one, which cannot be stopped.
    script = '"$0" run x -- "$1" -c "$2" & echo $!; sleep 1000'
    shell = subprocess.Popen(["bash", "-c", "set -m; " + script, STILE, PYTHON,
                              counting(("SIGUSR1",))], env=t.env, stdout=subprocess.PIPE,
                             stdin=subprocess.PIPE, start_new_session=True)
    running = type(t.start("--version"))(shell)
    t.started.append(running)
    front = int(running.line())
    expect(running.line(), "counting")
    (warden,) = children(front)
    (command,) = children(warden)

    def states():
        return [open("/proc/%d/stat" % pid, encoding="utf-8").read().rpartition(")")[2].split()[0]
                for pid in (front, command)]

    os.kill(front, signal.SIGTSTP)
    spin(lambda: states() == ["T", "T"])
    os.kill(front, signal.SIGCONT)
    spin(lambda: "T" not in states())
    os.kill(front, signal.SIGUSR1)
    expect(running.line(), "SIGUSR1=1")
    os.kill(front, signal.SIGKILL)


def hang_up_of_its_own_terminal(t):
    """run as the leader of a session whose terminal goes away: only run gets the signal, the command ends"""
    life = t.fifo("life")
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(STILE, [STILE, "run", "x", "--", "sh", "-c",
                          "echo up >%s; exec sleep 1000 >%s" % (t.path("life"), t.path("life"))],
                  t.env)
    expect(life.next(), "up")
    os.close(terminal)
    expect(life.end(), "")
    ended = os.pidfd_open(pid)
    assert select.select([ended], [], [], PATIENCE)[0]
    os.close(ended)
    expect(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), -signal.SIGHUP)


def no_core_of_ours(t):
    """run dies of SIGQUIT without a core of its own"""
    running = t.start("run", "x", "--", "sh", "-c", "echo up; exec sleep 1000", cwd=t.dir)
    expect(running.line(), "up")
    running.kill(signal.SIGQUIT)
    pid, status = os.waitpid(running.pid, 0)
    running.process.returncode = -signal.SIGQUIT
    expect((os.WTERMSIG(status), os.WCOREDUMP(status)), (signal.SIGQUIT, False))


run_tests([
    sent_to_run,
    sent_to_the_group,
    behind_a_double_fork,
    real_time_signals,
    one_by_one,
    by_its_command_line,
    below_timeout,
    an_alarm_that_was_set_before,
    stopped_and_continued,
    hang_up_of_its_own_terminal,
    no_core_of_ours,
])
