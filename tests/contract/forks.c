/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* After fork() the child's handles are dead and the parent's locks are the parent's alone
 * (LESSONS row 31). */
#include "contract.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- what a child may still call ---- */

static int ignore(const struct stile_info *info, void *data)
{
    (void)info, (void)data;
    return 1;
}

static void never(struct stile_lock *lock, enum stile_status status, const struct stile_error *err,
                  void *data)
{
    (void)lock, (void)status, (void)err, (void)data;
}

/* The first call that doesn't answer MISUSE (or what stands for it), from 1; 0: all do. */
static int first_wrong(struct stile_client *client, struct stile_lock *held,
                       struct stile_lock *idle)
{
    struct stile_lock *lock;
    uint64_t token;
    const bool right[] = {
        stile_lock_acquire(idle, 0, NULL) == STILE_MISUSE,
        stile_lock_release(held, NULL) == STILE_MISUSE,
        stile_lock_cancel(held) == STILE_MISUSE,
        !stile_lock_held(held),
        stile_lock_remaining_ms(held) == 0,
        stile_lock_token(held, &token) == STILE_MISUSE,
        stile_lock_lost_fd(held) == -1,
        stile_lock_acquire_async(idle, 0, never, NULL) == STILE_MISUSE,
        stile_lock_release_async(held, never, NULL) == STILE_MISUSE,
        stile_lock_new(&lock, client, "x", NULL, NULL) == STILE_MISUSE,
        stile_lock_resume(idle, NULL) == STILE_MISUSE,
        stile_lock_detach(held, NULL) == STILE_MISUSE,
        stile_locks_acquire(&idle, 1, 0, NULL) == STILE_MISUSE,
        stile_locks_release(&held, 1, NULL) == STILE_MISUSE,
        stile_client_fd(client) == -1,
        stile_client_dispatch(client) == STILE_MISUSE,
        stile_client_caps(client) == NULL,
        stile_show(client, "x", ignore, NULL, NULL) == STILE_MISUSE,
        stile_list(client, NULL, ignore, NULL, NULL) == STILE_MISUSE,
        stile_watch(client, "x", 0, ignore, NULL, NULL) == STILE_MISUSE,
        stile_break(client, "x", 0, NULL) == STILE_MISUSE,
    };
    for (size_t i = 0; i < COUNT(right); i++) {
        if (!right[i])
            return (int)i + 1;
    }
    return 0;
}

static void check_still_ours(struct scene *s, struct stile_lock *lock)
{
    struct seen seen;
    struct stile_lock *other = lock_on(scene_client(s, NULL), s->name, NULL);
    assert_true(stile_lock_held(lock));
    check_status(STILE_HELD, stile_lock_acquire(other, 0, &why));
    look(s->client, s->name, &seen);
    assert_int_equal(seen.holders, 1);
    assert_true(seen.claims[0].token == token_of(lock));
}

static int exit_status_of(pid_t pid)
{
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_child_cannot_use_our_handles(void **state)
{
    struct scene *s = *state;
    int gate[2];
    struct stile_lock *lock = held_on(s->client, s->name, NULL);
    struct stile_lock *idle = lock_on(s->client, s->name, NULL);
    assert_int_equal(pipe(gate), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char byte;
        close(gate[1]);
        int wrong = first_wrong(s->client, lock, idle);
        _exit(read(gate[0], &byte, 1) == 0 ? wrong : 99);
    }
    close(gate[0]);
    check_still_ours(s, lock);
    close(gate[1]);
    assert_int_equal(exit_status_of(pid), 0);
    check_still_ours(s, lock);
    check_ok(stile_lock_release(lock, &why));
    check_ok(stile_lock_acquire(idle, 0, &why));
}

/* A child that opens its own client is one process more, and excluded like any other. */
static int use_own_client(const char *name, bool expect_held)
{
    struct stile_client *client;
    struct stile_lock *lock;
    if (stile_client_open(&client, suite.url, STILE_CLIENT_OPTIONS(.threadless = true), NULL))
        return 1;
    if (stile_lock_new(&lock, client, name, NULL, NULL))
        return 2;
    enum stile_status status = stile_lock_acquire(lock, expect_held ? 0 : PATIENCE_MS, NULL);
    if (status != (expect_held ? STILE_HELD : STILE_OK))
        return 3;
    stile_client_close(client);
    return 0;
}

static void test_child_may_open_its_own_client(void **state)
{
    struct scene *s = *state;
    char other[80];
    struct stile_lock *lock = held_on(s->client, s->name, NULL);
    snprintf(other, sizeof other, "%s-other", s->name);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int wrong = use_own_client(s->name, true);
        _exit(wrong ? wrong : use_own_client(other, false));
    }
    assert_int_equal(exit_status_of(pid), 0);
    check_still_ours(s, lock);
    check_free(s, other);
    check_ok(stile_lock_release(lock, &why));
}

/* ---- what a child must not keep ---- */

static int count_fds(void)
{
    int n = 0;
    DIR *fds = opendir("/proc/self/fd");
    while (fds && readdir(fds))
        n++;
    if (fds)
        closedir(fds);
    return n;
}

static int count_fds_in_a_child(void)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(count_fds());
    return exit_status_of(pid);
}

struct opener {
    pthread_t thread;
    const char *name;
    atomic_int stop;
    enum stile_status status;
};

static void *open_and_close(void *arg)
{
    struct opener *o = arg;
    while (!atomic_load(&o->stop) && !o->status) {
        struct stile_client *client;
        struct stile_lock *lock;
        o->status = stile_client_open(&client, suite.url, NULL, NULL);
        if (o->status)
            break;
        o->status = stile_lock_new(&lock, client, o->name, NULL, NULL);
        if (!o->status)
            o->status = stile_lock_acquire(lock, PATIENCE_MS, NULL);
        stile_client_close(client);
    }
    return NULL;
}

/* A child that kept one fd of ours would be our proof of life when we are dead. Also in the midst
 * of another thread's open and close, when an engine's fds are not yet, or no longer, known. */
static void test_child_has_none_of_our_fds(void **state)
{
    struct scene *s = *state;
    struct opener *o = scene_memory(s, sizeof *o);
    int alone = count_fds_in_a_child(), wrong = 0;
    assert_true(alone < count_fds());
    o->name = s->name;
    assert_int_equal(pthread_create(&o->thread, NULL, open_and_close, o), 0);
    for (unsigned i = scene_rounds(s, 100, 20); i > 0; i--)
        wrong += count_fds_in_a_child() != alone;
    atomic_store(&o->stop, 1);
    assert_int_equal(pthread_join(o->thread, NULL), 0);
    check_ok(o->status);
    assert_int_equal(wrong, 0);
}

static void check_stray_keeps_nothing(struct scene *s, const char *how, const char *word)
{
    struct peer *parent = peer_start(s, s->name, STILE_OPTIONS(.ttl_ms = short_ttl(s)));
    struct peer *waiter = peer_start(s, s->name, NULL);
    peer_acquire(parent);
    peer_tell(parent, "%s", how);
    pid_t stray = peer_expect_pid(s, parent, word);
    peer_tell(parent, "held");
    peer_expect(parent, "held");
    peer_tell(waiter, "acquire %d", PATIENCE_MS);
    await_state(s, s->name, 1, 1);
    peer_kill(parent);
    peer_expect_grant(waiter);
    assert_int_equal(kill(stray, 0), 0); /* it lives, and it does not matter */
    peer_release(waiter);
    check_free(s, s->name);
}

static void test_forked_child_keeps_nothing(void **state)
{
    check_stray_keeps_nothing(*state, "fork", "forked ");
}

static void test_spawned_program_keeps_nothing(void **state)
{
    check_stray_keeps_nothing(*state, "spawn", "spawned ");
}

/* A child's end is not the parent's, not even with exit handlers run. */
static void test_release_after_a_fork(void **state)
{
    struct scene *s = *state;
    struct peer *parent = peer_start(s, s->name, NULL);
    struct stile_lock *lock = lock_on(s->client, s->name, NULL);
    peer_acquire(parent);
    peer_tell(parent, "fork");
    pid_t stray = peer_expect_pid(s, parent, "forked ");
    assert_int_equal(kill(stray, SIGKILL), 0);
    peer_tell(parent, "held");
    peer_expect(parent, "held");
    check_status(STILE_HELD, stile_lock_acquire(lock, 0, &why));
    peer_release(parent);
    check_ok(stile_lock_acquire(lock, 0, &why));
}

/* clang-format off */
SUITE_PART(forks,
    SCENE_TEST(test_child_cannot_use_our_handles),
    SCENE_TEST(test_child_may_open_its_own_client),
    SCENE_TEST(test_child_has_none_of_our_fds),
    SCENE_TEST(test_forked_child_keeps_nothing),
    SCENE_TEST(test_spawned_program_keeps_nothing),
    SCENE_TEST(test_release_after_a_fork))
/* clang-format on */
