# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What stile advise says to type runs on real servers: SQL, Redis commands, and stile with each engine and guard.

Usage: advice.py, with $STILE
"""
import itertools
import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", folder) for folder in ("servers", "headers")]

from mysql_server import MysqlServer  # noqa: E402
from postgres_server import PostgresServer  # noqa: E402
from redis_server import RedisServer  # noqa: E402
from tap import run_cases  # noqa: E402

STILE = os.environ["STILE"]
PATIENCE_S = 60
TABLES = ("create table hits (id int, n int)", "create table stock (id int, n int)",
          "create table doc (id int, body text, version int)")
SERVERS = {}


def advise(**answers):
    flags = [word for key, value in answers.items() for word in ("--" + key.rstrip("_").replace("_", "-"), value)]
    done = subprocess.run([STILE, "advise", "--json", *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (answers, done.stderr)
    return json.loads(done.stdout)


def sql_commands(where):
    """Each command that is a transaction in this database, with something in place of its dots."""
    for access, hold, contention in itertools.product(("adds", "once", "reads", "writes"), ("10ms", "5s"), ("low", "high")):
        text = advise(access=access, writes_to=where, hold=hold, contention=contention)["command"]
        text = text.replace("UPDATE ...", "UPDATE stock SET n = 1 WHERE id = 7").replace("SELECT ...", "SELECT 1")
        yield text.replace("...; ", "UPDATE stock SET n = 2 WHERE id = 7; ")


def postgres_understands():
    SERVERS["postgres"].sql("; ".join(TABLES))
    for command in set(sql_commands("postgres")):
        SERVERS["postgres"].sql(command)


def mysql_understands():
    SERVERS["mysql"].sql("; ".join(TABLES))
    for command in set(sql_commands("mysql")):
        SERVERS["mysql"].sql(command)


def sqlite_understands():
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.executescript(";".join(TABLES) + "; create table done (key text primary key)")
    for command in set(sql_commands("sqlite")):
        database.executescript(command)


def redis_understands():
    server = SERVERS["redis"]
    for access, hold in ("adds", "10ms"), ("reads", "10ms"), ("writes", "10ms"):
        words = shlex.split(advise(access=access, writes_to="redis", hold=hold)["command"])
        assert words[0] == "redis-cli" and "ERR" not in server.cli(*words[1:]), words
    watch = advise(access="writes", writes_to="redis", hold="5s", contention="low")["command"]
    done = subprocess.run(["redis-cli", "-p", str(server.port)], input=watch.replace("; ", "\n"), capture_output=True,
                          text=True, timeout=PATIENCE_S, check=True)
    assert "ERR" not in done.stdout and done.stdout.rstrip().endswith("OK"), done.stdout


def filled_in(command, place, number):
    """With addresses, a directory, a command that ends, and names that no other command uses."""
    urls = {"redis://HOST": "redis://127.0.0.1:%d" % SERVERS["redis"].port,
            "postgres://HOST/DB": SERVERS["postgres"].url, "mysql://HOST/DB": SERVERS["mysql"].url,
            "local:": "local:" + place + "/locks", "DIR": place, "FILE": place + "/FILE"}
    command = command.replace("file:DIR#FILE", "file:DIR#file")
    for word, value in urls.items():
        command = command.replace(word, value)
    command = command.replace("stile elect", "stile elect --once")
    command = re.sub(r"\b(KEY|NAME|RESOURCE)\b", r"\1-%d" % number, command)
    return re.sub(r"\bCMD\b", "true", command)


def engines_understand():
    """Every engine with every place, for efficiency and correctness."""
    verbs = subprocess.run([STILE, "--help"], capture_output=True, text=True, check=True).stdout
    commands = {}
    for access, where, engine, goal, hold in itertools.product(
            ("reads", "writes", "adds", "once", "leads", "calls"),
            ("postgres", "mysql", "sqlite", "redis", "file", "http", "cell", "other"),
            ("local", "redis", "postgres", "mysql"), ("efficiency", "correctness"), ("5s", "1h")):
        command = advise(access=access, writes_to=where, hold=hold, engines=engine, for_=goal, contention="high")["command"]
        if command.startswith("stile ") and "\n  stile %s " % command.split()[1] in verbs:
            commands[command] = (access, where, engine, goal, hold)
    assert len(commands) > 40, len(commands)
    for number, (command, answers) in enumerate(commands.items()):
        with tempfile.TemporaryDirectory() as place:
            os.mkdir(place + "/locks", 0o700)
            done = subprocess.run(["sh", "-c", filled_in(command, place, number)], stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, cwd=place, timeout=PATIENCE_S, check=False)
        missing = command.startswith("stile cell get") and done.returncode == 1  # there is no such cell
        assert done.returncode == 0 or missing, (answers, command, done.stderr)


def main():
    with PostgresServer() as postgres, MysqlServer() as mysql, RedisServer() as redis:
        SERVERS.update(postgres=postgres, mysql=mysql, redis=redis)
        for server in postgres, mysql:
            subprocess.run([STILE, "setup", server.url], check=True)
        return run_cases([postgres_understands, mysql_understands, sqlite_understands, redis_understands, engines_understand])


if __name__ == "__main__":
    sys.exit(main())
