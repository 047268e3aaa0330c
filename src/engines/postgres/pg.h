/* Inside the postgres engine. */
#ifndef STILE_PG_H
#define STILE_PG_H

#include "engines/engine.h"
#include "engines/postgres/names.h"
#include "engines/postgres/options.h"
#include "engines/postgres/session.h"
#include "engines/sql/part.h"
#include "engines/sql/people.h"
#include "engines/sql/who.h"

#define BY_KEY_HEADS        512
#define APPLICATION_MAX     64
#define SHEDLOCK_STATEMENTS 7
#define OLDEST_SERVER       140000 /* for sessions with a lease */

/* The schema that this code was written for. */
#define SCHEMA_VERSION 2

/* The state of a claim. */
struct pg_claim {
    struct part part;
    struct part *same, **link; /* of those that hold, by key */
    unsigned crowd;            /* 0: nobody else wants it, as far as we know */
    uint64_t left_ns;          /* when it was given back, in a crowd */
    int64_t id;                /* the key, as the server has computed it */
    struct key key;
    unsigned server; /* which of pg->server has told us the key */
};

struct pg {
    struct engine engine;
    struct leases leases; /* mode=table */
    struct pool pool;
    struct options options;
    unsigned server; /* one more with each that is reached: it may not be the same one */
    bool bare;       /* there is no schema: no tokens, no holds */
    struct part *by_key[BY_KEY_HEADS];

    /* mode=table */
    struct {
        struct statement claim, release, renew, resume, break_, show, list;
    } table;
    char *shedlock[SHEDLOCK_STATEMENTS]; /* what was written for one table */
    char channel[8 + WHO_OWNER_LEN], listen_sql[32 + WHO_OWNER_LEN];
    struct statement listen;
    bool pooled; /* each transaction may be another session's */

    struct opening *opening; /* while open() waits for the first answers */
    struct who who;
};

static inline struct pg *pg_of(struct engine *engine)
{
    return (struct pg *)engine;
}

static inline struct pg_claim *mine(struct part *part)
{
    return (struct pg_claim *)part;
}

static inline struct pg *pg_of_part(struct part *part)
{
    return pg_of(claim_of(part)->engine);
}

/* ---- reach.c ---- */

/* For pg_stat_activity, and for show. */
enum stile_status pg_name_sessions(struct pg *pg, struct stile_error *err);
/* Connects, and looks at what is there; may block. */
enum stile_status pg_reach(struct pg *pg, struct stile_error *err);

/* Connects it if need be: what is asked meanwhile waits for that. */
enum stile_status pg_shared(struct session **session, struct pg *pg, struct stile_error *err);
/* The shared session is up (why NULL), or over. */
void pg_opened(struct session *session, const struct stile_error *why);
enum stile_status pg_connect(struct session **session, struct pg *pg,
                             const struct session_events *events, struct stile_error *err);

/* ---- ttl.c ---- */

/* Tells the server the lease of this session, if it has heard of another one. */
enum stile_status ttl_tell(struct session *session, struct stile_error *err);
/* fn NULL: if it could not be told, the session is over. */
enum stile_status ttl_tell_is(struct session *session, uint64_t ttl_ns, answer_fn *fn, void *data,
                              struct stile_error *err);

/* ---- held.c: what is held, by key ---- */

void held_note(struct part *part, bool holds);
struct part *held_with_id(struct pg *pg, const struct key *key, int64_t id);
void held_break(struct pg *pg, const char *payload); /* somebody wants it to end */

/* ---- claims.c: being granted ---- */

void claims_claim(struct engine *engine, struct claim *claim);
bool claims_begin(struct part *part);                       /* false: it has failed already */
void claims_alive(void *data, const struct answer *answer); /* its session is: granted */

/* ---- rows.c: mode=row ---- */

void rows_claim(struct engine *engine, struct claim *claim);
void rows_give(struct part *part);
void rows_withdraw(struct part *part);

/* ---- breaking.c ---- */

void people_break(struct engine *engine, struct query *query);

/* ---- jobs.c ---- */

void jobs_run(struct engine *engine, struct job_errand *errand);
bool jobs_notified(struct pg *pg, const char *payload); /* false: it is about something else */
void jobs_go_down(struct session *session);

/* ---- doctor.c ---- */

void doctor_examine(struct engine *engine, struct query *query);

#endif
