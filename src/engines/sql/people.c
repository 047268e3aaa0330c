#include "engines/sql/people.h"

#include <stdlib.h>

enum stile_status view_make_room(struct view *view, size_t n, size_t text_size,
                                 struct stile_error *err)
{
    view->claims = calloc(n + 1, sizeof *view->claims);
    view->backends = calloc(n + 1, sizeof *view->backends);
    view->texts = calloc(n + 1, text_size);
    if (!view->claims || !view->backends || !view->texts)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    return STILE_OK;
}

void view_free(struct view *view)
{
    free(view->claims);
    free(view->backends);
    free(view->texts);
}

static void on_shown(void *data, const struct answer *a)
{
    struct query *query = data;
    const struct stile_error *err = answer_error(a);
    struct stile_error why;
    struct view view = {0};
    if (!err && !view_of(&view, a, query, &why))
        query->engine->events->info(query, &view.info);
    else if (!err)
        err = &why;
    view_free(&view);
    query->engine->events->done(query, err);
}

void people_show(struct engine *engine, struct query *query)
{
    struct stile_error err;
    if (view_ask(query, on_shown, query, &err))
        engine->events->done(query, &err);
}

static void on_listed(void *data, const struct answer *a)
{
    struct query *query = data;
    const struct stile_error *err = answer_error(a);
    struct stile_error why;
    if (!err && list_tell(query, a, &why))
        err = &why;
    query->engine->events->done(query, err);
}

void people_list(struct engine *engine, struct query *query)
{
    struct stile_error err;
    if (list_ask(query, on_listed, query, &err))
        engine->events->done(query, &err);
}
