/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What the server has stored of a cell, which anybody may have written; and the end of requests. */
#include "engines/etcd/cells.h"

#include <string.h>

/* ---- what is stored ---- */

enum stile_status etcd_cell_token(struct cell_found *found, const Etcd__KeyValue *kv,
                                  struct stile_error *err)
{
    found->token = 0;
    if (!kv)
        return STILE_OK;
    bool sound = kv->value.len == CELL_TOKEN_DIGITS;
    for (size_t i = 0; sound && i < CELL_TOKEN_DIGITS; i++) {
        unsigned digit = (unsigned)kv->value.data[i] - '0';
        sound = digit < 10;
        found->token = found->token * 10 + digit; /* 19 digits always fit */
    }
    if (sound && found->token > 0 && found->token <= STILE_TOKEN_MAX)
        return STILE_OK;
    return error_set(err, STILE_CORRUPT, 0,
                     "the key of its guard's token holds something else than a token of 19 "
                     "digits: stile guard reset replaces it");
}

static bool is_issuer(const ProtobufCBinaryData *value)
{
    for (size_t i = 0; i < value->len; i++) {
        if (value->data[i] < ' ' || value->data[i] == 127)
            return false;
    }
    return value->len > 0 && value->len <= STILE_ISSUER_MAX;
}

enum stile_status etcd_cell_issuer(struct cell_found *found, const Etcd__KeyValue *kv,
                                   struct stile_error *err)
{
    found->issuer[0] = '\0';
    if (!kv)
        return STILE_OK;
    if (!is_issuer(&kv->value))
        return error_set(err, STILE_CORRUPT, 0,
                         "the key of its guard's issuer holds something else than an issuer: "
                         "stile guard reset replaces it");
    memcpy(found->issuer, kv->value.data, kv->value.len);
    found->issuer[kv->value.len] = '\0';
    return STILE_OK;
}

bool etcd_cell_key(const Etcd__KeyValue **kv, const Etcd__TxnResponse *answer, size_t n)
{
    const Etcd__RangeResponse *range = etcd_txn_range_reply(answer, n);
    if (!range || range->n_kvs > 1)
        return false;
    *kv = range->n_kvs ? range->kvs[0] : NULL;
    return !*kv || (*kv)->mod_revision > 0;
}

enum stile_status etcd_cell_damaged(struct stile_error *err)
{
    return error_set(err, STILE_UNCERTAIN, 0, "the server's answer has an unexpected form");
}

static void take_value(struct cell_found *found, const Etcd__KeyValue *kv)
{
    found->version = kv ? (uint64_t)kv->mod_revision : 0;
    found->size = kv ? kv->value.len : 0;
    found->value = found->size ? (const void *)kv->value.data : kv ? "" : NULL;
}

/* A key that was written by hand may have lost its lease: then the others are of an end that the
 * cell does not have any longer. */
static void take_lease(struct cell_found *found, const Etcd__KeyValue *value,
                       const Etcd__KeyValue *token, const Etcd__KeyValue *issuer)
{
    const Etcd__KeyValue *first = value ? value : token ? token : issuer;
    found->lease = first ? first->lease : 0;
    found->has_lease =
        (value && value->lease) || (token && token->lease) || (issuer && issuer->lease);
    found->at.value = value ? value->mod_revision : 0;
    found->at.token = token ? token->mod_revision : 0;
    found->at.issuer = issuer ? issuer->mod_revision : 0;
}

enum stile_status etcd_cell_find(struct cell_found *found, const Etcd__TxnResponse *answer,
                                 struct stile_error *err)
{
    const Etcd__KeyValue *value, *token, *issuer;
    if (!etcd_cell_key(&value, answer, 0) || !etcd_cell_key(&token, answer, 1) ||
        !etcd_cell_key(&issuer, answer, 2))
        return etcd_cell_damaged(err);
    take_value(found, value);
    take_lease(found, value, token, issuer);
    enum stile_status status = etcd_cell_token(found, token, err);
    return status ? status : etcd_cell_issuer(found, issuer, err);
}

/* ---- the end ---- */

void etcd_cell_report(struct cell_request *request, const char *key, const struct cell_found *found)
{
    struct stile_cell cell = {.key = key,
                              .value = found->value,
                              .size = found->size,
                              .version = found->version,
                              .token = found->token,
                              .issuer = found->issuer};
    request->engine->events->cell(request, &cell);
}

static bool only_reads(const struct cell_request *request)
{
    return request->verb == CELL_GET || request->verb == CELL_LIST;
}

void etcd_cell_end(struct cell_request *request, const struct stile_error *err)
{
    struct stile_error why;
    error_copy(&why, err);
    if (why.native == ETCD_ERROR_DENIED)
        etcd_error_explain_denied(&why, etcd_of(request->engine)->prefix);
    else if (why.native == ETCD_ERROR_TOO_LONG && only_reads(request))
        error_set(&why, STILE_CORRUPT, ETCD_ERROR_TOO_LONG,
                  "its key has a value of some megabytes, which is no cell's");
    else if (why.native == ETCD_ERROR_NO_LEASE)
        error_set(&why, STILE_UNREACHABLE, ETCD_ERROR_NO_LEASE,
                  "the server has ended its lease before the cell was bound to it");
    else if (why.status == STILE_UNCERTAIN && only_reads(request))
        why.status = STILE_UNREACHABLE; /* nothing was to be changed */
    request->engine->events->cell_done(request, why.status ? &why : NULL);
}
