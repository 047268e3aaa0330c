/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Transactions with a guard and without, batch by batch in turn:
 *
 *   bare      BEGIN, the statements, COMMIT, each a message
 *   equal     the same; the guard is in the message of BEGIN, with the token that it has seen last
 *   raised    the same, each time with a larger token
 *   select    as equal, where the guard is a function, too
 *   apart     as equal, but the guard is a message of its own
 *   read      BEGIN, and a row that is read and locked as the guard does it: the least it can cost
 *
 * small: one UPDATE. usual: a row is read and updated, and a line of a journal is inserted.
 * standard: pgbench's default transaction at its scale 1, like that of TPC-B.
 */
#include "guarded_sql.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define TOKEN    1000000
#define ACCOUNTS 100000
#define TELLERS  10

static const struct guarded_sql *on;
static int64_t raised = TOKEN;

/* ---- how a transaction begins ---- */

static void begin_bare(void)
{
    on->run("BEGIN");
}

static void begin_with(guarded_call_fn *call, const char *before, const char *resource,
                       int64_t token)
{
    char sql[256];
    call(sql, sizeof sql, before, resource, token);
    on->run(sql);
}

static void begin_equal(void)
{
    begin_with(on->guard, "BEGIN;", "same", TOKEN);
}

static void begin_raised(void)
{
    begin_with(on->guard, "BEGIN;", "raised", ++raised);
}

static void begin_select(void)
{
    begin_with(on->guard_select ? on->guard_select : on->guard, "BEGIN;", "same", TOKEN);
}

static void begin_apart(void)
{
    on->run("BEGIN");
    begin_with(on->guard, "", "same", TOKEN);
}

static void begin_read(void)
{
    on->run(on->locking_select);
}

static const struct {
    const char *name;
    void (*begin)(void);
} series[] = {
    {"bare", begin_bare},     {"equal", begin_equal}, {"raised", begin_raised},
    {"select", begin_select}, {"apart", begin_apart}, {"read", begin_read},
};
#define SERIES (sizeof series / sizeof *series)

/* ---- what it does ---- */

static void work_small(void)
{
    on->run("UPDATE account SET balance=balance+1 WHERE id=1");
}

static void work_usual(void)
{
    on->run("SELECT balance FROM account WHERE id=1");
    on->run("UPDATE account SET balance=balance+1 WHERE id=1");
    on->run("INSERT INTO journal (account,amount) VALUES (1,1)");
}

static void work_standard(void)
{
    char sql[256];
    int aid = 1 + rand() % ACCOUNTS, tid = 1 + rand() % TELLERS, delta = rand() % 10001 - 5000;
    snprintf(sql, sizeof sql,
             "UPDATE pgbench_accounts SET abalance = abalance + %d WHERE aid = %d;", delta, aid);
    on->run(sql);
    snprintf(sql, sizeof sql, "SELECT abalance FROM pgbench_accounts WHERE aid = %d;", aid);
    on->run(sql);
    snprintf(sql, sizeof sql, "UPDATE pgbench_tellers SET tbalance = tbalance + %d WHERE tid = %d;",
             delta, tid);
    on->run(sql);
    snprintf(sql, sizeof sql, "UPDATE pgbench_branches SET bbalance = bbalance + %d WHERE bid = 1;",
             delta);
    on->run(sql);
    snprintf(sql, sizeof sql,
             "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) "
             "VALUES (%d, 1, %d, %d, CURRENT_TIMESTAMP);",
             tid, aid, delta);
    on->run(sql);
}

static const struct {
    const char *name;
    void (*work)(void);
} shapes[] = {{"small", work_small}, {"usual", work_usual}, {"standard", work_standard}};

static void (*shape_of(const char *name))(void)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (strcmp(shapes[i].name, name) == 0)
            return shapes[i].work;
    }
    bench_die("no such transaction: %s", name);
}

/* ---- turns ---- */

static void transact(size_t which, void (*work)(void))
{
    series[which].begin();
    work();
    on->run("COMMIT");
}

static void run_batch(size_t which, void (*work)(void), size_t calls)
{
    int64_t *took_ns = calloc(calls, sizeof *took_ns);
    for (size_t i = 0; i < calls; i++) {
        int64_t before_ns = bench_now_ns();
        transact(which, work);
        took_ns[i] = bench_now_ns() - before_ns;
    }
    printf("{\"series\": \"%s\", \"p50_ns\": %" PRId64 "}\n", series[which].name,
           bench_percentile(took_ns, calls, 50));
    free(took_ns);
}

int guarded_sql_main(int argc, char **argv, const struct guarded_sql *database)
{
    if (argc != 6)
        bench_die("usage: %s PORT small|usual|standard ROUNDS CALLS CORE", argv[0]);
    void (*work)(void) = shape_of(argv[2]);
    long rounds = bench_number(argv[3]);
    size_t calls = (size_t)bench_number(argv[4]);
    bench_pin((int)bench_number(argv[5]) - 1);
    on = database;
    on->connect(argv[1]);
    for (size_t i = 0; on->tables[i]; i++)
        on->run(on->tables[i]);
    for (size_t i = 0; i < SERIES; i++)
        transact(i, work);
    for (long round = 0; round < rounds; round++) {
        for (size_t i = 0; i < SERIES; i++) {
            if (series[i].begin != begin_select || on->guard_select)
                run_batch(i, work, calls);
        }
    }
    return 0;
}
