/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Releasing, withdrawing and clearing away.
 *
 * A claim's node lives by a session that other claims keep alive, so it would not expire by itself:
 * core repeats the release until it is answered.
 *
 * A node whose creation was not answered has no known sequence number. It is searched for by the
 * GUID in its name, behind a sync: the present server may not have heard of it yet.
 *
 * The hold record of a claim is removed, or left as hold_at_least and lock-delay want it, before
 * its node goes. A record that stays is deleted when its time is over: by us while we live, else by
 * the client that finds it. */
#include <stdlib.h>
#include <string.h>

#include "engines/zookeeper/claims.h"

#define REMOVE_AGAIN_NS (1 * NS_PER_SEC)

static void send_release(struct zk_claim *zc);

/* ---- hold records that are due for removal ---- */

struct removal {
    struct removal *next;
    struct zk *zk;
    struct requester requester;
    struct timer timer;
    char path[];
};

static void removal_free(struct removal *removal)
{
    struct removal **at = &removal->zk->removals;
    struct loop *loop = removal->zk->engine.loop;
    while (*at != removal)
        at = &(*at)->next;
    *at = removal->next;
    zk_requester_forget(&removal->requester);
    loop_disarm(loop, &removal->timer);
    loop_unreserve(loop, 1);
    free(removal);
}

static void on_removed(struct requester *requester, const struct reply *reply)
{
    struct removal *removal = container_of(requester, struct removal, requester);
    struct loop *loop = removal->zk->engine.loop;
    if (zk_error_is_transient(reply->rc))
        loop_arm(loop, &removal->timer, loop_now(loop) + REMOVE_AGAIN_NS);
    else
        removal_free(removal);
}

static void on_removal_timer(struct timer *timer)
{
    struct removal *removal = container_of(timer, struct removal, timer);
    struct loop *loop = removal->zk->engine.loop;
    if (!zk_request_delete(removal->zk->main, &removal->requester, removal->path, on_removed))
        loop_arm(loop, timer, loop_now(loop) + REMOVE_AGAIN_NS);
}

/* Without memory the record is left to the client that finds it. */
static void schedule_removal(struct zk_claim *zc, uint64_t at_ns)
{
    struct zk *zk = zk_of_claim(zc);
    char path[PATH_ROOM];
    zk_claim_record_path(path, zc);
    struct removal *removal = malloc(sizeof *removal + strlen(path) + 1);
    if (!removal || loop_reserve(zk->engine.loop, 1)) {
        free(removal);
        return;
    }
    *removal = (struct removal){.next = zk->removals, .zk = zk, .timer.fn = on_removal_timer};
    strcpy(removal->path, path);
    zk->removals = removal;
    loop_arm(zk->engine.loop, &removal->timer, at_ns);
}

void zk_release_drop_record(struct zk_claim *zc)
{
    if (zc->record_state != RECORD_NONE)
        schedule_removal(zc, 0);
    zc->record_state = RECORD_NONE;
}

void zk_release_close(struct zk *zk)
{
    while (zk->removals)
        removal_free(zk->removals);
}

/* ---- the record of a claim that is released ---- */

/* Our clock may run 1 % faster than the server's. */
static uint64_t hold_ends_ns(struct zk_claim *zc)
{
    uint64_t hold_ns = core_claim(zc)->hold_ns;
    return zc->granted_ns + hold_ns + hold_ns / 100;
}

/* Removes the record, or leaves it as it should be. If record_state is not NONE then, fn gets the
 * reply. False: out of memory. */
static bool leave_record(struct zk_claim *zc, reply_fn *fn)
{
    const struct claim *claim = core_claim(zc);
    bool stays = zc->was_held && !claim->unused;
    bool delays = stays && claim->lost && claim->delay_ns;
    bool holds = stays && claim->hold_ns && loop_now(claim->engine->loop) < hold_ends_ns(zc);
    char path[PATH_ROOM], data[INFO_MAX];
    bool written = zc->record_state == RECORD_WRITTEN, sent = true;
    zk_claim_record_path(path, zc);
    zk_claim_record_data(data, zc, delays);
    if (!holds && !delays)
        sent = zk_request_delete(zc->session, &zc->requester, path, fn);
    else if (claim->delay_ns)
        sent = zk_request_set(zc->session, &zc->requester, path, data, delays ? 0 : -1, fn);
    else
        zc->record_state = RECORD_NONE; /* it already says what it should */
    if (sent && holds && !delays && written) {
        schedule_removal(zc, hold_ends_ns(zc));
        if (zc->record_state != RECORD_NONE)
            zc->record_state = RECORD_UNCERTAIN; /* a repeated release schedules no second one */
    }
    zc->in_flight += sent && zc->record_state != RECORD_NONE;
    return sent;
}

/* ---- results ---- */

static void finish(struct zk_claim *zc, const struct stile_error *err)
{
    struct claim *claim = core_claim(zc);
    zk_claim_forget(zc);
    claim->engine->events->released(claim, err);
}

/* Something of it may still exist: core calls release() again. */
static void fail_release(struct zk_claim *zc, int rc)
{
    struct claim *claim = core_claim(zc);
    struct stile_error err;
    zk_claim_move_to(zc, CLAIM_UNCERTAIN);
    zk_error_set(&err, rc, true);
    claim->engine->events->released(claim, &err);
}

/* The request about its record was sent before, so by now it is answered, or was lost. */
static void node_is_gone(struct zk_claim *zc, const struct stile_error *err)
{
    zk_claim_drop_node(zc);
    if (zc->record_state != RECORD_NONE)
        fail_release(zc, ZCONNECTIONLOSS);
    else
        finish(zc, err);
}

/* Its claims are continued by zk_queue_session_ended(). */
static bool is_ending(const struct zk_claim *zc)
{
    return zc->session->ending;
}

/* Nothing of it is left on the server. */
static bool has_nothing(const struct zk_claim *zc)
{
    return zc->node_state == NODE_NONE && zc->record_state == RECORD_NONE;
}

/* Once every request of the claim is answered, the release can't overtake one. */
static void drain(struct zk_claim *zc)
{
    if (zc->state == CLAIM_DRAINING && zc->in_flight == 0 && !is_ending(zc))
        send_release(zc);
}

/* ---- a node with a known path ---- */

static void on_deleted(struct requester *requester, const struct reply *reply)
{
    struct zk_claim *zc = claim_of_requester(requester);
    struct stile_error err;
    zc->in_flight--;
    if (is_ending(zc))
        return;
    if (zk_error_is_transient(reply->rc)) {
        if (reply->maybe)
            zc->node_state = NODE_DELETE_UNCERTAIN;
        fail_release(zc, reply->rc);
    } else if (reply->rc == ZNONODE && zc->was_held && zc->node_state == NODE_PRESENT) {
        error_set(&err, STILE_LOST, ZNONODE, "the lock was no longer held");
        node_is_gone(zc, &err);
    } else if (reply->rc == ZOK || reply->rc == ZNONODE) {
        zc->deleted = reply->rc == ZOK && zc->node_state == NODE_PRESENT;
        node_is_gone(zc, NULL);
    } else {
        fail_release(zc, reply->rc);
    }
}

/* ---- a node whose creation was not answered ---- */

/* *node is NULL if it does not exist. False: out of memory. */
static bool find_node(char **node, const char *path, const struct jute_strings *children,
                      const char *guid)
{
    *node = NULL;
    for (size_t i = 0; i < children->n; i++) {
        const char *child = children->list[i];
        enum stile_mode mode;
        if (!strstr(child, guid) || zk_record_guid(&mode, child))
            continue;
        *node = malloc(strlen(path) + strlen(child) + 2);
        if (*node)
            strcat(strcat(strcpy(*node, path), "/"), child);
        return *node != NULL;
    }
    return true;
}

static void on_listing(struct zk_claim *zc, const struct jute_strings *children)
{
    const struct claim *claim = core_claim(zc);
    char path[PATH_ROOM];
    zk_path_of_name(path, zk_of_claim(zc), claim->name, claim->name_len);
    if (!find_node(&zc->node, path, children, zc->guid)) {
        fail_release(zc, ZNOMEMORY);
    } else if (zc->node) {
        zc->node_state = NODE_PRESENT;
        send_release(zc);
    } else {
        node_is_gone(zc, NULL);
    }
}

static void on_searched(struct requester *requester, const struct reply *reply)
{
    struct zk_claim *zc = claim_of_requester(requester);
    zc->in_flight--;
    if (is_ending(zc))
        return;
    if (reply->rc == ZOK)
        on_listing(zc, reply->children);
    else if (reply->rc == ZNONODE)
        node_is_gone(zc, NULL);
    else
        fail_release(zc, reply->rc);
}

static void on_synced(struct requester *requester, const struct reply *reply)
{
    struct zk_claim *zc = claim_of_requester(requester);
    (void)reply; /* the listing behind it fails the same way */
    zc->in_flight--;
    drain(zc);
}

static bool search(struct zk_claim *zc)
{
    const struct claim *claim = core_claim(zc);
    char path[PATH_ROOM];
    zk_path_of_name(path, zk_of_claim(zc), claim->name, claim->name_len);
    bool synced = zk_request_sync(zc->session, &zc->requester, path, on_synced);
    zc->in_flight += synced;
    return synced && zk_request_children(zc->session, &zc->requester, path, NULL, on_searched);
}

/* ---- release() ---- */

static void on_record_left(struct requester *requester, const struct reply *reply)
{
    struct zk_claim *zc = claim_of_requester(requester);
    zc->in_flight--;
    if (is_ending(zc))
        return;
    zc->record_state = zk_error_is_transient(reply->rc) ? RECORD_UNCERTAIN : RECORD_NONE;
    drain(zc);
    if (zc->state != CLAIM_RELEASING || zc->node_state != NODE_NONE)
        return;
    if (zc->record_state != RECORD_NONE)
        fail_release(zc, reply->rc);
    else
        finish(zc, NULL);
}

static void send_release(struct zk_claim *zc)
{
    bool sent = true;
    zk_claim_move_to(zc, CLAIM_RELEASING);
    if (zc->record_state != RECORD_NONE)
        sent = leave_record(zc, on_record_left);
    if (has_nothing(zc)) {
        finish(zc, NULL);
        return;
    }
    if (sent && zc->node_state != NODE_NONE) {
        sent = zc->node
                   ? zk_request_delete_batched(zc->session, &zc->requester, zc->node, on_deleted)
                   : search(zc);
        zc->in_flight += sent;
    }
    if (!sent)
        fail_release(zc, ZNOMEMORY);
}

bool zk_release_owns_reply(struct zk_claim *zc)
{
    bool over = zc->state == CLAIM_UNCERTAIN || zc->state == CLAIM_DRAINING ||
                zc->state == CLAIM_RELEASING || is_ending(zc);
    zc->in_flight--;
    drain(zc);
    return over;
}

void zk_release(struct engine *engine, struct claim *claim)
{
    struct zk_claim *zc = zk_claim_of(claim);
    if (zc->state == CLAIM_IDLE) {
        engine->events->released(claim, NULL);
        return;
    }
    zk_claim_stop_waiting(zc);
    if (has_nothing(zc))
        finish(zc, NULL);
    else if (zc->in_flight == 0 && !is_ending(zc))
        send_release(zc);
    else
        zk_claim_move_to(zc, CLAIM_DRAINING);
}

/* ---- withdrawing: not first and not waiting, or refused ---- */

static void explain_refusal(struct stile_error *err, struct zk_claim *zc)
{
    char path[PATH_ROOM];
    zk_path_of_name(path, zk_of_claim(zc), core_claim(zc)->name, core_claim(zc)->name_len);
    if (zc->refusal == NUMBERS_USED_UP)
        error_set(err, STILE_REFUSED, 0,
                  "the server has nearly used up the sequence numbers below %.300s: stop claiming "
                  "this name for two minutes, so that the server removes the node, or delete it "
                  "by hand",
                  path);
    else
        error_set(err, STILE_REFUSED, 0,
                  "a persistent node below %.300s is named like a claim, and every claim behind "
                  "it would wait forever: delete it by hand",
                  path);
}

static void withdrawn(struct zk_claim *zc)
{
    struct claim *claim = core_claim(zc);
    bool refuse = zc->refusal != NOT_REFUSED;
    struct stile_error err;
    if (refuse)
        explain_refusal(&err, zc);
    zk_claim_forget(zc);
    if (refuse)
        claim->engine->events->failed(claim, &err);
    else
        claim->engine->events->busy(claim, 0);
}

static void on_withdrawn(struct requester *requester, const struct reply *reply)
{
    struct zk_claim *zc = claim_of_requester(requester);
    zc->in_flight--;
    if (is_ending(zc))
        return;
    if (zc->state == CLAIM_DRAINING)
        drain(zc);
    else if (zc->state != CLAIM_WITHDRAWING)
        return; /* it has failed meanwhile, and core is about to release it */
    else if (reply->rc == ZOK || reply->rc == ZNONODE) {
        zc->deleted = reply->rc == ZOK;
        withdrawn(zc);
    } else
        zk_claim_fail_code(zc, reply->rc, true);
}

void zk_release_withdraw(struct zk_claim *zc)
{
    zk_claim_move_to(zc, CLAIM_WITHDRAWING);
    if (zk_request_delete_batched(zc->session, &zc->requester, zc->node, on_withdrawn))
        zc->in_flight++;
    else
        zk_claim_fail_code(zc, ZNOMEMORY, true);
}

/* ---- the end of its session, and with it of its node ---- */

void zk_release_session_ended(struct zk_claim *zc)
{
    zk_claim_drop_node(zc);
    if (zc->state == CLAIM_DRAINING || zc->state == CLAIM_RELEASING)
        send_release(zc);
    else if (zc->state == CLAIM_WITHDRAWING)
        withdrawn(zc);
    /* else core is about to release it */
}
