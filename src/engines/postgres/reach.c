/* Reaching the server: who may answer there, the session that all share, and what the database has.
 */
#include <stdio.h>
#include <stdlib.h>

#include "engines/postgres/pg.h"
#include "engines/postgres/sql.h"
#include "engines/postgres/table.h"
#include "engines/sql/opening.h"
#include "engines/sql/shedlock.h"
#include "mutant.h"

/* For pg_stat_activity, and for show: "stile+" counts its grants in the schema. */
enum stile_status pg_name_sessions(struct pg *pg, struct stile_error *err)
{
    char text[sizeof pg->who + 16];
    snprintf(text, sizeof text, "stile%s:%s@%s %s", pg->bare ? "" : "+", pg->who.pid, pg->who.host,
             pg->who.command);
    text[APPLICATION_MAX - 1] = '\0'; /* the server would cut it, and say so */
    return options_set(&pg->options, "application_name", text, err);
}

/* ---- what answers ---- */

static enum stile_status refuse_pooler(struct stile_error *err)
{
    return error_set(err, STILE_REFUSED, 0,
                     "a pooler stands between us and the server, where the locks of a session may "
                     "become another's: say mode=table, or connect to the server itself (or say "
                     "allow=pooler, if it pools by session)");
}

static enum stile_status check_kind(struct session *session, const PGresult *result,
                                    struct stile_error *err)
{
    struct pg *pg = session->pg;
    if (PQntuples(result) != 1 || PQnfields(result) <= HAIL_SCHEMA)
        return error_set(err, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
    int backend = atoi(PQgetvalue(result, 0, HAIL_BACKEND));
    session->seat.backend = (uint64_t)backend;
    pg->pooled = backend != PQbackendPID(session->conn);
    if (pg->opening)
        pg->opening->schema = PQgetvalue(result, 0, HAIL_SCHEMA)[0] == 't';
    if (PQgetvalue(result, 0, HAIL_RECOVERY)[0] == 't' && !pg->engine.examining)
        return error_set(err, STILE_UNREACHABLE, 0, /* it may be promoted soon */
                         "this server is a standby or in recovery, where nothing can be locked: "
                         "connect to its primary (target_session_attrs=read-write finds it)");
    return STILE_OK;
}

static enum stile_status check_has_schema(struct session *session, const PGresult *result,
                                          struct stile_error *err)
{
    const struct pg *pg = session->pg;
    if (PQgetvalue(result, 0, HAIL_SCHEMA)[0] == 't' || pg->options.table || pg->engine.examining)
        return STILE_OK;
    return error_set(err, STILE_REFUSED, 0,
                     "this database has no schema `stile`, which mode=%s needs: run `stile setup "
                     "URL`",
                     pg->options.mode == MODE_ROW ? "row" : "table");
}

static bool may_be_pooled(const struct pg *pg)
{
#ifdef MUTANT_POSTGRES_POOLER_TAKEN
    return true;
#endif
    return pg->options.allow_pooler || pg->engine.examining;
}

static enum stile_status check_server(struct session *session, const PGresult *result,
                                      struct stile_error *err)
{
    struct pg *pg = session->pg;
    if (PQserverVersion(session->conn) < OLDEST_SERVER)
        return error_set(err, STILE_REFUSED, 0,
                         "this server is older than PostgreSQL 14, which has no lease for sessions "
                         "(idle_session_timeout): say mode=table");
    enum stile_status status = check_kind(session, result, err);
    if (!status && pg->pooled && !may_be_pooled(pg))
        return refuse_pooler(err);
    if (!status && pg->options.mode == MODE_ROW)
        status = check_has_schema(session, result, err);
    return status;
}

static enum stile_status check_table(struct session *session, const PGresult *result,
                                     struct stile_error *err)
{
    enum stile_status status = check_kind(session, result, err);
    return status ? status : check_has_schema(session, result, err);
}

static enum stile_status take_addresses(struct pg *pg, const struct addrinfo *found,
                                        struct stile_error *err)
{
    return options_set_addresses(&pg->options, found, err);
}

enum stile_status pg_connect(struct session **session, struct pg *pg,
                             const struct session_events *events, struct stile_error *err)
{
    bool table = pg->options.mode == MODE_TABLE;
    const struct route route = {.keywords = pg->options.keywords,
                                .values = (const char *const *)pg->options.values,
                                .host = options_name(&pg->options),
                                .resolved = take_addresses,
                                .secret = options_get(&pg->options, "password"),
                                .patience_ns = pg->options.patience_ns,
                                .hail = table ? sql_table_hail : sql_hail,
                                .check = table ? check_table : check_server};
    return session_new(session, pg, pg->engine.loop, &route, events, err);
}

static void on_listening(void *data, const struct answer *a)
{
    (void)data, (void)a; /* without it `stile break` ends the session after a second */
}

/* Each hears of all: any of them may be the only one. */
static void listen_on(struct session *session)
{
    session_send(session, &sql_check_connection, NULL, 0, on_listening, NULL, NULL);
    session_send(session, &sql_listen, NULL, 0, on_listening, NULL, NULL);
    session_send(session, &session->pg->listen, NULL, 0, on_listening, NULL, NULL);
}

static void on_notified(struct session *session, const char *payload)
{
    struct pg *pg = session->pg;
    if (*payload == 'b')
        held_break(pg, payload, false);
    else
        line_hear(pg, payload);
}

/* What came while it waited in the server is heard after the grant, and was about another's. */
static void pooled_notified(struct session *session, const char *payload)
{
    struct pg *pg = session->pg;
    if (*payload == 'b')
        held_break(pg, payload, pg->pool.shared || session->deaf);
    else
        line_hear(pg, payload);
}

const struct session_events pooled_events = {
    .up = listen_on, .down = pool_forget, .ended = part_go_down, .notified = pooled_notified};

enum stile_status session_connect(struct session **session, struct pool *pool,
                                  struct stile_error *err)
{
    return pg_connect(session, pg_of(pool->engine), &pooled_events, err);
}

/* ---- the shared session ---- */

/* Further sessions go where this one is, until nobody answers there any more. */
void pg_opened(struct session *session, const struct stile_error *why)
{
    struct pg *pg = session->pg;
    if (!why) {
        pg->server++;
        options_pin(&pg->options, session->conn, NULL);
    } else if (!session->was_up)
        options_unpin(&pg->options);
    opening_hear(pg->opening, why);
}

static void shared_up(struct session *session)
{
    listen_on(session);
    pg_opened(session, NULL);
}

static void shared_down(struct session *session)
{
    session->pg->pool.shared = NULL;
}

static void shared_ended(struct session *session, const struct stile_error *why)
{
    pg_opened(session, why);
    part_go_down(session, why);
}

static const struct session_events shared_events = {
    .up = shared_up, .down = shared_down, .ended = shared_ended, .notified = on_notified};

void pg_share(struct session *session)
{
    session->events = &shared_events;
    session->deaf = false;
}

enum stile_status pg_shared(struct session **session, struct pg *pg, struct stile_error *err)
{
    enum stile_status status = STILE_OK;
    pool_share_idle(&pg->pool);
    if (!pg->pool.shared)
        status = pg_connect(&pg->pool.shared, pg,
                            pg->options.mode == MODE_TABLE ? &table_events : &shared_events, err);
    *session = pg->pool.shared;
    return status;
}

/* ---- opening ---- */

static void on_version(void *data, const struct answer *a)
{
    struct opening *opening = data;
    opening_hear(opening, a->err);
    if (a->err)
        return;
    int version = PQntuples(a->result) == 1 ? atoi(PQgetvalue(a->result, 0, 0)) : 0;
    opening->version = version;
    if (version >= SCHEMA_OLDEST && version <= SCHEMA_VERSION)
        return;
    error_set(&opening->error, STILE_REFUSED, 0,
              version > SCHEMA_VERSION
                  ? "its schema `stile` has version %d, this library knows %d: install a newer one"
                  : "its schema `stile` has version %d, this library needs %d: run `stile setup "
                    "URL`",
              version, SCHEMA_VERSION);
}

static enum stile_status check_schema(struct pg *pg, struct opening *opening,
                                      struct stile_error *err)
{
    pg->bare = !opening->schema;
    if (pg->bare || pg->engine.examining)
        return STILE_OK;
    enum stile_status status =
        session_send(pg->pool.shared, &sql_version, NULL, 0, on_version, opening, err);
    if (!status)
        status = opening_wait(opening, pg->engine.loop, err);
    pg->schema = opening->version == SCHEMA_VERSION ? SCHEMA_LINE : SCHEMA_COUNTS;
    return status;
}

static void on_table(void *data, const struct answer *a)
{
    struct opening *opening = data;
    opening_hear(opening, a->err);
    if (!a->err && (PQntuples(a->result) != 1 || PQgetvalue(a->result, 0, 0)[0] != 't'))
        shedlock_refuse_missing(0, &opening->error);
}

static enum stile_status check_shedlock(struct pg *pg, struct opening *opening,
                                        struct stile_error *err)
{
    static const struct statement look = {0, "select to_regclass($1::text) is not null as " TAG};
    const char *values[] = {pg->options.table};
    enum stile_status status = shedlock_prepare(pg, err);
    if (!status)
        status = session_send(pg->pool.shared, &look, values, 1, on_table, opening, err);
    return status ? status : opening_wait(opening, pg->engine.loop, err);
}

/* ---- what its locks are ---- */

static void on_probed(void *data, const struct answer *a)
{
    struct opening *opening = data;
    opening_hear(opening, a->err);
    if (a->err || PQntuples(a->result) != 1)
        return;
    opening->room = strtoull(PQgetvalue(a->result, 0, 2), NULL, 10);
    if (PQgetvalue(a->result, 0, 0)[0] != 't')
        error_set(&opening->error, STILE_REFUSED, 0,
                  "this server's advisory locks lock nothing out: it is no PostgreSQL (CockroachDB "
                  "and YugabyteDB have stubs): say mode=table");
}

/* Advisory locks share the server's table of locks: full, nobody can even connect any more. */
static enum stile_status check_locks(struct pg *pg, struct opening *opening,
                                     struct stile_error *err)
{
    enum stile_status status =
        session_send(pg->pool.shared, &sql_probe, NULL, 0, on_probed, opening, err);
    if (!status)
        status = opening_wait(opening, pg->engine.loop, err);
    uint64_t quarter = opening->room / LOCKS_PART;
    pg->most_locks = pg->options.locks ? pg->options.locks : quarter > 1 ? quarter : 1;
    return status;
}

static void rename_shared(struct pg *pg)
{
    const char *values[] = {options_get(&pg->options, "application_name")};
    static const struct statement rename = {
        0, "select set_config('application_name', $1::text, false)"};
    session_send(pg->pool.shared, &rename, values, 1, on_listening, NULL, NULL);
}

enum stile_status pg_reach(struct pg *pg, struct stile_error *err)
{
    struct opening opening = {0};
    struct session *shared;
    pg->opening = &opening;
    enum stile_status status = pg_shared(&shared, pg, err);
    if (!status)
        status = opening_wait(&opening, pg->engine.loop, err);
    if (!status)
        status = check_schema(pg, &opening, err);
    if (!status && pg->options.table)
        status = check_shedlock(pg, &opening, err);
    if (!status && pg->options.mode == MODE_ADVISORY && !pg->engine.examining)
        status = check_locks(pg, &opening, err);
    if (!status)
        status = pg_name_sessions(pg, err);
    if (!status && !pg->pooled)
        rename_shared(pg);
    pg->opening = NULL;
    return status;
}
