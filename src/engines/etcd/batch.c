/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of many claims as one transaction.
 *
 * A transaction costs the server a place in its log, a request of its client and an answer, which
 * is several times what one more key in it costs. So what many claims ask for in one turn of the
 * loop goes together, if it is of a kind: all conditions of all claims in one transaction, and what
 * is done if all of them hold. If one does not hold nothing is done, and each claim asks by itself:
 * so no claim pays for another's loss. The same if the server refuses it.
 *
 * A few are not worth it. Where processes take turns with one name, each has one request in a
 * turn. */
#include <stdlib.h>
#include <string.h>

#include "engines/etcd/etcd.h"

#define ALONE_MAX 8
#define BATCH_MAX 50 /* two operations each: TXN_OPS */

struct batch {
    struct batch *next, **link; /* of etcd->batches */
    struct etcd *etcd;
    enum batch_kind kind;
    struct batch_list claims;
};

/* ---- lists ---- */

static struct etcd_claim *claim_at(struct batch_place *place, enum batch_kind kind)
{
    return container_of(place, struct etcd_claim, batched[kind]);
}

static void append(struct batch_list *list, struct batch_place *place)
{
    if (!list->first)
        list->last = &list->first;
    *place = (struct batch_place){.list = list, .link = list->last};
    *list->last = place;
    list->last = &place->next;
    list->n++;
}

static void take(struct batch_place *place)
{
    struct batch_list *list = place->list;
    if (!list)
        return;
    *place->link = place->next;
    if (place->next)
        place->next->link = place->link;
    else
        list->last = place->link;
    list->n--;
    place->list = NULL;
}

void etcd_batch_forget(struct etcd_claim *claim, enum batch_kind kind)
{
    take(&claim->batched[kind]);
}

/* ---- one transaction ---- */

static void unlist(struct batch *batch)
{
    *batch->link = batch->next;
    if (batch->next)
        batch->next->link = batch->link;
}

static struct batch *batch_new(struct etcd *etcd, enum batch_kind kind)
{
    struct batch *batch = calloc(1, sizeof *batch);
    if (!batch)
        return NULL;
    *batch =
        (struct batch){.next = etcd->batches, .link = &etcd->batches, .etcd = etcd, .kind = kind};
    if (batch->next)
        batch->next->link = &batch->next;
    etcd->batches = batch;
    return batch;
}

static void send_alone(struct batch_list *list, enum batch_kind kind)
{
    while (list->first) {
        struct etcd_claim *claim = claim_at(list->first, kind);
        take(list->first);
        etcd_of_claim(claim)->batch_classes[kind]->alone(claim);
    }
}

/* Without memory for it, each of them puts and removes the key that says since when. */
static void form_cohort(struct batch *batch)
{
    struct cohort *cohort = calloc(1, sizeof *cohort);
    for (struct batch_place *place = batch->claims.first; cohort && place; place = place->next) {
        claim_at(place, batch->kind)->cohort = cohort;
        cohort->claims++;
    }
}

void etcd_cohort_leave(struct etcd_claim *claim)
{
    struct cohort *cohort = claim->cohort;
    claim->cohort = NULL;
    if (!cohort || --cohort->claims > 0)
        return;
    claim->since_put = cohort->since_put;
    free(cohort);
}

/* Its part of the answer; nothing if the answer has an unexpected form. */
static Etcd__TxnResponse part_of(const Etcd__TxnResponse *answer, const struct batch_place *place)
{
    Etcd__TxnResponse part = *answer;
    bool whole = answer->n_responses >= place->first_op + place->n_ops;
    part.n_responses = whole ? place->n_ops : 0;
    part.responses = whole ? answer->responses + place->first_op : NULL;
    return part;
}

static void on_answered(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct batch *batch = data;
    const struct batch_class *class = batch->etcd->batch_classes[batch->kind];
    const Etcd__TxnResponse *answer = (const Etcd__TxnResponse *)message;
    bool in_doubt = err && etcd_error_is_temporary(err) && err->native != ETCD_ERROR_TOO_LONG;
    unlist(batch); /* a claim that is told may be the reason to close everything */
    if (!in_doubt && (err || !answer->succeeded))
        send_alone(&batch->claims, batch->kind);
    else if (!err && batch->kind == BATCH_JOIN)
        form_cohort(batch);
    while (batch->claims.first) {
        struct batch_place *place = batch->claims.first;
        Etcd__TxnResponse part = ETCD__TXN_RESPONSE__INIT;
        if (!err)
            part = part_of(answer, place);
        take(place);
        class->answered(claim_at(place, batch->kind), err ? NULL : &part.base, err);
    }
    free(batch);
}

/* False: out of memory, or too many requests wait. */
static bool send_batch(struct batch *batch)
{
    struct batch_room *room = malloc(batch->claims.n * sizeof *room), *free_room = room;
    struct txn txn;
    if (!room)
        return false;
    etcd_txn_init(&txn);
    for (struct batch_place *place = batch->claims.first; place; place = place->next) {
        place->first_op = txn.request.n_success;
        batch->etcd->batch_classes[batch->kind]->write(claim_at(place, batch->kind), &txn,
                                                       free_room++);
        place->n_ops = txn.request.n_success - place->first_op;
    }
    enum stile_status status = etcd_txn_send(&txn, batch->etcd, on_answered, batch, NULL);
    free(room);
    return status == STILE_OK;
}

/* Two of one name, of different leases perhaps, never go together. */
static bool has_name(const struct batch *batch, struct etcd_claim *claim)
{
    const struct claim *a = base_of(claim);
    for (struct batch_place *place = batch->claims.first; place; place = place->next) {
        const struct claim *b = base_of(claim_at(place, batch->kind));
        if (a->name_hash == b->name_hash && a->name_len == b->name_len &&
            memcmp(a->name, b->name, a->name_len) == 0)
            return true;
    }
    return false;
}

static void send_some(struct etcd *etcd, struct batch_list *list, enum batch_kind kind)
{
    struct batch *batch = list->n > ALONE_MAX ? batch_new(etcd, kind) : NULL;
    if (!batch) {
        send_alone(list, kind);
        return;
    }
    while (list->first && batch->claims.n < BATCH_MAX &&
           !has_name(batch, claim_at(list->first, kind))) {
        struct batch_place *place = list->first;
        take(place);
        append(&batch->claims, place);
    }
    if (send_batch(batch))
        return;
    unlist(batch);
    send_alone(&batch->claims, kind);
    free(batch);
}

/* ---- one turn of the loop ---- */

static void flush(struct sender *sender)
{
    struct etcd *etcd = container_of(sender, struct etcd, batch_sender);
    for (enum batch_kind kind = 0; kind < BATCH_KINDS; kind++) {
        while (etcd->batched[kind].first)
            send_some(etcd, &etcd->batched[kind], kind);
    }
}

/* While few are under way, each is sent at once. */
void etcd_batch_add(struct etcd_claim *claim, enum batch_kind kind)
{
    struct etcd *etcd = etcd_of_claim(claim);
    take(&claim->batched[kind]);
    if (etcd->batched[kind].n + etcd_conn_unanswered(etcd->conn) < ALONE_MAX) {
        etcd->batch_classes[kind]->alone(claim);
        return;
    }
    append(&etcd->batched[kind], &claim->batched[kind]);
    loop_gather(etcd->engine.loop, &etcd->batch_sender);
}

void etcd_batches_init(struct etcd *etcd, const struct batch_class *const classes[BATCH_KINDS])
{
    memcpy(etcd->batch_classes, classes, sizeof etcd->batch_classes);
    etcd->batch_sender.fn = flush;
}

void etcd_batches_close(struct etcd *etcd)
{
    loop_ungather(etcd->engine.loop, &etcd->batch_sender);
    while (etcd->batches) {
        struct batch *batch = etcd->batches;
        etcd_conn_forget(etcd->conn, batch);
        unlist(batch);
        free(batch);
    }
}
