/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Cells: values with a version, read, written, removed, listed, updated and watched. What their
 * guards refuse is in guards.c. */
#include "contract.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- kit ---- */

struct stile_cell *cell_of(struct scene *s, const char *key)
{
    struct stile_cell *cell = NULL;
    check_ok(stile_cell_get(&cell, s->client, key, &why));
    assert_non_null(cell);
    assert_string_equal(cell->key, key);
    assert_non_null(cell->issuer);
    return cell;
}

/* "": there is none. */
void check_cell(struct scene *s, const char *key, const char *text, uint64_t version)
{
    struct stile_cell *cell = cell_of(s, key);
    assert_int_equal(cell->version, version);
    if (version == 0) {
        assert_null(cell->value);
    } else {
        assert_int_equal(cell->size, strlen(text));
        assert_memory_equal(cell->value, text, cell->size + 1);
    }
    stile_cell_free(cell);
}

uint64_t put_text(struct stile_client *client, const char *key, const char *text)
{
    uint64_t version = 0;
    check_ok(stile_cell_put(&version, client, key, text, strlen(text), NULL, &why));
    assert_true(version > 0);
    return version;
}

uint64_t cell_version(struct scene *s, const char *key)
{
    struct stile_cell *cell = cell_of(s, key);
    uint64_t version = cell->version;
    stile_cell_free(cell);
    return version;
}

static int count_one(const struct stile_cell *cell, void *data)
{
    (void)cell;
    ++*(size_t *)data;
    return 0;
}

size_t count_cells(struct stile_client *client, const char *prefix)
{
    size_t n = 0;
    check_ok(stile_cell_list(client, prefix, count_one, &n, &why));
    return n;
}

/* ---- reading and writing ---- */

static void test_cells_are_read_as_they_were_put(void **state)
{
    struct scene *s = *state;
    if (!has_cells(s))
        return;
    check_cell(s, s->name, "", 0);
    uint64_t first = put_text(s->client, s->name, "one");
    check_cell(s, s->name, "one", first);
    uint64_t second = put_text(s->client, s->name, "two");
    assert_true(second > first);
    check_cell(s, s->name, "two", second);
    uint64_t third = put_text(s->client, s->name, "");
    assert_true(third > second);
    check_cell(s, s->name, "", third);
}

static void test_cells_hold_any_bytes_up_to_the_limit(void **state)
{
    static unsigned char bytes[STILE_CELL_MAX + 1];
    struct scene *s = *state;
    if (!has_cells(s))
        return;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 7 + i / 256);
    for (size_t size = 0; size <= STILE_CELL_MAX; size = size * 4 + 255) {
        check_ok(stile_cell_put(NULL, s->client, s->name, bytes, size, NULL, &why));
        struct stile_cell *cell = cell_of(s, s->name);
        assert_int_equal(cell->size, size);
        assert_memory_equal(cell->value, bytes, size);
        stile_cell_free(cell);
    }
    check_ok(stile_cell_put(NULL, s->client, s->name, bytes, STILE_CELL_MAX, NULL, &why));
    check_status(STILE_MISUSE,
                 stile_cell_put(NULL, s->client, s->name, bytes, sizeof bytes, NULL, &why));
    assert_non_null(strstr(why.message, "65537"));
}

static void test_cells_are_created_once(void **state)
{
    struct scene *s = *state;
    uint64_t none = 0, version = 0, now = 0;
    if (!has_cells(s))
        return;
    check_ok(stile_cell_put(&version, s->client, s->name, "a", 1,
                            STILE_CELL_OPTIONS(.if_version = &none), &why));
    check_status(STILE_CONFLICT, stile_cell_put(&now, s->client, s->name, "b", 1,
                                                STILE_CELL_OPTIONS(.if_version = &none), &why));
    assert_int_equal(now, version);
    assert_non_null(strstr(why.message, "exists"));
    check_cell(s, s->name, "a", version);
}

static void test_cells_are_replaced_by_version(void **state)
{
    struct scene *s = *state;
    uint64_t version, now = 0, wrong;
    if (!has_cells(s))
        return;
    wrong = 1;
    check_status(STILE_CONFLICT, stile_cell_put(&now, s->client, s->name, "x", 1,
                                                STILE_CELL_OPTIONS(.if_version = &wrong), &why));
    assert_int_equal(now, 0);
    version = put_text(s->client, s->name, "a");
    uint64_t old = version;
    check_ok(stile_cell_put(&version, s->client, s->name, "b", 1,
                            STILE_CELL_OPTIONS(.if_version = &old), &why));
    assert_true(version > old);
    check_status(STILE_CONFLICT, stile_cell_put(&now, s->client, s->name, "c", 1,
                                                STILE_CELL_OPTIONS(.if_version = &old), &why));
    assert_int_equal(now, version);
    check_status(STILE_CONFLICT, stile_cell_remove(s->client, s->name,
                                                   STILE_CELL_OPTIONS(.if_version = &old), &why));
    check_cell(s, s->name, "b", version);
    check_ok(
        stile_cell_remove(s->client, s->name, STILE_CELL_OPTIONS(.if_version = &version), &why));
    check_cell(s, s->name, "", 0);
}

/* A version that came back would let a slow writer replace what it has never seen. */
static void test_cells_never_repeat_a_version(void **state)
{
    struct scene *s = *state;
    uint64_t last = 0;
    if (!has_cells(s))
        return;
    check_ok(stile_cell_remove(s->client, s->name, NULL, &why));
    for (int i = 0; i < 4; i++) {
        uint64_t none = 0, version;
        check_ok(stile_cell_put(&version, s->client, s->name, "x", 1,
                                STILE_CELL_OPTIONS(.if_version = &none), &why));
        assert_true(version > last);
        if (i % 2)
            version = put_text(s->client, s->name, "y");
        check_ok(stile_cell_remove(s->client, s->name, NULL, &why));
        check_status(STILE_CONFLICT,
                     stile_cell_put(NULL, s->client, s->name, "z", 1,
                                    STILE_CELL_OPTIONS(.if_version = &version), &why));
        check_cell(s, s->name, "", 0);
        last = version;
    }
}

static void test_cells_outlive_their_client(void **state)
{
    struct scene *s = *state;
    if (!has_cells(s))
        return;
    struct stile_client *other = scene_client(s, NULL);
    uint64_t version = put_text(other, s->name, "here to stay");
    stile_client_close(other);
    s->clients[0] = NULL;
    check_cell(s, s->name, "here to stay", version);
}

static void test_cells_and_locks_have_names_of_their_own(void **state)
{
    struct scene *s = *state;
    if (!has_cells(s))
        return;
    struct stile_lock *lock = held_on(s->client, s->name, NULL);
    uint64_t version = put_text(s->client, s->name, "beside the lock");
    check_cell(s, s->name, "beside the lock", version);
    assert_true(stile_lock_held(lock));
    check_ok(stile_cell_remove(s->client, s->name, NULL, &why));
    check_ok(stile_lock_release(lock, &why));
    check_free(s, s->name);
}

/* ---- listing ---- */

struct listed {
    char keys[32][STILE_NAME_MAX + 1];
    size_t n, most;
};

static int note_key(const struct stile_cell *cell, void *data)
{
    struct listed *listed = data;
    assert_null(cell->value);
    assert_true(cell->version > 0);
    assert_int_equal(cell->size, 3);
    assert_true(listed->n < COUNT(listed->keys));
    snprintf(listed->keys[listed->n++], STILE_NAME_MAX + 1, "%s", cell->key);
    return listed->n == listed->most;
}

static void test_cells_are_listed_in_order(void **state)
{
    static const char *const ends[] = {"",   " x", "%25", "*?[a-z]", "-", "/",   "/a/b",    "A",
                                       "\\", "_",  "a",   "a'b\"c",  "b", "{a}", "\xc3\xa9"};
    struct scene *s = *state;
    struct listed listed = {.n = 0};
    char key[128];
    if (!has_cells(s))
        return;
    for (size_t i = COUNT(ends); i > 0; i--) {
        snprintf(key, sizeof key, "%s%s", s->name, ends[i - 1]);
        put_text(s->client, key, "abc");
    }
    snprintf(key, sizeof key, "%s_", s->name);
    check_ok(stile_cell_remove(s->client, key, NULL, &why));
    check_ok(stile_cell_list(s->client, s->name, note_key, &listed, &why));
    assert_int_equal(listed.n, COUNT(ends) - 1);
    for (size_t i = 0, j = 0; i < COUNT(ends); i++) {
        if (strcmp(ends[i], "_") == 0)
            continue;
        snprintf(key, sizeof key, "%s%s", s->name, ends[i]);
        assert_string_equal(listed.keys[j++], key);
    }
    listed = (struct listed){.most = 2};
    check_ok(stile_cell_list(s->client, s->name, note_key, &listed, &why));
    assert_int_equal(listed.n, 2);
}

static void test_cells_with_long_names_do_not_collide(void **state)
{
    struct scene *s = *state;
    char a[STILE_NAME_MAX + 1], b[STILE_NAME_MAX + 1];
    if (!has_cells(s))
        return;
    memset(a, 'n', sizeof a);
    memcpy(a, s->name, strlen(s->name));
    a[STILE_NAME_MAX] = '\0';
    strcpy(b, a);
    b[STILE_NAME_MAX - 1] = 'm';
    uint64_t one = put_text(s->client, a, "one"), two = put_text(s->client, b, "two");
    check_cell(s, a, "one", one);
    check_cell(s, b, "two", two);
    b[STILE_NAME_MAX - 1] = '\0';
    check_cell(s, b, "", 0);
    struct listed listed = {.n = 0};
    check_ok(stile_cell_list(s->client, s->name, note_key, &listed, &why));
    assert_int_equal(listed.n, 2);
    assert_string_equal(listed.keys[1], a);
}

/* ---- updating ---- */

static int add_one(struct stile_cell_next *next, const struct stile_cell *now, void *data)
{
    char *text = data;
    int count = now->version ? atoi(now->value) : 0;
    next->value = text;
    next->size = (size_t)sprintf(text, "%d", count + 1);
    return 0;
}

enum stile_status count_up(struct stile_client *client, const char *key, unsigned rounds)
{
    char text[32];
    enum stile_status status = STILE_OK;
    for (; rounds && !status; rounds--)
        status = stile_cell_update(NULL, client, key, add_one, text,
                                   STILE_CELL_OPTIONS(.tries = 1000), NULL);
    return status;
}

static void test_cells_lose_no_update_of_many_processes(void **state)
{
    struct scene *s = *state;
    struct peer *peers[4];
    char hex[2 * sizeof s->name + 1], want[32];
    unsigned rounds = scene_rounds(s, 100, 25);
    if (!has_cells(s))
        return;
    for (size_t i = 0; s->name[i]; i++)
        sprintf(hex + 2 * i, "%02x", (unsigned char)s->name[i]);
    for (size_t i = 0; i < COUNT(peers); i++)
        peers[i] = peer_start(s, NULL, NULL);
    for (size_t i = 0; i < COUNT(peers); i++)
        peer_tell(peers[i], "count %u %s", rounds, hex);
    for (size_t i = 0; i < COUNT(peers); i++)
        peer_expect(peers[i], "counted");
    struct stile_cell *cell = cell_of(s, s->name);
    sprintf(want, "%u", rounds * (unsigned)COUNT(peers));
    assert_string_equal(cell->value, want);
    stile_cell_free(cell);
}

/* Changes the cell behind the update's back. */
struct spoiler {
    struct scene *s;
    int calls;
};

static int spoil(struct stile_cell_next *next, const struct stile_cell *now, void *data)
{
    struct spoiler *spoiler = data;
    (void)now;
    spoiler->calls++;
    put_text(spoiler->s->client, spoiler->s->name, "spoilt");
    next->value = "never";
    next->size = 5;
    return 0;
}

static int decline(struct stile_cell_next *next, const struct stile_cell *now, void *data)
{
    (void)next, (void)now, (void)data;
    return 1;
}

static int take_away(struct stile_cell_next *next, const struct stile_cell *now, void *data)
{
    (void)now, (void)data;
    next->remove = true;
    return 0;
}

static void test_cells_give_an_update_up(void **state)
{
    struct scene *s = *state;
    struct spoiler spoiler = {.s = s};
    uint64_t version = 1;
    if (!has_cells(s))
        return;
    check_status(STILE_CONFLICT, stile_cell_update(NULL, s->client, s->name, spoil, &spoiler,
                                                   STILE_CELL_OPTIONS(.tries = 3), &why));
    assert_int_equal(spoiler.calls, 3);
    check_status(STILE_CANCELLED,
                 stile_cell_update(NULL, s->client, s->name, decline, NULL, NULL, &why));
    struct stile_cell *cell = cell_of(s, s->name);
    assert_string_equal(cell->value, "spoilt");
    stile_cell_free(cell);
    check_ok(stile_cell_update(&version, s->client, s->name, take_away, NULL, NULL, &why));
    assert_int_equal(version, 0);
    check_cell(s, s->name, "", 0);
}

/* ---- watching ---- */

/* Each call makes the next change, through another client. */
struct watcher {
    struct scene *s;
    struct stile_client *other;
    uint64_t version;
    int calls;
};

static int next_change(const struct stile_cell *cell, void *data)
{
    struct watcher *w = data;
    switch (w->calls++) {
    case 0:
        assert_int_equal(cell->version, 0);
        w->version = put_text(w->other, w->s->name, "first");
        return 0;
    case 1:
        assert_int_equal(cell->version, w->version);
        assert_string_equal(cell->value, "first");
        w->version = put_text(w->other, w->s->name, "second");
        return 0;
    case 2:
        assert_string_equal(cell->value, "second");
        check_ok(stile_guard_raise(w->other, w->s->name, 5, NULL, &why));
        return 0;
    case 3:
        assert_int_equal(cell->token, 5);
        assert_int_equal(cell->version, w->version);
        check_ok(stile_cell_remove(w->other, w->s->name, STILE_CELL_OPTIONS(.token = 5), &why));
        return 0;
    default:
        assert_int_equal(cell->version, 0);
        assert_null(cell->value);
        return 1;
    }
}

static void test_cells_are_watched(void **state)
{
    struct scene *s = *state;
    if (!has_cells(s))
        return;
    struct watcher w = {.s = s, .other = scene_client(s, NULL)};
    check_ok(stile_cell_watch(s->client, s->name, PATIENCE_MS, next_change, &w, &why));
    assert_int_equal(w.calls, 5);
}

static void test_cells_that_do_not_change_end_a_watch(void **state)
{
    struct scene *s = *state;
    size_t calls = 0;
    if (!has_cells(s))
        return;
    put_text(s->client, s->name, "still");
    check_status(STILE_TIMEOUT, stile_cell_watch(s->client, s->name, 150, count_one, &calls, &why));
    assert_int_equal(calls, 1);
}

/* ---- async ---- */

struct outcome {
    sem_t sem;
    enum stile_status status;
    uint64_t version, token;
    char value[16];
    bool reported;
};

static void note(const struct stile_cell *cell, enum stile_status status,
                 const struct stile_error *err, void *data)
{
    struct outcome *o = data;
    assert_int_equal(err != NULL, status != STILE_OK);
    o->status = status;
    o->reported = cell != NULL;
    if (cell) {
        o->version = cell->version;
        o->token = cell->token;
        snprintf(o->value, sizeof o->value, "%s", cell->value ? (const char *)cell->value : "-");
    }
    sem_post(&o->sem);
}

static void test_cells_have_async_calls(void **state)
{
    struct scene *s = *state;
    struct outcome *o = scene_memory(s, sizeof *o);
    uint64_t none = 0;
    char value[] = "later";
    if (!has_cells(s))
        return;
    sem_init(&o->sem, 0, 0);
    check_ok(stile_cell_put_async(s->client, s->name, value, 5, NULL, note, o));
    memset(value, 'x', 5); /* it was copied */
    await_post(&o->sem);
    check_ok(o->status);
    uint64_t version = o->version;
    check_ok(stile_cell_get_async(s->client, s->name, note, o));
    await_post(&o->sem);
    check_ok(o->status);
    assert_string_equal(o->value, "later");
    assert_int_equal(o->version, version);
    check_ok(stile_cell_put_async(s->client, s->name, "x", 1,
                                  STILE_CELL_OPTIONS(.if_version = &none), note, o));
    await_post(&o->sem);
    check_status(STILE_CONFLICT, o->status);
    assert_true(o->reported && o->version == version);
    check_ok(stile_guard_raise_async(s->client, s->name, 7, NULL, note, o));
    await_post(&o->sem);
    check_ok(o->status);
    assert_int_equal(o->token, 7);
    check_ok(stile_cell_remove_async(s->client, s->name, STILE_CELL_OPTIONS(.token = 6), note, o));
    await_post(&o->sem);
    check_status(STILE_STALE, o->status);
    assert_int_equal(o->token, 7);
}

static void note_end(struct stile_client *client, enum stile_status status,
                     const struct stile_error *err, void *data)
{
    struct outcome *o = data;
    (void)client, (void)err;
    o->status = status;
    sem_post(&o->sem);
}

static int note_watched(const struct stile_cell *cell, void *data)
{
    struct outcome *o = data;
    o->version = cell->version;
    sem_post(&o->sem);
    return 0;
}

static void test_cells_are_watched_without_waiting(void **state)
{
    struct scene *s = *state;
    struct outcome *o = scene_memory(s, sizeof *o);
    uint64_t watch = 0;
    if (!has_cells(s))
        return;
    sem_init(&o->sem, 0, 0);
    check_ok(stile_cell_watch_async(&watch, s->client, s->name, -1, note_watched, note_end, o));
    await_post(&o->sem);
    assert_int_equal(o->version, 0);
    uint64_t version = put_text(s->client, s->name, "seen");
    await_post(&o->sem);
    assert_int_equal(o->version, version);
    check_ok(stile_cell_watch_cancel(s->client, watch));
    await_post(&o->sem);
    check_status(STILE_CANCELLED, o->status);
}

/* ---- the engine's clock ---- */

static int64_t time_read(struct scene *s)
{
    struct stile_cell *cell = cell_of(s, s->name);
    int64_t time_us = cell->time_us;
    stile_cell_free(cell);
    return time_us;
}

/* The servers of the tests run on this machine. An hour is what a wrong time zone would add. */
static void test_a_read_cell_comes_with_the_engines_time(void **state)
{
    struct scene *s = *state;
    const int64_t hour_us = INT64_C(3600) * 1000000;
    if (!has_cells(s))
        return;
    if (!stile_client_caps(s->client)->clock) {
        assert_int_equal(time_read(s), 0);
        return;
    }
    int64_t first = time_read(s), here = (int64_t)time(NULL) * 1000000;
    assert_true(first > here - hour_us && first < here + hour_us);
    put_text(s->client, s->name, "one");
    int64_t second = time_read(s);
    assert_true(second > first && second < first + hour_us);
}

SUITE_PART(cells, SCENE_TEST(test_cells_are_read_as_they_were_put),
           SCENE_TEST(test_a_read_cell_comes_with_the_engines_time),
           SCENE_TEST(test_cells_hold_any_bytes_up_to_the_limit),
           SCENE_TEST(test_cells_are_created_once), SCENE_TEST(test_cells_are_replaced_by_version),
           SCENE_TEST(test_cells_never_repeat_a_version),
           SCENE_TEST(test_cells_outlive_their_client),
           SCENE_TEST(test_cells_and_locks_have_names_of_their_own),
           SCENE_TEST(test_cells_are_listed_in_order),
           SCENE_TEST(test_cells_with_long_names_do_not_collide),
           SCENE_TEST(test_cells_lose_no_update_of_many_processes),
           SCENE_TEST(test_cells_give_an_update_up), SCENE_TEST(test_cells_are_watched),
           SCENE_TEST(test_cells_that_do_not_change_end_a_watch),
           SCENE_TEST(test_cells_have_async_calls),
           SCENE_TEST(test_cells_are_watched_without_waiting))
