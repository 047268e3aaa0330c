/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/redis_foreign.h"

#include <inttypes.h>
#include <string.h>

#include "sim/redis_server.h"

#define PROGRAMS_MAX 3
#define FIRST_CLIENT 900 /* their numbers in the history; processes have smaller ones */
#define LOOK_NS      (100 * MS)

struct foreign {
    unsigned n_servers;
    uint64_t end_ns;
    struct random random;
    uint32_t client, claim;
    const char *name, *key, *owner;
    uint64_t ttl_ns, until_ns; /* it waits or holds until then */
    uint64_t deadline_ns;
};

static void begin_claim(void *data);
static void try_once(void *data);

/* ---- its requests ---- */

static struct bytes bytes_of(const char *text)
{
    return (struct bytes){text, strlen(text)};
}

static bool is_done(struct server *server, const struct bytes *args, size_t n)
{
    struct buffer out = {0};
    sim_redis_execute(server, args, n, &out);
    const char *answer = buffer_at(&out);
    bool done = answer[0] == '+' || (answer[0] == ':' && answer[1] != '0');
    buffer_free(&out);
    return done;
}

static bool set_key(const struct foreign *foreign, struct server *server)
{
    const char *ttl = world_print("%" PRIu64, foreign->ttl_ns / MS);
    const struct bytes args[] = {bytes_of("SET"), bytes_of(foreign->key), bytes_of(foreign->owner),
                                 bytes_of("NX"),  bytes_of("PX"),         bytes_of(ttl)};
    return is_done(server, args, sizeof args / sizeof *args);
}

static bool if_own(const struct foreign *foreign, struct server *server, const char *then)
{
    const char *script =
        world_print("if redis.call('GET', KEYS[1]) == ARGV[1] then return %s end return 0", then);
    const struct bytes args[] = {bytes_of("EVAL"), bytes_of(script), bytes_of("1"),
                                 bytes_of(foreign->key), bytes_of(foreign->owner)};
    return is_done(server, args, sizeof args / sizeof *args);
}

static bool delete_own(const struct foreign *foreign, struct server *server)
{
    return if_own(foreign, server, "redis.call('DEL', KEYS[1])");
}

static bool has_own(const struct foreign *foreign, struct server *server)
{
    return if_own(foreign, server, "1");
}

typedef bool request_fn(const struct foreign *foreign, struct server *server);

static bool by_majority(const struct foreign *foreign, request_fn *request)
{
    unsigned n = 0;
    for (unsigned i = 0; i < foreign->n_servers; i++)
        n += server_runs(net_server(i)) && request(foreign, net_server(i));
    return n > foreign->n_servers / 2;
}

/* ---- its claims ---- */

static void tell(const struct foreign *foreign, enum event_kind kind, enum stile_status status)
{
    world_trace("another program, %s: %s %s", foreign->owner, history_kind_text(kind),
                foreign->name);
    history_add(world_history(), &(struct event){.ns = world_now(),
                                                 .kind = kind,
                                                 .client = foreign->client,
                                                 .claim = foreign->claim,
                                                 .deadline_ns = foreign->deadline_ns,
                                                 .status = status});
}

static void rest(struct foreign *foreign)
{
    uint64_t pause_ns = random_between(&foreign->random, 20 * MS, 4 * SEC);
    if (world_now() + pause_ns < foreign->end_ns)
        world_at(world_now() + pause_ns, begin_claim, foreign);
}

static void give_back(struct foreign *foreign)
{
    tell(foreign, EVENT_RELEASED, STILE_OK);
    bool done = by_majority(foreign, delete_own);
    tell(foreign, EVENT_ENDED, done ? STILE_OK : STILE_LOST);
    rest(foreign);
}

/* Its deadline has passed, or an operator or an eviction has taken the key away. */
static void lose(struct foreign *foreign)
{
    if (world_now() < foreign->deadline_ns)
        tell(foreign, EVENT_BROKEN, STILE_OK);
    tell(foreign, EVENT_LOST, STILE_LOST);
    by_majority(foreign, delete_own);
    rest(foreign);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void look(void *data)
{
    struct foreign *foreign = data;
    uint64_t end_ns = least(foreign->until_ns, foreign->deadline_ns);
    if (world_now() >= foreign->deadline_ns || !by_majority(foreign, has_own))
        lose(foreign);
    else if (world_now() >= foreign->until_ns)
        give_back(foreign);
    else
        world_at(least(world_now() + LOOK_NS, end_ns), look, foreign);
}

static void hold(struct foreign *foreign)
{
    foreign->deadline_ns = world_now() + foreign->ttl_ns - foreign->ttl_ns / 100 - 2 * MS;
    foreign->until_ns = world_now() + random_below(&foreign->random, 3 * SEC);
    tell(foreign, EVENT_GRANTED, STILE_OK);
    look(foreign);
}

static void try_once(void *data)
{
    struct foreign *foreign = data;
    if (by_majority(foreign, set_key)) {
        hold(foreign);
        return;
    }
    by_majority(foreign, delete_own);
    if (world_now() < foreign->until_ns) {
        world_at(world_now() + random_between(&foreign->random, 10 * MS, 200 * MS), try_once,
                 foreign);
        return;
    }
    tell(foreign, EVENT_ANSWERED, STILE_TIMEOUT);
    rest(foreign);
}

static void begin_claim(void *data)
{
    struct foreign *foreign = data;
    foreign->name = random_once_in(&foreign->random, 2) ? "x" : "y";
    foreign->key = world_print("lock:%s", foreign->name);
    foreign->owner = world_print("%016" PRIx64, random_next(&foreign->random));
    foreign->ttl_ns = random_between(&foreign->random, SEC, 5 * SEC);
    foreign->until_ns = world_now() + random_below(&foreign->random, 4 * SEC);
    foreign->claim = history_ask_more(world_history(),
                                      &(struct event){.ns = world_now(),
                                                      .client = foreign->client,
                                                      .foreign = true,
                                                      .lease_ns = foreign->ttl_ns},
                                      foreign->name);
    try_once(foreign);
}

void redis_foreign_begin(unsigned n, uint64_t end_ns, struct random *random)
{
    for (unsigned i = (unsigned)random_between(random, 1, PROGRAMS_MAX); i > 0; i--) {
        struct foreign *foreign = world_alloc(sizeof *foreign);
        *foreign = (struct foreign){.n_servers = n, .end_ns = end_ns, .client = FIRST_CLIENT + i};
        foreign->random.state = random_next(random);
        world_at(random_below(random, 2 * SEC), begin_claim, foreign);
    }
}
