/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* break: the lock is taken from its holder, which is notified (LESSONS row 1); what it still does
 * is refused or carries a smaller token. */
#include "contract.h"

static struct peer *holder_of(struct scene *s, uint64_t *token)
{
    /* A short lease is renewed often, so that engines that report with the renewal do so soon. */
    struct peer *peer = peer_start(s, s->name, STILE_OPTIONS(.ttl_ms = 3000));
    *token = peer_acquire(peer);
    return peer;
}

static void test_broken_holder_is_told(void **state)
{
    struct scene *s = *state;
    uint64_t token;
    struct peer *holder = holder_of(s, &token);
    check_ok(stile_break(s->client, s->name, 0, &why));
    peer_tell(holder, "lost");
    peer_expect(holder, "lost");
    peer_tell(holder, "release");
    peer_expect(holder, "failed LOST");
    check_free(s, s->name);
    uint64_t again = peer_acquire(holder);
    assert_true(!s->caps->token || again > token);
    peer_release(holder);
}

static void test_break_lets_the_next_waiter_in(void **state)
{
    struct scene *s = *state;
    uint64_t token;
    struct peer *holder = holder_of(s, &token), *waiter = peer_start(s, s->name, NULL);
    peer_tell(waiter, "acquire %d", PATIENCE_MS);
    await_state(s, s->name, 1, 1);
    check_ok(stile_break(s->client, s->name, 0, &why));
    uint64_t next = peer_expect_grant(waiter);
    assert_true(!s->caps->token || next > token);
    peer_tell(holder, "lost");
    peer_expect(holder, "lost");
}

/* A late release must not free what is another's by now. */
static void test_late_release_frees_nobody_elses(void **state)
{
    struct scene *s = *state;
    uint64_t token;
    struct seen seen;
    struct peer *holder = holder_of(s, &token);
    peer_stop(holder);
    check_ok(stile_break(s->client, s->name, 0, &why));
    struct stile_lock *lock = lock_on(s->client, s->name, NULL);
    check_ok(stile_lock_acquire(lock, PATIENCE_MS, &why));
    peer_continue(holder);
    peer_tell(holder, "release");
    peer_expect(holder, "failed LOST");
    look(s->client, s->name, &seen);
    assert_int_equal(seen.holders, 1);
    assert_true(seen.claims[0].token == token_of(lock));
    peer_tell(holder, "acquire 0");
    peer_expect(holder, "failed HELD");
    check_ok(stile_lock_release(lock, &why));
}

static void test_break_of_one_grant_only(void **state)
{
    struct scene *s = *state;
    uint64_t token;
    struct peer *holder = holder_of(s, &token);
    if (!s->caps->token)
        return;
    check_status(STILE_CONFLICT, stile_break(s->client, s->name, token + 1, &why));
    peer_tell(holder, "held");
    peer_expect(holder, "held");
    check_ok(stile_break(s->client, s->name, token, &why));
    peer_tell(holder, "lost");
    peer_expect(holder, "lost");
    check_status(STILE_CONFLICT, stile_break(s->client, s->name, token, &why));
    check_status(STILE_MISUSE, stile_break(s->client, "", 0, &why));
}

/* Our own client's lock, so that break and loss meet in one loop. */
static void note_loss(struct stile_lock *lock, void *data)
{
    (void)lock;
    sem_post(data);
}

static void test_break_of_our_own(void **state)
{
    struct scene *s = *state;
    sem_t *notified = scene_semaphore(s);
    struct stile_lock *lock = held_on(
        s->client, s->name, STILE_OPTIONS(.on_lost = note_loss, .data = notified, .ttl_ms = 3000));
    int fd = stile_lock_lost_fd(lock);
    assert_true(fd >= 0);
    assert_int_equal(stile_lock_lost_fd(lock), fd);
    assert_false(readable(fd, 0));
    check_ok(stile_break(s->client, s->name, 0, &why));
    assert_true(readable(fd, PATIENCE_MS));
    await_post(notified);
    assert_false(stile_lock_held(lock));
    check_status(STILE_LOST, stile_lock_release(lock, &why));
    check_ok(stile_lock_acquire(lock, 0, &why));
    assert_false(readable(fd, 0)); /* until the next acquire */
    check_ok(stile_lock_release(lock, &why));
    assert_int_equal(sem_trywait(notified), -1);
}

/* The release of what is left of the old grant must not remove the new one. */
static void test_acquire_after_a_loss(void **state)
{
    struct scene *s = *state;
    struct stile_client *second = scene_client(s, NULL);
    sem_t *notified = scene_semaphore(s);
    struct stile_lock *lock = held_on(
        s->client, s->name, STILE_OPTIONS(.on_lost = note_loss, .data = notified, .ttl_ms = 3000));
    for (int i = 0; i < 3; i++) {
        check_ok(stile_break(s->client, s->name, 0, &why));
        await_post(notified);
        check_ok(stile_lock_acquire(lock, PATIENCE_MS, &why));
        assert_true(stile_lock_held(lock));
        struct stile_lock *other = lock_on(second, s->name, NULL);
        check_status(STILE_HELD, stile_lock_acquire(other, 0, &why));
        stile_lock_free(other);
    }
    check_ok(stile_lock_release(lock, &why));
    assert_int_equal(sem_trywait(notified), -1);
}

/* Asked for after the loss, the fd must not miss it. */
static void test_lost_fd_made_after_the_loss(void **state)
{
    struct scene *s = *state;
    sem_t *notified = scene_semaphore(s);
    struct stile_lock *lock = held_on(
        s->client, s->name, STILE_OPTIONS(.on_lost = note_loss, .data = notified, .ttl_ms = 3000));
    check_ok(stile_break(s->client, s->name, 0, &why));
    await_post(notified);
    assert_true(readable(stile_lock_lost_fd(lock), 0));
    stile_lock_free(lock);
    check_free(s, s->name);
}

static void break_all_of(struct scene *s, const struct stile_lock_options *options)
{
    struct peer *holders[3], *next = peer_start(s, s->name, NULL);
    for (size_t i = 0; i < COUNT(holders); i++) {
        holders[i] = peer_start(s, s->name, options);
        peer_acquire(holders[i]);
    }
    peer_tell(next, "acquire %d", PATIENCE_MS);
    await_state(s, s->name, COUNT(holders), 1);
    check_ok(stile_break(s->client, s->name, 0, &why));
    peer_expect_grant(next);
    for (size_t i = 0; i < COUNT(holders); i++) {
        peer_tell(holders[i], "lost");
        peer_expect(holders[i], "lost");
        peer_tell(holders[i], "release");
        peer_expect(holders[i], "failed LOST");
    }
    peer_release(next);
    check_free(s, s->name);
}

static void test_break_of_all_readers(void **state)
{
    struct scene *s = *state;
    if (has_mode(s, STILE_SHARED))
        break_all_of(s, STILE_OPTIONS(.mode = STILE_SHARED, .ttl_ms = 3000));
}

static void test_break_of_all_slots(void **state)
{
    struct scene *s = *state;
    if (has_mode(s, STILE_SLOTS))
        break_all_of(s, STILE_OPTIONS(.mode = STILE_SLOTS, .slots = 3, .ttl_ms = 3000));
}

/* clang-format off */
SUITE_PART(breaking,
    SCENE_TEST(test_broken_holder_is_told),
    SCENE_TEST(test_break_lets_the_next_waiter_in),
    SCENE_TEST(test_late_release_frees_nobody_elses),
    SCENE_TEST(test_break_of_one_grant_only),
    SCENE_TEST(test_break_of_our_own),
    SCENE_TEST(test_acquire_after_a_loss),
    SCENE_TEST(test_lost_fd_made_after_the_loss),
    SCENE_TEST(test_break_of_all_readers),
    SCENE_TEST(test_break_of_all_slots))
/* clang-format on */
