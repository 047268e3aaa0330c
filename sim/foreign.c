/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/foreign.h"

#define FIRST_CLIENT   900 /* their numbers in the history; processes have smaller ones */
#define MOMENT_MIN_NS  (50 * US)
#define MOMENT_MAX_NS  (2 * MS)
#define GIVES_UP_IN    3 /* of those that wait */
#define DIES_IN        8
#define STANDS_IN      6 /* still, of the careless ones' claims */
#define PAUSE_MAX_TTLS 2

struct errand {
    struct foreign *foreign;
    uint64_t cycle;
    foreign_fn *fn;
};

static uint32_t next_client;

static void begin_claim(struct foreign *foreign);

/* ---- the history ---- */

static void tell(const struct foreign *foreign, enum event_kind kind, enum stile_status status)
{
    world_trace("another program, f%u: %s %s", foreign->client, history_kind_text(kind),
                foreign->name);
    history_add(world_history(), &(struct event){.ns = world_now(),
                                                 .kind = kind,
                                                 .client = foreign->client,
                                                 .claim = foreign->claim,
                                                 .token = foreign->token,
                                                 .deadline_ns = foreign->deadline_ns,
                                                 .status = status});
}

static void mark(enum event_kind kind)
{
    history_add(world_history(), &(struct event){.ns = world_now(), .kind = kind});
}

/* ---- its time ---- */

static void rest(struct foreign *foreign)
{
    uint64_t pause_ns = random_between(&foreign->random, 20 * MS, 3 * SEC);
    foreign->cycle++;
    foreign->state = RESTING;
    foreign->deadline_ns = 0;
    if (world_now() + pause_ns < foreign->end_ns)
        foreign_at(foreign, world_now() + pause_ns, begin_claim);
}

/* Nothing but its own clock says so: its servers may keep the session a little longer. */
static void be_over(struct foreign *foreign)
{
    world_trace("another program, f%u: its session is over", foreign->client);
    if (foreign->state == HOLDING)
        tell(foreign, EVENT_LOST, STILE_LOST);
    else if (foreign->was_held)
        tell(foreign, EVENT_ENDED, STILE_LOST);
    else
        tell(foreign, EVENT_ANSWERED, STILE_UNREACHABLE);
    rest(foreign);
}

static void run_errand(void *data)
{
    struct errand *errand = data;
    struct foreign *foreign = errand->foreign;
    if (errand->cycle != foreign->cycle)
        return;
    if (world_now() < foreign->paused_until_ns)
        world_at(foreign->paused_until_ns, run_errand, errand);
    else if (foreign->deadline_ns != 0 && world_now() >= foreign->deadline_ns)
        be_over(foreign);
    else
        errand->fn(foreign);
}

void foreign_at(struct foreign *foreign, uint64_t at_ns, foreign_fn *fn)
{
    struct errand *errand = world_alloc(sizeof *errand);
    *errand = (struct errand){foreign, foreign->cycle, fn};
    world_at(at_ns, run_errand, errand);
}

uint64_t foreign_moment(struct foreign *foreign)
{
    return random_between(&foreign->random, MOMENT_MIN_NS, MOMENT_MAX_NS);
}

/* ---- carelessness: faults, after which the history owes less ---- */

static void die(struct foreign *foreign)
{
    world_trace("another program, f%u, dies", foreign->client);
    history_add(world_history(),
                &(struct event){.ns = world_now(), .kind = EVENT_DIED, .client = foreign->client});
    mark(EVENT_FAULT);
    mark(EVENT_HEALED);
    foreign->client = next_client++;
    rest(foreign);
}

static void continue_all(void *data)
{
    (void)data;
    mark(EVENT_HEALED);
}

static void stand_still(struct foreign *foreign)
{
    uint64_t for_ns = random_below(&foreign->random, PAUSE_MAX_TTLS * foreign->ttl_ns);
    foreign->paused_until_ns = world_now() + for_ns;
    world_trace("another program, f%u, stands still", foreign->client);
    history_add(
        world_history(),
        &(struct event){.ns = world_now(), .kind = EVENT_EXCUSED, .client = foreign->client});
    mark(EVENT_FAULT);
    world_at(foreign->paused_until_ns, continue_all, NULL);
}

/* Not in the last moments of the run, in which everything must come to an end. */
static void plan_carelessness(struct foreign *foreign)
{
    if (!foreign->careless)
        return;
    if (random_once_in(&foreign->random, DIES_IN))
        foreign_at(foreign, world_now() + random_below(&foreign->random, 4 * SEC), die);
    if (random_once_in(&foreign->random, STANDS_IN))
        foreign_at(foreign, world_now() + random_below(&foreign->random, 4 * SEC), stand_still);
}

/* ---- its claims ---- */

static void leave(struct foreign *foreign, enum event_kind kind, enum stile_status status)
{
    foreign->state = LEAVING;
    foreign->status = status;
    if (kind != EVENT_KINDS)
        tell(foreign, kind, STILE_OK);
    foreign->class->leave(foreign);
}

static void give_back(struct foreign *foreign)
{
    if (foreign->state == HOLDING)
        leave(foreign, EVENT_RELEASED, STILE_OK);
}

static void give_up(struct foreign *foreign)
{
    if (foreign->state == ENTERING)
        leave(foreign, EVENT_CANCELLED, STILE_TIMEOUT);
}

static void begin_claim(struct foreign *foreign)
{
    struct random *random = &foreign->random;
    foreign->state = ENTERING;
    foreign->name = random_once_in(random, 4) ? "y" : "x";
    foreign->mode =
        foreign->class->readers && random_once_in(random, 3) ? STILE_SHARED : STILE_EXCLUSIVE;
    foreign->waits = !random_once_in(random, 5) && !foreign->class->never_waits;
    foreign->queued = foreign->was_held = false;
    foreign->ttl_ns = random_between(random, 2, 5) * SEC;
    foreign->token = 0;
    foreign->claim =
        history_ask_more(world_history(),
                         &(struct event){.ns = world_now(),
                                         .client = foreign->client,
                                         .mode = foreign->mode,
                                         .foreign = true,
                                         .ignores_holds = foreign->class->ignores_holds,
                                         .lease_ns = foreign->ttl_ns},
                         foreign->name);
    world_trace("another program, f%u: asks for %s, mode %d%s", foreign->client, foreign->name,
                (int)foreign->mode, foreign->waits ? "" : ", without waiting");
    plan_carelessness(foreign);
    if (foreign->waits && random_once_in(random, GIVES_UP_IN))
        foreign_at(foreign, world_now() + random_below(random, 4 * SEC), give_up);
    foreign->class->enter(foreign);
}

void foreign_begin(const struct foreign_class *class, uint64_t end_ns, struct random *random,
                   struct foreign *(*make)(void))
{
    bool careless = random_once_in(random, 2);
    unsigned n = (unsigned)random_between(random, 1, FOREIGN_MAX);
    next_client = FIRST_CLIENT;
    for (unsigned i = 0; i < n; i++) {
        struct foreign *foreign = make();
        foreign->class = class;
        foreign->random.state = random_next(random);
        foreign->end_ns = end_ns;
        foreign->careless = careless;
        foreign->client = next_client++;
        foreign_at(foreign, random_below(random, 2 * SEC), begin_claim);
    }
}

/* ---- what the engine's part reports ---- */

void foreign_queued(struct foreign *foreign)
{
    if (!foreign->queued)
        tell(foreign, EVENT_QUEUED, STILE_OK);
    foreign->queued = true;
}

void foreign_granted(struct foreign *foreign, uint64_t token)
{
    uint64_t longest = random_once_in(&foreign->random, 4) ? 3 * SEC : 300 * MS;
    foreign->state = HOLDING;
    foreign->was_held = true;
    foreign->token = token;
    tell(foreign, EVENT_GRANTED, STILE_OK);
    foreign_at(foreign, world_now() + random_below(&foreign->random, longest), give_back);
}

/* run_errand() sees that the time is over. */
static void look_at_clock(struct foreign *foreign)
{
    (void)foreign;
}

void foreign_renewed(struct foreign *foreign, uint64_t deadline_ns)
{
    if (deadline_ns <= foreign->deadline_ns)
        return;
    foreign->deadline_ns = deadline_ns;
    if (foreign->state == HOLDING)
        tell(foreign, EVENT_RENEWED, STILE_OK);
    foreign_at(foreign, deadline_ns, look_at_clock);
}

void foreign_turn_away(struct foreign *foreign)
{
    leave(foreign, EVENT_KINDS, STILE_HELD);
}

void foreign_lose(struct foreign *foreign)
{
    bool held = foreign->state == HOLDING;
    tell(foreign, held ? EVENT_LOST : EVENT_ANSWERED, STILE_LOST);
    rest(foreign);
}

void foreign_left(struct foreign *foreign)
{
    if (foreign->was_held)
        tell(foreign, EVENT_ENDED, STILE_OK);
    else
        tell(foreign, EVENT_ANSWERED, foreign->status);
    rest(foreign);
}
