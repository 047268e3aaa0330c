# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""stile advise, with options and on a terminal; what it recommends can be typed."""
import json
import os
import pty
import shlex

from kit import STILE, Lines, expect, run_tests

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def flags(**answers):
    return [word for key, value in answers.items() for word in ("--" + key.strip("_").replace("_", "-"), value)]


def advice(t, **answers):
    done = t.stile("advise", "--json", *flags(**answers))
    expect((done.returncode, done.stderr), (0, ""), answers)
    return json.loads(done.stdout)


def known_cases(t):
    """the answers that everybody gives first"""
    job = {"access": "writes", "writes_to": "postgres", "hold": "2h", "for_": "correctness"}
    def of(**more):
        got = advice(t, **{**job, **more})
        return got["rule"], got["engine"], got["ttl"], got["guard"] is not None
    expect(of(engines="redis"), ("guarded-redis", "redis", "30s", True))
    expect(of(engines="redlock"), ("guarded-redlock", "redlock", "30s", True))
    expect(of(engines="redis,etcd"), ("guarded-consensus", "etcd", "30s", True))
    expect(of(engines="redis,postgres"), ("guarded-in-postgres", "postgres", "30s", True))
    expect(of(engines="mysql"), ("guarded-database", "mysql", "30s", True))
    expect(of(engines="local"), ("guarded-local", "local", None, True))
    expect(of(engines="dynamodb"), ("guarded-dynamodb", "dynamodb", "30s", True))
    expect(of(engines="dynamodb", for_="efficiency"), ("lock-dynamodb", "dynamodb", "30s", False))
    expect(of(engines="redlock,dynamodb")[0], "guarded-dynamodb")
    expect(advice(t, access="calls", engines="dynamodb", writes_to="other", hold="1s", for_="efficiency")["rule"],
           "pace-held")
    expect(advice(t, access="once", engines="dynamodb", writes_to="other", hold="1s", for_="efficiency")["rule"],
           "once-marked")
    expect(of(engines="redlock", for_="efficiency"), ("lock-redis", "redis", "30s", False))
    expect(of(engines="zk", writes_to="file", hold="3s")[0], "guarded-consensus")
    expect(advice(t, access="adds", writes_to="cell", engines="redis")["rule"], "crdt")
    expect(advice(t, access="writes", writes_to="mysql", hold="50ms")["rule"], "statement")
    expect(advice(t, access="once", writes_to="postgres")["rule"], "once-sql")
    expect(advice(t, access="calls", engines="redis")["rule"], "pace")
    expect(advice(t, access="calls", engines="etcd", writes_to="other", hold="1s", for_="efficiency")["rule"], "pace-held")


def it_can_be_read(t):
    """text for people: use, why, type and where to read on, in 80 columns but for the command"""
    done = t.stile("advise", *flags(access="writes", writes_to="file", hold="1h", for_="correctness", engines="etcd"))
    expect((done.returncode, done.stderr), (0, ""))
    lines = done.stdout.splitlines()
    expect([line.split()[0] for line in lines if not line.startswith(" ")],
           ["use", "why", "type", "TTL", "guard", "read"])
    assert max(len(line) for line in lines if not line.startswith("type")) <= 80, done.stdout


def the_table_leads_to_pages(t):
    """every page that a rule names is there, and --table lists every rule"""
    rules = json.loads(t.stile("advise", "--table", "--json").stdout)
    for rule in rules:
        assert os.path.exists(os.path.join(ROOT, rule["read"].partition("#")[0])), rule["read"]
    listed = t.stile("advise", "--table").stdout.splitlines()[1:]
    expect([line.split()[0] for line in listed], [rule["rule"] for rule in rules])


def commands_are_understood(t):
    """each stile command of the table has options that exist, for each engine"""
    rules = json.loads(t.stile("advise", "--table", "--json").stdout)
    seen = set()
    for rule in rules:
        values = {"{engine}": "-e " + t.env["STILE_ENGINE"], "{ttl}": " --ttl 30s", "{guard}": " --guard '#KEY'",
                  "stile elect": "stile elect --once"}
        text = rule["command"].partition(" && CMD")[0]
        for word, value in values.items():
            text = text.replace(word, value)
        words = [{"CMD": "true"}.get(word, word) for word in shlex.split(text)]
        if words[0] != "stile" or "redis://HOST" in text:
            continue
        if "  stile %s " % words[1] not in t.stile("--help").stdout:
            continue  # a recipe that this build does not have
        seen.add(words[1])
        done = t.stile(*words[1:], input="")
        assert done.returncode != 64, (words, done.stderr)
    assert {"run", "cell", "crdt"} <= seen, seen


def usage(t):
    """without a terminal: the missing options; wrong answers: those that exist"""
    def refused(text, *words):
        done = t.stile("advise", *words)
        expect((done.returncode, done.stdout), (64, ""), words)
        assert text in done.stderr, done.stderr
        return done.stderr
    said = refused("no terminal to ask on")
    for flag in "access", "writes-to", "hold", "contention", "for", "engines":
        assert "--%s (" % flag in said, said
    said = refused("--hold (a duration", "--access", "writes", "--writes-to", "sqlite", "--engines", "etcd")
    assert "--access" not in said and "--engines" not in said, said
    refused("--for: not one of the answers; write efficiency, correctness", "--for", "fun")
    refused("--engines: not one of the answers", "--engines", "redis,,etcd")
    refused("--engines: not one of the answers", "--engines", "redis,")
    refused("--engines: is empty", "--engines", "")
    refused("--access: not one of the answers", "--access", "writes,reads")
    refused("--hold: a duration needs its unit", "--hold", "10")
    refused("one argument too many", "now")
    refused("unknown option", "-e", "local:")


class Terminal:
    """stile advise on a terminal."""

    def __init__(self, t, *words):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(STILE, [STILE, "advise", *words], t.env)
        t.guard(self.pid)
        t.pids.append(("fd", self.fd))
        self.screen = Lines(self.fd)

    def answer(self, question, text):
        self.screen.until(question)
        self.screen.until("> ")
        os.write(self.fd, text.encode())

    def end(self):
        rest = self.screen.end()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]), rest


def asks(t):
    """on a terminal it asks, takes beginnings of words, and asks again after a wrong answer"""
    terminal = Terminal(t, "--for", "correctness")
    terminal.answer("What does the work do?", "sings\n")
    terminal.answer("not one of the answers: write reads", "w\n")
    terminal.answer("Where do its writes go?", "fil\n")
    terminal.answer("How long", "1h\n")
    terminal.answer("Which engines", "redis,etcd\n")
    code, rest = terminal.end()
    expect(code, 0, rest)
    assert "stile run -e etcd://" in rest and "--guard file:DIR#FILE" in rest, rest


def asks_no_more_than_it_needs(t):
    """two answers are enough for a sum in a database; the end of input is no answer"""
    terminal = Terminal(t)
    terminal.answer("What does the work do?", "adds\n")
    terminal.answer("Where do its writes go?", "postgres\n")
    code, rest = terminal.end()
    expect(code, 0, rest)
    assert "one atomic statement; no lock is needed" in rest, rest
    terminal = Terminal(t)
    terminal.answer("What does the work do?", "\x04")
    code, rest = terminal.end()
    expect(code, 64, rest)
    assert "no answer; --access gives it, too" in rest, rest


run_tests([known_cases, it_can_be_read, the_table_leads_to_pages, commands_are_understood, usage, asks,
           asks_no_more_than_it_needs])
