/* Who is behind the leases, how long those last, and since when each claim is there. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engines/etcd/looking.h"

static void answered(struct looking *looking, const struct stile_error *err)
{
    if (err && !looking->error.status)
        error_copy(&looking->error, err);
    if (--looking->pending == 0)
        looking_finish(looking);
}

static void on_ttl(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct looking *looking = data;
    const Pb__LeaseTimeToLiveResponse *answer = (const Pb__LeaseTimeToLiveResponse *)message;
    struct tenant *tenant = err ? NULL : view_tenant(&looking->view, answer->id);
    if (tenant)
        tenant->ttl = answer->ttl;
    bool untold = err && (err->native == FAULT_NO_LEASE || err->native == FAULT_DENIED);
    answered(looking, untold ? NULL : err);
}

static void keep_info(struct tenant *tenant, const ProtobufCBinaryData *value)
{
    tenant->info =
        strndup((const char *)value->data, value->len < INFO_MAX ? value->len : INFO_MAX);
    for (char *c = tenant->info; c && *c; c++)
        *c = (unsigned char)*c < ' ' || *c == 127 ? '?' : *c;
}

/* Not being told is no failure: other people's clients say nothing of themselves. */
static void on_info(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct looking *looking = data;
    const Pb__TxnResponse *answer = (const Pb__TxnResponse *)message;
    for (size_t i = 0; !err && i < answer->n_responses; i++) {
        const Pb__RangeResponse *range = txn_ranged(answer, i);
        if (!range || range->n_kvs == 0)
            continue;
        struct tenant *tenant = view_tenant(&looking->view, range->kvs[0]->lease);
        if (tenant && !tenant->info)
            keep_info(tenant, &range->kvs[0]->value);
    }
    answered(looking, NULL);
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void on_since(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct looking *looking = data;
    const Pb__TxnResponse *answer = (const Pb__TxnResponse *)message;
    for (size_t i = 0; !err && i < answer->n_responses; i++) {
        const Pb__RangeResponse *range = txn_ranged(answer, i);
        if (range && range->n_kvs > 0)
            view_since(&looking->view, range->kvs[0], now_ms());
    }
    answered(looking, NULL);
}

static void ask_since(struct looking *looking, size_t from, size_t n)
{
    struct etcd *etcd = etcd_of_looking(looking);
    struct key *keys = malloc(n * sizeof *keys);
    struct txn txn;
    txn_init(&txn);
    for (size_t i = 0; keys && i < n; i++) {
        const struct entry *entry = &looking->view.entries[from + i];
        key_of_since(&keys[i], etcd, entry->lease, entry->revision);
        txn_range(&txn, THEN, &keys[i], NULL);
    }
    if (keys && txn_send(&txn, etcd, on_since, looking, &looking->error) == STILE_OK)
        looking->pending++;
    free(keys);
}

static void ask_infos(struct looking *looking, size_t from, size_t n)
{
    struct etcd *etcd = etcd_of_looking(looking);
    struct key *keys = malloc(n * sizeof *keys);
    struct txn txn;
    txn_init(&txn);
    for (size_t i = 0; keys && i < n; i++) {
        key_of_info(&keys[i], etcd, looking->view.tenants[from + i].lease);
        txn_range(&txn, THEN, &keys[i], NULL);
    }
    if (keys && txn_send(&txn, etcd, on_info, looking, &looking->error) == STILE_OK)
        looking->pending++;
    free(keys);
}

void looking_ask_tenants(struct looking *looking)
{
    struct etcd *etcd = etcd_of_looking(looking);
    struct view *view = &looking->view;
    size_t claims = view->n < TENANTS_MAX ? view->n : TENANTS_MAX;
    looking->pending = 1;
    for (size_t i = 0; i < claims; i += TXN_OPS)
        ask_since(looking, i, claims - i < TXN_OPS ? claims - i : TXN_OPS);
    for (size_t i = 0; i < view->n_tenants; i += TXN_OPS)
        ask_infos(looking, i, view->n_tenants - i < TXN_OPS ? view->n_tenants - i : TXN_OPS);
    for (size_t i = 0; i < view->n_tenants && !looking->error.status; i++) {
        Pb__LeaseTimeToLiveRequest request = PB__LEASE_TIME_TO_LIVE_REQUEST__INIT;
        request.id = view->tenants[i].lease;
        if (conn_ask(etcd->conn, RPC_LEASE_TTL, &request.base, on_ttl, looking, &looking->error) ==
            STILE_OK)
            looking->pending++;
    }
    answered(looking, NULL);
}
