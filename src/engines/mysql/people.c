/* show, list and watch. */
#include <stdlib.h>
#include <string.h>

#include "engines/mysql/sql.h"
#include "engines/mysql/view.h"
#include "engines/sql/watching.h"

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

/* ---- watch ---- */

static void on_looked(void *data, const struct answer *a)
{
    struct watching *watching = data;
    struct stile_error why;
    struct view view = {0};
    const struct stile_error *err = a->err;
    if (!err && view_of(&view, a, &why))
        err = &why;
    watching_saw(watching, &view.info, err);
    view_free(&view);
}

static enum stile_status look(struct query *query, struct watching *watching,
                              struct stile_error *err)
{
    return view_ask(my_of(query->engine), query->name, query->name_len, on_looked, watching, err);
}

static void forget(struct engine *engine, const void *data)
{
    pool_unask(pool_of(engine), data);
}

static const struct watching_ops watching_ops = {.ask = look, .forget = forget};

void people_watch(struct engine *engine, struct query *query)
{
    (void)engine;
    watching_begin(query, &watching_ops);
}

void people_unwatch(struct engine *engine, struct query *query)
{
    (void)engine;
    watching_end(query);
}
