/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What the guard adds to a transaction through libpq, batch by batch in turn:
 *
 *   bare      BEGIN, the statements, COMMIT, each a message
 *   equal     the same; the guard is in the message of BEGIN, with the token that it has seen last
 *   raised    the same, each time with a larger token
 *   apart     as equal, but the guard is a message of its own
 *   read      BEGIN, and a row that is read and locked as the guard does it: the least it can cost
 *
 *   bench-guarded-postgres PORT small|usual ROUNDS CALLS CORE    CORE: the nth that we may use
 *
 * small: one UPDATE. usual: a row is read and updated, and a line of a journal is inserted.
 */
#include <inttypes.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define GUARD "SELECT stile.guard('%s', %" PRId64 ", 'redis:accounts')"

static PGconn *server;
static int64_t raised = 1000000;
static bool usual;

static void run(const char *sql)
{
    PGresult *result = PQexec(server, sql);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
        bench_die("libpq: %s: %s", sql, PQerrorMessage(server));
    PQclear(result);
}

static void begin_guarded(const char *before, const char *resource, int64_t token)
{
    char sql[256];
    snprintf(sql, sizeof sql, "%s" GUARD, before, resource, token);
    run(sql);
}

static void begin_bare(void)
{
    run("BEGIN");
}

static void begin_equal(void)
{
    begin_guarded("BEGIN;", "same", 1000000);
}

static void begin_raised(void)
{
    begin_guarded("BEGIN;", "raised", ++raised);
}

static void begin_apart(void)
{
    run("BEGIN");
    begin_guarded("", "same", 1000000);
}

static void begin_read(void)
{
    run("BEGIN;SELECT token FROM stile.guarded WHERE resource='same' FOR SHARE");
}

static const struct {
    const char *name;
    void (*begin)(void);
} series[] = {
    {"bare", begin_bare},   {"equal", begin_equal}, {"raised", begin_raised},
    {"apart", begin_apart}, {"read", begin_read},
};

static void transact(size_t which)
{
    series[which].begin();
    if (usual)
        run("SELECT balance FROM account WHERE id=1");
    run("UPDATE account SET balance=balance+1 WHERE id=1");
    if (usual)
        run("INSERT INTO journal (account,amount) VALUES (1,1)");
    run("COMMIT");
}

static void run_batch(size_t which, size_t calls)
{
    int64_t *took_ns = calloc(calls, sizeof *took_ns);
    for (size_t i = 0; i < calls; i++) {
        int64_t before_ns = bench_now_ns();
        transact(which);
        took_ns[i] = bench_now_ns() - before_ns;
    }
    printf("{\"series\": \"%s\", \"p50_ns\": %" PRId64 "}\n", series[which].name,
           bench_percentile(took_ns, calls, 50));
    free(took_ns);
}

static void prepare(const char *port)
{
    char address[128];
    snprintf(address, sizeof address, "host=127.0.0.1 user=postgres dbname=postgres port=%s", port);
    server = PQconnectdb(address);
    if (PQstatus(server) != CONNECTION_OK)
        bench_die("libpq: %s", PQerrorMessage(server));
    run("CREATE TABLE account (id INT PRIMARY KEY, balance BIGINT) WITH (fillfactor = 50)");
    run("CREATE TABLE journal (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, account INT, "
        "amount INT)");
    run("INSERT INTO account VALUES (1,0)");
}

int main(int argc, char **argv)
{
    if (argc != 6)
        bench_die("usage: bench-guarded-postgres PORT small|usual ROUNDS CALLS CORE");
    long rounds = bench_number(argv[3]);
    size_t calls = (size_t)bench_number(argv[4]);
    usual = strcmp(argv[2], "usual") == 0;
    bench_pin((int)bench_number(argv[5]) - 1);
    prepare(argv[1]);
    for (size_t i = 0; i < sizeof series / sizeof *series; i++)
        transact(i);
    for (long round = 0; round < rounds; round++) {
        for (size_t i = 0; i < sizeof series / sizeof *series; i++)
            run_batch(i, calls);
    }
    PQfinish(server);
    return 0;
}
