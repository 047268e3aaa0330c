/* list, show, watch and break: copies, handed out without the mutex. */
#include <stdlib.h>

#include "support/unit.h"

struct seen {
    struct world *world;
    unsigned times, stop_after;
    char names[16][16];
    uint64_t tokens[16];
    size_t holders[16], waiters[16];
    uint64_t at_ns[16];
    struct stile_lock *to_release;
    struct stile_info copy;
    enum stile_status inner;
};

static int see(const struct stile_info *info, void *data)
{
    struct seen *seen = data;
    unsigned i = seen->times++;

    if (i < 16) {
        (void)snprintf(seen->names[i], sizeof(seen->names[i]), "%s", info->name);
        seen->tokens[i] = info->token;
        seen->holders[i] = info->holders;
        seen->waiters[i] = info->waiters;
        seen->at_ns[i] = world_now(seen->world);
    }
    return seen->stop_after && seen->times >= seen->stop_after;
}

static void hold(struct world *w, const char *name)
{
    assert_status(stile_lock_acquire(make_lock(w->clients[0], name, NULL), -1, NULL), OK);
}

static void list_is_sorted_and_filtered(void **state)
{
    struct world *w = *state;
    struct seen seen = {.world = w};

    hold(w, "b1");
    hold(w, "a1");
    hold(w, "b2");
    hold(w, "c");
    assert_status(stile_list(w->clients[0], NULL, see, &seen, NULL), OK);
    assert_int_equal(seen.times, 4);
    assert_string_equal(seen.names[0], "a1");
    assert_string_equal(seen.names[3], "c");
    seen = (struct seen){.world = w};
    assert_status(stile_list(w->clients[0], "b", see, &seen, NULL), OK);
    assert_int_equal(seen.times, 2);
    assert_string_equal(seen.names[0], "b1");
    assert_string_equal(seen.names[1], "b2");
    seen = (struct seen){.world = w, .stop_after = 1};
    assert_status(stile_list(w->clients[0], "", see, &seen, NULL), OK);
    assert_int_equal(seen.times, 1);
}

static void show_tells_holder_and_queue(void **state)
{
    struct world *w = *state;
    struct heard heard = {0};
    struct seen seen = {.world = w};

    hold(w, "a");
    assert_status(
        stile_lock_acquire_async(make_lock(w->clients[0], "a", NULL), -1, heard_done, &heard), OK);
    world_pass(w, 0);
    assert_status(stile_show(w->clients[0], "a", see, &seen, NULL), OK);
    assert_int_equal(seen.times, 1);
    assert_int_equal(seen.holders[0], 1);
    assert_int_equal(seen.waiters[0], 1);
    assert_int_equal(seen.tokens[0], 1);
    seen = (struct seen){.world = w};
    assert_status(stile_show(w->clients[0], "nobody's", see, &seen, NULL), OK);
    assert_int_equal(seen.holders[0], 0);
    assert_status(stile_show(w->clients[0], "a", NULL, NULL, NULL), OK);
    world_close_client(w, 0);
}

static int read_all(const struct stile_info *info, void *data)
{
    size_t *bytes = data;

    for (size_t i = 0; i < info->holders + info->waiters; i++)
        *bytes += strlen(info->claims[i].host) + strlen(info->claims[i].command) +
                  strlen(info->claims[i].owner);
    return 0;
}

/* What the engine gave is gone by the time the user sees it: engines with nothing to say, too. */
static void infos_are_copied(void **state)
{
    struct world *w = *state;
    size_t bytes = 0;
    char name[16];

    for (int i = 0; i < 50; i++) {
        (void)snprintf(name, sizeof(name), "n%d", i);
        hold(w, name);
    }
    assert_status(stile_list(w->clients[0], NULL, read_all, &bytes, NULL), OK);
    assert_true(bytes > 50 * strlen("script"));
}

static int call_back_into(const struct stile_info *info, void *data)
{
    struct seen *seen = data;

    seen->times++;
    stile_lock_free(seen->to_release);
    seen->to_release = NULL;
    seen->inner = stile_show(seen->world->clients[0], info->name, see, seen, NULL);
    return 1;
}

/* No mutex is held, the caller does not lead: even blocking calls work here. */
static void a_callback_may_call_everything(void **state)
{
    struct world *w = *state;
    struct seen seen = {.world = w, .to_release = make_lock(w->clients[0], "a", NULL)};

    assert_status(stile_lock_acquire(seen.to_release, -1, NULL), OK);
    assert_status(stile_list(w->clients[0], NULL, call_back_into, &seen, NULL), OK);
    assert_status(seen.inner, OK);
    assert_int_equal(seen.times, 2);
    assert_string_equal(seen.names[1], "a");
}

static void failures_say_why(void **state)
{
    struct world *w = *state;
    struct seen seen = {.world = w};
    struct stile_error err = {0};

    SCRIPT_ALWAYS(w->script, SCRIPT_QUERY, .act = SCRIPT_FAIL, .status = STILE_UNREACHABLE);
    assert_status(stile_list(w->clients[0], NULL, see, &seen, &err), UNREACHABLE);
    assert_string_equal(err.message, "listing locks: the script says so");
    assert_status(stile_show(w->clients[0], "a", see, &seen, &err), UNREACHABLE);
    assert_string_equal(err.message, "showing 'a': the script says so");
    assert_status(stile_watch(w->clients[0], "a", -1, see, &seen, &err), UNREACHABLE);
    assert_string_equal(err.message, "watching 'a': the script says so");
    assert_status(stile_break(w->clients[0], "a", 0, &err), UNREACHABLE);
    assert_string_equal(err.message, "breaking 'a': the script says so");
    assert_int_equal(seen.times, 0);
}

static void bad_names(void **state)
{
    struct world *w = *state;

    assert_status(stile_show(w->clients[0], NULL, see, NULL, NULL), MISUSE);
    assert_status(stile_show(w->clients[0], "", see, NULL, NULL), MISUSE);
    assert_status(stile_watch(w->clients[0], "a\n", -1, see, NULL, NULL), MISUSE);
    assert_status(stile_watch(w->clients[0], "a", -1, NULL, NULL, NULL), MISUSE);
    assert_status(stile_break(w->clients[0], NULL, 0, NULL), MISUSE);
    assert_status(stile_list(w->clients[0], "a\t", see, NULL, NULL), MISUSE);
    assert_status(stile_list(NULL, NULL, see, NULL, NULL), MISUSE);
    assert_trace(w->script, "");
}

/* ---- watch ---- */

static void watch_times_out_when_nothing_changes(void **state)
{
    struct world *w = *state;
    struct seen seen = {.world = w};
    uint64_t start = world_now(w);

    assert_status(stile_watch(w->clients[0], "a", 1000, see, &seen, NULL), TIMEOUT);
    assert_int_equal(seen.times, 1); /* how it is at the start */
    assert_int_equal(world_now(w) - start, 1000 * MS);
}

static void watch_sees_every_change(void **state)
{
    struct world *w = *state;
    struct heard heard[2] = {0};
    struct seen seen = {.world = w};
    uint64_t start = world_now(w);

    script_occupy(w->script, "a", 5 * SEC);
    assert_status(
        stile_lock_acquire_async(make_lock(w->clients[0], "a", NULL), -1, heard_done, &heard[0]),
        OK);
    assert_status(
        stile_lock_acquire_async(make_lock(w->clients[0], "a", NULL), 2000, heard_done, &heard[1]),
        OK);
    world_pass(w, 0);
    assert_status(stile_watch(w->clients[0], "a", 4000, see, &seen, NULL), TIMEOUT);
    /* at the start; the second gives up; the first is granted when the occupier expires */
    assert_true(seen.times >= 3);
    assert_int_equal(seen.holders[0] + seen.waiters[0], 3);
    assert_int_equal(seen.at_ns[1] - start, 2000 * MS);
    assert_int_equal(seen.waiters[1], 1);
    assert_int_equal(seen.tokens[seen.times - 1], 2);
    assert_int_equal(seen.waiters[seen.times - 1], 0);
    assert_int_equal(world_now(w) - start, 9000 * MS); /* counted from the last change */
    world_close_client(w, 0);
}

static void watch_ends_when_the_callback_says_so(void **state)
{
    struct world *w = *state;
    struct seen seen = {.world = w, .stop_after = 2};

    script_occupy(w->script, "a", 3 * SEC);
    struct heard heard = {0};
    assert_status(
        stile_lock_acquire_async(make_lock(w->clients[0], "a", NULL), -1, heard_done, &heard), OK);
    world_pass(w, 0);
    assert_status(stile_watch(w->clients[0], "a", -1, see, &seen, NULL), OK);
    assert_int_equal(seen.times, 2);
    world_close_client(w, 0);
}

static int release_it(const struct stile_info *info, void *data)
{
    struct seen *seen = data;

    see(info, data);
    if (seen->to_release)
        seen->inner = stile_lock_release(seen->to_release, NULL);
    seen->to_release = NULL;
    return info->holders == 0;
}

static void a_watchers_callback_may_change_what_it_watches(void **state)
{
    struct world *w = *state;
    struct seen seen = {.world = w, .to_release = make_lock(w->clients[0], "a", NULL)};

    assert_status(stile_lock_acquire(seen.to_release, -1, NULL), OK);
    assert_status(stile_watch(w->clients[0], "a", 1000, release_it, &seen, NULL), OK);
    assert_status(seen.inner, OK);
    assert_int_equal(seen.times, 2);
}

static void watch_for_longer_than_time(void **state)
{
    struct world *w = *state;
    struct seen seen = {.world = w, .stop_after = 2};
    struct heard heard = {0};

    script_occupy(w->script, "a", 3000 * SEC);
    assert_status(
        stile_lock_acquire_async(make_lock(w->clients[0], "a", NULL), -1, heard_done, &heard), OK);
    world_pass(w, 0);
    assert_status(stile_watch(w->clients[0], "a", INT64_MAX, see, &seen, NULL), OK);
    assert_int_equal(seen.times, 2);
    world_close_client(w, 0);
}

static struct query *watched;

static void watch_and_stop(struct engine *engine, struct query *query)
{
    (void)engine;
    engine->events->done(query, NULL);
}

static void no_unwatch(struct engine *engine, struct query *query)
{
    (void)engine;
    watched = query;
}

/* An engine that ends a watch without an error must not make us spin. */
static void a_watch_that_the_engine_ends(void **state)
{
    struct world *w = *state;
    const struct engine_push push = {.watch = watch_and_stop, .unwatch = no_unwatch};
    struct engine_class class = *w->clients[0]->engine->class;
    struct seen seen = {.world = w};

    class.push = &push;
    w->clients[0]->engine->class = &class;
    assert_status(stile_watch(w->clients[0], "a", -1, see, &seen, NULL), OK);
    assert_null(watched);
    w->clients[0]->engine->class = script_variant(STILE_LEASE_CLAIM, SCRIPT_APART);
}

static void an_engine_that_reports_no_changes(void **state)
{
    struct world *w = *state;
    const struct engine_class *whole = w->clients[0]->engine->class;
    struct engine_class class = *whole;
    struct seen seen = {.world = w};
    struct stile_error err = {0};

    class.push = NULL;
    w->clients[0]->engine->class = &class;
    assert_status(stile_watch(w->clients[0], "a", -1, see, &seen, &err), UNSUPPORTED);
    assert_non_null(strstr(err.message, "watching 'a': test does not report changes"));
    w->clients[0]->engine->class = whole;
}

/* ---- break ---- */

static void break_tells_the_holder(void **state)
{
    struct world *w = *state;
    struct heard lost = {0};
    struct stile_lock *lock =
        make_lock(w->clients[0], "a", STILE_OPTIONS(.on_lost = heard_lost, .data = &lost));
    uint64_t token;

    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    assert_status(stile_break(w->clients[0], "a", 7, NULL), CONFLICT);
    assert_true(stile_lock_held(lock));
    assert_status(stile_break(w->clients[0], "a", 1, NULL), OK);
    world_pass(w, 0);
    assert_int_equal(lost.times, 1);
    assert_false(stile_lock_held(lock));
    assert_status(stile_lock_release(lock, NULL), LOST);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    assert_status(stile_lock_token(lock, &token), OK);
    assert_int_equal(token, 2);
}

static void break_of_what_nobody_holds(void **state)
{
    struct world *w = *state;

    assert_status(stile_break(w->clients[0], "a", 0, NULL), OK);
    assert_status(stile_break(w->clients[0], "a", 3, NULL), CONFLICT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(open_apart, list_is_sorted_and_filtered),
        TEST_IN(open_apart, show_tells_holder_and_queue),
        TEST_IN(open_apart, infos_are_copied),
        TEST_IN(open_apart, a_callback_may_call_everything),
        TEST_IN(open_apart, failures_say_why),
        TEST_IN(open_apart, bad_names),
        TEST_IN(open_apart, watch_times_out_when_nothing_changes),
        TEST_IN(open_apart, watch_sees_every_change),
        TEST_IN(open_apart, watch_ends_when_the_callback_says_so),
        TEST_IN(open_apart, a_watchers_callback_may_change_what_it_watches),
        TEST_IN(open_apart, watch_for_longer_than_time),
        TEST_IN(open_apart, a_watch_that_the_engine_ends),
        TEST_IN(open_apart, an_engine_that_reports_no_changes),
        TEST_IN(open_apart, break_tells_the_holder),
        TEST_IN(open_apart, break_of_what_nobody_holds),
    };
    return cmocka_run_group_tests_name("core_inspect", tests, NULL, NULL);
}
