/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A stream, a server for its other end, and a record of its events. */
#ifndef STILE_STREAM_KIT_H
#define STILE_STREAM_KIT_H

#include "io/stream_inner.h"
#include "support/net.h"

enum stream_event { NEVER_FREE, FREE_OPENED, FREE_DATA, FREE_CLOSED };

struct record {
    unsigned opened, closed;
    struct stile_error why;
    char bytes[65536];
    size_t n;
    uint64_t n_all;
    enum stream_event free_in; /* the stream is freed there */
};

extern struct loop *loop;
extern struct fake server;
extern struct stream *stream;
extern struct record record;

int scene_open(void **state);
int scene_close(void **state);

enum stile_status scene_open_to(const struct stream_target *target, struct stile_error *err);
void scene_open_tcp(const char *host);
void scene_open_up(void); /* and accepted */

#endif
