/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* One open zookeeper engine. */
#ifndef STILE_ZOOKEEPER_H
#define STILE_ZOOKEEPER_H

#include "base/container.h"
#include "base/self.h"
#include "engines/kit/doctor.h"
#include "engines/zookeeper/names.h"
#include "engines/zookeeper/session.h"

struct zk_host {
    char name[256];
    uint16_t port;
    char where[300]; /* "host:port", for messages */
};

enum opening_stage {
    OPENING_NOT,     /* it is open, or has failed, or open() has not begun */
    OPENING_SESSION, /* the first request of the main session was made */
    OPENING_ENDED,   /* it has failed; the session that a server gave is being ended */
};

/* The way to opened(): see zookeeper.c. */
struct zk_opening {
    enum opening_stage stage;
    struct timer patience;
    struct task look;
    struct requester requester;
    bool late;     /* patience is over */
    bool answered; /* the request, with rc */
    int rc;
    size_t tries_left;
    struct stile_error error;
};

struct zk {
    struct engine engine;
    struct zk_opening opening;
    enum dialect dialect;
    char base[BASE_MAX + 1]; /* "" or "/path" */
    long pid;                /* pid, host and command describe us to others */
    char host[SELF_HOST_MAX + 1];
    char command[INFO_MAX / 2];
    struct zk_host *hosts;
    size_t n_hosts;
    struct tls_context *tls; /* NULL: no TLS */
    char *credentials;       /* "user:password"; NULL: all users may use the nodes */
    struct jute_writer writer;
    bool closing;
    bool lists_no_nodes; /* the servers are too old for strays.c */
    const struct session_events *session_events;
    struct session *sessions;
    struct session *main;                   /* for everything but claims */
    struct zk_claim *recent, **recent_tail; /* held for a moment so far (held.c) */
    struct timer recent_timer;
    struct removal *removals;           /* of hold records (release.c) */
    struct stile_error session_error;   /* why an examination has no session */
    struct doctor_visit *visits;        /* doctor_probe.c */
    struct subscription *subscriptions; /* to changes of names and cells (push.c) */
    struct cell_work *cell_work;        /* requests to cells under way (cell_read.c) */
    struct cell_lane *cell_lanes;       /* cells.c; NULL: no cell was used yet */
};

static inline struct zk *zk_of(struct engine *engine)
{
    return (struct zk *)engine;
}

/* What query->state points to: an inspection, or the writing of a record. */
struct inquiry {
    void (*discard)(struct inquiry *inquiry);
};

/* ---- inspect.c ---- */

void zk_inspect_list(struct engine *engine, struct query *query);
void zk_inspect_show(struct engine *engine, struct query *query);
void zk_inspect_break(struct engine *engine, struct query *query);
void zk_inspect_cancel(struct engine *engine, struct query *query);

/* ---- proclaim.c ---- */

void zk_proclaim(struct engine *engine, struct query *query);

/* ---- push.c ---- */

void zk_push_watch(struct engine *engine, struct query *query);
void zk_push_watch_cell(struct engine *engine, struct query *query);
void zk_push_unwatch(struct engine *engine, struct query *query);
void zk_push_session_ended(struct session *session);

/* ---- doctor_probe.c ---- */

void zk_doctor_examine(struct engine *engine, struct query *query);

#endif
