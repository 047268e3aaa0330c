/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "stile.h"

static void every_status_has_name_and_text(void **state)
{
    (void)state;
#define CHECK(name, text)                                                                          \
    assert_string_equal(stile_status_name(STILE_##name), #name);                                   \
    assert_string_equal(stile_status_text(STILE_##name), text);
    STILE_STATUS_MAP(CHECK)
#undef CHECK
}

/* Numbers are part of the ABI: what was compiled last year still understands them. */
static void numbers_stay(void **state)
{
    static const char *const names[] = {
        "OK",       "HELD",        "TIMEOUT", "CANCELLED", "LOST",        "STALE",
        "CONFLICT", "UNREACHABLE", "REFUSED", "UNCERTAIN", "UNSUPPORTED", "CORRUPT",
        "MISUSE",   "NOMEM",       "FOREIGN", "MISMATCH",
    };

    (void)state;
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_string_equal(stile_status_name((enum stile_status)i), names[i]);
}

static void a_number_that_is_none_is_unknown(void **state)
{
    static const int numbers[] = {STILE_MISMATCH + 1, 1000, -1};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(stile_status_name((enum stile_status)numbers[i]), "UNKNOWN");
        assert_string_equal(stile_status_text((enum stile_status)numbers[i]), "unknown status");
    }
}

static void version_is_the_header_s(void **state)
{
    (void)state;
    assert_string_equal(stile_version(), STILE_VERSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_name_and_text),
        cmocka_unit_test(numbers_stay),
        cmocka_unit_test(a_number_that_is_none_is_unknown),
        cmocka_unit_test(version_is_the_header_s),
    };

    return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}
