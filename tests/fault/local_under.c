/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What is done to the directory under its users: removed with all that is in it, sockets that can't
 * be reached, a boot id or a clock that differs from container to container. */
#include "fault/local_place_kit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engines/local/liveness.h"

/* What a child says. */
static struct record {
    volatile uint64_t token;
    volatile bool is_lost;
} * record;

static int set_up(void **state)
{
    *record = (struct record){0};
    return place_make(state);
}

/* Opens and holds "n" until it is lost. */
static pid_t start_holder(void)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct party party;
        signal(SIGBUS, SIG_DFL); /* cmocka's */
        kit_be_child();
        kit_open(&party, dir);
        struct bid *bid = kit_bid(&party, "n");
        kit_take(bid);
        record->token = bid->token;
        if (write(ready[1], "r", 1) != 1)
            _exit(1);
        kit_until(bid, SAID_LOST);
        record->is_lost = true;
        kit_close(&party);
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

static void expect_end(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* ---- removed ---- */

static void remove_live(const char *path)
{
    char live[128];
    (void)path;
    place_path(live, "live");
    assert_int_equal(unlink(live), 0);
}

/* The holder has heard of its loss before anybody is granted the same name, with a larger token. */
static void remove_under_a_holder(void (*remove_it)(const char *path))
{
    struct party party;
    pid_t pid = start_holder();
    remove_it(dir);
    kit_open(&party, dir);
    assert_true(record->is_lost);
    struct bid *bid = kit_bid(&party, "n");
    kit_take(bid);
    assert_true(bid->token > record->token);
    kit_release(bid);
    kit_bid_free(bid);
    kit_close(&party);
    expect_end(pid);
}

static void test_removed_under_a_holder(void **state)
{
    (void)state;
    remove_under_a_holder(kit_remove_dir);
}

/* Through a `live` made anew everybody looks dead, and the table that they use would be emptied. */
static void test_live_removed_under_a_holder(void **state)
{
    (void)state;
    remove_under_a_holder(remove_live);
}

/* It can't hear of it, so nobody gets in. */
static void test_removed_under_a_stopped_holder(void **state)
{
    struct party party;
    struct stile_error err = {0};
    char number[32];
    (void)state;
    pid_t pid = start_holder();
    kill(pid, SIGSTOP);
    assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid);
    kit_remove_dir(dir);
    assert_status(kit_try_open(&party, dir, &err), UNREACHABLE);
    snprintf(number, sizeof number, "process %d", (int)pid);
    assert_non_null(strstr(err.message, number));
    kill(pid, SIGCONT);
    kit_open(&party, dir);
    assert_true(record->is_lost);
    kit_close(&party);
    expect_end(pid);
}

/* Another directory of the same name is not this one. */
static void test_the_same_name_elsewhere(void **state)
{
    char one[128], two[128];
    struct dir a, b;
    struct witness witness;
    (void)state;
    place_path(one, "one");
    place_path(two, "two");
    assert_int_equal(mkdir(one, 0700) | mkdir(two, 0700), 0);
    strcat(one, "/locks");
    strcat(two, "/locks");
    assert_status(local_dir_open(&a, one, false, NULL), OK);
    assert_status(local_dir_open(&b, two, false, NULL), OK);
    int fd = local_witness_make(&a, 7, 1);
    assert_true(fd >= 0);
    witness = (struct witness){0};
    assert_true(local_witness_find(&witness, &a));
    assert_int_equal(witness.epoch, 7);
    assert_int_equal(witness.pid, getpid());
    assert_false(local_witness_find(&witness, &b));
    close(fd);
    assert_false(local_witness_find(&witness, &a));
    local_dir_close(&a);
    local_dir_close(&b);
}

/* ---- cut off ---- */

static void cut_off(off_t size)
{
    char path[128];
    place_path(path, "state");
    assert_int_equal(truncate(path, size), 0);
}

static const off_t cuts[] = {0, 1, 64, 4096, AT_BUCKETS *CELL_BYTES, 1 << 20};
#define N_CUTS (sizeof cuts / sizeof *cuts)

/* One that only holds is informed by its timer, without a signal, whatever the program handles. */
static void test_cut_off_under_a_holder(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_CUTS; i++) {
        pid_t pid = start_holder();
        cut_off(cuts[i]);
        expect_end(pid);
        assert_true(record->is_lost);
        *record = (struct record){0};
        place_remove(NULL);
        place_make(NULL);
    }
}

/* As fast as it can, so that it is always inside, until something is wrong. */
static int take_and_give(void)
{
    struct party party;
    signal(SIGBUS, SIG_DFL); /* cmocka's */
    kit_be_child();
    kit_open(&party, dir);
    struct bid *bid = kit_bid(&party, "n");
    for (uint64_t n = 1;; n++) {
        enum said said = kit_try(bid);
        if (said != SAID_GRANTED)
            return said == SAID_FAILED ? (int)bid->error.status : 101;
        record->token = n;
        kit_release(bid);
        if (bid->error.status != STILE_OK)
            return (int)bid->error.status;
    }
}

static void test_cut_off_while_inside(void **state)
{
    int status;
    (void)state;
    for (size_t i = 0; i < 4 * N_CUTS; i++) {
        record->token = 0;
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            _exit(take_and_give());
        while (record->token < 1000)
            sched_yield();
        cut_off(cuts[i % N_CUTS]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_string_equal(stile_status_name((enum stile_status)WEXITSTATUS(status)), "CORRUPT");
        place_remove(NULL);
        place_make(NULL);
    }
}

/* ---- a SIGBUS that is none of ours ---- */

static volatile sig_atomic_t n_caught;
static char *volatile page;

/* Another file, cut off under its mapping. */
static void touch_nothing(void)
{
    char path[128];
    place_path(path, "other");
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        _exit(102);
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED || ftruncate(fd, 0) != 0)
        _exit(103);
    *page = 1;
}

static void count_it(int number)
{
    (void)number;
    n_caught++;
    mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

static int meet_another_sigbus(void)
{
    signal(SIGBUS, SIG_DFL); /* cmocka's */
    if (stile_sigbus_trap(NULL) != STILE_OK)
        return 100;
    touch_nothing();
    return 0;
}

static int be_sent_one(void)
{
    signal(SIGBUS, SIG_DFL);
    if (stile_sigbus_trap(NULL) != STILE_OK)
        return 100;
    raise(SIGBUS);
    return 0;
}

static int catch_another_sigbus(void)
{
    struct sigaction action = {.sa_handler = count_it};
    if (sigaction(SIGBUS, &action, NULL) != 0 || stile_sigbus_trap(NULL) != STILE_OK)
        return 100;
    touch_nothing();
    raise(SIGBUS);
    return n_caught == 2 ? 0 : 101;
}

/* A handler of the program's own is left alone. */
static int keep_its_handler(void)
{
    struct sigaction action = {.sa_handler = count_it}, now;
    struct party party;
    if (sigaction(SIGBUS, &action, NULL) != 0)
        return 100;
    kit_open(&party, dir);
    return sigaction(SIGBUS, NULL, &now) == 0 && now.sa_handler == count_it ? 0 : 101;
}

/* Opening has put ours in the place of the default. */
static int meet_another_after_opening(void)
{
    struct party party;
    signal(SIGBUS, SIG_DFL);
    kit_open(&party, dir);
    touch_nothing();
    return 0;
}

static void test_a_sigbus_of_others_is_passed_on(void **state)
{
    (void)state;
    child_expect(keep_its_handler, STILE_OK);
    assert_int_equal(child_run(meet_another_after_opening), 128 + SIGBUS);
    assert_int_equal(child_run(meet_another_sigbus), 128 + SIGBUS);
    assert_int_equal(child_run(be_sent_one), 128 + SIGBUS);
    child_expect(catch_another_sigbus, STILE_OK);
}

/* ---- sockets that can't be reached ---- */

static void remove_sockets(void)
{
    char path[128];
    place_path(path, "s");
    DIR *listing = opendir(path);
    assert_non_null(listing);
    for (struct dirent *entry; (entry = readdir(listing));)
        if (entry->d_name[0] != '.')
            assert_int_equal(unlinkat(dirfd(listing), entry->d_name, 0), 0);
    closedir(listing);
}

/* It looks by itself, no later than a second after its last look. */
static void test_a_waiter_nobody_can_reach(void **state)
{
    struct party a, b;
    (void)state;
    kit_open(&a, dir);
    kit_open(&b, dir);
    struct bid *held = kit_bid(&a, "n"), *waits = kit_bid(&b, "n");
    for (int round = 0; round < 3; round++) {
        kit_take(held);
        assert_int_equal(kit_wait(waits), SAID_NOTHING);
        kit_settle();
        remove_sockets();
        const struct timer *timer = &local_claim_of(waits->claim)->timer;
        assert_true(timer->place > 0 && timer->at_ns <= loop_now(b.loop) + NS_PER_SEC);
        kit_release(held);
        kit_until(waits, SAID_GRANTED);
        kit_release(waits);
    }
    kit_bid_free(held);
    kit_bid_free(waits);
    kit_close(&a);
    kit_close(&b);
}

/* ---- containers ---- */

static int find_it_busy(void)
{
    struct party party;
    kit_open(&party, dir);
    return kit_try(kit_bid(&party, "n")) == SAID_BUSY ? 0 : 101;
}

/* A container may have a boot id of its own: among living users it is the same boot. */
static void test_another_boot_id_among_the_living(void **state)
{
    struct party party;
    (void)state;
    kit_open(&party, dir);
    struct bid *bid = kit_bid(&party, "n");
    kit_take(bid);
    union cell *header = &kit_store(&party)->cells[AT_HEADER];
    header->header.boot[0] ^= 1;
    header->check = cell_sum(header, AT_HEADER);
    child_expect(find_it_busy, STILE_OK);
    kit_release(bid);
    kit_bid_free(bid);
    kit_close(&party);
}

static void test_the_offset_of_a_time_namespace(void **state)
{
    (void)state;
    assert_true(local_env_time_offset("") == 0);
    assert_true(local_env_time_offset(
                    "monotonic           0         0\nboottime            0         0\n") == 0);
    assert_true(local_env_time_offset("monotonic      5   0\nboottime    3600  7\n") ==
                3600 * NS_PER_SEC + 7);
    assert_true(local_env_time_offset("boottime -3600 999999999\n") + 3600 * NS_PER_SEC ==
                999999999);
}

static int hold_for_long(void)
{
    struct party party;
    kit_open(&party, dir);
    struct bid *bid = kit_bid_with(&party, "n", (struct bid_options){.hold_ms = 3600000});
    kit_take(bid);
    kit_release(bid);
    return 0;
}

static bool write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return done;
}

/* In a time namespace of its own. 100: there are none, or we may not make any. */
static int with_offset(const char *offset, int (*act)(void))
{
    if (unshare(CLONE_NEWTIME) != 0 || !write_text("/proc/self/timens_offsets", offset))
        return 100;
    return child_run(act);
}

static int a_day_ahead(int (*act)(void))
{
    return with_offset("boottime 86400 0\n", act);
}

static int find_it_busy_a_day_ahead(void)
{
    return a_day_ahead(find_it_busy);
}

static int hold_for_long_a_day_ahead(void)
{
    return a_day_ahead(hold_for_long);
}

/* An hour's hold is an hour's hold, whatever the clock of the one that asks. */
static void test_a_hold_across_time_namespaces(void **state)
{
    (void)state;
    child_expect(hold_for_long, STILE_OK);
    int code = child_run(find_it_busy_a_day_ahead);
    if (code == 100) {
        print_message("# no time namespaces here, or none for us\n");
        return;
    }
    assert_int_equal(code, 0);
    kit_remove_dir(dir);
    assert_int_equal(child_run(hold_for_long_a_day_ahead), 0);
    child_expect(find_it_busy, STILE_OK);
    struct party party;
    struct answer answer;
    kit_open(&party, dir);
    kit_ask(&answer, &party, "n", local_inspect_show, 0);
    assert_true(answer.claims[0].expires_ms <= 3600000);
    kit_close(&party);
}

/* A watch looks again when it ends: a minute late, if the table's time were taken for our own. */
static int show_when_a_hold_ends(void)
{
    struct party party;
    struct answer answer;
    kit_open(&party, dir);
    struct bid *bid = kit_bid_with(&party, "n", (struct bid_options){.hold_ms = 30000});
    kit_take(bid);
    kit_release(bid);
    kit_ask(&answer, &party, "n", local_inspect_show, 0);
    return !answer.claims[0].ghost || answer.claims[0].expires_ms > 30000;
}

static int show_a_minute_behind(void)
{
    return with_offset("boottime -60 0\n", show_when_a_hold_ends);
}

static void test_the_end_of_a_hold_in_a_time_namespace(void **state)
{
    (void)state;
    int code = child_run(show_a_minute_behind);
    if (code == 100)
        print_message("# no time namespaces here, or none for us\n");
    else
        assert_int_equal(code, 0);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, set_up, place_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_live_removed_under_a_holder),
        TEST(test_removed_under_a_holder),
        TEST(test_removed_under_a_stopped_holder),
        TEST(test_the_same_name_elsewhere),
        TEST(test_cut_off_under_a_holder),
        TEST(test_cut_off_while_inside),
        TEST(test_a_sigbus_of_others_is_passed_on),
        TEST(test_a_waiter_nobody_can_reach),
        TEST(test_another_boot_id_among_the_living),
        TEST(test_the_offset_of_a_time_namespace),
        TEST(test_a_hold_across_time_namespaces),
        TEST(test_the_end_of_a_hold_in_a_time_namespace),
    };
    record = child_shared(sizeof *record);
    return cmocka_run_group_tests_name("local_under", tests, NULL, NULL);
}
