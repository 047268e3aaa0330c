/* watch: looks again and again, less often where nothing changes. */
#include "engines/sql/people.h"

#include <stdlib.h>

#define WATCH_MIN_NS (20 * NS_PER_MS)
#define WATCH_MAX_NS (200 * NS_PER_MS)

struct watching {
    struct query *query;
    struct timer timer;
    uint64_t seen, pause_ns;
};

/* Of all that isn't just time going by. */
static uint64_t fingerprint(const struct stile_info *info)
{
    uint64_t sum = info->token + 1;
    for (size_t i = 0; i < info->holders + info->waiters; i++) {
        const struct stile_claim_info *c = &info->claims[i];
        sum = (sum ^ (c->token * 4 + c->held * 2 + c->ghost)) * UINT64_C(0x100000001b3);
        for (const char *at = c->owner; *at; at++)
            sum = (sum ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
    }
    return sum;
}

static void dispose(struct watching *watching)
{
    struct engine *engine = watching->query->engine;
    pool_unask(pool_of(engine), watching);
    loop_disarm(engine->loop, &watching->timer);
    loop_unreserve(engine->loop, 1);
    watching->query->state = NULL;
    free(watching);
}

static void fail(struct watching *watching, const struct stile_error *err)
{
    struct query *query = watching->query;
    struct stile_error why = *err;
    dispose(watching);
    query->engine->events->done(query, &why);
}

static void saw(struct watching *watching, const struct stile_info *info)
{
    struct query *query = watching->query;
    struct loop *loop = query->engine->loop;
    uint64_t seen = fingerprint(info);
    bool changed = seen != watching->seen;
    watching->seen = seen;
    watching->pause_ns = changed ? WATCH_MIN_NS : watching->pause_ns * 5 / 4;
    if (watching->pause_ns > WATCH_MAX_NS)
        watching->pause_ns = WATCH_MAX_NS;
    loop_arm(loop, &watching->timer, loop_now(loop) + watching->pause_ns);
    if (changed)
        query->engine->events->info(query, info);
}

static void on_looked(void *data, const struct answer *a)
{
    struct watching *watching = data;
    const struct stile_error *err = answer_error(a);
    struct stile_error why;
    struct view view = {0};
    if (!err && view_of(&view, a, watching->query, &why))
        err = &why;
    if (err)
        fail(watching, err);
    else
        saw(watching, &view.info);
    view_free(&view);
}

static void look(struct timer *timer)
{
    struct watching *watching =
        (struct watching *)((char *)timer - offsetof(struct watching, timer));
    struct stile_error err;
    if (view_ask(watching->query, on_looked, watching, &err))
        fail(watching, &err);
}

void people_watch(struct engine *engine, struct query *query)
{
    struct stile_error err;
    struct watching *watching = calloc(1, sizeof *watching);
    if (!watching || loop_reserve(engine->loop, 1)) {
        free(watching);
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->done(query, &err);
        return;
    }
    watching->query = query;
    watching->timer.fn = look;
    query->state = watching;
    look(&watching->timer);
}

void people_unwatch(struct engine *engine, struct query *query)
{
    (void)engine;
    if (query->state)
        dispose(query->state);
}
