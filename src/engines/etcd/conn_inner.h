/* The inside of a connection, shared by its parts: conn_life.c brings it up and down, conn.c takes
 * requests and gives answers, conn_stream.c has the streams. All events and callbacks come between
 * enter and leave; after each one `freed` is looked at. */
#ifndef STILE_ETCD_CONN_INNER_H
#define STILE_ETCD_CONN_INNER_H

#include "engines/etcd/connection.h"

#define CONN_STREAMS_MAX 4

enum conn_state {
    PAUSED,      /* between two rounds */
    CONNECTING,  /* until the peer's SETTINGS have come */
    IDENTIFYING, /* until it has said to which cluster it belongs, if one is known */
    LOGGING_IN,  /* until Authenticate is answered */
    UP,
    GOING, /* the peer wants to end; what is under way may finish */
};

struct request {
    struct request *next, *before;
    struct request_line *line;
    struct h2_call call;
    struct conn *conn;
    enum rpc rpc;
    conn_fn *fn; /* NULL: forgotten */
    void *data;
    uint64_t sent_ns, until_ns;
    bool again;    /* sent a second time, after a new login */
    bool in_doubt; /* the connection broke after it had left */
    ProtobufCMessage *answer;
    size_t len;
    uint8_t bytes[];
};

struct request_line {
    struct request *first, *last;
    size_t n;
};

struct conn {
    struct loop *loop;
    const struct conn_events *events;
    void *owner;
    struct conn_options options; /* strings are ours */
    char address[300];           /* for people */
    size_t at;                   /* of the endpoints */
    size_t tried;                /* without success in this round */

    enum conn_state state;
    struct h2 *h2;
    char *token;         /* of the login */
    struct request *own; /* of the connection itself: identification or login */
    uint64_t cluster_id; /* 0: not known yet */
    uint64_t foreign_ids[CONN_ENDPOINTS_MAX]; /* of endpoints that had another one at last */
    struct request_line waiting, sent, ended;
    struct conn_stream *streams[CONN_STREAMS_MAX];

    struct timer overdue, retry, pulse;
    struct task break_task;  /* why is set: go down, from the loop */
    struct task refuse_task; /* answer what came in while PAUSED */
    unsigned attempt;
    uint64_t up_ns;
    bool known; /* etcd has answered once: if something else does, that passes */
    struct stile_error why;
    unsigned depth; /* events under way */
    bool freed;
};

struct rpc_class {
    const char *path;
    const ProtobufCMessageDescriptor *answer;
    bool alone; /* a member that has lost the others may answer it as well */
    bool reads; /* it changes nothing: without an answer, nothing is in doubt */
};
extern const struct rpc_class rpc_classes[];

/* ---- conn_life.c ---- */
void conn_connect(struct conn *conn);
void conn_go_down(struct conn *conn); /* why is set */
void conn_break_soon(struct conn *conn);
void conn_init_life(struct conn *conn);
void conn_log_in(struct conn *conn);
void conn_enter(struct conn *conn);
void conn_leave(struct conn *conn);
void conn_end_if_drained(struct conn *conn);

/* ---- conn.c ---- */
struct request *request_new(struct conn *conn, enum rpc rpc, const ProtobufCMessage *message);
void request_free(struct request *request);
void request_put(struct request *request); /* onto the wire */
void line_push(struct request_line *line, struct request *request);
void line_remove(struct request *request);
struct request *line_pop(struct request_line *line);
void conn_put_waiting(struct conn *conn);      /* as many as may be on the wire */
void conn_restart_patience(struct conn *conn); /* of those that wait: they wait for a member now */
void conn_watch_time(struct conn *conn);
void conn_tell_ended(struct conn *conn, const struct stile_error *why);
void conn_on_overdue(struct timer *timer);
bool conn_worth_another(const struct stile_error *err); /* another member may do better */
bool conn_is_logged_out(const struct conn *conn, const struct stile_error *err);

/* ---- conn_stream.c ---- */
void conn_end_streams(struct conn *conn, const struct stile_error *why);

#endif
