/* gRPC calls over one HTTP/2 connection: nghttp2 on top of a stream.
 *
 * A connection is made for one target and used once: up() when the peer has sent its SETTINGS,
 * closed() at any time with the reason. Calls are embedded by their owners. A call sends any number
 * of messages and gets message() for each one received; ended() comes once when the peer has ended
 * it. When the connection closes, its calls get no event: only closed() reports it.
 *
 * Everything received is bounded: H2_MESSAGE_MAX bytes a message, H2_HEADERS_MAX bytes of headers a
 * call. A call whose peer exceeds them is cancelled; the others go on. */
#ifndef STILE_ETCD_HTTP2_H
#define STILE_ETCD_HTTP2_H

#include "base/buffer.h"
#include "io/stream.h"

#define H2_MESSAGE_MAX (4u << 20)
#define H2_HEADERS_MAX (64u << 10)
#define H2_WORDS_MAX   192
#define H2_NO_STATUS   (-1)

struct h2;
struct h2_call;

/* A status that a balancer sends for a server that is down: it may be back soon. */
bool etcd_h2_is_temporary(int http_status);

struct h2_events {
    void (*up)(struct h2 *h2);
    void (*going)(struct h2 *h2); /* GOAWAY: calls under way may finish, no new ones are accepted */
    void (*closed)(struct h2 *h2, const struct stile_error *why);
};

struct h2_call_events {
    void (*message)(struct h2_call *call, const uint8_t *bytes, size_t n);
    void (*ended)(struct h2_call *call); /* status, words and refused are set */
};

struct h2_call {
    const struct h2_call_events *events;
    struct h2 *h2; /* NULL: not under way */
    int32_t id;
    struct buffer out;
    bool last;     /* nothing will be added to out */
    uint64_t sent; /* sent whole, perhaps, once the stream has sent so many bytes; 0: not yet */

    uint8_t head[5]; /* of the message that comes */
    unsigned head_len;
    struct buffer in;
    size_t headers; /* bytes of them so far */

    int http_status;
    int status;               /* gRPC's, or H2_NO_STATUS */
    bool refused;             /* the peer has not processed it */
    bool too_long;            /* the message that was received */
    char words[H2_WORDS_MAX]; /* grpc-message, printable */
};

enum stile_status etcd_h2_open(struct h2 **h2, struct loop *loop,
                               const struct stream_target *target, const struct h2_events *events,
                               void *owner, struct stile_error *err);
void *etcd_h2_owner(const struct h2 *h2);
uint64_t etcd_h2_heard_ns(const struct h2 *h2); /* when the last byte came */

/* 0 or ENOMEM; token NULL: none. path must be a constant. led: a member without a leader ends
 * the call with an error at once. */
int etcd_h2_start(struct h2 *h2, struct h2_call *call, const char *path, const char *token,
                  bool led);
int etcd_h2_send(struct h2_call *call, const void *message, size_t n, bool last);
bool etcd_h2_was_sent(
    const struct h2_call *call);           /* whole, perhaps; call it before the h2 is freed */
void etcd_h2_cancel(struct h2_call *call); /* if it is under way: no event follows */
int etcd_h2_ping(struct h2 *h2);

void etcd_h2_free(
    struct h2 *h2); /* safe inside an event; calls under way are dropped by their owner */
void etcd_h2_forked(struct h2 *h2);

#endif
