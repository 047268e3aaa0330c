#include "engines/etcd/reading.h"

#include <stdlib.h>
#include <string.h>

#define PAGE 1000

static void ask_page(struct reading *reading);
static void ask_values(struct reading *reading);

/* What is too long is asked for in smaller parts. */
static bool ask_less(const struct stile_error *err, size_t now)
{
    return err && err->native == FAULT_TOO_LONG && now > 1;
}

/* ---- values ---- */

static void on_values(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct reading *reading = data;
    const Pb__TxnResponse *answer = (const Pb__TxnResponse *)message;
    struct stile_error why;
    if (ask_less(err, reading->batch)) {
        reading->batch /= 4;
        ask_values(reading);
        return;
    }
    if (err) {
        reading->done(reading, err);
        return;
    }
    size_t before = reading->told;
    for (size_t i = 0, at = reading->told; i < answer->n_responses; at++) {
        if (at >= reading->view->n)
            break;
        if (reading->view->entries[at].foreign)
            continue;
        const Pb__RangeResponse *range = txn_ranged(answer, i++);
        if (range && range->n_kvs == 1 && !view_value(reading->view, at, range->kvs[0])) {
            error_set(&why, STILE_NOMEM, 0, "out of memory");
            reading->done(reading, &why);
            return;
        }
        reading->told = at + 1;
    }
    if (reading->told == before) {
        error_set(&why, STILE_UNREACHABLE, 0, "the server's answer has an unexpected form");
        reading->done(reading, &why);
        return;
    }
    ask_values(reading);
}

/* What a key of another program holds is nobody's business here. */
static void ask_values(struct reading *reading)
{
    const struct view *view = reading->view;
    struct stile_error err;
    struct txn txn;
    size_t n = 0;
    txn_init(&txn);
    while (reading->told < view->n && view->entries[reading->told].foreign)
        reading->told++;
    for (size_t i = reading->told; i < view->n && n < reading->batch; i++) {
        if (!view->entries[i].foreign) {
            txn_range(&txn, THEN, view->entries[i].key, NULL);
            n++;
        }
    }
    if (n == 0)
        reading->done(reading, NULL);
    else if (txn_send(&txn, reading->etcd, on_values, reading, &err))
        reading->done(reading, &err);
}

/* ---- keys ---- */

static bool next_page(struct reading *reading, const Pb__RangeResponse *range)
{
    return range->more && range->n_kvs > 0 &&
           key_after(&reading->at, &range->kvs[range->n_kvs - 1]->key);
}

static void on_page(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct reading *reading = data;
    const Pb__RangeResponse *range = (const Pb__RangeResponse *)message;
    struct stile_error why;
    if (ask_less(err, (size_t)reading->limit)) {
        reading->limit /= 4;
        ask_page(reading);
        return;
    }
    if (err) {
        reading->done(reading, err);
        return;
    }
    if (!reading->view->revision && range->header)
        reading->view->revision = range->header->revision;
    if (view_add(reading->view, reading->etcd, range, &why))
        reading->done(reading, &why);
    else if (next_page(reading, range))
        ask_page(reading);
    else
        ask_values(reading);
}

static void ask_page(struct reading *reading)
{
    Pb__RangeRequest request = PB__RANGE_REQUEST__INIT;
    struct stile_error err;
    request.key = data_of(&reading->at);
    request.range_end = data_of(&reading->end);
    request.limit = reading->limit;
    request.revision = reading->view->revision;
    request.keys_only = true;
    if (conn_ask(reading->etcd->conn, RPC_RANGE, &request.base, on_page, reading, &err))
        reading->done(reading, &err);
}

void reading_start(struct reading *reading, struct etcd *etcd, struct view *view,
                   const struct key *start, const struct key *end,
                   void (*done)(struct reading *reading, const struct stile_error *err))
{
    *reading = (struct reading){.etcd = etcd,
                                .view = view,
                                .at = *start,
                                .end = *end,
                                .limit = PAGE,
                                .batch = TXN_OPS,
                                .done = done};
    ask_page(reading);
}

void reading_stop(struct reading *reading)
{
    if (reading->etcd)
        conn_forget(reading->etcd->conn, reading);
}
