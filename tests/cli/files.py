# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""stile file: put, rm and show, by hand and under stile run."""
import json
import os
import subprocess

from kit import expect, run_tests


def put(t, text, *options, path="x", **how):
    return t.stile("file", "put", t.path(path), *options, input=text, **how)


def content(t, path="x"):
    with open(t.path(path), encoding="utf-8") as file:
        return file.read()


def shown(t, path="x"):
    done = t.stile("file", "show", "--json", t.path(path))
    expect((done.returncode, done.stderr), (0, ""))
    return json.loads(done.stdout)


def puts_and_refuses(t):
    """put: a smaller token exits 77 with the highest one on stderr, an equal one passes"""
    done = put(t, "late\n", "--token", "34")
    expect((done.returncode, done.stdout, done.stderr), (0, "", ""))
    done = put(t, "early\n", "--token", "33")
    expect((done.returncode, done.stdout), (77, ""))
    expect(done.stderr, "stile: file put: stale token 33 for `%s`: the highest seen is 34\n" % t.path("x"))
    expect(content(t), "late\n")
    expect(put(t, "again\n", "--token", "34").returncode, 0)
    expect(put(t, "no\n", "--token", "34", "--strict").returncode, 77)
    expect(content(t), "again\n")


def another_issuer(t):
    """put: a token of another issuer exits 78"""
    expect(put(t, "one", "--token", "5", "--issuer", "redis:a").returncode, 0)
    done = put(t, "two", "--token", "9", "--issuer", "etcd:a")
    expect(done.returncode, 78)
    assert "redis:a" in done.stderr and "etcd:a" in done.stderr, done.stderr
    expect(shown(t), {"path": t.path("x"), "highest": 5, "issuer": "redis:a"})
    done = t.stile("file", "show", t.path("x"))
    expect((done.returncode, done.stdout), (0, t.path("x") + ": token 5 of redis:a\n"))


def removes(t):
    """rm: the token stays, and a late put does not bring the file back"""
    expect(put(t, "one", "--token", "5").returncode, 0)
    expect(t.stile("file", "rm", t.path("x"), "--token", "4").returncode, 77)
    expect(content(t), "one")
    expect(t.stile("file", "rm", t.path("x"), "--token", "6").returncode, 0)
    expect(put(t, "late", "--token", "5").returncode, 77)
    assert not os.path.exists(t.path("x"))
    expect(shown(t)["highest"], 6)
    expect(t.stile("file", "show", t.path("never")).stdout, t.path("never") + ": no token seen\n")


def content_of_any_size(t):
    """put: megabytes through a pipe, nothing at all, and bytes that are no text"""
    for text in bytes(range(256)) * 20000, b"":
        done = subprocess.run([os.environ["STILE"], "file", "put", t.path("x"), "--token", "1"],
                              input=text, env=t.env, check=False)
        expect(done.returncode, 0)
        with open(t.path("x"), "rb") as file:
            assert file.read() == text
    expect(sorted(os.listdir(t.dir)), [".x.stile", "x"])


def permissions(t):
    """--mode: octal, up to 777; else as before"""
    expect(put(t, "one", "--token", "1", "--mode", "640").returncode, 0)
    expect(os.stat(t.path("x")).st_mode & 0o777, 0o640)
    expect(put(t, "two", "--token", "1").returncode, 0)
    expect(os.stat(t.path("x")).st_mode & 0o777, 0o640)
    for mode in "", "8", "1777", "u+x", "0x1", "000", "-1":
        done = put(t, "three", "--token", "1", "--mode", mode)
        expect(done.returncode, 64, mode)
        assert "--mode" in done.stderr, done.stderr
    expect(content(t), "two")


def tokens_of_a_run(t):
    """stile run: put finds the token, and an earlier one is refused after the next run"""
    run = ["run", "ledger", "--", "sh", "-c"]
    script = 'echo "$STILE_TOKEN" | %s file put "$0"' % os.environ["STILE"]
    expect(t.stile(*run, script, t.path("x")).returncode, 0)
    first = int(content(t))
    expect(t.stile(*run, script, t.path("x")).returncode, 0)
    second = int(content(t))
    assert 0 < first < second, (first, second)
    expect(shown(t)["highest"], second)
    expect(put(t, "late", env={**t.env, "STILE_TOKEN": str(first)}).returncode, 77)
    expect(int(content(t)), second)


def what_cannot_be(t):
    """no token, no path, a link, a directory: said before anything is changed"""
    done = put(t, "text")
    expect(done.returncode, 64)
    assert "--token" in done.stderr and "STILE_TOKEN" in done.stderr, done.stderr
    for token in "0", "-1", "x", "", "9223372036854775808", "18446744073709551616":
        expect(put(t, "text", "--token", token).returncode, 64, token)
        expect(put(t, "text", env={**t.env, "STILE_TOKEN": token}).returncode, 64, token)
    for verb in "put", "rm", "show":
        expect(t.stile("file", verb).returncode, 64)
        expect(t.stile("file", verb, "-e", "local:", "x").returncode, 64)
    os.symlink("elsewhere", t.path("link"))
    done = put(t, "text", "--token", "1", path="link")
    expect(done.returncode, 69)
    assert "symbolic link" in done.stderr, done.stderr
    expect(put(t, "text", "--token", "1", path="no/where").returncode, 69)
    expect(put(t, "text", "--token", "1", path=".").returncode, 64)
    expect(os.listdir(t.dir), ["link"])


def a_damaged_guard(t):
    """a damaged guard: 69, and how to go on"""
    expect(put(t, "one", "--token", "5").returncode, 0)
    with open(t.path(".x.stile"), "w", encoding="utf-8"):
        pass
    done = put(t, "two", "--token", "9")
    expect(done.returncode, 69)
    assert "damaged" in done.stderr and "reset" in done.stderr, done.stderr
    expect(t.stile("file", "show", t.path("x")).returncode, 69)
    expect(content(t), "one")
    expect(t.stile("guard", "reset", "file:" + t.dir, "x", "9").returncode, 0)
    expect(put(t, "two", "--token", "8").returncode, 77)
    expect(put(t, "two", "--token", "9").returncode, 0)


run_tests([puts_and_refuses, another_issuer, removes, content_of_any_size, permissions, tokens_of_a_run,
           what_cannot_be, a_damaged_guard])
