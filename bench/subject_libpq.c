/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The least that an advisory lock costs: prepared statements through libpq, one connection for each
 * lock. Three of them: tried, waited for inside the server, and with one row that is updated and
 * committed, as a token needs. And a row that is replaced if its version is the one before. */
#include <inttypes.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
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

/* ---- a value that is replaced if its version is the one before ---- */

struct swapped {
    PGconn *conn;
    const char *key;
    int64_t version;
};

static void *open_swapped(const char *place, const char *key)
{
    struct swapped *swapped = calloc(1, sizeof *swapped);
    if (!swapped)
        bench_die("out of memory");
    *swapped = (struct swapped){.conn = connect_to(place), .key = key};
    check(swapped->conn,
          PQexec(swapped->conn, "set client_min_messages = warning; create table if not exists "
                                "bench_cell (name text primary key, version bigint not null, value "
                                "bytea not null) with (fillfactor = 50)"));
    prepare(swapped->conn, "create", "insert into bench_cell values ($1, $2::bigint + 1, $3)", "");
    prepare(swapped->conn, "swap",
            "update bench_cell set version = version + 1, value = $3 "
            "where name = $1 and version = $2 returning version",
            "");
    return swapped;
}

static void swap(void *handle, const void *value, size_t size)
{
    struct swapped *swapped = handle;
    char version[24];
    const char *values[] = {swapped->key, version, value};
    const int lengths[] = {0, 0, (int)size}, formats[] = {0, 0, 1};
    snprintf(version, sizeof version, "%" PRId64, swapped->version);
    PGresult *result = PQexecPrepared(swapped->conn, swapped->version ? "swap" : "create", 3,
                                      values, lengths, formats, 0);
    if (strcmp(PQcmdTuples(result), "1") != 0)
        bench_die("libpq: the value was not replaced: %s", PQerrorMessage(swapped->conn));
    check(swapped->conn, result);
    swapped->version++;
}

const struct swap_subject swap_libpq = {.name = "libpq", .open = open_swapped, .swap = swap};
