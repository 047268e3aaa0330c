/* One connection to one server: a handshake that begins a session or takes it up again, then
 * requests, answered in the order in which they were sent, and events of watches in between.
 *
 * A packet that can't be read, or answers another request than the oldest one, ends the connection:
 * what is behind it can't be trusted either. No event comes from inside a call. A connection may be
 * freed inside `closed`, which is its last event, and outside of all events. */
#ifndef STILE_ZOOKEEPER_CONNECTION_H
#define STILE_ZOOKEEPER_CONNECTION_H

#include "base/error.h"
#include "engines/zookeeper/jute.h"
#include "io/stream.h"

#define SESSION_PASSWORD_MAX 64

struct connection;

/* What a session is known by. id 0: none yet. */
struct session_id {
    int64_t id;
    size_t password_len;
    char password[SESSION_PASSWORD_MAX];
};

struct connection_options {
    struct stream_target target;
    struct session_id session; /* to be taken up; id 0: a new one */
    int32_t timeout_ms;
    int64_t last_zxid;       /* a server that is behind this refuses the session */
    const char *credentials; /* "user:password", or NULL; must outlive the connection */
};

/* Embedded by its owner, whose memory it is. The bytes are a packet with room for its number. */
struct connection_request {
    struct connection_request *next;
    uint64_t at; /* where in the stream it begins */
    int32_t xid;
    /* code: the server's, 0 for success; the body is behind the header. False: it could not be
     * read; the request is under way again, and the connection ends. */
    bool (*answered)(struct connection_request *request, int32_t code, struct jute_reader *body);
};

struct connection_events {
    /* The session that was given; id 0: the one that was to be taken up is over. */
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

/* Once up. The request's number is written into the packet. 0, or an errno value of
 * stream_write(): then it is not under way. */
int zk_connection_send(struct connection *connection, struct connection_request *request,
                       char *packet, size_t n);
/* A packet whose answer goes to nobody. */
int zk_connection_send_unanswered(struct connection *connection, const char *packet, size_t n);
void zk_connection_flush(struct connection *connection);

/* The oldest request that is not answered, which is no longer under way then; NULL: there is none.
 * may_have_left: the server may have got it. */
struct connection_request *zk_connection_pop(struct connection *connection, bool *may_have_left);

void zk_connection_free(struct connection *connection); /* no event follows */
void zk_connection_forked(struct connection *connection);

#endif
