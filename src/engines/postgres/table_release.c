/* mode=table: leaving, renewing, breaking. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/postgres/sql.h"
#include "engines/postgres/table.h"

#define SAY_AGAIN_NS      (20 * NS_PER_MS)
#define LEAVE_PATIENCE_NS (2500 * NS_PER_MS)

/* ---- leaving ---- */

static void left(struct row_claim *row, const struct stile_error *err)
{
    struct claim *claim = claim_of_row(row);
    table_forget(row);
    row->may_be_there = false;
    claim->engine->events->released(claim, err);
}

/* Repeated until answered or too late: the owner value makes that safe. */
static void unanswered(struct row_claim *row, const struct stile_error *err)
{
    struct loop *loop = claim_of_row(row)->engine->loop;
    uint64_t at = loop_now(loop) + (SAY_AGAIN_NS << (row->tries < 5 ? row->tries : 5));
    bool passing = err->status == STILE_UNREACHABLE || err->status == STILE_UNCERTAIN;
    row->tries++;
    row->may_be_there = true; /* the one before may have done it */
    if (!passing || !row->has_timer || at >= row->give_up_ns)
        left(row, err);
    else
        loop_arm(loop, &row->timer, at);
}

static void on_released(void *data, const struct answer *a)
{
    struct row_claim *row = data;
    struct stile_error lost, copy;
    if (a->err) {
        copy = *a->err;
        unanswered(row, &copy);
    } else if (!row->may_be_there && PQgetvalue(a->result, 0, 0)[0] != 't') {
        error_set(&lost, STILE_LOST, 0, "it was not ours any more");
        left(row, &lost);
    } else {
        left(row, NULL);
    }
}

static void say(struct row_claim *row)
{
    struct pg *pg = pg_of_row(row);
    struct session *shared;
    struct stile_error err;
    bool unused = row->may_be_there || claim_of_row(row)->unused;
    const char *values[] = {row->stored, row->owner, unused ? "t" : "f"};
    enum stile_status status = pg_shared(&shared, pg, &err);
    if (!status)
        status = session_send(shared, &sql_table_release, values, 3, on_released, row, &err);
    if (status)
        unanswered(row, &err);
}

static void say_again(struct timer *timer)
{
    say((struct row_claim *)((char *)timer - offsetof(struct row_claim, timer)));
}

void table_release(struct engine *engine, struct claim *claim)
{
    struct row_claim *row = row_of(claim);
    struct pg *pg = pg_of(engine);
    bool held = row->place == OWNING;
    table_leave_batch(row);
    if (pg->shared)
        session_forget(pg->shared, row);
    if (!row->has_timer)
        row->has_timer = loop_reserve(engine->loop, 1) == 0;
    if (row->has_timer)
        loop_disarm(engine->loop, &row->timer);
    row->timer.fn = say_again;
    row->tries = 0;
    row->may_be_there = !held;
    row->place = GOING;
    row->give_up_ns = loop_now(engine->loop) + LEAVE_PATIENCE_NS;
    say(row);
}

/* ---- renewing, many in one statement ---- */

/* Claims that leave meanwhile are crossed out. */
struct batch {
    struct batch *next;
    struct pg *pg;
    size_t n;
    struct row_claim *rows[];
};

void table_leave_batch(struct row_claim *row)
{
    struct batch *batch = row->batch;
    for (size_t i = 0; batch && i < batch->n; i++) {
        if (batch->rows[i] == row)
            batch->rows[i] = NULL;
    }
    row->batch = NULL;
}

static void unlink_batch(struct batch *batch)
{
    struct batch **at = &batch->pg->batches;
    while (*at && *at != batch)
        at = &(*at)->next;
    if (*at)
        *at = batch->next;
}

void table_free_batches(struct pg *pg)
{
    while (pg->batches) {
        struct batch *batch = pg->batches;
        pg->batches = batch->next;
        free(batch);
    }
}

static bool is_among(const PGresult *result, const char *owner)
{
    for (int row = 0; row < PQntuples(result); row++) {
        if (strcmp(PQgetvalue(result, row, 0), owner) == 0)
            return true;
    }
    return false;
}

static void answer_one(struct row_claim *row, const struct answer *a)
{
    struct claim *claim = claim_of_row(row);
    const struct engine_events *events = claim->engine->events;
    struct stile_error err;
    row->batch = NULL;
    if (a->err) {
        events->unknown(claim);
    } else if (is_among(a->result, row->owner)) {
        events->renewed(claim, a->sent_ns, claim->ttl_ns);
    } else {
        error_set(&err, STILE_LOST, 0, "the database does not have it any more");
        events->lost(claim, &err);
    }
}

static void on_renewed(void *data, const struct answer *a)
{
    struct batch *batch = data;
    unlink_batch(batch);
    for (size_t i = 0; i < batch->n; i++) {
        if (batch->rows[i])
            answer_one(batch->rows[i], a);
    }
    free(batch);
}

/* Two array literals; owners are hex. */
static enum stile_status send_batch(struct pg *pg, struct batch *batch, char *owners, char *ttls)
{
    struct session *shared;
    const char *values[] = {owners, ttls};
    char *owner = owners, *ttl = ttls;
    for (size_t i = 0; i < batch->n; i++) {
        struct row_claim *row = batch->rows[i];
        char separator = i ? ',' : '{';
        owner += sprintf(owner, "%c%s", separator, row->owner);
        ttl += sprintf(ttl, "%c%" PRIu64, separator, claim_of_row(row)->ttl_ns / NS_PER_MS);
    }
    strcpy(owner, "}");
    strcpy(ttl, "}");
    enum stile_status status = pg_shared(&shared, pg, NULL);
    return status ? status
                  : session_send(shared, &sql_table_renew, values, 2, on_renewed, batch, NULL);
}

void table_renew(struct engine *engine, struct claim *const *claims, size_t n)
{
    struct pg *pg = pg_of(engine);
    struct batch *batch = malloc(sizeof *batch + n * sizeof *batch->rows);
    char *owners = malloc(n * (TABLE_OWNER_LEN + 1) + 2), *ttls = malloc(n * 24 + 2);
    bool sent = false;
    if (batch && owners && ttls) {
        *batch = (struct batch){.pg = pg, .n = n};
        for (size_t i = 0; i < n; i++) {
            batch->rows[i] = row_of(claims[i]);
            batch->rows[i]->batch = batch;
        }
        sent = send_batch(pg, batch, owners, ttls) == STILE_OK;
    }
    free(owners);
    free(ttls);
    if (sent) {
        batch->next = pg->batches;
        pg->batches = batch;
        return;
    }
    free(batch);
    for (size_t i = 0; i < n; i++) {
        row_of(claims[i])->batch = NULL;
        engine->events->unknown(claims[i]);
    }
}

/* ---- breaking ---- */

static void on_broken(void *data, const struct answer *a)
{
    struct query *query = data;
    const struct stile_error *err = a->err;
    struct stile_error why;
    int broken = err || PQntuples(a->result) != 1 ? 0 : atoi(PQgetvalue(a->result, 0, 0));
    if (!err && broken < 1) {
        error_set(&why, STILE_CONFLICT, 0,
                  broken < 0 ? "it isn't held" : "the grant with that token is over");
        err = &why;
    }
    query->engine->events->done(query, err);
}

void table_break(struct engine *engine, struct query *query)
{
    struct pg *pg = pg_of(engine);
    struct session *shared;
    struct stile_error err;
    char stored[STORED_MAX], token[24];
    const char *values[] = {stored, token};
    name_store(stored, query->name, query->name_len);
    snprintf(token, sizeof token, "%" PRIu64, query->token);
    enum stile_status status = pg_shared(&shared, pg, &err);
    if (!status)
        status = session_send(shared, &sql_table_break, values, 2, on_broken, query, &err);
    if (status)
        engine->events->done(query, &err);
}
