/* Ghosts: the records of who has gone, which keep a name taken.
 *
 * All times are the server's. It has no clock to be asked, but everything that is written tells
 * when: our own node when it was made, and later, when a ghost's time should be over by our clock,
 * the same node written once more. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/zookeeper/zookeeper.h"
#include "mutant.h"

struct ghost {
    struct asker asker;
    struct zoo_claim *part;
    char *path, *data;
    bool there, unmarked;
    int64_t until_ms;
};

struct ghosts {
    size_t n, pending;
    int rc;
    struct ghost list[];
};

/* ---- in the way of a claim ---- */

void ghosts_forget(struct zoo_claim *part)
{
    struct ghosts *ghosts = part->ghosts;
    for (size_t i = 0; ghosts && i < ghosts->n; i++) {
        asker_forget(&ghosts->list[i].asker);
        free(ghosts->list[i].path);
        free(ghosts->list[i].data);
    }
    free(ghosts);
    part->ghosts = NULL;
}

/* A record that nobody can read keeps nothing, or it would for ever. */
static void understand(struct ghost *ghost, const struct answer *answer)
{
    size_t n = answer->data_len;
    char data[INFO_MAX];
    struct record record;
    n = n < sizeof data ? n : sizeof data - 1;
    memcpy(data, n ? answer->data : "", n);
    data[n] = '\0';
    free(ghost->data);
    ghost->data = strdup(data);
    ghost->there = true;
    ghost->until_ms = 0;
    if (!record_read(&record, data))
        return;
    ghost->unmarked = record_is_unmarked(&record, answer->stat);
    ghost->until_ms = record_until(&record, answer->stat, ghost->part->clock_ms);
}

void ghosts_cleared(struct asker *asker, const struct answer *answer)
{
    struct zoo_claim *part = part_of_asker(asker);
    bool fine = answer->rc == ZOK || answer->rc == ZNONODE || answer->rc == ZBADVERSION;
    if (!claim_is_over(part) && !fine && !fault_may_pass(answer->rc))
        claim_fail_by(part, answer->rc, true);
}

/* True: something about it changes, so all of it is looked at again. */
static bool clear(struct zoo_claim *part, const struct ghost *ghost)
{
    bool asked = false;
    if (ghost->there && ghost->until_ms <= part->clock_ms)
        asked = ask_delete(part->session, &part->asker, ghost->path, ghosts_cleared);
    else if (ghost->there && ghost->unmarked)
        asked = ghost->data &&
                ask_set(part->session, &part->asker, ghost->path, ghost->data, 0, ghosts_cleared);
    part->in_flight += asked;
    return asked || !ghost->there;
}

static void on_time_told(struct asker *asker, const struct answer *answer)
{
    struct zoo_claim *part = part_of_asker(asker);
    if (answer->rc == ZOK)
        claim_set_clock(part, answer->stat->mtime);
    claim_is_over(part);
}

static void ask_time(struct zoo_claim *part)
{
    char data[INFO_MAX];
    claim_introduce(data, part);
    part->in_flight += ask_set(part->session, &part->asker, part->node, data, -1, on_time_told);
    standing_look(part);
}

static void on_due(struct timer *timer)
{
    struct zoo_claim *part = part_of_timer(timer);
    struct loop *loop = claim_of(part)->engine->loop;
    if (part->in_flight == 0)
        ask_time(part);
    else /* its watch is being set */
        loop_arm(loop, timer, loop_now(loop) + NUDGE_NS);
}

/* Any of several slots may come free first, a living holder's as well. */
static void wait_for(struct zoo_claim *part, const struct ghost *ghost)
{
    struct loop *loop = claim_of(part)->engine->loop;
    int64_t left_ms = ghost->until_ms - part->clock_ms;
    uint64_t at_ns = part->clock_ns + (left_ms > 0 ? (uint64_t)left_ms : 0) * NS_PER_MS;
    if (at_ns <= loop_now(loop)) {
        ask_time(part);
        return;
    }
    if (claim_of(part)->mode == STILE_SLOTS)
        standing_wait_for_change(part);
    else
        standing_watch(part, strrchr(ghost->path, '/') + 1);
    if (part->standing != IN_LINE || !part->watcher)
        return;
    part->timer.fn = on_due;
    loop_arm(loop, &part->timer, at_ns);
}

static void decide(struct zoo_claim *part)
{
    struct ghosts *ghosts = part->ghosts;
    const struct ghost *soonest = NULL;
    bool changes = false, waits = claim_of(part)->wait;
    for (size_t i = 0; i < ghosts->n; i++) {
        const struct ghost *ghost = &ghosts->list[i];
        changes = clear(part, ghost) || changes;
        if (!soonest || ghost->until_ms < soonest->until_ms)
            soonest = ghost;
    }
    if (changes && (waits || soonest->until_ms <= part->clock_ms))
        standing_look(part);
    else if (!waits)
        claim_withdraw(part);
    else
        wait_for(part, soonest);
    if (waits)
        claim_of(part)->engine->events->queued(claim_of(part));
}

static void on_ghost(struct asker *asker, const struct answer *answer)
{
    struct ghost *ghost = (struct ghost *)((char *)asker - offsetof(struct ghost, asker));
    struct zoo_claim *part = ghost->part;
    struct ghosts *ghosts = part->ghosts;
    if (answer->rc == ZOK)
        understand(ghost, answer);
    else if (answer->rc != ZNONODE)
        ghosts->rc = answer->rc;
    bool all = --ghosts->pending == 0;
    if (claim_is_over(part) || !all)
        return;
    if (!ghosts->rc)
        decide(part);
    else if (fault_may_pass(ghosts->rc) && claim_of(part)->wait)
        claim_again_later(part, standing_look_again);
    else
        claim_fail_by(part, ghosts->rc, true);
}

static bool add(struct zoo_claim *part, const char *node)
{
    struct ghost *ghost = &part->ghosts->list[part->ghosts->n++];
    char path[PATH_ROOM];
    const struct claim *claim = claim_of(part);
    path_of_name(path, zoo_of_part(part), claim->name, claim->name_len);
    *ghost = (struct ghost){.part = part};
    return asprintf(&ghost->path, "%s/%s", path, node) >= 0 || (ghost->path = NULL);
}

static bool ask_all(struct zoo_claim *part)
{
    struct ghosts *ghosts = part->ghosts;
    for (size_t i = 0; i < ghosts->n; i++) {
        struct ghost *ghost = &ghosts->list[i];
        if (!ask_get(part->session, &ghost->asker, ghost->path, NULL, on_ghost))
            return false;
        ghosts->pending++;
        part->in_flight++;
    }
    return true;
}

/* Readers let readers in; slots are counted, together with those before it in line. */
static bool is_in_the_way(const struct claim *claim, enum stile_mode mode, size_t slots)
{
#ifdef MUTANT_ZOOKEEPER_GHOSTS_KEEP_NOTHING
    return false;
#endif
    if (claim->mode == STILE_EXCLUSIVE || mode != claim->mode)
        return true;
    return claim->mode == STILE_SLOTS && slots >= claim->slots;
}

static size_t count_slots(const struct line *line, const struct jute_strings *children)
{
    size_t n = 0;
    for (size_t i = 0; i < children->n; i++) {
        enum stile_mode mode;
        const char *guid = record_guid(&mode, children->list[i]);
        n += guid && mode == STILE_SLOTS && record_is_orphan(line, guid);
    }
    return n;
}

/* All of them; false: out of memory. */
static bool find(struct zoo_claim *part, const struct line *line,
                 const struct jute_strings *children, size_t slots)
{
    bool found = true;
    slots += count_slots(line, children);
    for (size_t i = 0; found && i < children->n; i++) {
        enum stile_mode mode;
        const char *guid = record_guid(&mode, children->list[i]);
        if (guid && is_in_the_way(claim_of(part), mode, slots) && record_is_orphan(line, guid))
            found = add(part, children->list[i]);
    }
    return found;
}

bool ghosts_meet(struct zoo_claim *part, const struct line *line,
                 const struct jute_strings *children, size_t slots)
{
    size_t n = 0;
    enum stile_mode mode;
    for (size_t i = 0; i < children->n; i++)
        n += record_guid(&mode, children->list[i]) != NULL;
    if (n == 0)
        return false;
    ghosts_forget(part);
    part->ghosts = calloc(1, sizeof *part->ghosts + n * sizeof part->ghosts->list[0]);
    bool known = part->ghosts && find(part, line, children, slots);
    if (known && part->ghosts->n == 0)
        return false;
    part->standing = LOOKING;
    if (!known || !ask_all(part))
        claim_fail_by(part, ZNOMEMORY, true);
    return true;
}
