# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""mode=row of mysql in trouble: sessions that are killed, servers that crash, holders that are killed
or stopped, rows that others have locked, answers that are lost."""
import json
import os
import signal

import MySQLdb

from mysql_kit import lost, on_server, refused, token_of, use, wait_for
import sql_scenes
from cutter import Cutter
from kit import expect, run_tests, spin

ALIVE = ("select backend from stile_row_claim where held and "
         "is_used_lock(concat('stile row ', backend)) <=> backend")

holder_is_stopped = on_server(mode="row")(sql_scenes.holder_is_stopped)


@on_server(mode="row")
def session_is_killed(t, server):
    """KILL: the holder is notified at once, whether it had to wait or not; a waiter asks again"""
    held = t.hold("x", "--ttl", "60s")
    server.sql("kill " + server.sql(ALIVE))
    lost(held)
    first = t.hold("x", "--ttl", "60s")
    waiting = t.start("run", "--ttl", "60s", "x", "--", "sh", "-c", "echo in; sleep 100")
    watched = t.watch("x")
    t.until(watched, lambda change: len(change["waiters"]) == 1)
    server.sql("kill " + server.sql("select id from information_schema.processlist where info like "
                                    "'%stile\\_row WHERE name%' and id <> connection_id()"))
    t.release(first)
    expect(waiting.line(), "in")
    server.sql("kill " + server.sql(ALIVE))
    lost(waiting)


@on_server(mode="row")
def server_crashes(t, server):
    """A crash right after a grant: the holder is notified, and the next token is larger"""
    held = t.hold("x", "--ttl", "60s")
    token = t.show("x")["token"]
    server.kill()
    lost(held)
    server.restart()
    assert token_of(t) > token


@on_server(mode="row")
def holder_is_killed(t, server):
    """kill -9: the next one runs at once, and no token is taken back by the rollback"""
    held = t.hold("x", "--ttl", "60s")
    waiting = wait_for(t)
    os.kill(t.guard(held.warden()), signal.SIGKILL)  # it has the session
    expect(waiting.line(), "2")
    expect(waiting.wait(), 0)
    expect(token_of(t), 3)


@on_server(mode="row")
def plain_transactions(t, server):
    """Anybody's SELECT ... FOR UPDATE on the row excludes with ours, for as long as it likes"""
    token_of(t)
    session = MySQLdb.connect(host="127.0.0.1", port=server.port, user="root", passwd="",
                              db="tests")
    cursor = session.cursor()
    cursor.execute("set innodb_lock_wait_timeout = 1")
    cursor.execute("select * from stile_row where name = 'x' for update")
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
    waiting = t.start("run", "x", "--", "sh", "-c", "echo $STILE_TOKEN")
    waits = "select variable_value from information_schema.global_status where " \
            "variable_name = 'innodb_row_lock_waits'"
    spin(lambda: int(server.sql(waits)) >= 3)  # a second each
    session.rollback()
    expect(waiting.line(), "2")
    expect(waiting.wait(), 0)
    held = t.hold("x")
    try:
        cursor.execute("select * from stile_row where name = 'x' for update")
        raise AssertionError("they have what we hold")
    except MySQLdb.Error as error:
        expect(error.args[0], 1205)
    t.release(held)
    session.close()


@on_server(mode="row")
def busy_without_a_wait(t, server):
    """A server that reports a lock wait time-out at once is asked about once a second, and then granted"""
    token_of(t)
    server.sql("create trigger busy before insert on stile_row for each row "
               "signal sqlstate 'HY000' set mysql_errno = 1205")
    waiting = t.start("run", "y", "--", "sh", "-c", "echo in")
    def asked():
        return int(server.sql("select variable_value from information_schema.global_status where "
                              "variable_name = 'com_insert_select'"))
    spin(lambda before=asked(): asked() > before)
    before = asked()
    server.sql("select sleep(4)")  # so long by the server's clock
    assert asked() - before < 20, asked() - before
    server.sql("drop trigger busy")
    expect(waiting.line(), "in")
    expect(waiting.wait(), 0)


@on_server()
def sessions_are_bounded(t, server):
    """sessions=: one lock more than that is refused, with what to say; the others stay"""
    use(t, server, server.url + "?mode=row&sessions=3")
    held = t.start("run", "--ttl", "60s", "a", "b", "--", "sh", "-c", "echo in; read line", stdin=-1)
    expect(held.line(), "in")
    refused(t, "sessions=", verb=("run", "a1", "b1", "c1", "--", "true"))
    expect(json.loads(t.stile("caps", "--json").stdout)["most_locks"], 2)
    held.process.stdin.close()
    expect(held.wait(), 1)


@on_server(mode="row")
def answers_are_lost(t, server):
    """A grant, a token or a release whose answer is lost: nobody hangs, and no token comes twice"""
    last = 0
    for words in b"FOR UPDATE", b"stile_row_grant", b"COMMIT;DO":
        with Cutter(server.port, words) as cutter:
            use(t, server, "mysql://root@127.0.0.1:%d/tests?mode=row" % cutter.port)
            done = t.stile("run", "--wait", "20s", "x", "--", "sh", "-c", "echo $STILE_TOKEN")
            expect(cutter.cut, 1)
        expect(done.returncode, 76 if words == b"COMMIT;DO" else 0, done.stderr)
        assert int(done.stdout) > last, (words, done.stdout, last)
        last = int(done.stdout)
        spin(lambda: server.sql(ALIVE) == "")


run_tests([session_is_killed, server_crashes, holder_is_killed, holder_is_stopped,
           plain_transactions, busy_without_a_wait, sessions_are_bounded, answers_are_lost])
