# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The guard of SQLite: the rule, through the sqlite3 shell and Python's driver, and processes that
write at the same time."""
import json
import os
import pathlib
import random
import signal
import sqlite3
import subprocess
import sys
import time

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(TESTS / "cli"))
from kit import expect, run_tests  # noqa: E402

GUARD = (TESTS.parent / "cli" / "guard" / "sqlite.sql").read_text(encoding="ascii")
MOST = 2 ** 63 - 1
PROCESSES, TURNS, PAUSE_S = 8, 25, 0.002


class Session:
    """One connection, with autocommit unless a transaction is open."""

    def __init__(self, path):
        self.connection = sqlite3.connect(path, isolation_level=None, timeout=60)

    def run(self, text, *values):
        return self.connection.execute(text, values).fetchall()

    def ask(self, text, *values):
        return self.run(text, *values)[0][0]

    def guard(self, resource, token, issuer="", strict=None, how="INSERT"):
        self.run(how + " INTO stile_guard (resource, token, issuer, strict) VALUES (?, ?, ?, ?)",
                 resource, token, issuer, strict)

    def begin(self, *guard, **how):
        self.run("BEGIN IMMEDIATE")
        self.guard(*guard, **how)

    def highest(self, resource):
        return self.run("SELECT token, issuer FROM stile_guard WHERE resource = ?", resource)[0]


def refused(code, call, *args, **how):
    try:
        call(*args, **how)
    except sqlite3.IntegrityError as error:
        expect(str(error).split(":")[0], code, error)
        return
    raise AssertionError("passed: %r" % (args,))


def shell(path, text, *options):
    return subprocess.run(["sqlite3", *options, path], input=text, text=True, capture_output=True,
                          check=False)


def opened(t, journal="delete"):
    """A database with the guard in it: its path, and a session."""
    path = t.path("app.db")
    expect(shell(path, "PRAGMA journal_mode = %s;" % journal + GUARD, "-bail").returncode, 0)
    return path, Session(path)


# ---- the rule ----

def smaller_is_stale(t):
    """A smaller token is refused, an equal one passes, a larger one passes and is remembered"""
    _, session = opened(t)
    for token in 33, 33, 34, 2 ** 53 + 1, MOST - 1, str(MOST), MOST:
        session.begin("r", token)
        session.run("COMMIT")
        expect(session.highest("r"), (int(token), ""))
    for how in "INSERT", "INSERT OR IGNORE", "INSERT OR REPLACE", "REPLACE":
        for token in MOST - 1, str(MOST - 1), 2 ** 53, 9, "9", 1:
            refused("SG001", session.guard, "r", token, how=how)
    refused("SG001", session.guard, "r", MOST, strict=1)
    expect(session.highest("r"), (MOST, ""))
    session.guard("s", 5, strict=True)
    session.guard("s", 6, strict=True)
    refused("SG001", session.guard, "s", 6, strict=True)
    session.run("BEGIN")
    session.guard("s", 7)
    session.run("ROLLBACK")
    expect(session.highest("s"), (6, ""))
    session.guard("s", 10)
    for token in 9, "9":
        refused("SG001", session.guard, "s", token)


def issuers_differ(t):
    """A token of another issuer is refused whatever its number; one without an issuer is compared"""
    _, session = opened(t)
    session.guard("r", 5)
    session.guard("r", 5, "redis:r")
    expect(session.highest("r"), (5, "redis:r"))
    for token in 1, 5, 6, MOST:
        refused("SG002", session.guard, "r", token, "etcd:r")
    refused("SG001", session.guard, "r", 4, None)
    session.guard("r", 6, None)
    expect(session.highest("r"), (6, "redis:r"))
    session.run("UPDATE stile_guard SET token = 2, issuer = 'etcd:r' WHERE resource = 'r'")
    session.guard("r", 2, "etcd:r")
    session.run("UPDATE stile_guard SET token = 0, issuer = '' WHERE resource = 'r'")
    session.guard("r", 1, "zk:r")
    expect(session.highest("r"), (1, "zk:r"))


def misuse(t):
    """No token, no name, what only looks like a number: refused, and nothing is remembered"""
    _, session = opened(t)
    for token in 0, -1, None, "", "x", "9x", " 9", "+9", "09", "9.0", 9.0, 1e30, b"9", str(MOST + 1), "-5":
        refused("SG004", session.guard, "r", token)
    for name in "", None, 5, b"r", "n" * 513, "\u00e9" * 257, "a\x1fb", "a\x7f", "a\0b", "\n":
        refused("SG004", session.guard, name, 1)
    for issuer in "i" * 601, "a\nb", "a\x7f", "a\0b":
        refused("SG004", session.guard, "r", 1, issuer)
    session.guard("n" * 512, 1, "i" * 600)
    for change in "token = -1", "token = 'x'", "resource = 'other'", "token = NULL":
        refused("SG004", session.run, "UPDATE stile_guard SET " + change)
    expect(session.run("SELECT length(resource), token FROM stile_guard"), [(512, 1)])


def removal_never_reopens(t):
    """A removed resource keeps its highest token, before a prune and after it"""
    _, session = opened(t)
    for name, issuer in ("r", "redis:r"), ("s", ""), ("live", "redis:r"):
        session.guard(name, 50, issuer)
    refused("SG004", session.run, "DELETE FROM stile_guard_seen")
    session.run("DELETE FROM stile_guard WHERE resource IN ('r', 's')")

    def refuse_late_ones():
        for name, issuer in ("r", "redis:r"), ("r", ""), ("s", "redis:r"), ("s", ""):
            refused("SG001", session.guard, name, 49, issuer)
            refused("SG001", session.guard, name, 50, issuer, strict=1)

    refuse_late_ones()
    session.run("INSERT INTO stile_guard_prune (days) VALUES (1)")  # removed today
    expect(session.ask("SELECT count(*) FROM stile_guard_seen"), 3)
    session.run("UPDATE stile_guard_seen SET removed_at = datetime(removed_at, '-25 hours')")
    session.run("INSERT INTO stile_guard_prune (days) VALUES (1)")
    expect(session.run("SELECT resource FROM stile_guard ORDER BY resource"), [("live",), ("s",)])
    refuse_late_ones()
    session.guard("other", 1, "redis:other")  # another lock's tokens
    session.guard("r", 50, "redis:r")
    session.guard("r", 51, "redis:r")
    session.run("DELETE FROM stile_guard")
    session.run("INSERT INTO stile_guard_prune (days) VALUES (0)")
    refused("SG001", session.guard, "r", 50, "redis:r")
    refused("SG001", session.guard, "r", 51, "redis:r", strict=1)
    session.guard("r", 52, "redis:r")


def by_hand(t):
    """The sqlite3 shell: -bail ends a script at a stale token, and nothing of it is written"""
    path, session = opened(t)
    session.run("CREATE TABLE data (text TEXT)")
    script = ("BEGIN IMMEDIATE; INSERT INTO stile_guard (resource, token, issuer) "
              "VALUES ('r', %d, 'redis:r'); INSERT INTO data VALUES ('by %d'); COMMIT;")
    expect(shell(path, script % (34, 34), "-bail").returncode, 0)
    done = shell(path, script % (33, 33), "-bail")
    assert done.returncode != 0 and "SG001: stale token" in done.stderr, done.stderr
    expect(session.run("SELECT text FROM data"), [("by 34",)])
    expect(shell(path, "SELECT resource, token, issuer FROM stile_guard").stdout, "r|34|redis:r\n")
    expect(shell(path, GUARD, "-bail").returncode, 0)  # again: nothing is forgotten
    expect(session.highest("r"), (34, "redis:r"))


def required(t):
    """A table with triggers refuses each write without a token, and each with a stale one"""
    path, session = opened(t)
    session.run('CREATE TABLE "it\'s ""x" (id INTEGER PRIMARY KEY, n, token INTEGER)')
    session.run("CREATE TABLE accounts (id INTEGER PRIMARY KEY, n)")
    session.run("INSERT INTO accounts VALUES (1, 1), (2, 2)")
    session.run("ALTER TABLE accounts ADD COLUMN token INTEGER")
    text = shell(path, "SELECT text FROM stile_guard_required").stdout
    expect(shell(path, text, "-bail").stderr, "")
    refused("SG003", session.run, 'INSERT INTO "it\'s ""x" VALUES (1, 1, NULL)')
    for recursive in 0, 1:
        session.run("PRAGMA recursive_triggers = %d" % recursive)
        session.run("UPDATE accounts SET n = 5, token = 34 WHERE id = 1")
        session.run("INSERT INTO accounts VALUES (3, 3, ?)", "34")
        for write in ("UPDATE accounts SET n = 6", "UPDATE accounts SET n = 6, token = NULL",
                      "INSERT INTO accounts (n) VALUES (6)", "DELETE FROM accounts",
                      "DELETE FROM accounts WHERE id = 3"):
            refused("SG003", session.run, write)
        for write in ("UPDATE accounts SET n = 6, token = 33", "UPDATE accounts SET token = -33",
                      "INSERT INTO accounts VALUES (4, 6, 33)"):
            refused("SG001", session.run, write)
        session.run("UPDATE accounts SET token = -34 WHERE id = 3")
        refused("SG003", session.run, "UPDATE accounts SET n = 6 WHERE id = 3")
        refused("SG003", session.run, "UPDATE accounts SET n = 6, token = NULL WHERE id = 3")
        session.run("DELETE FROM accounts WHERE token = -34")
        expect(session.run("SELECT * FROM accounts"), [(1, 5, None), (2, 2, None)])
    expect(session.highest("accounts"), (34, ""))
    session.run("UPDATE accounts SET token = -34 WHERE id = 2")  # its holder is paused here
    session.guard("accounts", 35)
    refused("SG001", session.run, "DELETE FROM accounts WHERE token = -34")


# ---- several processes ----

def interleaved(t):
    """A new holder at every point of an old one's transaction: it waits, or the old one is refused"""
    for journal in "delete", "wal":
        for begin in "BEGIN", "BEGIN IMMEDIATE":
            for at in range(6):
                path, old = opened(t, journal)
                new = Session(path)
                new.run("PRAGMA busy_timeout = 0")
                old.run("CREATE TABLE data (text TEXT)")
                old.guard("r", 33)
                steps = [lambda: old.run(begin), lambda: old.guard("r", 33),
                         lambda: old.run("SELECT * FROM data"),
                         lambda: old.run("INSERT INTO data VALUES ('by 33')"),
                         lambda: old.run("COMMIT")]
                for step in steps[:at]:
                    step()
                old_is_writing = 1 + (begin == "BEGIN") <= at < 5
                try:
                    new.guard("r", 34)
                    assert not old_is_writing, (journal, begin, at)
                    if at < 2:
                        refused("SG001", old.guard, "r", 33)
                except sqlite3.OperationalError as error:
                    assert "locked" in str(error) and old_is_writing, (error, journal, begin, at)
                    for step in steps[at:]:
                        step()
                    new.guard("r", 34)
                    expect(new.run("SELECT text FROM data"), [("by 33",)])
                old.connection.close()
                new.connection.close()
                for end in "", "-wal", "-shm":
                    if os.path.exists(path + end):
                        os.remove(path + end)


def holder(path, number):
    """One of the processes. Returns which writes were acknowledged, and how many were stale."""
    session, chance = Session(path), random.Random(number)
    written, stale = [], 0
    for _ in range(TURNS):
        token = session.ask("UPDATE counter SET n = n + 1 RETURNING n")
        time.sleep(chance.random() * PAUSE_S * 4)
        try:
            session.begin("r", token, "redis:r")
            saw = session.ask("SELECT token FROM data")
            time.sleep(chance.random() * PAUSE_S)
            session.run("UPDATE data SET token = ?", token)
            session.run("INSERT INTO history (token, saw) VALUES (?, ?)", token, saw)
            session.run("COMMIT")
            written.append(token)
        except sqlite3.IntegrityError:
            session.run("ROLLBACK")
            stale += 1
    return {"written": written, "stale": stale}


def told_by_all(path):
    pipes = []
    for number in range(PROCESSES):
        out, into = os.pipe()
        if os.fork() == 0:
            try:
                os.write(into, json.dumps(holder(path, number)).encode())
            finally:
                os._exit(0)
        os.close(into)
        pipes.append(open(out, encoding="ascii"))
    texts = [pipe.read() for pipe in pipes]
    for pipe in pipes:
        pipe.close()
        os.wait()
    assert all(texts), "a process has failed"
    return [json.loads(text) for text in texts]


def eight_processes(t):
    """Nothing that a later holder was told is written is overwritten by an earlier one"""
    path, session = opened(t, "wal")
    session.run("PRAGMA synchronous = OFF")
    session.run("CREATE TABLE counter AS SELECT 0 AS n")
    session.run("CREATE TABLE data AS SELECT 0 AS token")
    session.run("CREATE TABLE history (seq INTEGER PRIMARY KEY, token, saw)")
    told = told_by_all(path)
    history = session.run("SELECT token, saw FROM history ORDER BY seq")
    tokens = [token for token, _ in history]
    expect(tokens, sorted(tokens), "the highest token only grows")
    expect([saw for _, saw in history], [0] + tokens[:-1])
    expect(sorted(token for one in told for token in one["written"]), tokens)
    expect(session.highest("r"), (tokens[-1], "redis:r"))
    assert sum(one["stale"] for one in told) > 0, "too tame to show anything"


def killed(t):
    """A process that is killed right after its commit has raised the guard; before it, it has not"""
    path, session = opened(t)
    for ending, highest in ("COMMIT; SELECT 'there'", 34), ("SELECT 'there'", 33):
        session.run("UPDATE stile_guard SET token = 33")
        session.guard("r", 33)
        process = subprocess.Popen(["sqlite3", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process.stdin.write(("BEGIN IMMEDIATE; INSERT INTO stile_guard (resource, token) "
                             "VALUES ('r', 34); %s;\n" % ending).encode())
        process.stdin.flush()
        expect(process.stdout.readline(), b"there\n")
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdin.close()
        process.stdout.close()
        expect(session.highest("r"), (highest, ""))


run_tests([smaller_is_stale, issuers_differ, misuse, removal_never_reopens, by_hand, required,
           interleaved, eight_processes, killed])
