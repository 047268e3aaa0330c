/* break: a holder of our own client is told; of anybody else the session is ended, as there is no
 * way to tell it, and with that the lock. Other locks that were granted to its client at once end
 * with it, and are told as lost there. */
#include <stdlib.h>

#include "engines/mysql/sql.h"
#include "engines/mysql/view.h"
#include "engines/sql/breaking.h"

/* ---- until it is gone ---- */

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
    name_hex(stored, query->name, query->name_len);
    for (size_t i = 0; i < b->n; i++) {
        uint64_t backend = b->targets[i].backend;
        if (!claims_break(my, backend, stored) && !my_shared(&shared, my, NULL))
            session_send(shared, sql_kill(backend, true), on_ended, b, NULL);
    }
}

/* Who has it again by a later grant is not meant. */
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
    if (!a->err && !view_of(&view, a, b->query, &err) && is_over(b, &view)) {
        view_free(&view);
        breaking_end(b, NULL);
        return;
    }
    view_free(&view);
    if (a->err || err.status)
        breaking_end(b, a->err ? a->err : &err);
    else if (b->denied.status)
        breaking_end(b, &b->denied);
    else
        breaking_wait(b);
}

/* ---- who it is ---- */

static void on_unheld(void *data, const struct answer *a)
{
    struct breaking *b = data;
    if (a->err) {
        breaking_end(b, a->err);
        return;
    }
    end_holders(b);
    breaking_wait(b);
}

static void unhold(struct breaking *b)
{
    struct query *query = b->query;
    struct my *my = my_of(query->engine);
    struct session *shared;
    struct stile_error err;
    char stored[STORED_HEX_MAX];
    char *(*words)(const char *, uint64_t) =
        my->options.mode == MODE_ROW ? sql_row_unhold : sql_unhold;
    name_hex(stored, query->name, query->name_len);
    if (my->bare) {
        end_holders(b);
        breaking_wait(b);
    } else if (my_shared(&shared, my, &err) ||
               session_send(shared, words(stored, query->token), on_unheld, b, &err)) {
        breaking_end(b, &err);
    }
}

/* A hold that nobody has any more is meant as well, and has no session. */
static bool take_aim(struct breaking *b, const struct view *view)
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
    if (!a->err)
        view_of(&view, a, b->query, &err);
    bool held = view.info.holders > 0;
    bool meant = held && take_aim(b, &view);
    view_free(&view);
    if (a->err || err.status)
        breaking_end(b, a->err ? a->err : &err);
    else if (held && !b->targets)
        breaking_end_with(b, STILE_NOMEM, "out of memory");
    else if (!meant)
        breaking_end_unmeant(b, held);
    else
        unhold(b);
}

void people_break(struct engine *engine, struct query *query)
{
    (void)engine;
    breaking_begin(query, on_seen, on_looked);
}
