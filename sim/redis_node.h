/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the simulated Redis share: a node, and what it knows of a connection. */
#ifndef STILE_SIM_REDIS_NODE_H
#define STILE_SIM_REDIS_NODE_H

#include "sim/net.h"
#include "sim/redis_store.h"

/* A primary's log is a chain: `end` is where the next unit is put. A replica has a place in it. */
struct replication {
    struct redis_node *primary; /* NULL: it is one itself */
    struct unit **end;          /* of its own log */
    struct unit **next;         /* replica: what it gets next; NULL: it has no copy yet */
    uint64_t offset;            /* units written, or applied */
    uint64_t acked;             /* replica: how far its primary knows it to be */
    unsigned link;              /* another number whenever it begins to follow */
    bool cut;                   /* nothing passes between it and the others */
    bool pumping;
    uint64_t lag_ns; /* more than usual */
    struct random random;
};

struct session {
    struct subscription *subscriptions;
    struct connection *connection;
    struct wait *wait; /* a WAIT that is not answered yet: nothing else is read meanwhile */
    uint64_t offset;   /* of the node, after the last command */
    bool asking;       /* ASKING came before this command */
};

/* Commands that a kind of server has for itself, or checks before all others. */
struct redis_mode {
    /* True: it has answered. session NULL: there is no connection. */
    bool (*command)(struct redis_node *node, struct session *session,
                    const struct redis_call *call);
    /* A message was published on it; NULL: only its own subscribers get it. */
    void (*published)(struct redis_node *node, struct bytes channel, struct bytes message);
    const char *info; /* lines for INFO */
};

struct redis_node {
    struct server *server;
    struct redis_store store, saved;
    uint32_t incarnation;          /* a restart forgets the scripts, and gives it another run_id */
    uint32_t flushes;              /* of scripts alone */
    const struct redis_mode *mode; /* NULL: a server by itself */
    struct replication replication;
    void *data; /* of its mode */
};

static inline struct redis_node *redis_node_of(const struct server *server)
{
    return server->data;
}

#endif
