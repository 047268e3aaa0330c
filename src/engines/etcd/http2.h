/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* gRPC calls over one HTTP/2 connection: nghttp2 between its calls and a stream.
 *
 * It writes to a stream that is open, and is given what the stream receives. up() comes when the
 * peer has sent its SETTINGS, failed() once, from inside any call, when the connection is of no
 * more use; its owner ends it from the loop. Calls are embedded by their owners. A call sends any
 * number of messages and gets message() for each one received; ended() comes once when the peer has
 * ended it. When the connection ends, its calls get no event.
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
    void (*failed)(struct h2 *h2, const struct stile_error *why); /* must not free it */
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

/* The stream is borrowed; authority is HOST:PORT. OK or NOMEM. */
enum stile_status etcd_h2_new(struct h2 **h2, struct stream *stream, const char *authority,
                              bool tls, const struct h2_events *events, void *owner,
                              struct stile_error *err);
void *etcd_h2_owner(const struct h2 *h2);
void etcd_h2_receive(struct h2 *h2, const void *bytes, size_t n); /* calls back */

/* 0 or ENOMEM; token NULL: none. path must be a constant. led: a member without a leader ends
 * the call with an error at once. */
int etcd_h2_start(struct h2 *h2, struct h2_call *call, const char *path, const char *token,
                  bool led);
int etcd_h2_send(struct h2_call *call, const void *message, size_t n, bool last);
/* The place of its last byte in the stream; UINT64_MAX: not all is written. */
uint64_t etcd_h2_end(const struct h2_call *call);
void etcd_h2_cancel(struct h2_call *call); /* if it is under way: no event follows */
int etcd_h2_ping(struct h2 *h2);

/* Safe inside an event other than failed(); calls under way are dropped by their owner. */
void etcd_h2_free(struct h2 *h2);

#endif
