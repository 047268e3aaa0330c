/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Cells of the local engine that end, on clocks that the tests set: reboots, a wall clock that
 * jumps, and what is left of many short-lived ones. */
#include "unit/local_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engines/local/cell_records.h"
#include "stile.h"

#define SECOND_NS UINT64_C(1000000000)
#define SECOND_US UINT64_C(1000000)

static char dir[64];
static struct party party;
static struct cell_now now;
static struct stile_error why;

/* In memory, if possible: ten thousand writes would wait for a disk twenty thousand times. */
static int open_all(void **state)
{
    (void)state;
    strcpy(dir, "/dev/shm/stile-ends-XXXXXX");
    if (!mkdtemp(dir))
        kit_make_dir(dir);
    kit_open(&party, dir);
    now = (struct cell_now){.boot = 7, .boot_ns = 100 * SECOND_NS, .wall_us = 5000 * SECOND_US};
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    kit_close(&party);
    kit_remove_dir(dir);
    return 0;
}

static void pass(uint64_t seconds)
{
    now.boot_ns += seconds * SECOND_NS;
    now.wall_us += seconds * SECOND_US;
}

/* ---- clocks ---- */

static void test_an_end_keeps_to_the_clock_of_its_boot(void **state)
{
    (void)state;
    const struct cell_end end = local_end_after(&now, 10 * SECOND_NS);
    now.wall_us += 1000 * SECOND_US;
    assert_false(local_end_is_over(&end, &now));
    now.boot_ns += 10 * SECOND_NS - 1;
    assert_false(local_end_is_over(&end, &now));
    assert_int_equal(local_end_left_ns(&end, &now), 1);
    now.boot_ns += 1;
    assert_true(local_end_is_over(&end, &now));
    now.wall_us = 0;
    assert_true(local_end_is_over(&end, &now));
}

static void test_after_a_reboot_the_wall_clock_counts(void **state)
{
    (void)state;
    const struct cell_end end = local_end_after(&now, 10 * SECOND_NS), never = {.boot = 0};
    now.boot = 9;
    now.boot_ns = 1000 * SECOND_NS;
    assert_false(local_end_is_over(&end, &now));
    now.wall_us += 10 * SECOND_US - 1;
    assert_false(local_end_is_over(&end, &now));
    assert_int_equal(local_end_left_ns(&end, &now), 1000);
    now.wall_us += 1;
    assert_true(local_end_is_over(&end, &now));
    assert_false(local_end_is_over(&never, &now));
}

/* ---- records ---- */

struct write {
    const char *name;
    uint64_t keep_ns, version;
    size_t size;
};

static enum stile_status put_in(struct cell_tx *tx, void *data, struct stile_error *err)
{
    static const char bytes[STILE_CELL_MAX];
    struct write *write = data;
    struct cell_record record;
    assert_status(local_record_find(&record, tx, write->name, strlen(write->name), err), OK);
    local_record_end(&record, &now);
    assert_status(local_record_first_version(&record, tx, err), OK);
    record.is_there = true;
    write->version = ++record.version;
    local_record_set_value(&record, bytes, write->size);
    record.end =
        write->keep_ns ? local_end_after(&now, write->keep_ns) : (struct cell_end){.boot = 0};
    enum stile_status status =
        local_record_store(tx, write->name, strlen(write->name), &record, err);
    return status ? status : local_record_drop_some(tx, &now, err);
}

static uint64_t put(const char *name, uint64_t keep_s, size_t size)
{
    struct write write = {.name = name, .keep_ns = keep_s * SECOND_NS, .size = size};
    if (local_cells_write(kit_local(&party)->env, put_in, &write, &why))
        fail_msg("%s", why.message);
    return write.version;
}

static void count_one(const char *name, const struct cell_record *record, void *data)
{
    (void)name, (void)record;
    ++*(size_t *)data;
}

static enum stile_status count_in(struct cell_tx *tx, void *data, struct stile_error *err)
{
    return local_record_each(tx, "", 0, count_one, data, err);
}

/* Records in the file, with those that have ended. */
static size_t n_stored(void)
{
    size_t n = 0;
    if (local_cells_read(kit_local(&party)->env, count_in, &n, &why))
        fail_msg("%s", why.message);
    return n;
}

static enum stile_status count_due(struct cell_tx *tx, void *data, struct stile_error *err)
{
    struct ends_due due;
    enum stile_status status = local_ends_due(&due, tx, &now, err);
    *(size_t *)data = due.n;
    return status;
}

static size_t n_due(void)
{
    size_t n = 0;
    assert_status(local_cells_read(kit_local(&party)->env, count_due, &n, &why), OK);
    return n;
}

static size_t file_bytes(void)
{
    char path[80];
    struct stat st;
    snprintf(path, sizeof path, "%s/cells", dir);
    assert_int_equal(stat(path, &st), 0);
    return (size_t)st.st_size;
}

static void test_many_that_end_leave_little(void **state)
{
    char name[STILE_NAME_MAX + 1];
    (void)state;
    put("stays", 0, 10);
    for (unsigned i = 0; i < 10000; i++, pass(1)) {
        int n = snprintf(name, sizeof name, "%u", i * 2654435761u);
        if (i % 7 == 0) { /* longer than a key of LMDB */
            memset(name + n, 'x', STILE_NAME_MAX - (size_t)n);
            name[STILE_NAME_MAX] = '\0';
        }
        put(name, 20, i % 50 == 0 ? 30000 : i % 100);
    }
    assert_true(n_stored() <= 1 + 20 + ENDS_DUE_MAX);
    assert_true(file_bytes() <= 4 << 20);
}

/* None was put while all ended: later puts drop four each. */
static void test_a_crowd_goes_in_steps(void **state)
{
    char name[32];
    (void)state;
    for (unsigned i = 0; i < 50; i++) {
        snprintf(name, sizeof name, "%u", i);
        put(name, 20, 10);
    }
    assert_int_equal(n_stored(), 50);
    pass(20);
    for (unsigned i = 0; i < 13; i++)
        put("other", 20, 10);
    assert_int_equal(n_stored(), 1);
    assert_int_equal(n_due(), 0);
}

static void test_a_version_does_not_come_back(void **state)
{
    uint64_t last = 0;
    (void)state;
    put("high", 0, 1);
    for (unsigned i = 0; i < 8; i++)
        last = put("k", 20, 1);
    pass(20);
    put("other", 20, 1);
    assert_int_equal(n_stored(), 2);
    uint64_t next = put("k", 20, 1);
    assert_true(next > last);
    assert_true(put("new", 20, 1) > last);
    put("k", 0, 1);
    pass(20);
    assert_true(put("k", 20, 1) > next);
}

/* The last put counts, also for the index. */
static void test_what_is_put_again_is_not_dropped(void **state)
{
    (void)state;
    put("longer", 20, 1);
    put("permanent", 20, 1);
    put("longer", 60, 1);
    put("permanent", 0, 1);
    pass(20);
    assert_int_equal(n_due(), 0);
    put("other", 60, 1);
    assert_int_equal(n_stored(), 3);
}

/* They stand in the way of those behind them, until each was put off once. */
static void test_a_wall_clock_set_forward_drops_nothing(void **state)
{
    char name[32];
    (void)state;
    for (unsigned i = 0; i < 12; i++) {
        snprintf(name, sizeof name, "%u", i);
        put(name, 1000, i * 1000);
    }
    now.wall_us += 2000 * SECOND_US;
    put("brief", 10, 1);
    put("brief too", 10, 1);
    put("other", 5000, 1);
    assert_int_equal(n_stored(), 15);
    pass(10);
    put("other", 5000, 1);
    assert_int_equal(n_stored(), 13);
    pass(990);
    for (unsigned i = 0; i < 3; i++)
        put("other", 5000, 1);
    assert_int_equal(n_stored(), 1);
}

static void test_ends_of_an_earlier_boot_are_dropped(void **state)
{
    (void)state;
    put("a", 20, 1);
    put("b", 40, 1);
    now = (struct cell_now){.boot = 9, .boot_ns = SECOND_NS, .wall_us = now.wall_us};
    now.wall_us += 20 * SECOND_US;
    put("other", 1000, 1);
    assert_int_equal(n_stored(), 2);
    now.wall_us += 20 * SECOND_US;
    put("other", 1000, 1);
    assert_int_equal(n_stored(), 1);
}

int main(void)
{
#define WITH_PARTY(test) cmocka_unit_test_setup_teardown(test, open_all, close_all)
    const struct CMUnitTest tests[] = {
        WITH_PARTY(test_an_end_keeps_to_the_clock_of_its_boot),
        WITH_PARTY(test_after_a_reboot_the_wall_clock_counts),
        WITH_PARTY(test_many_that_end_leave_little),
        WITH_PARTY(test_a_crowd_goes_in_steps),
        WITH_PARTY(test_a_version_does_not_come_back),
        WITH_PARTY(test_what_is_put_again_is_not_dropped),
        WITH_PARTY(test_a_wall_clock_set_forward_drops_nothing),
        WITH_PARTY(test_ends_of_an_earlier_boot_are_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
