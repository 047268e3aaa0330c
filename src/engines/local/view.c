#include <stdlib.h>
#include <string.h>

#include "base/name.h"
#include "engines/local/local.h"

/* Behind query->state while it watches. */
struct watcher {
    struct looker looker;
    struct timer timer;
    struct query *query;
    uint32_t slot;
    uint32_t observer;
    uint64_t shown; /* a sum over what was told last */
    bool has_shown;
};

static int64_t ms_between(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (int64_t)((to_ns - from_ns + NS_PER_MS - 1) / NS_PER_MS) : 0;
}

/* ---- telling ---- */

static bool is_over(const struct snapshot *snapshot, const struct claim_cell *claim)
{
    if (claim->state == CLAIM_GHOST)
        return claim->until_ns <= snapshot->now_ns;
    const struct snapshot_session *session = snapshot_session(snapshot, claim->session);
    return !session || !session->is_alive;
}

static struct stile_claim_info describe(const struct snapshot *snapshot,
                                        const struct claim_cell *claim)
{
    bool ghost = claim->state == CLAIM_GHOST;
    const struct snapshot_session *session =
        ghost ? NULL : snapshot_session(snapshot, claim->session);
    return (struct stile_claim_info){
        .held = claim_is_held(claim),
        .ghost = ghost,
        .mode = (enum stile_mode)claim->mode,
        .token = claim->token,
        .age_ms = ms_between(claim->since_ns, snapshot->now_ns),
        .expires_ms = ghost ? ms_between(snapshot->now_ns, claim->until_ns) : STILE_NO_DEADLINE,
        .pid = session ? session->pid : 0,
        .host = session ? session->host : "",
        .command = session ? session->command : "",
        .owner = "",
    };
}

/* False: out of memory. Names without living claims are left out of a list. */
static bool tell(struct query *query, const struct snapshot *snapshot,
                 const struct snapshot_name *name, bool list)
{
    struct stile_claim_info *claims = calloc(name->n_claims + 1, sizeof *claims);
    struct stile_info info = {.name = name->name, .token = name->token, .claims = claims};
    size_t n = 0;
    if (!claims)
        return false;
    for (uint32_t i = 0; i < name->n_claims; i++) {
        if (is_over(snapshot, &name->claims[i]))
            continue;
        claims[n++] = describe(snapshot, &name->claims[i]);
        info.holders += claim_is_held(&name->claims[i]);
    }
    info.waiters = n - info.holders;
    if (n || !list)
        query->engine->events->info(query, &info);
    free(claims);
    return true;
}

/* What a look has found dead need not be found again. */
static void clear_away(struct local *local, const struct claim_cell *claim)
{
    struct tx tx;
    struct pokes pokes;
    uint32_t index = (uint32_t)claim->check;
    pokes_init(&pokes);
    if (!tx_begin(&tx, &local->env->store))
        return;
    uint64_t now_ns = local_now(local);
    if (queue_own(&tx, index, claim->session, claim->id))
        queue_leave(&tx, index, LEAVE_DEAD, now_ns, &pokes);
    if (tx_commit(&tx))
        pokes_deliver(local, &pokes);
}

static void clear_dead(struct local *local, const struct snapshot *snapshot)
{
    for (size_t i = 0; i < snapshot->n_names; i++)
        for (uint32_t j = 0; j < snapshot->names[i].n_claims; j++) {
            const struct claim_cell *claim = &snapshot->names[i].claims[j];
            if (claim->state != CLAIM_GHOST && is_over(snapshot, claim))
                clear_away(local, claim);
        }
}

static void finish(struct query *query, enum stile_status status, struct stile_error *error)
{
    query->engine->events->done(query, status ? error : NULL);
}

void view_list(struct engine *engine, struct query *query)
{
    struct snapshot snapshot;
    struct stile_error error;
    enum stile_status status =
        snapshot_list(&snapshot, local_of(engine), query->name, query->name_len, &error);
    if (!status) {
        for (size_t i = 0; i < snapshot.n_names && !status; i++)
            if (!tell(query, &snapshot, &snapshot.names[i], true))
                status = error_set(&error, STILE_NOMEM, 0, "out of memory");
        clear_dead(local_of(engine), &snapshot);
        snapshot_free(&snapshot);
    }
    finish(query, status, &error);
}

void view_show(struct engine *engine, struct query *query)
{
    struct snapshot snapshot;
    struct stile_error error;
    enum stile_status status =
        snapshot_show(&snapshot, local_of(engine), query->name, query->name_len, &error);
    if (!status) {
        if (!tell(query, &snapshot, &snapshot.names[0], false))
            status = error_set(&error, STILE_NOMEM, 0, "out of memory");
        clear_dead(local_of(engine), &snapshot);
        snapshot_free(&snapshot);
    }
    finish(query, status, &error);
}

/* ---- watching ---- */

/* Two looks that see the same have the same sum. */
static uint64_t sum_up(const struct snapshot *snapshot, const struct snapshot_name *name)
{
    uint64_t sum = name->token;
    for (uint32_t i = 0; i < name->n_claims; i++) {
        const struct claim_cell *claim = &name->claims[i];
        if (is_over(snapshot, claim))
            continue;
        sum = (sum ^ claim->session ^ claim->id) * UINT64_C(0x9e3779b97f4a7c15);
        sum = (sum ^ sum >> 32 ^ claim->token ^ claim->state) * UINT64_C(0xd6e8feb86659fd93);
    }
    return sum ^ sum >> 32;
}

static void see_all(const struct snapshot *snapshot, struct sight *sight)
{
    const struct snapshot_name *name = &snapshot->names[0];
    *sight = (struct sight){.ghost_end_ns = UINT64_MAX};
    for (uint32_t i = 0; i < name->n_claims; i++) {
        const struct claim_cell *claim = &name->claims[i];
        if (claim->state == CLAIM_GHOST && claim->until_ns > snapshot->now_ns &&
            claim->until_ns < sight->ghost_end_ns)
            sight->ghost_end_ns = claim->until_ns;
    }
    for (size_t i = 0; i < snapshot->n_sessions && sight->n < SIGHT_MAX; i++)
        if (snapshot->sessions[i].is_alive)
            sight->sessions[sight->n++] = snapshot->sessions[i].id;
}

static void end_watch(struct local *local, struct watcher *watcher)
{
    struct tx tx;
    if (watcher->observer && tx_begin(&tx, &local->env->store)) {
        observers_drop(&tx, watcher->observer, local->id, watcher->slot);
        (void)tx_commit(&tx);
    }
    pokes_forget_due(local, &watcher->looker);
    peers_unwatch(local, &watcher->looker);
    loop_disarm(local->engine.loop, &watcher->timer);
    loop_unreserve(local->engine.loop, 1);
    pokes_drop_slot(local, watcher->slot);
    watcher->query->state = NULL;
    free(watcher);
}

static void fail_watch(struct local *local, struct watcher *watcher, struct stile_error *error)
{
    struct query *query = watcher->query;
    end_watch(local, watcher);
    finish(query, error->status, error);
}

/* Watches the life of all who are in line, so that a death that concerns nobody else is seen too.
 */
static bool watch_lives(struct local *local, struct watcher *watcher, struct snapshot *snapshot)
{
    struct sight sight;
    see_all(snapshot, &sight);
    if (peers_watch_all(local, &watcher->looker, &sight))
        return false;
    if (sight.ghost_end_ns != UINT64_MAX)
        loop_arm(local->engine.loop, &watcher->timer, sight.ghost_end_ns);
    return true;
}

/* False: out of memory. */
static bool tell_news(struct watcher *watcher, const struct snapshot *snapshot)
{
    uint64_t sum = sum_up(snapshot, &snapshot->names[0]);
    if (watcher->has_shown && watcher->shown == sum)
        return true;
    watcher->has_shown = true;
    watcher->shown = sum;
    return tell(watcher->query, snapshot, &snapshot->names[0], false);
}

static void watch_look(struct looker *looker, uint64_t dead)
{
    struct watcher *watcher = (struct watcher *)looker;
    struct query *query = watcher->query;
    struct local *local = local_of(query->engine);
    struct snapshot snapshot;
    struct stile_error error;
    bool settled = false;
    (void)dead;
    while (!settled) {
        enum stile_status status =
            snapshot_show(&snapshot, local, query->name, query->name_len, &error);
        if (!status) {
            settled = watch_lives(local, watcher, &snapshot);
            if (settled && !tell_news(watcher, &snapshot))
                status = error_set(&error, STILE_NOMEM, 0, "out of memory");
            clear_dead(local, &snapshot);
            snapshot_free(&snapshot);
        }
        if (status) {
            fail_watch(local, watcher, &error);
            return;
        }
    }
}

static void watch_on_time(struct timer *timer)
{
    struct watcher *watcher = (struct watcher *)((char *)timer - offsetof(struct watcher, timer));
    watch_look(&watcher->looker, 0);
}

static enum stile_status sign_up(struct local *local, struct watcher *watcher,
                                 struct stile_error *error)
{
    struct tx tx;
    struct query *query = watcher->query;
    if (!tx_begin(&tx, &local->env->store))
        return tx_error(&tx, error);
    uint32_t name = names_open(&tx, name_hash(query->name, query->name_len), query->name,
                               query->name_len, local_now(local));
    watcher->observer = observers_add(&tx, local->id, watcher->slot, name);
    if (tx_commit(&tx))
        return STILE_OK;
    watcher->observer = 0;
    return tx_error(&tx, error);
}

static struct watcher *make_watcher(struct local *local, struct query *query)
{
    struct watcher *watcher = calloc(1, sizeof *watcher);
    if (!watcher)
        return NULL;
    watcher->query = query;
    watcher->looker.look = watch_look;
    watcher->timer.fn = watch_on_time;
    watcher->slot = pokes_add_slot(local, &watcher->looker);
    if (watcher->slot && loop_reserve(local->engine.loop, 1) == 0)
        return watcher;
    pokes_drop_slot(local, watcher->slot);
    free(watcher);
    return NULL;
}

void view_watch(struct engine *engine, struct query *query)
{
    struct local *local = local_of(engine);
    struct stile_error error;
    struct watcher *watcher = make_watcher(local, query);
    if (!watcher) {
        finish(query, error_set(&error, STILE_NOMEM, 0, "out of memory"), &error);
        return;
    }
    query->state = watcher;
    if (sign_up(local, watcher, &error) != STILE_OK)
        fail_watch(local, watcher, &error);
    else
        watch_look(&watcher->looker, 0);
}

void view_unwatch(struct engine *engine, struct query *query)
{
    if (query->state)
        end_watch(local_of(engine), query->state);
}
