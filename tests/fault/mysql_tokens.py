# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Every way in which a MariaDB comes back: tokens grow, although no grant waits for the disk. What is tested here is
argued in docs/guarantees.md."""
import contextlib
import os
import re
import shutil
import signal
import subprocess

import MySQLdb

from mysql_kit import BEFORE_EPOCHS, findings, on_server, refused, token_of, use
from kit import expect, run_tests, spin
from mysql_server import MysqlServer, tool

ON_DISK = "select base from stile_epoch"
DRAWN = "select e.base + uuid_short() - l.first from stile_epoch e join stile_life l on l.base = e.base and " \
        "l.server = @@global.server_id"


def epoch_of(server):
    return int(server.sql(ON_DISK))


def clock_passes(server):
    """The clock is beyond the present epoch: each that begins takes its number from there."""
    spin(lambda: server.sql("select (unix_timestamp() - 1577836800) * 1048576 > (%s)" % ON_DISK) == "1")


def next_second(server):
    """A server that starts in the second of its last start has the same numbers again."""
    now = server.sql("select unix_timestamp()")
    spin(lambda: server.sql("select unix_timestamp()") != now)


def connect(server):
    return MySQLdb.connect(host="127.0.0.1", port=server.port, user="root", db="tests", autocommit=True)


class Client:
    """One that stays open, and takes and releases locks on one session."""
    def __init__(self, t, server):
        self.server = server
        self.process = subprocess.Popen([os.environ["KEEP"], server.url], env=t.env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def send(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self):
        return self.process.stdout.readline().rstrip("\n")

    def ask(self, line):
        self.send(line)
        return self.answer()

    def token(self, name="k"):
        """Of a grant on that session: from the row that records it."""
        for line in name + "\t5000", "+" + name:
            expect(self.ask(line), "OK")
        token = int(re.search(r"token (\d+)", self.ask("*" + name)).group(1))
        expect(self.ask("-" + name), "OK")
        return token

    def end(self):
        self.process.stdin.close()
        self.process.wait()


# ---- the server goes and comes back ----

@on_server()
def comes_back(t, server):
    """Killed, stopped in an orderly way: a new epoch, and larger tokens. A session is killed: the same epoch"""
    before = [token_of(t), token_of(t), token_of(t, "y")]
    for number in signal.SIGKILL, signal.SIGTERM, signal.SIGKILL:
        assert before == sorted(set(before)), before
        epoch = epoch_of(server)
        expect([token // 2**20 for token in before], [epoch // 2**20] * 3)
        server.kill(number)
        server.restart()
        after = token_of(t)
        assert after > before[2], (before, after)
        assert epoch_of(server) > epoch
        before = [after, token_of(t, "y"), token_of(t)]
    epoch = epoch_of(server)
    held = t.hold("x", "--ttl", "60s")
    server.sql("kill %s" % server.sql("select is_used_lock('x')"))
    expect(held.wait(), 76)
    assert token_of(t) > before[2]
    expect(epoch_of(server), epoch)


@on_server("--log-bin=log", "--sync-binlog=1")
def no_grant_writes(t, server):
    """Grants and releases write nothing: others have locked the tables against writing, and the log stays as it is"""
    client = Client(t, server)
    expect([client.ask("x\t5000"), client.ask("-x")], ["OK", "OK"])
    keeper = connect(server)
    keeper.query("lock tables stile_lock read, stile_epoch read, stile_life read")
    log = server.sql("show master status")
    for name in "x", "fresh", "x":
        expect([client.ask(name + "\t5000"), client.ask("-" + name)], ["OK", "OK"])
    expect(server.sql("show master status"), log)
    keeper.query("unlock tables")
    client.end()


@on_server("--log-bin=log")
def holds_are_on_disk(t, server):
    """A hold is kept after a crash, and by clients that have never seen one before"""
    client = Client(t, server)
    expect([client.ask("h\t5000"), client.ask("-h")], ["OK", "OK"])
    expect(t.stile("run", "--hold-at-least", "60s", "h", "--", "true").returncode, 0)
    expect(client.ask("h\t0"), "HELD")
    client.end()
    server.kill(signal.SIGKILL)
    server.restart()
    expect(t.stile("run", "--try", "h", "--", "true").returncode, 75)


@on_server()
def an_epoch_is_used_up(t, server):
    """More of an epoch is on disk before it is used; after a gap that no draws explain, the next one begins"""
    first = token_of(t)
    epoch = epoch_of(server)
    server.sql("update stile_epoch set bound = (%s) + 1" % DRAWN)
    tokens = [first] + [token_of(t) for _ in range(5)]
    assert tokens == sorted(set(tokens)), tokens
    expect(epoch_of(server), epoch)
    assert tokens[-1] <= int(server.sql("select bound from stile_epoch"))
    clock_passes(server)
    server.sql("select benchmark(20000000, uuid_short())")
    assert token_of(t) > tokens[-1]
    assert epoch_of(server) > epoch


@on_server()
def first_callers_at_once(t, server):
    """Many first callers after a crash: one epoch, and no token twice"""
    server.kill(signal.SIGKILL)
    server.restart()
    many = [t.start("run", "n%d" % i, "--", "sh", "-c", "echo $STILE_TOKEN") for i in range(8)]
    tokens = [int(one.line()) for one in many]
    expect([one.wait() for one in many], [0] * 8)
    expect(len(set(tokens)), 8)
    assert all(epoch_of(server) < token < epoch_of(server) + 2**20 for token in tokens), tokens
    expect(server.sql("select count(*) from stile_life"), "1")


# ---- another server continues ----

def follow(replica, primary):
    replica.sql("stop slave; change master to master_host='127.0.0.1', master_port=%d, master_user='root', "
                "master_connect_retry=1, master_use_gtid=current_pos; start slave" % primary.port)


def has_all(replica, primary):
    return replica.sql("select @@gtid_slave_pos") == primary.sql("select @@gtid_binlog_pos")


def promote(replica, old=None):
    if old:
        spin(lambda: has_all(replica, old))
        old.sql("set global read_only = 1")
    replica.sql("stop slave; set global read_only = 0")


def runs(replica):
    """What it has applied was applied without an error."""
    connection = connect(replica)
    connection.query("show slave status")
    (status,) = connection.store_result().fetch_row(0, how=1)
    expect((status["Slave_SQL_Running"], status["Last_SQL_Error"]), ("Yes", ""))
    connection.close()


LOGS = "--log-bin=log", "--log-slave-updates", "--gtid-strict-mode=0"


@contextlib.contextmanager
def replica_of(primary, number, *args):
    with MysqlServer("--server-id=%d" % number, *LOGS, *args) as replica:
        replica.sql("drop database tests; create database tests", database="")
        replica.sql("reset master", database="")
        follow(replica, primary)
        yield replica


def replica_is_promoted(form):
    @on_server("--server-id=1", "--binlog-format=" + form, *LOGS)
    def case(t, server):
        with contextlib.ExitStack() as stack:
            near, late = (stack.enter_context(replica_of(server, number, "--binlog-format=" + form))
                          for number in (2, 257))
            before = token_of(t)
            for replica in near, late:
                spin(lambda r=replica: has_all(r, server))
                expect(replica.sql("select max(server) from stile_life"), "1")
            late.sql("stop slave")
            near.kill()
            near.restart()  # its copy of the table in memory is empty
            server.kill()
            server.restart()
            before = max(before, token_of(t))
            clock_passes(server)
            spin(lambda: has_all(near, server))
            runs(near)
            for replica in near, late:
                promote(replica)
                use(t, replica)
                assert token_of(t) > before, replica is late
    case.__name__ = "replica_is_promoted_" + form
    case.__doc__ = "A replica is promoted (%s): one that has everything, and one that lacks the last epoch" % form
    return case


@on_server("--server-id=1", *LOGS)
def there_and_back(t, server):
    """A switchover to a replica and back: a client that was connected all the time counts on from there"""
    with replica_of(server, 2) as other:
        client = Client(t, server)
        before = client.token()
        promote(other, server)
        use(t, other)
        tokens = [before, token_of(t, "k"), token_of(t, "k")]
        server.sql("set global gtid_slave_pos = @@global.gtid_binlog_pos")
        follow(server, other)
        promote(server, other)
        tokens += [client.token(), client.token()]
        use(t, server)
        tokens.append(token_of(t, "k"))
        assert tokens == sorted(set(tokens)), tokens
        client.end()


@on_server()
def primary_is_read_only(t, server):
    """No epoch begins on a server that is read-only"""
    token_of(t)
    base = epoch_of(server)
    server.sql("delete from stile_life; set global read_only = 1")
    done = subprocess.run([tool("mariadb"), *server.place, "tests", "-e", "call stile_begin_epoch()"],
                          capture_output=True, text=True, check=False)
    assert "read-only" in done.stderr, done.stderr
    expect(epoch_of(server), base)
    refused(t, "read-only")


@on_server()
def read_only_while_it_waits(t, server):
    """A wait that ends after its server became read-only grants nothing, and leaves the lock: the first wait of a
    session, and one that knows the epoch"""
    client = Client(t, server)
    for read_only in 1, 0, 1:
        held = t.hold("x", "--ttl", "60s")
        client.send("x\t60000")
        spin(lambda: server.sql("select count(*) from information_schema.processlist where state = 'User lock'") == "1")
        server.sql("select sleep(0.1)")  # so that the next wait expects to be long
        server.sql("set global read_only = %d" % read_only)
        t.release(held)
        if read_only:
            spin(lambda: server.sql("select is_used_lock('x') is null") == "1")
            server.sql("set global read_only = 0")
        expect([client.answer(), client.ask("-x")], ["OK", "OK"])
    client.end()


# ---- an older copy ----

@on_server()
def backup_is_restored(t, server):
    """The files of a server at rest are put back"""
    token_of(t)
    server.shut_down()
    subprocess.run(["cp", "-a", server.data, server.dir + "/at-rest"], check=True)
    server.restart()
    before = max(token_of(t) for _ in range(3))
    clock_passes(server)
    server.kill()
    shutil.rmtree(server.data)
    subprocess.run(["mv", server.dir + "/at-rest", server.data], check=True)
    server.restart()
    assert token_of(t) > before


def dump(server):
    return subprocess.run([tool("mariadb-dump"), *server.place, "--routines", "tests"], capture_output=True, text=True,
                          check=True).stdout


def load(server, text):
    server.sql("drop database tests; create database tests", database="")
    subprocess.run([tool("mariadb"), *server.place, "tests"], input=text, text=True, check=True)


@on_server("--server-id=7")
def dump_is_restored(t, server):
    """A dump with the rows of stile_life: in the same life, in the next one, and in another server"""
    token_of(t)
    kept = dump(server)
    assert "INSERT INTO `stile_life`" in kept
    before = max(token_of(t) for _ in range(3))
    load(server, kept)
    after = token_of(t)
    assert after > before
    next_second(server)
    server.kill()
    server.restart()
    before = max(after, token_of(t))
    clock_passes(server)
    load(server, kept)
    after = token_of(t)
    assert after > before
    clock_passes(server)
    with MysqlServer("--server-id=8") as other:
        load(other, kept)
        use(t, other)
        assert token_of(t) > after


# ---- its tables are changed ----

@on_server()
def counter_is_cleared(t, server):
    """TRUNCATE and DELETE under a client that is open: the next epoch, for that client too"""
    client = Client(t, server)
    tokens = [client.token(), token_of(t, "k")]
    for change in "truncate stile_life", "delete from stile_life", "update stile_epoch set base = base + 1, bound = " \
            "bound + 1":
        clock_passes(server)
        server.sql(change)
        tokens += [token_of(t, "k"), client.token(), token_of(t, "k")]
        assert tokens == sorted(set(tokens)), (change, tokens)
    client.end()
    clock_passes(server)
    server.sql("delete from stile_epoch")
    refused(t, "stile setup")
    expect(t.stile("setup").returncode, 0)
    assert token_of(t) > tokens[-1]


@on_server()
def counter_is_on_disk(t, server):
    """ALTER TABLE ... ENGINE=InnoDB: the next life has other numbers, and the doctor says what to do"""
    before = token_of(t)
    server.sql("alter table stile_life engine = innodb")
    assert ("danger", "life") in findings(t), findings(t)
    next_second(server)
    server.kill()
    server.restart()
    assert token_of(t) > before
    server.sql("alter table stile_life engine = memory; delete from stile_life")
    assert ("danger", "life") not in findings(t), findings(t)


@on_server("--max-heap-table-size=16384", "--tmp-table-size=1024")
def memory_is_short(t, server):
    """A small max_heap_table_size: an epoch is one row"""
    tokens = [token_of(t)]
    for _ in range(3):
        clock_passes(server)
        server.sql("update stile_epoch set base = base + 1, bound = bound + 1")
        tokens.append(token_of(t))
    assert tokens == sorted(set(tokens)), tokens


@on_server("--enforce-storage-engine=InnoDB", "--sql-mode=")
def no_tables_in_memory(t, server):
    """A server without MEMORY tables: rows count, as before"""
    expect(server.sql("select engine from information_schema.tables where table_name = 'stile_life'"), "InnoDB")
    expect([token_of(t), token_of(t)], [1, 2])
    assert ("note", "life") in findings(t), findings(t)
    assert "committed with the grant" in t.stile("caps").stdout
    expect(t.stile("setup").returncode, 0)
    expect(token_of(t), 3)


# ---- from before there were epochs ----

@on_server()
def upgraded(t, server):
    """Rows that counted before, and clients that were open: after setup all tokens are larger, for all"""
    server.sql(BEFORE_EPOCHS)
    expect([token_of(t), token_of(t)], [1, 2])
    held = t.hold("y", "--ttl", "60s")
    client = Client(t, server)
    expect(client.token(), 1)
    waiting = t.start("run", "--ttl", "60s", "y", "--", "sh", "-c", "echo $STILE_TOKEN")
    spin(lambda: server.sql("select count(*) from information_schema.processlist where state = 'User lock'") == "1")
    server.sql("update stile_lock set token = 8000000000000000 where name = 'k'")
    expect(t.stile("setup").returncode, 0)
    t.release(held)
    tokens = [int(waiting.line()), client.token(), client.token(), token_of(t, "k")]
    expect(waiting.wait(), 0)
    client.end()
    assert 8000000000000000 < tokens[0] < tokens[1] < tokens[2] < tokens[3] < 2**63, tokens
    done = subprocess.run([tool("mariadb"), *server.place, "tests", "-e", "update stile_lock set token = token + 1"],
                          capture_output=True, text=True, check=False)
    assert "Unknown column 'token'" in done.stderr, "what an older client writes is refused"


run_tests([comes_back, no_grant_writes, holds_are_on_disk, an_epoch_is_used_up, first_callers_at_once,
           replica_is_promoted("ROW"), replica_is_promoted("STATEMENT"), there_and_back, primary_is_read_only,
           read_only_while_it_waits, backup_is_restored, dump_is_restored, counter_is_cleared, counter_is_on_disk,
           memory_is_short, no_tables_in_memory, upgraded])
