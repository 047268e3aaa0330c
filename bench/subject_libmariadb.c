/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The least that GET_LOCK costs: one statement to take it and one to give it, through libmariadb,
 * one connection for each lock. Three of them: tried, waited for inside the server, and with one
 * row that is updated and committed, as a token needs. */
#include <mysql.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

struct bare {
    MYSQL *conn;
    char try[256], wait[256], give[256], count[256];
};

static void run(MYSQL *conn, const char *sql)
{
    if (mysql_real_query(conn, sql, strlen(sql)))
        bench_die("libmariadb: %s: %s", sql, mysql_error(conn));
    mysql_free_result(mysql_store_result(conn));
}

static MYSQL *connect_to(const char *url)
{
    MYSQL *conn = mysql_init(NULL);
    unsigned port = 0;
    if (sscanf(url, "mysql://root@127.0.0.1:%u", &port) != 1)
        bench_die("%s: want mysql://root@127.0.0.1:PORT", url);
    if (!mysql_real_connect(conn, "127.0.0.1", "root", NULL, "tests", port, NULL, 0))
        bench_die("libmariadb: %s", mysql_error(conn));
    return conn;
}

static void *open_libmariadb(const char *place, const char *lock_name)
{
    struct bare *bare = calloc(1, sizeof *bare);
    if (!bare)
        bench_die("out of memory");
    bare->conn = connect_to(place);
    snprintf(bare->try, sizeof bare->try, "SELECT GET_LOCK('bare %s',0)", lock_name);
    snprintf(bare->wait, sizeof bare->wait, "SELECT GET_LOCK('bare %s',1000)", lock_name);
    snprintf(bare->give, sizeof bare->give, "SELECT RELEASE_LOCK('bare %s')", lock_name);
    snprintf(bare->count, sizeof bare->count, "UPDATE bench_row SET n=n+1 WHERE name='%s'",
             lock_name);
    return bare;
}

static void *open_row(const char *place, const char *lock_name)
{
    struct bare *bare = open_libmariadb(place, lock_name);
    char make[256];
    run(bare->conn, "CREATE TABLE IF NOT EXISTS bench_row (name VARCHAR(64) PRIMARY KEY, "
                    "n BIGINT NOT NULL) ENGINE=InnoDB");
    snprintf(make, sizeof make, "INSERT IGNORE INTO bench_row VALUES ('%s',0)", lock_name);
    run(bare->conn, make);
    return bare;
}

static void take_by_try(void *handle)
{
    struct bare *bare = handle;
    run(bare->conn, bare->try);
}

static void take_by_wait(void *handle)
{
    struct bare *bare = handle;
    run(bare->conn, bare->wait);
}

static void take_and_count(void *handle)
{
    struct bare *bare = handle;
    run(bare->conn, bare->try);
    run(bare->conn, bare->count);
}

static void give(void *handle)
{
    struct bare *bare = handle;
    run(bare->conn, bare->give);
}

void libmariadb_ping(const char *url)
{
    static MYSQL *conn;
    if (!conn)
        conn = connect_to(url);
    run(conn, "SELECT 1");
}

const struct subject subject_libmariadb = {
    .name = "libmariadb", .open = open_libmariadb, .take = take_by_try, .give = give};
const struct subject subject_libmariadb_wait = {
    .name = "libmariadb-wait", .open = open_libmariadb, .take = take_by_wait, .give = give};
const struct subject subject_libmariadb_row = {
    .name = "libmariadb-row", .open = open_row, .take = take_and_count, .give = give};

/* ---- a value that is replaced if its version is the one before ---- */

struct swapped {
    MYSQL *conn;
    const char *key;
    unsigned long version;
};

static void *open_swapped(const char *place, const char *key)
{
    struct swapped *swapped = calloc(1, sizeof *swapped);
    if (!swapped)
        bench_die("out of memory");
    *swapped = (struct swapped){.conn = connect_to(place), .key = key};
    run(swapped->conn, "CREATE TABLE IF NOT EXISTS bench_cell (name VARBINARY(512) PRIMARY KEY, "
                       "version BIGINT NOT NULL, value MEDIUMBLOB NOT NULL) ENGINE=InnoDB");
    return swapped;
}

static void swap(void *handle, const void *value, size_t size)
{
    struct swapped *swapped = handle;
    char *hex = malloc(2 * size + 1), *sql = malloc(2 * size + 256);
    if (!hex || !sql)
        bench_die("out of memory");
    mysql_hex_string(hex, value, size);
    if (swapped->version == 0)
        sprintf(sql, "INSERT INTO bench_cell VALUES ('%s',1,X'%s')", swapped->key, hex);
    else
        sprintf(sql,
                "UPDATE bench_cell SET version=%lu,value=X'%s' WHERE name='%s' AND version=%lu",
                swapped->version + 1, hex, swapped->key, swapped->version);
    run(swapped->conn, sql);
    if (mysql_affected_rows(swapped->conn) != 1)
        bench_die("libmariadb: the value was not replaced");
    swapped->version++;
    free(sql);
    free(hex);
}

const struct swap_subject swap_libmariadb = {
    .name = "libmariadb", .open = open_swapped, .swap = swap};
