/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the mysql engine. */
#ifndef STILE_MY_H
#define STILE_MY_H

#include <string.h>

#include "engines/engine.h"
#include "engines/mysql/names.h"
#include "engines/mysql/options.h"
#include "engines/mysql/session.h"
#include "engines/sql/claim.h"
#include "engines/sql/opening.h"

/* The schema that this code was written for, and the oldest that it works with: clients of two
 * releases share a database while an upgrade is under way. */
#define SCHEMA_VERSION     5
#define SCHEMA_OLDEST      2
#define SCHEMA_RENUMBERS   3 /* a dead job that is retried gets a new number */
#define SCHEMA_LONG_ERRORS 4 /* of jobs: 4 KiB of UTF-8, not 1 KiB of ASCII */
#define SCHEMA_EPOCHS      5 /* tokens of mode=getlock wait for no disk */

/* The state of a claim. */
struct my_claim {
    struct sql_claim base;
    bool skip_row;  /* release the lock without writing its row */
    bool contended; /* it had to wait the last time */
    enum { ASK_NOTHING, ASK_BEFORE, ASK_IN_ONE, ASK_BEHIND } asked_epoch; /* with the draw */
    bool asked_hold;                  /* behind it, and behind that */
    bool began;                       /* and it may have begun an epoch */
    bool described;                   /* its row is written, or about to be */
    bool describing;                  /* its row is being written */
    bool changed;                     /* the tables were changed meanwhile: try once more */
    unsigned draws;                   /* beyond the first one */
    uint64_t granted_ns, describe_ns; /* when its row is due */
    uint64_t waited_ns;               /* inside the server, the last time */
    bool in_queue;    /* mode=row: its session has the queue's lock, or waits for it */
    unsigned retries; /* mode=row: how often the server rolled it back */
    bool hasty;       /* mode=row: the server did not wait for the row */
    char key[KEY_HEX_MAX];
};

struct my {
    struct engine engine;
    struct leases leases; /* mode=table */
    struct pool pool;
    struct session *sleeper; /* mode=table: sleeps until a claim is granted; NULL: none */
    uint64_t sleep_id;       /* the shared session whose lock it waits for to sleep */
    uint64_t wakeup_again_ns;
    bool sure;                 /* no wake-up is missed, whichever user sends it */
    bool awake;                /* the sleeper: until the claims that were granted are confirmed */
    struct timer wakeup_check; /* not sure: a wake-up may have been missed; awake: for too long */
    struct session *writer;    /* cells: waits for rows that others have locked; NULL: none */
    struct options options;
    bool bare;   /* there is no schema: no tokens, no holds */
    int version; /* of the schema */
    bool epochs; /* mode=getlock: tokens have epochs, else rows count them */
    struct timer describe;
    bool remembers;      /* it has a table of last holders */
    bool guards;         /* it has the tables of guards and cells */
    bool ends;           /* and they can have an end */
    unsigned records;    /* counts them: now and then old ones are deleted */
    bool mariadb;        /* else it is MySQL */
    bool several;        /* its server is one of several primaries */
    int64_t started_ns;  /* when the server was started, on our clock */
    uint64_t job_claims; /* counts them: each has a tag of its own */
    struct opening opening;
    struct identity identity;
    char host_hex[2 * SELF_HOST_MAX + 1], command_hex[2 * IDENTITY_COMMAND_MAX + 1];
};

static inline struct my *my_of(struct engine *engine)
{
    return (struct my *)engine;
}

static inline struct my_claim *my_claim_of(struct sql_claim *c)
{
    return (struct my_claim *)c;
}

static inline struct my *my_of_claim(struct sql_claim *c)
{
    return my_of(claim_of(c)->engine);
}

/* ---- session.c ---- */

/* Before MariaDB 10.0.2 and MySQL 5.7.5, GET_LOCK released the session's other lock. */
bool maria_is_too_old(const char *version);
/* The variable that shows that a server is one of several primaries: Galera's, else of Group
 * Replication. */
bool maria_is_galera(const char *variable);

/* ---- server.c ---- */

extern const struct session_events maria_shared_events, maria_pooled_events;

/* What open() asks the server. */
extern const struct opening_step maria_opening_steps[];
enum stile_status maria_setup(const struct url *url, bool dry_run, const char **script,
                              struct stile_error *err);
enum stile_status maria_install_guard(const struct url *url, bool dry_run, const char **script,
                                      struct stile_error *err);

/* ---- claims.c: mode=getlock ---- */

void maria_claim(struct engine *engine, struct claim *claim);
bool maria_claim_begin(struct sql_claim *c); /* false: it has failed already */
/* True if this client has it, and has now lost it. */
bool maria_claim_break(struct my *my, uint64_t backend, const char *stored);
void maria_claim_wait(struct sql_claim *c);
void maria_claim_give_back(struct sql_claim *c);
enum stile_status maria_session_stop(struct session *session);

/* ---- rows.c: mode=row ---- */

void maria_row_claim(struct engine *engine, struct claim *claim);
void maria_row_give_back(struct sql_claim *c);
void maria_row_clear(struct sql_claim *c);

/* ---- table.c: mode=table ---- */

extern const struct session_events maria_table_events;
extern const struct lease_ops maria_table_ops, maria_shedlock_ops;

void maria_wakeup_init(struct my *my);
void maria_table_break(struct engine *engine, struct query *query);

/* ---- inspect.c ---- */

enum stile_status maria_ask_show(const struct query *query, answer_fn *fn, void *data,
                                 struct stile_error *err);
enum stile_status maria_read_show(struct view *view, const struct answer *answer,
                                  const struct query *query, struct stile_error *err);
enum stile_status maria_ask_list(const struct query *query, answer_fn *fn, void *data,
                                 struct stile_error *err);
enum stile_status maria_report_list(struct query *query, const struct answer *answer,
                                    struct stile_error *err);
void maria_break(struct engine *engine, struct query *query);
enum stile_status maria_record(struct query *query, struct session *session,
                               struct stile_error *err);

/* ---- jobs.c ---- */

void maria_jobs(struct engine *engine, struct job_request *request);

/* ---- cells.c ---- */

void maria_cells(struct engine *engine, struct cell_request *request);

/* ---- doctor.c ---- */

void maria_examine(struct engine *engine, struct query *query);

#endif
