# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The model of PostgreSQL's session locks (sim/session_server.c) beside a real server: every statement
that it gets in a story is sent to PostgreSQL, too, by a psql for each connection, and must be answered, or
wait, in the same way. Behind the pooler of a story there is a real pgbouncer.

Usage: sessions.py STILE_SIM STORIES
"""
import glob
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "servers"))
from own_server import die_with_parent  # noqa: E402
from postgres_server import PATIENCE_S, PgBouncer, PostgresServer, tool  # noqa: E402

SIM, STORIES = sys.argv[1:3]
MARK = "---"
CLIENTS = "A", "B", "C", "D"
RANDOM_STORIES, RANDOM_LINES = 12, 40


class Psql:
    """One connection."""

    def __init__(self, port, name):
        self.process = subprocess.Popen(
            ["stdbuf", "-oL", tool("psql"), "-X", "-q", "-A", "-t", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "PGAPPNAME": name}, preexec_fn=die_with_parent)
        self.pid = self.ask("SELECT pg_backend_pid()")

    def send(self, statement):
        try:
            print("%s;\n\\echo %s" % (statement, MARK), file=self.process.stdin, flush=True)
        except BrokenPipeError:
            pass  # its last words say why

    def answer(self):
        """As the model writes it."""
        lines = []
        for line in self.process.stdout:
            if line.rstrip("\n") == MARK:
                break
            lines.append(line.rstrip("\n"))
        fatal = next((line for line in lines if line.startswith("FATAL: ")), None)
        if fatal is not None:
            return fatal.replace("FATAL:  ", "FATAL: ")
        warnings = [line.replace("WARNING:  ", "WARNING: ") for line in lines if line.startswith("WARNING")]
        rows = [line for line in lines if not line.startswith("WARNING")]
        text = "(0 rows)" if not rows else rows[0] or "(1 row)"
        return text + "".join(" (%s)" % warning for warning in warnings)

    def ask(self, statement):
        self.send(statement)
        return self.answer()

    def kill(self):
        self.process.kill()
        self.process.communicate()


class Replay:
    """What reaches the model, in that order, and what it answers."""

    def __init__(self, rows, watcher, port, pooled):
        self.rows, self.watcher, self.port, self.pooled = rows, watcher, port, pooled
        self.sent, self.sessions, self.answers = {}, {}, 0

    def wait_for(self, wanted, query, *details):
        end = time.monotonic() + PATIENCE_S
        while (found := self.watcher.ask(query)) != wanted:
            assert time.monotonic() < end, (query, found, wanted, *details)

    def run(self):
        try:
            for number, row in enumerate(self.rows):
                getattr(self, "take_" + row[0], lambda *_: None)(number, row)
        finally:
            for session in self.sessions.values():
                session.kill()

    def take_sent(self, _, row):
        piece, connection, origin, to, text = row[2:7]
        to_server = to in ("db", "pool")
        self.sent[piece] = connection, origin, text, to_server
        if not to_server and text != "closes":
            for line in text.split("\n"):
                self.expect(connection, line)

    def take_came(self, number, row):
        connection, origin, text, to_server = self.sent[row[2]]
        if not to_server:
            return
        if text == "closes":
            self.close(connection)
            return
        if connection not in self.sessions:
            self.sessions[connection] = Psql(self.port, origin)
        session = self.sessions[connection]
        for statement in text.split("\n"):
            session.send(statement)
        if not self.is_answered(number, connection) and not self.pooled:
            self.wait_for("1", "select count(*) from pg_locks where not granted and pid = " + session.pid, text)

    def is_answered(self, number, connection):
        """In the same moment."""
        for row in self.rows[number + 1:]:
            if row[1] != self.rows[number][1]:
                return False
            if row[0] == "sent" and row[3] == connection:
                return True
        return False

    def close(self, connection):
        session = self.sessions.pop(connection, None)
        if session is None:
            return
        session.kill()
        if not self.pooled:
            self.wait_for("0", "select count(*) from pg_stat_activity where pid = " + session.pid)

    def expect(self, connection, line):
        session = self.sessions[connection]
        if line.startswith("FATAL: ") and "idle-session" in line:
            session.ask("SET idle_session_timeout = 1")
        if line.startswith("FATAL: "):
            self.wait_for("0", "select count(*) from pg_stat_activity where pid = " + session.pid, line)
            session.send("SELECT 1")
        found = session.answer()
        assert found == line, (connection, line, found)
        self.answers += 1

    def take_stored(self, _, row):
        """The application_name of the session that has the lock."""
        if self.pooled:
            return
        name, holder = row[3:5]
        self.wait_for(holder or "(0 rows)", "select application_name from pg_locks join pg_stat_activity using (pid) "
                      "where locktype = 'advisory' and granted and (classid::bigint << 32) + objid::bigint = "
                      "hashtextextended('%s', 0)" % name, row)


def rows_of(text):
    """What happens in this story."""
    with tempfile.TemporaryDirectory() as folder:
        script, page = folder + "/a.story", folder + "/a.html"
        with open(script, "w", encoding="utf-8") as file:
            file.write(text)
        done = subprocess.run([SIM, "--script", script, "--story", page], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        with open(page, encoding="utf-8") as file:
            data = file.read().split('<script id="run" type="application/json">')[1].split("</script>")[0]
    return json.loads(data)["rows"]


def random_story(seed):
    chance = random.Random(seed)
    lines = ["seed %d" % seed, "engine sessions", "clients " + " ".join(CLIENTS), "end %d" % (RANDOM_LINES // 5 + 2)]
    for number in range(RANDOM_LINES):
        client = chance.choice(CLIENTS)
        verb = chance.choices(("locks", "tries", "unlocks", "checks", "ends", "dies"), (6, 3, 6, 2, 1, 1))[0]
        others = [one for one in CLIENTS if one != client]
        what = {"ends": chance.choice(others), "dies": ""}.get(verb, chance.choice("xxy"))
        lines.append("at %.1f %s %s %s" % (1 + number / 5, client, verb, what))
        if verb == "dies":
            lines.append("at %.2f %s starts" % (1 + number / 5 + 0.05, client))
    return "\n".join(lines) + "\n"


def stories():
    for path in sorted(glob.glob(os.path.join(STORIES, "*.story"))):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if re.search(r"(?m)^engine sessions$", text):
            yield os.path.basename(path), text
    for seed in range(1, RANDOM_STORIES + 1):
        yield "random story %d" % seed, random_story(seed)


def replay(server, watcher, text):
    watcher.ask("drop sequence if exists tokens; create sequence tokens")
    if "option pooler=transaction" in text:
        with PgBouncer(server) as pooler:
            one = Replay(rows_of(text), watcher, pooler.port, True)
            one.run()
    else:
        one = Replay(rows_of(text), watcher, server.port, False)
        one.run()
    assert one.answers > 4, one.answers
    return one.answers


def main():
    cases = list(stories())
    print("1..%d" % len(cases))
    # A server notices that the client of a waiting statement is gone if it is told to look.
    with PostgresServer("-c", "client_connection_check_interval=10ms") as server:
        watcher = Psql(server.port, "watcher")
        for number, (name, text) in enumerate(cases, 1):
            try:
                print("ok %d - %s: %d answers are PostgreSQL's" % (number, name, replay(server, watcher, text)), flush=True)
            except AssertionError as error:
                print("not ok %d - %s\n# %s" % (number, name, str(error).replace("\n", " ")), flush=True)
                sys.exit(1)  # each story that differs may wait for long
        watcher.kill()


main()
