/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Random schedules in virtual time: a few clients on one server, with slow and lost messages,
 * answers in doubt, cancels, time-outs, handles freed in any state, and clients that are paused
 * past their leases. Whatever happens:
 *
 *   - no two locks on a name are held at the same time, and what is held is held at the server;
 *   - tokens grow from grant to grant;
 *   - every call is answered exactly once, and a wait without a limit ends in a grant once the
 * others release;
 *   - in the end nothing is left at the server, in no queue.
 *
 * The same seed gives the same trace: STILE_SEED=n runs that one and prints it; STILE_SOAK=1 runs
 * many more. */
#include <stdlib.h>

#include "core/lock.h"
#include "support/loop_virtual.h"
#include "support/unit.h"

#ifdef __SANITIZE_THREAD__
#define SEEDS 400 /* one thread only, and each step thirty times as slow */
#else
#define SEEDS 4000
#endif
#define SOAK_SEEDS (25 * SEEDS)
#define ACTIONS    120
#define HANDLES    6
#define NAMES      2

struct call {
    unsigned answers;
    bool acquires;
    struct fuzz *fuzz;
    struct handle *handle;
};

struct handle {
    struct stile_lock *lock;
    size_t client;
    unsigned name;
    bool calling;
};

struct fuzz {
    struct world world;
    struct engine_class class;
    uint64_t random;
    bool calm;    /* no more mischief */
    bool repeats; /* a release may fail: it is repeated */
    struct handle handles[HANDLES];
    struct call calls[ACTIONS + 3 * HANDLES];
    size_t n_calls;
    uint64_t last_token[NAMES];
    unsigned granted;
    const char *broken; /* the first invariant that did not hold */
};

static const char *const names[NAMES] = {"a", "b"};

/* ---- chance ---- */

static uint64_t below(struct fuzz *f, uint64_t n)
{
    f->random ^= f->random << 13;
    f->random ^= f->random >> 7;
    f->random ^= f->random << 17;
    return (f->random >> 11) % n;
}

static bool percent(struct fuzz *f, uint64_t p)
{
    return below(f, 100) < p;
}

/* Mostly quick, sometimes longer than a lease. */
static uint64_t delay(struct fuzz *f)
{
    if (f->calm || percent(f, 20))
        return 0;
    return (percent(f, 5) ? below(f, 4000) : below(f, 60)) * MS;
}

static void upset(struct fuzz *f, enum script_call call, struct script_rule *rule)
{
    rule->reached = percent(f, 50);
    if (call == SCRIPT_CLAIM) {
        rule->act = percent(f, 70) ? SCRIPT_FAIL : SCRIPT_BUSY;
        rule->status = percent(f, 70) ? STILE_UNCERTAIN : STILE_UNREACHABLE;
        /* Only of a doubt something may be left at the server. */
        rule->reached &= rule->act == SCRIPT_FAIL && rule->status == STILE_UNCERTAIN;
    } else if (call == SCRIPT_RENEW) {
        rule->act = SCRIPT_UNKNOWN;
    } else if (call == SCRIPT_RELEASE && f->repeats) {
        rule->act = SCRIPT_FAIL; /* not final: core asks again */
        rule->status = percent(f, 50) ? STILE_UNREACHABLE : STILE_REFUSED;
    }
}

static struct script_rule decide(struct script *script, enum script_call call)
{
    struct fuzz *f = script->data;
    struct script_rule rule = {.there_ns = delay(f), .back_ns = delay(f)};

    rule.inside = !f->calm && call < SCRIPT_CALLS && percent(f, 10);
    if (!f->calm && percent(f, call == SCRIPT_RENEW ? 30 : call == SCRIPT_RELEASE ? 10 : 15))
        upset(f, call, &rule);
    return rule;
}

/* ---- invariants ---- */

static void broken(struct fuzz *f, const char *what)
{
    if (!f->broken)
        f->broken = what;
    if (f->world.script->log)
        (void)fprintf(f->world.script->log, "# %s\n", what);
}

static void look(struct world *world)
{
    struct fuzz *f = world->data;
    unsigned held[NAMES] = {0};

    for (size_t i = 0; i < HANDLES; i++) {
        struct handle *h = &f->handles[i];
        uint64_t token;
        if (!h->lock || !stile_lock_held(h->lock))
            continue;
        if (held[h->name]++)
            broken(f, "two hold it at the same time");
        const struct place *place = model_place(&world->script->model, names[h->name]);
        if (stile_lock_token(h->lock, &token) || !place->holder || place->holder->token != token ||
            model_expires(place->holder) <= world_now(world))
            broken(f, "held here, but not at the server");
    }
}

static void done(struct stile_lock *lock, enum stile_status status, const struct stile_error *err,
                 void *data)
{
    struct call *call = data;
    struct fuzz *f = call->fuzz;
    uint64_t token;

    (void)err;
    if (call->answers++)
        broken(f, "a call was answered twice");
    if (call->handle->lock != lock)
        return; /* freed meanwhile */
    call->handle->calling = false;
    if (!status && call->acquires && lock->state == HELD && !stile_lock_held(lock))
        broken(f, "granted when its deadline was over");
    if (status || !stile_lock_held(lock))
        return;
    f->granted++;
    if (stile_lock_token(lock, &token) || token <= f->last_token[call->handle->name])
        broken(f, "a token that does not grow");
    f->last_token[call->handle->name] = token;
}

/* ---- what clients do ---- */

static struct call *new_call(struct fuzz *f, struct handle *h)
{
    struct call *call = &f->calls[f->n_calls];

    *call = (struct call){.fuzz = f, .handle = h};
    return call;
}

static void make(struct fuzz *f, struct handle *h)
{
    int64_t ttl_ms = 500 + (int64_t)below(f, 2000);

    if (stile_lock_new(&h->lock, f->world.clients[h->client], names[h->name],
                       STILE_OPTIONS(.ttl_ms = ttl_ms, .retry_ms = 20), NULL))
        broken(f, "no lock could be made");
    h->calling = false;
}

static void acquire(struct fuzz *f, struct handle *h)
{
    static const int64_t waits[] = {0, -1, -1, 50, 1000, 8000};
    struct call *call = new_call(f, h);

    call->acquires = true;
    if (stile_lock_acquire_async(h->lock, waits[below(f, 6)], done, call) == STILE_OK) {
        f->n_calls++;
        h->calling = true;
    }
}

static void give_back(struct fuzz *f, struct handle *h)
{
    struct call *call = new_call(f, h);

    if (stile_lock_release_async(h->lock, done, call) == STILE_OK) {
        f->n_calls++;
        h->calling = true;
    }
}

static void act(struct fuzz *f)
{
    struct handle *h = &f->handles[below(f, HANDLES)];
    uint64_t what = below(f, 100);

    if (what < 8) {
        f->world.paused[h->client] = !f->world.paused[h->client];
    } else if (f->world.paused[h->client]) {
        if (percent(f, 30))
            f->world.paused[h->client] = false;
    } else if (what < 14) {
        stile_lock_free(h->lock);
        make(f, h);
    } else if (h->calling) {
        if (what < 40)
            (void)stile_lock_cancel(h->lock);
    } else if (stile_lock_held(h->lock) || what > 90) {
        give_back(f, h);
    } else {
        acquire(f, h);
    }
}

/* ---- a life ---- */

static void open_fuzz(struct fuzz *f, uint64_t seed, FILE *log)
{
    static const struct {
        enum stile_lease lease;
        unsigned flags;
    } kinds[] = {{STILE_LEASE_CLAIM, 0},
                 {STILE_LEASE_CLAIM, SCRIPT_APART},
                 {STILE_LEASE_SESSION, SCRIPT_APART},
                 {STILE_LEASE_PROCESS, 0}};

    *f = (struct fuzz){.random = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15)};
    f->class = *script_variant(kinds[seed % 4].lease, kinds[seed % 4].flags);
    f->class.in_flight = seed % 7 < 3 ? 1 + seed % 7 : 0;
    world_open(&f->world, 2 + seed % 3, &f->class, seed);
    f->repeats = kinds[seed % 4].lease != STILE_LEASE_PROCESS;
    f->world.data = f->world.script->data = f;
    f->world.look = look;
    f->world.script->decide = decide;
    f->world.script->polled = seed % 5 == 0;
    f->world.script->log = log;
    for (size_t i = 0; i < HANDLES; i++) {
        f->handles[i].client = i % f->world.n;
        f->handles[i].name = percent(f, 70) ? 0 : 1;
        make(f, &f->handles[i]);
    }
}

static void calm_down(struct fuzz *f)
{
    f->calm = true;
    for (size_t i = 0; i < f->world.n; i++)
        f->world.paused[i] = false;
    for (int round = 0; round < 2 * HANDLES; round++) {
        world_pass(&f->world, 10 * SEC);
        for (size_t i = 0; i < HANDLES; i++) {
            if (stile_lock_held(f->handles[i].lock) && !f->handles[i].calling)
                give_back(f, &f->handles[i]);
        }
    }
    for (size_t i = 0; i < HANDLES; i++) {
        if (f->handles[i].calling)
            broken(f, "somebody waits in vain");
    }
    for (size_t i = 0; i < HANDLES; i++) {
        stile_lock_free(f->handles[i].lock);
        f->handles[i].lock = NULL;
    }
    world_pass(&f->world, 20 * SEC);
}

static void check_end(struct fuzz *f)
{
    struct model *model = &f->world.script->model;

    for (size_t i = 0; i < f->n_calls; i++) {
        if (f->calls[i].answers != 1)
            broken(f, "a call was not answered exactly once");
    }
    for (size_t i = 0; i < NAMES; i++) {
        struct place *place = model_place(model, names[i]);
        model_settle(place);
        if (place->holder)
            broken(f, "somebody still holds it at the server");
    }
    if (model_waiting(model))
        broken(f, "somebody is still in a queue");
    for (size_t i = 0; i < f->world.n; i++) {
        if (f->world.clients[i]->locks)
            broken(f, "a lock that was freed is still there");
    }
}

static const char *live(uint64_t seed, FILE *log, unsigned *granted)
{
    static struct fuzz f;

    open_fuzz(&f, seed, log);
    for (int i = 0; i < ACTIONS && !f.broken; i++) {
        act(&f);
        world_pass(&f.world, below(&f, percent(&f, 10) ? 3000 : 150) * MS);
    }
    if (!f.broken)
        calm_down(&f);
    if (!f.broken)
        check_end(&f);
    *granted += f.granted;
    f.calm = true;
    world_close(&f.world);
    return f.broken;
}

static void run(uint64_t seed, unsigned *granted)
{
    const char *broken = live(seed, NULL, granted);

    if (!broken)
        return;
    (void)live(seed, stderr, granted);
    fail_msg("%s; again with STILE_SEED=%llu", broken, (unsigned long long)seed);
}

static void nothing_breaks(void **state)
{
    const char *seed = getenv("STILE_SEED"), *soak = getenv("STILE_SOAK");
    uint64_t seeds = soak && strcmp(soak, "0") != 0 ? SOAK_SEEDS : SEEDS;
    unsigned granted = 0;

    (void)state;
    if (seed) {
        const char *broken = live(strtoull(seed, NULL, 10), stderr, &granted);
        if (broken)
            fail_msg("%s", broken);
        return;
    }
    for (uint64_t i = 0; i < seeds; i++)
        run(i, &granted);
    print_message("# %llu schedules, %u grants\n", (unsigned long long)seeds, granted);
    assert_true(granted > 5 * seeds); /* they do get it */
}

static void the_same_seed_gives_the_same_trace(void **state)
{
    char *texts[2];
    size_t sizes[2];
    unsigned granted = 0;

    (void)state;
    for (int i = 0; i < 2; i++) {
        FILE *log = open_memstream(&texts[i], &sizes[i]);
        assert_non_null(log);
        (void)live(7, log, &granted);
        (void)fclose(log);
    }
    assert_true(sizes[0] > 1000);
    assert_string_equal(texts[0], texts[1]);
    free(texts[0]);
    free(texts[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_seed_gives_the_same_trace),
        cmocka_unit_test(nothing_breaks),
    };
    return cmocka_run_group_tests_name("core_random", tests, NULL, NULL);
}
