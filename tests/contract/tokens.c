/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The token only grows, whichever client holds and however it ended (LESSONS row 2). */
#include "contract.h"

#include <string.h>

/* Engines without tokens must say so; the rest of the test is then about nothing. */
static bool has_token(struct scene *s)
{
    uint64_t token = 0;
    if (s->caps->token)
        return true;
    struct stile_lock *lock = held_on(s->client, s->name, NULL);
    check_status(STILE_UNSUPPORTED, stile_lock_token(lock, &token));
    assert_int_equal(token, 0);
    check_ok(stile_lock_release(lock, &why));
    return false;
}

static uint64_t take(struct stile_lock *lock)
{
    check_ok(stile_lock_acquire(lock, PATIENCE_MS, &why));
    uint64_t token = token_of(lock);
    check_ok(stile_lock_release(lock, &why));
    return token;
}

static void test_tokens_grow_from_grant_to_grant(void **state)
{
    struct scene *s = *state;
    uint64_t last = 0;
    if (!has_token(s))
        return;
    struct stile_lock *a = lock_on(s->client, s->name, NULL);
    struct stile_lock *b = lock_on(scene_client(s, NULL), s->name, NULL);
    for (int i = 0; i < 20; i++) {
        uint64_t token = take(i % 3 ? a : b);
        assert_true(token > last);
        last = token;
    }
}

static void test_tokens_grow_across_processes(void **state)
{
    struct scene *s = *state;
    if (!has_token(s))
        return;
    struct stile_lock *lock = lock_on(s->client, s->name, NULL);
    uint64_t last = take(lock);
    for (int i = 0; i < 3; i++) {
        struct peer *peer = peer_start(s, s->name, NULL);
        uint64_t theirs = peer_acquire(peer);
        assert_true(theirs > last);
        peer_release(peer);
        peer_end(s, peer);
        last = take(lock);
        assert_true(last > theirs);
    }
}

/* Also where nobody was left to remember it. */
static void test_tokens_grow_across_closed_clients(void **state)
{
    struct scene *s = *state;
    uint64_t last = 0;
    if (!has_token(s))
        return;
    for (int i = 0; i < 4; i++) {
        struct peer *peer = peer_start(s, s->name, NULL);
        uint64_t token = peer_acquire(peer);
        assert_true(token > last);
        last = token;
        peer_end(s, peer);
    }
    struct seen seen;
    look(s->client, s->name, &seen);
    assert_true(seen.token >= last);
}

static void test_tokens_grow_across_kills(void **state)
{
    struct scene *s = *state;
    uint64_t last = 0;
    if (!has_token(s))
        return;
    for (int i = 0; i < 4; i++) {
        struct peer *peer = peer_start(s, s->name, STILE_OPTIONS(.ttl_ms = short_ttl(s)));
        uint64_t token = peer_acquire(peer);
        assert_true(token > last);
        last = token;
        peer_kill(peer);
    }
    assert_true(take(lock_on(s->client, s->name, NULL)) > last);
}

static void test_tokens_grow_across_failed_waits(void **state)
{
    struct scene *s = *state;
    if (!has_token(s))
        return;
    struct stile_lock *lock = lock_on(s->client, s->name, NULL);
    struct peer *peer = peer_start(s, s->name, NULL);
    uint64_t theirs = peer_acquire(peer), ours = 0;
    check_status(STILE_TIMEOUT, stile_lock_acquire(lock, 10, &why));
    check_status(STILE_HELD, stile_lock_acquire(lock, 0, &why));
    check_status(STILE_MISUSE, stile_lock_token(lock, &ours));
    peer_release(peer);
    assert_true(take(lock) > theirs);
}

/* A holder keeps its token to the end, and after a loss: that is what the guard needs. */
static void test_token_is_kept_after_a_loss(void **state)
{
    struct scene *s = *state;
    if (!has_token(s))
        return;
    struct stile_lock *lock = held_on(s->client, s->name, NULL);
    struct stile_lock *next = lock_on(scene_client(s, NULL), s->name, NULL);
    uint64_t ours = token_of(lock);
    assert_true(token_of(lock) == ours);
    check_ok(stile_break(s->client, s->name, 0, &why));
    assert_true(readable(stile_lock_lost_fd(lock), PATIENCE_MS));
    assert_true(token_of(lock) == ours);
    assert_true(take(next) > ours);
    check_status(STILE_LOST, stile_lock_release(lock, &why));
}

/* clang-format off */
SUITE_PART(tokens,
    SCENE_TEST(test_tokens_grow_from_grant_to_grant),
    SCENE_TEST(test_tokens_grow_across_processes),
    SCENE_TEST(test_tokens_grow_across_closed_clients),
    SCENE_TEST(test_tokens_grow_across_kills),
    SCENE_TEST(test_tokens_grow_across_failed_waits),
    SCENE_TEST(test_token_is_kept_after_a_loss))
/* clang-format on */
