/* local: locks of one machine, without a server.
 *
 * One directory, one mapped file: a hash table of names, and for each name a queue of claims in
 * order of arrival. An uncontended acquire and release are two short transactions in it, without a
 * system call. The file is tied to the boot, because a reboot ends every holder; the only thing on
 * the disk that counts is the token's epoch, made durable before the first token of it is given.
 *
 * Each client is a session: a random id whose byte is locked in the file `live` as long as the
 * process lives. Who releases grants the next in the same transaction and pokes it through a
 * socket; the next one in line is connected to who is before it, and the kernel hangs up when that
 * one dies. So one is woken, nobody polls, and a killed holder's lock is passed on at once. What a
 * poke says is never believed: the table is looked at.
 *
 *     cells.h, store, tx, gate   the file, its transactions, one process at a time
 *     names, queue, sessions     what is in it, and the rule
 *     dir, epoch, env, load, check   the directory, opening, and what is refused
 *     session, peers, wait, view     the engine on top
 */
#include <errno.h>
#include <string.h>

#include "base/url.h"
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
    struct ahead sight;
    struct stile_error error;
};

static struct wish wish_of(const struct local *local, struct claim *claim)
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

static void enter_queue(struct local *local, struct claim *claim);
static void wait_look(struct looker *looker, uint64_t dead);

/* ---- one look ---- */

static void look_through_crowd(struct tx *tx, struct local *local, struct local_claim *part,
                               uint32_t name, struct look *look, struct wakeups *pokes)
{
    struct wish wish = wish_of(local, claim_of(part));
    struct probe probe = {.wish = &wish, .skip = part->skip};
    local_queue_probe(tx, name, &probe, look->now_ns, pokes);
    part->skip = probe.end || probe.blocked ? 0 : probe.skip;
}

static enum finding look_in_line(struct tx *tx, struct local *local, struct local_claim *part,
                                 struct look *look, struct wakeups *pokes)
{
    const struct claim_cell *own = local_queue_claim_of(tx, part->cell, local->id, part->slot);
    if (!own)
        return FOUND_GONE;
    uint32_t name = own->name;
    if (look->dead)
        local_queue_reap(tx, part->cell, look->dead, look->now_ns, pokes);
    if (part->crowd)
        look_through_crowd(tx, local, part, name, look, pokes);
    /* Also when granted: whoever granted us may have died before they had told all others. */
    local_queue_settle(tx, name, look->now_ns, pokes);
#ifdef MUTANT_LOCAL_POKE_BELIEVED
    look->token = own->token + 1;
    return FOUND_GRANTED;
#endif
    look->token = own->token;
    if (own->state == CLAIM_BROKEN) {
        local_queue_leave(tx, part->cell, LEAVE_BROKEN, look->now_ns, pokes);
        return FOUND_GONE;
    }
    if (claim_is_held(own))
        return FOUND_GRANTED;
    local_queue_ahead(tx, part->cell, &look->sight);
    look->n_waiting = tx_name(tx, name)->n_waiting;
    return FOUND_WAITING;
}

static enum finding look_at(struct tx *tx, struct local *local, struct local_claim *part,
                            struct look *look, struct wakeups *pokes)
{
    if (part->standing == STANDING_IN_LINE)
        return look_in_line(tx, local, part, look, pokes);
    const struct claim_cell *own = local_queue_claim_of(tx, part->cell, local->id, part->slot);
    if (own && own->state == CLAIM_HELD)
        return FOUND_HELD;
    /* Who has marked it may have died since; the next one must not wait for them. */
    if (own)
        local_queue_leave(tx, part->cell, LEAVE_BROKEN, look->now_ns, pokes);
    return FOUND_GONE;
}

static enum finding look_once(struct local *local, struct local_claim *part, struct look *look)
{
    struct tx tx;
    struct wakeups pokes;
    pokes_init(&pokes);
    look->now_ns = local_now(local);
    enum finding found = FOUND_BROKEN;
    if (local_session_check(local, &look->error) != STILE_OK)
        return found;
    if (local_tx_begin(&tx, &local->env->store)) {
        found = look_at(&tx, local, part, look, &pokes);
        if (local_tx_commit(&tx)) {
            local_wakeup_deliver(local, &pokes);
            return found;
        }
    }
    local_tx_error(&tx, &look->error);
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

static void wait_end(struct local *local, struct local_claim *part)
{
    local_wakeup_forget_due(local, &part->looker);
    local_peers_unwatch(local, &part->looker);
    if (part->has_timer) {
        loop_disarm(local->engine.loop, &part->timer);
        loop_unreserve(local->engine.loop, 1);
        part->has_timer = false;
    }
}

static void lose_place(struct local *local, struct local_claim *part, enum standing standing)
{
    wait_end(local, part);
    local_wakeup_drop_slot(local, part->slot);
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
    enter_queue(local, claim_of(part));
}

/* Watches what it has seen; a dead session among it calls for another look. */
static uint64_t keep_watch(struct local *local, struct local_claim *part, struct look *look)
{
    uint64_t dead = local_peers_watch_all(local, &part->looker, &look->sight);
    part->crowd = look->sight.more;
    if (!dead)
        look_again_later(local, part, look);
    return dead;
}

static void wait_look(struct looker *looker, uint64_t dead)
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

static bool wait_begin(struct local *local, struct claim *claim)
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

/* What the table can store: 49 days. */
#define HOLD_MAX_NS (UINT64_C(0xffffffff) * NS_PER_MS)

#define STUCK_PAUSE_NS (NS_PER_SEC / 2)

/* ---- entering ---- */

static void fail(struct local *local, struct claim *claim, const struct stile_error *error)
{
    struct local_claim *part = claim_part(claim);
    local_wakeup_drop_slot(local, part->slot);
    part->slot = 0;
    part->standing = STANDING_NOWHERE;
    local->engine.events->failed(claim, error);
}

static void turn_away(struct local *local, struct claim *claim, uint64_t ghost_end_ns)
{
    struct local_claim *part = claim_part(claim);
    uint64_t now_ns = local_now(local);
    local_wakeup_drop_slot(local, part->slot);
    part->slot = 0;
    part->standing = STANDING_NOWHERE;
    bool ends = ghost_end_ns != UINT64_MAX && ghost_end_ns > now_ns;
    local->engine.events->busy(claim, ends ? ghost_end_ns - now_ns : 0);
}

enum entry {
    ENTRY_GRANTED,
    ENTRY_IN_LINE,
    ENTRY_BUSY,
    ENTRY_FAILED,
};

struct entering {
    struct wish wish;
    uint64_t now_ns, token;
    struct tx tx;
    struct wakeups pokes;
};

static enum entry enter_table(struct local *local, struct claim *claim, struct entering *e)
{
    struct local_claim *part = claim_part(claim);
    struct tx *tx = &e->tx;
    if (!local_tx_begin(tx, &local->env->store))
        return ENTRY_FAILED;
    if (!local_names_is_still(tx, part->name, part->born, claim->name_hash)) {
        part->name =
            local_names_open(tx, claim->name_hash, claim->name, claim->name_len, e->now_ns);
        part->born = tx_name(tx, part->name)->born;
    }
    part->cell = local_queue_enter(tx, part->name, &e->wish, e->now_ns, &e->pokes);
    const struct claim_cell *own = tx_claim(tx, part->cell);
    bool granted = claim_is_held(own);
    e->token = own->token;
    if (!granted && !claim->wait && tx_is_ok(tx)) {
        local_tx_abort(tx);
        return ENTRY_BUSY;
    }
    if (!local_tx_commit(tx))
        return ENTRY_FAILED;
    return granted ? ENTRY_GRANTED : ENTRY_IN_LINE;
}

/* It won't wait, and somebody is in the way. True: some of those were dead, so it is worth another
 * try. */
static bool clear_the_way(struct local *local, struct claim *claim, struct entering *e,
                          struct probe *probe)
{
    *probe = (struct probe){.wish = &e->wish, .ghost_end_ns = UINT64_MAX};
    do {
        pokes_init(&e->pokes);
        if (!local_tx_begin(&e->tx, &local->env->store))
            return false;
        uint32_t name = local_names_find(&e->tx, claim->name_hash, claim->name, claim->name_len);
        if (name)
            local_queue_probe(&e->tx, name, probe, e->now_ns, &e->pokes);
        probe->end |= !name;
        if (!local_tx_commit(&e->tx))
            return false;
        local_wakeup_deliver(local, &e->pokes);
    } while (!probe->blocked && !probe->reaped && !probe->end);
    return probe->reaped;
}

static enum entry enter(struct local *local, struct claim *claim, struct entering *e,
                        uint64_t *ghost_end_ns)
{
    struct probe probe;
    for (;;) {
        pokes_init(&e->pokes);
        enum entry entry = enter_table(local, claim, e);
        if (entry != ENTRY_BUSY)
            return entry;
        if (clear_the_way(local, claim, e, &probe))
            continue;
        *ghost_end_ns = probe.ghost_end_ns;
        return tx_is_ok(&e->tx) ? ENTRY_BUSY : ENTRY_FAILED;
    }
}

/* OK, LOST, or why it can't be done. */
static enum stile_status leave_table(struct local *local, struct local_claim *part,
                                     struct stile_error *error)
{
    struct tx tx;
    struct wakeups pokes;
    enum stile_status status = STILE_OK;
    if (!local_tx_begin(&tx, &local->env->store))
        return local_tx_error(&tx, error);
    pokes_init(&pokes);
    const struct claim_cell *own = local_queue_claim_of(&tx, part->cell, local->id, part->slot);
    if (!own || own->state == CLAIM_BROKEN)
        status = error_set(error, STILE_LOST, 0, "taken over by `stile break`");
    /* A grant that its owner never heard of, or did nothing with, need not be held for any time. */
    bool used = part->heard && !claim_of(part)->unused;
    if (own && !(used && local_queue_leave_quietly(&tx, part->cell)))
        local_queue_leave(&tx, part->cell, used ? LEAVE_RELEASED : LEAVE_BROKEN, local_now(local),
                          &pokes);
    if (!local_tx_commit(&tx))
        return local_tx_error(&tx, error);
    if (pokes.head != pokes.tail)
        local_wakeup_deliver(local, &pokes);
    return part->heard ? status : STILE_OK;
}

static void tell(struct local *local, struct claim *claim, struct entering *e, enum entry entry,
                 uint64_t ghost_end_ns)
{
    struct stile_error error;
    switch (entry) {
    case ENTRY_GRANTED:
        claim_part(claim)->standing = STANDING_HELD;
        local->engine.events->granted(claim, e->token, local_loop_time(local, e->now_ns), 0);
        break;
    case ENTRY_IN_LINE:
        if (wait_begin(local, claim))
            break;
        claim_part(claim)->heard = false;
        (void)leave_table(local, claim_part(claim), &error);
        error_set(&error, STILE_NOMEM, 0, "out of memory");
        fail(local, claim, &error);
        break;
    case ENTRY_BUSY:
        turn_away(local, claim, ghost_end_ns);
        break;
    case ENTRY_FAILED:
        local_tx_error(&e->tx, &error);
        fail(local, claim, &error);
        break;
    }
}

static void enter_queue(struct local *local, struct claim *claim)
{
    struct local_claim *part = claim_part(claim);
    struct entering e;
    uint64_t ghost_end_ns = UINT64_MAX;
    struct stile_error error;

    /* Among many names they are in no cache; they come while we ask for the time and the gate. */
    __builtin_prefetch(&local->env->store.cells[part->name], 1);
    __builtin_prefetch(&local->env->store.cells[part->cell], 1);
    part->looker.look = wait_look;
    part->slot = local_wakeup_add_slot(local, &part->looker);
    if (!part->slot) {
        error_set(&error, STILE_NOMEM, 0, "out of memory");
        fail(local, claim, &error);
        return;
    }
    e.wish = wish_of(local, claim);
    e.now_ns = local_now(local);
    store_hasten(&local->env->store, e.now_ns);
    enum entry entry = enter(local, claim, &e, &ghost_end_ns);
    if (entry <= ENTRY_IN_LINE && e.pokes.head != e.pokes.tail)
        local_wakeup_deliver(local, &e.pokes);
    tell(local, claim, &e, entry, ghost_end_ns);
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

static void leave_on_time(struct timer *timer);

static void try_later(struct local *local, struct local_claim *part)
{
    part->timer.fn = leave_on_time;
    loop_arm(local->engine.loop, &part->timer, loop_now(local->engine.loop) + STUCK_PAUSE_NS);
}

static void leave(struct local *local, struct claim *claim)
{
    struct local_claim *part = claim_part(claim);
    struct stile_error error;
    enum stile_status status = leave_table(local, part, &error);
    if (status == STILE_UNREACHABLE) {
        if (!part->has_timer)
            part->has_timer = loop_reserve(local->engine.loop, 1) == 0;
        if (part->has_timer) {
            try_later(local, part);
            return;
        }
    }
    wait_end(local, part);
    local_wakeup_drop_slot(local, part->slot);
    part->slot = 0;
    part->standing = STANDING_NOWHERE;
    local->engine.events->released(claim, status ? &error : NULL);
}

static void leave_on_time(struct timer *timer)
{
    struct local_claim *part =
        (struct local_claim *)((char *)timer - offsetof(struct local_claim, timer));
    leave(local_of(claim_of(part)->engine), claim_of(part));
}

static void local_release(struct engine *engine, struct claim *claim)
{
    struct local *local = local_of(engine);
    struct local_claim *part = claim_part(claim);
    struct stile_error error;
    switch (part->standing) {
    case STANDING_IN_LINE:
    case STANDING_HELD:
        part->heard = part->standing == STANDING_HELD;
        part->standing = STANDING_LEAVING;
        leave(local, claim);
        break;
    case STANDING_LEAVING:
        break;
    case STANDING_LOST:
        part->standing = STANDING_NOWHERE;
        error_set(&error, STILE_LOST, 0, "it was not ours any more");
        local->engine.events->released(claim, &error);
        break;
    case STANDING_NOWHERE:
        local->engine.events->released(claim, NULL);
        break;
    }
}

/* ---- beginning and end ---- */

static enum stile_status check_url(const struct url *url, struct stile_error *err)
{
    if (url->n_hosts || url->user || url->password)
        return error_set(err, STILE_REFUSED, 0,
                         "the local engine has no host or user: local: or local:/path");
    if (strcmp(url->path, "/") == 0)
        return error_set(err, STILE_REFUSED, 0, "local:/ names the root directory; name another");
    return STILE_OK;
}

static enum stile_status read_allow(bool *fuse, const struct url *url, struct stile_error *err)
{
    const char *allow = url_param(url, "allow");
    *fuse = allow && strcmp(allow, "fuse") == 0;
    if (!allow || *fuse)
        return STILE_OK;
    return error_set(err, STILE_MISUSE, 0, "allow= is fuse, not \"%.32s\"", allow);
}

static enum stile_status local_open(struct engine *engine, const struct url *url,
                                    struct stile_error *err)
{
    struct local *local = local_of(engine);
    enum stile_status status = check_url(url, err);
    if (status)
        return status;
    bool allow_fuse = false;
    status = read_allow(&allow_fuse, url, err);
    if (!status)
        status = local_env_open(&local->env, url->path, allow_fuse, engine->loop, err);
    if (status)
        return status;
    status = local_session_open(local, err);
    if (status)
        local_env_close(local->env);
    return status;
}

static void local_close(struct engine *engine)
{
    struct local *local = local_of(engine);
    local_peers_close(local);
    local_session_close(local);
    local_env_close(local->env);
}

static void local_forked(struct engine *engine)
{
    struct local *local = local_of(engine);
    local_peers_forked(local);
    local_wakeup_forked(local);
    local_session_forked(local);
    local_env_forked(local->env);
}

static int local_life_fd(struct engine *engine)
{
    return local_of(engine)->life_fd;
}

static const char *const local_params[] = {"allow", NULL};

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
    .caps =
        {
            .engine = "local",
            .modes = 1u << STILE_EXCLUSIVE | 1u << STILE_SHARED | 1u << STILE_SLOTS,
            .lease = STILE_LEASE_PROCESS,
            .fifo = true,
            .token = true,
            .hold_at_least = true,
            .lock_delay = true,
            .detached = false,
            .token_is = "a counter of each name, above a floor that is durable across reboots",
            .survives = "a process killed at any instruction: its locks pass on at once; a reboot "
                        "ends all locks, tokens go on",
            .condition = "all users share one machine's kernel and the directory; the default "
                         "directory is one user's, so it excludes that user's processes only",
        },
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
    .admin = &admin,
};
