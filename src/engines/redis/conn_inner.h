/* The inside of a connection, shared by its parts: conn_life.c brings it up and down, conn.c takes
 * requests and gives answers, conn_push.c has subscriptions, conn_time.c knows how long all may
 * take. All events and callbacks come between enter and leave; after each one `freed` is looked at.
 */
#ifndef STILE_REDIS_CONN_INNER_H
#define STILE_REDIS_CONN_INNER_H

#include "engines/redis/request.h"
#include "engines/redis/resp.h"

#define CONN_KNOWN_MAX 16

enum conn_state {
    PAUSED,     /* between two attempts */
    CONNECTING, /* until the stream is open */
    GREETING,   /* until AUTH, SELECT and CLIENT SETNAME are answered */
    UP,
};

struct conn_channel {
    struct conn_channel *next;
    size_t len;
    char name[];
};

struct conn {
    struct loop *loop;
    const struct conn_events *events;
    void *owner;
    struct conn_options options; /* strings are ours */
    char *host, *path, *user, *password;
    char address[80]; /* for people */

    enum conn_state state;
    struct stream *stream;
    struct resp *resp;
    struct request_line sent;      /* in the order in which their answers will come */
    struct request_line forgotten; /* answered with NOSCRIPT; again when sent is empty */
    struct request_line waiting;   /* not sent yet */
    struct request_line ended;     /* their connection broke; they are being told */
    struct request *untold;        /* the first of sent that has not been called overdue */
    const struct lua *known[CONN_KNOWN_MAX]; /* the server has seen their source */
    unsigned n_known;
    bool pushes; /* for subscriptions only */
    struct conn_channel *channels;

    struct timer overdue, retry;
    struct task break_task;  /* why is set: go down, from the loop */
    struct task refuse_task; /* answer what came in while PAUSED */
    unsigned attempt;
    uint64_t up_ns;
    uint64_t heard_ns; /* when something came from the server last */
    bool moved;        /* connect to another address, at once */
    bool leaving;      /* nothing more is sent; when all is answered, connect anew */
    bool suspect;      /* a replica answered: the next one is asked for its role first */
    bool role_asked;   /* of this connection */
    struct stile_error why;
    bool in_event, freed;
};

/* ---- conn_life.c ---- */
extern const struct stream_events conn_stream_events;
void conn_connect(struct conn *conn);
void conn_go_down(struct conn *conn); /* why is set */
/* why is set, but this is no place for events. */
void conn_break_soon(struct conn *conn);
void conn_on_retry(struct timer *timer);
void conn_on_break(struct task *task);
void conn_on_refuse(struct task *task);
void conn_enter(struct conn *conn);
void conn_leave(struct conn *conn);

/* ---- conn.c ---- */
void conn_put(struct conn *conn, struct request *request); /* onto the wire */
void conn_put_waiting(struct conn *conn);
void conn_take(struct conn *conn, const redisReply *reply);
void conn_tell_ended(struct conn *conn, const struct stile_error *why);
void conn_finish(struct request *request, const redisReply *reply, const struct stile_error *err);

void conn_leave_when_answered(struct conn *conn);

void conn_write(struct conn *conn, struct request *request); /* or goes down soon */

/* ---- conn_push.c ---- */
void conn_put_channel(struct conn *conn, const char *verb, const struct conn_channel *channel);
void conn_take_push(struct conn *conn, const redisReply *reply);

/* ---- conn_time.c ---- */
void conn_on_overdue(struct timer *timer);
void conn_watch_time(struct conn *conn);
/* No longer than the usual, nor than this part of the shortest lease at stake. */
uint64_t conn_patience(const struct conn *conn, uint64_t usual_ns, unsigned part);

#define CONN_SILENCE_PART 4
#define CONN_PAUSE_PART   8

#endif
