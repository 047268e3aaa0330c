/* mode=table: the procedures of the schema do the work, each in one transaction. */
#include "engines/mysql/table.h"

#include <stdlib.h>
#include <string.h>

#include "engines/mysql/fault.h"
#include "engines/mysql/sql.h"

/* ---- what is said ---- */

static void ignore(void *data, const struct answer *a)
{
    (void)data, (void)a;
}

static enum stile_status say(struct engine *engine, char *sql, answer_fn *fn, void *data,
                             struct stile_error *err)
{
    struct session *shared;
    enum stile_status status = my_shared(&shared, my_of(engine), err);
    if (status) {
        free(sql);
        return status;
    }
    return session_send(shared, sql, fn, data, err);
}

/* A procedure takes back what it has done when a statement in it fails, but not when it was killed:
 * the row would stay locked. */
static void take_back(struct engine *engine, const struct answer *a)
{
    struct session *shared = my_of(engine)->pool.shared;
    if (a->err && a->code && shared && shared->state == UP)
        session_send(shared, sql_rollback(), ignore, NULL, NULL);
}

/* Of the statement that has rows. */
static const char *column_of(const struct answer *a, unsigned column)
{
    for (size_t i = 0; !a->err && i < a->n; i++) {
        if (a->outcomes[i].rows)
            return outcome_text(&a->outcomes[i], column);
    }
    return NULL;
}

static const char *text_of(const struct answer *a)
{
    const char *text = column_of(a, 0);
    return text ? text : "";
}

static struct lease_answer read_answer(struct engine *engine, const struct answer *a)
{
    const char *text = text_of(a);
    take_back(engine, a);
    return (struct lease_answer){.err = a->err,
                                 .undone = a->err && fault_is_undone(a->code),
                                 .again = a->err && fault_is_kill(a->code),
                                 .sent_ns = a->sent_ns,
                                 .verdict = *text,
                                 .number = *text ? strtoull(text + 1, NULL, 10) : 0};
}

static struct engine *engine_of(struct lease *lease)
{
    return lease->leases->engine;
}

static void on_asked(void *data, const struct answer *a)
{
    struct lease_answer answer = read_answer(engine_of(data), a);
    struct lease *lease = data;
    if (answer.verdict == 'b' && claim_of_lease(lease)->wait)
        bell_hang(my_of(engine_of(lease)));
    lease_asked(data, &answer);
}

static enum stile_status ask(struct lease *lease, struct stile_error *err)
{
    return say(engine_of(lease), sql_table_claim(lease), on_asked, lease, err);
}

static void on_looked(void *data, const struct answer *a)
{
    struct lease_answer answer = read_answer(engine_of(data), a);
    const char *ahead = strrchr(text_of(a), ' ');
    answer.ahead = ahead ? (unsigned)strtoul(ahead, NULL, 10) : 0;
    lease_looked(data, &answer);
}

/* ShedLock's table has no rows of waiters to look at. */
static enum stile_status look(struct lease *lease, uint64_t life_ms, struct stile_error *err)
{
    if (my_of(engine_of(lease))->options.table)
        return ask(lease, err);
    return say(engine_of(lease), sql_table_look(lease, life_ms), on_looked, lease, err);
}

static void on_resumed(void *data, const struct answer *a)
{
    struct lease_answer answer = read_answer(engine_of(data), a);
    const char *token = strchr(text_of(a), ' '), *ttl = token ? strchr(token + 1, ' ') : NULL;
    answer.ttl_ms = ttl ? strtoull(ttl, NULL, 10) : 0;
    lease_resumed(data, &answer);
}

static enum stile_status resume(struct lease *lease, struct stile_error *err)
{
    return say(engine_of(lease), sql_table_resume(lease), on_resumed, lease, err);
}

static void on_released(void *data, const struct answer *a)
{
    struct lease_answer answer = read_answer(engine_of(data), a);
    lease_released(data, &answer);
}

static enum stile_status release(struct lease *lease, bool unused, struct stile_error *err)
{
    return say(engine_of(lease), sql_table_release(lease, unused), on_released, lease, err);
}

static bool is_among(const void *rows, const char *owner)
{
    const struct answer *a = rows;
    MYSQL_RES *result = answer_last(a)->rows;
    MYSQL_ROW row = NULL;
    if (!result)
        return false;
    mysql_data_seek(result, 0);
    while ((row = mysql_fetch_row(result)) && strcmp(row[0], owner) != 0)
        ;
    return row;
}

static void on_renewed(void *data, const struct answer *a)
{
    struct lease_answer answer = {.err = a->err, .sent_ns = a->sent_ns};
    lease_renewed(data, &answer, is_among, a);
}

static enum stile_status renew(struct lease_batch *batch, struct stile_error *err)
{
    return say(batch->leases->engine, sql_table_renew(batch), on_renewed, batch, err);
}

static void forget(struct engine *engine, const void *data)
{
    pool_unask(pool_of(engine), data);
}

const struct lease_ops table_ops = {.ask = ask,
                                    .look = look,
                                    .resume = resume,
                                    .release = release,
                                    .renew = renew,
                                    .forget = forget};

/* ---- breaking ---- */

/* Ours are told at once, others when they renew. */
static void tell_broken(struct engine *engine, const char *owners)
{
    char owner[LEASE_OWNER_LEN + 1];
    while (owners && *owners) {
        size_t len = strcspn(owners, " ");
        if (len == LEASE_OWNER_LEN) {
            memcpy(owner, owners, len);
            owner[len] = '\0';
            lease_hear_broken(leases_of(engine), owner);
        }
        owners += len + (owners[len] == ' ');
    }
}

static void on_broken(void *data, const struct answer *a)
{
    struct query *query = data;
    const struct stile_error *err = a->err;
    struct stile_error why;
    int broken = atoi(text_of(a));
    take_back(query->engine, a);
    if (!err && broken < 1) {
        error_set(&why, STILE_CONFLICT, 0,
                  broken < 0 ? "it isn't held" : "the grant with that token is over");
        err = &why;
    }
    if (!err)
        tell_broken(query->engine, column_of(a, 1));
    query->engine->events->done(query, err);
}

void table_break(struct engine *engine, struct query *query)
{
    struct stile_error err;
    if (say(engine, sql_table_break(query), on_broken, query, &err))
        engine->events->done(query, &err);
}

/* ---- the session ---- */

/* Behind a proxy nothing is set: the next statement may be another session's. */
static void on_up(struct session *session)
{
    if (session->seat.backend == mysql_thread_id(session->conn))
        session_send(session, sql_table_settings(session->my), ignore, NULL, NULL);
    my_opened(session, NULL);
}

static void on_down(struct session *session)
{
    session->my->pool.shared = NULL;
}

static void on_ended(struct session *session, const struct stile_error *why)
{
    my_opened(session, why);
    lease_go_down(&session->my->leases);
}

const struct session_events table_events = {.up = on_up, .down = on_down, .ended = on_ended};
