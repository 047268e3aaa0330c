/* break: a holder of our own client is told; of anybody else the session is ended, as there is no
 * way to tell it, and with that the lock. Other locks that were granted to its client at once end
 * with it, and are told as lost there. */
#include <stdlib.h>
#include <string.h>

#include "engines/mysql/sql.h"
#include "engines/mysql/view.h"

#define LOOK_NS     (10 * NS_PER_MS)
#define PATIENCE_NS (4 * NS_PER_SEC)

struct target {
    uint64_t backend, token; /* of a grant */
};

struct breaking {
    struct query *query;
    struct timer timer;
    uint64_t begun_ns;
    struct target *targets;
    size_t n;
    struct stile_error denied;
};

static void on_looked(void *data, const struct answer *a);

static void end(struct breaking *b, const struct stile_error *err)
{
    struct query *query = b->query;
    struct my *my = my_of(query->engine);
    pool_unask(&my->pool, b);
    loop_disarm(my->engine.loop, &b->timer);
    loop_unreserve(my->engine.loop, 1);
    query->state = NULL;
    struct stile_error copy = err ? *err : (struct stile_error){0};
    free(b->targets);
    free(b);
    query->engine->events->done(query, err ? &copy : NULL);
}

static void end_with(struct breaking *b, enum stile_status status, const char *why)
{
    struct stile_error err;
    error_set(&err, status, 0, "%s", why);
    end(b, &err);
}

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

static void look(struct timer *timer)
{
    struct breaking *b = (struct breaking *)((char *)timer - offsetof(struct breaking, timer));
    struct query *query = b->query;
    struct stile_error err;
    if (view_ask(my_of(query->engine), query->name, query->name_len, on_looked, b, &err))
        end(b, &err);
}

static void look_later(struct breaking *b)
{
    struct loop *loop = b->query->engine->loop;
    loop_arm(loop, &b->timer, loop_now(loop) + LOOK_NS);
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
    struct loop *loop = b->query->engine->loop;
    struct stile_error err = {0};
    struct view view = {0};
    if (!a->err && !view_of(&view, a, &err) && is_over(b, &view)) {
        view_free(&view);
        end(b, NULL);
        return;
    }
    view_free(&view);
    if (a->err || err.status)
        end(b, a->err ? a->err : &err);
    else if (b->denied.status)
        end(b, &b->denied);
    else if (loop_now(loop) - b->begun_ns > PATIENCE_NS)
        end_with(b, STILE_REFUSED, "its session does not end");
    else
        look_later(b);
}

/* ---- who it is ---- */

static void on_unheld(void *data, const struct answer *a)
{
    struct breaking *b = data;
    if (a->err) {
        end(b, a->err);
        return;
    }
    end_holders(b);
    look_later(b);
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
        look_later(b);
    } else if (my_shared(&shared, my, &err) ||
               session_send(shared, words(stored, query->token), on_unheld, b, &err)) {
        end(b, &err);
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
        view_of(&view, a, &err);
    bool held = view.info.holders > 0;
    bool meant = held && take_aim(b, &view);
    view_free(&view);
    if (a->err || err.status)
        end(b, a->err ? a->err : &err);
    else if (!held)
        end_with(b, STILE_CONFLICT, "it isn't held");
    else if (!b->targets)
        end_with(b, STILE_NOMEM, "out of memory");
    else if (!meant)
        end_with(b, STILE_CONFLICT, "the grant with that token is over");
    else
        unhold(b);
}

void people_break(struct engine *engine, struct query *query)
{
    struct stile_error err;
    struct breaking *b = calloc(1, sizeof *b);
    if (!b || loop_reserve(engine->loop, 1)) {
        free(b);
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->done(query, &err);
        return;
    }
    b->query = query;
    b->timer.fn = look;
    b->begun_ns = loop_now(engine->loop);
    query->state = b;
    if (view_ask(my_of(engine), query->name, query->name_len, on_seen, b, &err))
        end(b, &err);
}
