/* The connection to a cluster: requests with deadlines, and streams, over one HTTP/2 connection to
 * one of its members at a time.
 *
 * It connects and reconnects by itself: the next member is tried at once, and after a round without
 * success it pauses, longer from round to round, with full jitter. Requests made meanwhile fail
 * with the reason. A request that was sent and not answered is UNCERTAIN, one that was never sent
 * is UNREACHABLE. Few are on the wire at once, and each is timed from when it is sent: otherwise a
 * crowd of them would time out, and be repeated by an even larger one. No callback comes from
 * inside etcd_conn_request(). */
#ifndef STILE_ETCD_CONNECTION_H
#define STILE_ETCD_CONNECTION_H

#include "engines/etcd/requests.h"

#define CONN_SENT_MAX 256 /* at once; further ones wait here, and are not timed */
/* Altogether: a client with thousands of locks may ask for all of them at once. */
#define CONN_PENDING_MAX   131072
#define CONN_ENDPOINTS_MAX 16

struct conn;

struct conn_endpoint {
    const char *host;
    uint16_t port;
};

struct conn_options {
    struct conn_endpoint endpoints[CONN_ENDPOINTS_MAX];
    size_t n_endpoints;
    struct tls_context *tls;
    const char *user, *password;
    uint64_t answer_ns; /* how long a request may take; 0: 3 s */
};

struct conn_events {
    void (*up)(struct conn *conn);
    void (*down)(struct conn *conn, const struct stile_error *why); /* after its streams ended */
};

/* Strings are copied; endpoints are tried in a random order. */
enum stile_status etcd_conn_new(struct conn **conn, struct loop *loop,
                                const struct conn_options *options,
                                const struct conn_events *events, void *owner,
                                struct stile_error *err);
/* Like this one, but to its i-th endpoint alone. anonymous: without a login, which costs the server
 * as much as a hundred requests; some RPCs need none. */
enum stile_status etcd_conn_new_to(struct conn **conn, const struct conn *like, size_t i,
                                   bool anonymous, const struct conn_events *events, void *owner,
                                   struct stile_error *err);
void *etcd_conn_owner(const struct conn *conn);
bool etcd_conn_is_up(const struct conn *conn);
/* The cluster that all later connections must belong to. An endpoint of another cluster is skipped,
 * unless all endpoints are of that one: then the cluster was replaced, and the new one is taken. */
void etcd_conn_set_cluster(struct conn *conn, uint64_t cluster_id);
const char *etcd_conn_address(const struct conn *conn); /* of the member, for messages */

enum stile_status etcd_conn_request(struct conn *conn, enum rpc rpc,
                                    const ProtobufCMessage *message, conn_fn *fn, void *data,
                                    struct stile_error *err);
void etcd_conn_forget(struct conn *conn, const void *data); /* no callback with this data comes */

/* The member has not answered for so long: it is given up if it has sent nothing at all. */
void etcd_conn_suspect(struct conn *conn, uint64_t for_ns);

/* This member is of no use: connects to the next one. False: there is no other. */
bool etcd_conn_try_another(struct conn *conn, const struct stile_error *why);

/* A stream of messages, as long as the connection lives. Embedded by its owner. */
struct conn_stream {
    struct h2_call call;
    struct conn *conn;
    enum rpc rpc;
    bool open;
    void (*message)(struct conn_stream *stream, const ProtobufCMessage *message);
    void (*ended)(struct conn_stream *stream, const struct stile_error *err);
};

enum stile_status etcd_conn_stream_open(struct conn *conn, struct conn_stream *stream, enum rpc rpc,
                                        struct stile_error *err); /* UNREACHABLE unless up */
enum stile_status etcd_conn_stream_send(struct conn_stream *stream, const ProtobufCMessage *message,
                                        struct stile_error *err);
void etcd_conn_stream_close(struct conn_stream *stream);

void etcd_conn_free(struct conn *conn); /* no callback or event follows; safe inside one */
void etcd_conn_forked(struct conn *conn);

/* ---- inside of it, for connection.c and its tests ---- */

/* All events and callbacks come between enter() and leave(); `freed` is checked after each. */
#define CONN_STREAMS_MAX 4

enum conn_state {
    PAUSED,      /* between two rounds */
    CONNECTING,  /* until the peer's SETTINGS have come */
    IDENTIFYING, /* until it has named its cluster, if one is known */
    LOGGING_IN,  /* until Authenticate is answered */
    UP,
    DRAINING, /* the peer wants to end; what is under way may finish */
};

struct conn {
    struct loop *loop;
    const struct conn_events *events;
    void *owner;
    struct conn_options options; /* strings are ours */
    char address[300];           /* for messages */
    size_t at;                   /* of the endpoints */
    size_t tried;                /* without success in this round */

    enum conn_state state;
    struct h2 *h2;
    char *token;                 /* of the login */
    struct request *own_request; /* of the connection itself: identification or login */
    uint64_t cluster_id;         /* 0: not known yet */
    uint64_t foreign_ids[CONN_ENDPOINTS_MAX]; /* of endpoints that last had another one */
    struct request_list waiting, sent, ended;
    struct conn_stream *streams[CONN_STREAMS_MAX];

    struct timer overdue, retry, pulse;
    struct task break_task;  /* why is set: go down, from the loop */
    struct task refuse_task; /* answer what came in while PAUSED */
    unsigned attempt;
    uint64_t up_ns;
    bool known; /* etcd has answered once: if something else does, that is temporary */
    struct stile_error why;
    unsigned depth; /* events under way */
    bool freed;
};

#endif
