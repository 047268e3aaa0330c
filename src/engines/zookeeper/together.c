/* Nodes that go together: what is given back in one turn of the loop is one request, and one
 * transaction of the servers. They execute all of it or nothing: if one of the nodes has gone
 * already, each of the others is asked for by itself. */
#include <stdlib.h>
#include <string.h>

#include "engines/zookeeper/zookeeper.h"
#include "mutant.h"

#define TOGETHER_MAX 64 /* a request has 1 MB at most */

struct together {
    struct session *session;
    int n;
    struct {
        struct ask *ask;
        char *path;
    } nodes[TOGETHER_MAX];
    zoo_op_result_t results[TOGETHER_MAX]; /* the library's; which of them failed is no matter */
};

static void together_free(struct together *together)
{
    for (int i = 0; i < together->n; i++)
        free(together->nodes[i].path);
    free(together);
}

static void each_by_itself(struct together *together)
{
    for (int i = 0; i < together->n; i++)
        ask_again_delete(together->nodes[i].ask, together->nodes[i].path);
}

static void on_together(int rc, const void *data)
{
    struct together *together = (struct together *)data;
#ifdef MUTANT_ZOOKEEPER_ONE_FAILS_ALL
    bool said_of_all = true;
#else
    bool said_of_all = rc == ZOK || fault_may_pass(rc);
#endif
    if (!said_of_all)
        each_by_itself(together);
    for (int i = 0; said_of_all && i < together->n; i++)
        ask_finish(together->nodes[i].ask, rc);
    together_free(together);
}

static bool ask_all(struct together *together)
{
    zoo_op_t ops[TOGETHER_MAX];
    zhandle_t *handle = together->session->handle;
    for (int i = 0; i < together->n; i++)
        zoo_delete_op_init(&ops[i], together->nodes[i].path, -1);
    return handle && !is_unrecoverable(handle) &&
           zoo_amulti(handle, together->n, ops, together->results, on_together, together) == ZOK;
}

void together_send(struct session *session)
{
    struct together *together = session->together;
    session->together = NULL;
    if (!together || (together->n > 1 && ask_all(together)))
        return;
    each_by_itself(together);
    together_free(together);
}

static struct together *together_of(struct session *session)
{
    if (session->together && session->together->n == TOGETHER_MAX)
        together_send(session);
    if (!session->together)
        session->together = calloc(1, sizeof *session->together);
    if (session->together)
        session->together->session = session;
    return session->together;
}

bool ask_delete_together(struct session *session, struct asker *asker, const char *path, ask_fn *fn)
{
    struct together *together = together_of(session);
    char *copy = together ? strdup(path) : NULL;
    struct ask *ask = copy ? ask_begin(session, asker, fn) : NULL;
    if (!ask) {
        free(copy);
        return false;
    }
    together->nodes[together->n].ask = ask;
    together->nodes[together->n++].path = copy;
    return true;
}
