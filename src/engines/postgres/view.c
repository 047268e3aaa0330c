#include "engines/postgres/view.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/postgres/sql.h"
#include "engines/sql/lease_view.h"

enum column {
    COL_NAME,
    COL_PID,
    COL_GRANTED,
    COL_SHARED,
    COL_WAITS_MS,
    COL_APPLICATION,
    COL_IS_OURS, /* the name's row is about this backend's grant */
    COL_TOKEN,
    COL_OWNER,
    COL_HOST,
    COL_HOLDER_PID,
    COL_COMMAND,
    COL_AGE_MS,
    COL_KEPT_MS,
    COL_ROW_SHARED,
    COLUMNS,
};

static bool is_true(const PGresult *result, int row, int column)
{
    return PQgetvalue(result, row, column)[0] == 't';
}

static int64_t number(const PGresult *result, int row, int column)
{
    return strtoll(PQgetvalue(result, row, column), NULL, 10);
}

static bool is_counted(const PGresult *result, int row)
{
    return strncmp(PQgetvalue(result, row, COL_APPLICATION), "stile+:", 7) == 0;
}

/* A session of ours that has the lock and no grant in its row is just being granted it, or sits on
 * a name that is kept back: it waits. */
static bool is_holder(const PGresult *result, int row)
{
    return is_true(result, row, COL_GRANTED) &&
           (is_true(result, row, COL_IS_OURS) || is_true(result, row, COL_SHARED) ||
            !is_counted(result, row));
}

uint64_t view_holder(const PGresult *result, int row, bool *foreign)
{
    *foreign = strncmp(PQgetvalue(result, row, COL_APPLICATION), "stile", 5) != 0;
    return !PQgetisnull(result, row, COL_PID) && is_holder(result, row)
               ? (uint64_t)number(result, row, COL_PID)
               : 0;
}

uint64_t view_token(const PGresult *result)
{
    return PQntuples(result) > 0 ? (uint64_t)number(result, 0, COL_TOKEN) : 0;
}

/* "stile+:PID@HOST COMMAND", cut at 63 bytes: what was cut off is not known. */
static void read_application(struct stile_claim_info *claim, char *text)
{
    char *at = strchr(text, ':'), *host, *space;
    claim->host = claim->command = "";
    if (strncmp(text, "stile", 5) != 0 || !at || !(host = strchr(at, '@'))) {
        claim->command = text;
        return;
    }
    claim->pid = strtoll(at + 1, NULL, 10);
    space = strchr(host, ' ');
    if (!space)
        return;
    *space = '\0';
    claim->host = host + 1;
    claim->command = space + 1;
}

static void read_row(struct stile_claim_info *claim, const PGresult *result, int row)
{
    claim->token = (uint64_t)number(result, row, COL_TOKEN);
    claim->age_ms = number(result, row, COL_AGE_MS);
    claim->age_ms = claim->age_ms > 0 ? claim->age_ms : 0;
    claim->owner = PQgetvalue(result, row, COL_OWNER);
    claim->host = PQgetvalue(result, row, COL_HOST);
    claim->pid = number(result, row, COL_HOLDER_PID);
    claim->command = PQgetvalue(result, row, COL_COMMAND);
}

static void add_lock(struct view *view, const PGresult *result, int row, bool held)
{
    char *text = view->texts + view->n * APPLICATION_MAX;
    struct stile_claim_info *claim = &view->claims[view->n++];
    int64_t waits = number(result, row, COL_WAITS_MS);
    *claim = (struct stile_claim_info){.held = held,
                                       .mode = is_true(result, row, COL_SHARED) ? STILE_SHARED
                                                                                : STILE_EXCLUSIVE,
                                       .expires_ms = STILE_NO_DEADLINE,
                                       .age_ms = waits > 0 ? waits : 0,
                                       .owner = PQgetvalue(result, row, COL_PID)};
    if (held && is_true(result, row, COL_IS_OURS)) {
        read_row(claim, result, row);
        return;
    }
    snprintf(text, APPLICATION_MAX, "%s", PQgetvalue(result, row, COL_APPLICATION));
    read_application(claim, text);
}

static void add_ghost(struct view *view, const PGresult *result, int row)
{
    struct stile_claim_info *claim = &view->claims[view->n++];
    *claim = (struct stile_claim_info){.held = true, .ghost = true};
    claim->mode = is_true(result, row, COL_ROW_SHARED) ? STILE_SHARED : STILE_EXCLUSIVE;
    claim->expires_ms = number(result, row, COL_KEPT_MS);
    read_row(claim, result, row);
}

static void fill(struct view *view, const PGresult *result, int first, int n)
{
    bool alive = false;
    for (int row = first; row < first + n; row++)
        alive |= is_true(result, row, COL_IS_OURS) && is_holder(result, row);
    if (!alive && number(result, first, COL_KEPT_MS) > 0)
        add_ghost(view, result, first);
    bool any = !PQgetisnull(result, first, COL_PID);
    for (int row = first; any && row < first + n; row++) {
        if (is_holder(result, row))
            add_lock(view, result, row, true);
    }
    view->info.holders = view->n;
    for (int row = first; any && row < first + n; row++) {
        if (!is_holder(result, row))
            add_lock(view, result, row, false);
    }
    view->info.waiters = view->n - view->info.holders;
    view->info.token = (uint64_t)number(result, first, COL_TOKEN);
    view->info.claims = view->claims;
}

static void fill_from_table(struct view *view, const PGresult *result, int first, int n)
{
    for (int row = first; row < first + n && !PQgetisnull(result, row, ROW_OWNER); row++) {
        const char *cells[ROW_COLUMNS];
        for (int i = 0; i < ROW_COLUMNS; i++)
            cells[i] = PQgetvalue(result, row, i);
        lease_read(&view->claims[view->n], cells);
        view->info.holders += view->claims[view->n++].held;
    }
    view->info.waiters = view->n - view->info.holders;
    view->info.token = (uint64_t)number(result, first, ROW_COUNTER);
    view->info.claims = view->claims;
}

enum stile_status view_make(struct view *view, const PGresult *result, int first, int n,
                            const char *name, struct stile_error *err)
{
    *view = (struct view){.info.name = name};
    if (n < 1 || (PQnfields(result) != COLUMNS && PQnfields(result) != ROW_COLUMNS))
        return error_set(err, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
    if (view_make_room(view, (size_t)n, APPLICATION_MAX, err))
        return STILE_NOMEM;
    if (PQnfields(result) == ROW_COLUMNS)
        fill_from_table(view, result, first, n);
    else
        fill(view, result, first, n);
    return STILE_OK;
}

enum stile_status view_of(struct view *view, const struct answer *a, const struct query *query,
                          struct stile_error *err)
{
    return view_make(view, a->result, 0, PQntuples(a->result), query->name, err);
}

const struct stile_error *answer_error(const struct answer *a)
{
    return a->err;
}

void place_of(struct place *place, const struct pg *pg, const char *name, size_t len)
{
    struct key key;
    char *comma;
    key_make(&key, pg->options.dialect, name, len);
    name_store(place->stored, name, len);
    strcpy(place->id, key.number);
    if (key.form == KEY_TWO) {
        uint64_t high = (uint64_t)strtoll(key.number, &comma, 10);
        uint32_t low = (uint32_t)strtoll(comma + 1, NULL, 10);
        snprintf(place->id, sizeof place->id, "%" PRId64, (int64_t)(high << 32 | low));
    }
    place->values[0] = place->stored;
    place->values[1] = key.form == KEY_HASH ? NULL : place->id;
    place->values[2] = key.form == KEY_TWO ? "2" : "1";
}

enum stile_status view_ask(const struct query *query, answer_fn *fn, void *data,
                           struct stile_error *err)
{
    struct pg *pg = pg_of(query->engine);
    struct session *shared;
    struct place place;
    enum stile_status status = pg_shared(&shared, pg, err);
    if (status)
        return status;
    place_of(&place, pg, query->name, query->name_len);
    if (pg->options.mode != MODE_ADVISORY)
        return session_send(shared, pg->options.mode == MODE_ROW ? &sql_row_show : &pg->table.show,
                            place.values, 1, fn, data, err);
    const struct statement *statement = pg->bare                    ? &sql_show_bare
                                        : pg->schema == SCHEMA_LINE ? &sql_show_line
                                                                    : &sql_show;
    return session_send(shared, statement, place.values, 3, fn, data, err);
}
