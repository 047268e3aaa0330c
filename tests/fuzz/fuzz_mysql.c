/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What a MariaDB or MySQL server, or something in front of it, may return to our statements: rows
 * of any form, fewer or more results than statements, errors, and the end of the connection at any
 * time. libmariadb reads the wire, so it is what is played here: session.c makes the same calls,
 * which are suspended and go on as the real ones. */
#include <mysql.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/container.h"
#include "fuzz/played_rows.h"

extern const struct engine_class maria_class;

#define THREAD_ID  12
#define LAST_WORDS 64

/* One row a fetch, and the lengths of that row. */
struct result {
    struct played_rows rows;
    unsigned at;
    unsigned long *lengths;
};

struct conn {
    struct conn *next;
    int fd, peer;
    struct timer timer;
    char *sql;        /* what is being answered */
    const char *left; /* of it: statements without a result so far */
    struct result *result;
    unsigned code;
    unsigned more; /* results that nobody has asked for */
};

static struct conn *all;

static struct conn *of(MYSQL *mysql)
{
    return (struct conn *)mysql;
}

static struct result *result_of(MYSQL_RES *rows)
{
    return (struct result *)rows;
}

/* ---- the server ---- */

static void on_time(struct timer *timer)
{
    struct conn *conn = container_of(timer, struct conn, timer);
    size_t n;
    unsigned what = played_pick(48);
    const uint8_t *bytes = what == 47 ? played_bytes(&n, LAST_WORDS) : NULL;
    if (bytes)
        (void)send(conn->peer, bytes, n, MSG_NOSIGNAL); /* it may have shut it down before */
    if (what == 46)
        shutdown(conn->peer, SHUT_RDWR);
    played_fire(conn->fd, EPOLLIN | EPOLLOUT);
}

static void wait(struct conn *conn)
{
    loop_arm(played_loop, &conn->timer, loop_now(played_loop) + played_delay_ns());
}

static bool starts_with(const char *text, const char *word)
{
    return strncmp(text, word, strlen(word)) == 0;
}

/* What a server would answer while the client opens: behind that lies most of the engine. */
static const char *const *usual_row(const char *sql)
{
    static const char *const facts[] = {"12", "10.11.6-MariaDB", "0", "1", "1", "1", NULL};
    static const char *const version[] = {"4", "1", NULL};
    static const char *const uptime[] = {"Uptime", "100", NULL};
    static const char *const none[] = {NULL};
    static const char *const proof[] = {"1", "1", NULL};
    if (starts_with(sql, "SELECT CONNECTION_ID(),VERSION()"))
        return facts;
    if (starts_with(sql, "SELECT MAX(version)"))
        return version;
    if (starts_with(sql, "SHOW GLOBAL STATUS LIKE 'Uptime'"))
        return uptime;
    if (starts_with(sql, "SHOW GLOBAL VARIABLES"))
        return none;
    return starts_with(sql, "SELECT CONNECTION_ID()=") ? proof : NULL;
}

static bool has_rows(const char *sql)
{
    bool usual = starts_with(sql, "SELECT") || starts_with(sql, "SHOW") || starts_with(sql, "CALL");
    return usual == (played_pick(16) != 15);
}

static unsigned error_code(void)
{
    static const unsigned codes[] = {1205, 1213, 1317, 3024, 2013, 1146, 1142, 1927,
                                     1290, 1062, 1020, 2006, 3572, 1969, 1305, 2008};
    return codes[played_pick(sizeof codes / sizeof *codes)];
}

static void drop_result(struct conn *conn)
{
    mysql_free_result((MYSQL_RES *)conn->result);
    conn->result = NULL;
}

/* The result of the next statement, or its error. */
static void next_result(struct conn *conn)
{
    conn->code = 0;
    conn->result = NULL;
    if (played_is_over() || played_pick(24) == 23) {
        conn->code = error_code();
        conn->left = NULL;
        return;
    }
    const char *sql = conn->left ? conn->left : "";
    const char *end = strchr(sql, ';');
    if (has_rows(sql)) {
        conn->result = calloc(1, sizeof *conn->result);
        MUST(conn->result);
        played_rows_fill(&conn->result->rows, usual_row(sql));
        if (conn->result->rows.columns == 0)
            drop_result(conn);
    }
    conn->left = end ? end + 1 : NULL;
    if (played_pick(32) == 31)
        conn->left = NULL; /* fewer than statements */
    conn->more = !conn->left && played_pick(32) == 31;
}

/* ---- libmariadb: connections ---- */

MYSQL *mysql_init(MYSQL *mysql)
{
    struct conn *conn = calloc(1, sizeof *conn);
    int fds[2];
    MUST(!mysql && conn && !loop_reserve(played_loop, 1));
    MUST(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
    conn->fd = fds[0];
    conn->peer = fds[1];
    conn->timer.fn = on_time;
    conn->next = all;
    all = conn;
    return (MYSQL *)conn;
}

static void drop_answer(struct conn *conn)
{
    drop_result(conn);
    free(conn->sql);
    conn->sql = NULL;
    conn->left = NULL;
}

void mysql_close(MYSQL *mysql)
{
    struct conn *conn = of(mysql), **link = &all;
    while (*link != conn)
        link = &(*link)->next;
    *link = conn->next;
    loop_disarm(played_loop, &conn->timer);
    loop_unreserve(played_loop, 1);
    drop_answer(conn);
    close(conn->fd);
    close(conn->peer);
    free(conn);
}

int mysql_options(MYSQL *mysql, enum mysql_option option, const void *value)
{
    (void)mysql, (void)option, (void)value;
    return 0;
}

my_socket mysql_get_socket(MYSQL *mysql)
{
    return of(mysql)->fd;
}

unsigned long mysql_thread_id(MYSQL *mysql)
{
    (void)mysql;
    return THREAD_ID;
}

unsigned mysql_errno(MYSQL *mysql)
{
    return of(mysql)->code;
}

const char *mysql_error(MYSQL *mysql)
{
    return of(mysql)->code ? "because (115)" : "";
}

int mysql_real_connect_start(MYSQL **out, MYSQL *mysql, const char *host, const char *user,
                             const char *password, const char *database, unsigned port,
                             const char *path, unsigned long flags)
{
    (void)host, (void)user, (void)password, (void)database, (void)port, (void)path, (void)flags;
    *out = NULL;
    wait(of(mysql));
    return MYSQL_WAIT_WRITE;
}

int mysql_real_connect_cont(MYSQL **out, MYSQL *mysql, int ready)
{
    bool fails = played_is_over() || ready & MYSQL_WAIT_TIMEOUT || played_pick(16) == 15;
    of(mysql)->code = fails ? error_code() : 0;
    *out = fails ? NULL : mysql;
    return 0;
}

/* ---- libmariadb: requests ---- */

int mysql_send_query_start(int *failed, MYSQL *mysql, const char *sql, unsigned long n)
{
    struct conn *conn = of(mysql);
    MUST(strlen(sql) == n);
    drop_answer(conn);
    conn->sql = strdup(sql);
    MUST(conn->sql);
    conn->left = conn->sql;
    *failed = played_pick(64) == 63;
    conn->code = *failed ? 2013 : 0;
    wait(conn);
    return played_pick(32) == 31 ? MYSQL_WAIT_WRITE : 0;
}

int mysql_send_query_cont(int *failed, MYSQL *mysql, int ready)
{
    *failed = (ready & MYSQL_WAIT_TIMEOUT) != 0;
    of(mysql)->code = *failed ? 2013 : 0;
    wait(of(mysql));
    return 0;
}

int mysql_read_query_result_start(my_bool *failed, MYSQL *mysql)
{
    next_result(of(mysql));
    *failed = of(mysql)->code != 0;
    if (played_pick(32) == 31) {
        wait(of(mysql));
        return MYSQL_WAIT_READ;
    }
    return 0;
}

int mysql_read_query_result_cont(my_bool *failed, MYSQL *mysql, int ready)
{
    if (ready & MYSQL_WAIT_TIMEOUT)
        of(mysql)->code = 2013;
    *failed = of(mysql)->code != 0;
    return 0;
}

int mysql_store_result_start(MYSQL_RES **rows, MYSQL *mysql)
{
    struct conn *conn = of(mysql);
    *rows = (MYSQL_RES *)conn->result;
    if (played_pick(48) == 47) {
        mysql_free_result(*rows);
        *rows = NULL;
        conn->code = error_code();
    }
    conn->result = NULL;
    return 0;
}

int mysql_store_result_cont(MYSQL_RES **rows, MYSQL *mysql, int ready)
{
    (void)rows, (void)mysql, (void)ready;
    MUST(false);
    return 0;
}

int mysql_next_result_start(int *failed, MYSQL *mysql)
{
    struct conn *conn = of(mysql);
    MUST(conn->left || conn->more);
    next_result(conn);
    *failed = conn->code != 0;
    return 0;
}

int mysql_next_result_cont(int *failed, MYSQL *mysql, int ready)
{
    (void)failed, (void)mysql, (void)ready;
    MUST(false);
    return 0;
}

my_bool mysql_more_results(MYSQL *mysql)
{
    return of(mysql)->left || of(mysql)->more;
}

unsigned mysql_field_count(MYSQL *mysql)
{
    return of(mysql)->result ? of(mysql)->result->rows.columns : 0;
}

my_ulonglong mysql_affected_rows(MYSQL *mysql)
{
    static const my_ulonglong counts[] = {1, 0, 2, UINT64_MAX};
    (void)mysql;
    return counts[played_pick(4)];
}

my_ulonglong mysql_insert_id(MYSQL *mysql)
{
    static const my_ulonglong ids[] = {5, 0, 1, UINT64_MAX, INT64_MAX, 7};
    (void)mysql;
    return ids[played_pick(6)];
}

/* ---- libmariadb: results ---- */

void mysql_free_result(MYSQL_RES *rows)
{
    struct result *result = result_of(rows);
    if (!result)
        return;
    played_rows_free(&result->rows);
    free(result->lengths);
    free(result);
}

unsigned mysql_num_fields(MYSQL_RES *rows)
{
    return result_of(rows)->rows.columns;
}

my_ulonglong mysql_num_rows(MYSQL_RES *rows)
{
    return result_of(rows)->rows.rows;
}

MYSQL_ROW mysql_fetch_row(MYSQL_RES *rows)
{
    struct result *result = result_of(rows);
    return result->at < result->rows.rows ? result->rows.values[result->at++] : NULL;
}

/* Of the row that was fetched last, in one place for all rows. */
unsigned long *mysql_fetch_lengths(MYSQL_RES *rows)
{
    struct result *result = result_of(rows);
    unsigned n = result->rows.columns;
    if (result->at == 0)
        return NULL;
    if (!result->lengths)
        result->lengths = malloc(n ? n * sizeof *result->lengths : 1);
    MUST(result->lengths);
    for (unsigned i = 0; i < n; i++) {
        const char *value = result->rows.values[result->at - 1][i];
        result->lengths[i] = value ? strlen(value) : 0;
    }
    return result->lengths;
}

void mysql_data_seek(MYSQL_RES *rows, unsigned long long row)
{
    result_of(rows)->at = (unsigned)row;
}

MYSQL_ROW_OFFSET mysql_row_tell(MYSQL_RES *rows)
{
    return (MYSQL_ROW_OFFSET)(uintptr_t)(result_of(rows)->at + 1);
}

MYSQL_ROW_OFFSET mysql_row_seek(MYSQL_RES *rows, MYSQL_ROW_OFFSET row)
{
    MYSQL_ROW_OFFSET before = mysql_row_tell(rows);
    result_of(rows)->at = (unsigned)(uintptr_t)row - 1;
    return before;
}

/* ---- the target ---- */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const urls[] = {
        "mysql://root@127.0.0.1/d", "mysql://root@127.0.0.1/d?mode=table",
        "mysql://root@127.0.0.1/d?mode=row", "mysql://root@127.0.0.1/d?allow=pooler",
        "mysql://root@127.0.0.1/d?mode=table&dialect=shedlock&table=shedlock"};
    played_run(&maria_class, urls, sizeof urls / sizeof *urls, data, size);
    MUST(!all);
    return 0;
}
