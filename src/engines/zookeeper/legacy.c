/* What a claim of ours leaves behind: its record is written when it is first in line, and removed
 * when nothing is left of its time. While we live that is done when the time is over, else by who
 * finds it. */
#include <stdlib.h>
#include <string.h>

#include "engines/zookeeper/zookeeper.h"

#define BURY_AGAIN_NS (1 * NS_PER_SEC)

bool legacy_wanted(struct zoo_claim *part)
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
        part->in_flight += ask_delete(part->session, &part->asker, path, ghosts_cleared);
    } else if (answer->rc != ZOK && answer->rc != ZNONODE && !fault_may_pass(answer->rc)) {
        claim_fail_by(part, answer->rc, true);
    }
}

/* Its node is seen once more behind it, so the record is that of a holder. */
void legacy_arm(struct zoo_claim *part)
{
    char path[PATH_ROOM], data[INFO_MAX];
    own_record(path, part);
    introduce(data, part, true);
    part->recorded =
        ask_create(part->session, &part->asker, path, JUTE_PERSISTENT, data, on_recorded);
    part->in_flight += part->recorded;
    if (part->recorded)
        standing_look(part);
    else
        claim_fail_by(part, ZNOMEMORY, true);
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

void legacy_drop(struct zoo_claim *part)
{
    if (part->recorded)
        bury(part, 0);
    part->recorded = part->armed = false;
}

void legacy_close(struct zoo *zoo)
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

bool legacy_leave(struct zoo_claim *part, ask_fn *fn)
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
