/* How asking ends: granted, if wanted not before enough replicas have it, or failed. */
#include <stdio.h>
#include <string.h>

#include "engines/redis/redis.h"
#include "mutant.h"

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

static void tell_granted(struct redis_claim *part)
{
    struct claim *claim = claim_of(part);
    struct redis *redis = redis_of_part(part);
    stop_timer(part);
    part->standing = HOLDING;
    part->granted_ns = part->sent_ns;
    /* So that `stile break` is heard; a renewal would notice, too. */
    route_listen(redis, claim->name, claim->name_len, NULL);
    claim->engine->events->granted(claim, part->token, part->sent_ns, claim->ttl_ns);
}

static void on_replicated(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct redis_claim *part = data;
    struct redis *redis = redis_of_part(part);
    struct stile_error few;
    if (!err && reply->type == REDIS_REPLY_INTEGER && reply->integer >= redis->wait_replicas) {
        tell_granted(part);
        return;
    }
    if (err)
        error_copy(&few, err);
    else
        error_set(&few, STILE_REFUSED, 0, "only %lld of %u replicas have it (wait_replicas)",
                  reply->integer, redis->wait_replicas);
#ifdef MUTANT_REDIS_RESUME_RETRACTS
    part->resumed = false;
#endif
    if (part->resumed) {
        claim_fail_to_resume(part, &few);
    } else {
        claim_retract(part); /* here it is */
        claim_fail(part, &few);
    }
}

void claim_granted(struct redis_claim *part, uint64_t token)
{
    struct redis *redis = redis_of_part(part);
    struct stile_error err;
    char replicas[12], ms[12];
    part->token = token;
    if (redis->wait_replicas == 0) {
        tell_granted(part);
        return;
    }
    part->standing = REPLICATING;
    snprintf(replicas, sizeof replicas, "%u", redis->wait_replicas);
    snprintf(ms, sizeof ms, "%u", redis->wait_ms);
    struct conn_arg args[] = {CONN_TEXT("WAIT"), CONN_TEXT(replicas), CONN_TEXT(ms)};
    struct node *granted_by = redis->speaker;
#ifdef MUTANT_REDIS_WAITS_ELSEWHERE
    granted_by = &redis->home;
#endif
    if (conn_send_here(granted_by->asks, args, 3, on_replicated, part, &err)) {
        err.status = STILE_UNCERTAIN;
        if (part->resumed)
            claim_fail_to_resume(part, &err);
        else
            claim_fail(part, &err);
    }
}
