/* show, list and watch. */
#include <stdlib.h>
#include <string.h>

#include "engines/mysql/sql.h"
#include "engines/mysql/view.h"

#define WATCH_MIN_NS (20 * NS_PER_MS)
#define WATCH_MAX_NS (200 * NS_PER_MS)

/* ---- show ---- */

static void on_shown(void *data, const struct answer *a)
{
    struct query *query = data;
    struct stile_error why;
    struct view view = {0};
    const struct stile_error *err = a->err;
    if (!err && !view_of(&view, a, &why))
        query->engine->events->info(query, &view.info);
    else if (!err)
        err = &why;
    view_free(&view);
    query->engine->events->done(query, err);
}

void people_show(struct engine *engine, struct query *query)
{
    struct stile_error err;
    if (view_ask(my_of(engine), query->name, query->name_len, on_shown, query, &err))
        engine->events->done(query, &err);
}

/* ---- list ---- */

/* The server has sorted them by their bytes. */
static enum stile_status tell_all(struct query *query, const struct answer *a,
                                  struct stile_error *err)
{
    enum stile_status status = STILE_OK;
    bool made = true;
    view_rewind(a);
    while (made && !status) {
        struct view view;
        status = view_next(&view, &made, a, err);
        if (!status && made && view.n > 0)
            query->engine->events->info(query, &view.info);
        view_free(&view);
    }
    return status;
}

static void on_listed(void *data, const struct answer *a)
{
    struct query *query = data;
    struct stile_error why;
    const struct stile_error *err = a->err;
    if (!err && tell_all(query, a, &why))
        err = &why;
    query->engine->events->done(query, err);
}

static char *words_for_list(struct my *my, const char *prefix)
{
    if (my->options.table)
        return sql_shed_list(my, prefix);
    if (my->options.mode == MODE_TABLE)
        return sql_table_list(prefix);
    return my->options.mode == MODE_ROW ? sql_row_list(my, prefix) : sql_list(my, prefix);
}

void people_list(struct engine *engine, struct query *query)
{
    struct my *my = my_of(engine);
    struct session *shared;
    struct stile_error err;
    char prefix[STORED_HEX_MAX];
    enum stile_status status;
    name_hex(prefix, query->name, query->name_len);
    if (my->bare && !my->options.table)
        status = error_set(&err, STILE_UNSUPPORTED, 0,
                           "without the tables stile_* nobody knows the names: run `stile setup "
                           "URL`");
    else
        status = my_shared(&shared, my, &err);
    if (!status)
        status = session_send(shared, words_for_list(my, prefix), on_listed, query, &err);
    if (status)
        engine->events->done(query, &err);
}

/* ---- watch: looks again and again, as what plain SQL does tells nobody ---- */

struct watching {
    struct query *query;
    struct timer timer;
    uint64_t seen, pause_ns;
};

static void look(struct timer *timer);

static void watching_free(struct watching *watching)
{
    struct my *my = my_of(watching->query->engine);
    if (my->shared)
        session_forget(my->shared, watching);
    loop_disarm(my->engine.loop, &watching->timer);
    loop_unreserve(my->engine.loop, 1);
    watching->query->state = NULL;
    free(watching);
}

static void end_watch(struct watching *watching, const struct stile_error *err)
{
    struct query *query = watching->query;
    watching_free(watching);
    query->engine->events->done(query, err);
}

static void on_looked(void *data, const struct answer *a)
{
    struct watching *watching = data;
    struct query *query = watching->query;
    struct loop *loop = query->engine->loop;
    struct stile_error why;
    struct view view = {0};
    if (a->err || view_of(&view, a, &why)) {
        view_free(&view);
        end_watch(watching, a->err ? a->err : &why);
        return;
    }
    uint64_t seen = view_fingerprint(&view);
    bool changed = seen != watching->seen;
    watching->seen = seen;
    watching->pause_ns = changed ? WATCH_MIN_NS : watching->pause_ns * 5 / 4;
    if (watching->pause_ns > WATCH_MAX_NS)
        watching->pause_ns = WATCH_MAX_NS;
    loop_arm(loop, &watching->timer, loop_now(loop) + watching->pause_ns);
    if (changed)
        query->engine->events->info(query, &view.info);
    view_free(&view);
}

static void look(struct timer *timer)
{
    struct watching *watching =
        (struct watching *)((char *)timer - offsetof(struct watching, timer));
    struct query *query = watching->query;
    struct stile_error err;
    if (view_ask(my_of(query->engine), query->name, query->name_len, on_looked, watching, &err))
        end_watch(watching, &err);
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
        watching_free(query->state);
}
