/* The lease of a session: its idle_session_timeout, or in mode=row that of its open transaction. */
#include <inttypes.h>
#include <stdio.h>

#include "engines/postgres/pg.h"
#include "engines/postgres/sql.h"
#include "mutant.h"

#define TTL_MAX_MS INT32_MAX
/* A statement waits for a lock of the server for a quarter of the lease, or as long: renewals stand
 * behind it. More than deadlock_timeout, by which others hear of a deadlock. */
#define PATIENCE_MS 2000

static void on_ttl(void *data, const struct answer *a)
{
    struct session *session = data;
    if (a->err && session->state == UP)
        session_break(session); /* its lease is not what we count on */
}

enum stile_status ttl_tell_is(struct session *session, uint64_t ttl_ns, answer_fn *fn, void *data,
                              struct stile_error *err)
{
    char text[24], patience[24];
    const char *values[] = {text, patience};
    uint64_t ms = ttl_ns / NS_PER_MS;
    uint64_t part_ms = ms == 0 || ms > 4 * PATIENCE_MS ? PATIENCE_MS : ms / 4;
    snprintf(text, sizeof text, "%" PRIu64, ms < TTL_MAX_MS ? ms : TTL_MAX_MS);
    snprintf(patience, sizeof patience, "%" PRIu64, part_ms > 20 ? part_ms : 20);
    session->seat.ttl_told_ns = ttl_ns;
    const struct statement *statement =
        session->pg->options.mode == MODE_ROW ? &sql_row_ttl : &sql_ttl;
    return session_send(session, statement, values, 2, fn ? fn : on_ttl, fn ? data : session, err);
}

enum stile_status ttl_tell(struct session *session, struct stile_error *err)
{
    uint64_t ttl_ns = session->pg->pool.ttl_ns;
#ifdef MUTANT_POSTGRES_NO_LEASE
    session->seat.ttl_told_ns = ttl_ns;
    return STILE_OK;
#endif
    if (session->seat.ttl_told_ns >= ttl_ns)
        return STILE_OK;
    return ttl_tell_is(session, ttl_ns, NULL, NULL, err);
}

static void on_renewed(void *data, const struct answer *a)
{
    struct session *session = data;
    session->deaf = false;
    if (a->err && session->state == UP && session->pg->options.mode == MODE_ROW)
        session_break(session); /* its transaction has ended with this, and so has the lock */
    pool_renewed(session, a->sent_ns, a->err);
}

enum stile_status session_renew(struct session *session, uint64_t ttl_ns)
{
    return ttl_tell_is(session, ttl_ns, on_renewed, session, NULL);
}

void session_keep(struct session *session)
{
    ttl_tell_is(session, 0, NULL, NULL, NULL);
}
