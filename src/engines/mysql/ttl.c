/* The lease of a session: its wait_timeout, in whole seconds; a year where nothing is held. */
#include "engines/mysql/my.h"
#include "engines/mysql/sql.h"
#include "engines/mysql/talk.h"
#include "mutant.h"

uint64_t ttl_to_tell(struct session *session)
{
    uint64_t ttl_ns = session->my->pool.ttl_ns;
    if (session->seat.ttl_told_ns >= ttl_ns)
        return 0;
    session->seat.ttl_told_ns = ttl_ns;
#ifdef MUTANT_MYSQL_NO_LEASE
    return 0;
#endif
    return ttl_ns;
}

static bool is_true(const struct answer *a, unsigned column)
{
    const char *text = outcome_text(answer_last(a), column);
    return text && strcmp(text, "1") == 0;
}

enum stile_status ttl_check_proof(const struct answer *a, struct stile_error *err)
{
    if (!is_true(a, 0))
        return error_set(err, STILE_UNREACHABLE, 0,
                         "a proxy has put another connection in this one's place, without its "
                         "locks: connect to the server itself, or say mode=table");
    if (!is_true(a, 1))
        return error_set(err, STILE_UNREACHABLE, 0,
                         "the server has become read-only, so another one may be the primary now");
    return STILE_OK;
}

/* A session that has lost its locks, or whose server is a primary no longer, is over: its locks are
 * lost, and the next claim finds out where to connect. */
static void on_renewed(void *data, const struct answer *a)
{
    struct session *session = data;
    struct stile_error err;
    if (!a->err && ttl_check_proof(a, &err)) {
        session->seat.probed = false;
        session_fail(session, &err);
        return;
    }
    pool_renewed(session, a->sent_ns, a->err);
}

enum stile_status session_renew(struct session *session, uint64_t ttl_ns)
{
    session->seat.ttl_told_ns = ttl_ns;
    return session_send(session, sql_prove(session, ttl_ns), on_renewed, session, NULL);
}

static void on_lengthened(void *data, const struct answer *a)
{
    (void)data, (void)a; /* else the session ends, and the next claim connects again */
}

void session_keep(struct session *session)
{
    session->seat.ttl_told_ns = 0;
    session_send(session, sql_ttl(0), on_lengthened, NULL, NULL);
}
