# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Random calls of the guard of Redis, by a seed: functions, scripts and the rule as written below give
the same answers and leave the same keys. And the keys of guards, for hostile names."""
import os
import random

from redis.crc import key_slot

from redis_guard_kit import (FORMS, Functions, RedisServer, Scripts, connect, expect, load_all,
                             run_tests)

SEED = int(os.environ.get("STILE_SEED", "14"))
CALLS, PAIRS, BATCH = 6000, 10000, 500
TOKENS = [str(n) for n in (1, 2, 3, 9, 10, 11, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1)]
BAD_TOKENS = ["0", "-1", "", "01", "x", str(2**63), "1e3"]
ISSUERS = ["", "", "redis:a", "redis:a", "redis:b"]


class Guard:
    """The rule."""

    def __init__(self):
        self.token, self.issuer = "0", ""

    def judge(self, name, word, issuer):
        """The code of the error, or None."""
        token, _, strict = word.partition(" ")
        if not token.isdecimal() or token != str(int(token)) or not 0 < int(token) < 2**63:
            return "BADTOKEN"
        if issuer and self.issuer and issuer != self.issuer:
            return "FOREIGN"
        if int(token) < int(self.token) or strict and token == self.token:
            return "STALE"
        if name != "check":
            self.token, self.issuer = token, issuer or self.issuer
        return None


def random_call(draw, n):
    """A call, and the resource that it concerns."""
    name = "r%d" % draw.randrange(3)
    guard, key, other = "stile:guard:{%s}" % name, name, "{%s}:h" % name
    token = draw.choice(TOKENS) if draw.random() < 0.9 else draw.choice(BAD_TOKENS)
    if draw.random() < 0.15:
        token += " strict"
    issuer, options = draw.choice(ISSUERS), draw.choice([[], [], ["EX", 1000], ["KEEPTTL"]])
    if n % 40 == 0:  # otherwise the largest token would be all that passes
        return name, ("reset", [guard], draw.choice(["0", "1", "5"]), draw.choice(ISSUERS))
    return name, draw.choice([
        ("set", [guard, key], token, issuer, "v%d" % n, *options),
        ("hset", [guard, other], token, issuer, "f%d" % draw.randrange(3), "v%d" % n),
        ("del", [guard, key, other], token, issuer),
        ("run", [guard, key, other], token, issuer, 3, "SET", key, "w%d" % n, 4, "HSET", other, "f", n),
        ("raise", [guard], token, issuer), ("check", [guard], token, issuer), ("show", [guard])])


def code_of(reply):
    return reply[1:].split(" ")[0] if isinstance(reply, str) and reply.startswith("-") else None


def expect_rule(guards, name, call, reply):
    guard = guards.setdefault(name, Guard())
    if call[0] == "reset":
        guard.token, guard.issuer = call[2:]
    elif call[0] == "show":
        expect(reply, [guard.token.encode(), guard.issuer.encode()], call)
    else:
        expect(code_of(reply), guard.judge(call[0], *call[2:4]), call)


def contents(client):
    return {key: client.dump(key) for key in client.keys()}


def same_answers(t):
    """functions, scripts and the rule give the same answers"""
    draw, guards, codes = random.Random(SEED), {}, {}
    with RedisServer() as server:
        load_all(server)
        clients = [connect(server, db=db) for db in range(len(FORMS))]
        for start in range(0, CALLS, BATCH):
            calls = [random_call(draw, n) for n in range(start, start + BATCH)]
            replies = [form(client).many([call for _, call in calls])
                       for form, client in zip(FORMS, clients)]
            for (name, call), first, second in zip(calls, *replies):
                expect(second, first, call)
                expect_rule(guards, name, call, first)
                codes[code_of(first)] = codes.get(code_of(first), 0) + 1
            expect(contents(clients[0]), contents(clients[1]))
    print("# %s" % codes)
    assert all(codes[code] > CALLS // 50 for code in (None, "STALE", "FOREIGN", "BADTOKEN")), codes


# ---- keys ----

def hostile_name(draw):
    """Of parts in which braces and our own keys abound."""
    parts = ["{", "}", "{}", "}{", "{a}", "{b}", "a", "b", "ab", "stile:guard:", "stile:guard:{a}", ":",
             "\n", "\0", "é", " ", "\xff", "{{", "}}", "lock:"]
    return "".join(draw.choice(parts) for _ in range(draw.randint(1, 5))).encode("latin-1")


def names_of(draw):
    """Pairs of names, the second of which often is what the first might be mistaken for."""
    for _ in range(PAIRS):
        name = hostile_name(draw)
        yield name, draw.choice([
            lambda: hostile_name(draw), lambda: b"{" + name + b"}", lambda: name.strip(b"{}") or b"x",
            lambda: b"stile:guard:{" + name + b"}", lambda: name[::-1], lambda: name + b"}",
            lambda: b"{" + name])()


def guards_of(server, names):
    """The keys, which functions and scripts agree on."""
    client = connect(server)
    calls = [("key", [name]) for name in names]
    keys = Functions(client).many(calls)
    expect(Scripts(client).many(calls), keys)
    return dict(zip(names, keys))


def keys_differ(t):
    """no two names share a guard, which is in the slot of its name and belongs to no other"""
    pairs = list(names_of(random.Random(SEED)))
    names = list(dict.fromkeys(name for pair in pairs for name in pair))
    with RedisServer() as server:
        load_all(server)
        keys = guards_of(server, names)
        expect(len(set(keys.values())), len(names))
        expect([name for name in names if key_slot(keys[name]) != key_slot(name)], [])
        # Each is taken for a guard's key, by the name that it was made from.
        guard = Scripts(connect(server))
        guard.many([("raise", [key], 9, "") for key in keys.values()])
        for name, reply in zip(names, guard.many([("check", [keys[name]], 8, "") for name in names])):
            shown, nul, _ = name.replace(b"\n", b" ").decode("utf-8", "replace").partition("\0")
            wanted = "-STALE stale token 8 for %s: the highest seen is 9" % shown
            if nul:  # where a server's error ends
                wanted = wanted.rpartition(":")[0]
            expect(reply.rstrip(" "), wanted.rstrip(" "))
    print("# %d names" % len(names))


def known_keys(t):
    """the keys of a few names, as documented"""
    with RedisServer() as server:
        load_all(server)
        wanted = {b"accounts": b"stile:guard:{accounts}", b"a{b}c": b"stile:guard:{b}a{b}c",
                  b"a{b": b"stile:guard:{a{b}", b"{x}": b"stile:guard:{x}{x}",
                  b"x": b"stile:guard:{x}", b"a}b": b"stile:guard:{4w2}a}b",
                  b"{}x": b"stile:guard:{4LC}{}x"}
        expect(guards_of(server, list(wanted)), wanted)
        for form in FORMS:
            for keys in ([], [""], ["a", "b"]):
                expect(code_of(form(connect(server)).call("key", keys)), "BADCALL")


if __name__ == "__main__":
    run_tests([same_answers, keys_differ, known_keys])
