/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What the user's log gets to see, and on which level. */
#include "support/unit.h"

struct log {
    enum stile_log_level levels[32];
    char lines[32][200];
    size_t n;
};

static struct log seen;

static void log_line(enum stile_log_level level, const char *message, void *data)
{
    struct log *log = data;

    assert_true(log->n < 32);
    log->levels[log->n] = level;
    (void)snprintf(log->lines[log->n++], sizeof log->lines[0], "%s", message);
}

static void log_up_to(struct stile_client *client, enum stile_log_level level)
{
    seen.n = 0;
    client->log = log_line;
    client->log_data = &seen;
    client->log_level = level;
}

static void assert_logged(size_t i, enum stile_log_level level, const char *start)
{
    assert_true(i < seen.n);
    assert_memory_equal(seen.lines[i], start, strlen(start));
    assert_int_equal(seen.levels[i], level);
}

static void debug_shows_each_lock(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    log_up_to(w->clients[0], STILE_LOG_DEBUG);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    assert_status(stile_lock_release(lock, NULL), OK);
    assert_int_equal(seen.n, 2);
    assert_logged(0, STILE_LOG_DEBUG, "'a': granted, token ");
    assert_logged(1, STILE_LOG_DEBUG, "'a': released");
}

static void nothing_above_the_level(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    log_up_to(w->clients[0], STILE_LOG_INFO);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    assert_status(stile_lock_release(lock, NULL), OK);
    assert_int_equal(seen.n, 0);
}

static void a_loss_is_an_error(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", STILE_LOCK_OPTIONS(.ttl_ms = 1000));

    log_up_to(w->clients[0], STILE_LOG_ERROR);
    SCRIPT_ALWAYS(w->script, SCRIPT_RENEW, .act = SCRIPT_NEVER);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    world_pass(w, 2 * SEC);
    assert_int_equal(seen.n, 1);
    assert_logged(0, STILE_LOG_ERROR, "'a': lost: the lease reached its deadline");
}

/* An engine that is down for long fills no log: the first failure is a warning. */
static void one_warning_for_what_is_repeated(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    log_up_to(w->clients[0], STILE_LOG_WARNING);
    SCRIPT_ALWAYS(w->script, SCRIPT_CLAIM, .act = SCRIPT_FAIL, .status = STILE_UNREACHABLE);
    assert_status(stile_lock_acquire(lock, 60000, NULL), UNREACHABLE);
    assert_int_equal(seen.n, 1);
    assert_logged(0, STILE_LOG_WARNING, "'a': not granted: the script says so");
}

static void closing_is_logged(void **state)
{
    struct world *w = *state;

    log_up_to(w->clients[0], STILE_LOG_INFO);
    world_close_client(w, 0);
    assert_int_equal(seen.n, 1);
    assert_logged(0, STILE_LOG_INFO, "closed ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(open_one, debug_shows_each_lock),
        TEST_IN(open_one, nothing_above_the_level),
        TEST_IN(open_one, a_loss_is_an_error),
        TEST_IN(open_one, one_warning_for_what_is_repeated),
        TEST_IN(open_one, closing_is_logged),
    };
    return cmocka_run_group_tests_name("core_log", tests, NULL, NULL);
}
