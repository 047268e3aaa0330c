/* What a question is about: the nodes of a name, or of all names, then what is in each. Behind a
 * sync, so that what was done before through another server is seen. */
#include <stdlib.h>
#include <string.h>

#include "engines/zookeeper/view.h"

#define WINDOW 256 /* requests under way at a time */

static void go_on(struct looking *looking);

void gather_forget(struct looking *looking)
{
    for (size_t i = 0; i < looking->n; i++) {
        asker_forget(&looking->places[i].asker);
        place_empty(&looking->places[i]);
        free(looking->places[i].name);
        free(looking->places[i].path);
    }
    free(looking->places);
    looking->places = NULL;
    looking->n = looking->pending = 0;
}

static void fail(struct looking *looking, int rc)
{
    if (!looking->error.status)
        fault_set(&looking->error, rc, false);
}

static void on_entry(struct asker *asker, const struct answer *answer)
{
    struct entry *entry = (struct entry *)((char *)asker - offsetof(struct entry, asker));
    struct looking *looking = entry->looking;
    if (answer->rc == ZOK)
        entry_read(entry, answer);
    else if (answer->rc != ZNONODE)
        fail(looking, answer->rc);
    looking->pending--;
    go_on(looking);
}

static bool ask_entry(struct looking *looking)
{
    while (looking->next_place < looking->n) {
        struct place *place = &looking->places[looking->next_place];
        if (looking->next_entry < place->n) {
            struct entry *entry = &place->entries[looking->next_entry++];
            return ask_get(session_of(looking), &entry->asker, entry->path, NULL, on_entry);
        }
        looking->next_place++;
        looking->next_entry = 0;
    }
    return false;
}

static void on_awaited(struct asker *asker, const struct answer *answer)
{
    struct looking *looking = looking_of(asker);
    if (answer->rc == ZOK)
        looking->changed = true;
    else if (answer->rc != ZNONODE)
        fail(looking, answer->rc);
    looking->pending--;
    go_on(looking);
}

/* Nothing is there to be watched: its coming is. */
static void await_place(struct looking *looking, const struct place *place)
{
    struct session *session = session_of(looking);
    if (watcher_take(&looking->watcher, session, 'e', place->path, &looking->asker,
                     people_changed) &&
        ask_exists(session, &looking->asker, place->path, looking->watcher, on_awaited))
        looking->pending++;
    else
        fail(looking, ZNOMEMORY);
}

static void on_place(struct asker *asker, const struct answer *answer)
{
    struct place *place = (struct place *)((char *)asker - offsetof(struct place, asker));
    struct looking *looking = place->looking;
    place->pzxid = answer->rc == ZOK ? answer->stat->pzxid : 0;
    if (answer->rc == ZOK)
        place_fill(place, zoo_of_looking(looking), answer->children, &looking->error);
    else if (answer->rc == ZNONODE && looking->what == WATCH)
        await_place(looking, place);
    else if (answer->rc != ZNONODE)
        fail(looking, answer->rc);
    looking->pending--;
    go_on(looking);
}

static bool ask_place(struct looking *looking)
{
    struct session *session = session_of(looking);
    if (looking->next_place == looking->n)
        return false;
    struct place *place = &looking->places[looking->next_place++];
    if (looking->what == WATCH) {
        watcher_leave(&looking->watcher);
        if (!watcher_take(&looking->watcher, session, 'c', place->path, &looking->asker,
                          people_changed)) {
            fail(looking, ZNOMEMORY);
            return false;
        }
    }
    return ask_children(session, &place->asker, place->path, looking->watcher, on_place);
}

/* Keeps a window of requests under way: first the lines of all names, then their nodes. */
static void go_on(struct looking *looking)
{
    while (looking->pending < WINDOW && !looking->error.status &&
           (looking->reading ? ask_entry(looking) : ask_place(looking)))
        looking->pending++;
    if (looking->pending > 0)
        return;
    if (looking->reading || looking->error.status) {
        people_gathered(looking);
        return;
    }
    looking->reading = true;
    looking->next_place = looking->next_entry = 0;
    go_on(looking);
}

static void on_synced(struct asker *asker, const struct answer *answer)
{
    struct looking *looking = looking_of(asker);
    if (answer->rc != ZOK)
        fail(looking, answer->rc);
    looking->pending--;
    go_on(looking);
}

/* ---- names ---- */

static enum stile_status add_place(struct looking *looking, const char *name, size_t len)
{
    char path[PATH_ROOM];
    path_of_name(path, zoo_of_looking(looking), name, len);
    struct place *place = &looking->places[looking->n];
    *place = (struct place){.looking = looking, .name = strndup(name, len), .path = strdup(path)};
    looking->n++;
    return place->name && place->path ? STILE_OK
                                      : error_set(&looking->error, STILE_NOMEM, 0, "out of memory");
}

static enum stile_status make_places(struct looking *looking, size_t n)
{
    looking->places = calloc(n + 1, sizeof *looking->places);
    return looking->places ? STILE_OK : error_set(&looking->error, STILE_NOMEM, 0, "out of memory");
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct place *)a)->name, ((const struct place *)b)->name);
}

static void on_names(struct asker *asker, const struct answer *answer)
{
    struct looking *looking = looking_of(asker);
    const struct query *query = looking->query;
    size_t n = answer->rc == ZOK ? answer->children->n : 0;
    char name[PATH_ROOM];
    if (answer->rc != ZOK && answer->rc != ZNONODE)
        fail(looking, answer->rc);
    else
        make_places(looking, n);
    for (size_t i = 0; i < n && !looking->error.status; i++) {
        if (name_of_child(name, zoo_of_looking(looking), answer->children->list[i]) &&
            strncmp(name, query->name, query->name_len) == 0)
            add_place(looking, name, strlen(name));
    }
    if (!looking->error.status && looking->n > 1)
        qsort(looking->places, looking->n, sizeof *looking->places, by_name);
    looking->pending--;
    go_on(looking);
}

static bool ask_names(struct looking *looking)
{
    const char *base = zoo_of_looking(looking)->base;
    return ask_children(session_of(looking), &looking->asker, *base ? base : "/", NULL, on_names);
}

void gather_begin(struct looking *looking)
{
    const struct query *query = looking->query;
    gather_forget(looking);
    loop_disarm(query->engine->loop, &looking->timer);
    looking->error = (struct stile_error){0};
    looking->busy = true;
    looking->changed = looking->reading = false;
    looking->next_place = looking->next_entry = 0;
    bool asked = ask_sync(session_of(looking), &looking->asker, "/", on_synced);
    looking->pending = asked;
    if (asked && looking->what == LIST) { /* executed behind it */
        asked = ask_names(looking);
        looking->pending += asked;
    } else if (asked && !make_places(looking, 1)) {
        add_place(looking, query->name, query->name_len);
    }
    if (asked)
        return;
    fail(looking, ZNOMEMORY);
    if (looking->pending == 0)
        people_gathered(looking);
}
