# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Lists of commands under a guard of Redis: all of them are done, or none."""
from redis_guard_kit import RedisServer, begins, connect, expect, on_both, run_tests

G = "stile:guard:{a}"
A, B = "{a}1", "{a}2"


def words(*commands):
    """As run takes them."""
    return [word for command in commands for word in (len(command), *command)]


def contents(server):
    """Everything that the server has, in a form that can be compared."""
    client = connect(server)
    return {key: (client.dump(key), client.pttl(key)) for key in client.keys()}


@on_both()
def every_command(t, server, guard):
    """each of its commands does what it does alone, and the replies come in order"""
    lists = [
        [("SET", A, "1"), ("GET", A), ("set", A, "2", "EX", "100"), ("PERSIST", A), ("GET", A)],
        [("INCR", A), ("EXPIRE", A, "100")], [("INCRBY", A, "-3")], [("DECR", A)],
        [("DECRBY", A, "7"), ("SET", B, "x"), ("PEXPIRE", B, "100000")],
        [("DEL", A)], [("HINCRBY", A, "n", "5"), ("HSET", A, "f", "v", "g", "w"), ("HGET", A, "f"),
         ("HMGET", A, "f", "none"), ("HDEL", A, "g"), ("HGETALL", A)],
        [("UNLINK", A), ("RPUSH", A, "b", "c"), ("LPUSH", A, "a"), ("LTRIM", A, "0", "1"),
         ("LRANGE", A, "0", "-1")],
        [("DEL", A), ("SADD", A, "x", "y"), ("SREM", A, "y")],
        [("DEL", A), ("ZADD", A, "1.5", "x", "-2e3", "y", "inf", "z"), ("ZREM", A, "y")],
        [("DEL", A), ("XADD", A, "*", "f", "v")],
    ]
    with RedisServer() as other:
        alone = connect(other)
        alone.response_callbacks.clear()
        for token, commands in enumerate(lists, 1):
            seen = guard.call("run", [G, A, B], token, "", *words(*commands))
            pipe = alone.pipeline(transaction=False)
            for command in commands:
                pipe.execute_command(*command)
            wanted = pipe.execute()
            if commands[-1][0] == "XADD":
                expect((seen.pop(), wanted.pop()), tuple(
                    one.cli("XINFO", "STREAM", A).split("\n")[7].encode() for one in (server, other)))
            expect(seen, wanted, commands)
    expect(guard.call("show", [G]), [str(len(lists)).encode(), b""])


@on_both()
def all_or_none(t, server, guard):
    """a list with one command that would fail does nothing, wherever that stands"""
    server.cli("SET", A, "text")
    server.cli("RPUSH", B, "x")
    server.cli("HSET", "{a}h", "n", "text", "big", "9223372036854775807")
    guard.call("raise", [G], 5, "redis:a")
    before = contents(server)
    keys = [G, A, B, "{a}h", "{a}none", "{a}fine"]
    bad = [
        ("HSET", A, "f", "v"), ("LPUSH", A, "x"), ("SADD", B, "x"), ("GET", B), ("ZADD", B, "1", "x"),
        ("XADD", B, "*", "f", "v"), ("INCR", A), ("HINCRBY", "{a}h", "n", "1"),
        ("HINCRBY", "{a}h", "big", "1"), ("INCRBY", "{a}none", "1.5"), ("INCRBY", "{a}none", "01"),
        ("INCRBY", "{a}none", "9223372036854775807"), ("INCR",), ("SET", A), ("SET", A, "v", "NX"),
        ("SET", A, "v", "EX", "0"), ("HSET", "{a}h", "f"), ("DEL", A, B), ("EXPIRE", A, "-1"),
        ("EXPIRE", A, "x"), ("ZADD", "{a}none", "x", "m"), ("ZADD", "{a}none", "NX", "1"),
        ("ZADD", "{a}none", "1"), ("XADD", "{a}none", "1-1", "f", "v"), ("LTRIM", B, "0"),
        ("SET", "{a}undeclared", "v"), ("SET", "elsewhere", "v"), ("SET", G, "v"), ("DEL", G),
        ("NOSUCH", A), ("MSET", A, "v"), ("EVAL", "return 1", "0"), ("FLUSHALL",), ("MULTI",),
        ("BLPOP", B, "0"), ("SUBSCRIBE", "x"), ("RENAME", A, B), ("CONFIG", "SET", "x", "y")]
    fine = ("SET", "{a}fine", "v")
    for command in bad:
        for commands in ([command], [fine, command], [fine, command, fine]):
            reply = guard.call("run", keys, 6, "redis:a", *words(*commands))
            begins(reply, "BADCALL", "command %d: " % (commands.index(command) + 1))
            expect(contents(server), before, commands)


@on_both()
def types_change(t, server, guard):
    """a key may change its type on the way, and a count comes before other writes of its key"""
    server.cli("SET", A, "text")
    run = lambda *commands: guard.call("run", [G, A], 5, "", *words(*commands))
    expect(run(("DEL", A), ("LPUSH", A, "x"), ("SET", A, "1"), ("GET", A)), [1, 1, b"OK", b"1"])
    begins(run(("SET", A, "1"), ("LPUSH", A, "x")), "BADCALL", "is for a list, and {a}1 is a string")
    begins(run(("SET", A, "x"), ("INCR", A)), "BADCALL", "INCR must come before other writes to {a}1")
    expect(run(("INCR", A), ("EXPIRE", A, "9")), [2, 1])


@on_both()
def malformed_lists(t, server, guard):
    """counts that are wrong, no command at all"""
    for rest in (("x",), (0,), (3, "SET", A), (4, "SET", A, "v"), ("3 ", "SET", A, "v"), (-1, "SET"),
                 (3, "SET", A, "v", 3), (99999, "SET"), ("", "SET"), (2, "SET", A, "v")):
        begins(guard.call("run", [G, A], 5, "", *rest), "BADCALL")
    begins(guard.call("run", [G, A], 5, ""), "BADCALL")
    begins(guard.call("run", [G, A], 5, "", *["x"] * 8000), "BADCALL", "too many")
    expect(server.cli("DBSIZE"), "0")


@on_both()
def rights(t, server, guard):
    """a command that the ACL denies is found before anything is written"""
    server.cli("ACL", "SETUSER", "low", "on", "nopass", "~*", "+@all", "-sadd")
    guard.client = connect(server, username="low", password="x")
    reply = guard.call("run", [G, A, B], 5, "", *words(("SET", A, "v"), ("SADD", B, "x")))
    begins(reply, "BADCALL", "command 2: the user may not call SADD")
    expect(server.cli("DBSIZE"), "0")


@on_both()
def long_lists(t, server, guard):
    """a list of 1,500 commands"""
    commands = [("RPUSH", A, str(i)) for i in range(1500)]
    expect(guard.call("run", [G, A], 5, "", *words(*commands))[-1], 1500)
    expect(server.cli("LLEN", A), "1500")


if __name__ == "__main__":
    run_tests([*every_command, *all_or_none, *types_change, *malformed_lists, *rights, *long_lists])
