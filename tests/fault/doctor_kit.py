# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What the tests of stile doctor share: findings by their ids, doing what they say, and servers that
can't be had here."""
import contextlib
import json
import os
import pathlib
import shlex
import socket
import subprocess
import sys
import threading

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(TESTS / "cli"), str(TESTS / "servers")]
from kit import expect  # noqa: E402
from redis_server import RedisServer  # noqa: E402

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
CODES = {"fine": 0, "note": 0, "warning": 1, "danger": 2}


def on_server(*args):
    """The test gets a server that is started with these arguments."""
    def decorate(case):
        def with_server(t):
            with RedisServer(*args) as server:
                use(t, server)
                case(t, server)
        with_server.__name__, with_server.__doc__ = case.__name__, case.__doc__
        return with_server
    return decorate


def use(t, server, url="redis://127.0.0.1:%d"):
    t.env["STILE_ENGINE"] = url % server.port
    t.env["STILE_MODULES"] = os.environ["STILE_MODULES"]


def examine_all(t, *args):
    """All findings, in their order. The exit code is that of the worst."""
    done = t.stile("doctor", "--json", *args)
    assert done.returncode in (0, 1, 2), done
    seen = json.loads(done.stdout)["findings"]
    expect(done.returncode, max([CODES[one["severity"]] for one in seen] or [0]), done.stdout)
    return seen


def examine(t, *args):
    """By their ids; the text form is checked as well."""
    seen = examine_all(t, *args)
    text = " ".join(t.stile("doctor", *args).stdout.split())
    for one in seen:
        assert one["what"][:9] in text, text
    return {one["id"]: one for one in seen}


def found(t, name, severity, *words):
    """That finding, as severe as this, with these words in it."""
    seen = examine(t)
    assert name in seen, (name, seen)
    one = seen[name]
    expect(one["severity"], severity, name)
    for word in words:
        assert word in one["what"] + " " + one["why"] + " " + one["cure"], (word, one)
    assert one["why"], one
    assert one["commands"] or one["cure"] or severity == "note", one
    return one


def gone(t, *names):
    seen = examine(t)
    assert not set(names) & set(seen), seen


def follow(one, **replacing):
    """Does what a finding says."""
    assert one["commands"], one
    for command in one["commands"]:
        for word, text in replacing.items():
            command = command.replace(word, text)
        done = subprocess.run(shlex.split(command), capture_output=True, text=True, check=True)
        assert "OK" in done.stdout, (command, done.stdout)


class Puppet:
    """Answers as a server does that can't be had here: INFO as given."""

    def __init__(self, info_text):
        self.info = info_text
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.socket.accept()
                threading.Thread(target=self.answer, args=(client,), daemon=True).start()

    def answer(self, client):
        with contextlib.suppress(OSError), client, client.makefile("rb") as lines:
            for line in lines:
                n = int(line[1:])
                words = [lines.read(int(lines.readline()[1:]) + 2)[:-2] for _ in range(n)]
                client.sendall(self.reply(words[0]))

    def reply(self, command):
        if command == b"INFO":
            return b"$%d\r\n%s\r\n" % (len(self.info), self.info.encode())
        return b"+PONG\r\n" if command in (b"CLIENT", b"AUTH", b"SELECT") else b"*0\r\n"

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join()


INFO = ("redis_version:%s\r\nredis_mode:standalone\r\nuptime_in_seconds:9999\r\nmaxmemory:0\r\n"
        "maxmemory_policy:noeviction\r\nrole:master\r\nconnected_slaves:0\r\naof_enabled:1\r\n%s")
