/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Once: one run, one stored result, and no word from a runner that has been replaced. */
#include "contract.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CROWD   5
#define KEEP_MS 300

/* ---- kit ---- */

struct run {
    const void *bytes;
    size_t size;
    int code;
    unsigned times; /* how often it was called */
    uint64_t token;
};

static int work(struct stile_once_output *output, struct stile_lock *lock, void *data)
{
    struct run *run = data;
    assert_true(stile_lock_held(lock));
    run->times++;
    run->token = token_of(lock);
    output->bytes = run->bytes;
    output->size = run->size;
    return run->code;
}

static struct run text_run(const char *text)
{
    return (struct run){.bytes = text, .size = strlen(text)};
}

/* Whether the engine has what is needed; else that it says so. */
static bool has_once(struct scene *s)
{
    struct stile_once_result *result;
    struct run run = text_run("x");
    if (s->caps->token && s->caps->keeps)
        return true;
    check_status(STILE_UNSUPPORTED,
                 stile_once(&result, s->client, s->name, work, &run, NULL, &why));
    assert_null(result);
    assert_int_equal(run.times, 0);
    check_status(STILE_UNSUPPORTED, stile_once_find(&result, s->client, s->name, NULL, &why));
    check_status(STILE_UNSUPPORTED, stile_once_show(&result, s->client, s->name, &why));
    check_status(STILE_UNSUPPORTED, stile_once_forget(s->client, s->name, &why));
    assert_non_null(strstr(why.message, "use an engine that has"));
    print_message("# %s\n", why.message);
    return false;
}

static void once_name(char name[STILE_NAME_MAX + 1], const struct scene *s)
{
    (void)snprintf(name, STILE_NAME_MAX + 1, STILE_ONCE_PREFIX "%s", s->name);
}

/* Runs, or gets the result; the text and the token are checked. */
static void check_once(struct stile_client *client, const char *key, struct run *run,
                       const struct stile_once_options *options, bool ran, const char *text)
{
    struct stile_once_result *result;
    unsigned before = run->times;
    check_ok(stile_once(&result, client, key, work, run, options, &why));
    assert_int_equal(result->state, STILE_ONCE_DONE);
    assert_int_equal(result->ran, ran);
    assert_int_equal(run->times, before + ran);
    assert_string_equal(result->bytes, text);
    assert_int_equal(result->size, strlen(text));
    assert_true(result->token > 0);
    stile_once_free(result);
}

/* ---- results ---- */

static void test_once_runs_the_first_and_answers_the_rest(void **state)
{
    struct scene *s = *state;
    struct stile_once_result *result;
    struct run first = {.bytes = "a\0b", .size = 3}, second = text_run("second");
    if (!has_once(s))
        return;
    check_ok(stile_once(&result, s->client, s->name, work, &first, NULL, &why));
    assert_true(result->ran && result->size == 3 && result->token == first.token);
    assert_memory_equal(result->bytes, "a\0b", 4);
    stile_once_free(result);
    struct stile_client *other = scene_client(s, NULL);
    check_ok(stile_once(&result, other, s->name, work, &second, NULL, &why));
    assert_true(!result->ran && result->size == 3 && result->code == 0);
    assert_memory_equal(result->bytes, "a\0b", 4);
    assert_int_equal(result->token, first.token);
    assert_true(result->age_ms >= 0 && result->age_ms < PATIENCE_MS);
    assert_int_equal(second.times, 0);
    stile_once_free(result);
}

static void test_once_refuses_another_fingerprint(void **state)
{
    struct scene *s = *state;
    struct stile_once_result *result;
    struct run run = text_run("x"), other = text_run("y");
    if (!has_once(s))
        return;
    check_once(s->client, s->name, &run, STILE_ONCE_OPTIONS(.fingerprint = "one"), true, "x");
    const char *others[] = {"two", "one ", "on", "", NULL};
    for (size_t i = 0; i < COUNT(others); i++) {
        check_status(STILE_MISMATCH,
                     stile_once(&result, s->client, s->name, work, &other,
                                STILE_ONCE_OPTIONS(.fingerprint = others[i]), &why));
        assert_null(result);
    }
    assert_int_equal(other.times, 0);
    check_once(s->client, s->name, &other, STILE_ONCE_OPTIONS(.fingerprint = "one"), false, "x");
    check_ok(stile_once_show(&result, s->client, s->name, &why));
    assert_string_equal(result->fingerprint, "one");
    stile_once_free(result);
}

static void test_once_stores_failures_only_if_asked(void **state)
{
    struct scene *s = *state;
    struct stile_once_result *result;
    struct run fails = {.bytes = "no", .size = 2, .code = -7}, good = text_run("x");
    if (!has_once(s))
        return;
    for (int i = 1; i <= 2; i++) {
        check_ok(stile_once(&result, s->client, s->name, work, &fails, NULL, &why));
        assert_true(result->ran && result->code == -7 && fails.times == (unsigned)i);
        stile_once_free(result);
    }
    check_ok(stile_once_show(&result, s->client, s->name, &why));
    assert_int_equal(result->state, STILE_ONCE_NONE);
    stile_once_free(result);
    check_once(s->client, s->name, &fails,
               STILE_ONCE_OPTIONS(.keep_failures = true, .fingerprint = "f"), true, "no");
    check_ok(stile_once(&result, s->client, s->name, work, &good,
                        STILE_ONCE_OPTIONS(.fingerprint = "f"), &why));
    assert_true(!result->ran && result->code == -7 && good.times == 0);
    stile_once_free(result);
}

static void test_once_forgets_when_its_time_is_over(void **state)
{
    struct scene *s = *state;
    struct run run = text_run("x");
    if (!has_once(s))
        return;
    int64_t end = now_ms() + PATIENCE_MS;
    check_once(s->client, s->name, &run, STILE_ONCE_OPTIONS(.keep_ms = KEEP_MS), true, "x");
    while (run.times == 1 && now_ms() < end) {
        struct stile_once_result *result;
        check_ok(stile_once(&result, s->client, s->name, work, &run, NULL, &why));
        stile_once_free(result);
    }
    assert_int_equal(run.times, 2);
}

/* Its caller has all of it, later ones learn how much it was. */
static void test_once_stores_no_output_that_is_too_large(void **state)
{
    struct scene *s = *state;
    struct stile_once_result *result;
    static char bytes[STILE_ONCE_OUTPUT_MAX + 1];
    char name[STILE_NAME_MAX + 1];
    memset(bytes, 'x', sizeof bytes);
    struct run fits = {.bytes = bytes, .size = sizeof bytes - 1};
    struct run large = {.bytes = bytes, .size = sizeof bytes};
    if (!has_once(s))
        return;
    for (int i = 0; i < 2; i++) {
        check_ok(stile_once(&result, s->client, s->name, work, &fits, NULL, &why));
        assert_int_equal(result->size, STILE_ONCE_OUTPUT_MAX);
        assert_memory_equal(result->bytes, bytes, STILE_ONCE_OUTPUT_MAX);
        stile_once_free(result);
    }
    (void)snprintf(name, sizeof name, "%s-large", s->name);
    for (int i = 0; i < 2; i++) {
        check_ok(stile_once(&result, s->client, name, work, &large, NULL, &why));
        assert_int_equal(result->size, STILE_ONCE_OUTPUT_MAX + 1);
        assert_int_equal(result->bytes != NULL, i == 0);
        stile_once_free(result);
    }
    assert_int_equal(large.times, 1);
}

/* ---- what is stored by others ---- */

static void test_once_refuses_what_it_has_not_written(void **state)
{
    struct scene *s = *state;
    struct stile_once_result *result;
    struct run run = text_run("x");
    char name[STILE_NAME_MAX + 1];
    if (!has_once(s))
        return;
    once_name(name, s);
    put_text(s->client, name, "a note of another program");
    check_status(STILE_CORRUPT, stile_once(&result, s->client, s->name, work, &run, NULL, &why));
    check_status(STILE_CORRUPT, stile_once_show(&result, s->client, s->name, &why));
    assert_null(result);
    assert_int_equal(run.times, 0);
    assert_non_null(strstr(why.message, "--forget"));
    check_ok(stile_once_forget(s->client, s->name, &why));
    check_once(s->client, s->name, &run, NULL, true, "x");
}

static void test_once_forgets_what_it_is_told_to(void **state)
{
    struct scene *s = *state;
    struct run run = text_run("x"), again = text_run("y");
    if (!has_once(s))
        return;
    check_ok(stile_once_forget(s->client, s->name, &why));
    check_once(s->client, s->name, &run, STILE_ONCE_OPTIONS(.fingerprint = "one"), true, "x");
    check_ok(stile_once_forget(scene_client(s, NULL), s->name, &why));
    check_once(s->client, s->name, &again, STILE_ONCE_OPTIONS(.fingerprint = "two"), true, "y");
    assert_true(again.token > run.token);
}

/* ---- a runner and its successor ---- */

struct held_run {
    struct stile_lock *lock;
    struct stile_once_run *run;
};

static struct held_run begin(struct scene *s, struct stile_client *client,
                             const struct stile_once_options *options)
{
    struct held_run held;
    struct stile_once_result *result;
    char name[STILE_NAME_MAX + 1];
    once_name(name, s);
    held.lock = held_on(client, name, NULL);
    check_ok(stile_once_begin(&held.run, &result, held.lock, options, &why));
    assert_non_null(held.run);
    assert_null(result);
    return held;
}

static void break_lock(struct scene *s)
{
    char name[STILE_NAME_MAX + 1];
    once_name(name, s);
    check_ok(stile_break(s->client, name, 0, &why));
}

static void test_once_refuses_the_late_result_of_a_replaced_runner(void **state)
{
    struct scene *s = *state;
    struct run run = text_run("newer");
    if (!has_once(s))
        return;
    struct held_run old = begin(s, scene_client(s, NULL), NULL);
    uint64_t token = token_of(old.lock);
    break_lock(s);
    check_once(s->client, s->name, &run, NULL, true, "newer");
    assert_true(run.token > token);
    check_status(STILE_LOST, stile_once_finish(old.run, 0, "older", 5, &why));
    check_once(s->client, s->name, &run, NULL, false, "newer");
}

/* From its first step on, a successor keeps out what an earlier runner writes. */
static void test_once_refuses_a_late_result_while_the_next_one_runs(void **state)
{
    struct scene *s = *state;
    struct run run = text_run("third");
    if (!has_once(s))
        return;
    struct held_run old = begin(s, scene_client(s, NULL), NULL);
    break_lock(s);
    struct held_run new = begin(s, s->client, NULL);
    check_status(STILE_LOST, stile_once_finish(old.run, 0, "older", 5, &why));
    check_ok(stile_once_finish(new.run, 0, "newer", 5, &why));
    check_ok(stile_lock_release(new.lock, &why));
    check_once(s->client, s->name, &run, NULL, false, "newer");
}

static void test_once_refuses_the_late_failure_of_a_replaced_runner(void **state)
{
    struct scene *s = *state;
    struct run run = text_run("newer");
    if (!has_once(s))
        return;
    struct held_run old = begin(s, scene_client(s, NULL), NULL);
    break_lock(s);
    check_once(s->client, s->name, &run, NULL, true, "newer");
    check_status(STILE_LOST, stile_once_finish(old.run, 1, "", 0, &why));
    check_once(s->client, s->name, &run, NULL, false, "newer");
}

/* Its client has not noticed the loss: it is threadless, and nothing drives it. */
static void test_once_refuses_the_late_beginning_of_a_replaced_runner(void **state)
{
    struct scene *s = *state;
    struct stile_once_run *run;
    struct stile_once_result *result;
    struct run other = text_run("third");
    char name[STILE_NAME_MAX + 1];
    if (!has_once(s))
        return;
    once_name(name, s);
    struct stile_client *slow = scene_client(s, STILE_CLIENT_OPTIONS(.threadless = true));
    struct stile_lock *lock = held_on(slow, name, NULL);
    break_lock(s);
    struct held_run new = begin(s, s->client, NULL);
    check_status(STILE_LOST, stile_once_begin(&run, &result, lock, NULL, &why));
    assert_null(run);
    assert_null(result);
    check_ok(stile_once_finish(new.run, 0, "newer", 5, &why));
    check_ok(stile_lock_release(new.lock, &why));
    check_once(s->client, s->name, &other, NULL, false, "newer");
}

/* No other has begun since, so its result is the only one. */
static void test_once_takes_a_late_result_if_nobody_began_since(void **state)
{
    struct scene *s = *state;
    struct run run = text_run("never");
    if (!has_once(s))
        return;
    struct held_run old = begin(s, scene_client(s, NULL), NULL);
    break_lock(s);
    check_ok(stile_once_finish(old.run, 0, "older", 5, &why));
    check_once(s->client, s->name, &run, NULL, false, "older");
}

static void test_once_keeps_its_key_for_its_fingerprint_while_it_runs(void **state)
{
    struct scene *s = *state;
    struct stile_once_result *result;
    struct run run = text_run("x");
    if (!has_once(s))
        return;
    struct held_run held =
        begin(s, scene_client(s, NULL), STILE_ONCE_OPTIONS(.fingerprint = "one"));
    check_status(STILE_MISMATCH, stile_once(&result, s->client, s->name, work, &run,
                                            STILE_ONCE_OPTIONS(.fingerprint = "two"), &why));
    check_status(STILE_HELD,
                 stile_once(&result, s->client, s->name, work, &run,
                            STILE_ONCE_OPTIONS(.fingerprint = "one", .no_wait = true), &why));
    check_status(STILE_TIMEOUT,
                 stile_once(&result, s->client, s->name, work, &run,
                            STILE_ONCE_OPTIONS(.fingerprint = "one", .wait_ms = 20), &why));
    check_status(STILE_HELD, stile_once_forget(s->client, s->name, &why));
    assert_int_equal(run.times, 0);
    check_ok(stile_once_abandon(held.run, &why));
    check_ok(stile_lock_release(held.lock, &why));
    check_once(s->client, s->name, &run, STILE_ONCE_OPTIONS(.fingerprint = "two"), true, "x");
}

static int until_dropped(const struct stile_cell *cell, void *data)
{
    (void)data;
    return cell->version == 0;
}

/* A cell that was put later, for as long as the result is to be kept, is gone before the run ends.
 */
static void test_once_lets_a_run_last_longer_than_its_result(void **state)
{
    struct scene *s = *state;
    if (!has_once(s))
        return;
    struct held_run held = begin(s, s->client, STILE_ONCE_OPTIONS(.keep_ms = KEEP_MS));
    check_ok(stile_cell_put(NULL, s->client, s->name, "x", 1,
                            STILE_CELL_OPTIONS(.keep_ms = KEEP_MS), &why));
    check_ok(stile_cell_watch(s->client, s->name, PATIENCE_MS, until_dropped, NULL, &why));
    check_ok(stile_once_finish(held.run, 0, "x", 1, &why));
    check_ok(stile_lock_release(held.lock, &why));
}

static void test_once_begins_under_its_own_lock_only(void **state)
{
    struct scene *s = *state;
    struct stile_once_run *run;
    struct stile_once_result *result;
    char name[STILE_NAME_MAX + 1];
    if (!has_once(s))
        return;
    once_name(name, s);
    struct stile_lock *other = held_on(s->client, s->name, NULL);
    check_status(STILE_MISUSE, stile_once_begin(&run, &result, other, NULL, &why));
    check_ok(stile_lock_release(other, &why));
    struct stile_lock *free_one = lock_on(s->client, name, NULL);
    check_status(STILE_LOST, stile_once_begin(&run, &result, free_one, NULL, &why));
    if (!has_mode(s, STILE_SHARED))
        return;
    struct stile_lock *shared = held_on(s->client, name, STILE_OPTIONS(.mode = STILE_SHARED));
    check_status(STILE_MISUSE, stile_once_begin(&run, &result, shared, NULL, &why));
    check_ok(stile_lock_release(shared, &why));
    assert_null(run);
}

/* ---- other processes ---- */

static struct peer *start_runner(struct scene *s, bool waits, int64_t ttl_ms)
{
    char hex[sizeof s->name * 2 + 1];
    struct peer *peer = peer_start(s, NULL, NULL);
    for (size_t i = 0; i <= strlen(s->name); i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", (unsigned char)s->name[i]);
    hex[2 * strlen(s->name)] = '\0';
    peer_tell(peer, "once %d %lld %s", waits, (long long)ttl_ms, hex);
    return peer;
}

static uint64_t expect_running(struct peer *peer)
{
    unsigned long long token = 0;
    const char *line = peer_hear(peer);
    if (sscanf(line, "running %llu", &token) != 1)
        fail_msg("%s", line);
    return token;
}

static void test_once_runs_in_one_of_many_processes(void **state)
{
    struct scene *s = *state;
    struct peer *peers[CROWD];
    char text[64] = "";
    if (!has_once(s))
        return;
    arena_reset();
    for (size_t i = 0; i < CROWD; i++)
        peers[i] = start_runner(s, false, 0);
    for (size_t i = 0; i < CROWD; i++) {
        const char *line = peer_hear(peers[i]);
        if (!text[0])
            (void)snprintf(text, sizeof text, "%s", line);
        assert_string_equal(line, text);
    }
    assert_int_equal(suite.arena->count, 1);
}

static void test_once_replaces_a_runner_that_was_killed(void **state)
{
    struct scene *s = *state;
    struct run run = text_run("newer");
    if (!has_once(s))
        return;
    struct peer *peer = start_runner(s, true, short_ttl(s));
    uint64_t token = expect_running(peer);
    peer_kill(peer);
    check_once(s->client, s->name, &run, NULL, true, "newer");
    assert_true(run.token > token);
}

/* Its lease runs out, or an administrator breaks it, where there is none. */
static void test_once_replaces_a_runner_that_was_stopped(void **state)
{
    struct scene *s = *state;
    struct run run = text_run("newer");
    if (!has_once(s))
        return;
    struct peer *peer = start_runner(s, true, short_ttl(s));
    uint64_t token = expect_running(peer);
    peer_stop(peer);
    if (s->caps->lease != STILE_LEASE_CLAIM)
        break_lock(s);
    check_once(s->client, s->name, &run, NULL, true, "newer");
    assert_true(run.token > token);
    peer_continue(peer);
    peer_tell(peer, "go");
    peer_expect(peer, "failed LOST");
    check_once(s->client, s->name, &run, NULL, false, "newer");
}

/* ---- arguments ---- */

static void test_once_refuses_wrong_arguments(void **state)
{
    struct scene *s = *state;
    struct stile_once_result *result;
    struct run run = text_run("x");
    char key[STILE_ONCE_KEY_MAX + 2], print[STILE_FINGERPRINT_MAX + 2];
    if (!has_once(s))
        return;
    memset(key, 'k', sizeof key);
    memset(print, 'p', sizeof print);
    key[sizeof key - 1] = print[sizeof print - 1] = '\0';
    const struct {
        const char *key;
        const struct stile_once_options *options;
    } wrong[] = {
        {key, NULL},
        {"", NULL},
        {NULL, NULL},
        {"a\nb", NULL},
        {s->name, STILE_ONCE_OPTIONS(.fingerprint = print)},
        {s->name, STILE_ONCE_OPTIONS(.keep_ms = -1)},
        {s->name, STILE_ONCE_OPTIONS(.keep_ms = STILE_CELL_KEEP_MAX + 1)},
        {s->name, STILE_ONCE_OPTIONS(.wait_ms = -1)},
        {s->name, &(struct stile_once_options){.size = 1}},
    };
    for (size_t i = 0; i < COUNT(wrong); i++)
        check_status(STILE_MISUSE, stile_once(&result, s->client, wrong[i].key, work, &run,
                                              wrong[i].options, &why));
    check_status(STILE_MISUSE, stile_once(&result, s->client, s->name, NULL, NULL, NULL, &why));
    check_status(STILE_MISUSE, stile_once(NULL, s->client, s->name, work, &run, NULL, &why));
    check_status(STILE_MISUSE, stile_once(&result, NULL, s->name, work, &run, NULL, &why));
    assert_int_equal(run.times, 0);
    check_status(STILE_MISUSE, stile_once_finish(NULL, 0, "", 0, &why));
    check_status(STILE_MISUSE, stile_once_abandon(NULL, &why));
    key[STILE_ONCE_KEY_MAX] = print[STILE_FINGERPRINT_MAX] = '\0';
    check_once(s->client, key, &run,
               STILE_ONCE_OPTIONS(.fingerprint = print, .keep_ms = STILE_CELL_KEEP_MAX), true, "x");
    check_ok(stile_once_forget(s->client, key, &why));
}

SUITE_PART(once, SCENE_TEST(test_once_runs_the_first_and_answers_the_rest),
           SCENE_TEST(test_once_refuses_another_fingerprint),
           SCENE_TEST(test_once_stores_failures_only_if_asked),
           SCENE_TEST(test_once_forgets_when_its_time_is_over),
           SCENE_TEST(test_once_stores_no_output_that_is_too_large),
           SCENE_TEST(test_once_refuses_what_it_has_not_written),
           SCENE_TEST(test_once_forgets_what_it_is_told_to),
           SCENE_TEST(test_once_refuses_the_late_result_of_a_replaced_runner),
           SCENE_TEST(test_once_refuses_a_late_result_while_the_next_one_runs),
           SCENE_TEST(test_once_refuses_the_late_failure_of_a_replaced_runner),
           SCENE_TEST(test_once_refuses_the_late_beginning_of_a_replaced_runner),
           SCENE_TEST(test_once_takes_a_late_result_if_nobody_began_since),
           SCENE_TEST(test_once_keeps_its_key_for_its_fingerprint_while_it_runs),
           SCENE_TEST(test_once_lets_a_run_last_longer_than_its_result),
           SCENE_TEST(test_once_begins_under_its_own_lock_only),
           SCENE_TEST(test_once_runs_in_one_of_many_processes),
           SCENE_TEST(test_once_replaces_a_runner_that_was_killed),
           SCENE_TEST(test_once_replaces_a_runner_that_was_stopped),
           SCENE_TEST(test_once_refuses_wrong_arguments))
