/* Inside the postgres engine. */
#ifndef STILE_PG_H
#define STILE_PG_H

#include "engines/engine.h"
#include "engines/postgres/names.h"
#include "engines/postgres/options.h"
#include "engines/postgres/session.h"
#include "engines/postgres/sql.h"
#include "engines/sql/part.h"
#include "engines/sql/people.h"
#include "engines/sql/who.h"

#define BY_KEY_HEADS        512
#define APPLICATION_MAX     64
#define SHEDLOCK_STATEMENTS 7
/* One client may take this part of the server's room for locks. */
#define LOCKS_PART    4
#define OLDEST_SERVER 140000 /* for sessions with a lease */

/* The schema that this code was written for. */
#define SCHEMA_VERSION 3
/* The oldest that it works with: libraries are upgraded before, or after, `stile setup` is run. */
#define SCHEMA_OLDEST 2

/* The state of a claim. */
struct pg_claim {
    struct part part;
    struct part *same, **link; /* of those that hold, by key */
    unsigned crowd;            /* 0: nobody else wants it, as far as we know */
    bool followed;             /* somebody is parked for it: woken when it is given back */
    uint64_t ticket;           /* its place in the line; 0: none */
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
    enum schema schema;
    struct part *by_key[BY_KEY_HEADS];

    /* mode=table */
    struct {
        struct statement claim, release, renew, resume, break_, show, list;
    } table;
    char *shedlock[SHEDLOCK_STATEMENTS]; /* what was written for one table */
    char channel[8 + WHO_OWNER_LEN], listen_sql[32 + WHO_OWNER_LEN];
    struct statement listen;
    char jobs_channel[16 + WHO_OWNER_LEN], listen_jobs_sql[32 + WHO_OWNER_LEN];
    struct statement
        listen_jobs;     /* for what comes into a queue, where this client alone is meant */
    uint64_t most_locks; /* that this client may have: a part of the server's room for them */
    struct session
        *jobs;     /* theirs: no statement of theirs stands before a renewal; NULL: none yet */
    bool pooled;   /* each transaction may be another session's */
    uint64_t tags; /* given to requests: drawn at the start, then counted */

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
void pg_share(struct session *session); /* it is the shared one now */
extern const struct session_events pooled_events;
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
/* Whether its session has this key for another claim that excludes it; or for any other. */
bool held_against(struct part *part, int64_t id, bool even_by_readers);
void held_follow(struct pg *pg, const struct key *key, int64_t id); /* somebody waits for it */
/* Somebody wants it to end. stale: that may have been about a grant before. */
void held_break(struct pg *pg, const char *payload, bool stale);

/* ---- claims.c: being granted ---- */

void claims_claim(struct engine *engine, struct claim *claim);
/* What an answer to a try or a wait says. */
enum verdict { TAKEN, NOT_FIRST, GRANTED, KEPT_BACK, STRANGE };
enum verdict claims_read(struct part *part, const PGresult *result, uint64_t *number);
enum stile_status claims_say(struct part *part, enum sql kind, answer_fn *fn,
                             struct stile_error *err);
/* The try has failed in the middle: what it may have taken is given back first. */
void claims_find_out(struct part *part, const struct stile_error *err);
bool claims_begin(struct part *part);                       /* false: it has failed already */
void claims_alive(void *data, const struct answer *answer); /* its session is: granted */

/* ---- line.c: waiting without a statement ---- */

/* On the shared session. Its place comes after all that are parked already. */
void line_park(struct part *part);
void line_leave(struct part *part); /* gives up its place, if it has one */
void line_hear(struct pg *pg, const char *payload);
void line_wake_next(struct part *part); /* it is being given back */

/* ---- rows.c: mode=row ---- */

void rows_claim(struct engine *engine, struct claim *claim);
void rows_give(struct part *part);
void rows_withdraw(struct part *part);

/* ---- breaking.c ---- */

void people_break(struct engine *engine, struct query *query);

/* ---- jobs.c ---- */

void jobs_run(struct engine *engine, struct job_errand *errand);
void jobs_left(struct engine *engine, const char *queue);

/* ---- doctor.c ---- */

void doctor_examine(struct engine *engine, struct query *query);

#endif
