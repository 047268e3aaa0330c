# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""The guard of Redis: the rule, removal, expiry, misuse, a full server, a crash. Each case runs as
functions and as scripts."""
from redis_guard_kit import RedisServer, begins, expect, load_all, on_both, run_tests, spin, stale

G, KEY = "stile:guard:{accounts}", "accounts"
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
TOKEN_MAX = 2**63 - 1


@on_both()
def rule(t, server, guard):
    """smaller is refused, equal passes, larger passes and is remembered"""
    expect(guard.call("show", [G]), [b"0", b""])
    expect(guard.call("set", [G, KEY], 33, "", "a"), b"OK")
    expect(guard.call("set", [G, KEY], 33, "", "b"), b"OK")
    expect(guard.call("set", [G, KEY], 34, "", "c"), b"OK")
    expect(guard.call("set", [G, KEY], 33, "", "d"), stale(33, KEY, 34))
    expect(guard.call("hset", [G, "{accounts}:h"], 33, "", "f", "v"), stale(33, KEY, 34))
    expect(guard.call("del", [G, KEY], 33, ""), stale(33, KEY, 34))
    expect(guard.call("run", [G, KEY], 33, "", 3, "SET", KEY, "e"), stale(33, KEY, 34))
    expect(guard.call("raise", [G], 33, ""), stale(33, KEY, 34))
    expect(guard.call("check", [G], 33, ""), stale(33, KEY, 34))
    expect(server.cli("GET", KEY), "c")
    expect(server.cli("EXISTS", "{accounts}:h"), "0")
    expect(server.cli("HGETALL", G), "token\n34\nissuer")
    expect(guard.call("hset", [G, "{accounts}:h"], 35, "", "f", "v", "g", "w"), 2)
    expect(guard.call("show", [G]), [b"35", b""])


@on_both()
def strict(t, server, guard):
    """strict refuses an equal token as well"""
    expect(guard.call("set", [G, KEY], "33 strict", "", "a"), b"OK")
    for again in (guard.call("set", [G, KEY], "33 strict", "", "b"),
                  guard.call("raise", [G], "33 strict", ""),
                  guard.call("check", [G], "33 strict", "")):
        expect(again, stale(33, KEY, 33))
    expect(guard.call("set", [G, KEY], 33, "", "c"), b"OK")
    expect(guard.call("show", [G]), [b"33", b""])


@on_both()
def raised_before_reading(t, server, guard):
    """a raise keeps the old holder out before the first write; a check remembers nothing"""
    expect(guard.call("check", [G], 7, "redis:a"), b"0")
    expect(guard.call("show", [G]), [b"0", b""])
    expect(server.cli("DBSIZE"), "0")
    guard.call("set", [G, KEY], 7, "", "old")
    expect(guard.call("raise", [G], 8, ""), b"8")
    expect(guard.call("raise", [G], 8, ""), b"8")
    expect(guard.call("check", [G], 9, ""), b"8")
    expect(guard.call("set", [G, KEY], 7, "", "late"), stale(7, KEY, 8))
    expect(server.cli("GET", KEY), "old")


@on_both()
def issuers(t, server, guard):
    """a token of another issuer is refused whatever it is, and none is forgotten"""
    foreign = "-FOREIGN token of etcd:a for accounts, whose tokens come from redis:a"
    expect(guard.call("set", [G, KEY], 5, "", "a"), b"OK")
    expect(guard.call("set", [G, KEY], 5, "redis:a", "b"), b"OK")
    expect(guard.call("show", [G]), [b"5", b"redis:a"])
    expect(guard.call("set", [G, KEY], 6, "", "c"), b"OK")
    expect(guard.call("show", [G]), [b"6", b"redis:a"])
    for token in (1, 6, 700):
        expect(guard.call("set", [G, KEY], token, "etcd:a", "d"), foreign)
        expect(guard.call("raise", [G], token, "etcd:a"), foreign)
        expect(guard.call("check", [G], token, "etcd:a"), foreign)
    expect(guard.call("set", [G, KEY], 5, "redis:a", "e"), stale(5, KEY, 6))
    expect(server.cli("GET", KEY), "c")


@on_both()
def large_tokens(t, server, guard):
    """tokens that are one number in Lua are told apart"""
    for low, high in ((2**53, 2**53 + 1), (TOKEN_MAX - 1, TOKEN_MAX), (9, 10), (99, 100)):
        guard.call("reset", [G], 0, "")
        expect(guard.call("raise", [G], low, ""), str(low).encode())
        expect(guard.call("raise", [G], high, ""), str(high).encode())
        expect(guard.call("set", [G, KEY], low, "", "a"), stale(low, KEY, high))
        expect(guard.call("show", [G]), [str(high).encode(), b""])


@on_both()
def malformed_tokens(t, server, guard):
    """what is no token is refused, and nothing is written"""
    for bad in ("0", "-1", "", "x", "1.0", "1e3", "0x10", "007", " 7", "7 ", "7\n", "+7", "7 strict ",
                "strict", TOKEN_MAX + 1, 10**19, "1" * 300, b"7\0", "٧"):
        for call in (("set", [G, KEY], bad, "", "v"), ("hset", [G, KEY], bad, "", "f", "v"),
                     ("del", [G, KEY], bad, ""), ("raise", [G], bad, ""), ("check", [G], bad, ""),
                     ("run", [G, KEY], bad, "", 3, "SET", KEY, "v")):
            begins(guard.call(*call), "BADTOKEN")
    begins(guard.call("reset", [G], "-1", ""), "BADTOKEN")
    expect(server.cli("DBSIZE"), "0")


@on_both()
def reset(t, server, guard):
    """reset sets what is given; 0 without an issuer forgets everything"""
    guard.call("raise", [G], 50, "redis:a")
    expect(guard.call("reset", [G], 3, "etcd:b"), b"OK")
    expect(guard.call("show", [G]), [b"3", b"etcd:b"])
    expect(guard.call("reset", [G], 4, ""), b"OK")
    expect(guard.call("show", [G]), [b"4", b""])
    expect(guard.call("reset", [G], 0, "zk:c"), b"OK")
    begins(guard.call("raise", [G], 1, "zk:d"), "FOREIGN")
    expect(guard.call("raise", [G], 1, "zk:c"), b"1")
    expect(guard.call("reset", [G], 0, ""), b"OK")
    expect(server.cli("DBSIZE"), "0")


@on_both()
def options_of_set(t, server, guard):
    """SET takes EX, PX, EXAT, PXAT and KEEPTTL, and refuses others before anything is written"""
    set_ = [G, KEY], 5, "", "v"
    for options, least in ((("EX", 100), 99_000), (("px", 90_000), 89_000), (("KEEPTTL",), 80_000),
                           (("EXAT", 4_000_000_000), 10**11), (("PXAT", 4 * 10**12), 10**11)):
        expect(guard.call("set", *set_, *options), b"OK")
        assert int(server.cli("PTTL", KEY)) > least, options
    expect(guard.call("set", *set_), b"OK")
    expect(server.cli("PTTL", KEY), "-1")
    for options in (("NX",), ("XX",), ("GET",), ("EX",), ("EX", 0), ("EX", -1), ("EX", "x"),
                    ("PX", 10**16), ("EX", 10**13), ("KEEPTTL", "EX", 5), ("EX", 5, "KEEPTTL"), ("",)):
        begins(guard.call("set", [G, KEY], 6, "", "w", *options), "BADCALL", "EX")
    expect(server.cli("GET", KEY), "v")
    expect(guard.call("show", [G]), [b"5", b""])


@on_both()
def removed(t, server, guard):
    """a removed key leaves its guard behind, without an end: it is not open to old tokens"""
    guard.call("set", [G, KEY], 8, "redis:a", "v")
    guard.call("hset", [G, "{accounts}:h"], 8, "redis:a", "f", "v")
    expect(guard.call("del", [G, KEY, "{accounts}:h", "{accounts}:none"], 9, "redis:a"), 2)
    expect(server.cli("KEYS", "*"), G)
    expect(server.cli("PTTL", G), "-1")
    expect(guard.call("set", [G, KEY], 8, "redis:a", "late"), stale(8, KEY, 9))
    expect(guard.call("del", [G, KEY], 9, ""), 0)


@on_both()
def expired(t, server, guard):
    """the guard outlives data that expires"""
    guard.call("set", [G, KEY], 9, "redis:a", "v", "PX", 1)
    spin(lambda: server.cli("EXISTS", KEY) == "0")
    expect(server.cli("PTTL", G), "-1")
    expect(guard.call("set", [G, KEY], 8, "redis:a", "late"), stale(8, KEY, 9))


@on_both(*DURABLE)
def killed(t, server, guard):
    """the highest token is there after kill -9 right behind a guarded write"""
    for token in range(1, 21):
        expect(guard.call("set", [G, KEY], token, "redis:a", "v%d" % token), b"OK")
        server.kill()
        server.restart()
        load_all(server)
        expect(guard.call("show", [G]), [str(token).encode(), b"redis:a"])
        expect(server.cli("GET", KEY), "v%d" % token)


@on_both("--maxmemory", "3mb", "--maxmemory-policy", "noeviction")
def full(t, server, guard):
    """a server without memory refuses a SET, and still raises, removes and resets"""
    guard.call("set", [G, KEY], 5, "redis:a", "v")
    server.cli("CONFIG", "SET", "maxmemory", "100kb")
    for token in (5, 6):
        begins(guard.call("set", [G, KEY], token, "redis:a", "w"), "OOM")
    expect(guard.call("show", [G]), [b"5", b"redis:a"])
    expect(guard.call("raise", [G], 7, "redis:a"), b"7")
    expect(guard.call("del", [G, KEY], 8, "redis:a"), 1)
    expect(guard.call("check", [G], 8, ""), b"8")
    expect(guard.call("reset", [G], 1, "redis:b"), b"OK")
    expect(guard.call("show", [G]), [b"1", b"redis:b"])


@on_both()
def failed_write(t, server, guard):
    """if the write fails the guard is as it was"""
    server.cli("SET", KEY, "text")
    wrong = "WRONGTYPE"
    begins(guard.call("hset", [G, KEY], 5, "redis:a", "f", "v"), wrong)
    expect(guard.call("show", [G]), [b"0", b""])
    expect(server.cli("KEYS", "*"), KEY)
    guard.call("raise", [G], 6, "")
    begins(guard.call("hset", [G, KEY], 7, "redis:a", "f", "v"), wrong)
    begins(guard.call("hset", [G, KEY], 6, "", "f", "v"), wrong)
    expect(guard.call("show", [G]), [b"6", b""])
    server.cli("SET", "stile:guard:{b}", "no guard")
    for call in (("set", ["stile:guard:{b}", "b"], 5, "", "v"), ("show", ["stile:guard:{b}"]),
                 ("raise", ["stile:guard:{b}"], 5, ""), ("reset", ["stile:guard:{b}"], 5, "")):
        begins(guard.call(*call), wrong)
    expect(server.cli("EXISTS", "b"), "0")


@on_both()
def misuse(t, server, guard):
    """keys that are no guard's, too few arguments, too many: refused before anything is written"""
    calls = {"set": (5, "", "v"), "hset": (5, "", "f", "v"), "del": (5, ""),
             "run": (5, "", 3, "SET", KEY, "v"), "raise": (5, ""), "check": (5, ""), "show": (),
             "reset": (5, "")}
    for name, args in calls.items():
        for first in (KEY, "stile:guard:accounts", "stile:guard:{}", "stile:guard:{x}accounts",
                      "stile:guard:{accounts}accounts", "stile:guard:{accounts}x", "", "stile:guard:"):
            begins(guard.call(name, [first, KEY], *args), "BADCALL", "stile:guard:{accounts}")
        begins(guard.call(name, [], *args), "BADCALL")
        if args:
            begins(guard.call(name, [G, KEY], *args[:-1]), "BADCALL")
            begins(guard.call(name, [G, KEY], 5, "i" * 601, *args[2:]), "BADCALL", "600")
            begins(guard.call(name, [G, KEY], 5, "a\nb", *args[2:]), "BADCALL", "control")
    for name in ("set", "hset", "del"):
        for keys in ([G], [G, G], [G, "stile:cell:{accounts}"]) + (
                () if name == "del" else ([G, KEY, "{accounts}:2"],)):
            begins(guard.call(name, keys, *calls[name]), "BADCALL")
    guard.call("raise", [G], 5, "")
    begins(guard.call("set", [G, G], 5, "", "v"), "BADCALL", "a key of stile")
    begins(guard.call("hset", [G, KEY], 6, "", *["x"] * 8000), "BADCALL", "too many")
    begins(guard.call("del", [G, *[KEY] * 8000], 6, ""), "BADCALL", "too many")
    expect(server.cli("KEYS", "*"), G)
    expect(guard.call("show", [G]), [b"5", b""])


if __name__ == "__main__":
    run_tests([*rule, *strict, *raised_before_reading, *issuers, *large_tokens, *malformed_tokens,
               *reset, *options_of_set, *removed, *expired, *killed, *full, *failed_write, *misuse])
