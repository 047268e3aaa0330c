/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The least that an advisory lock costs: prepared statements through libpq, one connection for each
 * lock. Three of them: tried, waited for inside the server, and with one row that is updated and
 * committed, as a token needs. */
#include <libpq-fe.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"

static PGconn *connect_to(const char *url)
{
    PGconn *conn = PQconnectdb(url);
    if (PQstatus(conn) != CONNECTION_OK)
        bench_die("libpq: %s", PQerrorMessage(conn));
    return conn;
}

static void check(PGconn *conn, PGresult *result)
{
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
        bench_die("libpq: %s", PQerrorMessage(conn));
    PQclear(result);
}

static void run(PGconn *conn, const char *statement)
{
    check(conn, PQexecPrepared(conn, statement, 0, NULL, NULL, NULL, 0));
}

static void prepare(PGconn *conn, const char *name, const char *sql, const char *lock_name)
{
    char text[512];
    snprintf(text, sizeof text, sql, lock_name);
    check(conn, PQprepare(conn, name, text, 0, NULL));
}

static void *open_libpq(const char *place, const char *lock_name)
{
    PGconn *conn = connect_to(place);
    prepare(conn, "try", "select pg_try_advisory_lock(hashtextextended('bare %s', 0))", lock_name);
    prepare(conn, "wait", "select pg_advisory_lock(hashtextextended('bare %s', 0))", lock_name);
    prepare(conn, "give", "select pg_advisory_unlock(hashtextextended('bare %s', 0))", lock_name);
    return conn;
}

static void *open_row(const char *place, const char *lock_name)
{
    PGconn *conn = open_libpq(place, lock_name);
    check(conn, PQexec(conn, "set client_min_messages = warning; set synchronous_commit = on; "
                             "create table if not exists bench_row (name text primary key, n "
                             "bigint not null) with (fillfactor = 50)"));
    prepare(conn, "make", "insert into bench_row values ('%s', 0) on conflict do nothing",
            lock_name);
    run(conn, "make");
    prepare(conn, "count", "update bench_row set n = n + 1 where name = '%s' returning n",
            lock_name);
    return conn;
}

static void take_by_try(void *handle)
{
    run(handle, "try");
}

static void take_by_wait(void *handle)
{
    run(handle, "wait");
}

static void take_and_count(void *handle)
{
    run(handle, "try");
    run(handle, "count");
}

static void give(void *handle)
{
    run(handle, "give");
}

void libpq_ping(const char *url)
{
    static PGconn *conn;
    if (!conn) {
        conn = connect_to(url);
        prepare(conn, "ping", "select 1", "");
    }
    run(conn, "ping");
}

const struct subject subject_libpq = {
    .name = "libpq", .open = open_libpq, .take = take_by_try, .give = give};
const struct subject subject_libpq_wait = {
    .name = "libpq-wait", .open = open_libpq, .take = take_by_wait, .give = give};
const struct subject subject_libpq_row = {
    .name = "libpq-row", .open = open_row, .take = take_and_count, .give = give};
