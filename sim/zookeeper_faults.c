/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What happens to a simulated ZooKeeper ensemble: crashes, lost disks, operators. */
#include <inttypes.h>

#include "sim/zookeeper_reign.h"

void zk_ensemble_save(struct zk_ensemble *ensemble)
{
    const struct zk_member *leader = zk_ensemble_leader(ensemble);
    if (leader != NULL)
        zk_tree_copy(&ensemble->saved, &leader->tree);
}

/* What was not on its disk yet may be there nevertheless. */
void zk_member_crash(struct zk_member *member)
{
    world_trace("%s crashes", member->server->host);
    zk_member_stop_serving(member);
    if (random_once_in(&member->ensemble->random, 2) && zk_log_has(member->synced, member->applied))
        member->logged = member->synced;
    member->server->down = true;
    server_cut(member->server);
}

/* It reads its log first. */
void zk_member_restart(struct zk_member *member)
{
    world_trace("%s restarts", member->server->host);
    member->server->down = false;
    member->looks_ns =
        world_now() + random_between(&member->ensemble->random, ELECT_MIN_NS, ELECT_MAX_NS);
}

void zk_member_forget(struct zk_member *member)
{
    world_trace("%s loses its disk", member->server->host);
    member->logged = member->synced = member->applied = NULL;
    zk_tree_begin(&member->tree);
}

void zk_ensemble_move_leader(struct zk_ensemble *ensemble)
{
    struct zk_member *leader = zk_ensemble_leader(ensemble);
    if (leader == NULL || ensemble->n == 1)
        return;
    zk_member_stop_serving(leader);
    leader->looks_ns = world_now() + random_below(&ensemble->random, 2 * SEC);
}

void zk_ensemble_stop(struct zk_ensemble *ensemble)
{
    for (unsigned i = 0; i < ensemble->n; i++) {
        if (!ensemble->members[i].server->down)
            zk_member_crash(&ensemble->members[i]);
    }
}

void zk_ensemble_restore(struct zk_ensemble *ensemble, bool snapshot)
{
    zk_ensemble_stop(ensemble);
    ensemble->agreed = NULL;
    for (unsigned i = 0; i < ensemble->n; i++) {
        struct zk_member *member = &ensemble->members[i];
        zk_member_forget(member);
        if (snapshot)
            zk_tree_copy(&member->tree, &ensemble->saved);
        zk_member_restart(member);
    }
    ensemble->epoch = ensemble->members[0].tree.zxid >> 32;
    world_trace("the ensemble starts again from zxid %" PRIx64,
                (uint64_t)ensemble->members[0].tree.zxid);
}

struct chosen {
    unsigned left;
    const struct zk_node *node;
};

static void choose_node(struct zk_node *node, void *data)
{
    struct chosen *chosen = data;
    if (node->stat.ephemeral_owner > 0 && chosen->node == NULL && chosen->left-- == 0)
        chosen->node = node;
}

void zk_ensemble_delete_one(struct zk_ensemble *ensemble, unsigned n)
{
    const struct zk_member *leader = zk_ensemble_leader(ensemble);
    struct chosen chosen = {.left = n};
    if (leader == NULL)
        return;
    zk_tree_walk(leader->tree.root, choose_node, &chosen);
    if (chosen.node == NULL)
        return;
    const char *path = zk_node_path(chosen.node);
    world_trace("%s is deleted by hand", path);
    zk_reign_propose(leader->reign, zk_txn_new(ZK_OP_DELETE, 0, path));
}

void zk_ensemble_close_one(struct zk_ensemble *ensemble, unsigned n)
{
    const struct zk_member *leader = zk_ensemble_leader(ensemble);
    struct tracked *session = leader != NULL ? leader->reign->sessions : NULL;
    while (session != NULL && (session->closing || n-- > 0))
        session = session->next;
    if (session == NULL)
        return;
    world_trace("session %" PRIx64 " is closed by hand", (uint64_t)session->id);
    zk_reign_end_session(leader->reign, session);
}
