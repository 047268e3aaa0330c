"""stile run owns the process tree: loss, kill -9 of the front, kill -9 of the warden.

Two independent witnesses: a FIFO that every process of the tree keeps open, whose end comes when
the last of them is gone; and a flock that they inherit, which the next holder must find free.
"""
import os
import random
import select
import signal
import sys

from kit import PATIENCE, STILE, expect, run_tests

PYTHON = sys.executable
ROUNDS = 200 if os.environ.get("STILE_SOAK") else 20

# Arguments: the FIFO, the file of the flock, and one word for every process below the command.
TREE = """
import fcntl, os, signal, sys

fifo, guard, *words = sys.argv[1:]
life = os.open(fifo, os.O_WRONLY)
lock = os.open(guard, os.O_RDWR | os.O_CREAT, 0o600)

def tell(word):
    os.write(life, (word + "\\n").encode())

def stay():
    while True:
        signal.pause()

def ignore():
    for sig in signal.SIGTERM, signal.SIGHUP, signal.SIGINT:
        signal.signal(sig, signal.SIG_IGN)

def ignores():
    ignore()
    tell("ignores")
    stay()

def stopped():
    ignore()
    pid = os.fork()
    if pid == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
        stay()
    os.waitpid(pid, os.WUNTRACED)
    tell("stopped")
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
    tell("crowd")
    stay()

def chain(left=100):
    if left == 0:
        ignores()
    if os.fork() == 0:
        chain(left - 1)
    stay()

def comet():
    ignore()
    tell("comet")
    while os.path.exists(fifo):
        if os.fork():
            os._exit(0)

try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    tell("overlap")
    os._exit(99)
for word in words:
    if os.fork() == 0:
        globals()[word]()
        os._exit(0)
tell("command %d" % os.getpid())
if "stubborn" in os.environ:
    ignore()
    tell("stubborn")
stay()
"""


def start_tree(t, *words, before=(), **env):
    """A tree under the lock x, complete and settled."""
    if not os.path.exists(t.path("life")):
        t.life = t.fifo("life")
    running = t.start("run", "x", "--", *before, PYTHON, "-c", TREE, t.path("life"),
                      t.path("guard"), *words, env={**t.env, **env})
    for _ in range(1 + len(words) + len(env)):
        line = t.life.next()
        assert line != "overlap"
        if line.startswith("command"):
            running.command = int(line.split()[1])
    return running


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


def killed_by_name_meets_the_front_alone(t):
    """pkill stile: the warden has another name, so that it can do its work"""
    running = start_tree(t)
    with open("/proc/%d/comm" % running.warden(), encoding="utf-8") as file:
        assert os.path.basename(STILE)[:15] not in file.read()
    with open("/proc/%d/comm" % running.pid, encoding="utf-8") as file:
        expect(file.read().strip(), os.path.basename(STILE)[:15])
    running.kill(signal.SIGTERM)
    expect(running.wait(), 128 + signal.SIGTERM)


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
    killed_by_name_meets_the_front_alone,
])
