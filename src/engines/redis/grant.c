/* How asking ends: granted, if wanted not before enough replicas have it, or failed. */
#include "engines/redis/redis.h"

/* ---- the end of a claim ---- */

static void stop_timer(struct redis_claim *part)
{
    struct loop *loop = claim_of(part)->engine->loop;
    if (part->has_timer) {
        loop_disarm(loop, &part->timer);
        loop_unreserve(loop, 1);
    }
    part->has_timer = false;
}

void claim_forget(struct redis_claim *part)
{
    replicas_forget(part);
    route_forget(redis_of_part(part), part);
    stop_timer(part);
    claim_unlist(part);
    part->standing = NOWHERE;
}

void claim_fail(struct redis_claim *part, const struct stile_error *err)
{
    struct claim *claim = claim_of(part);
    claim_forget(part);
    part->may_be_there = err->status == STILE_UNCERTAIN;
    claim->engine->events->failed(claim, err);
}

void claim_fail_to_resume(struct redis_claim *part, const struct stile_error *err)
{
    struct stile_error why;
    error_copy(&why, err);
    if (why.status == STILE_UNCERTAIN)
        why.status = STILE_UNREACHABLE;
    claim_fail(part, &why);
}

/* ---- granted ---- */

void claim_hold(struct redis_claim *part)
{
    struct claim *claim = claim_of(part);
    struct redis *redis = redis_of_part(part);
    stop_timer(part);
    part->standing = HOLDING;
    part->granted_ns = part->sent_ns - part->held_ns;
    /* So that `stile break` is heard; a renewal would notice, too. */
    route_listen(redis, claim->name, claim->name_len, NULL);
    claim->engine->events->granted(claim, part->token, part->sent_ns, claim->ttl_ns);
}

/* What is resumed was granted before: like a renewal it is done when the primary has done it. */
void claim_granted(struct redis_claim *part, uint64_t token)
{
    part->token = token;
    if (redis_of_part(part)->wait_replicas == 0 || part->resumed)
        claim_hold(part);
    else
        replicas_await(part);
}
