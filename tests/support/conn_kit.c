/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/conn_kit.h"

#include <stdio.h>

#include "engines/redis/connection.h"

#define WORDS_MAX 16

struct kit kit;

static void maybe_free(const char *event)
{
    if (!kit.free_in || strcmp(kit.free_in, event) != 0)
        return;
    redis_conn_free(kit.conn);
    kit.conn = NULL;
}

static void on_up(struct conn *conn)
{
    assert_ptr_equal(redis_conn_owner(conn), &kit);
    assert_true(redis_conn_is_up(conn));
    kit.up++;
    maybe_free("up");
}

static void on_down(struct conn *conn, const struct stile_error *why)
{
    assert_false(redis_conn_is_up(conn));
    assert_true(why->status != STILE_OK && why->message[0]);
    kit.down++;
    kit.why = *why;
    maybe_free("down");
}

static void on_subscribed(struct conn *conn, const char *channel, size_t len)
{
    size_t used = strlen(kit.heard);

    (void)conn;
    snprintf(kit.heard + used, sizeof kit.heard - used, "+%.*s ", (int)len, channel);
}

static void on_message(struct conn *conn, const char *channel, size_t channel_len,
                       const char *bytes, size_t n)
{
    size_t used = strlen(kit.heard);

    (void)conn;
    snprintf(kit.heard + used, sizeof kit.heard - used, "%.*s=%.*s ", (int)channel_len, channel,
             (int)n, bytes);
    maybe_free("message");
}

static const struct conn_events events = {
    .up = on_up, .down = on_down, .subscribed = on_subscribed, .message = on_message};

void kit_open(void)
{
    memset(&kit, 0, sizeof kit);
    kit.loop = net_loop();
    kit.options.target.host = "127.0.0.1";
}

void kit_close(void)
{
    redis_conn_free(kit.conn);
    assert_int_equal(kit.loop->n_timers, 0);
    assert_int_equal(kit.loop->reserved, 1);
    assert_null(kit.loop->tasks);
    assert_null(kit.loop->senders);
    loop_free(kit.loop);
}

void kit_connect(void)
{
    struct stile_error err;

    assert_status(redis_conn_new(&kit.conn, kit.loop, &kit.options, &events, &kit, &err), OK);
    assert_int_equal(kit.up + kit.down, 0);
}

void kit_connect_up(void)
{
    kit_connect();
    run_until(kit.loop, kit.up);
}

void kit_hear(void *data, const redisReply *reply, const struct stile_error *err)
{
    struct heard *heard = data;

    assert_true(reply || err);
    heard->times++;
    heard->order = ++kit.answers;
    heard->type = reply ? reply->type : 0;
    heard->integer = reply ? reply->integer : 0;
    heard->elements = reply && reply->type == REDIS_REPLY_ARRAY ? reply->elements : 0;
    heard->fault = reply ? redis_error_of(reply) : REDIS_ERROR_NONE;
    if (reply && reply->str)
        snprintf(heard->text, sizeof heard->text, "%s", reply->str);
    if (err)
        heard->err = *err;
    maybe_free("reply");
}

void kit_ask(struct heard *heard, const char *words)
{
    struct conn_arg args[WORDS_MAX];
    struct stile_error err;
    size_t n = 0;

    memset(heard, 0, sizeof *heard);
    for (const char *at = words; *at && n < WORDS_MAX; at += strspn(at, " ")) {
        args[n] = (struct conn_arg){at, strcspn(at, " ")};
        at += args[n++].len;
    }
    assert_status(redis_conn_send(kit.conn, args, n, kit_hear, heard, &err), OK);
    assert_int_equal(heard->times, 0);
}

void kit_ask_and_wait(struct heard *heard, const char *words)
{
    kit_ask(heard, words);
    run_until(kit.loop, heard->times);
}

#define SCRIPT(name, text, hash)                                                                   \
    const struct lua name = {.source = (text), .len = sizeof(text) - 1, .sha1 = (hash)}

SCRIPT(kit_one, "return 1", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
SCRIPT(kit_two, "return 2", "7f923f79fe76194c868d7e1d0820de36700eb649");
SCRIPT(kit_get, "return redis.call('GET', KEYS[1])", "d3c21d0c2b9ca22f82737626a27bcaf5d288f99f");
SCRIPT(kit_incr, "return redis.call('INCR', KEYS[1])", "61636018f4e6b5817b89791bbed242f93fa089e3");
SCRIPT(kit_endless, "while true do end", "694a5fe1ddb97a4c6a1bf299d9537c7d3d0f84e7");

void kit_eval(struct heard *heard, const struct lua *lua, const char *key)
{
    struct conn_arg args[] = {CONN_TEXT(key)};
    struct stile_error err;

    memset(heard, 0, sizeof *heard);
    assert_status(redis_conn_eval(kit.conn, lua, args, 1, 1, kit_hear, heard, &err), OK);
    assert_int_equal(heard->times, 0);
}

void kit_grow_late(void)
{
    for (struct link_request *r = kit.conn->link.sent.first; r; r = r->next)
        r->until_ns = loop_now(kit.loop);
    kit.conn->link.answered_ns = 0;
    loop_arm(kit.loop, &kit.conn->link.overdue, loop_now(kit.loop));
}
