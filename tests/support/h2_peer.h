/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The other end of a gRPC connection, played by the test: it takes what the loop has sent, and says
 * what the test wants, in frames or in bytes. */
#ifndef STILE_TEST_H2_PEER_H
#define STILE_TEST_H2_PEER_H

#include <nghttp2/nghttp2.h>

#include "support/net.h"

#define PEER_CALLS_MAX 64

/* One call that has come. */
struct peer_call {
    int32_t id;
    char path[80], token[80];
    uint8_t body[4096];
    size_t n;
    bool whole, reset;
};

struct h2_peer {
    struct fake fake;
    nghttp2_session *session;
    struct peer_call calls[PEER_CALLS_MAX];
    size_t n;
    unsigned pings;
    uint8_t out[1 << 16]; /* what waits to be said in a body */
    size_t out_len, out_sent;
    bool out_last;
};

void peer_listen(struct h2_peer *peer);
void peer_accept(struct h2_peer *peer); /* and says its SETTINGS */
void peer_take(struct h2_peer *peer);   /* what has come so far */
/* Headers, a body of these bytes, and the end with this status (-1: no end). */
void peer_answer(struct h2_peer *peer, int32_t id, const void *body, size_t n, int status,
                 const char *words);
/* One message, framed, and OK. */
void peer_answer_message(struct h2_peer *peer, int32_t id, const void *message, size_t n);
void peer_more(struct h2_peer *peer, int32_t id, const void *body, size_t n);
void peer_reset(struct h2_peer *peer, int32_t id, uint32_t code);
void peer_goaway(struct h2_peer *peer, int32_t last_id);
void peer_hang_up(struct h2_peer *peer);
void peer_free(struct h2_peer *peer);

#endif
