/* mysql: GET_LOCK of a MySQL or MariaDB server, which ends with a session, and a row that counts.
 *
 * What is free is granted on one session that all locks of a client share, in one round trip:
 * GET_LOCK(name, 0), and the row of the name, whose counter becomes the token with the commit. Who
 * has to wait does so inside the server, in GET_LOCK() on a session of its own, which then holds
 * it: so nothing that is held depends on a statement that waits (a server notices late that such a
 * session's process has died), and the server's own queue is the order.
 *
 * The server ends a session that it has not heard of for the lease (wait_timeout), and sees a
 * closed connection at once: a killed holder's lock is free within milliseconds, a stopped one's
 * after its TTL. A hold or a lock-delay is written into the row with the grant; who gets the lock
 * meanwhile sits on it until the time is over. A wait is withdrawn with KILL QUERY from the shared
 * session, and then given back whether or not it was granted.
 *
 *     session.c                        one connection
 *     ttl.c, ../sql/pool.c             its lease; all of them
 *     claims.c, release.c, ../sql/part.c, ../sql/release.c   the life of a claim
 *     people.c, view.c, breaking.c     list, show, watch, break
 *     jobs.c                           the queue of jobs, in every mode
 *     sql.c, schema.sql                what the server is told, and what it needs for it
 *     table.c, bell.c, ../sql/lease.c  mode=table: rows with an owner and an end instead
 *     rows.c                           mode=row: SELECT ... FOR UPDATE instead of GET_LOCK
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/url.h"
#include "engines/mysql/my.h"
#include "engines/mysql/setup.h"
#include "engines/mysql/sql.h"
#include "engines/mysql/table.h"

struct opening {
    bool over;
    bool schema;
    struct stile_error error;
};

/* ---- who we are ---- */

/* It also stands in a comment. */
static void keep_from_comment(char *text)
{
    for (char *c = strchr(text, '*'); c; c = strchr(c, '*'))
        *c = '?';
}

static enum stile_status introduce(struct my *my, struct stile_error *err)
{
    struct who *who = &my->who;
    enum stile_status status = who_introduce(who, &my->engine, err);
    if (status)
        return status;
    keep_from_comment(who->host);
    keep_from_comment(who->command);
    name_hex(my->host_hex, who->host, strlen(who->host));
    name_hex(my->command_hex, who->command, strlen(who->command));
    return STILE_OK;
}

/* ---- connecting ---- */

bool my_is_too_old(const char *version)
{
    unsigned major = 0, minor = 0, patch = 0;
    sscanf(version, "%u.%u.%u", &major, &minor, &patch);
    unsigned number = major * 10000 + minor * 100 + patch;
    return number < (strstr(version, "MariaDB") ? 100002u : 50705u);
}

static enum stile_status refuse(struct session *session, const char *version, const char *read_only,
                                struct stile_error *err)
{
    if (my_is_too_old(version))
        return error_set(err, STILE_REFUSED, 0,
                         "this server is older than MariaDB 10.0.2 or MySQL 5.7.5, where a session "
                         "has one lock at most");
    if (strcmp(read_only, "0") != 0)
        return error_set(err, STILE_REFUSED, 0,
                         "this server is read-only, perhaps a replica: what is locked here is not "
                         "known to its primary. Connect to the primary");
    if (session->seat.backend != mysql_thread_id(session->conn) &&
        !session->my->options.allow_pooler)
        return error_set(
            err, STILE_REFUSED, 0,
            "a proxy stands between us and the server, where the locks of a session "
            "may become another's: say mode=table, or connect to the server itself (or "
            "say allow=pooler, if it keeps a session for each connection)");
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
        return error_set(err, STILE_REFUSED, 0,
                         "this server is read-only, perhaps a replica, where nothing can be "
                         "locked: connect to its primary");
    bool bare = my->opening && !my->opening->schema && !my->options.table;
    return bare ? refuse_bare("table", err) : STILE_OK;
}

static enum stile_status refuse_galera(struct stile_error *err)
{
    return error_set(
        err, STILE_REFUSED, 0,
        "this server is a node of a Galera cluster (wsrep_on), and what a session "
        "locks is known to one node only: say mode=table, or use a server that is in no cluster");
}

enum stile_status my_check_server(struct session *session, const struct answer *a,
                                  struct stile_error *err)
{
    struct my *my = session->my;
    bool table = my->options.mode == MODE_TABLE;
    size_t first = table ? 0 : HAIL_SETTINGS;
    const struct outcome *facts = a->n > first + HAIL_UPTIME ? &a->outcomes[first] : NULL;
    const char *version = facts ? outcome_text(facts, FACT_VERSION) : NULL;
    const char *read_only = facts ? outcome_text(facts, FACT_READ_ONLY) : NULL;
    const char *id = facts ? outcome_text(facts, FACT_ID) : NULL;
    if (!version || !read_only || !id)
        return error_set(err, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
    const char *galera = outcome_text(facts + HAIL_GALERA, 1);
    const char *schema = outcome_text(facts, FACT_SCHEMA);
    const char *uptime = outcome_text(facts + HAIL_UPTIME, 1);
    session->seat.backend = strtoull(id, NULL, 10);
    my->started_ns = (int64_t)loop_now(session->loop) -
                     (int64_t)(uptime ? strtoull(uptime, NULL, 10) : 0) * (int64_t)NS_PER_SEC;
    if (my->opening) {
        my->opening->schema = schema && strcmp(schema, "0") != 0;
        my->mariadb = strstr(version, "MariaDB") != NULL;
    }
    if (my->engine.examining)
        return STILE_OK;
    if (table)
        return refuse_for_table(my, read_only, err);
    if (my->options.mode == MODE_ROW && my->opening && !my->opening->schema)
        return refuse_bare("row", err);
    if (galera && strcasecmp(galera, "OFF") != 0)
        return refuse_galera(err);
    return refuse(session, version, read_only, err);
}

enum stile_status my_connect(struct session **session, struct my *my,
                             const struct session_events *events, struct stile_error *err)
{
    return session_new(session, my, my->engine.loop, &my->options, events, err);
}

static void ignore_up(struct session *session)
{
    (void)session;
}

static const struct session_events pooled_events = {
    .up = ignore_up, .down = pool_forget, .ended = part_go_down};

enum stile_status session_connect(struct session **session, struct pool *pool,
                                  struct stile_error *err)
{
    return my_connect(session, my_of(pool->engine), &pooled_events, err);
}

/* ---- the shared session ---- */

void my_opened(struct session *session, const struct stile_error *why)
{
    struct opening *opening = session->my->opening;
    if (opening && why && !opening->error.status)
        opening->error = *why;
    if (opening)
        opening->over = true;
}

static void shared_up(struct session *session)
{
    my_opened(session, NULL);
}

static void shared_down(struct session *session)
{
    session->my->pool.shared = NULL;
}

static void shared_ended(struct session *session, const struct stile_error *why)
{
    my_opened(session, why);
    part_go_down(session, why);
}

static const struct session_events shared_events = {
    .up = shared_up, .down = shared_down, .ended = shared_ended};

enum stile_status my_shared(struct session **session, struct my *my, struct stile_error *err)
{
    enum stile_status status = STILE_OK;
    if (!my->pool.shared)
        status = my_connect(&my->pool.shared, my,
                            my->options.mode == MODE_TABLE ? &table_events : &shared_events, err);
    *session = my->pool.shared;
    return status;
}

/* ---- opening ---- */

static enum stile_status drive(struct my *my, struct stile_error *err)
{
    struct loop *loop = my->engine.loop;
    struct opening *opening = my->opening;
    while (!opening->over) {
        loop_prepare(loop);
        loop_wait(loop, true);
        loop_run(loop);
    }
    if (opening->error.status)
        error_copy(err, &opening->error);
    opening->over = false;
    return opening->error.status;
}

static enum stile_status ask(struct my *my, char *sql, answer_fn *fn, struct stile_error *err)
{
    enum stile_status status = session_send(my->pool.shared, sql, fn, my, err);
    return status ? status : drive(my, err);
}

static bool is_refused(struct my *my, const struct answer *a)
{
    my->opening->over = true;
    if (a->err)
        my->opening->error = *a->err;
    return a->err;
}

static void on_version(void *data, const struct answer *a)
{
    struct my *my = data;
    if (is_refused(my, a))
        return;
    const char *text = outcome_text(answer_last(a), 0);
    int version = text ? atoi(text) : 0;
    if (version != SCHEMA_VERSION && !my->engine.examining)
        error_set(&my->opening->error, STILE_REFUSED, 0,
                  version > SCHEMA_VERSION
                      ? "its tables stile_* have version %d, this library knows %d: install a "
                        "newer one"
                      : "its tables stile_* have version %d, this library needs %d: run `stile "
                        "setup URL`",
                  version, SCHEMA_VERSION);
}

static void on_signed(void *data, const struct answer *a)
{
    is_refused(data, a);
}

static void on_shedlock(void *data, const struct answer *a)
{
    struct my *my = data;
    if (is_refused(my, a) && a->err->status == STILE_REFUSED)
        error_set(&my->opening->error, STILE_REFUSED, a->err->native,
                  "there is no such table: make it as ShedLock's manual says (name, lock_until, "
                  "locked_at, locked_by), or name another one (table=)");
}

static enum stile_status check_schema(struct my *my, struct stile_error *err)
{
    my->bare = !my->opening->schema;
    enum stile_status status = my->bare ? STILE_OK : ask(my, sql_version(), on_version, err);
    if (!status && my->options.table && !my->engine.examining)
        status = ask(my,
                     sql_written("SELECT name,lock_until,locked_at,locked_by FROM %s LIMIT 0",
                                 my->options.table),
                     on_shedlock, err);
    if (!status && my->options.mode != MODE_TABLE)
        status = ask(my, sql_sign(my), on_signed, err);
    return status;
}

static enum stile_status reach(struct my *my, struct stile_error *err)
{
    struct opening opening = {0};
    struct session *shared;
    my->opening = &opening;
    enum stile_status status = my_shared(&shared, my, err);
    if (!status)
        status = drive(my, err);
    if (!status)
        status = check_schema(my, err);
    my->opening = NULL;
    return status;
}

static void dispose(struct my *my)
{
    session_free(my->bell);
    my->bell = NULL;
    pool_end(&my->pool);
    lease_free_batches(&my->leases);
    options_free(&my->options);
}

/* A database without our tables. */
static void promise_less(struct stile_caps *caps)
{
    caps->token = caps->hold_at_least = caps->lock_delay = false;
    caps->token_is = "none, for this database has no tables stile_*: run `stile setup URL`";
    caps->survives = "a holder's crash: free at once; a server's crash: nothing is held afterwards";
}

extern const struct engine_class mysql_table_class, mysql_shedlock_class, mysql_row_class;

static enum stile_status mysql_open(struct engine *engine, const struct url *url,
                                    struct stile_error *err)
{
    struct my *my = my_of(engine);
    enum stile_status status = pool_init(&my->pool, engine, err);
    if (status)
        return status;
    my->leases.engine = engine;
    my->leases.ops = &table_ops;
    status = introduce(my, err);
    if (!status)
        status = options_read(&my->options, url, err);
    my->pool.most = my->options.sessions;
    my->pool.each = my->options.mode == MODE_ROW ? "held or waited for"
                                                 : "waited for or was granted after a wait";
    if (!status)
        status = reach(my, err);
    if (status) {
        dispose(my);
    } else if (my->options.table) {
        engine->class = &mysql_shedlock_class;
        engine->caps = mysql_shedlock_class.caps;
        engine->caps.token = !my->bare;
    } else if (my->options.mode == MODE_TABLE) {
        engine->class = &mysql_table_class;
        engine->caps = mysql_table_class.caps;
    } else if (my->options.mode == MODE_ROW) {
        engine->class = &mysql_row_class;
        engine->caps = mysql_row_class.caps;
        engine->caps.fifo = my->mariadb; /* MySQL prefers those who keep others waiting */
        engine->caps.most_locks = my->options.sessions - 1;
    } else if (my->bare) {
        promise_less(&engine->caps);
    }
    return status;
}

static void mysql_close_engine(struct engine *engine)
{
    dispose(my_of(engine));
}

static void mysql_forked(struct engine *engine)
{
    struct my *my = my_of(engine);
    session_forked(my->bell);
    pool_forked(&my->pool);
}

#define CONDITION                                                                                  \
    "one server that is in no Galera cluster: GET_LOCK is not replicated, so a failover frees "    \
    "all; "                                                                                        \
    "their holders are told as their connections end. For tokens, "                                \
    "innodb_flush_log_at_trx_commit=1"

#define TABLE_CONDITION                                                                            \
    "servers that do not forget (innodb_flush_log_at_trx_commit=1), and in a Galera cluster, "     \
    "clocks that agree; failover to a replica may forget a lock or repeat a token"

#define SLOTS                                                                                      \
    .scheme = "mysql mysqls mariadb", .params = options_params, .engine_size = sizeof(struct my),  \
    .open = mysql_open, .setup = mysql_setup, .close = mysql_close_engine, .forked = mysql_forked, \
    .list = people_list, .show = people_show, .watch = people_watch, .unwatch = people_unwatch,    \
    .examine = doctor_examine, .jobs = jobs_run

const struct engine_class mysql_table_class = {
    .caps = {.engine = "mysql",
             .modes = 1u << STILE_EXCLUSIVE | 1u << STILE_SHARED | 1u << STILE_SLOTS,
             .lease = STILE_LEASE_CLAIM,
             .fifo = true,
             .token = true,
             .hold_at_least = true,
             .lock_delay = true,
             .detached = true,
             .token_is = "a counter in the name's row, committed with the grant",
             .survives = "a holder's crash: free after its TTL; a server's crash: all that was "
                         "committed",
             .condition = TABLE_CONDITION},
    .apart = true,
    .break_ = table_break,
    LEASE_SLOTS,
    SLOTS,
};

const struct engine_class mysql_shedlock_class = {
    .caps = {.engine = "mysql",
             .modes = 1u << STILE_EXCLUSIVE,
             .lease = STILE_LEASE_CLAIM,
             .token = true,
             .hold_at_least = true,
             .detached = true,
             .token_is = "a counter of ours, committed with the grant; ShedLock's own claims have "
                         "none",
             .survives = "a holder's crash: free after its TTL; a server's crash: all that was "
                         "committed",
             .condition = "all others keep ShedLock's rules, by the database's clock (usingDbTime) "
                          "and in its time zone"},
    .apart = true,
    .break_ = table_break,
    LEASE_SLOTS,
    SLOTS,
};

#define ROW_CONDITION                                                                              \
    "one server that is in no Galera cluster: row locks are not replicated, so a failover frees "  \
    "all; their holders are told as their connections end. Each lock that is held or waited for "  \
    "takes a session (sessions=)"

const struct engine_class mysql_row_class = {
    .caps = {.engine = "mysql",
             .modes = 1u << STILE_EXCLUSIVE | 1u << STILE_SHARED,
             .lease = STILE_LEASE_SESSION,
             .fifo = true,
             .token = true,
             .hold_at_least = true,
             .lock_delay = true,
             .most_locks = SESSIONS_DEFAULT - 1,
             .token_is = "a counter in the name's row, committed with the grant",
             .survives = "a holder's crash: free at once; a server's crash: nothing is held "
                         "afterwards, and tokens go on growing",
             .condition = ROW_CONDITION},
    .claim_size = sizeof(struct my_claim),
    .claim = rows_claim,
    .release = claims_release,
    .renew = pool_renew,
    .break_ = people_break,
    SLOTS,
};

const struct engine_class mysql_class = {
    .caps = {.engine = "mysql",
             .modes = 1u << STILE_EXCLUSIVE,
             .lease = STILE_LEASE_SESSION,
             .fifo = true,
             .token = true,
             .hold_at_least = true,
             .lock_delay = true,
             .token_is = "a counter in the name's row, committed with the grant",
             .survives = "a holder's crash: free at once; a server's crash: nothing is held "
                         "afterwards, and tokens go on growing",
             .condition = CONDITION},
    .claim_size = sizeof(struct my_claim),
    .claim = claims_claim,
    .release = claims_release,
    .renew = pool_renew,
    .break_ = people_break,
    SLOTS,
};
