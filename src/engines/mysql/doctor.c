/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Examines a live server: the settings that tokens and locks depend on, and what could undermine
 * them. */
#include <mysqld_error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/kit/doctor.h"
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
    FACT_DURABLE_LIFE,
};
enum { ANSWER_FACTS, ANSWER_MULTI_PRIMARY, ANSWER_CONNECTED, ANSWERS };

struct doctor_facts {
    const struct my *my;
    const struct outcome *outcomes;
};

static const char *fact(const struct doctor_facts *facts, enum fact fact)
{
    const char *text = maria_outcome_text(&facts->outcomes[ANSWER_FACTS], fact);
    return text ? text : "";
}

/* ---- when the rules apply ---- */

DOCTOR_WHEN(is_one, strcmp(fact(facts, draft->rule->column), "1") == 0)
DOCTOR_WHEN(has_some, atoi(fact(facts, draft->rule->column)) > 0)

/* Locks are rows of our tables. */
static bool needs_tables(const struct options *options)
{
    return options->mode != MODE_GETLOCK && !options->table;
}

static bool is_primary_of(struct doctor_draft *draft, const struct doctor_facts *facts, bool galera)
{
    const char *variable = maria_outcome_text(&facts->outcomes[ANSWER_MULTI_PRIMARY], 0);
    bool table = facts->my->options.mode == MODE_TABLE;
    draft->severity = table ? STILE_NOTE : STILE_DANGER;
    doctor_put(draft, "%s",
               table ? "an expiry time that one node writes is compared with the clock of another"
                     : "GET_LOCK is known to one node only: another node would grant the same "
                       "lock again");
    doctor_put(draft, "%s",
               table ? "synchronise their clocks (NTP)"
                     : "use mode=table, or a server outside a cluster");
    return variable && maria_is_galera(variable) == galera;
}

DOCTOR_WHEN(is_galera, is_primary_of(draft, facts, true))
DOCTOR_WHEN(is_in_group, is_primary_of(draft, facts, false))
DOCTOR_WHEN(is_too_old, maria_is_too_old(fact(facts, FACT_SERVER)))
DOCTOR_WHEN(is_writable, strcmp(fact(facts, FACT_IS_READ_ONLY), "0") == 0)

static bool is_behind_proxy(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    const struct options *options = &facts->my->options;
    draft->severity = options->allow_pooler ? STILE_WARNING : STILE_DANGER;
    return strtoull(fact(facts, FACT_CONNECTION), NULL, 10) !=
               mysql_thread_id(facts->my->pool.shared->conn) &&
           options->mode != MODE_TABLE;
}

static bool has_all_tables(const struct doctor_facts *facts)
{
    return atoi(fact(facts, FACT_TABLES)) >= N_TABLES;
}

/* A user without any privilege on a table does not see it. */
static bool lacks_tables(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    bool needed = needs_tables(&facts->my->options);
    bool any = atoi(fact(facts, FACT_TABLES)) > 0;
    draft->severity = any || needed ? STILE_DANGER : STILE_WARNING;
    doctor_put(draft, "%s",
               needed ? "this mode stores its locks there"
                      : "locks work, but have no tokens, no hold-at-least and no lock-delay");
    return !has_all_tables(facts);
}

DOCTOR_WHEN(names_no_database, lacks_tables(draft, facts) && !*fact(facts, FACT_DATABASE))
DOCTOR_WHEN(has_old_tables, has_all_tables(facts) && facts->my->version < SCHEMA_VERSION)

DOCTOR_WHEN(lacks_records, has_all_tables(facts) && !facts->my->remembers)

static bool counts_on_disk(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    bool epochs = facts->my->epochs;
    draft->severity = epochs ? STILE_DANGER : STILE_NOTE;
    doctor_put(draft, "%s",
               epochs ? "a restart of the server within a second would not be noticed, and tokens "
                        "would be repeated"
                      : "each grant writes a row that waits for the disk: allow MEMORY tables, and "
                        "run stile setup after this");
    return atoi(fact(facts, FACT_DURABLE_LIFE)) > 0;
}

/* InnoDB refuses to write to such a log with READ COMMITTED. */
DOCTOR_WHEN(logs_statements, needs_tables(&facts->my->options) && is_one(draft, facts))

static bool has_replicas(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    int replicas = atoi(fact(facts, FACT_REPLICAS));
    doctor_put(draft, "%d %s", replicas, replicas == 1 ? "replica reads" : "replicas read");
    return replicas > 0;
}

static bool has_few_places(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    const char *used = maria_outcome_text(&facts->outcomes[ANSWER_CONNECTED], 1);
    int places = atoi(fact(facts, FACT_MAX_CONNECTIONS)) - (used ? atoi(used) : 0);
    doctor_put(draft, "%d", places > 0 ? places : 0);
    return places < PLACES_LOW;
}

/* ---- the rules ---- */

#define IN_FILE_TOO "put it into the server's configuration file, too"
#define TO_INNODB   " ENGINE=InnoDB;"

static const struct doctor_rule rules[] = {
    /* Whether anything can be locked. */
    {"galera", STILE_DANGER, is_galera, .what = "this server is a node of a Galera cluster",
     .why = "$1", .cure = "$2"},
    {"group-replication", STILE_DANGER, is_in_group,
     .what = "this server is one of several primaries of a replication group", .why = "$1",
     .cure = "$2"},
    {"version", STILE_DANGER, is_too_old,
     .what = "this server is older than MariaDB 10.0.2 or MySQL 5.7.5",
     .why = "there, a second GET_LOCK of a session releases the first", .cure = "upgrade it"},
    {"read-only", STILE_DANGER, NULL, .unless = is_writable,
     .what = "this server is read-only, perhaps a replica",
     .why = "no token can be drawn here, and its primary does not know of locks taken here",
     .cure = "connect to the primary"},
    {"proxy", STILE_DANGER, is_behind_proxy,
     .what = "there is a proxy between this client and the server",
     .why = "if it shares sessions among connections, the locks of one client end up with another "
            "client, or with none",
     .cure = "use mode=table, or connect to the server directly"},
    {"tables", STILE_DANGER, names_no_database, .what = "the URL names no database", .why = "$1",
     .cure = "name one in the URL, mysql://HOST/DATABASE, and run stile setup for it"},
    {"tables", STILE_DANGER, lacks_tables, .unless = names_no_database,
     .what = "this database lacks some of the tables stile_*, or this user may not use them",
     .why = "$1", .command = "stile setup URL"},
    {"schema", STILE_WARNING, has_old_tables,
     .what = "the tables stile_* are those of the release before this one",
     .why = "they work, but lack newer features: a retried job's token may be smaller than that of "
            "a later job with the same key",
     .cure = "once all clients run this release", .command = "stile setup URL"},
    {"records", STILE_NOTE, lacks_records,
     .what = "there is no table stile_last_holder, or this user may not read it",
     .why = "`stile show` cannot name the last holder", .command = "stile setup URL"},
    {"engine", STILE_DANGER, has_some, .column = FACT_OTHER_ENGINES,
     .what = "a table stile_* is not an InnoDB table",
     .why = "a crash of the server may repeat tokens",
     .command = "ALTER TABLE stile_lock" TO_INNODB "\nALTER TABLE stile_floor" TO_INNODB
                "\nALTER TABLE stile_counter" TO_INNODB "\nALTER TABLE stile_claim" TO_INNODB
                "\nALTER TABLE stile_row" TO_INNODB "\nALTER TABLE stile_row_count" TO_INNODB
                "\nALTER TABLE stile_row_claim" TO_INNODB "\nALTER TABLE stile_job" TO_INNODB},
    {"life", STILE_DANGER, counts_on_disk, .what = "the table stile_life is not a MEMORY table",
     .why = "$1", .command = "ALTER TABLE stile_life ENGINE=MEMORY;\nDELETE FROM stile_life;"},
    {"binlog", STILE_DANGER, logs_statements, .column = FACT_STATEMENTS,
     .what = "binlog_format is STATEMENT", .why = "nothing can be granted in this mode",
     .cure = IN_FILE_TOO, .command = "SET GLOBAL binlog_format = 'MIXED';"},
    /* Whether tokens last. */
    {"flush", STILE_FINE, is_one, .column = FACT_FLUSH,
     .what = "commits are on disk (innodb_flush_log_at_trx_commit)"},
    {"flush", STILE_DANGER, NULL, .unless = is_one, .column = FACT_FLUSH,
     .what = "innodb_flush_log_at_trx_commit is not 1",
     .why = "after a crash the last tokens may be repeated", .cure = IN_FILE_TOO,
     .command = "SET GLOBAL innodb_flush_log_at_trx_commit = 1;"},
    /* Recovery rolls back what the binary log lacks, even if InnoDB has it on disk. */
    {"sync-binlog", STILE_DANGER, is_one, .column = FACT_UNSYNCED_LOG,
     .what = "the binary log is on and sync_binlog is not 1",
     .why = "after a power cut, grants that the log on disk lacks are rolled back, and their "
            "tokens are repeated",
     .cure = IN_FILE_TOO, .command = "SET GLOBAL sync_binlog = 1;"},
    {"replication", STILE_WARNING, has_replicas, .what = "$1 its log",
     .why = "a failover frees all locks, and may forget the last tokens and repeat them",
     .cure = "make commits wait for a replica (semi-synchronous replication)"},
    /* Whether there is room. */
    {"connections", STILE_FINE, NULL, .unless = has_few_places,
     .what = "$1 of its connections are free"},
    {"connections", STILE_WARNING, has_few_places, .what = "$1 of its connections are free",
     .why = "each waiting claim needs one, and each client another", .cure = "give it more",
     .command = "SET GLOBAL max_connections = 500;"},
    {0},
};

/* ---- whether this user has the privileges ---- */

static bool note_database(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    doctor_put(draft, "%s", facts->my->options.database);
    return true;
}

static const struct doctor_rule lacks_rights[] = {
    {"rights", STILE_DANGER, note_database,
     .what = "this user may not write the tables stile_* or execute the procedures of that name",
     .why = "no lock can be taken without writing its row",
     .cure = "run that as an administrator, for the user that takes the locks",
     .command = "GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON `$1`.* TO user;"},
    {0},
};

static const struct doctor_rule lacks_record_rights[] = {
    {"records", STILE_NOTE, note_database,
     .what = "this user may not write the table stile_last_holder",
     .why = "`stile show` cannot name it as a last holder",
     .cure = "run that as an administrator, for the user that takes the locks",
     .command = "GRANT SELECT, INSERT, UPDATE, DELETE ON `$1`.stile_last_holder TO user;"},
    {0},
};

static void apply(const struct doctor_rule *table, struct query *query, const struct answer *a)
{
    const struct doctor_facts facts = {.my = my_of(query->engine), .outcomes = a->outcomes};
    const struct options *o = &facts.my->options;
    const char *database = o->database ? o->database : "";
    char where[160];
    if (o->host)
        snprintf(where, sizeof where, "%s:%u/%s", o->host, o->port, database);
    else
        snprintf(where, sizeof where, "%s/%s", o->socket ? o->socket : "its socket", database);
    doctor_apply(table, &facts, where, doctor_report_to_query, query);
}

static bool is_denied(unsigned code)
{
    return code == ER_TABLEACCESS_DENIED_ERROR || code == ER_COLUMNACCESS_DENIED_ERROR ||
           code == ER_DBACCESS_DENIED_ERROR;
}

static void on_record_rights(void *data, const struct answer *a)
{
    struct query *query = data;
    if (is_denied(a->code))
        apply(lacks_record_rights, query, a);
    query->engine->events->done(query, a->code ? NULL : a->err);
}

static void ask(struct query *query, char *sql, answer_fn *fn);

static void on_rights(void *data, const struct answer *a)
{
    struct query *query = data;
    const struct my *my = my_of(query->engine);
    const char *procedures = a->err ? NULL : maria_outcome_text(answer_last(a), 0);
    bool none =
        (my->options.mode != MODE_GETLOCK || my->epochs) && procedures && atoi(procedures) == 0;
    if (none || is_denied(a->code))
        apply(lacks_rights, query, a);
    /* Any other error has nothing to do with privileges. */
    if (a->err || !my_of(query->engine)->remembers)
        query->engine->events->done(query, a->code ? NULL : a->err);
    else
        ask(query, maria_sql_record_rights(), on_record_rights);
}

static void ask(struct query *query, char *sql, answer_fn *fn)
{
    struct session *shared;
    struct stile_error err;
    enum stile_status status = sql_pool_shared(&shared, pool_of(query->engine), &err);
    if (status)
        free(sql);
    else
        status = maria_send(shared, sql, fn, query, &err);
    if (status)
        query->engine->events->done(query, &err);
}

static void on_facts(void *data, const struct answer *a)
{
    struct query *query = data;
    struct my *my = my_of(query->engine);
    struct stile_error strange;
    if (a->err || a->n != ANSWERS) {
        error_set(&strange, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
        query->engine->events->done(query, a->err ? a->err : &strange);
        return;
    }
    const struct doctor_facts facts = {.my = my, .outcomes = a->outcomes};
    apply(rules, query, a);
    if (has_all_tables(&facts) && !my->options.table)
        ask(query, maria_sql_rights(my), on_rights);
    else
        query->engine->events->done(query, NULL);
}

void maria_examine(struct engine *engine, struct query *query)
{
    (void)engine;
    ask(query, maria_sql_facts(), on_facts);
}
