/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Ten thousand claims on one name, and thousands of names held at once, on a real redis-server. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <hiredis/hiredis.h>

#include "servers/redis_server.h"
#include "stile.h"

#define WAITERS    10000
#define STOPPED    2000 /* their replies are more than one read takes */
#define HELD       4000
#define PATIENCE_S 100

static struct redis_server server;
static redisContext *eyes; /* what a person would see of the server meanwhile */
static struct stile_client *client;

/* Callbacks come on the client's own thread. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    unsigned granted, cancelled, released, failed;
    unsigned order[WAITERS];
    uint64_t tokens[WAITERS];
} seen = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

struct one {
    struct stile_lock *lock;
    unsigned number;
};

static struct one all[WAITERS];

static void open_client(struct stile_client **out)
{
    char url[64];
    struct stile_error err;
    snprintf(url, sizeof url, "redis://127.0.0.1:%u", server.port);
    if (stile_client_open(out, url, NULL, &err))
        fail_msg("%s", err.message);
}

static int set_up(void **state)
{
    (void)state;
    redis_server_start(&server, NULL);
    eyes = redisConnect("127.0.0.1", server.port);
    assert_non_null(eyes);
    open_client(&client);
    seen.granted = seen.cancelled = seen.released = seen.failed = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    stile_client_close(client);
    redisFree(eyes);
    redis_server_stop(&server);
    return 0;
}

static long long ask(const char *words)
{
    redisReply *reply = redisCommand(eyes, words);
    assert_non_null(reply);
    assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
    long long value = reply->integer;
    freeReplyObject(reply);
    return value;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 5 * 1000 * 1000}, NULL);
}

/* Without what stands there for pollers. */
static long long in_line(void)
{
    static const char count[] = "return redis.call('ZCARD',KEYS[1])"
                                "-(redis.call('ZSCORE',KEYS[1],'~gap') and 1 or 0)";
    redisReply *reply = redisCommand(eyes, "EVAL %s 1 %s", count, "{lock:x}\x1fqueue");
    assert_non_null(reply);
    assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
    long long value = reply->integer;
    freeReplyObject(reply);
    return value;
}

/* No event reports it, so the test waits as long as it changes. */
static void until_in_line(long long n)
{
    long long last = -1, now;
    time_t end = 0;
    while ((now = in_line()) != n) {
        if (now != last)
            end = time(NULL) + PATIENCE_S;
        last = now;
        if (time(NULL) >= end)
            fail_msg("%lld in line instead of %lld", now, n);
        nap();
    }
}

static int await_change(void)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += PATIENCE_S;
    return pthread_cond_timedwait(&seen.changed, &seen.mutex, &end);
}

static void until_counted(const unsigned *count, unsigned n)
{
    pthread_mutex_lock(&seen.mutex);
    while (*count < n && await_change() != ETIMEDOUT)
        ;
    unsigned got = *count;
    pthread_mutex_unlock(&seen.mutex);
    assert_int_equal(got, n);
    assert_int_equal(seen.failed, 0);
}

static void make_locks(unsigned n, const char *name, int64_t ttl_ms)
{
    for (unsigned i = 0; i < n; i++) {
        char own[32];
        struct stile_error err;
        snprintf(own, sizeof own, "%s%u", name, i);
        all[i].number = i;
        if (stile_lock_new(&all[i].lock, client, ttl_ms ? own : name,
                           STILE_OPTIONS(.ttl_ms = ttl_ms), &err))
            fail_msg("%s", err.message);
    }
}

static void on_released(struct stile_lock *lock, enum stile_status status,
                        const struct stile_error *err, void *data)
{
    (void)lock, (void)err, (void)data;
    pthread_mutex_lock(&seen.mutex);
    *(status ? &seen.failed : &seen.released) += 1;
    pthread_cond_signal(&seen.changed);
    pthread_mutex_unlock(&seen.mutex);
}

static void count_grant(struct one *one, enum stile_status status)
{
    pthread_mutex_lock(&seen.mutex);
    if (status == STILE_OK) {
        stile_lock_token(one->lock, &seen.tokens[seen.granted]);
        seen.order[seen.granted++] = one->number;
    } else {
        *(status == STILE_CANCELLED ? &seen.cancelled : &seen.failed) += 1;
    }
    pthread_cond_signal(&seen.changed);
    pthread_mutex_unlock(&seen.mutex);
}

static void keep_it(struct stile_lock *lock, enum stile_status status,
                    const struct stile_error *err, void *data)
{
    (void)lock, (void)err;
    count_grant(data, status);
}

static void pass_it_on(struct stile_lock *lock, enum stile_status status,
                       const struct stile_error *err, void *data)
{
    (void)err;
    count_grant(data, status);
    if (status == STILE_OK)
        stile_lock_release_async(lock, on_released, NULL);
}

/* ---- waiting ---- */

static struct stile_client *other;
static struct stile_lock *first;

static void hold_first(void)
{
    struct stile_error err;
    open_client(&other);
    assert_int_equal(stile_lock_new(&first, other, "x", NULL, &err), STILE_OK);
    assert_int_equal(stile_lock_acquire(first, 0, &err), STILE_OK);
}

static void request(unsigned n)
{
    make_locks(n, "x", 0);
    for (unsigned i = 0; i < n; i++)
        stile_lock_acquire_async(all[i].lock, -1, pass_it_on, &all[i]);
}

static void line_up(void)
{
    hold_first();
    request(WAITERS);
    until_in_line(WAITERS);
}

/* A turn that is not taken within a second passes to the next waiter, and its token is skipped. So
 * tokens show whether this machine kept the client from running for so long, and only a turn that
 * was missed excuses a waiter that was passed over. */
static void assert_in_order(unsigned n)
{
    uint64_t missed = seen.tokens[n - 1] - seen.tokens[0] - (n - 1), passed = 0;
    unsigned next = 0;
    for (unsigned i = 0; i < n; i++) {
        assert_true(i == 0 || seen.tokens[i] > seen.tokens[i - 1]);
        if (seen.order[i] < next)
            continue; /* it was passed over before */
        passed += seen.order[i] - next;
        next = seen.order[i] + 1;
        if (passed > missed)
            fail_msg("%u came when %llu turns were missed and %llu waiters passed over",
                     seen.order[i], (unsigned long long)missed, (unsigned long long)passed);
    }
}

static void pass_it_down_the_line(unsigned n)
{
    assert_int_equal(stile_lock_release(first, NULL), STILE_OK);
    until_counted(&seen.released, n);
    assert_in_order(n);
    assert_int_equal(ask("EXISTS lock:x {lock:x}\x1fqueue"), 0);
    stile_client_close(other);
}

static void they_get_it_in_order(void **state)
{
    (void)state;
    line_up();
    pass_it_down_the_line(WAITERS);
}

/* The server continues as soon as this process is stopped, for longer than a request has time. */
static void let_the_server_answer_while_we_are_stopped(void)
{
    pid_t us = getpid(), helper = fork();
    assert_true(helper >= 0);
    if (helper == 0) {
        kill(us, SIGSTOP);
        kill(server.pid, SIGCONT);
        nanosleep(&(struct timespec){.tv_sec = 3, .tv_nsec = 500 * 1000 * 1000}, NULL);
        kill(us, SIGCONT);
        _exit(0);
    }
    assert_int_equal(waitpid(helper, NULL, 0), helper);
}

/* When it runs again all their requests seem overdue, and more replies lie there than one read
 * takes. */
static void their_client_was_stopped(void **state)
{
    (void)state;
    hold_first();
    kill(server.pid, SIGSTOP);
    request(STOPPED);
    let_the_server_answer_while_we_are_stopped();
    until_in_line(STOPPED);
    pass_it_down_the_line(STOPPED);
}

static int count_waiters(const struct stile_info *info, void *data)
{
    *(size_t *)data = info->waiters;
    return 0;
}

static void they_are_withdrawn(void **state)
{
    size_t waiters = 0;
    (void)state;
    line_up();
    assert_int_equal(stile_show(other, "x", count_waiters, &waiters, NULL), STILE_OK);
    assert_int_equal(waiters, WAITERS);
    for (unsigned i = 0; i < WAITERS; i++)
        stile_lock_cancel(all[(i * 7919) % WAITERS].lock); /* from all over the line */
    until_counted(&seen.cancelled, WAITERS);
    assert_int_equal(seen.granted, 0);
    until_in_line(0);
    assert_true(stile_lock_held(first));
    assert_int_equal(stile_lock_release(first, NULL), STILE_OK);
    assert_int_equal(ask("EXISTS lock:x {lock:x}\x1fqueue"), 0);
    stile_client_close(other);
}

static void their_client_is_closed(void **state)
{
    (void)state;
    line_up();
    stile_client_close(client);
    assert_int_equal(seen.cancelled, WAITERS);
    assert_int_equal(seen.granted, 0);
    until_in_line(0);
    open_client(&client);
    stile_client_close(other);
}

/* ---- renewing ---- */

/* How often the server was asked for it, since its start. */
static unsigned long calls(const char *command)
{
    char line[64];
    redisReply *reply = redisCommand(eyes, "INFO commandstats");
    assert_non_null(reply);
    snprintf(line, sizeof line, "cmdstat_%s:calls=", command);
    const char *at = strstr(reply->str, line);
    unsigned long n = at ? strtoul(at + strlen(line), NULL, 10) : 0;
    freeReplyObject(reply);
    return n;
}

/* What is held when the subscription begins is checked once. That is over before commands are
 * counted: one lock is taken, and checked. */
static void subscribe(void)
{
    struct stile_lock *lock;
    time_t end = time(NULL) + PATIENCE_S;
    assert_int_equal(stile_lock_new(&lock, client, "first", NULL, NULL), STILE_OK);
    assert_int_equal(stile_lock_acquire(lock, 0, NULL), STILE_OK);
    while (calls("evalsha") + calls("eval") < 2) {
        assert_true(time(NULL) < end);
        nap();
    }
    assert_int_equal(stile_lock_release(lock, NULL), STILE_OK);
}

static void renewals_travel_together(void **state)
{
    time_t end = time(NULL) + PATIENCE_S;
    (void)state;
    subscribe();
    make_locks(HELD, "n", 6000);
    for (unsigned i = 0; i < HELD; i++)
        stile_lock_acquire_async(all[i].lock, 0, keep_it, &all[i]);
    until_counted(&seen.granted, HELD);
    unsigned long asked = calls("evalsha") + calls("eval"), renewed = calls("pexpire");
    while (calls("pexpire") < renewed + 4 * HELD) { /* each twice, with what is beside it */
        assert_true(time(NULL) < end);
        nap();
    }
    asked = calls("evalsha") + calls("eval") - asked;
    print_message("# %d claims renewed twice in %lu commands\n", HELD, asked);
    assert_in_range(asked, 1, 2 * HELD / 50);
    for (unsigned i = 0; i < HELD; i++)
        assert_true(stile_lock_held(all[i].lock));
    for (unsigned i = 0; i < HELD; i++)
        stile_lock_release_async(all[i].lock, on_released, NULL);
    until_counted(&seen.released, HELD);
    assert_int_equal(ask("EXISTS lock:n0"), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(they_get_it_in_order),   TEST(their_client_was_stopped), TEST(they_are_withdrawn),
        TEST(their_client_is_closed), TEST(renewals_travel_together),
    };
    return cmocka_run_group_tests_name("redis-many", tests, NULL, NULL);
}
