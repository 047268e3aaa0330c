/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* One connection to the server, through libpq and without ever blocking the loop.
 *
 * Statements are sent at once, each with a Sync of its own, so that one that fails does not
 * affect the others. (After a long row of single statements, a second one waits for the answer
 * to the first, once.) They are answered in the order in which they were sent. Requests to a
 * session that is still connecting are sent as soon as it is up. */
#ifndef STILE_POSTGRES_SESSION_H
#define STILE_POSTGRES_SESSION_H

#include <libpq-fe.h>

#include "engines/sql/database.h"
#include "io/resolve.h"

struct pg;

#define SEND_PARAMS_MAX 12

/* The name of a column of an answer. Where a pooler may mix up answers, each request is sent with a
 * number of its own in place of the zeros, and the answer is compared with it. */
#define TAG_STEM  "stile_answer_"
#define TAG_ZEROS "0000000000000000"
#define TAG       TAG_STEM TAG_ZEROS

struct statement {
    unsigned id; /* 1 .. 63: prepared when first used in a session; 0: parsed each time */
    const char *sql;
};

struct answer {
    const PGresult *result; /* NULL: err says why */
    const struct stile_error *err;
    const char *sqlstate; /* of err, "" where it isn't the server's */
    uint64_t sent_ns;     /* the time before it was sent */
};

/* A name that is asked for again and again: advisory.c. */
struct hot_key {
    int64_t id;
    unsigned times; /* asked for in a row */
    char try_sql[72], unlock_sql[72];
    struct statement take, unlock;
};

/* How to reach the server: parallel arrays for libpq, NULL-terminated. */
struct route {
    const char *const *keywords, *const *values;
    const char *secret;        /* the password, never to be shown; NULL: none of ours */
    uint64_t patience_ns;      /* for connecting */
    struct statement greeting; /* the first statement, whose answer decides whether it is up */
    enum stile_status (*check)(struct session *session, const PGresult *result,
                               struct stile_error *err);
};

struct session {
    struct sql_session base;
    struct pg *pg;
    bool deaf;       /* notifications may be older than the grant that it holds */
    bool listens;    /* its first statements have been answered */
    bool hears_jobs; /* it listens for them */
    struct hot_key hot_key;
    uint64_t number; /* of all sessions of its client; never 0 */

    /* session.c's own */
    PGconn *conn; /* NULL: a host is being resolved, or it is over */
    struct resolve *resolve;
    char name[NI_MAXHOST]; /* the host that is being resolved */
    struct route route;
    struct request *unsent;    /* the first that is not sent yet */
    struct request *suspect;   /* failed, but perhaps by another client's error: being probed */
    bool alone;                /* one request at a time, and no pipeline */
    unsigned in_a_row;         /* this many were sent like that */
    uint64_t seen;             /* statements that were sent to be prepared, by their id */
    uint64_t prepared;         /* those of them that the server has */
    bool broken;               /* found out while sending: reported by the task */
    struct stile_error notice; /* the server's last notice */
};

enum stile_status postgres_session_new(struct session **session, struct pg *pg,
                                       const struct route *route,
                                       const struct session_events *events,
                                       struct stile_error *err);
void postgres_session_break(struct session *session); /* it fails, soon */

/* "" for SQL's NULL, and outside of the rows and columns that came: what answers a statement may be
 * no PostgreSQL of ours, and libpq returns NULL there. */
const char *postgres_value(const PGresult *result, int row, int column);

/* values are copied; a NULL one is SQL's. The answer comes once, never from inside. */
enum stile_status postgres_send(struct session *session, const struct statement *statement,
                                const char *const *values, int n, answer_fn *fn, void *data,
                                struct stile_error *err);

/* One of the values is not a text but so many bytes, as the server stores them: a bytea needs no
 * hex. */
struct sent_bytes {
    int at;
    size_t size;
};
enum stile_status postgres_send_bytes(struct session *session, const struct statement *statement,
                                      const char *const *values, int n,
                                      const struct sent_bytes *bytes, answer_fn *fn, void *data,
                                      struct stile_error *err);

/* For a session that has just come up: before all requests that were waiting for that. The answer
 * is about the session. */
void postgres_send_first(struct session *session, const struct statement *statement, answer_fn *fn);

/* The lease, where the server knows another one. */
enum stile_status postgres_lease_set(struct session *session, struct stile_error *err);
/* fn NULL: if it cannot be set, the session is over. */
enum stile_status postgres_lease_set_to(struct session *session, uint64_t ttl_ns, answer_fn *fn,
                                        void *data, struct stile_error *err);

/* ---- slots of struct sql_database ---- */

void postgres_session_close(struct session *session);
void postgres_session_dispose(struct session *session);
void postgres_session_forget(struct session *session, const void *data);
void postgres_session_forked(struct session *session);
void postgres_request_answer(struct session *session, struct request *request,
                             const struct stile_error *err);
void postgres_request_drop(struct session *session, struct request *request);
enum stile_status postgres_session_renew(struct session *session, uint64_t ttl_ns);
void postgres_session_keep(struct session *session);

#endif
