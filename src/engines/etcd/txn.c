#include <string.h>

#include "engines/etcd/etcd.h"

void txn_init(struct txn *txn)
{
    pb__txn_request__init(&txn->request);
    txn->request.compare = txn->compare_list;
    txn->request.success = txn->lists[THEN];
    txn->request.failure = txn->lists[ELSE];
    txn->n_ops = txn->n_inner = 0;
}

static Pb__Compare *compare(struct txn *txn, const struct key *key)
{
    Pb__Compare *c = &txn->compares[txn->request.n_compare];
    pb__compare__init(c);
    c->key = data_of(key);
    txn->compare_list[txn->request.n_compare++] = c;
    return c;
}

static Pb__Compare *inner_compare(struct txn_inner *inner, const struct key *key)
{
    Pb__Compare *c = &inner->compares[inner->request.n_compare];
    pb__compare__init(c);
    c->key = data_of(key);
    inner->compare_list[inner->request.n_compare++] = c;
    return c;
}

static void want_created(Pb__Compare *c, int64_t revision)
{
    c->target = PB__COMPARE__TARGET__CREATE;
    c->target_union_case = PB__COMPARE__TARGET_UNION_CREATE_REVISION;
    c->create_revision = revision;
}

static void want_leased(Pb__Compare *c, int64_t lease)
{
    c->target = PB__COMPARE__TARGET__LEASE;
    c->target_union_case = PB__COMPARE__TARGET_UNION_LEASE;
    c->lease = lease;
}

void txn_if_created(struct txn *txn, const struct key *key, int64_t revision)
{
    want_created(compare(txn, key), revision);
}

void txn_if_not_after(struct txn *txn, const struct key *key, int64_t revision)
{
    txn_if_created(txn, key, revision + 1);
    txn->compares[txn->request.n_compare - 1].result = PB__COMPARE__RESULT__LESS;
}

void txn_if_before(struct txn *txn, const struct key *key, int64_t revision)
{
    txn_if_not_after(txn, key, revision - 1);
    txn_if_created(txn, key, 0);
    txn->compares[txn->request.n_compare - 1].result = PB__COMPARE__RESULT__GREATER;
}

void txn_if_leased(struct txn *txn, const struct key *key, int64_t lease)
{
    want_leased(compare(txn, key), lease);
}

void txn_if_none(struct txn *txn, const struct key *start, const struct key *end)
{
    Pb__Compare *c = compare(txn, start);
    c->range_end = data_of(end);
    want_created(c, 0);
}

static struct txn_op *add(struct txn *txn, enum branch branch)
{
    struct txn_op *op = &txn->ops[txn->n_ops++];
    size_t *n = branch == THEN ? &txn->request.n_success : &txn->request.n_failure;
    pb__request_op__init(&op->op);
    txn->lists[branch][(*n)++] = &op->op;
    return op;
}

Pb__PutRequest *txn_put(struct txn *txn, enum branch branch, const struct key *key,
                        const char *value, int64_t lease)
{
    struct txn_op *op = add(txn, branch);
    pb__put_request__init(&op->put);
    op->put.key = data_of(key);
    op->put.value = (ProtobufCBinaryData){.len = strlen(value), .data = (uint8_t *)value};
    op->put.lease = lease;
    op->op.request_case = PB__REQUEST_OP__REQUEST_PUT;
    op->op.put = &op->put;
    return &op->put;
}

void txn_delete(struct txn *txn, enum branch branch, const struct key *key)
{
    struct txn_op *op = add(txn, branch);
    pb__delete_request__init(&op->del);
    op->del.key = data_of(key);
    op->op.request_case = PB__REQUEST_OP__REQUEST_DELETE_RANGE;
    op->op.delete_range = &op->del;
}

struct txn_inner *txn_delete_leased(struct txn *txn, enum branch branch, const struct key *key,
                                    int64_t lease)
{
    struct txn_op *op = add(txn, branch);
    struct txn_inner *inner = &txn->inner[txn->n_inner++];
    pb__txn_request__init(&inner->request);
    pb__delete_request__init(&inner->del);
    pb__request_op__init(&inner->op);
    inner->request.compare = inner->compare_list;
    inner->request.success = inner->ops;
    inner->request.n_success = 1;
    inner->ops[0] = &inner->op;
    inner->del.key = data_of(key);
    inner->op.request_case = PB__REQUEST_OP__REQUEST_DELETE_RANGE;
    inner->op.delete_range = &inner->del;
    want_leased(inner_compare(inner, key), lease);
    op->op.request_case = PB__REQUEST_OP__REQUEST_TXN;
    op->op.txn = &inner->request;
    return inner;
}

void inner_if_created(struct txn_inner *inner, const struct key *key, int64_t revision)
{
    want_created(inner_compare(inner, key), revision);
}

void inner_if_not_after(struct txn_inner *inner, const struct key *key, int64_t revision)
{
    inner_if_created(inner, key, revision + 1);
    inner->compares[inner->request.n_compare - 1].result = PB__COMPARE__RESULT__LESS;
}

Pb__RangeRequest *txn_range(struct txn *txn, enum branch branch, const struct key *start,
                            const struct key *end)
{
    struct txn_op *op = add(txn, branch);
    pb__range_request__init(&op->range);
    op->range.key = data_of(start);
    if (end)
        op->range.range_end = data_of(end);
    op->op.request_case = PB__REQUEST_OP__REQUEST_RANGE;
    op->op.range = &op->range;
    return &op->range;
}

enum stile_status txn_send(struct txn *txn, struct etcd *etcd, conn_fn *fn, void *data,
                           struct stile_error *err)
{
    return conn_ask(etcd->conn, RPC_TXN, &txn->request.base, fn, data, err);
}

const Pb__RangeResponse *txn_ranged(const Pb__TxnResponse *answer, size_t n)
{
    if (n >= answer->n_responses)
        return NULL;
    const Pb__ResponseOp *op = answer->responses[n];
    return op->response_case == PB__RESPONSE_OP__RESPONSE_RANGE ? op->range : NULL;
}

bool txn_overwrote(const Pb__TxnResponse *answer, size_t n)
{
    if (n >= answer->n_responses)
        return false;
    const Pb__ResponseOp *op = answer->responses[n];
    return op->response_case == PB__RESPONSE_OP__RESPONSE_PUT && op->put->prev_kv;
}
