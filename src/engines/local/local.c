/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* local: locks of one machine, without a server.
 *
 * One directory, one mapped file: a hash table of names, and for each name a queue of claims in
 * order of arrival. An acquire and a release are two short transactions in it, without a system
 * call; if no other claim comes, one compare-and-swap each (quick.h). The file is tied to the boot,
 * because a reboot ends every holder; only the tokens' epoch has to be durable, and it is on the
 * disk before the first of its tokens is granted.
 *
 * Each client is a session: a random id whose byte in the file `live` stays locked as long as the
 * process lives. A release grants the next claim in the same transaction and wakes its session
 * through a socket. The first waiter is connected to the holder, each other waiter to the one
 * before it, and the kernel closes the connection when that process dies. So a release wakes one
 * waiter, none polls, and the lock of a killed holder passes on at once. A wake-up carries no
 * truth: the session that receives it reads the table.
 *
 *     layout.h, store, mutex          the file, its transactions, one process at a time
 *     quick                           names that are taken and given without a transaction
 *     table, names, queue             what is in it, and the rule that grants
 *     options                         what the URL says
 *     dir, epoch, env, load, check    the directory, opening it, and what is refused
 *     liveness, peers, wakeup         proof of life, the death of others, wake-ups
 *     session, inspect, doctor        one client; list, show, watch and break; examine
 *     history                         the record of each name's last holder
 *     cell_requests, cell_records, cell_pages, cell_file, cell_turn, cell_push, lmdb_library
 *                                     cells, in a file of their own
 */
#include <assert.h>
#include <errno.h>

#include "base/container.h"
#include "base/url.h"
#include "engines/local/local.h"
#include "engines/local/options.h"

#ifdef STILE_LOCAL_CELLS
#define LOCAL_HAS_CELLS true
#else
#define LOCAL_HAS_CELLS false
#endif

#define RECHECK_NS          NS_PER_SEC
#define RECHECKS_PER_SECOND 256 /* of all waiters of a name together */
#define STUCK_PAUSE_NS      (NS_PER_SEC / 2)

/* The longest time that the table can store: 49 days. */
#define HOLD_MAX_NS (UINT64_C(0xffffffff) * NS_PER_MS)

enum outcome {
    STILL_WAITING,
    NOW_GRANTED,
    STILL_HELD,
    PLACE_GONE,
    TABLE_STUCK, /* another process stays inside the table */
    TABLE_DAMAGED,
};

/* One reading of the table. */
struct recheck {
    uint64_t dead, now_ns, token;
    uint32_t n_waiting; /* in the same queue */
    struct ahead ahead;
    struct stile_error error;
};

static struct claim_request request_of(const struct local *local, struct claim *claim)
{
    uint32_t slots = claim->slots ? claim->slots : 1;
    return (struct claim_request){
        .session = local->id,
        .id = local_claim_of(claim)->slot,
        .mode = claim->mode,
        .slots = claim->mode == STILE_SLOTS ? slots : 0,
        .hold_ms = (uint32_t)((claim->hold_ns + NS_PER_MS - 1) / NS_PER_MS),
        .delay_ms = (uint32_t)((claim->delay_ns + NS_PER_MS - 1) / NS_PER_MS),
    };
}

static void enter_queue(struct local *local, struct claim *claim);
static void recheck_claim(struct watcher *watcher, uint64_t dead);

/* ---- the states ---- */

#define TO(state) (1u << (state))

/* Where each state may lead. */
static const unsigned transitions[] = {
    [IDLE] = TO(QUEUED) | TO(HELD),
    [QUEUED] = TO(HELD) | TO(WITHDRAWING) | TO(IDLE), /* IDLE: it failed, or enters again */
    [HELD] = TO(RELEASING) | TO(LOST),
    [LOST] = TO(IDLE),
    [WITHDRAWING] = TO(IDLE),
    [RELEASING] = TO(RELEASE_PAUSED) | TO(IDLE),
    [RELEASE_PAUSED] = TO(IDLE),
};

static void move_to(struct local_claim *lc, enum claim_state state)
{
    assert(transitions[lc->state] & TO(state));
    lc->state = state;
}

/* Whether the loop has room reserved for its timer. */
static bool has_timer(const struct local_claim *lc)
{
    return TO(lc->state) & (TO(QUEUED) | TO(WITHDRAWING) | TO(RELEASE_PAUSED));
}

static bool is_released_by_holder(const struct local_claim *lc)
{
    return lc->state == RELEASING || lc->state == RELEASE_PAUSED;
}

static void drop_slot(struct local *local, struct local_claim *lc)
{
    local_wakeup_drop_slot(local, lc->slot);
    lc->slot = 0;
}

/* ---- one reading of the table ---- */

static void probe_ahead(struct tx *tx, struct local *local, struct local_claim *lc, uint32_t name,
                        struct recheck *recheck, struct wakeups *wakeups)
{
    struct claim_request request = request_of(local, claim_of(lc));
    struct probe probe = {.request = &request, .skip = lc->skip};
    local_queue_probe(tx, name, &probe, recheck->now_ns, wakeups);
    lc->skip = probe.end || probe.blocked ? 0 : probe.skip;
}

static enum outcome recheck_queued(struct tx *tx, struct local *local, struct local_claim *lc,
                                   struct recheck *recheck, struct wakeups *wakeups)
{
    const struct claim_cell *own = local_queue_claim_of(tx, lc->cell, local->id, lc->slot);
    if (!own)
        return PLACE_GONE;
    uint32_t name = own->name;
    if (recheck->dead)
        local_queue_reap(tx, lc->cell, recheck->dead, recheck->now_ns, wakeups);
    if (lc->more_ahead)
        probe_ahead(tx, local, lc, name, recheck, wakeups);
    /* Also when granted: the process that granted us may have died before it woke the others. */
    local_queue_settle(tx, name, recheck->now_ns, wakeups);
    recheck->token = own->token;
    if (own->state == CLAIM_BROKEN) {
        local_queue_leave(tx, lc->cell, LEAVE_BROKEN, recheck->now_ns, wakeups);
        return PLACE_GONE;
    }
    if (claim_is_held(own))
        return NOW_GRANTED;
    local_queue_note_look(tx, lc->cell);
    local_queue_ahead(tx, lc->cell, &recheck->ahead);
    recheck->n_waiting = tx_name(tx, name)->n_waiting;
    return STILL_WAITING;
}

/* The cell of a granted claim; 0: it is no longer held. */
static uint32_t own_cell(struct tx *tx, struct local *local, struct local_claim *lc)
{
    struct claim *claim = claim_of(lc);
    struct claim_request request = request_of(local, claim);
    if (!lc->watcher.quick)
        return lc->cell;
    if (!local_names_is_still(tx, lc->name, lc->born, claim->name_hash))
        return 0;
    return local_queue_adopt(tx, lc->name, &request, lc->token);
}

static enum outcome recheck_in_tx(struct tx *tx, struct local *local, struct local_claim *lc,
                                  struct recheck *recheck, struct wakeups *wakeups)
{
    if (lc->state == QUEUED)
        return recheck_queued(tx, local, lc, recheck, wakeups);
    uint32_t cell = own_cell(tx, local, lc);
    const struct claim_cell *own = local_queue_claim_of(tx, cell, local->id, lc->slot);
    if (own && own->state == CLAIM_HELD)
        return STILL_HELD;
    /* The breaker that marked it may have died since; the next claim must not wait for it. */
    if (own)
        local_queue_leave(tx, cell, LEAVE_BROKEN, recheck->now_ns, wakeups);
    return PLACE_GONE;
}

static enum outcome recheck_once(struct local *local, struct local_claim *lc,
                                 struct recheck *recheck)
{
    struct tx tx;
    struct wakeups wakeups;
    wakeups_init(&wakeups);
    recheck->now_ns = local_now(local);
    enum outcome outcome = TABLE_DAMAGED;
    if (local_session_check(local, &recheck->error) != STILE_OK)
        return outcome;
    if (local_tx_begin(&tx, &local->env->store)) {
        outcome = recheck_in_tx(&tx, local, lc, recheck, &wakeups);
        if (local_tx_commit(&tx)) {
            local_wakeup_deliver(local, &wakeups);
            return outcome;
        }
    }
    local_tx_error(&tx, &recheck->error);
    return recheck->error.status == STILE_UNREACHABLE ? TABLE_STUCK : TABLE_DAMAGED;
}

/* ---- what follows ---- */

static void recheck_on_timer(struct timer *timer)
{
    struct local_claim *lc = container_of(timer, struct local_claim, timer);
    recheck_claim(&lc->watcher, 0);
}

static void recheck_later(struct local *local, struct local_claim *lc,
                          const struct recheck *recheck)
{
    uint64_t pause_ns = (1 + recheck->n_waiting / RECHECKS_PER_SECOND) * RECHECK_NS;
    uint64_t at_ns = recheck->now_ns + (lc->more_ahead ? RECHECK_NS : pause_ns);
    if (recheck->ahead.ghost_end_ns < at_ns)
        at_ns = recheck->ahead.ghost_end_ns;
    loop_arm(local->engine.loop, &lc->timer, local_loop_time(local, at_ns));
}

static void stop_waiting(struct local *local, struct local_claim *lc)
{
    local_wakeup_forget_due(local, &lc->watcher);
    local_peers_unwatch(local, &lc->watcher);
    if (has_timer(lc)) {
        loop_disarm(local->engine.loop, &lc->timer);
        loop_unreserve(local->engine.loop, 1);
    }
}

static void end_claim(struct local *local, struct local_claim *lc, enum claim_state state)
{
    stop_waiting(local, lc);
    drop_slot(local, lc);
    lc->watcher.quick = 0;
    move_to(lc, state);
}

/* A turn begins with the first grant after that of another claim. */
static void become_holder(struct local_claim *lc, uint64_t token, uint64_t now_ns)
{
    move_to(lc, HELD);
    if (token != lc->token + 1)
        lc->turn_ns = now_ns;
    lc->token = token;
}

static void report_granted(struct local *local, struct local_claim *lc,
                           const struct recheck *recheck)
{
    stop_waiting(local, lc);
    become_holder(lc, recheck->token, recheck->now_ns);
    local->engine.events->granted(claim_of(lc), recheck->token,
                                  local_loop_time(local, recheck->now_ns), 0);
}

static void report_lost(struct local *local, struct local_claim *lc)
{
    struct stile_error error;
    error_set(&error, STILE_LOST, 0, "taken by `stile break`");
    end_claim(local, lc, LOST);
    local->engine.events->lost(claim_of(lc), &error);
}

static void report_failed(struct local *local, struct local_claim *lc,
                          const struct recheck *recheck)
{
    bool held = lc->state == HELD;
    end_claim(local, lc, held ? LOST : IDLE);
    if (held)
        local->engine.events->lost(claim_of(lc), &recheck->error);
    else
        local->engine.events->failed(claim_of(lc), &recheck->error);
}

/* `stile break` took the grant away. If the grant was not reported yet, the claim enters the queue
 * again, as if it had never been there; a holder has lost its lock. */
static void handle_gone(struct local *local, struct local_claim *lc)
{
    if (lc->state == HELD) {
        report_lost(local, lc);
        return;
    }
    end_claim(local, lc, IDLE);
    enter_queue(local, claim_of(lc));
}

/* Watches the sessions ahead. If one of them is dead, returns it, and the caller rechecks. */
static uint64_t watch_ahead(struct local *local, struct local_claim *lc, struct recheck *recheck)
{
    uint64_t dead = local_peers_watch_all(local, &lc->watcher, &recheck->ahead);
    lc->more_ahead = recheck->ahead.more;
    if (!dead)
        recheck_later(local, lc, recheck);
    return dead;
}

static void recheck_claim(struct watcher *watcher, uint64_t dead)
{
    struct local_claim *lc = (struct local_claim *)watcher;
    struct local *local = local_of(claim_of(lc)->engine);
    struct recheck recheck = {.dead = dead};
    if (lc->state != QUEUED && lc->state != HELD)
        return;
    do {
        switch (recheck_once(local, lc, &recheck)) {
        case STILL_WAITING:
            recheck.dead = watch_ahead(local, lc, &recheck);
            break;
        case NOW_GRANTED:
            report_granted(local, lc, &recheck);
            return;
        case STILL_HELD:
            return;
        case PLACE_GONE:
            handle_gone(local, lc);
            return;
        case TABLE_STUCK:
            if (lc->state == QUEUED)
                loop_arm(local->engine.loop, &lc->timer,
                         local_loop_time(local, recheck.now_ns + STUCK_PAUSE_NS));
            return;
        case TABLE_DAMAGED:
            report_failed(local, lc, &recheck);
            return;
        }
    } while (recheck.dead);
}

static bool start_waiting(struct local *local, struct claim *claim)
{
    struct local_claim *lc = local_claim_of(claim);
    if (loop_reserve(local->engine.loop, 1))
        return false;
    lc->more_ahead = false;
    lc->skip = 0;
    lc->timer.fn = recheck_on_timer;
    move_to(lc, QUEUED);
    recheck_claim(&lc->watcher, 0);
    return true;
}

/* ---- entering ---- */

static void fail(struct local *local, struct claim *claim, const struct stile_error *error)
{
    drop_slot(local, local_claim_of(claim));
    local->engine.events->failed(claim, error);
}

static void report_busy(struct local *local, struct claim *claim, uint64_t ghost_end_ns)
{
    uint64_t now_ns = local_now(local);
    drop_slot(local, local_claim_of(claim));
    bool ends = ghost_end_ns != UINT64_MAX && ghost_end_ns > now_ns;
    local->engine.events->busy(claim, ends ? ghost_end_ns - now_ns : 0);
}

enum entry {
    ENTRY_GRANTED,
    ENTRY_QUEUED,
    ENTRY_BUSY,
    ENTRY_FAILED,
};

struct entering {
    struct claim_request request;
    uint64_t now_ns, token;
    struct tx tx;
    struct wakeups wakeups;
};

static enum entry enter_table(struct local *local, struct claim *claim, struct entering *e)
{
    struct local_claim *lc = local_claim_of(claim);
    struct tx *tx = &e->tx;
    lc->is_own = false;
    if (!local_tx_begin(tx, &local->env->store))
        return ENTRY_FAILED;
    if (!local_names_is_still(tx, lc->name, lc->born, claim->name_hash)) {
        lc->name = local_names_open(tx, claim->name_hash, claim->name, claim->name_len, e->now_ns);
        lc->born = tx_name(tx, lc->name)->born;
    }
    local_queue_close(tx, lc->name);
    lc->cell = local_queue_enter(tx, lc->name, &e->request, e->now_ns, &e->wakeups);
    const struct claim_cell *own = tx_claim(tx, lc->cell);
    bool granted = claim_is_held(own);
    e->token = own->token;
    if (!granted && !claim->wait && tx_is_ok(tx)) {
        local_tx_abort(tx);
        return ENTRY_BUSY;
    }
    if (!local_tx_commit(tx))
        return ENTRY_FAILED;
    return granted ? ENTRY_GRANTED : ENTRY_QUEUED;
}

/* For a claim that does not wait and found others in its way. True: some of them were dead, so
 * another try is worthwhile. */
static bool reap_ahead(struct local *local, struct claim *claim, struct entering *e,
                       struct probe *probe)
{
    *probe = (struct probe){.request = &e->request, .ghost_end_ns = UINT64_MAX};
    do {
        wakeups_init(&e->wakeups);
        if (!local_tx_begin(&e->tx, &local->env->store))
            return false;
        uint32_t name = local_names_find(&e->tx, claim->name_hash, claim->name, claim->name_len);
        local_queue_close(&e->tx, name);
        if (name)
            local_queue_probe(&e->tx, name, probe, e->now_ns, &e->wakeups);
        probe->end |= !name;
        if (!local_tx_commit(&e->tx))
            return false;
        local_wakeup_deliver(local, &e->wakeups);
    } while (!probe->blocked && !probe->reaped && !probe->end);
    return probe->reaped;
}

static enum entry enter(struct local *local, struct claim *claim, struct entering *e,
                        uint64_t *ghost_end_ns)
{
    struct probe probe;
    for (;;) {
        wakeups_init(&e->wakeups);
        enum entry entry = enter_table(local, claim, e);
        if (entry != ENTRY_BUSY)
            return entry;
        if (reap_ahead(local, claim, e, &probe))
            continue;
        *ghost_end_ns = probe.ghost_end_ns;
        return tx_is_ok(&e->tx) ? ENTRY_BUSY : ENTRY_FAILED;
    }
}

/* With fair=, a release while others wait leaves the lock free until the first waiter comes for it,
 * so that this claim may take it again before. That ends so long after the later of two moments:
 * the beginning of its turn, and the waiter's arrival. */
static void release_used(struct tx *tx, struct local *local, struct local_claim *lc, uint32_t cell,
                         struct wakeups *wakeups)
{
    lc->turn_ends_ns = 0;
    if (local_queue_leave_quietly(tx, cell, lc->used && local->has_tag)) {
        lc->is_own = local_quick_is_own(tx, lc->name, lc->token);
        return;
    }
    uint64_t now_ns = local_now(local);
    uint64_t since_ns = local_queue_waited_for_since(tx, cell);
    uint64_t from_ns = since_ns > lc->turn_ns ? since_ns : lc->turn_ns;
    if (now_ns < from_ns + local->fair_ns && local_queue_leave_open(tx, cell, now_ns, wakeups))
        lc->turn_ends_ns = from_ns + local->fair_ns;
    else
        local_queue_leave(tx, cell, LEAVE_RELEASED, now_ns, wakeups);
}

/* OK, LOST, or the error that prevented it. */
static enum stile_status leave_table(struct local *local, struct local_claim *lc,
                                     struct stile_error *error)
{
    struct tx tx;
    struct wakeups wakeups;
    enum stile_status status = STILE_OK;
    if (!local_tx_begin(&tx, &local->env->store))
        return local_tx_error(&tx, error);
    wakeups_init(&wakeups);
    uint32_t cell = own_cell(&tx, local, lc);
    const struct claim_cell *own = local_queue_claim_of(&tx, cell, local->id, lc->slot);
    if (!own || own->state == CLAIM_BROKEN)
        status = error_set(error, STILE_LOST, 0, "taken by `stile break`");
    /* hold_at_least does not apply to a grant that was never reported or never used. */
    bool used = is_released_by_holder(lc) && !claim_of(lc)->unused;
    if (own && used)
        release_used(&tx, local, lc, cell, &wakeups);
    else if (own)
        local_queue_leave(&tx, cell, LEAVE_BROKEN, local_now(local), &wakeups);
    if (!local_tx_commit(&tx))
        return local_tx_error(&tx, error);
    lc->used = true;
    if (wakeups.head != wakeups.tail)
        local_wakeup_deliver(local, &wakeups);
    return is_released_by_holder(lc) ? status : STILE_OK;
}

static void report_entry(struct local *local, struct claim *claim, struct entering *e,
                         enum entry entry, uint64_t ghost_end_ns)
{
    struct stile_error error;
    switch (entry) {
    case ENTRY_GRANTED:
        become_holder(local_claim_of(claim), e->token, e->now_ns);
        local->engine.events->granted(claim, e->token, local_loop_time(local, e->now_ns), 0);
        break;
    case ENTRY_QUEUED:
        if (start_waiting(local, claim))
            break;
        (void)leave_table(local, local_claim_of(claim), &error);
        error_set(&error, STILE_NOMEM, 0, "out of memory");
        fail(local, claim, &error);
        break;
    case ENTRY_BUSY:
        report_busy(local, claim, ghost_end_ns);
        break;
    case ENTRY_FAILED:
        local_tx_error(&e->tx, &error);
        fail(local, claim, &error);
        break;
    }
}

/* ---- by the word of the name ---- */

static bool is_plain(const struct claim *claim)
{
    return claim->mode == STILE_EXCLUSIVE && !claim->hold_ns && !claim->delay_ns;
}

static bool may_touch(struct store *store)
{
    return store_is_size_fresh(store) || local_store_is_whole(store);
}

static bool may_take_quickly(const struct local *local, const struct local_claim *lc)
{
    return lc->is_own && local->has_tag;
}

/* True: granted. False: the table decides. */
static bool take_quickly(struct local *local, struct claim *claim, uint64_t now_ns)
{
    struct local_claim *lc = local_claim_of(claim);
    struct store *store = &local->env->store;
    uint64_t token = lc->token;
    if (!may_take_quickly(local, lc) || !is_plain(claim) || !may_touch(store) ||
        !quick_take(store, lc->name, &token, local->id, now_ns))
        return false;
    lc->watcher.quick = lc->name;
    become_holder(lc, token, now_ns);
    local->engine.events->granted(claim, token, local_loop_time(local, now_ns), 0);
    return true;
}

static bool give_quickly(struct local *local, struct local_claim *lc)
{
    struct store *store = &local->env->store;
    return lc->watcher.quick && may_touch(store) &&
           quick_give(store, lc->watcher.quick, lc->token, local->id);
}

static void enter_queue(struct local *local, struct claim *claim)
{
    struct local_claim *lc = local_claim_of(claim);
    struct entering e;
    uint64_t ghost_end_ns = UINT64_MAX;
    struct stile_error error;

    /* Among many names these cells are in no cache; they are fetched while we read the clock and
     * take the mutex. */
    if (may_take_quickly(local, lc)) {
        __builtin_prefetch(quick_slot(&local->env->store, lc->name), 1);
    } else {
        __builtin_prefetch(&local->env->store.cells[lc->name], 1);
        __builtin_prefetch(&local->env->store.cells[lc->cell], 1);
    }
    lc->watcher.recheck = recheck_claim;
    lc->slot = local_wakeup_add_slot(local, &lc->watcher);
    if (!lc->slot) {
        error_set(&error, STILE_NOMEM, 0, "out of memory");
        fail(local, claim, &error);
        return;
    }
    e.now_ns = local_now(local);
    store_note_time(&local->env->store, e.now_ns);
    if (take_quickly(local, claim, e.now_ns))
        return;
    e.request = request_of(local, claim);
    if (e.now_ns < lc->turn_ends_ns)
        e.request.retakes = lc->token;
    enum entry entry = enter(local, claim, &e, &ghost_end_ns);
    if (entry <= ENTRY_QUEUED && e.wakeups.head != e.wakeups.tail)
        local_wakeup_deliver(local, &e.wakeups);
    report_entry(local, claim, &e, entry, ghost_end_ns);
}

static void local_claim(struct engine *engine, struct claim *claim)
{
    struct stile_error error;
    if (local_session_check(local_of(engine), &error) != STILE_OK) {
        fail(local_of(engine), claim, &error);
        return;
    }
    if (claim->hold_ns > HOLD_MAX_NS || claim->delay_ns > HOLD_MAX_NS) {
        error_set(&error, STILE_REFUSED, 0, "hold_at_least and lock-delay are limited to 49 days");
        fail(local_of(engine), claim, &error);
        return;
    }
    enter_queue(local_of(engine), claim);
}

/* ---- leaving ---- */

static void leave_on_timer(struct timer *timer);

/* False: out of memory. */
static bool leave_later(struct local *local, struct local_claim *lc)
{
    if (lc->state == RELEASING) {
        if (loop_reserve(local->engine.loop, 1))
            return false;
        move_to(lc, RELEASE_PAUSED);
    }
    lc->timer.fn = leave_on_timer;
    loop_arm(local->engine.loop, &lc->timer, loop_now(local->engine.loop) + STUCK_PAUSE_NS);
    return true;
}

static void leave(struct local *local, struct claim *claim)
{
    struct local_claim *lc = local_claim_of(claim);
    struct stile_error error;
    enum stile_status status = leave_table(local, lc, &error);
    if (status == STILE_UNREACHABLE && leave_later(local, lc))
        return;
    end_claim(local, lc, IDLE);
    local->engine.events->released(claim, status ? &error : NULL);
}

static void leave_on_timer(struct timer *timer)
{
    struct local_claim *lc = container_of(timer, struct local_claim, timer);
    leave(local_of(claim_of(lc)->engine), claim_of(lc));
}

static void local_release(struct engine *engine, struct claim *claim)
{
    struct local *local = local_of(engine);
    struct local_claim *lc = local_claim_of(claim);
    struct stile_error error;
    switch (lc->state) {
    case QUEUED:
        move_to(lc, WITHDRAWING);
        leave(local, claim);
        break;
    case HELD:
        move_to(lc, RELEASING);
        if (!give_quickly(local, lc)) {
            leave(local, claim);
            break;
        }
        end_claim(local, lc, IDLE);
        local->engine.events->released(claim, NULL);
        break;
    case WITHDRAWING:
    case RELEASING:
    case RELEASE_PAUSED:
        break;
    case LOST:
        move_to(lc, IDLE);
        error_set(&error, STILE_LOST, 0, "the lock was no longer held");
        local->engine.events->released(claim, &error);
        break;
    case IDLE:
        local->engine.events->released(claim, NULL);
        break;
    }
}

/* ---- beginning and end ---- */

static enum stile_status open_now(struct engine *engine, const struct url *url,
                                  struct stile_error *err)
{
    struct local *local = local_of(engine);
    struct local_options options;
    enum stile_status status = local_options_read(&options, url, err);
    if (!status)
        status = local_env_open(&local->env, url->path, options.allow_fuse, engine->loop, err);
    if (status)
        return status;
    local->fair_ns = options.fair_ns;
    engine->caps.fifo = local->fair_ns == 0;
    status = local_session_open(local, err);
    if (status)
        local_env_close(local->env);
    return status;
}

static void local_open(struct engine *engine, const struct url *url)
{
    struct stile_error err;
    enum stile_status status = open_now(engine, url, &err);
    engine->events->opened(engine, status ? &err : NULL);
}

static void local_close(struct engine *engine)
{
    struct local *local = local_of(engine);
    local_cells_end_watches(local);
    local_peers_close(local);
    local_session_close(local);
    local_env_close(local->env);
}

static void local_forked(struct engine *engine)
{
    struct local *local = local_of(engine);
    local_cells_forked(local);
    local_peers_forked(local);
    local_wakeup_forked(local);
    local_session_forked(local);
    local_env_forked(local->env);
}

static int local_life_fd(struct engine *engine)
{
    return local_of(engine)->life_fd;
}

static const char *const local_params[] = {"allow", "fair", NULL};

#define CAPS(in_order)                                                                             \
    {                                                                                              \
        .engine = "local",                                                                         \
        .modes = 1u << STILE_EXCLUSIVE | 1u << STILE_SHARED | 1u << STILE_SLOTS,                   \
        .lease = STILE_LEASE_PROCESS, .fifo = in_order, .token = true, .hold_at_least = true,      \
        .lock_delay = true, .detached = false, .cells = LOCAL_HAS_CELLS, .clock = LOCAL_HAS_CELLS, \
        .keeps = LOCAL_HAS_CELLS, .paces = LOCAL_HAS_CELLS,                                        \
        .token_is = "a counter per name, above a floor that survives reboots",                     \
        .survives = "a process killed at any instruction: its locks pass on at once; a reboot "    \
                    "ends all locks, and tokens continue",                                         \
        .condition = "all processes share one machine's kernel and the directory; the default "    \
                     "directory belongs to one user and excludes that user's processes only",      \
    }

static const struct stile_caps caps = CAPS(true), caps_with_fair = CAPS(false);

static const struct stile_caps *promises(const struct url *url)
{
    struct local_options options;
    bool fair = local_options_read(&options, url, NULL) == STILE_OK && options.fair_ns;
    return fair ? &caps_with_fair : &caps;
}

static const struct engine_push push = {
    .watch = local_inspect_watch,
    .unwatch = local_inspect_unwatch,
};

static const struct engine_admin admin = {
    .examine = local_examine,
};

const struct engine_class local_class = {
    .schemes = "local",
    .params = local_params,
    .caps = CAPS(true),
    .promises = promises,
    .apart = true,
    .engine_size = sizeof(struct local),
    .claim_size = sizeof(struct local_claim),
    .open = local_open,
    .close = local_close,
    .forked = local_forked,
    .life_fd = local_life_fd,
    .claim = local_claim,
    .release = local_release,
    .list = local_inspect_list,
    .show = local_inspect_show,
    .break_ = local_inspect_break,
    .push = &push,
    .cells = &local_cells,
    .admin = &admin,
    .history = &local_history,
};
