# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Poolers in front of a PostgreSQL that mix up the answers of their clients."""
import subprocess

from postgres_kit import on_server, use
from kit import expect, run_tests, spin
from mixer import Mixer


def mixing(t, server, words, mode="?mode=table"):
    mixer = Mixer(server.port, words)
    use(t, server, "postgres://postgres@127.0.0.1:%d/postgres%s" % (mixer.port, mode))
    return mixer


@on_server()
def anothers_grant(t, server):
    """mode=table: the answer to another client's claim is not taken for a grant"""
    with mixing(t, server, b"table_claim") as mixer:
        expect(t.stile("run", "--try", "y", "--", "true").returncode, 0)
        direct = dict(t.env)
        use(t, server, server.url + "?mode=table")
        held = t.hold("x", "--ttl", "60s")
        t.env = direct
        mixer.mixing = True
        done = t.stile("run", "--try", "x", "--", "true")
        expect((done.returncode, mixer.mixed), (69, 1), done.stderr)
        assert "another client's answer" in done.stderr, done.stderr
        mixer.mixing = True
        waiting = t.start("run", "--wait", "60s", "x", "--", "sh", "-c", "echo $STILE_TOKEN")
        t.release(held)
        assert int(waiting.line()) > 1
        expect(waiting.wait(), 0)
    expect(server.sql("select count(*) from stile.claim"), "0")


@on_server()
def anothers_error(t, server):
    """mode=table: another client's error is not taken for the answer to a claim"""
    with mixing(t, server, b"table_claim") as mixer:
        server.sql("alter function stile.table_claim rename to gone")
        expect(t.stile("run", "--try", "y", "--", "true").returncode, 69)
        assert mixer.kept[:1] == b"E", mixer.kept
        server.sql("alter function stile.gone rename to table_claim")
        mixer.mixing = True
        done = t.stile("run", "--wait", "60s", "x", "--", "true")
        expect((done.returncode, mixer.mixed), (0, 1), done.stderr)


@on_server()
def anothers_renewal(t, server):
    """mode=table: the answer to another client's renewal neither renews a lock nor loses it"""
    with mixing(t, server, b"table_renew") as mixer:
        mixer.kept = b""
        first = t.hold("y", "--ttl", "2s")
        spin(lambda: mixer.kept)
        mixer.mixing = True
        second = t.hold("x", "--ttl", "2s")
        spin(lambda: mixer.mixed == 1)
        for held in first, second:
            expect(held.process.poll(), None)
            t.release(held)


@on_server()
def anothers_job(t, server):
    """jobs: the answer to another worker's claim is no job"""
    with mixing(t, server, b"job_claim") as mixer:
        work = "jobs", "work", "--once", "q", "--", "cat"
        expect(t.stile("jobs", "add", "q", input="one").returncode, 0)
        done = t.stile(*work)
        expect((done.returncode, done.stdout), (0, "one"), done.stderr)
        expect(t.stile("jobs", "add", "q", input="two").returncode, 0)
        mixer.mixing = True
        done = t.stile(*work)
        assert "one" not in done.stdout, done.stdout
        expect(mixer.mixed, 1)


@on_server()
def one_at_a_time(t, server):
    """Through a pooler one request is under way, however many locks a client has"""
    names = ["n%d" % i for i in range(40)]
    with mixing(t, server, b"-") as mixer:
        held = t.start("run", "--ttl", "3s", *names, "--", "sh", "-c", "echo in; read line; true",
                       stdin=subprocess.PIPE)
        expect(held.line(), "in")
        held.process.stdin.close()
        expect(held.wait(), 0)
        expect(mixer.most, 1)


run_tests([anothers_grant, anothers_error, anothers_renewal, anothers_job, one_at_a_time])
