/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that can't work: each is answered with MISUSE and does no harm. */
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/lock.h"
#include "support/unit.h"

static void release_of_what_is_not_held(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    struct stile_error err;
    uint64_t token;

    assert_status(stile_lock_release(lock, &err), MISUSE);
    assert_string_equal(err.message, "releasing 'a': it isn't held");
    assert_status(stile_lock_token(lock, &token), MISUSE);
    assert_status(stile_lock_detach(lock, NULL), MISUSE);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    assert_status(stile_lock_release(lock, NULL), OK);
    assert_status(stile_lock_release(lock, NULL), MISUSE);
    assert_trace(w->script, "claim a, release a");
}

static void acquire_twice(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    struct stile_error err;

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    assert_status(stile_lock_acquire(lock, -1, &err), MISUSE);
    assert_string_equal(err.message, "acquiring 'a': this handle holds it already");
    assert_true(stile_lock_held(lock));
    assert_trace(w->script, "claim a");
}

static void free_twice(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    struct stile_error err;

    stile_lock_free(lock);
    stile_lock_free(lock);
    assert_status(stile_lock_acquire(lock, -1, &err), MISUSE);
    assert_string_equal(err.message, "acquiring 'a': this lock has been freed already");
    assert_status(stile_lock_release(lock, NULL), MISUSE);
    assert_status(stile_lock_cancel(lock), MISUSE);
    assert_false(stile_lock_held(lock));
    assert_int_equal(stile_lock_lost_fd(lock), -1);
    assert_null(stile_lock_name(lock));
}

static void close_twice(void **state)
{
    struct world *w = *state;
    struct stile_client *client = w->clients[0];

    world_close_client(w, 0);
    stile_client_close(client);
    stile_client_close(NULL);
}

static void nothing_given(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock;
    struct stile_client *client;
    uint64_t token;

    assert_status(stile_client_open(NULL, "test:", NULL, NULL), MISUSE);
    assert_status(stile_client_dispatch(NULL), MISUSE);
    assert_int_equal(stile_client_fd(NULL), -1);
    assert_null(stile_client_caps(NULL));
    assert_status(stile_lock_new(NULL, w->clients[0], "a", NULL, NULL), MISUSE);
    assert_status(stile_lock_new(&lock, NULL, "a", NULL, NULL), MISUSE);
    assert_null(lock);
    assert_status(stile_lock_new(&lock, w->clients[0], NULL, NULL, NULL), MISUSE);
    stile_lock_free(NULL);
    assert_status(stile_lock_acquire(NULL, 0, NULL), MISUSE);
    assert_status(stile_lock_release(NULL, NULL), MISUSE);
    assert_status(stile_lock_cancel(NULL), MISUSE);
    assert_status(stile_lock_resume(NULL, NULL), MISUSE);
    assert_status(stile_lock_detach(NULL, NULL), MISUSE);
    assert_status(stile_lock_acquire_async(NULL, 0, heard_done, NULL), MISUSE);
    assert_status(stile_lock_release_async(NULL, heard_done, NULL), MISUSE);
    assert_false(stile_lock_held(NULL));
    assert_int_equal(stile_lock_remaining_ms(NULL), 0);
    assert_int_equal(stile_lock_ttl_ms(NULL), 0);
    token = 7;
    assert_status(stile_lock_token(NULL, &token), MISUSE);
    assert_int_equal(token, 0);
    assert_null(stile_lock_name(NULL));
    assert_null(stile_lock_owner(NULL));
    assert_int_equal(stile_lock_lost_fd(NULL), -1);
    lock = make_lock(w->clients[0], "a", NULL);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    assert_status(stile_lock_token(lock, NULL), MISUSE);
    assert_status(stile_client_open(&client, "nowhere:", NULL, NULL), MISUSE);
    assert_null(client);
}

static void no_lock_at_all(void **state)
{
    static uint64_t zeros[64];
    struct stile_error err;

    (void)state;
    assert_status(stile_lock_acquire((struct stile_lock *)zeros, 0, &err), MISUSE);
    assert_string_equal(err.message, "acquiring: not a lock");
    stile_lock_free((struct stile_lock *)zeros);
    assert_status(stile_client_dispatch((struct stile_client *)zeros), MISUSE);
    stile_client_close((struct stile_client *)zeros);
    stile_client_interrupt((struct stile_client *)zeros);
}

static void options_of_another_size(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock;
    struct stile_client *client;
    struct stile_error err;

    assert_status(
        stile_lock_new(&lock, w->clients[0], "a", &(struct stile_lock_options){.ttl_ms = 5}, &err),
        MISUSE);
    assert_non_null(strstr(err.message, "lock options have size 0"));
    assert_status(
        stile_lock_new(&lock, w->clients[0], "a", &(struct stile_lock_options){.size = 8}, &err),
        MISUSE);
    assert_status(
        stile_client_open(&client, "test:", &(struct stile_client_options){.size = 3}, &err),
        MISUSE);
    assert_non_null(strstr(err.message, "client options have size 3"));
    assert_null(client);
}

static void options_that_contradict(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock;

    assert_status(stile_lock_new(&lock, w->clients[0], "a", STILE_OPTIONS(.slots = 2), NULL),
                  MISUSE);
    assert_status(
        stile_lock_new(&lock, w->clients[0], "a", STILE_OPTIONS(.mode = STILE_SLOTS), NULL),
        MISUSE);
    assert_status(stile_lock_new(&lock, w->clients[0], "a",
                                 STILE_OPTIONS(.mode = STILE_SLOTS, .slots = 65536), NULL),
                  MISUSE);
    assert_status(
        stile_lock_new(&lock, w->clients[0], "a", STILE_OPTIONS(.mode = (enum stile_mode)5), NULL),
        MISUSE);
    assert_status(
        stile_lock_new(&lock, w->clients[0], "a", STILE_OPTIONS(.hold_at_least_ms = -1), NULL),
        MISUSE);
    assert_status(stile_lock_new(&lock, w->clients[0], "a\001", NULL, NULL), MISUSE);
    assert_status(stile_lock_new(&lock, w->clients[0], "", NULL, NULL), MISUSE);
}

/* ---- fork ---- */

static bool all_misuse(struct stile_client *client, struct stile_lock *lock)
{
    struct stile_lock *other;
    uint64_t token;

    stile_lock_free(lock); /* nothing happens */
    stile_client_close(client);
    stile_client_interrupt(client);
    return stile_lock_acquire(lock, 0, NULL) == STILE_MISUSE &&
           stile_lock_release(lock, NULL) == STILE_MISUSE &&
           stile_lock_cancel(lock) == STILE_MISUSE && !stile_lock_held(lock) &&
           stile_lock_remaining_ms(lock) == 0 && stile_lock_token(lock, &token) == STILE_MISUSE &&
           stile_lock_lost_fd(lock) == -1 &&
           stile_lock_acquire_async(lock, 0, heard_done, NULL) == STILE_MISUSE &&
           stile_locks_acquire(&lock, 1, 0, NULL) == STILE_MISUSE &&
           stile_lock_new(&other, client, "b", NULL, NULL) == STILE_MISUSE &&
           stile_client_dispatch(client) == STILE_MISUSE && stile_client_fd(client) == -1 &&
           stile_list(client, NULL, NULL, NULL, NULL) == STILE_MISUSE;
}

static void expect_child(pid_t pid)
{
    int status;

    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Row 31: in the child everything is dead; in the parent nothing has happened. */
static void use_after_fork(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    pid_t pid;

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    pid = fork();
    if (pid == 0)
        _exit(!all_misuse(w->clients[0], lock));
    expect_child(pid);
    assert_true(stile_lock_held(lock));
    assert_status(stile_lock_release(lock, NULL), OK);
    assert_trace(w->script, "claim a, release a");
}

/* No handler of ours hears of a bare clone(2). */
static void use_after_a_bare_clone(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);
    pid_t pid;

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0);
    if (pid == 0) {
        alarm(10); /* it must not hang either */
        _exit(!all_misuse(w->clients[0], lock));
    }
    expect_child(pid);
    assert_true(stile_lock_held(lock));
    assert_status(stile_lock_release(lock, NULL), OK);
}

/* The child may open clients of its own, and close them. */
static bool can_start_anew(void)
{
    struct world world;
    struct stile_lock *lock;
    bool ok;

    world_open(&world, 1, script_variant(STILE_LEASE_CLAIM, 0), 1);
    ok = !stile_lock_new(&lock, world.clients[0], "a", NULL, NULL) &&
         !stile_lock_acquire(lock, -1, NULL) && stile_lock_held(lock) &&
         !stile_lock_release(lock, NULL);
    world_close(&world);
    return ok;
}

static void a_child_starts_anew(void **state)
{
    struct world *w = *state;
    pid_t pid;

    (void)w;
    pid = fork();
    if (pid == 0)
        _exit(!can_start_anew());
    expect_child(pid);
}

/* A real client: with its thread, its epoll set, its timer. */
static void fork_with_a_thread_of_ours(void **state)
{
    struct stile_client *client;
    struct stile_lock *lock;
    struct loop *loop;
    struct script *script = script_new(NULL);
    pid_t pid;

    (void)state;
    script_use(script);
    assert_int_equal(loop_epoll_new(&loop), 0);
    assert_status(client_new(&client, script_variant(STILE_LEASE_CLAIM, 0), loop, NULL, NULL, NULL),
                  OK);
    lock = make_lock(client, "a", NULL);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    for (int i = 0; i < 20; i++) {
        pid = fork();
        if (pid == 0) {
            alarm(10);
            /* Its descriptors are closed at once, so that nothing of the parent's is kept open. */
            _exit(!(client->loop->class->fd(client->loop) == -1 && all_misuse(client, lock)));
        }
        expect_child(pid);
    }
    assert_true(stile_lock_held(lock));
    assert_status(stile_lock_release(lock, NULL), OK);
    stile_client_close(client);
    script_free(script);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(open_detached, release_of_what_is_not_held),
        TEST_IN(open_one, acquire_twice),
        TEST_IN(open_one, free_twice),
        TEST_IN(open_one, close_twice),
        TEST_IN(open_one, nothing_given),
        cmocka_unit_test(no_lock_at_all),
        TEST_IN(open_one, options_of_another_size),
        TEST_IN(open_one, options_that_contradict),
        TEST_IN(open_one, use_after_fork),
        TEST_IN(open_one, use_after_a_bare_clone),
        TEST_IN(open_one, a_child_starts_anew),
        cmocka_unit_test(fork_with_a_thread_of_ours),
    };
    return cmocka_run_group_tests_name("core_misuse", tests, NULL, NULL);
}
