/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* How a connection to etcd ends: by bytes that should not be, by silence, because its member goes
 * away, or freed from where it may be. */
#include "unit/etcd_conn_kit.h"

#include <stdlib.h>

/* ---- bytes that should not be ---- */

static void hung_up_on(struct heard *heard)
{
    run_until(loop, heard->times == 1);
    assert_true(heard->err.status != STILE_OK);
    assert_int_equal(downs, 1);
    assert_false(etcd_conn_is_up(conn));
}

static void a_message_longer_than_allowed(void **state)
{
    struct heard heard = {0}, second = {0};
    (void)state;
    scene_connect();
    scene_ask(&heard);
    scene_ask(&second);
    peer_answer(&peer, scene_arrived(&peer, 0)->id, "\0\0\x40\0\1", 5, -1, "");
    run_until(loop, heard.times == 1);
    assert_status(heard.err.status, UNCERTAIN);
    assert_true(heard_says(&heard, "more than 4 MB"));
    scene_answer(&peer, scene_arrived(&peer, 1));
    run_until(loop, second.times == 1);
    assert_status(second.err.status, OK);
    assert_true(etcd_conn_is_up(conn));
}

static void a_message_that_is_compressed(void **state)
{
    struct heard heard = {0};
    (void)state;
    scene_connect();
    scene_ask(&heard);
    peer_answer(&peer, scene_arrived(&peer, 0)->id, "\1\0\0\0\1x", 6, -1, "");
    hung_up_on(&heard);
}

static void what_answers_is_not_http2(void **state)
{
    static const char *const babble[] = {"HTTP/1.1 400 Bad Request\r\n\r\n", "-ERR unknown\r\n",
                                         "\x15\x03\x01\x00\x02\x02\x46"};
    (void)state;
    scene_start();
    for (size_t i = 0; i < 3; i++) {
        struct heard heard = {0};
        scene_ask(&heard);
        if (conn->link.state == LINK_PAUSED)
            loop_arm(loop, &conn->link.retry, loop_now(loop));
        run_until(loop, conn->link.state != LINK_PAUSED || heard.times);
        if (heard.times) { /* between two attempts it is answered at once */
            i--;
            continue;
        }
        net_settle(loop);
        fake_accept(&peer.fake);
        fake_say(&peer.fake, babble[i]);
        fake_say(&peer.fake, "and more of it, so that a frame's head is there");
        run_until(loop, heard.times == 1);
        assert_status(heard.err.status, REFUSED);
        assert_true(heard_says(&heard, "does not speak gRPC"));
    }
    assert_int_equal(ups, 0);
}

/* ---- a balancer that answers by itself ---- */

static void answer_http(int32_t id, const char *http_status)
{
    nghttp2_nv header = {(uint8_t *)":status", (uint8_t *)http_status, 7, 3, 0};
    assert_int_equal(
        nghttp2_submit_headers(peer.session, NGHTTP2_FLAG_END_STREAM, id, NULL, &header, 1, NULL),
        0);
    peer_take(&peer);
}

/* It may have passed the request on before it lost its server: scene_ask() writes. */
static void what_a_balancer_answers_passes(void **state)
{
    static const char *const passing[] = {"429", "502", "503", "504"};
    (void)state;
    scene_connect();
    for (size_t i = 0; i < 4; i++) {
        struct heard heard = {0};
        scene_ask(&heard);
        answer_http(scene_arrived(&peer, i)->id, passing[i]);
        run_until(loop, heard.times == 1);
        assert_status(heard.err.status, UNCERTAIN);
        assert_true(heard_says(&heard, passing[i]));
        assert_true(etcd_conn_is_up(conn));
    }
}

static void what_is_not_etcd_is_refused_unless_it_was(void **state)
{
    struct heard first = {0}, good = {0}, later = {0};
    (void)state;
    scene_connect();
    scene_ask(&first);
    answer_http(scene_arrived(&peer, 0)->id, "404");
    run_until(loop, first.times == 1);
    assert_status(first.err.status, REFUSED);
    scene_ask(&good);
    scene_answer(&peer, scene_arrived(&peer, 1));
    run_until(loop, good.times == 1);
    scene_ask(&later);
    answer_http(scene_arrived(&peer, 2)->id, "404");
    run_until(loop, later.times == 1);
    assert_status(later.err.status, UNCERTAIN);
}

static void a_503_in_http1_passes(void **state)
{
    struct heard heard = {0};
    (void)state;
    scene_start();
    scene_ask(&heard);
    net_settle(loop);
    fake_accept(&peer.fake);
    fake_say(&peer.fake, "HTTP/1.1 503 Service Unavailable\r\n\r\n");
    run_until(loop, heard.times == 1);
    assert_status(heard.err.status, UNREACHABLE);
    assert_true(heard_says(&heard, "503"));
}

static void headers_without_end(void **state)
{
    struct heard heard = {0};
    static char value[15000];
    (void)state;
    scene_connect();
    scene_ask(&heard);
    int32_t id = scene_arrived(&peer, 0)->id;
    memset(value, 'v', sizeof value);
    nghttp2_nv many[8];
    many[0] = (nghttp2_nv){(uint8_t *)":status", (uint8_t *)"200", 7, 3, 0};
    for (size_t i = 1; i < 8; i++)
        many[i] = (nghttp2_nv){(uint8_t *)"x-long", (uint8_t *)value, 6, sizeof value,
                               NGHTTP2_NV_FLAG_NO_INDEX};
    assert_int_equal(nghttp2_submit_headers(peer.session, 0, id, NULL, many, 8, NULL), 0);
    peer_take(&peer);
    run_until(loop, heard.times == 1);
    assert_status(heard.err.status, UNCERTAIN);
    assert_true(heard_says(&heard, "stream reset"));
    assert_true(etcd_conn_is_up(conn));
}

/* Whatever comes after the SETTINGS: a broken frame at every place of a good conversation. */
static void frames_that_are_damaged(void **state)
{
    unsigned seed = 7;
    (void)state;
    scene_start();
    for (int round = 0; round < 40; round++) {
        struct heard heard = {0};
        uint8_t bytes[200];
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)rand_r(&seed);
        bytes[0] = 0; /* a length that is allowed */
        bytes[1] = (uint8_t)(bytes[1] % 2);
        bytes[3] = (uint8_t)(bytes[3] % 12);
        if (conn->link.state == LINK_PAUSED)
            loop_arm(loop, &conn->link.retry, loop_now(loop));
        run_until(loop, conn->link.state != LINK_PAUSED);
        net_settle(loop);
        peer_accept(&peer);
        unsigned up = ups;
        run_until(loop, ups > up);
        scene_ask(&heard);
        scene_arrived(&peer, 0);
        fake_say_bytes(&peer.fake, bytes, sizeof bytes);
        net_settle(loop);
        peer_hang_up(&peer);
        run_until(loop, heard.times == 1);
        assert_true(heard.err.status != STILE_OK);
    }
}

/* ---- silence and broken connections ---- */

static void what_left_us_and_is_not_answered_is_in_doubt(void **state)
{
    struct heard sent = {0};
    (void)state;
    scene_connect();
    scene_ask(&sent);
    scene_arrived(&peer, 0);
    peer_hang_up(&peer);
    run_until(loop, sent.times == 1);
    assert_status(sent.err.status, UNCERTAIN);
}

static void what_never_left_us_is_not(void **state)
{
    struct heard waiting = {0};
    (void)state;
    scene_start();
    scene_ask(&waiting);
    net_settle(loop);
    fake_accept(&peer.fake); /* it never says its SETTINGS */
    fake_hang_up(&peer.fake);
    run_until(loop, waiting.times == 1);
    assert_status(waiting.err.status, UNREACHABLE);
}

static void nobody_listens(void **state)
{
    struct heard heard = {0};
    (void)state;
    options.endpoints[0].port = other.fake.port;
    fake_free(&other.fake);
    scene_start();
    scene_ask(&heard);
    run_until(loop, heard.times == 1);
    assert_status(heard.err.status, UNREACHABLE);
    peer_listen(&other);
}

static void a_request_is_overdue(void **state)
{
    struct heard late = {0}, quick = {0};
    (void)state;
    scene_connect();
    scene_ask(&late);
    scene_arrived(&peer, 0);
    scene_ask(&quick);
    scene_answer(&peer, scene_arrived(&peer, 1));
    run_until(loop, quick.times == 1);
    conn->link.sent.first->until_ns = loop_now(loop);
    loop_arm(loop, &conn->link.overdue, loop_now(loop));
    run_until(loop, late.times == 1);
    assert_status(late.err.status, UNCERTAIN);
    /* something came since: it is the request, not the member */
    assert_true(etcd_conn_is_up(conn));
    uint64_t end_ns = loop_now(loop) + NET_PATIENCE_NS;
    while (!peer.calls[0].reset && loop_now(loop) < end_ns) {
        net_settle(loop);
        peer_take(&peer);
    }
    assert_true(peer.calls[0].reset);
}

static void a_member_that_is_silent_is_given_up(void **state)
{
    struct heard heard = {0};
    (void)state;
    options.endpoints[1] = (struct conn_endpoint){"127.0.0.1", other.fake.port};
    scene_connect();
    options.n_endpoints = 2;
    conn->options.endpoints[1].host = strdup("127.0.0.1");
    conn->options.endpoints[1].port = other.fake.port;
    conn->options.n_endpoints = 2;
    scene_ask(&heard);
    scene_arrived(&peer, 0);
    net_settle(loop); /* nothing that would count as a sign of life is unread */
    conn->link.sent.first->until_ns = loop_now(loop);
    conn->link.heard_ns = conn->link.sent.first->sent_ns -= conn->link.options.answer_ns;
    loop_arm(loop, &conn->link.overdue, loop_now(loop));
    run_until(loop, heard.times == 1);
    assert_status(heard.err.status, UNCERTAIN);
    peer_accept(&other);
    run_until(loop, ups == 2);
}

/* As after a SIGSTOP: the timer is due, and the reply lies unread in the socket. */
static void a_reply_that_is_unread_is_not_overdue(void **state)
{
    struct heard heard = {0};
    (void)state;
    scene_connect();
    scene_ask(&heard);
    scene_answer(&peer, scene_arrived(&peer, 0));
    conn->link.sent.first->until_ns = loop_now(loop);
    conn->link.heard_ns = conn->link.sent.first->sent_ns -= conn->link.options.answer_ns;
    loop_arm(loop, &conn->link.overdue, loop_now(loop));
    run_until(loop, heard.times == 1);
    assert_status(heard.err.status, OK);
    assert_true(etcd_conn_is_up(conn));
}

/* ---- going away ---- */

static void goaway_lets_what_is_under_way_finish(void **state)
{
    struct heard before = {0}, after = {0};
    (void)state;
    scene_connect();
    scene_ask(&before);
    struct peer_call *call = scene_arrived(&peer, 0);
    conn->link.up_ns = 0; /* it was up for long enough */
    peer_goaway(&peer, call->id);
    run_until(loop, conn->link.state == LINK_LEAVING);
    scene_ask(&after);
    scene_answer(&peer, call);
    run_until(loop, before.times == 1);
    assert_status(before.err.status, OK);
    run_until(loop, downs == 1);
    net_settle(loop);
    peer_accept(&peer);
    scene_answer(&peer, scene_arrived(&peer, 0));
    run_until(loop, after.times == 1);
    assert_status(after.err.status, OK);
}

/* ---- freeing ---- */

static void freed_from_inside_an_answer(void **state)
{
    struct heard first = {.frees = true}, second = {0};
    (void)state;
    scene_connect();
    scene_ask(&first);
    scene_ask(&second);
    scene_arrived(&peer, 1);
    scene_answer(&peer, &peer.calls[0]);
    scene_answer(&peer, &peer.calls[1]);
    run_until(loop, first.times == 1);
    net_settle(loop);
    assert_int_equal(second.times, 0);
}

static void freed_from_inside_a_broken_connection(void **state)
{
    struct heard first = {.frees = true}, second = {0};
    (void)state;
    scene_connect();
    scene_ask(&first);
    scene_ask(&second);
    scene_arrived(&peer, 1);
    peer_hang_up(&peer);
    run_until(loop, first.times == 1);
    net_settle(loop);
    assert_int_equal(second.times, 0);
}

/* A header whose value ends in a space is an error of its stream. The call ends while nghttp2 sends
 * the reset. */
static void answer_with_bad_header(struct h2_peer *at, const struct peer_call *call)
{
    peer_answer(at, call->id, "", 0, 0, "a space at the end ");
}

static void freed_while_a_call_is_reset(void **state)
{
    struct heard first = {.frees = true}, second = {0};
    (void)state;
    scene_connect();
    scene_ask(&first);
    scene_ask(&second);
    scene_arrived(&peer, 1);
    answer_with_bad_header(&peer, &peer.calls[0]);
    run_until(loop, first.times == 1);
    net_settle(loop);
    assert_int_equal(second.times, 0);
}

static void asked_while_a_call_is_reset(void **state)
{
    struct heard second = {0}, first = {.then = &second};
    (void)state;
    scene_connect();
    scene_ask(&first);
    answer_with_bad_header(&peer, scene_arrived(&peer, 0));
    run_until(loop, first.times == 1);
    scene_answer(&peer, scene_arrived(&peer, 1));
    run_until(loop, second.times == 1);
    assert_status(second.err.status, OK);
    assert_int_equal(second.revision, REVISION);
    assert_true(etcd_conn_is_up(conn));
}

static void forgotten_requests_hear_nothing(void **state)
{
    struct heard forgotten = {0}, kept = {0};
    (void)state;
    scene_connect();
    scene_ask(&forgotten);
    scene_ask(&kept);
    etcd_conn_forget(conn, &forgotten);
    scene_arrived(&peer, 1);
    scene_answer(&peer, &peer.calls[0]);
    scene_answer(&peer, &peer.calls[1]);
    run_until(loop, kept.times == 1);
    assert_int_equal(forgotten.times, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_open, scene_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_message_longer_than_allowed),
        TEST(a_message_that_is_compressed),
        TEST(what_answers_is_not_http2),
        TEST(what_a_balancer_answers_passes),
        TEST(what_is_not_etcd_is_refused_unless_it_was),
        TEST(a_503_in_http1_passes),
        TEST(headers_without_end),
        TEST(frames_that_are_damaged),
        TEST(what_left_us_and_is_not_answered_is_in_doubt),
        TEST(what_never_left_us_is_not),
        TEST(nobody_listens),
        TEST(a_request_is_overdue),
        TEST(a_reply_that_is_unread_is_not_overdue),
        TEST(a_member_that_is_silent_is_given_up),
        TEST(goaway_lets_what_is_under_way_finish),
        TEST(freed_from_inside_an_answer),
        TEST(freed_from_inside_a_broken_connection),
        TEST(freed_while_a_call_is_reset),
        TEST(asked_while_a_call_is_reset),
        TEST(forgotten_requests_hear_nothing),
    };
    return cmocka_run_group_tests_name("etcd_conn_end", tests, NULL, NULL);
}
