/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a stream, for stream.c and its tests. Events are called between enter_event() and
 * leave_event(), and the state is checked afterwards: the stream may have ended or been freed
 * meanwhile. */
#ifndef STILE_STREAM_INNER_H
#define STILE_STREAM_INNER_H

#include <sys/un.h>

#include "base/buffer.h"
#include "io/resolve.h"
#include "io/stream.h"
#include "io/tls.h"

enum stream_state { RESOLVING, CONNECTING, SHAKING, OPEN, CLOSED };

struct stream {
    struct loop *loop;
    const struct stream_events *events;
    void *owner;
    enum stream_state state;
    struct watch watch; /* fd -1: no socket */
    bool wants_write;
    bool peer_closed;   /* the peer no longer accepts anything; see why */
    struct timer timer; /* for everything before OPEN */
    uint64_t until_ns;
    unsigned rotate;
    struct resolve *resolve;
    struct addrinfo *found; /* ours to free */
    struct addrinfo *next_address;
    struct tls *tls;
    struct buffer out;  /* as written */
    struct buffer wire; /* TLS: what is to be sent instead */
    uint64_t written, sent;
    struct sender sender;
    struct task start_task; /* connecting and failing are put off while no event may come */
    struct task end_task;
    struct stile_error why;
    bool in_event, freed;
    struct addrinfo unix_info;
    struct sockaddr_un unix_address;
};

#endif
