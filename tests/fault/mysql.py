# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""A MariaDB that is killed, restarted, stopped, full, or does not want us; sessions that are ended
under their locks; and what the user of stile hears of it."""
import os
import re
import signal
import subprocess

import MySQLdb

from mysql_kit import BEFORE_EPOCHS, findings, lost, on_server, refused, token_of, use, wait_for
from sql_kit import TESTS, count_in
import sql_scenes
from cutter import Cutter, Rewriter
from kit import expect, run_tests, spin
from mysql_server import MysqlServer, free_port, tool

GALERA = "/usr/lib/galera/libgalera_smm.so"
BURST = 50000 if os.environ.get("STILE_SOAK") else 2000
WAITING = "select id from information_schema.processlist where state = 'User lock'"

server_crashes = on_server()(sql_scenes.server_crashes)
server_is_shut_down = on_server()(sql_scenes.server_is_shut_down)
holder_is_killed = on_server()(sql_scenes.holder_is_killed)
hostile_defaults = on_server(
    "--wait-timeout=1", "--interactive-timeout=1", "--max-statement-time=0.2",
    "--lock-wait-timeout=1", "--innodb-lock-wait-timeout=1", "--autocommit=0",
    "--sql-mode=ANSI,TRADITIONAL,NO_BACKSLASH_ESCAPES", "--completion-type=RELEASE",
    "--transaction-isolation=SERIALIZABLE", "--idle-transaction-timeout=1",
    "--character-set-server=ucs2", "--default-time-zone=+05:45")(sql_scenes.hostile_defaults)
sessions_are_bounded = on_server()(sql_scenes.sessions_are_bounded)


def holder_id(server, name="x"):
    return server.sql("select is_used_lock('%s')" % name)


# ---- the server ends ----

@on_server()
def server_is_stopped(t, server):
    """A server that stands still: its holder is lost at its own deadline"""
    held = t.hold("x", "--ttl", "2s")
    server.process.send_signal(signal.SIGSTOP)
    try:
        lost(held)
    finally:
        server.process.send_signal(signal.SIGCONT)
    expect(t.stile("run", "x", "--", "true").returncode, 0)


@on_server()
def nobody_there(t, server):
    """No server: UNREACHABLE at once, with the address"""
    server.kill()
    refused(t, "127.0.0.1", "Connection refused", "running")


# ---- sessions end ----

@on_server()
def session_is_killed(t, server):
    """KILL: the holder is notified at once, whichever session it was"""
    sql_scenes.session_is_ended(t, lambda: server.sql("kill " + holder_id(server)))


@on_server()
def waiter_is_killed(t, server):
    """A waiter whose session or statement is ended asks again, on another one"""
    for how in "kill", "kill query":
        held = t.hold("x", "--ttl", "60s")
        waiting = wait_for(t)
        (was,) = server.sql(WAITING).split()
        server.sql("%s %s" % (how, was))
        spin(lambda: server.sql(WAITING).split() not in ([], [was]))
        t.release(held)
        waiting.line()
        expect(waiting.wait(), 0)


@on_server()
def waiter_gives_up(t, server):
    """A wait that is over is taken out of the server's queue, and takes nothing with it"""
    held = t.hold("x", "--ttl", "60s")
    expect(t.stile("run", "--wait", "200ms", "x", "--", "true").returncode, 75)
    spin(lambda: server.sql(WAITING) == "")
    t.release(held)
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)


# ---- answers that are lost ----

def through_cutter(t, server, words):
    done = sql_scenes.cut_off(t, server, words, "mysql://root@127.0.0.1:%d/tests")
    spin(lambda: server.sql("select is_free_lock('x')") == "1")
    return done


@on_server()
def grant_in_doubt(t, server):
    """A grant whose answer is lost is gone with its session, and asked for again"""
    done = through_cutter(t, server, b"GET_LOCK(X'78',0)")
    expect(done.returncode, 0, done.stderr)
    assert count_in(done.stdout) <= 3, done.stdout


@on_server()
def wait_in_doubt(t, server):
    """The same after a wait"""
    held = t.hold("x", "--ttl", "60s")
    watched = t.watch("x")
    with Cutter(server.port, b"GET_LOCK(X'78',3") as cutter:
        use(t, server, "mysql://root@127.0.0.1:%d/tests" % cutter.port)
        waiting = t.start("run", "x", "--", "sh", "-c", "echo $STILE_TOKEN")
        t.until(watched, lambda change: len(change["waiters"]) == 1)
        t.release(held)
        assert count_in(waiting.line()) >= 2  # more, if the grant that was lost was counted; a watch draws, too
        expect(waiting.wait(), 0)
        expect(cutter.cut, 1)
    use(t, server)
    spin(lambda: server.sql("select is_free_lock('x')") == "1")


@on_server()
def release_in_doubt(t, server):
    """A release whose answer is lost: it may have been lost before, and that is reported"""
    done = through_cutter(t, server, b"RELEASE_LOCK(X'78')")
    expect((done.returncode, count_in(done.stdout)), (76, 1), done.stderr)


# ---- what a server is set to ----

@on_server("--max-connections=10")
def too_many_connections(t, server):
    """max_connections: a clear error, and the holder goes on"""
    held = t.hold("x", "--ttl", "60s")
    others = []
    try:
        while True:
            others.append(MySQLdb.connect(host="127.0.0.1", port=server.port, user="root",
                                          passwd=""))
    except MySQLdb.Error:
        refused(t, "max_connections")
    expect(held.process.poll(), None)
    for other in others:
        other.close()
    t.release(held)


# ---- not for us ----

def galera_is_refused(t):
    """A node of a Galera cluster is refused, unless in mode=table"""
    with MysqlServer("--wsrep-on=ON", "--wsrep-provider=" + GALERA, "--binlog-format=ROW",
                     "--wsrep-cluster-address=gcomm://", "--wsrep-node-address=127.0.0.1",
                     "--innodb-autoinc-lock-mode=2",
                     "--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:%d"
                     % free_port()) as server:
        use(t, server)
        refused(t, "Galera", "mode=table")
        assert ("danger", "galera") in findings(t), findings(t)
        expect(t.stile("setup").returncode, 0)
        use(t, server, server.url + "?mode=table")
        expect((token_of(t), token_of(t)), (1, 2))


@on_server()
def read_only(t, server):
    """A server that is read-only is refused, with where to go"""
    server.sql("set global read_only = 1")
    refused(t, "read-only", "primary")
    assert ("danger", "read-only") in findings(t), findings(t)


@on_server()
def demoted_under_a_holder(t, server):
    """A primary that becomes read-only: the holder is lost, and a waiter is granted only later"""
    for mode in "getlock", "row", "table":
        use(t, server, server.url + "?mode=" + mode)
        held = t.hold("x", "--ttl", "3s")
        waiting = wait_for(t, "x", "--ttl", "3s")
        server.sql("set global read_only = 1")
        lost(held)
        expect(t.stile("run", "--try", "x", "--", "true").returncode, 69)
        server.sql("set global read_only = 0")
        waiting.line()
        expect(waiting.wait(), 0)


@on_server()
def group_of_primaries(t, server):
    """One of several primaries of a replication group is refused like a node of Galera"""
    with Rewriter(server.port, b"'group_replication_single_primary_mode' AND Value='OFF'",
                  b"'version'") as rewriter:
        use(t, server, "mysql://root@127.0.0.1:%d/tests" % rewriter.port)
        refused(t, "several primaries", "mode=table")
        assert ("danger", "group-replication") in findings(t), findings(t)
        use(t, server, "mysql://root@127.0.0.1:%d/tests?mode=table" % rewriter.port)
        expect(token_of(t), 1)


@on_server()
def other_modes(t, server):
    """A mode that is not there is refused with those that are; two need the tables"""
    use(t, server, server.url + "?mode=rows")
    refused(t, "getlock", "table", "row", code=64)
    server.sql("create database empty")
    for mode in "table", "row":
        use(t, server, "mysql://root@127.0.0.1:%d/empty?mode=%s" % (server.port, mode))
        refused(t, "stile setup")


@on_server()
def passwords(t, server):
    """A wrong password is refused, and none is ever shown"""
    server.sql("create user ann@'%' identified by 'secret-of-ann'; grant all on *.* to ann@'%'")
    place = "127.0.0.1:%d/tests" % server.port
    for word in "wrong-word", "x", "ann":
        use(t, server, "mysql://ann:%s@%s" % (word, place))
        said = refused(t)
        assert "wrong-word" not in said, said
    use(t, server, "mysql://ann:secret-of-ann@" + place)
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)
    with open(t.path("pass"), "w", encoding="utf-8") as file:
        file.write("secret-of-ann\n")
    os.chmod(t.path("pass"), 0o600)
    use(t, server, "mysql://ann@%s?password_file=%s" % (place, t.path("pass")))
    expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)


@on_server()
def permission_is_missing(t, server):
    """A user without rights on the tables hears which ones; few are enough"""
    server.sql("create table own (x int); create user low@'%'; grant select on tests.own to low@'%'")
    use(t, server, "mysql://low@127.0.0.1:%d/tests" % server.port)
    refused(t, "stile_version", "grant")
    server.sql("grant select on tests.stile_version to low@'%'; revoke all on tests.own from low@'%'")
    refused(t, "stile_epoch", "grant")
    refused(t, "CREATE", "--print", verb=("setup",))
    server.sql("grant select on tests.* to low@'%'")
    for mode in "getlock", "table", "row":
        use(t, server, "mysql://low@127.0.0.1:%d/tests?mode=%s" % (server.port, mode))
        assert ("danger", "rights") in findings(t), (mode, findings(t))
    server.sql("grant insert, update, delete on tests.* to low@'%'")
    assert ("danger", "rights") in findings(t), "procedures that may not be executed"
    server.sql("grant execute on tests.* to low@'%'")
    expect(findings(t), {("fine", "flush"), ("fine", "connections")})
    server.sql("revoke select, insert, update, delete, execute on tests.* from low@'%'")
    use(t, server, "mysql://low@127.0.0.1:%d/tests" % server.port)
    server.sql("grant select, insert, update on tests.stile_lock to low@'%'; "
               "grant select, update on tests.stile_epoch to low@'%'; "
               "grant select, insert on tests.stile_life to low@'%'; "
               "grant execute on procedure tests.stile_begin_epoch to low@'%'")
    held = t.hold("x", "--ttl", "60s")
    waiting = wait_for(t)
    expect(t.stile("run", "--wait", "100ms", "x", "--", "true").returncode, 75)
    t.release(held)
    waiting.line()
    expect(waiting.wait(), 0)


def over_tls(t):
    """TLS is verified: another CA or another name is refused, unless written"""
    keys = t.path("")
    subprocess.run([TESTS / "servers" / "certs", keys], check=True)
    with MysqlServer("--ssl-cert=%s/server.pem" % keys, "--ssl-key=%s/server.key" % keys,
                     "--require-secure-transport=ON") as server:
        place = "root@%%s:%d/tests" % server.port
        use(t, server, "mysqls://" + place % "localhost" + "?ca=%s/ca.pem" % keys)
        expect(t.stile("setup").returncode, 0)
        held = t.hold("x", "--ttl", "60s")
        waiting = wait_for(t)
        t.release(held)
        waiting.line()
        expect(waiting.wait(), 0)
        held = t.hold("x", "--ttl", "60s")
        t.stile("break", "--yes", "x")
        lost(held)
        for tail in "", "?ca=%s/stranger.pem" % keys:
            use(t, server, "mysqls://" + place % "localhost" + tail)
            refused(t, "ca=")
        use(t, server, "mysqls://" + place % "localhost" + "?insecure")
        expect(t.stile("run", "--try", "x", "--", "true").returncode, 0)
    with MysqlServer("--ssl-cert=%s/elsewhere.pem" % keys,
                     "--ssl-key=%s/elsewhere.key" % keys) as server:
        use(t, server, "mysqls://root@localhost:%d/tests?ca=%s/ca.pem" % (server.port, keys))
        refused(t, "TLS")


# ---- the tables ----

@on_server()
def schema(t, server):
    """setup may be repeated; newer tables are refused; without them there are no tokens"""
    first = token_of(t)
    setups = [t.start("setup") for _ in range(5)]
    expect([setup.wait() for setup in setups], [0] * 5)
    expect(token_of(t), first + 1)
    refused(t, "mode=table", verb=("run", "--shared", "x", "--", "true"))
    server.sql("create user low@'%'; grant execute on procedure tests.stile_cleanup to low@'%'")
    server.sql("drop procedure stile_table_break")
    expect(t.stile("setup").returncode, 0)
    assert "stile_cleanup" in server.sql("show grants for low@'%'")
    server.sql("insert into stile_version values (99)")
    refused(t, "99", "newer")
    refused(t, "newer", verb=("setup",))
    server.sql("drop table stile_version, stile_lock, stile_floor; drop view stile_locks")
    done = t.stile("run", "x", "--", "sh", "-c", "echo ${STILE_TOKEN-none}")
    expect(done.stdout, "none\n", done.stderr)
    assert "stile setup" in t.stile("caps").stdout
    refused(t, "stile setup", verb=("run", "--hold-at-least", "1s", "x", "--", "true"))
    done = t.stile("run", "x", "y", "--", "sh", "-c", 'echo "$STILE_TOKENS"')
    expect(done.stdout, "\n\n", "no tokens, and none that looks like one")
    printed = t.stile("setup", "--print")
    subprocess.run([tool("mariadb"), *server.place, "tests"], input=printed.stdout, text=True,
                   check=True)
    assert token_of(t) > first + 1
    use(t, server, "mysql://root@127.0.0.1:%d" % server.port)
    refused(t, "database", code=64, verb=("setup",))


@on_server()
def tables_of_the_release_before(t, server):
    """Tables of version 2 work; doctor says that setup is due, and setup brings them up to date"""
    server.sql(BEFORE_EPOCHS)
    server.sql("delete from stile_version where version >= 3; drop procedure stile_job_retry; "
               "drop procedure stile_job_add; alter table stile_claim drop key by_bell; "
               "alter table stile_job drop key queued_key, drop column queued_key, "
               "modify last_error varchar(1024) character set ascii, "
               "add column live_key varbinary(512) as (if(state = 'dead', null, job_key)) virtual, "
               "add unique key live_key (queue, live_key)")
    expect([token_of(t), token_of(t)], [1, 2])
    expect(t.stile("jobs", "add", "--key", "k", "q", input="x").returncode, 0)
    expect(t.stile("jobs", "work", "--once", "--tries", "1", "q", "--", "false").returncode, 1)
    assert ("warning", "schema") in findings(t), findings(t)
    expect(t.stile("jobs", "retry", "q").returncode, 0)
    expect(t.stile("setup").returncode, 0)
    assert ("warning", "schema") not in findings(t), findings(t)
    expect(t.stile("setup").returncode, 0)
    expect(t.stile("jobs", "work", "--once", "q", "--", "cat").stdout, "x")
    assert token_of(t) > 2**40


@on_server()
def errors_of_jobs_before_they_were_long(t, server):
    """Tables of version 3 keep the beginning of a job's error, in ASCII; after setup they keep all of it"""
    server.sql("delete from stile_version where version > 3; "
               "alter table stile_job modify last_error varchar(1024) character set ascii")
    size = "select character_maximum_length from information_schema.columns where " \
           "table_schema = 'tests' and table_name = 'stile_job' and column_name = 'last_error'"
    fail = "sh", "-c", "printf 'gr\\303\\274n\\n%2000s' x >&2; exit 3"
    expect(t.stile("jobs", "add", "q", input="x").returncode, 0)
    expect(t.stile("jobs", "work", "--once", "--tries", "1", "q", "--", *fail).returncode, 3)
    expect(server.sql("select length(last_error) from stile_job"), "1024")
    assert ("warning", "schema") in findings(t), findings(t)
    expect(t.stile("setup").returncode, 0)
    expect(server.sql(size), "4096")
    assert ("warning", "schema") not in findings(t), findings(t)
    expect(t.stile("jobs", "retry", "q").returncode, 0)
    expect(t.stile("jobs", "work", "--once", "--tries", "1", "q", "--", *fail).returncode, 3)
    expect(server.sql("select length(last_error) > 2000 and locate('grün', last_error) > 0 from stile_job"), "1")


@on_server()
def job_in_a_transaction(t, server):
    """stile_job_add in somebody's own transaction: the job is there if, and only if, the rest is"""
    call = "call stile_job_add('mail', '%s', %s, 0, @id)"
    server.sql("start transaction; " + call % ("lost", "null") + "; rollback")
    server.sql("start transaction; " + call % ("kept", "'k'") + "; commit")
    first = server.sql(call % ("other", "'k'") + "; select @id")
    expect(first, server.sql("select id from stile_job"))
    expect(t.stile("jobs", "work", "--drain", "mail", "--", "cat").stdout, "kept")


@on_server()
def cleanup_keeps_tokens(t, server):
    """Names that are cleared away leave their tokens used"""
    for _ in range(3):
        last = token_of(t)
    held = t.hold("y", "--ttl", "60s")
    spin(lambda: "y" in server.sql("select name from stile_lock"))
    server.sql("call stile_cleanup(0)")
    expect(server.sql("select name from stile_lock"), "y")
    assert token_of(t) > last
    t.release(held)


@on_server()
def people_can_read_it(t, server):
    """stile_locks shows which client holds what"""
    held = t.hold("order 17", "--ttl", "60s")
    spin(lambda: server.sql("select count(*) from stile_locks") == "1")
    row = server.sql("select name, host, pid > 0, token % 1048576, expires_at is null, command "
                     "from stile_locks").split("\t")
    expect(row[0], "order 17")
    expect(row[1:5], [os.uname().nodename[:64], "1", "1", "1"])
    assert re.search("stile|sh", row[5]), row
    t.release(held)
    expect(server.sql("select count(*) from stile_locks"), "0")


# ---- the doctor ----

@on_server()
def doctor(t, server):
    """doctor: a server as it should be, and what endangers tokens and locks"""
    expect(findings(t), {("fine", "flush"), ("fine", "connections")})
    server.sql("set global innodb_flush_log_at_trx_commit = 2; set global max_connections = 10; "
               "alter table stile_lock engine = aria")
    expect(findings(t), {("danger", "flush"), ("warning", "connections"), ("danger", "engine")})
    server.sql("set global innodb_flush_log_at_trx_commit = 1")
    server.sql("drop table stile_floor")
    assert ("danger", "tables") in findings(t), findings(t)
    use(t, server, "mysql://root@127.0.0.1:%d" % server.port)
    assert ("warning", "tables") in findings(t), findings(t)


@on_server("--log-bin=log")
def log_is_not_synced(t, server):
    """doctor: a binary log that a power cut may shorten takes tokens with it"""
    assert ("danger", "sync-binlog") in findings(t), findings(t)
    server.sql("set global sync_binlog = 1")
    assert ("danger", "sync-binlog") not in findings(t), findings(t)


@on_server("--log-bin=log", "--binlog-format=STATEMENT")
def statements_are_logged(t, server):
    """binlog_format = STATEMENT: mode=table and mode=row are refused with what to set; GET_LOCK works"""
    first = token_of(t)
    assert ("danger", "binlog") not in findings(t), findings(t)
    for mode in "table", "row":
        use(t, server, server.url + "?mode=" + mode)
        refused(t, "binlog_format", "MIXED")
        assert ("danger", "binlog") in findings(t), findings(t)
    server.sql("set global binlog_format = 'MIXED'")
    expect(token_of(t), 1)
    use(t, server)
    assert token_of(t) > first


# ---- many at once ----

@on_server()
def burst(t, server):
    """Thousands of names claimed at once by one client wait in the client, and none fails"""
    for mode in "getlock", "table":
        done = subprocess.run([os.environ["BURST"], server.url + "?mode=" + mode, str(BURST), "300000"],
                              env=t.env, capture_output=True, text=True, timeout=300, check=False)
        expect(done.returncode, 0, done.stderr)
        print("# %s: %s" % (mode, done.stdout.rstrip()))


# ---- how many sessions ----

@on_server()
def few_sessions(t, server):
    """Many names that one client holds need one session"""
    names = ["n%d" % i for i in range(64)]
    held = t.start("run", "--ttl", "60s", *names, "--", "sh", "-c", "echo in; read line",
                   stdin=subprocess.PIPE)
    expect(held.line(), "in")
    spin(lambda: server.sql("select count(distinct is_used_lock(lock_name)), count(*) from stile_lock "
                            "where is_used_lock(lock_name) is not null") == "1\t64")
    held.process.stdin.close()
    held.wait()


run_tests([server_crashes, server_is_shut_down, server_is_stopped, nobody_there,
           session_is_killed, waiter_is_killed, waiter_gives_up, holder_is_killed,
           hostile_defaults, too_many_connections, sessions_are_bounded, galera_is_refused,
           read_only, demoted_under_a_holder, group_of_primaries, other_modes, passwords, permission_is_missing, over_tls, schema,
           tables_of_the_release_before, errors_of_jobs_before_they_were_long, job_in_a_transaction,
           cleanup_keeps_tokens, people_can_read_it, doctor, log_is_not_synced,
           statements_are_logged,
           few_sessions, burst,
           grant_in_doubt, wait_in_doubt, release_in_doubt])
