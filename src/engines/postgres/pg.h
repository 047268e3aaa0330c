/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the postgres engine. */
#ifndef STILE_PG_H
#define STILE_PG_H

#include "engines/engine.h"
#include "engines/postgres/names.h"
#include "engines/postgres/options.h"
#include "engines/postgres/session.h"
#include "engines/postgres/statements.h"
#include "engines/sql/claim.h"
#include "engines/sql/opening.h"

#define BY_KEY_HEADS        512
#define APPLICATION_MAX     64
#define SHEDLOCK_STATEMENTS 7
/* One client may use a fourth of the server's lock table. */
#define LOCKS_SHARE   4
#define OLDEST_SERVER 140000 /* for sessions with a lease */

/* Tokens of an epoch. */
#define EPOCH_TOKENS (UINT64_C(1) << 20)

/* The schema that this code was written for. */
#define SCHEMA_VERSION 3
/* The oldest that it works with: a library may be upgraded before `stile setup` is run again. */
#define SCHEMA_OLDEST 2

/* What a session has learned about a name while it had its lock: nothing makes a grant wait, and
 * nothing has changed since if stile.changes is still the same. */
struct calm {
    uint64_t session; /* its number; 0: nothing is known */
    uint64_t at_ns;
    uint64_t ends; /* tokens of this epoch are below */
    char changes[24];
};

/* The state of a claim. */
struct pg_claim {
    struct sql_claim base;
    struct sql_claim *same, **link; /* of those that hold, by key */
    unsigned contention;            /* 0: no other client wants it, as far as is known */
    bool has_waiters;               /* a queued claim has to be woken when it is released */
    bool in_transaction;            /* mode=row: the server has begun one for it */
    uint64_t ticket;                /* its place in the queue; 0: none */
    uint64_t released_ns;           /* under contention: when it was released */
    int64_t id;                     /* the key, as the server has computed it */
    struct key key;
    unsigned server; /* the pg->server that has computed the key */
    struct calm calm;
    bool draws;          /* its last request was for a grant without a row */
    bool described;      /* the name's row is about its grant */
    uint64_t granted_ns; /* waiting to be described: since when it is held */
    struct sql_claim *later, **later_link;
};

struct pg {
    struct engine engine;
    struct leases leases; /* mode=table */
    struct pool pool;
    struct options options;
    unsigned server; /* counts connections of the shared session: each may reach another server */
    bool bare;       /* there is no schema: no tokens, no holds */
    enum schema schema;
    bool remembers; /* it has a table of last holders, which this role may read */
    bool has_cells; /* it has their functions */
    bool has_ends;  /* and that for cells with an end */
    struct sql_claim *by_key[BY_KEY_HEADS];
    uint64_t sessions_made;
    struct {
        struct sql_claim *first, **end;
        struct over *over; /* described, and given back since */
        size_t n_over;
        struct timer timer;
        bool reserved, armed;
    } undescribed;      /* grants without a row, the oldest first */
    struct look *looks; /* shows and lists that wait for descriptions */

    /* mode=table */
    struct {
        struct statement claim, release, renew, resume, break_, show, list;
    } table;
    char *shedlock[SHEDLOCK_STATEMENTS]; /* the texts of these statements */
    char channel[8 + IDENTITY_OWNER_LEN], listen_sql[32 + IDENTITY_OWNER_LEN];
    struct statement listen;
    char jobs_channel[16 + IDENTITY_OWNER_LEN], listen_jobs_sql[32 + IDENTITY_OWNER_LEN];
    struct statement listen_jobs; /* notifications of jobs for this client alone */
    uint64_t most_locks;  /* that this client may hold: its share of the server's lock table */
    bool utf8;            /* the database can store any text */
    struct session *jobs; /* for jobs and cells: none of their statements delays a renewal; NULL:
                           * none yet */
    bool pooled;          /* each transaction may be another session's */
    uint64_t tags;        /* numbers for requests: random at the start, then counted up */

    struct opening opening;
    struct identity identity;
};

static inline struct pg *pg_of(struct engine *engine)
{
    return (struct pg *)engine;
}

static inline struct pg_claim *pg_claim_of(struct sql_claim *c)
{
    return (struct pg_claim *)c;
}

static inline struct pg *pg_of_claim(struct sql_claim *c)
{
    return pg_of(claim_of(c)->engine);
}

/* ---- server.c ---- */

/* For pg_stat_activity, and for show. */
enum stile_status postgres_name_sessions(struct pg *pg, struct stile_error *err);
/* What open() asks the server. */
extern const struct opening_step postgres_opening_steps[];
/* It has answered everything. */
enum stile_status postgres_server_opened(struct pg *pg, struct stile_error *err);

/* The shared session is up (why NULL), or over. */
void postgres_session_opened(struct session *session, const struct stile_error *why);
enum stile_status postgres_connect(struct session **session, struct pool *pool,
                                   const struct session_events *events, struct stile_error *err);
enum stile_status postgres_setup(const struct url *url, bool dry_run, const char **script,
                                 struct stile_error *err);
enum stile_status postgres_install_guard(const struct url *url, bool dry_run, const char **script,
                                         struct stile_error *err);

/* ---- advisory.c: the lock of a claim, and the keys that are held ---- */

bool postgres_claim_begin(struct sql_claim *c); /* false: it has failed already */
enum stile_status postgres_claim_send(struct sql_claim *c, enum sql kind, answer_fn *fn,
                                      struct stile_error *err);
/* The statement for it. *n, how many values there are: 0 if its key is in the text. */
const struct statement *postgres_claim_statement(struct sql_claim *c, enum sql kind, int *n);

/* The answer to a try or a wait. */
enum grant_reply {
    REPLY_TAKEN,
    REPLY_NOT_FIRST,
    REPLY_GRANTED,
    REPLY_HELD_BACK, /* a hold keeps the name back */
    REPLY_UNDECIDED, /* the lock is ours in the server; without a row there is no grant */
    REPLY_STRANGE,
};
enum grant_reply postgres_read_grant(struct sql_claim *c, const PGresult *result, uint64_t *number);

/* After REPLY_UNDECIDED. */
enum stile_status postgres_claim_decide(struct sql_claim *c, answer_fn *fn,
                                        struct stile_error *err);

/* The try was not a grant: what it has taken is given back. */
void postgres_claim_step_back(struct sql_claim *c, uint64_t hint_ms);
/* The try has failed half-way: what it may have taken is given back first. */
void postgres_claim_undo(struct sql_claim *c, const struct stile_error *err);

void postgres_held_note(struct sql_claim *c, bool holds);
/* Whether its session has this key for another claim that excludes it; or for any other. */
bool postgres_held_against(struct sql_claim *c, int64_t id, bool even_by_readers);
void postgres_held_note_waiter(struct pg *pg, const struct key *key,
                               int64_t id); /* it has a waiter */
/* `stile break` names it. stale: it may have been about an earlier grant. */
void postgres_held_break(struct pg *pg, const char *payload, bool stale);

/* ---- describe.c: the rows of grants that were made without one ---- */

enum stile_status postgres_describe_init(struct pg *pg, struct stile_error *err);
void postgres_describe_end(struct pg *pg);
void postgres_describe_later(struct sql_claim *c);
void postgres_describe_never(struct sql_claim *c);
void postgres_describe_all(struct pg *pg);         /* at once: somebody asks */
void postgres_describe_over(struct sql_claim *c);  /* it has been given back */
void postgres_describe_again(struct sql_claim *c); /* its session is about to ask for it */

/* ---- queue.c: waiting without a statement ---- */

/* On the shared session. Its place comes after all that are queued already. */
void postgres_queue_join(struct sql_claim *c);
void postgres_queue_leave(struct sql_claim *c); /* gives up its place, if it has one */
void postgres_queue_notified(struct pg *pg, const char *payload);
void postgres_queue_wake_next(struct sql_claim *c); /* it is being given back */

/* ---- claims.c: mode=advisory ---- */

extern const struct session_events postgres_shared_events, postgres_pooled_events;

void postgres_claim(struct engine *engine, struct claim *claim);
void postgres_claim_confirmed(void *data, const struct answer *answer); /* its session is alive */
void postgres_claim_wait(struct sql_claim *c);
void postgres_claim_give_back(struct sql_claim *c);
void postgres_claim_clear(struct sql_claim *c);
enum stile_status postgres_session_stop(struct session *session);
void postgres_share(struct session *session);

/* ---- rows.c: mode=row ---- */

void postgres_row_claim(struct engine *engine, struct claim *claim);
void postgres_row_give_back(struct sql_claim *c);
void postgres_row_clear(struct sql_claim *c);

/* ---- table.c: mode=table ---- */

extern const struct session_events postgres_table_events;
extern const struct lease_ops postgres_table_ops, postgres_shedlock_ops;

void postgres_table_prepare(struct pg *pg);
void postgres_table_break(struct engine *engine, struct query *query);

/* The statements of ShedLock's table, in statements.c. */
enum stile_status postgres_shedlock_prepare(struct pg *pg, struct stile_error *err);
void postgres_shedlock_free(struct pg *pg);

/* ---- inspect.c ---- */

enum stile_status postgres_ask_show(const struct query *query, answer_fn *fn, void *data,
                                    struct stile_error *err);
enum stile_status postgres_read_show(struct view *view, const struct answer *answer,
                                     const struct query *query, struct stile_error *err);
enum stile_status postgres_ask_list(const struct query *query, answer_fn *fn, void *data,
                                    struct stile_error *err);
enum stile_status postgres_report_list(struct query *query, const struct answer *answer,
                                       struct stile_error *err);
void postgres_break(struct engine *engine, struct query *query);
void postgres_cancel(struct engine *engine, struct query *query);
void postgres_looks_free(struct pg *pg);

enum stile_status postgres_record(struct query *query, struct session *session,
                                  struct stile_error *err);

/* ---- jobs.c ---- */

void postgres_jobs(struct engine *engine, struct job_request *request);
void postgres_jobs_left(struct engine *engine, const char *queue);
/* Also for cells. */
enum stile_status postgres_jobs_session(struct session **session, struct pg *pg,
                                        struct stile_error *err);

/* ---- cells.c ---- */

extern const struct engine_cells postgres_cells;

/* ---- doctor.c ---- */

void postgres_examine(struct engine *engine, struct query *query);

#endif
