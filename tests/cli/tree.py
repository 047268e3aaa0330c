# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""stile run owns the process tree: loss, signals, kill -9 of the front, of the warden, of both.

Two independent witnesses: a FIFO that every process of the tree keeps open, whose end comes when
the last of them is gone; and a flock that they inherit, which the next holder must find free.
"""
import os
import random
import select
import resource
import signal
import subprocess
import sys

from kit import PATIENCE, STILE, Running, children, expect, run_tests, spin

PYTHON = sys.executable
ROUNDS = 200 if os.environ.get("STILE_SOAK") else 20
OVERLAP_ROUNDS = 100 if os.environ.get("STILE_SOAK") else 10

# Arguments: the FIFO, the file of the flock, and one word for every process below the command.
TREE = """
import fcntl, os, signal, sys

fifo, guard, *words = sys.argv[1:]
life = os.open(fifo, os.O_WRONLY)
lock = os.open(guard, os.O_RDWR | os.O_CREAT, 0o600)

def report(word):
    os.write(life, (word + "\\n").encode())

def stay():
    while True:
        signal.pause()

def ignore():
    for sig in signal.SIGTERM, signal.SIGHUP, signal.SIGINT:
        signal.signal(sig, signal.SIG_IGN)

def heeds():
    report("heeds")
    stay()

def ignores():
    ignore()
    report("ignores")
    stay()

def stopped():
    ignore()
    pid = os.fork()
    if pid == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
        stay()
    os.waitpid(pid, os.WUNTRACED)
    report("stopped")
    stay()

def session():
    os.setsid()
    ignores()

def orphan():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            ignores()
    os._exit(0)

def crowd():
    for _ in range(200):
        if os.fork() == 0:
            ignore()
            stay()
    report("crowd")
    stay()

def chain(left=100):
    if left == 0:
        ignores()
    if os.fork() == 0:
        chain(left - 1)
    stay()

def comet():
    ignore()
    report("comet")
    while os.path.exists(fifo):
        if os.fork():
            os._exit(0)

try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    report("overlap")
    os._exit(99)
for word in words:
    if os.fork() == 0:
        globals()[word]()
        os._exit(0)
report("command %d" % os.getpid())
if "stubborn" in os.environ:
    ignore()
    report("stubborn")
stay()
"""


def start_tree(t, *words, before=(), options=(), **env):
    """A tree under the lock x, complete and settled."""
    if not os.path.exists(t.path("life")):
        t.life = t.fifo("life")
    running = t.start("run", *options, "x", "--", *before, PYTHON, "-c", TREE, t.path("life"),
                      t.path("guard"), *words, env={**t.env, **env})
    for _ in range(1 + len(words) + len(env)):
        line = t.life.next()
        assert line != "overlap"
        if line.startswith("command"):
            running.command = int(line.split()[1])
    return running


def start_again(t, *words, **how):
    """With a FIFO of its own: that of an earlier tree has ended."""
    if os.path.exists(t.path("life")):
        os.unlink(t.path("life"))
    return start_tree(t, *words, **how)


def expect_nobody_left(t):
    """The end of the FIFO is there already: nobody has it open."""
    while True:
        ready, _, _ = select.select([t.life.fd], [], [], 0)
        assert ready, "somebody of the tree is alive"
        if not os.read(t.life.fd, 65536):
            return


def expect_lost(t, running):
    expect(running.wait(), 76)
    expect_nobody_left(t)
    said = running.err.end()
    assert "x: the lock is lost" in said, said


def break_x(t):
    done = t.stile("break", "-y", "x")
    expect(done.returncode, 0, done.stderr)


def loss_ends_the_command(t):
    """row 26: a lost lock ends the command, exit 76"""
    running = start_tree(t)
    break_x(t)
    expect_lost(t, running)


def loss_ends_what_ignores_sigterm(t):
    """row 25: a command that ignores SIGTERM is killed"""
    running = start_tree(t, "ignores", stubborn="1")
    break_x(t)
    expect_lost(t, running)


def loss_ends_what_is_stopped(t):
    """row 27: a stopped process is killed, and so is a stopped command"""
    running = start_tree(t, "stopped")
    os.kill(running.command, signal.SIGSTOP)
    break_x(t)
    expect_lost(t, running)


def loss_ends_grandchildren(t):
    """row 25: not only the shell: children of sh, other sessions, orphans"""
    running = start_tree(t, "session", "orphan", "ignores",
                         before=("sh", "-c", '"$@"; true', "sh"))
    break_x(t)
    expect_lost(t, running)


def loss_ends_a_crowd(t):
    """row 25: hundreds of children, and a chain deeper than one look"""
    running = start_tree(t, "crowd", "chain")
    break_x(t)
    expect_lost(t, running)


def loss_ends_a_comet(t):
    """row 25: a process that forks and ends all the time does not get away"""
    running = start_tree(t, "comet")
    break_x(t)
    expect_lost(t, running)


def loss_ends_a_nested_run(t):
    """a nested run dies with the outer lock, and its own lock is free"""
    running = start_tree(t, "orphan", before=(STILE, "run", "inner", "--"))
    break_x(t)
    expect_lost(t, running)
    expect(t.stile("run", "--try", "inner", "--", "true").returncode, 0)


def loss_lets_the_command_clean_up(t):
    """SIGTERM comes first: a command may clean up"""
    running = t.start("run", "x", "--", "sh", "-c",
                      'trap "echo cleaned; exit 0" TERM; echo up; while :; do sleep 0.01; done')
    expect(running.line(), "up")
    break_x(t)
    expect((running.line(), running.wait()), ("cleaned", 76))


def fill(pipe):
    """Until not a single byte more goes in."""
    fd = os.open("/proc/self/fd/%d" % pipe.fileno(), os.O_WRONLY | os.O_NONBLOCK)
    try:
        for size in 65536, 1:
            try:
                while True:
                    os.write(fd, size * b"x")
            except BlockingIOError:
                pass
    finally:
        os.close(fd)


def loss_ends_the_tree_though_nobody_reads(t):
    """a lost lock stops the tree, also when stderr is full and nobody reads it"""
    running = start_tree(t, "session")
    fill(running.process.stderr)
    break_x(t)
    expect(running.wait(), 76)
    expect_nobody_left(t)


def killed_warden_ends_the_tree_though_nobody_reads(t):
    """kill -9 of the warden kills the tree, also when stderr is full and nobody reads it"""
    running = start_tree(t, "session")
    fill(running.process.stderr)
    os.kill(running.warden(), signal.SIGKILL)
    expect(running.wait(), 76)
    expect_nobody_left(t)


def next_in_line(t):
    """A run that waits for x, and finds out whether the tree still lives."""
    watched = t.watch("x")
    waiter = t.start("run", "x", "--", "flock", "-n", t.path("guard"), "echo", "all gone")
    t.until(watched, lambda change: len(change["waiters"]) == 1)
    return waiter


def killed_front(t, *words):
    running = start_tree(t, *words)
    waiter = next_in_line(t)
    running.kill(signal.SIGKILL)
    expect((waiter.wait(), waiter.out.end()), (0, "all gone\n"), waiter.err.end())
    expect_nobody_left(t)


def killed_front_ends_the_tree_first(t):
    """row 25: kill -9 of run: the tree is dead before the next holder runs"""
    killed_front(t, "ignores", "stopped", "session", "orphan")


def killed_front_ends_a_comet_first(t):
    """row 25: kill -9 of run with processes that fork all the time"""
    killed_front(t, "comet", "crowd")


def killed_front_at_any_moment(t):
    """kill -9 of run at any moment of its start: never two, nothing stuck"""
    t.life = t.fifo("life")
    keep = os.open(t.path("life"), os.O_WRONLY)
    t.pids.append(("fd", keep))
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    for number in range(ROUNDS):
        running = t.start("run", "x", "--", PYTHON, "-S", "-c", TREE, t.path("life"),
                          t.path("guard"))
        # Not a wait for anything: the moment of the kill is what is varied.
        select.select([], [], [], chance.random() * 0.04)
        running.kill(signal.SIGKILL)
        running.wait()
        done = t.stile("run", "--wait", "%ds" % PATIENCE, "x", "--", "flock", "-n",
                       t.path("guard"), "true")
        expect(done.returncode, 0, "seed %d, round %d: %s" % (seed, number, done.stderr))
    ready, _, _ = select.select([t.life.fd], [], [], 0)
    assert not ready or b"overlap" not in os.read(t.life.fd, 1 << 20), "seed %d" % seed


def await_end(pidfd):
    ready, _, _ = select.select([pidfd], [], [], PATIENCE)
    os.close(pidfd)
    assert ready, "the process does not end"


def killed_front_of_a_waiter_leaves_the_queue(t):
    """row 6: kill -9 of a run that waits: its warden leaves the queue and ends"""
    held, watched = t.hold("x"), t.watch("x")
    waiter = t.start("run", "x", "--", "echo", "ran")
    t.until(watched, lambda change: len(change["waiters"]) == 1)
    warden = os.pidfd_open(waiter.warden())
    waiter.kill(signal.SIGKILL)
    await_end(warden)
    t.until(watched, lambda change: change["waiters"] == [])
    t.release(held)
    expect(waiter.out.end(), "")


def killed_warden_ends_the_tree(t):
    """kill -9 of the warden: the whole tree is dead when run ends with 76"""
    running = start_tree(t, "ignores", "stopped", "session", "orphan", "crowd")
    os.kill(running.warden(), signal.SIGKILL)
    expect(running.wait(), 76)
    expect_nobody_left(t)
    assert "signal 9" in running.err.end()
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)


def killed_warden_ends_the_tree_first(t):
    """kill -9 of the warden: the tree is dead before the next holder runs"""
    for _ in range(OVERLAP_ROUNDS):
        running = start_again(t, "ignores", "session")
        waiter = next_in_line(t)
        os.kill(running.warden(), signal.SIGKILL)
        expect((waiter.wait(), waiter.out.end()), (0, "all gone\n"), waiter.err.end())
        expect(running.wait(), 76)
        expect_nobody_left(t)


def kill_both(t, running):
    """kill -9 of run and warden at once; returns what is left of the tree."""
    (left,) = [pid for pid in children(running.command)]
    t.guard(left)
    warden = running.warden()
    for pid in warden, running.pid:
        os.kill(pid, signal.SIGSTOP)
    for pid in warden, running.pid:
        os.kill(pid, signal.SIGKILL)
    running.wait()
    spin(lambda: not os.path.exists("/proc/%d" % running.command))
    return left


def killed_both_with_nobody_around_keep_the_lock(t):
    """kill -9 of both with no other process around: the next to open the directory finds the lock held"""
    left = kill_both(t, start_tree(t, "session"))
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
    os.kill(left, signal.SIGKILL)
    expect(t.stile("run", "x", "--", "true").returncode, 0)


def killed_both_keep_the_lock(t):
    """kill -9 of run and warden at once: on local, what is left of the tree keeps the lock"""
    running = start_tree(t, "session")
    waiter = next_in_line(t)
    left = kill_both(t, running)
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
    expect(waiter.process.poll(), None)
    os.kill(left, signal.SIGKILL)
    expect((waiter.wait(), waiter.out.end()), (0, "all gone\n"), waiter.err.end())


def signalled_run_ends_the_tree_first(t):
    """a signal to run ends the whole tree, what ignores it after --grace, and then the lock"""
    for words in ("heeds",), ("heeds", "ignores", "stopped", "session", "orphan"):
        running = start_again(t, *words, options=("--grace", "300ms"))
        waiter = next_in_line(t)
        running.kill(signal.SIGTERM)
        expect((waiter.wait(), waiter.out.end()), (0, "all gone\n"), waiter.err.end())
        expect(running.wait(), -signal.SIGTERM)
        expect_nobody_left(t)


def interrupted_run_ends_what_ignores_it(t):
    """SIGINT ends also what a shell has put in the background, which ignores it"""
    running = t.start("run", "x", "--", "sh", "-c", "sleep 1000 & echo up; wait")
    expect(running.line(), "up")
    running.kill(signal.SIGINT)
    expect((running.wait(), running.out.end()), (-signal.SIGINT, ""))


def few_descriptors(t):
    """whatever the limit of open files: run refuses to start, or ends its tree when it is asked to"""
    ran = 0
    for limit in range(8, 32):
        running = t.start("run", "--grace", "100ms", "x", "--", "sh", "-c",
                          "setsid sleep 1000 & echo up; wait",
                          preexec_fn=lambda n=limit: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n)))
        if running.out.more():
            expect(running.line(), "up")
            ran += 1
            running.kill(signal.SIGTERM)
            expect(running.wait(), -signal.SIGTERM, "with a limit of %d" % limit)
        else:
            assert running.wait() > 0 and running.err.end(), limit
    assert ran > 2, "it never came up"


def killed_command_ends_the_tree(t):
    """kill -9 of the command alone: what it started is killed, too"""
    running = start_tree(t, "ignores", "session", "orphan")
    os.kill(running.command, signal.SIGKILL)
    expect(running.wait(), -signal.SIGKILL)
    expect_nobody_left(t)


def left_in_the_background(t):
    """what a command leaves in the background keeps the lock, and is named after a second"""
    running = t.start("run", "x", "--", "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!; exit 3")
    left = t.guard(int(running.line()))
    said = running.err.next()
    assert said.startswith("stile: x: the command has ended; the lock is kept") and \
        " %d " % left in said, said
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
    waiter = next_in_line(t)
    os.kill(left, signal.SIGTERM)
    expect((running.wait(), running.err.end()), (3, ""))
    expect(waiter.wait(), 0)


def signalled_while_it_waits_for_the_rest(t):
    """a signal to run whose command has ended ends what it left; the command's code counts"""
    running = t.start("run", "--grace", "300ms", "x", "--", "sh", "-c",
                      "trap '' TERM; sleep 1000 & echo up; exit 3")
    expect(running.line(), "up")
    running.err.next()
    running.kill(signal.SIGTERM)
    expect((running.wait(), running.out.end()), (3, ""))


def left_behind_with_leave(t):
    """--leave: the lock is released when the command ends, and what it left lives on"""
    done = t.stile("run", "--leave", "x", "--", "sh", "-c",
                   "sleep 1000 >/dev/null 2>&1 & echo $!; exit 3")
    left = t.guard(int(done.stdout))
    expect((done.returncode, done.stderr), (3, ""))
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)
    assert os.path.exists("/proc/%d" % left)


def with_the_proc_of_another_namespace(t):
    """a /proc of an outer pid namespace: the tree is found there, and nobody else is signalled"""
    t.life = t.fifo("life")
    script = 'for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; "$@" & front=$!; ' \
        'wait $front; echo "code $?"; for pid in $(jobs -p); do kill -0 $pid || echo "$pid gone"; ' \
        'done; kill -9 $(jobs -p)'
    outer = subprocess.Popen(
        ["unshare", *([] if os.geteuid() == 0 else ["-Ur"]), "-pf", "--kill-child", "bash", "-c",
         script, "bash", STILE, "run", "x", "--", PYTHON, "-c", TREE, t.path("life"),
         t.path("guard"), "ignores", "session", "orphan"], stdin=subprocess.DEVNULL,
        env=dict(t.env, ASAN_OPTIONS="detect_leaks=0"),  # it looks into a /proc that is not its own
        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    running = Running(outer)
    t.started.append(running)
    for _ in range(4):
        assert t.life.next() != "overlap"
    break_x(t)
    expect(running.line(), "code 76", running.err.rest)
    expect_nobody_left(t)
    expect((running.wait(), running.out.end()), (0, ""))


def killed_by_name_meets_the_front_alone(t):
    """pkill stile: the warden has another name, so that it can do its work"""
    running = start_tree(t)
    with open("/proc/%d/comm" % running.warden(), encoding="utf-8") as file:
        assert os.path.basename(STILE)[:15] not in file.read()
    with open("/proc/%d/comm" % running.pid, encoding="utf-8") as file:
        expect(file.read().strip(), os.path.basename(STILE)[:15])
    running.kill(signal.SIGTERM)
    expect(running.wait(), -signal.SIGTERM)


run_tests([
    loss_ends_the_command,
    loss_ends_what_ignores_sigterm,
    loss_ends_what_is_stopped,
    loss_ends_grandchildren,
    loss_ends_a_crowd,
    loss_ends_a_comet,
    loss_ends_a_nested_run,
    loss_lets_the_command_clean_up,
    killed_front_ends_the_tree_first,
    killed_front_ends_a_comet_first,
    killed_front_at_any_moment,
    killed_front_of_a_waiter_leaves_the_queue,
    killed_warden_ends_the_tree,
    killed_warden_ends_the_tree_first,
    loss_ends_the_tree_though_nobody_reads,
    killed_warden_ends_the_tree_though_nobody_reads,
    killed_both_keep_the_lock,
    killed_both_with_nobody_around_keep_the_lock,
    signalled_run_ends_the_tree_first,
    interrupted_run_ends_what_ignores_it,
    few_descriptors,
    killed_command_ends_the_tree,
    left_in_the_background,
    signalled_while_it_waits_for_the_rest,
    left_behind_with_leave,
    with_the_proc_of_another_namespace,
    killed_by_name_meets_the_front_alone,
])
