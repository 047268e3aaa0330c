/* Inside the mysql engine. */
#ifndef STILE_MY_H
#define STILE_MY_H

#include <string.h>

#include "engines/engine.h"
#include "engines/mysql/names.h"
#include "engines/mysql/options.h"
#include "engines/mysql/session.h"
#include "engines/sql/lease.h"
#include "engines/sql/who.h"

#define SESSIONS_DEFAULT 20

/* The schema that this code was written for. */
#define SCHEMA_VERSION 2

enum standing {
    NOWHERE,
    ASKED,      /* one try on the shared session is under way */
    WEIGHING,   /* kept back: for how long is being asked */
    STEPPING,   /* not granted by that, and what it may have taken is being given back */
    IN_LINE,    /* it waits inside the server */
    COUNTING,   /* mode=row: it is ours in the server, the token is being drawn */
    CONFIRMING, /* the server has granted it; the token is being drawn */
    SITTING,    /* ours in the server, but kept back by a hold until its end */
    HOLDING,
    LEAVING,
};

struct my_claim {
    struct my_claim *next, **link; /* of its session */
    struct session *session;       /* NULL: none */
    enum standing standing;
    bool has_timer;
    bool withdrawn; /* released before it was answered */
    bool told;      /* that it is lost, by us */
    bool active;
    bool plainly; /* leaving without a word to the row */
    bool crowded; /* the last time it had to wait */
    bool in_line; /* mode=row: it has asked for the line's lock, which its session has or waits for
                   */
    unsigned undone; /* mode=row: how often it had to begin again */
    uint64_t token;
    char key[KEY_HEX_MAX], stored[STORED_HEX_MAX]; /* in hex */
    struct timer timer; /* sitting: the end of the hold; leaving: the end of our patience */
    struct stile_error why;
};

struct my {
    struct engine engine;
    struct leases leases; /* mode=table */
    struct session *bell; /* sleeps until it is somebody's turn; NULL: there is none */
    uint64_t bell_again_ns;
    struct options options;
    struct session *shared;   /* holds what was granted at once; NULL: not connected */
    struct session *sessions; /* all others */
    unsigned n_sessions;
    bool bare;           /* there is no schema: no tokens, no holds */
    bool mariadb;        /* else it is MySQL */
    int64_t started_ns;  /* when the server was, on our clock */
    uint64_t job_claims; /* so many: each has a tag of its own */
    unsigned n_active;
    uint64_t ttl_ns; /* the longest of what is active: the lease of every session */
    struct timer sweep;
    struct opening *opening; /* while open() waits for the first answers */
    struct who who;
    char host_hex[2 * SELF_HOST_MAX + 1], command_hex[2 * WHO_COMMAND_MAX + 1]; /* of who */
};

static inline struct my *my_of(struct engine *engine)
{
    return (struct my *)engine;
}

static inline struct my_claim *part_of(struct claim *claim)
{
    return (struct my_claim *)claim->state;
}

static inline struct claim *claim_of(struct my_claim *part)
{
    return (struct claim *)((char *)part - offsetof(struct claim, state));
}

static inline struct my *my_of_part(struct my_claim *part)
{
    return my_of(claim_of(part)->engine);
}

/* ---- mysql.c ---- */

/* Connects it if need be: what is asked meanwhile waits for that. */
enum stile_status my_shared(struct session **session, struct my *my, struct stile_error *err);
enum stile_status my_connect(struct session **session, struct my *my,
                             const struct session_events *events, struct stile_error *err);
/* The shared session is up (why NULL), or over. */
void my_opened(struct session *session, const struct stile_error *why);
/* The first answer of a server: whether it is one that we can count on. */
enum stile_status my_check_server(struct session *session, const struct answer *answer,
                                  struct stile_error *err);

/* Before MariaDB 10.0.2 and MySQL 5.7.5, GET_LOCK gave back what the session had already. */
bool my_is_too_old(const char *version);

/* ---- jobs.c ---- */

void jobs_run(struct engine *engine, struct job_errand *errand);

/* ---- doctor.c ---- */

void doctor_examine(struct engine *engine, struct query *query);

/* ---- pool.c: sessions for those who wait ---- */

enum stile_status pool_take(struct session **session, struct my *my, struct stile_error *err);
bool pool_has_idle(const struct my *my);
void pool_give(struct session *session);  /* nothing of ours is left in it */
void pool_close(struct session *session); /* whatever is left in it ends with it */
void pool_forget(struct session *session);
void pool_sweep_later(struct my *my);
void pool_sweep(struct timer *timer);
/* The lease that the next statement has to begin with; 0: the server knows it. */
uint64_t pool_lease(struct session *session);

/* ---- part.c: where a claim is ---- */

bool part_begin(struct my_claim *part); /* false: it has failed */
void part_join(struct my_claim *part, struct session *session);
void part_leave(struct my_claim *part);
void part_retire(struct my_claim *part); /* nothing of it is in the server, or will be */
void part_fail(struct my_claim *part, const struct stile_error *err);
void part_turn_away(struct my_claim *part, uint64_t hint_ns);
void part_grant(struct my_claim *part, uint64_t token, uint64_t sent_ns);
void part_give_up(struct my_claim *part, const struct stile_error *err); /* with its session */
void part_lose(struct my_claim *part, const struct stile_error *why);

/* ---- claims.c: being granted ---- */

void claims_claim(struct engine *engine, struct claim *claim);
void claims_go_down(struct session *session, const struct stile_error *why);
/* Of our own: true if this client has it, and has now lost it. */
bool claims_break(struct my *my, uint64_t backend, const char *stored);

/* ---- rows.c: mode=row ---- */

void rows_claim(struct engine *engine, struct claim *claim);
void rows_give(struct my_claim *part);     /* it is held */
void rows_withdraw(struct my_claim *part); /* its transaction is open, and it is not held */

/* ---- release.c ---- */

void claims_release(struct engine *engine, struct claim *claim);
void release_left(struct my_claim *part, const struct stile_error *err);
/* The answer that a withdrawn claim was waiting for: it is in the server, or it isn't. */
void release_go_on(struct my_claim *part, bool there);

/* ---- renew.c ---- */

void sessions_renew(struct engine *engine, struct claim *const *claims, size_t n);

/* ---- people.c, breaking.c ---- */

void people_list(struct engine *engine, struct query *query);
void people_show(struct engine *engine, struct query *query);
void people_break(struct engine *engine, struct query *query);
void people_watch(struct engine *engine, struct query *query);
void people_unwatch(struct engine *engine, struct query *query);

#endif
