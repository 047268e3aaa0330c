/* show, list and watch. */
#include <stdlib.h>
#include <string.h>

#include "engines/postgres/sql.h"
#include "engines/postgres/view.h"
#include "engines/sql/watching.h"

/* ---- show ---- */

static void on_shown(void *data, const struct answer *a)
{
    struct query *query = data;
    struct stile_error why;
    struct view view = {0};
    const struct stile_error *err = a->err;
    if (!err && !view_make(&view, a->result, 0, PQntuples(a->result), query->name, &why))
        query->engine->events->info(query, &view.info);
    else if (!err)
        err = &why;
    view_free(&view);
    query->engine->events->done(query, err);
}

void people_show(struct engine *engine, struct query *query)
{
    struct stile_error err;
    if (view_ask(pg_of(engine), query->name, query->name_len, on_shown, query, &err))
        engine->events->done(query, &err);
}

/* ---- list ---- */

struct entry {
    char name[STILE_NAME_MAX + 1];
    int first, n;
};

static int by_bytes(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

/* Rows of one name stand together. */
static size_t collect(struct entry *entries, const PGresult *result, const struct query *query)
{
    size_t n = 0;
    for (int row = 0, next; row < PQntuples(result); row = next) {
        const char *stored = PQgetvalue(result, row, 0);
        next = row + 1;
        while (next < PQntuples(result) && strcmp(PQgetvalue(result, next, 0), stored) == 0)
            next++;
        struct entry *entry = &entries[n];
        entry->first = row;
        entry->n = next - row;
        n += name_restore(entry->name, stored) &&
             strncmp(entry->name, query->name, query->name_len) == 0;
    }
    qsort(entries, n, sizeof *entries, by_bytes);
    return n;
}

static enum stile_status tell_all(struct query *query, const PGresult *result,
                                  struct stile_error *err)
{
    struct entry *entries = calloc((size_t)PQntuples(result) + 1, sizeof *entries);
    enum stile_status status = STILE_OK;
    if (!entries)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    size_t n = collect(entries, result, query);
    for (size_t i = 0; i < n && !status; i++) {
        struct view view;
        status = view_make(&view, result, entries[i].first, entries[i].n, entries[i].name, err);
        if (!status && view.n > 0)
            query->engine->events->info(query, &view.info);
        view_free(&view);
    }
    free(entries);
    return status;
}

static void on_listed(void *data, const struct answer *a)
{
    struct query *query = data;
    struct stile_error why;
    const struct stile_error *err = a->err;
    if (!err && tell_all(query, a->result, &why))
        err = &why;
    query->engine->events->done(query, err);
}

/* A prefix that ends within a character cannot be asked for: then all are, and sorted out here. */
void people_list(struct engine *engine, struct query *query)
{
    struct pg *pg = pg_of(engine);
    struct session *shared;
    struct stile_error err;
    char stored[STORED_MAX];
    name_store(stored, query->name, query->name_len);
    const char *values[] = {strcmp(stored, query->name) == 0 && *stored ? stored : NULL};
    enum stile_status status = pg_shared(&shared, pg, &err);
    const struct statement *statement = pg->options.mode == MODE_TABLE ? &pg->table.list
                                        : pg->options.mode == MODE_ROW ? &sql_row_list
                                        : pg->bare                     ? &sql_list_bare
                                                                       : &sql_list;
    if (!status)
        status = session_send(shared, statement, values, 1, on_listed, query, &err);
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
    if (!err &&
        view_make(&view, a->result, 0, PQntuples(a->result), watching_query(watching)->name, &why))
        err = &why;
    watching_saw(watching, &view.info, err);
    view_free(&view);
}

static enum stile_status look(struct query *query, struct watching *watching,
                              struct stile_error *err)
{
    return view_ask(pg_of(query->engine), query->name, query->name_len, on_looked, watching, err);
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
