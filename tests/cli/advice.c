/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The table behind stile advise, with every combination of answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "../../cli/advice.h"

#define MOST_QUESTIONS 5

typedef void visit_fn(const struct advice_answers *answers, void *data);

static int n_choices(int question)
{
    int n = 0;
    while (advice_questions[question].choices[n].word != NULL)
        n++;
    return n;
}

static void visit_from(struct advice_answers *answers, int question, visit_fn *fn, void *data)
{
    if (question == ADVICE_QUESTIONS) {
        struct advice_answers whole = *answers;
        advice_complete(&whole);
        fn(&whole, data);
        return;
    }
    unsigned end = question == ASK_ENGINES ? BIT(n_choices(question)) : 0;
    for (unsigned set = 1; set < end; set++) {
        answers->picked[question] = set;
        visit_from(answers, question + 1, fn, data);
    }
    for (int i = 0; end == 0 && i < n_choices(question); i++) {
        answers->picked[question] = BIT(i);
        visit_from(answers, question + 1, fn, data);
    }
}

static void visit_all(visit_fn *fn, void *data)
{
    struct advice_answers answers = {0};
    visit_from(&answers, 0, fn, data);
}

static void note_rule(const struct advice_answers *answers, void *data)
{
    const struct advice_rule *rule = advice_for(answers);
    assert_non_null(rule);
    assert_int_equal(advice_next_question(answers), -1);
    ((unsigned *)data)[rule - advice_rules]++;
}

static void every_combination_has_a_rule_and_every_rule_a_combination(void **state)
{
    unsigned counts[64] = {0};
    (void)state;
    assert_true(advice_n_rules <= 64);
    visit_all(note_rule, counts);
    for (size_t i = 0; i < advice_n_rules; i++) {
        if (counts[i] == 0)
            fail_msg("no answers lead to %s", advice_rules[i].id);
    }
}

static void check_engine(const struct advice_answers *answers, void *data)
{
    struct advice advice;
    (void)data;
    advice_make(&advice, answers);
    assert_true(advice.command[0] != '\0');
    assert_true(strlen(advice.command) < ADVICE_TEXT_MAX - 1);
    assert_null(strpbrk(advice.command, "{}"));
    if (advice.engine >= 0)
        assert_true(answers->picked[ASK_ENGINES] & BIT(advice.engine));
    else
        assert_int_equal(advice.rule->n_engines, 0);
    /* Without cells and without shared locks. */
    if (advice.engine == REDLOCK)
        assert_true(advice.rule->kind == LOCK && !advice.rule->shared);
}

static void engines_are_those_at_hand(void **state)
{
    (void)state;
    visit_all(check_engine, NULL);
}

static void check_correctness(const struct advice_answers *answers, void *data)
{
    struct advice advice;
    (void)data;
    advice_make(&advice, answers);
    if (advice.rule->kind != LOCK)
        return;
    bool correctness = answers->picked[ASK_GOAL] == BIT(CORRECTNESS);
    assert_int_equal(advice.guard != NULL, correctness);
    assert_int_equal(advice.ttl != NULL, advice.engine != LOCAL);
    assert_int_equal(strstr(advice.command, " --guard ") != NULL ||
                         strstr(advice.command, " --require-token ") != NULL,
                     correctness);
}

static void correctness_has_a_guard_or_needs_no_lock(void **state)
{
    (void)state;
    visit_all(check_correctness, NULL);
}

/* Asks as the command does. */
static void check_questions(const struct advice_answers *answers, void *data)
{
    struct advice_answers told = {0};
    struct advice advice, with_all;
    int asked = 0;
    (void)data;
    for (int q; (q = advice_next_question(&told)) >= 0; asked++) {
        assert_int_equal(told.picked[q], 0);
        told.picked[q] = answers->picked[q];
    }
    assert_true(asked >= 1 && asked <= MOST_QUESTIONS);
    advice_make(&advice, &told);
    advice_make(&with_all, answers);
    assert_ptr_equal(advice.rule, with_all.rule);
    assert_int_equal(advice.engine, with_all.engine);
    assert_ptr_equal(advice.guard, with_all.guard);
    assert_string_equal(advice.command, with_all.command);
}

static void five_questions_are_enough(void **state)
{
    (void)state;
    visit_all(check_questions, NULL);
}

static void reasons_have_two_sentences(void **state)
{
    (void)state;
    for (size_t i = 0; i < advice_n_rules; i++) {
        const char *why = advice_rules[i].why, *first = strstr(why, ". ");
        assert_non_null(first);
        assert_null(strstr(first + 1, ". "));
        assert_int_equal(why[strlen(why) - 1], '.');
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(advice_rules[i].id, advice_rules[k].id);
    }
}

static void holds_are_sorted_by_length(void **state)
{
    (void)state;
    assert_int_equal(advice_hold_of(0), INSTANT);
    assert_int_equal(advice_hold_of(100), INSTANT);
    assert_int_equal(advice_hold_of(101), SHORT);
    assert_int_equal(advice_hold_of(10000), SHORT);
    assert_int_equal(advice_hold_of(10001), LONG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination_has_a_rule_and_every_rule_a_combination),
        cmocka_unit_test(engines_are_those_at_hand),
        cmocka_unit_test(correctness_has_a_guard_or_needs_no_lock),
        cmocka_unit_test(five_questions_are_enough),
        cmocka_unit_test(reasons_have_two_sentences),
        cmocka_unit_test(holds_are_sorted_by_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
