/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/container.h"
#include "base/hash.h"
#include "base/text.h"

static void hex_is_lower_case_and_ended(void **state)
{
    char out[7] = "??????";

    (void)state;
    hex_encode(out, "\x00\x9f\xff", 3);
    assert_string_equal(out, "009fff");
    hex_encode(out, "", 0);
    assert_string_equal(out, "");
}

static void texts_are_packed_one_behind_the_other(void **state)
{
    char room[16], *at = room;

    (void)state;
    assert_int_equal(text_size("one") + text_size(NULL) + text_size(""), 5);
    assert_string_equal(text_pack(&at, "one"), "one");
    assert_null(text_pack(&at, NULL));
    assert_string_equal(text_pack(&at, ""), "");
    assert_ptr_equal(at, room + 5);
}

/* The published vector of FNV-1a. */
static void fnv_is_fnv_1a(void **state)
{
    (void)state;
    assert_true(fnv_add(FNV_START, "foobar", 6) == UINT64_C(0x85944171f73967e8));
    assert_true(fnv_add(fnv_add(FNV_START, "foo", 3), "bar", 3) == UINT64_C(0x85944171f73967e8));
}

static void a_member_leads_to_its_struct(void **state)
{
    struct box {
        int before, member;
    } box;

    (void)state;
    assert_ptr_equal(container_of(&box.member, struct box, member), &box);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hex_is_lower_case_and_ended),
        cmocka_unit_test(texts_are_packed_one_behind_the_other),
        cmocka_unit_test(fnv_is_fnv_1a),
        cmocka_unit_test(a_member_leads_to_its_struct),
    };

    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
