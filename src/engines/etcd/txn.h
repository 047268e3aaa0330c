/* A transaction while it is written. Keys and values are borrowed until it is sent. */
#ifndef STILE_ETCD_TXN_H
#define STILE_ETCD_TXN_H

#include "engines/etcd/connection.h"
#include "engines/etcd/keys.h"

#define TXN_OPS      100 /* the server allows 128 */
#define TXN_COMPARES 100
#define TXN_NESTED   2

/* One deletion with conditions of its own, inside a transaction. */
struct nested_txn {
    Etcd__TxnRequest request;
    Etcd__Compare compares[3], *compare_list[3];
    Etcd__RequestOp op, *ops[1];
    Etcd__DeleteRequest del;
};

struct txn {
    Etcd__TxnRequest request;
    Etcd__Compare compares[TXN_COMPARES], *compare_list[TXN_COMPARES];
    struct txn_op {
        Etcd__RequestOp op;
        union {
            Etcd__RangeRequest range;
            Etcd__PutRequest put;
            Etcd__DeleteRequest del;
        };
    } ops[2 * TXN_OPS];
    Etcd__RequestOp *lists[2][TXN_OPS];
    size_t n_ops;
    struct nested_txn nested[TXN_NESTED];
    size_t n_nested;
};

enum branch { THEN, ELSE };

void etcd_txn_init(struct txn *txn);

/* ---- conditions ---- */

void etcd_txn_if_created(struct txn *txn, const struct key *key, int64_t revision); /* 0: absent */
/* Created at this revision or before, or absent. */
void etcd_txn_if_not_after(struct txn *txn, const struct key *key, int64_t revision);
/* Created before this revision. */
void etcd_txn_if_before(struct txn *txn, const struct key *key, int64_t revision);
void etcd_txn_if_leased(struct txn *txn, const struct key *key, int64_t lease);
void etcd_txn_if_none(struct txn *txn, const struct key *start, const struct key *end);

/* ---- operations ---- */

Etcd__PutRequest *etcd_txn_put(struct txn *txn, enum branch branch, const struct key *key,
                               const char *value, int64_t lease);
void etcd_txn_delete(struct txn *txn, enum branch branch, const struct key *key);
/* If it is bound to this lease, and whatever else is added to its conditions. */
struct nested_txn *etcd_txn_delete_leased(struct txn *txn, enum branch branch,
                                          const struct key *key, int64_t lease);
void etcd_nested_if_created(struct nested_txn *nested, const struct key *key, int64_t revision);
void etcd_nested_if_not_after(struct nested_txn *nested, const struct key *key, int64_t revision);
Etcd__RangeRequest *etcd_txn_range(struct txn *txn, enum branch branch, const struct key *start,
                                   const struct key *end);

enum stile_status etcd_txn_send(struct txn *txn, struct etcd *etcd, conn_fn *fn, void *data,
                                struct stile_error *err);

/* ---- answers ---- */

/* The n-th response, if it is to a range; else NULL. */
const Etcd__RangeResponse *etcd_txn_range_reply(const Etcd__TxnResponse *answer, size_t n);
/* Whether the n-th was a put over an existing key; its prev_kv was asked for. */
bool etcd_txn_overwrote(const Etcd__TxnResponse *answer, size_t n);

#endif
