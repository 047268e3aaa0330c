/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of a name: the rule that grants, entering and leaving, and what stands ahead of a
 * claim. */

#include "engines/local/liveness.h"
#include "engines/local/table.h"

/* Room in the list of wake-ups that is kept for observers and first waiters. */
#define WAKEUPS_RESERVE 40

/* How much of the journal each kind of work may fill. Nothing is lost: the next claim that
 * rechecks, or is granted, continues the work. */
#define EDITS_FOR_GHOSTS 160
#define EDITS_FOR_GRANTS 220

static uint32_t n_wakeups(const struct wakeups *wakeups)
{
    return wakeups->tail - wakeups->head;
}

static void add_wakeup(struct wakeups *wakeups, uint32_t cell, const struct claim_cell *claim)
{
    if (n_wakeups(wakeups) == WAKEUPS_MAX)
        return; /* a claim that is not woken rechecks by itself within seconds */
    wakeups->ring[wakeups->tail++ % WAKEUPS_MAX] = (struct wakeup){
        .session = claim->session, .id = claim->id, .cell = cell, .kind = WAKE_CLAIM};
}

static uint32_t first_waiter(struct tx *tx, const struct name_cell *name)
{
    return name->held_last ? tx_claim(tx, name->held_last)->next : name->first;
}

/* ---- the rule ---- */

static bool may_hold(struct tx *tx, const struct name_cell *name, const struct claim_cell *claim)
{
    if (name->n_held == 0)
        return true;
    const struct claim_cell *holder = tx_claim(tx, name->held_last);
    if (claim->mode != holder->mode)
        return false;
    return claim->mode == STILE_SHARED ||
           (claim->mode == STILE_SLOTS && name->n_held < claim->slots);
}

/* The token of the next grant; 0 if it would begin an epoch that cannot be made durable. */
static uint64_t next_token(struct tx *tx, const struct name_cell *name)
{
    uint64_t token = name->token + 1;
    if ((uint32_t)token != 0 || token >> 32 <= tx_ledger(tx)->epoch)
        return token;
    if (tx->store->next_epoch(tx->store, (uint32_t)(token >> 32)) != STILE_OK)
        return 0;
    tx_edit_ledger(tx)->epoch = (uint32_t)(token >> 32);
    return token;
}

/* False: there is no token for the grant. */
static bool grant(struct tx *tx, struct name_cell *name, uint32_t index, uint64_t now_ns)
{
    uint64_t token = next_token(tx, name);
    if (!token)
        return false;
    struct claim_cell *claim = tx_edit_claim(tx, index);
    store_note_token(tx->store, token);
    claim->token = name->token = token;
    if (token % QUICK_BLOCK == 0)
        name->was_quick = false;
    claim->state = CLAIM_HELD;
    claim->woken = false;
    claim->since_ns = now_ns;
    name->held_last = index;
    name->n_held++;
    name->n_waiting--;
    return true;
}

/* Grants from the front as long as the rule allows and there is room for the wake-ups. Each granted
 * claim rechecks the table and continues from there. */
static unsigned grant_all(struct tx *tx, uint32_t name_index, uint64_t now_ns,
                          struct wakeups *wakeups)
{
    unsigned n = 0;
    const struct name_cell *name = tx_name(tx, name_index);
    uint32_t next = first_waiter(tx, name);
    while (next && n_wakeups(wakeups) < WAKEUPS_MAX - WAKEUPS_RESERVE &&
           tx->n_edits < EDITS_FOR_GRANTS) {
        const struct claim_cell *claim = tx_claim(tx, next);
        if (!tx_is_ok(tx) || !may_hold(tx, name, claim) ||
            !grant(tx, tx_edit_name(tx, name_index), next, now_ns))
            break;
        add_wakeup(wakeups, next, claim);
        next = claim->next;
        n++;
    }
    return n;
}

/* ---- entering and leaving ---- */

/* Each name keeps one cell for its next claim, so a lock that is taken repeatedly by one claim at a
 * time touches no cell that other names share. */
static void put_away(struct tx *tx, struct name_cell *name, uint32_t index)
{
    if (name->spare) {
        local_tx_free(tx, index, CELL_CLAIM);
        return;
    }
    struct claim_cell *claim = tx_edit_claim(tx, index);
    *claim = (struct claim_cell){.check = claim->check, .kind = CELL_CLAIM};
    name->spare = index;
}

static uint32_t take_cell(struct tx *tx, struct name_cell *name)
{
    uint32_t index = name->spare;
    name->spare = 0;
    return index ? index : local_tx_alloc(tx, CELL_CLAIM);
}

/* The claim may outlive its holder. */
static bool is_kept(const struct claim_cell *claim)
{
    return claim->hold_ms || claim->delay_ms;
}

static void unlink_claim(struct tx *tx, uint32_t index)
{
    struct claim_cell claim = *tx_edit_claim(tx, index);
    struct name_cell *name = tx_edit_name(tx, claim.name);
    if (claim.prev)
        tx_edit_claim(tx, claim.prev)->next = claim.next;
    else
        name->first = claim.next;
    if (claim.next)
        tx_edit_claim(tx, claim.next)->prev = claim.prev;
    else
        name->last = claim.prev;
    if (is_kept(&claim))
        tx_edit_ledger(tx)->n_kept--;
    if (claim_is_held(&claim)) {
        name->n_held--;
        name->n_ghosts -= claim.state == CLAIM_GHOST;
        if (name->held_last == index)
            name->held_last = claim.prev;
    } else {
        name->n_waiting--;
    }
    put_away(tx, name, index);
}

static void drop_ghosts(struct tx *tx, uint32_t name_index, uint64_t now_ns)
{
    const struct name_cell *name = tx_name(tx, name_index);
    uint32_t left = name->n_ghosts, next = name->first;
    while (left > 0 && next && tx->n_edits < EDITS_FOR_GHOSTS) {
        const struct claim_cell *claim = tx_claim(tx, next);
        uint32_t index = next;
        next = claim->next;
        if (claim->state != CLAIM_GHOST)
            continue;
        left--;
        if (claim->until_ns <= now_ns)
            unlink_claim(tx, index);
    }
}

void local_queue_expire(struct tx *tx, uint32_t name_index, uint64_t now_ns)
{
    const struct name_cell *name = tx_name(tx, name_index);
    if (name->n_ghosts && !name->n_waiting)
        drop_ghosts(tx, name_index, now_ns);
}

/* The number of grants. */
static unsigned settle(struct tx *tx, uint32_t name_index, uint64_t now_ns, struct wakeups *wakeups)
{
    const struct name_cell *name = tx_name(tx, name_index);
    if (name->n_ghosts)
        drop_ghosts(tx, name_index, now_ns);
    if (!name->n_waiting)
        return 0;
    unsigned n = grant_all(tx, name_index, now_ns, wakeups);
    uint32_t first = first_waiter(tx, name);
    /* Behind an exclusive holder the next waiter already watches the right session. */
    if (n && first && tx_claim(tx, name->held_last)->mode != STILE_EXCLUSIVE)
        add_wakeup(wakeups, first, tx_claim(tx, first));
    return n;
}

void local_queue_settle(struct tx *tx, uint32_t name_index, uint64_t now_ns,
                        struct wakeups *wakeups)
{
    const struct name_cell *name = tx_name(tx, name_index);
    uint16_t n_ghosts = name->n_ghosts;
    if (settle(tx, name_index, now_ns, wakeups) || n_ghosts != name->n_ghosts)
        local_observers_wake(tx, name_index, wakeups);
}

/* Before all others, or behind them. */
static void link_claim(struct tx *tx, struct name_cell *name, uint32_t index, bool first)
{
    struct claim_cell *claim = tx_edit_claim(tx, index);
    claim->prev = first ? 0 : name->last;
    claim->next = first ? name->first : 0;
    if (claim->prev)
        tx_edit_claim(tx, claim->prev)->next = index;
    else
        name->first = index;
    if (claim->next)
        tx_edit_claim(tx, claim->next)->prev = index;
    else
        name->last = index;
}

static uint32_t add_claim(struct tx *tx, uint32_t name_index, const struct claim_request *request,
                          bool first, uint64_t now_ns)
{
    struct name_cell *name = tx_edit_name(tx, name_index);
    uint32_t index = take_cell(tx, name);
    struct claim_cell *claim = tx_edit_claim(tx, index);
    *claim = (struct claim_cell){
        .check = claim->check,
        .session = request->session,
        .since_ns = now_ns,
        .id = request->id,
        .name = name_index,
        .slots = request->slots,
        .hold_ms = request->hold_ms,
        .delay_ms = request->delay_ms,
        .mode = (uint8_t)request->mode,
        .state = CLAIM_WAITING,
        .kind = CELL_CLAIM,
    };
    link_claim(tx, name, index, first);
    if (request->hold_ms || request->delay_ms)
        tx_edit_ledger(tx)->n_kept++;
    name->n_waiting++;
    name->touched_s = (uint32_t)(now_ns / NS_PER_SEC);
    return tx_is_ok(tx) ? index : 0;
}

/* Nobody has been granted it since the claim left. */
static bool may_retake(const struct name_cell *name, const struct claim_request *request)
{
    return request->retakes && request->retakes == name->token && name->n_held == 0 &&
           request->mode == STILE_EXCLUSIVE;
}

uint32_t local_queue_enter(struct tx *tx, uint32_t name_index, const struct claim_request *request,
                           uint64_t now_ns, struct wakeups *wakeups)
{
    const struct name_cell *name = tx_edit_name(tx, name_index);
    if (name->n_held + name->n_waiting >= CLAIMS_PER_NAME_MAX) {
        local_tx_fail(tx, STILE_REFUSED, 0, "65535 claims are already in the queue of this name");
        return 0;
    }
    bool retakes = may_retake(name, request);
    uint32_t index = add_claim(tx, name_index, request, retakes, now_ns);
    if (!index || (name->n_waiting > 1 && !retakes) || !may_hold(tx, name, tx_claim(tx, index)))
        settle(tx, name_index, now_ns, wakeups);
    else if (!grant(tx, tx_edit_name(tx, name_index), index, now_ns))
        local_tx_fail(tx, STILE_REFUSED, 0,
                      "the next token epoch cannot be made durable (disk full?)");
    local_observers_wake(tx, name_index, wakeups);
    return tx_is_ok(tx) ? index : 0;
}

/* Until when the claim keeps its place after its holder has gone; 0: it goes now. */
static uint64_t ghost_end(const struct claim_cell *claim, enum leave_how how, uint64_t now_ns)
{
    if (claim->state != CLAIM_HELD || how == LEAVE_BROKEN)
        return 0;
    uint64_t hold = claim->hold_ms ? claim->since_ns + claim->hold_ms * NS_PER_MS : 0;
    uint64_t delay = how == LEAVE_DEAD ? now_ns + claim->delay_ms * NS_PER_MS : 0;
    uint64_t end = hold > delay ? hold : delay;
    return end > now_ns ? end : 0;
}

static void become_ghost(struct tx *tx, uint32_t index, uint64_t until_ns)
{
    struct claim_cell *claim = tx_edit_claim(tx, index);
    uint32_t session = local_sessions_find(tx, claim->session);
    if (session) {
        claim->id = tx_read(tx, session, CELL_SESSION)->session.pid;
        claim->has_pid = true;
    }
    claim->state = CLAIM_GHOST;
    claim->until_ns = until_ns;
    tx_edit_name(tx, claim->name)->n_ghosts++;
}

/* Nothing was granted, but one claim has to watch another session now: the one behind a waiter that
 * left; or the first waiter, if the holder it watched left or it has to wait for a ghost's end. */
static void wake_watcher(struct tx *tx, const struct claim_cell *gone, struct wakeups *wakeups)
{
    const struct name_cell *name = tx_name(tx, gone->name);
    uint32_t watcher = gone->next;
    if (claim_is_held(gone)) {
        if (gone->prev && !name->n_ghosts)
            return;
        watcher = first_waiter(tx, name);
    }
    if (watcher && !claim_is_held(tx_claim(tx, watcher)))
        add_wakeup(wakeups, watcher, tx_claim(tx, watcher));
}

void local_queue_leave(struct tx *tx, uint32_t index, enum leave_how how, uint64_t now_ns,
                       struct wakeups *wakeups)
{
    struct claim_cell claim = *tx_edit_claim(tx, index);
    uint64_t until_ns = ghost_end(&claim, how, now_ns);
    if (until_ns)
        become_ghost(tx, index, until_ns);
    else
        unlink_claim(tx, index);
    struct name_cell *name = tx_edit_name(tx, claim.name);
    name->touched_s = (uint32_t)(now_ns / NS_PER_SEC);
    if (name->n_waiting && (settle(tx, claim.name, now_ns, wakeups) == 0 || !claim_is_held(&claim)))
        wake_watcher(tx, &claim, wakeups);
    local_observers_wake(tx, claim.name, wakeups);
    local_names_drop_if_idle(tx, claim.name);
}

bool local_queue_leave_quietly(struct tx *tx, uint32_t index, bool open)
{
    const struct claim_cell *claim = tx_edit_claim(tx, index);
    const struct name_cell *name = tx_edit_name(tx, claim->name);
    if (claim->state != CLAIM_HELD || claim->hold_ms || name->n_waiting || name->n_watched)
        return false;
    uint32_t name_index = claim->name;
    unlink_claim(tx, index);
    if (!open || name->first || !local_quick_open(tx, name_index))
        local_names_drop_if_idle(tx, name_index);
    return true;
}

uint64_t local_queue_waited_for_since(struct tx *tx, uint32_t index)
{
    uint32_t next = tx_claim(tx, index)->next;
    return next ? tx_claim(tx, next)->since_ns : 0;
}

bool local_queue_leave_open(struct tx *tx, uint32_t index, uint64_t now_ns, struct wakeups *wakeups)
{
    const struct claim_cell *claim = tx_claim(tx, index);
    uint32_t name_index = claim->name, waiter = claim->next;
    if (claim->state != CLAIM_HELD || claim->mode != STILE_EXCLUSIVE || claim->hold_ms || !waiter)
        return false;
    unlink_claim(tx, index);
    tx_edit_name(tx, name_index)->touched_s = (uint32_t)(now_ns / NS_PER_SEC);
    if (!tx_claim(tx, waiter)->woken) {
        tx_edit_claim(tx, waiter)->woken = true;
        add_wakeup(wakeups, waiter, tx_claim(tx, waiter));
    }
    local_observers_wake(tx, name_index, wakeups);
    return true;
}

void local_queue_note_look(struct tx *tx, uint32_t index)
{
    if (tx_claim(tx, index)->woken)
        tx_edit_claim(tx, index)->woken = false;
}

/* ---- names that are taken by their word ---- */

/* Now and then a session of the same tag is the holder's successor; then the claim is that
 * session's until it ends. */
static void add_holder(struct tx *tx, uint32_t name_index, const struct quick_truth *truth)
{
    uint64_t session = local_sessions_by_tag(tx, truth->tag);
    if (!session)
        return; /* it died, and was cleared away: so is what it held */
    struct claim_request holder = {.session = session, .mode = STILE_EXCLUSIVE};
    uint32_t index = add_claim(tx, name_index, &holder, true, truth->since_ns);
    struct name_cell *name = tx_edit_name(tx, name_index);
    struct claim_cell *claim = tx_edit_claim(tx, index);
    claim->token = truth->token;
    claim->state = CLAIM_HELD;
    name->held_last = index;
    name->n_held++;
    name->n_waiting--;
}

void local_queue_close(struct tx *tx, uint32_t name_index)
{
    struct quick_truth truth;
    if (!name_index || !tx_name(tx, name_index)->is_quick ||
        !local_quick_freeze(&truth, tx, name_index))
        return;
    struct name_cell *name = tx_edit_name(tx, name_index);
    name->is_quick = false;
    name->token = truth.token;
    if (truth.held)
        add_holder(tx, name_index, &truth);
}

uint64_t local_queue_quick_holder(struct tx *tx, uint32_t name_index)
{
    struct quick_truth truth;
    if (!tx_name(tx, name_index)->is_quick || !local_quick_read(&truth, tx, name_index) ||
        !truth.held)
        return 0;
    return local_sessions_by_tag(tx, truth.tag);
}

uint32_t local_queue_adopt(struct tx *tx, uint32_t name_index, const struct claim_request *request,
                           uint64_t token)
{
    local_queue_close(tx, name_index);
    uint32_t index = tx_name(tx, name_index)->first;
    if (!index)
        return 0;
    const struct claim_cell *claim = tx_claim(tx, index);
    if (!claim_is_held(claim) || claim->state == CLAIM_GHOST || claim->token != token ||
        claim->session != request->session)
        return 0;
    if (claim->id != request->id)
        tx_edit_claim(tx, index)->id = request->id;
    return index;
}

void local_queue_end_all(struct tx *tx, uint32_t name_index, uint64_t now_ns)
{
    local_queue_close(tx, name_index);
    uint32_t next = tx_name(tx, name_index)->first;
    while (next && tx->n_edits < EDITS_FOR_GRANTS) {
        const struct claim_cell *claim = tx_claim(tx, next);
        uint32_t index = next;
        uint64_t until_ns = claim->state == CLAIM_GHOST && claim->until_ns > now_ns
                                ? claim->until_ns
                                : ghost_end(claim, LEAVE_DEAD, now_ns);
        next = claim->next;
        if (until_ns == 0)
            unlink_claim(tx, index);
        else if (claim->state != CLAIM_GHOST)
            become_ghost(tx, index, until_ns);
    }
}

#define PROBES_PER_TX   64
#define REAPS_AT_ONCE   16
#define EDITS_FOR_REAPS 120

/* ---- claims of dead sessions ---- */

const struct claim_cell *local_queue_claim_of(struct tx *tx, uint32_t index, uint64_t session,
                                              uint32_t id)
{
    if (!tx_has_cell(tx, index))
        return NULL;
    const union cell *cell = local_tx_peek(tx, index);
    const struct claim_cell *claim = &cell->claim;
    bool ours = cell->kind == CELL_CLAIM && claim->state != CLAIM_GHOST &&
                claim->state != CLAIM_SPARE && claim->session == session && claim->id == id;
    return ours ? claim : NULL;
}

/* Found first and removed afterwards: removing a holder may also remove expired ghosts, among them
 * the next in the list. */
static void reap_holders(struct tx *tx, uint32_t name_index, uint64_t dead, uint64_t now_ns,
                         struct wakeups *wakeups)
{
    const struct name_cell *name = tx_name(tx, name_index);
    uint32_t found[REAPS_AT_ONCE], n = 0, left = name->n_held;
    for (uint32_t next = name->first; next && left-- > 0 && n < REAPS_AT_ONCE;) {
        const struct claim_cell *claim = tx_claim(tx, next);
        if (claim->state != CLAIM_GHOST && claim->session == dead)
            found[n++] = next;
        next = claim->next;
    }
    for (uint32_t i = 0; i < n; i++)
        local_queue_leave(tx, found[i], LEAVE_DEAD, now_ns, wakeups);
}

void local_queue_reap(struct tx *tx, uint32_t index, uint64_t dead, uint64_t now_ns,
                      struct wakeups *wakeups)
{
    while (tx->n_edits < EDITS_FOR_REAPS) {
        const struct claim_cell *claim = tx_claim(tx, index);
        if (!claim->prev || claim_is_held(claim))
            return;
        const struct claim_cell *before = tx_claim(tx, claim->prev);
        if (claim_is_held(before)) {
            reap_holders(tx, claim->name, dead, now_ns, wakeups);
            return;
        }
        if (before->session != dead)
            return;
        local_queue_leave(tx, claim->prev, LEAVE_DEAD, now_ns, wakeups);
    }
}

/* ---- claims of dead sessions that block no waiter ---- */

static bool is_dead(struct tx *tx, uint64_t session, struct swept *swept)
{
    if (session != swept->alive && session != swept->dead) {
        bool alive = local_liveness_is_alive(tx->store->live_fd, session);
        *(alive ? &swept->alive : &swept->dead) = session;
    }
    return session == swept->dead;
}

/* True: no waiter is left. Starts at the end of the queue: a living waiter watches those before it.
 */
static bool withdraw_dead_waiters(struct tx *tx, const struct name_cell *name, struct swept *swept)
{
    while (name->n_waiting && tx->n_edits < EDITS_FOR_REAPS && tx_is_ok(tx) &&
           is_dead(tx, tx_claim(tx, name->last)->session, swept))
        unlink_claim(tx, name->last);
    return name->n_waiting == 0;
}

/* No claim comes to this name, so nothing else would find its dead claims, and they would pile up.
 */
void local_queue_tidy(struct tx *tx, uint32_t name_index, struct swept *swept, uint64_t now_ns)
{
    const struct name_cell *name = tx_name(tx, name_index);
    struct wakeups unsent;
    if (!withdraw_dead_waiters(tx, name, swept))
        return;
    uint32_t next = name->first;
    wakeups_init(&unsent);
    for (unsigned i = 0; i < PROBES_PER_TX && next && tx->n_edits < EDITS_FOR_REAPS; i++) {
        const struct claim_cell *claim = tx_claim(tx, next);
        uint32_t index = next;
        next = claim->next;
        if (claim->state != CLAIM_GHOST && is_dead(tx, claim->session, swept))
            local_queue_leave(tx, index, LEAVE_DEAD, now_ns, &unsent);
    }
}

/* ---- what a waiter watches ---- */

static bool has_session(const struct ahead *ahead, uint64_t session)
{
    for (uint32_t i = 0; i < ahead->n; i++)
        if (ahead->sessions[i] == session)
            return true;
    return false;
}

static void add_session(struct ahead *ahead, uint64_t session)
{
    if (has_session(ahead, session))
        return;
    if (ahead->n < AHEAD_MAX)
        ahead->sessions[ahead->n++] = session;
    else
        ahead->more = true;
}

/* A slot waiter can be granted when any slot holder ends, so it watches all of them. Every other
 * waiter needs all holders gone, so it watches the first: when that one goes, the next recheck
 * finds the next. */
static void add_holders(struct tx *tx, const struct name_cell *name, bool all, struct ahead *ahead)
{
    uint32_t next = name->first, left = name->n_held, ghosts = name->n_ghosts;
    while (left-- > 0 && next && !ahead->more && (ghosts || all || !ahead->n)) {
        const struct claim_cell *claim = tx_claim(tx, next);
        next = claim->next;
        if (claim->state == CLAIM_GHOST) {
            ghosts--;
            if (claim->until_ns < ahead->ghost_end_ns)
                ahead->ghost_end_ns = claim->until_ns;
        } else if (all || !ahead->n) {
            add_session(ahead, claim->session);
        }
    }
}

void local_queue_ahead(struct tx *tx, uint32_t index, struct ahead *ahead)
{
    const struct claim_cell *claim = tx_claim(tx, index);
    ahead->n = 0;
    ahead->more = false;
    ahead->ghost_end_ns = UINT64_MAX;
    if (!claim->prev)
        return;
    const struct claim_cell *before = tx_claim(tx, claim->prev);
    if (claim_is_held(before)) {
        bool slots = claim->mode == STILE_SLOTS && before->mode == STILE_SLOTS;
        add_holders(tx, tx_name(tx, claim->name), slots, ahead);
    } else {
        add_session(ahead, before->session);
    }
}

/* ---- for claims that do not wait ---- */

/* Whether this claim, if its session is alive, blocks the grant. */
static bool blocks(struct probe *probe, const struct claim_cell *claim)
{
    const struct claim_request *request = probe->request;
    if (claim->mode != request->mode || request->mode == STILE_EXCLUSIVE)
        return true;
    return request->mode == STILE_SLOTS && ++probe->n_alive >= request->slots;
}

static void note_ghost(struct probe *probe, const struct claim_cell *claim)
{
    if (claim->until_ns < probe->ghost_end_ns)
        probe->ghost_end_ns = claim->until_ns;
    if (blocks(probe, claim))
        probe->blocked = true;
}

static void probe_one(struct tx *tx, uint32_t index, struct probe *probe, uint64_t now_ns,
                      struct wakeups *wakeups)
{
    const struct claim_cell *claim = tx_claim(tx, index);
    bool ours = claim->session == probe->request->session;
    if (ours || local_liveness_is_alive(tx->store->live_fd, claim->session)) {
        probe->blocked = blocks(probe, claim);
        probe->skip++;
    } else {
        local_queue_leave(tx, index, LEAVE_DEAD, now_ns, wakeups);
        probe->reaped = true;
    }
}

static bool is_of_no_interest(const struct probe *probe, const struct claim_cell *claim)
{
    return claim->mode == STILE_SHARED && probe->request->mode == STILE_SHARED;
}

static uint32_t skip_claims(struct tx *tx, uint32_t next, uint32_t n)
{
    while (n-- > 0 && next)
        next = tx_claim(tx, next)->next;
    return next;
}

void local_queue_probe(struct tx *tx, uint32_t name_index, struct probe *probe, uint64_t now_ns,
                       struct wakeups *wakeups)
{
    uint32_t next = skip_claims(tx, tx_name(tx, name_index)->first, probe->skip);
    unsigned asked = 0;
    while (next && !probe->blocked && !probe->reaped && asked < PROBES_PER_TX && tx_is_ok(tx)) {
        const struct claim_cell *claim = tx_claim(tx, next);
        uint32_t index = next;
        next = claim->next;
        if (is_of_no_interest(probe, claim)) {
            probe->skip++;
        } else if (claim->state == CLAIM_GHOST) {
            note_ghost(probe, claim);
            probe->skip++;
        } else {
            asked++;
            probe_one(tx, index, probe, now_ns, wakeups);
        }
    }
    probe->end = next == 0;
}
