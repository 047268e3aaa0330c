/* list: all names with a prefix. */
#include <stdlib.h>
#include <string.h>

#include "engines/postgres/sql.h"
#include "engines/postgres/view.h"

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

enum stile_status list_tell(struct query *query, const struct answer *a, struct stile_error *err)
{
    const PGresult *result = a->result;
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

/* A prefix that ends within a character cannot be asked for: then all are, and sorted out here. */
enum stile_status list_ask(const struct query *query, answer_fn *fn, void *data,
                           struct stile_error *err)
{
    struct pg *pg = pg_of(query->engine);
    struct session *shared;
    char stored[STORED_MAX];
    name_store(stored, query->name, query->name_len);
    const char *values[] = {strcmp(stored, query->name) == 0 && *stored ? stored : NULL};
    const struct statement *statement = pg->options.mode == MODE_TABLE ? &pg->table.list
                                        : pg->options.mode == MODE_ROW ? &sql_row_list
                                        : pg->bare                     ? &sql_list_bare
                                        : pg->schema == SCHEMA_LINE    ? &sql_list_line
                                                                       : &sql_list;
    enum stile_status status = pg_shared(&shared, pg, err);
    return status ? status : session_send(shared, statement, values, 1, fn, data, err);
}
