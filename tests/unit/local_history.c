/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The file of records: bounded, damaged, planted by others, full, and written by many at once. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit/local_kit.h"

static char dir[64], url[80], file[80];
static struct stile_client *client;
static char logged[512];

static void log_line(enum stile_log_level level, const char *message, void *data)
{
    (void)data;
    if (level == STILE_LOG_INFO && strstr(message, "not recorded"))
        snprintf(logged, sizeof logged, "%s", message);
}

static void open_client(void)
{
    struct stile_error err = {0};
    logged[0] = '\0';
    assert_status(
        stile_client_open(&client, url,
                          STILE_CLIENT_OPTIONS(.log = log_line, .log_level = STILE_LOG_INFO), &err),
        OK);
}

static int set_up(void **state)
{
    (void)state;
    kit_make_dir(dir);
    snprintf(url, sizeof url, "local:%s", dir);
    snprintf(file, sizeof file, "%s/history", dir);
    open_client();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    stile_client_close(client);
    kit_remove_dir(dir);
    return 0;
}

static void record_on(struct stile_client *on, const char *name, int code)
{
    struct stile_lock *lock;
    assert_status(stile_lock_new(&lock, on, name, NULL, NULL), OK);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    assert_status(stile_lock_record_start(lock, NULL), OK);
    assert_status(stile_lock_record_end(lock, code, NULL), OK);
    assert_status(stile_lock_release(lock, NULL), OK);
    stile_lock_free(lock);
}

static int see_code(const struct stile_info *info, void *data)
{
    *(int *)data = info->last ? info->last->exit_code : -2;
    return 0;
}

/* -2: there is no record. */
static int code_of(const char *name)
{
    int code = -3;
    assert_status(stile_show(client, name, see_code, &code, NULL), OK);
    return code;
}

static void test_it_outlives_the_client(void **state)
{
    struct stat st;
    (void)state;
    assert_int_equal(code_of("n"), -2);
    assert_int_not_equal(access(file, F_OK), 0); /* nothing is made for nothing */
    record_on(client, "n", 5);
    stile_client_close(client);
    open_client();
    assert_int_equal(code_of("n"), 5);
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
}

/* Any byte of a slot may be wrong: no record, or the right one. */
static void test_damage_is_an_empty_slot(void **state)
{
    (void)state;
    record_on(client, "n", 5);
    int fd = open(file, O_RDWR | O_CLOEXEC);
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    for (off_t at = st.st_size - 1; at >= 0 && at > st.st_size - 200; at--) {
        unsigned char byte = 0, bad;
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        bad = byte ^ 0x10;
        assert_int_equal(pwrite(fd, &bad, 1, at), 1);
        int code = code_of("n");
        assert_true(code == -2 || code == 5);
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        assert_int_equal(code_of("n"), 5);
    }
    /* The last letter of the command: only the sum shows that it is another one. */
    unsigned char letter = 0;
    assert_int_equal(pread(fd, &letter, 1, st.st_size - 1), 1);
    letter ^= 1;
    assert_int_equal(pwrite(fd, &letter, 1, st.st_size - 1), 1);
    assert_int_equal(code_of("n"), -2);
    record_on(client, "n", 6);
    assert_int_equal(code_of("n"), 6);
    assert_int_equal(ftruncate(fd, st.st_size - 10), 0);
    assert_int_equal(code_of("n"), -2);
    assert_int_equal(ftruncate(fd, 0), 0);
    record_on(client, "n", 7);
    assert_int_equal(code_of("n"), 7);
    close(fd);
}

/* The file does not grow for ever; the latest stay. */
static void test_many_names(void **state)
{
    enum { MANY = 20000 };
    char name[16];
    struct stat st;
    (void)state;
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "n%d", i);
        record_on(client, name, i % 256);
    }
    assert_int_equal(stat(file, &st), 0);
    assert_true(st.st_size <= 16 << 20);
    int found = 0;
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "n%d", i);
        int code = code_of(name);
        assert_true(code == i % 256 || (code == -2 && i < MANY - 500));
        found += code >= 0;
    }
    assert_in_range(found, 7000, 8192);
}

static void check_refused(const char *why)
{
    record_on(client, "n", 5); /* which succeeds all the same */
    assert_non_null(strstr(logged, why));
    assert_int_equal(code_of("n"), -2);
    logged[0] = '\0';
}

/* What another user may have planted is neither read nor written. */
static void test_planted_files(void **state)
{
    char target[80];
    struct stat st;
    (void)state;
    snprintf(target, sizeof target, "%s/target", dir);
    close(open(target, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    assert_int_equal(symlink(target, file), 0);
    check_refused("history");
    assert_int_equal(stat(target, &st), 0);
    assert_int_equal(st.st_size, 0);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(link(target, file), 0);
    check_refused("single link");
    assert_int_equal(unlink(file), 0);
    assert_int_equal(mkfifo(file, 0600), 0);
    check_refused("history");
    assert_int_equal(unlink(file), 0);
    close(open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    assert_int_equal(chmod(file, 0666), 0);
    check_refused("changed by others");
}

/* No SIGXFSZ in somebody's program. */
static void test_a_limit_of_file_sizes(void **state)
{
    struct rlimit before, low = {.rlim_cur = 64};
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    low.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    check_refused("history");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
}

/* A process that was stopped inside must not stop the others. */
static void test_a_lock_that_is_not_given_back(void **state)
{
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    (void)state;
    int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &all), 0);
    check_refused("history");
    close(fd);
    record_on(client, "n", 5);
    assert_int_equal(code_of("n"), 5);
}

/* Threadless: ThreadSanitizer forbids new threads in the child of a process that has some. */
static void record_in_child(int number)
{
    struct stile_client *own;
    char name[32];
    kit_be_child();
    if (stile_client_open(&own, url, STILE_CLIENT_OPTIONS(.threadless = true), NULL))
        _exit(1);
    snprintf(name, sizeof name, "own%d", number);
    for (int i = 0; i < 300; i++) {
        record_on(own, "shared", number);
        record_on(own, name, i % 100);
    }
    stile_client_close(own);
    _exit(0);
}

static void test_many_processes(void **state)
{
    enum { CHILDREN = 6 };
    pid_t pids[CHILDREN];
    char name[32];
    (void)state;
    for (int i = 0; i < CHILDREN; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            record_in_child(i);
    }
    for (int i = 0; i < CHILDREN; i++) {
        int status = -1;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
        snprintf(name, sizeof name, "own%d", i);
        int code = code_of(name);
        /* A set may have been busy when the last one was written. */
        assert_true(code >= 0 && code < 100);
    }
    assert_in_range(code_of("shared"), 0, CHILDREN - 1);
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIR(test_it_outlives_the_client),
        IN_DIR(test_damage_is_an_empty_slot),
        IN_DIR(test_many_names),
        IN_DIR(test_planted_files),
        IN_DIR(test_a_limit_of_file_sizes),
        IN_DIR(test_a_lock_that_is_not_given_back),
        IN_DIR(test_many_processes),
    };
    return cmocka_run_group_tests_name("local_history", tests, NULL, NULL);
}
