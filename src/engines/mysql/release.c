/* Leaving: giving back, withdrawing, clearing away. */
#include <string.h>

#include "engines/mysql/fault.h"
#include "engines/mysql/my.h"
#include "engines/mysql/sql.h"

/* A KILL may hit this instead of the wait that it was meant for, and what is written into the row
 * may fail: it is then given back without that. */
static bool try_again(struct part *part, const struct answer *a)
{
    if (!a->err || !part->session || part->session->state != UP)
        return false;
    if (mine(part)->plainly && !fault_is_kill(a->code))
        return false;
    mine(part)->plainly = true;
    release_give(part);
    return true;
}

static void on_unlocked(void *data, const struct answer *a)
{
    const char *text = a->err ? NULL : outcome_text(answer_last(a), 0);
    if (!try_again(data, a))
        release_answered(data, text && strcmp(text, "1") == 0, a->err);
}

/* With a hold or a delay in its row, the row is told first. */
void release_give(struct part *part)
{
    struct claim *claim = claim_of(part);
    struct stile_error err;
    if (my_of_part(part)->options.mode == MODE_ROW) {
        (part->withdrawn ? rows_withdraw : rows_give)(part);
        return;
    }
    bool kept =
        !my_of_part(part)->bare && (claim->hold_ns || claim->delay_ns) && !mine(part)->plainly;
    char *sql = kept ? sql_let_go(part, claim->unused || part->withdrawn) : sql_unlock(part);
    if (session_send(part->session, sql, on_unlocked, part, &err))
        release_left(part, &err);
}

void release_go_on(struct part *part, bool there)
{
    if (!there || !part->session || part->session->state != UP)
        release_left(part, NULL);
    else
        release_give(part);
}

static void on_killed(void *data, const struct answer *a)
{
    (void)a;
    release_stopped(data);
}

enum stile_status session_stop(struct session *session)
{
    struct session *shared = session->my->pool.shared;
    if (!shared || !session_is_up(shared))
        return STILE_UNREACHABLE;
    return session_send(shared, sql_kill(session->seat.backend, false), on_killed, session, NULL);
}
