/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/zookeeper_tree.h"

#include <stdio.h>
#include <string.h>

#include "sim/world.h"

/* ---- finding ---- */

static struct zk_node *child_of(const struct zk_node *node, const char *name, size_t n)
{
    struct zk_node *child = node->first;
    while (child != NULL && (strlen(child->name) != n || memcmp(child->name, name, n) != 0))
        child = child->next;
    return child;
}

/* The empty path is the root, too, for those that read. */
static struct zk_node *find_part(const struct zk_tree *tree, const char *path, size_t n)
{
    bool absolute = path[0] == '/' || path[0] == '\0', open = n > 1 && path[n - 1] == '/';
    struct zk_node *node = absolute && !open ? tree->root : NULL;
    for (size_t at = 1; node != NULL && at < n;) {
        size_t len = 0;
        while (at + len < n && path[at + len] != '/')
            len++;
        node = child_of(node, path + at, len);
        at += len + 1;
    }
    return node;
}

struct zk_node *zk_tree_find(const struct zk_tree *tree, const char *path)
{
    return find_part(tree, path, strlen(path));
}

static struct zk_node *find_parent(const struct zk_tree *tree, const char *path)
{
    return find_part(tree, path, (size_t)(strrchr(path, '/') - path));
}

struct zk_live_session *zk_tree_session(const struct zk_tree *tree, int64_t id)
{
    struct zk_live_session *session = tree->sessions;
    while (session != NULL && session->id != id)
        session = session->next;
    return session;
}

/* Inside, only creations are counted; each of those that are no longer there was deleted as well.
 */
void zk_node_stat(struct jute_stat *stat, const struct zk_node *node)
{
    *stat = node->stat;
    for (const struct zk_node *child = node->first; child != NULL; child = child->next)
        stat->num_children++;
    stat->cversion = 2 * stat->cversion - stat->num_children;
    stat->data_length = (int32_t)node->data.n;
    if (stat->ephemeral_owner == ZK_CONTAINER_OWNER)
        stat->ephemeral_owner = 0;
}

const char *zk_node_path(const struct zk_node *node)
{
    if (node->parent == NULL)
        return "/";
    if (node->parent->parent == NULL)
        return world_print("/%s", node->name);
    return world_print("%s/%s", zk_node_path(node->parent), node->name);
}

void zk_tree_walk(struct zk_node *node, zk_node_fn *fn, void *data)
{
    fn(node, data);
    for (struct zk_node *child = node->first, *next; child != NULL; child = next) {
        next = child->next;
        zk_tree_walk(child, fn, data);
    }
}

/* ---- its life ---- */

static struct zk_node *add_child(struct zk_node *parent, const char *name)
{
    struct zk_node *node = world_alloc(sizeof *node);
    *node = (struct zk_node){.parent = parent, .next = parent->first, .name = name};
    parent->first = node;
    return node;
}

/* What every server begins with. */
void zk_tree_begin(struct zk_tree *tree)
{
    static const struct zk_data nothing = {"", 0};
    *tree = (struct zk_tree){.root = world_alloc(sizeof *tree->root)};
    tree->root->data = nothing;
    struct zk_node *own = add_child(tree->root, "zookeeper");
    own->data = add_child(own, "quota")->data = add_child(own, "config")->data = nothing;
}

static struct zk_node *copy_node(const struct zk_node *node, struct zk_node *parent)
{
    struct zk_node *copy = world_alloc(sizeof *copy), **last = &copy->first;
    *copy = *node;
    copy->parent = parent;
    copy->next = copy->first = NULL;
    for (const struct zk_node *child = node->first; child != NULL; child = child->next) {
        *last = copy_node(child, copy);
        last = &(*last)->next;
    }
    return copy;
}

void zk_tree_copy(struct zk_tree *to, const struct zk_tree *from)
{
    struct zk_live_session **last = &to->sessions;
    to->zxid = from->zxid;
    to->root = copy_node(from->root, NULL);
    for (const struct zk_live_session *each = from->sessions; each != NULL; each = each->next) {
        *last = world_alloc(sizeof **last);
        **last = *each;
        last = &(*last)->next;
    }
    *last = NULL;
}

/* ---- preparing ---- */

static bool is_part(const char *part, size_t n)
{
    return n > 0 && !(n == 1 && part[0] == '.') && !(n == 2 && part[0] == '.' && part[1] == '.');
}

/* What the engine and its test use of the rules. */
static bool is_path(const char *path)
{
    if (path[0] != '/')
        return false;
    for (const char *at = path; path[1] != '\0' && *at == '/';) {
        size_t n = strcspn(++at, "/");
        if (!is_part(at, n))
            return false;
        at += n;
    }
    return true;
}

static bool is_ephemeral(const struct zk_node *node)
{
    return node->stat.ephemeral_owner != 0 && node->stat.ephemeral_owner != ZK_CONTAINER_OWNER;
}

static int prepare_create(struct zk_op *op, const struct zk_tree *tree)
{
    const char *slash = strrchr(op->path, '/');
    if (slash == NULL)
        return ZK_BAD_ARGUMENTS;
    struct zk_node *parent = find_parent(tree, op->path);
    if (parent == NULL)
        return ZNONODE;
    if (op->mode == JUTE_EPHEMERAL_SEQUENTIAL)
        op->path = world_print("%s%010d", op->path, (int)parent->stat.cversion);
    if (!is_path(op->path))
        return ZK_BAD_ARGUMENTS;
    if (zk_tree_find(tree, op->path) != NULL)
        return ZNODEEXISTS;
    return is_ephemeral(parent) ? ZNOCHILDRENFOREPHEMERALS : ZOK;
}

static bool is_special(const char *path)
{
    return strcmp(path, "/") == 0 || strcmp(path, "/zookeeper") == 0 ||
           strcmp(path, "/zookeeper/quota") == 0 || strcmp(path, "/zookeeper/config") == 0;
}

static int check_version(struct zk_op *op, const struct zk_node *node)
{
    if (op->version != -1 && op->version != node->stat.version)
        return ZBADVERSION;
    op->version = (int32_t)((uint32_t)node->stat.version + 1);
    return ZOK;
}

static int prepare_delete(struct zk_op *op, const struct zk_tree *tree)
{
    if (strrchr(op->path, '/') == NULL || is_special(op->path))
        return ZK_BAD_ARGUMENTS;
    struct zk_node *node = zk_tree_find(tree, op->path);
    if (node == NULL)
        return ZNONODE;
    int rc = op->kind == ZK_OP_DELETE ? check_version(op, node) : ZOK;
    return rc == ZOK && node->first != NULL ? ZK_NOT_EMPTY : rc;
}

static int prepare_set(struct zk_op *op, const struct zk_tree *tree)
{
    if (!is_path(op->path))
        return ZK_BAD_ARGUMENTS;
    struct zk_node *node = zk_tree_find(tree, op->path);
    return node == NULL ? ZNONODE : check_version(op, node);
}

static int prepare(struct zk_op *op, const struct zk_tree *tree)
{
    switch (op->kind) {
    case ZK_OP_CREATE:
        return prepare_create(op, tree);
    case ZK_OP_SET:
        return prepare_set(op, tree);
    case ZK_OP_DELETE:
    case ZK_OP_DELETE_CONTAINER:
        return prepare_delete(op, tree);
    default:
        return ZOK;
    }
}

/* Operations see what those before them do. If one fails, those before it say that all is well and
 * those behind it that they were not tried; none is executed. */
static void prepare_multi(struct zk_txn *txn, const struct zk_tree *tree)
{
    struct zk_tree scratch;
    size_t failed = 0;
    zk_tree_copy(&scratch, tree);
    for (; failed < txn->n; failed++) {
        struct zk_txn one = {.zxid = txn->zxid, .session = txn->session, .n = 1};
        one.ops = &txn->ops[failed];
        one.ops->rc = prepare(one.ops, &scratch);
        if (one.ops->rc != ZOK)
            break;
        zk_txn_apply(&one, &scratch, NULL, NULL);
    }
    if (failed == txn->n)
        return;
    for (size_t i = failed + 1; i < txn->n; i++)
        txn->ops[i].rc = ZRUNTIMEINCONSISTENCY;
    txn->rc = ZK_API_ERROR;
}

void zk_txn_prepare(struct zk_txn *txn, const struct zk_tree *tree)
{
    if (txn->multi)
        prepare_multi(txn, tree);
    else
        txn->rc = prepare(txn->ops, tree);
}

/* ---- applying ---- */

struct application {
    const struct zk_txn *txn;
    struct zk_tree *tree;
    zk_changed_fn *changed;
    void *data;
};

static void report(const struct application *a, enum jute_event type, const char *path)
{
    if (a->changed != NULL)
        a->changed(a->data, type, path);
}

static int64_t owner_of(const struct zk_txn *txn, int32_t mode)
{
    if (mode == JUTE_CONTAINER)
        return ZK_CONTAINER_OWNER;
    return mode == JUTE_EPHEMERAL || mode == JUTE_EPHEMERAL_SEQUENTIAL ? txn->session : 0;
}

static void create(const struct application *a, struct zk_op *op)
{
    const struct zk_txn *txn = a->txn;
    struct zk_node *parent = find_parent(a->tree, op->path);
    struct zk_node *node = add_child(parent, strrchr(op->path, '/') + 1);
    node->data = op->data;
    node->stat = (struct jute_stat){.czxid = txn->zxid,
                                    .mzxid = txn->zxid,
                                    .pzxid = txn->zxid,
                                    .ctime = txn->time_ms,
                                    .mtime = txn->time_ms,
                                    .ephemeral_owner = owner_of(txn, op->mode)};
    parent->stat.cversion++;
    parent->stat.pzxid = txn->zxid;
    zk_node_stat(&op->stat, node);
    report(a, JUTE_EVENT_CREATED, op->path);
}

static void set(const struct application *a, struct zk_op *op)
{
    struct zk_node *node = zk_tree_find(a->tree, op->path);
    node->data = op->data;
    node->stat.version = op->version;
    node->stat.mzxid = a->txn->zxid;
    node->stat.mtime = a->txn->time_ms;
    zk_node_stat(&op->stat, node);
    report(a, JUTE_EVENT_CHANGED, op->path);
}

static void delete_node(const struct application *a, struct zk_node *node)
{
    const char *path = zk_node_path(node);
    struct zk_node **at = &node->parent->first;
    while (*at != node)
        at = &(*at)->next;
    *at = node->next;
    node->parent->stat.pzxid = a->txn->zxid;
    report(a, JUTE_EVENT_DELETED, path);
}

static void delete_if_owned(struct zk_node *node, void *data)
{
    const struct application *a = data;
    if (node->stat.ephemeral_owner == a->txn->session)
        delete_node(a, node);
}

static void open_session(const struct application *a, const struct zk_op *op)
{
    struct zk_live_session *session = world_alloc(sizeof *session);
    *session = (struct zk_live_session){a->tree->sessions, a->txn->session, op->timeout_ms};
    a->tree->sessions = session;
}

static void close_session(struct application *a)
{
    struct zk_live_session **at = &a->tree->sessions;
    while (*at != NULL && (*at)->id != a->txn->session)
        at = &(*at)->next;
    if (*at != NULL)
        *at = (*at)->next;
    zk_tree_walk(a->tree->root, delete_if_owned, a);
}

static void apply(struct application *a, struct zk_op *op)
{
    switch (op->kind) {
    case ZK_OP_CREATE:
        create(a, op);
        break;
    case ZK_OP_SET:
        set(a, op);
        break;
    case ZK_OP_DELETE:
    case ZK_OP_DELETE_CONTAINER:
        delete_node(a, zk_tree_find(a->tree, op->path));
        break;
    case ZK_OP_OPEN_SESSION:
        open_session(a, op);
        break;
    case ZK_OP_CLOSE_SESSION:
        close_session(a);
        break;
    }
}

void zk_txn_apply(struct zk_txn *txn, struct zk_tree *tree, zk_changed_fn *changed, void *data)
{
    struct application application = {txn, tree, changed, data};
    tree->zxid = txn->zxid;
    for (size_t i = 0; txn->rc == ZOK && i < txn->n; i++)
        apply(&application, &txn->ops[i]);
}
