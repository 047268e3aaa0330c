# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The engine when none is named: from the environment, a file of the user or of the system, or local:."""
import json
import os
import shutil
import subprocess

from kit import PATIENCE, STILE, expect, run_tests

# A file system of its own in place of /etc, which this test must not write to.
IN_ITS_OWN_ETC = ["unshare", *([] if os.geteuid() == 0 else ["-Ur"]), "-m", "sh", "-c",
                  'mount -t tmpfs -o mode=755 none /etc && cp "$0" /etc/stile.conf && chmod "$1" '
                  '/etc/stile.conf && shift && exec "$@"']


def unnamed(t, **more):
    """An environment that names no engine."""
    env = {k: v for k, v in t.env.items() if k != "STILE_ENGINE"}
    env.update(XDG_CONFIG_HOME=t.path("config"), **more)
    os.makedirs(t.path("config"), exist_ok=True)
    return env


def write(t, text, mode=0o644, name="config/stile.conf"):
    os.makedirs(os.path.dirname(t.path(name)), exist_ok=True)
    with open(t.path(name), "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(t.path(name), mode)
    return t.path(name)


def chosen(t, *args, env, before=()):
    done = subprocess.run([*before, STILE, "caps", "--json", *args], env=env, capture_output=True,
                          text=True, check=False, timeout=PATIENCE)
    expect(done.returncode, 0, done.stderr)
    caps = json.loads(done.stdout)
    return caps["url"], caps["url_from"]


def order(t):
    """-e, $STILE_ENGINE, the user's file, /etc/stile.conf; caps prints which one it was"""
    def url(name):
        return "local:" + t.path(name)
    env = unnamed(t)
    system = write(t, "engine = %s\n" % url("system"), name="system.conf")
    etc = [*IN_ITS_OWN_ETC, system, "644"]
    expect(chosen(t, env=env, before=etc), (url("system"), "/etc/stile.conf:1"))
    user = write(t, "# mine\nengine = %s\n" % url("user"))
    expect(chosen(t, env=env, before=etc), (url("user"), user + ":2"))
    env["STILE_ENGINE"] = url("variable")
    expect(chosen(t, env=env, before=etc), (url("variable"), "$STILE_ENGINE"))
    expect(chosen(t, "-e", url("given"), env=env, before=etc), (url("given"), "-e"))
    expect(chosen(t, url("given"), env=env, before=etc), (url("given"), "-e"))
    env["STILE_ENGINE"] = ""
    expect(chosen(t, env=env), (url("user"), user + ":2"))
    table = t.stile("caps", env=env).stdout
    assert url("user") in table and user + ":2" in table, table


def home(t):
    """the user's file without XDG_CONFIG_HOME is in ~/.config"""
    env = unnamed(t, HOME=t.path("home"))
    del env["XDG_CONFIG_HOME"]
    url = "local:" + t.path("engine")
    path = write(t, "engine = %s" % url, name="home/.config/stile.conf")
    expect(chosen(t, env=env), (url, path + ":1"))
    os.rename(path, t.path("elsewhere"))
    os.symlink(t.path("elsewhere"), path)
    expect(chosen(t, env=env), (url, path + ":1"))


def all_verbs_use_it(t):
    """run, show, ls and a run inside a run use the same file"""
    env = unnamed(t)
    write(t, "engine = %s\n" % t.env["STILE_ENGINE"])
    held = t.hold("x")
    expect(t.stile("run", "--try", "x", "--", "true", env=env).returncode, 75)
    expect(json.loads(t.stile("show", "--json", "x", env=env).stdout)["holders"][0]["pid"], held.pid)
    assert "x " in t.stile("ls", env=env).stdout
    t.release(held)
    done = t.stile("run", "x", "--", STILE, "run", "x", "--", "true", env=env)
    expect(done.returncode, 64, done.stderr)
    assert "the stile run around this one" in done.stderr, done.stderr


def wrong_files(t):
    """a file with an error is refused, with file and line; no other engine is used instead"""
    env = unnamed(t)
    for text, mode, code, says in (
            ("engine = nosuch://h", 0o644, 64, "stile.conf:1): no engine for 'nosuch:'"),
            ("\nengine = redis://h:x", 0o644, 64, "stile.conf:2: "),
            ("timeout = 3", 0o644, 64, "stile.conf:1: unknown setting 'timeout'"),
            ("engine = local:", 0o666, 69, "run: chmod go-w " + t.path("config/stile.conf")),
            ("engine = redis://:s3cret@h", 0o644, 69,
             "run: chmod 600 " + t.path("config/stile.conf"))):
        write(t, text, mode)
        for args in (["run", "x", "--", "echo", "ran"], ["ls"], ["caps"], ["doctor"], ["setup"],
                     ["jobs", "ls"]):
            done = t.stile(*args, env=env)
            expect((done.returncode, done.stdout), (code, ""), (args, text, done.stderr))
            assert says in done.stderr and done.stderr.count("\n") == 1, done.stderr
            assert "s3cret" not in done.stderr, done.stderr
    expect(t.stile("run", "-E", "200", "x", "--", "true", env=env).returncode, 200)
    done = t.stile("caps", "-e", t.env["STILE_ENGINE"], env=env)
    expect((done.returncode, done.stderr), (0, ""))
    os.unlink(t.path("config/stile.conf"))
    os.mkfifo(t.path("config/stile.conf"))
    expect(t.stile("ls", env=env).returncode, 69)


def for_a_group(t):
    """a password in /etc/stile.conf may be for a group, but not for all"""
    system = write(t, "engine = redis://:s3cret@127.0.0.1:1\n", name="system.conf")
    for mode, says in ("644", "run: chmod 640 /etc/stile.conf"), ("640", "(set in /etc/stile.conf:1)"):
        done = subprocess.run([*IN_ITS_OWN_ETC, system, mode, STILE, "ls"], env=unnamed(t),
                              capture_output=True, text=True, check=False, timeout=PATIENCE)
        expect(done.returncode, 69, done.stderr)
        assert says in done.stderr and "s3cret" not in done.stderr, done.stderr


def with_more_rights(t):
    """a set-group-ID program obeys neither the user's variables nor the user's file"""
    program = t.setgid_copy()
    if not program:
        return
    write(t, "engine = nosuch://user\n")
    system = write(t, "engine = nosuch://system\n", name="system.conf")
    done = subprocess.run([*IN_ITS_OWN_ETC, system, "644", program, "ls"], env=unnamed(t),
                          capture_output=True, text=True, check=False, timeout=PATIENCE)
    expect(done.returncode, 64)
    assert "nosuch://system (set in /etc/stile.conf:1)" in done.stderr, done.stderr


def hold_on_an_unnamed_engine(t):
    """--hold-at-least without an engine: one line says how far it reaches; -q prints none"""
    env = unnamed(t, HOME=t.path("home"))
    args = ["--hold-at-least", "10ms", "x", "--", "true"]
    system = write(t, "# nothing\n", name="system.conf")
    # The default directory of root is the system's: a file system of its own, too.
    before = [*IN_ITS_OWN_ETC[:-1], "mount -t tmpfs none /var/lib && " + IN_ITS_OWN_ETC[-1], system,
              "644"]
    if os.geteuid() != 0:
        print("# the default directory of this user is not for tests")
        return

    def said(*args, env=env):
        done = subprocess.run([*before, STILE, "run", *args], env=env, capture_output=True,
                              text=True, check=False, timeout=PATIENCE)
        expect(done.returncode, 0, done.stderr)
        return done.stderr
    line = said(*args)
    assert line.count("\n") == 1 and "this user on this machine only" in line, line
    assert "-e URL" in line and "$STILE_ENGINE" in line and "stile.conf" in line, line
    expect(said("-q", *args), "")
    expect(said("x", "--", "true"), "")
    expect(said("-e", "local:", *args), "")
    expect(said(*args, env=dict(env, STILE_ENGINE="local:")), "")
    write(t, "engine = local:\n")
    expect(said(*args), "")


def one_directory_for_a_group(t):
    """the manual's directory for several users: they exclude each other, others are refused"""
    if os.geteuid() != 0:
        print("# only root can be two users")
        return
    group = "54321"
    os.chmod(t.dir, 0o755)
    subprocess.run(["install", "-d", "-g", group, "-m", "2770", t.path("all")], check=True)
    # Not from the build tree, which other users may not be able to enter.
    shutil.copy(STILE, t.path("stile"))
    os.chmod(t.path("stile"), 0o755)

    def as_user(uid, *args, groups=group):
        return ["setpriv", "--reuid", uid, "--regid", uid, "--groups", groups, t.path("stile"),
                args[0], "-e", "local:" + t.path("all"), *args[1:]]
    held = subprocess.Popen(as_user("54001", "run", "x", "--", "sh", "-c", "echo up; read line"),
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=t.env)
    try:
        expect(held.stdout.readline(), "up\n")
        for uid in "54002", "0":
            done = subprocess.run(as_user(uid, "run", "--try", "x", "--", "true"), env=t.env,
                                  capture_output=True, text=True, check=False, timeout=PATIENCE)
            expect(done.returncode, 75, done.stderr)
        done = subprocess.run(as_user("54003", "run", "x", "--", "true", groups="54003"), env=t.env,
                              capture_output=True, text=True, check=False, timeout=PATIENCE)
        expect(done.returncode, 69, done.stderr)
        assert "Permission denied" in done.stderr, done.stderr
    finally:
        held.stdin.close()
        expect(held.wait(PATIENCE), 1)
        held.stdout.close()
    done = subprocess.run(as_user("54002", "run", "--try", "x", "--", "true"), env=t.env,
                          capture_output=True, text=True, check=False, timeout=PATIENCE)
    expect(done.returncode, 0, done.stderr)


run_tests([
    order,
    home,
    all_verbs_use_it,
    wrong_files,
    for_a_group,
    with_more_rights,
    hold_on_an_unnamed_engine,
    one_directory_for_a_group,
])
