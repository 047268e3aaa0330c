# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Two guarded transactions in every order of their steps, at every isolation level.

Each takes a snapshot or not, calls the guard, reads, adds a row, which conflicts with nothing, and ends.
The first one calls stile.guard(), the second one stile.fence().
A step that waits for a lock is answered when the other transaction has ended. In every order:

- once a token has passed, no transaction with a smaller one commits;
- what has passed reads what smaller tokens have committed; unless its snapshot was older, and it asked
  for that snapshot itself;
- the guard remembers the largest token that was committed.
"""
import itertools
import os

import psycopg2

from postgres_guard_kit import (SERIALIZATION, STALE, Session, connect, expect, on_database, passes,
                                run, run_tests, seen)

LEVELS = "read committed", "repeatable read", "serializable"
# What was seen before, and the tokens of both.
TOKENS = ((None, 5, 5), (None, 5, 6), (None, 6, 5), (5, 5, 5), (5, 5, 6), (5, 6, 5), (5, 6, 6), (5, 6, 7))
SAMPLE = 1 if os.environ.get("STILE_SOAK") else 8  # of the orders with snapshots, one in so many


class Violation(AssertionError):
    pass


class Actor:
    """One of the two transactions. commit: how it ends; early: it takes a snapshot first."""

    def __init__(self, session):
        self.session = session

    def begin(self, name, token, level, early, commit):
        self.name, self.token, self.early, self.level = name, token, early, level
        begin = "begin isolation level %s; " % level
        guard = ("select stile.guard('x', %d)" if name == "A" else "call stile.fence('x', %d, '')") % token
        self.steps = [("read", begin + "select max(v) from doc"), ("guard", guard)] if early else [
            ("guard", begin + guard)]
        self.steps += [("write", "insert into doc select %d, max(v) from doc returning old" % token),
                       ("end", "commit" if commit else "rollback")]
        self.waits = self.failed = self.passed = self.committed = False

    def step(self):
        """False: it waits."""
        kind, text = self.steps.pop(0)
        self.kind = kind
        if self.failed:
            if kind != "end":
                return True
            text = "rollback"
        try:
            self.waits = not self.session.send(text)
            return not self.waits
        except psycopg2.Error as error:
            self._fail(error)
            return True

    def finish(self):
        """The answer to what has waited."""
        self.waits = False
        try:
            self.session.answer()
        except psycopg2.Error as error:
            self._fail(error)

    def _fail(self, error):
        if error.pgcode not in (STALE, SERIALIZATION):
            raise error
        self.failed, self.passed = True, False


class Story:
    """What has happened so far."""

    def __init__(self, actors):
        self.actors, self.value = actors, 0

    def note(self, actor):
        """Its step was answered."""
        other = self.actors[1 - self.actors.index(actor)]
        if actor.failed:
            return
        if actor.kind == "guard":
            actor.passed = True
        elif actor.kind == "write":
            fresh = actor.level == LEVELS[0] or not actor.early
            if fresh and actor.session.value() != self.value and self.value != actor.token:
                raise Violation("%s has not read what was written before" % actor.name)
        elif actor.session.cursor.statusmessage != "COMMIT":
            actor.passed = False
        else:
            if other.passed and other.token > actor.token:
                raise Violation("%s commits after %s has passed" % (actor.name, other.name))
            actor.committed, self.value = True, actor.token


def play(actors, order):
    """Both transactions, whose next steps are in this order as far as they can be."""
    story, order = Story(actors), list(order)
    while any(actor.steps for actor in actors):
        n = order.pop(0) if order else 0
        if actors[n].waits or not actors[n].steps:
            n = 1 - n
        actor, other = actors[n], actors[1 - n]
        if actor.waits or not actor.steps:
            raise Violation("%s waits for nothing" % other.name)
        if actor.step():
            story.note(actor)
            if not actor.steps and other.waits:
                other.finish()
                story.note(other)
    return story


def orders(actors):
    """All orders of their steps."""
    lengths = [len(actor.steps) for actor in actors]
    for first in itertools.combinations(range(sum(lengths)), lengths[0]):
        yield [0 if i in first else 1 for i in range(sum(lengths))]


def cases(levels):
    """(tokens, which take a snapshot first, how the first one ends)"""
    snapshots = (False, True)
    for tokens, one, two, commit in itertools.product(TOKENS, snapshots, snapshots, (True, False)):
        if not (one and levels[0] == LEVELS[0]) and not (two and levels[1] == LEVELS[0]):
            yield tokens, (one, two), commit


def explore(server, levels):
    look, setup = connect(server).cursor(), connect(server).cursor()
    setup.execute("create table doc (v int, old int)")
    actors = [Actor(Session(server, look)) for _ in range(2)]
    played = passed = 0
    for (before, *tokens), early, commit in cases(levels):
        def begin():
            for i, actor in enumerate(actors):
                actor.begin("AB"[i], tokens[i], levels[i], early[i], commit or i)
        begin()
        for n, order in enumerate(list(orders(actors))):
            if any(early) and n % SAMPLE:
                continue
            setup.execute("delete from stile.guarded; truncate doc; insert into doc values (0)")
            if before:
                expect(passes(setup, "x", before), None)
            begin()
            what = (levels, before, tokens, early, commit, order)
            try:
                story = play(actors, order)
            except Violation as why:
                raise Violation("%s: %s" % (why, what)) from why
            done = [actor.token for actor in actors if actor.committed]
            expect(run(setup, "select max(v) from doc"), story.value, what)
            expect((seen(setup, "x") or (0,))[0], max(done + [before or 0]), what)
            played, passed = played + 1, passed + len(done)
    print("# %d orders, %d commits" % (played, passed))
    assert passed > played / 2, "hardly any transaction has passed"


@on_database
def read_committed(_, server):
    """read committed: both in every order"""
    explore(server, (LEVELS[0], LEVELS[0]))


@on_database
def repeatable_read(_, server):
    """repeatable read: both in every order"""
    explore(server, (LEVELS[1], LEVELS[1]))


@on_database
def serializable(_, server):
    """serializable: both in every order"""
    explore(server, (LEVELS[2], LEVELS[2]))


@on_database
def mixed(_, server):
    """read committed and repeatable read: both in every order"""
    explore(server, (LEVELS[0], LEVELS[1]))


# ---- old snapshots ----

@on_database
def old_snapshots_and_removal(_, server):
    """A snapshot from before a removal, a prune or a reset does not let an old token pass"""
    setup = connect(server).cursor()
    for level in LEVELS[1:]:
        for change in ("select stile.guard('x', 9, 'a:b')",
                       "select stile.guard('x', 9, 'a:b'); select stile.guard_remove('x')",
                       "select stile.guard('x', 9, 'a:b'); select stile.guard_remove('x'); "
                       "select stile.guard_prune('0')",
                       "select stile.guard_reset('x', 9, 'a:b')"):
            for before in None, 4, 5:
                setup.execute("delete from stile.guarded; delete from stile.guard_floor")
                if before:
                    expect(passes(setup, "x", before, "a:b"), None)
                old = connect(server).cursor()
                old.execute("begin isolation level %s; select 1 from stile.guarded" % level)
                for text in change.split(";"):
                    setup.execute(text)
                refused = run(old, "select stile.guard('x', 5, 'a:b')")
                assert refused in (SERIALIZATION, STALE), (level, change, before, refused)
                old.connection.close()
                expect(passes(setup, "x", 8, "a:b"), STALE)


# ---- waiting ----

def answer_of(session):
    """The SQLSTATE of what has waited, or None."""
    try:
        session.answer()
    except psycopg2.Error as error:
        return error.pgcode
    return None


@on_database
def savepoints(_, server):
    """A guard that is rolled back to a savepoint lets others pass; one before it does not"""
    look, other = connect(server).cursor(), connect(server).cursor()
    expect(passes(other, "x", 5), None)
    session = Session(server, look)
    session.send("begin; savepoint s; select stile.guard('x', 7); rollback to s")
    expect(passes(other, "x", 6), None)
    session.send("select 1; rollback; begin; select stile.guard('x', 7); savepoint s; "
                 "select stile.guard('y', 1); rollback to s")
    expect(passes(other, "y", 2), None)
    waiting = Session(server, look)
    expect(waiting.send("begin; select stile.guard('x', 6)"), False)
    session.send("commit")
    expect(answer_of(waiting), STALE)
    expect(seen(other, "x"), (7, ""))


@on_database
def holders_share(_, server):
    """Transactions with the same token don't wait for each other, and a larger one waits for all"""
    look = connect(server).cursor()
    holders = [Session(server, look) for _ in range(3)]
    expect(passes(look, "x", 5), None)
    for holder in holders:
        expect(holder.send("begin; select stile.guard('x', 5)"), True)
    next_one = Session(server, look)
    expect(next_one.send("begin; select stile.guard('x', 6)"), False)
    for holder in holders:
        expect(holder.send("select stile.guard('x', 5)"), True)  # what it has, it keeps
        expect(next_one.waits(), True)
        holder.send("commit")
    next_one.answer()
    next_one.send("commit")
    expect(seen(look, "x"), (6, ""))


@on_database
def no_starvation(_, server):
    """While a larger token waits, transactions with the old one queue behind it"""
    look = connect(server).cursor()
    expect(passes(look, "x", 5), None)
    first, larger, second = (Session(server, look) for _ in range(3))
    expect(first.send("begin; select stile.guard('x', 5)"), True)
    expect(larger.send("begin; select stile.guard('x', 6)"), False)
    expect(second.send("begin; select stile.guard('x', 5)"), False)
    first.send("commit")
    larger.answer()
    larger.send("commit")
    expect(answer_of(second), STALE)


run_tests([read_committed, repeatable_read, serializable, mixed, old_snapshots_and_removal, savepoints,
           holders_share, no_starvation])
