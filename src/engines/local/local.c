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

/* What the table can store: 49 days. */
#define HOLD_MAX_NS (UINT64_C(0xffffffff) * NS_PER_MS)

#define STUCK_PAUSE_NS (NS_PER_SEC / 2)

/* ---- entering ---- */

static void fail(struct local *local, struct claim *claim, const struct stile_error *error)
{
    struct local_claim *part = claim_part(claim);
    pokes_drop_slot(local, part->slot);
    part->slot = 0;
    part->standing = STANDING_NOWHERE;
    local->engine.events->failed(claim, error);
}

static void turn_away(struct local *local, struct claim *claim, uint64_t ghost_end_ns)
{
    struct local_claim *part = claim_part(claim);
    uint64_t now_ns = local_now(local);
    pokes_drop_slot(local, part->slot);
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
    struct pokes pokes;
};

static enum entry enter_table(struct local *local, struct claim *claim, struct entering *e)
{
    struct local_claim *part = claim_part(claim);
    struct tx *tx = &e->tx;
    if (!tx_begin(tx, &local->env->store))
        return ENTRY_FAILED;
    if (!names_is_still(tx, part->name, part->born, claim->name_hash)) {
        part->name = names_open(tx, claim->name_hash, claim->name, claim->name_len, e->now_ns);
        part->born = tx_name(tx, part->name)->born;
    }
    part->cell = queue_enter(tx, part->name, &e->wish, e->now_ns, &e->pokes);
    const struct claim_cell *own = tx_claim(tx, part->cell);
    bool granted = claim_is_held(own);
    e->token = own->token;
    if (!granted && !claim->wait && tx_is_ok(tx)) {
        tx_abort(tx);
        return ENTRY_BUSY;
    }
    if (!tx_commit(tx))
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
        if (!tx_begin(&e->tx, &local->env->store))
            return false;
        uint32_t name = names_find(&e->tx, claim->name_hash, claim->name, claim->name_len);
        if (name)
            queue_probe(&e->tx, name, probe, e->now_ns, &e->pokes);
        probe->end |= !name;
        if (!tx_commit(&e->tx))
            return false;
        pokes_deliver(local, &e->pokes);
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
    struct pokes pokes;
    enum stile_status status = STILE_OK;
    if (!tx_begin(&tx, &local->env->store))
        return tx_error(&tx, error);
    pokes_init(&pokes);
    const struct claim_cell *own = queue_own(&tx, part->cell, local->id, part->slot);
    if (!own || own->state == CLAIM_BROKEN)
        status = error_set(error, STILE_LOST, 0, "taken over by `stile break`");
    /* A grant that its owner never heard of, or did nothing with, need not be held for any time. */
    bool used = part->heard && !claim_of(part)->unused;
    if (own && !(used && queue_leave_quietly(&tx, part->cell)))
        queue_leave(&tx, part->cell, used ? LEAVE_RELEASED : LEAVE_BROKEN, local_now(local),
                    &pokes);
    if (!tx_commit(&tx))
        return tx_error(&tx, error);
    if (pokes.head != pokes.tail)
        pokes_deliver(local, &pokes);
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
        tx_error(&e->tx, &error);
        fail(local, claim, &error);
        break;
    }
}

void local_enter(struct local *local, struct claim *claim)
{
    struct local_claim *part = claim_part(claim);
    struct entering e;
    uint64_t ghost_end_ns = UINT64_MAX;
    struct stile_error error;

    /* Among many names they are in no cache; they come while we ask for the time and the gate. */
    __builtin_prefetch(&local->env->store.cells[part->name], 1);
    __builtin_prefetch(&local->env->store.cells[part->cell], 1);
    part->looker.look = wait_look;
    part->slot = pokes_add_slot(local, &part->looker);
    if (!part->slot) {
        error_set(&error, STILE_NOMEM, 0, "out of memory");
        fail(local, claim, &error);
        return;
    }
    e.wish = claim_wish(local, claim);
    e.now_ns = local_now(local);
    store_hasten(&local->env->store, e.now_ns);
    enum entry entry = enter(local, claim, &e, &ghost_end_ns);
    if (entry <= ENTRY_IN_LINE && e.pokes.head != e.pokes.tail)
        pokes_deliver(local, &e.pokes);
    tell(local, claim, &e, entry, ghost_end_ns);
}

static void local_claim(struct engine *engine, struct claim *claim)
{
    struct stile_error error;
    if (session_check(local_of(engine), &error) != STILE_OK) {
        fail(local_of(engine), claim, &error);
        return;
    }
    if (claim->hold_ns > HOLD_MAX_NS || claim->delay_ns > HOLD_MAX_NS) {
        error_set(&error, STILE_REFUSED, 0, "hold_at_least and lock-delay are limited to 49 days");
        fail(local_of(engine), claim, &error);
        return;
    }
    local_enter(local_of(engine), claim);
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
    pokes_drop_slot(local, part->slot);
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
        status = env_open(&local->env, url->path, allow_fuse, engine->loop, err);
    if (status)
        return status;
    status = session_open(local, err);
    if (status)
        env_close(local->env);
    return status;
}

static void local_close(struct engine *engine)
{
    struct local *local = local_of(engine);
    peers_close(local);
    session_close(local);
    env_close(local->env);
}

static void local_forked(struct engine *engine)
{
    struct local *local = local_of(engine);
    peers_forked(local);
    pokes_forked(local);
    session_forked(local);
    env_forked(local->env);
}

static int local_life_fd(struct engine *engine)
{
    return local_of(engine)->life_fd;
}

static const char *const local_params[] = {"allow", NULL};

static const struct engine_push push = {
    .watch = view_watch,
    .unwatch = view_unwatch,
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
    .list = view_list,
    .show = view_show,
    .break_ = view_break,
    .push = &push,
    .admin = &admin,
};
