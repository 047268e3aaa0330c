/* Nodes that go together: what is given back in one turn of the loop is one request, and one
 * transaction of the servers. They execute all of it or nothing: if one of the nodes has gone
 * already, each of the others is asked for by itself. */
#include <stdlib.h>

#include "engines/zookeeper/zookeeper.h"
#include "mutant.h"

#define TOGETHER_MAX 64 /* a request has 1 MB at most */

struct together {
    size_t n;
    struct ask *asks[TOGETHER_MAX];
};

static void each_by_itself(const struct together *together)
{
    for (size_t i = 0; i < together->n; i++)
        ask_enqueue(together->asks[i]);
}

void together_answered(struct together *together, int rc, bool maybe)
{
#ifdef MUTANT_ZOOKEEPER_ONE_FAILS_ALL
    bool said_of_all = true;
#else
    bool said_of_all = rc == ZOK || fault_may_pass(rc);
#endif
    if (!said_of_all)
        each_by_itself(together);
    for (size_t i = 0; said_of_all && i < together->n; i++)
        ask_finish(together->asks[i], rc, maybe);
    free(together);
}

void together_send(struct session *session)
{
    struct together *together = session->together;
    session->together = NULL;
    if (!together || (together->n > 1 && ask_delete_all(together, together->asks, together->n)))
        return;
    each_by_itself(together);
    free(together);
}

static struct together *together_of(struct session *session)
{
    if (session->together && session->together->n == TOGETHER_MAX)
        together_send(session);
    if (!session->together)
        session->together = calloc(1, sizeof *session->together);
    return session->together;
}

bool ask_delete_together(struct session *session, struct asker *asker, const char *path, ask_fn *fn)
{
    struct together *together = together_of(session);
    struct ask *ask = together ? ask_new_delete(session, asker, path, fn) : NULL;
    if (!ask)
        return false;
    together->asks[together->n++] = ask;
    session_gather(session);
    return true;
}
