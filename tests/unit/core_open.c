/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile_client_open_async(): its callback comes once, with the outcome, whatever happens to the
 * client meanwhile. On the real loop, with our thread and without it. */
#include <poll.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/unit.h"

#define PATIENCE_SEC 10

struct attempt {
    struct stile_client *client;
    unsigned times;
    enum stile_status status;
    struct stile_error err;
    bool close; /* in the callback */
    bool use;   /* in the callback */
    enum stile_status used;
    sem_t over;
};

static void used(struct stile_client *client, enum stile_status status,
                 const struct stile_error *err, void *data)
{
    struct attempt *o = data;

    (void)client;
    (void)err;
    o->used = status;
    sem_post(&o->over);
}

static void opened(struct stile_client *client, enum stile_status status,
                   const struct stile_error *err, void *data)
{
    struct attempt *o = data;

    assert_ptr_equal(client, o->client);
    assert_int_equal(status != STILE_OK, err != NULL);
    o->times++;
    o->status = status;
    if (err)
        o->err = *err;
    if (o->use)
        assert_status(stile_list_async(client, NULL, NULL, used, o, NULL), OK);
    else
        sem_post(&o->over);
    if (o->close)
        stile_client_close(client);
}

static void start(struct attempt *o, const char *url, bool threadless)
{
    char label[] = "a label";

    sem_init(&o->over, 0, 0);
    assert_status(
        stile_client_open_async(&o->client, url,
                                STILE_CLIENT_OPTIONS(.threadless = threadless, .label = label),
                                opened, o, NULL),
        OK);
    label[0] = 'X'; /* it was copied */
    assert_non_null(o->client);
}

/* Drives a threadless client until the callback has come. */
static void await(struct attempt *o, bool threadless)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_SEC;
    while (threadless && sem_trywait(&o->over) != 0) {
        struct pollfd fd = {.fd = stile_client_fd(o->client), .events = POLLIN};
        assert_int_equal(poll(&fd, 1, PATIENCE_SEC * 1000), 1);
        assert_status(stile_client_dispatch(o->client), OK);
    }
    if (!threadless)
        assert_int_equal(sem_timedwait(&o->over, &until), 0);
}

static int ignore(const struct stile_info *info, void *data)
{
    (void)info;
    (void)data;
    return 0;
}

static void assert_unusable(struct stile_client *client, const char *why)
{
    struct stile_lock *lock = NULL;
    struct stile_error err = {0};

    assert_status(stile_list(client, NULL, ignore, NULL, &err), MISUSE);
    assert_non_null(strstr(err.message, why));
    assert_status(stile_lock_new(&lock, client, "a", NULL, NULL), MISUSE);
    assert_null(stile_client_caps(client));
    assert_true(stile_client_fd(client) >= 0);
}

static void the_callback_comes_once(void **state)
{
    (void)state;
    for (int threadless = 0; threadless < 2; threadless++) {
        struct attempt o = {.use = true};
        start(&o, "test:?open=20", threadless);
        if (threadless) { /* our thread could be faster than this one */
            assert_int_equal(o.times, 0);
            assert_unusable(o.client, "still being opened");
        }
        await(&o, threadless);
        assert_int_equal(o.times, 1);
        assert_status(o.status, OK);
        assert_status(o.used, OK);
        assert_status(stile_list(o.client, NULL, ignore, NULL, NULL), OK);
        stile_client_close(o.client);
        assert_int_equal(o.times, 1);
    }
}

/* The engine answers from inside open(). */
static void never_from_inside_the_call(void **state)
{
    struct attempt o = {.use = false};

    (void)state;
    start(&o, "test:", true);
    assert_int_equal(o.times, 0);
    assert_status(stile_client_dispatch(o.client), OK);
    assert_int_equal(o.times, 1);
    assert_status(o.status, OK);
    stile_client_close(o.client);
}

static void close_halfway(void **state)
{
    (void)state;
    for (int threadless = 0; threadless < 2; threadless++) {
        struct attempt o = {.use = false};
        start(&o, "test:?open=never", threadless);
        assert_unusable(o.client, "still being opened");
        stile_client_close(o.client);
        assert_int_equal(o.times, 1);
        assert_status(o.status, CANCELLED);
        assert_string_equal(o.err.message, "opening test: the client was closed");
    }
}

/* Before its outcome, which is known, has been reported. */
static void close_before_the_callback(void **state)
{
    struct attempt o = {.use = false};

    (void)state;
    start(&o, "test:", true);
    stile_client_close(o.client);
    assert_int_equal(o.times, 1);
}

static void a_failure(void **state)
{
    (void)state;
    for (int threadless = 0; threadless < 2; threadless++) {
        struct attempt o = {.use = false};
        start(&o, "test:?open=refused", threadless);
        await(&o, threadless);
        assert_int_equal(o.times, 1);
        assert_status(o.status, REFUSED);
        assert_string_equal(o.err.message, "opening test: the script says so");
        assert_unusable(o.client, "could not be opened");
        stile_client_close(o.client);
        assert_int_equal(o.times, 1);
    }
}

static void close_in_the_callback(void **state)
{
    static const char *const urls[] = {"test:?open=1", "test:?open=refused"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct attempt o = {.close = true};
        start(&o, urls[i], true);
        while (o.times == 0) {
            struct pollfd fd = {.fd = stile_client_fd(o.client), .events = POLLIN};
            assert_int_equal(poll(&fd, 1, PATIENCE_SEC * 1000), 1);
            assert_status(stile_client_dispatch(o.client), OK);
        }
        assert_int_equal(o.times, 1);
    }
}

static void fork_halfway(void **state)
{
    struct attempt o = {.use = false};
    int status;

    (void)state;
    start(&o, "test:?open=never", true);
    pid_t pid = fork();
    if (pid == 0) {
        bool dead = stile_client_dispatch(o.client) == STILE_MISUSE &&
                    stile_list(o.client, NULL, ignore, NULL, NULL) == STILE_MISUSE;
        stile_client_close(o.client);
        _exit(dead && o.times == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    stile_client_close(o.client);
    assert_int_equal(o.times, 1);
    assert_status(o.status, CANCELLED);
}

static void misuse(void **state)
{
    struct stile_client *client = NULL;
    struct stile_error err = {0};

    (void)state;
    assert_status(stile_client_open_async(&client, "test:", NULL, NULL, NULL, &err), MISUSE);
    assert_string_equal(err.message, "no callback given");
    assert_status(stile_client_open_async(NULL, "test:", NULL, opened, NULL, &err), MISUSE);
    assert_status(stile_client_open_async(&client, "test:?what=ever", NULL, opened, NULL, &err),
                  MISUSE);
    assert_null(client);
}

/* A blocking open waits as long. */
static void blocking(void **state)
{
    struct stile_client *client = NULL;
    struct stile_error err = {0};

    (void)state;
    assert_status(stile_client_open(&client, "test:?open=5", NULL, &err), OK);
    stile_client_close(client);
    assert_status(stile_client_open(&client, "test:?open=refused", NULL, &err), REFUSED);
    assert_null(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_callback_comes_once),
        cmocka_unit_test(never_from_inside_the_call),
        cmocka_unit_test(close_halfway),
        cmocka_unit_test(close_before_the_callback),
        cmocka_unit_test(a_failure),
        cmocka_unit_test(close_in_the_callback),
        cmocka_unit_test(fork_halfway),
        cmocka_unit_test(misuse),
        cmocka_unit_test(blocking),
    };
    return cmocka_run_group_tests_name("core_open", tests, NULL, NULL);
}
