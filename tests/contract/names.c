/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Names are bytes: different bytes, different locks (LESSONS rows 22, 24). */
#include "contract.h"

#include <stdio.h>
#include <string.h>

/* Holds them all at once through one client: none may be another's. Each must be held for a second
 * client as well, and come back from show as it was given. */
static void check_distinct(struct scene *s, struct stile_client *other,
                           char (*names)[STILE_NAME_MAX + 1], size_t n)
{
    struct stile_lock *locks[256];
    struct seen seen;
    assert_true(n <= COUNT(locks));
    for (size_t i = 0; i < n; i++) {
        locks[i] = held_on(s->client, names[i], NULL);
        assert_string_equal(stile_lock_name(locks[i]), names[i]);
    }
    for (size_t i = 0; i < n; i++) {
        struct stile_lock *lock = lock_on(other, names[i], NULL);
        check_status(STILE_HELD, stile_lock_acquire(lock, 0, &why));
        look(other, names[i], &seen);
        assert_int_equal(seen.holders, 1);
        check_ok(stile_lock_release(locks[i], &why));
        check_ok(stile_lock_acquire(lock, 0, &why));
        check_ok(stile_lock_release(lock, &why));
    }
}

/* As many at once as the engine has room for. */
static void check_all_distinct(struct scene *s, char (*names)[STILE_NAME_MAX + 1], size_t n)
{
    struct stile_client *other = scene_client(s, NULL);
    size_t most = s->caps->most_locks > 0 ? s->caps->most_locks : n;
    for (size_t i = 0; i < n; i += most)
        check_distinct(s, other, names + i, n - i < most ? n - i : most);
}

/* Names that end in the given tails, each behind this test's own name. */
static void check_tails(struct scene *s, const char *const *tails, size_t n)
{
    static char names[32][STILE_NAME_MAX + 1];
    assert_true(n <= COUNT(names));
    for (size_t i = 0; i < n; i++)
        snprintf(names[i], sizeof names[i], "%s%s", s->name, tails[i]);
    check_all_distinct(s, names, n);
    for (size_t i = 0; i < n; i++)
        check_free(s, names[i]);
    assert_int_equal(count_listed(s->client, s->name), 0);
}

static void test_names_are_case_sensitive(void **state)
{
    static const char *const tails[] = {"-name", "-Name", "-NAME", "-\xc3\xa9", "-\xc3\x89"};
    check_tails(*state, tails, COUNT(tails));
}

static void test_names_with_odd_characters(void **state)
{
    static const char *const tails[] = {
        " ",     "  ",    " a", "a ",   "/",     "//",  "/..",   "/../x", "/.",  "a/b",
        "a%2fb", "a%2Fb", "%",  "%%",   "%00",   "{a}", "{b}",   "*",     "?",   "[a]",
        "\\",    "'",     "\"", "; --", "$(id)", "#12", "#1,42", "=&",    "a:b", "\xf0\x9f\x94\x92",
    };
    check_tails(*state, tails, COUNT(tails));
}

/* What starts alike must not be taken for one another, nor be listed as one. */
static void test_names_that_are_prefixes(void **state)
{
    static const char *const tails[] = {"", "a", "aa", "aaa", "aaaa", "aaaaa", "a/a", "a/aa"};
    check_tails(*state, tails, COUNT(tails));
}

static void test_names_differ_in_one_byte(void **state)
{
    struct scene *s = *state;
    static char names[224][STILE_NAME_MAX + 1];
    size_t n = 0;
    for (unsigned byte = 0x20; byte <= 0xff; byte++) {
        if (byte != 0x7f)
            snprintf(names[n++], sizeof names[0], "%s-%c-", s->name, (int)byte);
    }
    assert_int_equal(n, 223);
    check_all_distinct(s, names, n);
    assert_int_equal(count_listed(s->client, s->name), 0);
}

/* ---- length ---- */

static void test_names_of_one_byte(void **state)
{
    struct scene *s = *state;
    static char names[][STILE_NAME_MAX + 1] = {"x", "X", " ", "/", ".", "\xff", "\x80"};
    check_all_distinct(s, names, COUNT(names));
}

static void fill(char *name, const char *head, size_t len)
{
    memset(name, 'n', len);
    memcpy(name, head, strlen(head));
    name[len] = '\0';
}

/* All as long as can be, different in the last byte only: whatever an engine cuts or hashes. */
static void test_names_as_long_as_can_be(void **state)
{
    struct scene *s = *state;
    static char names[5][STILE_NAME_MAX + 1];
    for (size_t i = 0; i < 4; i++) {
        fill(names[i], s->name, STILE_NAME_MAX);
        names[i][STILE_NAME_MAX - 1] = (char)('a' + i);
    }
    fill(names[4], s->name, STILE_NAME_MAX - 1);
    check_all_distinct(s, names, COUNT(names));
    struct peer *peer = peer_start(s, names[0], NULL);
    peer_acquire(peer);
    peer_release(peer);
}

static void test_names_too_long_or_empty(void **state)
{
    struct scene *s = *state;
    struct stile_lock *lock;
    char name[STILE_NAME_MAX + 2];
    fill(name, s->name, STILE_NAME_MAX + 1);
    check_status(STILE_MISUSE, stile_lock_new(&lock, s->client, name, NULL, &why));
    assert_null(lock);
    check_status(STILE_MISUSE, stile_show(s->client, name, NULL, NULL, &why));
    check_status(STILE_MISUSE, stile_break(s->client, name, 0, &why));
    check_status(STILE_MISUSE, stile_lock_new(&lock, s->client, "", NULL, &why));
    check_status(STILE_MISUSE, stile_lock_new(&lock, s->client, NULL, NULL, &why));
}

static void test_names_with_control_characters(void **state)
{
    struct scene *s = *state;
    struct stile_lock *lock;
    char name[80];
    for (unsigned byte = 1; byte <= 0x7f; byte++) {
        bool control = byte < 0x20 || byte == 0x7f;
        snprintf(name, sizeof name, "%s%c", s->name, (int)byte);
        check_status(control ? STILE_MISUSE : STILE_OK,
                     stile_lock_new(&lock, s->client, name, NULL, &why));
        assert_true(control == (lock == NULL));
        for (const char *c = why.message; *c; c++)
            assert_true((unsigned char)*c >= 0x20);
    }
}

/* clang-format off */
SUITE_PART(names,
    SCENE_TEST(test_names_are_case_sensitive),
    SCENE_TEST(test_names_with_odd_characters),
    SCENE_TEST(test_names_that_are_prefixes),
    SCENE_TEST(test_names_differ_in_one_byte),
    SCENE_TEST(test_names_of_one_byte),
    SCENE_TEST(test_names_as_long_as_can_be),
    SCENE_TEST(test_names_too_long_or_empty),
    SCENE_TEST(test_names_with_control_characters))
/* clang-format on */
