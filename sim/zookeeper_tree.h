/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What the members of a simulated ZooKeeper ensemble agree on: transactions, and the tree of nodes
 * and the sessions that they lead to.
 *
 * A transaction begins as a client's request. The leader prepares it: it decides whether the
 * request fails, which number a sequential node gets, and what the next version is. From then on it
 * never changes, and every member applies it to a tree of its own, at its own pace. A request that
 * fails is a transaction, too, which changes nothing. Memory is the world's.
 */
#ifndef STILE_SIM_ZOOKEEPER_TREE_H
#define STILE_SIM_ZOOKEEPER_TREE_H

#include <stdbool.h>

#include "engines/zookeeper/jute.h"
#include "engines/zookeeper/requests.h"

/* Codes that servers send and the engine has no name for. */
enum { ZK_BAD_ARGUMENTS = -8, ZK_API_ERROR = -100, ZK_NOT_EMPTY = -111 };

#define ZK_CONTAINER_OWNER INT64_MIN /* marks a container; clients see 0 */

/* bytes NULL: null, which is not the same as empty. */
struct zk_data {
    const char *bytes;
    size_t n;
};

struct zk_node {
    struct zk_node *parent, *next, *first; /* first of its children, the youngest */
    const char *name;
    struct zk_data data;
    struct jute_stat stat; /* cversion counts children that were created: see zk_node_stat() */
};

struct zk_live_session {
    struct zk_live_session *next;
    int64_t id;
    int32_t timeout_ms;
};

struct zk_tree {
    struct zk_node *root;
    struct zk_live_session *sessions;
    int64_t zxid; /* of the last transaction */
};

enum zk_op_kind {
    ZK_OP_CREATE,
    ZK_OP_DELETE,
    ZK_OP_SET,
    ZK_OP_DELETE_CONTAINER,
    ZK_OP_OPEN_SESSION,
    ZK_OP_CLOSE_SESSION,
};

struct zk_op {
    enum zk_op_kind kind;
    const char *path;
    struct zk_data data;
    int32_t mode;          /* enum jute_create_mode */
    int32_t version;       /* expected; once prepared, the new one */
    int32_t timeout_ms;    /* of a session */
    int rc;                /* prepared: why it fails */
    struct jute_stat stat; /* applied: of its node */
};

struct zk_txn {
    struct zk_txn *before; /* in the log */
    struct zk_txn *next;   /* among those that are proposed */
    int64_t zxid, session;
    int64_t time_ms; /* on the leader's clock */
    int rc;          /* the whole request failed */
    bool multi;
    unsigned acks; /* of members, by bits */
    size_t n;
    struct zk_op *ops;
    void *request; /* that waits for it; NULL: none */
};

void zk_tree_begin(struct zk_tree *tree);
void zk_tree_copy(struct zk_tree *to, const struct zk_tree *from);
/* NULL: there is none. */
struct zk_node *zk_tree_find(const struct zk_tree *tree, const char *path);
struct zk_live_session *zk_tree_session(const struct zk_tree *tree, int64_t id);
/* As clients see it. */
void zk_node_stat(struct jute_stat *stat, const struct zk_node *node);
/* "/" for the root. */
const char *zk_node_path(const struct zk_node *node);
/* fn sees every node behind its parent. */
typedef void zk_node_fn(struct zk_node *node, void *data);
void zk_tree_walk(struct zk_node *node, zk_node_fn *fn, void *data);

/* Against the state that all transactions before it lead to. zxid, session and time are set. */
void zk_txn_prepare(struct zk_txn *txn, const struct zk_tree *tree);

/* Once for each node that changes: type is that of the event for its own watches, and its parent's
 * children change with JUTE_EVENT_CREATED and JUTE_EVENT_DELETED. */
typedef void zk_changed_fn(void *data, enum jute_event type, const char *path);
void zk_txn_apply(struct zk_txn *txn, struct zk_tree *tree, zk_changed_fn *changed, void *data);

#endif
