# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""stile doctor: what it prints, and its exit codes."""
import json
import os
import re
import subprocess

import kit
from kit import expect, run_tests

ALL = "test:?doctor=fine,note,warning,danger"


def doctor(t, *args, stile=os.environ["STILE_TEST"]):
    return subprocess.run([stile, "doctor", *args], env=t.env, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=kit.PATIENCE, check=False)


def exit_codes(t):
    """0 all is well, 1 warnings, 2 danger: the worst decides"""
    for words, code in (("fine", 0), ("note", 0), ("fine,note", 0), ("warning", 1),
                        ("fine,warning,note", 1), ("danger", 2), ("warning,danger", 2)):
        for how in [], ["--json"]:
            done = doctor(t, *how, "test:?doctor=" + words)
            expect((done.returncode, done.stderr), (code, ""), words)


def for_people(t):
    """Worst first, each with why and what to do; a last line that sums up; nothing that colours"""
    done = doctor(t, "-e", ALL)
    lines = done.stdout.splitlines()
    heads = [line.split(None, 1) for line in lines if re.match(r"[A-Za-z]+ {2,}", line)]
    expect(heads, [["DANGER", "there: it is on fire"], ["warning", "there: something is weak"],
                   ["note", "it is \\x1b[31mtest:"], ["fine", "here: all is as it should be"]])
    assert "  run    run now\n         run fast\n  and    leave the house\n" in done.stdout
    assert "  do     be strong\n" in done.stdout
    assert max(map(len, lines)) <= 98, lines
    why = re.search(r"  why +(a process.*\n( {9}.*\n)+)", done.stdout).group(1)
    assert " ".join(why.split()).endswith("in his hands, and in his pockets"), why
    expect(lines[-1], "1 danger, 1 warning: don't rely on locks here before the dangers are gone.")
    expect(lines[-2], "")


def last_lines(t):
    """The last line for each outcome"""
    for words, last in (("warning", "1 warning: locks work, but a promise is weaker"),
                        ("fine", "Nothing to worry about: test can keep"),
                        ("", "test could be opened, and there is nothing else to look at.")):
        done = doctor(t, "test:?doctor=" + words)
        assert done.stdout.splitlines()[-1].startswith(last), done.stdout


def for_programs(t):
    """--json: all of it, and one object"""
    seen = json.loads(doctor(t, "--json", ALL).stdout)
    expect((seen["engine"], seen["danger"], seen["warnings"]), ("test", 1, 1))
    expect([one["severity"] for one in seen["findings"]], ["danger", "warning", "note", "fine"])
    first = seen["findings"][0]
    expect(sorted(first), sorted("severity id where what why cure commands".split()))
    expect((first["id"], first["where"], first["what"], first["cure"], first["commands"]),
           ("bad", "there", "it is on fire", "leave the house", ["run now", "run fast"]))
    expect(seen["findings"][1]["commands"], [])
    expect(json.loads(doctor(t, "--json", "test:").stdout)["findings"], [])


def adoption(t):
    """--adopt: what was done is reported first; an engine without it: 69"""
    done = doctor(t, "--adopt", "test:?doctor=note,danger")
    heads = re.findall(r"(?m)^(\w+)  +\S", done.stdout)
    expect((heads, done.returncode), (["note", "DANGER", "note"], 2))
    for how in [], ["--json"]:
        done = t.stile("doctor", "--adopt", *how)
        expect((done.returncode, done.stdout), (69, ""), done.stderr)
        assert "nothing to adopt on the engine local" in done.stderr, done.stderr
        expect(done.stderr.count("\n"), 1)


def local_directory(t):
    """local: a directory on a disk is fine, one in memory warns of its tokens"""
    done = t.stile("doctor")
    seen = json.loads(t.stile("doctor", "--json").stdout)["findings"]
    expect([one["id"] for one in seen if one["severity"] == "fine"], ["directory"])
    expect(seen[-1]["where"], t.path("engine"))
    in_memory = subprocess.run(["stat", "-f", "-c", "%T", t.dir], capture_output=True, text=True,
                               check=True).stdout.strip() in ("tmpfs", "ramfs")
    expect("volatile" in [one["id"] for one in seen], in_memory)
    expect(done.returncode, 1 if in_memory else 0, done.stdout)
    if os.access("/dev/shm", os.W_OK):
        place = "/dev/shm/" + os.path.basename(t.dir)
        t.env["STILE_ENGINE"] = "local:" + place
        try:
            seen = json.loads(t.stile("doctor", "--json").stdout)
        finally:
            subprocess.run(["rm", "-rf", place], check=True)
        expect((seen["findings"][0]["id"], seen["warnings"]), ("volatile", 1))


def local_shared(t):
    """local: a directory that its group may write to is noted"""
    os.mkdir(t.path("engine"))
    os.chmod(t.path("engine"), 0o770)
    seen = json.loads(t.stile("doctor", "--json").stdout)["findings"]
    assert "shared" in [one["id"] for one in seen], seen


def what_cannot_be_looked_at(t):
    """69 where the engine can't be reached, 64 for a URL that is none; never the password"""
    t.env["STILE_MODULES"] = os.environ["STILE_MODULES"]
    for url, code in (("redis://u:s3cret@127.0.0.1:1", 69), ("local:" + t.path("no/such"), 69),
                      ("nope://u:s3cret@h", 64), ("nonsense", 64)):
        for args in [url], ["-e", url], ["--json", url]:
            done = t.stile("doctor", *args)
            expect((done.returncode, done.stdout), (code, ""), done.stderr)
            assert done.stderr.startswith("stile: ") and "s3cret" not in done.stderr, done.stderr


def output_that_cannot_be_written(t):
    """a full disk behind stdout is reported: 74, whatever was found"""
    for how in [], ["--json"]:
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([os.environ["STILE_TEST"], "doctor", *how, ALL], env=t.env,
                                  stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        expect(done.returncode, 74, done.stderr)


run_tests([exit_codes, for_people, last_lines, for_programs, adoption, local_directory,
           local_shared, what_cannot_be_looked_at, output_that_cannot_be_written])
