# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""stile crdt on local:, as a person or a script uses it."""
import json

from kit import expect, run_tests

PROCESSES, ADDS = 6, 5


def crdt(t, *words):
    done = t.stile("crdt", *words)
    expect((done.returncode, done.stderr), (0, ""))
    return done.stdout


def counters(t):
    """a counter starts at 0, goes up and down, and prints its value"""
    expect(crdt(t, "counter", "get", "hits"), "0\n")
    expect(t.stile("cell", "get", "hits").returncode, 1)  # reading writes nothing
    expect(crdt(t, "counter", "add", "hits"), "1\n")
    expect(crdt(t, "counter", "add", "hits", "41"), "42\n")
    expect(crdt(t, "counter", "add", "hits", "-50"), "-8\n")
    expect(crdt(t, "counter", "add", "hits", "--", "-50"), "-58\n")
    expect(crdt(t, "counter", "add", "hits", "50"), "-8\n")
    expect(json.loads(crdt(t, "counter", "get", "--json", "hits")), {"key": "hits", "value": -8})
    expect(json.loads(crdt(t, "counter", "add", "--json", "hits", "8")), {"key": "hits", "value": 0})


def counters_of_one_host_stay_small(t):
    """each add from one host needs no more room than the first"""
    sizes = []
    for _ in range(12):
        crdt(t, "counter", "add", "hits")
        sizes.append(json.loads(t.stile("cell", "get", "--json", "hits").stdout)["size"])
    expect(len(set(sizes)), 1, sizes)


def sets(t):
    """elements are added and removed by the dozen, and listed in byte order"""
    expect(crdt(t, "set", "ls", "tags"), "")
    expect(crdt(t, "set", "add", "tags", "red", "blue", "two words"), "")
    expect(crdt(t, "set", "add", "tags", "red"), "")
    expect(crdt(t, "set", "rm", "tags", "blue", "absent"), "")
    expect(crdt(t, "set", "ls", "tags"), "red\ntwo words\n")
    seen = json.loads(crdt(t, "set", "rm", "--json", "tags", "red"))
    expect(seen, {"key": "tags", "elements": [{"element": "two words"}]})


def odd_elements(t):
    """a line break is escaped, bytes that are not UTF-8 are hex in JSON"""
    crdt(t, "set", "add", "tags", "a\nb", b"\xff".decode(errors="surrogateescape"))
    expect(crdt(t, "set", "ls", "tags"), "a\\x0ab\n\\xff\n")
    seen = json.loads(crdt(t, "set", "ls", "--json", "tags"))["elements"]
    expect(seen, [{"element": "a\nb"}, {"element": "\ufffd", "element_hex": "ff"}])
    # Of another program, with a NUL in it.
    replica = "\0" * 15 + "r"
    t.stile("cell", "put", "nul", input="SC\1\3\1" + replica + "\1\1\3x\0y\1\0\1")
    expect(crdt(t, "set", "ls", "nul"), "x\\x00y\n")
    expect(json.loads(crdt(t, "set", "ls", "--json", "nul"))["elements"], [{"element_hex": "780079"}])


def together(t):
    """processes that count at the same time lose nothing, without a lock"""
    script = 'i=0; while [ $i -lt %d ]; do "$STILE" crdt counter add hits >&2 || exit; i=$((i+1)); done' % ADDS
    running = [t.start("run", "own-%d" % i, "--", "sh", "-c", script) for i in range(PROCESSES)]
    for process in running:
        expect(process.wait(), 0)
    expect(crdt(t, "counter", "get", "hits"), "%d\n" % (PROCESSES * ADDS))


def refusals(t):
    """another kind, another content, a number that is none, and verbs that are not there"""
    def refused(code, text, *words):
        done = t.stile("crdt", *words)
        expect((done.returncode, done.stdout), (code, ""))
        assert text in done.stderr, done.stderr
    crdt(t, "set", "add", "tags", "red")
    refused(64, "another kind: a set, not a counter", "counter", "add", "tags")
    t.stile("cell", "put", "plain", input="text")
    refused(69, "it does not begin like one", "counter", "get", "plain")
    refused(64, "1x: not a whole number", "counter", "add", "hits", "1x")
    refused(64, "9223372036854775808: not a whole number", "counter", "add", "hits", "9223372036854775808")
    refused(64, "crdt set lss: no such verb; did you mean stile crdt set ls?", "set", "lss", "tags")
    refused(64, "crdt counter: no such verb", "counter")
    refused(64, "crdt: no verb given", )
    refused(64, "missing", "set", "add", "tags")
    for words in ("--help",), ("set", "--help"):
        assert "stile crdt counter add" in crdt(t, *words)


run_tests([counters, counters_of_one_host_stay_small, sets, odd_elements, together, refusals])
