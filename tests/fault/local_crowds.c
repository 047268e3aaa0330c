/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that hold thousands of names from one pool, beside one that takes 70,000 others and
 * gives them back, so that hash chains come and go and names share their words, while one process
 * after the other is killed with -9 wherever it is. Never two holders, and at the end every name is
 * free. */
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
#define NAMES     50000
#define HELD      8000  /* by each, at most */
#define OURS      70000 /* more than there are chains at first */
#define KILLS     8
#define BETWEEN   40000 /* acquisitions between two kills, at most */

struct shared {
    _Atomic(pid_t) inside[NAMES];
    _Atomic(pid_t) killed[PROCESSES]; /* the latest */
    _Atomic(uint64_t) acquired, quick;
    _Atomic(uint32_t) most_buckets;
    _Atomic(int) wrong;
};

static struct shared *shared;

/* ---- in a process ---- */

struct held {
    struct bid *bid;
    uint32_t name;
};

static bool was_killed(pid_t pid)
{
    for (int i = 0; i < PROCESSES; i++)
        if (shared->killed[i] == pid)
            return true;
    return kill(pid, 0) != 0;
}

static bool take(struct held *held)
{
    if (kit_try(held->bid) != SAID_GRANTED)
        return false;
    pid_t before = atomic_exchange(&shared->inside[held->name], getpid());
    if (before && !was_killed(before))
        shared->wrong = 1;
    shared->acquired++;
    shared->quick += local_claim_of(held->bid->claim)->watcher.quick != 0;
    return true;
}

static void give(struct held *held)
{
    if (shared->inside[held->name] != getpid())
        shared->wrong = 2;
    shared->inside[held->name] = 0;
    if (kit_release(held->bid) != SAID_RELEASED || held->bid->error.status != STILE_OK)
        shared->wrong = 3;
}

/* As many as there is room for, less those that others hold. */
static size_t fill(struct party *party, struct held *held, size_t room)
{
    size_t n = 0;
    for (size_t i = 0; i < room; i++) {
        char name[32];
        held[n].name = (uint32_t)(kit_random() % NAMES);
        snprintf(name, sizeof name, "pool %u", held[n].name);
        held[n].bid = kit_bid(party, name);
        if (take(&held[n]))
            n++;
        else
            kit_bid_free(held[n].bid);
    }
    return n;
}

static void drain(struct held *held, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool is_held = true;
        for (uint64_t again = kit_random() % 6; again > 0 && is_held; again--) {
            give(&held[i]);
            is_held = take(&held[i]);
        }
        if (is_held)
            give(&held[i]);
        kit_bid_free(held[i].bid);
    }
}

static void child(const char *dir, int number)
{
    struct party party;
    struct held *held = calloc(HELD, sizeof *held);
    kit_be_child();
    for (int i = 0; i < 1000 * number; i++)
        (void)kit_random();
    if (!held || kit_try_open(&party, dir, NULL) != STILE_OK)
        _exit(3);
    for (;;)
        drain(held, fill(&party, held, HELD / 4 + kit_random() % (HELD / 4 * 3)));
}

/* ---- in the test ---- */

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
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        fail_msg("a process ended by itself (status %x)", (unsigned)status);
}

static void give_room_back(struct party *party)
{
    struct stile_error err;
    bool found;
    for (int i = 0; i < 50; i++)
        assert_status(local_load_tidy(kit_local(party)->env, &found, EDITS_FOR_SWEEPS,
                                      local_now(kit_local(party)), &err),
                      OK);
    while (local_table_trim(kit_store(party)))
        ;
    while (local_table_give_back(kit_store(party)))
        ;
}

/* Until so many more acquisitions; as a timer does, room is given back meanwhile. */
static void let_run(struct party *party, uint64_t n)
{
    uint64_t until = shared->acquired + n;
    for (uint64_t idle = 0, last = 0; shared->acquired < until && !shared->wrong; idle++) {
        uint32_t n_buckets = kit_store(party)->cells[AT_SEGMENTS].segments.n_buckets;
        if (n_buckets > shared->most_buckets)
            shared->most_buckets = n_buckets;
        if (shared->acquired != last)
            idle = 0;
        last = shared->acquired;
        if (idle == UINT64_C(100000000))
            fail_msg("nobody has acquired anything for long");
        if (idle % 1024 == 0)
            give_room_back(party);
        sched_yield();
    }
}

static struct bid *ours[OURS];

static void take_ours(struct party *party)
{
    for (uint32_t i = 0; i < OURS; i++) {
        char name[32];
        snprintf(name, sizeof name, "ours %u", i);
        if (!ours[i])
            ours[i] = kit_bid(party, name);
        kit_take(ours[i]);
    }
}

static void give_ours(void)
{
    for (uint32_t i = 0; i < OURS; i++) {
        assert_int_equal(kit_release(ours[i]), SAID_RELEASED);
        assert_status(ours[i]->error.status, OK);
    }
}

static void everything_is_free(struct party *party)
{
    for (uint32_t i = 0; i < NAMES; i++) {
        char name[32];
        snprintf(name, sizeof name, "pool %u", i);
        struct bid *bid = kit_bid(party, name);
        kit_take(bid);
        assert_int_equal(kit_release(bid), SAID_RELEASED);
        kit_bid_free(bid);
    }
    kit_check(kit_store(party));
}

static void test_kills_among_many_names(void **state)
{
    (void)state;
    char dir[64];
    struct party party;
    pid_t pids[PROCESSES];
    kit_make_dir(dir);
    kit_open(&party, dir);
    for (int i = 0; i < PROCESSES; i++)
        pids[i] = start(dir, i + 1);
    int kills = kit_is_soak() ? 30 * KILLS : KILLS;
    for (int i = 0; i < kills && !shared->wrong; i++) {
        int at = (int)(kit_random() % PROCESSES);
        if (i % 2 == 0)
            take_ours(&party);
        else
            give_ours();
        let_run(&party, kit_random() % BETWEEN);
        end(pids[at], at);
        pids[at] = start(dir, PROCESSES + 1 + i);
    }
    for (int i = 0; i < PROCESSES; i++)
        end(pids[i], i);
    assert_int_equal(shared->wrong, 0);
    print_message("# %lu acquisitions, %lu by the word, %u chains\n",
                  (unsigned long)shared->acquired, (unsigned long)shared->quick,
                  shared->most_buckets);
    assert_true(shared->most_buckets > BUCKETS);
    everything_is_free(&party);
    for (uint32_t i = 0; i < OURS; i++)
        kit_bid_free(ours[i]);
    kit_close(&party);
    kit_remove_dir(dir);
}

int main(void)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kills_among_many_names)};
    return shared == MAP_FAILED ? 1
                                : cmocka_run_group_tests_name("local_crowds", tests, NULL, NULL);
}
