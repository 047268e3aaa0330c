/* examine(): the vitals of the server, or of every primary of a Cluster, and what they mean. */
#include <stdio.h>
#include <stdlib.h>

#include "engines/redis/fault.h"
#include "engines/redis/redis.h"
#include "engines/redis/vitals.h"

struct visit {
    struct query *query;
    size_t pending, n;
    struct patient {
        struct visit *visit;
        struct vitals vitals;
        char *where, *cli;
    } patients[];
};

static bool is_up(const struct vitals *v)
{
    return v->info || fault_is_denial(&v->info_error);
}

static void visit_free(struct visit *visit)
{
    for (size_t i = 0; i < visit->n; i++) {
        vitals_free(&visit->patients[i].vitals);
        free(visit->patients[i].where);
        free(visit->patients[i].cli);
    }
    visit->query->state = NULL;
    free(visit);
}

/* ---- a Cluster ---- */

static const struct verdict is_down = {
    .severity = STILE_DANGER,
    .id = "down",
    .why =
        "Names whose slots it has can't be locked, and who holds them loses them at the deadline.",
    .cure = "Start it again, with its data.",
};

static const struct verdict no_cluster = {
    .severity = STILE_DANGER,
    .id = "no-cluster",
    .why = "stile refuses it: the URL asks for a Cluster.",
    .cure = "Use redis:// for this server.",
};

static void tell_cluster(struct visit *visit)
{
    char what[64];
    snprintf(what, sizeof what, "a Redis Cluster with %zu primaries", visit->n);
    visit->query->engine->events->finding(
        visit->query,
        &(struct stile_finding){.severity = STILE_NOTE,
                                .id = "cluster",
                                .what = what,
                                .why = "Each of them keeps a part of the names, and its failover "
                                       "may forget locks and tokens as any failover may."});
}

/* ---- the visit ---- */

static void finish(struct visit *visit)
{
    struct query *query = visit->query;
    const struct engine_events *events = query->engine->events;
    bool alone = !redis_of(query->engine)->cluster;
    struct vitals *first = &visit->patients[0].vitals;
    if (alone && !is_up(first)) {
        struct stile_error err = first->info_error;
        visit_free(visit);
        events->done(query, &err);
        return;
    }
    for (size_t i = 0; i < visit->n; i++) {
        struct vitals *v = &visit->patients[i].vitals;
        if (is_up(v))
            verdict_of(query, v);
        else
            verdict_tell(query, v, &is_down, "does not answer: %s", v->info_error.message);
    }
    if (!alone)
        tell_cluster(visit);
    else if (redis_of(query->engine)->clustered && vitals_is(first, "cluster_enabled", "0"))
        verdict_tell(query, first, &no_cluster, "is not part of a Redis Cluster");
    visit_free(visit);
    events->done(query, NULL);
}

static void answered(struct visit *visit)
{
    if (--visit->pending == 0)
        finish(visit);
}

static void on_vitals(struct vitals *vitals)
{
    answered(((struct patient *)vitals->owner)->visit);
}

static enum stile_status prepare(struct visit *visit, struct redis *redis, struct node *node,
                                 struct stile_error *err)
{
    struct patient *patient = &visit->patients[visit->n];
    enum stile_status status = node_connect(node, err);
    if (status)
        return status;
    visit->n++;
    patient->visit = visit;
    patient->where = vitals_where(conn_options(node->asks));
    patient->cli = vitals_cli(conn_options(node->asks), redis->cli_flags);
    patient->vitals = (struct vitals){.wait_replicas = redis->wait_replicas,
                                      .loop = redis->engine.loop,
                                      .conn = node->asks,
                                      .where = patient->where,
                                      .cli = patient->cli,
                                      .prefix = redis->prefix,
                                      .shares_counter = !redis->cluster,
                                      .done = on_vitals,
                                      .owner = patient};
    return patient->where ? STILE_OK : error_set(err, STILE_NOMEM, 0, "out of memory");
}

void doctor_examine(struct engine *engine, struct query *query)
{
    struct redis *redis = redis_of(engine);
    struct stile_error err;
    enum stile_status status = STILE_OK;
    size_t n = 0;
    for (struct node *node = NULL; (node = route_next(redis, node));)
        n++;
    struct visit *visit = calloc(1, sizeof *visit + n * sizeof *visit->patients);
    if (!visit) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->done(query, &err);
        return;
    }
    visit->query = query;
    query->state = visit;
    for (struct node *node = NULL; !status && (node = route_next(redis, node));)
        status = prepare(visit, redis, node, &err);
    if (status) {
        visit_free(visit);
        engine->events->done(query, &err);
        return;
    }
    visit->pending = 1;
    for (size_t i = 0; i < visit->n; i++) {
        visit->pending++;
        vitals_ask(&visit->patients[i].vitals);
    }
    answered(visit);
}
