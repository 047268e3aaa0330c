/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What is sent to an etcd server: requests while they wait or are on the wire, transactions while
 * they are written, and what errors mean: a kind for the code, a status for core, and for users a
 * sentence that says what to do. */
#ifndef STILE_ETCD_REQUESTS_H
#define STILE_ETCD_REQUESTS_H

#include "base/error.h"
#include "engines/etcd/http2.h"
#include "engines/etcd/keys.h"
#include "engines/etcd/rpc.pb-c.h"
#include "engines/kit/link.h"

enum rpc {
    RPC_RANGE,
    RPC_PUT,
    RPC_TXN,
    RPC_LEASE_GRANT,
    RPC_LEASE_REVOKE,
    RPC_LEASE_TTL,
    RPC_AUTHENTICATE,
    RPC_STATUS,
    RPC_ALARM,
    RPC_MEMBER_LIST,
    RPC_LEASE_KEEP_ALIVE,
    RPC_WATCH,
};

struct rpc_class {
    const char *path;
    const ProtobufCMessageDescriptor *answer;
    bool alone; /* a member without a leader may answer it too */
    bool reads; /* it changes nothing: without an answer, nothing is in doubt */
};
extern const struct rpc_class etcd_rpc_classes[];

/* Once: the answer, or err. The answer is freed after the call. */
typedef void conn_fn(void *data, const ProtobufCMessage *answer, const struct stile_error *err);

/* ---- requests ---- */

struct conn;

struct request {
    struct link_request link; /* len: of bytes */
    struct h2_call call;
    struct conn *conn;
    enum rpc rpc;
    conn_fn *fn;
    bool own;   /* of the connection itself: identification or login */
    bool again; /* sent a second time, after a new login */
    ProtobufCMessage *answer;
    uint8_t bytes[];
};

/* NULL: out of memory. */
struct request *etcd_request_new(struct conn *conn, enum rpc rpc, const ProtobufCMessage *message);
void etcd_request_free(struct request *request);

/* ---- transactions: keys and values are borrowed until one is sent ---- */

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

void etcd_txn_if_created(struct txn *txn, const struct key *key, int64_t revision); /* 0: absent */
/* Created at this revision or before, or absent. */
void etcd_txn_if_not_after(struct txn *txn, const struct key *key, int64_t revision);
/* Created before this revision. */
void etcd_txn_if_before(struct txn *txn, const struct key *key, int64_t revision);
void etcd_txn_if_modified(struct txn *txn, const struct key *key, int64_t revision); /* 0: absent */
void etcd_txn_if_leased(struct txn *txn, const struct key *key, int64_t lease);
/* It exists, and its value is this one, or greater, or less, byte by byte. */
void etcd_txn_if_value(struct txn *txn, const struct key *key, const char *value);
void etcd_txn_if_value_above(struct txn *txn, const struct key *key, const char *value);
void etcd_txn_if_value_below(struct txn *txn, const struct key *key, const char *value);
void etcd_txn_if_none(struct txn *txn, const struct key *start, const struct key *end);

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

/* The n-th response, if it is to a range; else NULL. */
const Etcd__RangeResponse *etcd_txn_range_reply(const Etcd__TxnResponse *answer, size_t n);
/* Whether the n-th was a put over an existing key; its prev_kv was asked for. */
bool etcd_txn_overwrote(const Etcd__TxnResponse *answer, size_t n);

/* ---- errors ---- */

/* The native code of errors that the server has sent; errno's are below them. */
enum etcd_error {
    ETCD_ERROR_NONE,
    ETCD_ERROR_OTHER = 1 << 16,
    ETCD_ERROR_NO_LEADER, /* this member sees no leader; another one may */
    ETCD_ERROR_LEARNER,
    ETCD_ERROR_TIMED_OUT, /* it got no answer from the others */
    ETCD_ERROR_BUSY,
    ETCD_ERROR_NO_SPACE,
    ETCD_ERROR_NO_LEASE,
    ETCD_ERROR_LEASE_EXISTS,
    ETCD_ERROR_COMPACTED,
    ETCD_ERROR_TOKEN, /* the login is over */
    ETCD_ERROR_LOGIN,
    ETCD_ERROR_NO_AUTH, /* authentication is not enabled */
    ETCD_ERROR_DENIED,
    ETCD_ERROR_TOO_LONG, /* the answer; ask for less */
    ETCD_ERROR_OTHER_CLUSTER,
    ETCD_ERROR_PROXY, /* a proxy answers in place of the members */
};

/* Of a call that has ended. OK: it succeeded. */
enum stile_status etcd_error_explain(const struct h2_call *call, struct stile_error *err);

/* Of a request for keys that begin with "<prefix>\1stile/": a role for the names of locks alone
 * does not cover them. */
void etcd_error_explain_denied(struct stile_error *err, const char *prefix);

/* A repetition may succeed: no server was there, no answer came, or memory was short. */
bool etcd_error_is_temporary(const struct stile_error *err);

#endif
