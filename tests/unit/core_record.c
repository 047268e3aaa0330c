/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a name's last holder: what core writes, in which order, and what it reads. */
#include "core/record.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/self.h"
#include "core/lock.h"
#include "support/unit.h"

/* ---- seeing it ---- */

struct last {
    unsigned times;
    bool any;
    struct stile_last_holder is;
    char host[256], command[256];
};

static int see(const struct stile_info *info, void *data)
{
    struct last *last = data;

    last->times++;
    last->any = info->last != NULL;
    if (!info->last)
        return 0;
    last->is = *info->last;
    (void)snprintf(last->host, sizeof(last->host), "%s", info->last->host);
    (void)snprintf(last->command, sizeof(last->command), "%s", info->last->command);
    return 0;
}

static struct last last_of(struct world *w, const char *name)
{
    struct last last = {0};

    assert_status(stile_show(w->clients[0], name, see, &last, NULL), OK);
    assert_int_equal(last.times, 1);
    return last;
}

static struct stile_lock *held(struct world *w, const char *name)
{
    struct stile_lock *lock = make_lock(w->clients[0], name, NULL);

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    return lock;
}

static char *stored(struct world *w, const char *name)
{
    return model_place(&w->script->model, name)->record;
}

static int64_t wall_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- start and end ---- */

static void start_and_end(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = held(w, "a");
    char host[SELF_HOST_MAX + 1];
    int64_t from = wall_ms();

    self_host(host);
    assert_false(last_of(w, "a").any);
    assert_status(stile_lock_record_start(lock, NULL), OK);
    world_pass(w, 0);
    struct last last = last_of(w, "a");
    assert_true(last.any);
    assert_string_equal(last.host, host);
    assert_int_equal(last.is.pid, getpid());
    assert_int_equal(last.is.token, 1);
    assert_in_range(last.is.from_ms, from, wall_ms());
    assert_int_equal(last.is.until_ms, 0);
    assert_int_equal(last.is.exit_code, -1);
    assert_status(stile_lock_record_end(lock, 137, NULL), OK);
    assert_status(stile_lock_release(lock, NULL), OK);
    world_pass(w, 0);
    last = last_of(w, "a");
    assert_int_equal(last.is.exit_code, 137);
    assert_in_range(last.is.until_ms, last.is.from_ms, wall_ms());
    assert_false(last_of(w, "b").any);
}

/* The caller goes on at once: no answer is waited for. */
static void nothing_waits_for_the_engine(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = held(w, "a");
    uint64_t before = world_now(w);

    SCRIPT_ALWAYS(w->script, SCRIPT_RECORD, .back_ns = 200 * MS);
    assert_status(stile_lock_record_start(lock, NULL), OK);
    assert_status(stile_lock_record_end(lock, 0, NULL), OK);
    assert_int_equal(world_now(w), before);
}

/* The engine may carry out two requests in any order; so it has one at a time. */
static void an_end_does_not_overtake_its_start(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = held(w, "a");

    SCRIPT_ALWAYS(w->script, SCRIPT_RECORD, .back_ns = 100 * MS);
    assert_status(stile_lock_record_start(lock, NULL), OK);
    assert_status(stile_lock_record_end(lock, 3, NULL), OK);
    assert_int_equal(script_count(w->script, SCRIPT_RECORD), 1);
    stile_lock_free(lock); /* what was asked for is written all the same */
    world_pass(w, 100 * MS);
    assert_int_equal(script_count(w->script, SCRIPT_RECORD), 2);
    world_pass(w, 100 * MS);
    assert_int_equal(last_of(w, "a").is.exit_code, 3);
    assert_null(w->clients[0]->records);
}

/* The next grant's start takes the place of an end that was not sent yet. */
static void the_latest_of_several(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = held(w, "a");

    SCRIPT_ALWAYS(w->script, SCRIPT_RECORD, .back_ns = 100 * MS);
    SCRIPT_ALWAYS(w->script, SCRIPT_CLAIM, .inside = true);
    SCRIPT_ALWAYS(w->script, SCRIPT_RELEASE, .inside = true);
    assert_status(stile_lock_record_start(lock, NULL), OK);
    assert_status(stile_lock_record_end(lock, 3, NULL), OK);
    assert_status(stile_lock_release(lock, NULL), OK);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    assert_status(stile_lock_record_start(lock, NULL), OK);
    world_pass(w, 200 * MS);
    assert_int_equal(script_count(w->script, SCRIPT_RECORD), 2);
    struct last last = last_of(w, "a");
    assert_int_equal(last.is.token, 2);
    assert_int_equal(last.is.exit_code, -1);
}

/* A record is no reason to disturb its holder: the log has it. */
static char logged[200];

static void log_line(enum stile_log_level level, const char *message, void *data)
{
    (void)data;
    if (level == STILE_LOG_INFO)
        (void)snprintf(logged, sizeof(logged), "%s", message);
}

static void a_failure_is_logged(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = held(w, "a");

    w->clients[0]->log = log_line;
    w->clients[0]->log_level = STILE_LOG_INFO;
    SCRIPT_NEXT(w->script, SCRIPT_RECORD, .act = SCRIPT_FAIL, .status = STILE_REFUSED);
    assert_status(stile_lock_record_start(lock, NULL), OK);
    world_pass(w, 0);
    assert_string_equal(logged, "'a': not recorded for `stile show`: the script says so");
    assert_true(stile_lock_held(lock));
    assert_status(stile_lock_record_end(lock, 0, NULL), OK); /* may go better */
    world_pass(w, 0);
    assert_int_equal(last_of(w, "a").is.exit_code, 0);
}

/* ---- closing ---- */

static void close_waits_for_the_answers(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = held(w, "a");

    SCRIPT_ALWAYS(w->script, SCRIPT_RECORD, .back_ns = 300 * MS);
    assert_status(stile_lock_record_start(lock, NULL), OK);
    assert_status(stile_lock_record_end(lock, 0, NULL), OK);
    world_close_client(w, 0);
    assert_non_null(strstr(stored(w, "a"), " 0 "));
    assert_null(strstr(stored(w, "a"), " -1 "));
}

static void close_gives_up_on_a_silent_engine(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = held(w, "a");
    uint64_t before = world_now(w);

    SCRIPT_ALWAYS(w->script, SCRIPT_RECORD, .act = SCRIPT_NEVER);
    assert_status(stile_lock_record_start(lock, NULL), OK);
    assert_status(stile_lock_record_end(lock, 0, NULL), OK);
    world_close_client(w, 0);
    assert_in_range(w->script->closed_ns - before, 1 * SEC, 1 * SEC + 100 * MS);
    assert_string_equal(stored(w, "a"), "");
}

/* The request is under way when the client goes; its answer must meet no freed memory. */
static void close_cancels_what_is_under_way(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = held(w, "a");

    SCRIPT_ALWAYS(w->script, SCRIPT_RECORD, .back_ns = 5 * SEC);
    assert_status(stile_lock_record_start(lock, NULL), OK);
    world_close_client(w, 0);
    assert_string_equal(stored(w, "a"), "");
}

/* ---- misuse ---- */

static void what_is_not_held_is_not_recorded(void **state)
{
    struct world *w = *state;
    struct stile_error err = {0};
    struct stile_lock *lock = make_lock(w->clients[0], "a", NULL);

    assert_status(stile_lock_record_start(NULL, NULL), MISUSE);
    assert_status(stile_lock_record_end(NULL, 0, NULL), MISUSE);
    assert_status(stile_lock_record_start(lock, &err), MISUSE);
    assert_string_equal(err.message, "recording 'a': it isn't held");
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    assert_status(stile_lock_record_end(lock, 0, &err), MISUSE);
    assert_string_equal(err.message, "recording 'a': its start was not recorded");
    assert_status(stile_lock_record_start(lock, NULL), OK);
    assert_status(stile_lock_record_end(lock, -2, &err), MISUSE);
    assert_string_equal(err.message, "recording 'a': there is no exit code -2");
    assert_status(stile_lock_record_end(lock, 256, NULL), MISUSE);
    assert_status(stile_lock_record_end(lock, 255, NULL), OK);
    assert_status(stile_lock_record_end(lock, 255, NULL), MISUSE);
    assert_status(stile_lock_release(lock, NULL), OK);
    assert_status(stile_lock_record_end(lock, 0, NULL), MISUSE);
}

/* The start of an earlier grant is not this one's. */
static void a_start_belongs_to_its_grant(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = held(w, "a");

    assert_status(stile_lock_record_start(lock, NULL), OK);
    assert_status(stile_lock_release(lock, NULL), OK);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    assert_status(stile_lock_record_end(lock, 0, NULL), MISUSE);
}

static void an_engine_without_history(void **state)
{
    struct world *w = *state;
    struct engine_class class = *w->clients[0]->engine->class;
    struct stile_lock *lock = held(w, "a");
    struct stile_error err = {0};

    assert_true(stile_client_caps(w->clients[0])->history);
    class.history = NULL;
    w->clients[0]->engine->class = &class;
    w->clients[0]->engine->caps.history = false;
    assert_status(stile_lock_record_start(lock, &err), UNSUPPORTED);
    assert_string_equal(err.message, "recording 'a': test keeps no record of holders");
    assert_status(stile_lock_record_end(lock, 0, NULL), UNSUPPORTED);
    world_close_client(w, 0);
}

/* ---- loss ---- */

/* Its end is still of interest, and its successor's record stays. */
static void a_lost_lock_is_recorded(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = held(w, "a");

    assert_status(stile_lock_record_start(lock, NULL), OK);
    world_pass(w, 0);
    assert_status(stile_break(w->clients[0], "a", 0, NULL), OK);
    world_pass(w, 0);
    assert_false(stile_lock_held(lock));
    assert_status(stile_lock_record_end(lock, 76, NULL), OK);
    world_pass(w, 0);
    assert_int_equal(last_of(w, "a").is.exit_code, 76);
    assert_status(stile_lock_release(lock, NULL), LOST);
}

static void the_reason_of_a_loss(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = held(w, "a");
    struct stile_error err = {0};

    assert_status(stile_lock_lost_reason(NULL, &err), MISUSE);
    assert_status(stile_lock_lost_reason(lock, &err), OK);
    script_tell_lost(w->script, "a");
    world_pass(w, 0);
    assert_status(stile_lock_lost_reason(lock, NULL), LOST);
    assert_status(stile_lock_lost_reason(lock, &err), LOST);
    assert_int_equal(err.status, STILE_LOST);
    assert_true(strlen(err.message) > 0);
    assert_status(stile_lock_release(lock, NULL), LOST);
    assert_status(stile_lock_lost_reason(lock, &err), OK);
}

/* The deadline has passed, and no thread has run since: not held means lost. */
static void the_reason_of_an_unseen_loss(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = held(w, "a");
    struct stile_error err = {0};

    world_jump(w, 60 * SEC);
    assert_false(stile_lock_held(lock));
    assert_status(stile_lock_lost_reason(lock, &err), LOST);
    assert_non_null(strstr(err.message, "without a renewal"));
}

/* ---- watching ---- */

static void watch_ended(struct stile_client *client, enum stile_status status,
                        const struct stile_error *err, void *data)
{
    (void)client, (void)err, (void)data;
    assert_status(status, CANCELLED);
}

/* What was recorded is no change of a name. */
static void records_are_not_watched(void **state)
{
    struct world *w = *state;
    struct last last = {0};
    struct stile_lock *lock = held(w, "a");
    uint64_t number;

    assert_status(stile_watch_async(&number, w->clients[0], "a", -1, see, watch_ended, &last, NULL),
                  OK);
    world_pass(w, 1 * SEC);
    assert_int_equal(last.times, 1);
    assert_status(stile_lock_record_start(lock, NULL), OK);
    assert_status(stile_lock_record_end(lock, 0, NULL), OK);
    world_pass(w, 10 * SEC);
    assert_int_equal(last.times, 1);
    assert_status(stile_lock_release(lock, NULL), OK);
    world_pass(w, 1 * SEC);
    assert_int_equal(last.times, 2);
    assert_int_equal(last.is.exit_code, 0);
    assert_status(stile_watch_cancel(w->clients[0], number), OK);
    world_pass(w, 0);
}

/* ---- reading ---- */

static bool reads(const char *text, struct stile_last_holder *last)
{
    static char copy[RECORD_MAX + 1];

    (void)snprintf(copy, sizeof(copy), "%s", text);
    return record_read(last, copy);
}

static void what_is_a_record(void **state)
{
    struct stile_last_holder last;

    (void)state;
    assert_true(reads("1 18446744073709551615 9223372036854775807 0 255 4711 web3 a b  c", &last));
    assert_true(last.token == UINT64_MAX);
    assert_true(last.from_ms == INT64_MAX);
    assert_int_equal(last.until_ms, 0);
    assert_int_equal(last.exit_code, 255);
    assert_int_equal(last.pid, 4711);
    assert_string_equal(last.host, "web3");
    assert_string_equal(last.command, "a b  c");
    assert_true(reads("1 0 0 0 -1 0  ", &last));
    assert_int_equal(last.exit_code, -1);
    assert_string_equal(last.host, "");
    assert_string_equal(last.command, "");
}

static void what_is_no_record(void **state)
{
    static const char *const texts[] = {
        "",
        "1",
        "1 ",
        "2 1 1 1 0 1 h c",
        "11 1 1 1 0 1 h c",
        " 1 1 1 1 0 1 h c",
        "1 1 1 1 0 1 h",    /* no command */
        "1 1 1 1 0 1",      /* no host */
        "1 1 1 1 0 h c",    /* no pid */
        "1  1 1 1 0 1 h c", /* two spaces */
        "1 -1 1 1 0 1 h c", /* negative */
        "1 1 -1 1 0 1 h c",
        "1 1 1 1 0 -1 h c",
        "1 +1 1 1 0 1 h c",
        "1 0x1 1 1 0 1 h c",
        "1 1 1 1 -2 1 h c",
        "1 1 1 1 256 1 h c",
        "1 18446744073709551616 1 1 0 1 h c", /* one too many */
        "1 99999999999999999999999 1 1 0 1 h c",
        "1 1 9223372036854775808 1 0 1 h c",
        "1 1 1 1 0 1 h c\n",
        "1 1 1 1 0 1 h \033[2J",
        "1 1 1 1 0 1 h\tx c",
        "1 1 1 1 0 1 h \177",
    };
    struct stile_last_holder last;

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        if (reads(texts[i], &last))
            fail_msg("\"%s\" is taken for a record", texts[i]);
    }
}

/* Whatever the server has stored, show goes on without it. */
static void hostile_records(void **state)
{
    struct world *w = *state;
    char *record = stored(w, "a");

    memset(record, '1', 1023);
    record[1023] = '\0';
    assert_false(last_of(w, "a").any);
    strcpy(record, "1 1 1 1 0 1 h c");
    assert_true(last_of(w, "a").any);
    strcpy(record, "1 1 1 1 0 1 h \r\033]0;x\a");
    assert_false(last_of(w, "a").any);
}

static void show_too_much(struct engine *engine, struct query *query)
{
    static char long_text[RECORD_MAX + 2] = "1 1 1 1 0 1 h ";
    static const char short_text[] = "1 1 1 1 0 1 h c\0 and more";
    struct stile_info info = {.name = query->name};

    memset(long_text + strlen(long_text), 'c', sizeof(long_text) - strlen(long_text) - 1);
    engine->events->record(query, short_text, strlen(short_text));
    engine->events->record(query, long_text, sizeof(long_text) - 1);
    engine->events->info(query, &info);
    engine->events->record(query, short_text, sizeof(short_text) - 1);
    engine->events->info(query, &info);
    engine->events->done(query, NULL);
}

static int has_none(const struct stile_info *info, void *data)
{
    assert_null(info->last);
    ++*(unsigned *)data;
    return 0;
}

static void records_are_bounded(void **state)
{
    struct world *w = *state;
    struct engine_class class = *w->clients[0]->engine->class;
    unsigned times = 0;

    class.show = show_too_much;
    w->clients[0]->engine->class = &class;
    assert_status(stile_show(w->clients[0], "a", has_none, &times, NULL), OK);
    assert_int_equal(times, 2);
    world_close_client(w, 0);
}

/* Labels of any bytes and of any length come back as they were, control characters excepted. */
static void odd_labels(void **state)
{
    struct world *w = *state;
    struct stile_lock *lock = held(w, "a");
    struct stile_client *client = w->clients[0];
    char label[1000];

    memset(label, 0xff, sizeof(label) - 1);
    label[sizeof(label) - 1] = '\0';
    self_command(client->command, sizeof(client->command), label);
    assert_status(stile_lock_record_start(lock, NULL), OK);
    world_pass(w, 0);
    assert_memory_equal(last_of(w, "a").command, label, 255);
    self_command(client->command, sizeof(client->command), " two  words\n\033 ");
    assert_status(stile_lock_record_start(lock, NULL), OK);
    world_pass(w, 0);
    assert_string_equal(last_of(w, "a").command, " two  words?? ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(open_one, start_and_end),
        TEST_IN(open_one, nothing_waits_for_the_engine),
        TEST_IN(open_one, an_end_does_not_overtake_its_start),
        TEST_IN(open_one, the_latest_of_several),
        TEST_IN(open_one, a_failure_is_logged),
        TEST_IN(open_one, close_waits_for_the_answers),
        TEST_IN(open_one, close_gives_up_on_a_silent_engine),
        TEST_IN(open_one, close_cancels_what_is_under_way),
        TEST_IN(open_one, what_is_not_held_is_not_recorded),
        TEST_IN(open_one, a_start_belongs_to_its_grant),
        TEST_IN(open_one, an_engine_without_history),
        TEST_IN(open_one, a_lost_lock_is_recorded),
        TEST_IN(open_one, the_reason_of_a_loss),
        TEST_IN(open_one, the_reason_of_an_unseen_loss),
        TEST_IN(open_one, records_are_not_watched),
        cmocka_unit_test(what_is_a_record),
        cmocka_unit_test(what_is_no_record),
        TEST_IN(open_one, hostile_records),
        TEST_IN(open_one, records_are_bounded),
        TEST_IN(open_one, odd_labels),
    };
    return cmocka_run_group_tests_name("core_record", tests, NULL, NULL);
}
