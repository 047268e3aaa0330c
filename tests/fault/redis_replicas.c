/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* wait_replicas while a replica is silent: claims are refused, each within a bounded time, and
 * nothing else is held up. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <hiredis/hiredis.h>

#include "servers/redis_server.h"
#include "stile.h"

#define CLAIMS     12
#define TTL_MS     3000
#define PATIENCE_S 60

static struct redis_server primary, replica;
static struct stile_client *client;

static long long online_replicas(void)
{
    redisContext *eyes = redisConnect("127.0.0.1", primary.port);
    redisReply *reply = redisCommand(eyes, "INFO replication");
    long long online = strstr(reply->str, "state=online") != NULL;
    freeReplyObject(reply);
    redisFree(eyes);
    return online;
}

static int set_up(void **state)
{
    static char port[8];
    static const char *const first[] = {"--repl-diskless-sync-delay", "0", NULL};
    static const char *second[] = {"--replicaof", "127.0.0.1", port, NULL};
    char url[80];
    struct stile_error err;
    time_t end = time(NULL) + PATIENCE_S;

    (void)state;
    redis_server_start(&primary, first);
    snprintf(port, sizeof port, "%u", primary.port);
    redis_server_start(&replica, second);
    while (!online_replicas() && time(NULL) < end)
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    snprintf(url, sizeof url, "redis://127.0.0.1:%u?wait_replicas=1&wait_timeout=500",
             primary.port);
    if (stile_client_open(&client, url, NULL, &err))
        fail_msg("%s", err.message);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    kill(replica.pid, SIGCONT);
    stile_client_close(client);
    redis_server_stop(&replica);
    redis_server_stop(&primary);
    return 0;
}

/* On a slow machine the replica may need several times as long. */
static void acquire(struct stile_lock *lock)
{
    struct stile_error err;
    enum stile_status status;
    time_t end = time(NULL) + PATIENCE_S;
    do
        status = stile_lock_acquire(lock, 0, &err);
    while (status == STILE_REFUSED && time(NULL) < end);
    if (status)
        fail_msg("%s", err.message);
}

static void *try_one(void *data)
{
    char name[32];
    struct stile_lock *lock;
    struct stile_error err = {0};
    snprintf(name, sizeof name, "other-%zu", (size_t)data);
    enum stile_status status = stile_lock_new(&lock, client, name, NULL, &err);
    if (!status)
        status = stile_lock_acquire(lock, 0, &err);
    stile_lock_free(lock);
    return (void *)(status == STILE_REFUSED ? NULL : "not refused");
}

static void try_many(void)
{
    pthread_t threads[CLAIMS];
    void *result;
    for (size_t i = 0; i < CLAIMS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, try_one, (void *)i), 0);
    for (size_t i = 0; i < CLAIMS; i++) {
        pthread_join(threads[i], &result);
        assert_null(result);
    }
}

/* For two leases and more claims are refused, and each refusal takes its time: whatever else goes
 * over that connection waits. */
static void held_locks_stay_held(void **state)
{
    struct stile_lock *held;
    struct stile_error err;
    time_t end;

    (void)state;
    assert_int_equal(stile_lock_new(&held, client, "held", STILE_OPTIONS(.ttl_ms = TTL_MS), &err),
                     STILE_OK);
    acquire(held);
    kill(replica.pid, SIGSTOP);
    end = time(NULL) + 2 * TTL_MS / 1000 + 1;
    do {
        try_many();
        assert_true(stile_lock_held(held));
    } while (time(NULL) < end);
    assert_int_equal(stile_lock_release(held, &err), STILE_OK);
    kill(replica.pid, SIGCONT);
    stile_lock_free(held);
}

/* What another process does about a claim is done, and said to be. */
static void resumed_and_released(void **state)
{
    struct stile_lock *lock, *again;
    struct stile_error err;
    char owner[64];

    (void)state;
    assert_int_equal(stile_lock_new(&lock, client, "y", NULL, &err), STILE_OK);
    acquire(lock);
    snprintf(owner, sizeof owner, "%s", stile_lock_owner(lock));
    assert_int_equal(stile_lock_detach(lock, &err), STILE_OK);
    kill(replica.pid, SIGSTOP);
    assert_int_equal(stile_lock_new(&again, client, "y", STILE_OPTIONS(.owner = owner), &err),
                     STILE_OK);
    assert_int_equal(stile_lock_resume(again, &err), STILE_OK);
    assert_int_equal(stile_lock_release(again, &err), STILE_OK);
    assert_int_equal(stile_lock_resume(again, &err), STILE_LOST);
    stile_lock_free(lock);
    stile_lock_free(again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(held_locks_stay_held, set_up, tear_down),
        cmocka_unit_test_setup_teardown(resumed_and_released, set_up, tear_down),
    };

    return cmocka_run_group_tests_name("redis-replicas", tests, NULL, NULL);
}
