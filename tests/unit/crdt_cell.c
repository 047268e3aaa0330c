/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* CRDTs in cells of local:, changed by several processes at once and without a lock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stile.h"
#include "support/scarcity.h"

#define PROCESSES 4
#define ADDS      12

static char dir[] = "/tmp/stile-crdt-XXXXXX", url[64];
static struct stile_client *client;
static struct stile_error why;

/* Others are faster more often than 20 times in a row here. */
static const struct stile_cell_options patient = {.size = sizeof patient, .tries = 1000};

static struct stile_crdt *replica(enum stile_crdt_kind kind, const char *name)
{
    struct stile_crdt *crdt;
    unsigned char id[STILE_REPLICA_SIZE] = {0};
    memcpy(id, name, strlen(name));
    assert_int_equal(stile_crdt_new(&crdt, kind, STILE_CRDT_OPTIONS(.replica = id), &why),
                     STILE_OK);
    return crdt;
}

static enum stile_status add_one(struct stile_crdt *crdt, void *data, struct stile_error *err)
{
    unsigned *calls = data;
    ++*calls;
    return stile_counter_add(crdt, 1, err);
}

static enum stile_status add_name(struct stile_crdt *crdt, void *data, struct stile_error *err)
{
    return stile_orset_add(crdt, data, strlen(data), err);
}

static enum stile_status refuse(struct stile_crdt *crdt, void *data, struct stile_error *err)
{
    (void)data, (void)err;
    assert_int_equal(stile_counter_add(crdt, 1, NULL), STILE_OK);
    return STILE_CANCELLED;
}

static void update(struct stile_crdt *crdt, const char *key, stile_crdt_fn *fn, void *data)
{
    if (stile_crdt_update(crdt, client, key, fn, data, &patient, &why))
        fail_msg("%s", why.message);
}

static uint64_t version_of(const char *key)
{
    struct stile_cell *cell;
    assert_int_equal(stile_cell_get(&cell, client, key, &why), STILE_OK);
    uint64_t version = cell->version;
    stile_cell_free(cell);
    return version;
}

/* ---- alone ---- */

static void a_cell_is_read_and_changed(void **state)
{
    struct stile_crdt *a = replica(STILE_CRDT_PNCOUNTER, "a"),
                      *b = replica(STILE_CRDT_PNCOUNTER, "b");
    unsigned calls = 0;
    (void)state;
    update(a, "one", NULL, NULL);
    assert_int_equal(version_of("one"), 0); /* nothing to write */
    update(a, "one", add_one, &calls);
    uint64_t version = version_of("one");
    assert_true(version > 0);
    update(b, "one", NULL, NULL);
    assert_int_equal(version_of("one"), version);
    assert_true(stile_crdt_equal(a, b));
    stile_counter_add(b, 10, NULL); /* here first, then in the cell */
    update(b, "one", NULL, NULL);
    update(a, "one", NULL, NULL);
    assert_int_equal(stile_counter_value(a), 11);
    assert_int_equal(calls, 1);
    stile_crdt_free(a);
    stile_crdt_free(b);
}

static void what_fails_changes_nothing(void **state)
{
    struct stile_crdt *a = replica(STILE_CRDT_PNCOUNTER, "a"),
                      *set = replica(STILE_CRDT_ORSET, "a");
    unsigned calls = 0;
    (void)state;
    update(a, "two", add_one, &calls);
    uint64_t version = version_of("two");
    assert_int_equal(stile_crdt_update(a, client, "two", refuse, NULL, NULL, &why),
                     STILE_CANCELLED);
    assert_int_equal(stile_crdt_update(set, client, "two", NULL, NULL, NULL, &why), STILE_MISUSE);
    assert_non_null(strstr(why.message, "another kind"));
    assert_int_equal(version_of("two"), version);
    assert_int_equal(stile_counter_value(a), 1);
    assert_int_equal(stile_cell_put(NULL, client, "two", "text", 4, NULL, &why), STILE_OK);
    assert_int_equal(stile_crdt_update(a, client, "two", add_one, &calls, NULL, &why),
                     STILE_CORRUPT);
    assert_int_equal(stile_counter_value(a), 1);
    stile_crdt_free(a);
    stile_crdt_free(set);
}

/* ---- together ---- */

/* Half of them share an id: they only ever change what the cell holds. */
static int work(int i)
{
    char name[40];
    unsigned calls = 0;
    (void)snprintf(name, sizeof name, "process %d", i % 2 ? i : 0);
    struct stile_crdt *counter, *set;
    if (stile_client_open(&client, url, NULL, &why))
        return 1;
    for (int n = 0; n < ADDS; n++) {
        counter = replica(STILE_CRDT_GCOUNTER, name);
        set = replica(STILE_CRDT_ORSET, name);
        char element[40];
        (void)snprintf(element, sizeof element, "%d of %d", n, i);
        if (stile_crdt_update(counter, client, "counter", add_one, &calls, &patient, &why) ||
            stile_crdt_update(set, client, "set", add_name, element, &patient, &why))
            return 1;
        stile_crdt_free(counter);
        stile_crdt_free(set);
    }
    stile_client_close(client);
    return 0;
}

static void processes_lose_nothing(void **state)
{
    struct stile_crdt *counter = replica(STILE_CRDT_GCOUNTER, "me");
    struct stile_crdt *set = replica(STILE_CRDT_ORSET, "me");
    (void)state;
    for (int i = 0; i < PROCESSES; i++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            _exit(work(i));
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    update(counter, "counter", NULL, NULL);
    update(set, "set", NULL, NULL);
    assert_int_equal(stile_counter_value(counter), PROCESSES * ADDS);
    assert_int_equal(stile_orset_count(set), PROCESSES * ADDS);
    stile_crdt_free(counter);
    stile_crdt_free(set);
}

/* ---- short of memory ---- */

static enum stile_status add_to_cell(struct stile_crdt **crdt)
{
    *crdt = NULL;
    enum stile_status status = stile_crdt_new(crdt, STILE_CRDT_ORSET, NULL, &why);
    return status ? status
                  : stile_crdt_update(*crdt, client, "nomem", add_name, "second", NULL, &why);
}

/* One that is without memory after the write may leave the change in the cell, and says so. */
static void add_short_of(unsigned at)
{
    long before = scarcity_outstanding;
    struct stile_crdt *crdt;
    scarcity_begin(at, false);
    enum stile_status status = add_to_cell(&crdt);
    scarcity_end();
    if (status && status != STILE_NOMEM && status != STILE_UNCERTAIN)
        fail_msg("at allocation %u: %s", at, why.message);
    assert_int_equal(stile_orset_has(crdt, "second", 6), status != STILE_NOMEM);
    stile_crdt_free(crdt);
    assert_int_equal(scarcity_outstanding, before);
}

static void each_allocation_fails_in_turn(void **state)
{
    unsigned at = 0;
    (void)state;
    do {
        struct stile_crdt *crdt = replica(STILE_CRDT_ORSET, "a");
        assert_int_equal(stile_cell_remove(client, "nomem", NULL, &why), STILE_OK);
        update(crdt, "nomem", add_name, "first");
        stile_crdt_free(crdt);
        add_short_of(at++);
    } while (scarcity.failed > 0);
    assert_true(at > 10);
}

static int open_engine(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(url, sizeof url, "local:%s", dir);
    return stile_client_open(&client, url, NULL, &why) ? -1 : 0;
}

static int close_engine(void **state)
{
    char command[64];
    (void)state;
    stile_client_close(client);
    (void)snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cell_is_read_and_changed),
        cmocka_unit_test(what_fails_changes_nothing),
        cmocka_unit_test(processes_lose_nothing),
        cmocka_unit_test(each_allocation_fails_in_turn),
    };
    return cmocka_run_group_tests_name("crdt-cell", tests, open_engine, close_engine);
}
