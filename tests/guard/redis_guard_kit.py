# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The guard of Redis in both its forms, for tests: the library is loaded, the scripts are cached.

    client = connect(server)
    Functions(client).call("set", [guard, key], "33", "", "value")
    Scripts(client).call(...)   # the same
"""
import hashlib
import pathlib
import subprocess
import sys

import redis

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(TESTS / "cli"), str(TESTS / "servers")]
from kit import expect, run_tests, spin  # noqa: E402,F401
from redis_server import RedisServer  # noqa: E402

GUARD = TESTS.parent / "src" / "engines" / "redis" / "guard"
BODIES = {path.stem: path for path in sorted(GUARD.glob("*.lua"))}


def text_of(*words):
    return subprocess.run([sys.executable, str(GUARD / "embed_guard.py"), *map(str, words)],
                          check=True, capture_output=True, text=True).stdout


LIBRARY = text_of("--function", *BODIES.values())
SCRIPTS = {name: text_of("--script", path) for name, path in BODIES.items()}


def connect(server, **how):
    return redis.Redis(port=server.port, **how)


class Form:
    """Errors are returned as a text, as the server has sent it."""

    def __init__(self, client):
        self.client = client

    def call(self, name, keys, *args):
        return self.plain(self.send(self.client, name, keys, args))

    def send(self, client, name, keys, args):
        try:
            return client.execute_command(*self.command(name), len(keys), *keys, *args)
        except redis.ResponseError as error:
            return error

    def many(self, calls):
        """The replies of calls (name, keys, args ...) in one round trip."""
        pipe = self.client.pipeline(transaction=False)
        for name, keys, *args in calls:
            pipe.execute_command(*self.command(name), len(keys), *keys, *args)
        return [self.plain(reply) for reply in pipe.execute(raise_on_error=False)]

    @classmethod
    def plain(cls, reply):
        if isinstance(reply, redis.RedisError):
            return "-" + str(reply)
        return [cls.plain(one) for one in reply] if isinstance(reply, list) else reply


class Functions(Form):
    @staticmethod
    def load(client):
        client.execute_command("FUNCTION", "LOAD", "REPLACE", LIBRARY)

    @staticmethod
    def command(name):
        return "FCALL", "stile_guard_" + name


class Scripts(Form):
    @staticmethod
    def load(client):
        for text in SCRIPTS.values():
            client.execute_command("SCRIPT", "LOAD", text)

    @staticmethod
    def command(name):
        return "EVALSHA", hashlib.sha1(SCRIPTS[name].encode()).hexdigest()


FORMS = (Functions, Scripts)


def load_all(server):
    client = connect(server)
    for form in FORMS:
        form.load(client)
    return client


def on_both(*args):
    """The test runs once for each form, on a server that is started with these arguments."""
    def decorate(case):
        def with_form(form):
            def one(t):
                with RedisServer(*args) as server:
                    case(t, server, form(load_all(server)))
            one.__name__ = "%s_%s" % (case.__name__, form.__name__)
            one.__doc__ = "%s: %s" % (form.__name__, case.__doc__)
            return one
        return [with_form(form) for form in FORMS]
    return decorate


def stale(token, name, highest):
    return "-STALE stale token %s for %s: the highest seen is %s" % (token, name, highest)


def begins(reply, *words):
    """Whether an error has this code and these words."""
    text = str(reply)
    assert text.startswith("-" + words[0] + " ") and all(word in text for word in words[1:]), text
