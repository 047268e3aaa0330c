/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The file of cells is cut off, foreign, or has damaged pages: each request ends in CORRUPT or does
 * what it would have done on a sound file. Never a signal, never a wrong value, and above all no
 * guard that has forgotten its token. */
#include "fault/local_cells_kit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE     4096
#define N_CELLS  220
#define TOKEN    50
#define N_BRIEF  60
#define BRIEF_MS 2000 /* all of them are put meanwhile, so that none drops another */
#define CHILD_S  20   /* more is a hang */

/* A file in which cells of all sizes were written, overwritten and removed. */
static struct {
    uint8_t *bytes;
    size_t size, used; /* used: up to the last page that is not all zero */
} specimen;

static void key_of(char key[STILE_NAME_MAX + 1], int i)
{
    int n = snprintf(key, STILE_NAME_MAX + 1, "cell %d", i * 7919 % 1000);
    if (i % 20 == 0) { /* longer than a key of LMDB */
        memset(key + n, 'x', STILE_NAME_MAX - (size_t)n);
        key[STILE_NAME_MAX] = '\0';
    }
}

static size_t size_of(int i)
{
    return i % 10 == 0 ? 20000u + (unsigned)i : i % 3 == 0 ? 900 : (unsigned)i;
}

static bool is_removed(int i)
{
    return i % 11 == 5;
}

static void put_kept(struct stile_client *client, const char *key, const void *bytes, size_t size,
                     int64_t keep_ms)
{
    assert_status(stile_cell_put(NULL, client, key, bytes, size,
                                 STILE_CELL_OPTIONS(.token = TOKEN, .keep_ms = keep_ms), &why),
                  OK);
}

static int is_gone(const struct stile_cell *cell, void *data)
{
    (void)data;
    return cell->version == 0;
}

static void until_dropped(struct stile_client *client, const char *key)
{
    assert_status(stile_cell_watch(client, key, -1, is_gone, NULL, &why), OK);
}

/* Some have an end: years away, or over by now and not yet dropped. */
static void write_specimen(struct stile_client *client)
{
    static uint8_t value[STILE_CELL_MAX];
    char key[STILE_NAME_MAX + 1];
    for (int i = 0; i < N_CELLS; i++) {
        key_of(key, i);
        cells_fill(value, size_of(i), key, 0);
        if (i % 4 == 0)
            assert_status(cells_put(client, key, value, size_of(i) / 2, TOKEN - 1), OK);
        put_kept(client, key, value, size_of(i), i % 5 == 2 ? STILE_CELL_KEEP_MAX : 0);
        if (is_removed(i))
            assert_status(stile_cell_remove(client, key, STILE_CELL_OPTIONS(.token = TOKEN), &why),
                          OK);
    }
    for (int i = 0; i < N_BRIEF; i++) {
        snprintf(key, sizeof key, "brief %d", i);
        put_kept(client, key, value, size_of(i), BRIEF_MS);
    }
    until_dropped(client, key);
}

static int make_specimen(void **state)
{
    place_make(state);
    struct stile_client *client = cells_open();
    write_specimen(client);
    stile_client_close(client);
    specimen.size = specimen.used = cells_file_read(&specimen.bytes);
    while (specimen.bytes[specimen.used - 1] == 0)
        specimen.used--;
    specimen.used = (specimen.used + PAGE - 1) / PAGE * PAGE;
    return 0;
}

static int drop_specimen(void **state)
{
    free(specimen.bytes);
    return place_remove(state);
}

/* ---- what must hold on any file ---- */

static unsigned seed;
static unsigned n_corrupt, n_asked;

/* Of a child it ends the process: cmocka would go on with the other tests in it. */
static bool is_child;

static void complain(const char *key, const char *what)
{
    if (!is_child)
        fail_msg("%s: %s", key, what);
    fprintf(stderr, "# %s: %s\n", key, what);
    _exit(99);
}

static unsigned draw(unsigned below)
{
    return (unsigned)rand_r(&seed) % below;
}

static bool is_corrupt(enum stile_status status, const char *doing)
{
    n_asked++;
    n_corrupt += status == STILE_CORRUPT;
    if (status != STILE_OK && status != STILE_CORRUPT)
        complain(doing, why.message);
    return status != STILE_OK;
}

static void read_one(struct stile_client *client, int i)
{
    char key[STILE_NAME_MAX + 1];
    struct stile_cell *cell;
    key_of(key, i);
    if (is_corrupt(stile_cell_get(&cell, client, key, &why), "get"))
        return;
    if (cell->token != TOKEN || (cell->version != 0) == is_removed(i))
        complain(key, "it was forgotten");
    if (cell->version && (cell->size != size_of(i) || !cells_is_filled(cell, 0)))
        complain(key, "it has another value");
    stile_cell_free(cell);
}

static void refuse_one(struct stile_client *client, int i)
{
    char key[STILE_NAME_MAX + 1];
    key_of(key, i);
    enum stile_status status = cells_put(client, key, "late", 4, TOKEN - 1);
    n_asked++;
    n_corrupt += status == STILE_CORRUPT;
    if (status != STILE_STALE && status != STILE_CORRUPT)
        complain(key, status ? why.message : "a late write has passed");
}

static int count_one(const struct stile_cell *cell, void *data)
{
    (void)cell;
    ++*(int *)data;
    return 0;
}

static void list_all(struct stile_client *client)
{
    int n = 0, expected = 0;
    for (int i = 0; i < N_CELLS; i++)
        expected += !is_removed(i);
    if (!is_corrupt(stile_cell_list(client, "", count_one, &n, &why), "list") && n != expected)
        complain("list", "some are missing");
}

static void read_all(struct stile_client *client)
{
    for (int i = 0; i < 8; i++) {
        read_one(client, (int)draw(N_CELLS));
        refuse_one(client, (int)draw(N_CELLS));
    }
    list_all(client);
}

static void write_some(struct stile_client *client)
{
    static uint8_t value[STILE_CELL_MAX];
    char key[STILE_NAME_MAX + 1];
    for (int i = 0; i < 3; i++) {
        key_of(key, (int)draw(2 * N_CELLS));
        size_t size = draw(3) ? draw(1000) : draw(STILE_CELL_MAX);
        cells_fill(value, size, key, 0);
        const struct stile_cell_options how = {
            .size = sizeof how, .token = TOKEN + 1, .keep_ms = draw(2) ? STILE_CELL_KEEP_MAX : 0};
        if (is_corrupt(stile_cell_put(NULL, client, key, value, size, &how, &why), "put"))
            return;
    }
}

static int use_damaged(bool writes)
{
    is_child = true;
    alarm(CHILD_S);
    struct stile_client *client = cells_open();
    read_all(client);
    if (writes)
        write_some(client);
    stile_client_close(client);
    return 0;
}

/* ---- damage ---- */

static void flip_a_bit(uint8_t *bytes, size_t used)
{
    bytes[draw((unsigned)used)] ^= (uint8_t)(1 << draw(8));
}

static void change_some_bytes(uint8_t *bytes, size_t used)
{
    uint8_t *page = bytes + draw((unsigned)(used / PAGE)) * PAGE;
    for (int i = 0; i < 8; i++)
        page[draw(draw(2) ? 64 : PAGE)] = (uint8_t)draw(256);
}

static void zero_a_page(uint8_t *bytes, size_t used)
{
    memset(bytes + draw((unsigned)(used / PAGE)) * PAGE, 0, PAGE);
}

static void fill_a_page(uint8_t *bytes, size_t used)
{
    uint8_t *page = bytes + draw((unsigned)(used / PAGE)) * PAGE;
    for (int i = 0; i < PAGE; i++)
        page[i] = (uint8_t)draw(256);
}

static void copy_a_page(uint8_t *bytes, size_t used)
{
    unsigned n = (unsigned)(used / PAGE);
    memmove(bytes + draw(n) * PAGE, bytes + draw(n) * PAGE, PAGE);
}

/* Fields that LMDB believes: the head of a page, and the places of its nodes. */
static void change_a_head(uint8_t *bytes, size_t used)
{
    uint8_t *page = bytes + draw((unsigned)(used / PAGE)) * PAGE;
    uint16_t word = (uint16_t)draw(65536);
    memcpy(page + 2 * draw(20), &word, sizeof word);
}

typedef void damage_fn(uint8_t *bytes, size_t used);
static damage_fn *damage;
static bool with_writes;

static int act(void)
{
    return use_damaged(with_writes);
}

static void try_damage(damage_fn *fn, bool writes, unsigned rounds)
{
    uint8_t *bytes = malloc(specimen.size);
    damage = fn;
    with_writes = writes;
    for (unsigned i = 0; i < rounds; i++) {
        seed = i * 2 + writes;
        memcpy(bytes, specimen.bytes, specimen.size);
        damage(bytes, specimen.used);
        cells_file_write(bytes, specimen.size);
        int code = child_run(act);
        if (code)
            fail_msg("round %u ended with %d", i, code);
    }
    free(bytes);
    cells_file_write(specimen.bytes, specimen.size);
}

#define DAMAGE_TEST(kind)                                                                          \
    static void test_##kind(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        try_damage(kind, false, cells_rounds(60, 5000));                                           \
        try_damage(kind, true, cells_rounds(20, 3000));                                            \
    }

DAMAGE_TEST(flip_a_bit)
DAMAGE_TEST(change_some_bytes)
DAMAGE_TEST(change_a_head)
DAMAGE_TEST(zero_a_page)
DAMAGE_TEST(fill_a_page)
DAMAGE_TEST(copy_a_page)

/* ---- no damage ---- */

static void test_the_specimen_is_sound(void **state)
{
    (void)state;
    n_corrupt = 0;
    struct stile_client *client = cells_open();
    for (int i = 0; i < N_CELLS; i++) {
        read_one(client, i);
        refuse_one(client, i);
    }
    list_all(client);
    stile_client_close(client);
    assert_int_equal(n_corrupt, 0);
}

/* A key that reads as another one hides its record. Each bit of each copy of one name is flipped:
 * in its key, in its record, in pages that are no longer used. */
static void test_a_flipped_bit_in_a_key_hides_nothing(void **state)
{
    (void)state;
    char key[STILE_NAME_MAX + 1], path[128];
    const int one = 1;
    key_of(key, one);
    place_path(path, "cells");
    int fd = open(path, O_RDWR);
    struct stile_client *client = cells_open();
    n_corrupt = 0;
    for (size_t at = 0; at + strlen(key) <= specimen.used; at++) {
        if (memcmp(specimen.bytes + at, key, strlen(key)) != 0)
            continue;
        for (size_t bit = 0; bit < 8 * strlen(key); bit++) {
            uint8_t byte = specimen.bytes[at + bit / 8] ^ (uint8_t)(1 << bit % 8);
            off_t place = (off_t)(at + bit / 8);
            assert_int_equal(pwrite(fd, &byte, 1, place), 1);
            read_one(client, one);
            refuse_one(client, one);
            assert_int_equal(pwrite(fd, &specimen.bytes[place], 1, place), 1);
        }
    }
    assert_true(n_corrupt >= 8 * strlen(key));
    stile_client_close(client);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_flipped_bit_in_a_key_hides_nothing),
        cmocka_unit_test(test_the_specimen_is_sound),
        cmocka_unit_test(test_flip_a_bit),
        cmocka_unit_test(test_change_some_bytes),
        cmocka_unit_test(test_change_a_head),
        cmocka_unit_test(test_zero_a_page),
        cmocka_unit_test(test_fill_a_page),
        cmocka_unit_test(test_copy_a_page),
    };
    return cmocka_run_group_tests(tests, make_specimen, drop_specimen);
}
