/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that take and give a few names as fast as they can, by the word and by the table,
 * strictly and in turns, while one after the other is killed with -9 wherever it is. Never two
 * holders, tokens that only grow, and at the end every name is free.
 *
 * LESSONS rows 6, 10. */
#include "unit/local_kit.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES 4
#define NAMES     2
#define KILLS     60
#define BETWEEN   2000 /* acquisitions between two kills, at most */

struct watched {
    _Atomic(pid_t) inside;
    _Atomic(uint64_t) token;
};

struct shared {
    struct watched names[NAMES];
    _Atomic(pid_t) killed[PROCESSES]; /* the latest */
    _Atomic(uint64_t) acquired;
    _Atomic(int) wrong;
};

static struct shared *shared;

static bool was_killed(pid_t pid)
{
    for (int i = 0; i < PROCESSES; i++)
        if (shared->killed[i] == pid)
            return true;
    return kill(pid, 0) != 0;
}

static void visit(struct watched *name, uint64_t token)
{
    pid_t before = atomic_exchange(&name->inside, getpid());
    if (before && !was_killed(before))
        shared->wrong = 1;
    if (token <= name->token)
        shared->wrong = 2;
    name->token = token;
    for (uint64_t i = kit_random() % 64; i > 0; i--)
        if (name->inside != getpid())
            shared->wrong = 1;
    name->inside = 0;
    shared->acquired++;
}

static void one_round(struct bid *bid, struct watched *name)
{
    if (kit_random() % 2)
        kit_try(bid);
    else if (kit_wait(bid) == SAID_NOTHING)
        kit_until(bid, SAID_GRANTED);
    if (bid->said != SAID_GRANTED)
        return;
    visit(name, bid->token);
    if (kit_release(bid) != SAID_RELEASED || bid->error.status != STILE_OK)
        shared->wrong = 3;
}

static void child(const char *dir, int number)
{
    struct party party;
    struct bid *bids[NAMES];
    static const char *const names[NAMES] = {"one", "two"};
    kit_be_child();
    for (int i = 0; i < 100 * number; i++)
        (void)kit_random();
    if (kit_try_open(&party, dir, NULL) != STILE_OK)
        _exit(3);
    if (number % 2)
        kit_local(&party)->fair_ns = NS_PER_MS;
    for (int i = 0; i < NAMES; i++)
        bids[i] = kit_bid(&party, names[i]);
    /* One name most of the time, so that it is often alone with it. */
    for (;;) {
        uint64_t at = kit_random() % 8 ? (uint64_t)(number % NAMES) : kit_random() % NAMES;
        for (uint64_t i = kit_random() % 20; i > 0; i--)
            one_round(bids[at], &shared->names[at]);
    }
}

static pid_t start(const char *dir, int number)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        child(dir, number);
    return pid;
}

static void end(pid_t pid, int place)
{
    int status;
    shared->killed[place] = pid;
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFSIGNALED(status))
        fail_msg("a process ended by itself (status %x)", (unsigned)status);
}

/* Until so many more acquisitions; they all wait for one another if it takes the patience. */
static void let_run(uint64_t n)
{
    uint64_t until = shared->acquired + n;
    for (uint64_t idle = 0, last = 0; shared->acquired < until; idle++) {
        if (shared->acquired != last)
            idle = 0;
        last = shared->acquired;
        if (idle == UINT64_C(2000000000))
            fail_msg("nobody has acquired anything for long");
        sched_yield();
    }
}

static void everything_is_free(struct party *party)
{
    static const char *const names[NAMES] = {"one", "two"};
    for (int i = 0; i < NAMES; i++) {
        struct bid *bid = kit_bid(party, names[i]);
        kit_wait(bid);
        kit_until(bid, SAID_GRANTED);
        assert_true(bid->token > shared->names[i].token);
        assert_int_equal(kit_release(bid), SAID_RELEASED);
        kit_bid_free(bid);
    }
    kit_sweep(kit_store(party));
    kit_check(kit_store(party));
}

static void test_kills_let_no_two_in(void **state)
{
    (void)state;
    char dir[64];
    struct party party;
    pid_t pids[PROCESSES];
    kit_make_dir(dir);
    kit_open(&party, dir);
    for (int i = 0; i < PROCESSES; i++)
        pids[i] = start(dir, i + 1);
    int kills = kit_is_soak() ? 100 * KILLS : KILLS;
    for (int i = 0; i < kills && !shared->wrong; i++) {
        int at = (int)(kit_random() % PROCESSES);
        let_run(kit_random() % BETWEEN);
        end(pids[at], at);
        pids[at] = start(dir, PROCESSES + 1 + i);
    }
    for (int i = 0; i < PROCESSES; i++)
        end(pids[i], i);
    assert_int_equal(shared->wrong, 0);
    print_message("# %lu acquisitions\n", (unsigned long)shared->acquired);
    everything_is_free(&party);
    kit_close(&party);
    kit_remove_dir(dir);
}

int main(void)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kills_let_no_two_in)};
    return shared == MAP_FAILED ? 1 : cmocka_run_group_tests_name("local_storm", tests, NULL, NULL);
}
