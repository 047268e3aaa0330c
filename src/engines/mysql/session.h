/* One connection to the server, through libmariadb and without ever blocking the loop.
 *
 * The library suspends each of its calls that would have to wait, and we go on with it when its
 * socket is ready. It has one call under way at a time, so requests are sent one after the other.
 * What is asked of a session that is still connecting is sent as soon as it is up. */
#ifndef STILE_MYSQL_SESSION_H
#define STILE_MYSQL_SESSION_H

#include <mysql.h>

#include "engines/sql/people.h"

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

/* What the last of its statements has told. */
static inline const struct outcome *answer_last(const struct answer *a)
{
    return &a->outcomes[a->n - 1];
}

struct session_events {
    void (*up)(struct session *session);
    /* It is over: nothing is asked of it from now on. Its requests then fail one by one. */
    void (*down)(struct session *session);
    /* All that was asked has been answered; afterwards the session is gone. */
    void (*ended)(struct session *session, const struct stile_error *why);
};

struct session {
    struct seat seat;
    struct my *my;
    const struct session_events *events;
    enum { CONNECTING, HAILING, UP, DOWN } state;

    /* session.c's own */
    struct loop *loop;
    const struct options *options;
    MYSQL *conn, *connected;
    int failed; /* the library's answer to the call under way */
    my_bool unread;
    MYSQL_RES *rows;
    enum {
        CALL_NONE,
        CALL_CONNECT,
        CALL_SEND,
        CALL_AWAIT, /* none yet: the next one is made when the answer is there */
        CALL_READ,
        CALL_STORE,
        CALL_NEXT
    } call;
    int waits_for; /* MYSQL_WAIT_...: what the call needs to go on */
    struct watch watch;
    uint32_t watched;
    struct timer timer;
    struct task task;
    struct request *first, **last, *spare;
    unsigned depth; /* of callbacks under way */
    bool doomed;    /* freed when the last of them returns */
};

enum stile_status session_new(struct session **session, struct my *my, struct loop *loop,
                              const struct options *options, const struct session_events *events,
                              struct stile_error *err);

/* sql is malloc()ed and becomes the session's, whatever happens; NULL: there was no memory for it.
 * The answer comes once, never from inside. */
enum stile_status session_send(struct session *session, char *sql, answer_fn *fn, void *data,
                               struct stile_error *err);

/* Of a result's first row; NULL: there is none, or it is SQL's NULL. */
const char *outcome_text(const struct outcome *outcome, unsigned column);

#endif
