/* list: SCAN of all nodes for the names, then show of each. */
#include <stdlib.h>
#include <string.h>

#include "engines/redlock/poll.h"

struct scan {
    struct listing *listing;
    bool answered;
};

struct listing {
    struct query *query;
    struct names names;
    struct scan scans[NODES_MAX];
    unsigned scanning;
    size_t asked, told;
    char pattern[PATTERN_ROOM(PREFIX_MAX, STILE_NAME_MAX)];
    struct stile_error error;
};

static void listing_end(struct listing *listing)
{
    struct query *query = listing->query;
    struct stile_error err = listing->error;
    names_free(&listing->names);
    free(listing);
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
    view_free(&view);
    poll_free(poll);
    if (++listing->told == listing->asked)
        show_some(listing);
}

/* Their answers come in the order of the questions, or nearly so: nodes differ in speed. So one
 * after the other, as names are told in order. */
static void show_some(struct listing *listing)
{
    struct redlock *redlock = redlock_of(listing->query->engine);
    if (listing->error.status || listing->asked == listing->names.n) {
        listing_end(listing);
        return;
    }
    const char *name = listing->names.names[listing->asked++];
    if (!poll_start(redlock, &redlock_script_show, name, NULL, on_listed, listing)) {
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
            keys_derive(redlock_of(listing->query->engine), key->str, key->len))
            continue;
        if (!names_add(&listing->names, key->str + prefix_len, key->len - prefix_len))
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
        nodes_explain(redlock, mask, &listing->error);
    names_sort(&listing->names);
    show_some(listing);
}

static void on_scanned(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct scan *at = data;
    struct listing *listing = at->listing;
    struct redlock *redlock = redlock_of(listing->query->engine);
    if (err) {
        node_failed(&redlock->nodes[at - listing->scans], err);
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
    if (conn_send(redlock->nodes[at - listing->scans].asks, args, sizeof args / sizeof *args,
                  on_scanned, at, NULL))
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
    listing->query = query;
    names_pattern(listing->pattern, redlock->prefix, query->name);
    listing->scanning = redlock->n + 1;
    for (unsigned i = 0; i < redlock->n; i++) {
        listing->scans[i].listing = listing;
        scan(&listing->scans[i], "0");
    }
    scanned(listing);
}
