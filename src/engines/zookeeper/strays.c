/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes of a session that none of its claims has.
 *
 * Servers that were restored from an older copy have nodes again that we have deleted since. If the
 * session is in that copy, too, it is taken up as if nothing had happened: an ensemble begins a new
 * epoch, so it is not behind what we have seen. Such a node would lock its name for as long as we
 * renew the session. So whenever a session is taken up again, its nodes are listed, and claims that
 * are no longer ours are deleted. Servers before 3.6 can't list them. */
#include <stdlib.h>
#include <string.h>

#include "engines/zookeeper/claims.h"

/* Of all claims of a session, in order: sessions have thousands. */
struct guids {
    const char **list;
    size_t n;
};

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* False: out of memory. */
static bool collect(struct guids *guids, const struct session *session)
{
    size_t n = 0;
    for (const struct zk_claim *zc = session->claims; zc; zc = zc->next)
        n++;
    *guids = (struct guids){.list = malloc((n + 1) * sizeof *guids->list)};
    if (!guids->list)
        return false;
    for (const struct zk_claim *zc = session->claims; zc; zc = zc->next)
        guids->list[guids->n++] = zc->guid;
    qsort(guids->list, guids->n, sizeof *guids->list, by_text);
    return true;
}

static bool is_stray(const struct zk *zk, const struct guids *guids, const char *path)
{
    char guid[GUID_SIZE];
    const char *key = guid;
    return zk_node_guid(guid, zk, strrchr(path, '/') + 1) &&
           !bsearch(&key, guids->list, guids->n, sizeof key, by_text);
}

/* A request that was not executed (the server was overloaded, the connection broke) is made good by
 * the next listing: they are repeated until one finds nothing. */
static void on_listed(struct requester *requester, const struct reply *reply)
{
    struct session *session = container_of(requester, struct session, strays);
    struct guids guids;
    size_t strays = 0;
    if (reply->rc == ZUNIMPLEMENTED) {
        session->zk->lists_no_nodes = true;
        session->strays_due = false;
    }
    if (reply->rc != ZOK || !collect(&guids, session))
        return;
    for (size_t i = 0; i < reply->children->n; i++) {
        const char *path = reply->children->list[i];
        if (!strchr(path, '/') || !is_stray(session->zk, &guids, path))
            continue;
        zk_request_delete(session, NULL, path, NULL);
        strays++;
    }
    session->strays_due = strays > 0;
    free(guids.list);
}

void zk_strays_remove(struct session *session)
{
    if (session->zk->lists_no_nodes)
        session->strays_due = false;
    else if (!session->strays.requests)
        zk_request_ephemerals(session, &session->strays, on_listed);
}
