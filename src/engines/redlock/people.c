/* show, watch and break. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/redlock/poll.h"

#define WATCH_NS (100 * NS_PER_MS)

/* ---- show and break ---- */

static void on_shown(struct poll *poll)
{
    struct query *query = poll->data;
    struct stile_error err;
    struct view view = {0};
    enum stile_status status = poll_view(&view, poll, &err);
    if (!status)
        query->engine->events->info(query, &view.info);
    view_free(&view);
    poll_free(poll);
    query_end(query, status ? &err : NULL);
}

void redlock_show(struct engine *engine, struct query *query)
{
    struct redlock *redlock = redlock_of(engine);
    if (!poll_start(redlock, &redlock_script_show, query->name, NULL, on_shown, query))
        query_end_unasked(query);
}

static void on_broken(struct poll *poll)
{
    struct query *query = poll->data;
    unsigned mask = poll_answering(poll), hits = 0, others = 0;
    struct stile_error err = {0};
    for (unsigned i = 0; i < poll->redlock->n; i++) {
        hits += poll->ballots[i].answered && poll->ballots[i].number == 1;
        others += poll->ballots[i].answered && poll->ballots[i].number == -1;
    }
    if (__builtin_popcount(mask) < (int)poll->redlock->majority)
        nodes_explain(poll->redlock, mask, &err);
    else if (hits == 0)
        error_set(&err, STILE_CONFLICT, 0,
                  others ? "the grant with that token is over" : "it isn't held");
    poll_free(poll);
    query_end(query, err.status ? &err : NULL);
}

void redlock_break(struct engine *engine, struct query *query)
{
    struct redlock *redlock = redlock_of(engine);
    char token[24];
    snprintf(token, sizeof token, "%" PRIu64, query->token);
    if (!poll_start(redlock, &redlock_script_break, query->name, token, on_broken, query))
        query_end_unasked(query);
}

/* ---- watch: a look ten times a second, told if something has changed ---- */

struct watching {
    struct query *query;
    struct poll *poll;
    struct timer timer;
    uint64_t seen;
};

static void watching_free(struct watching *watching)
{
    struct engine *engine = watching->query->engine;
    poll_free(watching->poll);
    loop_disarm(engine->loop, &watching->timer);
    loop_unreserve(engine->loop, 1);
    watching->query->state = NULL;
    free(watching);
}

static void on_watched(struct poll *poll)
{
    struct watching *watching = poll->data;
    struct query *query = watching->query;
    struct loop *loop = query->engine->loop;
    struct stile_error err;
    struct view view = {0};
    enum stile_status status = poll_view(&view, poll, &err);
    if (status && status != STILE_UNREACHABLE) {
        view_free(&view);
        watching_free(watching);
        query->engine->events->done(query, &err);
        return;
    }
    loop_arm(loop, &watching->timer, loop_now(loop) + WATCH_NS);
    uint64_t seen = view_fingerprint(&view.info);
    bool changed = !status && seen != watching->seen;
    watching->seen = changed ? seen : watching->seen;
    watching->poll = NULL;
    if (changed)
        query->engine->events->info(query, &view.info);
    view_free(&view);
    poll_free(poll);
}

static void look(struct timer *timer)
{
    struct watching *watching =
        (struct watching *)((char *)timer - offsetof(struct watching, timer));
    struct query *query = watching->query;
    struct redlock *redlock = redlock_of(query->engine);
    watching->poll =
        poll_start(redlock, &redlock_script_show, query->name, NULL, on_watched, watching);
    if (watching->poll)
        return;
    watching_free(watching);
    query_end_unasked(query);
}

void redlock_watch(struct engine *engine, struct query *query)
{
    struct watching *watching = calloc(1, sizeof *watching);
    if (!watching || loop_reserve(engine->loop, 1)) {
        free(watching);
        query_end_unasked(query);
        return;
    }
    *watching = (struct watching){.query = query, .timer.fn = look};
    query->state = watching;
    loop_arm(engine->loop, &watching->timer, loop_now(engine->loop));
}

void redlock_unwatch(struct engine *engine, struct query *query)
{
    (void)engine;
    if (query->state)
        watching_free(query->state);
}
