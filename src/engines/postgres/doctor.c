/* Examines a live server: the settings that tokens and locks depend on, and what could undermine
 * them. */
#include <stdio.h>
#include <stdlib.h>

#include "engines/postgres/pg.h"
#include "engines/postgres/statements.h"

#define PLACES_LOW 10

enum fact {
    FACT_RECOVERY,
    FACT_SCHEMA,
    FACT_RIGHTS,
    FACT_LOGGED,
    FACT_FSYNC,
    FACT_PAGES,
    FACT_STANDBYS,
    FACT_SYNCHRONOUS,
    FACT_PLACES,
    FACT_LINE,
    FACT_ROOM,
    FACT_LOCKS,
    FACTS,
};

struct visit {
    struct query *query;
    struct pg *pg;
    const PGresult *facts;
    char where[160];
};

static bool is(const struct visit *visit, enum fact fact)
{
    return PQgetvalue(visit->facts, 0, fact)[0] == 't';
}

static void report(const struct visit *visit, struct stile_finding finding)
{
    finding.where = visit->where;
    visit->query->engine->events->finding(visit->query, &finding);
}

/* ---- whether anything can be locked ---- */

static void look_at_kind(const struct visit *visit)
{
    struct pg *pg = visit->pg;
    bool table = pg->options.mode == MODE_TABLE;
    if (is(visit, FACT_RECOVERY))
        report(
            visit,
            (struct stile_finding){
                .severity = STILE_DANGER,
                .id = "standby",
                .what = "this server is a standby, or in recovery",
                .why =
                    "nothing can be locked here, and its primary does not know of locks taken here",
                .cure = "connect to the primary; with all servers in the URL, "
                        "target_session_attrs=read-write finds it"});
    if (pg->pooled && !table)
        report(visit, (struct stile_finding){
                          .severity = pg->options.allow_pooler ? STILE_WARNING : STILE_DANGER,
                          .id = "pooler",
                          .what = "there is a pooler between this client and the server",
                          .why = "if it pools by transaction, the locks of one client end up with "
                                 "another client, or with none",
                          .cure = "use mode=table in the URL, or connect to the server directly"});
    if (!table && PQserverVersion(pg->pool.shared->conn) < OLDEST_SERVER)
        report(visit, (struct stile_finding){
                          .severity = STILE_DANGER,
                          .id = "version",
                          .what = "this server is older than PostgreSQL 14",
                          .why = "it has no idle_session_timeout, which is the lease of a session",
                          .cure = "use mode=table in the URL, or upgrade it"});
}

static const char *why_schema(const struct options *options)
{
    return options->table ? "locks work, but have no tokens"
           : options->mode == MODE_ADVISORY
               ? "locks work, but have no tokens, no hold-at-least and no lock-delay"
               : "this mode stores its locks there";
}

static void look_at_schema(const struct visit *visit)
{
    const struct options *options = &visit->pg->options;
    bool needed = options->mode != MODE_ADVISORY && !options->table;
    if (!is(visit, FACT_SCHEMA))
        report(visit, (struct stile_finding){.severity = needed ? STILE_DANGER : STILE_WARNING,
                                             .id = "schema",
                                             .what = "this database has no schema `stile`",
                                             .why = why_schema(options),
                                             .command = "stile setup URL"});
    else if (!PQgetisnull(visit->facts, 0, FACT_RIGHTS))
        report(
            visit,
            (struct stile_finding){
                .severity = STILE_DANGER,
                .id = "rights",
                .what = "this role lacks privileges on the schema `stile` that locks and jobs need",
                .why = "a claim may be refused, or the release of one",
                .cure = "run that as the schema's owner",
                .command = PQgetvalue(visit->facts, 0, FACT_RIGHTS)});
    if (is(visit, FACT_SCHEMA) && !is(visit, FACT_LINE))
        report(
            visit,
            (struct stile_finding){
                .severity = STILE_WARNING,
                .id = "schema-version",
                .what = "the schema `stile` is older than this version of stile",
                .why = "waits of more than a second are not in order, and need a connection each",
                .command = "stile setup URL"});
    if (is(visit, FACT_SCHEMA) && !is(visit, FACT_LOGGED))
        report(visit,
               (struct stile_finding){
                   .severity = STILE_DANGER,
                   .id = "unlogged",
                   .what = "a table of the schema `stile` is unlogged",
                   .why = "a crash of the server empties it, and tokens start again from 1",
                   .command = "ALTER TABLE stile.lock SET LOGGED;\nALTER TABLE stile.counter "
                              "SET LOGGED;\nALTER TABLE stile.claim SET LOGGED;"});
}

/* ---- whether tokens last ---- */

static void look_at_disk(const struct visit *visit)
{
    bool safe = is(visit, FACT_FSYNC);
    report(visit,
           (struct stile_finding){
               .severity = safe ? STILE_FINE : STILE_DANGER,
               .id = "fsync",
               .what = safe ? "commits are on disk (fsync)" : "fsync is off",
               .why = safe ? NULL
                           : "after a crash of the machine tokens may be repeated, and the whole "
                             "database may be damaged",
               .command = safe ? NULL : "ALTER SYSTEM SET fsync = on;\nSELECT pg_reload_conf();"});
    if (!is(visit, FACT_PAGES))
        report(visit, (struct stile_finding){
                          .severity = STILE_WARNING,
                          .id = "full_page_writes",
                          .what = "full_page_writes is off",
                          .why = "a crash of the machine may damage pages of the database",
                          .command = "ALTER SYSTEM SET full_page_writes = on;\nSELECT "
                                     "pg_reload_conf();"});
}

static void look_at_replication(const struct visit *visit)
{
    int standbys = atoi(PQgetvalue(visit->facts, 0, FACT_STANDBYS));
    char what[80];
    snprintf(what, sizeof what, "%d standby server%s, none of them synchronous", standbys,
             standbys == 1 ? "" : "s");
    if (standbys > 0 && !is(visit, FACT_SYNCHRONOUS))
        report(visit,
               (struct stile_finding){
                   .severity = STILE_WARNING,
                   .id = "replication",
                   .what = what,
                   .why = "a failover may forget the last tokens, and repeat them",
                   .cure = "name at least one in synchronous_standby_names",
                   .command = "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)';\nSELECT "
                              "pg_reload_conf();"});
}

static void look_at_places(const struct visit *visit)
{
    const struct options *options = &visit->pg->options;
    bool row = options->mode == MODE_ROW;
    int places = atoi(PQgetvalue(visit->facts, 0, FACT_PLACES));
    bool few = places < (row ? (int)options->sessions : PLACES_LOW);
    char what[80];
    snprintf(what, sizeof what, "%d of its connections are free", places > 0 ? places : 0);
    report(visit, (struct stile_finding){
                      .severity = few ? STILE_WARNING : STILE_FINE,
                      .id = "connections",
                      .what = what,
                      .why = !few  ? NULL
                             : row ? "each claim that holds or waits needs one, up to sessions="
                                   : "each waiting claim needs one, and each client another",
                      .cure = few ? "raise max_connections, which needs a restart" : NULL});
}

static void look_at_locks(const struct visit *visit)
{
    long room = atol(PQgetvalue(visit->facts, 0, FACT_ROOM));
    long used = atol(PQgetvalue(visit->facts, 0, FACT_LOCKS));
    bool full = used > room / 2;
    char what[160];
    snprintf(what, sizeof what,
             "%ld of %ld entries of the server's lock table are in use; one client may use %ld",
             used, room, room / LOCKS_SHARE);
    if (visit->pg->options.mode == MODE_ADVISORY)
        report(visit,
               (struct stile_finding){
                   .severity = full ? STILE_WARNING : STILE_FINE,
                   .id = "locks",
                   .what = what,
                   .why = full ? "once it is full, nobody can lock a table or even connect" : NULL,
                   .cure = full ? "raise max_locks_per_transaction, which needs a restart, or use "
                                  "mode=table in the URL"
                                : NULL});
}

static void on_facts(void *data, const struct answer *a)
{
    struct query *query = data;
    struct visit visit = {.query = query, .pg = pg_of(query->engine), .facts = a->result};
    if (a->err || PQntuples(a->result) != 1 || PQnfields(a->result) != FACTS) {
        query->engine->events->done(query, a->err);
        return;
    }
    const PGconn *conn = visit.pg->pool.shared->conn;
    snprintf(visit.where, sizeof visit.where, "%s:%s/%s", PQhost(conn), PQport(conn), PQdb(conn));
    look_at_kind(&visit);
    look_at_schema(&visit);
    look_at_disk(&visit);
    look_at_replication(&visit);
    look_at_places(&visit);
    look_at_locks(&visit);
    query->engine->events->done(query, NULL);
}

void postgres_examine(struct engine *engine, struct query *query)
{
    struct session *shared;
    struct stile_error err;
    enum stile_status status = postgres_shared(&shared, pg_of(engine), &err);
    if (!status)
        status = postgres_send(shared, &postgres_sql_facts, NULL, 0, on_facts, query, &err);
    if (status)
        engine->events->done(query, &err);
}
