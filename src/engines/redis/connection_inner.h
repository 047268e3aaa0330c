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
    struct conn_options options; /* owns its strings */
    char *host, *path, *user, *password;
    char address[80]; /* for messages */

    enum conn_state state;
    struct stream *stream;
    struct resp *resp;
    struct request_queue sent;      /* in the order of their replies */
    struct request_queue forgotten; /* answered with NOSCRIPT; sent again when `sent` is empty */
    struct request_queue waiting;   /* not sent yet */
    struct request_queue ended;     /* their connection broke; their callbacks are being called */
    struct request *first_on_time;  /* of `sent`: the first that was not reported as overdue */
    const struct lua *known[CONN_KNOWN_MAX]; /* scripts whose source the server has seen */
    unsigned n_known;
    bool pushes; /* for subscriptions only */
    struct conn_channel *channels;

    struct timer overdue, retry;
    struct task break_task;  /* goes down from the loop; why is set */
    struct task refuse_task; /* refuses requests made while PAUSED */
    unsigned attempt;
    uint64_t up_ns;
    uint64_t heard_ns; /* when the server last sent anything */
    bool moved;        /* connect to another address, at once */
    bool leaving;      /* sends nothing more; connects anew when all is answered */
    bool suspect;      /* a replica answered: the next connection asks for the role first */
    bool role_asked;   /* on this connection */
    struct stile_error why;
    bool in_event, freed;
};

#endif
