/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* gRPC calls to a real etcd and to simulated ones, with the same code. */
#ifndef STILE_TEST_SIM_ETCD_RIG_H
#define STILE_TEST_SIM_ETCD_RIG_H

#include <nghttp2/nghttp2.h>

#include "sim/etcd_server.h"

#define RIG_PATIENCE_MS 20000

/* A call that has begun. Its answers wait in `in`, each behind its five bytes. */
struct rig_call {
    int32_t id;
    struct buffer out, in;
    bool last; /* nothing follows what is in `out` */
    bool over;
    int status;
    char words[128];
};

/* A connection to a server; fd -1: to a simulated one, in whose time it lives. */
struct rig {
    nghttp2_session *session;
    int fd;
    struct connection connection;
    struct buffer arrived;
};

void rig_connect(struct rig *rig, const char *address); /* "127.0.0.1:2379" */
void rig_connect_simulated(struct rig *rig, struct server *server, struct process *process);
void rig_close(struct rig *rig);

/* A call and its only message, if there is one. */
void rig_begin(struct rig *rig, struct rig_call *call, const char *path);
void rig_send(struct rig *rig, struct rig_call *call, const void *message, size_t n, bool last);
void rig_call_free(struct rig_call *call);
/* The first message that has come whole; false: none so far. It is valid until rig_drop(). */
bool rig_message(const struct rig_call *call, const uint8_t **message, size_t *n);
void rig_drop(struct rig_call *call);
/* Lets the connection go on; false: nothing came for RIG_PATIENCE_MS. */
bool rig_step(struct rig *rig);
/* Until the call is over, or has a message. */
void rig_await(struct rig *rig, struct rig_call *call);

#endif
