/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Slots of a Redis Cluster, compared with what a server says of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/name.h"
#include "engines/redis/keys.h"
#include "engines/redis/redis.h"
#include "servers/redis_server.h"
#include "support/conn_kit.h"

static struct redis_server server;

static int set_up(void **state)
{
    static const char *const args[] = {"--cluster-enabled", "yes", "--cluster-port", "@TLS@", NULL};

    (void)state;
    redis_server_start(&server, args);
    kit_open();
    kit.options.target.port = server.port;
    kit_connect_up();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    kit_close();
    redis_server_stop(&server);
    return 0;
}

static int ask_slot(const char *key, size_t len)
{
    struct heard heard = {0};
    struct conn_arg args[] = {CONN_TEXT("CLUSTER"), CONN_TEXT("KEYSLOT"), {key, len}};

    assert_int_equal(redis_conn_send(kit.conn, args, 3, kit_hear, &heard, NULL), STILE_OK);
    run_until(kit.loop, heard.times);
    assert_int_equal(heard.type, REDIS_REPLY_INTEGER);
    return (int)heard.integer;
}

static const char *const names[] = {
    "a",   "123456789", "{a}",       "a{b}c",  "{}",  "{}a",       "a{}{b}", "{a}{b}",  "}",
    "a}",  "}{",        "}a{b}",     "{",      "a{b", "{{a}}",     "a{{}",   "{{}",     "{a",
    "a{}", "x}y}z",     "{\xff\xfe", "a b~c}", "{}}", "{a}:fence", "{a}:by", "}:fence", "{}:by",
};

static void the_server_says_the_same(void **state)
{
    char key[] = "a slot for each of them: 0000";

    (void)state;
    assert_int_equal(redis_slot_of("123456789", 9), 0x31c3);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(redis_slot_of(names[i], strlen(names[i])),
                         ask_slot(names[i], strlen(names[i])));
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(key + sizeof key - 5, 5, "%04u", i);
        assert_int_equal(redis_slot_of(key, strlen(key)), ask_slot(key, strlen(key)));
    }
}

static void every_slot_has_a_text(void **state)
{
    (void)state;
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        char text[SLOT_TEXT + 1] = {0};
        redis_slot_text(text, (uint16_t)slot);
        assert_int_equal(strlen(text), SLOT_TEXT);
        assert_int_equal(redis_slot_of(text, SLOT_TEXT), slot);
    }
}

static const char *const prefixes[] = {"lock:", "", "{app}:", "{}", "}", "a}b{", "stile:", "{a}"};

static void keys_of_a_name_share_its_slot(void **state)
{
    static char room[KEYS_ROOM_MAX];
    static struct redis redis = {.cluster = (struct cluster *)&redis};

    (void)state;
    for (size_t p = 0; p < sizeof prefixes / sizeof *prefixes; p++) {
        strcpy(redis.prefix, prefixes[p]);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            struct conn_arg keys[LOSS_KEYS];
            char *end = redis_keys_write(keys, room, &redis, names[i], strlen(names[i]));
            assert_true(end <= room + redis_keys_room(&redis, strlen(names[i])));
            int slot = ask_slot(keys[0].bytes, keys[0].len);
            assert_false(redis_key_is_derived(keys[0].bytes, keys[0].len));
            for (size_t k = 1; k < LOSS_KEYS; k++) {
                assert_int_equal(ask_slot(keys[k].bytes, keys[k].len), slot);
                assert_true(redis_key_is_derived(keys[k].bytes, keys[k].len));
            }
        }
    }
}

/* ---- names that want to be taken for others' keys ---- */

#define PARTS_MAX 4
#define HOSTILE   40000
#define KEYS_SEEN (HOSTILE * LOSS_KEYS)

static const char *const parts[] = {"{",     "}",       "x",     ":",     "a",      ":queue",
                                    ":by",   ":fence",  "{x}",   "queue", "{x}:by", "stile",
                                    "token", "lock:",   "{app}", ":info", "client", "~gap",
                                    "\xc3",  "members", "by",    "gap",   "{lock:", "lock:x}",
                                    "{}",    " ",       "/",     "\\x1f", "stile:", "info"};

struct seen {
    char *key;
    size_t len, of; /* K it belongs to */
};

static int by_bytes(const void *a, const void *b)
{
    const struct seen *x = a, *y = b;
    size_t len = x->len < y->len ? x->len : y->len;
    int order = memcmp(x->key, y->key, len);
    return order ? order : (x->len > y->len) - (x->len < y->len);
}

static void draw_name(char name[128], unsigned *random)
{
    unsigned n = 1 + (*random >> 8) % PARTS_MAX;
    name[0] = '\0';
    for (; n > 0; n--) {
        *random = *random * 1103515245u + 12345u;
        strcat(name, parts[(*random >> 12) % (sizeof parts / sizeof *parts)]);
    }
}

/* The keys of this name, but for the counter, which all share. */
static size_t add_keys(struct seen *seen, const struct redis *redis, const char *name, size_t of)
{
    static char room[KEYS_ROOM_MAX];
    struct conn_arg keys[LOSS_KEYS];
    size_t n = 0;
    redis_keys_write(keys, room, redis, name, strlen(name));
    for (size_t k = 0; k < LOSS_KEYS; k++) {
        if (k == TAKE_KEYS - 1)
            continue;
        seen[n] = (struct seen){malloc(keys[k].len), keys[k].len, of};
        assert_non_null(seen[n].key);
        memcpy(seen[n++].key, keys[k].bytes, keys[k].len);
    }
    return n;
}

/* The same K means the same lock, by whichever prefix and name. */
static void check_apart(struct seen *seen, size_t n)
{
    qsort(seen, n, sizeof *seen, by_bytes);
    for (size_t i = 1; i < n; i++) {
        if (by_bytes(&seen[i - 1], &seen[i]) == 0 && seen[i - 1].of != seen[i].of)
            fail_msg("'%.*s' belongs to two locks", (int)seen[i].len, seen[i].key);
    }
    for (size_t i = 0; i < n; i++)
        free(seen[i].key);
}

static uint64_t hash_of(const char *prefix, const char *name)
{
    char key[PREFIX_MAX + 128];
    strcat(strcpy(key, prefix), name);
    return name_hash(key, strlen(key));
}

static void no_two_locks_have_a_key_in_common(void **state)
{
    static struct seen seen[KEYS_SEEN];
    static struct redis redis;
    char name[128];
    unsigned random = 1;
    size_t n = 0;

    (void)state;
    for (unsigned i = 0; i < HOSTILE; i++) {
        strcpy(redis.prefix, prefixes[i % (sizeof prefixes / sizeof *prefixes)]);
        draw_name(name, &random);
        n += add_keys(seen + n, &redis, name, hash_of(redis.prefix, name));
    }
    check_apart(seen, n);
}

static void the_counter_is_no_name(void **state)
{
    static char room[KEYS_ROOM_MAX];
    static struct redis redis;
    struct conn_arg keys[LOSS_KEYS];

    (void)state;
    redis_keys_write(keys, room, &redis, "stile:token", strlen("stile:token"));
    assert_true(memchr(keys[TAKE_KEYS - 1].bytes, KEY_MARK[0], keys[TAKE_KEYS - 1].len));
    assert_false(memchr(keys[0].bytes, KEY_MARK[0], keys[0].len));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_server_says_the_same),
        cmocka_unit_test(every_slot_has_a_text),
        cmocka_unit_test(keys_of_a_name_share_its_slot),
        cmocka_unit_test(no_two_locks_have_a_key_in_common),
        cmocka_unit_test(the_counter_is_no_name),
    };

    return cmocka_run_group_tests_name("redis-slot", tests, set_up, tear_down);
}
