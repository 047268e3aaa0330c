/* show, list and watch. */
#include <stdlib.h>
#include <string.h>

#include "engines/postgres/sql.h"
#include "engines/postgres/view.h"

#define WATCH_MIN_NS (20 * NS_PER_MS)
#define WATCH_MAX_NS (200 * NS_PER_MS)

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

/* ---- watch: looks again and again, as what plain SQL does tells nobody ---- */

struct watching {
    struct query *query;
    struct timer timer;
    uint64_t seen, pause_ns;
};

static void look(struct timer *timer);

static void watching_free(struct watching *watching)
{
    struct pg *pg = pg_of(watching->query->engine);
    if (pg->shared)
        session_forget(pg->shared, watching);
    loop_disarm(pg->engine.loop, &watching->timer);
    loop_unreserve(pg->engine.loop, 1);
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
    if (a->err || view_make(&view, a->result, 0, PQntuples(a->result), query->name, &why)) {
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
    if (view_ask(pg_of(query->engine), query->name, query->name_len, on_looked, watching, &err))
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
