/* What stands before a claim in line: whom to watch, and who of them is dead. */
#include "engines/local/life.h"
#include "engines/local/table.h"

#define PROBES_PER_TX   64
#define REAPS_AT_ONCE   16
#define EDITS_FOR_REAPS 120

/* ---- looking ---- */

const struct claim_cell *queue_own(struct tx *tx, uint32_t index, uint64_t session, uint32_t id)
{
    const union cell *cell = tx_peek(tx, index);
    const struct claim_cell *claim = &cell->claim;
    bool ours = cell->kind == CELL_CLAIM && claim->state != CLAIM_GHOST &&
                claim->state != CLAIM_SPARE && claim->session == session && claim->id == id;
    return ours ? claim : NULL;
}

/* Found first and removed afterwards: with a holder, ghosts whose time is over may go, and the next
 * in the list with them. */
static void reap_holders(struct tx *tx, uint32_t name_index, uint64_t dead, uint64_t now_ns,
                         struct pokes *pokes)
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
        queue_leave(tx, found[i], LEAVE_DEAD, now_ns, pokes);
}

void queue_reap(struct tx *tx, uint32_t index, uint64_t dead, uint64_t now_ns, struct pokes *pokes)
{
    while (tx->n_edits < EDITS_FOR_REAPS) {
        const struct claim_cell *claim = tx_claim(tx, index);
        if (!claim->prev || claim_is_held(claim))
            return;
        const struct claim_cell *before = tx_claim(tx, claim->prev);
        if (claim_is_held(before)) {
            reap_holders(tx, claim->name, dead, now_ns, pokes);
            return;
        }
        if (before->session != dead)
            return;
        queue_leave(tx, claim->prev, LEAVE_DEAD, now_ns, pokes);
    }
}

/* ---- the dead in nobody's way ---- */

static bool is_dead(struct tx *tx, uint64_t session, struct swept *swept)
{
    if (session != swept->alive && session != swept->dead) {
        bool alive = life_is_alive(tx->store->live_fd, session);
        *(alive ? &swept->alive : &swept->dead) = session;
    }
    return session == swept->dead;
}

/* True: no waiter is left. From the end of the line: a waiter that lives watches all before it. */
static bool withdraw_dead_waiters(struct tx *tx, const struct name_cell *name, struct swept *swept)
{
    while (name->n_waiting && tx->n_edits < EDITS_FOR_REAPS && tx_is_ok(tx) &&
           is_dead(tx, tx_claim(tx, name->last)->session, swept))
        queue_withdraw(tx, name->last);
    return name->n_waiting == 0;
}

/* No claim comes to this name, so nothing else would find them, and they would pile up. */
void queue_tidy(struct tx *tx, uint32_t name_index, struct swept *swept, uint64_t now_ns)
{
    const struct name_cell *name = tx_name(tx, name_index);
    struct pokes unheard;
    if (!withdraw_dead_waiters(tx, name, swept))
        return;
    uint32_t next = name->first;
    pokes_init(&unheard);
    for (unsigned i = 0; i < PROBES_PER_TX && next && tx->n_edits < EDITS_FOR_REAPS; i++) {
        const struct claim_cell *claim = tx_claim(tx, next);
        uint32_t index = next;
        next = claim->next;
        if (claim->state != CLAIM_GHOST && is_dead(tx, claim->session, swept))
            queue_leave(tx, index, LEAVE_DEAD, now_ns, &unheard);
    }
}

/* ---- whom a waiter watches ---- */

static bool has_in_sight(const struct sight *sight, uint64_t session)
{
    for (uint32_t i = 0; i < sight->n; i++)
        if (sight->sessions[i] == session)
            return true;
    return false;
}

static void see_session(struct sight *sight, uint64_t session)
{
    if (has_in_sight(sight, session))
        return;
    if (sight->n < SIGHT_MAX)
        sight->sessions[sight->n++] = session;
    else
        sight->more = true;
}

/* A slot waiter is served by the end of any slot holder, so it watches all. Everybody else needs
 * all holders gone, so the first one will do: when that one goes, the next look finds the next. */
static void see_holders(struct tx *tx, const struct name_cell *name, bool all, struct sight *sight)
{
    uint32_t next = name->first, left = name->n_held, ghosts = name->n_ghosts;
    while (left-- > 0 && next && !sight->more && (ghosts || all || !sight->n)) {
        const struct claim_cell *claim = tx_claim(tx, next);
        next = claim->next;
        if (claim->state == CLAIM_GHOST) {
            ghosts--;
            if (claim->until_ns < sight->ghost_end_ns)
                sight->ghost_end_ns = claim->until_ns;
        } else if (all || !sight->n) {
            see_session(sight, claim->session);
        }
    }
}

void queue_sight(struct tx *tx, uint32_t index, struct sight *sight)
{
    const struct claim_cell *claim = tx_claim(tx, index);
    sight->n = 0;
    sight->more = false;
    sight->ghost_end_ns = UINT64_MAX;
    if (!claim->prev)
        return;
    const struct claim_cell *before = tx_claim(tx, claim->prev);
    if (claim_is_held(before)) {
        bool slots = claim->mode == STILE_SLOTS && before->mode == STILE_SLOTS;
        see_holders(tx, tx_name(tx, claim->name), slots, sight);
    } else {
        see_session(sight, before->session);
    }
}

/* ---- for who won't wait ---- */

/* Whether this claim, if it lives, is in the way. */
static bool stands_in_the_way(struct probe *probe, const struct claim_cell *claim)
{
    const struct wish *wish = probe->wish;
    if (claim->mode != wish->mode || wish->mode == STILE_EXCLUSIVE)
        return true;
    return wish->mode == STILE_SLOTS && ++probe->n_alive >= wish->slots;
}

static void note_ghost(struct probe *probe, const struct claim_cell *claim)
{
    if (claim->until_ns < probe->ghost_end_ns)
        probe->ghost_end_ns = claim->until_ns;
    if (stands_in_the_way(probe, claim))
        probe->blocked = true;
}

static void probe_one(struct tx *tx, uint32_t index, struct probe *probe, uint64_t now_ns,
                      struct pokes *pokes)
{
    const struct claim_cell *claim = tx_claim(tx, index);
    bool ours = claim->session == probe->wish->session;
    if (ours || life_is_alive(tx->store->live_fd, claim->session)) {
        probe->blocked = stands_in_the_way(probe, claim);
        probe->skip++;
    } else {
        queue_leave(tx, index, LEAVE_DEAD, now_ns, pokes);
        probe->reaped = true;
    }
}

static bool is_of_no_interest(const struct probe *probe, const struct claim_cell *claim)
{
    return claim->mode == STILE_SHARED && probe->wish->mode == STILE_SHARED;
}

static uint32_t skip_claims(struct tx *tx, uint32_t next, uint32_t n)
{
    while (n-- > 0 && next)
        next = tx_claim(tx, next)->next;
    return next;
}

void queue_probe(struct tx *tx, uint32_t name_index, struct probe *probe, uint64_t now_ns,
                 struct pokes *pokes)
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
            probe_one(tx, index, probe, now_ns, pokes);
        }
    }
    probe->end = next == 0;
}
