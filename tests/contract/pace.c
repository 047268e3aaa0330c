/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A pace: so many starts in any window, by processes that stamp their starts themselves. */
#include "contract.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PROCESSES 20
#define ROUNDS    5
#define COUNT_OF  50
#define PER_MS    500
#define WAITERS   4
/* A process that wakes up later than this does not start, and comes last: not even on a machine
 * that is very busy. */
#define TOLERANCE_MS 500

/* ---- kit ---- */

static bool has_pace(struct scene *s)
{
    const struct stile_pace_options *options = STILE_PACE_OPTIONS(.count = 1, .per_ms = 1000);
    if (s->caps->paces)
        return true;
    check_status(STILE_UNSUPPORTED, stile_pace(NULL, s->client, s->name, options, 0, &why));
    assert_non_null(strstr(why.message, "use redis, postgres, mysql, zookeeper or local"));
    print_message("# %s has no pace, and says so\n", s->caps->engine);
    return false;
}

static uint64_t boottime_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

enum stile_status pace_and_stamp(struct stile_client *client, const char *name,
                                 const struct stile_pace_options *options, uint64_t *stamp)
{
    struct stile_pace_start start;
    enum stile_status status;
    /* What is done too late is not a start: the caller of an API would not call it. */
    do {
        status = stile_pace(&start, client, name, options, PATIENCE_MS, NULL);
        *stamp = boottime_ns();
    } while (!status && *stamp > start.until_ns);
    if (!status)
        arena_stamp(*stamp);
    return status;
}

static int compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void check_windows(uint64_t count, uint64_t per_ns)
{
    uint64_t *stamps = suite.arena->stamps;
    size_t n = suite.arena->n_stamps;
    qsort(stamps, n, sizeof *stamps, compare);
    for (size_t i = count; i < n; i++) {
        if (stamps[i] - stamps[i - count] < per_ns)
            fail_msg("%zu starts within %.3f ms", (size_t)count + 1,
                     (double)(stamps[i] - stamps[i - count]) / 1e6);
    }
}

/* ---- the tests ---- */

static void test_pace_holds_in_every_window(void **state)
{
    struct scene *s = *state;
    struct peer *peers[PROCESSES];
    if (!has_pace(s))
        return;
    arena_reset();
    for (size_t i = 0; i < PROCESSES; i++)
        peers[i] = peer_start(s, NULL, NULL);
    for (size_t i = 0; i < PROCESSES; i++)
        peer_tell(peers[i], "pace %d %d 0 %d %s", COUNT_OF, PER_MS, ROUNDS, s->name);
    for (size_t i = 0; i < PROCESSES; i++)
        assert_non_null(strstr(peer_hear(peers[i]), "paced "));
    assert_int_equal(suite.arena->n_stamps, PROCESSES * ROUNDS);
    check_windows(COUNT_OF, PER_MS * UINT64_C(1000000));
}

/* When the next start would be, of which nothing is reserved. */
static int64_t next_start_ms(struct scene *s, const struct stile_pace_options *options)
{
    struct stile_pace_start start;
    check_status(STILE_HELD, stile_pace(&start, s->client, s->name, options, 0, &why));
    assert_true(start.delay_ms > 0);
    return now_ms() + start.delay_ms;
}

/* A waiter that is killed costs its own start, and nothing else. */
static void test_pace_serves_in_order(void **state)
{
    struct scene *s = *state;
    struct peer *peers[WAITERS];
    const struct stile_pace_options *options =
        STILE_PACE_OPTIONS(.count = 1, .per_ms = 20, .tolerance_ms = TOLERANCE_MS);
    unsigned long long stamps[WAITERS] = {0};
    if (!has_pace(s))
        return;
    for (size_t i = 0; i < WAITERS; i++)
        peers[i] = peer_start(s, NULL, NULL);
    check_ok(stile_pace(NULL, s->client, s->name, options, 0, &why));
    for (size_t i = 0; i < WAITERS; i++) {
        int64_t before = next_start_ms(s, options);
        peer_tell(peers[i], "pace 1 20 %d 1 %s", TOLERANCE_MS, s->name);
        while (next_start_ms(s, options) < before + TOLERANCE_MS)
            ; /* it has reserved its start as soon as the next one is later */
    }
    peer_kill(peers[1]);
    for (size_t i = 0; i < WAITERS; i++) {
        if (i != 1)
            assert_int_equal(sscanf(peer_hear(peers[i]), "paced %llu", &stamps[i]), 1);
    }
    assert_true(stamps[0] < stamps[2] && stamps[2] < stamps[3]);
    assert_true(stamps[2] - stamps[0] > TOLERANCE_MS * UINT64_C(1000000));
}

static void test_pace_refuses_what_takes_too_long(void **state)
{
    struct scene *s = *state;
    struct stile_pace_start start;
    const struct stile_pace_options *options = STILE_PACE_OPTIONS(.count = 1, .per_ms = 600000),
                                    *other = STILE_PACE_OPTIONS(.count = 2, .per_ms = 600000);
    if (!has_pace(s))
        return;
    check_ok(stile_pace(&start, s->client, s->name, options, -1, &why));
    for (int i = 0; i < 3; i++) {
        check_status(STILE_HELD, stile_pace(&start, s->client, s->name, options, 0, &why));
        assert_non_null(strstr(why.message, "the next start is in 6"));
        check_status(STILE_TIMEOUT, stile_pace(&start, s->client, s->name, options, 1000, &why));
        assert_true(start.delay_ms > 60000 && start.delay_ms <= 610000);
    }
    check_status(STILE_CONFLICT, stile_pace(&start, s->client, s->name, other, -1, &why));
    assert_non_null(strstr(why.message, "it is used with the rate 1/600s"));
    assert_true(start.delay_ms > 60000 && start.delay_ms <= 610000);
}

static void test_pace_with_a_burst(void **state)
{
    struct scene *s = *state;
    const struct stile_pace_options *options =
        STILE_PACE_OPTIONS(.count = 10, .per_ms = 600000, .burst = 3);
    if (!has_pace(s))
        return;
    for (int i = 0; i < 3; i++)
        check_ok(stile_pace(NULL, s->client, s->name, options, -1, &why));
    struct stile_pace_start start;
    check_status(STILE_HELD, stile_pace(&start, s->client, s->name, options, 0, &why));
    assert_true(start.delay_ms > 30000 && start.delay_ms <= 60000);
}

/* With all names: the longest, in UTF-8, with blanks and what means something to some engine. */
static void test_pace_names(void **state)
{
    struct scene *s = *state;
    char names[4][STILE_NAME_MAX + 1];
    const struct stile_pace_options *options = STILE_PACE_OPTIONS(.count = 1, .per_ms = 600000);
    if (!has_pace(s))
        return;
    memset(names, 'n', sizeof names);
    snprintf(names[0], sizeof names[0], "%s %%s {a}b*?[x]' \"\\ ", s->name);
    snprintf(names[1], sizeof names[1], "%s \xc3\xa4\xe2\x82\xac", s->name);
    memcpy(names[2], s->name, strlen(s->name));
    names[2][STILE_PACE_NAME_MAX] = '\0';
    memcpy(names[3], s->name, strlen(s->name));
    names[3][STILE_PACE_NAME_MAX - 1] = '\0';
    for (size_t i = 0; i < 4; i++)
        check_ok(stile_pace(NULL, s->client, names[i], options, 0, &why));
    for (size_t i = 0; i < 4; i++)
        check_status(STILE_HELD, stile_pace(NULL, s->client, names[i], options, 0, &why));
    names[2][STILE_PACE_NAME_MAX] = 'n';
    names[2][STILE_PACE_NAME_MAX + 1] = '\0';
    check_status(STILE_MISUSE, stile_pace(NULL, s->client, names[2], options, 0, &why));
}

SUITE_PART(pace, SCENE_TEST(test_pace_holds_in_every_window), SCENE_TEST(test_pace_serves_in_order),
           SCENE_TEST(test_pace_refuses_what_takes_too_long), SCENE_TEST(test_pace_with_a_burst),
           SCENE_TEST(test_pace_names))
