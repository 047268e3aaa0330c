/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile_doctor(): findings copied, worst first, and a client that is there for nothing else. */
#include <stdio.h>

#include "support/unit.h"

struct heard_findings {
    unsigned times, stop_after;
    char ids[8][16];
    struct stile_finding last;
    struct world *world;
    enum stile_status inner;
};

static int hear(const struct stile_finding *finding, void *data)
{
    struct heard_findings *heard = data;

    if (heard->times < 8)
        (void)snprintf(heard->ids[heard->times], sizeof(heard->ids[0]), "%s", finding->id);
    heard->times++;
    return heard->stop_after && heard->times >= heard->stop_after;
}

static void find(struct world *w, enum stile_severity severity, const char *id)
{
    w->script->findings[w->script->n_findings++] =
        (struct stile_finding){.severity = severity, .id = id};
}

static void the_worst_comes_first(void **state)
{
    struct world *w = *state;
    struct heard_findings heard = {0};

    find(w, STILE_FINE, "f1");
    find(w, STILE_DANGER, "d1");
    find(w, STILE_WARNING, "w1");
    find(w, STILE_DANGER, "d2");
    find(w, STILE_NOTE, "n1");
    find(w, STILE_FINE, "f2");
    assert_status(stile_doctor(w->clients[0], 0, hear, &heard, NULL), OK);
    assert_int_equal(heard.times, 6);
    assert_string_equal(heard.ids[0], "d1");
    assert_string_equal(heard.ids[1], "d2");
    assert_string_equal(heard.ids[2], "w1");
    assert_string_equal(heard.ids[3], "n1");
    assert_string_equal(heard.ids[4], "f1");
    assert_string_equal(heard.ids[5], "f2");
    assert_trace(w->script, "examine ");
    heard = (struct heard_findings){.stop_after = 2};
    assert_status(stile_doctor(w->clients[0], 0, hear, &heard, NULL), OK);
    assert_int_equal(heard.times, 2);
    assert_status(stile_doctor(w->clients[0], 0, NULL, NULL, NULL), OK);
}

static char spoken[] = "spoken";

static int see_copies(const struct stile_finding *finding, void *data)
{
    struct heard_findings *heard = data;

    assert_ptr_not_equal(finding->what, spoken);
    assert_string_equal(finding->what, spoken);
    assert_string_equal(finding->where, "w");
    assert_string_equal(finding->why, "y");
    assert_string_equal(finding->command, "c");
    assert_string_equal(finding->id, "");
    assert_string_equal(finding->cure, "");
    return hear(finding, heard);
}

static void texts_are_copied_and_never_null(void **state)
{
    struct world *w = *state;
    struct heard_findings heard = {0};

    w->script->findings[w->script->n_findings++] =
        (struct stile_finding){.what = spoken, .where = "w", .why = "y", .command = "c"};
    assert_status(stile_doctor(w->clients[0], 0, see_copies, &heard, NULL), OK);
    assert_int_equal(heard.times, 1);
}

static int call_back_into(const struct stile_finding *finding, void *data)
{
    struct heard_findings *heard = data;

    heard->inner = stile_doctor(heard->world->clients[0], 0, NULL, NULL, NULL);
    return hear(finding, data);
}

static void a_callback_may_ask_again(void **state)
{
    struct world *w = *state;
    struct heard_findings heard = {.world = w, .inner = STILE_LOST};

    find(w, STILE_NOTE, "n");
    assert_status(stile_doctor(w->clients[0], 0, call_back_into, &heard, NULL), OK);
    assert_status(heard.inner, OK);
    assert_int_equal(heard.times, 1);
}

static void failures_say_why(void **state)
{
    struct world *w = *state;
    struct heard_findings heard = {0};
    struct stile_error err = {0};

    assert_status(stile_doctor(w->clients[0], 1u << 20, hear, &heard, &err), MISUSE);
    assert_trace(w->script, "");
    assert_status(stile_doctor(NULL, 0, hear, &heard, &err), MISUSE);
    SCRIPT_ALWAYS(w->script, SCRIPT_QUERY, .act = SCRIPT_FAIL, .status = STILE_UNREACHABLE);
    find(w, STILE_NOTE, "n");
    assert_status(stile_doctor(w->clients[0], 0, hear, &heard, &err), UNREACHABLE);
    assert_string_equal(err.message, "examining the engine: the script says so");
    assert_int_equal(heard.times, 0);
}

/* ---- adoption ---- */

static void adoption_comes_before_all_else(void **state)
{
    struct world *w = *state;
    struct heard_findings heard = {0};

    find(w, STILE_NOTE, "adopted");
    find(w, STILE_DANGER, "d");
    assert_status(stile_doctor(w->clients[0], STILE_ADOPT, hear, &heard, NULL), OK);
    assert_trace(w->script, "adopt , examine ");
    assert_int_equal(heard.times, 3);
    assert_string_equal(heard.ids[0], "adopted");
    assert_string_equal(heard.ids[1], "d");
    heard = (struct heard_findings){.stop_after = 1};
    script_forget(w->script);
    assert_status(stile_doctor(w->clients[0], STILE_ADOPT, hear, &heard, NULL), OK);
    assert_trace(w->script, "adopt "); /* heard enough */
}

static void what_failed_to_adopt_is_not_examined(void **state)
{
    struct world *w = *state;

    SCRIPT_NEXT(w->script, SCRIPT_QUERY, .act = SCRIPT_FAIL, .status = STILE_UNREACHABLE);
    assert_status(stile_doctor(w->clients[0], STILE_ADOPT, NULL, NULL, NULL), UNREACHABLE);
    assert_trace(w->script, "adopt ");
}

/* As most engines. */
static void an_engine_without_these_slots(void **state)
{
    struct world *w = *state;
    const struct engine_class *whole = w->clients[0]->engine->class;
    struct engine_class class = *whole;
    struct heard_findings heard = {0};
    struct stile_error err = {0};

    class.admin = NULL;
    w->clients[0]->engine->class = &class;
    find(w, STILE_NOTE, "n");
    assert_status(stile_doctor(w->clients[0], 0, hear, &heard, &err), OK);
    assert_status(stile_doctor(w->clients[0], STILE_ADOPT, hear, &heard, &err), UNSUPPORTED);
    assert_non_null(strstr(err.message, "nothing to adopt on the engine test"));
    assert_int_equal(heard.times, 0);
    assert_trace(w->script, "");
    w->clients[0]->engine->class = whole;
}

/* ---- opened for it ---- */

static int ignore(const struct stile_info *info, void *data)
{
    (void)info, (void)data;
    return 0;
}

/* What examine lets pass must not be used for locks. */
static void a_client_to_be_examined_serves_nothing_else(void **state)
{
    struct world *w = *state;
    struct stile_client *client = w->clients[0];
    struct heard_findings heard = {0};
    struct stile_error err = {0};
    struct stile_lock *lock;

    client->engine->examining = true;
    assert_status(stile_lock_new(&lock, client, "a", NULL, &err), MISUSE);
    assert_non_null(strstr(err.message, "opened with `examine`"));
    assert_null(lock);
    assert_status(stile_list(client, NULL, ignore, NULL, NULL), MISUSE);
    assert_status(stile_show(client, "a", ignore, NULL, NULL), MISUSE);
    assert_status(stile_watch(client, "a", 0, ignore, NULL, NULL), MISUSE);
    assert_status(stile_break(client, "a", 0, NULL), MISUSE);
    assert_trace(w->script, "");
    find(w, STILE_NOTE, "n");
    assert_status(stile_doctor(client, 0, hear, &heard, NULL), OK);
    assert_int_equal(heard.times, 1);
    assert_non_null(stile_client_caps(client));
}

static bool saw_examining;

static void refuse(struct engine *engine, const struct url *url)
{
    struct stile_error err;
    (void)url;
    saw_examining = engine->examining;
    error_set(&err, STILE_REFUSED, 0, "seen");
    engine->events->opened(engine, &err);
}

static void open_knows_what_it_is_for(void **state)
{
    struct world *w = *state;
    struct engine_class class = *w->clients[0]->engine->class;
    struct stile_client *client = NULL;
    struct loop *loop;

    class.open = refuse;
    assert_int_equal(loop_epoll_new(&loop), 0);
    assert_status(
        client_new(&client, &class, loop, NULL, STILE_CLIENT_OPTIONS(.examine = true), NULL),
        REFUSED);
    assert_true(saw_examining);
    assert_int_equal(loop_epoll_new(&loop), 0);
    assert_status(client_new(&client, &class, loop, NULL, NULL, NULL), REFUSED);
    assert_false(saw_examining);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(open_one, the_worst_comes_first),
        TEST_IN(open_one, texts_are_copied_and_never_null),
        TEST_IN(open_one, a_callback_may_ask_again),
        TEST_IN(open_one, failures_say_why),
        TEST_IN(open_one, adoption_comes_before_all_else),
        TEST_IN(open_one, what_failed_to_adopt_is_not_examined),
        TEST_IN(open_one, an_engine_without_these_slots),
        TEST_IN(open_one, a_client_to_be_examined_serves_nothing_else),
        TEST_IN(open_one, open_knows_what_it_is_for),
    };
    return cmocka_run_group_tests_name("core_doctor", tests, NULL, NULL);
}
