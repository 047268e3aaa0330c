/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Examines a live server: the settings that tokens and locks depend on, and what could undermine
 * them. */
#include <stdio.h>
#include <stdlib.h>

#include "engines/kit/doctor.h"
#include "engines/postgres/pg.h"
#include "engines/postgres/statements.h"

#define PLACES_LOW 10

/* The columns of postgres_sql_facts. */
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
    FACT_RECORDS,
    FACT_CELLS,
    FACT_TOKENS,
    FACT_WIPED,
    FACT_CELL_RIGHTS,
    FACTS,
};

struct doctor_facts {
    const struct pg *pg;
    const PGresult *row;
};

static bool is(const struct doctor_facts *facts, enum fact fact)
{
    return postgres_value(facts->row, 0, fact)[0] == 't';
}

static long number(const struct doctor_facts *facts, enum fact fact)
{
    return atol(postgres_value(facts->row, 0, fact));
}

/* ---- when the rules apply ---- */

DOCTOR_WHEN(is_set, is(facts, draft->rule->column))

static bool is_pooled(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    const struct options *options = &facts->pg->options;
    draft->severity = options->allow_pooler ? STILE_WARNING : STILE_DANGER;
    return facts->pg->pooled && options->mode != MODE_TABLE;
}

DOCTOR_WHEN(is_too_old, facts->pg->options.mode != MODE_TABLE &&
                            PQserverVersion(facts->pg->pool.shared->conn) < OLDEST_SERVER)

static bool lacks_schema(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    const struct options *options = &facts->pg->options;
    bool advisory = options->mode == MODE_ADVISORY;
    draft->severity = advisory || options->table ? STILE_WARNING : STILE_DANGER;
    doctor_put(draft, "%s",
               options->table ? "locks work, but have no tokens"
               : advisory     ? "locks work, but have no tokens, no hold-at-least and no lock-delay"
                              : "this mode stores its locks there");
    return !is(facts, FACT_SCHEMA);
}

static bool lacks_rights(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    draft->command = postgres_value(facts->row, 0, FACT_RIGHTS);
    return is(facts, FACT_SCHEMA) && !PQgetisnull(facts->row, 0, FACT_RIGHTS);
}

static bool lacks_cell_rights(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    draft->command = postgres_value(facts->row, 0, FACT_CELL_RIGHTS);
    return is(facts, FACT_CELLS) && !PQgetisnull(facts->row, 0, FACT_CELL_RIGHTS);
}

/* Its schema is there, but not as the rule's column says. */
DOCTOR_WHEN(has_poor_schema, is(facts, FACT_SCHEMA) && !is(facts, draft->rule->column))

static bool replicates_late(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    long standbys = number(facts, FACT_STANDBYS);
    doctor_put(draft, "%ld standby server%s", standbys, standbys == 1 ? "" : "s");
    return standbys > 0 && !is(facts, FACT_SYNCHRONOUS);
}

static bool has_few_places(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    const struct options *options = &facts->pg->options;
    bool row = options->mode == MODE_ROW;
    long places = number(facts, FACT_PLACES);
    doctor_put(draft, "%ld", places > 0 ? places : 0);
    doctor_put(draft, "%s",
               row ? "each claim that holds or waits needs one, up to sessions="
                   : "each waiting claim needs one, and each client another");
    return places < (row ? (long)options->sessions : PLACES_LOW);
}

static bool is_advisory(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    long room = number(facts, FACT_ROOM);
    doctor_put(draft, "%ld", number(facts, FACT_LOCKS));
    doctor_put(draft, "%ld", room);
    doctor_put(draft, "%ld", room / LOCKS_SHARE);
    return facts->pg->options.mode == MODE_ADVISORY;
}

DOCTOR_WHEN(has_few_locks,
            is_advisory(draft, facts) && number(facts, FACT_LOCKS) > number(facts, FACT_ROOM) / 2)

/* ---- the rules ---- */

#define ENTRIES "$1 of $2 entries of the server's lock table are in use; one client may use $3"
#define RELOAD  "\nSELECT pg_reload_conf();"

static const struct doctor_rule rules[] = {
    /* Whether anything can be locked. */
    {"standby", STILE_DANGER, is_set, .column = FACT_RECOVERY,
     .what = "this server is a standby, or in recovery",
     .why = "nothing can be locked here, and its primary does not know of locks taken here",
     .cure = "connect to the primary; with all servers in the URL, "
             "target_session_attrs=read-write finds it"},
    {"pooler", STILE_DANGER, is_pooled,
     .what = "there is a pooler between this client and the server",
     .why = "if it pools by transaction, the locks of one client end up with another client, or "
            "with none",
     .cure = "use mode=table in the URL, or connect to the server directly"},
    {"version", STILE_DANGER, is_too_old, .what = "this server is older than PostgreSQL 14",
     .why = "it has no idle_session_timeout, which is the lease of a session",
     .cure = "use mode=table in the URL, or upgrade it"},
    {"schema", STILE_DANGER, lacks_schema, .what = "this database has no schema `stile`",
     .why = "$1", .command = "stile setup URL"},
    {"rights", STILE_DANGER, lacks_rights,
     .what = "this role lacks privileges on the schema `stile` that locks and jobs need",
     .why = "a claim may be refused, or the release of one",
     .cure = "run that as the schema's owner"},
    {"schema-version", STILE_WARNING, has_poor_schema, .column = FACT_LINE,
     .what = "the schema `stile` is older than this version of stile",
     .why = "waits of more than a second are not in order, and need a connection each",
     .command = "stile setup URL"},
    {"records", STILE_NOTE, has_poor_schema, .column = FACT_RECORDS,
     .what = "the schema `stile` has no table of last holders: it is older than this library",
     .why = "`stile show` cannot name the last holder", .command = "stile setup URL"},
    {"cells", STILE_NOTE, has_poor_schema, .column = FACT_CELLS,
     .what = "the schema `stile` lacks cells and guards, or ends of cells: it is older than this "
             "library",
     .why = "`stile cell` and `stile guard` are refused, or `--keep` is",
     .command = "stile setup URL"},
    {"tokens", STILE_NOTE, has_poor_schema, .column = FACT_TOKENS,
     .what = "the schema `stile` counts tokens in the rows of names: it is older than this library",
     .why = "every grant waits for the disk", .command = "stile setup URL"},
    {"life", STILE_DANGER, has_poor_schema, .column = FACT_WIPED,
     .what = "the table stile.life is logged, so a crash of the server would not empty it",
     .why = "no new epoch of tokens can begin: grants are refused from the next restart on",
     .command = "ALTER TABLE stile.life SET UNLOGGED;"},
    {"cell-rights", STILE_NOTE, lacks_cell_rights,
     .what = "this role may not call the functions of cells and guards",
     .why = "locks do not need them, but `stile cell`, `guard`, `once`, `pace`, `crdt` and "
            "`elect --proclaim` do",
     .cure = "run that as the schema's owner"},
    {"unlogged", STILE_DANGER, has_poor_schema, .column = FACT_LOGGED,
     .what = "a table of the schema `stile` is unlogged",
     .why = "a crash of the server empties it, and tokens start again from 1",
     .command = "ALTER TABLE stile.lock SET LOGGED;\nALTER TABLE stile.counter SET LOGGED;\n"
                "ALTER TABLE stile.claim SET LOGGED;"},
    /* Whether tokens last. */
    {"fsync", STILE_FINE, is_set, .column = FACT_FSYNC, .what = "commits are on disk (fsync)"},
    {"fsync", STILE_DANGER, NULL, .unless = is_set, .column = FACT_FSYNC, .what = "fsync is off",
     .why = "after a crash of the machine tokens may be repeated, and the whole database may be "
            "damaged",
     .command = "ALTER SYSTEM SET fsync = on;" RELOAD},
    {"full_page_writes", STILE_WARNING, NULL, .unless = is_set, .column = FACT_PAGES,
     .what = "full_page_writes is off",
     .why = "a crash of the machine may damage pages of the database",
     .command = "ALTER SYSTEM SET full_page_writes = on;" RELOAD},
    {"replication", STILE_WARNING, replicates_late, .what = "$1, none of them synchronous",
     .why = "a failover may forget the last tokens, and repeat them",
     .cure = "name at least one in synchronous_standby_names",
     .command = "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)';" RELOAD},
    /* Whether there is room. */
    {"connections", STILE_FINE, NULL, .unless = has_few_places,
     .what = "$1 of its connections are free"},
    {"connections", STILE_WARNING, has_few_places, .what = "$1 of its connections are free",
     .why = "$2", .cure = "raise max_connections, which needs a restart"},
    {"locks", STILE_FINE, is_advisory, .unless = has_few_locks, .what = ENTRIES},
    {"locks", STILE_WARNING, has_few_locks, .what = ENTRIES,
     .why = "once it is full, no client can lock a table or even connect",
     .cure = "raise max_locks_per_transaction, which needs a restart, or use mode=table in the "
             "URL"},
    {0},
};

static void on_facts(void *data, const struct answer *a)
{
    struct query *query = data;
    const struct doctor_facts facts = {.pg = pg_of(query->engine), .row = a->result};
    struct stile_error strange;
    char where[160];
    if (a->err || PQntuples(a->result) != 1 || PQnfields(a->result) != FACTS) {
        error_set(&strange, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
        query->engine->events->done(query, a->err ? a->err : &strange);
        return;
    }
    const PGconn *conn = facts.pg->pool.shared->conn;
    snprintf(where, sizeof where, "%s:%s/%s", PQhost(conn), PQport(conn), PQdb(conn));
    doctor_apply(rules, &facts, where, doctor_report_to_query, query);
    query->engine->events->done(query, NULL);
}

void postgres_examine(struct engine *engine, struct query *query)
{
    struct session *shared;
    struct stile_error err;
    enum stile_status status = sql_pool_shared(&shared, pool_of(engine), &err);
    if (!status)
        status = postgres_send(shared, &postgres_sql_facts, NULL, 0, on_facts, query, &err);
    if (status)
        engine->events->done(query, &err);
}
