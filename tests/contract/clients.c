/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Opening, closing, capabilities, and being called in a way that cannot work. */
#include "contract.h"

#include <stdio.h>
#include <string.h>

/* ---- opening ---- */

static void test_caps_are_complete(void **state)
{
    struct scene *s = *state;
    const struct stile_caps *c = s->caps;
    assert_non_null(c);
    assert_int_equal(strncmp(suite.url, c->engine, strlen(c->engine)), 0);
    assert_true(c->modes & 1u << STILE_EXCLUSIVE);
    assert_int_equal(c->modes & ~7u, 0);
    assert_in_range(c->lease, STILE_LEASE_PROCESS, STILE_LEASE_CLAIM);
    assert_true(c->token_is && *c->token_is);
    assert_true(c->survives && *c->survives);
    assert_true(c->condition && *c->condition);
    assert_null(stile_client_caps(NULL));
}

static void check_open_fails(enum stile_status want, const char *url)
{
    struct stile_client *client = (struct stile_client *)&client;
    check_status(want, stile_client_open(&client, url, NULL, &why));
    assert_null(client);
    assert_int_equal(why.status, want);
    assert_true(*why.message);
    assert_int_equal(stile_client_open(&client, url, NULL, NULL), want);
}

static void test_open_of_a_bad_url(void **state)
{
    static char endless[STILE_URL_MAX + 2];
    (void)state;
    check_open_fails(STILE_MISUSE, "nosuchengine://host");
    check_open_fails(STILE_MISUSE, "no scheme");
    check_open_fails(STILE_MISUSE, ":");
    check_open_fails(STILE_MISUSE, "local:/bad%zzescape");
    check_open_fails(STILE_MISUSE, "local:/nul%00byte");
    memset(endless, 'a', sizeof endless - 1);
    memcpy(endless, "local:/", 7);
    check_open_fails(STILE_MISUSE, endless);
}

static void test_open_with_an_unknown_parameter(void **state)
{
    char url[STILE_URL_MAX + 64];
    (void)state;
    snprintf(url, sizeof url, "%s%cnosuchparameter=1", suite.url,
             strchr(suite.url, '?') ? '&' : '?');
    check_open_fails(STILE_MISUSE, url);
    assert_non_null(strstr(why.message, "nosuchparameter"));
}

static void test_open_with_bad_options(void **state)
{
    struct stile_client *client;
    struct stile_client_options no_size = {.threadless = true};
    (void)state;
    check_status(STILE_MISUSE, stile_client_open(&client, suite.url, &no_size, &why));
    assert_null(client);
    check_status(STILE_MISUSE, stile_client_open(NULL, suite.url, NULL, &why));
}

/* ---- closing ---- */

static void note_end(struct stile_lock *lock, enum stile_status status,
                     const struct stile_error *err, void *data)
{
    (void)lock, (void)status, (void)err;
    sem_post(data);
}

static void test_close_releases_everything(void **state)
{
    struct scene *s = *state;
    struct stile_client *client;
    char name[80];
    check_ok(stile_client_open(&client, suite.url, NULL, &why));
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "%s-%d", s->name, i);
        held_on(client, name, NULL);
    }
    assert_int_equal(count_listed(s->client, s->name), 20);
    stile_client_close(client);
    assert_int_equal(count_listed(s->client, s->name), 0);
    stile_client_close(client); /* twice: nothing happens */
    stile_client_close(NULL);
}

static void test_close_withdraws_what_waits(void **state)
{
    struct scene *s = *state;
    struct stile_client *client;
    sem_t *ended = scene_semaphore(s);
    struct stile_lock *holder = held_on(s->client, s->name, NULL);
    check_ok(stile_client_open(&client, suite.url, NULL, &why));
    struct stile_lock *lock = lock_on(client, s->name, NULL);
    check_ok(stile_lock_acquire_async(lock, -1, note_end, ended));
    await_state(s, s->name, 1, 1);
    stile_client_close(client);
    await_state(s, s->name, 1, 0);
    assert_int_equal(sem_trywait(ended), 0); /* exactly once, also in this end */
    assert_int_equal(sem_trywait(ended), -1);
    check_ok(stile_lock_release(holder, &why));
    check_free(s, s->name);
}

static void test_free_releases_and_withdraws(void **state)
{
    struct scene *s = *state;
    sem_t *ended = scene_semaphore(s);
    struct stile_lock *first = held_on(s->client, s->name, NULL);
    struct stile_lock *second = lock_on(scene_client(s, NULL), s->name, NULL);
    check_ok(stile_lock_acquire_async(second, -1, note_end, ended));
    await_state(s, s->name, 1, 1);
    stile_lock_free(second);
    await_post(ended);
    await_state(s, s->name, 1, 0);
    stile_lock_free(first);
    await_state(s, s->name, 0, 0);
    stile_lock_free(NULL);
}

/* ---- misuse ---- */

static void test_calls_out_of_turn(void **state)
{
    struct scene *s = *state;
    uint64_t token;
    struct stile_lock *lock = lock_on(s->client, s->name, NULL);
    check_status(STILE_MISUSE, stile_lock_release(lock, &why));
    assert_true(*why.message);
    check_status(s->caps->token ? STILE_MISUSE : STILE_UNSUPPORTED, stile_lock_token(lock, &token));
    check_ok(stile_lock_acquire(lock, 0, &why));
    check_status(STILE_MISUSE, stile_lock_acquire(lock, 0, &why));
    assert_true(stile_lock_held(lock));
    check_ok(stile_lock_release(lock, &why));
    check_status(STILE_MISUSE, stile_lock_release(lock, &why));
    stile_lock_free(lock);
    stile_lock_free(lock); /* twice: nothing happens */
    check_status(STILE_MISUSE, stile_lock_acquire(lock, 0, &why));
    check_status(STILE_MISUSE, stile_lock_acquire(NULL, 0, &why));
    check_status(STILE_MISUSE, stile_lock_release(NULL, &why));
    assert_false(stile_lock_held(NULL));
}

static void test_bad_lock_options(void **state)
{
    struct scene *s = *state;
    struct stile_lock *lock;
    const struct stile_lock_options *bad[] = {
        &(struct stile_lock_options){.mode = STILE_EXCLUSIVE}, /* no size */
        STILE_OPTIONS(.mode = (enum stile_mode)7),
        STILE_OPTIONS(.mode = STILE_EXCLUSIVE, .slots = 2),
        STILE_OPTIONS(.mode = STILE_SLOTS),
        STILE_OPTIONS(.mode = STILE_SLOTS, .slots = 1u << 20),
        STILE_OPTIONS(.ttl_ms = -1),
        STILE_OPTIONS(.ttl_ms = 1),
        STILE_OPTIONS(.ttl_ms = INT64_MAX),
        STILE_OPTIONS(.ttl_ms = 1000, .renew_ms = 1000),
        STILE_OPTIONS(.profile = (enum stile_profile)9),
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        check_status(STILE_MISUSE, stile_lock_new(&lock, s->client, s->name, bad[i], &why));
        assert_null(lock);
    }
    check_status(STILE_MISUSE, stile_lock_new(NULL, s->client, s->name, NULL, &why));
    check_status(STILE_MISUSE, stile_lock_new(&lock, NULL, s->name, NULL, &why));
}

/* ---- claims without their process ---- */

static void check_detached_is_refused(struct scene *s, struct stile_lock *lock)
{
    struct stile_lock *other;
    check_status(STILE_UNSUPPORTED, stile_lock_detach(lock, &why));
    assert_true(stile_lock_held(lock));
    assert_null(stile_lock_owner(lock));
    check_status(STILE_UNSUPPORTED,
                 stile_lock_new(&other, s->client, s->name, STILE_OPTIONS(.owner = "x"), &why));
    other = lock_on(s->client, s->name, NULL);
    check_status(STILE_UNSUPPORTED, stile_lock_resume(other, &why));
}

static void test_detached_claims(void **state)
{
    struct scene *s = *state;
    char owner[256];
    struct stile_lock *lock = held_on(s->client, s->name, NULL);
    if (!s->caps->detached) {
        check_detached_is_refused(s, lock);
        return;
    }
    uint64_t token = token_of(lock);
    snprintf(owner, sizeof owner, "%s", stile_lock_owner(lock));
    check_ok(stile_lock_detach(lock, &why));
    assert_false(stile_lock_held(lock));
    check_status(STILE_HELD, stile_lock_acquire(lock, 0, &why));
    struct stile_client *other = scene_client(s, NULL);
    struct stile_lock *resumed = lock_on(other, s->name, STILE_OPTIONS(.owner = owner));
    check_ok(stile_lock_resume(resumed, &why));
    assert_true(token_of(resumed) == token);
    check_ok(stile_lock_release(resumed, &why));
    check_status(STILE_LOST, stile_lock_resume(resumed, &why));
    check_ok(stile_lock_acquire(lock, 0, &why));
}

/* The next process need not know what was requested. */
static void test_terms_are_restored(void **state)
{
    struct scene *s = *state;
    char owner[256];
    if (!s->caps->detached) {
        assert_false(s->caps->restores);
        return;
    }
    bool restores = s->caps->restores, shares = restores && s->caps->modes & 1u << STILE_SHARED;
    struct stile_lock *lock =
        held_on(s->client, s->name,
                STILE_OPTIONS(.mode = shares ? STILE_SHARED : STILE_EXCLUSIVE, .ttl_ms = 120000));
    snprintf(owner, sizeof owner, "%s", stile_lock_owner(lock));
    check_ok(stile_lock_detach(lock, &why));
    struct stile_client *other = scene_client(s, NULL);
    struct stile_lock *resumed = lock_on(other, s->name, STILE_OPTIONS(.owner = owner));
    check_ok(stile_lock_resume(resumed, &why));
    assert_int_equal(stile_lock_ttl_ms(resumed), restores ? 120000 : 10000);
    check_ok(stile_lock_detach(resumed, &why));
    resumed = lock_on(other, s->name, STILE_OPTIONS(.owner = owner, .ttl_ms = 60000));
    check_ok(stile_lock_resume(resumed, &why));
    assert_int_equal(stile_lock_ttl_ms(resumed), 60000);
    check_ok(stile_lock_release(resumed, &why));
    check_free(s, s->name);
}

/* ---- stile_with ---- */

struct with {
    struct scene *scene;
    bool held, take_it_away;
};

static int inside(struct stile_lock *lock, void *data)
{
    struct with *w = data;
    w->held = stile_lock_held(lock);
    if (w->take_it_away) {
        w->held = w->held && stile_break(w->scene->client, w->scene->name, 0, NULL) == STILE_OK;
        w->held = w->held && readable(stile_lock_lost_fd(lock), PATIENCE_MS);
    }
    return 42;
}

static void test_with(void **state)
{
    struct scene *s = *state;
    struct with w = {.scene = s};
    int result = 0;
    check_ok(stile_with(s->client, s->name, NULL, inside, &w, &result, &why));
    assert_true(w.held);
    assert_int_equal(result, 42);
    check_free(s, s->name);
    w.take_it_away = true;
    check_status(STILE_LOST, stile_with(s->client, s->name, STILE_OPTIONS(.ttl_ms = 3000), inside,
                                        &w, NULL, &why));
    assert_true(w.held);
    check_free(s, s->name);
    check_status(STILE_MISUSE, stile_with(s->client, s->name, NULL, NULL, &w, NULL, &why));
    check_status(STILE_MISUSE, stile_with(s->client, "", NULL, inside, &w, NULL, &why));
}

/* clang-format off */
SUITE_PART(clients,
    SCENE_TEST(test_caps_are_complete),
    SCENE_TEST(test_open_of_a_bad_url),
    SCENE_TEST(test_open_with_an_unknown_parameter),
    SCENE_TEST(test_open_with_bad_options),
    SCENE_TEST(test_close_releases_everything),
    SCENE_TEST(test_close_withdraws_what_waits),
    SCENE_TEST(test_free_releases_and_withdraws),
    SCENE_TEST(test_calls_out_of_turn),
    SCENE_TEST(test_bad_lock_options),
    SCENE_TEST(test_detached_claims),
    SCENE_TEST(test_terms_are_restored),
    SCENE_TEST(test_with))
/* clang-format on */
