/* list, show, watch and break: the nodes of a name, or of all names, then what is in each. Behind a
 * sync, so that what was done before through another server is seen. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engines/zookeeper/view.h"

#define WINDOW     256 /* requests under way at a time */
#define AGAIN_NS   (200 * NS_PER_MS)
#define BREAKS_MAX 4

enum what { LIST, SHOW, WATCH, BREAK };

/* One look, repeated for a watch. */
struct looking {
    struct asker asker;
    struct query *query;
    enum what what;
    struct place *places;
    size_t n;
    size_t next_place, next_entry; /* to be asked for */
    bool reading;                  /* entries, not places */
    size_t pending;
    struct stile_error error;
    bool busy, changed, told, has_timer, broken;
    unsigned tries;
    uint64_t seen; /* fingerprint of what was told */
    struct watcher *watcher;
    struct timer timer;
};

static void look(struct looking *looking);
static void go_on(struct looking *looking);

static struct zoo *zoo_of_looking(const struct looking *looking)
{
    return zoo_of(looking->query->engine);
}

static struct session *session_of(const struct looking *looking)
{
    return zoo_of_looking(looking)->main;
}

static struct looking *looking_of(struct asker *asker)
{
    return (struct looking *)((char *)asker - offsetof(struct looking, asker));
}

/* ---- the end ---- */

static void forget_places(struct looking *looking)
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

static void looking_free(struct looking *looking)
{
    struct loop *loop = looking->query->engine->loop;
    asker_forget(&looking->asker);
    watcher_leave(&looking->watcher);
    if (looking->has_timer) {
        loop_disarm(loop, &looking->timer);
        loop_unreserve(loop, 1);
    }
    forget_places(looking);
    looking->query->state = NULL;
    free(looking);
}

static void end(struct looking *looking, const struct stile_error *err)
{
    struct query *query = looking->query;
    struct stile_error why;
    error_copy(&why, err);
    looking_free(looking);
    query->engine->events->done(query, why.status ? &why : NULL);
}

/* ---- telling ---- */

static uint64_t mix(uint64_t sum, uint64_t value)
{
    return (sum ^ value) * UINT64_C(0x100000001b3) + 1;
}

/* Of all that isn't just time going by. */
static uint64_t fingerprint(const struct place *place)
{
    uint64_t sum = place->n;
    for (size_t i = 0; i < place->n; i++)
        sum = mix(sum, place->entries[i].there ? (uint64_t)place->entries[i].czxid : 0);
    return sum;
}

static int64_t wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void tell(struct looking *looking, const struct place *place)
{
    struct stile_info info;
    struct stile_claim_info *claims = calloc(place->n + 1, sizeof *claims);
    uint64_t seen = fingerprint(place);
    if (!claims) {
        error_set(&looking->error, STILE_NOMEM, 0, "out of memory");
        return;
    }
    place_tell(place, &info, claims, wall_ms());
    bool empty = info.holders + info.waiters == 0;
    bool known = looking->what == WATCH && looking->told && seen == looking->seen;
    looking->told = true;
    looking->seen = seen;
    if (!known && !(empty && looking->what == LIST))
        looking->query->engine->events->info(looking->query, &info);
    free(claims);
}

/* ---- watching ---- */

static void look_later(struct timer *timer)
{
    look((struct looking *)((char *)timer - offsetof(struct looking, timer)));
}

static void on_change(struct asker *asker, int type)
{
    struct looking *looking = looking_of(asker);
    (void)type;
    looking->changed = true;
    if (!looking->busy)
        look(looking);
}

static void watch_on(struct looking *looking)
{
    looking->busy = false;
    if (looking->changed || !looking->watcher)
        look(looking);
}

/* ---- break: the nodes of who holds it ---- */

static void finish_break(struct looking *looking)
{
    struct stile_error *err = &looking->error;
    if (looking->broken || err->status) {
        end(looking, err->status ? err : NULL);
    } else if (++looking->tries < BREAKS_MAX) {
        look(looking);
    } else {
        error_set(err, STILE_CONFLICT, 0, "its holders change all the time");
        end(looking, err);
    }
}

static void on_broken(struct asker *asker, const struct answer *answer)
{
    struct looking *looking = looking_of(asker);
    if (answer->rc == ZOK)
        looking->broken = true;
    else if (answer->rc != ZNONODE)
        fault_set(&looking->error, answer->rc, answer->maybe);
    if (--looking->pending == 0)
        finish_break(looking);
}

static void break_now(struct looking *looking)
{
    const struct place *place = &looking->places[0];
    uint64_t token = looking->query->token;
    bool held = false;
    for (size_t i = 0; i < place->n; i++) {
        const struct entry *entry = &place->entries[i];
        held = held || entry->held;
        if (entry->held && (!token || token == (uint64_t)entry->czxid) &&
            ask_delete(session_of(looking), &looking->asker, entry->path, on_broken))
            looking->pending++;
    }
    if (looking->pending > 0)
        return;
    error_set(&looking->error, STILE_CONFLICT, 0,
              held ? "the grant with that token is over" : "it isn't held");
    end(looking, &looking->error);
}

/* ---- looking ---- */

static void finish(struct looking *looking)
{
    struct stile_error *err = &looking->error;
    bool passing = err->status == STILE_UNREACHABLE || err->status == STILE_UNCERTAIN;
    if (looking->what == WATCH && looking->told && passing) {
        struct loop *loop = looking->query->engine->loop;
        looking->timer.fn = look_later;
        loop_arm(loop, &looking->timer, loop_now(loop) + AGAIN_NS);
        return;
    }
    for (size_t i = 0; i < looking->n; i++)
        place_weigh(&looking->places[i]);
    if (looking->what == BREAK && !err->status) {
        break_now(looking);
        return;
    }
    for (size_t i = 0; i < looking->n && !err->status; i++)
        tell(looking, &looking->places[i]);
    if (looking->what == WATCH && !err->status)
        watch_on(looking);
    else
        end(looking, err->status ? err : NULL);
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
    if (watcher_take(&looking->watcher, session, 'e', place->path, &looking->asker, on_change) &&
        ask_exists(session, &looking->asker, place->path, looking->watcher, on_awaited))
        looking->pending++;
    else
        fail(looking, ZSYSTEMERROR);
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
                          on_change)) {
            fail(looking, ZSYSTEMERROR);
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
        finish(looking);
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
    size_t n = answer->rc == ZOK ? (size_t)answer->children->count : 0;
    char name[PATH_ROOM];
    if (answer->rc != ZOK && answer->rc != ZNONODE)
        fail(looking, answer->rc);
    else
        make_places(looking, n);
    for (size_t i = 0; i < n && !looking->error.status; i++) {
        if (name_of_child(name, zoo_of_looking(looking), answer->children->data[i]) &&
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

static void look(struct looking *looking)
{
    const struct query *query = looking->query;
    forget_places(looking);
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
    fail(looking, ZSYSTEMERROR);
    if (looking->pending == 0)
        finish(looking);
}

/* ---- the slots of the engine ---- */

static void begin(struct engine *engine, struct query *query, enum what what)
{
    struct stile_error err;
    struct looking *looking = calloc(1, sizeof *looking);
    bool has_timer = looking && loop_reserve(engine->loop, 1) == 0;
    if (!has_timer) {
        free(looking);
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->done(query, &err);
        return;
    }
    *looking = (struct looking){.query = query, .what = what, .has_timer = true};
    query->state = looking;
    look(looking);
}

void people_list(struct engine *engine, struct query *query)
{
    begin(engine, query, LIST);
}

void people_show(struct engine *engine, struct query *query)
{
    begin(engine, query, SHOW);
}

void people_watch(struct engine *engine, struct query *query)
{
    begin(engine, query, WATCH);
}

void people_break(struct engine *engine, struct query *query)
{
    begin(engine, query, BREAK);
}

void people_unwatch(struct engine *engine, struct query *query)
{
    (void)engine;
    if (query->state)
        looking_free(query->state);
}
