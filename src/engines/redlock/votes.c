/* The votes of one claim: what is asked of each node, and what it says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/redlock/group.h"
#include "engines/redlock/redlock.h"

/* ---- counting ---- */

void votes_count(struct count *count, const struct redlock_claim *part)
{
    struct redlock *redlock = redlock_of_part((struct redlock_claim *)part);
    *count = (struct count){0};
    for (unsigned i = 0; i < redlock->n; i++) {
        enum answer answer = part->votes[i].answer;
        count->firm += answer == FIRM;
        count->mine += answer == FIRM || answer == MINE;
        count->taken += answer == TAKEN;
        count->apart += answer == APART;
        count->down += answer == DOWN;
        count->pending += part->votes[i].pending;
        count->awaited += part->votes[i].pending && !redlock->nodes[i].silent;
        if (answer == FIRM || answer == MINE || answer == TAKEN)
            count->answering |= 1u << i;
    }
}

bool votes_are_open(const struct count *count, unsigned majority)
{
    bool enough = count->mine + count->taken >= majority;
    return count->mine + count->pending >= majority && (count->awaited > 0 || !enough);
}

static bool same_holder(const struct vote *a, const struct vote *b)
{
    return a->answer == TAKEN && b->answer == TAKEN && strcmp(a->holder, b->holder) == 0;
}

unsigned votes_rival(const struct redlock_claim *part, const struct vote **out)
{
    unsigned n = redlock_of_part((struct redlock_claim *)part)->n, most = 0;
    *out = NULL;
    for (unsigned i = 0; i < n; i++) {
        const struct vote *vote = &part->votes[i];
        unsigned share = 0;
        if (vote->answer != TAKEN || vote->holder[0] == '\0')
            continue;
        for (unsigned k = 0; k < n; k++)
            share += same_holder(vote, &part->votes[k]);
        if (share > most || (share == most && strcmp(vote->holder, (*out)->holder) < 0)) {
            most = share;
            *out = vote;
        }
    }
    return most;
}

/* ---- what is sent ---- */

static uint64_t whole_ms(uint64_t ns)
{
    return (ns + NS_PER_MS - 1) / NS_PER_MS;
}

/* How long a key lives without us: the lease and lock-delay, or what is left of hold_at_least. */
uint64_t part_px(const struct claim *claim, uint64_t held_ns)
{
    uint64_t lease = claim->ttl_ns + claim->delay_ns;
    uint64_t hold = claim->hold_ns > held_ns ? claim->hold_ns - held_ns : 0;
    return whole_ms(lease > hold ? lease : hold);
}

void entry_write(char entry[ENTRY_MAX], const struct redlock *redlock, const char *owner)
{
    memcpy(entry, owner, OWNER_LEN);
    entry[OWNER_LEN] = ' ';
    strcpy(entry + OWNER_LEN + 1, redlock->info);
}

/* All that the requests of one claim have in common, written once for all nodes. */
struct letter {
    struct keys keys;
    char px[24], token[24], group[GROUP_MAX + 1], entry[ENTRY_MAX];
};

static void letter_write(struct letter *letter, struct redlock_claim *part)
{
    struct claim *claim = claim_of(part);
    struct redlock *redlock = redlock_of_part(part);
    keys_of(&letter->keys, redlock, claim->name, claim->name_len);
    snprintf(letter->px, sizeof letter->px, "%llu", (unsigned long long)part_px(claim, 0));
    snprintf(letter->token, sizeof letter->token, "%llu", (unsigned long long)part->token);
    strcpy(letter->group, part->group);
    entry_write(letter->entry, redlock, part->owner);
}

void vote_unasked(struct vote *vote)
{
    if (vote->pending)
        vote->touched |= !conn_cancel(node_of_vote(vote)->asks, vote);
    vote->pending = false;
}

void votes_clear(struct redlock_claim *part)
{
    unsigned n = redlock_of_part(part)->n;
    for (unsigned i = 0; i < n; i++) {
        vote_unasked(&part->votes[i]);
        part->votes[i] = (struct vote){.node = (unsigned char)i, .place = -1};
    }
}

/* ---- what comes back ---- */

static void take_failure(struct vote *vote, const struct stile_error *err)
{
    node_failed(node_of_vote(vote), err);
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

static void hear_group(struct vote *vote, const redisReply *reply)
{
    const char *texts[4];
    for (size_t i = 0; i < 4; i++)
        texts[i] = is_array(reply, i + 2) ? text_at(reply, i + 1) : NULL;
    group_hear(node_of_vote(vote), texts);
}

/* Numbers up to 2^53: Lua counts in doubles. */
static void take_answer(struct vote *vote, const redisReply *reply)
{
    struct stile_error strange;
    long long says = is_array(reply, 2) ? number_at(reply, 0) : SAYS_TAKEN;
    if (reply->type == REDIS_REPLY_STATUS) { /* SET, done */
        vote->answer = FIRM;
    } else if (reply->type == REDIS_REPLY_NIL || (is_array(reply, 2) && says == SAYS_TAKEN)) {
        take_taken(vote, reply);
    } else if (is_array(reply, 2) && says == SAYS_APART) {
        vote->answer = APART;
        hear_group(vote, reply);
    } else if (is_array(reply, 2) && (says == SAYS_MINE || says == SAYS_FIRM)) {
        vote->answer = says == SAYS_FIRM ? FIRM : MINE;
        vote->fence = token_at(reply, 1);
    } else {
        error_set(&strange, STILE_REFUSED, 0, "an answer of an unexpected form");
        take_failure(vote, &strange);
    }
}

static void take(struct vote *vote, const redisReply *reply, const struct stile_error *err)
{
    bool told = vote->told;
    vote->pending = vote->told = false;
    if (err)
        take_failure(vote, err);
    else
        take_answer(vote, reply);
    if (!err) {
        node_answered(node_of_vote(vote));
        vote->touched = true;
    }
    if (told && vote->answer == TAKEN)
        vote->answer = MINE; /* that was before the message, whose fence is kept */
}

static void on_answer(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct vote *vote = data;
    struct redlock_claim *part = part_of_vote(vote);
    bool told = vote->told;
    take(vote, reply, err);
    if (told && vote->answer == MINE && part->standing != ASKING && vote->fence < part->token)
        vote_firm_up(vote);
    part_weigh(part);
}

/* The age of what is resumed: hold_at_least counts from its grant. */
static void on_confirmed(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct vote *vote = data;
    struct redlock_claim *part = part_of_vote(vote);
    take(vote, reply, err);
    if (vote->answer == FIRM && is_array(reply, 3) && vote->fence > part->token) {
        uint64_t now_ns = loop_now(claim_of(part)->engine->loop);
        uint64_t age_ns = count_at(reply, 2) * NS_PER_MS;
        part->token = vote->fence;
        part->granted_ns = age_ns < now_ns ? now_ns - age_ns : 0;
    }
    part_weigh(part);
}

static void sent(struct vote *vote, enum stile_status status, const struct stile_error *err)
{
    vote->pending = !status;
    if (status)
        take_failure(vote, err);
}

/* ---- asking ---- */

/* Instead of asking a node that is not fit for it. What it is may have changed: it is looked at
 * again meanwhile. */
static bool is_left_out(struct vote *vote)
{
    struct node *node = node_of_vote(vote);
    struct stile_error err;
    if (node_may_vote(node, &err))
        return false;
    if (conn_is_up(node->asks))
        node_look_at(node);
    sent(vote, err.status, &err);
    return true;
}

/* The plain dialect's own words: what other clients of these nodes send, too. */
static void ask_barely(struct vote *vote, const struct letter *letter)
{
    struct stile_error err;
    struct redlock_claim *part = part_of_vote(vote);
    struct conn_arg args[] = {CONN_TEXT("SET"), letter->keys.key[KEY], {part->owner, OWNER_LEN},
                              CONN_TEXT("NX"),  CONN_TEXT("PX"),       CONN_TEXT(letter->px)};
    if (is_left_out(vote))
        return;
    sent(vote, conn_send(node_of_vote(vote)->asks, args, 6, on_answer, vote, &err), &err);
}

static void ask(struct vote *vote, const struct letter *letter, bool again)
{
    struct redlock_claim *part = part_of_vote(vote);
    struct node *node = node_of_vote(vote);
    struct redlock *redlock = node->redlock;
    struct stile_error err;
    struct call call;
    if (is_left_out(vote))
        return;
    /* Nobody is put in line before it can hear: the node would take it for dead. */
    bool wait = claim_of(part)->wait && node->hearing;
    script_keys(&call, redlock, &letter->keys, redlock->fenced ? "KFQN" : "KQ");
    script_add(&call, part->owner);
    script_add(&call, letter->px);
    if (redlock->fenced) {
        script_add(&call, letter->group);
        script_add(&call, letter->token);
    }
    script_add(&call, wait ? "1" : "0");
    script_add(&call, again && vote->lined ? "1" : "0"); /* else it need not be looked for */
    script_add(&call, letter->entry);
    vote->lined |= wait;
    sent(vote,
         script_send(&call, node, redlock->fenced ? &redlock_script_claim : &redlock_script_queue,
                     on_answer, vote, &err),
         &err);
}

/* The guess: if this handle's last token was the name's last, the next one is accepted at once. */
void votes_ask(struct redlock_claim *part, bool again)
{
    struct redlock *redlock = redlock_of_part(part);
    struct letter letter;
    part->token = part->last_token ? part->last_token + 1 : 0;
    strcpy(part->group, redlock->group);
    part->bare = !redlock->fenced && !again && !part->contended;
    letter_write(&letter, part);
    part->sent_ns = loop_now(redlock->engine.loop);
    for (unsigned i = 0; i < redlock->n; i++) {
        struct vote *vote = &part->votes[i];
        vote_unasked(vote);
        vote->answer = NOTHING;
        if (part->bare)
            ask_barely(vote, &letter);
        else
            ask(vote, &letter, again);
    }
}

void vote_ask(struct vote *vote, bool again)
{
    struct letter letter;
    letter_write(&letter, part_of_vote(vote));
    vote_unasked(vote);
    vote->answer = NOTHING;
    ask(vote, &letter, again);
}

/* ---- the votes: phase 2, or without fences the confirmation for the full time ---- */

static void firm_up(struct vote *vote, const struct letter *letter)
{
    struct redlock_claim *part = part_of_vote(vote);
    struct node *node = node_of_vote(vote);
    struct redlock *redlock = node->redlock;
    struct stile_error err;
    struct call call;
    script_keys(&call, redlock, &letter->keys, redlock->fenced ? "KFN" : "K");
    script_add(&call, part->owner);
    script_add(&call, letter->px);
    if (redlock->fenced) {
        script_add(&call, letter->group);
        script_add(&call, letter->token);
        script_add(&call, letter->entry);
    }
    vote_unasked(vote);
    vote->answer = NOTHING;
    if (is_left_out(vote))
        return;
    sent(vote,
         script_send(&call, node, redlock->fenced ? &redlock_script_fence : &redlock_script_confirm,
                     on_answer, vote, &err),
         &err);
}

/* Also where the answer is still to come: the request follows it on the same connection. */
void votes_firm_up(struct redlock_claim *part)
{
    struct redlock *redlock = redlock_of_part(part);
    struct letter letter;
    uint64_t highest = 0;
    for (unsigned i = 0; i < redlock->n; i++) {
        struct vote *vote = &part->votes[i];
        if ((vote->answer == MINE || vote->answer == FIRM) && vote->fence > highest)
            highest = vote->fence;
    }
    part->token = redlock->fenced ? highest + 1 : 0;
    strcpy(part->group, redlock->group);
    letter_write(&letter, part);
    part->sent_ns = loop_now(redlock->engine.loop);
    for (unsigned i = 0; i < redlock->n; i++) {
        struct vote *vote = &part->votes[i];
        if (vote->pending || vote->answer == MINE || vote->answer == FIRM)
            firm_up(vote, &letter);
    }
}

void vote_firm_up(struct vote *vote)
{
    struct letter letter;
    letter_write(&letter, part_of_vote(vote));
    firm_up(vote, &letter);
}

void votes_confirm(struct redlock_claim *part)
{
    struct redlock *redlock = redlock_of_part(part);
    struct stile_error err;
    struct letter letter;
    struct call call;
    letter_write(&letter, part);
    script_keys(&call, redlock, &letter.keys, "KFN");
    script_add(&call, part->owner);
    script_add(&call, letter.px);
    if (redlock->fenced)
        script_add(&call, redlock->group_id);
    part->sent_ns = loop_now(redlock->engine.loop);
    for (unsigned i = 0; i < redlock->n; i++) {
        struct vote *vote = &part->votes[i];
        if (is_left_out(vote))
            continue;
        sent(vote,
             script_send(&call, &redlock->nodes[i], &redlock_script_confirm, on_confirmed, vote,
                         &err),
             &err);
    }
}

/* ---- giving way ---- */

static void on_yielded(void *data, const redisReply *reply, const struct stile_error *err)
{
    (void)data, (void)reply, (void)err; /* if not, it ends by itself */
}

void vote_yield(struct vote *vote, const char *to)
{
    struct redlock_claim *part = part_of_vote(vote);
    struct node *node = node_of_vote(vote);
    struct letter letter;
    struct call call;
    letter_write(&letter, part);
    script_keys(&call, node->redlock, &letter.keys, "KQFN");
    script_add(&call, part->owner);
    script_add(&call, to);
    script_add(&call, letter.entry);
    vote->answer = TAKEN;
    vote->lined = true;
    vote->place = 0;
    vote->ms = 1000;
    snprintf(vote->holder, sizeof vote->holder, "%s", to);
    script_send(&call, node, &redlock_script_yield, on_yielded, node, NULL);
}
