/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* list, show and break: one question to all nodes, and what their answers come to. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/redis/inspect.h"
#include "engines/redlock/redlock.h"

/* What query->state points to: a poll or a listing. */
struct inquiry {
    void (*discard)(struct inquiry *inquiry);
};

struct poll;
typedef void poll_fn(struct poll *poll);

struct node_reply {
    struct poll *poll;
    bool answered;
    long long number; /* break */
    char *holder, *fence, **queue, *last;
    long long ms, age_ms;
    size_t n_queue;
};

struct poll {
    struct inquiry inquiry; /* first */
    struct redlock *redlock;
    poll_fn *fn; /* called once all have answered or failed; frees it */
    void *data;
    const char *name;
    unsigned pending;
    unsigned enough; /* so many answers will do */
    struct node_reply replies[NODES_MAX];
};

static void poll_free(struct poll *poll) /* fn is no longer called */
{
    for (unsigned i = 0; poll && i < poll->redlock->n; i++) {
        struct node_reply *one = &poll->replies[i];
        redis_conn_forget(poll->redlock->nodes[i].requests, one);
        free(one->holder);
        free(one->fence);
        free(one->last);
        for (size_t k = 0; k < one->n_queue; k++)
            free(one->queue[k]);
        free(one->queue);
    }
    free(poll);
}

static void poll_discard(struct inquiry *inquiry)
{
    poll_free((struct poll *)inquiry);
}

static unsigned poll_answering(const struct poll *poll)
{
    unsigned mask = 0;
    for (unsigned i = 0; i < poll->redlock->n; i++)
        mask |= poll->replies[i].answered ? 1u << i : 0;
    return mask;
}

static char *copy(const char *text)
{
    return text ? strdup(text) : NULL;
}

static void take_queue(struct node_reply *one, const redisReply *queue)
{
    one->queue = calloc(length_of(queue) + 1, sizeof *one->queue);
    for (size_t i = 0; one->queue && i < length_of(queue); i++) {
        const char *entry = text_at(queue, i);
        char *text = entry && strlen(entry) > OWNER_LEN ? strdup(entry) : NULL;
        if (text)
            one->queue[one->n_queue++] = text;
    }
}

static void on_reply(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct node_reply *one = data;
    struct poll *poll = one->poll;
    struct node *node = &poll->redlock->nodes[one - poll->replies];
    if (err) {
        redlock_node_failed(node, err);
    } else if (is_number(reply)) {
        one->answered = true;
        one->number = reply->integer;
    } else if (text_of(reply)) {
        one->answered = true;
        one->holder = text_of(reply)[0] ? copy(text_of(reply)) : NULL;
    } else if (is_array(element_at(reply, 4), 0)) {
        one->answered = true;
        one->holder = copy(text_at(reply, 0));
        one->ms = number_at(reply, 1);
        one->fence = copy(text_at(reply, 2));
        one->age_ms = number_at(reply, 3);
        one->last = copy(text_at(reply, 5));
        take_queue(one, element_at(reply, 4));
    }
    if (--poll->pending == 0 || __builtin_popcount(poll_answering(poll)) >= (int)poll->enough)
        poll->fn(poll);
}

/* One script for all nodes. */
struct question {
    const struct lua *script;
    const char *keys;                /* for redlock_call_keys() */
    const char *args[2 + NODES_MAX]; /* NULL: no more */
    unsigned enough;                 /* so many answers will do; the others may come, too */
};

/* NULL: out of memory, or no node can be asked. */
static struct poll *poll_start(struct redlock *redlock, const struct question *question,
                               const char *name, poll_fn *fn, void *data)
{
    struct poll *poll = calloc(1, sizeof *poll);
    struct keys keys;
    struct call call;
    if (!poll)
        return NULL;
    *poll = (struct poll){.inquiry.discard = poll_discard,
                          .redlock = redlock,
                          .fn = fn,
                          .data = data,
                          .name = name,
                          .enough = question->enough};
    redlock_keys_of(&keys, redlock, name, strlen(name));
    redlock_call_keys(&call, redlock, &keys, question->keys);
    for (size_t i = 0; i < 2 + NODES_MAX && question->args[i]; i++)
        redlock_call_add(&call, question->args[i]);
    for (unsigned i = 0; i < redlock->n; i++) {
        poll->replies[i].poll = poll;
        poll->pending += !redlock_call_send(&call, &redlock->nodes[i], question->script, on_reply,
                                            &poll->replies[i], NULL);
    }
    if (poll->pending)
        return poll;
    free(poll);
    return NULL;
}

/* ---- what the replies come to ---- */

/* The holder of most nodes: how many, and one of its replies. */
static unsigned most_held(const struct poll *poll, const struct node_reply **out)
{
    unsigned n = poll->redlock->n, most = 0;
    for (unsigned i = 0; i < n; i++) {
        const struct node_reply *one = &poll->replies[i];
        unsigned share = 0;
        for (unsigned k = 0; one->holder && k < n; k++) {
            const char *other = poll->replies[k].holder;
            share += other && strcmp(other, one->holder) == 0;
        }
        if (share > most) {
            most = share;
            *out = one;
        }
    }
    return most;
}

static const struct node_reply *longest_queue(const struct poll *poll)
{
    const struct node_reply *longest = &poll->replies[0];
    for (unsigned i = 1; i < poll->redlock->n; i++) {
        if (poll->replies[i].n_queue > longest->n_queue)
            longest = &poll->replies[i];
    }
    return longest;
}

/* The latest end among its keys. */
static int64_t expires_ms(const struct poll *poll, const char *holder)
{
    int64_t most = 0;
    for (unsigned i = 0; i < poll->redlock->n; i++) {
        const struct node_reply *one = &poll->replies[i];
        if (one->holder && strcmp(one->holder, holder) == 0)
            most = one->ms < 0 ? STILE_NO_DEADLINE : one->ms > most ? one->ms : most;
    }
    return most;
}

/* "token owner pid host command" of this holder; where nobody holds the lock, of the client that
 * had it last. */
static const struct node_reply *fence_of(const struct poll *poll, const char *holder)
{
    const struct node_reply *best = NULL;
    uint64_t highest = 0;
    for (unsigned i = 0; i < poll->redlock->n; i++) {
        const char *fence = poll->replies[i].fence;
        const char *owner = fence ? strchr(fence, ' ') : NULL;
        uint64_t token = fence ? strtoull(fence, NULL, 10) : 0;
        bool fits = owner && (holder[0] == '~' || strncmp(owner + 1, holder, OWNER_LEN) == 0);
        if (fits && (!best || token > highest)) {
            highest = token;
            best = &poll->replies[i];
        }
    }
    return best;
}

static void add_holder(struct view *view, const struct poll *poll, const char *holder)
{
    struct stile_claim_info *claim = &view->claims[view->n++];
    const struct node_reply *by = fence_of(poll, holder);
    char *text = redis_view_keep(view, by ? by->fence : "");
    uint64_t token = redis_view_take_number(&text);
    redis_view_take_word(&text);
    *claim = (struct stile_claim_info){.held = true,
                                       .ghost = holder[0] == '~',
                                       .token = token,
                                       .age_ms = AGE_UNKNOWN,
                                       .expires_ms = expires_ms(poll, holder),
                                       .owner = holder,
                                       .host = "",
                                       .command = ""};
    if (by) {
        claim->age_ms = by->age_ms > 0 ? by->age_ms : 0;
        redis_view_take_client(claim, text);
    }
}

static void add_waiter(struct view *view, const char *entry)
{
    struct stile_claim_info *claim = &view->claims[view->n++];
    char *text = redis_view_keep(view, entry);
    const char *owner = redis_view_take_word(&text);
    *claim = (struct stile_claim_info){
        .age_ms = AGE_UNKNOWN, .expires_ms = STILE_NO_DEADLINE, .owner = owner};
    redis_view_take_client(claim, text);
}

/* What the replies of the show script come to: a claim with a majority holds it. */
static enum stile_status poll_view(struct view *view, const struct poll *poll,
                                   struct stile_error *err)
{
    const struct redlock *redlock = poll->redlock;
    const struct node_reply *held = NULL, *queue = longest_queue(poll);
    unsigned answering = (unsigned)__builtin_popcount(poll_answering(poll));
    if (answering < redlock->majority)
        return redlock_nodes_explain(poll->redlock, poll_answering(poll), err);
    enum stile_status status = redis_view_init(view, poll->name, queue->n_queue + 1, err);
    if (status)
        return status;
    for (unsigned i = 0; i < redlock->n; i++) {
        const char *fence = poll->replies[i].fence;
        uint64_t token = fence && strchr(fence, ' ') ? strtoull(fence, NULL, 10) : 0;
        view->info.token = token > view->info.token ? token : view->info.token;
    }
    /* A node that can't be asked may belong to its majority. */
    if (most_held(poll, &held) + redlock->n - answering >= redlock->majority && held)
        add_holder(view, poll, held->holder);
    view->info.holders = view->n;
    for (size_t i = 0; i < queue->n_queue; i++)
        add_waiter(view, queue->queue[i]);
    view->info.waiters = view->n - view->info.holders;
    view->info.claims = view->claims;
    return STILE_OK;
}

/* ---- the end of a query ---- */

static void query_end(struct query *query, const struct stile_error *err)
{
    query->state = NULL;
    query->engine->events->done(query, err);
}

static void query_end_unasked(struct query *query)
{
    struct stile_error err;
    error_set(&err, STILE_NOMEM, 0, "no node can be asked: out of memory, or too much under way");
    query_end(query, &err);
}

/* ---- show and break ---- */

/* A node that was not in the majority of the last write may have the same holder's record without
 * its end. Only the end differs, which is 0 there, so the whole record is larger as a text. */
static bool is_later(uint64_t token, const char *text, uint64_t most, const char *latest)
{
    return token > most || (token == most && strcmp(text, latest) > 0);
}

/* "token record" with the largest token of those that answer, without the token; or "". */
static const char *last_record(const struct poll *poll)
{
    const char *latest = "";
    uint64_t most = 0;
    for (unsigned i = 0; i < poll->redlock->n; i++) {
        const char *last = poll->replies[i].last, *text = last ? strchr(last, ' ') : NULL;
        uint64_t token = text ? strtoull(last, NULL, 10) : 0;
        if (text && is_later(token, text + 1, most, latest)) {
            most = token;
            latest = text + 1;
        }
    }
    return latest;
}

static void on_shown(struct poll *poll)
{
    struct query *query = poll->data;
    struct stile_error err;
    struct view view = {0};
    enum stile_status status = poll_view(&view, poll, &err);
    const char *record = last_record(poll);
    if (!status) {
        query->engine->events->record(query, record, strlen(record));
        query->engine->events->info(query, &view.info);
    }
    redis_view_free(&view);
    poll_free(poll);
    query_end(query, status ? &err : NULL);
}

static struct poll *ask_show(struct redlock *redlock, const char *name, poll_fn *fn, void *data)
{
    struct question show = {.script = &redlock_script_show, .keys = "KQLF", .enough = redlock->n};
    return poll_start(redlock, &show, name, fn, data);
}

void redlock_show(struct engine *engine, struct query *query)
{
    query->state = ask_show(redlock_of(engine), query->name, on_shown, query);
    if (!query->state)
        query_end_unasked(query);
}

/* A break names the grants that it ends. One that reaches a node late finds another claim's key
 * there and leaves it: the next holder may have counted that vote already. */

static const char *why_not_broken(const struct query *query, unsigned others)
{
    if (others == 0)
        return "the lock is not held";
    return query->token ? "the grant with that token is over" : "that grant is over";
}

static void on_broken(struct poll *poll)
{
    struct query *query = poll->data;
    unsigned mask = poll_answering(poll), hits = 0, others = 0;
    struct stile_error err = {0};
    for (unsigned i = 0; i < poll->redlock->n; i++) {
        hits += poll->replies[i].answered && poll->replies[i].number == 1;
        others += poll->replies[i].answered && poll->replies[i].number == -1;
    }
    if (__builtin_popcount(mask) < (int)poll->redlock->majority)
        redlock_nodes_explain(poll->redlock, mask, &err);
    else if (hits == 0)
        error_set(&err, STILE_CONFLICT, 0, "%s", why_not_broken(query, others));
    poll_free(poll);
    query_end(query, err.status ? &err : NULL);
}

/* The holder is what a majority of the nodes shows. Where nothing has one, all that is in the way
 * goes. looked: NULL if the token says which grant it is. */
static struct poll *break_named(struct redlock *redlock, struct query *query,
                                const struct poll *looked)
{
    const struct node_reply *held = NULL;
    char token[24];
    snprintf(token, sizeof token, "%" PRIu64, query->token);
    struct question question = {.script = &redlock_script_break,
                                .keys = "KQBFN",
                                .args = {redlock->info, token},
                                .enough = redlock->n};
    if (looked && most_held(looked, &held) >= redlock->majority) {
        question.args[2] = held->holder;
    } else if (looked) {
        for (unsigned i = 0, n = 2; i < redlock->n; i++) {
            if (looked->replies[i].holder)
                question.args[n++] = looked->replies[i].holder;
        }
    }
    return poll_start(redlock, &question, query->name, on_broken, query);
}

static void on_looked(struct poll *poll)
{
    struct query *query = poll->data;
    struct redlock *redlock = poll->redlock;
    unsigned mask = poll_answering(poll);
    const struct node_reply *held = NULL;
    struct stile_error err = {0};
    query->state = NULL;
    if (__builtin_popcount(mask) < (int)redlock->majority)
        redlock_nodes_explain(redlock, mask, &err);
    else if (most_held(poll, &held) == 0)
        error_set(&err, STILE_CONFLICT, 0, "%s", why_not_broken(query, 0));
    else
        query->state = break_named(redlock, query, poll);
    poll_free(poll);
    if (err.status)
        query_end(query, &err);
    else if (!query->state)
        query_end_unasked(query);
}

/* What is silent is asked, but not waited for. */
static unsigned answers_expected(const struct redlock *redlock)
{
    unsigned n = redlock->n;
    for (unsigned i = 0; i < redlock->n; i++)
        n -= redlock->nodes[i].silent;
    return n < redlock->majority ? redlock->majority : n;
}

void redlock_break(struct engine *engine, struct query *query)
{
    struct redlock *redlock = redlock_of(engine);
    struct question look = {
        .script = &redlock_script_holder, .keys = "KF", .enough = answers_expected(redlock)};
    query->state = query->token ? break_named(redlock, query, NULL)
                                : poll_start(redlock, &look, query->name, on_looked, query);
    if (!query->state)
        query_end_unasked(query);
}

/* ---- the record of the last holder ---- */

/* On a majority, of which every later show() meets a node. */
static void on_recorded(struct poll *poll)
{
    struct query *query = poll->data;
    unsigned mask = poll_answering(poll);
    struct stile_error err = {0};
    if (__builtin_popcount(mask) < (int)poll->redlock->majority)
        redlock_nodes_explain(poll->redlock, mask, &err);
    poll_free(poll);
    query_end(query, err.status ? &err : NULL);
}

void redlock_record(struct engine *engine, struct query *query)
{
    struct redlock *redlock = redlock_of(engine);
    char token[24];
    snprintf(token, sizeof token, "%" PRIu64, query->token);
    struct question question = {.script = &redlock_script_history,
                                .keys = "L",
                                .args = {token, query->record},
                                .enough = redlock->majority};
    query->state = poll_start(redlock, &question, query->name, on_recorded, query);
    if (!query->state)
        query_end_unasked(query);
}

/* ---- list ---- */

struct scan {
    struct listing *listing;
    bool answered;
};

struct listing {
    struct inquiry inquiry; /* first */
    struct query *query;
    struct poll *poll; /* of the name that is being shown */
    struct names names;
    struct scan scans[NODES_MAX];
    unsigned scanning;
    size_t asked, shown;
    char pattern[PATTERN_ROOM(PREFIX_MAX, STILE_NAME_MAX)];
    struct stile_error error;
};

static void listing_free(struct listing *listing)
{
    struct redlock *redlock = redlock_of(listing->query->engine);
    for (unsigned i = 0; i < redlock->n; i++)
        redis_conn_forget(redlock->nodes[i].requests, &listing->scans[i]);
    poll_free(listing->poll);
    redis_names_free(&listing->names);
    free(listing);
}

static void listing_discard(struct inquiry *inquiry)
{
    listing_free((struct listing *)inquiry);
}

static void listing_end(struct listing *listing)
{
    struct query *query = listing->query;
    struct stile_error err = listing->error;
    listing_free(listing);
    query_end(query, err.status ? &err : NULL);
}

static void show_some(struct listing *listing);

static void on_listed(struct poll *poll)
{
    struct listing *listing = poll->data;
    struct stile_error err;
    struct view view = {0};
    if (poll_view(&view, poll, &err))
        error_copy(&listing->error, &err);
    else if (view.n > 0)
        listing->query->engine->events->info(listing->query, &view.info);
    redis_view_free(&view);
    poll_free(poll);
    listing->poll = NULL;
    if (++listing->shown == listing->asked)
        show_some(listing);
}

/* One name after the other: names are reported in order, and nodes differ in speed. */
static void show_some(struct listing *listing)
{
    struct redlock *redlock = redlock_of(listing->query->engine);
    if (listing->error.status || listing->asked == listing->names.n) {
        listing_end(listing);
        return;
    }
    const char *name = listing->names.names[listing->asked++];
    listing->poll = ask_show(redlock, name, on_listed, listing);
    if (!listing->poll) {
        error_set(&listing->error, STILE_NOMEM, 0, "out of memory");
        listing_end(listing);
    }
}

static void scan(struct scan *scan, const char *cursor);

static bool take_keys(struct listing *listing, const redisReply *keys)
{
    size_t prefix_len = strlen(redlock_of(listing->query->engine)->prefix);
    for (size_t i = 0; i < length_of(keys); i++) {
        const redisReply *key = element_at(keys, i);
        if (key->type != REDIS_REPLY_STRING || key->len <= prefix_len ||
            strlen(key->str) != key->len || key->len - prefix_len > STILE_NAME_MAX ||
            redis_key_is_derived(key->str, key->len))
            continue;
        if (!redis_names_add(&listing->names, key->str + prefix_len, key->len - prefix_len))
            return false;
    }
    return true;
}

static void scanned(struct listing *listing)
{
    struct redlock *redlock = redlock_of(listing->query->engine);
    unsigned mask = 0;
    if (--listing->scanning > 0)
        return;
    for (unsigned i = 0; i < redlock->n; i++)
        mask |= listing->scans[i].answered ? 1u << i : 0;
    if (!listing->error.status && __builtin_popcount(mask) < (int)redlock->majority)
        redlock_nodes_explain(redlock, mask, &listing->error);
    redis_names_sort(&listing->names);
    show_some(listing);
}

static void on_scanned(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct scan *at = data;
    struct listing *listing = at->listing;
    struct redlock *redlock = redlock_of(listing->query->engine);
    if (err) {
        redlock_node_failed(&redlock->nodes[at - listing->scans], err);
        scanned(listing);
        return;
    }
    bool sound = text_at(reply, 0) && is_array(element_at(reply, 1), 0);
    if (!sound)
        error_set(&listing->error, STILE_CORRUPT, 0, "a node's answer has an unexpected form");
    else if (!take_keys(listing, element_at(reply, 1)))
        error_set(&listing->error, STILE_NOMEM, 0, "too many names");
    else if (strcmp(text_at(reply, 0), "0") != 0) {
        scan(at, text_at(reply, 0));
        return;
    } else {
        at->answered = true;
    }
    scanned(listing);
}

static void scan(struct scan *at, const char *cursor)
{
    struct listing *listing = at->listing;
    struct redlock *redlock = redlock_of(listing->query->engine);
    struct conn_arg args[] = {CONN_TEXT("SCAN"),           CONN_TEXT(cursor),  CONN_TEXT("MATCH"),
                              CONN_TEXT(listing->pattern), CONN_TEXT("COUNT"), CONN_TEXT("512"),
                              CONN_TEXT("TYPE"),           CONN_TEXT("string")};
    if (redis_conn_send(redlock->nodes[at - listing->scans].requests, args,
                        sizeof args / sizeof *args, on_scanned, at, NULL))
        scanned(listing);
}

void redlock_list(struct engine *engine, struct query *query)
{
    struct redlock *redlock = redlock_of(engine);
    struct listing *listing = calloc(1, sizeof *listing);
    if (!listing) {
        query_end_unasked(query);
        return;
    }
    listing->inquiry.discard = listing_discard;
    listing->query = query;
    query->state = listing;
    redis_names_pattern(listing->pattern, redlock->prefix, query->name);
    listing->scanning = redlock->n + 1;
    for (unsigned i = 0; i < redlock->n; i++) {
        listing->scans[i].listing = listing;
        scan(&listing->scans[i], "0");
    }
    scanned(listing);
}

/* ---- cancelling ---- */

void redlock_inspect_cancel(struct engine *engine, struct query *query)
{
    struct inquiry *inquiry = query->state;
    (void)engine;
    query->state = NULL;
    inquiry->discard(inquiry);
}
