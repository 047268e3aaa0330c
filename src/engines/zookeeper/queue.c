/* Standing in line, until first.
 *
 * A listing of the name's nodes that has ours in it proves that it is still there, with the owner
 * that was compared when it was made: neither can change. So one request, after whatever wait, both
 * verifies a grant and finds who is before us. */
#include <stdio.h>
#include <string.h>

#include "engines/zookeeper/zookeeper.h"
#include "mutant.h"

void standing_look_again(struct timer *timer)
{
    standing_look(part_of_timer(timer));
}

static void on_before_event(struct asker *asker, int type)
{
    struct zoo_claim *part = part_of_asker(asker);
    (void)type;
    if (part->standing == IN_LINE && part->in_flight == 0)
        standing_look(part);
}

/* A claim lives by a session. What a client of the same dialect has made for good, or somebody by
 * hand, would be waited for until it is deleted. */
static bool is_nobodys(const struct zoo_claim *part, const struct answer *answer)
{
    enum stile_mode mode;
    return answer->rc == ZOK && answer->stat->ephemeral_owner == 0 && part->watcher &&
           !record_guid(&mode, strrchr(part->watcher->path, '/') + 1);
}

static void on_before_watched(struct asker *asker, const struct answer *answer)
{
    struct zoo_claim *part = part_of_asker(asker);
    if (claim_is_over(part))
        return;
    if (is_nobodys(part, answer)) {
        part->refusal = NOT_A_CLAIM;
        claim_withdraw(part);
    } else if (answer->rc == ZOK && part->watcher)
        part->tries = 0;
    else if (answer->rc == ZNONODE || answer->rc == ZOK)
        standing_look(part); /* it has gone meanwhile */
    else if (fault_may_pass(answer->rc))
        claim_again_later(part, standing_look_again);
    else
        claim_fail_by(part, answer->rc, false);
}

static const char *own_name(const struct zoo_claim *part)
{
    return strrchr(part->node, '/') + 1;
}

/* The one before it, and no other: so one that goes wakes one. */
void standing_watch(struct zoo_claim *part, const char *node)
{
    char path[PATH_ROOM];
    const struct claim *claim = claim_of(part);
    struct session *session = part->session;
    path_of_name(path, zoo_of_part(part), claim->name, claim->name_len);
    size_t n = strlen(path);
    part->standing = IN_LINE;
    watcher_leave(&part->watcher);
    if (snprintf(path + n, sizeof path - n, "/%s", node) < (int)(sizeof path - n) &&
        watcher_take(&part->watcher, session, 'g', path, &part->asker, on_before_event) &&
        ask_get(session, &part->asker, path, part->watcher, on_before_watched))
        part->in_flight++;
    else
        claim_again_later(part, standing_look_again);
}

/* What is in the way of the node at this place. */
struct verdict {
    const char *nearest; /* all of its kind must go first, the nearest of them last */
    bool full;           /* no slot is free; any of those before it may go first */
    size_t slots;        /* before it */
};

/* A reader waits only for earlier writers; slots are counted. */
static struct verdict judge(const struct claim *claim, const struct line *line, size_t place)
{
    const struct zoo *zoo = zoo_of(claim->engine);
    struct verdict verdict = {NULL};
    while (place-- > 0 && !verdict.nearest) {
        enum stile_mode mode = node_mode(zoo, line->nodes[place]);
#ifdef MUTANT_ZOOKEEPER_READERS_WAIT_FOR_READERS
        if (claim->mode != STILE_SLOTS || mode != claim->mode)
#else
        if (claim->mode == STILE_EXCLUSIVE || mode != claim->mode)
#endif
            verdict.nearest = line->nodes[place];
        verdict.slots += mode == STILE_SLOTS;
    }
    verdict.full = claim->mode == STILE_SLOTS && verdict.slots >= claim->slots;
    return verdict;
}

/* A listing that is watched must be behind the watch. */
void standing_wait_for_change(struct zoo_claim *part)
{
    if (part->watcher && part->watcher->kind == 'c')
        part->standing = IN_LINE;
    else
        standing_look(part);
}

static void wait_for(struct zoo_claim *part, const struct verdict *verdict)
{
    struct claim *claim = claim_of(part);
    if (!claim->wait) {
        claim_withdraw(part);
        return;
    }
    if (verdict->nearest)
        standing_watch(part, verdict->nearest);
    else
        standing_wait_for_change(part);
    claim->engine->events->queued(claim);
}

static void be_first(struct zoo_claim *part)
{
    if (legacy_wanted(part) && !part->armed)
        legacy_arm(part);
    else
        holding_begin(part);
}

void standing_weigh(struct zoo_claim *part, const struct answer *answer)
{
    struct claim *claim = claim_of(part);
    struct stile_error err;
    struct line line;
    if (line_sort(&line, zoo_of_part(part), answer->children, &err)) {
        claim_fail(part, &err);
        return;
    }
    size_t place = line_find(&line, own_name(part));
#ifdef MUTANT_ZOOKEEPER_GRANT_UNVERIFIED
    place = line.n == 0 ? 0 : place == line.n ? place - 1 : place;
#else
    bool ours = place < line.n && part->owner == part->session->id.id &&
                part->generation == part->session->generation;
    if (!ours) {
        line_free(&line);
        claim_start_over(part);
        return;
    }
#endif
    struct verdict verdict = judge(claim, &line, place);
    if (verdict.nearest || verdict.full)
        wait_for(part, &verdict);
    else if (!ghosts_meet(part, &line, answer->children, verdict.slots))
        be_first(part);
    line_free(&line);
}

static void on_looked(struct asker *asker, const struct answer *answer)
{
    struct zoo_claim *part = part_of_asker(asker);
    if (claim_is_over(part))
        return;
    if (answer->rc == ZOK)
        standing_weigh(part, answer);
    else if (answer->rc == ZNONODE)
        claim_start_over(part);
    else if (fault_may_pass(answer->rc) && claim_of(part)->wait)
        claim_again_later(part, standing_look_again);
    else
        claim_fail_by(part, answer->rc, true);
}

bool standing_list(struct zoo_claim *part, bool watched, ask_fn *fn)
{
    char path[PATH_ROOM];
    path_of_name(path, zoo_of_part(part), claim_of(part)->name, claim_of(part)->name_len);
    bool asked =
        (part->watcher || !watched ||
         watcher_take(&part->watcher, part->session, 'c', path, &part->asker, on_before_event)) &&
        ask_children(part->session, &part->asker, path, part->watcher, fn);
    part->in_flight += asked;
    return asked;
}

void standing_look(struct zoo_claim *part)
{
    part->standing = LOOKING;
    loop_disarm(claim_of(part)->engine->loop, &part->timer);
    watcher_leave(&part->watcher);
    if (!standing_list(part, claim_of(part)->mode == STILE_SLOTS && claim_of(part)->wait,
                       on_looked))
        claim_again_later(part, standing_look_again);
}
