/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Rules as tables: which rows apply, and what their texts become. Visits: their rounds and their
 * end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/container.h"
#include "engines/kit/doctor.h"
#include "support/loop_virtual.h"

struct doctor_facts {
    int heat;
    const char *name;
};

static char seen[4096];

static void note(void *data, const struct stile_finding *f)
{
    size_t n = strlen(seen);
    (void)data;
    snprintf(seen + n, sizeof seen - n, "%d %s %s|%s|%s|%s|%s\n", f->severity, f->id, f->where,
             f->what, f->why, f->cure, f->command);
}

static const char *apply(const struct doctor_rule *rules, const struct doctor_facts *facts)
{
    seen[0] = '\0';
    doctor_apply(rules, facts, "here", note, NULL);
    return seen;
}

static bool is_hot(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    doctor_put(draft, "%s", facts->name);
    doctor_put(draft, "%d", facts->heat);
    return facts->heat > (int)draft->rule->column;
}

static bool is_cold(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    (void)draft;
    return facts->heat < 0;
}

static void rows_apply_in_their_order(void **state)
{
    static const struct doctor_rule rules[] = {
        {"lives", STILE_FINE, NULL, .unless = is_cold, .what = "alive"},
        {"hot", STILE_WARNING, is_hot, .column = 30, .what = "hot"},
        {"well", STILE_FINE, NULL, .unless = is_hot, .column = 30, .what = "well"},
        {"mild", STILE_NOTE, is_hot, .unless = is_cold, .column = 10, .what = "mild"},
        {"never", STILE_NOTE, NULL, .also = is_hot, .unless = is_hot, .what = "never"},
        {"icy", STILE_NOTE, NULL, .also = is_cold, .what = "icy"},
        {0},
    };
    (void)state;
    assert_string_equal(apply(rules, &(struct doctor_facts){.heat = 40, .name = "a"}),
                        "0 lives here|alive|||\n2 hot here|hot|||\n1 mild here|mild|||\n");
    assert_string_equal(apply(rules, &(struct doctor_facts){.heat = 20, .name = "a"}),
                        "0 lives here|alive|||\n0 well here|well|||\n1 mild here|mild|||\n");
    assert_string_equal(apply(rules, &(struct doctor_facts){.heat = -1, .name = "a"}),
                        "0 well here|well|||\n1 icy here|icy|||\n");
}

/* A value comes from a server: what looks like a place for another one is left as it is. */
static void values_stand_in_every_text(void **state)
{
    static const struct doctor_rule rules[] = {
        {"hot", STILE_DANGER, is_hot, .what = "$1 has $2 degrees", .why = "$2", .cure = "cool $1",
         .command = "cool $1\nwait"},
        {"not", STILE_FINE, NULL, .unless = is_hot, .column = 50, .what = "$2 of 50, $1"},
        {0},
    };
    (void)state;
    assert_string_equal(apply(rules, &(struct doctor_facts){.heat = 40, .name = "a $2 %s"}),
                        "3 hot here|a $2 %s has 40 degrees|40|cool a $2 %s|cool a $2 %s\nwait\n"
                        "0 not here|40 of 50, a $2 %s|||\n");
}

static bool decides(struct doctor_draft *draft, const struct doctor_facts *facts)
{
    draft->severity = STILE_NOTE;
    draft->where = facts->name;
    draft->command = "as $1 says";
    return true;
}

static void a_rule_decides_where_and_how_severe(void **state)
{
    static const struct doctor_rule rules[] = {
        {"decides", STILE_DANGER, decides, .command = "not this"},
        {"next", STILE_DANGER, .what = NULL},
        {0},
    };
    (void)state;
    assert_string_equal(apply(rules, &(struct doctor_facts){.name = "there"}),
                        "1 decides there||||as $1 says\n3 next here||||\n");
}

static void long_values_are_cut(void **state)
{
    static const struct doctor_rule rules[] = {
        {"hot", STILE_NOTE, is_hot, .what = "$1$1$1$1$1"},
        {0},
    };
    char name[2 * DOCTOR_VALUE_MAX] = "";
    (void)state;
    memset(name, 'x', sizeof name - 1);
    apply(rules, &(struct doctor_facts){.heat = 1, .name = name});
    assert_int_equal(strspn(seen + strlen("1 hot here|"), "x"), DOCTOR_TEXT_MAX - 1);
}

/* ---- visits ---- */

#define PATIENCE_NS (3 * NS_PER_SEC)

/* An engine, and what has come of its visits. */
static struct engine engine;
static struct doctor_visit *visits;
static char story[256];
static struct stile_error ended;

struct visit {
    struct doctor_visit base;
    unsigned answered;
};

static void add_word(const char *word)
{
    strcat(story, word);
}

/* Rounds 0 and 1 have two questions, one of which is answered at once in round 1. Round 2 has none.
 */
static bool ask(struct doctor_visit *visit, unsigned round)
{
    char word[16];
    snprintf(word, sizeof word, "ask%u ", round);
    add_word(word);
    for (unsigned i = 0; round < 2 && i < 2; i++)
        doctor_asked(visit);
    if (round == 1)
        doctor_answered(visit);
    return round <= 2;
}

static void judge(struct doctor_visit *visit, struct stile_error *err)
{
    add_word("judge ");
    if (!container_of(visit, struct visit, base)->answered)
        error_set(err, STILE_UNREACHABLE, 0, "nobody has answered");
    doctor_report_to_query(visit->query, &(struct stile_finding){.id = "found"});
}

static void leave(struct doctor_visit *visit)
{
    (void)visit;
    add_word("leave ");
}

static void forked(struct doctor_visit *visit)
{
    (void)visit;
    add_word("forked ");
}

static void on_finding(struct query *query, const struct stile_finding *finding)
{
    assert_non_null(query->state);
    add_word(finding->id);
    add_word(" ");
}

static void on_done(struct query *query, const struct stile_error *err)
{
    assert_null(query->state);
    error_copy(&ended, err);
    add_word("done");
}

static const struct engine_events engine_events = {.finding = on_finding, .done = on_done};
static const struct doctor_plan plan = {
    .ask = ask, .judge = judge, .leave = leave, .forked = forked};

static struct visit *begin(struct query *query)
{
    *query = (struct query){.engine = &engine};
    story[0] = '\0';
    doctor_visit_begin(&plan, sizeof(struct visit), PATIENCE_NS, query, &visits);
    return (struct visit *)visits;
}

static void answer(struct visit *visit)
{
    visit->answered++;
    doctor_answered(&visit->base);
}

static int set_up(void **state)
{
    (void)state;
    engine = (struct engine){.events = &engine_events};
    return loop_virtual_new(&engine.loop, 1);
}

static int tear_down(void **state)
{
    (void)state;
    assert_null(visits);
    assert_int_equal(engine.loop->n_timers, 0);
    assert_int_equal(engine.loop->reserved, 0);
    loop_free(engine.loop);
    return 0;
}

static void a_round_begins_when_the_last_is_answered(void **state)
{
    struct query query;
    struct visit *visit = begin(&query);
    (void)state;
    answer(visit);
    assert_string_equal(story, "ask0 ");
    answer(visit);
    assert_string_equal(story, "ask0 ask1 ");
    answer(visit);
    assert_string_equal(story, "ask0 ask1 ask2 ask3 judge found leave done");
    assert_int_equal(ended.status, STILE_OK);
}

/* Each round has the whole of its time. */
static void a_round_that_is_not_answered_is_the_last(void **state)
{
    struct query query;
    struct visit *visit = begin(&query);
    (void)state;
    loop_virtual_advance(engine.loop, PATIENCE_NS - 1);
    answer(visit);
    answer(visit);
    loop_virtual_advance(engine.loop, PATIENCE_NS - 1);
    assert_string_equal(story, "ask0 ask1 ");
    loop_virtual_advance(engine.loop, 1);
    assert_string_equal(story, "ask0 ask1 judge found leave done");
    assert_int_equal(ended.status, STILE_OK);
    begin(&query);
    loop_virtual_advance(engine.loop, PATIENCE_NS);
    assert_string_equal(story, "ask0 judge found leave done");
    assert_int_equal(ended.status, STILE_UNREACHABLE);
}

static void visits_of_an_engine_that_closes(void **state)
{
    struct query one, two;
    struct visit *first = begin(&one);
    (void)state;
    begin(&two);
    doctor_visits_forked(visits);
    assert_string_equal(story, "ask0 forked forked ");
    for (int i = 0; i < 3; i++)
        answer(first);
    story[0] = '\0';
    doctor_visits_drop(&visits);
    assert_string_equal(story, "leave ");
    assert_null(one.state);
    assert_null(two.state);
}

/* ---- all ---- */

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_apply_in_their_order),
        cmocka_unit_test(values_stand_in_every_text),
        cmocka_unit_test(a_rule_decides_where_and_how_severe),
        cmocka_unit_test(long_values_are_cut),
        cmocka_unit_test_setup_teardown(a_round_begins_when_the_last_is_answered, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_round_that_is_not_answered_is_the_last, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(visits_of_an_engine_that_closes, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("kit_doctor", tests, NULL, NULL);
}
