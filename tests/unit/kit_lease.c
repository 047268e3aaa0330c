/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Claims by owner value, and renewals of many in one request. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engines/kit/lease.h"
#include "support/loop_virtual.h"

#define N 5

static struct engine engine;
static struct leased_claims claims;
static struct claim *made[N];
static char heard[512];

/* ---- what core would hear ---- */

static void note(const struct claim *claim, const char *what)
{
    size_t n = strlen(heard);
    snprintf(heard + n, sizeof heard - n, "%s%s %s", n ? ", " : "", claim->name, what);
}

static void renewed(struct claim *claim, uint64_t sent_ns, uint64_t ttl_ns)
{
    assert_true(sent_ns == LOOP_VIRTUAL_START_NS);
    assert_true(ttl_ns == claim->ttl_ns);
    note(claim, "renewed");
}

static void unknown(struct claim *claim)
{
    note(claim, "unknown");
}

static void lost(struct claim *claim, const struct stile_error *err)
{
    assert_int_equal(err->status, STILE_LOST);
    note(claim, err->message);
    leased_leave_renewal(leased_of(claim)); /* as release() does, from inside */
}

static const struct engine_events events = {.renewed = renewed, .unknown = unknown, .lost = lost};

static int set_up(void **state)
{
    static const char *const names[N] = {"a", "b", "c", "d", "e"};
    (void)state;
    heard[0] = '\0';
    claims = (struct leased_claims){0};
    engine = (struct engine){.events = &events};
    if (loop_virtual_new(&engine.loop, 1))
        return -1;
    for (int i = 0; i < N; i++) {
        made[i] = calloc(1, sizeof *made[i] + sizeof(struct leased));
        made[i]->engine = &engine;
        made[i]->name = names[i];
        made[i]->ttl_ns = (uint64_t)i + 1;
        snprintf(leased_of(made[i])->owner, LEASED_OWNER_MAX + 1, "%08x%08x", 7, i % 3);
        leased_of(made[i])->owner[7] = (char)('a' + i);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    leased_renewals_free(&claims);
    for (int i = 0; i < N; i++)
        free(made[i]);
    loop_free(engine.loop);
    return 0;
}

/* ---- by owner ---- */

static const char *in_order(void)
{
    static char names[N + 1];
    size_t n = 0;
    for (struct leased *leased = claims.oldest; leased; leased = leased->newer)
        names[n++] = leased_base(leased)->name[0];
    names[n] = '\0';
    return names;
}

static void found_in_any_order_of_leaving(void **state)
{
    static const int leaves[N] = {2, 0, 4, 3, 1};
    static const char *const left[N] = {"abde", "bde", "bd", "b", ""};
    (void)state;
    for (int i = 0; i < N; i++)
        leased_add(&claims, leased_of(made[i]));
    assert_string_equal(in_order(), "abcde");
    for (int i = 0; i < N; i++) {
        struct leased *leased = leased_of(made[leaves[i]]);
        char message[64];
        snprintf(message, sizeof message, "%s and more", leased->owner);
        assert_ptr_equal(leased_find(&claims, message, 16), leased);
        leased_remove(&claims, leased);
        assert_null(leased_find(&claims, message, 16));
        assert_string_equal(in_order(), left[i]);
    }
    assert_null(claims.newest);
}

static void owner_values_of_users_are_checked(void **state)
{
    static const char *const bad[] = {"", "0123", "0123456789abcdeF", "0123456789abcdef0",
                                      "0123456789abcde "};
    struct stile_error err;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        made[0]->owner = bad[i];
        assert_int_equal(leased_take_owner(made[0], 16, &err), STILE_MISUSE);
    }
    made[0]->owner = "0123456789abcdef";
    assert_int_equal(leased_take_owner(made[0], 16, &err), STILE_OK);
    assert_string_equal(leased_of(made[0])->owner, "0123456789abcdef");
}

/* ---- renewals ---- */

static void each_claim_has_its_answer(void **state)
{
    struct leased_renewal *renewal = leased_renewal_new(&claims, sizeof *renewal, made, N);
    (void)state;
    loop_virtual_advance(engine.loop, NS_PER_SEC); /* sent_ns is from before */
    leased_renewal_answer(renewal, 1, LEASED_GONE, "is gone");
    leased_renewal_answer(renewal, 0, LEASED_RENEWED, NULL);
    leased_renewal_answer(renewal, 0, LEASED_GONE, "is gone"); /* only the first counts */
    leased_leave_renewal(leased_of(made[2]));                  /* released meanwhile */
    leased_renewal_answer(renewal, 2, LEASED_RENEWED, NULL);
    leased_renewal_answer(renewal, 3, LEASED_UNKNOWN, NULL);
    leased_renewal_end(renewal);
    assert_string_equal(heard, "b is gone, a renewed, d unknown, e unknown");
    assert_null(claims.renewals);
    for (int i = 0; i < N; i++)
        assert_null(leased_of(made[i])->renewal);
}

/* A claim may leave when its answer is long there, and the engine's struct with the renewal. */
static void several_are_under_way(void **state)
{
    struct leased_renewal *first = leased_renewal_new(&claims, sizeof *first, made, 2);
    struct leased_renewal *second = leased_renewal_new(&claims, sizeof *second, made + 2, 2);
    struct leased_renewal *third = leased_renewal_new(&claims, sizeof *third, made + 4, 1);
    (void)state;
    leased_renewal_end(second);
    assert_string_equal(heard, "c unknown, d unknown");
    leased_leave_renewal(leased_of(made[2]));
    leased_renewal_answer(first, 1, LEASED_RENEWED, NULL);
    leased_renewal_end(first);
    assert_string_equal(heard, "c unknown, d unknown, b renewed, a unknown");
    assert_ptr_equal(claims.renewals, third); /* freed without an answer at the end */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(found_in_any_order_of_leaving, set_up, tear_down),
        cmocka_unit_test_setup_teardown(owner_values_of_users_are_checked, set_up, tear_down),
        cmocka_unit_test_setup_teardown(each_claim_has_its_answer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(several_are_under_way, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("kit_lease", tests, NULL, NULL);
}
