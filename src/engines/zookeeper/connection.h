/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* One connection to one server: a handshake that begins or resumes a session, then requests, which
 * are answered in the order in which they were sent, and events of watches in between.
 *
 * A packet that can't be parsed, or that answers another request than the oldest one, ends the
 * connection: what follows it can't be trusted either. No event comes from inside a call. A
 * connection may be freed inside `closed`, which is its last event, and outside of all events. */
#ifndef STILE_ZOOKEEPER_CONNECTION_H
#define STILE_ZOOKEEPER_CONNECTION_H

#include "base/error.h"
#include "engines/zookeeper/jute.h"
#include "io/stream.h"

#define SESSION_PASSWORD_MAX 64

struct connection;

/* id 0: no session yet. */
struct session_id {
    int64_t id;
    size_t password_len;
    char password[SESSION_PASSWORD_MAX];
};

struct connection_options {
    struct stream_target target;
    struct session_id session; /* to be resumed; id 0: a new one */
    int32_t timeout_ms;
    int64_t last_zxid;       /* a server that is behind it refuses the session */
    const char *credentials; /* "user:password", or NULL; must outlive the connection */
};

/* Embedded by its owner, which also owns the packet. */
struct connection_request {
    struct connection_request *next;
    uint64_t at; /* where in the stream it begins */
    int32_t xid;
    /* code: the server's, 0 for success. body: what follows the header. False: the body could not
     * be parsed; the request counts as unanswered, and the connection ends. */
    bool (*answered)(struct connection_request *request, int32_t code, struct jute_reader *body);
};

struct connection_events {
    /* The session that the server gave; id 0: the one to be resumed has expired. */
    void (*up)(struct connection *connection, const struct session_id *session, int32_t timeout_ms);
    void (*event)(struct connection *connection, int32_t type, const char *path);
    void (*unauthorized)(struct connection *connection); /* the server refuses the credentials */
    void (*closed)(struct connection *connection, const struct stile_error *why);
};

enum stile_status zk_connection_open(struct connection **connection, struct loop *loop,
                                     const struct connection_options *options,
                                     const struct connection_events *events, void *owner,
                                     struct stile_error *err);
void *zk_connection_owner(const struct connection *connection);

uint64_t zk_connection_greeted_ns(const struct connection *connection); /* 0: not yet */
int64_t zk_connection_zxid(const struct connection *connection);        /* the greatest seen */
bool zk_connection_is_up(const struct connection *connection);

/* Once up. Writes the request's xid into the packet. 0, or an errno value of stream_write(): then
 * it is not under way. */
int zk_connection_send(struct connection *connection, struct connection_request *request,
                       char *packet, size_t n);
/* A packet whose reply goes to no request. */
int zk_connection_send_unanswered(struct connection *connection, const char *packet, size_t n);
void zk_connection_flush(struct connection *connection);

/* Takes the oldest unanswered request off; NULL: there is none. may_have_left: the server may have
 * received it. */
struct connection_request *zk_connection_pop(struct connection *connection, bool *may_have_left);

void zk_connection_free(struct connection *connection); /* no event follows */
void zk_connection_forked(struct connection *connection);

#endif
