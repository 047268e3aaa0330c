# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""`stile jobs` on a real database ($JOBS_ON: postgres or mysql): what it prints and how it ends, and
workers, servers and connections that come to harm in the middle of a job."""
import base64
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(TESTS / "cli"), str(TESTS / "servers")]
from kit import children, expect, run_tests, spin  # noqa: E402
from mysql_server import MysqlServer  # noqa: E402
from postgres_server import PostgresServer  # noqa: E402

ON_POSTGRES = os.environ["JOBS_ON"] == "postgres"
TABLE = "stile.job" if ON_POSTGRES else "stile_job"
MANY = 100000 if os.environ.get("STILE_SOAK") else 20000
SERVER = None


def use(t):
    t.env.update(STILE_ENGINE=SERVER.url, STILE_MODULES=os.environ["STILE_MODULES"])


def jobs(t, *args, code=0, **how):
    """The output of `stile jobs ...`."""
    done = t.stile("jobs", *args, **how)
    expect(done.returncode, code, done.stderr)
    return done.stdout if code == 0 else done.stderr


def add(t, queue, payload="x", *options):
    return int(jobs(t, "add", *options, queue, input=payload))


def seen(t, queue):
    return json.loads(jobs(t, "ls", "--json", queue))


def work(t, queue, *args, script):
    """A worker, with pipes for what its commands print."""
    return t.start("jobs", "work", *args, queue, "--", "sh", "-c", script)


def is_alive(pid):
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


SHOW = "echo $STILE_TOKEN $$ $STILE_JOB_TRIES; "


def begun(worker):
    """Token, process and try of the job that it has begun."""
    return tuple(int(word) for word in worker.line().split())


# ---- what it prints, and how it ends ----

def adding(t):
    """add: its number, the same one for the same key; ls: queues and jobs, as a table and as JSON"""
    use(t)
    first = add(t, "mail", "hello", "--key", "K")
    expect(add(t, "mail", "again", "--key", "K"), first)
    second = add(t, "mail", "later", "--delay", "1h")
    heads, row = jobs(t, "ls").splitlines()
    expect(heads.split(), ["QUEUE", "READY", "DELAYED", "CLAIMED", "DEAD", "OLDEST"])
    expect(row.split()[:5], ["mail", "1", "1", "0", "0"])
    lines = [line.split() for line in jobs(t, "ls", "mail").splitlines()]
    expect(lines[0][:3], ["ID", "STATE", "TRIES"])
    expect([line[0] for line in lines[1:]], [str(first), str(second)])
    (queue,) = json.loads(jobs(t, "ls", "--json"))
    expect((queue["queue"], queue["ready"], queue["delayed"]), ("mail", 1, 1))
    listed = seen(t, "mail")
    expect([(job["id"], job["key"], job["size"], job["state"]) for job in listed],
           [(first, "K", 5, "ready"), (second, None, 5, "ready")])
    assert 0 < listed[1]["due_ms"] <= 3600000, listed
    jobs(t, "drop", "mail", str(first), str(second))
    expect(jobs(t, "ls", "mail").count("\n"), 1)


def refusals(t):
    """What cannot be is refused with a sentence: no jobs here, too much, no such verb or number"""
    use(t)
    assert "1048576" in jobs(t, "add", "q", input="x" * (1 << 20 | 1), code=64)
    assert "QUEUE" in jobs(t, "add", code=64)
    assert "--help" in jobs(t, "frob", code=64)
    assert "--" in jobs(t, "work", "q", code=64)
    jobs(t, "work", "--once", "--drain", "q", "--", "true", code=64)
    jobs(t, "work", "--lease", "10ms", "q", "--", "true", code=64)
    assert "number" in jobs(t, "drop", "q", "x", code=64)
    assert "99" in jobs(t, "drop", "q", "99", code=75)
    jobs(t, "retry", "q", code=75)
    jobs(t, "work", "--once", "q", "--", "true", code=75)
    jobs(t, "work", "--drain", "q", "--", "true")
    local = {**t.env, "STILE_ENGINE": "local:" + t.path("engine")}
    assert "keeps no jobs" in jobs(t, "add", "q", env=local, code=69)


def payloads(t):
    """The payload comes on stdin as it was, and the environment names the job"""
    use(t)
    sent = bytes(range(256)) * 4096
    assert len(sent) == 1 << 20
    for payload in sent, b"":
        with open(t.path("in"), "wb") as file:
            file.write(payload)
        with open(t.path("in"), "rb") as file:
            jobs(t, "add", "bytes", stdin=file)
        jobs(t, "work", "--once", "bytes", "--", "sh", "-c", "cat > " + t.path("out"))
        with open(t.path("out"), "rb") as file:
            assert file.read() == payload
    number = add(t, "env", "x", "--key", "a b")
    listed = jobs(t, "work", "--once", "env", "--", "env", env={**t.env, "STILE_NAME": "outer",
                                                              "STILE_JOB_KEY": "outer"})
    own = dict(line.split("=", 1) for line in listed.splitlines() if line.startswith("STILE_"))
    expect((own["STILE_QUEUE"], own["STILE_JOB_ID"], own["STILE_JOB_KEY"], own["STILE_JOB_TRIES"],
            own["STILE_TOKEN"]), ("env", str(number), "a b", "1", "%d000001" % number))
    assert "STILE_NAME" not in own and "@" not in own["STILE_ENGINE"], own


def failing(t):
    """A command that fails: again after a pause, dead after the last try, and back by retry"""
    use(t)
    number = add(t, "bad")
    how = ("--once", "--tries", "2", "--backoff", "1ms")
    assert "exit code 3" in t.stile("jobs", "work", *how, "bad", "--", "sh", "-c", "exit 3").stderr
    (job,) = seen(t, "bad")
    expect((job["state"], job["tries"], job["last_error"]), ("ready", 1, "exit code 3"))
    spin(lambda: seen(t, "bad")[0]["due_ms"] <= 0)
    expect(t.stile("jobs", "work", *how, "bad", "--", "sh", "-c", "kill -9 $$").returncode, 137)
    (job,) = seen(t, "bad")
    expect((job["state"], job["tries"]), ("dead", 2))
    assert "signal 9" in job["last_error"], job
    jobs(t, "work", "--once", "bad", "--", "true", code=75)
    expect(jobs(t, "retry", "bad"), "1\n")
    again, tries = jobs(t, "work", "--once", "bad", "--", "sh", "-c",
                        "echo $STILE_JOB_ID $STILE_JOB_TRIES").split()
    assert int(again) > number and tries == "1", (again, tries)
    expect(seen(t, "bad"), [])


def many_files(t):
    """jobs add: one job for each file, in the order in which they are given"""
    use(t)
    paths = []
    for i in range(5):
        paths.append(t.path("payload%d" % i))
        with open(paths[-1], "w", encoding="utf-8") as file:
            file.write("number %d\n" % i)
    numbers = [int(line) for line in jobs(t, "add", "files", *paths).split()]
    expect(numbers, sorted(numbers))
    expect(jobs(t, "work", "--drain", "files", "--", "cat"),
           "".join("number %d\n" % i for i in range(5)))
    expect(t.stile("jobs", "add", "--key", "k", "files", *paths).returncode, 64)
    missing = t.stile("jobs", "add", "files", paths[0], t.path("nothing"))
    expect((missing.returncode, missing.stdout), (64, ""))
    expect(seen(t, "files"), [])


def payloads_of(t, queue):
    shown = [json.loads(jobs(t, "show", "--json", queue, str(job["id"]))) for job in seen(t, queue)]
    return [job["payload"] for job in shown]


def lines(t):
    """jobs add --lines: one job for each line, the empty ones too, in order and in batches"""
    use(t)
    numbers = [int(line) for line in jobs(t, "add", "lines", "--lines", input="one\n\nthree").split()]
    expect(numbers, sorted(numbers))
    expect(payloads_of(t, "lines"), ["one", "", "three"])
    expect(jobs(t, "add", "nuls", "-q", "-0", input="two\nlines\0last\0"), "2\n")
    expect(payloads_of(t, "nuls"), ["two\nlines", "last"])
    expect(jobs(t, "add", "none", "--lines", input=""), "")
    expect(jobs(t, "add", "crowd", "-q", "--lines", input="".join("%d\n" % i for i in range(2500))), "2500\n")
    expect(jobs(t, "work", "--drain", "-q", "lines", "--", "sh", "-c", "cat; echo"), "one\n\nthree\n")
    expect(SERVER.sql("select count(*) from %s where queue = 'crowd'" % TABLE), "2500")
    SERVER.sql("delete from %s where queue in ('crowd', 'nuls')" % TABLE)


def a_line_that_is_too_long(t):
    """A line above the limit is named with its size, and so is what was added before"""
    use(t)
    limit = 1 << 20
    said = jobs(t, "add", "long", "--lines", code=64,
                input="".join("x%d\n" % i for i in range(1001)) + "y" * (3 * limit) + "\nlast\n")
    assert "line 1002: has %d bytes, %d is the limit" % (3 * limit, limit) in said, said
    # 1000 make a batch, but so do those after which nothing arrives for a moment.
    added = int(re.search(r"lines 1 to (\d+) have been added, and none after them", said).group(1))
    assert 0 < added <= 1001, said
    expect(SERVER.sql("select count(*) from %s where queue = 'long'" % TABLE), str(added))
    SERVER.sql("delete from %s where queue = 'long'" % TABLE)
    said = jobs(t, "add", "long", "--lines", code=64, input="z" * (limit + 1))
    assert "line 1: has %d bytes" % (limit + 1) in said and "no line has been added" in said, said
    jobs(t, "add", "long", "--lines", input="z" * limit + "\n" + "z" * limit)
    expect([job["size"] for job in seen(t, "long")], [limit, limit])
    SERVER.sql("delete from %s where queue = 'long'" % TABLE)
    for wrong in ("--lines", "--key", "k", "long"), ("--lines", "long", "/dev/null"):
        assert "stdin" in jobs(t, "add", *wrong, input="", code=64)


def lines_as_they_come(t):
    """Lines of a program that goes on are added while it does"""
    use(t)
    source, sink = os.pipe()
    adder = t.start("jobs", "add", "slow", "--lines", stdin=source)
    os.close(source)
    os.write(sink, b"one\ntw")
    spin(lambda: len(seen(t, "slow")) == 1)
    os.write(sink, b"o\n")
    os.close(sink)
    expect(adder.wait(), 0)
    expect(payloads_of(t, "slow"), ["one", "two"])
    SERVER.sql("delete from %s where queue = 'slow'" % TABLE)


def true_sizes(t):
    """A payload that is too large is reported with its size, whether it is a file or comes by a pipe"""
    use(t)
    size = (1 << 20) + 12345
    with open(t.path("large"), "wb") as file:
        file.write(b"x" * size)
    for said in (jobs(t, "add", "q", t.path("large"), code=64), jobs(t, "add", "q", input="x" * size, code=64)):
        assert "has %d bytes, 1048576 is the limit" % size in said, said
    with open("/dev/zero", "rb") as endless:
        assert "more than" in jobs(t, "add", "q", stdin=endless, code=64)


def showing(t):
    """show: state, key, worker and payload, as text, hex, JSON, or the payload alone"""
    use(t)
    number = add(t, "show", "first\tline\nsecond \x1b[31mline\n", "--key", "K", "--delay", "1h")
    told = jobs(t, "show", "show", str(number))
    fields = dict(line.split(None, 1) for line in told.splitlines() if line[:1] not in ("", " "))
    expect((fields["job"], fields["queue"], fields["key"], fields["state"], fields["tries"]),
           (str(number), "show", "K", "delayed", "0"))
    assert "\x1b" not in told and fields["payload"].startswith("28 bytes"), told
    expect(jobs(t, "show", "--payload", "show", str(number)), "first\tline\nsecond \x1b[31mline\n")
    told = json.loads(jobs(t, "show", "--json", "show", str(number)))
    expect((told["id"], told["state"], told["payload_base64"], told["stderr"], told["last_error"]),
           (number, "ready", "Zmlyc3QJbGluZQpzZWNvbmQgG1szMW1saW5lCg==", "", ""))
    jobs(t, "drop", "show", str(number))
    assert "no job has the number %d" % number in jobs(t, "show", "show", str(number), code=75)
    assert "number" in jobs(t, "show", "show", "x", code=64)
    for bytes_ in b"", b"x", b"xy", b"\0\xff\xfe", bytes(range(256)) * 8, "grün\n".encode() * 1000:
        payload_is_shown(t, bytes_)


def payload_is_shown(t, payload):
    with open(t.path("payload"), "wb") as file:
        file.write(payload)
    number = jobs(t, "add", "bytes", t.path("payload")).strip()
    told = json.loads(jobs(t, "show", "--json", "bytes", number))
    if "payload" in told:
        expect(told["payload"].encode(), payload)
    else:
        expect(base64.b64decode(told["payload_base64"], validate=True), payload)
    with open(t.path("shown"), "wb") as file:
        subprocess.run([os.environ["STILE"], "jobs", "show", "--payload", "bytes", number], env=t.env, stdout=file, check=True)
    with open(t.path("shown"), "rb") as file:
        expect(file.read(), payload)
    told = jobs(t, "show", "bytes", number)
    assert len(told) < 4000 and all(c == "\n" or c.isprintable() for c in told), told
    jobs(t, "drop", "bytes", number)


def by_state(t):
    """ls --state: only these, and the table calls what is not yet due delayed"""
    use(t)
    ready, delayed = add(t, "state"), add(t, "state", "x", "--delay", "1h")
    dead = add(t, "state", "x")
    SERVER.sql("update %s set state = 'dead' where id = %d" % (TABLE, dead))
    for state, number in ("ready", ready), ("delayed", delayed), ("dead", dead):
        (row,) = jobs(t, "ls", "--state", state, "state").splitlines()[1:]
        expect(row.split()[:2], [str(number), state])
        expect([job["id"] for job in json.loads(jobs(t, "ls", "--json", "--state", state, "state"))], [number])
    expect(json.loads(jobs(t, "ls", "--json", "--state", "claimed", "state")), [])
    assert "delayed" in jobs(t, "ls", "--state", "late", "state", code=64)
    assert "QUEUE" in jobs(t, "ls", "--state", "dead", code=64)
    dropped = t.stile("jobs", "drop", "state", str(ready), str(delayed), str(dead))
    assert dropped.returncode == 0 and "3 jobs are removed" in dropped.stderr, dropped.stderr


def hints_can_be_typed(t):
    """What a worker prints can be typed as it is: with -e if that was given, and quoted for the shell"""
    use(t)
    url = t.env.pop("STILE_ENGINE")
    queue = "it's late"
    number = int(t.stile("jobs", "add", "-e", url, queue, input="x").stdout)
    done = t.stile("jobs", "work", "-e", url, "--once", "--tries", "1", queue, "--", "false")
    show, = re.findall(r"(stile jobs show .* %d) shows it" % number, done.stderr)
    shown = subprocess.run(["sh", "-c", show.replace("stile", os.environ["STILE"], 1)], env=t.env, text=True,
                           stdout=subprocess.PIPE, check=False)
    assert shown.returncode == 0 and "dead" in shown.stdout, (show, shown)


def dying(t):
    """The last failure says that the job is dead, and how to look at it; retry says how many are back"""
    use(t)
    numbers = [add(t, "die"), add(t, "die"), add(t, "die")]
    how = ("jobs", "work", "--once", "--tries", "1", "die", "--", "false")
    done = t.stile(*how)
    hint = "stile jobs show die %d" % numbers[0]
    assert "dead after 1 try (exit code 1)" in done.stderr and hint in done.stderr, done.stderr
    assert "stile jobs retry die %d" % numbers[0] in done.stderr, done.stderr
    expect(t.stile(*how[:3], "-q", *how[3:]).stderr, "")
    t.stile(*how)
    (first, second, third) = [str(job["id"]) for job in seen(t, "die")]
    one = t.stile("jobs", "retry", "die", second)
    expect(one.stdout, "")
    assert "jobs retry: 1 job is ready again" in one.stderr, one.stderr
    both = t.stile("jobs", "retry", "die")
    expect(both.stdout, "2\n")
    assert "2 jobs are ready again" in both.stderr, both.stderr
    expect(len({first, second, third} & {str(job["id"]) for job in seen(t, "die")}), 0)
    jobs(t, "work", "--drain", "-q", "die", "--", "true")


def draining(t):
    """--drain says what it leaves behind, and nothing if that is nothing"""
    use(t)
    add(t, "drain")
    done = t.stile("jobs", "work", "--drain", "--parallel", "2", "drain", "--", "true")
    expect((done.returncode, done.stderr), (0, ""))
    held, dead, delayed = add(t, "drain"), add(t, "drain"), add(t, "drain", "x", "--delay", "1h")
    os.mkfifo(t.path("gate"))
    other = work(t, "drain", "--once", script="%s cat %s" % (SHOW, t.path("gate")))
    begun(other)
    done = t.stile("jobs", "work", "--drain", "--tries", "1", "drain", "--", "false")
    expect(done.returncode, 0, done.stderr)
    assert "left: 1 delayed, 1 claimed by other workers, 1 dead" in done.stderr, done.stderr
    expect(t.stile("jobs", "work", "--drain", "-q", "drain", "--", "false").stderr, "")
    spin(lambda: open_gate(t) or other.process.poll() is not None)
    expect(held < dead, True)
    jobs(t, "drop", "drain", str(dead), str(delayed))


# ---- the stderr of a command ----

def error_of(t, queue):
    (job,) = seen(t, queue)
    return json.loads(jobs(t, "show", "--json", queue, str(job["id"])))


def stderr_is_kept(t):
    """The end of a failed command's stderr is in show, and all of it comes out as it would without us"""
    use(t)
    add(t, "err")
    script = "echo first >&2; printf '\\033[31mred\\033[0m\\r\\n50%%\\r100%%\\ngr\\303\\274n\\n\\n' >&2; exit 3"
    how = ("jobs", "work", "--once", "--backoff", "1ms", "err", "--", "sh", "-c")
    done = t.stile(*how, script)
    assert done.stderr.startswith("first\n\x1b[31mred\x1b[0m"), done.stderr
    told = error_of(t, "err")
    expect((told["last_error"], told["stderr"]), ("exit code 3", "first\nred\n50%\n100%\ngrün"))
    expect(seen(t, "err")[0]["last_error"], "exit code 3")
    spin(lambda: seen(t, "err")[0]["due_ms"] <= 0)
    done = t.stile(*how, "seq 100000 >&2; kill -9 $$")
    expect(done.stderr.count("\n"), 100001)
    told = error_of(t, "err")
    kept = told["stderr"].split("\n")
    assert "signal 9" in told["last_error"] and kept[-1] == "100000" and 200 < len(kept) < 400, told
    expect(kept, [str(100001 - len(kept) + i) for i in range(len(kept))])
    assert "100000" in jobs(t, "show", "err", str(told["id"]))
    spin(lambda: seen(t, "err")[0]["due_ms"] <= 0)
    t.stile(*how, "exit 4")
    expect(error_of(t, "err")["stderr"], "")
    jobs(t, "drop", "err", str(told["id"]))


def stderr_that_takes_nothing(t):
    """While the worker's stderr takes nothing its command waits, and the job stays its worker's"""
    use(t)
    stuck(t, 100000, is_alive)


def stderr_that_takes_nothing_at_the_end(t):
    """A command that has ended, while the worker's stderr takes nothing: the same"""
    use(t)
    stuck(t, 20000, lambda pid: not is_alive(pid))


def stuck(t, n, state_of):
    add(t, "stuck")
    source, sink = os.pipe()
    worker = t.start("jobs", "work", "--once", "--tries", "1", "--lease", "1s", "stuck", "--", "sh", "-c",
                     SHOW + "seq %d >&2; exit 3" % n, stderr=sink)
    os.close(sink)
    token, pid, _ = begun(worker)
    other = t.start("jobs", "work", "stuck", "--", "echo", "two")
    begin = age_of_claimed(t, "stuck", token)
    spin(lambda: age_of_claimed(t, "stuck", token) > begin + 2500)
    assert state_of(pid)
    with os.fdopen(source, encoding="utf-8") as file:
        text = file.read()
    expect(worker.wait(), 3)
    assert "".join("%d\n" % (i + 1) for i in range(n)) in text and "dead after 1 try" in text, text[-200:]
    other.kill(signal.SIGTERM)
    expect((other.wait(), other.out.end()), (0, ""))
    jobs(t, "drop", "stuck", str(token // 1000000))


def age_of_claimed(t, queue, token):
    (job,) = seen(t, queue)
    expect((job["state"], job["token"]), ("claimed", token))
    return job["age_ms"]


def stderr_outlived(t):
    """A process outside the job's tree that still has the command's stderr delays nothing"""
    use(t)
    add(t, "elsewhere")
    os.mkfifo(t.path("gate"))
    os.mkfifo(t.path("taken"))
    taker = subprocess.Popen(["sh", "-c", "read pid < %s; exec 3> /proc/$pid/fd/2; echo > %s; exec cat"
                              % (t.path("gate"), t.path("taken"))], stdin=subprocess.PIPE)
    script = "echo said >&2; echo $$ > %s; read line < %s; exit 3" % (t.path("gate"), t.path("taken"))
    done = t.stile("jobs", "work", "--once", "elsewhere", "--", "sh", "-c", script)
    expect(done.returncode, 3)
    expect(error_of(t, "elsewhere")["stderr"], "said")
    taker.stdin.close()
    taker.wait()
    jobs(t, "drop", "elsewhere", str(error_of(t, "elsewhere")["id"]))


def stderr_is_gone(t):
    """If the worker's stderr can no longer be written to, the command does not die of it"""
    use(t)
    add(t, "gone")
    source, sink = os.pipe()
    os.close(source)
    worker = t.start("jobs", "work", "--once", "gone", "--", "sh", "-c", "seq 100000 >&2", stderr=sink)
    os.close(sink)
    expect(worker.wait(), 0)
    expect(seen(t, "gone"), [])


def no_command(t):
    """A command that cannot be executed ends the worker, and costs the job no try"""
    use(t)
    add(t, "none")
    for command, code in ("nonesuch", 127), ("/", 126):
        jobs(t, "work", "--parallel", "2", "none", "--", command, code=code)
        (job,) = seen(t, "none")
        expect((job["state"], job["tries"]), ("ready", 0))
    jobs(t, "work", "--drain", "none", "--", "true")


def in_parallel(t):
    """--parallel: so many at a time, and no more"""
    use(t)
    for _ in range(5):
        add(t, "par")
    os.mkfifo(t.path("gate"))
    worker = work(t, "par", "--parallel", "3",
                  script="%s cat %s" % (SHOW, t.path("gate")))
    running = [begun(worker) for _ in range(3)]
    expect(len({token for token, _, _ in running}), 3)
    expect([job["state"] for job in seen(t, "par")].count("claimed"), 3)
    spin(lambda: open_gate(t) or not seen(t, "par"))
    worker.kill(signal.SIGTERM)
    expect(worker.wait(), 0)


def open_gate(t):
    try:
        os.close(os.open(t.path("gate"), os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        pass  # nobody stands there


# ---- workers that end ----

def finishing(t):
    """SIGTERM: what runs may finish and is done; nothing more is claimed; exit 0"""
    use(t)
    os.mkfifo(t.path("gate"))
    add(t, "finish")
    second = add(t, "finish")
    worker = work(t, "finish", script="%s cat %s" % (SHOW, t.path("gate")))
    begun(worker)
    worker.kill(signal.SIGTERM)
    spin(lambda: open_gate(t) or worker.process.poll() is not None)
    expect(worker.wait(), 0)
    (left,) = seen(t, "finish")
    expect((left["id"], left["state"], left["tries"]), (second, "ready", 0))
    jobs(t, "drop", "finish", str(second))


def giving_back(t):
    """SIGTERM and no time left: the whole tree is ended, and the job given back untried"""
    use(t)
    add(t, "back")
    worker = work(t, "back", "--finish", "0s", script=SHOW + "sleep 1000 & wait")
    token, pid, _ = begun(worker)
    (child,) = spin_for(lambda: children(pid))
    worker.kill(signal.SIGTERM)
    expect(worker.wait(), 0)
    assert not is_alive(pid) and not is_alive(child)
    (job,) = seen(t, "back")
    expect((job["state"], job["tries"], job["token"]), ("ready", 0, token))
    jobs(t, "work", "--drain", "back", "--", "true")


def spin_for(value):
    found = []
    spin(lambda: found.append(value()) or found[-1])
    return found[-1]


def worker_is_killed(t):
    """kill -9 of a worker: its tree dies first; then the job is another's, with a larger token"""
    use(t)
    add(t, "killed")
    first = work(t, "killed", "--lease", "10m", script=SHOW + "sleep 1000 & wait")
    token, pid, tries = begun(first)
    (child,) = spin_for(lambda: children(pid))
    second = work(t, "killed", script="kill -0 %d %d 2>/dev/null && echo together; %s exit 0"
                  % (pid, child, SHOW))
    first.kill(signal.SIGKILL)
    newer, _, again = begun(second)
    assert newer > token and again == tries + 1, (token, newer, again)
    assert not is_alive(pid) and not is_alive(child)
    spin(lambda: not seen(t, "killed"))


def warden_is_killed(t):
    """kill -9 of what watches over a job: its tree is killed, and the job comes after its lease"""
    use(t)
    add(t, "warden")
    first = work(t, "warden", "--lease", "2s", script=SHOW + "sleep 1000 & wait")
    token, pid, _ = begun(first)
    (child,) = spin_for(lambda: children(pid))
    os.kill(first.warden(), signal.SIGKILL)
    expect(first.wait(), 76, first.err.end())
    assert not is_alive(pid) and not is_alive(child)
    second = work(t, "warden", script=SHOW + "exit 0")
    newer, _, again = begun(second)
    assert newer > token and again == 2, (token, newer, again)
    spin(lambda: not seen(t, "warden"))


def worker_stands_still(t):
    """A worker stopped past its lease: another gets the job; when it wakes up its tree is stopped"""
    use(t)
    add(t, "still")
    first = work(t, "still", "--lease", "2s", "--once", script=SHOW + "sleep 1000 & wait")
    token, pid, _ = begun(first)
    (child,) = spin_for(lambda: children(pid))
    os.kill(first.warden(), signal.SIGSTOP)
    second = work(t, "still", script=SHOW + "exit 0")
    newer, _, _ = begun(second)
    assert newer > token, (token, newer)
    os.kill(children(first.pid)[0], signal.SIGCONT)
    expect(first.wait(), 76)
    assert not is_alive(pid) and not is_alive(child)


def a_late_ack(t):
    """A worker that wakes up with its work done, past its lease: its word is refused"""
    use(t)
    os.mkfifo(t.path("gate"))
    add(t, "late")
    first = work(t, "late", "--lease", "2s", "--once",
                 script="%s cat %s" % (SHOW, t.path("gate")))
    token, pid, _ = begun(first)
    os.kill(first.warden(), signal.SIGSTOP)
    second = work(t, "late", script=SHOW + "sleep 1000")
    newer, _, _ = begun(second)
    assert newer > token, (token, newer)
    spin(lambda: open_gate(t) or not is_alive(pid))
    os.kill(children(first.pid)[0], signal.SIGCONT)
    expect(first.wait(), 76)
    said = first.err.end()
    assert "another worker" in said or "not extended" in said, said
    (job,) = seen(t, "late")
    expect((job["state"], job["token"]), ("claimed", newer))


def left_running(t):
    """What a command leaves running is ended before the job is done"""
    use(t)
    add(t, "left")
    listed = jobs(t, "work", "--once", "left", "--", "sh", "-c",
                "sleep 1000 >/dev/null 2>&1 & echo $!")
    assert not is_alive(int(listed))
    expect(seen(t, "left"), [])


def long_work(t):
    """A job that takes longer than its lease stays its worker's"""
    use(t)
    add(t, "long")
    first = work(t, "long", "--lease", "1s", "--once", script=SHOW + "sleep 3")
    begun(first)
    second = t.start("jobs", "work", "long", "--", "echo", "two")
    expect(first.wait(), 0, first.err.end())
    expect(seen(t, "long"), [])
    second.kill(signal.SIGTERM)
    expect((second.wait(), second.out.end()), (0, ""))


# ---- servers and connections that end ----

def server_crashes(t):
    """A crash of the server in the middle: the work goes on, is acked afterwards, and tokens grow"""
    use(t)
    os.mkfifo(t.path("gate"))
    add(t, "crash")
    add(t, "crash2")
    worker = work(t, "crash", "--once", "--lease", "60s",
                  script="%s cat %s" % (SHOW, t.path("gate")))
    add(t, "crash3")
    idle = work(t, "crash3", script=SHOW + "exit 0")
    begun(idle)
    doomed = work(t, "crash2", "--lease", "2s", script=SHOW + "sleep 1000")
    begun(worker)
    token, _, _ = begun(doomed)
    SERVER.kill()
    doomed.kill(signal.SIGKILL)
    spin(lambda: open_gate(t) or len(children(worker.warden())) == 0)
    SERVER.restart()
    expect(worker.wait(), 0, worker.err.end() if worker.process.poll() else "")
    expect(seen(t, "crash"), [])
    again = work(t, "crash2", script=SHOW + "exit 0")
    newer, _, _ = begun(again)
    assert newer > token, (token, newer)
    add(t, "crash3")
    begun(idle)
    spin(lambda: not seen(t, "crash3") and not seen(t, "crash2"))


def server_stands_still(t):
    """No word from the server: the tree is stopped before the lease ends"""
    use(t)
    add(t, "silent")
    worker = work(t, "silent", "--once", "--lease", "2s", script=SHOW + "sleep 1000 & wait")
    _, pid, _ = begun(worker)
    (child,) = spin_for(lambda: children(pid))
    stopped = [SERVER.process.pid] + children(SERVER.process.pid)
    for server in stopped:
        os.kill(server, signal.SIGSTOP)
    try:
        expect(worker.wait(), 76)
        assert not is_alive(pid) and not is_alive(child)
        assert "before it does" in worker.err.end()
    finally:
        for server in reversed(stopped):
            os.kill(server, signal.SIGCONT)
    spin(lambda: t.stile("jobs", "work", "--once", "silent", "--", "true").returncode == 0)


def own_transactions(t):
    """SQL adds a job with what it is about: both are there, or neither"""
    use(t)
    if not ON_POSTGRES:
        return
    SERVER.sql("begin; select stile.job_add('sql', 'gone'); rollback")
    expect(seen(t, "sql"), [])
    worker = work(t, "sql", script="cat; echo; exit 0")
    SERVER.sql("begin; select stile.job_add('sql', 'there', p_key => 'K'); commit")
    expect(worker.line(), "there")
    spin(lambda: not seen(t, "sql"))


def told_by_the_claim(t):
    """A claim returns what it changes: nothing is read from the table afterwards"""
    use(t)
    if ON_POSTGRES:
        return
    SERVER.sql("create trigger hide before update on stile_job for each row set new.worker = 'x', "
               "new.claimed_until = new.claimed_until + interval 1 minute")
    try:
        add(t, "hidden")
        expect(jobs(t, "work", "--once", "--tries", "2", "hidden", "--", "sh", "-c", "cat; exit 0"), "x")
        expect(seen(t, "hidden"), [])
        add(t, "hidden")
        worker = t.stile("jobs", "work", "--once", "hidden", "--", "sh", "-c", "exit 3")
        assert worker.returncode == 3 and "ours" not in worker.stderr, worker.stderr
    finally:
        SERVER.sql("drop trigger hide")


def the_example(t):
    """examples/jobs.c: what is added twice is done once, with a token each"""
    use(t)
    for args in ("add", "ann", "bob", "ann"), ():
        done = subprocess.run([os.environ["JOBS_EXAMPLE"], *args], env=t.env, capture_output=True,
                              text=True, check=False)
        expect((done.returncode, done.stderr), (0, ""))
    lines = sorted(done.stdout.splitlines())
    expect([line.split(" (token ")[0] for line in lines], ["hello, ann", "hello, bob"])
    expect(seen(t, "greetings"), [])


def an_older_schema(t):
    """A schema from before there were jobs: refused, and brought up to date in place"""
    use(t)
    version = "stile.version" if ON_POSTGRES else "stile_version"
    SERVER.sql("drop table %s cascade; delete from %s; insert into %s values (1)" % (TABLE, version, version))
    assert "stile setup" in jobs(t, "add", "old", code=69)
    expect(t.stile("setup").returncode, 0)
    add(t, "old")
    jobs(t, "work", "--once", "old", "--", "true")
    assert TABLE in t.stile("setup", "--print").stdout


def many(t):
    """Eight workers on many jobs: none is lost, and none comes twice"""
    use(t)
    if ON_POSTGRES:
        SERVER.sql("insert into stile.job (queue, state, run_at, added_at, payload) select 'many', "
                   "'ready', now(), now(), i::text::bytea from generate_series(0, %d) i" % (MANY - 1))
    else:
        SERVER.sql("insert into stile_job (queue, state, run_at, added_at, payload) select 'many', "
                   "'ready', utc_timestamp(6), utc_timestamp(6), seq from seq_0_to_%d" % (MANY - 1))
    done = subprocess.run([os.environ["JOBS_MANY"], SERVER.url, "many", "8", "16", str(MANY)],
                          env=t.env, capture_output=True, text=True, check=False)
    expect(done.returncode, 0, done.stderr)
    listed = json.loads(done.stdout)
    print("# %d jobs a second" % listed["per_s"])
    expect((listed["jobs"], listed["lost"], listed["twice"]), (MANY, 0, 0))


CASES = [adding, refusals, payloads, failing, many_files, lines, a_line_that_is_too_long,
         lines_as_they_come, true_sizes, showing, by_state, hints_can_be_typed, dying, draining, stderr_is_kept,
         stderr_that_takes_nothing, stderr_that_takes_nothing_at_the_end, stderr_outlived, stderr_is_gone, no_command, in_parallel, finishing,
         giving_back,
         worker_is_killed, warden_is_killed, worker_stands_still, a_late_ack, left_running, long_work,
         server_crashes, server_stands_still, own_transactions, told_by_the_claim, the_example,
         an_older_schema, many]

if __name__ == "__main__":
    with (PostgresServer() if ON_POSTGRES else MysqlServer()) as SERVER:
        subprocess.run([os.environ["STILE"], "setup", SERVER.url], check=True)
        status = run_tests(CASES)
    sys.exit(status)
