/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What etcd's KV service does with a store: Range, Put, DeleteRange and Txn, and their refusals.
 *
 * An answer is valid until etcd_answers_drop().
 */
#ifndef STILE_SIM_ETCD_KV_H
#define STILE_SIM_ETCD_KV_H

#include "engines/etcd/rpc.pb-c.h"
#include "sim/etcd_store.h"

/* Code and words are those of etcd 3.4. */
#define ETCD_REFUSALS(X)                                                                           \
    X(NONE, 0, "")                                                                                 \
    X(EMPTY_KEY, 3, "key is not provided")                                                         \
    X(KEY_NOT_FOUND, 3, "key not found")                                                           \
    X(TOO_MANY_OPS, 3, "too many operations in txn request")                                       \
    X(DUPLICATE_KEY, 3, "duplicate key given in txn request")                                      \
    X(COMPACTED, 11, "mvcc: required revision has been compacted")                                 \
    X(FUTURE, 11, "mvcc: required revision is a future revision")                                  \
    X(NO_LEASE, 5, "requested lease not found")                                                    \
    X(LEASE_EXISTS, 9, "lease already exists")                                                     \
    X(LEASE_TTL, 11, "too large lease TTL")                                                        \
    X(NO_AUTH, 9, "authentication is not enabled")                                                 \
    X(NO_LEADER, 14, "no leader")                                                                  \
    X(LEADER_CHANGED, 14, "leader changed")                                                        \
    X(TIMED_OUT, 14, "request timed out")                                                          \
    X(BUSY, 8, "too many requests")                                                                \
    X(WATCH_ENDED, 1, "watch canceled")                                                            \
    X(UNKNOWN, 12, "this is not simulated")

enum etcd_refusal {
#define ETCD_REFUSAL(name, code, words) REFUSED_##name,
    ETCD_REFUSALS(ETCD_REFUSAL)
#undef ETCD_REFUSAL
};

int etcd_refusal_code(enum etcd_refusal refusal);
const char *etcd_refusal_words(enum etcd_refusal refusal);

/* As of a revision: of the member that answers, which may lag. */
enum etcd_refusal etcd_kv_range(Etcd__RangeResponse **answer, const struct etcd_store *store,
                                int64_t revision, const Etcd__RangeRequest *request);
/* These change the store: commit afterwards, unless they were refused. */
enum etcd_refusal etcd_kv_put(Etcd__PutResponse **answer, struct etcd_store *store,
                              const Etcd__PutRequest *request);
enum etcd_refusal etcd_kv_delete(Etcd__DeleteResponse **answer, struct etcd_store *store,
                                 const Etcd__DeleteRequest *request);
/* revision 0: it may change the store, and reads its present state. */
enum etcd_refusal etcd_kv_txn(Etcd__TxnResponse **answer, struct etcd_store *store,
                              int64_t revision, const Etcd__TxnRequest *request);
/* What a member finds before it asks the others. */
enum etcd_refusal etcd_kv_check_txn(const Etcd__TxnRequest *request);
bool etcd_txn_only_reads(const Etcd__TxnRequest *request);

Etcd__Header *etcd_header(int64_t revision);
Etcd__KeyValue *etcd_key_value(const struct etcd_version *version, bool with_value);
/* Zeroed memory for the parts of an answer. */
void *etcd_answer_part(size_t size);
void etcd_answers_drop(void);

#endif
