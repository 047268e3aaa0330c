/* Leaving and renewing. */
#include <stdlib.h>

#include "engines/sql/lease.h"

#define SAY_AGAIN_NS      (20 * NS_PER_MS)
#define LEAVE_PATIENCE_NS (2500 * NS_PER_MS)

/* ---- leaving ---- */

static void left(struct lease *lease, const struct stile_error *err)
{
    struct claim *claim = claim_of_lease(lease);
    struct stile_error why = err ? *err : (struct stile_error){0};
    lease_forget(lease);
    lease->may_be_there = false;
    claim->engine->events->released(claim, err ? &why : NULL);
}

/* Repeated until answered or too late: the owner value makes that safe. */
static void unanswered(struct lease *lease, const struct lease_answer *a)
{
    struct loop *loop = lease->leases->engine->loop;
    uint64_t at = loop_now(loop) + (SAY_AGAIN_NS << (lease->tries < 5 ? lease->tries : 5));
    bool passing = a->err->status == STILE_UNREACHABLE || a->err->status == STILE_UNCERTAIN;
    lease->tries++;
    lease->may_be_there |= !a->undone; /* the one before may have done it */
    if (!passing || !lease->has_timer || at >= lease->give_up_ns)
        left(lease, a->err);
    else
        loop_arm(loop, &lease->timer, at);
}

void lease_released(struct lease *lease, const struct lease_answer *a)
{
    struct stile_error lost;
    if (a->err) {
        unanswered(lease, a);
    } else if (!lease->may_be_there && a->verdict != 't') {
        error_set(&lost, STILE_LOST, 0, "it was not ours any more");
        left(lease, &lost);
    } else {
        left(lease, NULL);
    }
}

static void say(struct lease *lease)
{
    struct stile_error err;
    bool unused = lease->may_be_there || claim_of_lease(lease)->unused;
    if (lease->leases->ops->release(lease, unused, &err))
        unanswered(lease, &(struct lease_answer){.err = &err, .undone = true});
}

static void say_again(struct timer *timer)
{
    say((struct lease *)((char *)timer - offsetof(struct lease, timer)));
}

void lease_release(struct engine *engine, struct claim *claim)
{
    struct leases *leases = leases_of(engine);
    struct lease *lease = lease_of(claim);
    struct loop *loop = engine->loop;
    bool held = lease->place == LEASE_OWNING;
    lease->leases = leases;
    lease_leave_batch(lease);
    leases->ops->forget(engine, lease);
    if (!lease->has_timer)
        lease->has_timer = loop_reserve(loop, 1) == 0;
    if (lease->has_timer)
        loop_disarm(loop, &lease->timer);
    lease->timer.fn = say_again;
    lease->tries = 0;
    lease->may_be_there = !held;
    lease->place = LEASE_GOING;
    lease->give_up_ns = loop_now(loop) + LEAVE_PATIENCE_NS;
    say(lease);
}

/* ---- renewing, many in one statement ---- */

void lease_leave_batch(struct lease *lease)
{
    struct lease_batch *batch = lease->batch;
    for (size_t i = 0; batch && i < batch->n; i++) {
        if (batch->of[i] == lease)
            batch->of[i] = NULL;
    }
    lease->batch = NULL;
}

static void unlink_batch(struct lease_batch *batch)
{
    struct lease_batch **at = &batch->leases->batches;
    while (*at && *at != batch)
        at = &(*at)->next;
    if (*at)
        *at = batch->next;
}

void lease_free_batches(struct leases *leases)
{
    while (leases->batches) {
        struct lease_batch *batch = leases->batches;
        leases->batches = batch->next;
        free(batch);
    }
}

static void answer_one(struct lease *lease, const struct lease_answer *a, bool kept)
{
    struct claim *claim = claim_of_lease(lease);
    const struct engine_events *events = claim->engine->events;
    struct stile_error err;
    lease->batch = NULL;
    if (a->err) {
        events->unknown(claim);
    } else if (kept) {
        events->renewed(claim, a->sent_ns, claim->ttl_ns);
    } else {
        error_set(&err, STILE_LOST, 0, "the database does not have it any more");
        events->lost(claim, &err);
    }
}

void lease_renewed(struct lease_batch *batch, const struct lease_answer *a,
                   bool (*kept)(const void *rows, const char *owner), const void *rows)
{
    unlink_batch(batch);
    for (size_t i = 0; i < batch->n; i++) {
        if (batch->of[i])
            answer_one(batch->of[i], a, !a->err && kept(rows, batch->of[i]->owner));
    }
    free(batch);
}

void lease_renew(struct engine *engine, struct claim *const *claims, size_t n)
{
    struct leases *leases = leases_of(engine);
    struct lease_batch *batch = malloc(sizeof *batch + n * sizeof *batch->of);
    bool sent = false;
    if (batch) {
        *batch = (struct lease_batch){.next = leases->batches, .leases = leases, .n = n};
        for (size_t i = 0; i < n; i++) {
            batch->of[i] = lease_of(claims[i]);
            batch->of[i]->batch = batch;
        }
        sent = leases->ops->renew(batch, NULL) == STILE_OK;
    }
    if (sent) {
        leases->batches = batch;
        return;
    }
    free(batch);
    for (size_t i = 0; i < n; i++) {
        lease_of(claims[i])->batch = NULL;
        engine->events->unknown(claims[i]);
    }
}
