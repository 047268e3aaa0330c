/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Guards: what the token of a write is compared with, on a cell or on a bare resource. */
#include "contract.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static enum stile_status put_with(struct scene *s, const char *text,
                                  const struct stile_cell_options *options)
{
    return stile_cell_put(NULL, s->client, s->name, text, strlen(text), options, &why);
}

static void check_seen(struct scene *s, uint64_t token, const char *issuer)
{
    struct stile_cell *cell = cell_of(s, s->name);
    assert_int_equal(cell->token, token);
    assert_string_equal(cell->issuer, issuer);
    stile_cell_free(cell);
}

static void check_text(struct scene *s, const char *text)
{
    struct stile_cell *cell = cell_of(s, s->name);
    assert_non_null(cell->value);
    assert_string_equal(cell->value, text);
    stile_cell_free(cell);
}

/* ---- the rule ---- */

static void test_guards_refuse_smaller_tokens(void **state)
{
    struct scene *s = *state;
    uint64_t highest = 0;
    if (!has_cells(s))
        return;
    check_ok(put_with(s, "33", STILE_CELL_OPTIONS(.token = 33)));
    check_ok(put_with(s, "33 again", STILE_CELL_OPTIONS(.token = 33, .highest = &highest)));
    assert_int_equal(highest, 33);
    check_ok(put_with(s, "34", STILE_CELL_OPTIONS(.token = 34)));
    highest = 0;
    check_status(STILE_STALE,
                 put_with(s, "late", STILE_CELL_OPTIONS(.token = 33, .highest = &highest)));
    assert_int_equal(highest, 34);
    assert_non_null(strstr(why.message, "33"));
    assert_non_null(strstr(why.message, "34"));
    check_status(STILE_STALE,
                 stile_cell_remove(s->client, s->name, STILE_CELL_OPTIONS(.token = 33), &why));
    check_text(s, "34");
    check_seen(s, 34, "");
}

/* Numbers of any size are compared as numbers: not as texts, and not as floating point. */
static void test_guards_compare_large_tokens(void **state)
{
    static const uint64_t tokens[] = {1,
                                      9,
                                      10,
                                      UINT64_C(999999999),
                                      UINT64_C(1000000000),
                                      UINT64_C(4294967296),
                                      UINT64_C(9007199254740992),
                                      UINT64_C(9007199254740993),
                                      STILE_TOKEN_MAX - 1,
                                      STILE_TOKEN_MAX};
    struct scene *s = *state;
    if (!has_cells(s))
        return;
    for (size_t i = 0; i < COUNT(tokens); i++) {
        check_ok(put_with(s, "up", STILE_CELL_OPTIONS(.token = tokens[i])));
        check_seen(s, tokens[i], "");
        for (size_t j = 0; j < i; j++)
            check_status(STILE_STALE, put_with(s, "down", STILE_CELL_OPTIONS(.token = tokens[j])));
    }
    check_status(STILE_MISUSE,
                 put_with(s, "out", STILE_CELL_OPTIONS(.token = STILE_TOKEN_MAX + 1)));
    check_text(s, "up");
}

static void test_guards_that_are_strict_take_a_token_once(void **state)
{
    struct scene *s = *state;
    if (!has_cells(s))
        return;
    check_ok(put_with(s, "once", STILE_CELL_OPTIONS(.token = 5, .strict = true)));
    check_status(STILE_STALE, put_with(s, "twice", STILE_CELL_OPTIONS(.token = 5, .strict = true)));
    check_status(STILE_STALE, stile_guard_raise(s->client, s->name, 5,
                                                STILE_GUARD_OPTIONS(.strict = true), &why));
    check_text(s, "once");
    check_ok(put_with(s, "next", STILE_CELL_OPTIONS(.token = 6, .strict = true)));
}

static void test_guards_refuse_writes_without_a_token(void **state)
{
    struct scene *s = *state;
    uint64_t version;
    if (!has_cells(s))
        return;
    check_ok(put_with(s, "free", NULL));
    check_ok(put_with(s, "guarded", STILE_CELL_OPTIONS(.token = 2)));
    check_status(STILE_STALE, put_with(s, "unguarded", NULL));
    assert_non_null(strstr(why.message, "no token"));
    struct stile_cell *cell = cell_of(s, s->name);
    version = cell->version;
    stile_cell_free(cell);
    check_status(STILE_STALE,
                 put_with(s, "by version", STILE_CELL_OPTIONS(.if_version = &version)));
    check_status(STILE_STALE, stile_cell_remove(s->client, s->name, NULL, &why));
    check_text(s, "guarded");
}

static void test_guards_refuse_other_issuers(void **state)
{
    struct scene *s = *state;
    uint64_t highest = 0;
    if (!has_cells(s))
        return;
    check_ok(put_with(s, "a", STILE_CELL_OPTIONS(.token = 5)));
    check_seen(s, 5, "");
    check_ok(put_with(s, "b", STILE_CELL_OPTIONS(.token = 5, .issuer = "redis:x")));
    check_seen(s, 5, "redis:x");
    check_status(
        STILE_FOREIGN,
        put_with(s, "c", STILE_CELL_OPTIONS(.token = 9, .issuer = "etcd:x", .highest = &highest)));
    assert_int_equal(highest, 5);
    assert_non_null(strstr(why.message, "redis:x"));
    assert_non_null(strstr(why.message, "etcd:x"));
    check_status(STILE_FOREIGN,
                 put_with(s, "c", STILE_CELL_OPTIONS(.token = 3, .issuer = "redis:y")));
    check_status(STILE_FOREIGN, stile_guard_raise(s->client, s->name, 9,
                                                  STILE_GUARD_OPTIONS(.issuer = "etcd:x"), &why));
    check_status(STILE_STALE,
                 put_with(s, "c", STILE_CELL_OPTIONS(.token = 4, .issuer = "redis:x")));
    check_ok(put_with(s, "d", STILE_CELL_OPTIONS(.token = 6)));
    check_seen(s, 6, "redis:x");
    check_text(s, "d");
}

/* What is refused for its version must not raise the guard, nor record an issuer. */
static void test_guards_are_not_raised_by_what_is_refused(void **state)
{
    struct scene *s = *state;
    uint64_t wrong = 1, none = 0;
    if (!has_cells(s))
        return;
    check_status(
        STILE_CONFLICT,
        put_with(s, "x", STILE_CELL_OPTIONS(.if_version = &wrong, .token = 8, .issuer = "a:b")));
    check_seen(s, 0, "");
    check_ok(put_with(s, "here", STILE_CELL_OPTIONS(.token = 4)));
    check_status(
        STILE_CONFLICT,
        put_with(s, "x", STILE_CELL_OPTIONS(.if_version = &none, .token = 8, .issuer = "a:b")));
    check_status(STILE_CONFLICT,
                 stile_cell_remove(s->client, s->name,
                                   STILE_CELL_OPTIONS(.if_version = &none, .token = 8), &why));
    check_seen(s, 4, "");
    /* Where both would refuse, the guard is what counts. */
    check_status(STILE_STALE,
                 put_with(s, "x", STILE_CELL_OPTIONS(.if_version = &none, .token = 3)));
    check_text(s, "here");
}

/* ---- raising, checking, resetting ---- */

static void test_guards_are_raised_before_anything_is_written(void **state)
{
    struct scene *s = *state;
    uint64_t highest = 0;
    if (!has_cells(s))
        return;
    check_ok(
        stile_guard_raise(s->client, s->name, 34, STILE_GUARD_OPTIONS(.highest = &highest), &why));
    assert_int_equal(highest, 34);
    struct stile_cell *cell = cell_of(s, s->name);
    assert_int_equal(cell->version, 0);
    assert_null(cell->value);
    assert_int_equal(cell->token, 34);
    stile_cell_free(cell);
    assert_int_equal(count_cells(s->client, s->name), 0);
    check_status(STILE_STALE, put_with(s, "late", STILE_CELL_OPTIONS(.token = 33)));
    highest = 0;
    check_status(STILE_STALE, stile_guard_raise(s->client, s->name, 33,
                                                STILE_GUARD_OPTIONS(.highest = &highest), &why));
    assert_int_equal(highest, 34);
    check_ok(put_with(s, "in time", STILE_CELL_OPTIONS(.token = 34)));
    uint64_t version = cell_version(s, s->name);
    check_ok(stile_guard_raise(s->client, s->name, 35, STILE_GUARD_OPTIONS(.issuer = "a:b"), &why));
    assert_int_equal(cell_version(s, s->name), version);
    check_seen(s, 35, "a:b");
    check_text(s, "in time");
}

static void test_guards_are_checked_without_a_trace(void **state)
{
    struct scene *s = *state;
    uint64_t highest = 99;
    if (!has_cells(s))
        return;
    check_ok(
        stile_guard_check(s->client, s->name, 7, STILE_GUARD_OPTIONS(.highest = &highest), &why));
    assert_int_equal(highest, 0);
    check_seen(s, 0, "");
    check_ok(stile_guard_raise(s->client, s->name, 7, STILE_GUARD_OPTIONS(.issuer = "a:b"), &why));
    check_ok(stile_guard_check(s->client, s->name, 8, NULL, &why));
    check_status(STILE_STALE, stile_guard_check(s->client, s->name, 6, NULL, &why));
    check_status(STILE_FOREIGN, stile_guard_check(s->client, s->name, 8,
                                                  STILE_GUARD_OPTIONS(.issuer = "c:d"), &why));
    check_status(STILE_MISUSE, stile_guard_check(s->client, s->name, 0, NULL, &why));
    check_seen(s, 7, "a:b");
}

static void test_guards_are_reset(void **state)
{
    struct scene *s = *state;
    if (!has_cells(s))
        return;
    check_ok(put_with(s, "old", STILE_CELL_OPTIONS(.token = 50, .issuer = "redis:a")));
    uint64_t version = cell_version(s, s->name);
    check_ok(stile_guard_reset(s->client, s->name, 3, "etcd:a", &why));
    check_seen(s, 3, "etcd:a");
    assert_int_equal(cell_version(s, s->name), version);
    check_text(s, "old");
    check_ok(put_with(s, "new", STILE_CELL_OPTIONS(.token = 3, .issuer = "etcd:a")));
    check_ok(stile_guard_reset(s->client, s->name, 0, NULL, &why));
    check_seen(s, 0, "");
    check_ok(put_with(s, "without", NULL));
    check_text(s, "without");
}

/* ---- removal ---- */

static void test_guards_outlive_removal(void **state)
{
    struct scene *s = *state;
    uint64_t none = 0;
    if (!has_cells(s))
        return;
    check_ok(put_with(s, "x", STILE_CELL_OPTIONS(.token = 34, .issuer = "a:b")));
    check_ok(stile_cell_remove(s->client, s->name, STILE_CELL_OPTIONS(.token = 36), &why));
    check_seen(s, 36, "a:b");
    assert_int_equal(count_cells(s->client, s->name), 0);
    check_status(STILE_STALE,
                 put_with(s, "late", STILE_CELL_OPTIONS(.token = 35, .if_version = &none)));
    check_status(STILE_STALE, put_with(s, "late", NULL));
    check_status(STILE_FOREIGN, put_with(s, "c", STILE_CELL_OPTIONS(.token = 99, .issuer = "c:d")));
    check_ok(stile_cell_remove(s->client, s->name, STILE_CELL_OPTIONS(.token = 40), &why));
    check_seen(s, 40, "a:b");
    check_ok(put_with(s, "again", STILE_CELL_OPTIONS(.token = 41, .if_version = &none)));
    check_text(s, "again");
}

/* ---- locks and guards together ---- */

static void remember_largest(_Atomic uint64_t *largest, uint64_t token)
{
    uint64_t seen = atomic_load(largest);
    while (token > seen && !atomic_compare_exchange_weak(largest, &seen, token))
        ;
}

/* One write with a token that no other process has, then a look: what was acknowledged before the
 * look began is not behind it. */
static enum stile_status climb_once(struct stile_client *client, const char *key)
{
    struct arena *a = suite.arena;
    uint64_t token = atomic_fetch_add(&a->count, 1) + 1, highest = 0;
    struct stile_cell *cell;
    enum stile_status status =
        stile_cell_put(NULL, client, key, &token, sizeof token,
                       STILE_CELL_OPTIONS(.token = token, .highest = &highest), NULL);
    if (!status)
        remember_largest(&a->last_token, token);
    else if (status != STILE_STALE || highest <= token)
        return status ? status : STILE_CORRUPT;
    uint64_t acknowledged = atomic_load(&a->last_token);
    status = stile_cell_get(&cell, client, key, NULL);
    if (status)
        return status;
    if (!cell->value || *(const uint64_t *)cell->value < acknowledged)
        atomic_fetch_add(&a->backwards, 1);
    stile_cell_free(cell);
    return STILE_OK;
}

enum stile_status climb(struct stile_client *client, const char *key, unsigned rounds)
{
    enum stile_status status = STILE_OK;
    for (; rounds && !status; rounds--)
        status = climb_once(client, key);
    return status;
}

static void to_hex(char *hex, const char *text)
{
    for (; *text; text++, hex += 2)
        sprintf(hex, "%02x", (unsigned char)*text);
    *hex = '\0';
}

/* A holder is stopped, its lock goes to another, and its late write is refused. */
static void test_guards_refuse_a_holder_that_was_paused(void **state)
{
    struct scene *s = *state;
    char hex[2 * sizeof s->name + 1], issuer[STILE_ISSUER_MAX + 1];
    if (!has_cells(s) || !s->caps->token)
        return;
    to_hex(hex, s->name);
    struct peer *paused = peer_start(s, s->name, STILE_OPTIONS(.ttl_ms = short_ttl(s)));
    uint64_t old = peer_acquire(paused);
    peer_tell(paused, "put %" PRIu64 " %s", old, hex);
    peer_expect(paused, "put");
    await_token(s, s->name, old); /* mysql describes a grant a moment later */
    peer_stop(paused);
    check_ok(stile_break(s->client, s->name, old, &why));
    struct stile_lock *lock = lock_on(s->client, s->name, NULL);
    check_ok(stile_lock_acquire(lock, PATIENCE_MS, &why));
    uint64_t token = token_of(lock);
    assert_true(token > old);
    check_ok(stile_lock_issuer(lock, issuer, sizeof issuer));
    assert_string_equal(strchr(issuer, ':') + 1, s->name);
    check_ok(
        stile_guard_raise(s->client, s->name, token, STILE_GUARD_OPTIONS(.issuer = issuer), &why));
    peer_tell(paused, "put %" PRIu64 " %s", old, hex);
    peer_continue(paused);
    peer_expect(paused, "failed STALE");
    check_ok(put_with(s, "newer", STILE_CELL_OPTIONS(.token = token, .issuer = issuer)));
    peer_tell(paused, "put %" PRIu64 " %s", old, hex);
    peer_expect(paused, "failed STALE");
    check_text(s, "newer");
    check_ok(stile_lock_release(lock, &why));
}

/* Processes with growing tokens write their token as the value: it never goes back. */
static void test_guards_let_values_only_grow(void **state)
{
    struct scene *s = *state;
    struct peer *peers[4];
    char hex[2 * sizeof s->name + 1];
    unsigned rounds = scene_rounds(s, 100, 20);
    if (!has_cells(s))
        return;
    to_hex(hex, s->name);
    arena_reset();
    for (size_t i = 0; i < COUNT(peers); i++)
        peers[i] = peer_start(s, NULL, NULL);
    for (size_t i = 0; i < COUNT(peers); i++)
        peer_tell(peers[i], "climb %u %s", rounds, hex);
    for (size_t i = 0; i < COUNT(peers); i++)
        peer_expect(peers[i], "climbed");
    assert_int_equal(suite.arena->backwards, 0);
    struct stile_cell *cell = cell_of(s, s->name);
    assert_int_equal(cell->token, suite.arena->count);
    assert_int_equal(suite.arena->last_token, suite.arena->count);
    stile_cell_free(cell);
}

SUITE_PART(guards, SCENE_TEST(test_guards_refuse_smaller_tokens),
           SCENE_TEST(test_guards_compare_large_tokens),
           SCENE_TEST(test_guards_that_are_strict_take_a_token_once),
           SCENE_TEST(test_guards_refuse_writes_without_a_token),
           SCENE_TEST(test_guards_refuse_other_issuers),
           SCENE_TEST(test_guards_are_not_raised_by_what_is_refused),
           SCENE_TEST(test_guards_are_raised_before_anything_is_written),
           SCENE_TEST(test_guards_are_checked_without_a_trace), SCENE_TEST(test_guards_are_reset),
           SCENE_TEST(test_guards_outlive_removal),
           SCENE_TEST(test_guards_refuse_a_holder_that_was_paused),
           SCENE_TEST(test_guards_let_values_only_grow))
