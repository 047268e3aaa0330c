/* Reaching the server: who may answer there, the session that all share, and what the database has.
 */
#include <mysqld_error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/mysql/my.h"
#include "engines/mysql/sql.h"
#include "engines/mysql/table.h"
#include "engines/sql/opening.h"
#include "engines/sql/shedlock.h"

/* ---- what answers ---- */

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
    if (strcmp(read_only, "0") != 0) /* it may be about to be promoted */
        return error_set(err, STILE_UNREACHABLE, 0,
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
        return error_set(err, STILE_UNREACHABLE, 0,
                         "this server is read-only, perhaps a replica, where nothing can be "
                         "locked: connect to its primary");
    bool bare = my->opening && !my->opening->schema && !my->options.table;
    return bare ? refuse_bare("table", err) : STILE_OK;
}

bool my_is_galera(const char *variable)
{
    return strcasecmp(variable, "wsrep_on") == 0;
}

static enum stile_status refuse_cluster(const char *variable, struct stile_error *err)
{
    return error_set(
        err, STILE_REFUSED, 0,
        "this server is a node of a %s, and what a session "
        "locks is known to one node only: say mode=table, or use a server that is in no cluster",
        my_is_galera(variable) ? "Galera cluster (wsrep_on)"
                               : "replication group with several primaries");
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
    const char *multi_primary = outcome_text(facts + HAIL_MULTI_PRIMARY, 0);
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
    if (multi_primary)
        return refuse_cluster(multi_primary, err);
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
    opening_hear(session->my->opening, why);
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

static enum stile_status ask(struct my *my, char *sql, answer_fn *fn, struct stile_error *err)
{
    enum stile_status status = session_send(my->pool.shared, sql, fn, my, err);
    return status ? status : opening_wait(my->opening, my->engine.loop, err);
}

static void on_version(void *data, const struct answer *a)
{
    struct my *my = data;
    const char *text = a->err ? NULL : outcome_text(answer_last(a), 0);
    int version = text ? atoi(text) : 0;
    opening_hear(my->opening, a->err);
    if (a->err)
        return;
    my->version = version;
    bool known = version >= SCHEMA_OLDEST && version <= SCHEMA_VERSION;
    if (!known && !my->engine.examining)
        error_set(&my->opening->error, STILE_REFUSED, 0,
                  version > SCHEMA_VERSION
                      ? "its tables stile_* have version %d, this library knows %d: install a "
                        "newer one"
                      : "its tables stile_* have version %d, this library needs %d: run `stile "
                        "setup URL`",
                  version, version > SCHEMA_VERSION ? SCHEMA_VERSION : SCHEMA_OLDEST);
}

static void on_signed(void *data, const struct answer *a)
{
    struct my *my = data;
    opening_hear(my->opening, a->err);
}

static void on_shedlock(void *data, const struct answer *a)
{
    struct my *my = data;
    opening_hear(my->opening, a->err);
    if (a->err && a->err->status == STILE_REFUSED)
        shedlock_refuse_missing(a->err->native, &my->opening->error);
}

static void on_denied(void *data, const struct answer *a)
{
    struct my *my = data;
    opening_hear(my->opening, a->err && a->code != ER_NO_SUCH_TABLE ? a->err : NULL);
}

/* Tables that this user may not use are not to be seen. Without them a claim has no token and
 * passes over a hold that others keep, so it makes a difference whether they are there. */
static enum stile_status check_bare(struct my *my, struct stile_error *err)
{
    if (!my->options.database || my->engine.examining)
        return STILE_OK;
    enum stile_status status =
        ask(my, sql_written("SELECT 1 FROM stile_version LIMIT 0"), on_denied, err);
    return status ? error_wrap(err, status, "looking for the tables stile_*") : STILE_OK;
}

static enum stile_status check_schema(struct my *my, struct stile_error *err)
{
    my->bare = !my->opening->schema;
    enum stile_status status =
        my->bare ? check_bare(my, err) : ask(my, sql_version(), on_version, err);
    if (!status && my->options.table && !my->engine.examining)
        status = ask(my,
                     sql_written("SELECT name,lock_until,locked_at,locked_by FROM %s LIMIT 0",
                                 my->options.table),
                     on_shedlock, err);
    if (!status && my->options.mode != MODE_TABLE)
        status = ask(my, sql_sign(my), on_signed, err);
    return status;
}

enum stile_status my_reach(struct my *my, struct stile_error *err)
{
    struct opening opening = {0};
    struct session *shared;
    my->opening = &opening;
    enum stile_status status = my_shared(&shared, my, err);
    if (!status)
        status = opening_wait(&opening, my->engine.loop, err);
    if (!status)
        status = check_schema(my, err);
    my->opening = NULL;
    return status;
}
