# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The guard of Redis through the clients that its users have: redis-cli, redis-py, ioredis; on one
server and on a Cluster, while a slot moves, and with no more rights than are documented."""
import contextlib
import json
import logging
import os
import pathlib
import re
import subprocess

import redis
from redis.cluster import RedisCluster

from redis_guard_kit import (FORMS, LIBRARY, SCRIPTS, TESTS, Functions, RedisServer, Scripts, begins,
                             connect, expect, load_all, run_tests, stale)
from kit import Lines  # noqa: E402
from own_server import die_with_parent  # noqa: E402
from redis_groups import Cluster  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
DOCS = TESTS.parent / "docs" / "guarantees.md"
logging.getLogger("redis.cluster").setLevel(logging.CRITICAL)  # it prints every error
NAMES = ("accounts", "a{b}c", "a}b", "{}x")  # with and without a tag, and tags that are none


class RedisCli:
    """Each call is a process. It prints an error as it prints a text."""

    def __init__(self, form, server, *more):
        self.start = ["redis-cli", "-p", str(server.port), *more]
        self.function = form is Functions

    def call(self, name, keys, *args):
        head = (["FCALL", "stile_guard_" + name] if self.function else ["EVAL", SCRIPTS[name]])
        done = subprocess.run([*self.start, *head, str(len(keys)), *keys, *map(str, args)],
                              capture_output=True, text=True, check=True)
        lines = done.stdout.rstrip("\n").split("\n")
        return "-" + lines[0] if lines[0].startswith(("STALE ", "FOREIGN ")) else lines


class RedisPy:
    """register_script() caches by itself."""

    def __init__(self, form, server):
        self.client = connect(server)
        self.scripts = {name: self.client.register_script(text) for name, text in SCRIPTS.items()}
        self.function = form is Functions

    def call(self, name, keys, *args):
        try:
            if self.function:
                return self.client.fcall("stile_guard_" + name, len(keys), *keys, *args)
            return self.scripts[name](keys=keys, args=args)
        except redis.ResponseError as error:
            return "-" + str(error)


class RedisPyCluster(RedisPy):
    """It finds the node of a function's keys if it is told."""

    def __init__(self, form, cluster):
        self.client = RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port)
        self.function = form is Functions

    def call(self, name, keys, *args):
        form = Functions if self.function else Scripts
        node = self.client.get_node_from_key(keys[0])
        try:
            return self.client.execute_command(*form.command(name), len(keys), *keys, *args,
                                               target_nodes=node)
        except redis.ResponseError as error:
            return "-" + str(error)


class IoRedis:
    def __init__(self, form, process, out):
        self.form, self.process, self.out = form, process, out

    def call(self, name, keys, *args):
        line = json.dumps(["function" if self.form is Functions else "script", name, keys, args])
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        answer = json.loads(self.out.next())
        return answer[0] if isinstance(answer, list) else "-" + answer["error"]


@contextlib.contextmanager
def ioredis(t, form, kind, server):
    texts = t.path("texts.json")
    pathlib.Path(texts).write_text(json.dumps({"library": LIBRARY, "scripts": SCRIPTS}),
                                   encoding="ascii")
    process = subprocess.Popen(
        ["node", str(HERE / "guard_ioredis.js"), os.environ["STILE_NPM"], kind, str(server.port), texts],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=die_with_parent)
    with process:
        try:
            yield IoRedis(form, process, Lines(process.stdout.fileno()))
        finally:
            process.stdin.close()
            process.kill()


def plain(reply):
    """Clients differ in how they return a text, and one alone in a list."""
    if isinstance(reply, list):
        return [plain(one) for one in reply] if len(reply) != 1 else plain(reply[0])
    return reply.decode() if isinstance(reply, bytes) else str(reply)


def works(guard):
    """A holder writes, the next one raises, the first one writes late."""
    call = lambda *words: plain(guard.call(*words))
    for name in NAMES:
        key = call("key", [name])
        other = key[len("stile:guard:"):].partition("}")[0] + "}:h"
        expect(call("set", [key, name], "9007199254740993", "redis:a", "v", "PX", 100000), "OK")
        expect(call("hset", [key, other], "9007199254740993", "redis:a", "f", "v"), "1")
        expect(call("raise", [key], "9007199254740994", "redis:a"), "9007199254740994")
        late = stale("9007199254740993", name, "9007199254740994")
        expect(call("set", [key, name], "9007199254740993", "redis:a", "late"), late)
        expect(call("del", [key, name], "9007199254740993", ""), late)
        begins(call("check", [key], "9007199254740995", "etcd:a"), "FOREIGN", "etcd:a", "redis:a")
        expect(call("run", [key, name, other], "9007199254740994", "", 2, "GET", name,
                    3, "SET", name, "w", 3, "HDEL", other, "f"), ["v", "OK", "1"])
        expect(call("del", [key, name, other], "9007199254740994", ""), "1")
        expect(call("show", [key]), ["9007199254740994", "redis:a"])
        expect(call("reset", [key], "0", ""), "OK")


def with_each(make, title):
    """A case for each form."""
    def of(form):
        def one(t):
            make(t, form)
        one.__name__, one.__doc__ = make.__name__ + "_" + form.__name__, title + ": " + form.__name__
        return one
    return [of(form) for form in FORMS]


def one_server(t, form):
    with RedisServer() as server:
        load_all(server)
        works(RedisCli(form, server))
        works(RedisPy(form, server))
        with ioredis(t, form, "one", server) as guard:
            works(guard)


def in_cluster(t, form):
    with Cluster(3) as cluster:
        for node in cluster.nodes:
            load_all(node)
        works(RedisCli(form, cluster.nodes[0], "-c"))
        works(RedisPyCluster(form, cluster))
        with ioredis(t, form, "cluster", cluster.nodes[0]) as guard:
            works(guard)
        key = "stile:guard:{accounts}"
        node = form(connect(cluster.owner("accounts")))
        begins(node.call("set", [key, "elsewhere"], 5, "", "v"), "CROSSSLOT")


def slot_moves(t, form):
    """The data has moved and its guard has not, or the other way round: nobody writes."""
    with Cluster(2) as cluster:
        for node in cluster.nodes:
            load_all(node)
        key, name = "stile:guard:{accounts}", "accounts"
        old = cluster.owner(name)
        (new,) = [node for node in cluster.nodes if node is not old]
        guards = {node: form(connect(node)) for node in cluster.nodes}
        expect(guards[old].call("set", [key, name], 9, "", "v"), b"OK")

        def between(first):
            expect(old.cli("MIGRATE", "127.0.0.1", str(new.port), first, "0", "5000"), "OK")
            for node, guard in guards.items():
                with guard.client.client() as guard.client:  # ASKING is for the next command
                    guard.client.execute_command("ASKING") if node is new else None
                    begins(guard.call("set", [key, name], 8, "", "late"), "TRYAGAIN")
                guard.client = connect(node)
        cluster.move(cluster.slot(name), old, new, lambda: between(name))
        expect(guards[new].call("set", [key, name], 8, "", "late"), stale(8, name, 9))
        cluster.move(cluster.slot(name), new, old, lambda: None)
        cluster.move(cluster.slot(name), old, new, lambda: between(key))
        expect(guards[new].call("set", [key, name], 8, "", "late"), stale(8, name, 9))
        expect(new.cli("GET", name), "v")


def documented_rights():
    rows = re.findall(r"^\| `([^`]*)` \| (.*) \|$", DOCS.read_text(encoding="utf-8"), re.M)
    (rules,) = [rules for name, rules in rows if name == "ACL guard"]
    return re.findall(r"`([~&+][^`]*)`", rules)


def rights(t, form):
    """A user that may write accounts, and otherwise has only what the documentation names."""
    with RedisServer() as server:
        load_all(server)
        own = ["~accounts", "+set", "+get", "~{accounts}:h", "+del", "+hdel"]
        expect(server.cli("ACL", "SETUSER", "low", "on", ">low", *documented_rights(), *own), "OK")
        guard = form(connect(server, username="low", password="low"))
        key = "stile:guard:{accounts}"
        expect(guard.call("key", ["accounts"]), key.encode())
        expect(guard.call("set", [key, "accounts"], 5, "redis:a", "v"), b"OK")
        expect(guard.call("hset", [key, "{accounts}:h"], 6, "redis:a", "f", "v"), 1)
        expect(guard.call("run", [key, "accounts"], 7, "", 2, "GET", "accounts"), [b"v"])
        expect(guard.call("del", [key, "accounts"], 8, "redis:a"), 1)
        expect(guard.call("raise", [key], 9, ""), b"9")
        expect(guard.call("check", [key], 8, ""), stale(8, "accounts", 9))
        expect(guard.call("reset", [key], 1, "redis:b"), b"OK")
        expect(guard.call("show", [key]), [b"1", b"redis:b"])
        assert "no permissions" in guard.call("set", [key, "other"], 5, "", "v")


# ---- the command ----

def use(t, url):
    t.env["STILE_MODULES"] = os.environ["STILE_MODULES"]
    return url


def printed(t):
    """the command prints the library and the scripts as the tests have them"""
    expect(t.stile("guard", "lua").stdout, LIBRARY)
    for name, text in SCRIPTS.items():
        expect(t.stile("guard", "lua", "--script", name).stdout, text)


def installed(t):
    """stile guard install loads the functions into every primary, and may be repeated"""
    with Cluster(2) as cluster:
        url = use(t, cluster.url)
        for _ in range(2):
            done = t.stile("guard", "install", url)
            expect(done.returncode, 0, done.stderr)
        for node in cluster.nodes:
            assert "stile_guard" in node.cli("FUNCTION", "LIST").split("\n")
        works(RedisCli(Functions, cluster.nodes[0], "-c"))
        expect(t.stile("guard", "raise", url, "accounts", "7").returncode, 0)
        key = "stile:guard:{accounts}"
        expect(RedisCli(Functions, cluster.nodes[0], "-c").call("set", [key, "accounts"], 6, "", "late"),
               stale(6, "accounts", 7))
        node = cluster.owner("accounts")
        expect(Functions(connect(node)).call("raise", [key], 8, "redis:a"), b"8")
        expect(t.stile("guard", "check", url, "accounts", "7").returncode, 77)


def not_installed(t):
    """without the right to load functions it says so; redlock says where to install them"""
    with RedisServer() as server:
        server.cli("ACL", "SETUSER", "default", "-function")
        done = t.stile("guard", "install", use(t, "redis://127.0.0.1:%d" % server.port))
        assert done.returncode and "ACL" in done.stderr, done.stderr
        done = t.stile("guard", "install", "redlock://127.0.0.1:%d" % server.port)
        assert done.returncode and "redis://" in done.stderr, done.stderr


if __name__ == "__main__":
    run_tests([printed, installed, not_installed,
               *with_each(one_server, "redis-cli, redis-py and ioredis on one server"),
               *with_each(in_cluster, "redis-cli, redis-py and ioredis in a Cluster"),
               *with_each(slot_moves, "while a slot moves, and guard and data are apart, none writes"),
               *with_each(rights, "the documented ACL suffices")])
