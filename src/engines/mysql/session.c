/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* One connection: requests, answers, its life and its lease. */
#include "engines/mysql/session.h"

#include <errmsg.h>
#include <errno.h>
#include <fcntl.h>
#include <mysqld_error.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engines/mysql/my.h"
#include "engines/mysql/statements.h"
#include "engines/sql/options.h"

#define ABORT_STEPS 16

struct request {
    struct sql_request base;
    char *sql;
    unsigned code; /* of its error, 0 where it isn't the server's */
    size_t n;
    struct outcome outcomes[OUTCOMES_MAX]; /* n of them */
};

/* What a call of the library waits for: MYSQL_WAIT_...; 0: it is done; or there is none. */
#define NO_CALL (-1)

/* ---- errors ---- */

#define TEXT_MAX 512

/* Not in Debian's header: MySQL's codes for wait_timeout, max_execution_time and NOWAIT, and
 * MariaDB's for KILL. */
#define INTERACTION_TIMEOUT 4031
#define CONNECTION_KILLED   1927
#define QUERY_TIMEOUT       3024
#define LOCK_NOWAIT         3572

static void tidy(char *text)
{
    for (char *c = text; *c; c++)
        *c = (unsigned char)*c < ' ' || *c == 127 ? ' ' : *c;
}

/* For a connection that failed the library reports only an errno, and for a timeout the wrong
 * one. */
static void spell_number(char text[TEXT_MAX])
{
    char *at = strrchr(text, '(');
    int number = at ? atoi(at + 1) : 0;
    if (number == EINPROGRESS)
        at[at > text && at[-1] == ' ' ? -1 : 0] = '\0';
    else if (number > 0)
        snprintf(at, (size_t)(text + TEXT_MAX - at), "(%s)", strerror(number));
}

static bool is_library(unsigned code)
{
    return code >= CR_MIN_ERROR && code < 3000;
}

bool maria_error_is_end(unsigned code)
{
    return is_library(code) || code == CONNECTION_KILLED || code == INTERACTION_TIMEOUT ||
           code == ER_SERVER_SHUTDOWN || code == ER_NORMAL_SHUTDOWN;
}

bool maria_error_is_kill(unsigned code)
{
    return code == ER_QUERY_INTERRUPTED || code == ER_STATEMENT_TIMEOUT || code == QUERY_TIMEOUT;
}

bool maria_error_is_busy(unsigned code)
{
    return code == ER_LOCK_WAIT_TIMEOUT || code == LOCK_NOWAIT;
}

bool maria_error_is_undone(unsigned code)
{
    return code == ER_LOCK_DEADLOCK || code == ER_LOCK_WAIT_TIMEOUT || code == ER_CHECKREAD ||
           code == ER_AUTOINC_READ_FAILED;
}

/* A later attempt may succeed. */
static bool may_pass(unsigned code)
{
    static const unsigned passing[] = {
        ER_CON_COUNT_ERROR,     ER_TOO_MANY_USER_CONNECTIONS, ER_USER_LIMIT_REACHED,
        ER_SERVER_SHUTDOWN,     ER_NORMAL_SHUTDOWN,           ER_LOCK_DEADLOCK,
        ER_LOCK_WAIT_TIMEOUT,   ER_QUERY_INTERRUPTED,         CONNECTION_KILLED,
        INTERACTION_TIMEOUT,    ER_OUT_OF_RESOURCES,          ER_CANT_CREATE_THREAD,
        ER_CHECKREAD,           ER_STATEMENT_TIMEOUT,         QUERY_TIMEOUT,
        ER_AUTOINC_READ_FAILED, ER_OPTION_PREVENTS_STATEMENT};
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++) {
        if (code == passing[i])
            return true;
    }
    return is_library(code) && code != CR_SSL_CONNECTION_ERROR &&
           code != CR_AUTH_PLUGIN_CANNOT_LOAD;
}

static const char *what_to_do(unsigned code, const char *said)
{
    static const char makes[] = "CREATE DROP ALTER INDEX REFERENCES";
    size_t verb = strcspn(said, " ,");
    if (code == ER_TABLEACCESS_DENIED_ERROR && verb > 0 && memmem(makes, sizeof makes, said, verb))
        return " (without the privileges, give your DBA the `stile setup --print` output)";
    switch (code) {
    case CR_CONNECTION_ERROR:
    case CR_CONN_HOST_ERROR:
        return ": is it running at this address?";
    case ER_CONNECTION_KILLED:
        return " (KILL, by stile break or an administrator)";
    case ER_CON_COUNT_ERROR:
        return " (max_connections is reached)";
    case ER_TOO_MANY_USER_CONNECTIONS:
    case ER_USER_LIMIT_REACHED:
        return " (max_user_connections is reached)";
    case ER_TABLEACCESS_DENIED_ERROR:
        return " (grant this user SELECT, INSERT, UPDATE and DELETE on the tables stile_%)";
    case ER_PROCACCESS_DENIED_ERROR:
        return " (grant this user EXECUTE on the procedures stile_%)";
    case ER_DBACCESS_DENIED_ERROR:
        return " (grant this user the privileges on this database; stile setup needs CREATE "
               "ROUTINE, too)";
    case ER_SP_DOES_NOT_EXIST:
    case ER_NO_SUCH_TABLE:
        return " (run `stile setup URL`)";
    case ER_DATA_TOO_LONG:
        return " (the name does not fit the table: widen its column, or shorten the name)";
    case ER_KILL_DENIED_ERROR:
        return " (it is another user's session: CONNECTION ADMIN is needed to end it)";
    case ER_OPTION_PREVENTS_STATEMENT:
        return " (the server is read-only: connect to its primary)";
    case CR_SSL_CONNECTION_ERROR:
        return " (TLS is verified for other hosts: ca= names the CA's file; insecure turns it off)";
    default:
        return "";
    }
}

void maria_error_of(struct stile_error *err, unsigned code, const char *said, const char *secret)
{
    char text[TEXT_MAX];
    if (code == ER_BINLOG_STMT_MODE_AND_ROW_ENGINE) /* the server's text is long, and is replaced */
        said = "binlog_format is STATEMENT, which InnoDB does not accept with READ COMMITTED: set "
               "it to MIXED or ROW";
    snprintf(text, sizeof text, "%s", *said ? said : "the server closed the connection");
    tidy(text);
    sql_hide_secret(text, secret);
    if (code == CR_CONNECTION_ERROR || code == CR_CONN_HOST_ERROR)
        spell_number(text);
    enum stile_status status = code == CR_OUT_OF_MEMORY ? STILE_NOMEM
                               : may_pass(code)         ? STILE_UNREACHABLE
                                                        : STILE_REFUSED;
    error_set(err, status, (int)code, "%s%s", text, what_to_do(code, text));
}

/* An error packet: its length in three bytes, a number, 0xff, the code, '#' and five bytes of
 * SQLSTATE, the text. Over TLS it cannot be read here. */
void maria_error_of_last_word(struct stile_error *err, const unsigned char *said, size_t n)
{
    char text[TEXT_MAX];
    if (n < 14 || said[4] != 0xff || said[7] != '#') {
        error_set(err, STILE_UNREACHABLE, 0,
                  "the server has ended the session (KILL, by stile break or an administrator, or "
                  "the lease ran out)");
        return;
    }
    unsigned code = said[5] | (unsigned)said[6] << 8;
    size_t len = n - 13 < sizeof text ? n - 13 : sizeof text - 1;
    memcpy(text, said + 13, len);
    text[len] = '\0';
    maria_error_of(err, code, text, NULL);
}

/* ---- requests ---- */

/* One is kept for reuse: most sessions have one request at a time. */
static struct request *new_request(struct session *s, char *sql, answer_fn *fn, void *data)
{
    struct request *request = s->base.spare ? s->base.spare : malloc(sizeof *request);
    s->base.spare = NULL;
    if (!request)
        return NULL;
    sql_request_init(&request->base, fn, data);
    request->sql = sql;
    request->code = 0;
    request->n = 0;
    return request;
}

void maria_request_drop(struct session *s, struct request *request)
{
    for (size_t i = 0; i < request->n; i++)
        mysql_free_result(request->outcomes[i].rows);
    free(request->sql);
    free(s->base.spare);
    s->base.spare = request;
}

const char *maria_outcome_text(const struct outcome *outcome, unsigned column)
{
    if (!outcome->rows || column >= mysql_num_fields(outcome->rows))
        return NULL;
    mysql_data_seek(outcome->rows, 0);
    MYSQL_ROW row = mysql_fetch_row(outcome->rows);
    return row ? row[column] : NULL;
}

MYSQL_ROW maria_next_row(MYSQL_RES *rows, unsigned columns)
{
    return rows && mysql_num_fields(rows) >= columns ? mysql_fetch_row(rows) : NULL;
}

void maria_request_answer(struct session *s, struct request *request, const struct stile_error *err)
{
    const struct answer a = {.outcomes = err ? NULL : request->outcomes,
                             .n = request->n,
                             .err = err,
                             .code = request->code,
                             .sent_ns = request->base.sent_ns};
    if (request->base.fn)
        request->base.fn(request->base.data, &a);
    maria_request_drop(s, request);
}

/* ---- the socket ---- */

/* While a statement waits inside the server, nothing is received: only the kernel can notice
 * that the network is cut. Fails harmlessly on a Unix socket. */
static void prepare_socket(int fd)
{
    static const struct {
        int level, name, value;
    } wanted[] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
                  {IPPROTO_TCP, TCP_KEEPIDLE, 10},
                  {IPPROTO_TCP, TCP_KEEPINTVL, 5},
                  {IPPROTO_TCP, TCP_KEEPCNT, 3},
                  {IPPROTO_TCP, TCP_USER_TIMEOUT, 25000}};
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        setsockopt(fd, wanted[i].level, wanted[i].name, &wanted[i].value, sizeof(int));
}

/* While connecting, the library may close its socket and open another with the same number. */
static void watch(struct session *s, int waits_for)
{
    int fd = mysql_get_socket(s->conn);
    uint32_t events = waits_for != NO_CALL && waits_for & MYSQL_WAIT_WRITE ? EPOLLOUT : 0;
    if (waits_for == NO_CALL || waits_for & MYSQL_WAIT_READ)
        events |= EPOLLIN;
    s->waits_for = waits_for;
    if (s->base.state == CONNECTING || s->base.watch.fd != fd)
        loop_unwatch(s->base.loop, &s->base.watch);
    if (s->base.watch.fd != fd && fd >= 0)
        prepare_socket(fd);
    s->base.watch.fd = fd;
    if (fd < 0 || (s->base.watch.slot && s->base.watched == events))
        return;
    s->base.watched = events;
    if (loop_watch(s->base.loop, &s->base.watch, events) == 0)
        return;
    /* What it is still watched for would come again and again. */
    loop_unwatch(s->base.loop, &s->base.watch);
    loop_soon(s->base.loop, &s->base.task);
}

static void begin_call(struct session *s, int waits_for)
{
    if (waits_for) {
        watch(s, waits_for);
        return;
    }
    s->waits_for = 0;
    loop_soon(s->base.loop, &s->base.task);
}

/* ---- the library's calls: each returns what it waits for, or 0 when it is done ---- */

static int continue_call(struct session *s, int ready)
{
    switch (s->call) {
    case CALL_CONNECT:
        return mysql_real_connect_cont(&s->connected, s->conn, ready);
    case CALL_SEND:
        return mysql_send_query_cont(&s->failed, s->conn, ready);
    case CALL_AWAIT:
        s->call = CALL_READ;
        return mysql_read_query_result_start(&s->unread, s->conn);
    case CALL_READ:
        return mysql_read_query_result_cont(&s->unread, s->conn, ready);
    case CALL_STORE:
        return mysql_store_result_cont(&s->rows, s->conn, ready);
    case CALL_NEXT:
        return mysql_next_result_cont(&s->failed, s->conn, ready);
    default:
        return NO_CALL;
    }
}

/* The library would try to read the answer at once, when it cannot be there yet. */
static int await_answer(struct session *s)
{
    s->call = CALL_AWAIT;
    return MYSQL_WAIT_READ;
}

static int start_request(struct session *s)
{
    struct request *request = s->base.first;
    request->base.sent_ns = loop_now(s->base.loop);
    s->call = CALL_SEND;
    int waits_for = mysql_send_query_start(&s->failed, s->conn, request->sql, strlen(request->sql));
    return waits_for == 0 && !s->failed ? await_answer(s) : waits_for;
}

static int start_next(struct session *s)
{
    s->call = CALL_NEXT;
    return mysql_next_result_start(&s->failed, s->conn);
}

/* A suspended call has a stack of its own, and has to be run to its end. */
static void abort_call(struct session *s)
{
    if (s->call == CALL_NONE)
        return;
    int fd = mysql_get_socket(s->conn);
    if (fd >= 0)
        shutdown(fd, SHUT_RDWR); /* unread, a COM_QUIT would hide the end of the connection */
    for (int i = 0; i < ABORT_STEPS && s->waits_for > 0 && s->call != CALL_AWAIT; i++)
        s->waits_for = continue_call(s, MYSQL_WAIT_TIMEOUT);
    if (s->call == CALL_STORE && s->waits_for == 0)
        mysql_free_result(s->rows);
    s->call = CALL_NONE;
}

/* ---- results ---- */

static void note_error(struct session *s)
{
    struct request *request = s->base.first;
    request->code = mysql_errno(s->conn);
    maria_error_of(&request->base.error, request->code, mysql_error(s->conn), s->options->password);
}

static int finish_request(struct session *s)
{
    struct request *request = s->base.first;
    s->call = CALL_NONE;
    s->base.used_ns = loop_lately(s->base.loop);
    if (request->base.error.status && maria_error_is_end(request->code)) {
        struct stile_error why = request->base.error;
        sql_session_fail(s, &why);
        return NO_CALL;
    }
    sql_session_take_first(s);
    maria_request_answer(s, request, request->base.error.status ? &request->base.error : NULL);
    if (s->base.doomed || s->base.state == DOWN || !s->base.first || s->call != CALL_NONE)
        return NO_CALL;
    return start_request(s);
}

static int note_outcome(struct session *s, MYSQL_RES *rows)
{
    struct request *request = s->base.first;
    if (request->n == OUTCOMES_MAX) /* the last ones count */
        mysql_free_result(request->outcomes[--request->n].rows);
    request->outcomes[request->n++] = (struct outcome){.rows = rows,
                                                       .affected = mysql_affected_rows(s->conn),
                                                       .insert_id = mysql_insert_id(s->conn)};
    return mysql_more_results(s->conn) ? start_next(s) : finish_request(s);
}

static int take_result(struct session *s)
{
    if (mysql_field_count(s->conn) == 0)
        return note_outcome(s, NULL);
    s->call = CALL_STORE;
    return mysql_store_result_start(&s->rows, s->conn);
}

/* ---- the greeting: whether the server can be relied on ---- */

bool maria_is_too_old(const char *version)
{
    unsigned major = 0, minor = 0, patch = 0;
    sscanf(version, "%u.%u.%u", &major, &minor, &patch);
    unsigned number = major * 10000 + minor * 100 + patch;
    return number < (strstr(version, "MariaDB") ? 100002u : 50705u);
}

static enum stile_status refuse(struct session *session, const char *version, const char *read_only,
                                struct stile_error *err)
{
    if (maria_is_too_old(version))
        return error_set(err, STILE_REFUSED, 0,
                         "this server is older than MariaDB 10.0.2 or MySQL 5.7.5, where a session "
                         "has one lock at most");
    if (strcmp(read_only, "0") != 0) /* it may be about to be promoted */
        return error_set(err, STILE_UNREACHABLE, 0,
                         "this server is read-only, perhaps a replica, whose primary does not know "
                         "of locks taken here: connect to the primary");
    if (session->base.backend != mysql_thread_id(session->conn) &&
        !session->my->options.allow_pooler)
        return error_set(
            err, STILE_REFUSED, 0,
            "there is a proxy between this client and the server, where a session's locks may pass "
            "to another client: use mode=table, or connect to the server directly (or set "
            "allow=pooler, if it keeps a session for each connection)");
    return STILE_OK;
}

static enum stile_status refuse_bare(const char *mode, struct stile_error *err)
{
    return error_set(err, STILE_REFUSED, 0,
                     "this database has no tables stile_*, which mode=%s needs: run `stile setup "
                     "URL`",
                     mode);
}

static enum stile_status refuse_for_table(struct my *my, const char *read_only,
                                          struct stile_error *err)
{
    if (strcmp(read_only, "0") != 0)
        return error_set(err, STILE_UNREACHABLE, 0,
                         "this server is read-only, perhaps a replica, where nothing can be "
                         "locked: connect to its primary");
    return my->bare && !my->options.table ? refuse_bare("table", err) : STILE_OK;
}

bool maria_is_galera(const char *variable)
{
    return strcasecmp(variable, "wsrep_on") == 0;
}

static enum stile_status refuse_cluster(const char *variable, struct stile_error *err)
{
    return error_set(err, STILE_REFUSED, 0,
                     "this server is a node of a %s, and what a session locks is known to one node "
                     "only: use mode=table, or a server outside a cluster",
                     maria_is_galera(variable) ? "Galera cluster (wsrep_on)"
                                               : "replication group with several primaries");
}

static enum stile_status check_server(struct session *session, const struct answer *a,
                                      struct stile_error *err)
{
    struct my *my = session->my;
    bool table = my->options.mode == MODE_TABLE;
    size_t first = table ? 0 : GREETING_SETTINGS;
    const struct outcome *facts = a->n > first + GREETING_UPTIME ? &a->outcomes[first] : NULL;
    const char *version = facts ? maria_outcome_text(facts, FACT_VERSION) : NULL;
    const char *read_only = facts ? maria_outcome_text(facts, FACT_READ_ONLY) : NULL;
    const char *id = facts ? maria_outcome_text(facts, FACT_ID) : NULL;
    if (!version || !read_only || !id)
        return error_set(err, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
    const char *multi_primary = maria_outcome_text(facts + GREETING_MULTI_PRIMARY, 0);
    const char *schema = maria_outcome_text(facts, FACT_SCHEMA);
    const char *guard = maria_outcome_text(facts, FACT_GUARD);
    const char *ends = maria_outcome_text(facts, FACT_ENDS);
    const char *uptime = maria_outcome_text(facts + GREETING_UPTIME, 1);
    session->base.backend = strtoull(id, NULL, 10);
    my->started_ns = (int64_t)loop_now(session->base.loop) -
                     (int64_t)(uptime ? strtoull(uptime, NULL, 10) : 0) * (int64_t)NS_PER_SEC;
    if (sql_opening_is_under_way(&my->opening)) {
        my->bare = !schema || strcmp(schema, "0") == 0;
        my->guards = guard && strcmp(guard, "0") != 0;
        my->ends = ends && strcmp(ends, "0") != 0;
        my->mariadb = strstr(version, "MariaDB") != NULL;
        my->several = multi_primary != NULL;
    }
    if (my->engine.examining)
        return STILE_OK;
    if (table)
        return refuse_for_table(my, read_only, err);
    if (my->options.mode == MODE_ROW && my->bare)
        return refuse_bare("row", err);
    if (multi_primary)
        return refuse_cluster(multi_primary, err);
    return refuse(session, version, read_only, err);
}

/* ---- the beginning ---- */

static void on_greeted(void *data, const struct answer *a)
{
    struct session *s = data;
    struct stile_error err;
    bool refused = !a->err && check_server(s, a, &err);
    sql_session_greeted(s, refused ? &err : a->err);
}

static int greet(struct session *s)
{
    char *sql = maria_sql_greeting(s->my);
    struct request *request = sql ? new_request(s, sql, on_greeted, s) : NULL;
    struct stile_error err;
    if (!request) {
        free(sql);
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        sql_session_fail(s, &err);
        return NO_CALL;
    }
    s->base.state = GREETING;
    sql_session_prepend(s, request);
    return start_request(s);
}

static int connected(struct session *s)
{
    struct stile_error err;
    s->call = CALL_NONE;
    if (s->connected)
        return greet(s);
    maria_error_of(&err, mysql_errno(s->conn), mysql_error(s->conn), s->options->password);
    sql_session_fail(s, &err);
    return NO_CALL;
}

/* ---- driving ---- */

/* The call is done: takes its result, and returns what the next call waits for. */
static int finish_call(struct session *s)
{
    if (s->call == CALL_CONNECT)
        return connected(s);
    bool failed = s->call == CALL_STORE ? !s->rows : s->call == CALL_READ ? s->unread : s->failed;
    if (failed) {
        note_error(s);
        return finish_request(s);
    }
    if (s->call == CALL_SEND)
        return await_answer(s);
    return s->call == CALL_STORE ? note_outcome(s, s->rows) : take_result(s);
}

static void drive(struct session *s, int waits_for)
{
    sql_session_enter(s);
    while (waits_for == 0 && !s->base.doomed && s->base.state != DOWN)
        waits_for = finish_call(s);
    /* A callback may have sent another request, which is then under way already. */
    if (!s->base.doomed && s->base.state != DOWN && (waits_for != NO_CALL || s->call == CALL_NONE))
        watch(s, waits_for);
    sql_session_arm_stall(s);
    sql_session_leave(s);
}

/* No request is under way, so this is the server's last error, or the end of the connection. */
static void read_farewell(struct session *s)
{
    unsigned char said[512];
    struct stile_error err;
    ssize_t n = recv(s->base.watch.fd, said, sizeof said, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    maria_error_of_last_word(&err, said, n > 0 ? (size_t)n : 0);
    sql_session_fail(s, &err);
}

bool maria_session_is_cut(const struct session *s)
{
    char said;
    if (s->base.state != UP || s->call != CALL_NONE)
        return false;
    ssize_t n = recv(s->base.watch.fd, &said, 1, MSG_PEEK | MSG_DONTWAIT);
    return n >= 0 || (errno != EAGAIN && errno != EINTR);
}

static void on_ready(struct watch *watch, uint32_t events)
{
    struct session *s = (struct session *)((char *)watch - offsetof(struct session, base.watch));
    int ready = 0;
    if (s->call == CALL_NONE) {
        read_farewell(s);
        return;
    }
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        ready |= s->waits_for & MYSQL_WAIT_READ;
    if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR))
        ready |= s->waits_for & MYSQL_WAIT_WRITE;
    if (ready)
        drive(s, continue_call(s, ready));
}

/* For a call that was done at once, or a socket that could not be watched. */
static void on_task(struct task *task)
{
    struct session *s = (struct session *)((char *)task - offsetof(struct session, base.task));
    struct stile_error err;
    if (s->call != CALL_NONE && s->waits_for == 0) {
        drive(s, 0);
    } else if (!s->base.watch.slot) {
        error_set(&err, STILE_NOMEM, 0, "the connection can't be watched");
        sql_session_fail(s, &err);
    }
}

enum stile_status maria_send(struct session *s, char *sql, answer_fn *fn, void *data,
                             struct stile_error *err)
{
    struct request *request = sql && s->base.state != DOWN ? new_request(s, sql, fn, data) : NULL;
    if (!request) {
        free(sql);
        if (s->base.state == DOWN)
            return error_set(err, STILE_UNREACHABLE, 0, "the connection is gone");
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    sql_session_append(s, request);
    if (s->base.state != UP || s->call != CALL_NONE)
        return STILE_OK;
    begin_call(s, start_request(s));
    sql_session_arm_stall(s);
    return STILE_OK;
}

static enum stile_status start(struct session *s, struct stile_error *err)
{
    const struct options *o = s->options;
    s->conn = maria_options_prepare(o);
    if (!s->conn)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    s->call = CALL_CONNECT;
    begin_call(s, mysql_real_connect_start(&s->connected, s->conn, o->host, o->user, o->password,
                                           o->database, o->port, o->socket, OPTIONS_FLAGS));
    return STILE_OK;
}

/* The addresses are not used: the library compares the certificate with what it connects to, so it
 * is given the name, and resolves it again. */
static void on_resolved(void *data, struct addrinfo *found, const struct stile_error *err)
{
    struct session *s = data;
    struct stile_error why;
    enum stile_status status = STILE_OK;
    resolve_free(s->resolve);
    s->resolve = NULL;
    if (err) {
        why = *err;
        status = err->status;
    } else {
        freeaddrinfo(found);
        status = start(s, &why);
    }
    if (status)
        sql_session_fail(s, &why);
}

/* The library blocks while it resolves a name, for as long as the name server is silent: it is not
 * asked before the name server has answered. */
static enum stile_status resolve_and_start(struct session *s, struct stile_error *err)
{
    const char *host = s->options->host;
    struct addrinfo *found;
    if (host && resolve_numeric(&found, host, 0) != 0)
        return resolve_start(&s->resolve, s->base.loop, host, 0, on_resolved, s, err);
    if (host)
        freeaddrinfo(found);
    return start(s, err);
}

enum stile_status maria_session_new(struct session **out, struct pool *pool,
                                    const struct session_events *events, struct stile_error *err)
{
    struct my *my = my_of(pool->engine);
    struct loop *loop = my->engine.loop;
    struct session *s = calloc(1, sizeof *s);
    if (!s || loop_reserve(loop, 1)) {
        free(s);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    sql_session_init(s, pool, events);
    s->my = my;
    s->options = &my->options;
    s->base.watch.fn = on_ready;
    s->base.task.fn = on_task;
    enum stile_status status = resolve_and_start(s, err);
    if (status) {
        sql_session_free(s);
        return status;
    }
    loop_arm(loop, &s->base.timer,
             loop_now(loop) +
                 sql_lease_patience_ns(leases_of(&my->engine), my->options.patience_ns));
    *out = s;
    return STILE_OK;
}

/* ---- the end ---- */

void maria_session_close(struct session *s)
{
    resolve_free(s->resolve);
    s->resolve = NULL;
    abort_call(s);
    if (s->conn)
        mysql_close(s->conn);
    s->conn = NULL;
}

void maria_session_forked(struct session *s)
{
    if (s && s->conn && s->base.watch.fd >= 0)
        close(s->base.watch.fd);
    if (s && s->resolve)
        resolve_forked(s->resolve);
}

/* ---- the lease: wait_timeout, in whole seconds; a year where nothing is held ---- */

uint64_t maria_lease_to_set(struct session *session)
{
    uint64_t ttl_ns = session->my->pool.ttl_ns;
    if (session->base.lease_ns >= ttl_ns)
        return 0;
    session->base.lease_ns = ttl_ns;
    return ttl_ns;
}

static bool is_true(const struct answer *a, unsigned column)
{
    const char *text = maria_outcome_text(answer_last(a), column);
    return text && strcmp(text, "1") == 0;
}

enum stile_status maria_lease_check_proof(const struct answer *a, struct stile_error *err)
{
    if (!is_true(a, 0))
        return error_set(err, STILE_UNREACHABLE, 0,
                         "a proxy has put another connection in this one's place, without its "
                         "locks: connect to the server directly, or use mode=table");
    if (!is_true(a, 1))
        return error_set(err, STILE_UNREACHABLE, 0,
                         "the server has become read-only, so another one may be the primary now");
    return STILE_OK;
}

/* A session that has lost its locks, or whose server is no longer a primary, is ended: its locks
 * are lost, and the next claim connects again. */
static void on_renewed(void *data, const struct answer *a)
{
    struct session *session = data;
    struct stile_error err;
    if (!a->err && maria_lease_check_proof(a, &err)) {
        session->base.renewing = false;
        sql_session_fail(session, &err);
        return;
    }
    sql_pool_renewed(session, a->sent_ns, a->err);
}

enum stile_status maria_session_renew(struct session *session, uint64_t ttl_ns)
{
    session->base.lease_ns = ttl_ns;
    return maria_send(session, maria_sql_prove(session, ttl_ns), on_renewed, session, NULL);
}

static void on_lengthened(void *data, const struct answer *a)
{
    (void)data, (void)a; /* else the session ends, and the next claim connects again */
}

void maria_session_keep(struct session *session)
{
    session->base.lease_ns = 0;
    maria_send(session, maria_sql_ttl(0), on_lengthened, NULL, NULL);
}
