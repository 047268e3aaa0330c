/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What the guard adds to a transaction through libmariadb (guarded_sql.c).
 *
 *   bench-guarded-mysql PORT small|usual|standard ROUNDS CALLS CORE    CORE: the nth we may use
 */
#include <inttypes.h>
#include <mysql.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "guarded_sql.h"

static MYSQL *server;

static void run(const char *sql)
{
    if (mysql_real_query(server, sql, strlen(sql)))
        bench_die("libmariadb: %s: %s", sql, mysql_error(server));
    do
        mysql_free_result(mysql_store_result(server));
    while (mysql_next_result(server) == 0);
    if (mysql_errno(server))
        bench_die("libmariadb: %s: %s", sql, mysql_error(server));
}

static void connect_to(const char *port)
{
    server = mysql_init(NULL);
    if (!mysql_real_connect(server, "127.0.0.1", "root", NULL, "tests",
                            (unsigned)bench_number(port), NULL, CLIENT_MULTI_STATEMENTS))
        bench_die("libmariadb: %s", mysql_error(server));
}

static void call_guard(char *sql, size_t size, const char *before, const char *resource,
                       int64_t token)
{
    snprintf(sql, size, "%sCALL stile_guard('%s', %" PRId64 ", 'redis:accounts')", before, resource,
             token);
}

/* The last ones are pgbench's, but for the type of the filler's column. */
static const char *const tables[] = {
    "CREATE TABLE account (id INT PRIMARY KEY, balance BIGINT) ENGINE=InnoDB",
    "CREATE TABLE journal (id BIGINT AUTO_INCREMENT PRIMARY KEY, account INT, amount INT) "
    "ENGINE=InnoDB",
    "INSERT INTO account VALUES (1,0)",
    "CREATE TABLE pgbench_accounts (aid INT PRIMARY KEY, bid INT, abalance INT, filler CHAR(84)) "
    "ENGINE=InnoDB",
    "CREATE TABLE pgbench_tellers (tid INT PRIMARY KEY, bid INT, tbalance INT, filler CHAR(84)) "
    "ENGINE=InnoDB",
    "CREATE TABLE pgbench_branches (bid INT PRIMARY KEY, bbalance INT, filler CHAR(88)) "
    "ENGINE=InnoDB",
    "CREATE TABLE pgbench_history (tid INT, bid INT, aid INT, delta INT, mtime TIMESTAMP, "
    "filler CHAR(22)) ENGINE=InnoDB",
    "INSERT INTO pgbench_accounts SELECT seq, 1, 0, '' FROM seq_1_to_100000",
    "INSERT INTO pgbench_tellers SELECT seq, 1, 0, NULL FROM seq_1_to_10",
    "INSERT INTO pgbench_branches VALUES (1, 0, NULL)",
    "CALL stile_guard_reset('raised', 0, '')",
    NULL,
};

int main(int argc, char **argv)
{
    static const struct guarded_sql mysql = {
        .connect = connect_to,
        .run = run,
        .guard = call_guard,
        .locking_select = "BEGIN;SELECT token FROM stile_guard WHERE resource='same' "
                          "LOCK IN SHARE MODE",
        .tables = tables,
    };
    return guarded_sql_main(argc, argv, &mysql);
}
