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
 * makes it right, whatever happens between two of them.
 *
 * A cell with an end has a lease of its own, which nobody renews, and to which all its keys are
 * bound. Such a cell is read first, and written only if none of its keys has changed since: a put
 * binds them all to the new lease or to none, and what else is written to it is bound to the lease
 * that it has. Then the old lease is revoked, which no key is bound to any longer. The first guess
 * about any cell is that it has no lease. */
#include "engines/etcd/cells.h"

#include <assert.h>
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

/* A lease counts from its grant, but its cell from the put, which follows. So it lasts this much
 * longer, and the put must be answered by then. */
#define SLACK_NS (2 * NS_PER_SEC)

/* What request->state holds. */
struct attempt {
    uint8_t token, issuer; /* enum guess */
    unsigned tries;
    int64_t old_lease; /* that the keys were bound to before the write; 0: none, or still */
    int64_t new_lease; /* for this put; 0: none */
    uint64_t asked_ns; /* for that */
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

/* ---- leases ---- */

static void on_revoked(void *data, const ProtobufCMessage *answer, const struct stile_error *err)
{
    (void)data, (void)answer, (void)err; /* else it runs out */
}

static void revoke(struct cell_request *request, int64_t *lease)
{
    struct etcd *etcd = etcd_of_cell(request);
    Etcd__LeaseRevokeRequest revoke = ETCD__LEASE_REVOKE_REQUEST__INIT;
    revoke.id = *lease;
    if (*lease)
        etcd_conn_request(etcd->conn, RPC_LEASE_REVOKE, &revoke.base, on_revoked, etcd, NULL);
    *lease = 0;
}

/* Nothing was written, or may have been. */
static void fail(struct cell_request *request, const struct stile_error *err)
{
    if (err->status != STILE_UNCERTAIN)
        revoke(request, &attempt_of(request)->new_lease);
    etcd_cell_end(request, err);
}

static bool is_late(struct cell_request *request, uint64_t patience_ns)
{
    const struct attempt *attempt = attempt_of(request);
    return attempt->new_lease && loop_now(request->engine->loop) - attempt->asked_ns > patience_ns;
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
        fail(request, &err);
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

static bool compares_issuer(const struct cell_request *request)
{
    return request->token && *request->issuer;
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
                      const struct cell_keys *keys, int64_t lease)
{
    if (request->verb == CELL_REMOVE)
        etcd_txn_delete(txn, THEN, &keys->value);
    if (request->verb == CELL_PUT)
        etcd_txn_put(txn, THEN, &keys->value, "", lease)->value =
            (ProtobufCBinaryData){.len = request->size, .data = (uint8_t *)request->value};
}

static void on_written(void *data, const ProtobufCMessage *message, const struct stile_error *err);

static void write_token(char digits[CELL_TOKEN_DIGITS + 1], uint64_t token)
{
    for (size_t i = CELL_TOKEN_DIGITS; i > 0; i--, token /= 10)
        digits[i - 1] = (char)('0' + token % 10);
    digits[CELL_TOKEN_DIGITS] = '\0';
}

static void put_or_delete(struct txn *txn, const struct key *key, const char *value, int64_t lease)
{
    if (*value)
        etcd_txn_put(txn, THEN, key, value, lease);
    else
        etcd_txn_delete(txn, THEN, key);
}

/* Where no key has a lease, and none is to have one. */
static void add_write(struct txn *txn, const struct cell_request *request,
                      const struct cell_keys *keys, const char *token)
{
    const struct attempt *attempt = (const struct attempt *)request->state;
    if (request->verb != CELL_RESET) {
        compare_guess(txn, &keys->token, attempt->token, token);
        compare_guess(txn, &keys->issuer, attempt->issuer, request->issuer);
    }
    etcd_txn_if_leased(txn, &keys->value, 0);
    etcd_txn_if_leased(txn, &keys->token, 0);
    if (wants_version(request))
        etcd_txn_if_modified(txn, &keys->value, (int64_t)request->if_version);
    add_unsaid(txn, request, keys, attempt->issuer);
    add_value(txn, request, keys, 0);
    if (request->verb == CELL_RESET || (request->token && attempt->token != EQUAL))
        put_or_delete(txn, &keys->token, token, 0);
    if (request->verb == CELL_RESET || attempt->issuer == ABSENT)
        put_or_delete(txn, &keys->issuer, request->issuer, 0);
}

/* What the guard has seen afterwards is known from what was found, and written with the lease. */
static void add_bound_write(struct txn *txn, const struct cell_request *request,
                            const struct cell_keys *keys, const char *token,
                            const struct cell_found *found)
{
    const struct attempt *attempt = (const struct attempt *)request->state;
    int64_t lease = request->verb == CELL_PUT ? attempt->new_lease : found->lease;
    bool says_issuer = request->verb == CELL_RESET || compares_issuer(request);
    const char *issuer = says_issuer ? request->issuer : found->issuer;
    etcd_txn_if_modified(txn, &keys->value, found->at.value);
    etcd_txn_if_modified(txn, &keys->token, found->at.token);
    etcd_txn_if_modified(txn, &keys->issuer, found->at.issuer);
    add_unsaid(txn, request, keys, attempt->issuer);
    add_value(txn, request, keys, lease);
    if (*token || request->verb == CELL_RESET)
        put_or_delete(txn, &keys->token, token, lease);
    if (*issuer || request->verb == CELL_RESET)
        put_or_delete(txn, &keys->issuer, issuer, lease);
}

/* found: what was read before; NULL: nothing. */
static void send_write(struct cell_request *request, const struct cell_found *found)
{
    struct attempt *attempt = attempt_of(request);
    struct cell_keys keys;
    char token[CELL_TOKEN_DIGITS + 1] = "";
    struct txn txn;
    keys_of(&keys, request);
    if (request->token)
        write_token(token, request->token);
    etcd_txn_init(&txn);
    if (found && (found->has_lease || attempt->new_lease))
        add_bound_write(&txn, request, &keys, token, found);
    else
        add_write(&txn, request, &keys, token);
    attempt->old_lease = found && request->verb == CELL_PUT ? found->lease : 0;
    add_reads(&txn, ELSE, &keys, false);
    send(request, &txn, on_written);
}

/* ---- guesses ---- */

/* Most writes are of a holder that has raised the guard before. */
static void guess_first(struct cell_request *request)
{
    struct attempt *attempt = attempt_of(request);
    if (request->verb == CELL_RESET) {
        attempt->token = ANY;
        attempt->issuer = EQUAL; /* to what is given, afterwards */
        return;
    }
    attempt->issuer = compares_issuer(request) ? EQUAL : ANY;
    attempt->token = request->token == 0                              ? ABSENT
                     : request->verb == CELL_RAISE || request->strict ? UNKNOWN
                                                                      : EQUAL;
}

static void guess_found(struct cell_request *request, const struct cell_found *found)
{
    struct attempt *attempt = attempt_of(request);
    if (request->verb == CELL_RESET)
        return; /* nothing is compared */
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
    fail(request, &err);
}

/* What has been read says whether the request passes, as it was at that moment. */
static enum stile_status judge(const struct cell_request *request, const struct cell_found *found)
{
    struct guard_seen seen = {.token = found->token, .issuer = found->issuer};
    if (request->verb == CELL_RESET)
        return STILE_OK;
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
    } else if (is_late(request, SLACK_NS / 2)) {
        error_set(&err, STILE_UNREACHABLE, 0, "the server was too slow to give it an end in time");
        fail(request, &err);
    } else if (attempt_of(request)->tries++ < TRIES) {
        send_write(request, found);
    } else {
        error_set(&err, STILE_UNREACHABLE, 0,
                  "its guard was changed each time before this could be written");
        fail(request, &err);
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
        fail(request, &why);
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
    if (written && is_late(request, SLACK_NS))
        error_set(&why, STILE_UNCERTAIN, 0,
                  "it was written, but so slowly that it may end too early: put it again");
    if (written)
        revoke(request, &attempt_of(request)->old_lease);
    if (why.status) {
        fail(request, &why);
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

/* ---- a put with an end ---- */

static void on_leased(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct cell_request *request = data;
    const Etcd__LeaseGrantResponse *answer = (const Etcd__LeaseGrantResponse *)message;
    struct stile_error why;
    error_copy(&why, err);
    if (!err &&
        (answer->id == 0 || (uint64_t)answer->ttl < (request->keep_ns + SLACK_NS) / NS_PER_SEC))
        error_set(&why, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
    if (why.status == STILE_UNCERTAIN)
        why.status = STILE_UNREACHABLE; /* nothing was to be changed yet */
    if (why.status) {
        etcd_cell_end(request, &why);
        return;
    }
    attempt_of(request)->new_lease = answer->id;
    send_read(request, on_guard_read);
}

static void request_lease(struct cell_request *request)
{
    Etcd__LeaseGrantRequest grant = ETCD__LEASE_GRANT_REQUEST__INIT;
    struct stile_error err;
    grant.ttl = (int64_t)((request->keep_ns + SLACK_NS + NS_PER_SEC - 1) / NS_PER_SEC);
    attempt_of(request)->asked_ns = loop_now(request->engine->loop);
    if (etcd_conn_request(etcd_of_cell(request)->conn, RPC_LEASE_GRANT, &grant.base, on_leased,
                          request, &err))
        etcd_cell_end(request, &err);
}

/* ---- the slots of the engine ---- */

void etcd_cells_run(struct engine *engine, struct cell_request *request)
{
    (void)engine;
    if (request->verb == CELL_LIST) {
        etcd_cell_list(request);
    } else if (request->verb == CELL_GET) {
        send_read(request, on_read);
    } else {
        guess_first(request);
        if (request->keep_ns)
            request_lease(request);
        else if (attempt_of(request)->token == UNKNOWN)
            send_read(request, on_guard_read);
        else
            send_write(request, NULL);
    }
}

void etcd_cells_watch(struct engine *engine, struct query *query)
{
    struct key start, end;
    etcd_keys_around_cell(&start, &end, etcd_of(engine), query->name, query->name_len);
    etcd_inspect_subscribe(engine, query, &start, &end);
}
