/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A claim that is held: its node is watched once that lasts for longer than a moment. Most are
 * released before, and need no watch. */
#include "engines/zookeeper/claims.h"
#include "engines/zookeeper/marks.h"

#define RECENT_NS (100 * NS_PER_MS)

static void watch_own(struct zk_claim *zc);

static void lose(struct zk_claim *zc)
{
    struct claim *claim = core_claim(zc);
    struct stile_error err;
    zk_claim_stop_waiting(zc);
    zk_claim_drop_node(zc);
    zk_claim_move_to(zc, CLAIM_LOST);
    zk_marks_explain(zc->session, (uint64_t)zc->czxid, &err);
    claim->engine->events->lost(claim, &err);
}

static void on_own_event(struct requester *requester, int type)
{
    struct zk_claim *zc = claim_of_requester(requester);
    if (zc->state != CLAIM_HELD)
        return;
    if (type == JUTE_EVENT_DELETED)
        lose(zc);
    else
        watch_own(zc);
}

static void on_own_timer(struct timer *timer)
{
    watch_own(claim_of_timer(timer));
}

static void on_own_watched(struct requester *requester, const struct reply *reply)
{
    struct zk_claim *zc = claim_of_requester(requester);
    if (zk_release_owns_reply(zc) || zc->state != CLAIM_HELD)
        return;
    if (reply->rc == ZNONODE)
        lose(zc);
    else if (reply->rc != ZOK)
        zk_claim_retry_later(zc, on_own_timer);
    else
        zc->tries = 0;
}

static void watch_own(struct zk_claim *zc)
{
    struct session *session = zc->session;
    if (zk_watch_add(&zc->watch, session, 'g', zc->node, &zc->requester, on_own_event) &&
        zk_request_get(session, &zc->requester, zc->node, zc->watch, on_own_watched))
        zc->in_flight++;
    else
        zk_claim_retry_later(zc, on_own_timer);
}

void zk_held_watch_recent(struct timer *timer)
{
    struct zk *zk = container_of(timer, struct zk, recent_timer);
    struct loop *loop = zk->engine.loop;
    uint64_t now = loop_now(loop);
    while (zk->recent && zk->recent->granted_ns + RECENT_NS <= now) {
        struct zk_claim *zc = zk->recent;
        zk_claim_stop_waiting(zc);
        zk_marks_watch(zc->session);
        watch_own(zc);
    }
    if (zk->recent)
        loop_arm(loop, timer, zk->recent->granted_ns + RECENT_NS);
}

void zk_held_begin(struct zk_claim *zc)
{
    struct zk *zk = zk_of_claim(zc);
    zc->recent_next = NULL;
    zc->recent_link = zk->recent_tail;
    *zk->recent_tail = zc;
    zk->recent_tail = &zc->recent_next;
    if (!zk->recent_timer.place)
        loop_arm(zk->engine.loop, &zk->recent_timer, zc->granted_ns + RECENT_NS);
}
