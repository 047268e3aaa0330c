/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "base/error.h"

static void set_says_why(void **state)
{
    struct stile_error err;

    (void)state;
    assert_int_equal(error_set(&err, STILE_REFUSED, 42, "answer %d of %s", 7, "x"), STILE_REFUSED);
    assert_int_equal(err.status, STILE_REFUSED);
    assert_int_equal(err.native, 42);
    assert_string_equal(err.message, "answer 7 of x");
}

static void wrap_puts_before_it_what_was_done(void **state)
{
    struct stile_error err;

    (void)state;
    error_set(&err, STILE_CORRUPT, 3, "bad magic");
    assert_int_equal(error_wrap(&err, STILE_LOST, "reading %s", "floor"), STILE_LOST);
    error_wrap(&err, err.status, "opening local:");
    assert_string_equal(err.message, "opening local:: reading floor: bad magic");
    assert_int_equal(err.status, STILE_CORRUPT);
    assert_int_equal(err.native, 3);
}

static void errno_gives_text_and_number(void **state)
{
    struct stile_error err;

    (void)state;
    assert_int_equal(error_errno(&err, STILE_UNREACHABLE, EACCES, "opening %s", "/x"),
                     STILE_UNREACHABLE);
    assert_int_equal(err.native, EACCES);
    assert_string_equal(err.message, "opening /x: Permission denied");
    assert_int_equal(error_errno(&err, STILE_UNREACHABLE, ENOMEM, "opening"), STILE_NOMEM);
    assert_int_equal(err.status, STILE_NOMEM);
    assert_int_equal(err.native, ENOMEM);
}

static void null_is_taken(void **state)
{
    struct stile_error err;

    (void)state;
    assert_int_equal(error_set(NULL, STILE_HELD, 0, "x"), STILE_HELD);
    assert_int_equal(error_errno(NULL, STILE_REFUSED, EIO, "x"), STILE_REFUSED);
    assert_int_equal(error_errno(NULL, STILE_REFUSED, ENOMEM, "x"), STILE_NOMEM);
    assert_int_equal(error_wrap(NULL, STILE_LOST, "x"), STILE_LOST);
    error_copy(NULL, NULL);
    error_set(&err, STILE_HELD, 1, "x");
    error_copy(NULL, &err);
    error_copy(&err, NULL);
    assert_int_equal(err.status, STILE_OK);
    assert_int_equal(err.native, 0);
    assert_string_equal(err.message, "");
}

static void a_copy_is_the_same(void **state)
{
    struct stile_error a, b;

    (void)state;
    error_set(&a, STILE_STALE, 9, "old");
    error_copy(&b, &a);
    assert_int_equal(b.status, STILE_STALE);
    assert_int_equal(b.native, 9);
    assert_string_equal(b.message, "old");
}

static void a_long_message_is_cut_and_says_so(void **state)
{
    struct stile_error err;
    char text[400];

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    for (size_t len = 0; len < sizeof(text); len++) {
        text[len] = '\0';
        error_set(&err, STILE_MISUSE, 0, "%s", text);
        bool fits = len < sizeof(err.message);
        assert_int_equal(strlen(err.message), fits ? len : sizeof(err.message) - 1);
        assert_string_equal(err.message + strlen(err.message) - (fits ? 0 : 3), fits ? "" : "...");
        text[len] = 'x';
    }
    error_wrap(&err, STILE_MISUSE, "doing");
    assert_int_equal(strlen(err.message), sizeof(err.message) - 1);
    assert_memory_equal(err.message, "doing: xxx", 10);
}

static void a_cut_keeps_characters_whole(void **state)
{
    struct stile_error err;
    char text[400];

    (void)state;
    for (size_t shift = 0; shift < 4; shift++) {
        memset(text, 'x', shift);
        for (size_t i = shift; i + 3 < sizeof(text); i += 3)
            memcpy(text + i, "\xe2\x82\xac", 4);
        error_set(&err, STILE_MISUSE, 0, "%s", text);
        const char *dots = strstr(err.message, "...");
        assert_non_null(dots);
        assert_int_equal((dots - err.message - (ptrdiff_t)shift) % 3, 0);
    }
}

static void a_message_may_quote_itself(void **state)
{
    struct stile_error err;

    (void)state;
    error_set(&err, STILE_REFUSED, 0, "why");
    error_set(&err, STILE_REFUSED, 0, "again, %s", err.message);
    assert_string_equal(err.message, "again, why");
    error_wrap(&err, STILE_REFUSED, "%s", err.message);
    assert_string_equal(err.message, "again, why: again, why");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_says_why),
        cmocka_unit_test(wrap_puts_before_it_what_was_done),
        cmocka_unit_test(errno_gives_text_and_number),
        cmocka_unit_test(null_is_taken),
        cmocka_unit_test(a_copy_is_the_same),
        cmocka_unit_test(a_long_message_is_cut_and_says_so),
        cmocka_unit_test(a_cut_keeps_characters_whole),
        cmocka_unit_test(a_message_may_quote_itself),
    };

    return cmocka_run_group_tests_name("error", tests, NULL, NULL);
}
