/* Holding: a holder is told when its node goes, if it holds for longer than a moment. Most never
 * need a watch of their own. */
#include "engines/zookeeper/zookeeper.h"

#define FRESH_NS (100 * NS_PER_MS)

static void watch_own(struct zoo_claim *part);

void holding_unfresh(struct zoo_claim *part)
{
    if (!part->fresh_link)
        return;
    *part->fresh_link = part->fresh_next;
    if (part->fresh_next)
        part->fresh_next->fresh_link = part->fresh_link;
    else
        zoo_of_part(part)->fresh_tail = part->fresh_link;
    part->fresh_link = NULL;
}

static void lose(struct zoo_claim *part)
{
    struct claim *claim = claim_of(part);
    struct stile_error err;
    claim_unwatch(part);
    part->gone = true;
    error_set(&err, STILE_LOST, ZNONODE, "somebody has removed our node");
    claim->engine->events->lost(claim, &err);
}

static void on_own_event(struct asker *asker, int type)
{
    struct zoo_claim *part = part_of_asker(asker);
    if (part->standing != HOLDING)
        return;
    if (type == JUTE_EVENT_DELETED)
        lose(part);
    else
        watch_own(part);
}

static void watch_own_again(struct timer *timer)
{
    watch_own(part_of_timer(timer));
}

static void on_own_watched(struct asker *asker, const struct answer *answer)
{
    struct zoo_claim *part = part_of_asker(asker);
    if (claim_is_over(part) || part->standing != HOLDING)
        return;
    if (answer->rc == ZNONODE)
        lose(part);
    else if (answer->rc != ZOK)
        claim_again_later(part, watch_own_again);
    else
        part->tries = 0;
}

static void watch_own(struct zoo_claim *part)
{
    struct session *session = part->session;
    if (watcher_take(&part->watcher, session, 'g', part->node, &part->asker, on_own_event) &&
        ask_get(session, &part->asker, part->node, part->watcher, on_own_watched))
        part->in_flight++;
    else
        claim_again_later(part, watch_own_again);
}

void holding_watch_fresh(struct timer *timer)
{
    struct zoo *zoo = (struct zoo *)((char *)timer - offsetof(struct zoo, sweep));
    struct loop *loop = zoo->engine.loop;
    uint64_t now = loop_now(loop);
    while (zoo->fresh && zoo->fresh->granted_ns + FRESH_NS <= now) {
        struct zoo_claim *part = zoo->fresh;
        holding_unfresh(part);
        watch_own(part);
    }
    if (zoo->fresh)
        loop_arm(loop, timer, zoo->fresh->granted_ns + FRESH_NS);
}

static void be_fresh(struct zoo_claim *part)
{
    struct zoo *zoo = zoo_of_part(part);
    part->fresh_next = NULL;
    part->fresh_link = zoo->fresh_tail;
    *zoo->fresh_tail = part;
    zoo->fresh_tail = &part->fresh_next;
    if (!zoo->sweep.place)
        loop_arm(zoo->engine.loop, &zoo->sweep, part->granted_ns + FRESH_NS);
}

void holding_begin(struct zoo_claim *part)
{
    struct claim *claim = claim_of(part);
    claim_unwatch(part);
    part->standing = HOLDING;
    part->was_held = true;
    part->tries = 0;
    part->granted_ns = loop_now(claim->engine->loop);
    be_fresh(part);
    claim->engine->events->granted(claim, (uint64_t)part->czxid, part->session->told_ns,
                                   part->session->ttl_ns);
}
