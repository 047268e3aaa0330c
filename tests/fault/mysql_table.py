# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""mode=table of mysql in trouble: servers that crash or are full, sessions and statements that are
killed, transactions in each other's way, holders that are stopped, clocks that are changed."""
import os
import re
import signal
import subprocess
import threading
import time

import MySQLdb

from cluster_kit import outlives_forgotten_connections
from sql_kit import client_clock_jumps
from mysql_kit import on_server, token_of, use, wait_for
import sql_scenes
from cutter import Cutter, Keeper
from kit import expect, run_tests, spin

LOCK_WAITS = ("select trx_mysql_thread_id from information_schema.innodb_trx "
              "where trx_state = 'LOCK WAIT'")
SESSIONS = ("select id from information_schema.processlist where id <> connection_id() and "
            "db = 'tests'")
# Not by SLEEP(): a KILL of one that calls it may take two seconds, and a release with it.
ASLEEP = "select id from information_schema.processlist where state = 'User lock'"

hostile_defaults = on_server(
    "--max-statement-time=0.3", "--innodb-lock-wait-timeout=1", "--autocommit=0",
    "--completion-type=RELEASE", "--transaction-isolation=SERIALIZABLE", "--wait-timeout=1",
    "--sql-mode=ANSI,TRADITIONAL,NO_BACKSLASH_ESCAPES", "--default-time-zone=+05:45",
    "--idle-transaction-timeout=1", "--character-set-server=ucs2",
    mode="table")(sql_scenes.hostile_defaults)
holder_is_stopped = on_server(mode="table")(sql_scenes.holder_is_stopped)


def lock_wait(server):
    """The session that waits for a row. InnoDB refreshes this table only if it has not been read for
    a tenth of a second: frequent readers see nothing new."""
    seen = ""

    def look():
        nonlocal seen
        time.sleep(0.15)
        seen = server.sql(LOCK_WAITS)
        return seen
    spin(look)
    return seen


def other(server):
    """A session of anybody's."""
    session = MySQLdb.connect(host="127.0.0.1", port=server.port, user="root", passwd="",
                              db="tests", autocommit=True)
    return session.cursor()


# ---- the server ----

@on_server(mode="table")
def server_crashes(t, server):
    """A crash right after a grant: it is still held afterwards, and the next token is larger"""
    held = t.hold("x", "--ttl", "60s")
    token = t.show("x")["token"]
    server.kill()
    server.restart()
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
    t.release(held)
    assert token_of(t) > token


@on_server(mode="table", may_be_full=True)
def disk_is_full(t, server):
    """A full disk: a new claim reports it, the holder goes on and can release, tokens grow"""
    held = t.hold("x", "--ttl", "60s")
    server.fill()
    cursor = other(server)
    try:
        for i in range(100000):
            cursor.execute("insert into stile_counter values (%s, 0, 0)", ("%06d" % i + 500 * "y",))
        raise AssertionError("it does not get full")
    except MySQLdb.Error as error:
        expect(error.args[0], 1114)
    # Neighbours of one page, which has no room for all of them.
    said = [t.stile("run", "--try", "000050" + 490 * "z" + "%02d" % n, "--", "true")
            for n in range(20)]
    full = [done.stderr for done in said if done.returncode]
    assert full and all("full" in one for one in full), full
    expect(held.process.poll(), None)
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)
    t.release(held)
    server.fill(False)
    assert token_of(t) > 1
    expect(t.stile("run", "--try", "y" * 500, "--", "true").returncode, 0)


# ---- sessions and statements ----

@on_server(mode="table")
def forgotten_connections(t, server):
    """Connections that the server accepts and forgets: the holder tries again in time"""
    outlives_forgotten_connections(t, server.port,
                                   "mysql://root@127.0.0.1:%d/tests?mode=table")


@on_server(mode="table")
def session_is_killed(t, server):
    """KILL of a holder's session: nothing is lost, the next one does its work"""
    held = t.hold("x", "--ttl", "3s")
    for number in server.sql(SESSIONS).split():
        server.sql("kill " + number)
    waiting = wait_for(t)
    expect(held.process.poll(), None)
    t.release(held)
    expect(waiting.line(), "2")
    expect(waiting.wait(), 0)


@on_server(mode="table")
def statement_is_killed(t, server):
    """KILL QUERY in the middle of a grant or a release: it is asked again, and nothing stays locked"""
    cursor = other(server)
    token_of(t)
    for again in (False, True):
        cursor.execute("start transaction")
        cursor.execute("select * from stile_counter for update")
        if again:
            held.process.stdin.close()
        else:
            held = t.start("run", "x", "--", "sh", "-c", "echo $$; read line", stdin=-1)
        server.sql("kill query " + lock_wait(server))
        cursor.execute("commit")
        if not again:
            held.line()
    expect(held.wait(), 1)
    assert token_of(t) > 2


@on_server(mode="table")
def answers_are_lost(t, server):
    """A grant or a release whose answer is lost: withdrawn or said again, and nobody hangs"""
    for words in b"stile_table_claim", b"stile_table_release":
        with Cutter(server.port, words) as cutter:
            use(t, server, "mysql://root@127.0.0.1:%d/tests?mode=table" % cutter.port)
            done = t.stile("run", "--wait", "20s", "x", "--", "true")
            expect((done.returncode, cutter.cut), (0, 1), done.stderr)
        expect(server.sql("select count(*) from stile_claim"), "0")


@on_server(mode="table")
def release_with_a_hold_is_killed(t, server):
    """KILL of the session in the middle of a release: sent again, it still keeps hold_at_least"""
    cursor = other(server)
    held = t.start("run", "--hold-at-least", "60s", "x", "--", "sh", "-c", "echo held; read line",
                   stdin=-1)
    held.line()
    cursor.execute("start transaction")
    cursor.execute("select * from stile_counter for update")
    held.process.stdin.close()
    server.sql("kill " + lock_wait(server))
    cursor.execute("commit")
    expect(held.wait(), 1)
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 75)


def count(server, what):
    return int(server.sql("select variable_value from information_schema.global_status where "
                          "variable_name = '%s'" % what))


def sleep_of_waiter(server):
    """The statement in which the waiter's client sleeps, once its row says how to wake it."""
    spin(lambda: server.sql("select count(*) from stile_claim where bell is not null") == "1")
    spin(lambda: len(server.sql(ASLEEP).split()) == 1)
    return server.sql("select info from information_schema.processlist where state = 'User lock'")


@on_server(mode="table")
def waiter_is_woken(t, server):
    """The next waiter is woken, and only its sleep is ended"""
    cursor = other(server)
    cursor.execute("select get_lock('stile bell', 0)")
    held = t.hold("x", "--ttl", "60s")
    waiting = wait_for(t)
    sleep_of_waiter(server)
    before = count(server, "com_kill")
    t.release(held)
    expect(waiting.line(), "2")
    expect(waiting.wait(), 0)
    expect(count(server, "com_kill"), before + 1)


@on_server(mode="table")
def wake_up_overtakes_the_sleep(t, server):
    """A KILL that comes when the session does not sleep yet: the grant is seen before it does"""
    held = t.hold("x", "--ttl", "3600s")
    with Keeper(server.port, b"CALL stile_table_await") as keeper:
        use(t, server, "mysql://root@127.0.0.1:%d/tests?mode=table" % keeper.port)
        waiting = wait_for(t, "x", "--ttl", "3600s")
        keeper.kept.wait()
        spin(lambda: server.sql("select count(*) from stile_claim where bell is not null") == "1")
        before = count(server, "com_kill")
        t.release(held)
        expect(count(server, "com_kill"), before + 1)
        # Else it would have a second to confirm. It looks by itself after a third of its TTL only.
        server.sql("update stile_claim set expires_at = utc_timestamp() + interval 1 hour where held")
        keeper.go.set()
        expect(waiting.line(), "2")
        expect(waiting.wait(), 0)


@on_server(mode="table")
def grant_is_seen_before_sleep(t, server):
    """The procedure in which a client sleeps returns what was granted before, and uses no table while it sleeps"""
    t.hold("x", "--ttl", "60s")
    server.sql("update stile_claim set bell = 'its-client', confirmed = false")
    owner = server.sql("select owner from stile_claim")
    expect(server.sql("call stile_table_await('its-client', 'nobody has this', 60)"), "NULL\t" + owner)
    expect(server.sql("call stile_table_await('another', 'nobody has this', 60)"), "1")
    cursor = other(server)
    cursor.execute("select get_lock('taken', 0)")
    thread = threading.Thread(target=lambda: server.sql("call stile_table_await('another', 'taken', 60)"))
    thread.start()
    spin(lambda: len(server.sql(ASLEEP).split()) == 1)
    expect(server.sql("select count(*) from information_schema.innodb_trx"), "0")
    server.sql("set lock_wait_timeout = 1; alter table stile_claim comment = 'changed'")
    cursor.execute("select release_lock('taken')")
    thread.join()


@on_server(mode="table")
def repeated_release_wakes(t, server):
    """A release that was carried out before, perhaps without waking anybody, wakes the next waiter"""
    t.hold("x", "--ttl", "60s")
    server.sql("update stile_claim set bell = '0123456789abcdef', confirmed = false")
    cursor = other(server)
    cursor.execute("select get_lock('stile bell 0123456789abcdef', 0)")
    before = count(server, "com_kill")
    expect(server.sql("call stile_table_release('x', 'gone', false)"), "f")
    expect(count(server, "com_kill"), before + 1)
    expect(server.sql("call stile_table_release('y', 'gone', false)"), "f")
    expect(count(server, "com_kill"), before + 1)


def another_user_releases(t, server, creator, sure):
    """ann waits for what bob holds, and neither may end the sessions of others."""
    for user in "ann", "bob", "dba":
        server.sql("create user %s@'%%'; grant select, insert, update, delete, execute on tests.* to %s@'%%'"
                   % (user, user))
    server.sql("grant all on tests.* to dba@'%'; drop procedure stile_table_await")
    url = "mysql://%%s@127.0.0.1:%d/tests" % server.port
    expect(t.stile("setup", url % creator).returncode, 0)
    use(t, server, url % "bob" + "?mode=table")
    held = t.hold("x", "--ttl", "60s")
    use(t, server, url % "ann" + "?mode=table")
    waiting = wait_for(t, "x", "--ttl", "60s")
    expect("p_sleep" in sleep_of_waiter(server), sure)
    t.release(held)
    assert int(waiting.line()) > 1
    expect(waiting.wait(), 0)


@on_server(mode="table")
def woken_by_another_user(t, server):
    """A user without the right to end sessions of others wakes them, with the rights of the user that ran setup"""
    another_user_releases(t, server, "root", True)


@on_server(mode="table")
def not_woken_by_another_user(t, server):
    """Where the user that ran setup has no such right either, the waiter looks by itself"""
    another_user_releases(t, server, "dba", False)


@on_server(mode="table")
def older_schema(t, server):
    """Without the procedure in which clients sleep: the next waiter is woken all the same"""
    server.sql("drop procedure stile_table_await")
    held = t.hold("x", "--ttl", "60s")
    waiting = wait_for(t, "x", "--ttl", "60s")
    expect("p_sleep" in sleep_of_waiter(server), False)
    t.release(held)
    expect(waiting.line(), "2")
    expect(waiting.wait(), 0)


@on_server(mode="table")
def shared_session_is_killed(t, server):
    """A waiter whose shared session is ended: the sleeping one ends as well, and it is still served"""
    held = t.hold("x", "--ttl", "60s")
    waiting = wait_for(t, "x", "--ttl", "60s")
    spin(lambda: server.sql("select count(*) from stile_claim where bell is not null") == "1")
    asleep = server.sql(ASLEEP)
    info = server.sql("select info from information_schema.processlist where id = " + asleep)
    shared = re.search("'stile sleep ([0-9]+)'", info).group(1)
    expect(server.sql("select is_used_lock('stile sleep %s')" % shared), shared)
    server.sql("kill " + shared)
    spin(lambda: asleep not in server.sql(SESSIONS).split())
    t.release(held)
    expect(waiting.line(), "2")
    expect(waiting.wait(), 0)


@on_server(mode="table")
def parked_waiters_only_look(t, server):
    """Waiters that can do nothing but wait send nothing; then each has its turn, in order"""
    held = t.hold("x", "--ttl", "60s")
    waiting = []
    for n in range(1, 7):  # unwatched: a watch asks as well
        waiting.append(t.start("run", "--ttl", "60s", "x", "--", "sh", "-c", "echo $STILE_TOKEN"))
        spin(lambda: server.sql("select count(*) from stile_claim where bell is not null") == str(n))
    spin(lambda: len(server.sql(ASLEEP).split()) == 6)
    writes, reads = count(server, "handler_update"), count(server, "com_select")
    expect([count(server, "com_select") for _ in range(100)], list(range(reads + 1, reads + 101)))
    expect(count(server, "handler_update"), writes)
    t.release(held)
    expect([int(one.line()) for one in waiting], [2, 3, 4, 5, 6, 7])
    expect([one.wait() for one in waiting], [0] * 6)


@on_server(mode="table")
def rows_of_waiters_are_kept(t, server):
    """The rows of a client's waiters are renewed by one statement; one that is missing is noticed, and its waiter
    joins the queue again"""
    def rows():
        return set(server.sql("select owner from stile_claim where not held and expires_at > utc_timestamp()").split())
    t.hold("x", "--ttl", "3600s")
    client = subprocess.Popen([os.environ["KEEP"], t.env["STILE_ENGINE"]], env=t.env, stdin=subprocess.PIPE,
                              stdout=subprocess.DEVNULL, text=True)
    client.stdin.write(3 * "&x\t600000\t2000\n")
    client.stdin.flush()
    spin(lambda: len(rows()) == 3)
    spin(lambda: server.sql("select count(*) from stile_claim where bell is not null") == "3")
    before = rows()
    ends = server.sql("select max(expires_at) from stile_claim where not held")
    spin(lambda: server.sql("select min(expires_at) > '%s' from stile_claim where not held" % ends) == "1")
    expect(rows(), before)
    gone = min(before)
    server.sql("delete from stile_claim where owner = '%s'" % gone)
    spin(lambda: gone in rows())
    expect(rows(), before)
    client.kill()
    client.wait()


@on_server(mode="table")
def waiter_is_killed(t, server):
    """kill -9 of the next waiter: the one behind gets the lock soon"""
    held = t.hold("x", "--ttl", "60s")
    first = wait_for(t, "x", "--ttl", "60s")
    second = wait_for(t)
    for pid in first.warden(), first.pid:
        os.kill(t.guard(pid), signal.SIGKILL)
    t.release(held)
    assert int(second.line()) > 1
    expect(second.wait(), 0)


# ---- transactions in each other's way ----

def get_in_the_way(server, cursor, start):
    """What is started locks a name's counter and waits for its claims, and the other way round."""
    cursor.execute("start transaction")
    cursor.execute("insert into heavy select seq from seq_1_to_1000")  # the lighter one is taken
    cursor.execute("select * from stile_claim for update")
    started = start()
    lock_wait(server)
    cursor.execute("select * from stile_counter for update")
    cursor.execute("commit")
    return started


@on_server(mode="table")
def deadlock_victim(t, server):
    """A victim of a deadlock tries again: no error, no loss"""
    cursor = other(server)
    cursor.execute("create table heavy (n int) engine=innodb")
    held = t.hold("x", "--ttl", "60s")
    get_in_the_way(server, cursor, held.process.stdin.close)
    expect(held.wait(), 1)
    trying = get_in_the_way(server, cursor, lambda: t.start("run", "--try", "x", "--", "sh", "-c",
                                                            "echo $STILE_TOKEN"))
    expect(trying.line(), "2")
    expect(trying.wait(), 0)
    cursor.execute("show engine innodb status")
    assert "LATEST DETECTED DEADLOCK" in cursor.fetchone()[2]


@on_server(mode="table")
def row_is_locked_for_long(t, server):
    """A row that somebody keeps locked for longer than the server waits: asked again until it is free"""
    token_of(t)
    cursor = other(server)
    cursor.execute("start transaction")
    cursor.execute("select * from stile_counter for update")
    asking = t.start("run", "x", "--", "sh", "-c", "echo $STILE_TOKEN")
    timeouts = "select variable_value from information_schema.global_status where variable_name = "
    spin(lambda: server.sql(timeouts + "'innodb_row_lock_waits'") >= "2")
    cursor.execute("commit")
    expect(asking.line(), "2")
    expect(asking.wait(), 0)


# ---- time ----

@on_server(mode="table")
def client_clock_is_changed(t, server):
    """A clock that jumps on the client: neither a loss nor a second holder"""
    client_clock_jumps(t)


run_tests([server_crashes, disk_is_full, forgotten_connections, session_is_killed, statement_is_killed, answers_are_lost,
           release_with_a_hold_is_killed, waiter_is_woken, wake_up_overtakes_the_sleep, grant_is_seen_before_sleep,
           repeated_release_wakes, woken_by_another_user, not_woken_by_another_user, older_schema, shared_session_is_killed,
           parked_waiters_only_look, rows_of_waiters_are_kept, waiter_is_killed, deadlock_victim, row_is_locked_for_long,
           hostile_defaults, holder_is_stopped, client_clock_is_changed])
