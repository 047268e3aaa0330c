/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The file of cells on a full disk, under limits, cut off, removed, replaced or planted, and a
 * machine without LMDB. */
#include "fault/local_cells_kit.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static enum stile_status get(struct stile_client *client, const char *key)
{
    struct stile_cell *cell;
    enum stile_status status = stile_cell_get(&cell, client, key, &why);
    if (!status)
        stile_cell_free(cell);
    return status;
}

static bool has_file(const char *name)
{
    char path[128];
    place_path(path, name);
    return access(path, F_OK) == 0;
}

/* ---- no LMDB ---- */

#ifndef STILE_LMDB_INSIDE

static char (*library)[256]; /* where it is */

static int find_library(void)
{
    struct link_map *map;
    void *handle = dlopen("liblmdb.so.0", RTLD_NOW);
    if (!handle || dlinfo(handle, RTLD_DI_LINKMAP, &map))
        return 1;
    snprintf(*library, sizeof *library, "%s", map->l_name);
    return 0;
}

static int use_without_library(void)
{
    if (!place_may_mount() || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("/dev/null", *library, NULL, MS_BIND, NULL) != 0)
        return 101;
    struct stile_client *client = cells_open();
    struct stile_lock *lock;
    if (get(client, "k") != STILE_UNSUPPORTED || !strstr(why.message, "liblmdb0"))
        return 102;
    if (stile_lock_new(&lock, client, "k", NULL, &why) || stile_lock_acquire(lock, 0, &why))
        return 103;
    stile_lock_free(lock);
    stile_client_close(client);
    return 0;
}

/* First of all tests: a library that is loaded stays. */
static void test_without_lmdb_locks_work_and_cells_say_what_to_install(void **state)
{
    (void)state;
    library = child_shared(sizeof *library);
    assert_int_equal(child_run(find_library), 0);
    int code = child_run(use_without_library);
    if (code == 101)
        skip();
    assert_int_equal(code, 0);
}

#endif

/* ---- room ---- */

static int put_on_a_tiny_disk(void)
{
    if (place_shrink(5))
        return 100;
    struct stile_client *client = cells_open();
    enum stile_status status = cells_put_text(client, "k", "x");
    return has_file("cells") || has_file("cells.new") ? 101 : (int)status;
}

static int fill_a_small_disk(void)
{
    static uint8_t value[STILE_CELL_MAX];
    char key[32] = "";
    enum stile_status status = STILE_OK;
    if (place_shrink(8))
        return 100;
    struct stile_client *client = cells_open();
    if (cells_put_text(client, "first", "here to stay"))
        return 101;
    for (int i = 0; !status && i < 1000; i++) {
        snprintf(key, sizeof key, "k %d", i);
        status = cells_put(client, key, value, sizeof value, 0);
    }
    if (status != STILE_REFUSED || !strstr(why.message, "grow"))
        return 102;
    struct stile_cell *cell;
    if (stile_cell_get(&cell, client, key, &why) || cell->version != 0)
        return 103;
    stile_cell_free(cell);
    if (stile_cell_get(&cell, client, "first", &why) || strcmp(cell->value, "here to stay") != 0)
        return 104;
    stile_cell_free(cell);
    stile_client_close(client);
    return 0;
}

static void test_a_full_disk_is_an_error(void **state)
{
    (void)state;
    child_expect(put_on_a_tiny_disk, STILE_REFUSED);
    child_expect(fill_a_small_disk, STILE_OK);
}

static int write_beyond_the_limit(void)
{
    struct rlimit limit = {.rlim_cur = 100000, .rlim_max = 100000};
    struct stile_client *client = cells_open();
    if (cells_put_text(client, "k", "x") || setrlimit(RLIMIT_FSIZE, &limit))
        return 100;
    if (get(client, "k"))
        return 101;
    return (int)cells_put_text(client, "k", "y");
}

/* The signal that comes with this limit would end the process. */
static void test_a_limit_on_file_sizes_is_an_error(void **state)
{
    (void)state;
    child_expect(write_beyond_the_limit, STILE_REFUSED);
}

/* ---- cut off ---- */

static off_t cut_to;

static void cut(void)
{
    char path[128];
    place_path(path, "cells");
    assert_int_equal(truncate(path, cut_to), 0);
}

static int use_while_it_is_cut_off(void)
{
    signal(SIGBUS, SIG_DFL); /* cmocka's handler would come before ours */
    struct stile_client *client = cells_open();
    if (cells_put_text(client, "k", "x"))
        return 100;
    cut();
    if (get(client, "k") != STILE_CORRUPT || !strstr(why.message, "truncated"))
        return 101;
    if (cells_put_text(client, "k", "y") != STILE_CORRUPT)
        return 102;
    stile_client_close(client);
    client = cells_open();
    return (int)get(client, "k");
}

static void test_a_file_cut_off_is_noticed(void **state)
{
    static const off_t sizes[] = {0, 100, 4096, 8192, 12288};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        cut_to = sizes[i];
        child_expect(use_while_it_is_cut_off, STILE_CORRUPT);
        place_remove(state);
        assert_int_equal(mkdir(dir, 0700), 0);
    }
}

static int read_for_ever(void)
{
    kit_be_child();
    signal(SIGBUS, SIG_DFL);
    struct stile_client *client = cells_open();
    for (;;) {
        enum stile_status status = get(client, "k");
        if (status)
            return (int)status;
    }
}

/* Between the look at its size and the reading of a page. */
static void test_a_file_cut_off_under_a_reader_raises_no_signal(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        struct stile_client *client = cells_open();
        assert_status(cells_put_text(client, "k", "x"), OK);
        stile_client_close(client);
        pid_t pid = fork();
        int status;
        if (pid == 0)
            _exit(read_for_ever());
        struct timespec nap = {.tv_nsec = 20000000};
        nanosleep(&nap, NULL);
        cut_to = 0;
        cut();
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_status((enum stile_status)WEXITSTATUS(status), CORRUPT);
        place_remove(state);
        assert_int_equal(mkdir(dir, 0700), 0);
    }
}

/* ---- another file ---- */

static void test_a_removed_file_is_noticed(void **state)
{
    (void)state;
    char path[128];
    place_path(path, "cells");
    struct stile_client *client = cells_open();
    assert_status(cells_put_text(client, "k", "x"), OK);
    assert_int_equal(unlink(path), 0);
    assert_status(cells_put_text(client, "k", "to nowhere"), CORRUPT);
    assert_non_null(strstr(why.message, "removed"));
    stile_client_close(client);
    client = cells_open();
    assert_status(cells_put_text(client, "k", "anew"), OK);
    stile_client_close(client);
}

/* fn of a watch, called with the cell as it is at first. */
static int unlink_it(const struct stile_cell *cell, void *path)
{
    assert_int_equal(cell->version, 1);
    assert_int_equal(unlink(path), 0);
    return 0;
}

static void test_a_removed_file_ends_a_watch(void **state)
{
    (void)state;
    char path[128];
    place_path(path, "cells");
    struct stile_client *client = cells_open();
    assert_status(cells_put_text(client, "k", "x"), OK);
    assert_status(stile_cell_watch(client, "k", -1, unlink_it, path, &why), CORRUPT);
    assert_non_null(strstr(why.message, "removed"));
    stile_client_close(client);
}

static void test_reading_makes_no_file(void **state)
{
    (void)state;
    struct stile_client *client = cells_open();
    assert_status(get(client, "k"), OK);
    assert_status(stile_cell_remove(client, "k", NULL, &why), OK);
    assert_status(get(client, "k"), OK);
    stile_client_close(client);
    assert_false(has_file("cells.new"));
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void test_planted_files_are_not_followed(void **state)
{
    (void)state;
    char victim[128], path[128], made[128];
    struct stat st;
    place_path(victim, "victim");
    place_path(path, "cells");
    place_path(made, "cells.new");
    write_file(victim, "precious");
    assert_int_equal(symlink(victim, path), 0);
    struct stile_client *client = cells_open();
    assert_status(cells_put_text(client, "k", "x"), REFUSED);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(victim, made), 0);
    assert_status(cells_put_text(client, "k", "x"), OK);
    assert_int_equal(stat(victim, &st), 0);
    assert_int_equal(st.st_size, strlen("precious"));
    stile_client_close(client);
}

static void test_foreign_files_are_refused(void **state)
{
    (void)state;
    static char text[20000];
    char path[128];
    place_path(path, "cells");
    memset(text, 'x', sizeof text - 1);
    write_file(path, text);
    struct stile_client *client = cells_open();
    assert_status(get(client, "k"), CORRUPT);
    assert_status(cells_put_text(client, "k", "x"), CORRUPT);
    stile_client_close(client);
    assert_int_equal(chmod(path, 0666), 0);
    client = cells_open();
    assert_status(get(client, "k"), REFUSED);
    stile_client_close(client);
}

static void test_a_shared_directory_has_shared_cells(void **state)
{
    (void)state;
    char path[128];
    struct stat st;
    assert_int_equal(chmod(dir, 0770), 0);
    struct stile_client *client = cells_open();
    assert_status(cells_put_text(client, "k", "x"), OK);
    stile_client_close(client);
    place_path(path, "cells");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0660);
}

int main(void)
{
#define IN_PLACE(test) cmocka_unit_test_setup_teardown(test, place_make, place_remove)
    const struct CMUnitTest tests[] = {
#ifndef STILE_LMDB_INSIDE
        IN_PLACE(test_without_lmdb_locks_work_and_cells_say_what_to_install),
#endif
        IN_PLACE(test_a_full_disk_is_an_error),
        IN_PLACE(test_a_limit_on_file_sizes_is_an_error),
        IN_PLACE(test_a_file_cut_off_is_noticed),
        IN_PLACE(test_a_file_cut_off_under_a_reader_raises_no_signal),
        IN_PLACE(test_a_removed_file_is_noticed),
        IN_PLACE(test_a_removed_file_ends_a_watch),
        IN_PLACE(test_reading_makes_no_file),
        IN_PLACE(test_planted_files_are_not_followed),
        IN_PLACE(test_foreign_files_are_refused),
        IN_PLACE(test_a_shared_directory_has_shared_cells),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
