/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: bytes to and from a server, over TCP, a Unix socket or TLS, in the loop.
 *
 * A stream is made for one target and reports through its events: opened once, then data any number
 * of times, and closed once, at any time, with the reason. After closed it may only be freed. No
 * event comes from inside a call: failures come from the loop, too.
 *
 * All addresses of a name are tried in turn, each with its share of the time that is left.
 *
 * Everything written in one turn of the loop is sent at once, right before the loop sleeps (see
 * loop_gather()), or earlier by stream_flush(). Both directions are bounded: STREAM_OUT_MAX bytes
 * may wait to be sent, beyond that stream_write() returns ENOBUFS; received bytes are handed on in
 * pieces and not kept. */
#ifndef STILE_STREAM_H
#define STILE_STREAM_H

#include "base/error.h"
#include "io/loop.h"

#define STREAM_OUT_MAX (16u << 20)

struct stream;
struct tls_context;

struct stream_target {
    const char *host; /* name or address; NULL: path */
    uint16_t port;
    unsigned rotate;         /* of several addresses of the host, which one is tried first */
    const char *path;        /* Unix socket */
    struct tls_context *tls; /* NULL: plain; must outlive the stream */
    uint64_t timeout_ns;     /* for the name, the connection and the TLS handshake; 0: 5 s */
};

struct stream_events {
    void (*opened)(struct stream *stream);
    void (*data)(struct stream *stream, const void *bytes, size_t n);
    void (*closed)(struct stream *stream, const struct stile_error *why);
};

/* The target's strings are copied. */
enum stile_status stream_open(struct stream **stream, struct loop *loop,
                              const struct stream_target *target,
                              const struct stream_events *events, void *owner,
                              struct stile_error *err);
void *stream_owner(const struct stream *stream);

/* 0, ENOBUFS, ENOMEM, or EPIPE once closed. What is written before opened is sent after it. */
int stream_write(struct stream *stream, const void *bytes, size_t n);
void stream_flush(struct stream *stream);

/* How many of the bytes written so far may have left this machine; the rest have not. */
uint64_t stream_sent(const struct stream *stream);
uint64_t stream_written(const struct stream *stream);

/* Bytes, or the end, have arrived that no event has reported yet. */
bool stream_has_unread(const struct stream *stream);

void stream_free(struct stream *stream);   /* closes; no more events; safe inside one */
void stream_forked(struct stream *stream); /* in a child: close the fds, nothing else */

#endif
