/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The server's side of gRPC over HTTP/2, on bytes that its caller carries.
 *
 * A call lives until the end of the run: an answer may be ready long after its client has hung up,
 * and is then dropped.
 */
#ifndef STILE_SIM_GRPC_H
#define STILE_SIM_GRPC_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

#define GRPC_PATH_MAX 64

struct grpc;
struct grpc_call;

struct grpc_events {
    /* It has come whole. */
    void (*message)(struct grpc_call *call, const uint8_t *bytes, size_t n);
    /* It has ended, its client has cancelled it, or is gone. */
    void (*over)(struct grpc_call *call);
    /* To the client. */
    void (*write)(struct grpc *grpc, const void *bytes, size_t n);
};

struct grpc_call {
    struct grpc *grpc; /* NULL: it is over */
    struct grpc_call *next;
    int32_t id;
    char path[GRPC_PATH_MAX];
    bool led; /* the client wants no answer of a member without a leader */
    struct buffer in, out;
    bool answered, ended;
    int status;
    const char *words;
    void *data;
};

struct grpc *grpc_new(const struct grpc_events *events, void *owner);
void *grpc_owner(const struct grpc *grpc);
void grpc_receive(struct grpc *grpc, const void *bytes, size_t n);
void grpc_send(struct grpc_call *call, const uint8_t *message, size_t n);
/* status 0: all is well. words must last. */
void grpc_end(struct grpc_call *call, int status, const char *words);
void grpc_free(struct grpc *grpc);

#endif
