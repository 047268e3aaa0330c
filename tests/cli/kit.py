# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What the tests of the command share: a scene of its own for each test, and TAP for all of them.

The command under test is $STILE. Whatever a test waits for is an event (a line, the end of a
process, the end of a file); PATIENCE only ends a test that would hang.
"""
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

STILE = os.environ["STILE"]
PATIENCE = 60.0
LINE_MAX = 300  # of what is printed about a failure

# Prints how often it saw each signal, after each one, and what it reads.
COUNTING = """
import os, select, signal
# Signals come as bytes through a pipe: a handler written in Python would wait for the end of a
# read(2) that began between its signal and the look at what is pending.
signals, wakeup = os.pipe()
os.set_blocking(wakeup, False)
signal.set_wakeup_fd(wakeup)
# The line that a terminal had to read may be gone: the shell has read it, and this process only got
# its time after fg. A file of its own, as O_NONBLOCK would be the shell's, too.
stdin = os.open("/proc/self/fd/0", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
for name in %r:
    signal.signal(signal.Signals[name], lambda sig, frame: None)
os.write(1, b"counting\\n")
counts, line = {}, b"?"
while line:
    ready = select.select([signals, stdin], [], [])[0]
    if signals in ready:
        sig = os.read(signals, 1)[0]
        counts[sig] = counts.get(sig, 0) + 1
        seen = ("%%s=%%d" %% (signal.Signals(s).name, n) for s, n in sorted(counts.items()))
        os.write(1, (" ".join(seen) + "\\n").encode())
        continue
    try:
        line = os.read(stdin, 4096)
        os.write(1, line and b"read " + line.upper())
    except BlockingIOError:
        pass
"""


# nohup, cron and shells in the background start us with signals ignored, and so would we start what
# is tested; each test sets what it needs itself.
for _number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    if signal.getsignal(_number) == signal.SIG_IGN and _number not in (signal.SIGPIPE,
                                                                     signal.SIGXFSZ):
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT
                      else signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_SETMASK, [])


def children(pid):
    """The processes whose parent is pid, those that have ended left out."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % entry, encoding="utf-8", errors="replace") as file:
                state, parent = file.read().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == pid and state != "Z":
            found.append(int(entry))
    return found


def spin(condition, patience=PATIENCE):
    """For the few things that no event reports. The process that is watched needs the processor, too: without a
    pause a ZooKeeper is kept from choosing its leader by being asked for it."""
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, "did not happen in %d s" % patience
        time.sleep(0.005)


class Lines:
    """Lines of a file descriptor, as they come."""

    def __init__(self, fd):
        self.fd, self.rest = fd, b""

    def more(self):
        """False at the end of the file."""
        ready, _, _ = select.select([self.fd], [], [], PATIENCE)
        assert ready, "nothing came for %d s; so far: %r" % (PATIENCE, self.rest)
        try:
            got = os.read(self.fd, 65536)
        except OSError:  # a terminal whose last user has ended
            got = b""
        self.rest += got
        return bool(got)

    def next(self):
        while b"\n" not in self.rest:
            assert self.more(), "ended; so far: %r" % self.rest
        line, _, self.rest = self.rest.partition(b"\n")
        return line.decode(errors="replace").rstrip("\r")

    def until(self, text):
        """Everything up to and with text."""
        text = text.encode()
        while text not in self.rest:
            assert self.more(), "no %r in %r" % (text, self.rest)
        head, _, self.rest = self.rest.partition(text)
        return (head + text).decode(errors="replace")

    def end(self):
        """What is left, up to the end."""
        while self.more():
            pass
        rest, self.rest = self.rest, b""
        return rest.decode(errors="replace")

    def unread(self):
        """What has come so far."""
        while select.select([self.fd], [], [], 0)[0] and self.more():
            pass
        return self.rest.decode(errors="replace")


class Running:
    """A command that was started and may still run."""

    def __init__(self, process):
        self.process, self.pid = process, process.pid
        self.out = Lines(process.stdout.fileno()) if process.stdout else None
        self.err = Lines(process.stderr.fileno()) if process.stderr else None

    def line(self):
        return self.out.next()

    def wait(self):
        return self.process.wait(PATIENCE)

    def kill(self, sig):
        os.kill(self.pid, sig)

    def record(self):
        """Of a failed test: the command, how it ended, and its errors that the test has not read."""
        pipe = self.process.stderr
        said = self.err.unread() if pipe and not pipe.closed else ""
        return "%s: %s: %s" % (self.process.args[1:], self.process.poll(), said)

    def warden(self):
        """The warden of a `stile run` that has begun its work."""
        (pid,) = children(self.pid)
        return pid


class Scene:
    """A directory, an engine in it, and whatever was started; all gone at the end."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="stile-cli-")
        self.started, self.pids, self.done = [], [], None
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("STILE_")}
        self.env.update(STILE_ENGINE="local:" + self.path("engine"), LC_ALL="C.UTF-8",
                        XDG_CONFIG_HOME=self.path("config"))

    def path(self, name):
        return os.path.join(self.dir, name)

    def setgid_copy(self):
        """The command as a program with another group's rights; None: this user has no other group."""
        others = [65534] if os.geteuid() == 0 else [g for g in os.getgroups() if g != os.getegid()]
        if not others:
            print("# this user has no second group to try it with")
            return None
        program = self.path("stile-as-another")
        shutil.copy(STILE, program)
        os.chown(program, -1, others[0])
        os.chmod(program, 0o2755)
        return program

    def stile(self, *args, **how):
        """Runs the command to its end."""
        how.setdefault("stdin", None if "input" in how else subprocess.DEVNULL)
        how.setdefault("env", self.env)
        how.setdefault("stdout", subprocess.PIPE)
        how.setdefault("stderr", subprocess.PIPE)
        how.setdefault("errors", "replace")
        self.done = subprocess.run([STILE, *args], timeout=PATIENCE, check=False, **how)
        return self.done

    def start(self, *args, **how):
        how.setdefault("env", self.env)
        how.setdefault("stdin", subprocess.DEVNULL)
        how.setdefault("stderr", subprocess.PIPE)
        process = subprocess.Popen([STILE, *args], stdout=subprocess.PIPE, **how)
        running = Running(process)
        self.started.append(running)
        return running

    def hold(self, name, *options):
        """A `stile run` whose command has begun; close its stdin to end it."""
        held = self.start("run", *options, name, "--", "sh", "-c", "echo $$; read line",
                          stdin=subprocess.PIPE)
        held.command = int(held.line())
        return held

    def release(self, held):
        held.process.stdin.close()
        assert held.wait() == 1, "read sees the end of its input"

    def watch(self, name):
        """One dict for every change of a name."""
        running = self.start("watch", "--json", name)
        running.change = lambda: json.loads(running.line())
        return running

    def until(self, watched, true):
        """The first change for which true(change)."""
        while True:
            change = watched.change()
            if true(change):
                return change

    def show(self, name):
        done = self.stile("show", "--json", name)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def fifo(self, name):
        """A pipe by name, as Lines; its end comes when all writers are gone."""
        os.mkfifo(self.path(name))
        fd = os.open(self.path(name), os.O_RDONLY | os.O_NONBLOCK)
        lines = Lines(fd)
        self.pids.append(("fd", fd))
        return lines

    def guard(self, pid):
        """A process that the test has to end should it survive."""
        self.pids.append(("pid", pid))
        return pid

    def record(self):
        """Of a failed test: the last command that it ran, and those that it has started."""
        done = self.done
        last = ["%s: %s: %s" % (done.args[1:], done.returncode, done.stderr)] if done else []
        return last + [running.record() for running in self.started]

    def end_all(self):
        """The processes that were started and still run."""
        for running in self.started:
            if running.process.poll() is None:
                for pid in [running.pid] + children(running.pid):
                    kill_quietly(pid)
                running.process.wait(PATIENCE)

    def close(self):
        self.end_all()
        for running in self.started:
            for pipe in running.process.stdout, running.process.stderr, running.process.stdin:
                if pipe:
                    pipe.close()
        for kind, number in self.pids:
            os.close(number) if kind == "fd" else kill_quietly(number)
        self.end_survivors()
        shutil.rmtree(self.dir, ignore_errors=True)
        if os.path.exists(self.dir):
            print("# left behind: " + self.dir)

    def end_survivors(self):
        """Processes with our directory in their command line, which should be dead."""
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/cmdline" % entry, "rb") as file:
                    ours = self.dir.encode() + b"/" in file.read()
            except OSError:
                continue
            if ours:
                kill_and_await(int(entry))


def kill_quietly(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def kill_and_await(pid):
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    kill_quietly(pid)
    select.select([pidfd], [], [], PATIENCE)
    os.close(pidfd)


def acquired(printed):
    """The owner, and the token if there is one, that stile acquire has printed."""
    return re.findall(r"^STILE_\w+=(\w+);", printed, re.M)


def expect(seen, wanted, what=""):
    assert seen == wanted, "%r instead of %r%s" % (seen, wanted, what and ": %s" % what)


# ---- all of them ----

def shorten(text):
    """One line that shows how text begins and ends."""
    text = " | ".join(str(text).split("\n"))
    return text if len(text) <= LINE_MAX else "%s ... %s" % (text[:LINE_MAX // 2],
                                                            text[-LINE_MAX // 2:])


def place(frames):
    """The lines of tests in a stack, without this file's and Python's own."""
    library = sys.base_prefix + "/lib"
    return " > ".join("%s:%d" % (os.path.basename(frame.filename), frame.lineno) for frame in frames
                      if frame.filename != __file__ and not frame.filename.startswith(library))


def failing_line(error):
    """Where a test has failed, and why."""
    where = place(traceback.extract_tb(error.__traceback__))
    why = error if isinstance(error, AssertionError) else traceback.format_exception_only(error)[-1]
    return "%s: %s" % (where, shorten(str(why).strip()))


def tests_traceback(error):
    """Without the frame of run_test, which is in all of them."""
    frames = error.__traceback__.tb_next
    return "".join(traceback.format_exception(type(error), error, frames)).rstrip()


def run_test(case, scene):
    """Why it failed, or None."""
    try:
        case(scene)
        return None
    except Exception as error:  # whatever it is, the next test runs
        print("# " + tests_traceback(error).replace("\n", "\n# "))
        for line in scene.record():
            print("# " + shorten(line))
        return failing_line(error)
    finally:
        scene.close()


def end_from_outside(_, frame):
    """A test that takes too long is ended; even so it leaves no process behind."""
    print("# ended from outside at " + place(traceback.extract_stack(frame)))
    sys.exit(1)


def run_tests(cases):
    """Runs those named in argv, else all. Exit status 1 if one failed. Why each has failed is printed
    once more at the end, because the log of many tests shows no more than that of each."""
    wanted = sys.argv[1:]
    cases = [case for case in cases if not wanted or case.__name__ in wanted]
    failed = []
    signal.signal(signal.SIGTERM, end_from_outside)
    print("1..%d" % len(cases), flush=True)
    for number, case in enumerate(cases, 1):
        began = time.monotonic()
        why = run_test(case, Scene())
        title = (case.__doc__ or case.__name__).strip().splitlines()[0]
        print("%s %d - %s" % ("not ok" if why else "ok", number, title))
        if why:
            failed.append("%d: %s" % (number, why))
            print("# " + why)
        print("# %.2f s" % (time.monotonic() - began), flush=True)
    print("# %d passed, %d failed" % (len(cases) - len(failed), len(failed)))
    for line in failed:
        print("# failed " + line)
    sys.exit(1 if failed else 0)
