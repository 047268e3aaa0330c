/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/etcd/requests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct rpc_class etcd_rpc_classes[] = {
    [RPC_RANGE] = {"/etcdserverpb.KV/Range", &etcd__range_response__descriptor, .reads = true},
    [RPC_PUT] = {"/etcdserverpb.KV/Put", &etcd__put_response__descriptor},
    [RPC_TXN] = {"/etcdserverpb.KV/Txn", &etcd__txn_response__descriptor},
    [RPC_LEASE_GRANT] = {"/etcdserverpb.Lease/LeaseGrant", &etcd__lease_grant_response__descriptor},
    [RPC_LEASE_REVOKE] = {"/etcdserverpb.Lease/LeaseRevoke",
                          &etcd__lease_revoke_response__descriptor},
    [RPC_LEASE_TTL] = {"/etcdserverpb.Lease/LeaseTimeToLive",
                       &etcd__lease_time_to_live_response__descriptor, .reads = true},
    [RPC_AUTHENTICATE] = {"/etcdserverpb.Auth/Authenticate",
                          &etcd__authenticate_response__descriptor},
    [RPC_STATUS] = {"/etcdserverpb.Maintenance/Status", &etcd__status_response__descriptor, true,
                    true},
    [RPC_ALARM] = {"/etcdserverpb.Maintenance/Alarm", &etcd__alarm_response__descriptor, true,
                   true},
    [RPC_MEMBER_LIST] = {"/etcdserverpb.Cluster/MemberList",
                         &etcd__member_list_response__descriptor, true, true},
    [RPC_LEASE_KEEP_ALIVE] = {"/etcdserverpb.Lease/LeaseKeepAlive",
                              &etcd__lease_keep_alive_response__descriptor},
    [RPC_WATCH] = {"/etcdserverpb.Watch/Watch", &etcd__watch_response__descriptor},
};

/* ---- requests ---- */

struct request *etcd_request_new(struct conn *c, enum rpc rpc, const ProtobufCMessage *message)
{
    size_t len = protobuf_c_message_get_packed_size(message);
    struct request *r = calloc(1, sizeof *r + len);
    if (!r)
        return NULL;
    r->conn = c;
    r->rpc = rpc;
    r->link.len = protobuf_c_message_pack(message, r->bytes);
    return r;
}

void etcd_request_free(struct request *r)
{
    etcd_h2_cancel(&r->call);
    if (r->answer)
        protobuf_c_message_free_unpacked(r->answer, NULL);
    if (r->rpc == RPC_AUTHENTICATE)
        explicit_bzero(r->bytes, r->link.len);
    free(r);
}

/* ---- transactions ---- */

void etcd_txn_init(struct txn *txn)
{
    etcd__txn_request__init(&txn->request);
    txn->request.compare = txn->compare_list;
    txn->request.success = txn->lists[THEN];
    txn->request.failure = txn->lists[ELSE];
    txn->n_ops = txn->n_nested = 0;
}

static Etcd__Compare *compare(struct txn *txn, const struct key *key)
{
    Etcd__Compare *c = &txn->compares[txn->request.n_compare];
    etcd__compare__init(c);
    c->key = data_of(key);
    txn->compare_list[txn->request.n_compare++] = c;
    return c;
}

static Etcd__Compare *nested_compare(struct nested_txn *nested, const struct key *key)
{
    Etcd__Compare *c = &nested->compares[nested->request.n_compare];
    etcd__compare__init(c);
    c->key = data_of(key);
    nested->compare_list[nested->request.n_compare++] = c;
    return c;
}

static void want_created(Etcd__Compare *c, int64_t revision)
{
    c->target = ETCD__COMPARE__TARGET__CREATE;
    c->target_union_case = ETCD__COMPARE__TARGET_UNION_CREATE_REVISION;
    c->create_revision = revision;
}

static void want_leased(Etcd__Compare *c, int64_t lease)
{
    c->target = ETCD__COMPARE__TARGET__LEASE;
    c->target_union_case = ETCD__COMPARE__TARGET_UNION_LEASE;
    c->lease = lease;
}

void etcd_txn_if_created(struct txn *txn, const struct key *key, int64_t revision)
{
    want_created(compare(txn, key), revision);
}

void etcd_txn_if_not_after(struct txn *txn, const struct key *key, int64_t revision)
{
    etcd_txn_if_created(txn, key, revision + 1);
    txn->compares[txn->request.n_compare - 1].result = ETCD__COMPARE__RESULT__LESS;
}

void etcd_txn_if_before(struct txn *txn, const struct key *key, int64_t revision)
{
    etcd_txn_if_not_after(txn, key, revision - 1);
    etcd_txn_if_created(txn, key, 0);
    txn->compares[txn->request.n_compare - 1].result = ETCD__COMPARE__RESULT__GREATER;
}

void etcd_txn_if_modified(struct txn *txn, const struct key *key, int64_t revision)
{
    Etcd__Compare *c = compare(txn, key);
    c->target = ETCD__COMPARE__TARGET__MOD;
    c->target_union_case = ETCD__COMPARE__TARGET_UNION_MOD_REVISION;
    c->mod_revision = revision;
}

void etcd_txn_if_leased(struct txn *txn, const struct key *key, int64_t lease)
{
    want_leased(compare(txn, key), lease);
}

static void want_value(Etcd__Compare *c, Etcd__Compare__Result result, const char *value)
{
    c->target = ETCD__COMPARE__TARGET__VALUE;
    c->result = result;
    c->target_union_case = ETCD__COMPARE__TARGET_UNION_VALUE;
    c->value = (ProtobufCBinaryData){.len = strlen(value), .data = (uint8_t *)value};
}

void etcd_txn_if_value(struct txn *txn, const struct key *key, const char *value)
{
    want_value(compare(txn, key), ETCD__COMPARE__RESULT__EQUAL, value);
}

void etcd_txn_if_value_above(struct txn *txn, const struct key *key, const char *value)
{
    want_value(compare(txn, key), ETCD__COMPARE__RESULT__GREATER, value);
}

void etcd_txn_if_value_below(struct txn *txn, const struct key *key, const char *value)
{
    want_value(compare(txn, key), ETCD__COMPARE__RESULT__LESS, value);
}

void etcd_txn_if_none(struct txn *txn, const struct key *start, const struct key *end)
{
    Etcd__Compare *c = compare(txn, start);
    c->range_end = data_of(end);
    want_created(c, 0);
}

static struct txn_op *add(struct txn *txn, enum branch branch)
{
    struct txn_op *op = &txn->ops[txn->n_ops++];
    size_t *n = branch == THEN ? &txn->request.n_success : &txn->request.n_failure;
    etcd__request_op__init(&op->op);
    txn->lists[branch][(*n)++] = &op->op;
    return op;
}

Etcd__PutRequest *etcd_txn_put(struct txn *txn, enum branch branch, const struct key *key,
                               const char *value, int64_t lease)
{
    struct txn_op *op = add(txn, branch);
    etcd__put_request__init(&op->put);
    op->put.key = data_of(key);
    op->put.value = (ProtobufCBinaryData){.len = strlen(value), .data = (uint8_t *)value};
    op->put.lease = lease;
    op->op.request_case = ETCD__REQUEST_OP__REQUEST_PUT;
    op->op.put = &op->put;
    return &op->put;
}

void etcd_txn_delete(struct txn *txn, enum branch branch, const struct key *key)
{
    struct txn_op *op = add(txn, branch);
    etcd__delete_request__init(&op->del);
    op->del.key = data_of(key);
    op->op.request_case = ETCD__REQUEST_OP__REQUEST_DELETE_RANGE;
    op->op.delete_range = &op->del;
}

struct nested_txn *etcd_txn_delete_leased(struct txn *txn, enum branch branch,
                                          const struct key *key, int64_t lease)
{
    struct txn_op *op = add(txn, branch);
    struct nested_txn *nested = &txn->nested[txn->n_nested++];
    etcd__txn_request__init(&nested->request);
    etcd__delete_request__init(&nested->del);
    etcd__request_op__init(&nested->op);
    nested->request.compare = nested->compare_list;
    nested->request.success = nested->ops;
    nested->request.n_success = 1;
    nested->ops[0] = &nested->op;
    nested->del.key = data_of(key);
    nested->op.request_case = ETCD__REQUEST_OP__REQUEST_DELETE_RANGE;
    nested->op.delete_range = &nested->del;
    want_leased(nested_compare(nested, key), lease);
    op->op.request_case = ETCD__REQUEST_OP__REQUEST_TXN;
    op->op.txn = &nested->request;
    return nested;
}

void etcd_nested_if_created(struct nested_txn *nested, const struct key *key, int64_t revision)
{
    want_created(nested_compare(nested, key), revision);
}

void etcd_nested_if_not_after(struct nested_txn *nested, const struct key *key, int64_t revision)
{
    etcd_nested_if_created(nested, key, revision + 1);
    nested->compares[nested->request.n_compare - 1].result = ETCD__COMPARE__RESULT__LESS;
}

Etcd__RangeRequest *etcd_txn_range(struct txn *txn, enum branch branch, const struct key *start,
                                   const struct key *end)
{
    struct txn_op *op = add(txn, branch);
    etcd__range_request__init(&op->range);
    op->range.key = data_of(start);
    if (end)
        op->range.range_end = data_of(end);
    op->op.request_case = ETCD__REQUEST_OP__REQUEST_RANGE;
    op->op.range = &op->range;
    return &op->range;
}

const Etcd__RangeResponse *etcd_txn_range_reply(const Etcd__TxnResponse *answer, size_t n)
{
    if (n >= answer->n_responses)
        return NULL;
    const Etcd__ResponseOp *op = answer->responses[n];
    return op->response_case == ETCD__RESPONSE_OP__RESPONSE_RANGE ? op->range : NULL;
}

bool etcd_txn_overwrote(const Etcd__TxnResponse *answer, size_t n)
{
    if (n >= answer->n_responses)
        return false;
    const Etcd__ResponseOp *op = answer->responses[n];
    return op->response_case == ETCD__RESPONSE_OP__RESPONSE_PUT && op->put->prev_kv;
}

/* ---- errors ---- */

enum {
    CANCELLED = 1,
    INVALID = 3,
    DENIED = 7,
    UNIMPLEMENTED = 12,
    UNAVAILABLE = 14,
    UNAUTHENTICATED = 16
};

/* By the server's message, whatever its code: versions differ in the codes. */
static const struct meaning {
    const char *words;
    enum etcd_error fault;
    enum stile_status status;
    const char *sentence;
} meanings[] = {
    {"no leader", ETCD_ERROR_NO_LEADER, STILE_UNREACHABLE,
     "the members have no leader: too few of them are up, or can't reach one another"},
    {"not supported for learner", ETCD_ERROR_LEARNER, STILE_UNREACHABLE,
     "this member is only a learner: name the voting members"},
    {"request timed out", ETCD_ERROR_TIMED_OUT, STILE_UNCERTAIN,
     "the member got no answer from the others in time"},
    {"leader changed", ETCD_ERROR_TIMED_OUT, STILE_UNCERTAIN, "the leader changed meanwhile"},
    {"server stopped", ETCD_ERROR_TIMED_OUT, STILE_UNCERTAIN, "the member is shutting down"},
    {"too many requests", ETCD_ERROR_BUSY, STILE_UNREACHABLE, "the member is overloaded"},
    {"database space exceeded", ETCD_ERROR_NO_SPACE, STILE_REFUSED,
     "the database is full (NOSPACE): compact and defragment it, then `etcdctl alarm disarm`"},
    {"lease not found", ETCD_ERROR_NO_LEASE, STILE_LOST, "the server has ended the lease"},
    {"lease already exists", ETCD_ERROR_LEASE_EXISTS, STILE_REFUSED, "the lease exists"},
    {"has been compacted", ETCD_ERROR_COMPACTED, STILE_UNREACHABLE,
     "that revision has been compacted"},
    {"invalid auth token", ETCD_ERROR_TOKEN, STILE_UNREACHABLE, "the login has expired"},
    {"auth store is old", ETCD_ERROR_TOKEN, STILE_UNREACHABLE, "users or roles have changed"},
    {"authentication failed", ETCD_ERROR_LOGIN, STILE_REFUSED, "user or password is wrong"},
    {"user name is empty", ETCD_ERROR_LOGIN, STILE_REFUSED,
     "the server wants a user: give it in the URL, etcd://USER:PASSWORD@host"},
    {"authentication is not enabled", ETCD_ERROR_NO_AUTH, STILE_REFUSED,
     "a user is given, but authentication is not enabled"},
    {"permission denied", ETCD_ERROR_DENIED, STILE_REFUSED,
     "the roles of this user do not allow it: readwrite on the keys below the prefix is needed"},
};

static enum stile_status fault_of_message(const char *words, struct stile_error *err)
{
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++) {
        if (strstr(words, meanings[i].words))
            return error_set(err, meanings[i].status, (int)meanings[i].fault, "%s",
                             meanings[i].sentence);
    }
    return error_set(err, STILE_UNCERTAIN, ETCD_ERROR_OTHER, "the server says: %s", words);
}

void etcd_error_explain_denied(struct stile_error *err, const char *prefix)
{
    error_set(err, STILE_REFUSED, ETCD_ERROR_DENIED,
              "the roles of this user do not allow it: `etcdctl role grant-permission ROLE "
              "--prefix=true readwrite $'%.300s\\x01stile/'` does",
              prefix);
}

bool etcd_error_is_temporary(const struct stile_error *err)
{
    return err->status == STILE_UNREACHABLE || err->status == STILE_UNCERTAIN ||
           err->status == STILE_NOMEM;
}

static enum stile_status explain_silence(const struct h2_call *call, struct stile_error *err)
{
    if (call->refused)
        return error_set(err, STILE_UNREACHABLE, ETCD_ERROR_BUSY,
                         "the server takes no more requests");
    if (call->too_long)
        return error_set(err, STILE_UNCERTAIN, ETCD_ERROR_TOO_LONG,
                         "the server's answer has more than %u MB", H2_MESSAGE_MAX >> 20);
    /* It may have forwarded the request before it lost its server. */
    if (etcd_h2_is_temporary(call->http_status))
        return error_set(err, STILE_UNCERTAIN, ETCD_ERROR_PROXY,
                         "a proxy answers in place of etcd (HTTP status %d)", call->http_status);
    if (call->http_status > 0 && call->http_status != 200)
        return error_set(err, STILE_REFUSED, ETCD_ERROR_OTHER,
                         "the server is not etcd (HTTP status %d)", call->http_status);
    return error_set(err, STILE_UNCERTAIN, ETCD_ERROR_OTHER, "no answer: %s",
                     call->words[0] ? call->words : "the server ended the request");
}

enum stile_status etcd_error_explain(const struct h2_call *call, struct stile_error *err)
{
    if (call->status == 0)
        return STILE_OK;
    if (call->status == H2_NO_STATUS)
        return explain_silence(call, err);
    enum stile_status status = fault_of_message(call->words, err);
    if (!err || err->native != ETCD_ERROR_OTHER)
        return status;
    if (call->status == UNAUTHENTICATED)
        return error_set(err, STILE_UNREACHABLE, ETCD_ERROR_TOKEN, "the login has expired");
    if (call->status == UNAVAILABLE)
        err->native = ETCD_ERROR_PROXY;
    /* These were rejected before anything was done. */
    if (call->status == INVALID || call->status == DENIED || call->status == UNIMPLEMENTED)
        err->status = STILE_REFUSED;
    return err->status;
}
