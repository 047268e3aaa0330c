/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a name's last holder, which outlives it (stile_lock_record_start()). */
#include "contract.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- seeing it ---- */

struct last {
    bool any;
    struct stile_last_holder is; /* its texts are below */
    char host[256], command[256];
    size_t holders;
};

static int note_last(const struct stile_info *info, void *data)
{
    struct last *last = data;
    *last = (struct last){.any = info->last != NULL, .holders = info->holders};
    if (!info->last)
        return 0;
    last->is = *info->last;
    snprintf(last->host, sizeof last->host, "%s", info->last->host);
    snprintf(last->command, sizeof last->command, "%s", info->last->command);
    return 0;
}

static struct last last_of(struct scene *s, const char *name)
{
    struct last last = {.any = false};
    check_ok(stile_show(s->client, name, note_last, &last, &why));
    return last;
}

/* A start that nobody has waited for is stored soon. Records are not watched, so it is asked for
 * again and again. */
static struct last await_record(struct scene *s, const char *name, uint64_t token)
{
    int64_t until = now_ms() + PATIENCE_MS;
    struct last last = last_of(s, name);
    while (!last.any || last.is.token != token) {
        if (now_ms() > until)
            fail_msg("no record of token %llu", (unsigned long long)token);
        poll(NULL, 0, 5);
        last = last_of(s, name);
    }
    return last;
}

static int64_t wall_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Where there are no tokens, records are ordered by the millisecond of their start. */
static void await_next_ms(void)
{
    int64_t now = wall_ms();
    while (wall_ms() == now)
        poll(NULL, 0, 1);
}

static void peer_record(struct peer *peer, const char *what)
{
    peer_tell(peer, "record %s", what);
    peer_expect(peer, "recorded");
}

/* ---- a holder ---- */

static void check_holder(const struct last *last, pid_t pid, uint64_t token, int exit_code)
{
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    assert_true(last->any);
    assert_string_equal(last->host, host);
    assert_string_equal(last->command, program_invocation_short_name);
    assert_int_equal(last->is.pid, pid);
    assert_true(last->is.token == token);
    assert_int_equal(last->is.exit_code, exit_code);
}

static void test_holder_is_recorded(void **state)
{
    struct scene *s = *state;
    if (!has_history(s))
        return;
    int64_t from = wall_ms();
    struct peer *peer = peer_start(s, s->name, NULL);
    pid_t pid = peer->pid;
    assert_false(last_of(s, s->name).any);
    uint64_t token = peer_acquire(peer);
    peer_record(peer, "start");
    struct last last = await_record(s, s->name, token);
    check_holder(&last, pid, token, -1);
    assert_int_equal(last.holders, 1);
    assert_in_range(last.is.from_ms, from, wall_ms());
    assert_true(last.is.until_ms == 0);

    peer_record(peer, "3");
    peer_release(peer);
    peer_end(s, peer); /* which waits until it is stored */
    last = last_of(s, s->name);
    check_holder(&last, pid, token, 3);
    assert_int_equal(last.holders, 0); /* the name is free, and not listed */
    assert_int_equal(count_listed(s->client, s->name), 0);
    assert_in_range(last.is.from_ms, from, wall_ms());
    assert_in_range(last.is.until_ms, last.is.from_ms, wall_ms());
}

/* Nothing is said of the end by a holder that was killed, or that has no result. */
static void test_holder_that_was_killed_has_no_end(void **state)
{
    struct scene *s = *state;
    if (!has_history(s))
        return;
    struct peer *peer = peer_start(s, s->name, STILE_OPTIONS(.ttl_ms = short_ttl(s)));
    pid_t pid = peer->pid;
    uint64_t token = peer_acquire(peer);
    peer_record(peer, "start");
    await_record(s, s->name, token);
    peer_kill(peer);
    await_state(s, s->name, 0, 0);
    struct last last = last_of(s, s->name);
    check_holder(&last, pid, token, -1);
    assert_true(last.is.until_ms == 0);

    struct peer *next = peer_start(s, s->name, NULL);
    token = peer_acquire(next);
    assert_int_equal(last_of(s, s->name).is.pid, pid); /* which has recorded nothing */
    peer_record(next, "start");
    peer_record(next, "-1");
    peer_release(next);
    pid = next->pid;
    peer_end(s, next);
    last = last_of(s, s->name);
    check_holder(&last, pid, token, -1);
    assert_true(last.is.until_ms > 0);
}

/* Start and end follow each other at once, holder after holder: the last end stays. */
static void test_holders_are_recorded_in_order(void **state)
{
    struct scene *s = *state;
    char end[16];
    if (!has_history(s))
        return;
    for (int i = 0; i < 10; i++) {
        struct peer *peer = peer_start(s, s->name, NULL);
        pid_t pid = peer->pid;
        uint64_t token = peer_acquire(peer);
        peer_record(peer, "start");
        snprintf(end, sizeof end, "%d", 255 - i);
        peer_record(peer, end);
        peer_release(peer);
        peer_end(s, peer);
        struct last last = last_of(s, s->name);
        check_holder(&last, pid, token, 255 - i);
        assert_true(last.is.until_ms > 0);
        await_next_ms();
    }
}

/* A holder that was paused finds out late that it holds the lock no longer. */
static void test_late_records_stay_in_order(void **state)
{
    struct scene *s = *state;
    if (!has_history(s))
        return;
    struct peer *late = peer_start(s, s->name, STILE_OPTIONS(.ttl_ms = 3000));
    struct peer *next = peer_start(s, s->name, NULL);
    uint64_t first = peer_acquire(late);
    peer_record(late, "start");
    await_record(s, s->name, first);
    check_ok(stile_break(s->client, s->name, 0, &why));
    await_next_ms();
    uint64_t second = peer_acquire(next);
    assert_true(!s->caps->token || second > first);
    peer_record(next, "start");
    peer_record(next, "0");
    peer_release(next);
    pid_t pid = next->pid;
    peer_end(s, next);

    peer_record(late, "7");
    peer_end(s, late);
    struct last last = last_of(s, s->name);
    check_holder(&last, pid, second, 0);
}

/* ---- names that are kept ---- */

struct left_by {
    struct scene *scene;
    pid_t pid;
    unsigned ghosts;
};

/* An engine may leave these out, but must not report wrong ones; as check_holder() of inspect.c. */
static int check_ghost(const struct stile_info *info, void *data)
{
    struct left_by *by = data;
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    for (size_t i = 0; i < info->holders; i++) {
        const struct stile_claim_info *c = &info->claims[i];
        assert_true(c->ghost);
        assert_true(c->pid == by->pid || (c->pid == 0 && !ends_with_process(by->scene)));
        assert_true(strcmp(c->host, host) == 0 || (!*c->host && !ends_with_process(by->scene)));
        by->ghosts++;
    }
    return 0;
}

static void test_kept_name_tells_who_left_it(void **state)
{
    struct scene *s = *state;
    struct left_by by = {.scene = s};
    if (!has_hold(s))
        return;
    struct peer *peer = peer_start(s, s->name, STILE_OPTIONS(.hold_at_least_ms = 3600000));
    by.pid = peer->pid;
    peer_acquire(peer);
    peer_release(peer);
    peer_end(s, peer);
    check_ok(stile_show(s->client, s->name, check_ghost, &by, &why));
    assert_int_equal(by.ghosts, 1);
    check_ok(stile_list(s->client, s->name, check_ghost, &by, &why));
    assert_int_equal(by.ghosts, 2);
    check_ok(stile_break(s->client, s->name, 0, &why));
}

/* ---- bytes ---- */

static void test_names_of_records(void **state)
{
    static const char *const tails[] = {
        "",        " ",      "-a",           "-A",       "-a ",    "-%41",
        "-%s%n",   "-'\"",   "-\\",          "-$1;--",   "-*?[",   "-{a}",
        "-a/b",    "-a//b",  "-..",          "-a:b",     "-\xff",  "-\xc3\xa9",
        "-record", "record", "\xe2\x80\xa8", ":history", "/last/", "-\xf0\x9f\x90\x8e",
    };
    struct scene *s = *state;
    char name[STILE_NAME_MAX + 1];
    struct stile_client *client;
    if (!has_history(s))
        return;
    check_ok(stile_client_open(&client, suite.url, NULL, &why));
    for (size_t i = 0; i < COUNT(tails); i++) {
        snprintf(name, sizeof name, "%s%s", s->name, tails[i]);
        struct stile_lock *lock = held_on(client, name, NULL);
        check_ok(stile_lock_record_start(lock, &why));
        check_ok(stile_lock_record_end(lock, (int)i, &why));
        check_ok(stile_lock_release(lock, &why));
        stile_lock_free(lock);
    }
    stile_client_close(client);
    for (size_t i = 0; i < COUNT(tails); i++) {
        snprintf(name, sizeof name, "%s%s", s->name, tails[i]);
        struct last last = last_of(s, name);
        assert_true(last.any);
        assert_int_equal(last.is.exit_code, i);
        assert_int_equal(last.holders, 0);
    }
    assert_int_equal(count_listed(s->client, s->name), 0);
    snprintf(name, sizeof name, "%s-none", s->name);
    assert_false(last_of(s, name).any);
}

/* The longest name, and labels of any bytes. */
static void test_labels_of_records(void **state)
{
    static const char *const labels[] = {
        "night shift",       " ", "", "caf\xc3\xa9 \xff\xfe", "'; drop table stile_last; --",
        "%s%n $1 \\ \"{}[]",
    };
    struct scene *s = *state;
    char name[STILE_NAME_MAX + 1];
    if (!has_history(s))
        return;
    memset(name, 'n', STILE_NAME_MAX);
    name[STILE_NAME_MAX] = '\0';
    memcpy(name, s->name, strlen(s->name));
    for (size_t i = 0; i < COUNT(labels); i++) {
        struct stile_client *client;
        await_next_ms();
        check_ok(stile_client_open(&client, suite.url,
                                   STILE_CLIENT_OPTIONS(.label = labels[i], .pid = 4711), &why));
        struct stile_lock *lock = held_on(client, name, NULL);
        check_ok(stile_lock_record_start(lock, &why));
        stile_client_close(client); /* waits until it is stored */
        struct last last = last_of(s, name);
        assert_true(last.any);
        assert_string_equal(last.command, *labels[i] ? labels[i] : "?");
        assert_int_equal(last.is.pid, 4711);
        assert_true(last.is.until_ms == 0);
    }
}

/* ---- what may be recorded when ---- */

static void test_record_of_what_is_not_held(void **state)
{
    struct scene *s = *state;
    if (!has_history(s))
        return;
    struct stile_lock *lock = lock_on(s->client, s->name, NULL);
    check_status(STILE_MISUSE, stile_lock_record_start(lock, &why));
    check_ok(stile_lock_acquire(lock, 0, &why));
    check_status(STILE_MISUSE, stile_lock_record_end(lock, 0, &why));
    check_ok(stile_lock_record_start(lock, &why));
    check_status(STILE_MISUSE, stile_lock_record_end(lock, 256, &why));
    check_ok(stile_lock_release(lock, &why));
    check_status(STILE_MISUSE, stile_lock_record_end(lock, 0, &why));
}

/* clang-format off */
SUITE_PART(history,
    SCENE_TEST(test_holder_is_recorded),
    SCENE_TEST(test_holder_that_was_killed_has_no_end),
    SCENE_TEST(test_holders_are_recorded_in_order),
    SCENE_TEST(test_late_records_stay_in_order),
    SCENE_TEST(test_kept_name_tells_who_left_it),
    SCENE_TEST(test_names_of_records),
    SCENE_TEST(test_labels_of_records),
    SCENE_TEST(test_record_of_what_is_not_held))
/* clang-format on */
