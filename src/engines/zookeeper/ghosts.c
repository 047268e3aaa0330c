/* Ghosts: the records of who has gone, which keep a name taken, and those that our own claims leave
 * behind.
 *
 * All times are the server's. It has no clock to be asked, but everything that is written tells
 * when: our own node when it was made, and later, when a ghost's time should be over by our clock,
 * the same node written once more. */
#include <stdlib.h>
#include <string.h>

#include "engines/zookeeper/zookeeper.h"
#include "mutant.h"

#define BURY_AGAIN_NS (1 * NS_PER_SEC)

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
    size_t n = answer->data_len > 0 ? (size_t)answer->data_len : 0;
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

static void on_cleared(struct asker *asker, const struct answer *answer)
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
        asked = ask_delete(part->session, &part->asker, ghost->path, on_cleared);
    else if (ghost->there && ghost->unmarked)
        asked = ghost->data &&
                ask_set(part->session, &part->asker, ghost->path, ghost->data, 0, on_cleared);
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

static size_t count_slots(const struct line *line, const struct String_vector *children)
{
    size_t n = 0;
    for (int32_t i = 0; i < children->count; i++) {
        enum stile_mode mode;
        const char *guid = record_guid(&mode, children->data[i]);
        n += guid && mode == STILE_SLOTS && record_is_orphan(line, guid);
    }
    return n;
}

/* All of them; false: out of memory. */
static bool find(struct zoo_claim *part, const struct line *line,
                 const struct String_vector *children, size_t slots)
{
    bool found = true;
    slots += count_slots(line, children);
    for (int32_t i = 0; found && i < children->count; i++) {
        enum stile_mode mode;
        const char *guid = record_guid(&mode, children->data[i]);
        if (guid && is_in_the_way(claim_of(part), mode, slots) && record_is_orphan(line, guid))
            found = add(part, children->data[i]);
    }
    return found;
}

bool ghosts_meet(struct zoo_claim *part, const struct line *line,
                 const struct String_vector *children, size_t slots)
{
    size_t n = 0;
    enum stile_mode mode;
    for (int32_t i = 0; i < children->count; i++)
        n += record_guid(&mode, children->data[i]) != NULL;
    if (n == 0)
        return false;
    ghosts_forget(part);
    part->ghosts = calloc(1, sizeof *part->ghosts + n * sizeof part->ghosts->list[0]);
    bool known = part->ghosts && find(part, line, children, slots);
    if (known && part->ghosts->n == 0)
        return false;
    part->standing = LOOKING;
    if (!known || !ask_all(part))
        claim_fail_by(part, ZSYSTEMERROR, true);
    return true;
}

/* ---- what a claim of ours leaves behind ---- */

bool ghosts_wanted(struct zoo_claim *part)
{
    return claim_of(part)->hold_ns || claim_of(part)->delay_ns;
}

static void introduce(char data[INFO_MAX], struct zoo_claim *part, bool delays)
{
    const struct claim *claim = claim_of(part);
    struct record record = {
        .hold_ms = (int64_t)((claim->hold_ns + NS_PER_MS - 1) / NS_PER_MS),
        .delay_ms = delays ? (int64_t)((claim->delay_ns + NS_PER_MS - 1) / NS_PER_MS) : 0,
        .token = (uint64_t)part->czxid};
    record_write(data, zoo_of_part(part), &record);
}

static void own_record(char path[PATH_ROOM], struct zoo_claim *part)
{
    path_of_record(path, zoo_of_part(part), claim_of(part), part->guid);
}

/* One that is there already was made before a connection broke: it is too old. */
static void on_recorded(struct asker *asker, const struct answer *answer)
{
    struct zoo_claim *part = part_of_asker(asker);
    char path[PATH_ROOM];
    part->armed = answer->rc == ZOK;
    if (claim_is_over(part))
        return;
    if (answer->rc == ZNODEEXISTS) {
        own_record(path, part);
        part->in_flight += ask_delete(part->session, &part->asker, path, on_cleared);
    } else if (answer->rc != ZOK && answer->rc != ZNONODE && !fault_may_pass(answer->rc)) {
        claim_fail_by(part, answer->rc, true);
    }
}

/* Its node is seen once more behind it, so the record is that of a holder. */
void ghosts_arm(struct zoo_claim *part)
{
    char path[PATH_ROOM], data[INFO_MAX];
    own_record(path, part);
    introduce(data, part, true);
    part->recorded = ask_create(part->session, &part->asker, path, 0, data, on_recorded);
    part->in_flight += part->recorded;
    if (part->recorded)
        standing_look(part);
    else
        claim_fail_by(part, ZSYSTEMERROR, true);
}

/* ---- once nobody needs it ---- */

struct burial {
    struct burial *next;
    struct zoo *zoo;
    struct asker asker;
    struct timer timer;
    char path[];
};

static void burial_free(struct burial *burial)
{
    struct burial **at = &burial->zoo->burials;
    struct loop *loop = burial->zoo->engine.loop;
    while (*at != burial)
        at = &(*at)->next;
    *at = burial->next;
    asker_forget(&burial->asker);
    loop_disarm(loop, &burial->timer);
    loop_unreserve(loop, 1);
    free(burial);
}

static void on_buried(struct asker *asker, const struct answer *answer)
{
    struct burial *burial = (struct burial *)((char *)asker - offsetof(struct burial, asker));
    struct loop *loop = burial->zoo->engine.loop;
    if (fault_may_pass(answer->rc))
        loop_arm(loop, &burial->timer, loop_now(loop) + BURY_AGAIN_NS);
    else
        burial_free(burial);
}

static void on_burial(struct timer *timer)
{
    struct burial *burial = (struct burial *)((char *)timer - offsetof(struct burial, timer));
    if (!ask_delete(burial->zoo->main, &burial->asker, burial->path, on_buried))
        loop_arm(burial->zoo->engine.loop, timer,
                 loop_now(burial->zoo->engine.loop) + BURY_AGAIN_NS);
}

/* While we live; else who finds it does. */
static void bury(struct zoo_claim *part, uint64_t at_ns)
{
    struct zoo *zoo = zoo_of_part(part);
    char path[PATH_ROOM];
    own_record(path, part);
    struct burial *burial = malloc(sizeof *burial + strlen(path) + 1);
    if (!burial || loop_reserve(zoo->engine.loop, 1)) {
        free(burial);
        return;
    }
    *burial = (struct burial){.next = zoo->burials, .zoo = zoo, .timer.fn = on_burial};
    strcpy(burial->path, path);
    zoo->burials = burial;
    loop_arm(zoo->engine.loop, &burial->timer, at_ns);
}

void ghosts_drop(struct zoo_claim *part)
{
    if (part->recorded)
        bury(part, 0);
    part->recorded = part->armed = false;
}

void ghosts_close(struct zoo *zoo)
{
    while (zoo->burials)
        burial_free(zoo->burials);
}

/* Our clock may run 1 % faster than the server's. */
static uint64_t hold_ends_ns(struct zoo_claim *part)
{
    uint64_t hold_ns = claim_of(part)->hold_ns;
    return part->granted_ns + hold_ns + hold_ns / 100;
}

bool ghosts_leave(struct zoo_claim *part, ask_fn *fn)
{
    const struct claim *claim = claim_of(part);
    bool kept = part->was_held && !claim->unused;
    bool delays = kept && claim->lost && claim->delay_ns;
    bool holds = kept && claim->hold_ns && loop_now(claim->engine->loop) < hold_ends_ns(part);
    char path[PATH_ROOM], data[INFO_MAX];
    bool asked = true;
    own_record(path, part);
    introduce(data, part, delays);
    if (!holds && !delays)
        asked = ask_delete(part->session, &part->asker, path, fn);
    else if (claim->delay_ns)
        asked = ask_set(part->session, &part->asker, path, data, delays ? 0 : -1, fn);
    else
        part->recorded = false; /* it says what it should */
    if (asked && holds && !delays && part->armed) {
        part->armed = false; /* if this has to be said again, its burial is arranged */
        bury(part, hold_ends_ns(part));
    }
    part->in_flight += asked && part->recorded;
    return asked;
}
