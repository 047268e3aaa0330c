/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Eight holders at once, which no lock keeps apart, on one guarded file. Each takes the next token,
 * raises the guard, reads the file, pauses, and writes back what it read with its token at the end.
 * Some are killed. The file's tokens must only grow, and each one that was acknowledged must be
 * there at the end: nothing was overwritten by an earlier holder.
 *
 * LESSONS rows 2, 34: a pause between the check and the write. */
#include "guard/file_kit.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HOLDERS    8
#define ROUNDS     400
#define TOKENS_MAX 8192
#define TEXT_MAX   65536

static struct shared {
    _Atomic uint64_t next;
    _Atomic unsigned refused, trouble;
    _Atomic bool acknowledged[TOKENS_MAX];
} * shared;

static void shared_start(void)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
}

/* ---- a holder ---- */

static void pause_for(unsigned *seed)
{
    long us = rand_r(seed) % 4 ? rand_r(seed) % 300 : 0;
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

static size_t read_text(char text[TEXT_MAX])
{
    FILE *file = fopen("x", "re");
    size_t n = file ? fread(text, 1, TEXT_MAX - 1, file) : 0;
    if (file)
        fclose(file);
    text[n] = '\0';
    return n;
}

static void note(uint64_t token, enum stile_status status, bool written)
{
    if (status == STILE_OK && written)
        shared->acknowledged[token] = true;
    else if (status == STILE_STALE)
        shared->refused++;
    else if (status != STILE_OK)
        shared->trouble++;
}

static void hold_once(unsigned *seed)
{
    char text[TEXT_MAX];
    uint64_t token = ++shared->next;
    pause_for(seed);
    enum stile_status status = stile_file_raise("x", token, NULL, NULL);
    note(token, status, false);
    if (status != STILE_OK)
        return;
    size_t n = read_text(text);
    pause_for(seed);
    n += (size_t)snprintf(text + n, sizeof text - n, "%" PRIu64 "\n", token);
    note(token, stile_file_replace("x", text, n, token, NULL, NULL), true);
}

static void *hold(void *number)
{
    unsigned seed = (unsigned)(uintptr_t)number + 1;
    for (unsigned i = 0; i < ROUNDS; i++)
        hold_once(&seed);
    return NULL;
}

/* ---- what is seen of it ---- */

/* The last of the tokens in the file, each of which is larger than the one before. */
static uint64_t check_text(const char *text, bool found[TOKENS_MAX])
{
    uint64_t last = 0;
    for (const char *at = text; *at;) {
        char *end;
        uint64_t token = strtoull(at, &end, 10);
        if (end == at || *end != '\n' || token <= last || token >= TOKENS_MAX)
            fail_msg("%" PRIu64 " behind %" PRIu64, token, last);
        if (found)
            found[token] = true;
        last = token;
        at = end + 1;
    }
    return last;
}

/* Once more; the number of the last one may not be smaller than before. */
static void look(uint64_t *last)
{
    static char text[TEXT_MAX];
    read_text(text);
    uint64_t now = check_text(text, NULL);
    assert_true(now >= *last);
    *last = now;
}

static void check_end(void)
{
    static char text[TEXT_MAX];
    bool found[TOKENS_MAX] = {false};
    unsigned written = 0;
    read_text(text);
    check_text(text, found);
    for (size_t i = 0; i < TOKENS_MAX; i++) {
        if (shared->acknowledged[i] && !found[i])
            fail_msg("the write of token %zu was acknowledged, and is gone", i);
        written += shared->acknowledged[i];
    }
    assert_int_equal(shared->trouble, 0);
    assert_true(written > 0 && shared->refused > 0);
    assert_true(highest("x") <= shared->next);
    must_put("x", "", shared->next + 1);
    assert_int_equal(entries("."), 2);
    print_message("# %u writes acknowledged, %u calls refused\n", written, shared->refused);
    munmap(shared, sizeof *shared);
}

/* ---- processes and threads ---- */

static pid_t start(unsigned number, void *(*fn)(void *))
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        fn((void *)(uintptr_t)number);
        _exit(0);
    }
    return pid;
}

static void *hold_for_ever(void *number)
{
    unsigned seed = (unsigned)(uintptr_t)number;
    while (shared->next < TOKENS_MAX / 2)
        hold_once(&seed);
    return NULL;
}

/* One more, killed somewhere and started again. */
static void kill_and_start_again(pid_t *pid, unsigned number)
{
    int status;
    kill(*pid, SIGKILL);
    assert_int_equal(waitpid(*pid, &status, 0), *pid);
    *pid = start(number, hold_for_ever);
}

static void processes_only_move_it_forward(void **state)
{
    pid_t holders[HOLDERS], victim;
    uint64_t last = 0;
    unsigned looks = 0, left = HOLDERS;
    (void)state;
    shared_start();
    for (unsigned i = 0; i < HOLDERS; i++)
        holders[i] = start(i, hold);
    victim = start(100, hold_for_ever);
    while (left > 0) {
        look(&last);
        if (++looks % 4 == 0)
            kill_and_start_again(&victim, 100 + looks);
        for (unsigned i = 0; i < HOLDERS; i++) {
            int status;
            if (holders[i] && waitpid(holders[i], &status, WNOHANG) == holders[i]) {
                assert_true(WIFEXITED(status));
                holders[i] = 0;
                left--;
            }
        }
    }
    kill(victim, SIGKILL);
    waitpid(victim, NULL, 0);
    check_end();
}

static void threads_only_move_it_forward(void **state)
{
    pthread_t holders[HOLDERS];
    uint64_t last = 0;
    (void)state;
    shared_start();
    for (unsigned i = 0; i < HOLDERS; i++)
        assert_int_equal(pthread_create(&holders[i], NULL, hold, (void *)(uintptr_t)i), 0);
    while (shared->next < HOLDERS * ROUNDS)
        look(&last);
    for (unsigned i = 0; i < HOLDERS; i++)
        pthread_join(holders[i], NULL);
    check_end();
}

/* More writers than there are temporary files, all with the same token: each is served. */
static void *write_own(void *number)
{
    char text[16];
    snprintf(text, sizeof text, "%u\n", (unsigned)(uintptr_t)number);
    return (void *)(uintptr_t)put("y", text, 1);
}

static void a_crowd_is_served(void **state)
{
    pthread_t writers[150];
    void *status;
    (void)state;
    for (uintptr_t i = 0; i < 150; i++)
        assert_int_equal(pthread_create(&writers[i], NULL, write_own, (void *)i), 0);
    for (uintptr_t i = 0; i < 150; i++) {
        pthread_join(writers[i], &status);
        assert_int_equal((uintptr_t)status, STILE_OK);
    }
    assert_int_equal(entries("."), 2);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, file_kit_enter, file_kit_leave)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(processes_only_move_it_forward),
        TEST(threads_only_move_it_forward),
        TEST(a_crowd_is_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
