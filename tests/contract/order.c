/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* First come, first served, where the engine keeps a queue; and every waiter is served. */
#include "contract.h"

#define QUEUED 5

static void start_queue(struct scene *s, struct peer **peers, size_t n)
{
    struct seen seen = {.holders = 0};
    for (size_t i = 0; i < n; i++)
        peers[i] = peer_start(s, s->name, STILE_OPTIONS(.ttl_ms = short_ttl(s)));
    for (size_t i = 0; i < n; i++) {
        peer_tell(peers[i], "acquire %d", PATIENCE_MS);
        await_seen(s, s->name, 1, i + 1, &seen);
    }
    if (!s->caps->fifo)
        return;
    for (size_t i = 0; i < n && seen.claims[1 + i].pid; i++)
        assert_int_equal(seen.claims[1 + i].pid, peers[i]->pid);
}

/* Takes the next grant and gives it back; which one of peers it was. */
static size_t serve_next(struct peer *const *peers, size_t n, uint64_t *last_token)
{
    size_t next = peer_first(peers, n);
    uint64_t token = peer_expect_grant(peers[next]);
    assert_true(token == 0 || token > *last_token);
    *last_token = token;
    peer_release(peers[next]);
    return next;
}

static void test_processes_are_served_in_order(void **state)
{
    struct scene *s = *state;
    struct peer *peers[QUEUED];
    struct stile_lock *holder = held_on(s->client, s->name, NULL);
    uint64_t last = token_of(holder);
    unsigned served = 0;
    start_queue(s, peers, QUEUED);
    check_ok(stile_lock_release(holder, &why));
    for (size_t i = 0; i < QUEUED; i++) {
        size_t next = serve_next(peers, QUEUED, &last);
        if (s->caps->fifo)
            assert_int_equal(next, i);
        served |= 1u << next;
    }
    assert_int_equal(served, (1u << QUEUED) - 1);
    check_free(s, s->name);
}

/* A claim that comes back goes to the end. */
static void test_nobody_overtakes_by_coming_back(void **state)
{
    struct scene *s = *state;
    struct peer *peers[2];
    struct stile_lock *holder = held_on(s->client, s->name, NULL);
    uint64_t last = 0;
    start_queue(s, peers, 2);
    check_ok(stile_lock_release(holder, &why));
    size_t first = peer_first(peers, 2);
    peer_expect_grant(peers[first]);
    peer_release(peers[first]);
    peer_tell(peers[first], "acquire %d", PATIENCE_MS);
    size_t second = serve_next(peers, 2, &last), third = serve_next(peers, 2, &last);
    if (s->caps->fifo) {
        assert_int_equal(first, 0);
        assert_int_equal(second, 1);
        assert_int_equal(third, 0);
    }
    check_free(s, s->name);
}

/* A single try never overtakes the waiters, not even in the moment of a release. */
static void test_a_try_does_not_jump_the_queue(void **state)
{
    struct scene *s = *state;
    struct peer *peers[1];
    struct stile_lock *holder = held_on(s->client, s->name, NULL);
    struct stile_lock *other = lock_on(scene_client(s, NULL), s->name, NULL);
    start_queue(s, peers, 1);
    check_ok(stile_lock_release(holder, &why));
    if (s->caps->fifo)
        check_status(STILE_HELD, stile_lock_acquire(other, 0, &why));
    peer_expect_grant(peers[0]);
    peer_release(peers[0]);
    check_free(s, s->name);
}

/* ---- one client's own locks ---- */

struct line {
    struct stile_lock *granted[QUEUED];
    int n;
    sem_t one_more;
};

static void note_grant(struct stile_lock *lock, enum stile_status status,
                       const struct stile_error *err, void *data)
{
    struct line *line = data;
    (void)err;
    line->granted[line->n++] = status ? NULL : lock;
    sem_post(&line->one_more);
}

static void test_handles_of_one_client_are_served_in_order(void **state)
{
    struct scene *s = *state;
    struct line *line = scene_memory(s, sizeof *line);
    sem_init(&line->one_more, 0, 0);
    struct stile_lock *locks[QUEUED];
    struct stile_lock *holder = held_on(s->client, s->name, NULL);
    for (int i = 0; i < QUEUED; i++) {
        locks[i] = lock_on(s->client, s->name, NULL);
        check_ok(stile_lock_acquire_async(locks[i], PATIENCE_MS, note_grant, line));
    }
    check_ok(stile_lock_release(holder, &why));
    for (int i = 0; i < QUEUED; i++) {
        await_post(&line->one_more);
        assert_non_null(line->granted[i]);
        if (s->caps->fifo)
            assert_ptr_equal(line->granted[i], locks[i]);
        check_ok(stile_lock_release(line->granted[i], &why));
    }
    check_free(s, s->name);
}

/* clang-format off */
SUITE_PART(order,
    SCENE_TEST(test_processes_are_served_in_order),
    SCENE_TEST(test_nobody_overtakes_by_coming_back),
    SCENE_TEST(test_a_try_does_not_jump_the_queue),
    SCENE_TEST(test_handles_of_one_client_are_served_in_order))
/* clang-format on */
