/* Slots of a Redis Cluster, compared with what a server says of them. */
#include <stdio.h>
#include <string.h>

#include "engines/redis/redis.h"
#include "engines/redis/slot.h"
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

    assert_int_equal(conn_send(kit.conn, args, 3, kit_hear, &heard, NULL), STILE_OK);
    run_until(kit.loop, heard.times);
    assert_int_equal(heard.type, REDIS_REPLY_INTEGER);
    return (int)heard.integer;
}

static const char *const names[] = {
    "a",   "123456789", "{a}",       "a{b}c",   "{}",  "{}a",       "a{}{b}", "{a}{b}",  "}",
    "a}",  "}{",        "}a{b}",     "{",       "a{b", "{{a}}",     "a{{}",   "{{}",     "{a",
    "a{}", "x}y}z",     "{\xff\x01", "a b\tc}", "{}}", "{a}:fence", "{a}:by", "}:fence", "{}:by",
};

static void the_server_says_the_same(void **state)
{
    char key[] = "a slot for each of them: 0000";

    (void)state;
    assert_int_equal(slot_of("123456789", 9), 0x31c3);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(slot_of(names[i], strlen(names[i])), ask_slot(names[i], strlen(names[i])));
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(key + sizeof key - 5, 5, "%04u", i);
        assert_int_equal(slot_of(key, strlen(key)), ask_slot(key, strlen(key)));
    }
}

static void every_slot_has_a_text(void **state)
{
    (void)state;
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        char text[SLOT_TEXT + 1] = {0};
        slot_text(text, (uint16_t)slot);
        assert_int_equal(strlen(text), SLOT_TEXT);
        assert_int_equal(slot_of(text, SLOT_TEXT), slot);
    }
}

/* And no two names have a key in common. */
static void keys_of_a_name_share_its_slot(void **state)
{
    static const char *const prefixes[] = {"lock:", "", "{app}:", "{}", "}", "a}b{"};
    static char rooms[sizeof names / sizeof *names][KEYS_ROOM_MAX];
    static struct redis redis;

    (void)state;
    for (size_t p = 0; p < sizeof prefixes / sizeof *prefixes; p++) {
        strcpy(redis.prefix, prefixes[p]);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            struct conn_arg keys[SCRIPT_KEYS];
            char *end = keys_write(keys, rooms[i], &redis, names[i], strlen(names[i]));
            assert_true(end <= rooms[i] + keys_room(&redis, strlen(names[i])));
            int slot = ask_slot(keys[0].bytes, keys[0].len);
            for (size_t k = 1; k < SCRIPT_KEYS; k++) {
                assert_int_equal(ask_slot(keys[k].bytes, keys[k].len), slot);
                assert_true(key_is_derived(&redis, keys[k].bytes, keys[k].len));
            }
            if (p != 1) /* without a prefix a name may look like anything */
                assert_false(key_is_derived(&redis, keys[0].bytes, keys[0].len));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_server_says_the_same),
        cmocka_unit_test(every_slot_has_a_text),
        cmocka_unit_test(keys_of_a_name_share_its_slot),
    };

    return cmocka_run_group_tests_name("redis-slot", tests, set_up, tear_down);
}
