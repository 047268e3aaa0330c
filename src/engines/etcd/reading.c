/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* First the keys alone, page by page, for the values of other programs may be large; then the
 * values of locks' keys. */
#include "engines/etcd/reading.h"

#define PAGE 1000

static void read_page(struct reading *reading);
static void read_values(struct reading *reading);

/* What is too long for one answer is read in smaller parts. */
static bool ask_less(const struct stile_error *err, size_t now)
{
    return err && err->native == ETCD_ERROR_TOO_LONG && now > 1;
}

/* ---- values ---- */

static void on_values(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct reading *reading = data;
    const Etcd__TxnResponse *answer = (const Etcd__TxnResponse *)message;
    struct stile_error why;
    if (ask_less(err, reading->batch)) {
        reading->batch /= 4;
        read_values(reading);
        return;
    }
    if (err) {
        reading->done(reading, err);
        return;
    }
    size_t before = reading->read;
    for (size_t i = 0, at = reading->read; i < answer->n_responses; at++) {
        if (at >= reading->view->n)
            break;
        if (reading->view->entries[at].foreign)
            continue;
        const Etcd__RangeResponse *range = etcd_txn_range_reply(answer, i++);
        if (range && range->n_kvs == 1 && !etcd_view_value(reading->view, at, range->kvs[0])) {
            error_set(&why, STILE_NOMEM, 0, "out of memory");
            reading->done(reading, &why);
            return;
        }
        reading->read = at + 1;
    }
    if (reading->read == before) {
        error_set(&why, STILE_UNREACHABLE, 0, "the server's answer has an unexpected form");
        reading->done(reading, &why);
        return;
    }
    read_values(reading);
}

/* The value of another program's key is not read. */
static void read_values(struct reading *reading)
{
    const struct view *view = reading->view;
    struct stile_error err;
    struct txn txn;
    size_t n = 0;
    etcd_txn_init(&txn);
    while (reading->read < view->n && view->entries[reading->read].foreign)
        reading->read++;
    for (size_t i = reading->read; i < view->n && n < reading->batch; i++) {
        if (!view->entries[i].foreign) {
            etcd_txn_range(&txn, THEN, view->entries[i].key, NULL);
            n++;
        }
    }
    if (n == 0)
        reading->done(reading, NULL);
    else if (etcd_txn_send(&txn, reading->etcd, on_values, reading, &err))
        reading->done(reading, &err);
}

/* ---- keys ---- */

static bool next_page(struct reading *reading, const Etcd__RangeResponse *range)
{
    return range->more && range->n_kvs > 0 &&
           etcd_key_after(&reading->at, &range->kvs[range->n_kvs - 1]->key);
}

static void on_page(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct reading *reading = data;
    const Etcd__RangeResponse *range = (const Etcd__RangeResponse *)message;
    struct stile_error why;
    if (ask_less(err, (size_t)reading->limit)) {
        reading->limit /= 4;
        read_page(reading);
        return;
    }
    if (err) {
        reading->done(reading, err);
        return;
    }
    if (!reading->view->revision && range->header)
        reading->view->revision = range->header->revision;
    if (etcd_view_add(reading->view, reading->etcd, range, &why))
        reading->done(reading, &why);
    else if (next_page(reading, range))
        read_page(reading);
    else
        read_values(reading);
}

static void read_page(struct reading *reading)
{
    Etcd__RangeRequest request = ETCD__RANGE_REQUEST__INIT;
    struct stile_error err;
    request.key = data_of(&reading->at);
    request.range_end = data_of(&reading->end);
    request.limit = reading->limit;
    request.revision = reading->view->revision;
    request.keys_only = true;
    if (etcd_conn_request(reading->etcd->conn, RPC_RANGE, &request.base, on_page, reading, &err))
        reading->done(reading, &err);
}

void etcd_reading_start(struct reading *reading, struct etcd *etcd, struct view *view,
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
    read_page(reading);
}

void etcd_reading_stop(struct reading *reading)
{
    if (reading->etcd)
        etcd_conn_forget(reading->etcd->conn, reading);
}
