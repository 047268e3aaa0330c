/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* show, list and break: the rows that the server returns about locks, as stile_info. */
#include "engines/sql/inspect.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/postgres/pg.h"
#include "engines/postgres/statements.h"

/* The parameters of postgres_sql_show and postgres_sql_break for a name. */
struct name_key {
    char stored[STORED_MAX], id[28];
    const char *values[5]; /* stored name, key or NULL, objsubid; the others are the caller's */
};

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
    return postgres_value(result, row, column)[0] == 't';
}

static int64_t number(const PGresult *result, int row, int column)
{
    return strtoll(postgres_value(result, row, column), NULL, 10);
}

static bool is_counted(const PGresult *result, int row)
{
    return strncmp(postgres_value(result, row, COL_APPLICATION), "stile+:", 7) == 0;
}

static bool may_have_no_row(const PGresult *result)
{
    const char *name = PQfname(result, COL_IS_OURS);
    return name && strcmp(name, OURS_OR_NO_ROW) == 0;
}

/* Where grants need no row: it has been asked for (see struct look), but its client may be stopped.
 */
static bool is_without_row(const PGresult *result, int row)
{
    return may_have_no_row(result) && is_true(result, row, COL_GRANTED) &&
           !is_true(result, row, COL_SHARED) && is_counted(result, row) &&
           !is_true(result, row, COL_IS_OURS) && number(result, row, COL_KEPT_MS) <= 0;
}

/* A session of ours that has the lock but no grant in the name's row is about to be granted it,
 * or a hold keeps the name back: it counts as a waiter. */
static bool is_holder(const PGresult *result, int row)
{
    return is_true(result, row, COL_GRANTED) &&
           (is_true(result, row, COL_IS_OURS) || is_true(result, row, COL_SHARED) ||
            !is_counted(result, row) || is_without_row(result, row));
}

static uint64_t holder_of(const PGresult *result, int row, bool *foreign)
{
    *foreign = strncmp(postgres_value(result, row, COL_APPLICATION), "stile", 5) != 0;
    return !PQgetisnull(result, row, COL_PID) && is_holder(result, row)
               ? (uint64_t)number(result, row, COL_PID)
               : 0;
}

static uint64_t token_of(const PGresult *result)
{
    return PQntuples(result) > 0 ? (uint64_t)number(result, 0, COL_TOKEN) : 0;
}

/* 0: the name's row is not about this holder's grant. */
static uint64_t token_of_holder(const PGresult *result, int row)
{
    return is_true(result, row, COL_IS_OURS) ? (uint64_t)number(result, row, COL_TOKEN) : 0;
}

/* "stile+:PID@HOST COMMAND", cut by the server at 63 bytes; behind it perhaps " /MS", since when it
 * waits. */
static void read_application(struct stile_claim_info *claim, char *text)
{
    char *at = strchr(text, ':'), *host, *space, *since = strrchr(text, ' ');
    if (since && since[1] == '/' && strspn(since + 2, "0123456789") == strlen(since + 2))
        *since = '\0';
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
    claim->owner = postgres_value(result, row, COL_OWNER);
    claim->host = postgres_value(result, row, COL_HOST);
    claim->pid = number(result, row, COL_HOLDER_PID);
    claim->command = postgres_value(result, row, COL_COMMAND);
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
                                       .owner = postgres_value(result, row, COL_PID)};
    if (held && is_true(result, row, COL_IS_OURS)) {
        read_row(claim, result, row);
        return;
    }
    snprintf(text, APPLICATION_MAX, "%s", postgres_value(result, row, COL_APPLICATION));
    read_application(claim, text);
    if (held && !claim->pid)
        claim->age_ms = -1; /* of another program: the server does not know since when */
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
            cells[i] = postgres_value(result, row, i);
        sql_inspect_row(&view->claims[view->n], cells);
        view->info.holders += view->claims[view->n++].held;
    }
    view->info.waiters = view->n - view->info.holders;
    view->info.token = (uint64_t)number(result, first, ROW_COUNTER);
    view->info.claims = view->claims;
}

/* A show may have one column more: the name's record. */
static bool is_form(const PGresult *result, int columns)
{
    return PQnfields(result) == columns || PQnfields(result) == columns + 1;
}

static void read_record(struct view *view, const PGresult *result, int row, int column)
{
    if (PQnfields(result) == column || PQgetisnull(result, row, column))
        return;
    if (!postgres_text_restore(view->record_text, RECORD_MAX, postgres_value(result, row, column)))
        return;
    view->record = view->record_text;
    view->record_len = strlen(view->record_text);
}

static enum stile_status make_view(struct view *view, const PGresult *result, int first, int n,
                                   const char *name, struct stile_error *err)
{
    *view = (struct view){.info.name = name};
    bool table = is_form(result, ROW_COLUMNS);
    if (n < 1 || (!table && !is_form(result, COLUMNS)))
        return error_set(err, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
    if (sql_view_alloc(view, (size_t)n, APPLICATION_MAX, err))
        return STILE_NOMEM;
    if (table)
        fill_from_table(view, result, first, n);
    else
        fill(view, result, first, n);
    read_record(view, result, first, table ? ROW_COLUMNS : COLUMNS);
    return STILE_OK;
}

enum stile_status postgres_read_show(struct view *view, const struct answer *a,
                                     const struct query *query, struct stile_error *err)
{
    if (a->err) {
        error_copy(err, a->err);
        return a->err->status;
    }
    return make_view(view, a->result, 0, PQntuples(a->result), query->name, err);
}

static void name_key(struct name_key *place, const struct pg *pg, const char *name, size_t len)
{
    struct key key;
    char *comma;
    postgres_key_make(&key, pg->options.dialect, name, len);
    postgres_name_store(place->stored, name, len);
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

static const struct statement *show_statement(const struct pg *pg)
{
    if (pg->options.table)
        return &pg->table.show;
    if (pg->options.mode != MODE_ADVISORY)
        return pg->options.mode == MODE_ROW ? &postgres_sql_row_show[pg->remembers]
                                            : &postgres_sql_table_show[pg->remembers];
    return pg->bare                     ? &postgres_sql_show_bare
           : pg->schema >= SCHEMA_DRAWS ? &postgres_sql_show_draws[pg->remembers]
           : pg->schema >= SCHEMA_QUEUE ? &postgres_sql_show_queue[pg->remembers]
                                        : &postgres_sql_show;
}

/* ---- waiting for descriptions ----
 *
 * A lock that was granted without a row is described some milliseconds later, if it is still held.
 * So a show or list that meets one looks again, until it is described; a client that is stopped
 * never does it. This client's own are described at once. */

#define AGAIN_NS (5 * NS_PER_MS)
#define AGAIN    20

struct look {
    struct look *next, **link;
    struct query *query;
    answer_fn *fn; /* gets the last answer */
    void *data;
    struct timer timer;
    unsigned again; /* so many times at most */
    bool lists;
};

static void look_free(struct look *look)
{
    struct engine *engine = look->query->engine;
    sql_pool_forget(pool_of(engine), look);
    loop_disarm(engine->loop, &look->timer);
    loop_unreserve(engine->loop, 1);
    *look->link = look->next;
    if (look->next)
        look->next->link = look->link;
    free(look);
}

void postgres_looks_free(struct pg *pg)
{
    while (pg->looks)
        look_free(pg->looks);
}

void postgres_cancel(struct engine *engine, struct query *query)
{
    struct pg *pg = pg_of(engine);
    for (struct look *look = pg->looks, *next; look; look = next) {
        next = look->next;
        if (look->query == query)
            look_free(look);
    }
    sql_inspect_cancel(engine, query);
}

static void look_ended(struct look *look, const struct answer *a)
{
    answer_fn *fn = look->fn;
    void *data = look->data;
    look_free(look);
    fn(data, a);
}

static void look_failed(struct look *look, const struct stile_error *err)
{
    struct stile_error why = *err;
    const struct answer a = {.err = &why, .sqlstate = ""};
    look_ended(look, &a);
}

static bool lacks_rows(const struct look *look, const PGresult *result)
{
    if (look->lists)
        return PQntuples(result) == 1 && number(result, 0, 0) > 0;
    if (!is_form(result, COLUMNS))
        return false;
    for (int row = 0; row < PQntuples(result); row++) {
        if (!PQgetisnull(result, row, COL_PID) && is_without_row(result, row))
            return true;
    }
    return false;
}

static enum stile_status send_list(const struct query *query, answer_fn *fn, void *data,
                                   struct stile_error *err);

static void on_look(void *data, const struct answer *a)
{
    struct look *look = data;
    struct loop *loop = look->query->engine->loop;
    struct query *query = look->query;
    struct stile_error err;
    if (!a->err && lacks_rows(look, a->result) && look->again-- > 0) {
        loop_arm(loop, &look->timer, loop_now(loop) + AGAIN_NS);
    } else if (look->lists && !a->err) {
        answer_fn *fn = look->fn;
        void *to = look->data;
        look_free(look);
        if (send_list(query, fn, to, &err))
            query->engine->events->done(query, &err);
    } else {
        look_ended(look, a);
    }
}

static enum stile_status send_look(struct look *look, struct stile_error *err);

static void on_look_time(struct timer *timer)
{
    struct look *look = (struct look *)((char *)timer - offsetof(struct look, timer));
    struct stile_error err;
    if (send_look(look, &err))
        look_failed(look, &err);
}

static enum stile_status look_begin(const struct query *query, bool lists, answer_fn *fn,
                                    void *data, struct stile_error *err)
{
    struct pg *pg = pg_of(query->engine);
    struct look *look = calloc(1, sizeof *look);
    if (!look || loop_reserve(pg->engine.loop, 1)) {
        free(look);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    *look = (struct look){.next = pg->looks,
                          .link = &pg->looks,
                          .query = (struct query *)query,
                          .fn = fn,
                          .data = data,
                          .again = AGAIN,
                          .lists = lists};
    look->timer.fn = on_look_time;
    if (pg->looks)
        pg->looks->link = &look->next;
    pg->looks = look;
    postgres_describe_all(pg);
    enum stile_status status = send_look(look, err);
    if (status)
        look_free(look);
    return status;
}

static bool waits_for_rows(const struct pg *pg)
{
    return pg->options.mode == MODE_ADVISORY && pg->schema >= SCHEMA_DRAWS;
}

/* ---- show ---- */

static enum stile_status send_show(const struct query *query, answer_fn *fn, void *data,
                                   struct stile_error *err)
{
    struct pg *pg = pg_of(query->engine);
    struct session *shared;
    struct name_key key_;
    enum stile_status status = sql_pool_shared(&shared, &pg->pool, err);
    if (status)
        return status;
    name_key(&key_, pg, query->name, query->name_len);
    return postgres_send(shared, show_statement(pg), key_.values,
                         pg->options.mode == MODE_ADVISORY ? 3 : 1, fn, data, err);
}

static enum stile_status send_look(struct look *look, struct stile_error *err)
{
    struct session *shared;
    if (!look->lists)
        return send_show(look->query, on_look, look, err);
    enum stile_status status = sql_pool_shared(&shared, &pg_of(look->query->engine)->pool, err);
    return status ? status
                  : postgres_send(shared, &postgres_sql_undescribed, NULL, 0, on_look, look, err);
}

enum stile_status postgres_ask_show(const struct query *query, answer_fn *fn, void *data,
                                    struct stile_error *err)
{
    return waits_for_rows(pg_of(query->engine)) ? look_begin(query, false, fn, data, err)
                                                : send_show(query, fn, data, err);
}

/* ---- the record of the last holder ---- */

/* Counters of the modes are apart, so their records are. */
static void name_mode(char out[16 + SHEDLOCK_TABLE_MAX], const struct pg *pg)
{
    if (pg->options.table)
        snprintf(out, 16 + SHEDLOCK_TABLE_MAX, "shedlock %s", pg->options.table);
    else
        strcpy(out, pg->options.mode == MODE_TABLE ? "table"
                    : pg->options.mode == MODE_ROW ? "row"
                                                   : "advisory");
}

static void on_recorded(void *data, const struct answer *a)
{
    sql_inspect_recorded(data, a->err);
}

static enum stile_status refuse_record(const struct pg *pg, struct stile_error *err)
{
    return error_set(err, STILE_REFUSED, 0,
                     pg->bare ? "this database has no schema `stile`: run `stile setup URL`"
                              : "its schema `stile` has no table of last holders, or this role may "
                                "not read it: run `stile setup URL`");
}

enum stile_status postgres_record(struct query *query, struct session *session,
                                  struct stile_error *err)
{
    const struct pg *pg = pg_of(query->engine);
    if (!pg->remembers)
        return refuse_record(pg, err);
    char stored[STORED_MAX], mode[16 + SHEDLOCK_TABLE_MAX], token[24], record[2 * RECORD_MAX + 2];
    const char *values[] = {stored, mode, token, record};
    postgres_name_store(stored, query->name, query->name_len);
    name_mode(mode, pg);
    snprintf(token, sizeof token, "%" PRIu64, query->token);
    postgres_text_store(record, query->record, strlen(query->record));
    return postgres_send(session, &postgres_sql_remember, values, 4, on_recorded, query, err);
}

/* ---- list: all names with a prefix ---- */

struct entry {
    char name[STILE_NAME_MAX + 1];
    int first, n;
};

static int by_bytes(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

/* The rows of one name are adjacent. */
static size_t collect(struct entry *entries, const PGresult *result, const struct query *query)
{
    size_t n = 0;
    for (int row = 0, next; row < PQntuples(result); row = next) {
        const char *stored = postgres_value(result, row, 0);
        next = row + 1;
        while (next < PQntuples(result) && strcmp(postgres_value(result, next, 0), stored) == 0)
            next++;
        struct entry *entry = &entries[n];
        entry->first = row;
        entry->n = next - row;
        n += postgres_name_restore(entry->name, stored) &&
             strncmp(entry->name, query->name, query->name_len) == 0;
    }
    qsort(entries, n, sizeof *entries, by_bytes);
    return n;
}

enum stile_status postgres_report_list(struct query *query, const struct answer *a,
                                       struct stile_error *err)
{
    const PGresult *result = a->result;
    if (a->err) {
        error_copy(err, a->err);
        return a->err->status;
    }
    struct entry *entries = calloc((size_t)PQntuples(result) + 1, sizeof *entries);
    enum stile_status status = STILE_OK;
    if (!entries)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    size_t n = collect(entries, result, query);
    for (size_t i = 0; i < n && !status; i++) {
        struct view view;
        status = make_view(&view, result, entries[i].first, entries[i].n, entries[i].name, err);
        if (!status && view.n > 0)
            query->engine->events->info(query, &view.info);
        sql_view_free(&view);
    }
    free(entries);
    return status;
}

/* The server cannot be asked for a prefix that ends within a character: then it returns all
 * names, and they are filtered here. */
static enum stile_status send_list(const struct query *query, answer_fn *fn, void *data,
                                   struct stile_error *err)
{
    struct pg *pg = pg_of(query->engine);
    struct session *shared;
    char stored[STORED_MAX];
    postgres_name_store(stored, query->name, query->name_len);
    const char *values[] = {strcmp(stored, query->name) == 0 && *stored ? stored : NULL};
    const struct statement *statement = pg->options.mode == MODE_TABLE ? &pg->table.list
                                        : pg->options.mode == MODE_ROW ? &postgres_sql_row_list
                                        : pg->bare                     ? &postgres_sql_list_bare
                                        : pg->schema >= SCHEMA_QUEUE   ? &postgres_sql_list_queue
                                                                       : &postgres_sql_list;
    enum stile_status status = sql_pool_shared(&shared, &pg->pool, err);
    return status ? status : postgres_send(shared, statement, values, 1, fn, data, err);
}

enum stile_status postgres_ask_list(const struct query *query, answer_fn *fn, void *data,
                                    struct stile_error *err)
{
    return waits_for_rows(pg_of(query->engine)) ? look_begin(query, true, fn, data, err)
                                                : send_list(query, fn, data, err);
}

/* ---- break ---- */

#define NOTIFY_PATIENCE_NS NS_PER_SEC

/* ---- until the holders are gone ---- */

static void on_terminated(void *data, const struct answer *a)
{
    struct breaking *b = data;
    if (a->err)
        b->denied = *a->err;
}

static void terminate(struct breaking *b)
{
    struct pg *pg = pg_of(b->query->engine);
    char pid[24];
    const char *values[] = {pid};
    b->ended = true;
    for (size_t i = 0; i < b->n && pg->pool.shared; i++) {
        snprintf(pid, sizeof pid, "%" PRIu64, b->targets[i].backend);
        postgres_send(pg->pool.shared, &postgres_sql_terminate, values, 1, on_terminated, b, NULL);
    }
}

/* A holder that has the lock again by a later grant is not meant. */
static bool is_left(const struct target *target, const PGresult *result)
{
    bool foreign;
    for (int row = 0; row < PQntuples(result); row++) {
        if (holder_of(result, row, &foreign) == target->backend)
            return token_of_holder(result, row) == target->token;
    }
    return false;
}

static void keep_those_left(struct breaking *b, const PGresult *result)
{
    size_t n = 0;
    for (size_t i = 0; i < b->n; i++) {
        if (is_left(&b->targets[i], result))
            b->targets[n++] = b->targets[i];
    }
    b->n = n;
}

static void on_looked(void *data, const struct answer *a)
{
    struct breaking *b = data;
    if (a->err) {
        sql_break_end(b, a->err);
        return;
    }
    keep_those_left(b, a->result);
    if (b->n == 0) {
        sql_break_end(b, NULL);
        return;
    }
    if (!b->ended && (b->foreign || sql_break_age_ns(b) > NOTIFY_PATIENCE_NS))
        terminate(b);
    sql_break_wait(b);
}

/* ---- finding the holders ---- */

static void on_notified(void *data, const struct answer *a)
{
    struct breaking *b = data;
    if (a->err)
        sql_break_end(b, a->err);
    else
        sql_break_look(b);
}

static bool find_targets(struct breaking *b, const PGresult *result)
{
    bool foreign;
    b->targets = calloc((size_t)PQntuples(result) + 1, sizeof *b->targets);
    for (int row = 0; b->targets && row < PQntuples(result); row++) {
        uint64_t backend = holder_of(result, row, &foreign);
        if (backend) {
            b->targets[b->n++] = (struct target){backend, token_of_holder(result, row)};
            b->foreign |= foreign;
        }
    }
    return b->targets;
}

/* The token of the grant that was seen, or of the hold that it has left. 0: the name's row is not
 * about all the holders. */
static uint64_t seen_token(const PGresult *result)
{
    for (int row = 0; row < PQntuples(result); row++) {
        bool foreign, shared = is_true(result, row, COL_SHARED);
        if (holder_of(result, row, &foreign) && (shared || !is_true(result, row, COL_IS_OURS)))
            return 0;
    }
    return token_of(result);
}

/* A later holder hears of this, too, perhaps after its grant: so it names the grant that is meant,
 * where it can. */
static void notify_holders(struct breaking *b, uint64_t meant)
{
    struct query *query = b->query;
    struct pg *pg = pg_of(query->engine);
    struct session *shared;
    struct name_key key_;
    struct stile_error err;
    char token[24], by[SELF_HOST_MAX + 32];
    snprintf(token, sizeof token, "%" PRIu64, query->token ? query->token : meant);
    name_key(&key_, pg, query->name, query->name_len);
    sql_identity_blame(by, &pg->identity);
    key_.values[3] = token;
    key_.values[4] = by;
    const char *row[] = {key_.stored, token, by};
    enum stile_status status = sql_pool_shared(&shared, &pg->pool, &err);
    if (!status && pg->options.mode == MODE_ROW)
        status = postgres_send(shared, &postgres_sql_row_break, row, 3, on_notified, b, &err);
    else if (!status)
        status = postgres_send(shared, pg->bare ? &postgres_sql_break_bare : &postgres_sql_break,
                               key_.values, 5, on_notified, b, &err);
    if (status)
        sql_break_end(b, &err);
}

static void on_seen(void *data, const struct answer *a)
{
    struct breaking *b = data;
    struct stile_error err = {0};
    struct view view = {0};
    postgres_read_show(&view, a, b->query, &err);
    bool held = view.info.holders > 0;
    bool meant = held && (!b->query->token || b->query->token == view.info.token);
    sql_view_free(&view);
    if (err.status)
        sql_break_end(b, &err);
    else if (!meant)
        sql_break_end_not_meant(b, held);
    else if (!find_targets(b, a->result))
        sql_break_end_with(b, STILE_NOMEM, "out of memory");
    else
        notify_holders(b, seen_token(a->result));
}

void postgres_break(struct engine *engine, struct query *query)
{
    (void)engine;
    sql_break_begin(query, on_seen, on_looked);
}
