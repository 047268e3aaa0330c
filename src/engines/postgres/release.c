/* Leaving: giving back, withdrawing, clearing away. */
#include <inttypes.h>
#include <stdio.h>

#include "engines/postgres/pg.h"
#include "engines/postgres/sql.h"

static bool is_row(struct part *part)
{
    return pg_of_part(part)->options.mode == MODE_ROW;
}

static void unlock(struct part *part);

static void on_unlocked(void *data, const struct answer *a)
{
    struct part *part = data;
    bool ours = !a->err && PQntuples(a->result) == 1 && PQgetvalue(a->result, 0, 0)[0] == 't';
    bool over = !part->session || part->session->state != UP;
    if (a->err && !over && part->token) { /* its row could not be told: what is held must go */
        part->token = 0;
        unlock(part);
    } else {
        release_answered(part, ours, a->err);
    }
}

/* With a hold or a delay in its row, the row is told first. */
static void unlock(struct part *part)
{
    struct claim *claim = claim_of(part);
    struct pg *pg = pg_of_part(part);
    struct stile_error err;
    char token[24];
    if (is_row(part)) {
        rows_give(part);
        return;
    }
    bool kept = !pg->bare && (claim->hold_ns || claim->delay_ns) && part->token;
    bool unused = claim->unused || part->withdrawn;
    const char *key = mine(part)->key.form == KEY_HASH ? part->stored : mine(part)->key.number;
    const char *values[] = {key, part->stored, token, unused ? "t" : "f"};
    if (kept)
        snprintf(token, sizeof token, "%" PRIu64, part->token);
    int n = kept ? 4 : 1;
    const struct statement *statement = again_for(part, kept ? SQL_LET_GO : SQL_UNLOCK, &n);
    if (session_send(part->session, statement, values, n, on_unlocked, part, &err))
        release_left(part, &err);
    else
        line_wake_next(part);
}

/* A session of one claim is cleared of everything; a cancel may hit this instead of the wait. */
static void clear(struct part *part);

static void on_cleared(void *data, const struct answer *a)
{
    struct part *part = data;
    if (a->err && part->session && part->session->state == UP)
        clear(part);
    else
        release_left(part, NULL);
}

static void clear(struct part *part)
{
    if (is_row(part))
        rows_withdraw(part);
    else if (session_send(part->session, &sql_unlock_all, NULL, 0, on_cleared, part, NULL))
        release_left(part, NULL);
}

void release_give(struct part *part)
{
    if (mine(part)->ticket) { /* parked: nothing of it is held */
        line_leave(part);
        release_left(part, NULL);
    } else if (part->withdrawn)
        clear(part);
    else
        unlock(part);
}

void release_go_on(struct part *part, bool there)
{
    if (!there || !part->session || part->session->state != UP)
        release_left(part, NULL);
    else if (part->session == pg_of_part(part)->pool.shared || part->token)
        unlock(part);
    else
        clear(part);
}

static void on_cancelled(void *data, const struct answer *a)
{
    (void)a;
    release_stopped(data);
}

enum stile_status session_stop(struct session *session)
{
    char backend[24];
    const char *values[] = {backend};
    snprintf(backend, sizeof backend, "%" PRIu64, session->seat.backend);
    struct session *shared;
    enum stile_status status = pg_shared(&shared, session->pg, NULL);
    return status ? status
                  : session_send(shared, &sql_cancel, values, 1, on_cancelled, session, NULL);
}
