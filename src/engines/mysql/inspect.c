/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* show, list and break: the rows that the server returns about locks, as stile_info. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/mysql/my.h"
#include "engines/mysql/statements.h"
#include "engines/mysql/tokens.h"
#include "engines/sql/inspect.h"

enum column {
    COL_NAME,
    COL_KEY,
    COL_USED,    /* the session that has the lock */
    COL_IS_OURS, /* the name's row is about its grant */
    COL_SIGNED,  /* its grants are described in the name's row: one of the values below */
    COL_USER,
    COL_FROM,
    COL_TOKEN,
    COL_OWNER,
    COL_HOST,
    COL_PID,
    COL_COMMAND,
    COL_AGE_MS,
    COL_KEPT_MS,
    COL_RECORD, /* show only, else NULL */
    COLUMNS,
};

/* IS_UNDESCRIBED: its row is a moment behind. */
enum { IS_OTHERS, IS_ABOUT_TO, IS_UNDESCRIBED };

enum waiter_column { WAITER_ID, WAITER_MS, WAITER_INFO, WAITER_USER, WAITER_FROM, WAITER_COLUMNS };

#define ID_MAX   24
#define TEXT_MAX 400
#define LIKE_MAX (KEY_HEX_MAX + 16)

static const struct outcome *rows_of(const struct answer *a)
{
    return &a->outcomes[a->n - 2];
}

static const char *text_of(const char *value)
{
    return value ? value : "";
}

static int64_t number(const char *value)
{
    return value ? strtoll(value, NULL, 10) : 0;
}

/* The show of mode=table and mode=row has one column more than the list: the name's record. */
static bool has_columns(MYSQL_RES *rows, unsigned columns)
{
    return rows && (mysql_num_fields(rows) == columns || mysql_num_fields(rows) == columns + 1);
}

static void read_record(struct view *view, MYSQL_RES *rows, MYSQL_ROW row, unsigned column)
{
    if (mysql_num_fields(rows) == column || !row[column])
        return;
    view->record = row[column];
    view->record_len = mysql_fetch_lengths(rows)[column];
}

/* ---- one claim ---- */

static char *next_text(struct view *view)
{
    return view->texts + view->n * TEXT_MAX;
}

static void read_row(struct stile_claim_info *claim, MYSQL_ROW row)
{
    int64_t age = number(row[COL_AGE_MS]);
    claim->token = (uint64_t)strtoull(text_of(row[COL_TOKEN]), NULL, 10);
    claim->age_ms = age > 0 ? age : 0;
    claim->owner = text_of(row[COL_OWNER]);
    claim->host = text_of(row[COL_HOST]);
    claim->pid = number(row[COL_PID]);
    claim->command = text_of(row[COL_COMMAND]);
}

static void add_session(struct view *view, MYSQL_ROW row, bool held)
{
    char *text = next_text(view);
    struct stile_claim_info *claim = &view->claims[view->n++];
    /* Of a lock that is not in our table the server does not know since when. */
    *claim = (struct stile_claim_info){
        .held = held, .age_ms = held ? -1 : 0, .expires_ms = STILE_NO_DEADLINE};
    claim->owner = text_of(row[COL_USED]);
    claim->host = text_of(row[COL_FROM]);
    claim->command = text;
    snprintf(text, TEXT_MAX, "%s", text_of(row[COL_USER]));
    if (held && number(row[COL_IS_OURS]))
        read_row(claim, row);
}

static void add_ghost(struct view *view, MYSQL_ROW row)
{
    struct stile_claim_info *claim = &view->claims[view->n++];
    *claim = (struct stile_claim_info){
        .held = true, .ghost = true, .expires_ms = number(row[COL_KEPT_MS])};
    read_row(claim, row);
}

/* The comment that maria_sql_lock() has appended to its statement. */
static void read_comment(struct stile_claim_info *claim, char *text, const char *info)
{
    const char *at = strstr(info, "/* stile:");
    claim->host = claim->command = "";
    if (!at)
        return;
    snprintf(text, TEXT_MAX, "%s", at + strlen("/* stile:"));
    char *host = strchr(text, '@'), *space = host ? strchr(host, ' ') : NULL;
    char *end = strstr(text, " */");
    if (!space || !end || end < space)
        return;
    char *waited;
    claim->pid = strtoll(text, &waited, 10);
    if (*waited == '+')
        claim->age_ms += strtoll(waited + 1, NULL, 10);
    *space = *end = '\0';
    claim->host = host + 1;
    claim->command = end > space ? space + 1 : "";
}

static void add_waiter(struct view *view, MYSQL_ROW row)
{
    char *text = next_text(view);
    struct stile_claim_info *claim = &view->claims[view->n++];
    int64_t waits = number(row[WAITER_MS]);
    const char *info = text_of(row[WAITER_INFO]);
    bool shared = strstr(info, "LOCK IN SHARE MODE") || strstr(info, "FOR SHARE");
    *claim = (struct stile_claim_info){.mode = shared ? STILE_SHARED : STILE_EXCLUSIVE,
                                       .expires_ms = STILE_NO_DEADLINE};
    claim->age_ms = waits > 0 ? waits : 0;
    claim->owner = text_of(row[WAITER_ID]);
    read_comment(claim, text, info);
    if (!claim->pid) {
        claim->host = text_of(row[WAITER_FROM]);
        claim->command = text_of(row[WAITER_USER]);
    }
}

/* ---- one name ---- */

static void add_those_who_say(struct view *view, const struct outcome *waiters, const char *ours,
                              const char *plain)
{
    MYSQL_ROW row;
    mysql_data_seek(waiters->rows, 0);
    while ((row = mysql_fetch_row(waiters->rows))) {
        const char *info = text_of(row[WAITER_INFO]);
        if (strstr(info, ours) || strcasestr(info, plain))
            add_waiter(view, row);
    }
}

/* Our statements have the name in hex; those of other clients usually have it as it is. */
static void add_waiters(struct view *view, const struct outcome *waiters, const char *key,
                        size_t len)
{
    char hex[KEY_HEX_MAX], ours[LIKE_MAX], plain[LIKE_MAX];
    if (len > KEY_MAX)
        return;
    maria_name_hex(hex, key, len);
    snprintf(ours, sizeof ours, "GET_LOCK(X'%s',", hex);
    snprintf(plain, sizeof plain, "GET_LOCK('%.*s'", (int)len, key);
    add_those_who_say(view, waiters, ours, plain);
}

/* A session of ours that has the lock but no grant in the name's row is about to be granted it,
 * or a hold keeps the name back: it counts as a waiter. */
static void fill(struct view *view, MYSQL_ROW row, const unsigned long *lengths,
                 const struct outcome *waiters)
{
    bool used = row[COL_USED], ours = used && number(row[COL_IS_OURS]);
    bool held = ours || (used && number(row[COL_SIGNED]) != IS_ABOUT_TO);
    view->undescribed = used && !ours && number(row[COL_SIGNED]) == IS_UNDESCRIBED;
    if (!ours && number(row[COL_KEPT_MS]) > 0)
        add_ghost(view, row);
    if (held) {
        view->backends[view->n] = (uint64_t)number(row[COL_USED]);
        add_session(view, row, true);
    }
    view->info.holders = view->n;
    if (used && !held)
        add_session(view, row, false);
    add_waiters(view, waiters, row[COL_KEY], lengths[COL_KEY]);
    view->info.waiters = view->n - view->info.holders;
    view->info.token = strtoull(text_of(row[COL_TOKEN]), NULL, 10);
    view->info.claims = view->claims;
    view->info.name = view->name;
}

/* ---- mode=table and mode=row: the rows of one name are adjacent ---- */

#define ROW_BACKEND                                                                                \
    ROW_COLUMNS /* mode=row has one more column, and the waiters in another result */

static bool is_table(const struct answer *a)
{
    MYSQL_RES *rows = a->n > 0 ? a->outcomes[0].rows : NULL;
    if (a->n == 2)
        return has_columns(rows, ROW_BACKEND + 1) && answer_last(a)->rows &&
               mysql_num_fields(answer_last(a)->rows) == WAITER_COLUMNS;
    return a->n == 1 && has_columns(rows, ROW_COLUMNS);
}

static void add_row(struct view *view, MYSQL_ROW row, bool row_mode)
{
    if (!row[ROW_OWNER])
        return;
    if (row_mode)
        view->backends[view->n] = (uint64_t)number(row[ROW_BACKEND]);
    sql_inspect_row(&view->claims[view->n], (const char *const *)row);
    view->info.holders += view->claims[view->n++].held;
}

static void add_row_waiters(struct view *view, const struct answer *a, size_t len)
{
    char hex[STORED_HEX_MAX], ours[STORED_HEX_MAX + 32];
    maria_name_hex(hex, view->name, len);
    snprintf(ours, sizeof ours, "stile_row WHERE name=X'%s'", hex);
    if (a->n == 2)
        add_those_who_say(view, answer_last(a), ours, ours);
}

static void fill_from_table(struct view *view, MYSQL_RES *rows, MYSQL_ROW row, size_t len,
                            bool row_mode)
{
    MYSQL_ROW_OFFSET next = mysql_row_tell(rows);
    while (row && row[ROW_NAME] && mysql_fetch_lengths(rows)[ROW_NAME] == len &&
           memcmp(row[ROW_NAME], view->name, len) == 0) {
        add_row(view, row, row_mode);
        view->info.token = strtoull(text_of(row[ROW_COUNTER]), NULL, 10);
        next = mysql_row_tell(rows);
        row = mysql_fetch_row(rows);
    }
    mysql_row_seek(rows, next);
}

static enum stile_status next_of_table(struct view *view, bool *made, const struct answer *a,
                                       struct stile_error *err)
{
    MYSQL_RES *rows = a->outcomes[0].rows;
    MYSQL_ROW row = mysql_fetch_row(rows);
    *made = row;
    if (!row)
        return STILE_OK;
    size_t len = mysql_fetch_lengths(rows)[ROW_NAME];
    if (len > STILE_NAME_MAX || !row[ROW_NAME])
        return error_set(err, STILE_CORRUPT, 0, "a row of stile_claim was not written by stile");
    size_t room = (size_t)mysql_num_rows(rows);
    if (a->n == 2)
        room += (size_t)mysql_num_rows(answer_last(a)->rows);
    if (sql_view_alloc(view, room, TEXT_MAX, err))
        return STILE_NOMEM;
    memcpy(view->name, row[ROW_NAME], len);
    read_record(view, rows, row, a->n == 2 ? ROW_BACKEND + 1 : ROW_COLUMNS);
    fill_from_table(view, rows, row, len, a->n == 2);
    add_row_waiters(view, a, len);
    view->info.waiters = view->n - view->info.holders;
    view->info.claims = view->claims;
    view->info.name = view->name;
    return STILE_OK;
}

/* ---- either ---- */

static bool has_form(const struct answer *a)
{
    if (a->n < 2 || !rows_of(a)->rows || !answer_last(a)->rows)
        return false;
    return mysql_num_fields(rows_of(a)->rows) == COLUMNS &&
           mysql_num_fields(answer_last(a)->rows) == WAITER_COLUMNS;
}

static void rewind_views(const struct answer *a)
{
    if (is_table(a))
        mysql_data_seek(a->outcomes[0].rows, 0);
    else if (has_form(a))
        mysql_data_seek(rows_of(a)->rows, 0);
}

static enum stile_status next_view(struct view *view, bool *made, const struct answer *a,
                                   struct stile_error *err)
{
    *view = (struct view){0};
    if (is_table(a))
        return next_of_table(view, made, a, err);
    if (!has_form(a))
        return error_set(err, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
    MYSQL_ROW row = mysql_fetch_row(rows_of(a)->rows);
    *made = row;
    if (!row)
        return STILE_OK;
    const unsigned long *lengths = mysql_fetch_lengths(rows_of(a)->rows);
    size_t room = (size_t)mysql_num_rows(answer_last(a)->rows) + 3;
    if (sql_view_alloc(view, room, TEXT_MAX, err))
        return STILE_NOMEM;
    if (lengths[COL_NAME] > STILE_NAME_MAX || !row[COL_NAME] || !row[COL_KEY])
        return error_set(err, STILE_CORRUPT, 0, "a row of stile_lock was not written by stile");
    memcpy(view->name, row[COL_NAME], lengths[COL_NAME]);
    read_record(view, rows_of(a)->rows, row, COL_RECORD);
    fill(view, row, lengths, answer_last(a));
    return STILE_OK;
}

enum stile_status maria_read_show(struct view *view, const struct answer *a,
                                  const struct query *query, struct stile_error *err)
{
    bool made = false;
    (void)query; /* its name is in the answer */
    if (a->err) {
        error_copy(err, a->err);
        return a->err->status;
    }
    rewind_views(a);
    enum stile_status status = next_view(view, &made, a, err);
    if (!status && !made)
        status = error_set(err, STILE_CORRUPT, 0, "the server's answer has an unexpected form");
    return status;
}

static char *statement_for_show(struct my *my, const char *name, size_t len)
{
    char key[KEY_MAX + 1], key_hex[KEY_HEX_MAX], stored[STORED_HEX_MAX];
    maria_name_hex(stored, name, len);
    if (my->options.table)
        return maria_sql_shed_show(my, name, len);
    if (my->options.mode == MODE_TABLE)
        return maria_sql_table_show(my, stored);
    if (my->options.mode == MODE_ROW)
        return maria_sql_row_show(my, stored);
    maria_name_key(key, my->mariadb, name, len);
    maria_name_hex(key_hex, key, strlen(key));
    return maria_sql_show(my, stored, key_hex);
}

enum stile_status maria_ask_show(const struct query *query, answer_fn *fn, void *data,
                                 struct stile_error *err)
{
    struct my *my = my_of(query->engine);
    struct session *shared;
    enum stile_status status = sql_pool_shared(&shared, &my->pool, err);
    if (status)
        return status;
    maria_describe_now(my);
    return maria_send(shared, statement_for_show(my, query->name, query->name_len), fn, data, err);
}

/* ---- the record of the last holder ---- */

#define RECORDS_PER_SWEEP 32

static void ignore(void *data, const struct answer *a)
{
    (void)data, (void)a;
}

static void on_recorded(void *data, const struct answer *a)
{
    sql_inspect_recorded(data, a->err);
}

/* Each client begins at another number, as most store only one or two. */
static bool is_due(struct my *my)
{
    if (my->records == 0)
        my->records = (unsigned)strtoul(my->identity.owner + IDENTITY_OWNER_LEN - 4, NULL, 16) | 1;
    return my->records++ % RECORDS_PER_SWEEP == 0;
}

enum stile_status maria_record(struct query *query, struct session *session,
                               struct stile_error *err)
{
    struct my *my = my_of(query->engine);
    if (!my->remembers)
        return error_set(err, STILE_REFUSED, 0,
                         "this database has no table stile_last_holder that this user may read: "
                         "run `stile setup URL`");
    enum stile_status status =
        maria_send(session, maria_sql_remember(my, query), on_recorded, query, err);
    if (!status && is_due(my))
        maria_send(session, maria_sql_forget(), ignore, NULL, NULL);
    return status;
}

/* ---- list: all names with a prefix ---- */

static char *statement_for_list(struct my *my, const char *prefix)
{
    if (my->options.table)
        return maria_sql_shed_list(my, prefix);
    if (my->options.mode == MODE_TABLE)
        return maria_sql_table_list(prefix);
    return my->options.mode == MODE_ROW ? maria_sql_row_list(my, prefix)
                                        : maria_sql_list(my, prefix);
}

enum stile_status maria_ask_list(const struct query *query, answer_fn *fn, void *data,
                                 struct stile_error *err)
{
    struct my *my = my_of(query->engine);
    struct session *shared;
    char prefix[STORED_HEX_MAX];
    if (my->bare && !my->options.table)
        return error_set(err, STILE_UNSUPPORTED, 0,
                         "without the tables stile_* the names are not known: run `stile setup "
                         "URL`");
    maria_name_hex(prefix, query->name, query->name_len);
    enum stile_status status = sql_pool_shared(&shared, &my->pool, err);
    if (status)
        return status;
    maria_describe_now(my);
    return maria_send(shared, statement_for_list(my, prefix), fn, data, err);
}

/* The server has sorted them by their bytes. */
enum stile_status maria_report_list(struct query *query, const struct answer *a,
                                    struct stile_error *err)
{
    enum stile_status status = STILE_OK;
    bool made = true;
    if (a->err) {
        error_copy(err, a->err);
        return a->err->status;
    }
    rewind_views(a);
    while (made && !status) {
        struct view view;
        status = next_view(&view, &made, a, err);
        if (!status && made && view.n > 0)
            query->engine->events->info(query, &view.info);
        sql_view_free(&view);
    }
    return status;
}

/* ---- break ----
 *
 * A holder of this client is notified directly. The session of any other holder is killed, as there
 * is no way to notify it. All other locks on that session end with it, and its client reports
 * them as lost. */

/* ---- until the holders are gone ---- */

static void on_ended(void *data, const struct answer *a)
{
    struct breaking *b = data;
    if (a->err)
        b->denied = *a->err;
}

static void end_holders(struct breaking *b)
{
    struct query *query = b->query;
    struct my *my = my_of(query->engine);
    struct session *shared;
    char stored[STORED_HEX_MAX];
    maria_name_hex(stored, query->name, query->name_len);
    for (size_t i = 0; i < b->n; i++) {
        uint64_t backend = b->targets[i].backend;
        if (!maria_claim_break(my, backend, stored) && !sql_pool_shared(&shared, &my->pool, NULL))
            maria_send(shared, maria_sql_kill(backend, true), on_ended, b, NULL);
    }
}

/* A holder that has the lock again by a later grant is not meant. */
static bool is_over(const struct breaking *b, const struct view *view)
{
    for (size_t i = 0; i < view->info.holders * b->n; i++) {
        const struct target *target = &b->targets[i % b->n];
        if (view->backends[i / b->n] == target->backend &&
            view->claims[i / b->n].token == target->token)
            return false;
    }
    return true;
}

static void on_looked(void *data, const struct answer *a)
{
    struct breaking *b = data;
    struct stile_error err = {0};
    struct view view = {0};
    if (!maria_read_show(&view, a, b->query, &err) && is_over(b, &view)) {
        sql_view_free(&view);
        sql_break_end(b, NULL);
        return;
    }
    sql_view_free(&view);
    if (err.status)
        sql_break_end(b, &err);
    else if (b->denied.status)
        sql_break_end(b, &b->denied);
    else
        sql_break_wait(b);
}

/* ---- finding the holders ---- */

static void on_hold_ended(void *data, const struct answer *a)
{
    struct breaking *b = data;
    if (a->err) {
        sql_break_end(b, a->err);
        return;
    }
    end_holders(b);
    sql_break_wait(b);
}

static void end_hold(struct breaking *b)
{
    struct query *query = b->query;
    struct my *my = my_of(query->engine);
    struct session *shared;
    struct stile_error err;
    char stored[STORED_HEX_MAX];
    char *(*words)(const struct my *, const char *, uint64_t) =
        my->options.mode == MODE_ROW ? maria_sql_row_break_hold : maria_sql_break_hold;
    maria_name_hex(stored, query->name, query->name_len);
    if (my->bare) {
        end_holders(b);
        sql_break_wait(b);
    } else if (sql_pool_shared(&shared, &my->pool, &err) ||
               maria_send(shared, words(my, stored, query->token), on_hold_ended, b, &err)) {
        sql_break_end(b, &err);
    }
}

/* A hold without a holder is broken as well; it has no session. */
static bool find_targets(struct breaking *b, const struct view *view)
{
    uint64_t token = b->query->token;
    bool meant = false;
    b->targets = calloc(view->n + 1, sizeof *b->targets);
    for (size_t i = 0; b->targets && i < view->info.holders; i++) {
        if (token && token != view->claims[i].token)
            continue;
        meant = true;
        if (view->backends[i])
            b->targets[b->n++] = (struct target){view->backends[i], view->claims[i].token};
    }
    return meant;
}

static void on_seen(void *data, const struct answer *a)
{
    struct breaking *b = data;
    struct stile_error err = {0};
    struct view view = {0};
    maria_read_show(&view, a, b->query, &err);
    if (!err.status && sql_inspect_again(b->query, &view)) {
        sql_view_free(&view);
        if (maria_ask_show(b->query, on_seen, b, &err))
            sql_break_end(b, &err);
        return;
    }
    bool held = view.info.holders > 0;
    bool meant = held && find_targets(b, &view);
    sql_view_free(&view);
    if (err.status)
        sql_break_end(b, &err);
    else if (held && !b->targets)
        sql_break_end_with(b, STILE_NOMEM, "out of memory");
    else if (!meant)
        sql_break_end_not_meant(b, held);
    else
        end_hold(b);
}

void maria_break(struct engine *engine, struct query *query)
{
    (void)engine;
    sql_break_begin(query, on_seen, on_looked);
}
