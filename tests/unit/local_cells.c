/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Cells of the local engine: names longer than LMDB's keys, what a listing visits, and the pages of
 * a file that has many of them. */
#include "unit/local_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stile.h"

#define HEAD 500 /* longer names have other keys */

static char dir[64];
static struct stile_client *client;
static struct stile_error why;

static int open_all(void **state)
{
    char url[80];
    (void)state;
    kit_make_dir(dir);
    snprintf(url, sizeof url, "local:%s", dir);
    return stile_client_open(&client, url, NULL, &why) != STILE_OK;
}

static int close_all(void **state)
{
    (void)state;
    stile_client_close(client);
    kit_remove_dir(dir);
    return 0;
}

static void put(const char *key)
{
    if (stile_cell_put(NULL, client, key, key, strlen(key), NULL, &why))
        fail_msg("%s", why.message);
}

static void check_is_own(const char *key)
{
    struct stile_cell *cell;
    assert_status(stile_cell_get(&cell, client, key, &why), OK);
    assert_int_equal(cell->version, 1);
    assert_string_equal(cell->value, key);
    stile_cell_free(cell);
}

struct listed {
    char last[STILE_NAME_MAX + 1];
    size_t n;
};

static int check_order(const struct stile_cell *cell, void *data)
{
    struct listed *listed = data;
    if (strcmp(listed->last, cell->key) >= 0)
        fail_msg("%s is not behind %s", cell->key, listed->last);
    strcpy(listed->last, cell->key);
    listed->n++;
    return 0;
}

static size_t count(const char *prefix)
{
    struct listed listed = {.n = 0};
    assert_status(stile_cell_list(client, prefix, check_order, &listed, &why), OK);
    return listed.n;
}

/* ---- long names ---- */

/* Two heads; of each, the head alone, shorter and longer names, up to the limit. */
static void make_name(char name[STILE_NAME_MAX + 1], char head, size_t len, unsigned number)
{
    memset(name, head, len);
    name[len] = '\0';
    if (len > HEAD + 4) {
        char digits[8];
        int n = snprintf(digits, sizeof digits, "%03u", number * 37 % 100);
        memcpy(name + len - (size_t)n, digits, (size_t)n);
    }
}

static void test_long_names_are_told_apart(void **state)
{
    static const size_t lengths[] = {HEAD - 1, HEAD, HEAD + 1, 505, 510, 511, 512};
    char name[STILE_NAME_MAX + 1], prefix[STILE_NAME_MAX + 1];
    size_t n = 0;
    (void)state;
    for (unsigned number = 0; number < 12; number++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            if (lengths[i] <= HEAD + 4 && number > 0)
                continue;
            for (const char *head = "ab"; *head; head++, n++) {
                make_name(name, *head, lengths[i], number);
                put(name);
            }
        }
    for (unsigned number = 0; number < 12; number++)
        for (size_t i = 3; i < sizeof lengths / sizeof *lengths; i++) {
            make_name(name, 'b', lengths[i], number);
            check_is_own(name);
        }
    assert_int_equal(count(""), n);
    assert_int_equal(count("a"), n / 2);
    make_name(prefix, 'b', HEAD, 0);
    assert_int_equal(count(prefix), n / 2 - 1);
    memset(prefix, 'b', 505 - 3);
    strcpy(prefix + 505 - 3, "00"); /* of those with 505 bytes, 000 and 007 */
    assert_int_equal(count(prefix), 2);
    assert_int_equal(count("c"), 0);
}

/* ---- many ---- */

#define MANY 1500

static void test_many_cells_are_found_and_listed(void **state)
{
    char key[32];
    (void)state;
    for (unsigned i = 0; i < MANY; i++) {
        snprintf(key, sizeof key, "%05u", i * 7919 % 100000);
        put(key);
    }
    for (unsigned i = 0; i < MANY; i += 11) {
        snprintf(key, sizeof key, "%05u", i * 7919 % 100000);
        check_is_own(key);
    }
    assert_int_equal(count(""), MANY);
    size_t sum = 0;
    for (char first = '0'; first <= '9'; first++)
        sum += count((char[]){first, '\0'});
    assert_int_equal(sum, MANY);
    assert_int_equal(count("00000"), 1);
    assert_int_equal(count("000000"), 0);
    assert_int_equal(count("~"), 0);
}

int main(void)
{
#define WITH_CLIENT(test) cmocka_unit_test_setup_teardown(test, open_all, close_all)
    const struct CMUnitTest tests[] = {
        WITH_CLIENT(test_long_names_are_told_apart),
        WITH_CLIENT(test_many_cells_are_found_and_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
