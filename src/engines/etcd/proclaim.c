/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* proclaim: another value for the key of a claim that is held, as Proclaim() of Go's
 * concurrency.Election puts it.
 *
 * The put is bound to the revision that created the key. Without that comparison a late one would
 * create the key anew, behind the back of its owner: a candidate that no process stands for. */
#include <stdlib.h>

#include "engines/etcd/etcd.h"

struct proclaiming {
    struct inquiry inquiry; /* first */
    struct query *query;
};

static void proclaiming_free(struct proclaiming *proclaiming)
{
    struct query *query = proclaiming->query;
    etcd_conn_forget(etcd_of(query->engine)->conn, proclaiming);
    query->state = NULL;
    free(proclaiming);
}

static void discard(struct inquiry *inquiry)
{
    proclaiming_free((struct proclaiming *)inquiry);
}

static void end(struct proclaiming *proclaiming, const struct stile_error *err)
{
    struct query *query = proclaiming->query;
    struct stile_error why;
    error_copy(&why, err);
    proclaiming_free(proclaiming);
    query->engine->events->done(query, why.status ? &why : NULL);
}

static void on_put(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    const Etcd__TxnResponse *answer = (const Etcd__TxnResponse *)message;
    struct stile_error why;
    if (!err && !answer->succeeded) {
        error_set(&why, STILE_LOST, 0, "the lock was no longer held");
        err = &why;
    }
    end(data, err);
}

static enum stile_status send_put(struct proclaiming *proclaiming, struct etcd_claim *claim,
                                  struct stile_error *err)
{
    struct etcd *etcd = etcd_of_claim(claim);
    char value[VALUE_MAX];
    struct key own, keys[GHOSTS];
    struct txn txn;
    key_of_own(&own, claim);
    etcd_value_of_claim(value, etcd, base_of(claim));
    etcd_txn_init(&txn);
    etcd_txn_if_created(&txn, &own, claim->revision);
    etcd_txn_put(&txn, THEN, &own, value, claim->lease_id);
    etcd_ghosts_put(claim, &txn, THEN, &own, value, keys);
    return etcd_txn_send(&txn, etcd, on_put, proclaiming, err);
}

void etcd_proclaim(struct engine *engine, struct query *query)
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
    if (send_put(proclaiming, claim_of(query->claim), &err))
        end(proclaiming, &err);
}
