/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* list, show and watch: the keys of one name, or of all, read at one revision; then the
 * owners of their leases, and how long those last. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/container.h"
#include "engines/etcd/reading.h"

#define OWNERS_MAX 256 /* more are not looked up */

/* ---- list and show ---- */

struct inspection {
    struct inquiry inquiry; /* first */
    struct query *query;
    struct view view;
    struct key start, end;
    struct reading reading;
    size_t pending; /* the keys, the record, and answers about leases */
    char record[RECORD_MAX];
    size_t record_len; /* 0: none */
    struct stile_error error;
    bool many;                        /* list: every name, and none if there is none */
    struct inspection *deferred_next; /* of etcd->deferred, while it has not begun */
    uint64_t release_number;          /* later releases need not be waited for */
};

static struct etcd *etcd_of_inspection(const struct inspection *inspection)
{
    return etcd_of(inspection->query->engine);
}

static void look(struct inspection *inspection);

static void undefer(struct etcd *etcd, struct inspection *inspection)
{
    struct inspection **at = &etcd->deferred;
    while (*at && *at != inspection)
        at = &(*at)->deferred_next;
    if (*at)
        *at = inspection->deferred_next;
}

static void inspection_free(struct inspection *inspection)
{
    struct etcd *etcd = etcd_of_inspection(inspection);
    etcd_conn_forget(etcd->conn, inspection);
    etcd_reading_stop(&inspection->reading);
    undefer(etcd, inspection);
    etcd_view_empty(&inspection->view);
    inspection->query->state = NULL;
    free(inspection);
}

static void inspection_discard(struct inquiry *inquiry)
{
    inspection_free((struct inspection *)inquiry);
}

static void end(struct inspection *inspection, const struct stile_error *err)
{
    struct query *query = inspection->query;
    struct stile_error why;
    error_copy(&why, err);
    inspection_free(inspection);
    query->engine->events->done(query, why.status ? &why : NULL);
}

/* ---- reporting ---- */

static enum stile_status report_all(struct inspection *inspection)
{
    struct query *query = inspection->query;
    struct view *view = &inspection->view;
    struct stile_info info = {.name = query->name, .token = (uint64_t)view->revision};
    struct stile_claim_info *claims = calloc(view->n + 1, sizeof *claims);
    if (!claims)
        return error_set(&inspection->error, STILE_NOMEM, 0, "out of memory");
    if (inspection->record_len > 0)
        query->engine->events->record(query, inspection->record, inspection->record_len);
    if (view->n == 0 && !inspection->many)
        query->engine->events->info(query, &info);
    for (size_t at = 0; at < view->n;) {
        at = etcd_view_name(view, at, &info, claims);
        query->engine->events->info(query, &info);
    }
    free(claims);
    return STILE_OK;
}

static void finish(struct inspection *inspection)
{
    struct stile_error *err = &inspection->error;
    if (!err->status)
        report_all(inspection);
    end(inspection, err->status ? err : NULL);
}

static void answered(struct inspection *inspection, const struct stile_error *err)
{
    if (err && !inspection->error.status)
        error_copy(&inspection->error, err);
    if (--inspection->pending == 0)
        finish(inspection);
}

/* ---- the record of the last holder ---- */

/* It is only information: a role that does not cover it hides nothing else. */
static void on_record(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct inspection *inspection = data;
    const Etcd__RangeResponse *range = (const Etcd__RangeResponse *)message;
    size_t len;
    const char *text =
        !err && range->n_kvs == 1 ? etcd_history_text(&len, &range->kvs[0]->value) : NULL;
    if (text) {
        memcpy(inspection->record, text, len);
        inspection->record_len = len;
    }
    answered(inspection, NULL);
}

/* Beside the name's keys. */
static void ask_record(struct inspection *inspection)
{
    Etcd__RangeRequest request = ETCD__RANGE_REQUEST__INIT;
    const struct query *query = inspection->query;
    struct etcd *etcd = etcd_of_inspection(inspection);
    struct key key;
    etcd_key_of_record(&key, etcd, query->name, query->name_len);
    request.key = data_of(&key);
    if (etcd_conn_request(etcd->conn, RPC_RANGE, &request.base, on_record, inspection, NULL) ==
        STILE_OK)
        inspection->pending++;
}

/* ---- the owners of leases, and since when ---- */

static void on_ttl(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct inspection *inspection = data;
    const Etcd__LeaseTimeToLiveResponse *answer = (const Etcd__LeaseTimeToLiveResponse *)message;
    struct lease_owner *owner = err ? NULL : etcd_view_owner(&inspection->view, answer->id);
    if (owner)
        owner->ttl = answer->ttl;
    bool unknown = err && (err->native == ETCD_ERROR_NO_LEASE || err->native == ETCD_ERROR_DENIED);
    answered(inspection, unknown ? NULL : err);
}

static void keep_info(struct lease_owner *owner, const ProtobufCBinaryData *value)
{
    owner->info = strndup((const char *)value->data, value->len < INFO_MAX ? value->len : INFO_MAX);
    for (char *c = owner->info; c && *c; c++)
        *c = (unsigned char)*c < ' ' || *c == 127 ? '?' : *c;
}

/* A missing key is no failure: other clients do not describe themselves. */
static void on_info(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct inspection *inspection = data;
    const Etcd__TxnResponse *answer = (const Etcd__TxnResponse *)message;
    for (size_t i = 0; !err && i < answer->n_responses; i++) {
        const Etcd__RangeResponse *range = etcd_txn_range_reply(answer, i);
        if (!range || range->n_kvs == 0)
            continue;
        struct lease_owner *owner = etcd_view_owner(&inspection->view, range->kvs[0]->lease);
        if (owner && !owner->info)
            keep_info(owner, &range->kvs[0]->value);
    }
    answered(inspection, NULL);
}

static void on_since(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct inspection *inspection = data;
    const Etcd__TxnResponse *answer = (const Etcd__TxnResponse *)message;
    for (size_t i = 0; !err && i < answer->n_responses; i++) {
        const Etcd__RangeResponse *range = etcd_txn_range_reply(answer, i);
        if (range && range->n_kvs > 0)
            etcd_view_since(&inspection->view, range->kvs[0], etcd_wall_ms());
    }
    answered(inspection, NULL);
}

static void ask_since(struct inspection *inspection, size_t from, size_t n)
{
    struct etcd *etcd = etcd_of_inspection(inspection);
    struct key *keys = malloc(n * sizeof *keys);
    struct txn txn;
    etcd_txn_init(&txn);
    for (size_t i = 0; keys && i < n; i++) {
        const struct entry *entry = &inspection->view.entries[from + i];
        etcd_key_of_since(&keys[i], etcd, entry->lease, entry->revision);
        etcd_txn_range(&txn, THEN, &keys[i], NULL);
    }
    if (keys && etcd_txn_send(&txn, etcd, on_since, inspection, &inspection->error) == STILE_OK)
        inspection->pending++;
    free(keys);
}

static void ask_infos(struct inspection *inspection, size_t from, size_t n)
{
    struct etcd *etcd = etcd_of_inspection(inspection);
    struct key *keys = malloc(n * sizeof *keys);
    struct txn txn;
    etcd_txn_init(&txn);
    for (size_t i = 0; keys && i < n; i++) {
        etcd_key_of_owner(&keys[i], etcd, inspection->view.owners[from + i].lease);
        etcd_txn_range(&txn, THEN, &keys[i], NULL);
    }
    if (keys && etcd_txn_send(&txn, etcd, on_info, inspection, &inspection->error) == STILE_OK)
        inspection->pending++;
    free(keys);
}

static void ask_owners(struct inspection *inspection)
{
    struct etcd *etcd = etcd_of_inspection(inspection);
    struct view *view = &inspection->view;
    size_t claims = view->n < OWNERS_MAX ? view->n : OWNERS_MAX;
    for (size_t i = 0; i < claims; i += TXN_OPS)
        ask_since(inspection, i, claims - i < TXN_OPS ? claims - i : TXN_OPS);
    for (size_t i = 0; i < view->n_owners; i += TXN_OPS)
        ask_infos(inspection, i, view->n_owners - i < TXN_OPS ? view->n_owners - i : TXN_OPS);
    for (size_t i = 0; i < view->n_owners && !inspection->error.status; i++) {
        Etcd__LeaseTimeToLiveRequest request = ETCD__LEASE_TIME_TO_LIVE_REQUEST__INIT;
        request.id = view->owners[i].lease;
        if (etcd_conn_request(etcd->conn, RPC_LEASE_TTL, &request.base, on_ttl, inspection,
                              &inspection->error) == STILE_OK)
            inspection->pending++;
    }
    answered(inspection, NULL);
}

/* ---- the keys ---- */

static void on_read(struct reading *reading, const struct stile_error *err)
{
    struct inspection *inspection = container_of(reading, struct inspection, reading);
    if (err)
        error_copy(&inspection->error, err);
    if (err || etcd_view_sort(&inspection->view, OWNERS_MAX, &inspection->error))
        finish(inspection);
    else
        ask_owners(inspection);
}

static void look(struct inspection *inspection)
{
    inspection->pending = 1;
    if (!inspection->many)
        ask_record(inspection);
    etcd_reading_start(&inspection->reading, etcd_of_inspection(inspection), &inspection->view,
                       &inspection->start, &inspection->end, on_read);
}

static struct inspection *inspection_new(struct engine *engine, struct query *query)
{
    struct stile_error err;
    struct inspection *inspection = calloc(1, sizeof *inspection);
    if (!inspection) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->done(query, &err);
        return NULL;
    }
    inspection->inquiry.discard = inspection_discard;
    inspection->query = query;
    query->state = inspection;
    etcd_keys_of_name(&inspection->start, &inspection->end, etcd_of(engine), query->name,
                      query->name_len);
    return inspection;
}

/* ---- after earlier releases ---- */

static bool is_releasing(const struct etcd_claim *claim, uint64_t release_number)
{
    return claim->state == RELEASING && claim->in_flight && claim->release_number <= release_number;
}

static bool may_begin(const struct etcd *etcd, const struct inspection *inspection)
{
    for (const struct lease *lease = etcd->leases; lease; lease = lease->next) {
        for (const struct etcd_claim *claim = lease->claims; claim; claim = claim->next) {
            if (is_releasing(claim, inspection->release_number))
                return false;
        }
    }
    return true;
}

void etcd_inspect_released(struct etcd *etcd)
{
    for (struct inspection *inspection = etcd->deferred, *next; inspection; inspection = next) {
        next = inspection->deferred_next;
        if (!may_begin(etcd, inspection))
            continue;
        undefer(etcd, inspection);
        look(inspection);
    }
}

static void begin(struct inspection *inspection)
{
    struct etcd *etcd = etcd_of_inspection(inspection);
    inspection->release_number = etcd->last_release;
    if (may_begin(etcd, inspection)) {
        look(inspection);
        return;
    }
    inspection->deferred_next = etcd->deferred;
    etcd->deferred = inspection;
}

/* ---- the slots of the engine ---- */

void etcd_inspect_show(struct engine *engine, struct query *query)
{
    struct inspection *inspection = inspection_new(engine, query);
    if (!inspection)
        return;
    inspection->view.only = query->name;
    begin(inspection);
}

void etcd_inspect_list(struct engine *engine, struct query *query)
{
    struct inspection *inspection = inspection_new(engine, query);
    if (!inspection)
        return;
    inspection->many = true;
    inspection->view.prefix = query->name;
    etcd_keys_of_list(&inspection->start, &inspection->end, etcd_of(engine), query->name,
                      query->name_len);
    begin(inspection);
}

/* ---- watch ----
 *
 * A range of keys. A watch that begins always reports once: what happened before is
 * for its owner to look for. */

struct subscription {
    struct query *query;
    struct key_watch watch;
};

static void on_event(struct key_watch *watch, const Etcd__KeyValue *kv, bool deleted)
{
    struct subscription *sub = container_of(watch, struct subscription, watch);
    (void)kv, (void)deleted;
    sub->query->engine->events->changed(sub->query);
}

void etcd_inspect_subscribe(struct engine *engine, struct query *query, const struct key *start,
                            const struct key *end)
{
    struct stile_error err;
    struct subscription *sub = calloc(1, sizeof *sub);
    if (!sub) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->done(query, &err);
        return;
    }
    *sub = (struct subscription){.query = query, .watch = {.puts = true, .fn = on_event}};
    if (etcd_watch_start(etcd_of(engine), &sub->watch, start, end, 0, &err)) {
        free(sub);
        engine->events->done(query, &err);
        return;
    }
    query->state = sub;
}

/* Everything below the name's key. */
void etcd_inspect_watch(struct engine *engine, struct query *query)
{
    struct key start, end;
    etcd_keys_of_name(&start, &end, etcd_of(engine), query->name, query->name_len);
    etcd_inspect_subscribe(engine, query, &start, &end);
}

void etcd_inspect_unwatch(struct engine *engine, struct query *query)
{
    struct subscription *sub = query->state;
    etcd_watch_stop(etcd_of(engine), &sub->watch);
    query->state = NULL;
    free(sub);
}

/* ---- cancelling ---- */

void etcd_inspect_cancel(struct engine *engine, struct query *query)
{
    struct inquiry *inquiry = query->state;
    (void)engine;
    inquiry->discard(inquiry);
}
