#include "engines/local/local.h"

static void not_yet(struct query *query)
{
    struct stile_error error;
    error_set(&error, STILE_UNSUPPORTED, 0, "not written yet");
    query->engine->events->done(query, &error);
}

void view_list(struct engine *engine, struct query *query)
{
    (void)engine;
    not_yet(query);
}

void view_show(struct engine *engine, struct query *query)
{
    (void)engine;
    not_yet(query);
}

void view_watch(struct engine *engine, struct query *query)
{
    (void)engine;
    not_yet(query);
}

void view_unwatch(struct engine *engine, struct query *query)
{
    (void)engine;
    (void)query;
}

void view_break(struct engine *engine, struct query *query)
{
    (void)engine;
    not_yet(query);
}
