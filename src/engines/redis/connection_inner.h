/* The inside of a connection, for connection.c and its tests. */
#ifndef STILE_REDIS_CONNECTION_INNER_H
#define STILE_REDIS_CONNECTION_INNER_H

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
    struct request_queue sent;      /* in the order in which their answers will come */
    struct request_queue forgotten; /* answered with NOSCRIPT; again when sent is empty */
    struct request_queue waiting;   /* not sent yet */
    struct request_queue ended;     /* their connection broke; they are being told */
    struct request *first_on_time;  /* the first of sent that has not been called overdue */
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

#endif
