/* Inside the mysql engine. */
#ifndef STILE_MY_H
#define STILE_MY_H

#include <string.h>

#include "engines/engine.h"
#include "engines/mysql/names.h"
#include "engines/mysql/options.h"
#include "engines/mysql/session.h"
#include "engines/sql/part.h"
#include "engines/sql/people.h"
#include "engines/sql/who.h"

/* The schema that this code was written for, and the oldest that it works with: clients of two
 * releases share a database while an upgrade is under way. */
#define SCHEMA_VERSION   3
#define SCHEMA_OLDEST    2
#define SCHEMA_RENUMBERS 3 /* a dead job that is retried gets a new number */

/* The state of a claim. */
struct my_claim {
    struct part part;
    bool plainly;    /* leaving without a word to the row */
    bool crowded;    /* the last time it had to wait */
    bool in_line;    /* mode=row: its session has the line's lock, or waits for it */
    unsigned undone; /* mode=row: how often it had to begin again */
    char key[KEY_HEX_MAX];
};

struct my {
    struct engine engine;
    struct leases leases; /* mode=table */
    struct pool pool;     /* but the bell */
    struct session *bell; /* sleeps until it is somebody's turn; NULL: there is none */
    uint64_t bell_again_ns;
    struct timer bell_check; /* while it sleeps: a ring may have been missed */
    struct options options;
    bool bare;               /* there is no schema: no tokens, no holds */
    int version;             /* of the schema */
    bool mariadb;            /* else it is MySQL */
    int64_t started_ns;      /* when the server was, on our clock */
    uint64_t job_claims;     /* so many: each has a tag of its own */
    struct opening *opening; /* while open() waits for the first answers */
    struct who who;
    char host_hex[2 * SELF_HOST_MAX + 1], command_hex[2 * WHO_COMMAND_MAX + 1]; /* of who */
};

static inline struct my *my_of(struct engine *engine)
{
    return (struct my *)engine;
}

static inline struct my_claim *mine(struct part *part)
{
    return (struct my_claim *)part;
}

static inline struct my *my_of_part(struct part *part)
{
    return my_of(claim_of(part)->engine);
}

/* ---- reach.c ---- */

/* Connects, and looks at what is there; may block. */
enum stile_status my_reach(struct my *my, struct stile_error *err);

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
/* The variable that shows that a server is one of several primaries: Galera's, else of Group
 * Replication. */
bool my_is_galera(const char *variable);

/* ---- jobs.c ---- */

void jobs_run(struct engine *engine, struct job_errand *errand);

/* ---- doctor.c ---- */

void doctor_examine(struct engine *engine, struct query *query);

/* ---- ttl.c ---- */

/* The lease that the next statement has to begin with; 0: the server knows it. */
uint64_t ttl_to_tell(struct session *session);
/* What the server said to sql_prove(): an error if this session's locks are gone, or the server is
 * read-only and no longer decides who holds them. */
enum stile_status ttl_check_proof(const struct answer *answer, struct stile_error *err);

/* ---- claims.c: being granted ---- */

void claims_claim(struct engine *engine, struct claim *claim);
bool claims_begin(struct part *part); /* false: it has failed already */
/* Of our own: true if this client has it, and has now lost it. */
bool claims_break(struct my *my, uint64_t backend, const char *stored);

/* ---- rows.c: mode=row ---- */

void rows_claim(struct engine *engine, struct claim *claim);
void rows_give(struct part *part);     /* it is held */
void rows_withdraw(struct part *part); /* its transaction is open, and it is not held */

/* ---- breaking.c ---- */

void people_break(struct engine *engine, struct query *query);

#endif
