# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What the command prints, and what it answers to wrong input."""
import json
import os
import re
import shutil
import subprocess
import unicodedata

from kit import STILE, expect, run_tests

VERBS = ("run once elect leader acquire renew release ls show watch break caps doctor setup advise torture "
         "pace jobs cell crdt guard file").split()


def usage(t, *args, says="", **how):
    """Refused with 64 and one clear line."""
    done = t.stile(*args, **how)
    expect((done.returncode, done.stdout), (64, ""), "%r: %s" % (args, done.stderr))
    assert re.fullmatch(r"stile: [^\n]+\n", done.stderr), (args, done.stderr)
    assert says in done.stderr, (args, done.stderr)
    return done.stderr


def help_for_everything(t):
    """help: overall and for each verb, three ways; without arguments 64"""
    overall = t.stile("--help")
    expect((overall.returncode, overall.stderr), (0, ""))
    for verb in VERBS:
        assert re.search(r"(?m)^  stile ([a-z|]+\|)?%s\b" % verb, overall.stdout), verb
        done = t.stile(verb, "--help")
        expect((done.returncode, done.stderr), (0, ""), verb)
        assert done.stdout.startswith("usage: stile %s " % verb), done.stdout
        expect(t.stile("help", verb).stdout, done.stdout)
        expect(t.stile(verb, "-h").stdout, done.stdout)
        assert max(map(len, done.stdout.splitlines())) <= 80
        assert not re.search(r"(?m) $", done.stdout), done.stdout
    expect(t.stile("help").stdout, overall.stdout)
    done = t.stile()
    expect((done.returncode, done.stdout, done.stderr), (64, "", overall.stdout))


def version(t):
    """--version"""
    done = t.stile("--version")
    assert done.returncode == 0 and re.fullmatch(r"stile \d+\.\d+\.\d+\n", done.stdout), done


def wrong_words(t):
    """verbs, options and arguments that aren't there: 64 and where to look"""
    usage(t, "frobnicate", says="stile --help")
    usage(t, "help", "frobnicate", says="stile --help")
    usage(t, "-e", "local:", "ls", says="after the verb")
    usage(t, "ls", "--frob", says="see stile ls --help")
    usage(t, "ls", "-z", says="-z: unknown option")
    usage(t, "ls", "--ttl", "1s", says="--ttl: unknown option")
    usage(t, "ls", "--json=yes", says="takes no value")
    usage(t, "ls", "a", "b", says="too many")
    usage(t, "show", says="NAME: missing")
    usage(t, "run", "x", "true", says="after it")
    usage(t, "run", "x", "ls", "-l", says="after it")
    usage(t, "run", "x", "--", says="CMD: missing")
    usage(t, "run", "--", "true", says="NAME: missing")
    usage(t, "run", "x", "y", "x", "--", "true", says="x is given twice")
    usage(t, "run", "--wait", "--", "true", says="needs a value")
    usage(t, "run", "--try", "--wait", "1s", "x", "--", "true", says="--wait")
    usage(t, "run", "--shared", "--slots", "2", "x", "--", "true", says="--slots")
    usage(t, "run", "--profile", "brave", "x", "--", "true", says="financial")
    usage(t, "run", "--ttl", "1s", "--grace", "600ms", "x", "--", "true", says="half")
    for number in "0", "-1", "1.5", "", "x", "1x", "99999999999999999999", "4294967296":
        usage(t, "run", "--slots", number, "x", "--", "true")
    usage(t, "break", "--token", "18446744073709551616", "x")
    usage(t, "renew", "x", says="STILE_OWNER")


def did_you_mean(t):
    """mistyped verbs, options and schemes: what was probably meant"""
    usage(t, "shwo", "x", says="did you mean stile show? See stile --help")
    usage(t, "help", "relase", says="did you mean stile release?")
    usage(t, "job", "ls", says="did you mean stile jobs?")
    usage(t, "jobs", "ad", "q", says="did you mean stile jobs add? See stile jobs --help")
    for words in ("cell",), ("crdt", "set"), ("jobs",):
        for option in ("-eredis://u:s3cret@h",), ("--engine=redis://u:s3cret@h",), ("-e", "redis://u:s3cret@h"):
            said = usage(t, *words, *option, "x", says="options come after the verb, as in stile " + " ".join(words))
            assert "s3cret" not in said, said
    for words in (), ("cell",), ("crdt", "set"):
        said = usage(t, *words, "redis://u:s3cret@h", says="redis: no such verb")
        assert "s3cret" not in said, said
    for verb in "caps", "doctor", "advise":
        for url in "redis://u:s3cret@h", "host=h password=s3cret":
            said = usage(t, verb, *["local:"][:verb != "advise"], url, says="one argument too many")
            assert "s3cret" not in said, said
    usage(t, "jobs", "frobnicate", says="no such verb; see stile jobs --help")
    usage(t, "ls", "--josn", says="--josn: unknown option; did you mean --json? See stile ls --help")
    usage(t, "run", "--hold", "1s", "x", "--", "true", says="did you mean --hold-at-least?")
    usage(t, "run", "--engin=redis://u:s3cret@h", "x", "--", "true", says="did you mean --engine?")
    usage(t, "ls", "-e", "loacl:", says="did you mean local:?")
    usage(t, "ls", "-e", "rdis://h", says="did you mean redis:?")
    usage(t, "ls", "-e", "zookeeper://h", says="did you mean zk:?")
    usage(t, "ls", "-e", "http://h", says="no engine for 'http:' URLs; there is: ")


def caps_without_a_server(t):
    """caps of an engine that cannot be reached: what it promises in general, and a note"""
    built = os.environ["ENGINES_BUILT"].split()
    t.env.update(AWS_ACCESS_KEY_ID="id", AWS_SECRET_ACCESS_KEY="secret")
    for engine, url, lease in (
            ("redis", "redis://127.0.0.1:1", "claim"),
            ("redlock", "redlock://127.0.0.1:1,127.0.0.2:1,127.0.0.3:1", "claim"),
            ("etcd", "etcd://127.0.0.1:1", "session"),
            ("zk", "zk://127.0.0.1:1", "session"),
            ("dynamodb", "dynamodb://table?region=eu-test-1&endpoint=http://127.0.0.1:1", "claim"),
            ("postgres", "postgres://u:s3cret@127.0.0.1:1/x", "session"),
            ("postgres", "postgres://u:s3cret@127.0.0.1:1/x?mode=table", "claim"),
            ("postgres", "postgres://127.0.0.1:1/x?mode=row", "session"),
            ("mysql", "mysql://127.0.0.1:1/x?mode=table", "claim")):
        if {"redlock": "redis", "zk": "zookeeper"}.get(engine, engine) not in built:
            continue
        done = t.stile("caps", "--json", url)
        expect(done.returncode, 0, done.stderr)
        caps = json.loads(done.stdout)
        expect((caps["engine"], caps["lease"], caps["asked"], caps["token"]),
               (engine, lease, False, True), url)
        assert "s3cret" not in done.stdout + done.stderr, done
        expect(done.stderr.count("\n"), 1)
        table = t.stile("caps", url).stdout
        assert re.search(r"(?m)^asked +no: ", table), table
    if "redis" in built:
        caps = json.loads(t.stile("caps", "--json", "redlock://127.0.0.1:1,127.0.0.2:1,127.0.0.3:1"
                                  "?fence=off").stdout)
        expect((caps["token"], caps["asked"]), (False, False))
    expect(json.loads(t.stile("caps", "--json").stdout)["asked"], True)
    expect(t.stile("caps", "postgres://127.0.0.1:1/x?mode=nonsense").returncode, 64)


def wrong_durations(t):
    """durations: a plain number, a sign, a fraction, a strange unit, too much"""
    usage(t, "run", "--wait", "10", "x", "--", "true", says="write 10s")
    for text in ("", "s", "-1s", "+1s", "1.5s", " 1s", "1s ", "1 s", "1S", "1sec", "1w", "1m30s",
                 "0x10s", "9223372036854775808ms", "99999999999999999999999s", "36501d", "1s\n"):
        usage(t, "run", "--wait", text, "x", "--", "true")
    for text in "0s", "250ms", "10s", "5m", "2h", "1d", "365d":
        done = t.stile("run", "--wait=" + text, "x", "--", "echo", "ran")
        expect((done.returncode, done.stdout), (0, "ran\n"), done.stderr)
    usage(t, "run", "--ttl", "0s", "x", "--", "true", says="more than 0")


def wrong_names(t):
    """names: empty, too long, control characters"""
    for name in "", "n" * 513, "a\nb", "a\tb", "\x1b[31m", "\x7f":
        for args in ("run", name, "--", "true"), ("show", name), ("break", "-y", name):
            said = usage(t, *args)
            assert "\x1b" not in said and "\x7f" not in said, repr(said)
    for name in "n" * 512, " ", "..", "/", "a b/c%2f", "\N{SNOWMAN}", b"\xff\xfe":
        done = t.stile("run", name, "--", "sh", "-c", 'printf %s "$STILE_NAME"', errors=None)
        expect(done.stdout, os.fsencode(name), done.stderr)


def wrong_urls(t):
    """engine URLs: 64 or 69, and never the password"""
    for url in "", "nonsense", "://", "local:relative", "local:/%zz":
        said = usage(t, "ls", "-e", url)
        assert said.count("\n") == 1
    for url in ("redis://u:s3cret@h/", "nope://user:s3cret@host/?x=1", "redis:u:s3cret@h",
                "redis:/u:s3cret@h", "local://u:s3cret@h/tmp", "nope://h/?password=s3cret"):
        for how in "-e", "--engine=", "env", "caps":
            args = {"-e": ["ls", "-e", url], "--engine=": ["ls", "--engine=" + url], "env": ["ls"],
                    "caps": ["caps", url]}[how]
            env = {**t.env, "STILE_ENGINE": url} if how == "env" else t.env
            done = t.stile(*args, env=env)
            # caps needs no server to print what an engine promises.
            offline = how == "caps" and url == "redis://u:s3cret@h/"
            assert done.returncode in ((0,) if offline else (64, 69)), (url, done)
            assert "s3cret" not in done.stdout and offline == (done.stdout != ""), (url, done)
            assert "s3cret" not in done.stderr and done.stderr.startswith("stile: "), done.stderr
    for args in (["--engine=redis://u:s3cret@h", "ls"], ["ls", "--engin=redis://u:s3cret@h"],
                 ["-eredis://u:s3cret@h", "ls"], ["ls", "--json=redis://u:s3cret@h"]):
        assert "s3cret" not in usage(t, *args)


def engine_that_cannot_be_used(t):
    """an engine's directory that is missing or no directory: 69 and its path"""
    with open(t.path("file"), "w", encoding="utf-8"):
        pass
    for path in t.path("file"), t.path("no/such/place"):
        done = t.stile("run", "-e", "local:" + path, "x", "--", "echo", "ran")
        expect((done.returncode, done.stdout), (69, ""), done.stderr)
        assert path in done.stderr and done.stderr.count("\n") <= 2, done.stderr


def engine_from_option_environment_default(t):
    """-e before $STILE_ENGINE before local:"""
    other = "local:" + t.path("other")
    done = t.stile("run", "-e", other, "x", "--", "sh", "-c", "echo $STILE_ENGINE")
    expect(done.stdout, other + "\n", done.stderr)
    env = {k: v for k, v in t.env.items() if k != "STILE_ENGINE"}
    env.update(XDG_STATE_HOME=t.path("state"), HOME=t.dir)
    command = [STILE, "caps", "--json"]
    if os.geteuid() == 0:
        return  # the system's directory is not ours to write to
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True)
    expect(json.loads(done.stdout)["engine"], "local")


ODD_NAMES = ["plain", "with blank", "\N{LATIN SMALL LETTER E WITH ACUTE}t\u00e9", "e\u0301te",
             "\u4e2d\u6587\u540d\u5b57", "\N{SLEEPING FACE}", "right\u202eleft", "zero\u200bwidth"]


def width(text):
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF"
               else 1 for c in text)


def tables_line_up(t):
    """row 29: ls: odd names and odd commands keep their columns and move no cursor"""
    held = [t.hold(name) for name in ODD_NAMES]
    odd = t.start("run", "--label", "red \x1b[31m\x07", os.fsdecode(b"bytes\xff\xfe"), "--", "sh",
                  "-c", "echo up; read line", stdin=subprocess.PIPE)
    odd.line()
    done = t.stile("ls", errors="strict", encoding="utf-8")
    lines = done.stdout.splitlines()
    expect(lines[0].split(), "NAME MODE HOLDERS WAITERS TOKEN SINCE HOLDER".split())
    expect(len(lines), len(ODD_NAMES) + 2)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u200b\u202e]", done.stdout), repr(done.stdout)
    assert any(line.startswith("bytes\\xff\\xfe ") for line in lines)
    assert any("[31m" in line for line in lines), done.stdout
    columns = {width(line[:line.index("exclusive")]) for line in lines[1:]}
    expect(columns, {lines[0].index("MODE")})
    for running in [*held, odd]:
        running.process.stdin.close()
        running.wait()
    expect(t.stile("ls").stdout.count("\n"), 1)


def ls_has_all_and_prefixes(t):
    """ls --json: the same, lossless; PREFIX; nobody: an empty list"""
    expect(json.loads(t.stile("ls", "--json").stdout), [])
    names = ["a:1", "a:2", "b", "quote\" back\\slash", os.fsdecode(b"bytes\xff")]
    held = [t.hold(name) for name in names]
    listed = json.loads(t.stile("ls", "--json").stdout)
    seen = [bytes.fromhex(one["name_hex"]) if "name_hex" in one else one["name"].encode()
            for one in listed]
    expect(seen, sorted(map(os.fsencode, names)))
    expect([one["name"] for one in json.loads(t.stile("ls", "--json", "a:").stdout)], names[:2])
    expect(t.stile("ls", "a:").stdout.count("\n"), 3)
    for one in held:
        t.release(one)


def show_tells_holder_and_queue(t):
    """row 29: show: pid, host and command of the holder, and the queue in its order"""
    held, watched = t.hold("x"), t.watch("x")
    waiters = []
    for number in range(3):
        waiters.append(t.start("run", "x", "--", "echo", "waiter", str(number)))
        t.until(watched, lambda change: len(change["waiters"]) == number + 1)
    seen = t.show("x")
    (holder,) = seen["holders"]
    expect((holder["pid"], holder["host"]), (held.pid, os.uname().nodename))
    expect(holder["command"], "sh")
    expect((holder["expires_ms"], holder["mode"], holder["ghost"]), (None, "exclusive", False))
    expect(holder["token"], seen["token"])
    expect([one["command"] for one in seen["waiters"]], ["echo"] * 3)
    lines = t.stile("show", "x").stdout.splitlines()
    expect([line.split()[0] for line in lines], ["STATE", "held", "waiting", "waiting", "waiting"])
    assert str(held.pid) in lines[1] and os.uname().nodename in lines[1], lines[1]
    (row,) = t.stile("ls").stdout.splitlines()[1:]
    expect(row.split()[:5], ["x", "exclusive", "1", "3", str(seen["token"])])
    t.release(held)
    for number, waiter in enumerate(waiters):
        expect((waiter.wait(), waiter.line()), (0, "waiter %d" % number))
    assert re.fullmatch(r"x is free; later tokens are larger than \d+\nlast: .* \(echo\), .*, exit 0\n",
                        t.stile("show", "x").stdout)


def watch_prints_every_change(t):
    """watch: a line at the start and one for every change, with its time"""
    text, watched = t.start("watch", "x"), t.watch("x")
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    assert re.fullmatch(stamp + "  x  free", text.line())
    first = watched.change()
    expect((first["name"], first["holders"], first["waiters"]), ("x", [], []))
    assert re.fullmatch(stamp, first["at"]), first
    held = t.hold("x")
    assert re.fullmatch(stamp + r"  x  held by %d@.* \(token \d+\)" % held.pid, text.line())
    expect(watched.change()["holders"][0]["pid"], held.pid)
    t.release(held)
    assert text.line().endswith("x  free")
    expect(watched.change()["holders"], [])
    text.process.stdout.close()
    held = t.hold("x")  # the reader is gone, so it ends
    assert text.wait() != 0
    t.release(held)


def watch_ends_with_its_directory(t):
    """a watch of a lock, a cell or a leader ends within seconds if the directory of local: is removed"""
    watching = [t.start(*verb, "x") for verb in (("watch",), ("cell", "watch"), ("leader", "--watch"))]
    for running in watching:
        running.line()
    shutil.rmtree(t.path("engine"))
    for running in watching:
        expect(running.wait(), 69)
        assert "removed" in running.err.end()


def break_says_from_whom(t):
    """break: says from whom it took it; --token spares a newer grant; a free name is fine"""
    held = t.hold("x")
    token = t.show("x")["token"]
    done = t.stile("break", "--token", str(token + 1), "x")
    expect((done.returncode, done.stdout), (75, ""), done.stderr)
    expect(len(t.show("x")["holders"]), 1)
    done = t.stile("break", "--token", str(token), "x")
    expect(done.returncode, 0, done.stderr)
    assert done.stdout.startswith("x was taken from %d@%s sh " % (held.pid, os.uname().nodename))
    expect(held.wait(), 76)
    done = t.stile("break", "x")
    expect((done.returncode, done.stdout), (0, "x is free; there was nothing to take\n"))
    held = t.hold("x")
    seen = json.loads(t.stile("break", "--json", "x").stdout)
    expect((seen["broken"], seen["was"]["holders"][0]["command"]), (True, "sh"))
    expect(held.wait(), 76)
    assert t.stile("run", "x", "--", "sh", "-c", "echo $STILE_TOKEN").stdout > str(token)


def caps_tells_promises(t):
    """caps: a table and JSON, of -e or of an argument"""
    seen = json.loads(t.stile("caps", "--json").stdout)
    expect((seen["engine"], seen["modes"]), ("local", ["exclusive", "shared", "slots"]))
    expect((seen["lease"], seen["token"], seen["detached"]), ("process", True, False))
    lines = t.stile("caps", t.env["STILE_ENGINE"]).stdout.splitlines()
    expect(lines[0].split(), ["WHAT", "PROMISE"])
    expect(len({line.index(line.split("  ", 1)[1].lstrip()) for line in lines}), 1)


def detached_verbs_are_refused_by_local(t):
    """acquire, renew and release: local says why not, and what to use: 69"""
    for args in ["acquire", "x"], ["renew", "--owner=v", "x"], ["release", "--owner", "v", "x"]:
        done = t.stile(*args)
        expect((done.returncode, done.stdout), (69, ""), done.stderr)
        assert "ends with the process" in done.stderr and "stile run x -- CMD" in done.stderr
        expect(done.stderr.count("\n"), 1)
    expect(t.show("x")["holders"], [])


def setup_of_what_needs_none(t):
    """setup on an engine that needs nothing: 69, and so with --print"""
    for options in [], ["--print"]:
        done = t.stile("setup", *options)
        expect((done.returncode, done.stdout), (69, ""), done.stderr)
        assert "nothing" in done.stderr, done.stderr


def output_that_cannot_be_written(t):
    """a full disk behind stdout is reported: 74"""
    for args in ["ls"], ["ls", "--json"], ["show", "x"], ["caps"], ["--help"], ["--version"]:
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = t.stile(*args, stdout=full)
        expect(done.returncode, 74, args)
        assert "No space left" in done.stderr, done.stderr


def closed_stderr_ends_nobody(t):
    """messages that nobody reads do no harm"""
    held = t.hold("x")
    read, write = os.pipe()
    os.close(read)
    done = t.stile("run", "--try", "x", "--", "true", stderr=write)
    os.close(write)
    expect(done.returncode, 75)
    t.release(held)


def closed_descriptors_stay_closed(t):
    """started with closed descriptors: nothing of ours gets their numbers"""
    script = '"$0" run --leave x -- sh -c "ls -l /proc/self/fd" %s'
    for closing in "<&-", "2>&-", "<&- 2>&-":
        seen = [subprocess.run(["sh", "-c", text, STILE], env=t.env, stdout=subprocess.PIPE,
                               check=False).stdout.decode()
                for text in (script % closing, 'sh -c "ls -l /proc/self/fd" ' + closing)]
        plain = [re.findall(r"(\d+) -> (?!/proc)", text) for text in seen]
        expect(plain[0], plain[1], closing)
    # Whatever we open must not get number 2: our messages would be written into it.
    running = t.start("run", "x", "--", "sh", "-c", "echo up; exec sleep 1000",
                      preexec_fn=lambda: (os.close(0), os.close(2)))
    expect(running.line(), "up")
    for pid in running.pid, running.warden():
        for fd in 0, 2:
            expect(os.readlink("/proc/%d/fd/%d" % (pid, fd)), "/dev/null")


def verb_of_another_program(t):
    """sim: options, output and exit code are those of its program; a missing one is named"""
    t.env["STILE_LIBEXEC"] = t.dir
    program = os.path.join(t.dir, "stile-sim")
    done = t.stile("sim", "--seeds", "3")
    expect((done.returncode, done.stdout), (69, ""))
    assert program in done.stderr and "install the package stile-sim" in done.stderr, done.stderr
    with open(program, "w", encoding="utf-8") as file:
        file.write('#!/bin/sh\necho "$@"; exit 7\n')
    expect(t.stile("sim").returncode, 69)  # not executable
    os.chmod(program, 0o755)
    done = t.stile("sim", "--seeds", "3", "-e", "a b")
    expect((done.returncode, done.stdout, done.stderr), (7, "--seeds 3 -e a b\n", ""))
    expect(t.stile("help", "sim").stdout, "--help\n")


run_tests([
    help_for_everything,
    verb_of_another_program,
    version,
    wrong_words,
    did_you_mean,
    caps_without_a_server,
    wrong_durations,
    wrong_names,
    wrong_urls,
    engine_that_cannot_be_used,
    engine_from_option_environment_default,
    tables_line_up,
    ls_has_all_and_prefixes,
    show_tells_holder_and_queue,
    watch_prints_every_change, watch_ends_with_its_directory,
    break_says_from_whom,
    caps_tells_promises,
    detached_verbs_are_refused_by_local,
    setup_of_what_needs_none,
    output_that_cannot_be_written,
    closed_stderr_ends_nobody,
    closed_descriptors_stay_closed,
])
