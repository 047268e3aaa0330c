/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
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

/* ---- what the engine reports ---- */

/* A subscription that the test has in hand. */
static struct {
    struct query *query;
    unsigned unwatched;
    struct stile_error why; /* what it ends with at once; OK: it goes on */
    bool ends;
} sub;

static void watch_by_hand(struct engine *engine, struct query *query)
{
    sub.query = query;
    if (sub.ends)
        engine->events->done(query, sub.why.status ? &sub.why : NULL);
}

static void unwatch_by_hand(struct engine *engine, struct query *query)
{
    (void)engine;
    assert_ptr_equal(query, sub.query);
    sub.unwatched++;
}

static const struct engine_push by_hand = {.watch = watch_by_hand, .unwatch = unwatch_by_hand};
static struct engine_class class_by_hand;

static void use_push(struct world *w, const struct engine_push *push)
{
    class_by_hand = *script_variant(STILE_LEASE_CLAIM, SCRIPT_APART);
    class_by_hand.push = push;
    w->clients[0]->engine->class = &class_by_hand;
    memset(&sub, 0, sizeof sub);
}

/* An engine that ends a watch without an error must not make us spin. */
static void a_watch_that_the_engine_ends(void **state)
{
    struct world *w = *state;
    struct seen seen = {.world = w};
    struct stile_error err = {0};

    use_push(w, &by_hand);
    sub.ends = true;
    assert_status(stile_watch(w->clients[0], "a", -1, see, &seen, NULL), OK);
    error_set(&sub.why, STILE_REFUSED, 0, "not for you");
    assert_status(stile_watch(w->clients[0], "a", -1, see, &seen, &err), REFUSED);
    assert_string_equal(err.message, "watching 'a': not for you");
    assert_int_equal(sub.unwatched, 0);
    assert_trace(w->script, ""); /* it was not shown in vain */
}

static void an_engine_that_reports_no_changes_is_polled(void **state)
{
    struct world *w = *state;
    struct seen seen = {.world = w, .stop_after = 2};
    uint64_t start = world_now(w);

    use_push(w, NULL);
    script_occupy(w->script, "a", 60 * SEC);
    assert_status(stile_watch(w->clients[0], "a", -1, see, &seen, NULL), OK);
    assert_in_range(seen.at_ns[1] - start, 60 * SEC, 60 * SEC + 200 * MS);
    assert_in_range(script_count(w->script, SCRIPT_QUERY), 60 * 5, 60 * 6);
}

/* Where leases end without a report. */
static void what_ends_by_itself_is_seen(void **state)
{
    struct world *w = *state;
    struct seen seen = {.world = w, .stop_after = 2};
    uint64_t start = world_now(w);

    use_push(w, &by_hand);
    script_occupy(w->script, "a", 3 * SEC);
    assert_status(stile_watch(w->clients[0], "a", -1, see, &seen, NULL), OK);
    assert_int_equal(seen.holders[1], 0);
    assert_in_range(seen.at_ns[1] - start, 3 * SEC, 3 * SEC + 10 * MS);
    assert_trace(w->script, "show a, show a");
    assert_int_equal(sub.unwatched, 1);
}

static int change_before_it_is_in_place(const struct stile_info *info, void *data)
{
    struct seen *seen = data;

    if (seen->times == 0) {
        script_occupy(seen->world->script, "a", NEVER);
        sub.query->engine->events->changed(sub.query);
    }
    return see(info, data);
}

/* What happens between the first show and the subscription is seen once that is in place. */
static void nothing_is_missed_before_the_subscription(void **state)
{
    struct world *w = *state;
    struct seen seen = {.world = w, .stop_after = 2};

    use_push(w, &by_hand);
    assert_status(stile_watch(w->clients[0], "a", 1000, change_before_it_is_in_place, &seen, NULL),
                  OK);
    assert_int_equal(seen.holders[0], 0);
    assert_int_equal(seen.holders[1], 1);
}

static void report_often(struct timer *timer)
{
    (void)timer;
    for (int i = 0; i < 1000; i++)
        sub.query->engine->events->changed(sub.query);
}

/* However many reports come while one show is under way, they cost one more. */
static void a_burst_of_changes_costs_two_shows(void **state)
{
    struct world *w = *state;
    struct seen seen = {.world = w};
    struct timer burst = {.fn = report_often};
    struct loop *loop = w->clients[0]->loop;

    use_push(w, &by_hand);
    SCRIPT_ALWAYS(w->script, SCRIPT_QUERY, .back_ns = 10 * MS);
    assert_int_equal(loop_reserve(loop, 1), 0);
    for (unsigned during = 0; during < 2; during++) {
        script_forget(w->script);
        loop_arm(loop, &burst, world_now(w) + (during ? 5 : 500) * MS);
        assert_status(stile_watch(w->clients[0], "a", 1000, see, &seen, NULL), TIMEOUT);
        assert_trace(w->script, "show a, show a");
    }
    loop_unreserve(loop, 1);
    assert_int_equal(seen.times, 2); /* nothing has changed */
}

/* Everything but the passing of time. */
static void what_is_a_change(void **state)
{
    struct world *w = *state;
    struct seen seen = {.world = w};
    struct stile_lock *lock = make_lock(w->clients[0], "a", STILE_OPTIONS(.ttl_ms = 1000));

    use_push(w, NULL);
    assert_status(stile_lock_acquire(lock, -1, NULL), OK);
    assert_status(stile_watch(w->clients[0], "a", 10000, see, &seen, NULL), TIMEOUT);
    assert_int_equal(seen.times, 1); /* renewed many times, and older each time */
}

struct failing {
    struct seen seen;
    enum stile_status status;
};

static int fail_from_now_on(const struct stile_info *info, void *data)
{
    struct failing *f = data;

    for (int i = 0; f->seen.times == 0 && i < 10; i++)
        SCRIPT_NEXT(f->seen.world->script, SCRIPT_QUERY, .act = SCRIPT_FAIL, .status = f->status);
    return see(info, &f->seen);
}

/* Once it has reported, it waits until the server is back; what cannot pass ends it. */
static void a_server_that_is_away(void **state)
{
    struct world *w = *state;
    static const enum stile_status passing[] = {STILE_UNREACHABLE, STILE_UNCERTAIN};
    struct failing f;

    use_push(w, &by_hand);
    for (size_t i = 0; i < 2; i++) {
        f = (struct failing){.seen = {.world = w, .stop_after = 2}, .status = passing[i]};
        script_forget(w->script);
        script_occupy(w->script, "a", 2 * SEC);
        assert_status(stile_watch(w->clients[0], "a", -1, fail_from_now_on, &f, NULL), OK);
        assert_int_equal(f.seen.times, 2);
        assert_int_equal(script_count(w->script, SCRIPT_QUERY), 12);
    }
    f = (struct failing){.seen = {.world = w}, .status = STILE_REFUSED};
    use_push(w, NULL);
    assert_status(stile_watch(w->clients[0], "a", -1, fail_from_now_on, &f, NULL), REFUSED);
    assert_int_equal(f.seen.times, 1);
}

/* The time of a watch begins with its first report, however slow that is. */
static void a_slow_first_show(void **state)
{
    struct world *w = *state;
    struct seen seen = {.world = w};

    SCRIPT_ALWAYS(w->script, SCRIPT_QUERY, .back_ns = 500 * MS);
    assert_status(stile_watch(w->clients[0], "a", 100, see, &seen, NULL), TIMEOUT);
    assert_int_equal(seen.times, 1);
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
        TEST_IN(open_apart, an_engine_that_reports_no_changes_is_polled),
        TEST_IN(open_apart, what_ends_by_itself_is_seen),
        TEST_IN(open_apart, nothing_is_missed_before_the_subscription),
        TEST_IN(open_apart, a_burst_of_changes_costs_two_shows),
        TEST_IN(open_apart, what_is_a_change),
        TEST_IN(open_apart, a_server_that_is_away),
        TEST_IN(open_apart, a_slow_first_show),
        TEST_IN(open_apart, break_tells_the_holder),
        TEST_IN(open_apart, break_of_what_nobody_holds),
    };
    return cmocka_run_group_tests_name("core_inspect", tests, NULL, NULL);
}
