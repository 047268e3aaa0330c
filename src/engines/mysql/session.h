/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* One connection to the server, through libmariadb and without ever blocking the loop.
 *
 * The library suspends a call that would block, and the call is continued when the socket is
 * ready. Only one call can be under way, so requests are sent one after the other. Requests to a
 * session that is still connecting are sent as soon as it is up. */
#ifndef STILE_MYSQL_SESSION_H
#define STILE_MYSQL_SESSION_H

#include <mysql.h>

#include "engines/sql/database.h"
#include "io/resolve.h"

struct my;
struct options;

#define OUTCOMES_MAX 8

/* Of one statement. */
struct outcome {
    MYSQL_RES *rows; /* NULL: it has none */
    uint64_t affected, insert_id;
};

struct answer {
    const struct outcome *outcomes; /* NULL: err says why */
    size_t n;                       /* at least 1 */
    const struct stile_error *err;
    unsigned code;    /* of err, 0 where it isn't the server's */
    uint64_t sent_ns; /* the time before it was sent */
};

/* The outcome of its last statement. */
static inline const struct outcome *answer_last(const struct answer *a)
{
    return &a->outcomes[a->n - 1];
}

/* The tokens of this server's present life, as a session has read them. Token `base` is the number
 * `first` of the server; `bound` is the last one. */
struct token_epoch {
    uint64_t base, bound, first;
    uint64_t read_ns; /* the time before it was asked for */
    bool known;       /* else: none has begun in this life */
    int holds;        /* 0: no name is kept back; 2: and all clients look for it */
};

struct session {
    struct sql_session base;
    struct my *my;
    struct token_epoch epoch; /* tokens.c's own */
    unsigned describing;      /* describe.c's own: requests that write rows */

    /* session.c's own */
    const struct options *options;
    struct resolve *resolve;
    MYSQL *conn, *connected; /* NULL: its host is being resolved, or it is over */
    int failed;              /* the library's answer to the call under way */
    my_bool unread;
    MYSQL_RES *rows;
    enum {
        CALL_NONE,
        CALL_CONNECT,
        CALL_SEND,
        CALL_AWAIT, /* none: CALL_READ starts when the answer is there */
        CALL_READ,
        CALL_STORE,
        CALL_NEXT
    } call;
    int waits_for; /* MYSQL_WAIT_...: what the call needs to go on */
};

enum stile_status maria_session_new(struct session **session, struct pool *pool,
                                    const struct session_events *events, struct stile_error *err);

/* sql is malloc()ed and becomes the session's, whatever happens; NULL: there was no memory for it.
 * The answer comes once, never from inside. */
enum stile_status maria_send(struct session *session, char *sql, answer_fn *fn, void *data,
                             struct stile_error *err);

/* The connection has ended, and the loop has not noticed yet: what is sent now would be lost. */
bool maria_session_is_cut(const struct session *session);

/* Of a result's first row; NULL: there is none, or it is SQL's NULL. */
const char *maria_outcome_text(const struct outcome *outcome, unsigned column);

/* The next row; NULL: there is none, or it has fewer columns than this. What answers a statement
 * may be no server with our schema. */
MYSQL_ROW maria_next_row(MYSQL_RES *rows, unsigned columns);

/* The lease that the next statement has to begin with; 0: the server knows it. */
uint64_t maria_lease_to_set(struct session *session);
/* The answer to maria_sql_prove(): an error if this session's locks are gone, or the server is
 * read-only and no longer decides which session holds them. */
enum stile_status maria_lease_check_proof(const struct answer *answer, struct stile_error *err);

/* ---- slots of struct sql_database ---- */

void maria_session_close(struct session *session);
void maria_session_forked(struct session *session);
void maria_request_answer(struct session *session, struct request *request,
                          const struct stile_error *err);
void maria_request_drop(struct session *session, struct request *request);
enum stile_status maria_session_renew(struct session *session, uint64_t ttl_ns);
void maria_session_keep(struct session *session);

/* ---- errors, as a status and a sentence without secrets ---- */

/* secret may be NULL. */
void maria_error_of(struct stile_error *err, unsigned code, const char *text, const char *secret);

/* What came from the server though nothing was asked; n 0: the connection was closed. */
void maria_error_of_last_word(struct stile_error *err, const unsigned char *said, size_t n);

/* The session is gone with it. */
bool maria_error_is_end(unsigned code);

/* The statement was stopped, by KILL QUERY or by a time limit. */
bool maria_error_is_kill(unsigned code);

/* A lock that was not to be waited for is held by another. */
bool maria_error_is_busy(unsigned code);

/* The server rolled it back, because of a deadlock or a conflict. */
bool maria_error_is_undone(unsigned code);

#endif
