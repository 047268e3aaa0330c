/* break: holders of ours are told through NOTIFY and give it back by themselves, so that a session
 * keeps what else it holds. Who does not within a second is stopped, cut off, or not one of ours:
 * its session is ended. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "engines/postgres/sql.h"
#include "engines/postgres/view.h"
#include "engines/sql/breaking.h"

#define TELLING_NS NS_PER_SEC

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
    char pid[24];
    const char *values[] = {pid};
    b->ended = true;
    for (size_t i = 0; i < b->n && pg->pool.shared; i++) {
        snprintf(pid, sizeof pid, "%" PRIu64, b->targets[i].backend);
        session_send(pg->pool.shared, &sql_terminate, values, 1, on_terminated, b, NULL);
    }
}

/* Who has it again by a later grant is not meant. */
static bool is_left(const struct target *target, const PGresult *result)
{
    bool foreign;
    for (int row = 0; row < PQntuples(result); row++) {
        if (view_holder(result, row, &foreign) == target->backend)
            return view_token(result) == target->token;
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
        breaking_end(b, a->err);
        return;
    }
    keep_those_left(b, a->result);
    if (b->n == 0) {
        breaking_end(b, NULL);
        return;
    }
    if (!b->ended && (b->foreign || breaking_age_ns(b) > TELLING_NS))
        terminate(b);
    breaking_wait(b);
}

/* ---- who it is ---- */

static void on_told(void *data, const struct answer *a)
{
    struct breaking *b = data;
    if (a->err)
        breaking_end(b, a->err);
    else
        breaking_look(b);
}

static bool take_aim(struct breaking *b, const PGresult *result)
{
    bool foreign;
    b->targets = calloc((size_t)PQntuples(result) + 1, sizeof *b->targets);
    for (int row = 0; b->targets && row < PQntuples(result); row++) {
        uint64_t backend = view_holder(result, row, &foreign);
        if (backend) {
            b->targets[b->n++] = (struct target){backend, view_token(result)};
            b->foreign |= foreign;
        }
    }
    return b->targets;
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
        breaking_end(b, &err);
}

static void on_seen(void *data, const struct answer *a)
{
    struct breaking *b = data;
    struct stile_error err = {0};
    struct view view = {0};
    if (!a->err)
        view_of(&view, a, b->query, &err);
    bool held = view.info.holders > 0;
    bool meant = held && (!b->query->token || b->query->token == view.info.token);
    view_free(&view);
    if (a->err || err.status)
        breaking_end(b, a->err ? a->err : &err);
    else if (!meant)
        breaking_end_unmeant(b, held);
    else if (!take_aim(b, a->result))
        breaking_end_with(b, STILE_NOMEM, "out of memory");
    else
        tell_holders(b);
}

void people_break(struct engine *engine, struct query *query)
{
    (void)engine;
    breaking_begin(query, on_seen, on_looked);
}
