/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Watches that idle, and are used again. */
#include "engines/etcd/watch.h"

#include "engines/etcd/etcd.h"
#include "unit/etcd_conn_kit.h"

static struct etcd etcd;

static int open_all(void **state)
{
    scene_open(state);
    scene_start(); /* it never comes up: nothing is sent */
    etcd = (struct etcd){.engine.loop = loop, .conn = conn};
    assert_int_equal(loop_reserve(loop, 2), 0);
    etcd_watches_init(&etcd);
    return 0;
}

static int close_all(void **state)
{
    etcd_watches_close(&etcd);
    loop_unreserve(loop, 2);
    return scene_close(state);
}

static struct key key_of(const char *text)
{
    struct key key = {.len = strlen(text)};
    memcpy(key.bytes, text, key.len);
    return key;
}

static void ignore(struct key_watch *watch, const Etcd__KeyValue *kv, bool deleted)
{
    (void)watch, (void)kv, (void)deleted;
}

static void start(struct key_watch *watch, const char *text)
{
    struct key key = key_of(text);
    *watch = (struct key_watch){.fn = ignore};
    assert_status(etcd_watch_start(&etcd, watch, &key, NULL, 1, NULL), OK);
}

static bool reuse(struct key_watch *watch, const char *text)
{
    struct key name = key_of("x/"), key = key_of(text);
    *watch = (struct key_watch){.fn = ignore};
    return etcd_watch_reuse(&etcd, watch, &name, &key);
}

/* How many are on the lists, each with the address that leads to it. */
static size_t listed(void)
{
    size_t n = 0;
    for (size_t i = 0; i < WATCH_BUCKETS; i++) {
        for (struct key_watch *w = etcd.watches[i]; w; w = w->next) {
            assert_ptr_equal(*w->link, w);
            assert_true(w->id != 0);
            n++;
        }
    }
    return n;
}

static void an_idle_watch_is_used_again(void **state)
{
    struct key_watch first, second;
    (void)state;
    start(&first, "x/1");
    etcd_watch_idle(&etcd, &first);
    assert_int_equal(listed(), 1);
    assert_true(reuse(&second, "x/1"));
    assert_int_equal(listed(), 1);
    etcd_watch_stop(&etcd, &second);
    assert_int_equal(listed(), 0);
}

/* Two readers of one client waited for the same writer. */
static void two_idle_watches_of_one_key(void **state)
{
    struct key_watch first, second, third;
    (void)state;
    start(&first, "x/1");
    start(&second, "x/1");
    etcd_watch_idle(&etcd, &first);
    etcd_watch_idle(&etcd, &second);
    assert_int_equal(listed(), 2);
    assert_true(reuse(&third, "x/1"));
    assert_int_equal(listed(), 1);
    etcd_watch_stop(&etcd, &third);
    assert_int_equal(listed(), 0);
}

static void idle_watches_of_other_keys_of_the_name_go(void **state)
{
    struct key_watch first, second, third;
    (void)state;
    start(&first, "x/1");
    start(&second, "y/1");
    etcd_watch_idle(&etcd, &first);
    etcd_watch_idle(&etcd, &second);
    assert_false(reuse(&third, "x/2"));
    assert_int_equal(listed(), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_idle_watch_is_used_again, open_all, close_all),
        cmocka_unit_test_setup_teardown(two_idle_watches_of_one_key, open_all, close_all),
        cmocka_unit_test_setup_teardown(idle_watches_of_other_keys_of_the_name_go, open_all,
                                        close_all),
    };
    return cmocka_run_group_tests_name("etcd-watch", tests, NULL, NULL);
}
