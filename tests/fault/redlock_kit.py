# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""What the tests of faults on the nodes of redlock share."""
import contextlib
import os

from redis_kit import Proxy, RedisServer, expect, DURABLE


def url_of(ports, params=""):
    return "redlock://" + ",".join("127.0.0.1:%d" % port for port in ports) + params


def use_nodes(t, nodes, params=""):
    t.env["STILE_ENGINE"] = url_of([node.port for node in nodes], params)
    t.env["STILE_MODULES"] = os.environ["STILE_MODULES"]


def on_nodes(*args, number=5, params="", own_clock=False):
    """The test gets so many servers that are started with these arguments, and are a group."""
    def decorate(case):
        def with_nodes(t):
            with contextlib.ExitStack() as servers:
                nodes = [servers.enter_context(RedisServer(*args, own_clock=own_clock))
                         for _ in range(number)]
                use_nodes(t, nodes, params)
                expect(t.stile("run", "--try", "first", "--", "true").returncode, 0)
                try:
                    case(t, nodes)
                finally:
                    for node in nodes:
                        if node.process:
                            node.go_on()
                    t.end_all()
        with_nodes.__name__, with_nodes.__doc__ = case.__name__, case.__doc__
        return with_nodes
    return decorate


def on_ways(*args, params=""):
    """And a way to each of them on which things get lost, for what is started through()."""
    def decorate(case):
        @on_nodes(*args, params=params)
        def with_ways(t, nodes):
            with contextlib.ExitStack() as proxies:
                ways = [proxies.enter_context(Proxy(node.port)) for node in nodes]
                try:
                    case(t, nodes, ways)
                finally:
                    t.end_all()
        with_ways.__name__, with_ways.__doc__ = case.__name__, case.__doc__
        return with_ways
    return decorate


@contextlib.contextmanager
def through_all(t, ways, params=""):
    direct = t.env["STILE_ENGINE"]
    t.env["STILE_ENGINE"] = url_of([way.port for way in ways], params)
    try:
        yield
    finally:
        t.env["STILE_ENGINE"] = direct


def nothing_left(nodes, name="x", ways=()):
    """On no node that runs: no key, nobody in line. The fences stay. A withdrawal is not waited for:
    the last of it may still be on its way when its sender has ended."""
    keys = "lock:" + name, "{lock:%s}\x1fqueue" % name
    for way in ways:
        way.until_left()
    for node in nodes:
        if node.process:
            expect(node.cli("EXISTS", *keys), "0", node.cli("KEYS", "*"))


def have_seen(nodes, token, name="x"):
    """The name was granted so often that no client guesses its next token: phase 2 is needed."""
    for node in nodes:
        expect(node.cli("SET", "{lock:%s}\x1ffence" % name, str(token)), "OK")


__all__ = ["DURABLE", "have_seen", "nothing_left", "on_nodes", "on_ways", "through_all", "url_of", "use_nodes"]
