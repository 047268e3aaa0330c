# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Cells in an etcd: what etcdctl sees and does, what others may have put there, how many requests they
take, and what becomes of a write whose answer is lost."""
import json
import urllib.request

from cells_kit import Cells
from cluster_kit import expect, spin
from etcd_fault_kit import enable_auth, on_server, revision_of, text64, use
from kit import PATIENCE, run_tests
from wire import DOWN, UP, Wire


def key_of(name="x", part="", prefix=""):
    return prefix + "\1stile/cell/" + name + ("\1" + part if part else "")


def value_of(server, *key):
    return server.ctl("get", "--print-value-only", key_of(*key)).rstrip("\n")


def put_bytes(server, key, value):
    """More than fits on a command line."""
    request = {"key": text64(key), "value": text64(value)}
    urllib.request.urlopen(server.members[0].client_url + "/v3/kv/put", json.dumps(request).encode(),
                           timeout=PATIENCE).close()


# ---- by hand ----

@on_server()
def by_hand(t, server):
    """etcdctl reads a cell and its guard, writes a cell, and deletes it"""
    use(t, server.url + "/some/")
    with Cells(t) as cells:
        version = cells.put("a b", "hello", token=34, issuer="redis:orders")
        expect(server.ctl("get", key_of("a b", prefix="some/")), "%s\nhello" % key_of("a b", prefix="some/"))
        expect(value_of(server, "a b", "token", "some/"), "%019d" % 34)
        expect(value_of(server, "a b", "issuer", "some/"), "redis:orders")
        expect(version, revision_of(server))
        server.ctl("put", key_of("a b", prefix="some/"), "by hand")
        found = cells.get("a b")
        expect((found.version, found.token, found.rest), (version + 1, 34, "by hand"))
        cells.refuse("CONFLICT", "put", "a b", "late", version=version, token=34)
        server.ctl("del", key_of("a b", prefix="some/"))
        expect(cells.get("a b").version, 0)
        cells.refuse("STALE", "put", "a b", "stale", token=33)


@on_server()
def watched_by_hand(t, server):
    """A watch reports what etcdctl changes, the guard included"""
    with Cells(t) as cells:
        cells.ask("watch", "x")
        expect(cells.answer().version, 0)
        server.ctl("put", key_of(), "one")
        expect(cells.answer().rest, "one")
        server.ctl("put", key_of("x", "token"), "%019d" % 7)
        expect(cells.answer().token, 7)
        server.ctl("put", key_of("x y"), "of another cell")
        server.ctl("put", key_of(), "end")
        expect(cells.answer().rest, "end")
        expect(cells.answer().status, "OK")


@on_server()
def unseen(t, server):
    """Cells are no locks, for ls, for `etcdctl lock`, and for every dialect"""
    for dialect in "mutex", "rwmutex", "etcd3":
        use(t, server.url + "?dialect=" + dialect)
        with Cells(t) as cells:
            for name in "x", "1a2b3c4d5e6f7081", "a/1a2b3c4d5e6f7081", "a/read", "%25":
                version = cells.put(name, dialect, token=5)
                expect(server.ctl("lock", name, "true"), "")
                expect(t.stile("run", "--try", name, "--", "true").returncode, 0)
                expect(cells.get(name).version, version)
        expect(json.loads(t.stile("ls", "--json").stdout), [])


# ---- how many requests ----

def requests(server):
    member = server.members[0]
    return int(member.executed("Txn") + member.executed("Range"))


@on_server()
def one_round_trip(t, server):
    """A write with a version or with the token before is one request, a larger token needs two"""
    with Cells(t) as cells:
        def costs(wanted, *words, **named):
            before = requests(server)
            answer = cells.expect_ok(cells.tell(*words, **named))
            expect(requests(server) - before, wanted, "%s %s" % (words, named))
            return answer.version
        version = costs(1, "put", "x", "created", version=0)
        version = costs(1, "put", "x", "replaced", version=version)
        costs(1, "put", "x", "any")
        costs(1, "remove", "x")
        costs(2, "put", "x", "first token", token=5, issuer="i")
        costs(1, "put", "x", "the same", token=5, issuer="i")
        costs(1, "put", "x", "the same", token=5)
        costs(2, "put", "x", "larger", token=6, issuer="i")
        costs(1, "put", "x", "the same", token=6, issuer="i")
        costs(2, "raise", "x", token=7)
        costs(1, "raise", "x", token=7, issuer="i")
        costs(1, "get", "x")
        before = requests(server)
        cells.refuse("STALE", "put", "x", "late", token=6)
        cells.refuse("FOREIGN", "put", "x", "other", token=8, issuer="j")
        expect(requests(server) - before, 2)


# ---- what others have put there ----

NO_TOKENS = ["", "7", "seven", "%018d" % 7, "%020d" % 7, "%019d\n" % 7, "%019d" % 0, "9" * 19,
             "-" + "0" * 17 + "7", " " * 19, "\x01"]
NO_ISSUERS = ["", "x" * 601, "two\nlines"]


def state_of(server):
    return server.ctl("get", "--prefix", key_of(""))


def expect_corrupt(server, cells):
    before, larger = state_of(server), ("token=9", "issuer=i")
    for words in ("get", "x"), ("list", ""), ("put", "x", "y", *larger), ("put", "x", "y", *larger, "strict"), \
            ("remove", "x", *larger), ("raise", "x", *larger):
        said = cells.refuse("CORRUPT", *words).rest
        assert "guard reset" in said, said
    expect(state_of(server), before)


@on_server()
def no_tokens(t, server):
    """What is no token in a guard is not taken for one, until it is reset"""
    with Cells(t) as cells:
        for strange in NO_TOKENS:
            cells.expect_ok(cells.tell("reset", "x"))
            cells.put("x", "here")
            put_bytes(server, key_of("x", "token"), strange)
            expect_corrupt(server, cells)
            cells.refuse("CORRUPT", "put", "x", "without a token")
            cells.expect_ok(cells.tell("reset", "x", token=5))
            expect(cells.get("x").token, 5)


@on_server()
def no_issuers(t, server):
    """Nor is what is no issuer"""
    with Cells(t) as cells:
        for strange in NO_ISSUERS:
            cells.expect_ok(cells.tell("reset", "x", token=5, issuer="i"))
            cells.put("x", "here", token=5)
            put_bytes(server, key_of("x", "issuer"), strange)
            expect_corrupt(server, cells)


@on_server(1, "--max-request-bytes", "9000000")
def large(t, server):
    """Values that are too large for a cell are reported, and do no harm to others"""
    with Cells(t) as cells:
        for name in "abcdefghi":
            put_bytes(server, key_of(name), "x" * 1000000)
            cells.put(name + "!", "small", token=3)
        cells.put("j", "y" * 65536)
        expect(cells.list(), [pair for name in "abcdefghi" for pair in ((name, 1000000), (name + "!", 5))]
               + [("j", 65536)])
        said = cells.refuse("CORRUPT", "get", "e").rest
        assert "1000000 bytes" in said, said
        cells.put("e", "replaced")
        expect(cells.get("e").rest, "replaced")
        put_bytes(server, key_of("e"), "x" * 5000000)
        for words in ("get", "e"), ("list", "e"):
            said = cells.refuse("CORRUPT", *words).rest
            assert "megabytes" in said, said
        cells.expect_ok(cells.tell("remove", "e"))
        expect(cells.get("e").version, 0)


@on_server()
def other_keys(t, server):
    """Keys between those of cells are of no cell; a list of many pages has each cell once, in order"""
    with Cells(t) as cells:
        names = sorted("n%03d%s" % (i, "/" if i % 3 else "") for i in range(150))
        for name in names:
            cells.put(name, "abc", token=1, issuer="i")
        for i in range(60):
            cells.put("gone%d" % i, "x", token=1)
            cells.expect_ok(cells.tell("remove", "gone%d" % i, token=1))
        for strange in "n001\1", "n001\1other", "n001\1token\1", "n001\2", "", "\1token", "n" * 600, "n\x7f":
            server.ctl("put", key_of(strange), "nobody's")
        expect(cells.list(), [(name, 3) for name in names])
        expect(cells.list("n14"), [(name, 3) for name in names if name.startswith("n14")])


# ---- roles ----

@on_server()
def denied(t, server):
    """A role for the locks alone: refused, with the words that grant it, which are right"""
    enable_auth(server, "p/x/")
    root = ["--user", "root:rootpw"]
    use(t, "etcd://worker:pw@%s/p/" % server.hosts)
    with Cells(t) as cells:
        for words in ("get", "x"), ("put", "x", "y"), ("put", "x", "y", "token=4"), ("remove", "x"), \
                ("raise", "x", "token=4"), ("reset", "x"), ("list", ""), ("watch", "x"):
            said = cells.refuse("REFUSED", *words).rest
            assert "--prefix=true readwrite $'p/\\x01stile/'" in said, said
        expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)
        server.ctl(*root, "role", "grant-permission", "locks", "--prefix=true", "readwrite", "p/\1stile/")
        cells.put("x", "allowed", token=4, issuer="i")
        cells.expect_ok(cells.tell("remove", "x", token=5))
        expect(cells.list(), [])


# ---- requests and answers that are lost ----

def lose(wire, way, cells, on_its_way, *words, **named):
    """What is asked for, or its answer, is lost with its connection. There is another one afterwards."""
    wire.fail(way)
    cells.ask(*words, **named)
    spin(on_its_way)
    wire.cut()
    wire.heal()
    said = cells.answer()
    spin(lambda: cells.tell("get", "x").status == "OK")
    return said


@on_server()
def answer_lost(t, server):
    """A write whose answer is lost is UNCERTAIN and happened once; its repetition is a CONFLICT"""
    with Wire(server.members[0].port) as wire, Cells(t, "etcd://127.0.0.1:%d" % wire.port) as cells:
        version = cells.put("x", "before")
        said = lose(wire, DOWN, cells, lambda: value_of(server) == "after",
                    "put", "x", "after", version=version)
        expect(said.status, "UNCERTAIN", said.rest)
        expect(cells.refuse("CONFLICT", "put", "x", "again", version=version).version, revision_of(server))
        expect(cells.get("x").rest, "after")
        cells.put("x", "guarded", token=7)
        said = lose(wire, DOWN, cells, lambda: value_of(server) == "once", "put", "x", "once", token=7)
        expect(said.status, "UNCERTAIN", said.rest)
        said = lose(wire, DOWN, cells, lambda: value_of(server) == "", "remove", "x", token=7)
        expect(said.status, "UNCERTAIN", said.rest)
        found = cells.get("x")
        expect((found.version, found.token), (0, 7))


@on_server()
def guess_lost(t, server):
    """A raise that was still reading has changed nothing, and says so"""
    with Wire(server.members[0].port) as wire, Cells(t, "etcd://127.0.0.1:%d" % wire.port) as cells:
        cells.put("x", "guarded", token=7)
        before = requests(server)
        said = lose(wire, DOWN, cells, lambda: requests(server) > before, "raise", "x", token=8)
        expect(said.status, "UNREACHABLE", said.rest)
        expect(cells.get("x").token, 7)


@on_server()
def request_lost(t, server):
    """A write that was lost on its way is UNCERTAIN, too; without a server it is UNREACHABLE"""
    with Wire(server.members[0].port) as wire, Cells(t, "etcd://127.0.0.1:%d" % wire.port) as cells:
        version = cells.put("x", "before")

        def is_on_its_way():
            return any(b"lost on its way" in way.kept for link in wire.links for way in link.ways.values())
        said = lose(wire, UP, cells, is_on_its_way, "put", "x", "lost on its way")
        expect(said.status, "UNCERTAIN", said.rest)
        expect(cells.get("x").version, version)
        server.kill()
        for words in ("get", "x"), ("put", "x", "nobody is there"), ("raise", "x", "token=3"), ("list", ""):
            cells.refuse("UNREACHABLE", *words)
        server.restart()
        spin(lambda: cells.tell("get", "x").status == "OK")
        expect(cells.get("x").version, version)


# ---- cells with an end ----

PARTS = "", "token", "issuer"


def leases(server):
    lines = server.ctl("lease", "list").splitlines()
    return lines[1:]


def bound_to(server, name="x"):
    """The leases of its keys, 0: none."""
    found = []
    for part in PARTS:
        kvs = json.loads(server.ctl("get", "-w", "json", key_of(name, part))).get("kvs", [])
        found += [kv.get("lease", 0) for kv in kvs]
    return found


@on_server()
def bound(t, server):
    """All keys of a cell with an end have one lease; the last put counts, and old leases are revoked"""
    with Cells(t) as cells:
        cells.put("x", "permanent", token=5, issuer="redis:x")
        expect(bound_to(server), [0, 0, 0])
        for words in {"token": 5}, {"token": 5, "issuer": "redis:x"}, {"token": 6}:
            cells.put("x", "kept", keep=3600000, **words)
            own, = set(bound_to(server))
            assert own, own
            spin(lambda: len(leases(server)) == 1)
        cells.expect_ok(cells.tell("raise", "x", token=7))
        cells.expect_ok(cells.tell("remove", "x", token=8))
        expect(bound_to(server), [own, own])
        cells.expect_ok(cells.tell("reset", "x", token=2, issuer="etcd:x"))
        expect(bound_to(server), [own, own])
        cells.put("x", "permanent again", token=2)
        expect(bound_to(server), [0, 0, 0])
        spin(lambda: leases(server) == [])
        expect(cells.get("x")[2:], (2, "etcd:x", "permanent again"))


@on_server()
def bound_later(t, server):
    """A guard that is raised after the put ends with the cell; a refused put leaves no lease"""
    with Cells(t) as cells:
        version = cells.put("x", "kept", keep=3600000)
        cells.refuse("CONFLICT", "put", "x", "late", version=version + 1, keep=3600000)
        cells.expect_ok(cells.tell("raise", "x", token=7, issuer="redis:x"))
        cells.refuse("STALE", "put", "x", "late", token=6, keep=3600000)
        spin(lambda: len(leases(server)) == 1)
        lease, = set(bound_to(server))
        server.ctl("lease", "revoke", "%x" % lease)
        expect(cells.get("x"), ("OK", 0, 0, "", ""))
        expect(cells.put("x", "new", token=1) > version, True)


@on_server()
def unbound_by_hand(t, server):
    """A value that etcdctl has put has lost its end: the next write frees the guard from it, too"""
    with Cells(t) as cells:
        cells.put("x", "kept", token=5, keep=3600000)
        server.ctl("put", key_of(), "by hand")
        cells.put("x", "permanent", token=5)
        expect(bound_to(server), [0, 0])


@on_server()
def ends_survive(t, server):
    """kill -9 of the server: a cell with an end is there until then, and not after"""
    with Cells(t) as cells:
        version = cells.put("x", "kept", token=5, keep=3600000)
        brief = cells.put("y", "kept", keep=1)
        server.kill()
        server.restart()
        spin(lambda: cells.tell("get", "x").status == "OK")
        expect(cells.get("x"), ("OK", version, 5, "", "kept"))
        spin(lambda: cells.get("y").version == 0)
        assert cells.put("y", "again", keep=3600000) > brief


run_tests([by_hand, watched_by_hand, unseen, one_round_trip, no_tokens, no_issuers, large, other_keys, denied,
           answer_lost, guess_lost, request_lost, bound, bound_later, unbound_by_hand, ends_survive])
