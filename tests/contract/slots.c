/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* At most N at a time, and as many again after any number of deaths. */
#include "contract.h"

#define SLOTS   3
#define WORKERS 5

static const struct stile_lock_options *slot(const struct scene *s)
{
    static struct stile_lock_options options;
    options = *STILE_OPTIONS(.mode = STILE_SLOTS, .slots = SLOTS, .ttl_ms = short_ttl(s));
    return &options;
}

static void test_slots_are_counted(void **state)
{
    struct scene *s = *state;
    struct stile_lock *locks[SLOTS + 1];
    struct seen seen;
    if (!has_mode(s, STILE_SLOTS))
        return;
    for (size_t i = 0; i < SLOTS; i++) {
        struct peer *peer = peer_start(s, s->name, slot(s));
        peer_tell(peer, "acquire 0");
        peer_expect_grant(peer);
    }
    for (size_t i = 0; i <= SLOTS; i++)
        locks[i] = lock_on(scene_client(s, NULL), s->name, slot(s));
    check_status(STILE_HELD, stile_lock_acquire(locks[0], 0, &why));
    look(s->client, s->name, &seen);
    assert_int_equal(seen.holders, SLOTS);
    assert_int_equal(seen.claims[0].mode, STILE_SLOTS);
    for (size_t i = 0; i < SLOTS; i++) {
        peer_release(s->peers[i]);
        check_ok(stile_lock_acquire(locks[i], 0, &why));
        check_status(STILE_HELD, stile_lock_acquire(locks[SLOTS], 0, &why));
    }
    for (size_t i = 0; i < SLOTS; i++)
        check_ok(stile_lock_release(locks[i], &why));
    check_free(s, s->name);
}

/* Threads of one program take slots as programs do, and leave room for as many others. */
static void test_slots_of_one_client(void **state)
{
    struct scene *s = *state;
    struct stile_lock *locks[SLOTS], *more, *all;
    if (!has_mode(s, STILE_SLOTS))
        return;
    struct peer *peer = peer_start(s, s->name, slot(s));
    for (size_t i = 0; i < SLOTS; i++) {
        locks[i] = lock_on(s->client, s->name, slot(s));
        check_ok(stile_lock_acquire(locks[i], 0, &why));
    }
    more = lock_on(s->client, s->name, slot(s));
    all = lock_on(s->client, s->name, NULL);
    check_status(STILE_HELD, stile_lock_acquire(more, 0, &why));
    check_status(STILE_HELD, stile_lock_acquire(all, 0, &why));
    peer_tell(peer, "acquire 0");
    peer_expect(peer, "failed HELD");
    check_ok(stile_lock_release(locks[1], &why));
    peer_acquire(peer);
    check_status(STILE_HELD, stile_lock_acquire(more, 0, &why));
    assert_true(stile_lock_held(locks[0]) && stile_lock_held(locks[2]));
    check_ok(stile_lock_release(locks[0], &why));
    check_ok(stile_lock_release(locks[2], &why));
    peer_release(peer);
    check_ok(stile_lock_acquire(all, 0, &why));
    check_status(STILE_HELD, stile_lock_acquire(more, 0, &why));
    check_ok(stile_lock_release(all, &why));
    check_free(s, s->name);
}

/* An exclusive claim waits for every slot, and keeps every slot. */
static void test_slots_and_exclusive(void **state)
{
    struct scene *s = *state;
    if (!has_mode(s, STILE_SLOTS))
        return;
    struct peer *peer = peer_start(s, s->name, slot(s));
    struct stile_lock *all = lock_on(s->client, s->name, NULL);
    peer_acquire(peer);
    check_status(STILE_HELD, stile_lock_acquire(all, 0, &why));
    peer_release(peer);
    check_ok(stile_lock_acquire(all, 0, &why));
    peer_tell(peer, "acquire 0");
    peer_expect(peer, "failed HELD");
    check_ok(stile_lock_release(all, &why));
    peer_acquire(peer);
}

static void test_slots_under_load(void **state)
{
    struct scene *s = *state;
    struct peer *peers[WORKERS];
    if (!has_mode(s, STILE_SLOTS))
        return;
    for (size_t i = 0; i < WORKERS; i++)
        peers[i] = peer_start(s, s->name, slot(s));
    for (size_t i = 0; i < WORKERS; i++)
        peer_tell(peers[i], "crowd %u", scene_rounds(s, 500, 20));
    for (size_t i = 0; i < WORKERS; i++)
        peer_expect(peers[i], "crowded");
    assert_in_range(suite.arena->most, 1, SLOTS);
    assert_int_equal(suite.arena->within, 0);
    check_free(s, s->name);
}

static void check_all_slots_are_there(struct scene *s)
{
    struct stile_lock *locks[SLOTS], *more = NULL;
    struct stile_client *clients[SLOTS];
    for (size_t i = 0; i < SLOTS; i++) {
        clients[i] = i ? scene_client(s, NULL) : s->client;
        locks[i] = lock_on(clients[i], s->name, slot(s));
        check_ok(stile_lock_acquire(locks[i], PATIENCE_MS, &why));
    }
    more = lock_on(scene_client(s, NULL), s->name, slot(s));
    check_status(STILE_HELD, stile_lock_acquire(more, 0, &why));
    for (size_t i = 0; i < SLOTS; i++)
        check_ok(stile_lock_release(locks[i], &why));
    check_free(s, s->name);
}

static void test_killed_holders_give_their_slots_back(void **state)
{
    struct scene *s = *state;
    if (!has_mode(s, STILE_SLOTS))
        return;
    for (size_t i = 0; i < 2 * SLOTS; i++) {
        struct peer *peer = peer_start(s, s->name, slot(s));
        peer_acquire(peer);
        peer_kill(peer);
        peer_forget(s, peer);
    }
    check_all_slots_are_there(s);
}

/* Holders and waiters die together; each survivor gets a slot. */
static void test_slots_after_kills_in_the_queue(void **state)
{
    struct scene *s = *state;
    struct peer *holders[SLOTS], *waiters[4];
    if (!has_mode(s, STILE_SLOTS))
        return;
    for (size_t i = 0; i < SLOTS; i++) {
        holders[i] = peer_start(s, s->name, slot(s));
        peer_acquire(holders[i]);
    }
    for (size_t i = 0; i < COUNT(waiters); i++) {
        waiters[i] = peer_start(s, s->name, slot(s));
        peer_tell(waiters[i], "acquire %d", PATIENCE_MS);
        await_state(s, s->name, SLOTS, i + 1);
    }
    peer_kill(waiters[0]);
    peer_kill(waiters[2]);
    peer_kill(holders[0]);
    peer_kill(holders[1]);
    peer_expect_grant(waiters[1]);
    peer_expect_grant(waiters[3]);
    await_state(s, s->name, SLOTS, 0);
    peer_release(waiters[1]);
    peer_release(waiters[3]);
    peer_release(holders[2]);
    check_all_slots_are_there(s);
}

/* clang-format off */
SUITE_PART(slots,
    SCENE_TEST(test_slots_are_counted),
    SCENE_TEST(test_slots_of_one_client),
    SCENE_TEST(test_slots_and_exclusive),
    SCENE_TEST(test_slots_under_load),
    SCENE_TEST(test_killed_holders_give_their_slots_back),
    SCENE_TEST(test_slots_after_kills_in_the_queue))
/* clang-format on */
