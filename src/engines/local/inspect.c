/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* list, show, watch and break.
 *
 * A break is a fenced takeover. The holder is notified before its place is given away: its claim is
 * marked, its session is woken, and only then is the claim removed. A breaker that is killed on the
 * way leaves a lock that is still held, not a holder that was never notified. */
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/name.h"
#include "base/self.h"
#include "engines/local/liveness.h"
#include "engines/local/local.h"

/* ---- a snapshot: what is in the table, copied out of it ---- */

struct snapshot_name {
    char *name;
    uint64_t token;
    uint32_t n_claims;
    struct claim_cell *claims; /* in order; `check` holds the cell's index */
};

struct snapshot_session {
    uint64_t id;
    bool is_alive;
    uint32_t pid;
    char host[SESSION_HOST_MAX + 1];
    char command[SESSION_COMMAND_MAX + 1];
};

struct snapshot {
    struct snapshot_name *names; /* in byte order */
    size_t n_names, cap_names;
    struct snapshot_session *sessions; /* by id */
    size_t n_sessions;
    uint64_t now_ns;
    char host[SELF_HOST_MAX + 1]; /* ours, and that of ghosts: it is one machine */
};

#define SESSIONS_PER_TX 32

static enum stile_status no_memory(struct stile_error *err)
{
    return error_set(err, STILE_NOMEM, 0, "out of memory");
}

/* ---- names ---- */

static struct snapshot_name *add_name(struct snapshot *snapshot)
{
    if (snapshot->n_names == snapshot->cap_names) {
        size_t cap = snapshot->cap_names ? 2 * snapshot->cap_names : 16;
        struct snapshot_name *names = realloc(snapshot->names, cap * sizeof *names);
        if (!names)
            return NULL;
        snapshot->names = names;
        snapshot->cap_names = cap;
    }
    struct snapshot_name *name = &snapshot->names[snapshot->n_names];
    *name = (struct snapshot_name){0};
    return name;
}

static void copy_claims(struct tx *tx, struct snapshot_name *to, uint32_t first, uint32_t n)
{
    for (uint32_t index = first; index && to->n_claims < n && tx_is_ok(tx);) {
        struct claim_cell *claim = &to->claims[to->n_claims++];
        *claim = *tx_claim(tx, index);
        claim->check = index;
        index = claim->next;
    }
}

/* Of an open name, which stays open: its word, as the claim that it would become. */
static void copy_word(struct tx *tx, struct snapshot_name *to, uint32_t index)
{
    struct quick_truth truth;
    if (!local_quick_read(&truth, tx, index))
        return;
    to->token = truth.token;
    uint64_t session = truth.held ? local_sessions_by_tag(tx, truth.tag) : 0;
    if (session)
        to->claims[to->n_claims++] = (struct claim_cell){.session = session,
                                                         .token = truth.token,
                                                         .since_ns = truth.since_ns,
                                                         .name = index,
                                                         .state = CLAIM_HELD};
}

/* False: out of memory. */
static bool copy_name(struct snapshot *snapshot, struct tx *tx, const struct name_cell *name,
                      uint32_t index, const char *text)
{
    struct snapshot_name *to = add_name(snapshot);
    uint32_t n = (uint32_t)name->n_held + name->n_waiting;
    if (!to)
        return false;
    to->name = strdup(text);
    to->claims = calloc(n ? n : 1, sizeof *to->claims);
    to->token = name->token;
    snapshot->n_names++;
    if (!to->name || !to->claims)
        return false;
    copy_claims(tx, to, name->first, n);
    if (name->is_quick)
        copy_word(tx, to, index);
    return true;
}

struct choice {
    const char *prefix;
    size_t len;
};

static bool copy_if_chosen(struct snapshot *snapshot, struct tx *tx, uint32_t index,
                           const struct choice *choice)
{
    char text[NAME_TEXT_MAX + 1];
    const struct name_cell *name = tx_name(tx, index);
    if (!name->first && !local_queue_quick_holder(tx, index))
        return true;
    local_names_text(tx, text, name);
    if (strncmp(text, choice->prefix, choice->len) != 0)
        return true;
    return copy_name(snapshot, tx, name, index, text);
}

static bool copy_bucket(struct snapshot *snapshot, struct tx *tx, uint32_t bucket,
                        const struct choice *choice)
{
    uint32_t next = local_chain_first(tx, bucket);
    while (next && tx_is_ok(tx)) {
        const union cell *cell = local_tx_peek(tx, next);
        if (cell->kind == CELL_NAME && !copy_if_chosen(snapshot, tx, next, choice))
            return false;
        next = cell->chained.chain;
    }
    return true;
}

/* In one transaction: names move within their family. */
static bool copy_family(struct snapshot *snapshot, struct tx *tx, uint32_t bucket,
                        const struct choice *choice)
{
    bool room;
    do {
        room = copy_bucket(snapshot, tx, bucket, choice);
        bucket = local_chain_relative(tx, bucket);
    } while (bucket && room && tx_is_ok(tx));
    return room;
}

static enum stile_status copy_all(struct snapshot *snapshot, struct store *store,
                                  const struct choice *choice, struct stile_error *err)
{
    for (uint32_t bucket = 0; bucket < BUCKETS;) {
        struct tx tx;
        bool room = true;
        if (!local_tx_begin(&tx, store))
            return local_tx_error(&tx, err);
        while ((bucket = local_chain_next_family(&tx, bucket)) < BUCKETS && room &&
               tx.n_reads < TX_READS_STEP && tx_is_ok(&tx))
            room = copy_family(snapshot, &tx, bucket++, choice);
        if (!local_tx_commit(&tx))
            return local_tx_error(&tx, err);
        if (!room)
            return no_memory(err);
    }
    return STILE_OK;
}

static int by_name(const void *a, const void *b)
{
    const struct snapshot_name *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* ---- sessions ---- */

static int by_id(const void *a, const void *b)
{
    const struct snapshot_session *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static const struct snapshot_session *snapshot_session(const struct snapshot *snapshot, uint64_t id)
{
    struct snapshot_session key = {.id = id};
    return snapshot->n_sessions
               ? bsearch(&key, snapshot->sessions, snapshot->n_sessions, sizeof key, by_id)
               : NULL;
}

static size_t count_claims(const struct snapshot *snapshot)
{
    size_t n = 0;
    for (size_t i = 0; i < snapshot->n_names; i++)
        n += snapshot->names[i].n_claims;
    return n;
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The distinct ids of all claims, in order; NULL: out of memory. */
static uint64_t *collect_ids(const struct snapshot *snapshot, size_t *n_ids)
{
    size_t n = 0, distinct = 0;
    uint64_t *ids = calloc(count_claims(snapshot) + 1, sizeof *ids);
    if (!ids)
        return NULL;
    for (size_t i = 0; i < snapshot->n_names; i++)
        for (uint32_t j = 0; j < snapshot->names[i].n_claims; j++)
            if (snapshot->names[i].claims[j].state != CLAIM_GHOST)
                ids[n++] = snapshot->names[i].claims[j].session;
    qsort(ids, n, sizeof *ids, by_number);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || ids[i] != ids[i - 1])
            ids[distinct++] = ids[i];
    *n_ids = distinct;
    return ids;
}

static void copy_session(struct tx *tx, struct snapshot_session *to)
{
    char text[SESSION_HOST_MAX + SESSION_COMMAND_MAX];
    uint32_t index = local_sessions_find(tx, to->id);
    if (!index)
        return;
    const struct session_cell *session = &tx_read(tx, index, CELL_SESSION)->session;
    size_t host_len = session->host_len, command_len = session->command_len;
    if (host_len > SESSION_HOST_MAX || command_len > SESSION_COMMAND_MAX)
        return;
    local_text_load(tx, session->text, text, host_len + command_len);
    memcpy(to->host, text, host_len);
    memcpy(to->command, text + host_len, command_len);
    to->pid = session->pid;
}

/* Outside of transactions: each check is a system call. */
static void check_liveness(struct snapshot *snapshot, const struct local *local)
{
    for (size_t i = 0; i < snapshot->n_sessions; i++) {
        struct snapshot_session *session = &snapshot->sessions[i];
        session->is_alive = session->id == local->id ||
                            local_liveness_is_alive(local->env->store.live_fd, session->id);
    }
}

static enum stile_status copy_sessions(struct snapshot *snapshot, struct local *local,
                                       struct stile_error *err)
{
    size_t n = 0;
    uint64_t *ids = collect_ids(snapshot, &n);
    snapshot->sessions = ids ? calloc(n + 1, sizeof *snapshot->sessions) : NULL;
    if (!snapshot->sessions) {
        free(ids);
        return no_memory(err);
    }
    snapshot->n_sessions = n;
    for (size_t i = 0; i < n; i++)
        snapshot->sessions[i].id = ids[i];
    free(ids);
    for (size_t i = 0; i < n;) {
        struct tx tx;
        if (!local_tx_begin(&tx, &local->env->store))
            return local_tx_error(&tx, err);
        for (int j = 0; j < SESSIONS_PER_TX && i < n; j++)
            copy_session(&tx, &snapshot->sessions[i++]);
        if (!local_tx_commit(&tx))
            return local_tx_error(&tx, err);
    }
    check_liveness(snapshot, local);
    return STILE_OK;
}

static void snapshot_free(struct snapshot *snapshot)
{
    for (size_t i = 0; i < snapshot->n_names; i++) {
        free(snapshot->names[i].name);
        free(snapshot->names[i].claims);
    }
    free(snapshot->names);
    free(snapshot->sessions);
    *snapshot = (struct snapshot){0};
}

/* ---- both ---- */

static enum stile_status snapshot_list(struct snapshot *snapshot, struct local *local,
                                       const char *prefix, size_t len, struct stile_error *err)
{
    struct choice choice = {.prefix = prefix, .len = len};
    *snapshot = (struct snapshot){.now_ns = local_now(local)};
    self_host(snapshot->host);
    enum stile_status status = local_session_check(local, err);
    if (!status)
        status = copy_all(snapshot, &local->env->store, &choice, err);
    if (!status)
        status = copy_sessions(snapshot, local, err);
    if (status)
        snapshot_free(snapshot);
    else if (snapshot->n_names)
        qsort(snapshot->names, snapshot->n_names, sizeof *snapshot->names, by_name);
    return status;
}

static enum stile_status copy_one(struct snapshot *snapshot, struct store *store, const char *text,
                                  size_t len, struct stile_error *err)
{
    struct tx tx;
    struct name_cell unknown = {0};
    if (!local_tx_begin(&tx, store))
        return local_tx_error(&tx, err);
    uint32_t index = local_names_find(&tx, name_hash(text, len), text, len);
    unknown.token = tx_ledger(&tx)->floor;
    bool room = copy_name(snapshot, &tx, index ? tx_name(&tx, index) : &unknown, index, text);
    if (!local_tx_commit(&tx))
        return local_tx_error(&tx, err);
    return room ? STILE_OK : no_memory(err);
}

static enum stile_status snapshot_show(struct snapshot *snapshot, struct local *local,
                                       const char *name, size_t len, struct stile_error *err)
{
    *snapshot = (struct snapshot){.now_ns = local_now(local)};
    self_host(snapshot->host);
    enum stile_status status = local_session_check(local, err);
    if (!status)
        status = copy_one(snapshot, &local->env->store, name, len, err);
    if (!status)
        status = copy_sessions(snapshot, local, err);
    if (status)
        snapshot_free(snapshot);
    return status;
}

/* ---- list and show ---- */

static int64_t ms_between(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (int64_t)((to_ns - from_ns + NS_PER_MS - 1) / NS_PER_MS) : 0;
}

/* ---- reporting ---- */

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
    bool left = ghost && claim->has_pid; /* the process that left it is known */
    return (struct stile_claim_info){
        .held = claim_is_held(claim),
        .ghost = ghost,
        .mode = (enum stile_mode)claim->mode,
        .token = claim->token,
        .age_ms = ms_between(claim->since_ns, snapshot->now_ns),
        .expires_ms = ghost ? ms_between(snapshot->now_ns, claim->until_ns) : STILE_NO_DEADLINE,
        .pid = session ? session->pid
               : left  ? claim->id
                       : 0,
        .host = session ? session->host
                : left  ? snapshot->host
                        : "",
        .command = session ? session->command : "",
        .owner = "",
    };
}

/* False: out of memory. Names without living claims are left out of a list. */
static bool report(struct query *query, const struct snapshot *snapshot,
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

/* Claims found dead are removed, so that the next query need not find them again. */
static void clear_away(struct local *local, const struct claim_cell *claim)
{
    struct tx tx;
    struct wakeups wakeups;
    uint32_t index = (uint32_t)claim->check;
    wakeups_init(&wakeups);
    if (!local_tx_begin(&tx, &local->env->store))
        return;
    uint64_t now_ns = local_now(local);
    if (local_queue_claim_of(&tx, index, claim->session, claim->id))
        local_queue_leave(&tx, index, LEAVE_DEAD, now_ns, &wakeups);
    if (local_tx_commit(&tx))
        local_wakeup_deliver(local, &wakeups);
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

void local_inspect_list(struct engine *engine, struct query *query)
{
    struct snapshot snapshot;
    struct stile_error error;
    enum stile_status status =
        snapshot_list(&snapshot, local_of(engine), query->name, query->name_len, &error);
    if (!status) {
        for (size_t i = 0; i < snapshot.n_names && !status; i++)
            if (!report(query, &snapshot, &snapshot.names[i], true))
                status = error_set(&error, STILE_NOMEM, 0, "out of memory");
        clear_dead(local_of(engine), &snapshot);
        snapshot_free(&snapshot);
    }
    finish(query, status, &error);
}

void local_inspect_show(struct engine *engine, struct query *query)
{
    struct snapshot snapshot;
    struct stile_error error;
    enum stile_status status =
        snapshot_show(&snapshot, local_of(engine), query->name, query->name_len, &error);
    if (!status) {
        local_history_show(engine, query);
        if (!report(query, &snapshot, &snapshot.names[0], false))
            status = error_set(&error, STILE_NOMEM, 0, "out of memory");
        clear_dead(local_of(engine), &snapshot);
        snapshot_free(&snapshot);
    }
    finish(query, status, &error);
}

/* ---- watching ---- */

/* The kernel may have had no memory for a wake-up. */
#define LOOK_AGAIN_NS NS_PER_SEC

/* Behind query->state. */
struct subscription {
    struct watcher watcher;
    struct timer timer;
    struct query *query;
    uint32_t slot;
    uint32_t observer;
};

static void collect_sessions(const struct snapshot *snapshot, struct ahead *ahead)
{
    *ahead = (struct ahead){.ghost_end_ns = UINT64_MAX};
    for (size_t i = 0; i < snapshot->n_sessions && ahead->n < AHEAD_MAX; i++)
        if (snapshot->sessions[i].is_alive)
            ahead->sessions[ahead->n++] = snapshot->sessions[i].id;
}

static void end_watch(struct local *local, struct subscription *sub)
{
    struct tx tx;
    if (sub->observer && local_tx_begin(&tx, &local->env->store)) {
        local_observers_drop(&tx, sub->observer, local->id, sub->slot);
        (void)local_tx_commit(&tx);
    }
    local_wakeup_forget_due(local, &sub->watcher);
    local_peers_unwatch(local, &sub->watcher);
    local_wakeup_drop_slot(local, sub->slot);
    loop_disarm(local->engine.loop, &sub->timer);
    loop_unreserve(local->engine.loop, 1);
    sub->query->state = NULL;
    free(sub);
}

/* Watches all sessions in the queue, so that a death that affects no other claim is reported too.
 * A session that has died meanwhile is left out the next time. */
static enum stile_status watch_sessions(struct local *local, struct subscription *sub,
                                        struct stile_error *error)
{
    const struct query *query = sub->query;
    struct snapshot snapshot;
    struct ahead ahead;
    bool settled = false;
    while (!settled) {
        enum stile_status status =
            snapshot_show(&snapshot, local, query->name, query->name_len, error);
        if (status)
            return status;
        collect_sessions(&snapshot, &ahead);
        settled = !local_peers_watch_all(local, &sub->watcher, &ahead);
        snapshot_free(&snapshot);
    }
    return STILE_OK;
}

static void recheck_name(struct watcher *watcher, uint64_t dead)
{
    struct subscription *sub = (struct subscription *)watcher;
    struct query *query = sub->query;
    struct local *local = local_of(query->engine);
    struct stile_error error;
    (void)dead;
    if (watch_sessions(local, sub, &error) == STILE_OK) {
        query->engine->events->changed(query);
        return;
    }
    end_watch(local, sub);
    finish(query, error.status, &error);
}

static void look_again(struct timer *timer)
{
    struct subscription *sub = container_of(timer, struct subscription, timer);
    struct engine *engine = sub->query->engine;
    loop_arm(engine->loop, timer, loop_now(engine->loop) + LOOK_AGAIN_NS);
    engine->events->changed(sub->query);
}

static enum stile_status subscribe(struct local *local, struct subscription *sub,
                                   struct stile_error *error)
{
    struct tx tx;
    struct query *query = sub->query;
    if (!local_tx_begin(&tx, &local->env->store))
        return local_tx_error(&tx, error);
    uint32_t name = local_names_open(&tx, name_hash(query->name, query->name_len), query->name,
                                     query->name_len, local_now(local));
    sub->observer = local_observers_add(&tx, local->id, sub->slot, name);
    if (local_tx_commit(&tx))
        return watch_sessions(local, sub, error);
    sub->observer = 0;
    return local_tx_error(&tx, error);
}

static struct subscription *make_subscription(struct local *local, struct query *query)
{
    struct loop *loop = local->engine.loop;
    struct subscription *sub = calloc(1, sizeof *sub);
    if (!sub || loop_reserve(loop, 1)) {
        free(sub);
        return NULL;
    }
    sub->query = query;
    sub->watcher.recheck = recheck_name;
    sub->timer.fn = look_again;
    sub->slot = local_wakeup_add_slot(local, &sub->watcher);
    if (sub->slot)
        return sub;
    loop_unreserve(loop, 1);
    free(sub);
    return NULL;
}

/* When it returns the table has the observer: every later change is reported. */
void local_inspect_watch(struct engine *engine, struct query *query)
{
    struct local *local = local_of(engine);
    struct stile_error error;
    struct subscription *sub = make_subscription(local, query);
    if (!sub) {
        finish(query, error_set(&error, STILE_NOMEM, 0, "out of memory"), &error);
        return;
    }
    query->state = sub;
    if (subscribe(local, sub, &error) == STILE_OK) {
        loop_arm(engine->loop, &sub->timer, loop_now(engine->loop) + LOOK_AGAIN_NS);
        return;
    }
    end_watch(local, sub);
    finish(query, error.status, &error);
}

void local_inspect_unwatch(struct engine *engine, struct query *query)
{
    if (query->state)
        end_watch(local_of(engine), query->state);
}

/* ---- break ---- */

#define EDITS_FOR_BREAKS 120

struct breaking {
    const struct query *query;
    uint32_t name;
    uint64_t latest; /* claims granted after this token are left alone */
    uint64_t now_ns;
    uint32_t n_found;
    struct tx tx;
    struct wakeups wakeups;
};

static uint32_t find(struct breaking *b)
{
    return local_names_find(&b->tx, name_hash(b->query->name, b->query->name_len), b->query->name,
                            b->query->name_len);
}

static bool is_meant(const struct breaking *b, const struct claim_cell *claim)
{
    if (!claim_is_held(claim) || claim->token > b->latest)
        return false;
    return b->query->token == 0 || b->query->token == claim->token;
}

static void mark(struct breaking *b, uint32_t index)
{
    struct claim_cell *claim = tx_edit_claim(&b->tx, index);
    if (claim->state == CLAIM_GHOST)
        return;
    claim->state = CLAIM_BROKEN;
    b->wakeups.ring[b->wakeups.tail++ % WAKEUPS_MAX] = (struct wakeup){.session = claim->session,
                                                                       .id = claim->id,
                                                                       .cell = index,
                                                                       .name = claim->name,
                                                                       .kind = WAKE_CLAIM};
}

static void mark_some(struct breaking *b)
{
    uint32_t next = tx_name(&b->tx, b->name)->first;
    b->n_found = 0;
    while (next && b->tx.n_edits < EDITS_FOR_BREAKS / 2) {
        const struct claim_cell *claim = tx_claim(&b->tx, next);
        if (!claim_is_held(claim))
            break;
        if (is_meant(b, claim)) {
            mark(b, next);
            b->n_found++;
        }
        next = claim->next;
    }
}

/* A ghost can be removed at once; a holder only after it has been marked. Starts from the front
 * each time: a removal may remove others as well. */
static bool remove_one(struct breaking *b)
{
    for (uint32_t next = tx_name(&b->tx, b->name)->first; next;) {
        const struct claim_cell *claim = tx_claim(&b->tx, next);
        if (is_meant(b, claim) && claim->state != CLAIM_HELD) {
            local_queue_leave(&b->tx, next, LEAVE_BROKEN, b->now_ns, &b->wakeups);
            b->name = find(b); /* the name may have been forgotten with its last claim */
            return b->name && tx_is_ok(&b->tx);
        }
        next = claim_is_held(claim) ? claim->next : 0;
    }
    return false;
}

static bool run(struct breaking *b, struct local *local, bool first)
{
    wakeups_init(&b->wakeups);
    if (!local_tx_begin(&b->tx, &local->env->store))
        return false;
    b->now_ns = local_now(local);
    b->name = find(b);
    local_queue_close(&b->tx, b->name);
    if (first && b->name)
        b->latest = tx_name(&b->tx, b->name)->token;
    return true;
}

static bool end(struct breaking *b, struct local *local)
{
    if (!local_tx_commit(&b->tx))
        return false;
    local_wakeup_deliver(local, &b->wakeups);
    return true;
}

/* Each round marks, wakes and removes as many as fit into one transaction. */
static bool take_away(struct breaking *b, struct local *local, uint32_t *n_broken)
{
    for (;;) {
        if (!run(b, local, *n_broken == 0))
            return false;
        b->n_found = 0;
        if (b->name)
            mark_some(b);
        if (!end(b, local))
            return false;
        if (b->n_found == 0)
            return true;
        *n_broken += b->n_found;
        if (!run(b, local, false))
            return false;
        while (b->name && b->tx.n_edits < EDITS_FOR_BREAKS && remove_one(b))
            ;
        if (!end(b, local))
            return false;
    }
}

void local_inspect_break(struct engine *engine, struct query *query)
{
    struct breaking b = {.query = query};
    struct stile_error error;
    uint32_t n_broken = 0;
    enum stile_status status = local_session_check(local_of(engine), &error);
    if (!status && !take_away(&b, local_of(engine), &n_broken))
        status = local_tx_error(&b.tx, &error);
    else if (!status && n_broken == 0 && query->token)
        status =
            error_set(&error, STILE_CONFLICT, 0, "token %llu no longer holds it: see `stile show`",
                      (unsigned long long)query->token);
    else if (!status && n_broken == 0)
        status = error_set(&error, STILE_CONFLICT, 0, "it is not held");
    engine->events->done(query, status ? &error : NULL);
}
