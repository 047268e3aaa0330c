#include "engines/etcd/txn.h"

#include <string.h>

#include "engines/etcd/etcd.h"

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

void etcd_txn_if_leased(struct txn *txn, const struct key *key, int64_t lease)
{
    want_leased(compare(txn, key), lease);
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

enum stile_status etcd_txn_send(struct txn *txn, struct etcd *etcd, conn_fn *fn, void *data,
                                struct stile_error *err)
{
    return etcd_conn_request(etcd->conn, RPC_TXN, &txn->request.base, fn, data, err);
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
