/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Readers and writers. A reader waits for earlier writers only (LESSONS row 12). */
#include "contract.h"

#define READERS 4

static struct peer *reader_on(struct scene *s)
{
    return peer_start(s, s->name, STILE_OPTIONS(.mode = STILE_SHARED, .ttl_ms = short_ttl(s)));
}

static struct peer *writer_on(struct scene *s)
{
    return peer_start(s, s->name, STILE_OPTIONS(.ttl_ms = short_ttl(s)));
}

static void test_readers_share(void **state)
{
    struct scene *s = *state;
    struct peer *readers[READERS];
    struct seen seen;
    if (!has_mode(s, STILE_SHARED))
        return;
    for (size_t i = 0; i < READERS; i++) {
        readers[i] = reader_on(s);
        peer_tell(readers[i], "acquire 0");
        peer_expect_grant(readers[i]);
    }
    struct stile_lock *reader = held_on(s->client, s->name, STILE_OPTIONS(.mode = STILE_SHARED));
    struct stile_lock *writer = lock_on(s->client, s->name, NULL);
    check_status(STILE_HELD, stile_lock_acquire(writer, 0, &why));
    look(s->client, s->name, &seen);
    assert_int_equal(seen.holders, READERS + 1);
    assert_int_equal(seen.claims[0].mode, STILE_SHARED);
    for (size_t i = 0; i < READERS; i++)
        peer_release(readers[i]);
    check_status(STILE_HELD, stile_lock_acquire(writer, 0, &why));
    check_ok(stile_lock_release(reader, &why));
    check_ok(stile_lock_acquire(writer, 0, &why));
    peer_tell(readers[0], "acquire 0");
    peer_expect(readers[0], "failed HELD");
    check_ok(stile_lock_release(writer, &why));
}

/* Threads of one program read together, as programs do; and a writer of the same program waits. */
static void test_readers_of_one_client(void **state)
{
    struct scene *s = *state;
    if (!has_mode(s, STILE_SHARED))
        return;
    struct stile_lock *one = held_on(s->client, s->name, STILE_OPTIONS(.mode = STILE_SHARED));
    struct stile_lock *two = lock_on(s->client, s->name, STILE_OPTIONS(.mode = STILE_SHARED));
    struct stile_lock *writer = lock_on(s->client, s->name, NULL);
    struct seen seen;
    check_ok(stile_lock_acquire(two, 0, &why));
    look(s->client, s->name, &seen);
    assert_in_range(seen.holders, 1,
                    2); /* a server may know a session once, however often it reads */
    check_status(STILE_HELD, stile_lock_acquire(writer, 0, &why));
    check_ok(stile_lock_release(one, &why));
    assert_true(stile_lock_held(two));
    check_status(STILE_HELD, stile_lock_acquire(writer, 0, &why));
    check_ok(stile_lock_release(two, &why));
    check_ok(stile_lock_acquire(writer, 0, &why));
}

/* The writer goes in when the last reader has gone, and not before. */
static void test_writer_waits_for_every_reader(void **state)
{
    struct scene *s = *state;
    if (!has_mode(s, STILE_SHARED))
        return;
    struct peer *a = reader_on(s), *b = reader_on(s), *writer = writer_on(s);
    peer_acquire(a);
    peer_acquire(b);
    peer_tell(writer, "acquire %d", PATIENCE_MS);
    await_state(s, s->name, 2, 1);
    peer_release(a);
    await_state(s, s->name, 1, 1);
    peer_tell(b, "held");
    peer_expect(b, "held");
    peer_release(b);
    peer_expect_grant(writer);
    await_state(s, s->name, 1, 0);
    peer_release(writer);
    check_free(s, s->name);
}

static void queue_readers(struct scene *s, struct peer **readers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        readers[i] = reader_on(s);
        peer_tell(readers[i], "acquire 0");
        peer_expect(readers[i], "failed HELD");
        peer_tell(readers[i], "acquire %d", PATIENCE_MS);
        await_state(s, s->name, 1, i + 2);
    }
}

/* Row 12: a later reader waits for the earlier writer, else readers would starve it; and all
 * readers behind the writer go in together. Without a queue nobody is earlier. */
static void test_later_readers_wait_for_an_earlier_writer(void **state)
{
    struct scene *s = *state;
    struct peer *later[READERS];
    if (!has_mode(s, STILE_SHARED) || !s->caps->fifo)
        return;
    struct peer *first = reader_on(s), *writer = writer_on(s);
    uint64_t token = peer_acquire(first);
    peer_tell(writer, "acquire %d", PATIENCE_MS);
    await_state(s, s->name, 1, 1);
    queue_readers(s, later, READERS);
    peer_release(first);
    uint64_t written = peer_expect_grant(writer);
    assert_true(!s->caps->token || written > token);
    await_state(s, s->name, 1, READERS);
    peer_release(writer);
    for (size_t i = 0; i < READERS; i++)
        peer_expect_grant(later[i]);
    await_state(s, s->name, READERS, 0);
    for (size_t i = 0; i < READERS; i++)
        peer_release(later[i]);
    check_free(s, s->name);
}

/* Row 12: a reader that waits for an earlier writer does not wait for a later one. */
static void test_reader_does_not_wait_for_a_later_writer(void **state)
{
    struct scene *s = *state;
    if (!has_mode(s, STILE_SHARED))
        return;
    struct peer *first = writer_on(s), *reader = reader_on(s), *later = writer_on(s);
    peer_acquire(first);
    peer_tell(reader, "acquire %d", PATIENCE_MS);
    await_state(s, s->name, 1, 1);
    peer_tell(later, "acquire %d", PATIENCE_MS);
    await_state(s, s->name, 1, 2);
    peer_release(first);
    struct peer *both[2] = {reader, later};
    size_t next = peer_first(both, 2);
    if (s->caps->fifo)
        assert_int_equal(next, 0);
    peer_expect_grant(both[next]);
    peer_release(both[next]);
    peer_expect_grant(both[!next]);
    peer_release(both[!next]);
    check_free(s, s->name);
}

/* Rows 6, 12: a writer that died or gave up while waiting must not keep the readers behind it. */
static void test_dead_waiting_writer_frees_the_readers(void **state)
{
    struct scene *s = *state;
    if (!has_mode(s, STILE_SHARED))
        return;
    struct peer *first = reader_on(s), *writer = writer_on(s), *behind = reader_on(s);
    struct stile_lock *other = lock_on(s->client, s->name, NULL);
    struct stile_lock *ours = lock_on(s->client, s->name, STILE_OPTIONS(.mode = STILE_SHARED));
    peer_acquire(first);
    check_status(STILE_TIMEOUT, stile_lock_acquire(other, 10, &why));
    check_ok(stile_lock_acquire(ours, PATIENCE_MS, &why));
    check_ok(stile_lock_release(ours, &why));
    peer_tell(writer, "acquire %d", PATIENCE_MS);
    await_state(s, s->name, 1, 1);
    peer_tell(behind, "acquire %d", PATIENCE_MS);
    peer_kill(writer);
    peer_expect_grant(behind);
    peer_release(behind);
    peer_release(first);
    await_state(s, s->name, 0, 0);
}

static void test_killed_readers_free_the_writer(void **state)
{
    struct scene *s = *state;
    struct peer *readers[READERS];
    if (!has_mode(s, STILE_SHARED))
        return;
    struct peer *writer = writer_on(s);
    for (size_t i = 0; i < READERS; i++) {
        readers[i] = reader_on(s);
        peer_acquire(readers[i]);
    }
    peer_tell(writer, "acquire %d", PATIENCE_MS);
    await_state(s, s->name, READERS, 1);
    for (size_t i = 0; i < READERS; i++)
        peer_kill(readers[i]);
    peer_expect_grant(writer);
    peer_release(writer);
    check_free(s, s->name);
}

/* Writers write, readers see to it that nobody does while they read. */
static void test_readers_and_writers_under_load(void **state)
{
    struct scene *s = *state;
    if (!has_mode(s, STILE_SHARED))
        return;
    unsigned rounds = scene_rounds(s, 500, 20);
    struct peer *a = writer_on(s), *b = writer_on(s);
    struct stile_lock *reader = lock_on(s->client, s->name, STILE_OPTIONS(.mode = STILE_SHARED));
    peer_tell(a, "hammer %u", rounds);
    peer_tell(b, "hammer %u", rounds);
    for (unsigned i = 0; i < rounds; i++) {
        check_ok(stile_lock_acquire(reader, PATIENCE_MS, &why));
        uint64_t count = suite.arena->count, inside = suite.arena->inside;
        for (int n = 0; n < 20; n++) {
            assert_true(suite.arena->count == count);
            assert_true(suite.arena->inside == inside);
        }
        check_ok(stile_lock_release(reader, &why));
    }
    peer_expect(a, "hammering");
    peer_expect(a, "hammered");
    peer_expect(b, "hammering");
    peer_expect(b, "hammered");
    assert_int_equal(suite.arena->overlaps, 0);
    assert_int_equal(suite.arena->count, 2 * rounds);
    check_free(s, s->name);
}

/* clang-format off */
SUITE_PART(shared,
    SCENE_TEST(test_readers_share),
    SCENE_TEST(test_readers_of_one_client),
    SCENE_TEST(test_writer_waits_for_every_reader),
    SCENE_TEST(test_later_readers_wait_for_an_earlier_writer),
    SCENE_TEST(test_reader_does_not_wait_for_a_later_writer),
    SCENE_TEST(test_dead_waiting_writer_frees_the_readers),
    SCENE_TEST(test_killed_readers_free_the_writer),
    SCENE_TEST(test_readers_and_writers_under_load))
/* clang-format on */
