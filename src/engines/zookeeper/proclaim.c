/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* proclaim: other data for the node of a claim that is held. A node's name has the claim's GUID and
 * a number that the server gives once, so a node of that name is the claim's, or there is none. */
#include <stdlib.h>

#include "engines/zookeeper/claims.h"

struct proclaiming {
    struct inquiry inquiry; /* first */
    struct requester requester;
    struct query *query;
};

static void proclaiming_free(struct proclaiming *proclaiming)
{
    zk_requester_forget(&proclaiming->requester);
    proclaiming->query->state = NULL;
    free(proclaiming);
}

static void discard(struct inquiry *inquiry)
{
    proclaiming_free((struct proclaiming *)inquiry);
}

static void end(struct proclaiming *proclaiming, const struct stile_error *err)
{
    struct query *query = proclaiming->query;
    proclaiming_free(proclaiming);
    query->engine->events->done(query, err);
}

static void on_set(struct requester *requester, const struct reply *reply)
{
    struct proclaiming *proclaiming = container_of(requester, struct proclaiming, requester);
    struct stile_error err;
    if (reply->rc == ZNONODE)
        error_set(&err, STILE_LOST, 0, "the lock was no longer held");
    else if (reply->rc != ZOK)
        zk_error_set(&err, reply->rc, reply->maybe);
    end(proclaiming, reply->rc == ZOK ? NULL : &err);
}

static enum stile_status send(struct proclaiming *proclaiming, struct zk_claim *zc,
                              struct stile_error *err)
{
    char data[DATA_MAX];
    if (zc->state != CLAIM_HELD || !zc->node)
        return error_set(err, STILE_LOST, 0, "the lock was no longer held");
    zk_claim_node_data(data, zc);
    return zk_request_set(zc->session, &proclaiming->requester, zc->node, data, ANY_VERSION, on_set)
               ? STILE_OK
               : error_set(err, STILE_NOMEM, 0, "out of memory");
}

void zk_proclaim(struct engine *engine, struct query *query)
{
    struct stile_error err;
    struct proclaiming *proclaiming = calloc(1, sizeof *proclaiming);
    if (!proclaiming) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->done(query, &err);
        return;
    }
    proclaiming->inquiry.discard = discard;
    proclaiming->query = query;
    query->state = proclaiming;
    if (send(proclaiming, zk_claim_of(query->claim), &err))
        end(proclaiming, &err);
}
