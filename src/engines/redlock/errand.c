/* Errands: giving back, withdrawing, clearing away, on all nodes. One script does all three. The
 * claim hears of it when a majority has answered; the errand goes on until all have, or for a
 * while: the owner value makes each request safe to repeat. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/redlock/redlock.h"
#include "mutant.h"

#define SAY_AGAIN_NS  (20 * NS_PER_MS)
#define PATIENCE_NS   (2500 * NS_PER_MS)
#define PATIENCE_LATE (10 * NS_PER_SEC) /* when nobody waits for it any more */
#define PARTING_NS    (500 * NS_PER_MS)
#define PARTING_MAX   (10 * NS_PER_SEC) /* while a node has still many to answer */

enum word {
    UNSAID,
    ON_ITS_WAY,
    OURS,
    NOT_OURS,
    UNTOUCHED, /* nothing of ours can be there */
    OVERDUE,   /* it comes behind all that was asked before, whenever that is */
};

struct step {
    unsigned char node, word;
    bool lined;
    bool in_doubt; /* it was said before, and perhaps done */
};

struct errand {
    struct errand *next, **at; /* at: what points to it */
    struct redlock *redlock;
    struct claim *claim; /* who wants to know; NULL: nobody (any more) */
    bool may_be_there;   /* what the nodes do not know was not ours to lose */
    bool has_timer;
    unsigned repeats;
    uint64_t until_ns;
    struct timer timer;
    char owner[OWNER_LEN + 1], left[24];
    struct step steps[NODES_MAX];
    size_t name_len;
    char name[];
};

static struct errand *errand_of_step(struct step *step)
{
    return (struct errand *)((char *)(step - step->node) - offsetof(struct errand, steps));
}

/* ---- the end ---- */

static void errand_free(struct errand *errand)
{
    struct redlock *redlock = errand->redlock;
    *errand->at = errand->next;
    if (errand->next)
        errand->next->at = errand->at;
    for (unsigned i = 0; i < redlock->n; i++) {
        if (errand->steps[i].word == ON_ITS_WAY)
            conn_forget(redlock->nodes[i].asks, &errand->steps[i]);
    }
    if (errand->has_timer) {
        loop_disarm(redlock->engine.loop, &errand->timer);
        loop_unreserve(redlock->engine.loop, 1);
    }
    free(errand);
}

void errands_free(struct redlock *redlock)
{
    while (redlock->errands)
        errand_free(redlock->errands);
}

/* A node that is connected reads what was sent to it, however late; one that never was has nothing
 * of ours. */
static bool is_owed(const struct errand *errand)
{
    for (unsigned i = 0; i < errand->redlock->n; i++) {
        const struct step *step = &errand->steps[i];
        const struct node *node = &errand->redlock->nodes[i];
        bool on_its_way =
            step->word == ON_ITS_WAY &&
            (!conn_is_up(node->asks) || (!node->silent && conn_is_behind(node->asks)));
        if (node->met && (step->word == UNSAID || on_its_way))
            return true;
    }
    return false;
}

static bool any_owed(const struct redlock *redlock)
{
    for (const struct errand *errand = redlock->errands; errand; errand = errand->next) {
        if (is_owed(errand))
            return true;
    }
    return false;
}

static bool any_behind(const struct redlock *redlock)
{
    bool any = false;
    for (unsigned i = 0; i < redlock->n; i++) {
        const struct node *node = &redlock->nodes[i];
        any |= conn_is_up(node->asks) && !node->silent && conn_is_behind(node->asks);
    }
    return any;
}

static void on_parting(struct timer *timer)
{
    (void)timer; /* it only wakes the loop */
}

void errands_finish(struct redlock *redlock)
{
    struct loop *loop = redlock->engine.loop;
    struct timer parting = {.fn = on_parting};
    uint64_t until_ns = loop_now(loop) + PARTING_NS, latest_ns = loop_now(loop) + PARTING_MAX;
    for (struct errand *errand = redlock->errands; errand; errand = errand->next)
        errand->claim = NULL; /* nobody wants to know any more */
    if (!any_owed(redlock) || loop_reserve(loop, 1))
        return;
    loop_arm(loop, &parting, until_ns);
    while (any_owed(redlock) && loop_now(loop) < until_ns) {
        if (any_behind(redlock) && loop_now(loop) + PARTING_NS < latest_ns)
            loop_arm(loop, &parting, until_ns = loop_now(loop) + PARTING_NS);
        loop_prepare(loop);
        loop_wait(loop, true);
        loop_run(loop);
    }
    loop_prepare(loop);
    loop_disarm(loop, &parting);
    loop_unreserve(loop, 1);
}

static void tell(struct errand *errand, const struct stile_error *err)
{
    struct claim *claim = errand->claim;
    errand->claim = NULL;
    if (claim)
        claim->engine->events->released(claim, err);
}

/* ---- how far it is ---- */

struct tally {
    unsigned unsaid, on_its_way, ours, not_ours, untouched, answering;
};

static void count(struct tally *tally, const struct errand *errand)
{
    *tally = (struct tally){0};
    for (unsigned i = 0; i < errand->redlock->n; i++) {
        enum word word = errand->steps[i].word;
        tally->unsaid += word == UNSAID;
        tally->on_its_way += word == ON_ITS_WAY;
        tally->ours += word == OURS;
        tally->not_ours += word == NOT_OURS;
        tally->untouched += word == UNTOUCHED;
        if (word == OURS || word == NOT_OURS)
            tally->answering |= 1u << i;
    }
}

/* True: the claim can be told, and err says what. */
static bool is_decided(const struct errand *errand, const struct tally *tally,
                       struct stile_error *err)
{
    unsigned majority = errand->redlock->majority;
    bool enough = tally->ours + tally->not_ours >= majority;
    err->status = STILE_OK;
    if (tally->ours >= majority)
        return true;
    if (errand->may_be_there && tally->ours + tally->not_ours + tally->untouched >= majority)
        return true;
    if (!enough || (tally->on_its_way && tally->not_ours < majority))
        return false;
    if (tally->ours == 0 || tally->not_ours >= majority)
        error_set(err, STILE_LOST, 0, "it was not ours any more");
    return true;
}

static void run(struct errand *errand);

static void go_on(struct errand *errand)
{
    struct redlock *redlock = errand->redlock;
    uint64_t now_ns = loop_now(redlock->engine.loop);
    struct stile_error err;
    struct tally tally;
    count(&tally, errand);
    bool late = now_ns >= errand->until_ns || !errand->has_timer;
    if (errand->claim && is_decided(errand, &tally, &err)) {
        errand->until_ns = now_ns + PATIENCE_LATE;
        tell(errand, err.status ? &err : NULL);
    } else if (errand->claim && tally.on_its_way == 0 && (late || tally.unsaid == 0)) {
        nodes_explain(redlock, tally.answering, &err);
        tell(errand, &err);
    }
    if (tally.on_its_way > 0)
        return;
    if (tally.unsaid == 0 || late) {
        errand_free(errand);
    } else if (!errand->timer.place) {
        unsigned shift = errand->repeats < 6 ? errand->repeats : 6;
        errand->repeats++;
        loop_arm(redlock->engine.loop, &errand->timer, now_ns + (SAY_AGAIN_NS << shift));
    }
}

static void on_timer(struct timer *timer)
{
    struct errand *errand = (struct errand *)((char *)timer - offsetof(struct errand, timer));
    run(errand);
    go_on(errand);
}

/* ---- saying it ---- */

static void on_released(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct step *step = data;
    struct errand *errand = errand_of_step(step);
    bool passing = err && (err->status == STILE_UNREACHABLE || err->status == STILE_UNCERTAIN);
    bool overdue = err && err->status == STILE_UNCERTAIN && err->native == ETIMEDOUT;
    if (err)
        node_failed(&errand->redlock->nodes[step->node], err);
    else
        node_answered(&errand->redlock->nodes[step->node]);
    bool done = !err && reply->type == REDIS_REPLY_INTEGER && reply->integer == 1;
    if (overdue)
        step->word = OVERDUE;
    else if (passing)
        step->word = UNSAID;
    else
        step->word = done || step->in_doubt ? OURS : NOT_OURS;
#ifndef MUTANT_REDLOCK_RELEASED_TWICE_IS_LOSS
    step->in_doubt |= err && err->status == STILE_UNCERTAIN;
#endif
    go_on(errand);
}

/* What is said to all nodes alike. */
struct words {
    struct keys keys;
    struct call call;
    char entry[ENTRY_MAX];
};

static void write_words(struct words *words, const struct errand *errand)
{
    keys_of(&words->keys, errand->redlock, errand->name, errand->name_len);
    entry_write(words->entry, errand->redlock, errand->owner);
    script_keys(&words->call, errand->redlock, &words->keys, "KQFN");
    script_add(&words->call, errand->owner);
    script_add(&words->call, errand->left);
}

static void say_to(const struct words *words, struct errand *errand, struct step *step)
{
    struct redlock *redlock = errand->redlock;
    struct call call = words->call;
    script_add(&call, step->lined ? words->entry : "");
    bool said = !script_send(&call, &redlock->nodes[step->node], &redlock_script_release,
                             on_released, step, NULL);
    step->word = said ? ON_ITS_WAY : UNSAID;
}

static struct errand *errand_new(struct redlock *redlock, const char *owner, const char *name,
                                 size_t name_len)
{
    struct errand *errand = calloc(1, sizeof *errand + name_len);
    if (!errand)
        return NULL;
    errand->redlock = redlock;
    errand->has_timer = loop_reserve(redlock->engine.loop, 1) == 0;
    errand->timer.fn = on_timer;
    errand->until_ns = loop_now(redlock->engine.loop) + PATIENCE_NS;
    errand->may_be_there = true;
    memcpy(errand->owner, owner, sizeof errand->owner);
    strcpy(errand->left, "0");
    memcpy(errand->name, name, name_len);
    errand->name_len = name_len;
    for (unsigned i = 0; i < redlock->n; i++)
        errand->steps[i].node = (unsigned char)i;
    errand->next = redlock->errands;
    errand->at = &redlock->errands;
    if (errand->next)
        errand->next->at = &errand->next;
    redlock->errands = errand;
    return errand;
}

static struct errand *errand_of_claim(struct redlock_claim *part)
{
    struct redlock *redlock = redlock_of_part(part);
    struct claim *claim = claim_of(part);
    struct errand *errand = errand_new(redlock, part->owner, claim->name, claim->name_len);
    for (unsigned i = 0; errand && i < redlock->n; i++) {
        const struct vote *vote = &part->votes[i];
        bool untouched = !vote->pending && !vote->touched;
        errand->steps[i].word = untouched ? UNTOUCHED : UNSAID;
        errand->steps[i].lined = part->votes[i].lined;
    }
    return errand;
}

static void run(struct errand *errand)
{
    struct words words;
    write_words(&words, errand);
    for (unsigned i = 0; i < errand->redlock->n; i++) {
        if (errand->steps[i].word == UNSAID)
            say_to(&words, errand, &errand->steps[i]);
    }
}

void errand_withdraw(struct redlock_claim *part)
{
    struct errand *errand = errand_of_claim(part);
    if (errand) {
        run(errand);
        go_on(errand);
    }
}

void errand_return(struct node *node, const char *owner, const char *name, size_t name_len)
{
    struct redlock *redlock = node->redlock;
    struct errand *errand = errand_new(redlock, owner, name, name_len);
    if (!errand)
        return;
    for (unsigned i = 0; i < redlock->n; i++)
        errand->steps[i].word = UNTOUCHED;
    errand->steps[node - redlock->nodes].word = UNSAID;
    run(errand);
    go_on(errand);
}

/* What is left of hold_at_least, counted from when we heard of the grant: rather too long than too
 * short. A lock-delay begins now. */
static void write_left(struct errand *errand, const struct redlock_claim *part,
                       const struct claim *claim)
{
    uint64_t held_ns = loop_now(claim->engine->loop) - part->granted_ns;
    uint64_t left_ns = claim->hold_ns > held_ns && !claim->unused ? claim->hold_ns - held_ns : 0;
#ifndef MUTANT_REDLOCK_LOSS_WITHOUT_DELAY
    if (claim->lost && claim->delay_ns > left_ns)
        left_ns = claim->delay_ns;
#endif
    if (part->standing == HOLDING)
        snprintf(errand->left, sizeof errand->left, "%llu",
                 (unsigned long long)((left_ns + NS_PER_MS - 1) / NS_PER_MS));
}

void redlock_release(struct engine *engine, struct claim *claim)
{
    struct redlock_claim *part = part_of(claim);
    struct errand *errand = errand_of_claim(part);
    struct stile_error err;
    part_leave_batch(part);
    if (errand) {
        errand->may_be_there = part->standing != HOLDING;
        write_left(errand, part, claim);
    }
    part_forget(part);
    if (!errand) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->released(claim, &err);
        return;
    }
    errand->claim = claim;
    run(errand);
    go_on(errand);
}
