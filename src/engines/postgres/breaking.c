/* break: holders of ours are told through NOTIFY and give it back by themselves, so that a session
 * keeps what else it holds. Who does not within a second is stopped, cut off, or not one of ours:
 * its session is ended. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/postgres/sql.h"
#include "engines/postgres/view.h"

#define HOLDERS_MAX 256
#define LOOK_NS     (10 * NS_PER_MS)
#define TELLING_NS  NS_PER_SEC
#define PATIENCE_NS (4 * NS_PER_SEC)

struct breaking {
    struct query *query;
    struct timer timer;
    uint64_t begun_ns, token;
    bool foreign, ended;
    size_t n;
    int holders[HOLDERS_MAX];
    struct stile_error denied;
};

static void on_looked(void *data, const struct answer *a);

static void end(struct breaking *b, const struct stile_error *err)
{
    struct query *query = b->query;
    struct pg *pg = pg_of(query->engine);
    pool_unask(&pg->pool, b);
    loop_disarm(pg->engine.loop, &b->timer);
    loop_unreserve(pg->engine.loop, 1);
    query->state = NULL;
    struct stile_error copy = err ? *err : (struct stile_error){0};
    free(b);
    query->engine->events->done(query, err ? &copy : NULL);
}

static void end_with(struct breaking *b, enum stile_status status, const char *why)
{
    struct stile_error err;
    error_set(&err, status, 0, "%s", why);
    end(b, &err);
}

/* ---- until they are gone ---- */

static void on_terminated(void *data, const struct answer *a)
{
    struct breaking *b = data;
    if (a->err)
        b->denied = *a->err;
}

static void terminate(struct breaking *b)
{
    struct pg *pg = pg_of(b->query->engine);
    char pid[16];
    const char *values[] = {pid};
    b->ended = true;
    for (size_t i = 0; i < b->n && pg->pool.shared; i++) {
        snprintf(pid, sizeof pid, "%d", b->holders[i]);
        session_send(pg->pool.shared, &sql_terminate, values, 1, on_terminated, b, NULL);
    }
}

static void look(struct timer *timer)
{
    struct breaking *b = (struct breaking *)((char *)timer - offsetof(struct breaking, timer));
    struct query *query = b->query;
    struct stile_error err;
    if (view_ask(pg_of(query->engine), query->name, query->name_len, on_looked, b, &err))
        end(b, &err);
}

static bool was_holder(const struct breaking *b, int pid)
{
    for (size_t i = 0; i < b->n; i++) {
        if (b->holders[i] == pid)
            return true;
    }
    return false;
}

/* Who has it again by a later grant is not meant. */
static void keep_those_left(struct breaking *b, const PGresult *result)
{
    int left[HOLDERS_MAX];
    size_t n = 0;
    bool foreign, same = view_token(result) == b->token;
    for (int row = 0; row < PQntuples(result) && n < HOLDERS_MAX; row++) {
        int pid = view_holder(result, row, &foreign);
        if (pid && was_holder(b, pid) && same)
            left[n++] = pid;
    }
    memcpy(b->holders, left, n * sizeof *left);
    b->n = n;
}

static void on_looked(void *data, const struct answer *a)
{
    struct breaking *b = data;
    struct loop *loop = b->query->engine->loop;
    if (a->err) {
        end(b, a->err);
        return;
    }
    keep_those_left(b, a->result);
    uint64_t waited = loop_now(loop) - b->begun_ns;
    if (b->n == 0) {
        end(b, NULL);
        return;
    }
    if (waited > PATIENCE_NS) {
        if (b->denied.status)
            end(b, &b->denied);
        else
            end_with(b, STILE_REFUSED, "its session does not end");
        return;
    }
    if (!b->ended && (b->foreign || waited > TELLING_NS))
        terminate(b);
    loop_arm(loop, &b->timer, loop_now(loop) + LOOK_NS);
}

/* ---- who it is ---- */

static void on_told(void *data, const struct answer *a)
{
    struct breaking *b = data;
    if (a->err)
        end(b, a->err);
    else
        look(&b->timer);
}

static void find_holders(struct breaking *b, const PGresult *result)
{
    bool foreign;
    b->token = view_token(result);
    for (int row = 0; row < PQntuples(result) && b->n < HOLDERS_MAX; row++) {
        int pid = view_holder(result, row, &foreign);
        if (pid) {
            b->holders[b->n++] = pid;
            b->foreign |= foreign;
        }
    }
}

static void tell_holders(struct breaking *b)
{
    struct query *query = b->query;
    struct pg *pg = pg_of(query->engine);
    struct session *shared;
    struct place place;
    struct stile_error err;
    char token[24];
    snprintf(token, sizeof token, "%" PRIu64, query->token);
    place_of(&place, pg, query->name, query->name_len);
    place.values[3] = token;
    const char *row[] = {place.stored, token};
    enum stile_status status = pg_shared(&shared, pg, &err);
    if (!status && pg->options.mode == MODE_ROW)
        status = session_send(shared, &sql_row_break, row, 2, on_told, b, &err);
    else if (!status)
        status = session_send(shared, pg->bare ? &sql_break_bare : &sql_break, place.values, 4,
                              on_told, b, &err);
    if (status)
        end(b, &err);
}

static void on_seen(void *data, const struct answer *a)
{
    struct breaking *b = data;
    struct query *query = b->query;
    struct stile_error err;
    struct view view = {0};
    if (a->err) {
        end(b, a->err);
        return;
    }
    if (view_make(&view, a->result, 0, PQntuples(a->result), query->name, &err)) {
        view_free(&view);
        end(b, &err);
        return;
    }
    bool held = view.info.holders > 0;
    bool meant = !query->token || query->token == view.info.token;
    view_free(&view);
    find_holders(b, a->result);
    if (!held)
        end_with(b, STILE_CONFLICT, "it isn't held");
    else if (!meant)
        end_with(b, STILE_CONFLICT, "the grant with that token is over");
    else
        tell_holders(b);
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
    if (view_ask(pg_of(engine), query->name, query->name_len, on_seen, b, &err))
        end(b, &err);
}
