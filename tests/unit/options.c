/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/options.h"

struct first {
    size_t size;
    const char *text;
};

struct now {
    size_t size;
    const char *text;
    int64_t more;
};

struct later {
    size_t size;
    const char *text;
    int64_t more, most;
};

static const struct options_kind kind = {
    .name = "test options",
    .macro = "TEST_OPTIONS",
    .size = sizeof(struct now),
    .least = OPTIONS_UP_TO(struct now, text),
};

static void none_are_the_defaults(void **state)
{
    struct now o = {1, "?", 1};

    (void)state;
    assert_int_equal(options_read(&o, NULL, &kind, NULL), STILE_OK);
    assert_int_equal(o.size, sizeof o);
    assert_true(!o.text && !o.more);
}

static void an_earlier_struct_is_filled_with_zeros(void **state)
{
    const struct first first = {sizeof first, "text"};
    struct now o = {1, "?", 1};

    (void)state;
    assert_int_equal(options_read(&o, &first, &kind, NULL), STILE_OK);
    assert_int_equal(o.size, sizeof o);
    assert_string_equal(o.text, "text");
    assert_int_equal(o.more, 0);
}

static void a_later_struct_may_ask_for_nothing_new(void **state)
{
    struct later later = {sizeof later, "text", 7, 0};
    struct stile_error err = {0};
    struct now o;

    (void)state;
    assert_int_equal(options_read(&o, &later, &kind, NULL), STILE_OK);
    assert_int_equal(o.more, 7);
    later.most = 1;
    assert_int_equal(options_read(&o, &later, &kind, &err), STILE_MISUSE);
    assert_string_equal(err.message,
                        "test options of a later version are set, which this library does not "
                        "know");
}

static void what_is_no_size_is_refused(void **state)
{
    static const size_t sizes[] = {0, 8, sizeof(struct first) - 1, 1000, SIZE_MAX};
    struct stile_error err = {0};
    struct now o;

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct now given = {.size = sizes[i]};
        assert_int_equal(options_read(&o, &given, &kind, &err), STILE_MISUSE);
        assert_non_null(strstr(err.message, "use TEST_OPTIONS"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(none_are_the_defaults),
        cmocka_unit_test(an_earlier_struct_is_filled_with_zeros),
        cmocka_unit_test(a_later_struct_may_ask_for_nothing_new),
        cmocka_unit_test(what_is_no_size_is_refused),
    };

    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
