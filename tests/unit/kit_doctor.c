/* Rules as tables: which rows apply, and what their texts become. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engines/kit/doctor.h"

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
        {0},
    };
    (void)state;
    assert_string_equal(apply(rules, &(struct doctor_facts){.heat = 40, .name = "a"}),
                        "0 lives here|alive|||\n2 hot here|hot|||\n1 mild here|mild|||\n");
    assert_string_equal(apply(rules, &(struct doctor_facts){.heat = 20, .name = "a"}),
                        "0 lives here|alive|||\n0 well here|well|||\n1 mild here|mild|||\n");
    assert_string_equal(apply(rules, &(struct doctor_facts){.heat = -1, .name = "a"}),
                        "0 well here|well|||\n");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_apply_in_their_order),
        cmocka_unit_test(values_stand_in_every_text),
        cmocka_unit_test(a_rule_decides_where_and_how_severe),
        cmocka_unit_test(long_values_are_cut),
    };
    return cmocka_run_group_tests_name("kit_doctor", tests, NULL, NULL);
}
