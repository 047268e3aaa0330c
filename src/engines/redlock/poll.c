#include "engines/redlock/poll.h"

#include <stdlib.h>
#include <string.h>

void poll_free(struct poll *poll)
{
    for (unsigned i = 0; poll && i < poll->redlock->n; i++) {
        struct ballot *ballot = &poll->ballots[i];
        conn_forget(poll->redlock->nodes[i].asks, ballot);
        free(ballot->holder);
        free(ballot->fence);
        for (size_t k = 0; k < ballot->n_queue; k++)
            free(ballot->queue[k]);
        free(ballot->queue);
    }
    free(poll);
}

unsigned poll_answering(const struct poll *poll)
{
    unsigned mask = 0;
    for (unsigned i = 0; i < poll->redlock->n; i++)
        mask |= poll->ballots[i].answered ? 1u << i : 0;
    return mask;
}

static char *copy(const char *text)
{
    return text ? strdup(text) : NULL;
}

static void take_queue(struct ballot *ballot, const redisReply *queue)
{
    ballot->queue = calloc(length_of(queue) + 1, sizeof *ballot->queue);
    for (size_t i = 0; ballot->queue && i < length_of(queue); i++) {
        const char *entry = text_at(queue, i);
        char *text = entry && strlen(entry) > OWNER_LEN ? strdup(entry) : NULL;
        if (text)
            ballot->queue[ballot->n_queue++] = text;
    }
}

static void on_ballot(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct ballot *ballot = data;
    struct poll *poll = ballot->poll;
    struct node *node = &poll->redlock->nodes[ballot - poll->ballots];
    if (err) {
        node_failed(node, err);
    } else if (is_number(reply)) {
        ballot->answered = true;
        ballot->number = reply->integer;
    } else if (is_array(element_at(reply, 4), 0)) {
        ballot->answered = true;
        ballot->holder = copy(text_at(reply, 0));
        ballot->ms = number_at(reply, 1);
        ballot->fence = copy(text_at(reply, 2));
        ballot->age_ms = number_at(reply, 3);
        take_queue(ballot, element_at(reply, 4));
    }
    if (--poll->pending == 0)
        poll->fn(poll);
}

struct poll *poll_start(struct redlock *redlock, const struct lua *script, const char *name,
                        const char *arg, poll_fn *fn, void *data)
{
    struct poll *poll = calloc(1, sizeof *poll);
    struct keys keys;
    struct call call;
    if (!poll)
        return NULL;
    *poll = (struct poll){.redlock = redlock, .fn = fn, .data = data, .name = name};
    keys_of(&keys, redlock, name, strlen(name));
    script_keys(&call, redlock, &keys, "KQFN");
    if (arg)
        script_add(&call, arg);
    for (unsigned i = 0; i < redlock->n; i++) {
        poll->ballots[i].poll = poll;
        poll->pending +=
            !script_send(&call, &redlock->nodes[i], script, on_ballot, &poll->ballots[i], NULL);
    }
    if (poll->pending)
        return poll;
    free(poll);
    return NULL;
}

/* ---- what they say of a name ---- */

/* Who holds most nodes, and how many; one of its ballots. */
static unsigned most_held(const struct poll *poll, const struct ballot **out)
{
    unsigned n = poll->redlock->n, most = 0;
    for (unsigned i = 0; i < n; i++) {
        const struct ballot *ballot = &poll->ballots[i];
        unsigned share = 0;
        for (unsigned k = 0; ballot->holder && k < n; k++) {
            const char *other = poll->ballots[k].holder;
            share += other && strcmp(other, ballot->holder) == 0;
        }
        if (share > most) {
            most = share;
            *out = ballot;
        }
    }
    return most;
}

static const struct ballot *longest_queue(const struct poll *poll)
{
    const struct ballot *longest = &poll->ballots[0];
    for (unsigned i = 1; i < poll->redlock->n; i++) {
        if (poll->ballots[i].n_queue > longest->n_queue)
            longest = &poll->ballots[i];
    }
    return longest;
}

/* The last to expire of those that a majority needs. */
static int64_t expires_ms(const struct poll *poll, const char *holder)
{
    int64_t most = 0;
    for (unsigned i = 0; i < poll->redlock->n; i++) {
        const struct ballot *ballot = &poll->ballots[i];
        if (ballot->holder && strcmp(ballot->holder, holder) == 0)
            most = ballot->ms < 0 ? STILE_NO_DEADLINE : ballot->ms > most ? ballot->ms : most;
    }
    return most;
}

/* "token owner pid host command", where the owner is the holder, or where nobody is. */
static const struct ballot *fence_of(const struct poll *poll, const char *holder)
{
    const struct ballot *best = NULL;
    uint64_t highest = 0;
    for (unsigned i = 0; i < poll->redlock->n; i++) {
        const char *fence = poll->ballots[i].fence;
        const char *owner = fence ? strchr(fence, ' ') : NULL;
        uint64_t token = fence ? strtoull(fence, NULL, 10) : 0;
        bool fits = owner && (holder[0] == '~' || strncmp(owner + 1, holder, OWNER_LEN) == 0);
        if (fits && token > highest) {
            highest = token;
            best = &poll->ballots[i];
        }
    }
    return best;
}

static void add_holder(struct view *view, const struct poll *poll, const char *holder)
{
    struct stile_claim_info *claim = &view->claims[view->n++];
    const struct ballot *by = fence_of(poll, holder);
    char *text = view_keep(view, by ? by->fence : "");
    uint64_t token = view_take_number(&text);
    view_take_word(&text);
    *claim = (struct stile_claim_info){.held = true,
                                       .ghost = holder[0] == '~',
                                       .token = token,
                                       .expires_ms = expires_ms(poll, holder),
                                       .owner = holder,
                                       .host = "",
                                       .command = ""};
    if (by && !claim->ghost) {
        claim->age_ms = by->age_ms > 0 ? by->age_ms : 0;
        view_take_who(claim, text);
    }
}

static void add_waiter(struct view *view, const char *entry)
{
    struct stile_claim_info *claim = &view->claims[view->n++];
    char *text = view_keep(view, entry);
    const char *owner = view_take_word(&text);
    *claim = (struct stile_claim_info){.expires_ms = STILE_NO_DEADLINE, .owner = owner};
    view_take_who(claim, text);
}

enum stile_status poll_view(struct view *view, const struct poll *poll, struct stile_error *err)
{
    const struct redlock *redlock = poll->redlock;
    const struct ballot *held = NULL, *queue = longest_queue(poll);
    unsigned answering = (unsigned)__builtin_popcount(poll_answering(poll));
    if (answering < redlock->majority)
        return nodes_explain(poll->redlock, poll_answering(poll), err);
    enum stile_status status = view_init(view, poll->name, queue->n_queue + 1, err);
    if (status)
        return status;
    for (unsigned i = 0; i < redlock->n; i++) {
        const char *fence = poll->ballots[i].fence;
        uint64_t token = fence && strchr(fence, ' ') ? strtoull(fence, NULL, 10) : 0;
        view->info.token = token > view->info.token ? token : view->info.token;
    }
    /* A node that can't be asked may be of its majority. */
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

void query_end(struct query *query, const struct stile_error *err)
{
    query->state = NULL;
    query->engine->events->done(query, err);
}

void query_end_unasked(struct query *query)
{
    struct stile_error err;
    error_set(&err, STILE_NOMEM, 0, "no node can be asked: out of memory, or too much under way");
    query_end(query, &err);
}
