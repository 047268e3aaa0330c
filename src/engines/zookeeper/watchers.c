/* Who wants to be told of a node. The library keeps a watcher until it has fired, or its session
 * ends; who gives up waiting leaves it behind. So it is an object of its own, and the next one of
 * us who wants to hear of the same node takes it over: behind a holder that stays for long, a
 * thousand waits in vain leave one. */
#include <stdlib.h>
#include <string.h>

#include "engines/zookeeper/zookeeper.h"

static struct watcher *find_left(struct session *session, char kind, const char *path)
{
    struct watcher *watcher = session->watchers;
    while (watcher && (watcher->slot || !watcher->set || watcher->kind != kind ||
                       strcmp(watcher->path, path) != 0))
        watcher = watcher->next;
    return watcher;
}

static struct watcher *watcher_new(struct session *session, char kind, const char *path)
{
    size_t size = strlen(path) + 1;
    struct watcher *watcher = malloc(sizeof *watcher + size);
    if (!watcher)
        return NULL;
    *watcher =
        (struct watcher){.next = session->watchers, .link = &session->watchers, .kind = kind};
    memcpy(watcher->path, path, size);
    if (watcher->next)
        watcher->next->link = &watcher->next;
    session->watchers = watcher;
    return watcher;
}

bool watcher_take(struct watcher **slot, struct session *session, char kind, const char *path,
                  struct asker *asker, watcher_told_fn *fn)
{
    struct watcher *watcher = find_left(session, kind, path);
    if (!watcher)
        watcher = watcher_new(session, kind, path);
    if (!watcher)
        return false;
    watcher->slot = slot;
    watcher->asker = asker;
    watcher->fn = fn;
    *slot = watcher;
    return true;
}

void watcher_leave(struct watcher **slot)
{
    if (*slot)
        (*slot)->slot = NULL;
    *slot = NULL;
}

void watcher_free(struct watcher *watcher)
{
    if (watcher->slot)
        *watcher->slot = NULL;
    *watcher->link = watcher->next;
    if (watcher->next)
        watcher->next->link = watcher->link;
    free(watcher);
}

void watcher_tell(struct watcher *watcher, int type)
{
    bool wanted = watcher->slot != NULL;
    struct asker *asker = watcher->asker;
    watcher_told_fn *fn = watcher->fn;
    watcher_free(watcher);
    if (wanted)
        fn(asker, type);
}
