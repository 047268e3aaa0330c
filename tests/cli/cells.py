# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""stile cell and stile guard, on local: as a person or a script uses them; stile run --guard."""
import fcntl
import json
import os
import subprocess
import threading

from kit import STILE, expect, run_tests, spin


def put(t, key, value, *options):
    done = t.stile("cell", "put", key, *options, input=value)
    expect((done.returncode, done.stderr), (0, ""))
    return int(done.stdout)


def value_of(t, key):
    done = t.stile("cell", "get", key)
    expect((done.returncode, done.stderr), (0, ""))
    return done.stdout


def round_trip(t):
    """put prints the version, get the value byte for byte, --json both"""
    first = put(t, "k", "one\n")
    expect(value_of(t, "k"), "one\n")
    second = put(t, "k", "two")
    assert second > first, (first, second)
    seen = json.loads(t.stile("cell", "get", "--json", "k").stdout)
    expect(seen, {"key": "k", "version": second, "size": 3, "token": None, "issuer": None,
                  "value": "two"})
    done = t.stile("cell", "put", "--json", "k", input="three")
    expect(json.loads(done.stdout)["key"], "k")
    expect(t.stile("cell", "rm", "k").returncode, 0)
    done = t.stile("cell", "get", "k")
    expect((done.returncode, done.stdout, done.stderr), (1, "", "stile: cell get: there is no cell k\n"))
    expect(json.loads(t.stile("cell", "get", "--json", "k").stdout)["value"], None)


def bytes_are_kept(t):
    """any bytes, up to 64 KiB; NUL bytes are hex in JSON"""
    every = bytes(range(256)) * 256
    done = subprocess.run([STILE, "cell", "put", "k"], input=every, env=t.env, capture_output=True,
                          check=False)
    expect(done.returncode, 0, done.stderr)
    done = subprocess.run([STILE, "cell", "get", "k"], env=t.env, capture_output=True, check=False)
    expect(done.stdout == every, True)
    put(t, "k", "a\0b")
    expect(json.loads(t.stile("cell", "get", "--json", "k").stdout)["value_hex"], "610062")
    done = t.stile("cell", "put", "k", input="x" * 65537)
    expect(done.returncode, 64)
    assert "65536 bytes" in done.stderr, done.stderr


def closed_stdin(t):
    """without a stdin there is no value, not an empty one"""
    put(t, "k", "kept")
    done = t.stile("cell", "put", "k", preexec_fn=lambda: os.close(0))
    expect(done.returncode, 69)
    assert "Bad file descriptor" in done.stderr, done.stderr
    expect(value_of(t, "k"), "kept")


def versions(t):
    """--if-version creates once, replaces once, and exits 1 with the present version"""
    done = t.stile("cell", "put", "k", "--if-version", "0", input="a")
    version = done.stdout.strip()
    done = t.stile("cell", "put", "k", "--if-version", "0", input="b")
    expect((done.returncode, done.stdout), (1, ""))
    assert "exists already, with version " + version in done.stderr, done.stderr
    expect(t.stile("cell", "rm", "k", "--if-version", "999").returncode, 1)
    expect(t.stile("cell", "put", "k", "--if-version", version, input="c").returncode, 0)
    expect(t.stile("cell", "put", "k", "--if-version", "x", input="c").returncode, 64)
    expect(value_of(t, "k"), "c")


def ends(t):
    """--keep takes a duration, which is not 0 and ten years at most"""
    for wrong, why in ("0s", "must be more than 0"), ("4000d", "ten years"), ("1", "needs its unit"):
        done = t.stile("cell", "put", "k", "--keep", wrong, input="x")
        expect((done.returncode, done.stdout), (64, ""))
        assert why in done.stderr, done.stderr


def tokens(t):
    """a stale token exits 77 with the highest on stderr, another lock's 78"""
    put(t, "k", "new", "--token", "34", "--issuer", "redis:k")
    done = t.stile("cell", "put", "k", "--token", "33", input="old")
    expect((done.returncode, done.stdout), (77, ""))
    assert "stale token 33: the highest seen is 34" in done.stderr, done.stderr
    expect(t.stile("cell", "put", "k", input="none").returncode, 77)
    expect(t.stile("cell", "put", "k", "--token", "34", "--strict", input="x").returncode, 77)
    done = t.stile("cell", "put", "k", "--token", "99", "--issuer", "etcd:k", input="x")
    expect(done.returncode, 78)
    expect(t.stile("cell", "rm", "k", "--token", "33").returncode, 77)
    expect(value_of(t, "k"), "new")


def listing(t):
    """ls lists keys in order, with sizes and tokens; a prefix narrows it"""
    for key in "b/2", "a", "b/1":
        put(t, key, "xyz")
    put(t, "b/1", "four", "--token", "7", "--issuer", "zk:b")
    lines = t.stile("cell", "ls").stdout.splitlines()
    expect([line.split()[0] for line in lines], ["KEY", "a", "b/1", "b/2"])
    expect(lines[2].split()[2:], ["4", "7", "zk:b"])
    seen = json.loads(t.stile("cell", "ls", "--json", "b/").stdout)
    expect([(cell["key"], cell["size"], cell["token"]) for cell in seen],
           [("b/1", 4, 7), ("b/2", 3, None)])
    expect(json.loads(t.stile("cell", "ls", "--json", "no such").stdout), [])


def watching(t):
    """watch prints a line now and after each change"""
    running = t.start("cell", "watch", "--json", "k")
    expect(json.loads(running.line())["version"], 0)
    version = put(t, "k", "hello")
    seen = json.loads(running.line())
    expect((seen["version"], seen["value"]), (version, "hello"))


def updating(t):
    """update passes the value through a command, and repeats it if another was faster"""
    count = 'n=$(cat); echo $((${n:-0} + 1))'
    for _ in range(3):
        expect(t.stile("cell", "update", "n", "--", "sh", "-c", count).returncode, 0)
    expect(value_of(t, "n"), "3\n")
    threads = [threading.Thread(target=lambda: t.stile("cell", "update", "n", "--", "sh", "-c", count))
               for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(value_of(t, "n"), "7\n")
    done = t.stile("cell", "update", "n", "--", "sh", "-c", "cat; exit 3")
    expect(done.returncode, 3)
    assert "nothing is written" in done.stderr, done.stderr
    for command, code in ([t.path("no-such-command")], 127), (["sh", "-c", "yes"], 64):
        done = t.stile("cell", "update", "n", "--", *command)
        expect((done.returncode, done.stderr.count("\n")), (code, 1), done.stderr)
    expect(value_of(t, "n"), "7\n")
    version = put(t, "big", "x" * 65536)
    done = t.stile("cell", "update", "big", "--", "sh", "-c", 'echo "$STILE_CELL_VERSION"')
    expect(value_of(t, "big").strip(), str(version))


# ---- guards ----

def raising(t):
    """raise remembers, check does not; both exit 77 for a stale token"""
    url = t.env["STILE_ENGINE"]
    expect(t.stile("guard", "show", url, "r").stdout, "r: no token seen\n")
    expect(t.stile("guard", "check", url, "r", "5").returncode, 0)
    expect(t.stile("guard", "show", url, "r").stdout, "r: no token seen\n")
    done = t.stile("guard", "raise", url, "r", "5", "--issuer", "etcd:r")
    expect((done.returncode, done.stdout, done.stderr), (0, "", ""))
    expect(t.stile("guard", "show", url, "r").stdout, "r: token 5 of etcd:r\n")
    for verb in "check", "raise":
        done = t.stile("guard", verb, url, "r", "4")
        expect(done.returncode, 77)
        assert "the highest seen is 5" in done.stderr, done.stderr
        expect(t.stile("guard", verb, url, "r", "6", "--issuer", "zk:r").returncode, 78)
        expect(t.stile("guard", verb, url, "r", "5").returncode, 0)
        expect(t.stile("guard", verb, url, "r", "5", "--strict").returncode, 77)
    expect(t.stile("cell", "put", "r", "--token", "4", input="late").returncode, 77)
    done = t.stile("guard", "raise", "--json", url, "r", "9")
    expect(json.loads(done.stdout), {"resource": "r", "highest": 9})
    expect(json.loads(t.stile("guard", "show", "--json", url, "r").stdout),
           {"resource": "r", "highest": 9, "issuer": "etcd:r"})
    expect(t.stile("guard", "reset", url, "r", "2", "--issuer", "zk:r").returncode, 0)
    expect(t.stile("guard", "show", url, "r").stdout, "r: token 2 of zk:r\n")
    expect(t.stile("guard", "reset", url, "r").returncode, 0)
    expect(t.stile("guard", "show", url, "r").stdout, "r: no token seen\n")


def wrong_words(t):
    """tokens are whole numbers; other places are refused with what to do"""
    url = t.env["STILE_ENGINE"]
    for token in "0", "-1", "x", "9223372036854775808", "1x", "":
        done = t.stile("guard", "raise", url, "r", token)
        expect(done.returncode, 64, token + ": " + done.stderr)
    done = t.stile("guard", "raise", url, "r")
    expect(done.returncode, 64)
    assert "$STILE_TOKEN" in done.stderr, done.stderr
    done = t.stile("guard", "check", "http://127.0.0.1/", "r", "3")
    expect(done.returncode, 64)
    assert "stile guard nginx" in done.stderr, done.stderr
    done = t.stile("guard", "install", url)
    expect(done.returncode, 69)
    assert "needs nothing" in done.stderr, done.stderr


def of_a_file(t):
    """file:DIR is the guard of a file in that directory"""
    url = "file:" + t.dir
    expect(t.stile("guard", "raise", url, "data", "5").returncode, 0)
    expect(t.stile("guard", "check", url, "data", "4").returncode, 77)
    expect(t.stile("guard", "show", url, "data").stdout, "data: token 5\n")
    expect(t.stile("guard", "reset", url, "data").returncode, 0)
    expect(t.stile("guard", "check", url, "data", "4").returncode, 0)
    expect(t.stile("guard", "check", "file:", "data", "4").returncode, 64)


# ---- run --guard ----

PRINT = 'echo "$STILE_RESOURCE $STILE_TOKEN $STILE_ISSUER"'


def run_raises(t):
    """the guard has seen the token before CMD starts; CMD finds resource, token and issuer"""
    url = t.env["STILE_ENGINE"]
    inner = PRINT + '; "$STILE" guard show "$STILE_ENGINE" "$STILE_RESOURCE"'
    done = t.stile("run", "--guard", "#accounts", "x", "--", "sh", "-c", inner)
    expect(done.returncode, 0, done.stderr)
    first, second = done.stdout.splitlines()
    resource, token, issuer = first.split()
    expect((resource, issuer), ("accounts", "local:x"))
    expect(second, "accounts: token %s of local:x" % token)
    done = t.stile("run", "--guard", url + "#accounts", "x", "--", "sh", "-c", PRINT)
    assert int(done.stdout.split()[1]) > int(token), done.stdout
    done = t.stile("run", "--guard", "file:%s#data" % t.dir, "x", "--", "sh", "-c", PRINT)
    expect(done.stdout.split()[0], "data")
    assert t.stile("guard", "show", "file:" + t.dir, "data").stdout.startswith("data: token ")


def run_with_a_stale_guard(t):
    """a guard that has seen more ends it with 77; a wrong one with 64 or 69; the lock is free again"""
    url = t.env["STILE_ENGINE"]
    expect(t.stile("guard", "raise", url, "r", "9223372036854775807").returncode, 0)
    ran = t.path("ran")
    for guard, code in (("#r", 77), (url + "#r", 77), ("r", 64), (url + "#", 64),
                        ("file://host/x#r", 64), ("file:/no/such/dir#r", 69), ("what:#r", 64)):
        done = t.stile("run", "--hold-at-least", "1h", "-q", "--guard", guard, "x", "--", "touch", ran)
        expect(done.returncode, code, guard + ": " + done.stderr)
        expect(os.path.exists(ran), False)
    expect(t.show("x")["holders"], [])


def run_lost_while_raising(t):
    """a lock that is lost before its guard is raised starts no command, and says so"""
    expect(t.stile("guard", "raise", "file:" + t.dir, "data", "1").returncode, 0)
    ran = t.path("ran")
    with open(t.path(".data.stile"), "r+b") as guard:
        fcntl.lockf(guard, fcntl.LOCK_EX)
        running = t.start("run", "--guard", "file:%s#data" % t.dir, "x", "--", "touch", ran)
        spin(lambda: t.show("x")["holders"])
        expect(t.stile("break", "x").returncode, 0)
    expect(running.wait(), 76)
    assert "the command is not started" in running.err.unread(), running.record()
    expect(os.path.exists(ran), False)


def nested(t):
    """an inner run does not show its command the outer one's resource"""
    done = t.stile("run", "--guard", "#r", "x", "--", STILE, "run", "y", "--", "sh", "-c",
                   'echo "$STILE_RESOURCE,$STILE_ISSUER"')
    expect(done.stdout, ",local:y\n")


def issuer_from_the_run(t):
    """inside a run, --token $STILE_TOKEN brings its issuer along"""
    inner = 'echo hi | "$STILE" cell put k --token "$STILE_TOKEN"'
    expect(t.stile("run", "x", "--", "sh", "-c", inner).returncode, 0)
    expect(json.loads(t.stile("cell", "get", "--json", "k").stdout)["issuer"], "local:x")
    done = t.stile("run", "other", "--", "sh", "-c", inner)
    expect(done.returncode, 78)


run_tests([round_trip, bytes_are_kept, closed_stdin, versions, ends, tokens, listing, watching,
           updating, raising, wrong_words, of_a_file, run_raises, run_with_a_stale_guard,
           run_lost_while_raising, nested, issuer_from_the_run])
