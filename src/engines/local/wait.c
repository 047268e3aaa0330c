/* Claims in line. Nobody polls: who releases tells the next, and the kernel tells of deaths. A
 * claim looks at the table when told to, and believes only what it finds there. It also looks by
 * itself once a second, for a releaser that was stopped between its transaction and its poke, and
 * for a socket that can't be reached (SELinux, permissions, a cleaner that removed it). */
#include "engines/local/local.h"
#include "mutant.h"

#define LOOK_NS        NS_PER_SEC
#define LOOKS_A_SECOND 256 /* of all waiters of a name together */
#define STUCK_NS       (NS_PER_SEC / 2)

enum finding {
    FOUND_WAITING,
    FOUND_GRANTED,
    FOUND_HELD, /* as before */
    FOUND_GONE,
    FOUND_STUCK,  /* somebody doesn't come out of the table */
    FOUND_BROKEN, /* the table is */
};

struct look {
    uint64_t dead, now_ns, token;
    uint32_t n_waiting; /* in the same line */
    struct sight sight;
    struct stile_error error;
};

struct wish claim_wish(const struct local *local, struct claim *claim)
{
    uint32_t slots = claim->slots ? claim->slots : 1;
    return (struct wish){
        .session = local->id,
        .id = claim_part(claim)->slot,
        .mode = claim->mode,
        .slots = claim->mode == STILE_SLOTS ? slots : 0,
        .hold_ms = (uint32_t)((claim->hold_ns + NS_PER_MS - 1) / NS_PER_MS),
        .delay_ms = (uint32_t)((claim->delay_ns + NS_PER_MS - 1) / NS_PER_MS),
    };
}

/* ---- one look ---- */

static void look_through_crowd(struct tx *tx, struct local *local, struct local_claim *part,
                               uint32_t name, struct look *look, struct pokes *pokes)
{
    struct wish wish = claim_wish(local, claim_of(part));
    struct probe probe = {.wish = &wish, .skip = part->skip};
    queue_probe(tx, name, &probe, look->now_ns, pokes);
    part->skip = probe.end || probe.blocked ? 0 : probe.skip;
}

static enum finding look_in_line(struct tx *tx, struct local *local, struct local_claim *part,
                                 struct look *look, struct pokes *pokes)
{
    const struct claim_cell *own = queue_own(tx, part->cell, local->id, part->slot);
    if (!own)
        return FOUND_GONE;
    uint32_t name = own->name;
    if (look->dead)
        queue_reap(tx, part->cell, look->dead, look->now_ns, pokes);
    if (part->crowd)
        look_through_crowd(tx, local, part, name, look, pokes);
    /* Also when granted: whoever granted us may have died before they had told all others. */
    queue_settle(tx, name, look->now_ns, pokes);
#ifdef MUTANT_LOCAL_POKE_BELIEVED
    look->token = own->token + 1;
    return FOUND_GRANTED;
#endif
    look->token = own->token;
    if (own->state == CLAIM_BROKEN) {
        queue_leave(tx, part->cell, LEAVE_BROKEN, look->now_ns, pokes);
        return FOUND_GONE;
    }
    if (claim_is_held(own))
        return FOUND_GRANTED;
    queue_sight(tx, part->cell, &look->sight);
    look->n_waiting = tx_name(tx, name)->n_waiting;
    return FOUND_WAITING;
}

static enum finding look_at(struct tx *tx, struct local *local, struct local_claim *part,
                            struct look *look, struct pokes *pokes)
{
    if (part->standing == STANDING_IN_LINE)
        return look_in_line(tx, local, part, look, pokes);
    const struct claim_cell *own = queue_own(tx, part->cell, local->id, part->slot);
    if (own && own->state == CLAIM_HELD)
        return FOUND_HELD;
    /* Who has marked it may have died since; the next one must not wait for them. */
    if (own)
        queue_leave(tx, part->cell, LEAVE_BROKEN, look->now_ns, pokes);
    return FOUND_GONE;
}

static enum finding look_once(struct local *local, struct local_claim *part, struct look *look)
{
    struct tx tx;
    struct pokes pokes;
    pokes_init(&pokes);
    look->now_ns = local_now(local);
    enum finding found = FOUND_BROKEN;
    if (session_check(local, &look->error) != STILE_OK)
        return found;
    if (tx_begin(&tx, &local->env->store)) {
        found = look_at(&tx, local, part, look, &pokes);
        if (tx_commit(&tx)) {
            pokes_deliver(local, &pokes);
            return found;
        }
    }
    tx_error(&tx, &look->error);
    return look->error.status == STILE_UNREACHABLE ? FOUND_STUCK : FOUND_BROKEN;
}

/* ---- what follows ---- */

static void look_on_time(struct timer *timer)
{
    struct local_claim *part =
        (struct local_claim *)((char *)timer - offsetof(struct local_claim, timer));
    wait_look(&part->looker, 0);
}

static void look_again_later(struct local *local, struct local_claim *part, const struct look *look)
{
    uint64_t pause_ns = (1 + look->n_waiting / LOOKS_A_SECOND) * LOOK_NS;
    uint64_t at_ns = look->now_ns + (part->crowd ? LOOK_NS : pause_ns);
    if (look->sight.ghost_end_ns < at_ns)
        at_ns = look->sight.ghost_end_ns;
    loop_arm(local->engine.loop, &part->timer, local_loop_time(local, at_ns));
}

void wait_end(struct local *local, struct local_claim *part)
{
    pokes_forget_due(local, &part->looker);
    peers_unwatch(local, &part->looker);
    if (part->has_timer) {
        loop_disarm(local->engine.loop, &part->timer);
        loop_unreserve(local->engine.loop, 1);
        part->has_timer = false;
    }
}

static void lose_place(struct local *local, struct local_claim *part, enum standing standing)
{
    wait_end(local, part);
    pokes_drop_slot(local, part->slot);
    part->slot = 0;
    part->standing = standing;
}

static void tell_granted(struct local *local, struct local_claim *part, const struct look *look)
{
    wait_end(local, part);
    part->standing = STANDING_HELD;
    local->engine.events->granted(claim_of(part), look->token, local_loop_time(local, look->now_ns),
                                  0);
}

static void tell_lost(struct local *local, struct local_claim *part)
{
    struct stile_error error;
    error_set(&error, STILE_LOST, 0, "taken over by `stile break`");
    lose_place(local, part, STANDING_LOST);
    local->engine.events->lost(claim_of(part), &error);
}

static void tell_failed(struct local *local, struct local_claim *part, const struct look *look)
{
    bool held = part->standing == STANDING_HELD;
    lose_place(local, part, held ? STANDING_LOST : STANDING_NOWHERE);
    if (held)
        local->engine.events->lost(claim_of(part), &look->error);
    else
        local->engine.events->failed(claim_of(part), &look->error);
}

/* Granted, and taken away by `stile break` before we had looked: it is as if we had not been in
 * line yet. A holder that knew of its grant has lost it. */
static void find_gone(struct local *local, struct local_claim *part)
{
    if (part->standing == STANDING_HELD) {
        tell_lost(local, part);
        return;
    }
    lose_place(local, part, STANDING_NOWHERE);
    local_enter(local, claim_of(part));
}

/* Watches what it has seen; a dead session among it calls for another look. */
static uint64_t keep_watch(struct local *local, struct local_claim *part, struct look *look)
{
    uint64_t dead = peers_watch_all(local, &part->looker, &look->sight);
    part->crowd = look->sight.more;
    if (!dead)
        look_again_later(local, part, look);
    return dead;
}

void wait_look(struct looker *looker, uint64_t dead)
{
    struct local_claim *part = (struct local_claim *)looker;
    struct local *local = local_of(claim_of(part)->engine);
    struct look look = {.dead = dead};
    if (part->standing != STANDING_IN_LINE && part->standing != STANDING_HELD)
        return;
    do {
        switch (look_once(local, part, &look)) {
        case FOUND_WAITING:
            look.dead = keep_watch(local, part, &look);
            break;
        case FOUND_GRANTED:
            tell_granted(local, part, &look);
            return;
        case FOUND_HELD:
            return;
        case FOUND_GONE:
            find_gone(local, part);
            return;
        case FOUND_STUCK:
            if (part->has_timer)
                loop_arm(local->engine.loop, &part->timer,
                         local_loop_time(local, look.now_ns + STUCK_NS));
            return;
        case FOUND_BROKEN:
            tell_failed(local, part, &look);
            return;
        }
    } while (look.dead);
}

bool wait_begin(struct local *local, struct claim *claim)
{
    struct local_claim *part = claim_part(claim);
    if (loop_reserve(local->engine.loop, 1))
        return false;
    part->crowd = false;
    part->skip = 0;
    part->timer.fn = look_on_time;
    part->has_timer = true;
    part->standing = STANDING_IN_LINE;
    wait_look(&part->looker, 0);
    return true;
}
