/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Releases and withdrawals: removing what a claim has on the nodes. One script does both.
 *
 * A removal has a copy of what it needs, so that the claim can be used again as soon as a majority
 * has answered. The removal goes on until all nodes have answered, or for a while: the owner value
 * makes each request safe to repeat. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/redlock/redlock.h"

#define REPEAT_NS     (20 * NS_PER_MS)
#define PATIENCE_NS   (2500 * NS_PER_MS)
#define PATIENCE_LATE (10 * NS_PER_SEC) /* once the claim has its answer */
#define CLOSING_NS    (500 * NS_PER_MS)
#define CLOSING_MAX   (10 * NS_PER_SEC) /* while a node still has many to answer */

enum step_state {
    UNSENT,
    SENT,
    REMOVED,
    WAS_NOT_OURS,
    UNTOUCHED, /* nothing of ours can be on the node */
    OVERDUE,   /* the node will execute it behind all earlier requests, however late */
};

/* On one node. */
struct step {
    unsigned char node, state;
    bool queued;
    bool in_doubt; /* an earlier request may have been executed */
};

struct removal {
    struct removal *next, **at; /* at: what points to it */
    struct redlock *redlock;
    struct claim *notify; /* its released() is to come; NULL: it came, or none is awaited */
    bool may_be_there;    /* a key that a node does not have is no loss */
    bool has_timer;
    unsigned repeats;
    uint64_t until_ns;
    struct timer timer;
    char owner[OWNER_LEN + 1], left[24], held[24]; /* ms; held: since the grant */
    uint64_t renewed_ns, lease_ns;
    unsigned lease_kind;     /* for link_leases_remove() */
    char reason[REASON_MAX]; /* why keys were no longer ours: the most exact one */
    struct step steps[NODES_MAX];
    size_t name_len;
    char name[];
};

static struct removal *removal_of_step(struct step *step)
{
    return container_of(step - step->node, struct removal, steps);
}

/* ---- the end ---- */

static void removal_free(struct removal *removal)
{
    struct redlock *redlock = removal->redlock;
    *removal->at = removal->next;
    if (removal->next)
        removal->next->at = removal->at;
    for (unsigned i = 0; i < redlock->n; i++) {
        if (removal->steps[i].state == SENT)
            redis_conn_forget(redlock->nodes[i].requests, &removal->steps[i]);
    }
    if (removal->has_timer) {
        loop_disarm(redlock->engine.loop, &removal->timer);
        loop_unreserve(redlock->engine.loop, 1);
    }
    link_leases_remove(&redlock->leases, removal->lease_kind);
    free(removal);
}

void redlock_removals_free(struct redlock *redlock)
{
    while (redlock->removals)
        removal_free(redlock->removals);
}

/* A node that is connected reads what was sent to it, however late; one that never was has nothing
 * of ours. */
static bool is_owed(const struct removal *removal)
{
    for (unsigned i = 0; i < removal->redlock->n; i++) {
        const struct step *step = &removal->steps[i];
        const struct node *node = &removal->redlock->nodes[i];
        bool sent =
            step->state == SENT && (!redis_conn_is_up(node->requests) ||
                                    (!node->silent && redis_conn_is_behind(node->requests)));
        if (node->was_connected && (step->state == UNSENT || sent))
            return true;
    }
    return false;
}

static bool any_owed(const struct redlock *redlock)
{
    for (const struct removal *removal = redlock->removals; removal; removal = removal->next) {
        if (is_owed(removal))
            return true;
    }
    return false;
}

static bool any_behind(const struct redlock *redlock)
{
    bool any = false;
    for (unsigned i = 0; i < redlock->n; i++) {
        const struct node *node = &redlock->nodes[i];
        any |= redis_conn_is_up(node->requests) && !node->silent &&
               redis_conn_is_behind(node->requests);
    }
    return any;
}

static void on_closing(struct timer *timer)
{
    (void)timer; /* it only wakes the loop */
}

void redlock_removals_finish(struct redlock *redlock)
{
    struct loop *loop = redlock->engine.loop;
    struct timer closing = {.fn = on_closing};
    uint64_t until_ns = loop_now(loop) + CLOSING_NS, latest_ns = loop_now(loop) + CLOSING_MAX;
    for (struct removal *removal = redlock->removals; removal; removal = removal->next)
        removal->notify = NULL;
    if (!any_owed(redlock) || loop_reserve(loop, 1))
        return;
    /* A node that has been back for a moment might not be tried again for two seconds. */
    for (unsigned i = 0; i < redlock->n; i++)
        redis_conn_hurry(redlock->nodes[i].requests);
    loop_arm(loop, &closing, until_ns);
    while (any_owed(redlock) && loop_now(loop) < until_ns) {
        if (any_behind(redlock) && loop_now(loop) + CLOSING_NS < latest_ns)
            loop_arm(loop, &closing, until_ns = loop_now(loop) + CLOSING_NS);
        loop_prepare(loop);
        loop_wait(loop, true);
        loop_run(loop);
    }
    loop_prepare(loop);
    loop_disarm(loop, &closing);
    loop_unreserve(loop, 1);
}

static void report_released(struct removal *removal, const struct stile_error *err)
{
    struct claim *base = removal->notify;
    removal->notify = NULL;
    if (base)
        base->engine->events->released(base, err);
}

/* ---- progress ---- */

struct tally {
    unsigned unsent, sent, ours, was_not_ours, untouched, answering;
};

static void count(struct tally *tally, const struct removal *removal)
{
    *tally = (struct tally){0};
    for (unsigned i = 0; i < removal->redlock->n; i++) {
        enum step_state state = removal->steps[i].state;
        tally->unsent += state == UNSENT;
        tally->sent += state == SENT;
        tally->ours += state == REMOVED;
        tally->was_not_ours += state == WAS_NOT_OURS;
        tally->untouched += state == UNTOUCHED;
        if (state == REMOVED || state == WAS_NOT_OURS)
            tally->answering |= 1u << i;
    }
}

static void explain_loss(const struct removal *removal, struct stile_error *err)
{
    uint64_t now_ns = loop_now(removal->redlock->engine.loop);
    char why[LOSS_MAX] = "the lock was no longer held";
    if (removal->reason[0])
        redis_loss_explain(why, removal->reason, now_ns - removal->renewed_ns, removal->lease_ns);
    error_set(err, STILE_LOST, 0, "%s", why);
}

/* True: the claim can have its answer, which err is. */
static bool is_decided(const struct removal *removal, const struct tally *tally,
                       struct stile_error *err)
{
    unsigned majority = removal->redlock->majority;
    bool enough = tally->ours + tally->was_not_ours >= majority;
    err->status = STILE_OK;
    if (tally->ours >= majority)
        return true;
    if (removal->may_be_there && tally->ours + tally->was_not_ours + tally->untouched >= majority)
        return true;
    if (!enough || (tally->sent && tally->was_not_ours < majority))
        return false;
    if (tally->ours == 0 || tally->was_not_ours >= majority)
        explain_loss(removal, err);
    return true;
}

static void send_unsent(struct removal *removal);

/* After each reply: reports to the claim, repeats, or ends. */
static void go_on(struct removal *removal)
{
    struct redlock *redlock = removal->redlock;
    uint64_t now_ns = loop_now(redlock->engine.loop);
    struct stile_error err;
    struct tally tally;
    count(&tally, removal);
    bool late = now_ns >= removal->until_ns || !removal->has_timer;
    if (removal->notify && is_decided(removal, &tally, &err)) {
        removal->until_ns = now_ns + PATIENCE_LATE;
        report_released(removal, err.status ? &err : NULL);
    } else if (removal->notify && tally.sent == 0 && (late || tally.unsent == 0)) {
        redlock_nodes_explain(redlock, tally.answering, &err);
        report_released(removal, &err);
    }
    if (tally.sent > 0)
        return;
    if (tally.unsent == 0 || late) {
        removal_free(removal);
    } else if (!removal->timer.place) {
        unsigned shift = removal->repeats < 6 ? removal->repeats : 6;
        removal->repeats++;
        loop_arm(redlock->engine.loop, &removal->timer, now_ns + (REPEAT_NS << shift));
    }
}

static void on_timer(struct timer *timer)
{
    struct removal *removal = container_of(timer, struct removal, timer);
    send_unsent(removal);
    go_on(removal);
}

/* ---- sending ---- */

static void on_released(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct step *step = data;
    struct removal *removal = removal_of_step(step);
    bool passing = err && (err->status == STILE_UNREACHABLE || err->status == STILE_UNCERTAIN);
    bool overdue = err && err->status == STILE_UNCERTAIN && err->native == ETIMEDOUT;
    if (err)
        redlock_node_failed(&removal->redlock->nodes[step->node], err);
    else
        redlock_node_answered(&removal->redlock->nodes[step->node]);
    bool done = !err && reply->type == REDIS_REPLY_INTEGER && reply->integer == 1;
    if (!err && text_of(reply) && redis_loss_is_more_exact(text_of(reply), removal->reason))
        snprintf(removal->reason, sizeof removal->reason, "%s", text_of(reply));
    if (overdue)
        step->state = OVERDUE;
    else if (passing)
        step->state = UNSENT;
    else
        step->state = done || step->in_doubt ? REMOVED : WAS_NOT_OURS;
    step->in_doubt |= err && err->status == STILE_UNCERTAIN;
    go_on(removal);
}

/* What the requests to all nodes have in common. */
struct common {
    struct keys keys;
    struct call call;
    char entry[ENTRY_MAX];
};

static void write_common(struct common *common, const struct removal *removal)
{
    redlock_keys_of(&common->keys, removal->redlock, removal->name, removal->name_len);
    redlock_entry_write(common->entry, removal->redlock, removal->owner);
    redlock_call_keys(&common->call, removal->redlock, &common->keys, "KQFN");
    redlock_call_add(&common->call, removal->owner);
}

static void send_to(const struct common *common, struct removal *removal, struct step *step)
{
    struct redlock *redlock = removal->redlock;
    struct call call = common->call;
    bool stays = strcmp(removal->left, "0") != 0;
    if (step->queued || stays)
        redlock_call_add(&call, step->queued ? common->entry : "");
    if (stays)
        redlock_call_add(&call, removal->left);
    if (stays && !redlock->fenced) {
        redlock_call_add(&call, removal->held);
        redlock_call_add(&call, redlock->info);
    }
    bool sent = !redlock_call_send(&call, &redlock->nodes[step->node], &redlock_script_release,
                                   on_released, step, NULL);
    step->state = sent ? SENT : UNSENT;
}

/* lease_ns: of the claim, counted as long as the removal goes on. Otherwise a connection that has
 * fallen silent would be given up so late that the release is reported as failed. */
static struct removal *removal_new(struct redlock *redlock, uint64_t lease_ns, const char *owner,
                                   const char *name, size_t name_len)
{
    struct removal *removal = calloc(1, sizeof *removal + name_len);
    if (!removal)
        return NULL;
    removal->redlock = redlock;
    removal->lease_kind = link_leases_add(&redlock->leases, lease_ns);
    removal->has_timer = loop_reserve(redlock->engine.loop, 1) == 0;
    removal->timer.fn = on_timer;
    removal->until_ns = loop_now(redlock->engine.loop) + PATIENCE_NS;
    removal->may_be_there = true;
    memcpy(removal->owner, owner, sizeof removal->owner);
    strcpy(removal->left, "0");
    memcpy(removal->name, name, name_len);
    removal->name_len = name_len;
    for (unsigned i = 0; i < redlock->n; i++)
        removal->steps[i].node = (unsigned char)i;
    removal->next = redlock->removals;
    removal->at = &redlock->removals;
    if (removal->next)
        removal->next->at = &removal->next;
    redlock->removals = removal;
    return removal;
}

static void send_unsent(struct removal *removal)
{
    struct common common;
    write_common(&common, removal);
    for (unsigned i = 0; i < removal->redlock->n; i++) {
        if (removal->steps[i].state == UNSENT)
            send_to(&common, removal, &removal->steps[i]);
    }
}

/* The rest of hold_at_least, counted from when we learned of the grant: rather too long than too
 * short. A lock-delay begins now. */
static void write_left(struct removal *removal, const struct redlock_claim *claim,
                       const struct claim *base)
{
    uint64_t held_ns = loop_now(base->engine->loop) - claim->granted_ns;
    uint64_t left_ns = base->hold_ns > held_ns && !base->unused ? base->hold_ns - held_ns : 0;
    if (base->lost && base->delay_ns > left_ns)
        left_ns = base->delay_ns;
    snprintf(removal->held, sizeof removal->held, "%llu",
             (unsigned long long)(held_ns / NS_PER_MS));
    if (claim->was_held)
        snprintf(removal->left, sizeof removal->left, "%llu",
                 (unsigned long long)((left_ns + NS_PER_MS - 1) / NS_PER_MS));
}

struct removal *redlock_removal_prepare(struct redlock_claim *claim)
{
    struct redlock *redlock = redlock_of_claim(claim);
    struct claim *base = redlock_base(claim);
    struct removal *removal =
        removal_new(redlock, base->ttl_ns, claim->leased.owner, base->name, base->name_len);
    if (!removal)
        return NULL;
    for (unsigned i = 0; i < redlock->n; i++) {
        const struct vote *vote = &claim->votes[i];
        bool untouched = !vote->pending && !vote->touched;
        removal->steps[i].state = untouched ? UNTOUCHED : UNSENT;
        removal->steps[i].queued = vote->queued;
    }
    removal->may_be_there = claim->state != HELD;
    removal->renewed_ns = claim->renewed_ns;
    removal->lease_ns = redlock_claim_px(base, 0) * NS_PER_MS;
    write_left(removal, claim, base);
    return removal;
}

void redlock_removal_start(struct removal *removal, struct claim *notify)
{
    removal->notify = notify;
    send_unsent(removal);
    go_on(removal);
}

void redlock_removal_withdraw(struct redlock_claim *claim)
{
    struct removal *removal = redlock_removal_prepare(claim);
    if (removal)
        redlock_removal_start(removal, NULL);
}

void redlock_removal_return(struct node *node, const char *owner, const char *name, size_t name_len)
{
    struct redlock *redlock = node->redlock;
    struct removal *removal = removal_new(redlock, UINT64_MAX, owner, name, name_len);
    if (!removal)
        return;
    for (unsigned i = 0; i < redlock->n; i++)
        removal->steps[i].state = UNTOUCHED;
    removal->steps[node - redlock->nodes].state = UNSENT;
    redlock_removal_start(removal, NULL);
}
