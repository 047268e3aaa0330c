/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The votes of one claim: what is asked of each node, and its answers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/redlock/group.h"
#include "engines/redlock/redlock.h"

/* ---- counting ---- */

void redlock_votes_count(struct count *count, const struct redlock_claim *claim)
{
    struct redlock *redlock = redlock_of_claim((struct redlock_claim *)claim);
    *count = (struct count){0};
    for (unsigned i = 0; i < redlock->n; i++) {
        enum answer answer = claim->votes[i].answer;
        count->confirmed += answer == CONFIRMED;
        count->ours += answer == CONFIRMED || answer == OURS;
        count->taken += answer == TAKEN;
        count->other_epoch += answer == OTHER_EPOCH;
        count->down += answer == DOWN;
        count->pending += claim->votes[i].pending;
        count->awaited += claim->votes[i].pending && !redlock->nodes[i].silent;
        if (answer == CONFIRMED || answer == OURS || answer == TAKEN)
            count->answering |= 1u << i;
    }
}

bool redlock_votes_are_open(const struct count *count, unsigned majority)
{
    bool enough = count->ours + count->taken >= majority;
    return count->ours + count->pending >= majority && (count->awaited > 0 || !enough);
}

static bool same_holder(const struct vote *a, const struct vote *b)
{
    return a->answer == TAKEN && b->answer == TAKEN && strcmp(a->holder, b->holder) == 0;
}

unsigned redlock_votes_rival(const struct redlock_claim *claim, const struct vote **out)
{
    unsigned n = redlock_of_claim((struct redlock_claim *)claim)->n, most = 0;
    *out = NULL;
    for (unsigned i = 0; i < n; i++) {
        const struct vote *vote = &claim->votes[i];
        unsigned share = 0;
        if (vote->answer != TAKEN || vote->holder[0] == '\0')
            continue;
        for (unsigned k = 0; k < n; k++)
            share += same_holder(vote, &claim->votes[k]);
        if (share > most || (share == most && strcmp(vote->holder, (*out)->holder) < 0)) {
            most = share;
            *out = vote;
        }
    }
    return most;
}

/* ---- arguments ---- */

static uint64_t whole_ms(uint64_t ns)
{
    return (ns + NS_PER_MS - 1) / NS_PER_MS;
}

/* How long a key lives without us: the lease and lock-delay, or what is left of hold_at_least. */
uint64_t redlock_claim_px(const struct claim *base, uint64_t held_ns)
{
    uint64_t lease = base->ttl_ns + base->delay_ns;
    uint64_t hold = base->hold_ns > held_ns ? base->hold_ns - held_ns : 0;
    return whole_ms(lease > hold ? lease : hold);
}

void redlock_entry_write(char entry[ENTRY_MAX], const struct redlock *redlock, const char *owner)
{
    memcpy(entry, owner, OWNER_LEN);
    entry[OWNER_LEN] = ' ';
    strcpy(entry + OWNER_LEN + 1, redlock->info);
}

/* A handle that takes its name again and again has each node put `highest` so far ahead that most
 * of its grants need not write it. One that may be used once does not: the next one would guess
 * more. */
#define AHEAD 255

#define NUMBER_MAX 24

/* All that the requests of one claim have in common, written once for all nodes. */
struct round {
    conn_fn *fn;
    struct keys keys;
    char px[NUMBER_MAX], token[NUMBER_MAX], highest[NUMBER_MAX], group[GROUP_MAX + 1];
    char fence[NUMBER_MAX + ENTRY_MAX]; /* as the nodes store it: token, entry */
    const char *entry;                  /* the end of it */
};

static int number_write(char text[NUMBER_MAX], uint64_t number)
{
    return snprintf(text, NUMBER_MAX, "%llu", (unsigned long long)number);
}

static void round_write(struct round *round, struct redlock_claim *claim, conn_fn *fn)
{
    round->fn = fn;
    struct claim *base = redlock_base(claim);
    struct redlock *redlock = redlock_of_claim(claim);
    redlock_keys_of(&round->keys, redlock, base->name, base->name_len);
    number_write(round->px, redlock_claim_px(base, 0));
    number_write(round->highest, claim->token + (claim->last_token ? AHEAD : 0));
    strcpy(round->group, claim->group);
    int digits = number_write(round->token, claim->token);
    memcpy(round->fence, round->token, (size_t)digits);
    round->fence[digits] = ' ';
    redlock_entry_write(round->fence + digits + 1, redlock, claim->leased.owner);
    round->entry = round->fence + digits + 1;
}

void redlock_vote_cancel(struct vote *vote)
{
    if (vote->pending)
        vote->touched |= !redis_conn_cancel(node_of_vote(vote)->requests, vote);
    else if (vote->checking)
        redis_conn_cancel(node_of_vote(vote)->requests, vote);
    vote->pending = vote->checking = false;
}

void redlock_votes_clear(struct redlock_claim *claim)
{
    unsigned n = redlock_of_claim(claim)->n;
    for (unsigned i = 0; i < n; i++) {
        redlock_vote_cancel(&claim->votes[i]);
        claim->votes[i] = (struct vote){.node = (unsigned char)i, .place = -1};
    }
}

/* ---- answers ---- */

static void take_failure(struct vote *vote, const struct stile_error *err)
{
    redlock_node_failed(node_of_vote(vote), err);
    vote->answer = DOWN;
    vote->touched |= err->status == STILE_UNCERTAIN;
}

static void take_taken(struct vote *vote, const redisReply *reply)
{
    const char *holder = is_array(reply, 4) ? text_at(reply, 2) : NULL;
    vote->answer = TAKEN;
    vote->ms = holder ? number_at(reply, 1) : -1;
    vote->place = holder ? (int)number_at(reply, 3) : -1;
    snprintf(vote->holder, sizeof vote->holder, "%s", holder ? holder : "");
}

static void take_group(struct vote *vote, const redisReply *reply)
{
    const char *texts[4];
    for (size_t i = 0; i < 4; i++)
        texts[i] = is_array(reply, i + 2) ? text_at(reply, i + 1) : NULL;
    redlock_group_hear(node_of_vote(vote), texts);
}

static void take_token(struct vote *vote, enum answer answer, uint64_t token)
{
    vote->answer = answer;
    vote->fence = token;
    redlock_learn(node_of_vote(vote)->redlock, token);
}

/* Numbers up to 2^53: Lua counts in doubles. */
static void take_answer(struct vote *vote, const redisReply *reply)
{
    struct stile_error strange;
    long long says = is_array(reply, 2) ? number_at(reply, 0) : REPLY_TAKEN;
    if (reply->type == REDIS_REPLY_STATUS) { /* SET, done */
        vote->answer = CONFIRMED;
    } else if (is_token(reply)) {
        take_token(vote, CONFIRMED, (uint64_t)reply->integer);
    } else if (reply->type == REDIS_REPLY_NIL || (is_array(reply, 2) && says == REPLY_TAKEN)) {
        take_taken(vote, reply);
    } else if (is_array(reply, 2) && says == REPLY_OTHER_EPOCH) {
        vote->answer = OTHER_EPOCH;
        take_group(vote, reply);
    } else if (is_array(reply, 2) && (says == REPLY_OURS || says == REPLY_CONFIRMED)) {
        take_token(vote, says == REPLY_CONFIRMED ? CONFIRMED : OURS, token_at(reply, 1));
    } else {
        error_set(&strange, STILE_REFUSED, 0, "an answer of an unexpected form");
        take_failure(vote, &strange);
    }
}

bool redlock_vote_take(struct vote *vote, const redisReply *reply, const struct stile_error *err)
{
    bool pushed = vote->pushed;
    vote->pending = vote->pushed = false;
    if (err)
        take_failure(vote, err);
    else
        take_answer(vote, reply);
    if (!err) {
        redlock_node_answered(node_of_vote(vote));
        vote->touched = true;
    }
    if (pushed && vote->answer == TAKEN)
        vote->answer = OURS; /* the answer is older than the message, whose fence is kept */
    return pushed;
}

static void sent(struct vote *vote, enum stile_status status, const struct stile_error *err)
{
    vote->pending = !status;
    if (status)
        take_failure(vote, err);
}

/* ---- asking ---- */

/* A node that is not fit to vote is not asked. It is checked again meanwhile, as it may have
 * changed. */
static bool is_left_out(struct vote *vote)
{
    struct node *node = node_of_vote(vote);
    struct stile_error err;
    if (redlock_node_may_vote(node, &err))
        return false;
    if (redis_conn_is_up(node->requests))
        redlock_node_check(node);
    sent(vote, err.status, &err);
    return true;
}

/* The plain dialect: what other clients of these nodes send, too. */
static void ask_plainly(struct vote *vote, const struct round *round)
{
    struct stile_error err;
    struct redlock_claim *claim = claim_of_vote(vote);
    struct conn_arg args[] = {
        CONN_TEXT("SET"), round->keys.key[KEY], {claim->leased.owner, OWNER_LEN},
        CONN_TEXT("NX"),  CONN_TEXT("PX"),      CONN_TEXT(round->px)};
    if (is_left_out(vote))
        return;
    sent(vote, redis_conn_send(node_of_vote(vote)->requests, args, 6, round->fn, vote, &err), &err);
}

static void ask(struct vote *vote, const struct round *round, bool again)
{
    struct redlock_claim *claim = claim_of_vote(vote);
    struct node *node = node_of_vote(vote);
    struct redlock *redlock = node->redlock;
    struct stile_error err;
    struct call call;
    if (is_left_out(vote))
        return;
    /* Not queued before messages can arrive: the node would take the waiter for dead. */
    bool wait = redlock_base(claim)->wait && node->subscribed;
    redlock_call_keys(&call, redlock, &round->keys, redlock->fenced ? "KFQN" : "KQ");
    redlock_call_add(&call, claim->leased.owner);
    redlock_call_add(&call, round->px);
    if (redlock->fenced) {
        redlock_call_add(&call, round->group);
        redlock_call_add(&call, round->token);
    }
    redlock_call_add(&call, redlock->fenced ? round->fence : round->entry);
    redlock_call_add(&call, wait ? "1" : "0");
    redlock_call_add(&call, again && vote->queued ? "1" : "0"); /* else it can't be in the queue */
    if (redlock->fenced)
        redlock_call_add(&call, round->highest);
    vote->queued |= wait;
    sent(vote,
         redlock_call_send(&call, node,
                           redlock->fenced ? &redlock_script_claim : &redlock_script_queue,
                           round->fn, vote, &err),
         &err);
}

/* If this handle's last token was the name's last, the next one is accepted at once. Otherwise the
 * name may have no fence: then each node accepts what is larger than the fences of all its names.
 * Claims under way must not offer the same number, or the nodes would refuse all but one. */
static uint64_t guess(struct redlock *redlock, const struct redlock_claim *claim)
{
    if (claim->last_token)
        return claim->last_token + 1;
    return redlock->highest ? ++redlock->highest : 0;
}

void redlock_votes_ask(struct redlock_claim *claim, bool again, conn_fn *fn)
{
    struct redlock *redlock = redlock_of_claim(claim);
    struct round round;
    claim->token = redlock->fenced ? guess(redlock, claim) : 0;
    strcpy(claim->group, redlock->group);
    claim->plain = !redlock->fenced && !again && !claim->contended;
    round_write(&round, claim, fn);
    claim->sent_ns = loop_now(redlock->engine.loop);
    for (unsigned i = 0; i < redlock->n; i++) {
        struct vote *vote = &claim->votes[i];
        redlock_vote_cancel(vote);
        vote->answer = NO_ANSWER;
        if (claim->plain)
            ask_plainly(vote, &round);
        else
            ask(vote, &round, again);
    }
}

void redlock_vote_ask(struct vote *vote, bool again, conn_fn *fn)
{
    struct round round;
    round_write(&round, claim_of_vote(vote), fn);
    redlock_vote_cancel(vote);
    vote->answer = NO_ANSWER;
    ask(vote, &round, again);
}

/* ---- the votes: phase 2, or without fences the confirmation for the full time ---- */

static void send_phase2(struct vote *vote, const struct round *round)
{
    struct redlock_claim *claim = claim_of_vote(vote);
    struct node *node = node_of_vote(vote);
    struct redlock *redlock = node->redlock;
    struct stile_error err;
    struct call call;
    redlock_call_keys(&call, redlock, &round->keys, redlock->fenced ? "KFN" : "K");
    redlock_call_add(&call, claim->leased.owner);
    redlock_call_add(&call, round->px);
    if (redlock->fenced) {
        redlock_call_add(&call, round->group);
        redlock_call_add(&call, round->token);
        redlock_call_add(&call, round->fence);
    }
    redlock_vote_cancel(vote);
    vote->answer = NO_ANSWER;
    if (is_left_out(vote))
        return;
    sent(vote,
         redlock_call_send(&call, node,
                           redlock->fenced ? &redlock_script_fence : &redlock_script_confirm,
                           round->fn, vote, &err),
         &err);
}

/* Also where the answer is still to come: the request follows it on the same connection. */
void redlock_votes_phase2(struct redlock_claim *claim, conn_fn *fn)
{
    struct redlock *redlock = redlock_of_claim(claim);
    struct round round;
    uint64_t highest = 0;
    for (unsigned i = 0; i < redlock->n; i++) {
        struct vote *vote = &claim->votes[i];
        if ((vote->answer == OURS || vote->answer == CONFIRMED) && vote->fence > highest)
            highest = vote->fence;
    }
    claim->token = redlock->fenced ? highest + 1 : 0;
    strcpy(claim->group, redlock->group);
    round_write(&round, claim, fn);
    claim->sent_ns = loop_now(redlock->engine.loop);
    for (unsigned i = 0; i < redlock->n; i++) {
        struct vote *vote = &claim->votes[i];
        if (vote->pending || vote->answer == OURS || vote->answer == CONFIRMED)
            send_phase2(vote, &round);
    }
}

void redlock_vote_phase2(struct vote *vote, conn_fn *fn)
{
    struct round round;
    round_write(&round, claim_of_vote(vote), fn);
    send_phase2(vote, &round);
}

void redlock_votes_confirm(struct redlock_claim *claim, conn_fn *fn)
{
    struct redlock *redlock = redlock_of_claim(claim);
    struct stile_error err;
    struct round round;
    struct call call;
    round_write(&round, claim, fn);
    redlock_call_keys(&call, redlock, &round.keys, "KFN");
    redlock_call_add(&call, claim->leased.owner);
    redlock_call_add(&call, round.px);
    if (redlock->fenced)
        redlock_call_add(&call, redlock->group_id);
    claim->sent_ns = loop_now(redlock->engine.loop);
    for (unsigned i = 0; i < redlock->n; i++) {
        struct vote *vote = &claim->votes[i];
        if (is_left_out(vote))
            continue;
        sent(vote,
             redlock_call_send(&call, &redlock->nodes[i], &redlock_script_confirm, fn, vote, &err),
             &err);
    }
}

/* ---- checking ---- */

void redlock_vote_check(struct vote *vote, conn_fn *fn)
{
    struct redlock_claim *claim = claim_of_vote(vote);
    struct claim *base = redlock_base(claim);
    struct node *node = node_of_vote(vote);
    struct keys keys;
    struct call call;
    redlock_keys_of(&keys, node->redlock, base->name, base->name_len);
    redlock_call_keys(&call, node->redlock, &keys, "KB");
    redlock_call_add(&call, claim->leased.owner);
    redlock_vote_cancel(vote);
    vote->check_due = false;
    vote->checking = !redlock_call_send(&call, node, &redlock_script_check, fn, vote, NULL);
}

/* ---- giving way ---- */

static void on_yielded(void *data, const redisReply *reply, const struct stile_error *err)
{
    (void)data, (void)reply, (void)err; /* without it, the key expires */
}

void redlock_vote_yield(struct vote *vote, const char *to)
{
    struct redlock_claim *claim = claim_of_vote(vote);
    struct node *node = node_of_vote(vote);
    struct round round;
    struct call call;
    round_write(&round, claim, on_yielded);
    redlock_call_keys(&call, node->redlock, &round.keys, "KQFN");
    redlock_call_add(&call, claim->leased.owner);
    redlock_call_add(&call, to);
    redlock_call_add(&call, round.entry);
    vote->answer = TAKEN;
    vote->queued = true;
    vote->place = 0;
    vote->ms = 1000;
    snprintf(vote->holder, sizeof vote->holder, "%s", to);
    redlock_call_send(&call, node, &redlock_script_yield, on_yielded, node, NULL);
}
