/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The local engine on a full disk, without memory, and without file descriptors. */
#include "fault/local_place_kit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- no room ---- */

static int open_on_a_tiny_disk(void)
{
    struct stat st;
    char path[128];
    if (place_shrink(1))
        return 100;
    int status = place_open();
    place_path(path, "state");
    return stat(path, &st) == 0 ? 101 : status; /* nothing half-made is left */
}

/* Names until the disk is full; what is there goes on working. */
static int fill_a_small_disk(void)
{
    struct party party;
    char name[32];
    if (place_shrink(5))
        return 100;
    kit_open(&party, dir);
    struct bid *held = kit_bid(&party, "held"), *bid = held;
    kit_take(held);
    for (int i = 0; bid->said != SAID_FAILED; i++) {
        if (i > 100000)
            return 101;
        snprintf(name, sizeof name, "name %d", i);
        bid = kit_bid(&party, name);
        kit_try(bid);
    }
    if (bid->error.status != STILE_REFUSED)
        return 102;
    kit_release(held);
    kit_take(held);
    kit_check(kit_store(&party));
    return 0;
}

static int fill_the_disk(void)
{
    static const char bytes[65536];
    char path[128];
    place_path(path, "ballast");
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    for (size_t n = sizeof bytes; n > 0;)
        if (write(fd, bytes, n) < 0)
            n /= 2;
    return fd;
}

#define N_FAR 40000

/* Claims know cells that have been given back to the disk since, and the disk is full: to look
 * there would raise SIGBUS, and what is read there is no damage. */
static int come_back_to_room_that_is_gone(void)
{
    static struct bid *bids[N_FAR];
    struct party party, other;
    struct answer answer;
    char name[32];
    if (place_shrink(32))
        return 100;
    kit_open(&party, dir);
    kit_open(&other, dir);
    struct bid *used = kit_bid(&party, "used"), *held = kit_bid(&party, "held");
    for (int i = 0; i < N_FAR; i++) {
        snprintf(name, sizeof name, "name %d", i);
        kit_take(bids[i] = kit_bid(&party, name));
    }
    kit_take(used);
    kit_release(used);
    kit_take(held);
    kit_ask(&answer, &other, "held", local_inspect_break, 0);
    for (int i = 0; i < N_FAR; i++)
        kit_release(bids[i]);
    while (local_table_trim(kit_store(&other)))
        ;
    while (local_table_give_back(kit_store(&other)))
        ;
    int fd = fill_the_disk();
    if (fd < 0 ||
        local_claim_of(used->claim)->name < kit_store(&other)->cells[AT_LEDGER].ledger.n_used)
        return 101;
    kit_take(used);
    kit_release(held);
    if (used->said != SAID_GRANTED || held->error.status != STILE_LOST)
        return held->error.status == STILE_CORRUPT ? 103 : 102;
    kit_release(used);
    kit_check(kit_store(&party));
    close(fd);
    return 0;
}

static void test_room_that_is_gone(void **state)
{
    (void)state;
    child_expect(come_back_to_room_that_is_gone, STILE_OK);
}

static void test_a_full_disk(void **state)
{
    (void)state;
    child_expect(open_on_a_tiny_disk, STILE_REFUSED);
    child_expect(fill_a_small_disk, STILE_OK);
}

static int open_with_small_files(void)
{
    struct rlimit limit = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    return setrlimit(RLIMIT_FSIZE, &limit) ? 100 : place_open();
}

static int open_with_no_files(void)
{
    struct rlimit limit = {0};
    return setrlimit(RLIMIT_FSIZE, &limit) ? 100 : place_open();
}

/* The signal that comes with this limit would end the process. */
static void test_a_limit_on_file_sizes(void **state)
{
    (void)state;
    child_expect(open_with_small_files, STILE_REFUSED);
    child_expect(open_with_no_files, STILE_REFUSED);
}

static int open_within(rlim_t bytes)
{
    struct rlimit limit = {.rlim_cur = bytes, .rlim_max = bytes};
    return setrlimit(RLIMIT_AS, &limit) ? 100 : place_open();
}

static int open_with_some_memory(void)
{
    return open_within(128 << 20);
}

static int open_without_memory(void)
{
    return open_within(1 << 20);
}

static void test_a_limit_on_memory(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    print_message("# a sanitizer needs more memory than the limit would leave\n");
    (void)open_without_memory;
    (void)open_with_some_memory;
#else
    child_expect(open_without_memory, STILE_NOMEM);
    child_expect(open_with_some_memory, STILE_OK);
#endif
}

/* ---- file descriptors ---- */

static int count_fds(void)
{
    int n = 0;
    DIR *listing = opendir("/proc/self/fd");
    while (readdir(listing))
        n++;
    closedir(listing);
    return n;
}

static int lowest_free_fd(void)
{
    int fd = dup(0);
    close(fd);
    return fd;
}

/* One more each time: each failure is clear and leaves nothing open. */
static void test_too_few_file_descriptors(void **state)
{
    struct rlimit kept, tight;
    struct party party;
    struct stile_error err;
    enum stile_status status = STILE_UNREACHABLE;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &kept), 0);
    int before = count_fds();
    rlim_t first = (rlim_t)lowest_free_fd() + 3; /* the loop's own */
    for (tight = kept, tight.rlim_cur = first; status; tight.rlim_cur++) {
        assert_true(tight.rlim_cur < first + 30);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
        status = kit_try_open(&party, dir, &err);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &kept), 0);
        if (!status)
            break;
        assert_true(status == STILE_UNREACHABLE || status == STILE_REFUSED);
        assert_int_equal(count_fds(), before);
    }
    assert_true(tight.rlim_cur > first + 5);
    kit_close(&party);
    assert_int_equal(count_fds(), before);
}

/* No descriptor is left to watch the holder with: its death is noticed all the same. */
static void test_a_death_without_file_descriptors(void **state)
{
    struct rlimit kept, tight;
    struct party party;
    int ready[2];
    char byte;
    (void)state;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct party other;
        kit_be_child();
        kit_open(&other, dir);
        kit_take(kit_bid(&other, "n"));
        if (write(ready[1], "r", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    kit_open(&party, dir);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &kept), 0);
    tight = kept;
    tight.rlim_cur = (rlim_t)lowest_free_fd();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    struct bid *bid = kit_bid(&party, "n");
    assert_int_equal(kit_wait(bid), SAID_NOTHING);
    kit_settle();
    kill(pid, SIGKILL);
    kit_until(bid, SAID_GRANTED);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &kept), 0);
    kit_release(bid);
    kit_bid_free(bid);
    kit_close(&party);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(ready[0]);
    close(ready[1]);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, place_make, place_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_full_disk),
        TEST(test_room_that_is_gone),
        TEST(test_a_limit_on_file_sizes),
        TEST(test_a_limit_on_memory),
        TEST(test_too_few_file_descriptors),
        TEST(test_a_death_without_file_descriptors),
    };
    return cmocka_run_group_tests_name("local_room", tests, NULL, NULL);
}
