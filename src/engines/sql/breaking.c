#include "engines/sql/breaking.h"

#include <stdlib.h>

#define LOOK_NS     (10 * NS_PER_MS)
#define PATIENCE_NS (4 * NS_PER_SEC)

void breaking_end(struct breaking *b, const struct stile_error *err)
{
    struct query *query = b->query;
    struct engine *engine = query->engine;
    struct stile_error why = err ? *err : (struct stile_error){0};
    pool_unask(pool_of(engine), b);
    loop_disarm(engine->loop, &b->timer);
    loop_unreserve(engine->loop, 1);
    query->state = NULL;
    free(b->targets);
    free(b);
    engine->events->done(query, err ? &why : NULL);
}

void breaking_end_with(struct breaking *b, enum stile_status status, const char *why)
{
    struct stile_error err;
    error_set(&err, status, 0, "%s", why);
    breaking_end(b, &err);
}

void breaking_end_unmeant(struct breaking *b, bool held)
{
    breaking_end_with(b, STILE_CONFLICT,
                      held ? "the grant with that token is over" : "it isn't held");
}

void breaking_look(struct breaking *b)
{
    struct stile_error err;
    if (view_ask(b->query, b->looked, b, &err))
        breaking_end(b, &err);
}

static void on_time(struct timer *timer)
{
    breaking_look((struct breaking *)((char *)timer - offsetof(struct breaking, timer)));
}

uint64_t breaking_age_ns(const struct breaking *b)
{
    return loop_now(b->query->engine->loop) - b->begun_ns;
}

void breaking_wait(struct breaking *b)
{
    struct loop *loop = b->query->engine->loop;
    if (breaking_age_ns(b) <= PATIENCE_NS)
        loop_arm(loop, &b->timer, loop_now(loop) + LOOK_NS);
    else if (b->denied.status)
        breaking_end(b, &b->denied);
    else
        breaking_end_with(b, STILE_REFUSED, "its session does not end");
}

void breaking_begin(struct query *query, answer_fn *seen, answer_fn *looked)
{
    struct engine *engine = query->engine;
    struct stile_error err;
    struct breaking *b = calloc(1, sizeof *b);
    if (!b || loop_reserve(engine->loop, 1)) {
        free(b);
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->done(query, &err);
        return;
    }
    b->query = query;
    b->looked = looked;
    b->timer.fn = on_time;
    b->begun_ns = loop_now(engine->loop);
    query->state = b;
    if (view_ask(query, seen, b, &err))
        breaking_end(b, &err);
}
