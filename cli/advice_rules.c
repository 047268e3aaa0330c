/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The questions and the table of rules. The first rule that fits counts, so the cheapest remedy
 * stands first: what needs no lock, then the lock of the place that is written to, then one of
 * ours. */
#include "advice.h"

const struct advice_question_text advice_questions[ADVICE_QUESTIONS] = {
    [ASK_ACCESS] = {"access",
                    "What does the work do?",
                    {[READS] = {"reads", "many read, few write"},
                     [WRITES] = {"writes", "reads, changes and writes back; or runs a job alone"},
                     [ADDS] = {"adds", "adds to a sum, or adds to and removes from a set"},
                     [ONCE] = {"once", "must happen once for each key: a payment, a mail, a slot"},
                     [LEADS] = {"leads", "one process does it for as long as it lives"},
                     [CALLS] = {"calls", "may start only so often, on all machines together"}}},
    [ASK_WHERE] = {"writes-to",
                   "Where do its writes go?",
                   {[IN_POSTGRES] = {"postgres", "tables of one PostgreSQL database"},
                    [IN_MYSQL] = {"mysql", "tables of one MySQL or MariaDB database"},
                    [IN_SQLITE] = {"sqlite", "tables of one SQLite file"},
                    [IN_REDIS] = {"redis", "keys of one Redis server"},
                    [IN_FILE] = {"file", "a file that is replaced as a whole"},
                    [IN_HTTP] = {"http", "an HTTP API of your own"},
                    [IN_CELL] = {"cell", "a small value that has no place yet"},
                    [IN_OTHER] = {"other", "anything else: mail, a third party, a device"}}},
    [ASK_HOLD] = {"hold",
                  "How long does it take, from reading to the last write? (as 50ms, 5s, 2h)",
                  {[INSTANT] = {"100ms", "up to 100ms"},
                   [SHORT] = {"10s", "up to 10s"},
                   [LONG] = {"1h", "longer than 10s"}}},
    [ASK_CONTENTION] = {"contention",
                        "How often do two want the same thing at the same time?",
                        {[LOW] = {"low", "seldom"}, [HIGH] = {"high", "often"}}},
    [ASK_GOAL] = {"for",
                  "What if two do it at the same time after all?",
                  {[EFFICIENCY] = {"efficiency", "a nuisance: work is done twice"},
                   [CORRECTNESS] = {"correctness", "damage: data is wrong or lost"}}},
    [ASK_ENGINES] = {"engines",
                     "Which engines do you have? (separate several by commas)",
                     {[LOCAL] = {"local", "none is needed: all processes are on one machine"},
                      [REDIS] = {"redis", "one Redis server, or one with replicas"},
                      [REDLOCK] = {"redlock", "three or more independent Redis servers"},
                      [ETCD] = {"etcd", "an etcd cluster"},
                      [ZK] = {"zk", "a ZooKeeper ensemble"},
                      [POSTGRES] = {"postgres", "a PostgreSQL server"},
                      [MYSQL] = {"mysql", "a MySQL or MariaDB server"},
                      [DYNAMODB] = {"dynamodb", "Amazon DynamoDB"}}},
};

#define SQL          (BIT(IN_POSTGRES) | BIT(IN_MYSQL) | BIT(IN_SQLITE))
#define ENGINES(...) .engines = {__VA_ARGS__}, .n_engines = sizeof((unsigned char[]){__VA_ARGS__})

#define RUN "stile run {engine}{ttl}{guard} NAME -- CMD"

const struct advice_rule advice_rules[] = {
    /* ---- sums and sets ---- */
    {
        .id = "add-sql",
        .kind = NO_LOCK,
        .fits = {[ASK_ACCESS] = BIT(ADDS), [ASK_WHERE] = SQL},
        .use = "one atomic statement",
        .why = "The database adds to the row as it is at that moment, so no addition is lost. "
               "Nothing is held, so nothing can be held too long.",
        .command = "UPDATE hits SET n = n + 1 WHERE id = 7",
        .read = "docs/choosing.md",
    },
    {
        .id = "add-redis",
        .kind = NO_LOCK,
        .fits = {[ASK_ACCESS] = BIT(ADDS), [ASK_WHERE] = BIT(IN_REDIS)},
        .use = "one Redis command",
        .why = "INCRBY, SADD and SREM are atomic on the server, so no addition is lost. Nothing is "
               "held, so nothing can be held too long.",
        .command = "redis-cli INCRBY hits 1",
        .read = "docs/choosing.md",
    },
    {
        .id = "crdt",
        .kind = NO_LOCK,
        .fits = {[ASK_ACCESS] = BIT(ADDS)},
        ENGINES(LOCAL, REDIS, POSTGRES, MYSQL, ETCD, ZK, DYNAMODB),
        .brief = "sums and sets that many writers change at once",
        .use = "a CRDT in a cell",
        .why = "Additions may come in any order, so concurrent changes are merged instead of "
               "excluded. A writer that is paused or killed stops no other.",
        .command = "stile crdt counter add {engine} KEY 1",
        .read = "docs/crdt.md",
    },
    /* ---- once, and so often ---- */
    {
        .id = "once-sql",
        .kind = NO_LOCK,
        .fits = {[ASK_ACCESS] = BIT(ONCE), [ASK_WHERE] = BIT(IN_POSTGRES) | BIT(IN_MYSQL)},
        .brief = "a payment in your own database, repeated by clients that got no answer",
        .use = "a unique key in your transaction: stile.once()",
        .why = "The key and the effect are committed together, so a repetition finds both or "
               "neither. A second caller waits for the first one's commit and gets its result.",
        .command = "BEGIN; SELECT * FROM stile.once('KEY', 'FINGERPRINT', 'CUSTOMER'); ...; SELECT "
                   "stile.once_done('KEY', '\"RESULT\"', 'CUSTOMER'); COMMIT",
        .in_mysql = "START TRANSACTION; CALL stile_once('KEY', 'FINGERPRINT', 'CUSTOMER', NULL); "
                    "...; CALL stile_once_done('KEY', '\"RESULT\"', 'CUSTOMER'); COMMIT",
        .read = "docs/once.md#in-your-own-transaction",
    },
    {
        .id = "once-sqlite",
        .kind = NO_LOCK,
        .fits = {[ASK_ACCESS] = BIT(ONCE), [ASK_WHERE] = BIT(IN_SQLITE)},
        .use = "a unique key in your transaction",
        .why = "The key and the effect are committed together, so a repetition finds both or "
               "neither. Only the transaction whose INSERT adds the row does the work.",
        .command = "BEGIN IMMEDIATE; INSERT INTO done (key) VALUES ('KEY') ON CONFLICT DO NOTHING; "
                   "...; COMMIT",
        .read = "docs/scenarios.md#the-last-seat",
    },
    {
        .id = "once",
        .kind = NO_LOCK,
        .fits = {[ASK_ACCESS] = BIT(ONCE)},
        ENGINES(LOCAL, REDIS, POSTGRES, MYSQL, ETCD),
        .brief = "a mail, an invoice or a cron slot that twenty hosts start",
        .use = "stile once",
        .why = "The first caller runs, all others get its stored result, and a runner that died is "
               "replaced. A runner may die after its effect, so give KEY to the receiver, too, if "
               "it can refuse a repetition.",
        .command = "stile once {engine} KEY -- CMD",
        .read = "docs/once.md",
    },
    {
        .id = "once-marked",
        .kind = LOCK,
        .fits = {[ASK_ACCESS] = BIT(ONCE)},
        ENGINES(ZK, DYNAMODB),
        .guarded = true,
        .use = "a lock, and a cell that says that it is done",
        .why = "`stile once` needs cells that end by themselves, which ZooKeeper and "
               "DynamoDB lack. The next "
               "holder finds the mark and does nothing; remove old marks yourself.",
        .command =
            "stile run {engine}{ttl}{guard} NAME -- sh -c 'stile cell get done:KEY || (CMD && "
            "date | stile cell put done:KEY)'",
        .read = "docs/fences.md#cells",
    },
    {
        .id = "pace",
        .kind = NO_LOCK,
        .fits = {[ASK_ACCESS] = BIT(CALLS)},
        ENGINES(LOCAL, REDIS, POSTGRES, MYSQL, ZK),
        .brief = "calls to a third party that allows only N a second",
        .use = "stile pace",
        .why = "A lock limits how many run at a time, not how often they start. The engine counts "
               "the starts of all machines in one window, and a caller learns how long to wait.",
        .command = "stile pace {engine} NAME --rate 5/1s && CMD",
        .read = "docs/pace.md",
    },
    {
        .id = "pace-held",
        .kind = LOCK,
        .fits = {[ASK_ACCESS] = BIT(CALLS)},
        ENGINES(ETCD, DYNAMODB),
        .guarded = true,
        .use = "five slots, each kept for at least a second",
        .why = "`stile pace` needs an engine with a clock, which this one lacks. A slot that is "
               "kept for a second after its grant comes close: five slots, five grants in any "
               "second.",
        .command = "stile run {engine}{ttl}{guard} --slots 5 --hold-at-least 1s NAME -- CMD",
        .read = "docs/pace.md#not-on-etcd-dynamodb-and-redlock",
    },
    /* ---- many readers ---- */
    {
        .id = "snapshot",
        .kind = NO_LOCK,
        .fits = {[ASK_ACCESS] = BIT(READS), [ASK_WHERE] = SQL},
        .use = "a snapshot for readers, a version for writers",
        .why = "Every reader sees the database as of one moment, and no writer waits for it. The "
               "few writers compare a version column, and repeat if it has changed.",
        .command = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT ...; COMMIT",
        .in_mysql = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY; SELECT ...; COMMIT",
        .in_sqlite = "BEGIN; SELECT ...; COMMIT",
        .read = "docs/choosing.md",
    },
    {
        .id = "read-redis",
        .kind = NO_LOCK,
        .fits = {[ASK_ACCESS] = BIT(READS), [ASK_WHERE] = BIT(IN_REDIS)},
        .use = "one command or MULTI, for readers and writers",
        .why = "Redis runs MGET, or what stands between MULTI and EXEC, without anything in "
               "between. So readers never see half of a change.",
        .command = "redis-cli MGET a b",
        .read = "docs/choosing.md",
    },
    {
        .id = "read-cell",
        .kind = CELL,
        .fits = {[ASK_ACCESS] = BIT(READS), [ASK_WHERE] = BIT(IN_CELL)},
        ENGINES(LOCAL, ETCD, ZK, POSTGRES, MYSQL, DYNAMODB, REDIS),
        .use = "a cell",
        .why = "A cell is read and replaced as a whole, so a reader never sees half of it. Writers "
               "use `stile cell update`, which starts over if another one was faster.",
        .command = "stile cell get {engine} KEY",
        .read = "docs/fences.md#cells",
    },
    {
        .id = "read-file",
        .kind = LOCK,
        .fits = {[ASK_ACCESS] = BIT(READS), [ASK_WHERE] = BIT(IN_FILE)},
        ENGINES(LOCAL, ETCD, ZK, POSTGRES, MYSQL, DYNAMODB, REDLOCK, REDIS),
        .guarded = true,
        .use = "a lock for writers only",
        .why = "`stile file put` replaces the file in one step, so readers open it without a lock "
               "and see the old content or the new. Only writers take turns.",
        .command = "stile run {engine}{ttl}{guard} NAME -- sh -c 'CMD >draft && stile file put "
                   "FILE <draft'",
        .read = "docs/fences.md#files",
    },
    {
        .id = "shared",
        .kind = LOCK,
        .fits = {[ASK_ACCESS] = BIT(READS)},
        ENGINES(LOCAL, ETCD, ZK, POSTGRES, REDIS, MYSQL, DYNAMODB),
        .guarded = true,
        .shared = true,
        .use = "a lock of readers and writers",
        .why = "Readers hold it together, and a writer holds it alone, so nobody reads half of a "
               "change. The command is the writer's; readers add --shared.",
        .command = RUN,
        .read = "docs/guarantees.md",
    },
    /* ---- changes of data that has its own transactions ---- */
    {
        .id = "statement",
        .kind = NO_LOCK,
        .fits = {[ASK_ACCESS] = BIT(WRITES), [ASK_WHERE] = SQL, [ASK_HOLD] = BIT(INSTANT)},
        .brief = "the last unit in stock, in one database",
        .use = "one atomic statement",
        .why = "The condition is checked and the row changed in one step, so the last unit is sold "
               "once. It is also the fastest way, at low and at high contention.",
        .command = "UPDATE stock SET n = n - 1 WHERE id = 7 AND n > 0",
        .read = "docs/scenarios.md#the-last-unit-in-stock",
    },
    {
        .id = "version",
        .kind = NO_LOCK,
        .fits = {[ASK_ACCESS] = BIT(WRITES),
                 [ASK_WHERE] = SQL,
                 [ASK_HOLD] = BIT(SHORT),
                 [ASK_CONTENTION] = BIT(LOW)},
        .brief =
            "a row that is read, changed for some seconds and written back; conflicts are rare",
        .use = "a version column",
        .why = "No transaction stays open while the work is done, and a row that has changed since "
               "it was read is not overwritten. If no row was updated, read again and repeat.",
        .command = "UPDATE doc SET body = 'new', version = 8 WHERE id = 7 AND version = 7",
        .read = "docs/scenarios.md#the-last-unit-in-stock",
    },
    {
        .id = "row-lock",
        .kind = OWN_LOCK,
        .fits = {[ASK_ACCESS] = BIT(WRITES),
                 [ASK_WHERE] = SQL,
                 [ASK_HOLD] = BIT(SHORT),
                 [ASK_CONTENTION] = BIT(HIGH)},
        .brief = "the same, with frequent conflicts",
        .use = "the database's own lock: SELECT ... FOR UPDATE",
        .why = "The lock and the write are one transaction, so no write can come after the lock "
               "has ended. Writers queue instead of repeating their work.",
        .command = "BEGIN; SELECT n FROM stock WHERE id = 7 FOR UPDATE; UPDATE ...; COMMIT",
        .in_sqlite = "BEGIN IMMEDIATE; SELECT n FROM stock WHERE id = 7; UPDATE ...; COMMIT",
        .read = "docs/scenarios.md#the-last-unit-in-stock",
    },
    {
        .id = "script",
        .kind = NO_LOCK,
        .fits =
            {[ASK_ACCESS] = BIT(WRITES), [ASK_WHERE] = BIT(IN_REDIS), [ASK_HOLD] = BIT(INSTANT)},
        .use = "one script",
        .why = "Redis runs a script without anything in between, so it reads, decides and writes "
               "in one step. Nothing is held, so nothing can be held too long.",
        .command = "redis-cli EVAL \"return redis.call('GET', KEYS[1]) == ARGV[1] and "
                   "redis.call('SET', KEYS[1], ARGV[2])\" 1 KEY OLD NEW",
        .read = "docs/choosing.md",
    },
    {
        .id = "watch",
        .kind = NO_LOCK,
        .fits = {[ASK_ACCESS] = BIT(WRITES),
                 [ASK_WHERE] = BIT(IN_REDIS),
                 [ASK_HOLD] = BIT(SHORT),
                 [ASK_CONTENTION] = BIT(LOW)},
        .use = "a version: WATCH, MULTI, EXEC",
        .why = "EXEC writes nothing if a watched key has changed since it was read. Nobody waits, "
               "and the loser of the few conflicts repeats its work.",
        .command = "WATCH key; GET key; MULTI; SET key new; EXEC",
        .read = "docs/choosing.md",
    },
    {
        .id = "lock-redis-data",
        .kind = OWN_LOCK,
        .fits = {[ASK_ACCESS] = BIT(WRITES),
                 [ASK_WHERE] = BIT(IN_REDIS),
                 [ASK_HOLD] = BIT(SHORT),
                 [ASK_CONTENTION] = BIT(HIGH)},
        .guarded = true,
        .use = "a lock on the Redis that has the data, and its guard",
        .why = "Writers queue instead of repeating their work. Lock, guard and data are on one "
               "server, so that a failover takes all three back to the same moment.",
        .command = "stile run -e redis://HOST{ttl} --guard '#RESOURCE' NAME -- CMD",
        .read = "docs/fences.md#redis",
    },
    {
        .id = "cell",
        .kind = CELL,
        .fits = {[ASK_ACCESS] = BIT(WRITES),
                 [ASK_WHERE] = BIT(IN_CELL),
                 [ASK_HOLD] = BIT(INSTANT) | BIT(SHORT)},
        ENGINES(LOCAL, ETCD, ZK, POSTGRES, MYSQL, DYNAMODB, REDIS),
        .brief = "a small value that has no place yet: a cursor, a configuration",
        .use = "a cell",
        .why = "A cell has a version, and `stile cell update` writes only if it has not changed "
               "since it was read. No update is lost, however many write at once.",
        .command = "stile cell update {engine} KEY -- CMD",
        .read = "docs/fences.md#cells",
    },
    /* ---- one leader ---- */
    {
        .id = "elect",
        .kind = LOCK,
        .fits = {[ASK_ACCESS] = BIT(LEADS), [ASK_GOAL] = BIT(EFFICIENCY)},
        ENGINES(LOCAL, REDIS, ETCD, ZK, POSTGRES, MYSQL, DYNAMODB),
        .use = "stile elect",
        .why = "One process leads until it ends or is cut off, and the next candidate follows. Its "
               "whole process tree is gone before its leadership ends.",
        .command = "stile elect {engine}{ttl} NAME -- CMD",
        .read = "docs/elect.md",
    },
    {
        .id = "elect-guarded",
        .kind = LOCK,
        .fits = {[ASK_ACCESS] = BIT(LEADS), [ASK_GOAL] = BIT(CORRECTNESS)},
        ENGINES(LOCAL, ETCD, ZK, POSTGRES, MYSQL, DYNAMODB, REDLOCK, REDIS),
        .guarded = true,
        .brief = "one leader, and its paused predecessor must not write",
        .use = "stile elect, and a guard",
        .why = "Each leader has a larger token than the one before it. A leader that was paused "
               "does not know that it has been replaced, and only the guard refuses its writes.",
        .command = "stile elect {engine}{ttl}{guard} NAME -- CMD",
        .read = "docs/elect.md",
    },
    /* ---- a lock, and a double run is a nuisance ---- */
    {
        .id = "lock-local",
        .kind = LOCK,
        .fits = {[ASK_GOAL] = BIT(EFFICIENCY)},
        ENGINES(LOCAL),
        .brief = "a job that runs alone, all on one machine",
        .use = "a lock on local:",
        .why = "Nothing has to be installed, and the kernel knows at once when a holder has ended. "
               "There is no lease that could run out.",
        .command = RUN,
        .read = "docs/guarantees.md#local",
    },
    {
        .id = "lock-redis",
        .kind = LOCK,
        .fits = {[ASK_GOAL] = BIT(EFFICIENCY)},
        ENGINES(REDIS),
        .brief = "a job that runs alone on many machines; twice is a nuisance",
        .use = "a lock on one Redis server",
        .why = "One server is quick, and enough where a double run is a nuisance. Several "
               "independent ones (redlock) would cost more and are needed for correctness only.",
        .command = RUN,
        .read = "docs/guarantees.md#redis",
    },
    {
        .id = "lock-database",
        .kind = LOCK,
        .fits = {[ASK_GOAL] = BIT(EFFICIENCY)},
        ENGINES(POSTGRES, MYSQL),
        .use = "a lock on your database server",
        .why = "There is nothing more to run. The lock ends with its connection, so the next one "
               "starts milliseconds after a holder has died.",
        .command = RUN,
        .read = "docs/guarantees.md",
    },
    {
        .id = "lock-consensus",
        .kind = LOCK,
        .fits = {[ASK_GOAL] = BIT(EFFICIENCY)},
        ENGINES(ETCD, ZK),
        .use = "a lock on your cluster",
        .why = "It is there, and survives the loss of any minority of its members. Each grant "
               "costs a write to a majority, which a job does not notice.",
        .command = RUN,
        .read = "docs/guarantees.md",
    },
    {
        .id = "lock-dynamodb",
        .kind = LOCK,
        .fits = {[ASK_GOAL] = BIT(EFFICIENCY)},
        ENGINES(DYNAMODB),
        .brief = "the same, with no server of your own",
        .use = "a lock in a table of DynamoDB",
        .why = "There is no server to run, and a pair is two writes. Waiters are not woken: each "
               "reads the item about once a second, and sees a dead holder's lease end by itself.",
        .command = RUN,
        .read = "docs/guarantees.md#dynamodb",
    },
    /* ---- a lock, and a double run is damage: always with a guard ---- */
    {
        .id = "guarded-in-postgres",
        .kind = LOCK,
        .fits = {[ASK_WHERE] = BIT(IN_POSTGRES), [ASK_GOAL] = BIT(CORRECTNESS)},
        ENGINES(POSTGRES),
        .guarded = true,
        .brief = "long work on one database; twice is damage",
        .use = "a lock on the database that has the data, and its guard",
        .why = "There is nothing more to run, and the lock fails only where the data is out of "
               "reach as well. The guard refuses a holder that was paused, in the transaction that "
               "writes.",
        .command = RUN,
        .read = "docs/fences.md#postgresql",
    },
    {
        .id = "guarded-in-mysql",
        .kind = LOCK,
        .fits = {[ASK_WHERE] = BIT(IN_MYSQL), [ASK_GOAL] = BIT(CORRECTNESS)},
        ENGINES(MYSQL),
        .guarded = true,
        .use = "a lock on the database that has the data, and its guard",
        .why = "There is nothing more to run, and the lock fails only where the data is out of "
               "reach as well. The guard refuses a holder that was paused, in the transaction that "
               "writes.",
        .command = RUN,
        .read = "docs/fences.md#mysql-and-mariadb",
    },
    {
        .id = "guarded-local",
        .kind = LOCK,
        .fits = {[ASK_GOAL] = BIT(CORRECTNESS)},
        ENGINES(LOCAL),
        .guarded = true,
        .use = "a lock on local:, and a guard",
        .why = "On one machine the lock lasts exactly as long as its holder, and nothing else can "
               "fail. The guard is for the day when somebody uses `stile break` on a holder that "
               "only slept.",
        .command = RUN,
        .read = "docs/fences.md",
    },
    {
        .id = "guarded-consensus",
        .kind = LOCK,
        .fits = {[ASK_GOAL] = BIT(CORRECTNESS)},
        ENGINES(ETCD, ZK),
        .guarded = true,
        .brief = "a job that must never run twice, on many machines",
        .use = "a lock on your cluster, and a guard",
        .why = "A majority keeps the lock and its token through crashes and failovers. No lock "
               "stops a holder that is paused past its lease, so the place that it writes to "
               "compares the token.",
        .command = RUN,
        .read = "docs/fences.md",
    },
    {
        .id = "guarded-database",
        .kind = LOCK,
        .fits = {[ASK_GOAL] = BIT(CORRECTNESS)},
        ENGINES(POSTGRES, MYSQL),
        .guarded = true,
        .use = "a lock on your database server, and a guard",
        .why = "The token is larger with each grant and never repeats. A failover frees all "
               "locks before their holders know it, so the place that is written to compares the "
               "token.",
        .command = RUN,
        .read = "docs/fences.md",
    },
    {
        .id = "guarded-dynamodb",
        .kind = LOCK,
        .fits = {[ASK_GOAL] = BIT(CORRECTNESS)},
        ENGINES(DYNAMODB),
        .guarded = true,
        .use = "a lock in a table of DynamoDB, and a guard",
        .why = "Each grant is a conditional write in one region, and its token only grows. A "
               "holder that is paused past its TTL is replaced, so the place that it writes to "
               "compares the token.",
        .command = RUN,
        .read = "docs/fences.md#dynamodb",
    },
    {
        .id = "guarded-redlock",
        .kind = LOCK,
        .fits = {[ASK_GOAL] = BIT(CORRECTNESS)},
        ENGINES(REDLOCK),
        .guarded = true,
        .brief = "the same, with several Redis servers and nothing else",
        .use = "fenced redlock, and a guard",
        .why = "A majority votes for each token, so tokens grow without any clock, and a server "
               "that forgot its data does not count. The lock itself depends on clocks, so the "
               "place that is written to compares the token.",
        .command = RUN,
        .read = "docs/fenced-redlock.md",
    },
    {
        .id = "guarded-redis",
        .kind = LOCK,
        .fits = {[ASK_GOAL] = BIT(CORRECTNESS)},
        ENGINES(REDIS),
        .guarded = true,
        .brief = "the same, with one Redis server and nothing else",
        .use = "a lock on one Redis server, and a guard",
        .why = "The guard refuses a holder that was paused past its TTL. A failover to a replica "
               "may forget a lock or repeat a token, so use a server with appendfsync always and "
               "no automatic failover, or another engine.",
        .command = RUN,
        .read = "docs/fences.md",
    },
};

const size_t advice_n_rules = sizeof advice_rules / sizeof advice_rules[0];
