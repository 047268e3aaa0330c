/* The lease of a session: its wait_timeout, in whole seconds; a year where nothing is held. */
#include "engines/mysql/my.h"
#include "engines/mysql/sql.h"
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

static void on_renewed(void *data, const struct answer *a)
{
    pool_renewed(data, a->sent_ns, a->err);
}

enum stile_status session_renew(struct session *session, uint64_t ttl_ns)
{
    session->seat.ttl_told_ns = ttl_ns;
    return session_send(session, sql_ttl(ttl_ns), on_renewed, session, NULL);
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
