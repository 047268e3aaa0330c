/* Inside the postgres engine. */
#ifndef STILE_PG_H
#define STILE_PG_H

#include "engines/engine.h"
#include "engines/postgres/names.h"
#include "engines/postgres/options.h"
#include "engines/postgres/session.h"
#include "engines/sql/lease.h"
#include "engines/sql/who.h"

#define SESSIONS_DEFAULT    20
#define BY_KEY_HEADS        512
#define APPLICATION_MAX     64
#define SHEDLOCK_STATEMENTS 7
#define OLDEST_SERVER       140000 /* for sessions with a lease */

/* The schema that this code was written for. */
#define SCHEMA_VERSION 2

enum standing {
    NOWHERE,
    MAKING_WAY, /* nothing is asked yet */
    ASKED,      /* one try on the shared session is under way */
    CHECKING,   /* it failed in the middle: what the server has is being found out */
    STEPPING,   /* not granted by that, and what it took is being given back */
    IN_LINE,    /* it waits inside the server */
    CONFIRMING, /* the server has granted it; the token is being drawn */
    COUNTING,   /* mode=row: its row is locked; the token is being drawn elsewhere */
    SITTING,    /* ours in the server, but kept back by a hold until its end */
    HOLDING,
    LEAVING,
};

struct pg_claim {
    struct pg_claim *next, **link;         /* of its session */
    struct pg_claim *key_next, **key_link; /* of those that hold, by key */
    struct session *session;               /* NULL: none */
    enum standing standing;
    bool has_timer;
    bool withdrawn; /* released before it was answered */
    bool told;      /* that it is lost, by us */
    bool active;
    unsigned crowd;   /* 0: nobody else wants it, as far as we know */
    uint64_t left_ns; /* when it was given back, in a crowd */
    uint64_t token, ttl_ns;
    int64_t id; /* the key, as the server has computed it */
    struct key key;
    unsigned server; /* which of pg->server has told us the key */
    char stored[STORED_MAX];
    struct timer timer; /* sitting: the end of the hold; leaving: the end of our patience */
    struct stile_error why;
};

struct pg {
    struct engine engine;
    struct leases leases; /* mode=table */
    struct options options;
    struct session *shared;   /* holds what was granted at once; NULL: not connected */
    struct session *sessions; /* all others */
    unsigned n_sessions;
    unsigned server; /* one more with each that is reached: it may not be the same one */
    bool bare;       /* there is no schema: no tokens, no holds */
    struct pg_claim *by_key[BY_KEY_HEADS];
    unsigned n_active;
    uint64_t ttl_ns; /* the longest of what is active: the lease of every session */
    struct timer sweep;

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

static inline struct pg_claim *part_of(struct claim *claim)
{
    return (struct pg_claim *)claim->state;
}

static inline struct claim *claim_of(struct pg_claim *part)
{
    return (struct claim *)((char *)part - offsetof(struct claim, state));
}

static inline struct pg *pg_of_part(struct pg_claim *part)
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

/* ---- pool.c: sessions for those who wait ---- */

bool pool_has_idle(const struct pg *pg);
enum stile_status pool_take(struct session **session, struct pg *pg, struct stile_error *err);
void pool_give(struct session *session);  /* nothing of ours is left in it */
void pool_close(struct session *session); /* whatever is left in it ends with it */
void pool_forget(struct session *session);
void pool_sweep_later(struct pg *pg);
void pool_sweep(struct timer *timer);
/* Tells the server the lease of this session, if it has heard of another one. */
enum stile_status pool_tell_ttl(struct session *session, struct stile_error *err);
enum stile_status pool_tell_ttl_is(struct session *session, uint64_t ttl_ns, answer_fn *fn,
                                   void *data, struct stile_error *err);

/* ---- part.c: where a claim is ---- */

bool part_begin(struct pg_claim *part); /* false: it has failed already */
void part_join(struct pg_claim *part, struct session *session);
void part_leave(struct pg_claim *part);
struct pg_claim *part_with_id(struct pg *pg, const struct key *key, int64_t id);
void part_retire(struct pg_claim *part); /* nothing of it is in the server, or will be */
void part_fail(struct pg_claim *part, const struct stile_error *err);
void part_turn_away(struct pg_claim *part, uint64_t hint_ns);
void part_grant(struct pg_claim *part, uint64_t token, uint64_t sent_ns);
void part_alive(void *data, const struct answer *answer); /* its session is: granted */
void part_give_up(struct pg_claim *part, const struct stile_error *err); /* and its session */
void part_lose(struct pg_claim *part, const struct stile_error *why);
void part_go_down(struct session *session, const struct stile_error *why);
void part_break(struct pg *pg, const char *payload);

/* ---- claims.c: being granted ---- */

void claims_claim(struct engine *engine, struct claim *claim);

/* ---- rows.c: mode=row ---- */

void rows_claim(struct engine *engine, struct claim *claim);
void rows_give(struct pg_claim *part);
void rows_withdraw(struct pg_claim *part);

/* ---- release.c ---- */

void claims_release(struct engine *engine, struct claim *claim);
/* The answer that a withdrawn claim was waiting for: it is in the server, or it isn't. */
void release_go_on(struct pg_claim *part, bool there);
void release_left(struct pg_claim *part, const struct stile_error *err);

/* ---- renew.c ---- */

void sessions_renew(struct engine *engine, struct claim *const *claims, size_t n);

/* ---- people.c, list.c, breaking.c ---- */

void people_list(struct engine *engine, struct query *query);
void people_show(struct engine *engine, struct query *query);
void people_break(struct engine *engine, struct query *query);
void people_watch(struct engine *engine, struct query *query);
void people_unwatch(struct engine *engine, struct query *query);

/* ---- jobs.c ---- */

void jobs_run(struct engine *engine, struct job_errand *errand);
bool jobs_notified(struct pg *pg, const char *payload); /* false: it is about something else */
void jobs_go_down(struct session *session);

/* ---- doctor.c ---- */

void doctor_examine(struct engine *engine, struct query *query);

#endif
