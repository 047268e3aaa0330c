/* list, show, watch and break. */
#include <stdlib.h>

#include "engines/zookeeper/view.h"

#define AGAIN_NS   (200 * NS_PER_MS)
#define BREAKS_MAX 4

/* ---- the end ---- */

static void looking_free(struct looking *looking)
{
    struct loop *loop = looking->query->engine->loop;
    asker_forget(&looking->asker);
    watcher_leave(&looking->watcher);
    if (looking->has_timer) {
        loop_disarm(loop, &looking->timer);
        loop_unreserve(loop, 1);
    }
    gather_forget(looking);
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

static void tell(struct looking *looking, const struct place *place)
{
    struct stile_info info;
    struct stile_claim_info *claims = calloc(place->n + 1, sizeof *claims);
    uint64_t seen = fingerprint(place);
    if (!claims) {
        error_set(&looking->error, STILE_NOMEM, 0, "out of memory");
        return;
    }
    place_tell(place, &info, claims);
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
    gather_begin((struct looking *)((char *)timer - offsetof(struct looking, timer)));
}

void people_changed(struct asker *asker, int type)
{
    struct looking *looking = looking_of(asker);
    (void)type;
    looking->changed = true;
    if (!looking->busy)
        gather_begin(looking);
}

static void look_in(struct looking *looking, uint64_t pause_ns)
{
    struct loop *loop = looking->query->engine->loop;
    looking->timer.fn = look_later;
    loop_arm(loop, &looking->timer, loop_now(loop) + pause_ns);
}

/* That a ghost's time is over, nobody tells. */
static void watch_on(struct looking *looking)
{
    int64_t haunted_ms = place_haunted_ms(&looking->places[0]);
    looking->busy = false;
    if (looking->changed || !looking->watcher)
        gather_begin(looking);
    else if (haunted_ms)
        look_in(looking, (uint64_t)haunted_ms * NS_PER_MS);
}

/* ---- break: the nodes of who holds it, and what they would leave behind ---- */

static void finish_break(struct looking *looking)
{
    struct stile_error *err = &looking->error;
    if (looking->broken || err->status) {
        end(looking, err->status ? err : NULL);
    } else if (++looking->tries < BREAKS_MAX) {
        gather_begin(looking);
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

static void remove_node(struct looking *looking, const char *path)
{
    if (path && ask_delete(session_of(looking), &looking->asker, path, on_broken))
        looking->pending++;
}

static void break_now(struct looking *looking)
{
    const struct place *place = &looking->places[0];
    uint64_t token = looking->query->token;
    bool held = false;
    for (size_t i = 0; i < place->n; i++) {
        const struct entry *entry = &place->entries[i];
        held = held || entry->held;
        if (entry->held && (!token || token == entry->token)) {
            remove_node(looking, entry->record);
            remove_node(looking, entry->path);
        }
    }
    if (looking->pending > 0)
        return;
    error_set(&looking->error, STILE_CONFLICT, 0,
              held ? "the grant with that token is over" : "it isn't held");
    end(looking, &looking->error);
}

/* ---- all is there ---- */

void people_gathered(struct looking *looking)
{
    struct stile_error *err = &looking->error;
    bool passing = err->status == STILE_UNREACHABLE || err->status == STILE_UNCERTAIN;
    if (looking->what == WATCH && looking->told && passing) {
        look_in(looking, AGAIN_NS);
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
    gather_begin(looking);
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
