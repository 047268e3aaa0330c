/* Watches: which of us waits for a change of which node. The server keeps one for each path and
 * connection, however often it is asked for, and drops it when it has reported; so what is left
 * behind here costs nothing there but a report that nobody waits for. */
#include <stdlib.h>
#include <string.h>

#include "engines/zookeeper/zookeeper.h"

#define BUCKETS_FIRST 64
/* Of paths in one packet; a server takes up to 1 MB. */
#define PACKET_BYTES (128u << 10)

/* ---- the table ---- */

static uint64_t hash_of(const char *path)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (; *path; path++)
        sum = (sum ^ (unsigned char)*path) * UINT64_C(0x100000001b3);
    return sum;
}

static void insert(struct watchers *watchers, struct watcher *watcher)
{
    struct watcher **at = &watchers->table[watcher->hash & (watchers->buckets - 1)];
    watcher->next = *at;
    watcher->link = at;
    if (watcher->next)
        watcher->next->link = &watcher->next;
    *at = watcher;
}

/* Where there is no memory for a larger one, the old one does, more slowly. */
static bool grow(struct watchers *watchers)
{
    size_t buckets = watchers->buckets ? 2 * watchers->buckets : BUCKETS_FIRST;
    struct watchers larger = {.table = calloc(buckets, sizeof *larger.table), .buckets = buckets};
    if (!larger.table)
        return watchers->buckets > 0;
    for (size_t i = 0; i < watchers->buckets; i++) {
        for (struct watcher *watcher = watchers->table[i], *next; watcher; watcher = next) {
            next = watcher->next;
            insert(&larger, watcher);
        }
    }
    free(watchers->table);
    watchers->table = larger.table;
    watchers->buckets = buckets;
    return true;
}

static void watcher_free(struct watcher *watcher)
{
    *watcher->slot = NULL;
    *watcher->link = watcher->next;
    if (watcher->next)
        watcher->next->link = watcher->link;
    watcher->session->watchers.n--;
    if (watcher->ask)
        ask_unwatch(watcher->ask);
    free(watcher);
}

/* ---- taking and leaving ---- */

bool watcher_take(struct watcher **slot, struct session *session, char kind, const char *path,
                  struct asker *asker, watcher_told_fn *fn)
{
    struct watchers *watchers = &session->watchers;
    size_t size = strlen(path) + 1;
    watcher_leave(slot);
    if (watchers->n >= watchers->buckets && !grow(watchers))
        return false;
    struct watcher *watcher = malloc(sizeof *watcher + size);
    if (!watcher)
        return false;
    *watcher = (struct watcher){.slot = slot,
                                .session = session,
                                .asker = asker,
                                .fn = fn,
                                .kind = kind,
                                .hash = hash_of(path)};
    memcpy(watcher->path, path, size);
    insert(watchers, watcher);
    watchers->n++;
    *slot = watcher;
    return true;
}

void watcher_leave(struct watcher **slot)
{
    if (*slot)
        watcher_free(*slot);
}

/* exists() also watches for what is not there yet. */
void watcher_settle(struct watcher *watcher, int rc)
{
    watcher->ask = NULL;
    watcher->absent = rc == ZNONODE && watcher->kind == 'e';
    watcher->set = rc == ZOK || watcher->absent;
    if (!watcher->set)
        watcher_free(watcher);
}

void watchers_free(struct session *session)
{
    struct watchers *watchers = &session->watchers;
    for (size_t i = 0; i < watchers->buckets; i++) {
        while (watchers->table[i])
            watcher_free(watchers->table[i]);
    }
    free(watchers->table);
    *watchers = (struct watchers){0};
}

/* ---- reports ---- */

static bool concerns(const struct watcher *watcher, int type)
{
    if (type == JUTE_EVENT_CHILD)
        return watcher->kind == 'c';
    return type == JUTE_EVENT_DELETED || watcher->kind != 'c';
}

/* One whose request is not answered yet is set behind this event, and hears of the next. */
static struct watcher *find(const struct watchers *watchers, uint64_t hash, int type,
                            const char *path)
{
    struct watcher *watcher =
        watchers->buckets ? watchers->table[hash & (watchers->buckets - 1)] : NULL;
    while (watcher && !(watcher->set && watcher->hash == hash && concerns(watcher, type) &&
                        strcmp(watcher->path, path) == 0))
        watcher = watcher->next;
    return watcher;
}

/* What a report makes its owner do may take or leave other watches: so it is looked for again. One
 * that is taken in the course of it is not set, and is not found. */
void watchers_report(struct session *session, int type, const char *path)
{
    uint64_t hash = hash_of(path);
    struct watcher *watcher;
    while ((watcher = find(&session->watchers, hash, type, path))) {
        struct asker *asker = watcher->asker;
        watcher_told_fn *fn = watcher->fn;
        watcher_free(watcher);
        fn(asker, type);
    }
}

/* ---- on the next connection ---- */

enum list { DATA, ABSENT, CHILDREN, LISTS };

struct again {
    struct session *session;
    const char *paths[LISTS][PACKET_BYTES / 64];
    size_t n[LISTS], bytes;
};

static enum list list_of(const struct watcher *watcher)
{
    return watcher->kind == 'c' ? CHILDREN : watcher->absent ? ABSENT : DATA;
}

static void send_again(struct again *again)
{
    struct session *session = again->session;
    struct jute_writer *writer = &session->zoo->writer;
    size_t n;
    jute_begin(writer);
    jute_write_int(writer, JUTE_XID_SET_WATCHES);
    jute_write_int(writer, JUTE_SET_WATCHES);
    jute_write_long(writer, session->zxid);
    for (int list = 0; list < LISTS; list++) {
        jute_write_int(writer, (int32_t)again->n[list]);
        for (size_t i = 0; i < again->n[list]; i++)
            jute_write_string(writer, again->paths[list][i]);
        again->n[list] = 0;
    }
    again->bytes = 0;
    const char *packet = jute_end(writer, &n);
    if (!packet || connection_say(session->connection, packet, n))
        session->unwatched = true;
}

static void add_again(struct again *again, const struct watcher *watcher)
{
    enum list list = list_of(watcher);
    again->paths[list][again->n[list]++] = watcher->path;
    again->bytes += strlen(watcher->path) + sizeof(int32_t);
    if (again->bytes >= PACKET_BYTES ||
        again->n[list] == sizeof again->paths[list] / sizeof again->paths[list][0])
        send_again(again);
}

void watchers_set_again(struct session *session)
{
    struct again *again = session->watchers.n ? malloc(sizeof *again) : NULL;
    session->unwatched = session->watchers.n && !again;
    if (!again)
        return;
    *again = (struct again){.session = session};
    for (size_t i = 0; i < session->watchers.buckets; i++) {
        for (const struct watcher *watcher = session->watchers.table[i]; watcher;
             watcher = watcher->next) {
            if (watcher->set)
                add_again(again, watcher);
        }
    }
    if (again->bytes > 0)
        send_again(again);
    free(again);
}
