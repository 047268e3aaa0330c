/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Cells with an end: put with keep_ms, and gone some time after it, with version and guard. An
 * engine may keep them longer (etcd counts in seconds), so each test waits for the cell to vanish.
 */
#include "contract.h"

#include <stdio.h>
#include <string.h>

#define KEEP_MS 300

/* ---- kit ---- */

/* Whether the engine drops cells. */
static bool keeps(struct scene *s)
{
    if (!has_cells(s))
        return false;
    enum stile_status status = stile_cell_put(NULL, s->client, s->name, "x", 1,
                                              STILE_CELL_OPTIONS(.keep_ms = KEEP_MS), &why);
    bool can = stile_client_caps(s->client)->keeps;
    check_status(can ? STILE_OK : STILE_UNSUPPORTED, status);
    if (!can)
        print_message("# %s\n", why.message);
    return can;
}

static uint64_t put_kept(struct stile_client *client, const char *key, const char *text,
                         int64_t keep_ms, uint64_t token)
{
    uint64_t version = 0;
    check_ok(stile_cell_put(&version, client, key, text, strlen(text),
                            STILE_CELL_OPTIONS(.keep_ms = keep_ms, .token = token), &why));
    assert_true(version > 0);
    return version;
}

/* Tombstones and guards have no version either, but a token. */
static int until_nothing(const struct stile_cell *cell, void *data)
{
    (void)data;
    return cell->version == 0 && cell->token == 0;
}

static void wait_until_dropped(struct scene *s, const char *key)
{
    check_ok(stile_cell_watch(s->client, key, PATIENCE_MS, until_nothing, NULL, &why));
    check_cell(s, key, "", 0);
}

/* ---- the end ---- */

static void test_cells_are_dropped_when_their_time_is_over(void **state)
{
    struct scene *s = *state;
    if (!keeps(s))
        return;
    put_text(s->client, s->name, "permanent");
    int64_t before = now_ms();
    uint64_t version = put_kept(s->client, s->name, "kept", KEEP_MS, 0);
    check_cell(s, s->name, "kept", version);
    wait_until_dropped(s, s->name);
    assert_true(now_ms() >= before + KEEP_MS);
    assert_int_equal(count_cells(s->client, s->name), 0);
    uint64_t now = 1;
    check_status(STILE_CONFLICT, stile_cell_put(&now, s->client, s->name, "late", 4,
                                                STILE_CELL_OPTIONS(.if_version = &version), &why));
    assert_int_equal(now, 0);
    assert_true(put_kept(s->client, s->name, "again", KEEP_MS, 0) > version);
}

static void test_cells_are_dropped_with_their_guards(void **state)
{
    struct scene *s = *state;
    struct stile_cell *cell;
    if (!keeps(s))
        return;
    put_kept(s->client, s->name, "kept", KEEP_MS, 34);
    check_status(STILE_STALE, stile_cell_put(NULL, s->client, s->name, "old", 3,
                                             STILE_CELL_OPTIONS(.token = 33), &why));
    check_ok(stile_guard_raise(s->client, s->name, 35, NULL, &why));
    wait_until_dropped(s, s->name);
    put_kept(s->client, s->name, "new", KEEP_MS, 3);
    cell = cell_of(s, s->name);
    assert_int_equal(cell->token, 3);
    stile_cell_free(cell);
}

/* A tombstone has an end, too. */
static void test_cells_that_were_removed_are_dropped(void **state)
{
    struct scene *s = *state;
    if (!keeps(s))
        return;
    put_kept(s->client, s->name, "kept", KEEP_MS, 7);
    check_ok(stile_cell_remove(s->client, s->name, STILE_CELL_OPTIONS(.token = 7), &why));
    struct stile_cell *cell = cell_of(s, s->name);
    assert_int_equal(cell->version, 0);
    assert_int_equal(cell->token, 7);
    stile_cell_free(cell);
    wait_until_dropped(s, s->name);
}

/* ---- the last put counts ---- */

static void keep_name(char name[STILE_NAME_MAX + 1], const struct scene *s, const char *suffix)
{
    (void)snprintf(name, STILE_NAME_MAX + 1, "%s%s", s->name, suffix);
}

/* A cell beside it, put at the same time for as long, has gone meanwhile. */
static void test_cells_put_again_without_keep_are_permanent(void **state)
{
    struct scene *s = *state;
    char longer[STILE_NAME_MAX + 1], beside[STILE_NAME_MAX + 1];
    if (!keeps(s))
        return;
    keep_name(longer, s, "-longer");
    keep_name(beside, s, "-beside");
    put_kept(s->client, s->name, "one", KEEP_MS, 9);
    put_kept(s->client, longer, "one", KEEP_MS, 0);
    uint64_t version = 0;
    check_ok(stile_cell_put(&version, s->client, s->name, "two", 3, STILE_CELL_OPTIONS(.token = 9),
                            &why));
    uint64_t renewed = put_kept(s->client, longer, "two", 60000, 0);
    put_kept(s->client, beside, "one", KEEP_MS, 0);
    wait_until_dropped(s, beside);
    check_cell(s, s->name, "two", version);
    check_cell(s, longer, "two", renewed);
    struct stile_cell *cell = cell_of(s, s->name);
    assert_int_equal(cell->token, 9);
    stile_cell_free(cell);
    assert_int_equal(count_cells(s->client, s->name), 2);
}

static int append(struct stile_cell_next *next, const struct stile_cell *now, void *data)
{
    (void)now, (void)data;
    next->value = "updated";
    next->size = 7;
    return 0;
}

static void test_cells_updated_with_keep_are_dropped(void **state)
{
    struct scene *s = *state;
    if (!keeps(s))
        return;
    put_text(s->client, s->name, "permanent");
    check_ok(stile_cell_update(NULL, s->client, s->name, append, NULL,
                               STILE_CELL_OPTIONS(.keep_ms = KEEP_MS), &why));
    wait_until_dropped(s, s->name);
}

static void test_cells_are_kept_for_ten_years_at_most(void **state)
{
    struct scene *s = *state;
    if (!keeps(s))
        return;
    uint64_t version = put_kept(s->client, s->name, "long", STILE_CELL_KEEP_MAX, 0);
    check_cell(s, s->name, "long", version);
    const int64_t wrong[] = {-1, STILE_CELL_KEEP_MAX + 1};
    for (size_t i = 0; i < 2; i++)
        check_status(STILE_MISUSE, stile_cell_put(NULL, s->client, s->name, "x", 1,
                                                  STILE_CELL_OPTIONS(.keep_ms = wrong[i]), &why));
    check_cell(s, s->name, "long", version);
}

SUITE_PART(kept, SCENE_TEST(test_cells_are_dropped_when_their_time_is_over),
           SCENE_TEST(test_cells_are_dropped_with_their_guards),
           SCENE_TEST(test_cells_that_were_removed_are_dropped),
           SCENE_TEST(test_cells_put_again_without_keep_are_permanent),
           SCENE_TEST(test_cells_updated_with_keep_are_dropped),
           SCENE_TEST(test_cells_are_kept_for_ten_years_at_most))
