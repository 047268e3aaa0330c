/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to cells that are under way, and those that only read. */
#ifndef STILE_ZOOKEEPER_CELL_READ_H
#define STILE_ZOOKEEPER_CELL_READ_H

#include "engines/zookeeper/cell_form.h"
#include "engines/zookeeper/zookeeper.h"

/* One request to cells, from its beginning to its answer. Embedded by what works on it. */
struct cell_work {
    struct requester requester;
    struct cell_request *request;
    struct cell_work *next, **link; /* of zk->cell_work */
    void (*free)(struct cell_work *work);
};

void zk_cell_work_begin(struct cell_work *work, struct cell_request *request,
                        void (*free)(struct cell_work *work));
void zk_cell_work_leave(struct cell_work *work); /* no reply comes any longer; not freed */

struct session *zk_cell_session(const struct cell_request *request);
/* The answers. maybe: the request may have been executed. */
void zk_cell_report(struct cell_request *request, const struct zk_cell *cell);
void zk_cell_fail(struct cell_request *request, int rc, bool maybe);

/* Reads the node behind a sync, so that the answer includes what was done before through any
 * server. False: out of memory. on_synced fails the work if its reply has an error. */
bool zk_cell_request(struct cell_work *work, const char *path, reply_fn *on_synced, reply_fn *fn);
/* The cell in the reply; all zero if there is no node. An error is about the path, too. */
enum stile_status zk_cell_of_reply(struct zk_cell *cell, const struct reply *reply,
                                   const char *path, struct stile_error *err);

void zk_cell_list(struct cell_request *request);

#endif
