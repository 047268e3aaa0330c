# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""stile run and what is around it: its own name, the outer run's password, what is stored of the
command, exit codes that a script can distinguish, programs with another user's rights."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "servers"))
from kit import PATIENCE, STILE, expect, run_tests  # noqa: E402
from redis_server import RedisServer  # noqa: E402

PASSWORD = "sesame-opens"
SERVER = None


def inside_its_own_name(t):
    """a run inside its own name is refused; inside another name or engine it is not"""
    inner = (STILE, "run", "x", "--", "echo", "ran")
    for outer in ("x",), ("--shared", "x"), ("z", "x", "a"):
        done = t.stile("run", *outer, "--", *inner)
        expect((done.returncode, done.stdout), (64, ""))
        assert "x is held by the stile run around this one" in done.stderr, done.stderr
    for outer in ("y",), ("x y",), ("-e", "local:" + t.path("other"), "x"):
        done = t.stile("run", *outer, "--", *(inner if "-e" not in outer else
                                              (STILE, "run", "-e", t.env["STILE_ENGINE"],
                                               *inner[2:])))
        expect((done.returncode, done.stdout), (0, "ran\n"), done.stderr)
    done = t.stile("run", "x", "--", "env", "-u", "STILE_NAME", STILE, "run", "--try", "x", "--",
                   "true")
    expect(done.returncode, 75)


def exit_codes_of_ours(t):
    """-E: another code for 69, 75 and 76, the command's own are left alone"""
    held = t.hold("x")
    expect(t.stile("run", "-E", "200", "--try", "x", "--", "true").returncode, 200)
    expect(t.stile("run", "-E0", "--wait", "10ms", "x", "--", "true").returncode, 0)
    expect(t.stile("run", "--conflict-exit-code=201", "-e", "local:/proc/nowhere", "x", "--",
                   "true").returncode, 201)
    t.release(held)
    for code in 0, 69, 75, 76:
        expect(t.stile("run", "-E", "200", "x", "--", "sh", "-c", "exit %d" % code).returncode, code)
    held = t.hold("x", "-E", "200")
    expect(t.stile("break", "-y", "x").returncode, 0)
    expect(held.wait(), 200)
    held = t.hold("x", "-E", "200")
    os.kill(held.warden(), signal.SIGKILL)
    expect(held.wait(), 200)
    for wrong in "256", "-1", "x", "", "1 ":
        expect(t.stile("run", "-E", wrong, "x", "--", "true").returncode, 64, wrong)
    expect(t.stile("run", "-E", "200", "x", "--", "no-such-command").returncode, 127)


def unknown_schemes(t):
    """a URL with an unknown scheme is wrong usage: 64, with a sentence"""
    for verb in ("run", "x", "--", "true"), ("ls",), ("show", "x"), ("caps",), ("doctor",), ("setup",):
        done = t.stile(verb[0], "-e", "nosuch://host", *verb[1:])
        expect(done.returncode, 64, verb)
        assert "no engine for 'nosuch:'" in done.stderr, done.stderr


# What others may read of each process from this one up to the outer run, which is argv[1].
LEAKS = r"""
import os, sys
pid = os.getpid()
while True:
    for file in "environ", "cmdline":
        with open("/proc/%d/%s" % (pid, file), "rb") as shown:
            print("hidden" if b"sesame-opens" not in shown.read() else "shown in " + file)
    if pid == int(sys.argv[1]):
        break
    with open("/proc/%d/stat" % pid) as stat:
        pid = int(stat.read().rpartition(")")[2].split()[1])
"""


def use_server(t):
    t.env.update(STILE_ENGINE="redis://:%s@127.0.0.1:%d" % (PASSWORD, SERVER.port),
                 STILE_MODULES=os.environ["STILE_MODULES"])


def password_of_the_outer_run(t):
    """a nested run has the password of the outer one, which nobody's environment or argv shows"""
    use_server(t)
    # -e takes the URL out of the command line that others see.
    nested_passwords(t, "-e", t.env.pop("STILE_ENGINE"))


def password_of_a_file(t):
    """the same if the outer run's password is in the user's stile.conf"""
    use_server(t)
    with open(t.path("stile.conf"), "w", encoding="utf-8") as file:
        file.write("engine = %s\n" % t.env.pop("STILE_ENGINE"))
    os.chmod(t.path("stile.conf"), 0o600)
    t.env["XDG_CONFIG_HOME"] = t.dir
    nested_passwords(t)


def nested_passwords(t, *options):
    with open(t.path("leaks"), "w", encoding="utf-8") as file:
        file.write(LEAKS)
    nested = '"$STILE" run y -- sh -c \'"$STILE" run z -- %s %s %%d; echo third\'' % (
        sys.executable, t.path("leaks"))
    running = t.start("run", *options, "x", "--", "sh", "-c", "read pid; env; eval \"$pid\"",
                      stdin=subprocess.PIPE, env={**t.env, "STILE": STILE})
    os.write(running.process.stdin.fileno(), (nested % running.pid + "\n").encode())
    seen = running.out.end()
    expect(running.wait(), 0, running.err.end())
    assert seen.endswith("third\n") and PASSWORD not in seen and "shown" not in seen, seen
    assert seen.count("hidden") >= 14, seen
    expect(re.findall(r"(?m)^STILE_ENGINE=(.*)$", seen), ["redis://127.0.0.1:%d" % SERVER.port])


def password_through_closed_descriptors(t):
    """a program in between that closes all descriptors does not matter, another engine does"""
    use_server(t)
    nested = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:], close_fds=True))"
    done = t.stile("run", "x", "--", sys.executable, "-c", nested, STILE, "run", "y", "--", "echo",
                   "ran")
    expect((done.returncode, done.stdout), (0, "ran\n"), done.stderr)
    for variable in ("STILE_ENGINE_FROM=1/1", "STILE_ENGINE_FROM=../../etc/passwd",
                     "STILE_ENGINE_FROM=%d/0" % os.getpid()):
        done = t.stile("run", "x", "--", "env", variable, STILE, "run", "y", "--", "echo", "ran")
        expect((done.returncode, done.stdout), (69, ""), variable)
        assert "user and password of the stile run around this one" in done.stderr, done.stderr
    other = "STILE_ENGINE=redis://localhost:%d" % SERVER.port
    done = t.stile("run", "x", "--", "env", other, STILE, "run", "y", "--", "echo", "ran")
    expect((done.returncode, done.stdout), (69, ""), done.stderr)


def sealed(t):
    """what the outer run offers cannot be changed by a process that opens it"""
    use_server(t)
    writes = 'f=/proc/${STILE_ENGINE_FROM%/*}/fd/${STILE_ENGINE_FROM#*/}; ' \
        'if echo redis://elsewhere >$f; then echo written; fi; cat $f'
    done = t.stile("run", "x", "--", "sh", "-c", writes)
    expect(done.stdout, t.env["STILE_ENGINE"])


def nothing_of_the_command_line_is_stored(t):
    """no argument of the command reaches the server; --label does, and show prints it"""
    use_server(t)
    monitor = subprocess.Popen(["redis-cli", "-p", str(SERVER.port), "-a", PASSWORD,
                                "--no-auth-warning", "monitor"], stdout=subprocess.PIPE)
    try:
        expect(monitor.stdout.readline(), b"OK\n")
        secret = "--password=hunter-two"
        held = [t.start("run", *label, name, "--", "sh", "-c", "echo up; read line; : " + secret,
                        stdin=subprocess.PIPE)
                for name, label in (("plain", ()), ("labelled", ("--label", "nightly report")))]
        for running in held:
            expect(running.line(), "up")
        expect([t.show(name)["holders"][0]["command"] for name in ("plain", "labelled")],
               ["sh", "nightly report"])
        expect([t.show("plain")["holders"][0]["pid"]], [held[0].pid])
        for running in held:
            running.process.stdin.close()
            running.wait()
        SERVER.cli("-a", PASSWORD, "--no-auth-warning", "ECHO", "that-is-all")
        seen = b""
        while b"that-is-all" not in seen:
            seen += os.read(monitor.stdout.fileno(), 65536)
        assert b"nightly report" in seen and b"hunter" not in seen, seen
    finally:
        monitor.kill()
        monitor.wait()
        monitor.stdout.close()


def label_on_local(t):
    """local: the program's name, without its path and arguments; --label sets another"""
    os.symlink(shutil.which("sh"), t.path("my-job"))
    held = t.start("run", "x", "--", t.path("my-job"), "-c", "echo up; read line # secret",
                   stdin=subprocess.PIPE)
    expect(held.line(), "up")
    expect(t.show("x")["holders"][0]["command"], "my-job")
    assert "my-job" in t.stile("ls").stdout and "secret" not in t.stile("show", "x").stdout
    t.release(held)
    held = t.hold("x", "--label", "nightly report")
    expect(t.show("x")["holders"][0]["command"], "nightly report")
    t.release(held)
    expect(t.stile("run", "--label", "", "x", "--", "true").returncode, 64)


def with_rights_of_another(t):
    """a setgid program does not obey its caller's STILE_ENGINE, STILE_NAME, HOME and so on"""
    program = t.setgid_copy()
    if not program:
        return
    env = {**t.env, "STILE_ENGINE": "nosuch://host", "STILE_OWNER": "x"}
    done = subprocess.run([program, "caps"], env=env, capture_output=True, text=True, check=False)
    assert "nosuch" not in done.stderr, done.stderr
    done = subprocess.run([program, "release", "-e", "redis://127.0.0.1:1", "x"], env=env,
                          capture_output=True, text=True, check=False)
    expect(done.returncode, 64, done.stderr)
    assert "--owner" in done.stderr, done.stderr


with RedisServer("--requirepass", PASSWORD) as SERVER:
    run_tests([
        inside_its_own_name,
        exit_codes_of_ours,
        unknown_schemes,
        password_of_the_outer_run,
        password_of_a_file,
        password_through_closed_descriptors,
        sealed,
        nothing_of_the_command_line_is_stored,
        label_on_local,
        with_rights_of_another,
    ])
