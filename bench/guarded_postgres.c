/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What the guard adds to a transaction through libpq (guarded_sql.c).
 *
 *   bench-guarded-postgres PORT small|usual|standard ROUNDS CALLS CORE    CORE: the nth we may use
 */
#include <inttypes.h>
#include <libpq-fe.h>
#include <stdio.h>

#include "bench.h"
#include "guarded_sql.h"

static PGconn *server;

static void run(const char *sql)
{
    PGresult *result = PQexec(server, sql);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
        bench_die("libpq: %s: %s", sql, PQerrorMessage(server));
    PQclear(result);
}

static void connect_to(const char *port)
{
    char address[128];
    snprintf(address, sizeof address, "host=127.0.0.1 user=postgres dbname=postgres port=%s", port);
    server = PQconnectdb(address);
    if (PQstatus(server) != CONNECTION_OK)
        bench_die("libpq: %s", PQerrorMessage(server));
}

static void call_fence(char *sql, size_t size, const char *before, const char *resource,
                       int64_t token)
{
    snprintf(sql, size, "%sCALL stile.fence('%s', %" PRId64 ", 'redis:accounts')", before, resource,
             token);
}

static void select_guard(char *sql, size_t size, const char *before, const char *resource,
                         int64_t token)
{
    snprintf(sql, size, "%sSELECT stile.guard('%s', %" PRId64 ", 'redis:accounts')", before,
             resource, token);
}

/* The last ones are pgbench's, as `pgbench --initialize` makes them. */
static const char *const tables[] = {
    "CREATE TABLE account (id INT PRIMARY KEY, balance BIGINT) WITH (fillfactor = 50)",
    "CREATE TABLE journal (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, account INT, "
    "amount INT)",
    "INSERT INTO account VALUES (1,0)",
    "CREATE TABLE pgbench_accounts (aid INT PRIMARY KEY, bid INT, abalance INT, filler CHAR(84))",
    "CREATE TABLE pgbench_tellers (tid INT PRIMARY KEY, bid INT, tbalance INT, filler CHAR(84))",
    "CREATE TABLE pgbench_branches (bid INT PRIMARY KEY, bbalance INT, filler CHAR(88))",
    "CREATE TABLE pgbench_history (tid INT, bid INT, aid INT, delta INT, mtime TIMESTAMP, "
    "filler CHAR(22))",
    "INSERT INTO pgbench_accounts SELECT n, 1, 0, '' FROM generate_series(1, 100000) n",
    "INSERT INTO pgbench_tellers SELECT n, 1, 0 FROM generate_series(1, 10) n",
    "INSERT INTO pgbench_branches VALUES (1, 0)",
    "VACUUM ANALYZE",
    "CHECKPOINT",
    NULL,
};

int main(int argc, char **argv)
{
    static const struct guarded_sql postgres = {
        .connect = connect_to,
        .run = run,
        .guard = call_fence,
        .guard_select = select_guard,
        .locking_select = "BEGIN;SELECT token FROM stile.guarded WHERE resource='same' FOR SHARE",
        .tables = tables,
    };
    return guarded_sql_main(argc, argv, &postgres);
}
