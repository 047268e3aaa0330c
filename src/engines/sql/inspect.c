/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/sql/inspect.h"

#include <stdio.h>
#include <stdlib.h>

/* A database waits for a tenth of a second each time. */
#define LOOKS_MAX         30
#define BREAK_LOOK_NS     (10 * NS_PER_MS)
#define BREAK_PATIENCE_NS (4 * NS_PER_SEC)

static const struct sql_database *database_of(const struct query *query)
{
    return pool_of(query->engine)->database;
}

/* ---- one name ---- */

enum stile_status sql_view_alloc(struct view *view, size_t n, size_t text_size,
                                 struct stile_error *err)
{
    view->claims = calloc(n + 1, sizeof *view->claims);
    view->backends = calloc(n + 1, sizeof *view->backends);
    view->texts = calloc(n + 1, text_size);
    if (!view->claims || !view->backends || !view->texts)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    return STILE_OK;
}

void sql_view_free(struct view *view)
{
    free(view->claims);
    free(view->backends);
    free(view->texts);
}

/* ---- show and list ---- */

bool sql_inspect_again(struct query *query, const struct view *view)
{
    return view->undescribed && query->looks++ < LOOKS_MAX;
}

static void ask_show(struct query *query);

static void on_shown(void *data, const struct answer *a)
{
    struct query *query = data;
    struct stile_error err;
    struct view view = {0};
    enum stile_status status = database_of(query)->read_show(&view, a, query, &err);
    if (!status && sql_inspect_again(query, &view)) {
        sql_view_free(&view);
        ask_show(query);
        return;
    }
    if (!status && view.record)
        query->engine->events->record(query, view.record, view.record_len);
    if (!status)
        query->engine->events->info(query, &view.info);
    sql_view_free(&view);
    query->engine->events->done(query, status ? &err : NULL);
}

static void ask_show(struct query *query)
{
    struct stile_error err;
    if (database_of(query)->ask_show(query, on_shown, query, &err))
        query->engine->events->done(query, &err);
}

void sql_inspect_show(struct engine *engine, struct query *query)
{
    (void)engine;
    query->looks = 0;
    ask_show(query);
}

static void on_listed(void *data, const struct answer *a)
{
    struct query *query = data;
    struct stile_error err;
    enum stile_status status = database_of(query)->report_list(query, a, &err);
    query->engine->events->done(query, status ? &err : NULL);
}

void sql_inspect_list(struct engine *engine, struct query *query)
{
    struct stile_error err;
    if (database_of(query)->ask_list(query, on_listed, query, &err))
        engine->events->done(query, &err);
}

/* ---- the record of the last holder ---- */

void sql_inspect_recorded(struct query *query, const struct stile_error *err)
{
    query->engine->events->done(query, err);
}

static void record(struct engine *engine, struct query *query)
{
    struct pool *pool = pool_of(engine);
    struct session *session;
    struct stile_error err;
    enum stile_status status = sql_pool_at_hand(&session, pool, &err);
    if (!status)
        status = pool->database->record(query, session, &err);
    if (status)
        engine->events->done(query, &err);
}

const struct engine_history sql_history = {.record = record};

/* ---- rows of mode=table ---- */

static const char *text_of(const char *cell)
{
    return cell ? cell : "";
}

static int64_t number(const char *cell)
{
    return strtoll(text_of(cell), NULL, 10);
}

static bool is_true(const char *cell)
{
    return *text_of(cell) == 't' || *text_of(cell) == '1';
}

static enum stile_mode mode_of(const char *word)
{
    return *word == 'e' ? STILE_EXCLUSIVE : *word && word[1] == 'h' ? STILE_SHARED : STILE_SLOTS;
}

void sql_inspect_row(struct stile_claim_info *claim, const char *const cells[ROW_COLUMNS])
{
    int64_t age = number(cells[ROW_AGE_MS]);
    bool held = is_true(cells[ROW_HELD]);
    *claim = (struct stile_claim_info){
        .held = held,
        .ghost = held && is_true(cells[ROW_GHOST]),
        .mode = mode_of(text_of(cells[ROW_MODE])),
        .token = strtoull(text_of(cells[ROW_TOKEN]), NULL, 10),
        .age_ms = age > 0 ? age : 0,
        .expires_ms = *text_of(cells[ROW_LEFT_MS]) ? number(cells[ROW_LEFT_MS]) : STILE_NO_DEADLINE,
        .pid = number(cells[ROW_PID]),
        .host = text_of(cells[ROW_HOST]),
        .command = text_of(cells[ROW_COMMAND]),
        .owner = text_of(cells[ROW_OWNER])};
}

/* ---- break ---- */

static void break_free(struct breaking *b)
{
    struct engine *engine = b->query->engine;
    sql_pool_forget(pool_of(engine), b);
    loop_disarm(engine->loop, &b->timer);
    loop_unreserve(engine->loop, 1);
    b->query->state = NULL;
    free(b->targets);
    free(b);
}

void sql_break_end(struct breaking *b, const struct stile_error *err)
{
    struct query *query = b->query;
    struct stile_error why = err ? *err : (struct stile_error){0};
    break_free(b);
    query->engine->events->done(query, err ? &why : NULL);
}

void sql_break_end_with(struct breaking *b, enum stile_status status, const char *why)
{
    struct stile_error err;
    error_set(&err, status, 0, "%s", why);
    sql_break_end(b, &err);
}

static const char *not_meant(bool held)
{
    return held ? "the grant with that token is over" : "it isn't held";
}

void sql_break_end_not_meant(struct breaking *b, bool held)
{
    sql_break_end_with(b, STILE_CONFLICT, not_meant(held));
}

/* Any role may have sent it. */
void sql_break_blame(struct stile_error *err, const char *by)
{
    char host[65];
    long long pid;
    if (sscanf(by, " %64s %lld", host, &pid) != 2) {
        error_set(err, STILE_LOST, 0, "taken by stile break");
        return;
    }
    for (char *c = host; *c; c++)
        *c = *c > ' ' && *c <= '~' ? *c : '?';
    error_set(err, STILE_LOST, 0, "taken by stile break (%s pid %lld)", host, pid);
}

void sql_break_done(struct query *query, int n, const struct stile_error *err)
{
    struct stile_error why;
    if (!err && n < 1) {
        error_set(&why, STILE_CONFLICT, 0, "%s", not_meant(n == 0));
        err = &why;
    }
    query->engine->events->done(query, err);
}

void sql_break_look(struct breaking *b)
{
    struct stile_error err;
    if (database_of(b->query)->ask_show(b->query, b->looked, b, &err))
        sql_break_end(b, &err);
}

static void on_break_time(struct timer *timer)
{
    sql_break_look((struct breaking *)((char *)timer - offsetof(struct breaking, timer)));
}

uint64_t sql_break_age_ns(const struct breaking *b)
{
    return loop_now(b->query->engine->loop) - b->begun_ns;
}

void sql_break_wait(struct breaking *b)
{
    struct loop *loop = b->query->engine->loop;
    if (sql_break_age_ns(b) <= BREAK_PATIENCE_NS)
        loop_arm(loop, &b->timer, loop_now(loop) + BREAK_LOOK_NS);
    else if (b->denied.status)
        sql_break_end(b, &b->denied);
    else
        sql_break_end_with(b, STILE_REFUSED, "the holder's session does not end");
}

void sql_break_begin(struct query *query, answer_fn *seen, answer_fn *looked)
{
    struct engine *engine = query->engine;
    struct stile_error err;
    struct breaking *b = calloc(1, sizeof *b);
    if (!b || loop_reserve(engine->loop, 1)) {
        free(b);
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->done(query, &err);
        return;
    }
    b->query = query;
    b->looked = looked;
    b->timer.fn = on_break_time;
    b->begun_ns = loop_now(engine->loop);
    query->state = b;
    query->looks = 0;
    if (database_of(query)->ask_show(query, seen, b, &err))
        sql_break_end(b, &err);
}

/* ---- cancelling ---- */

void sql_inspect_cancel(struct engine *engine, struct query *query)
{
    struct pool *pool = pool_of(engine);
    if (query->state) {
        break_free(query->state);
        return;
    }
    sql_pool_forget(pool, query);
    for (struct session *session = pool->sessions; session; session = base_of(session)->next)
        sql_session_forget(session, query); /* a record */
}
