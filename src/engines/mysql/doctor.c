/* Examines a live server: the settings that tokens and locks depend on, and what could undermine
 * them. */
#include <mysqld_error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/mysql/my.h"
#include "engines/mysql/statements.h"

#define PLACES_LOW 10
#define N_TABLES   9

/* The columns of maria_sql_facts(). */
enum fact {
    FACT_SERVER,
    FACT_IS_READ_ONLY,
    FACT_CONNECTION,
    FACT_TABLES,
    FACT_OTHER_ENGINES,
    FACT_FLUSH,
    FACT_MAX_CONNECTIONS,
    FACT_REPLICAS,
    FACT_DATABASE,
    FACT_STATEMENTS,
    FACT_UNSYNCED_LOG,
};
enum { ANSWER_FACTS, ANSWER_MULTI_PRIMARY, ANSWER_CONNECTED, ANSWERS };

struct visit {
    struct query *query;
    struct my *my;
    const struct answer *answer;
    char where[160];
};

static const char *fact(const struct visit *visit, enum fact fact)
{
    const char *text = maria_outcome_text(&visit->answer->outcomes[ANSWER_FACTS], fact);
    return text ? text : "";
}

static void report(const struct visit *visit, struct stile_finding finding)
{
    finding.where = visit->where;
    visit->query->engine->events->finding(visit->query, &finding);
}

/* ---- whether anything can be locked ---- */

static void look_at_cluster(const struct visit *visit)
{
    const char *variable = maria_outcome_text(&visit->answer->outcomes[ANSWER_MULTI_PRIMARY], 0);
    if (!variable)
        return;
    bool galera = maria_is_galera(variable);
    const char *what = galera ? "this server is a node of a Galera cluster"
                              : "this server is one of several primaries of a replication group";
    const char *id = galera ? "galera" : "group-replication";
    if (visit->my->options.mode == MODE_TABLE)
        report(
            visit,
            (struct stile_finding){
                .severity = STILE_NOTE,
                .id = id,
                .what = what,
                .why = "an expiry time that one node writes is compared with the clock of another",
                .cure = "synchronise their clocks (NTP)"});
    else
        report(visit, (struct stile_finding){
                          .severity = STILE_DANGER,
                          .id = id,
                          .what = what,
                          .why = "GET_LOCK is known to one node only: another node would "
                                 "grant the same lock again",
                          .cure = "use mode=table, or a server outside a cluster"});
}

static void look_at_kind(const struct visit *visit)
{
    struct my *my = visit->my;
    if (maria_is_too_old(fact(visit, FACT_SERVER)))
        report(visit, (struct stile_finding){
                          .severity = STILE_DANGER,
                          .id = "version",
                          .what = "this server is older than MariaDB 10.0.2 or MySQL 5.7.5",
                          .why = "there, a second GET_LOCK of a session releases the first",
                          .cure = "upgrade it"});
    if (strcmp(fact(visit, FACT_IS_READ_ONLY), "0") != 0)
        report(
            visit,
            (struct stile_finding){
                .severity = STILE_DANGER,
                .id = "read-only",
                .what = "this server is read-only, perhaps a replica",
                .why =
                    "no token can be drawn here, and its primary does not know of locks taken here",
                .cure = "connect to the primary"});
    if (strtoull(fact(visit, FACT_CONNECTION), NULL, 10) !=
            mysql_thread_id(my->pool.shared->conn) &&
        my->options.mode != MODE_TABLE)
        report(visit, (struct stile_finding){
                          .severity = my->options.allow_pooler ? STILE_WARNING : STILE_DANGER,
                          .id = "proxy",
                          .what = "there is a proxy between this client and the server",
                          .why = "if it shares sessions among connections, the locks of one client "
                                 "end up with another client, or with none",
                          .cure = "use mode=table, or connect to the server directly"});
}

static bool all_tables(const struct visit *visit)
{
    return atoi(fact(visit, FACT_TABLES)) >= N_TABLES;
}

/* A user without any privilege on a table does not see it. */
static void tell_tables(const struct visit *visit)
{
    const struct options *options = &visit->my->options;
    bool named = *fact(visit, FACT_DATABASE), any = atoi(fact(visit, FACT_TABLES)) > 0;
    bool needed = options->mode != MODE_GETLOCK && !options->table;
    report(visit,
           (struct stile_finding){
               .severity = any || needed ? STILE_DANGER : STILE_WARNING,
               .id = "tables",
               .what = named ? "this database has no tables stile_*, or not all of them, or this "
                               "user may not use them"
                             : "the URL names no database",
               .why = needed ? "this mode stores its locks there"
                             : "locks work, but have no tokens, no hold-at-least and no lock-delay",
               .cure =
                   named ? NULL
                         : "name one in the URL, mysql://HOST/DATABASE, and run stile setup for it",
               .command = named ? "stile setup URL" : NULL});
}

static void look_at_tables(const struct visit *visit)
{
    if (!all_tables(visit))
        tell_tables(visit);
    else if (visit->my->version < SCHEMA_VERSION)
        report(visit, (struct stile_finding){
                          .severity = STILE_WARNING,
                          .id = "schema",
                          .what = "the tables stile_* are those of the release before this one",
                          .why = "they work, but lack newer features: a retried job's token may be "
                                 "smaller than that of a later job with the same key",
                          .cure = "when all clients are of this release",
                          .command = "stile setup URL"});
    if (atoi(fact(visit, FACT_OTHER_ENGINES)) > 0)
        report(visit,
               (struct stile_finding){
                   .severity = STILE_DANGER,
                   .id = "engine",
                   .what = "a table stile_* is not an InnoDB table",
                   .why = "a crash of the server may repeat tokens",
                   .command = "ALTER TABLE stile_lock ENGINE=InnoDB;\nALTER TABLE stile_floor "
                              "ENGINE=InnoDB;\nALTER TABLE stile_counter ENGINE=InnoDB;\n"
                              "ALTER TABLE stile_claim ENGINE=InnoDB;\nALTER TABLE stile_row "
                              "ENGINE=InnoDB;\nALTER TABLE stile_row_count ENGINE=InnoDB;\n"
                              "ALTER TABLE stile_row_claim ENGINE=InnoDB;\nALTER TABLE stile_job "
                              "ENGINE=InnoDB;"});
}

/* InnoDB refuses to write to such a log with READ COMMITTED. */
static void look_at_log(const struct visit *visit)
{
    bool ours = visit->my->options.mode != MODE_GETLOCK && !visit->my->options.table;
    if (ours && strcmp(fact(visit, FACT_STATEMENTS), "1") == 0)
        report(visit, (struct stile_finding){.severity = STILE_DANGER,
                                             .id = "binlog",
                                             .what = "binlog_format is STATEMENT",
                                             .why = "nothing can be granted in this mode",
                                             .cure = "and in the server's configuration file",
                                             .command = "SET GLOBAL binlog_format = 'MIXED';"});
}

/* ---- whether tokens last ---- */

static void look_at_disk(const struct visit *visit)
{
    bool safe = strcmp(fact(visit, FACT_FLUSH), "1") == 0;
    report(visit, (struct stile_finding){
                      .severity = safe ? STILE_FINE : STILE_DANGER,
                      .id = "flush",
                      .what = safe ? "commits are on disk (innodb_flush_log_at_trx_commit)"
                                   : "innodb_flush_log_at_trx_commit is not 1",
                      .why = safe ? NULL : "after a crash the last tokens may be repeated",
                      .cure = safe ? NULL : "and in the server's configuration file",
                      .command = safe ? NULL : "SET GLOBAL innodb_flush_log_at_trx_commit = 1;"});
}

/* Recovery rolls back what the binary log lacks, even if InnoDB has it on disk. */
static void look_at_log_on_disk(const struct visit *visit)
{
    if (strcmp(fact(visit, FACT_UNSYNCED_LOG), "1") == 0)
        report(visit,
               (struct stile_finding){.severity = STILE_DANGER,
                                      .id = "sync-binlog",
                                      .what = "the binary log is on and sync_binlog is not 1",
                                      .why = "after a power cut, grants that the log on disk lacks "
                                             "are rolled back, and their tokens are repeated",
                                      .cure = "and in the server's configuration file",
                                      .command = "SET GLOBAL sync_binlog = 1;"});
}

static void look_at_replicas(const struct visit *visit)
{
    int replicas = atoi(fact(visit, FACT_REPLICAS));
    char what[80];
    snprintf(what, sizeof what, "%d replica%s read%s its log", replicas, replicas == 1 ? "" : "s",
             replicas == 1 ? "s" : "");
    if (replicas > 0)
        report(
            visit,
            (struct stile_finding){
                .severity = STILE_WARNING,
                .id = "replication",
                .what = what,
                .why = "a failover frees all locks, and may forget the last tokens and repeat them",
                .cure = "make commits wait for a replica (semi-synchronous replication)"});
}

static void look_at_places(const struct visit *visit)
{
    const char *used = maria_outcome_text(&visit->answer->outcomes[ANSWER_CONNECTED], 1);
    int places = atoi(fact(visit, FACT_MAX_CONNECTIONS)) - (used ? atoi(used) : 0);
    char what[80];
    snprintf(what, sizeof what, "%d of its connections are free", places > 0 ? places : 0);
    bool low = places < PLACES_LOW;
    report(visit, (struct stile_finding){
                      .severity = low ? STILE_WARNING : STILE_FINE,
                      .id = "connections",
                      .what = what,
                      .why = low ? "each waiting claim needs one, and each client another" : NULL,
                      .cure = low ? "give it more" : NULL,
                      .command = low ? "SET GLOBAL max_connections = 500;" : NULL});
}

static void begin_visit(struct visit *visit, struct query *query, const struct answer *a)
{
    *visit = (struct visit){.query = query, .my = my_of(query->engine), .answer = a};
    const struct options *o = &visit->my->options;
    const char *database = o->database ? o->database : "";
    if (o->host)
        snprintf(visit->where, sizeof visit->where, "%s:%u/%s", o->host, o->port, database);
    else
        snprintf(visit->where, sizeof visit->where, "%s/%s", o->socket ? o->socket : "its socket",
                 database);
}

/* ---- whether this user has the privileges ---- */

static void tell_rights(const struct visit *visit)
{
    char grant[256];
    snprintf(grant, sizeof grant,
             "GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON `%s`.* TO user;",
             visit->my->options.database);
    report(visit, (struct stile_finding){
                      .severity = STILE_DANGER,
                      .id = "rights",
                      .what = "this user may not write the tables stile_*, or not "
                              "execute the procedures of that name",
                      .why = "no lock can be taken without writing its row",
                      .cure = "run that as an administrator, for the user that takes the locks",
                      .command = grant});
}

static bool is_denied(unsigned code)
{
    return code == ER_TABLEACCESS_DENIED_ERROR || code == ER_COLUMNACCESS_DENIED_ERROR ||
           code == ER_DBACCESS_DENIED_ERROR;
}

static void on_rights(void *data, const struct answer *a)
{
    struct query *query = data;
    struct visit visit;
    begin_visit(&visit, query, a);
    const char *procedures = a->err ? NULL : maria_outcome_text(answer_last(a), 0);
    bool none = visit.my->options.mode != MODE_GETLOCK && procedures && atoi(procedures) == 0;
    if (none || is_denied(a->code))
        tell_rights(&visit);
    /* Any other error has nothing to do with privileges. */
    query->engine->events->done(query, a->code ? NULL : a->err);
}

static void look_at_rights(const struct visit *visit)
{
    struct query *query = visit->query;
    const struct options *o = &visit->my->options;
    struct session *shared;
    struct stile_error err;
    if (!all_tables(visit) || o->table) {
        query->engine->events->done(query, NULL);
        return;
    }
    enum stile_status status = maria_shared(&shared, visit->my, &err);
    if (!status)
        status = maria_send(shared, maria_sql_rights(visit->my), on_rights, query, &err);
    if (status)
        query->engine->events->done(query, &err);
}

static void on_facts(void *data, const struct answer *a)
{
    struct query *query = data;
    struct visit visit;
    struct stile_error strange;
    if (a->err || a->n != ANSWERS) {
        error_set(&strange, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
        query->engine->events->done(query, a->err ? a->err : &strange);
        return;
    }
    begin_visit(&visit, query, a);
    look_at_cluster(&visit);
    look_at_kind(&visit);
    look_at_tables(&visit);
    look_at_log(&visit);
    look_at_disk(&visit);
    look_at_log_on_disk(&visit);
    look_at_replicas(&visit);
    look_at_places(&visit);
    look_at_rights(&visit);
}

void maria_examine(struct engine *engine, struct query *query)
{
    struct session *shared;
    struct stile_error err;
    enum stile_status status = maria_shared(&shared, my_of(engine), &err);
    if (!status)
        status = maria_send(shared, maria_sql_facts(), on_facts, query, &err);
    if (status)
        engine->events->done(query, &err);
}
