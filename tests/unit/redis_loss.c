/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What people read about a loss. Whatever the server has, the text is one line of printable bytes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engines/redis/loss.h"

#define SEC UINT64_C(1000000000)

static void check(const char *reason, uint64_t age_ns, const char *expected)
{
    char text[LOSS_MAX];
    redis_loss_explain(text, reason, age_ns, 30 * SEC);
    assert_string_equal(text, expected);
}

static void breaks(void **state)
{
    (void)state;
    check("b 4711 web3", 0, "taken by stile break (web3 pid 4711)");
    check("b 4711 web3 stile", 0, "taken by stile break (web3 pid 4711)");
    check("b 4711 web3", 40 * SEC, "taken by stile break (web3 pid 4711)");
}

static void breaks_by_nobody(void **state)
{
    static const char *const reasons[] = {"b",
                                          "b ",
                                          "b 4711",
                                          "b 4711 ",
                                          "b  web3",
                                          "b x web3",
                                          "b 0 web3",
                                          "b -1 web3",
                                          "b4711 web3",
                                          "b 4711\tweb3",
                                          "b 4711 \x1b[2J",
                                          "b 4711 w\xc3\xa9",
                                          "b 4711 "
                                          "hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh"
                                          "hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh"};
    (void)state;
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        check(reasons[i], 0, "taken by stile break");
}

static void other_reasons(void **state)
{
    (void)state;
    check("v", SEC, "its key now has another client's value");
    check("o", SEC,
          "its key was deleted or forgotten by the server, and another stile client holds the lock "
          "now");
    check("x", SEC,
          "its key is gone: deleted by another client, or forgotten by the server in a restart or "
          "failover");
    check("x", 30 * SEC, "expired in the server: not renewed for 30.0 s");
    check("o", 31 * SEC + SEC / 2,
          "expired in the server: not renewed for 31.5 s, and another client holds the lock now");
    check("v", 31 * SEC,
          "expired in the server: not renewed for 31.0 s, and another client holds the lock now");
}

/* Of a server that is broken or hostile. */
static void no_reason(void **state)
{
    static const char *const reasons[] = {NULL, "", "?", "\x1b[2J"};
    (void)state;
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        check(reasons[i], SEC,
              "its key is gone: deleted by another client, or forgotten by the server in a restart "
              "or failover");
        check(reasons[i], 30 * SEC, "expired in the server: not renewed for 30.0 s");
    }
}

static void the_most_exact_counts(void **state)
{
    static const char *const reasons[] = {"", "x", "v", "o", "b 1 h"};
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        for (size_t k = 0; k < 5; k++)
            assert_int_equal(redis_loss_is_more_exact(reasons[i], reasons[k]), i > k);
        assert_false(redis_loss_is_more_exact("?", reasons[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(breaks),
        cmocka_unit_test(breaks_by_nobody),
        cmocka_unit_test(other_reasons),
        cmocka_unit_test(no_reason),
        cmocka_unit_test(the_most_exact_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
