/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/etcd_kv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TXN_OPS_MAX 128

static const struct {
    int code;
    const char *words;
} refusals[] = {
#define ETCD_REFUSAL(name, code, words) {code, (code) != 0 ? "etcdserver: " words : ""},
    ETCD_REFUSALS(ETCD_REFUSAL)
#undef ETCD_REFUSAL
};

int etcd_refusal_code(enum etcd_refusal refusal)
{
    return refusals[refusal].code;
}

const char *etcd_refusal_words(enum etcd_refusal refusal)
{
    return refusals[refusal].words;
}

/* ---- answers ---- */

/* Every answer is packed at once, so one piece of memory serves them all. */
static struct {
    max_align_t bytes[(1 << 22) / sizeof(max_align_t)];
    size_t used;
} answers;

void *etcd_answer_part(size_t size)
{
    size_t n = (size + sizeof(max_align_t) - 1) / sizeof(max_align_t);
    if (n > sizeof answers.bytes / sizeof *answers.bytes - answers.used) {
        fputs("stile: sim: an answer of etcd is too large\n", stderr);
        exit(70);
    }
    void *part = answers.bytes + answers.used;
    answers.used += n;
    return memset(part, 0, n * sizeof(max_align_t));
}

void etcd_answers_drop(void)
{
    answers.used = 0;
}

Etcd__Header *etcd_header(int64_t revision)
{
    Etcd__Header *header = etcd_answer_part(sizeof *header);
    etcd__header__init(header);
    header->revision = revision;
    return header;
}

Etcd__KeyValue *etcd_key_value(const struct etcd_version *version, bool with_value)
{
    Etcd__KeyValue *kv = etcd_answer_part(sizeof *kv);
    etcd__key_value__init(kv);
    kv->key = version->key->name;
    kv->mod_revision = version->revision;
    kv->create_revision = version->created;
    kv->lease = version->lease;
    if (with_value)
        kv->value = version->value;
    return kv;
}

/* ---- Range ---- */

static const Etcd__RangeRequest *sorting;

static int by_target(const struct etcd_version *a, const struct etcd_version *b)
{
    switch (sorting->sort_target) {
    case ETCD__RANGE_REQUEST__TARGET__CREATE:
        return (a->created > b->created) - (a->created < b->created);
    case ETCD__RANGE_REQUEST__TARGET__VERSION:
        return (a->version > b->version) - (a->version < b->version);
    default:
        return 0;
    }
}

/* The server keeps up to a dozen equals in the order of their keys, and does not define that of
 * more. */
static int by_order(const void *a, const void *b)
{
    const struct etcd_version *first = *(struct etcd_version *const *)a;
    const struct etcd_version *second = *(struct etcd_version *const *)b;
    int keys = etcd_bytes_compare(first->key->name, second->key->name);
    int order =
        sorting->sort_target == ETCD__RANGE_REQUEST__TARGET__KEY ? keys : by_target(first, second);
    if (sorting->sort_order == ETCD__RANGE_REQUEST__ORDER__DESCEND)
        order = -order;
    return order != 0 ? order : keys;
}

static void sort_found(struct etcd_version **found, size_t n, const Etcd__RangeRequest *request)
{
    sorting = request;
    if (n > 1 && (request->sort_order != ETCD__RANGE_REQUEST__ORDER__NONE ||
                  request->sort_target != ETCD__RANGE_REQUEST__TARGET__KEY))
        qsort(found, n, sizeof *found, by_order);
}

/* Where there is a limit and no order, the server looks no further, and sorts what it has found. */
static size_t most_needed(const Etcd__RangeRequest *request)
{
    bool all = request->limit <= 0 || request->max_create_revision != 0 ||
               request->sort_order != ETCD__RANGE_REQUEST__ORDER__NONE;
    return all ? SIZE_MAX : (size_t)request->limit + 1;
}

static size_t find_all(struct etcd_version **found, const struct etcd_store *store,
                       int64_t revision, const Etcd__RangeRequest *request)
{
    size_t n = 0, most = most_needed(request);
    for (size_t i = etcd_store_find(store, request->key);
         i < store->n_keys && n < most &&
         etcd_range_has(request->key, request->range_end, store->keys[i]->name);
         i++) {
        struct etcd_version *version = etcd_version_at(store->keys[i], revision);
        if (version != NULL &&
            (request->max_create_revision == 0 || version->created <= request->max_create_revision))
            found[n++] = version;
    }
    return n;
}

static enum etcd_refusal check_revision(const struct etcd_store *store, int64_t revision,
                                        const Etcd__RangeRequest *request)
{
    if (request->revision > revision)
        return REFUSED_FUTURE;
    return request->revision > 0 && request->revision < store->compacted ? REFUSED_COMPACTED
                                                                         : REFUSED_NONE;
}

static Etcd__RangeResponse *range(const struct etcd_store *store, int64_t revision,
                                  const Etcd__RangeRequest *request)
{
    Etcd__RangeResponse *answer = etcd_answer_part(sizeof *answer);
    struct etcd_version **found = etcd_answer_part(store->n_keys * sizeof(struct etcd_version *));
    size_t n =
        find_all(found, store, request->revision > 0 ? request->revision : revision, request);
    sort_found(found, n, request);
    etcd__range_response__init(answer);
    answer->header = etcd_header(revision);
    answer->more = request->limit > 0 && n > (size_t)request->limit;
    answer->n_kvs = answer->more ? (size_t)request->limit : n;
    answer->kvs = etcd_answer_part(answer->n_kvs * sizeof *answer->kvs);
    for (size_t i = 0; i < answer->n_kvs; i++)
        answer->kvs[i] = etcd_key_value(found[i], !request->keys_only);
    return answer;
}

enum etcd_refusal etcd_kv_range(Etcd__RangeResponse **answer, const struct etcd_store *store,
                                int64_t revision, const Etcd__RangeRequest *request)
{
    if (request->key.len == 0)
        return REFUSED_EMPTY_KEY;
    enum etcd_refusal refusal = check_revision(store, revision, request);
    if (refusal == REFUSED_NONE)
        *answer = range(store, revision, request);
    return refusal;
}

/* ---- Put and DeleteRange ---- */

static const struct etcd_version *present_version(const struct etcd_store *store, etcd_bytes name)
{
    size_t at = etcd_store_find(store, name);
    if (at == store->n_keys || etcd_bytes_compare(store->keys[at]->name, name) != 0)
        return NULL;
    return etcd_version_at(store->keys[at], etcd_store_present(store));
}

static bool has_lease(const struct etcd_store *store, int64_t lease)
{
    return lease == 0 || etcd_store_lease(store, lease, store->index) != NULL;
}

static Etcd__PutResponse *put(struct etcd_store *store, const Etcd__PutRequest *request)
{
    Etcd__PutResponse *answer = etcd_answer_part(sizeof *answer);
    const struct etcd_version *before = present_version(store, request->key);
    etcd__put_response__init(answer);
    if (request->prev_kv && before != NULL)
        answer->prev_kv = etcd_key_value(before, true);
    etcd_store_put(store, request->key, request->value, request->lease);
    answer->header = etcd_header(etcd_store_present(store));
    return answer;
}

enum etcd_refusal etcd_kv_put(Etcd__PutResponse **answer, struct etcd_store *store,
                              const Etcd__PutRequest *request)
{
    if (request->key.len == 0)
        return REFUSED_EMPTY_KEY;
    if (!has_lease(store, request->lease))
        return REFUSED_NO_LEASE;
    *answer = put(store, request);
    return REFUSED_NONE;
}

static Etcd__DeleteResponse *delete_range(struct etcd_store *store,
                                          const Etcd__DeleteRequest *request)
{
    Etcd__DeleteResponse *answer = etcd_answer_part(sizeof *answer);
    etcd__delete_response__init(answer);
    answer->deleted = etcd_store_delete(store, request->key, request->range_end);
    answer->header = etcd_header(etcd_store_present(store));
    return answer;
}

enum etcd_refusal etcd_kv_delete(Etcd__DeleteResponse **answer, struct etcd_store *store,
                                 const Etcd__DeleteRequest *request)
{
    if (request->key.len == 0)
        return REFUSED_EMPTY_KEY;
    *answer = delete_range(store, request);
    return REFUSED_NONE;
}

/* ---- Txn: what is checked before ---- */

bool etcd_txn_only_reads(const Etcd__TxnRequest *request)
{
    for (size_t i = 0; i < request->n_success; i++) {
        if (request->success[i]->request_case != ETCD__REQUEST_OP__REQUEST_RANGE)
            return false;
    }
    for (size_t i = 0; i < request->n_failure; i++) {
        if (request->failure[i]->request_case != ETCD__REQUEST_OP__REQUEST_RANGE)
            return false;
    }
    return true;
}

static enum etcd_refusal check_txn(const Etcd__TxnRequest *request, size_t most);

static enum etcd_refusal check_op(const Etcd__RequestOp *op, size_t most)
{
    size_t len;
    switch (op->request_case) {
    case ETCD__REQUEST_OP__REQUEST_RANGE:
        len = op->range->key.len;
        break;
    case ETCD__REQUEST_OP__REQUEST_PUT:
        len = op->put->key.len;
        break;
    case ETCD__REQUEST_OP__REQUEST_DELETE_RANGE:
        len = op->delete_range->key.len;
        break;
    case ETCD__REQUEST_OP__REQUEST_TXN:
        return check_txn(op->txn, most);
    default:
        return REFUSED_KEY_NOT_FOUND;
    }
    return len == 0 ? REFUSED_EMPTY_KEY : REFUSED_NONE;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static enum etcd_refusal check_txn(const Etcd__TxnRequest *request, size_t most)
{
    size_t ops = larger(request->n_compare, larger(request->n_success, request->n_failure));
    enum etcd_refusal refusal = REFUSED_NONE;
    if (ops > most)
        return REFUSED_TOO_MANY_OPS;
    for (size_t i = 0; i < request->n_compare; i++) {
        if (request->compare[i]->key.len == 0)
            return REFUSED_EMPTY_KEY;
    }
    for (size_t i = 0; i < request->n_success && refusal == REFUSED_NONE; i++)
        refusal = check_op(request->success[i], most - ops);
    for (size_t i = 0; i < request->n_failure && refusal == REFUSED_NONE; i++)
        refusal = check_op(request->failure[i], most - ops);
    return refusal;
}

/* What the operations of one branch write. Nested transactions add theirs. */
struct writes {
    etcd_bytes puts[TXN_OPS_MAX];
    struct {
        etcd_bytes start, end;
    } deletions[TXN_OPS_MAX];
    size_t n_puts, n_deletions;
};

static bool is_put(const struct writes *writes, etcd_bytes key)
{
    for (size_t i = 0; i < writes->n_puts; i++) {
        if (etcd_bytes_compare(writes->puts[i], key) == 0)
            return true;
    }
    return false;
}

/* Here the end "\0" is a key like any other, and no range reaches it: so does the server check. */
static bool is_deleted(const struct writes *writes, etcd_bytes key)
{
    for (size_t i = 0; i < writes->n_deletions; i++) {
        etcd_bytes start = writes->deletions[i].start, end = writes->deletions[i].end;
        if (end.len == 0 ? etcd_bytes_compare(key, start) == 0
                         : etcd_bytes_compare(key, start) >= 0 && etcd_bytes_compare(key, end) < 0)
            return true;
    }
    return false;
}

/* other: what the other branch puts may be put here as well. */
static bool note_put(struct writes *writes, etcd_bytes key, const struct writes *other)
{
    bool known = is_put(writes, key), twice = known && (other == NULL || !is_put(other, key));
    if (twice || is_deleted(writes, key) || writes->n_puts == TXN_OPS_MAX)
        return false;
    if (!known)
        writes->puts[writes->n_puts++] = key;
    return true;
}

static void note_deletion(struct writes *writes, etcd_bytes start, etcd_bytes end)
{
    if (writes->n_deletions == TXN_OPS_MAX)
        return;
    writes->deletions[writes->n_deletions].start = start;
    writes->deletions[writes->n_deletions++].end = end;
}

static void note_deletions(struct writes *writes, Etcd__RequestOp *const *ops, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (ops[i]->request_case == ETCD__REQUEST_OP__REQUEST_DELETE_RANGE)
            note_deletion(writes, ops[i]->delete_range->key, ops[i]->delete_range->range_end);
    }
}

static void note_deletions_of(struct writes *writes, const struct writes *branch)
{
    for (size_t i = 0; i < branch->n_deletions; i++)
        note_deletion(writes, branch->deletions[i].start, branch->deletions[i].end);
}

/* A key may be put only once, and not deleted as well. */
static bool writes_once(struct writes *writes, Etcd__RequestOp *const *ops, size_t n);

static bool nested_writes_once(struct writes *writes, const Etcd__TxnRequest *txn)
{
    struct writes then = {.n_puts = 0}, otherwise = {.n_puts = 0};
    bool once = writes_once(&then, txn->success, txn->n_success) &&
                writes_once(&otherwise, txn->failure, txn->n_failure);
    for (size_t i = 0; i < then.n_puts && once; i++)
        once = note_put(writes, then.puts[i], NULL);
    for (size_t i = 0; i < otherwise.n_puts && once; i++)
        once = note_put(writes, otherwise.puts[i], &then);
    note_deletions_of(writes, &then);
    note_deletions_of(writes, &otherwise);
    return once;
}

static bool writes_once(struct writes *writes, Etcd__RequestOp *const *ops, size_t n)
{
    note_deletions(writes, ops, n);
    for (size_t i = 0; i < n; i++) {
        if (ops[i]->request_case == ETCD__REQUEST_OP__REQUEST_TXN &&
            !nested_writes_once(writes, ops[i]->txn))
            return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (ops[i]->request_case == ETCD__REQUEST_OP__REQUEST_PUT &&
            !note_put(writes, ops[i]->put->key, NULL))
            return false;
    }
    return true;
}

enum etcd_refusal etcd_kv_check_txn(const Etcd__TxnRequest *request)
{
    struct writes then = {.n_puts = 0}, otherwise = {.n_puts = 0};
    enum etcd_refusal refusal = check_txn(request, TXN_OPS_MAX);
    if (refusal != REFUSED_NONE)
        return refusal;
    return writes_once(&then, request->success, request->n_success) &&
                   writes_once(&otherwise, request->failure, request->n_failure)
               ? REFUSED_NONE
               : REFUSED_DUPLICATE_KEY;
}

/* ---- Txn: comparisons ---- */

static int compare_numbers(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

/* What is not given is 0; a key that does not exist has 0 everywhere. */
static int compare_version(const Etcd__Compare *compare, const struct etcd_version *version)
{
    const Etcd__Compare__TargetUnionCase given = compare->target_union_case;
    switch (compare->target) {
    case ETCD__COMPARE__TARGET__CREATE:
        return compare_numbers(
            version->created,
            given == ETCD__COMPARE__TARGET_UNION_CREATE_REVISION ? compare->create_revision : 0);
    case ETCD__COMPARE__TARGET__MOD:
        return compare_numbers(version->revision, given == ETCD__COMPARE__TARGET_UNION_MOD_REVISION
                                                      ? compare->mod_revision
                                                      : 0);
    case ETCD__COMPARE__TARGET__LEASE:
        return compare_numbers(version->lease,
                               given == ETCD__COMPARE__TARGET_UNION_LEASE ? compare->lease : 0);
    case ETCD__COMPARE__TARGET__VALUE:
        return etcd_bytes_compare(version->value, given == ETCD__COMPARE__TARGET_UNION_VALUE
                                                      ? compare->value
                                                      : (etcd_bytes){0});
    default:
        return compare_numbers(version->version, 0); /* the engine has no field for it */
    }
}

static bool is_met(const Etcd__Compare *compare, const struct etcd_version *version)
{
    int order = compare_version(compare, version);
    switch (compare->result) {
    case ETCD__COMPARE__RESULT__GREATER:
        return order > 0;
    case ETCD__COMPARE__RESULT__LESS:
        return order < 0;
    case ETCD__COMPARE__RESULT__NOT_EQUAL:
        return order != 0;
    default:
        return order == 0;
    }
}

/* Every key of the range must meet it. The value of a key that does not exist meets nothing. */
static bool holds(const struct etcd_store *store, int64_t revision, const Etcd__Compare *compare)
{
    const struct etcd_version none = {0};
    bool any = false;
    for (size_t i = etcd_store_find(store, compare->key);
         i < store->n_keys &&
         etcd_range_has(compare->key, compare->range_end, store->keys[i]->name);
         i++) {
        const struct etcd_version *version = etcd_version_at(store->keys[i], revision);
        if (version != NULL && !is_met(compare, version))
            return false;
        any = any || version != NULL;
    }
    return any || (compare->target != ETCD__COMPARE__TARGET__VALUE && is_met(compare, &none));
}

static bool all_hold(const struct etcd_store *store, int64_t revision,
                     const Etcd__TxnRequest *request)
{
    for (size_t i = 0; i < request->n_compare; i++) {
        if (!holds(store, revision, request->compare[i]))
            return false;
    }
    return true;
}

/* ---- Txn: operations ---- */

struct path {
    bool taken[TXN_OPS_MAX]; /* which branch, of each transaction in the order of their places */
    size_t n;
};

struct branch {
    Etcd__RequestOp *const *ops;
    size_t n;
};

static struct branch branch_of(const Etcd__TxnRequest *request, bool succeeded)
{
    return succeeded ? (struct branch){request->success, request->n_success}
                     : (struct branch){request->failure, request->n_failure};
}

/* All comparisons, those of nested transactions too, see the state before any operation. */
static void plan(struct path *path, const struct etcd_store *store, int64_t revision,
                 const Etcd__TxnRequest *request)
{
    bool succeeded = all_hold(store, revision, request);
    struct branch branch = branch_of(request, succeeded);
    path->taken[path->n++ % TXN_OPS_MAX] = succeeded;
    for (size_t i = 0; i < branch.n; i++) {
        if (branch.ops[i]->request_case == ETCD__REQUEST_OP__REQUEST_TXN)
            plan(path, store, revision, branch.ops[i]->txn);
    }
}

typedef enum etcd_refusal check_fn(const struct etcd_store *store, int64_t revision,
                                   const Etcd__RequestOp *op);

static enum etcd_refusal check_put(const struct etcd_store *store, int64_t revision,
                                   const Etcd__RequestOp *op)
{
    (void)revision;
    return op->request_case != ETCD__REQUEST_OP__REQUEST_PUT || has_lease(store, op->put->lease)
               ? REFUSED_NONE
               : REFUSED_NO_LEASE;
}

/* Here, unlike in a range by itself, a revision below zero is one that was compacted. */
static enum etcd_refusal check_range(const struct etcd_store *store, int64_t revision,
                                     const Etcd__RequestOp *op)
{
    if (op->request_case != ETCD__REQUEST_OP__REQUEST_RANGE)
        return REFUSED_NONE;
    if (op->range->revision < 0 && (store->compacted != 0 || op->range->revision < -1))
        return REFUSED_COMPACTED;
    return check_revision(store, revision, op->range);
}

static enum etcd_refusal check_planned(struct path *path, const struct etcd_store *store,
                                       int64_t revision, const Etcd__TxnRequest *request,
                                       check_fn *fn)
{
    enum etcd_refusal refusal = REFUSED_NONE;
    struct branch branch = branch_of(request, path->taken[path->n++ % TXN_OPS_MAX]);
    for (size_t i = 0; i < branch.n && refusal == REFUSED_NONE; i++) {
        if (branch.ops[i]->request_case == ETCD__REQUEST_OP__REQUEST_TXN)
            refusal = check_planned(path, store, revision, branch.ops[i]->txn, fn);
        else
            refusal = fn(store, revision, branch.ops[i]);
    }
    return refusal;
}

/* The engine's messages have no place for the answer of a nested transaction. */
static Etcd__TxnResponse *execute(struct path *path, struct etcd_store *store, int64_t revision,
                                  const Etcd__TxnRequest *request);

static Etcd__ResponseOp *execute_op(struct path *path, struct etcd_store *store, int64_t revision,
                                    const Etcd__RequestOp *op)
{
    Etcd__ResponseOp *answer = etcd_answer_part(sizeof *answer);
    etcd__response_op__init(answer);
    if (op->request_case == ETCD__REQUEST_OP__REQUEST_RANGE) {
        answer->response_case = ETCD__RESPONSE_OP__RESPONSE_RANGE;
        answer->range =
            range(store, revision != 0 ? revision : etcd_store_present(store), op->range);
    } else if (op->request_case == ETCD__REQUEST_OP__REQUEST_PUT) {
        answer->response_case = ETCD__RESPONSE_OP__RESPONSE_PUT;
        answer->put = put(store, op->put);
    } else if (op->request_case == ETCD__REQUEST_OP__REQUEST_DELETE_RANGE) {
        answer->response_case = ETCD__RESPONSE_OP__RESPONSE_DELETE_RANGE;
        answer->delete_range = delete_range(store, op->delete_range);
    } else {
        execute(path, store, revision, op->txn);
    }
    return answer;
}

static Etcd__TxnResponse *execute(struct path *path, struct etcd_store *store, int64_t revision,
                                  const Etcd__TxnRequest *request)
{
    Etcd__TxnResponse *answer = etcd_answer_part(sizeof *answer);
    etcd__txn_response__init(answer);
    answer->succeeded = path->taken[path->n++ % TXN_OPS_MAX];
    struct branch branch = branch_of(request, answer->succeeded);
    answer->n_responses = branch.n;
    answer->responses = etcd_answer_part(branch.n * sizeof *answer->responses);
    for (size_t i = 0; i < branch.n; i++)
        answer->responses[i] = execute_op(path, store, revision, branch.ops[i]);
    answer->header = etcd_header(revision != 0 ? revision : etcd_store_present(store));
    return answer;
}

enum etcd_refusal etcd_kv_txn(Etcd__TxnResponse **answer, struct etcd_store *store,
                              int64_t revision, const Etcd__TxnRequest *request)
{
    struct path path = {.n = 0};
    int64_t before = revision != 0 ? revision : store->revision;
    plan(&path, store, before, request);
    path.n = 0;
    enum etcd_refusal refusal = check_planned(&path, store, before, request, check_put);
    path.n = 0;
    if (refusal == REFUSED_NONE)
        refusal = check_planned(&path, store, before, request, check_range);
    if (refusal != REFUSED_NONE)
        return refusal;
    path.n = 0;
    *answer = execute(&path, store, revision, request);
    return REFUSED_NONE;
}
