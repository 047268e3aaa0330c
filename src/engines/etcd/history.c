/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Records of last holders: one key for each name, "<prefix>\1stile/last/<name>".
 *
 * Its value is the token in twenty digits, a space and the record's text, so that the server can
 * compare: one transaction stores it, unless what is stored is greater. Of two records of one token
 * the greater text is the later one, since it names the time of its end: requests of one connection
 * are executed in any order.
 *
 * A record goes with its lease, after 30 days. If every client had a lease of its own, a command
 * that runs each minute on a thousand machines would leave 43 million of them; if all shared one,
 * its end would delete a million keys in one step, in which nothing can be locked. So there are
 * sixteen for each hour, whose ids every client computes by itself: a write that finds its lease
 * missing grants it, and is sent again. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "engines/etcd/etcd.h"

#define TOKEN_DIGITS 20
#define HOUR_S       3600
#define KEPT_S       (30 * 24 * HOUR_S)
#define LEASES       16 /* for each hour */
/* The first bits of a lease's id. Ids that servers choose hardly ever start so. */
#define LEASE_MARK UINT64_C(0x571e)
#define BITS_20    UINT64_C(0xfffff)

struct recording {
    struct inquiry inquiry; /* first */
    struct query *query;
    int64_t lease;
    bool granted; /* or somebody else has */
    char value[TOKEN_DIGITS + 1 + RECORD_MAX + 1];
};

static void send_record(struct recording *recording);

/* ---- the end ---- */

static void recording_free(struct recording *recording)
{
    struct query *query = recording->query;
    etcd_conn_forget(etcd_of(query->engine)->conn, recording);
    query->state = NULL;
    free(recording);
}

static void discard(struct inquiry *inquiry)
{
    recording_free((struct recording *)inquiry);
}

static void end(struct recording *recording, const struct stile_error *err)
{
    struct query *query = recording->query;
    struct stile_error why;
    error_copy(&why, err);
    if (why.native == ETCD_ERROR_DENIED)
        etcd_error_explain_denied(&why, etcd_of(query->engine)->prefix);
    recording_free(recording);
    query->engine->events->done(query, why.status ? &why : NULL);
}

/* ---- its lease ---- */

/* The user is part of it: servers may refuse a lease that has keys which its user may not write. */
static int64_t lease_now(const struct etcd *etcd, const struct query *query)
{
    uint64_t hours = (uint64_t)etcd_wall_ms() / 1000 / HOUR_S;
    uint64_t name = fnv_add(FNV_START, query->name, query->name_len);
    return (int64_t)(LEASE_MARK << 48 | (etcd->record_leases & BITS_20) << 28 |
                     (hours & BITS_20) << 8 | name % LEASES);
}

static void on_leased(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct recording *recording = data;
    (void)message;
    if (err && err->native != ETCD_ERROR_LEASE_EXISTS)
        end(recording, err);
    else
        send_record(recording);
}

static void request_lease(struct recording *recording)
{
    Etcd__LeaseGrantRequest request = ETCD__LEASE_GRANT_REQUEST__INIT;
    struct stile_error err;
    recording->granted = true;
    request.id = recording->lease;
    request.ttl = KEPT_S + HOUR_S;
    if (etcd_conn_request(etcd_of(recording->query->engine)->conn, RPC_LEASE_GRANT, &request.base,
                          on_leased, recording, &err))
        end(recording, &err);
}

/* ---- writing ---- */

static void on_recorded(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct recording *recording = data;
    (void)message; /* stored, or there is a later one */
    if (err && err->native == ETCD_ERROR_NO_LEASE && !recording->granted)
        request_lease(recording);
    else
        end(recording, err);
}

/* A value that is not ours is replaced: it begins with something else than a digit. */
static void send_record(struct recording *recording)
{
    const struct query *query = recording->query;
    struct etcd *etcd = etcd_of(query->engine);
    struct stile_error err;
    struct key key;
    struct txn txn;
    etcd_key_of_record(&key, etcd, query->name, query->name_len);
    etcd_txn_init(&txn);
    etcd_txn_if_value_above(&txn, &key, recording->value);
    etcd_txn_if_value_below(&txn, &key, ":");
    etcd_txn_put(&txn, ELSE, &key, recording->value, recording->lease);
    if (etcd_txn_send(&txn, etcd, on_recorded, recording, &err))
        end(recording, &err);
}

void etcd_history_record(struct engine *engine, struct query *query)
{
    struct stile_error err;
    struct recording *recording = malloc(sizeof *recording);
    if (!recording) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->done(query, &err);
        return;
    }
    *recording = (struct recording){
        .inquiry.discard = discard, .query = query, .lease = lease_now(etcd_of(engine), query)};
    snprintf(recording->value, sizeof recording->value, "%0*" PRIu64 " %s", TOKEN_DIGITS,
             query->token, query->record);
    query->state = recording;
    send_record(recording);
}

/* ---- reading ---- */

const char *etcd_history_text(size_t *len, const ProtobufCBinaryData *value)
{
    size_t head = TOKEN_DIGITS + 1;
    if (value->len <= head || value->len > head + RECORD_MAX || value->data[TOKEN_DIGITS] != ' ')
        return NULL;
    *len = value->len - head;
    return (const char *)value->data + head;
}
