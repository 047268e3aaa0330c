/* The connection to a cluster: requests with deadlines, and streams, over one HTTP/2 connection to
 * one of its members at a time.
 *
 * It comes up by itself and comes back by itself: the next member is tried at once, and after a
 * round without success it pauses, longer from round to round, with full jitter. Meanwhile requests
 * are answered with why. A request that left us and was not answered is UNCERTAIN, one that never
 * left is UNREACHABLE. Few are on the wire at once, and the time of each counts from there: else a
 * crowd of them would time out, and be asked again by an even larger one. No callback comes from
 * inside conn_ask(). */
#ifndef STILE_ETCD_CONN_H
#define STILE_ETCD_CONN_H

#include "engines/etcd/rpc.h"
#include "engines/etcd/rpc.pb-c.h"

#define CONN_SENT_MAX 256 /* at once; what is more waits here, and its time does not count */
/* Altogether: a client with thousands of locks may ask for all of them at once. */
#define CONN_PENDING_MAX   131072
#define CONN_ENDPOINTS_MAX 16

enum rpc {
    RPC_RANGE,
    RPC_PUT,
    RPC_TXN,
    RPC_LEASE_GRANT,
    RPC_LEASE_REVOKE,
    RPC_LEASE_TTL,
    RPC_AUTHENTICATE,
    RPC_STATUS,
    RPC_ALARM,
    RPC_MEMBER_LIST,
    RPC_LEASE_KEEP_ALIVE,
    RPC_WATCH,
};

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
    void (*down)(struct conn *conn, const struct stile_error *why); /* streams have ended before */
};

/* Once: the answer, or err. The answer is freed after the call. */
typedef void conn_fn(void *data, const ProtobufCMessage *answer, const struct stile_error *err);

/* Strings are copied; endpoints are tried in a random order. */
enum stile_status conn_new(struct conn **conn, struct loop *loop,
                           const struct conn_options *options, const struct conn_events *events,
                           void *owner, struct stile_error *err);
/* Another one as this is, but to the i-th of its endpoints alone. anonymous: without a login, which
 * costs the server as much as a hundred requests; some need none. */
enum stile_status conn_new_beside(struct conn **conn, const struct conn *like, size_t i,
                                  bool anonymous, const struct conn_events *events, void *owner,
                                  struct stile_error *err);
void *conn_owner(const struct conn *conn);
bool conn_is_up(const struct conn *conn);
/* The cluster that all later connections must belong to. An endpoint of another one is left, until
 * all of them are: then the cluster was replaced, and the new one is taken. */
void conn_set_cluster(struct conn *conn, uint64_t cluster_id);
const char *conn_address(const struct conn *conn); /* of the member, for people */

enum stile_status conn_ask(struct conn *conn, enum rpc rpc, const ProtobufCMessage *message,
                           conn_fn *fn, void *data, struct stile_error *err);
void conn_forget(struct conn *conn, const void *data); /* its callbacks do not come */

/* The member has not answered for so long: if nothing came from it at all, it is given up. */
void conn_suspect(struct conn *conn, uint64_t for_ns);

/* This member is of no use: if there are others, the next one is asked. False: there are none. */
bool conn_try_another(struct conn *conn, const struct stile_error *why);

/* A stream of messages, as long as the connection lives. Embedded by its owner. */
struct conn_stream {
    struct h2_call call;
    struct conn *conn;
    enum rpc rpc;
    bool open;
    void (*message)(struct conn_stream *stream, const ProtobufCMessage *message);
    void (*ended)(struct conn_stream *stream, const struct stile_error *err);
};

enum stile_status conn_stream_open(struct conn *conn, struct conn_stream *stream, enum rpc rpc,
                                   struct stile_error *err); /* UNREACHABLE unless up */
enum stile_status conn_stream_send(struct conn_stream *stream, const ProtobufCMessage *message,
                                   struct stile_error *err);
void conn_stream_close(struct conn_stream *stream);

void conn_free(struct conn *conn); /* no callback or event comes any more; safe inside one */
void conn_forked(struct conn *conn);

#endif
