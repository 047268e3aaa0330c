/* A fenced takeover. The holder is told before its place is given away: its claim is marked, it is
 * poked, and only then removed. Whoever is killed on the way leaves a lock that is still held, not
 * a holder that doesn't know. */
#include "base/name.h"
#include "engines/local/local.h"

#define EDITS_FOR_BREAKS 120

struct breaking {
    const struct query *query;
    uint32_t name;
    uint64_t latest; /* nobody granted after this token is meant */
    uint64_t now_ns;
    uint32_t n_found;
    struct tx tx;
    struct pokes pokes;
};

static uint32_t find(struct breaking *b)
{
    return names_find(&b->tx, name_hash(b->query->name, b->query->name_len), b->query->name,
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
    b->pokes.ring[b->pokes.tail++ % POKES_MAX] = (struct poke){
        .session = claim->session, .id = claim->id, .cell = index, .kind = POKE_CLAIM};
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

/* A ghost can be taken away at once; a holder only if it has been marked. From the start each time:
 * a removal may take others with it. */
static bool remove_one(struct breaking *b)
{
    for (uint32_t next = tx_name(&b->tx, b->name)->first; next;) {
        const struct claim_cell *claim = tx_claim(&b->tx, next);
        if (is_meant(b, claim) && claim->state != CLAIM_HELD) {
            queue_leave(&b->tx, next, LEAVE_BROKEN, b->now_ns, &b->pokes);
            b->name = find(b); /* with its last claim it may have been forgotten */
            return b->name && tx_is_ok(&b->tx);
        }
        next = claim_is_held(claim) ? claim->next : 0;
    }
    return false;
}

static bool run(struct breaking *b, struct local *local, bool first)
{
    pokes_init(&b->pokes);
    if (!tx_begin(&b->tx, &local->env->store))
        return false;
    b->now_ns = local_now(local);
    b->name = find(b);
    if (first && b->name)
        b->latest = tx_name(&b->tx, b->name)->token;
    return true;
}

static bool end(struct breaking *b, struct local *local)
{
    if (!tx_commit(&b->tx))
        return false;
    pokes_deliver(local, &b->pokes);
    return true;
}

/* Each round marks, tells, and removes as many as one transaction can take. */
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

void view_break(struct engine *engine, struct query *query)
{
    struct breaking b = {.query = query};
    struct stile_error error;
    uint32_t n_broken = 0;
    enum stile_status status = STILE_OK;
    if (!take_away(&b, local_of(engine), &n_broken))
        status = tx_error(&b.tx, &error);
    else if (n_broken == 0 && query->token)
        status = error_set(&error, STILE_CONFLICT, 0,
                           "token %llu does not hold it any more: see `stile show`",
                           (unsigned long long)query->token);
    else if (n_broken == 0)
        status = error_set(&error, STILE_CONFLICT, 0, "nobody holds it");
    engine->events->done(query, status ? &error : NULL);
}
