/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* jobs URL [FILTER]: the jobs of stile.h on a real database. One suite for all that have them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "stile.h"

#define FOR_EVER  (30 * 1000)
#define SHORT_MS  60
#define WORKERS   8
#define CROWD     4000
#define OPTS(...) STILE_JOBS_OPTIONS(__VA_ARGS__)

static const char *url;
static struct stile_client *client, *other;
static struct stile_error why;
static struct stile_job *got;
static size_t n_got;

#define check(want, call) check_at(want, call, #call, __LINE__)

static void check_at(enum stile_status want, enum stile_status is, const char *call, int line)
{
    if (want != is) {
        print_error("%s\n    is %s, not %s: %s\n", call, stile_status_name(is),
                    stile_status_name(want), why.message);
        _fail(__FILE__, line);
    }
}

static int open_both(void **state)
{
    (void)state;
    got = NULL;
    n_got = 0;
    memset(&why, 0, sizeof why);
    if (stile_client_open(&client, url, NULL, &why) || stile_client_open(&other, url, NULL, &why))
        print_error("%s\n", why.message);
    return client && other ? 0 : -1;
}

static void forget(void)
{
    stile_jobs_free(got, n_got);
    got = NULL;
    n_got = 0;
}

static int close_both(void **state)
{
    (void)state;
    forget();
    stile_client_close(client);
    stile_client_close(other);
    return 0;
}

/* ---- words of the tests ---- */

static uint64_t add(const char *queue, const char *text, const struct stile_jobs_options *options)
{
    uint64_t id = 0;
    check(STILE_OK, stile_jobs_add(&id, client, queue, text, strlen(text), options, &why));
    assert_true(id > 0);
    return id;
}

/* Into got, of which there is then so much. */
static void claim_by(struct stile_client *by, const char *queue,
                     const struct stile_jobs_options *options, size_t n)
{
    forget();
    check(STILE_OK, stile_jobs_claim(&got, &n_got, by, queue, options, &why));
    assert_int_equal(n_got, n);
}

static void claim(const char *queue, const struct stile_jobs_options *options, size_t n)
{
    claim_by(client, queue, options, n);
}

static void nothing_in(const char *queue, int64_t wait_ms)
{
    struct stile_job *jobs;
    size_t n;
    check(STILE_TIMEOUT, stile_jobs_claim(&jobs, &n, other, queue, OPTS(.wait_ms = wait_ms), &why));
    assert_null(jobs);
    assert_int_equal(n, 0);
}

static int keep_queue(const struct stile_queue *queue, void *data)
{
    *(struct stile_queue *)data = *queue;
    ((struct stile_queue *)data)->name = NULL;
    return 0;
}

static void counts(const char *queue, uint64_t ready, uint64_t delayed, uint64_t claimed,
                   uint64_t dead)
{
    struct stile_queue is = {0};
    check(STILE_OK, stile_jobs_count(client, queue, keep_queue, &is, &why));
    if (is.ready != ready || is.delayed != delayed || is.claimed != claimed || is.dead != dead)
        fail_msg("ready %d, delayed %d, claimed %d, dead %d", (int)is.ready, (int)is.delayed,
                 (int)is.claimed, (int)is.dead);
}

static bool is_text(const struct stile_job *job, const char *text)
{
    return job->payload_size == strlen(text) && memcmp(job->payload, text, strlen(text)) == 0;
}

/* Its lease is so short that the next one gets it. */
static struct stile_job *claim_and_lose(const char *queue)
{
    struct stile_job *jobs;
    size_t n;
    check(STILE_OK, stile_jobs_claim(&jobs, &n, client, queue, OPTS(.lease_ms = SHORT_MS), &why));
    assert_int_equal(n, 1);
    claim_by(other, queue, OPTS(.wait_ms = FOR_EVER), 1);
    return jobs;
}

/* ---- adding and claiming ---- */

static void jobs_come_in_order(void **state)
{
    (void)state;
    uint64_t first = add("order", "a", NULL), second = add("order", "b", NULL);
    assert_true(first < second);
    claim("order", NULL, 1);
    assert_true(got->id == first && is_text(got, "a"));
    assert_string_equal(got->queue, "order");
    assert_null(got->key);
    assert_int_equal(got->tries, 1);
    assert_int_equal(got->state, STILE_JOB_CLAIMED);
    assert_string_equal(got->last_error, "");
    check(STILE_OK, stile_jobs_ack(client, got, 1, &why));
    assert_int_equal(got->status, STILE_OK);
    claim("order", NULL, 1);
    assert_true(got->id == second && is_text(got, "b"));
    check(STILE_OK, stile_jobs_ack(client, got, 1, &why));
    nothing_in("order", 0);
    counts("order", 0, 0, 0, 0);
}

static void a_payload_is_any_bytes(void **state)
{
    (void)state;
    static unsigned char bytes[STILE_JOB_PAYLOAD_MAX + 1];
    const size_t sizes[] = {0, 1, 256, STILE_JOB_PAYLOAD_MAX};
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 7 + i / 256);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        check(STILE_OK, stile_jobs_add(NULL, client, "bytes", bytes, sizes[i], NULL, &why));
        claim("bytes", NULL, 1);
        assert_int_equal(got->payload_size, sizes[i]);
        assert_memory_equal(got->payload, bytes, sizes[i]);
        check(STILE_OK, stile_jobs_ack(client, got, 1, &why));
    }
    check(STILE_MISUSE, stile_jobs_add(NULL, client, "bytes", bytes, sizeof bytes, NULL, &why));
    nothing_in("bytes", 0);
}

static void many_are_claimed_at_once(void **state)
{
    (void)state;
    uint64_t ids[5];
    for (int i = 0; i < 5; i++)
        ids[i] = add("many", "x", NULL);
    claim("many", OPTS(.max = 3), 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(got[i].id, ids[i]);
    check(STILE_OK, stile_jobs_ack(client, got, 3, &why));
    claim("many", OPTS(.max = 3), 2);
    check(STILE_OK, stile_jobs_ack(client, got, 2, &why));
}

static void what_is_done_goes_with_the_next_claim(void **state)
{
    (void)state;
    struct stile_job *next, *done;
    size_t n;
    for (int i = 0; i < 3; i++)
        add("next", "x", NULL);
    claim("next", OPTS(.max = 2), 2);
    done = got;
    done[1].token--;
    check(STILE_OK,
          stile_jobs_claim(&next, &n, client, "next", OPTS(.done = done, .n_done = 2), &why));
    assert_int_equal(done[0].status, STILE_OK);
    assert_int_equal(done[1].status, STILE_STALE);
    counts("next", 0, 0, 2, 0);
    done[0].token = next->token;
    done[1].token++;
    stile_jobs_free(next, n);
    check(STILE_TIMEOUT, stile_jobs_claim(&next, &n, client, "next",
                                          OPTS(.done = done, .n_done = 2, .wait_ms = 30), &why));
    assert_int_equal(done[0].status, STILE_OK);
    assert_int_equal(done[1].status, STILE_OK);
    counts("next", 0, 0, 0, 0);
}

static void nobody_else_gets_what_is_claimed(void **state)
{
    (void)state;
    add("one", "x", NULL);
    claim("one", NULL, 1);
    nothing_in("one", 0);
    nothing_in("one", 150);
    counts("one", 0, 0, 1, 0);
    check(STILE_OK, stile_jobs_ack(client, got, 1, &why));
}

static void a_delayed_job_is_due_later(void **state)
{
    (void)state;
    struct timespec begun, now;
    clock_gettime(CLOCK_BOOTTIME, &begun);
    uint64_t id = add("delay", "later", OPTS(.delay_ms = 1500));
    counts("delay", 0, 1, 0, 0);
    nothing_in("delay", 0);
    claim("delay", OPTS(.wait_ms = FOR_EVER), 1);
    clock_gettime(CLOCK_BOOTTIME, &now);
    assert_int_equal(got->id, id);
    assert_true((now.tv_sec - begun.tv_sec) * 1000 + (now.tv_nsec - begun.tv_nsec) / 1000000 >=
                1499);
    check(STILE_OK, stile_jobs_ack(client, got, 1, &why));
}

static void what_is_due_first_comes_first(void **state)
{
    (void)state;
    uint64_t late = add("due", "late", OPTS(.delay_ms = 5000));
    add("due", "early", NULL);
    claim("due", OPTS(.max = 2), 1);
    assert_true(is_text(got, "early"));
    check(STILE_OK, stile_jobs_ack(client, got, 1, &why));
    check(STILE_OK, stile_jobs_drop(client, "due", late, &why));
}

static void a_key_is_there_once(void **state)
{
    (void)state;
    uint64_t id = add("key", "first", OPTS(.key = "K"));
    assert_int_equal(add("key", "second", OPTS(.key = "K")), id);
    assert_int_not_equal(add("key", "other", OPTS(.key = "k")), id);
    assert_int_not_equal(add("key2", "other", OPTS(.key = "K")), id);
    claim("key", NULL, 1);
    assert_true(got->id == id && is_text(got, "first"));
    assert_string_equal(got->key, "K");
    uint64_t token = got->token;
    check(STILE_OK, stile_jobs_ack(client, got, 1, &why));
    uint64_t again = add("key", "third", OPTS(.key = "K"));
    assert_true(again > id);
    claim("key", OPTS(.max = 2), 2);
    const struct stile_job *third = &got[1];
    assert_int_equal(third->id, again);
    assert_true(third->token > token); /* so the key may be a guard's name */
    check(STILE_OK, stile_jobs_ack(client, got, 2, &why));
}

/* The job that runs may have read what there was before the event: it is worked on once more. */
static void what_happens_while_a_job_runs_is_queued_once_more(void **state)
{
    (void)state;
    uint64_t id = add("run", "first", OPTS(.key = "K"));
    claim("run", NULL, 1);
    uint64_t again = add("run", "second", OPTS(.key = "K"));
    assert_true(again > id);
    assert_int_equal(add("run", "third", OPTS(.key = "K")), again);
    check(STILE_OK, stile_jobs_give_back(client, got, 1, &why)); /* both wait now */
    counts("run", 2, 0, 0, 0);
    assert_int_equal(add("run", "fourth", OPTS(.key = "K")), again);
    claim("run", OPTS(.max = 9), 2);
    check(STILE_OK, stile_jobs_fail(client, got, 2, "no", OPTS(.tries = 9, .backoff_ms = 1), &why));
    for (int i = 0; i < 2; i++) {
        claim("run", OPTS(.wait_ms = FOR_EVER), 1);
        check(STILE_OK, stile_jobs_ack(client, got, 1, &why));
    }
    counts("run", 0, 0, 0, 0);
}

static void many_are_added_at_once(void **state)
{
    (void)state;
    enum { MANY = 1000 };
    static struct stile_job_entry entries[MANY + 1];
    static uint64_t ids[MANY];
    char texts[MANY][8];
    for (size_t i = 0; i < MANY; i++) {
        entries[i] = (struct stile_job_entry){.payload = texts[i],
                                              .size = (size_t)sprintf(texts[i], "%zu", i)};
    }
    entries[3].key = entries[5].key = "K\"\\{},'";
    entries[7].key = "k";
    entries[8] = (struct stile_job_entry){0};
    check(STILE_OK, stile_jobs_add_all(ids, client, "bulk", entries, MANY, NULL, &why));
    assert_true(ids[0] > 0 && ids[3] == ids[5] && ids[3] != ids[7]);
    counts("bulk", MANY - 1, 0, 0, 0);
    claim("bulk", OPTS(.max = 10), 10);
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(got[i].id, ids[i < 5 ? i : i + 1]);
    assert_true(is_text(&got[3], "3") && is_text(&got[7], ""));
    assert_string_equal(got[3].key, entries[3].key);
    check(STILE_OK, stile_jobs_ack(client, got, 10, &why));
    check(STILE_OK,
          stile_jobs_add_all(NULL, client, "bulk", entries, 1, OPTS(.delay_ms = 1), &why));
    check(STILE_MISUSE, stile_jobs_add_all(NULL, client, "bulk", entries, 0, NULL, &why));
    check(STILE_MISUSE, stile_jobs_add_all(NULL, client, "bulk", entries, MANY + 1, NULL, &why));
    check(STILE_MISUSE,
          stile_jobs_add_all(NULL, client, "bulk", entries, 2, OPTS(.key = "x"), &why));
    entries[1].key = "";
    check(STILE_MISUSE, stile_jobs_add_all(NULL, client, "bulk", entries, 2, NULL, &why));
    assert_non_null(strstr(why.message, "job 2 of 2"));
}

static void names_are_bytes(void **state)
{
    (void)state;
    static const char *const names[] = {"Case",     "case",      "sp ace",        "\xc3\xa9",
                                        "\xff\xfe", "e\xcc\x81", "'; drop table", "\\x41"};
    char longest[STILE_NAME_MAX + 1];
    memset(longest, 'q', STILE_NAME_MAX);
    longest[STILE_NAME_MAX] = '\0';
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        add(names[i], names[i], OPTS(.key = names[i]));
    add(longest, longest, OPTS(.key = longest));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        claim(names[i], OPTS(.max = 10), 1);
        assert_true(is_text(got, names[i]));
        assert_string_equal(got->key, names[i]);
        assert_string_equal(got->queue, names[i]);
        check(STILE_OK, stile_jobs_ack(client, got, 1, &why));
    }
    claim(longest, OPTS(.max = 10), 1);
    assert_true(is_text(got, longest));
    check(STILE_OK, stile_jobs_ack(client, got, 1, &why));
}

/* ---- leases and tokens ---- */

static void a_lost_job_is_another_s_with_a_larger_token(void **state)
{
    (void)state;
    add("lost", "x", NULL);
    struct stile_job *late = claim_and_lose("lost");
    assert_int_equal(got->id, late->id);
    assert_true(got->token > late->token);
    assert_int_equal(got->tries, 2);
    assert_non_null(strstr(got->last_error, "not heard of"));
    assert_int_equal(stile_jobs_remaining_ms(late), 0);
    check(STILE_STALE, stile_jobs_ack(client, late, 1, &why));
    assert_int_equal(late->status, STILE_STALE);
    check(STILE_STALE, stile_jobs_fail(client, late, 1, "late", NULL, &why));
    check(STILE_STALE, stile_jobs_extend(client, late, 1, 1000, &why));
    check(STILE_STALE, stile_jobs_give_back(client, late, 1, &why));
    counts("lost", 0, 0, 1, 0);
    check(STILE_OK, stile_jobs_ack(other, got, 1, &why));
    check(STILE_STALE, stile_jobs_ack(other, got, 1, &why)); /* it is gone */
    stile_jobs_free(late, 1);
}

static void a_late_ack_counts_if_nobody_came_before(void **state)
{
    (void)state;
    const struct timespec longer = {.tv_nsec = (SHORT_MS + 20) * 1000000L};
    add("late", "x", NULL);
    claim("late", OPTS(.lease_ms = SHORT_MS), 1);
    nanosleep(&longer, NULL);
    assert_int_equal(stile_jobs_remaining_ms(got), 0);
    check(STILE_OK, stile_jobs_ack(client, got, 1, &why));
    nothing_in("late", 0);
}

static void an_extended_job_stays(void **state)
{
    (void)state;
    add("extend", "x", NULL);
    claim("extend", OPTS(.lease_ms = 2000), 1);
    check(STILE_OK, stile_jobs_extend(client, got, 1, 60000, &why));
    int64_t left = stile_jobs_remaining_ms(got);
    assert_true(left > 30000 && left < 60000);
    nothing_in("extend", 2200);
    check(STILE_OK, stile_jobs_ack(client, got, 1, &why));
}

static void some_of_many_are_stale(void **state)
{
    (void)state;
    struct stile_job mixed[3];
    for (int i = 0; i < 3; i++)
        add("mixed", "x", NULL);
    claim("mixed", OPTS(.max = 3), 3);
    memcpy(mixed, got, sizeof mixed);
    mixed[1].token--;
    check(STILE_STALE, stile_jobs_ack(client, mixed, 3, &why));
    assert_int_equal(mixed[0].status, STILE_OK);
    assert_int_equal(mixed[1].status, STILE_STALE);
    assert_int_equal(mixed[2].status, STILE_OK);
    counts("mixed", 0, 0, 1, 0);
    check(STILE_OK, stile_jobs_ack(client, &got[1], 1, &why));
}

static void what_is_given_back_was_not_tried(void **state)
{
    (void)state;
    add("back", "x", NULL);
    claim("back", NULL, 1);
    uint64_t token = got->token;
    check(STILE_OK, stile_jobs_give_back(client, got, 1, &why));
    check(STILE_STALE, stile_jobs_ack(client, got, 1, &why));
    claim("back", NULL, 1);
    assert_int_equal(got->tries, 1);
    assert_true(got->token > token);
    check(STILE_OK, stile_jobs_ack(client, got, 1, &why));
}

/* ---- failing ---- */

static int keep_job(const struct stile_job *job, void *data)
{
    struct stile_job *kept = data;
    *kept = *job;
    assert_null(job->payload);
    kept->last_error = strcmp(job->last_error, "no luck") == 0 ? "no luck" : "?";
    return 0;
}

static void a_failed_job_rests_and_comes_again(void **state)
{
    (void)state;
    struct stile_job seen = {0};
    add("fail", "12345", NULL);
    claim("fail", NULL, 1);
    check(STILE_OK, stile_jobs_fail(client, got, 1, "no luck", OPTS(.backoff_ms = 40000), &why));
    check(STILE_STALE, stile_jobs_ack(client, got, 1, &why));
    check(STILE_OK, stile_jobs_list(client, "fail", NULL, keep_job, &seen, &why));
    assert_int_equal(seen.id, got->id);
    assert_int_equal(seen.state, STILE_JOB_READY);
    assert_int_equal(seen.payload_size, 5);
    assert_int_equal(seen.tries, 1);
    assert_true(seen.due_ms <= 40000);
    assert_string_equal(seen.last_error, "no luck");
    check(STILE_OK, stile_jobs_drop(client, "fail", got->id, &why));
    check(STILE_CONFLICT, stile_jobs_drop(client, "fail", got->id, &why));
    counts("fail", 0, 0, 0, 0);
}

/* ---- inspecting ---- */

static struct stile_job *shown(const char *queue, uint64_t id)
{
    struct stile_job *job;
    check(STILE_OK, stile_jobs_show(&job, client, queue, id, &why));
    assert_int_equal(job->id, id);
    return job;
}

static void a_job_is_shown_whole(void **state)
{
    (void)state;
    struct stile_job *job;
    uint64_t id = add("show", "abc", OPTS(.key = "K", .delay_ms = 60000));
    check(STILE_CONFLICT, stile_jobs_show(&job, client, "show", id + 1, &why));
    assert_null(job);
    check(STILE_CONFLICT, stile_jobs_show(&job, client, "elsewhere", id, &why));
    job = shown("show", id);
    assert_string_equal(job->queue, "show");
    assert_string_equal(job->key, "K");
    assert_int_equal(job->payload_size, 3);
    assert_memory_equal(job->payload, "abc", 3);
    assert_int_equal(job->state, STILE_JOB_READY);
    assert_true(job->due_ms > 0 && job->due_ms <= 60000 && job->age_ms >= 0);
    assert_string_equal(job->last_error, "");
    assert_string_equal(job->host, "");
    stile_jobs_free(job, 1);
    check(STILE_OK, stile_jobs_drop(client, "show", id, &why));
    check(STILE_CONFLICT, stile_jobs_show(&job, client, "show", id, &why));
}

static void a_claimed_job_is_shown_with_its_worker(void **state)
{
    (void)state;
    static char large[STILE_JOB_PAYLOAD_MAX];
    uint64_t id;
    memset(large, 0xe9, sizeof large);
    check(STILE_OK, stile_jobs_add(&id, client, "show", large, sizeof large, NULL, &why));
    claim("show", NULL, 1);
    struct stile_job *job = shown("show", id);
    assert_int_equal(job->state, STILE_JOB_CLAIMED);
    assert_int_equal(job->token, got->token);
    assert_int_equal(job->payload_size, sizeof large);
    assert_memory_equal(job->payload, large, sizeof large);
    assert_int_equal(job->pid, getpid());
    assert_string_equal(job->host, got->host);
    stile_jobs_free(job, 1);
    check(STILE_OK, stile_jobs_ack(client, got, 1, &why));
}

/* Lines, tabs and other languages are kept; what would harm a terminal, or is no text, is not. */
static void an_error_is_kept_with_its_lines(void **state)
{
    (void)state;
    char lengthy[2 * STILE_JOB_ERROR_MAX + 1];
    uint64_t id = add("lines", "x", NULL);
    claim("lines", NULL, 1);
    check(STILE_OK,
          stile_jobs_fail(client, got, 1, "exit code 3\n\tgr\xc3\xbc\xc3\x9f' \\\"\x1b[1m\xff",
                          OPTS(.backoff_ms = 1), &why));
    struct stile_job *job = shown("lines", id);
    assert_string_equal(job->last_error, "exit code 3\n\tgr\xc3\xbc\xc3\x9f' \\\"?[1m?");
    stile_jobs_free(job, 1);
    claim("lines", OPTS(.wait_ms = FOR_EVER), 1);
    assert_string_equal(got->last_error, "exit code 3\n\tgr\xc3\xbc\xc3\x9f' \\\"?[1m?");
    memset(lengthy, 'e', sizeof lengthy);
    lengthy[sizeof lengthy - 1] = '\0';
    check(STILE_OK, stile_jobs_fail(client, got, 1, lengthy, OPTS(.tries = 1), &why));
    job = shown("lines", id);
    assert_int_equal(strlen(job->last_error), STILE_JOB_ERROR_MAX);
    stile_jobs_free(job, 1);
    check(STILE_OK, stile_jobs_drop(client, "lines", id, &why));
}

static int first_line_only(const struct stile_job *job, void *data)
{
    assert_string_equal(job->last_error, "no luck");
    ++*(size_t *)data;
    return 0;
}

static void a_list_has_the_first_line_of_an_error(void **state)
{
    (void)state;
    size_t n = 0;
    add("line", "x", NULL);
    claim("line", NULL, 1);
    check(STILE_OK, stile_jobs_fail(client, got, 1, "no luck\nat all", OPTS(.tries = 1), &why));
    check(STILE_OK, stile_jobs_list(client, "line", NULL, first_line_only, &n, &why));
    assert_int_equal(n, 1);
    check(STILE_OK, stile_jobs_drop(client, "line", got->id, &why));
}

struct listed {
    uint64_t ids[8];
    size_t n;
};

static int note_id(const struct stile_job *job, void *data)
{
    struct listed *listed = data;
    assert_true(listed->n < 8);
    listed->ids[listed->n++] = job->id;
    return 0;
}

/* The engine filters: what the limit has left out would not be found here. */
static void only_one(enum stile_jobs_filter filter, uint64_t id)
{
    struct listed listed = {.n = 0};
    check(STILE_OK, stile_jobs_list(client, "some", OPTS(.max = 1, .filter = filter), note_id,
                                    &listed, &why));
    assert_int_equal(listed.n, 1);
    assert_int_equal(listed.ids[0], id);
}

static void a_list_is_filtered_by_state(void **state)
{
    (void)state;
    struct listed all = {.n = 0};
    uint64_t dead = add("some", "x", NULL), claimed, ready;
    claim("some", NULL, 1);
    check(STILE_OK, stile_jobs_fail(client, got, 1, "", OPTS(.tries = 1), &why));
    claimed = add("some", "x", NULL);
    claim("some", NULL, 1);
    ready = add("some", "x", NULL);
    uint64_t delayed = add("some", "x", OPTS(.delay_ms = 60000));
    only_one(STILE_JOBS_READY, ready);
    only_one(STILE_JOBS_DELAYED, delayed);
    only_one(STILE_JOBS_CLAIMED, claimed);
    only_one(STILE_JOBS_DEAD, dead);
    check(STILE_OK, stile_jobs_list(client, "some", NULL, note_id, &all, &why));
    assert_int_equal(all.n, 4);
    assert_int_equal(all.ids[3], dead);
    check(STILE_MISUSE, stile_jobs_list(client, "some", OPTS(.filter = (enum stile_jobs_filter)9),
                                        note_id, &all, &why));
    check(STILE_OK, stile_jobs_ack(client, got, 1, &why));
    const uint64_t left[] = {dead, ready, delayed};
    for (size_t i = 0; i < 3; i++)
        check(STILE_OK, stile_jobs_drop(client, "some", left[i], &why));
}

static void fail_so_often(const char *queue, unsigned tries)
{
    for (unsigned i = 1; i <= tries; i++) {
        claim(queue, OPTS(.wait_ms = FOR_EVER, .tries = tries), 1);
        assert_int_equal(got->tries, i);
        check(STILE_OK, stile_jobs_fail(client, got, 1, "no luck",
                                        OPTS(.tries = tries, .backoff_ms = 1), &why));
    }
}

static void too_often_is_dead(void **state)
{
    (void)state;
    size_t n;
    uint64_t id = add("dead", "x", OPTS(.key = "K"));
    fail_so_often("dead", 3);
    counts("dead", 0, 0, 0, 1);
    nothing_in("dead", 0);
    uint64_t token = got->token, second = add("dead", "y", OPTS(.key = "K"));
    assert_int_not_equal(second, id); /* a dead one does not keep its key */
    check(STILE_CONFLICT, stile_jobs_retry(&n, client, "dead", id, &why));
    check(STILE_OK, stile_jobs_drop(client, "dead", second, &why));
    check(STILE_CONFLICT, stile_jobs_retry(&n, client, "dead", id + 1000, &why));
    check(STILE_OK, stile_jobs_retry(&n, client, "dead", id, &why));
    assert_int_equal(n, 1);
    claim("dead", NULL, 1);
    assert_true(got->id > second && is_text(got, "x"));
    assert_int_equal(got->tries, 1);
    assert_true(got->token > token);
    check(STILE_CONFLICT, stile_jobs_drop(client, "dead", got->id, &why)); /* it is claimed */
    check(STILE_OK, stile_jobs_ack(client, got, 1, &why));
}

/* Or a guard that has seen the later job's token would refuse the retried one's. */
static void a_retried_job_has_a_larger_token_than_later_ones_of_its_key(void **state)
{
    (void)state;
    uint64_t id = add("later", "x", OPTS(.key = "K"));
    fail_so_often("later", 1);
    add("later", "y", OPTS(.key = "K"));
    claim("later", NULL, 1);
    uint64_t token = got->token;
    check(STILE_OK, stile_jobs_retry(NULL, client, "later", id, &why));
    check(STILE_OK, stile_jobs_ack(client, got, 1, &why));
    claim("later", NULL, 1);
    assert_true(got->token > token);
    check(STILE_OK, stile_jobs_ack(client, got, 1, &why));
}

static void all_the_dead_are_retried(void **state)
{
    (void)state;
    size_t n;
    for (int i = 0; i < 3; i++) {
        add("all", "x", i > 0 ? OPTS(.key = "K") : NULL);
        fail_so_often("all", 1);
    }
    counts("all", 0, 0, 0, 3);
    check(STILE_OK, stile_jobs_retry(&n, client, "all", 0, &why));
    assert_int_equal(n, 2); /* one of each key */
    counts("all", 2, 0, 0, 1);
    claim("all", OPTS(.max = 9), 2);
    check(STILE_OK, stile_jobs_ack(client, got, 2, &why));
}

/* A job that kills its workers must not do so for ever. */
static void who_dies_too_often_is_dead(void **state)
{
    (void)state;
    add("poison", "x", NULL);
    for (unsigned i = 1; i <= 2; i++) {
        claim("poison", OPTS(.wait_ms = FOR_EVER, .lease_ms = 200, .tries = 2), 1);
        assert_int_equal(got->tries, i);
    }
    struct stile_job *jobs;
    size_t n;
    check(STILE_TIMEOUT,
          stile_jobs_claim(&jobs, &n, client, "poison", OPTS(.wait_ms = 600, .tries = 2), &why));
    counts("poison", 0, 0, 0, 1);
    check(STILE_STALE, stile_jobs_ack(client, got, 1, &why));
    counts("poison", 0, 0, 0, 1);
}

/* ---- waiting ---- */

static void *claim_waiting(void *data)
{
    struct stile_job *jobs = NULL;
    size_t n;
    enum stile_status *status = data;
    *status = stile_jobs_claim(&jobs, &n, other, "wait", OPTS(.wait_ms = FOR_EVER), NULL);
    if (!*status)
        *status = stile_jobs_ack(other, jobs, n, NULL);
    stile_jobs_free(jobs, n);
    return NULL;
}

static void who_waits_is_woken(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        const struct timespec pause = {.tv_nsec = 30000000};
        enum stile_status status = STILE_MISUSE;
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, claim_waiting, &status), 0);
        nanosleep(&pause, NULL);
        add("wait", "x", NULL);
        pthread_join(thread, NULL);
        check(STILE_OK, status);
    }
}

static void *cancel_soon(void *data)
{
    const struct timespec pause = {.tv_nsec = 50000000};
    nanosleep(&pause, NULL);
    stile_jobs_cancel(data);
    return NULL;
}

static void a_wait_is_cancelled(void **state)
{
    (void)state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, cancel_soon, client), 0);
    check(STILE_CANCELLED,
          stile_jobs_claim(&got, &n_got, client, "cancel", OPTS(.wait_ms = FOR_EVER), &why));
    pthread_join(thread, NULL);
}

/* ---- event loops ---- */

struct record {
    int times;
    enum stile_status status;
    struct stile_job *jobs;
    size_t n;
};

static void on_jobs(struct stile_job *jobs, size_t n, enum stile_status status,
                    const struct stile_error *err, void *data)
{
    struct record *record = data;
    assert_true((err != NULL) == (status != STILE_OK));
    *record = (struct record){.times = record->times + 1, .status = status, .jobs = jobs, .n = n};
}

static void dispatch_until(struct stile_client *by, const struct record *record, int times)
{
    while (record->times < times) {
        struct pollfd fd = {.fd = stile_client_fd(by), .events = POLLIN};
        assert_int_equal(poll(&fd, 1, FOR_EVER), 1);
        check(STILE_OK, stile_client_dispatch(by));
    }
}

static void loops_claim_and_extend(void **state)
{
    (void)state;
    struct stile_client *loop;
    struct record record = {0};
    check(STILE_OK, stile_client_open(&loop, url, STILE_CLIENT_OPTIONS(.threadless = true), &why));
    check(STILE_OK, stile_jobs_claim_async(loop, "async", OPTS(.wait_ms = -1), on_jobs, &record));
    assert_int_equal(record.times, 0);
    add("async", "x", NULL);
    dispatch_until(loop, &record, 1);
    check(STILE_OK, record.status);
    assert_int_equal(record.n, 1);
    struct stile_job *jobs = record.jobs;
    check(STILE_OK, stile_jobs_extend_async(loop, jobs, 1, 90000, on_jobs, &record));
    dispatch_until(loop, &record, 2);
    check(STILE_OK, record.status);
    assert_true(stile_jobs_remaining_ms(jobs) > 60000);
    jobs->token--;
    check(STILE_OK, stile_jobs_extend_async(loop, jobs, 1, 90000, on_jobs, &record));
    dispatch_until(loop, &record, 3);
    check(STILE_STALE, record.status);
    jobs->token++;
    check(STILE_OK, stile_jobs_ack(loop, jobs, 1, &why));
    stile_jobs_free(jobs, 1);
    check(STILE_OK, stile_jobs_claim_async(loop, "async", OPTS(.wait_ms = -1), on_jobs, &record));
    check(STILE_OK, stile_jobs_cancel(loop));
    dispatch_until(loop, &record, 4);
    check(STILE_CANCELLED, record.status);
    check(STILE_OK, stile_jobs_claim_async(loop, "async", OPTS(.wait_ms = -1), on_jobs, &record));
    stile_client_close(loop);
    assert_int_equal(record.times, 5);
    check(STILE_CANCELLED, record.status);
}

static uint64_t boot_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Not from a later packet that reads what was claimed, however long the loop takes to send it. */
static void a_lease_counts_from_its_claim(void **state)
{
    (void)state;
    const struct timespec pause = {.tv_nsec = 300 * 1000000L};
    struct stile_client *loop;
    struct record record = {0};
    check(STILE_OK, stile_client_open(&loop, url, STILE_CLIENT_OPTIONS(.threadless = true), &why));
    add("slow", "x", NULL);
    add("slow", "y", NULL);
    claim_by(loop, "slow", NULL, 1); /* connected from now on */
    check(STILE_OK, stile_jobs_claim_async(loop, "slow", OPTS(.lease_ms = 2000), on_jobs, &record));
    uint64_t sent_ns = boot_ns();
    while (record.times == 0) {
        struct pollfd fd = {.fd = stile_client_fd(loop), .events = POLLIN};
        assert_int_equal(poll(&fd, 1, FOR_EVER), 1);
        nanosleep(&pause, NULL);
        check(STILE_OK, stile_client_dispatch(loop));
    }
    check(STILE_OK, record.status);
    assert_true(record.jobs->deadline_ns <= sent_ns + UINT64_C(2000) * 1000000);
    check(STILE_OK, stile_jobs_ack(loop, record.jobs, 1, &why));
    check(STILE_OK, stile_jobs_ack(loop, got, 1, &why));
    stile_jobs_free(record.jobs, record.n);
    stile_client_close(loop);
}

/* ---- crowds ---- */

static atomic_uchar times_seen[CROWD];
static atomic_int done;

static void *work(void *data)
{
    struct stile_client *mine;
    struct stile_job *jobs;
    size_t n;
    (void)data;
    if (stile_client_open(&mine, url, NULL, NULL))
        return (void *)"open";
    for (unsigned round = 0; atomic_load(&done) < CROWD; round++) {
        enum stile_status status = stile_jobs_claim(
            &jobs, &n, mine, "crowd", OPTS(.max = 1 + round % 8, .wait_ms = 200), NULL);
        if (status == STILE_TIMEOUT)
            continue;
        if (status)
            return (void *)stile_status_name(status);
        for (size_t i = 0; i < n; i++)
            atomic_fetch_add(&times_seen[atoi(jobs[i].payload)], 1);
        status = stile_jobs_ack(mine, jobs, n, NULL);
        stile_jobs_free(jobs, n);
        if (status)
            return (void *)stile_status_name(status);
        atomic_fetch_add(&done, (int)n);
    }
    stile_client_close(mine);
    return NULL;
}

static void none_is_lost_and_none_comes_twice(void **state)
{
    (void)state;
    pthread_t threads[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, NULL), 0);
    for (int i = 0; i < CROWD; i++) {
        char text[16];
        snprintf(text, sizeof text, "%d", i);
        check(STILE_OK, stile_jobs_add(NULL, client, "crowd", text, sizeof text, NULL, &why));
    }
    for (int i = 0; i < WORKERS; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        assert_string_equal(wrong ? wrong : "", "");
    }
    for (int i = 0; i < CROWD; i++)
        assert_int_equal(atomic_load(&times_seen[i]), 1);
    counts("crowd", 0, 0, 0, 0);
}

/* ---- misuse ---- */

static void misuse_is_told(void **state)
{
    (void)state;
    struct stile_client *local;
    struct stile_job job = {.token = 1};
    check(STILE_MISUSE, stile_jobs_add(NULL, client, "", "x", 1, NULL, &why));
    check(STILE_MISUSE, stile_jobs_add(NULL, client, "a\nb", "x", 1, NULL, &why));
    check(STILE_MISUSE, stile_jobs_add(NULL, client, NULL, "x", 1, NULL, &why));
    check(STILE_MISUSE, stile_jobs_add(NULL, client, "q", "x", 1, OPTS(.key = ""), &why));
    check(STILE_MISUSE, stile_jobs_add(NULL, client, "q", "x", 1, OPTS(.delay_ms = -1), &why));
    check(STILE_MISUSE, stile_jobs_add(NULL, client, "q", NULL, 1, NULL, &why));
    check(STILE_MISUSE,
          stile_jobs_claim(&got, &n_got, client, "q", OPTS(.max = STILE_JOBS_MAX + 1), &why));
    check(STILE_MISUSE, stile_jobs_claim(&got, &n_got, client, "q", OPTS(.lease_ms = 1), &why));
    check(STILE_MISUSE, stile_jobs_claim(&got, &n_got, client, "q", OPTS(.tries = 1001), &why));
    check(STILE_MISUSE, stile_jobs_claim(NULL, &n_got, client, "q", NULL, &why));
    check(STILE_MISUSE, stile_jobs_ack(client, &job, 0, &why));
    check(STILE_MISUSE, stile_jobs_ack(client, NULL, 1, &why));
    check(STILE_MISUSE, stile_jobs_ack(client, &job, STILE_JOBS_MAX + 1, &why));
    check(STILE_MISUSE,
          stile_jobs_add(NULL, client, "q", "x", 1, &(struct stile_jobs_options){.size = 3}, &why));
    check(STILE_STALE, stile_jobs_ack(client, &job, 1, &why));
    char place[] = "local:/tmp/stile-jobs-XXXXXX", command[64];
    assert_non_null(mkdtemp(place + strlen("local:")));
    check(STILE_OK, stile_client_open(&local, place, NULL, &why));
    check(STILE_UNSUPPORTED, stile_jobs_add(NULL, local, "q", "x", 1, NULL, &why));
    assert_non_null(strstr(why.message, "keeps no jobs"));
    stile_client_close(local);
    snprintf(command, sizeof command, "rm -r %s", place + strlen("local:"));
    assert_int_equal(system(command), 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, open_both, close_both)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        CASE(jobs_come_in_order),
        CASE(a_payload_is_any_bytes),
        CASE(many_are_claimed_at_once),
        CASE(what_is_done_goes_with_the_next_claim),
        CASE(nobody_else_gets_what_is_claimed),
        CASE(a_delayed_job_is_due_later),
        CASE(what_is_due_first_comes_first),
        CASE(a_key_is_there_once),
        CASE(what_happens_while_a_job_runs_is_queued_once_more),
        CASE(many_are_added_at_once),
        CASE(names_are_bytes),
        CASE(a_lost_job_is_another_s_with_a_larger_token),
        CASE(a_late_ack_counts_if_nobody_came_before),
        CASE(an_extended_job_stays),
        CASE(some_of_many_are_stale),
        CASE(what_is_given_back_was_not_tried),
        CASE(a_failed_job_rests_and_comes_again),
        CASE(a_job_is_shown_whole),
        CASE(a_claimed_job_is_shown_with_its_worker),
        CASE(an_error_is_kept_with_its_lines),
        CASE(a_list_has_the_first_line_of_an_error),
        CASE(a_list_is_filtered_by_state),
        CASE(too_often_is_dead),
        CASE(a_retried_job_has_a_larger_token_than_later_ones_of_its_key),
        CASE(all_the_dead_are_retried),
        CASE(who_dies_too_often_is_dead),
        CASE(who_waits_is_woken),
        CASE(a_wait_is_cancelled),
        CASE(loops_claim_and_extend),
        CASE(a_lease_counts_from_its_claim),
        CASE(none_is_lost_and_none_comes_twice),
        CASE(misuse_is_told),
    };
    if (argc < 2) {
        fprintf(stderr, "usage: %s URL [FILTER]\n", argv[0]);
        return 64;
    }
    url = argv[1];
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    return cmocka_run_group_tests_name("jobs", tests, NULL, NULL);
}
