/* examine(): the vitals of one server, and what they mean. */
#include <stdlib.h>

#include "engines/redis/fault.h"
#include "engines/redis/redis.h"
#include "engines/redis/vitals.h"

struct visit {
    struct vitals vitals;
    struct query *query;
    char *where;
};

static void visit_end(struct visit *visit, const struct stile_error *err)
{
    struct query *query = visit->query;
    vitals_free(&visit->vitals);
    query->state = NULL;
    query->engine->events->done(query, err);
    free(visit->where);
    free(visit);
}

static void on_vitals(struct vitals *vitals)
{
    struct visit *visit = vitals->owner;
    struct redis *redis = redis_of(visit->query->engine);
    if (vitals->info_error.status && !fault_is_denial(&vitals->info_error)) {
        visit_end(visit, &vitals->info_error);
        return;
    }
    verdict_of(visit->query, vitals, (int)redis->wait_replicas);
    visit_end(visit, NULL);
}

void doctor_examine(struct engine *engine, struct query *query)
{
    struct redis *redis = redis_of(engine);
    struct visit *visit = calloc(1, sizeof *visit);
    struct stile_error err;
    if (visit)
        visit->where = vitals_where(conn_options(redis->home.asks));
    if (!visit || !visit->where) {
        free(visit);
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->done(query, &err);
        return;
    }
    query->state = visit;
    visit->query = query;
    visit->vitals = (struct vitals){.loop = engine->loop,
                                    .conn = redis->home.asks,
                                    .where = visit->where,
                                    .cli = redis->cli,
                                    .prefix = redis->prefix,
                                    .done = on_vitals,
                                    .owner = visit};
    vitals_ask(&visit->vitals);
}
