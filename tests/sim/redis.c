/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated Redis beside a real one: the same random commands get the same answers, sent by
 * themselves and from a script. */
#include "sim/redis_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <hiredis/hiredis.h>

#include "servers/redis_server.h"

#define ROUNDS   40000
#define ARGS_MAX 12
#define SLACK_MS 60000 /* times to live differ by what passes meanwhile */

static struct redis_server real;
static redisContext *context;
static struct server *simulated;
static struct random dice;

struct command {
    const char *words[ARGS_MAX];
    size_t n;
};

static int set_up(void **state)
{
    (void)state;
    redis_server_start(&real, NULL);
    context = redisConnect("127.0.0.1", real.port);
    assert_non_null(context);
    world_begin(1, NULL);
    net_begin();
    simulated = sim_redis_new("n1");
    net_add(simulated);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sim_redis_dispose(simulated);
    sim_redis_finish();
    world_end();
    redisFree(context);
    redis_server_stop(&real);
    return 0;
}

/* ---- random commands ---- */

static const char *one_of(const char *const *texts, size_t n)
{
    return texts[random_below(&dice, n)];
}

#define ONE_OF(...)                                                                                \
    one_of((const char *const[]){__VA_ARGS__},                                                     \
           sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

/* In the shapes: k a key, v a value, f a field or member, s a score, i an index, t a time to live;
 * anything else is the word itself. */
static const char *const shapes[] = {
    "DEL k",
    "DEL k k",
    "EXISTS k k",
    "GET k",
    "STRLEN k",
    "SET k v",
    "SET k v NX PX t",
    "SET k v XX",
    "SET k v PX t",
    "PSETEX k t v",
    "INCR k",
    "PTTL k",
    "PEXPIRE k t",
    "PEXPIRE k 0",
    "PEXPIRE k -1",
    "PEXPIREAT k 4102444800000",
    "PEXPIREAT k 1",
    "PERSIST k",
    "HGET k f",
    "HMGET k f f",
    "HSET k f v",
    "HSET k f v f v",
    "HSETNX k f v",
    "HINCRBY k f i",
    "HDEL k f",
    "HDEL k f f",
    "ZADD k s f",
    "ZADD k NX s f",
    "ZADD k NX s f s f",
    "ZCARD k",
    "ZSCORE k f",
    "ZRANK k f",
    "ZRANGE k i i",
    "ZRANGE k i i WITHSCORES",
    "ZREVRANGE k i i WITHSCORES",
    "ZRANGEBYSCORE k -inf s",
    "ZRANGEBYSCORE k s +inf",
    "ZREM k f",
    "ZPOPMIN k",
    "LPUSH k f",
    "RPUSH k f",
    "LPOP k",
    "LINDEX k i",
    "LPOS k f",
    "LRANGE k i i",
    "LREM k 1 f",
    "PUBLISH k v",
    "SET k v PX nonsense",
    "PEXPIRE k nonsense",
    "PEXPIREAT k nonsense",
    "ZADD k nonsense f",
};

static const char *fill(const char *word)
{
    if (strcmp(word, "k") == 0)
        return ONE_OF("a", "b", "c", "d", "e", "f");
    if (strcmp(word, "v") == 0)
        return ONE_OF("", "0", "17", "-3", "text", "two words", "1.5", "99999999999999999999");
    if (strcmp(word, "f") == 0)
        return ONE_OF("m", "n", "o", "p", "q", "~gap");
    if (strcmp(word, "s") == 0)
        return ONE_OF("0", "1", "-1", "2.5", "1700000000000000", "1700000000000001");
    if (strcmp(word, "i") == 0)
        return ONE_OF("0", "1", "2", "-1", "-2", "5");
    if (strcmp(word, "t") == 0)
        return ONE_OF("600000", "1000000", "3600000", "2592000000");
    return word;
}

static void draw(struct command *command)
{
    static char text[64];
    snprintf(text, sizeof text, "%s", one_of(shapes, sizeof shapes / sizeof *shapes));
    command->n = 0;
    for (char *rest = text, *word; (word = strsep(&rest, " ")) != NULL;)
        command->words[command->n++] = fill(word);
}

/* ---- comparing ---- */

static bool is_time_to_live(const struct command *command)
{
    return strcmp(command->words[0], "PTTL") == 0;
}

/* Of an error, its first word counts. */
static bool same_text(const redisReply *a, const redisReply *b)
{
    if (a->type == REDIS_REPLY_ERROR)
        return strcspn(a->str, " ") == strcspn(b->str, " ") &&
               strncmp(a->str, b->str, strcspn(a->str, " ")) == 0;
    return a->len == b->len && memcmp(a->str, b->str, (size_t)a->len) == 0;
}

static bool same_reply(const redisReply *a, const redisReply *b, long long slack)
{
    if (a->type != b->type)
        return false;
    if (a->type == REDIS_REPLY_INTEGER)
        return llabs(a->integer - b->integer) <= (a->integer > 0 ? slack : 0);
    if (a->type == REDIS_REPLY_ARRAY) {
        bool same = a->elements == b->elements;
        for (size_t i = 0; same && i < a->elements; i++)
            same = same_reply(a->element[i], b->element[i], slack);
        return same;
    }
    return a->type == REDIS_REPLY_NIL || same_text(a, b);
}

static redisReply *ask_simulated(const char *const *words, size_t n)
{
    struct bytes args[ARGS_MAX + 4];
    struct buffer out = {0};
    void *reply = NULL;
    for (size_t i = 0; i < n; i++)
        args[i] = (struct bytes){words[i], strlen(words[i])};
    sim_redis_execute(simulated, args, n, &out);
    redisReader *reader = redisReaderCreate();
    redisReaderFeed(reader, buffer_at(&out), buffer_len(&out));
    assert_int_equal(redisReaderGetReply(reader, &reply), REDIS_OK);
    redisReaderFree(reader);
    buffer_free(&out);
    assert_non_null(reply);
    return reply;
}

static void compare(const char *const *words, size_t n, const struct command *command)
{
    redisReply *theirs = redisCommandArgv(context, (int)n, (const char **)words, NULL);
    redisReply *ours = ask_simulated(words, n);
    assert_non_null(theirs);
    if (!same_reply(theirs, ours, is_time_to_live(command) ? SLACK_MS : 0)) {
        for (size_t i = 0; i < command->n; i++)
            fprintf(stderr, "%s ", command->words[i]);
        fail_msg("types %d and %d, %s and %s, %lld and %lld", theirs->type, ours->type,
                 theirs->str != NULL ? theirs->str : "-", ours->str != NULL ? ours->str : "-",
                 theirs->integer, ours->integer);
    }
    freeReplyObject(theirs);
    freeReplyObject(ours);
}

/* ---- clocks ---- */

static redisReply *both(redisReply **theirs, const char *line)
{
    char text[64];
    const char *words[ARGS_MAX];
    size_t n = 0;
    snprintf(text, sizeof text, "%s", line);
    for (char *rest = text, *word; (word = strsep(&rest, " ")) != NULL;)
        words[n++] = word;
    *theirs = redisCommandArgv(context, (int)n, words, NULL);
    assert_non_null(*theirs);
    return ask_simulated(words, n);
}

static long long number_of(const char *line)
{
    redisReply *theirs, *ours = both(&theirs, line);
    assert_int_equal(theirs->type, REDIS_REPLY_INTEGER);
    assert_int_equal(ours->type, REDIS_REPLY_INTEGER);
    long long number = theirs->integer;
    assert_int_equal(ours->integer, number);
    freeReplyObject(theirs);
    freeReplyObject(ours);
    return number;
}

static long long us_of(const redisReply *reply)
{
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    assert_int_equal(reply->elements, 2);
    return atoll(reply->element[0]->str) * 1000000 + atoll(reply->element[1]->str);
}

/* Returns by how many microseconds the real clock is ahead. */
static long long ahead(void)
{
    redisReply *theirs, *ours = both(&theirs, "TIME");
    long long us = us_of(theirs) - us_of(ours);
    freeReplyObject(theirs);
    freeReplyObject(ours);
    return us;
}

/* So that both mean the same by an absolute time. */
static void set_clock(void)
{
    simulated->clock_us += ahead();
    assert_true(llabs(ahead()) < SLACK_MS * 1000LL);
}

/* ---- tests ---- */

static void same_answers(void **state)
{
    (void)state;
    set_clock();
    dice = random_stream(1, 5);
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct command command;
        draw(&command);
        compare(command.words, command.n, &command);
    }
}

static void same_answers_to_scripts(void **state)
{
    (void)state;
    set_clock();
    dice = random_stream(2, 5);
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct command command;
        const char *words[ARGS_MAX + 3] = {
            "EVAL",
            ONE_OF("return redis.call(unpack(ARGV))",
                   "return {redis.pcall(unpack(ARGV)), 1.9, true, 'x', false, 'not reached'}",
                   "local r = redis.pcall(unpack(ARGV)) "
                   "if type(r) == 'table' and r.err then return redis.error_reply('MINE x') end "
                   "return {type(r), r}"),
            "0"};
        draw(&command);
        memcpy(words + 3, command.words, command.n * sizeof *words);
        compare(words, command.n + 3, &command);
    }
}

static void keys_end(void **state)
{
    (void)state;
    static const char *const made[] = {"SET a 1 PX 30", "PSETEX b 30 1", "HSET c m 1",
                                       "RPUSH d m",     "ZADD e 1 m",    "SET f 1"};
    redisReply *theirs;
    freeReplyObject(both(&theirs, "FLUSHALL"));
    freeReplyObject(theirs);
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        freeReplyObject(both(&theirs, made[i]));
        freeReplyObject(theirs);
    }
    for (const char *const *line =
             (const char *const[]){"PEXPIRE c 30", "PEXPIRE d 30", "PEXPIRE e 30", NULL};
         *line != NULL; line++)
        assert_int_equal(number_of(*line), 1);
    redisReply *left;
    do {
        left = redisCommand(context, "EXISTS a b c d e f");
        assert_non_null(left);
    } while (left->integer > 1 && (freeReplyObject(left), true));
    freeReplyObject(left);
    world_run(world_now() + 31 * MS);
    assert_int_equal(number_of("EXISTS a b c d e f"), 1);
    assert_int_equal(number_of("PTTL f"), -1);
    assert_int_equal(number_of("PTTL a"), -2);
    assert_int_equal(number_of("INCR a"), 1); /* it is another key */
    assert_int_equal(number_of("RPUSH c m"), 1);
    assert_int_equal(number_of("PTTL c"), -1);
}

static int by_text(const void *a, const void *b)
{
    return strcmp((*(redisReply *const *)a)->str, (*(redisReply *const *)b)->str);
}

static void the_same_keys(void **state)
{
    (void)state;
    set_clock();
    dice = random_stream(3, 5);
    for (unsigned i = 0; i < 200; i++) {
        struct command command;
        draw(&command);
        compare(command.words, command.n, &command);
    }
    redisReply *theirs, *ours = both(&theirs, "SCAN 0 MATCH [a-e] COUNT 256");
    redisReply *a = theirs->element[1], *b = ours->element[1];
    assert_int_equal(a->elements, b->elements);
    assert_true(a->elements > 0);
    qsort(a->element, a->elements, sizeof(redisReply *), by_text);
    qsort(b->element, b->elements, sizeof(redisReply *), by_text);
    assert_true(same_reply(a, b, 0));
    assert_string_equal(theirs->element[0]->str, ours->element[0]->str);
    freeReplyObject(theirs);
    freeReplyObject(ours);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(same_answers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(same_answers_to_scripts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(keys_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_same_keys, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("sim-redis", tests, NULL, NULL);
}
