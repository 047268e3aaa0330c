/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The connection to a cluster: requests with deadlines, and streams, over one HTTP/2 connection to
 * one of its members at a time.
 *
 * It connects and reconnects by itself, as kit/link.h says: the next member is tried at once, and
 * the pause comes after a round without success. Requests made in it fail with the reason. Few are
 * on the wire at once, and each is timed from when it is sent: otherwise a crowd of them would time
 * out, and be repeated by an even larger one. One that is overdue is cancelled; the member is given
 * up if nothing at all has come since it was sent. No callback comes from inside
 * etcd_conn_request(). */
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
    /* May be NULL. How long an attempt to connect may take at most, or UINT64_MAX. */
    uint64_t (*patience_ns)(const struct conn *conn);
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
size_t etcd_conn_unanswered(const struct conn *conn);   /* requests, sent or waiting */
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

#define CONN_STREAMS_MAX 4

struct conn {
    struct link
        link; /* GREETING: until SETTINGS have come, it has named its cluster and let us in */
    const struct conn_events *events;
    void *owner;
    struct conn_options options; /* strings are ours */
    size_t at;                   /* of the endpoints */
    size_t tried;                /* without success in this round */

    struct h2 *h2;
    char *token;                              /* of the login */
    uint64_t cluster_id;                      /* 0: not known yet */
    uint64_t foreign_ids[CONN_ENDPOINTS_MAX]; /* of endpoints that last had another one */
    struct conn_stream *streams[CONN_STREAMS_MAX];
    struct timer settings, pulse;
};

#endif
