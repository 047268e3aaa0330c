# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""stile run in a terminal, under a shell with job control: as if the command had been started alone."""
import fcntl
import os
import pty
import select
import shlex
import signal
import struct
import sys
import termios

from kit import COUNTING, PATIENCE, STILE, Lines, children, expect, kill_quietly, run_tests, spin

CTRL_C, CTRL_D, CTRL_Z = "\x03", "\x04", "\x1a"


class Shell:
    """An interactive bash on a terminal of its own."""

    def __init__(self, t, counted=("SIGINT", "SIGQUIT", "SIGUSR2")):
        env = {**t.env, "PS1": "$ ", "TERM": "dumb", "STILE": STILE}
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"], env)
        self.screen = Lines(self.fd)
        self.open = True
        t.started.append(self)
        self.process = self
        self.stdin = self.stdout = self.stderr = None
        self.count = t.path("count.py")
        with open(self.count, "w", encoding="utf-8") as file:
            file.write(COUNTING % (counted,))
        self.until("$ ")

    def until(self, text):
        return self.screen.until(text)

    def type(self, text):
        os.write(self.fd, text.encode())

    def counting(self, name="x"):
        """Types a run of the counting command and waits for it; returns run's pid."""
        self.type('"$STILE" run %s -- %s %s\n' % (name, shlex.quote(sys.executable), self.count))
        self.until("counting\r\n")
        return self.job()

    def job(self):
        (pid,) = children(self.pid)
        return pid

    def fg(self, run):
        """Continues the job, and waits until it has the terminal."""
        self.type("fg\n")
        spin(lambda: os.tcgetpgrp(self.fd) == os.getpgid(run) and state(run) != "T")

    def code(self):
        """The exit code of what was run last."""
        self.type("echo code=$?.\n")
        self.until("code=$?.\r\n")
        return int(self.until(".\r\n").partition("code=")[2].partition(".")[0])

    def hang_up(self):
        if self.open:
            self.open = False
            os.close(self.fd)

    # What Scene.close() asks of a process:

    def poll(self):
        return None

    def wait(self, _patience):
        for pid in children(self.pid) + [self.pid]:
            kill_quietly(pid)
        self.hang_up()
        os.waitpid(self.pid, 0)


def state(pid):
    with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()[0]


def warden_of(run):
    (pid,) = children(run)
    return pid


def ctrl_c_reaches_the_command_once(t):
    """Ctrl-C reaches the command, once, and nobody else ends from it"""
    shell = Shell(t)
    run = shell.counting()
    for key, name in (CTRL_C, "SIGINT"), ("\x1c", "SIGQUIT"):
        shell.type(key)
        shell.until(name + "=1\r\n")
    # Passed on later than a doubled one would have been.
    os.kill(warden_of(run), signal.SIGUSR2)
    shell.until("SIGINT=1 SIGQUIT=1 SIGUSR2=1\r\n")
    shell.type(CTRL_D)
    expect(shell.code(), 0)


def ctrl_c_ends_the_command(t):
    """Ctrl-C ends a command that does not mind: 130"""
    shell = Shell(t)
    shell.type('"$STILE" run x -- sh -c "echo up; exec sleep 1000"\n')
    shell.until("up\r\n")
    shell.type(CTRL_C)
    expect(shell.code(), 128 + signal.SIGINT)
    expect(t.show("x")["holders"], [])


def ctrl_c_ends_a_command_in_its_own_group(t):
    """Ctrl-C reaches timeout(1), which leaves the terminal's process group: 130"""
    shell = Shell(t)
    shell.type('"$STILE" run x -- timeout 1000 sh -c "echo up; exec sleep 1000"\n')
    shell.until("up\r\n")
    shell.type(CTRL_C)
    expect(shell.code(), 128 + signal.SIGINT)
    expect(t.show("x")["holders"], [])


def ctrl_c_ends_a_script(t):
    """Ctrl-C ends a script that runs stile in a loop, since run dies of it"""
    shell = Shell(t)
    with open(t.path("loop"), "w", encoding="utf-8") as file:
        file.write('for i in 1 2 3; do "$STILE" run x -- sh -c "echo up; exec sleep 1000"; '
                   'echo "next of $i"; done\n')
    shell.type("bash %s\n" % t.path("loop"))
    shell.until("up\r\n")
    shell.type(CTRL_C)
    shell.type("echo 'the ''end'\n")
    assert "next of" not in shell.until("the end\r\n")


RESIZED = """
import os, signal, sys
if sys.argv[1] == "apart":
    os.setpgid(0, 0)
seen = 0
def resized(sig, frame):
    global seen
    seen += 1
signal.signal(signal.SIGWINCH, resized)
signal.signal(signal.SIGUSR2, lambda sig, frame: os.write(1, b"seen %d.\\n" % seen))
os.write(1, b"coun" b"ting\\n")
while True:
    signal.pause()
"""


def a_terminal_that_is_resized(t):
    """SIGWINCH reaches the command once, in the terminal's process group and apart from it"""
    shell = Shell(t)
    with open(t.path("resized.py"), "w", encoding="utf-8") as file:
        file.write(RESIZED)
    for place in "inside", "apart":
        shell.type('"$STILE" run x -- %s %s %s\n' % (shlex.quote(sys.executable),
                                                   t.path("resized.py"), place))
        shell.until("counting\r\n")
        run = shell.job()
        for n in range(1, 4):
            fcntl.ioctl(shell.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 20 + n, 70 + n, 0, 0))
            # Passed on later than a doubled one would have been, and the answer comes after it.
            os.kill(warden_of(run), signal.SIGUSR2)
            shell.until("seen %d.\r\n" % n)
        os.kill(run, signal.SIGTERM)
        expect(shell.code(), 128 + signal.SIGTERM)
        fcntl.ioctl(shell.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 100, 0, 0))


def ctrl_z_stops_a_command_in_its_own_group(t):
    """Ctrl-Z stops timeout(1), too, and fg goes on with it"""
    shell = Shell(t)
    shell.type('"$STILE" run x -- timeout 1000 sh -c "echo up; exec sleep 1000"\n')
    shell.until("up\r\n")
    run = shell.job()
    (command,) = children(warden_of(run))
    shell.type(CTRL_Z)
    shell.until("Stopped")
    spin(lambda: state(command) == "T")
    shell.fg(run)
    spin(lambda: state(command) != "T")
    shell.type(CTRL_C)
    expect(shell.code(), 128 + signal.SIGINT)


def ctrl_c_ends_a_wait(t):
    """row 25: Ctrl-C ends a wait: 130, and nothing is left in the queue"""
    held, watched, shell = t.hold("x"), t.watch("x"), Shell(t)
    shell.type('"$STILE" run x -- echo ran\n')
    t.until(watched, lambda change: len(change["waiters"]) == 1)
    shell.type(CTRL_C)
    expect(shell.code(), 128 + signal.SIGINT)
    t.until(watched, lambda change: change["waiters"] == [])
    t.release(held)


def ctrl_z_and_fg(t):
    """Ctrl-Z stops the job but not the warden, fg goes on with it"""
    shell = Shell(t)
    run = shell.counting()
    for _ in range(3):
        shell.type(CTRL_Z)
        shell.until("Stopped")
        expect(state(run), "T")
        assert state(warden_of(run)) != "T"
        expect(len(t.show("x")["holders"]), 1)
        shell.fg(run)
        shell.type("hello\n")
        shell.until("read HELLO\r\n")
    shell.type(CTRL_C)
    shell.until("SIGINT=1\r\n")
    shell.type(CTRL_D)
    expect(shell.code(), 0)


def ctrl_z_and_fg_while_the_warden_is_slow(t):
    """a warden that hears of Ctrl-Z after fg does not stop the command again"""
    shell = Shell(t, ("SIGUSR2", "SIGCONT"))
    run = shell.counting()
    warden = warden_of(run)
    os.kill(warden, signal.SIGSTOP)
    spin(lambda: state(warden) == "T")
    shell.type(CTRL_Z)
    shell.until("Stopped")
    shell.fg(run)
    shell.until("SIGCONT=1")
    # Passed on later than all that the warden was shown before.
    os.kill(warden, signal.SIGUSR2)
    shell.until("SIGUSR2=1")


def continued_by_kill(t):
    """kill -CONT of run alone continues the command too"""
    shell = Shell(t)
    run = shell.counting()
    (command,) = children(warden_of(run))
    shell.type(CTRL_Z)
    shell.until("Stopped")
    # In the background it may write, and says so once it runs again.
    os.kill(command, signal.SIGUSR2)
    os.kill(run, signal.SIGCONT)
    shell.until("SIGUSR2=1\r\n")


def ctrl_z_while_waiting(t):
    """Ctrl-Z in a wait: granted or not, the command starts after fg"""
    held, watched, shell = t.hold("x"), t.watch("x"), Shell(t)
    shell.type('"$STILE" run -q x -- echo sta""rted\n')
    t.until(watched, lambda change: len(change["waiters"]) == 1)
    front = shell.job()
    shell.type(CTRL_Z)
    shell.until("Stopped")
    t.release(held)
    t.until(watched, lambda change: [h["pid"] for h in change["holders"]] == [front])
    expect([h["pid"] for h in t.show("x")["holders"]], [front])
    shell.type("fg; echo done\n")
    assert "started" not in shell.until("fg; echo done\r\n")
    shell.until("started\r\n")
    expect(shell.code(), 0)


def background_job_that_reads(t):
    """a command in the background that reads the terminal stops its job, fg gives it the terminal"""
    shell = Shell(t)
    shell.type('"$STILE" run x -- sh -c \'read line; echo "got $line"\' &\n')
    shell.until("\r\n")
    # The shell reports jobs before its next prompt; an empty line asks for one.
    while "Stopped" not in shell.screen.rest.decode(errors="replace"):
        shell.type("\n")
        assert shell.screen.more()
    shell.type("fg\n")
    shell.type("a line\n")
    shell.until("got a line\r\n")
    expect(shell.code(), 0)


def hang_up_ends_the_job(t):
    """a terminal that is closed ends the command, and the lock is given back"""
    shell, watched = Shell(t), t.watch("x")
    shell.type('"$STILE" run x -- sh -c "echo up; exec sleep 1000"\n')
    shell.until("up\r\n")
    t.until(watched, lambda change: len(change["holders"]) == 1)
    front = os.pidfd_open(shell.job())
    shell.hang_up()
    ready, _, _ = select.select([front], [], [], PATIENCE)
    os.close(front)
    assert ready, "run does not end"
    t.until(watched, lambda change: change["holders"] == [])


def waiting_is_told_on_a_terminal(t):
    """row 29: after a second of waiting, a terminal shows the holder"""
    held, shell = t.hold("x"), Shell(t)
    shell.type('"$STILE" run x -- true\n')
    shown = shell.until("stile: waiting for 'x' (held by %s pid %d for " % (os.uname().nodename,
                                                                         held.pid))
    expect(shown.count("waiting for"), 1)
    shell.type(CTRL_C)
    expect(shell.code(), 128 + signal.SIGINT)
    t.release(held)


def break_asks_on_a_terminal(t):
    """break asks before it takes a lock away, unless -y is given"""
    held, shell = t.hold("x"), Shell(t)
    shell.type('"$STILE" break x\n')
    shell.until("x is held by %d@" % held.pid)
    shell.until("[y/N] ")
    shell.type("n\n")
    shell.until("left as it is")
    expect(shell.code(), 75)
    shell.type('"$STILE" break x\n')
    shell.until("[y/N] ")
    shell.type("y\n")
    shell.until("x was taken from %d@" % held.pid)
    expect(shell.code(), 0)
    expect(held.wait(), 76)
    held = t.hold("x")
    shell.type('"$STILE" break -y x\n')
    assert "[y/N]" not in shell.until("x was taken from")
    expect(held.wait(), 76)


run_tests([
    ctrl_c_reaches_the_command_once,
    ctrl_c_ends_the_command,
    ctrl_c_ends_a_command_in_its_own_group,
    ctrl_c_ends_a_script,
    a_terminal_that_is_resized,
    ctrl_z_stops_a_command_in_its_own_group,
    ctrl_c_ends_a_wait,
    ctrl_z_and_fg,
    ctrl_z_and_fg_while_the_warden_is_slow,
    continued_by_kill,
    ctrl_z_while_waiting,
    background_job_that_reads,
    hang_up_ends_the_job,
    waiting_is_told_on_a_terminal,
    break_asks_on_a_terminal,
])
