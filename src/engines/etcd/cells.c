/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Cells and their guards. A cell has up to three keys:
 *
 *     <prefix>\1stile/cell/<name>            the value, and nothing else; its mod_revision is the
 *                                            version
 *     <prefix>\1stile/cell/<name>\1token     the highest token that was seen, in 19 digits
 *     <prefix>\1stile/cell/<name>\1issuer    its issuer; no key: not known
 *
 * All tokens have the same length, so the server's comparison of bytes is one of numbers. A removal
 * deletes the value alone.
 *
 * A write is one transaction: it compares the guard and the version, and writes if all is as it
 * should be; otherwise it reads all three keys, so that a refusal costs no second request and says
 * what has refused it. The server knows no "or": what is compared depends on whether a key exists,
 * and a raise on the token that is stored. So each transaction starts from a guess: a write with a
 * token that its holder has used before, a write without a token that there is none. If the guess
 * was wrong nothing is written, and the answer contains a better one. What a transaction compares
 * makes it right, whatever happens between two of them. */
#include "engines/etcd/cells.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/guard.h"

/* A guess that was right becomes wrong only if a guard is raised or reset at that moment. */
#define TRIES 10

/* What a request takes a stored key of the guard for. */
enum guess {
    UNKNOWN, /* it must be read first */
    ANY,     /* not compared */
    ABSENT,
    EQUAL, /* to what is given */
    BELOW, /* the given token */
};

/* What request->state holds. */
struct attempt {
    enum guess token, issuer;
    unsigned tries;
};
static_assert(sizeof(struct attempt) <= sizeof((struct cell_request *)NULL)->state,
              "it fits into the request");

static struct attempt *attempt_of(struct cell_request *request)
{
    return (struct attempt *)request->state;
}

static struct etcd *etcd_of_cell(const struct cell_request *request)
{
    return etcd_of(request->engine);
}

/* ---- transactions ---- */

static void keys_of(struct cell_keys *keys, const struct cell_request *request)
{
    etcd_keys_of_cell(keys, etcd_of_cell(request), request->key, request->key_len);
}

static void add_reads(struct txn *txn, enum branch branch, const struct cell_keys *keys,
                      bool with_value)
{
    etcd_txn_range(txn, branch, &keys->value, NULL)->keys_only = !with_value;
    etcd_txn_range(txn, branch, &keys->token, NULL);
    etcd_txn_range(txn, branch, &keys->issuer, NULL);
}

static void send(struct cell_request *request, struct txn *txn, conn_fn *fn)
{
    struct stile_error err;
    if (etcd_txn_send(txn, etcd_of_cell(request), fn, request, &err))
        etcd_cell_end(request, &err);
}

static void send_read(struct cell_request *request, conn_fn *fn)
{
    struct cell_keys keys;
    struct txn txn;
    keys_of(&keys, request);
    etcd_txn_init(&txn);
    add_reads(&txn, THEN, &keys, request->verb == CELL_GET);
    send(request, &txn, fn);
}

static void compare_guess(struct txn *txn, const struct key *key, enum guess guess,
                          const char *given)
{
    if (guess == ABSENT)
        etcd_txn_if_created(txn, key, 0);
    else if (guess == EQUAL)
        etcd_txn_if_value(txn, key, given);
    else if (guess == BELOW)
        etcd_txn_if_value_below(txn, key, given);
}

static bool wants_version(const struct cell_request *request)
{
    return !request->any_version && (request->verb == CELL_PUT || request->verb == CELL_REMOVE);
}

/* Read before it is written: what the request does not say about the cell as it will be. */
static void add_unsaid(struct txn *txn, const struct cell_request *request,
                       const struct cell_keys *keys, enum guess issuer)
{
    if (request->verb == CELL_RAISE || request->verb == CELL_RESET)
        etcd_txn_range(txn, THEN, &keys->value, NULL)->keys_only = true;
    if (issuer == ANY)
        etcd_txn_range(txn, THEN, &keys->issuer, NULL);
}

static void add_value(struct txn *txn, const struct cell_request *request,
                      const struct cell_keys *keys)
{
    if (request->verb == CELL_REMOVE)
        etcd_txn_delete(txn, THEN, &keys->value);
    if (request->verb == CELL_PUT)
        etcd_txn_put(txn, THEN, &keys->value, "", 0)->value =
            (ProtobufCBinaryData){.len = request->size, .data = (uint8_t *)request->value};
}

static void on_written(void *data, const ProtobufCMessage *message, const struct stile_error *err);

static void write_token(char digits[CELL_TOKEN_DIGITS + 1], uint64_t token)
{
    snprintf(digits, CELL_TOKEN_DIGITS + 1, "%0*" PRIu64, CELL_TOKEN_DIGITS, token);
}

static void send_write(struct cell_request *request)
{
    const struct attempt *attempt = attempt_of(request);
    struct cell_keys keys;
    char token[CELL_TOKEN_DIGITS + 1];
    struct txn txn;
    keys_of(&keys, request);
    write_token(token, request->token);
    etcd_txn_init(&txn);
    compare_guess(&txn, &keys.token, attempt->token, token);
    compare_guess(&txn, &keys.issuer, attempt->issuer, request->issuer);
    if (wants_version(request))
        etcd_txn_if_modified(&txn, &keys.value, (int64_t)request->if_version);
    add_unsaid(&txn, request, &keys, attempt->issuer);
    add_value(&txn, request, &keys);
    if (request->token && attempt->token != EQUAL)
        etcd_txn_put(&txn, THEN, &keys.token, token, 0);
    if (attempt->issuer == ABSENT)
        etcd_txn_put(&txn, THEN, &keys.issuer, request->issuer, 0);
    add_reads(&txn, ELSE, &keys, false);
    send(request, &txn, on_written);
}

static void put_or_delete(struct txn *txn, const struct key *key, const char *value, bool put)
{
    if (put)
        etcd_txn_put(txn, THEN, key, value, 0);
    else
        etcd_txn_delete(txn, THEN, key);
}

static void send_reset(struct cell_request *request)
{
    struct cell_keys keys;
    char token[CELL_TOKEN_DIGITS + 1];
    struct txn txn;
    keys_of(&keys, request);
    write_token(token, request->token);
    etcd_txn_init(&txn);
    add_unsaid(&txn, request, &keys, EQUAL);
    put_or_delete(&txn, &keys.token, token, request->token > 0);
    put_or_delete(&txn, &keys.issuer, request->issuer, *request->issuer);
    send(request, &txn, on_written);
}

/* ---- guesses ---- */

static bool compares_issuer(const struct cell_request *request)
{
    return request->token && *request->issuer;
}

/* Most writes are of a holder that has raised the guard before. */
static void guess_first(struct cell_request *request)
{
    struct attempt *attempt = attempt_of(request);
    attempt->issuer = compares_issuer(request) ? EQUAL : ANY;
    attempt->token = request->token == 0                              ? ABSENT
                     : request->verb == CELL_RAISE || request->strict ? UNKNOWN
                                                                      : EQUAL;
}

static void guess_found(struct cell_request *request, const struct cell_found *found)
{
    struct attempt *attempt = attempt_of(request);
    attempt->token = found->token == 0 ? ABSENT : found->token == request->token ? EQUAL : BELOW;
    if (compares_issuer(request))
        attempt->issuer = *found->issuer ? EQUAL : ABSENT;
}

/* ---- answers ---- */

static void refuse(struct cell_request *request, const struct cell_found *found,
                   enum stile_status status)
{
    struct stile_error err = {.status = status};
    etcd_cell_report(request, request->key, found);
    etcd_cell_end(request, &err);
}

/* What has been read says whether the request passes, as it was at that moment. */
static enum stile_status judge(const struct cell_request *request, const struct cell_found *found)
{
    struct guard_seen seen = {.token = found->token, .issuer = found->issuer};
    enum stile_status status = guard_judge(seen, request->token, request->issuer, request->strict);
    if (!status && wants_version(request) && request->if_version != found->version)
        return STILE_CONFLICT;
    return status;
}

/* A raise to what is there already. */
static bool is_done(const struct cell_request *request)
{
    const struct attempt *attempt = (const struct attempt *)request->state;
    return request->verb == CELL_RAISE && attempt->token == EQUAL && attempt->issuer != ABSENT;
}

static void decide(struct cell_request *request, const struct cell_found *found)
{
    struct stile_error err;
    enum stile_status status = judge(request, found);
    if (status) {
        refuse(request, found, status);
        return;
    }
    guess_found(request, found);
    if (is_done(request)) {
        etcd_cell_report(request, request->key, found);
        etcd_cell_end(request, NULL);
    } else if (attempt_of(request)->tries++ < TRIES) {
        send_write(request);
    } else {
        error_set(&err, STILE_UNREACHABLE, 0,
                  "its guard was changed each time before this could be written");
        etcd_cell_end(request, &err);
    }
}

static void on_guard_read(void *data, const ProtobufCMessage *message,
                          const struct stile_error *err)
{
    struct cell_request *request = data;
    struct cell_found found;
    struct stile_error why;
    error_copy(&why, err);
    if (!err)
        etcd_cell_find(&found, (const Etcd__TxnResponse *)message, &why);
    if (why.status == STILE_UNCERTAIN)
        why.status = STILE_UNREACHABLE; /* nothing was to be changed yet */
    found.value = NULL;
    if (why.status)
        etcd_cell_end(request, &why);
    else
        decide(request, &found);
}

/* The cell after a write that passed: what add_unsaid() has read, and what was written. */
static enum stile_status find_written(struct cell_found *found, const struct cell_request *request,
                                      const Etcd__TxnResponse *answer, struct stile_error *err)
{
    const struct attempt *attempt = (const struct attempt *)request->state;
    const Etcd__KeyValue *kv = NULL;
    size_t n = 0;
    *found = (struct cell_found){.token = request->token};
    if (request->verb == CELL_RAISE || request->verb == CELL_RESET) {
        if (!etcd_cell_key(&kv, answer, n++))
            return etcd_cell_damaged(err);
        found->version = kv ? (uint64_t)kv->mod_revision : 0;
    } else if (request->verb == CELL_PUT) {
        if (!answer->header)
            return etcd_cell_damaged(err);
        found->version = (uint64_t)answer->header->revision;
        found->size = request->size;
    }
    if (attempt->issuer != ANY)
        strcpy(found->issuer, request->issuer);
    else if (!etcd_cell_key(&kv, answer, n))
        return etcd_cell_damaged(err);
    else
        etcd_cell_issuer(found, kv, NULL); /* it was not compared: unknown, if it is none */
    return STILE_OK;
}

static void on_written(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct cell_request *request = data;
    const Etcd__TxnResponse *answer = (const Etcd__TxnResponse *)message;
    struct cell_found found;
    struct stile_error why;
    error_copy(&why, err);
    bool written = !err && answer->succeeded;
    if (written)
        find_written(&found, request, answer, &why);
    else if (!err)
        etcd_cell_find(&found, answer, &why);
    found.value = NULL;
    if (why.status) {
        etcd_cell_end(request, &why);
    } else if (written) {
        etcd_cell_report(request, request->key, &found);
        etcd_cell_end(request, NULL);
    } else {
        decide(request, &found);
    }
}

static void on_read(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct cell_request *request = data;
    struct cell_found found;
    struct stile_error why;
    error_copy(&why, err);
    if (!err && !etcd_cell_find(&found, (const Etcd__TxnResponse *)message, &why) &&
        found.size > STILE_CELL_MAX)
        error_set(&why, STILE_CORRUPT, 0, "its key has a value of %zu bytes, which is no cell's",
                  found.size);
    if (!why.status)
        etcd_cell_report(request, request->key, &found);
    etcd_cell_end(request, why.status ? &why : NULL);
}

/* ---- the slots of the engine ---- */

void etcd_cells_run(struct engine *engine, struct cell_request *request)
{
    (void)engine;
    if (request->verb == CELL_LIST) {
        etcd_cell_list(request);
    } else if (request->verb == CELL_GET) {
        send_read(request, on_read);
    } else if (request->verb == CELL_RESET) {
        attempt_of(request)->issuer = EQUAL;
        send_reset(request);
    } else {
        guess_first(request);
        if (attempt_of(request)->token == UNKNOWN)
            send_read(request, on_guard_read);
        else
            send_write(request);
    }
}

void etcd_cells_watch(struct engine *engine, struct query *query)
{
    struct key start, end;
    etcd_keys_around_cell(&start, &end, etcd_of(engine), query->name, query->name_len);
    etcd_inspect_subscribe(engine, query, &start, &end);
}
