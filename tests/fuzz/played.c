/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz/played.h"

#include "base/url.h"
#include "core/client.h"
#include "stile/cell.h"
#include "stile/guard.h"
#include "support/loop_virtual.h"

#define NAME       "x"
#define TTL_MS     2000
#define TURNS_MAX  100000 /* of the loop, in one wait: more is a standstill */
#define ACTS_MAX   3
#define PATIENCE_S 30

struct loop *played_loop;

/* ---- the input ---- */

static struct {
    const uint8_t *data;
    size_t size, at;
} input;

bool played_is_over(void)
{
    return input.at >= input.size;
}

unsigned played_next(void)
{
    return played_is_over() ? 0 : input.data[input.at++];
}

unsigned played_pick(unsigned n)
{
    return played_next() % n;
}

const uint8_t *played_bytes(size_t *n, size_t most)
{
    const uint8_t *bytes = input.data + input.at;
    *n = played_pick((unsigned)most + 1);
    bytes = input.data + input.at;
    *n = *n < input.size - input.at ? *n : input.size - input.at;
    input.at += *n;
    return bytes;
}

uint64_t played_delay_ns(void)
{
    static const uint64_t delays[] = {0, 1, 20, 600, 2500, 9000};
    unsigned i = played_is_over() ? 12 : played_pick(16);
    return i < 10 ? 0 : delays[i - 10] * NS_PER_MS;
}

static void do_nothing(struct task *task)
{
    (void)task;
}

/* A turn with a task in it does not sleep. */
static struct task turn = {.fn = do_nothing};

void played_fire(int fd, uint32_t events)
{
    if (loop_virtual_fire(played_loop, fd, events))
        loop_soon(played_loop, &turn);
}

/* ---- time ---- */

static uint64_t next_ns(void)
{
    if (played_loop->tasks)
        return 0;
    return played_loop->n_timers ? played_loop->heap[0]->at_ns : NEVER;
}

/* Lets time pass until it is done, or for so long. */
static void pass(struct stile_client *client, uint64_t ns, const bool *done)
{
    uint64_t until = loop_now(played_loop) + ns, at = 0;
    unsigned turns = 0;
    while (!(done && *done) && (client->callbacks.first || (at = next_ns()) <= until)) {
        uint64_t now = loop_now(played_loop);
        if (!client->callbacks.first && at > now)
            loop_virtual_jump(played_loop, at - now);
        MUST(stile_client_dispatch(client) == STILE_OK && ++turns < TURNS_MAX);
    }
}

/* ---- what is reported ---- */

static int take_info(const struct stile_info *info, void *data)
{
    (void)data;
    for (size_t i = 0; i < info->holders + info->waiters; i++) {
        const struct stile_claim_info *claim = &info->claims[i];
        MUST(claim->owner && claim->host && claim->command);
        MUST(claim->age_ms >= -1);
        MUST(strlen(claim->owner) + strlen(claim->host) + strlen(claim->command) < 1 << 16);
    }
    return played_pick(3) == 2;
}

static int take_finding(const struct stile_finding *finding, void *data)
{
    (void)data;
    MUST(finding->id && finding->what);
    return 0;
}

static int take_cell(const struct stile_cell *cell, void *data)
{
    (void)data;
    MUST(cell->key && cell->issuer && cell->token <= STILE_TOKEN_MAX);
    return played_pick(3) == 2;
}

/* ---- locks ---- */

struct hand {
    struct stile_lock *lock;
    bool done;
};

static void on_done(struct stile_lock *lock, enum stile_status status,
                    const struct stile_error *err, void *data)
{
    struct hand *hand = data;
    (void)lock;
    MUST(!hand->done && (err ? err->status : STILE_OK) == status);
    hand->done = true;
}

static bool make(struct hand *hand, struct stile_client *client)
{
    static const enum stile_mode modes[] = {STILE_EXCLUSIVE, STILE_EXCLUSIVE, STILE_SHARED,
                                            STILE_SLOTS};
    enum stile_mode mode = modes[played_pick(4)];
    unsigned extras = played_next();
    struct stile_lock_options options =
        *STILE_OPTIONS(.mode = mode, .slots = mode == STILE_SLOTS ? 2 : 0, .ttl_ms = TTL_MS,
                       .hold_at_least_ms = extras & 1 ? 500 : 0,
                       .lock_delay_ms = extras & 2 ? 500 : 0,
                       .proclaim = extras % 8 == 4 ? "public" : NULL);
    return stile_lock_new(&hand->lock, client, NAME, &options, NULL) == STILE_OK;
}

static void look_at(struct stile_client *client, const struct hand *hand)
{
    uint64_t token = 0;
    enum stile_status status = stile_lock_token(hand->lock, &token);
    if (!stile_lock_held(hand->lock))
        return;
    MUST(stile_lock_remaining_ms(hand->lock) >= 0);
    MUST(token <= STILE_TOKEN_MAX && (status || token || !stile_client_caps(client)->token));
}

static void hold(struct stile_client *client, struct hand *hand)
{
    look_at(client, hand);
    if (played_pick(4) == 3 && !stile_lock_record_start(hand->lock, NULL))
        stile_lock_record_end(hand->lock, 1, NULL);
    if (played_pick(2))
        pass(client, played_next() * 50 * NS_PER_MS, NULL);
    look_at(client, hand);
    stile_lock_release(hand->lock, NULL);
}

/* One tries, another waits behind it, and has it afterwards. */
static void lock(struct stile_client *client)
{
    struct hand first = {0}, second = {0};
    if (make(&first, client)) {
        bool held = !stile_lock_acquire(first.lock, played_pick(2) ? 0 : 3000, NULL);
        bool waits = played_pick(2) && make(&second, client) &&
                     !stile_lock_acquire_async(second.lock, 5000, on_done, &second);
        if (held)
            hold(client, &first);
        if (waits) {
            pass(client, PATIENCE_S * NS_PER_SEC, &second.done);
            MUST(second.done);
            hold(client, &second);
        }
    }
    if (second.lock)
        stile_lock_free(second.lock);
    if (first.lock)
        stile_lock_free(first.lock);
}

/* ---- cells ---- */

static void use_cell(struct stile_client *client)
{
    struct stile_cell *cell = NULL;
    switch (played_pick(6)) {
    case 0:
        if (!stile_cell_get(&cell, client, NAME, NULL))
            take_cell(cell, NULL);
        stile_cell_free(cell);
        break;
    case 1:
        stile_cell_put(NULL, client, NAME, "value", 5,
                       STILE_CELL_OPTIONS(.token = 5, .issuer = "a:b"), NULL);
        break;
    case 2:
        stile_cell_list(client, "", take_cell, NULL, NULL);
        break;
    case 3:
        stile_cell_watch(client, NAME, 1500, take_cell, NULL, NULL);
        break;
    case 4:
        stile_cell_remove(client, NAME, STILE_CELL_OPTIONS(.token = 6), NULL);
        break;
    default:
        stile_guard_raise(client, NAME, 5, STILE_GUARD_OPTIONS(.issuer = "a:b"), NULL);
    }
}

/* ---- all of it ---- */

static void act(struct stile_client *client)
{
    switch (played_pick(8)) {
    case 0:
        stile_show(client, NAME, take_info, NULL, NULL);
        break;
    case 1:
        stile_list(client, played_pick(2) ? "" : NAME, take_info, NULL, NULL);
        break;
    case 2:
        stile_break(client, NAME, played_pick(3), NULL);
        break;
    case 3:
        stile_watch(client, NAME, 2500, take_info, NULL, NULL);
        break;
    case 4:
        use_cell(client);
        break;
    default:
        lock(client);
    }
}

static void use(const struct engine_class *class, const struct url *url)
{
    struct stile_client *client;
    bool examine = played_pick(16) == 15;
    if (client_new(&client, class, played_loop, url,
                   STILE_CLIENT_OPTIONS(.threadless = true, .examine = examine), NULL))
        return;
    for (unsigned n = examine ? 0 : 1 + played_pick(ACTS_MAX); n; n--)
        act(client);
    if (examine)
        stile_doctor(client, 0, take_finding, NULL, NULL);
    stile_client_close(client);
}

void played_run(const struct engine_class *class, const char *const *urls, size_t n_urls,
                const uint8_t *data, size_t size)
{
    struct url *url;
    input.data = data;
    input.size = size;
    input.at = 0;
    turn = (struct task){.fn = do_nothing};
    MUST(!url_parse(&url, urls[played_pick((unsigned)n_urls)], NULL));
    MUST(loop_virtual_new(&played_loop, 1) == 0);
    use(class, url);
    url_free(url);
}
