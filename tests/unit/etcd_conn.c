/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The connection to etcd against a peer that does what the test says: requests, their answers,
 * logins and streams. Against real members: the contract suite and fault/etcd.py. */
#include "support/scarcity.h"
#include "unit/etcd_conn_kit.h"

/* ---- requests ---- */

static void a_request_is_answered(void **state)
{
    struct heard heard = {0};
    (void)state;
    scene_connect();
    scene_ask(&heard);
    struct peer_call *call = scene_arrived(&peer, 0);
    assert_string_equal(call->path, "/etcdserverpb.KV/Txn");
    assert_string_equal(call->token, "");
    assert_int_equal(call->n, 5); /* an empty message */
    scene_answer(&peer, call);
    run_until(loop, heard.times == 1);
    assert_status(heard.err.status, OK);
    assert_int_equal(heard.revision, REVISION);
}

static void requests_wait_for_the_connection(void **state)
{
    struct heard heard = {0};
    (void)state;
    scene_start();
    scene_ask(&heard);
    net_settle(loop);
    peer_accept(&peer);
    scene_answer(&peer, scene_arrived(&peer, 0));
    run_until(loop, heard.times == 1);
    assert_int_equal(heard.revision, REVISION);
}

static void many_are_under_way_and_answered_in_any_order(void **state)
{
    struct heard heard[20] = {{0}};
    (void)state;
    scene_connect();
    for (size_t i = 0; i < 20; i++)
        scene_ask(&heard[i]);
    scene_arrived(&peer, 19);
    for (size_t i = 20; i-- > 0;)
        scene_answer(&peer, &peer.calls[i]);
    for (size_t i = 0; i < 20; i++)
        run_until(loop, heard[i].times == 1 && heard[i].revision == REVISION);
}

static void an_answer_in_pieces(void **state)
{
    struct heard heard = {0};
    uint8_t message[64], body[80];
    (void)state;
    scene_connect();
    scene_ask(&heard);
    int32_t id = scene_arrived(&peer, 0)->id;
    size_t n = scene_pack_answer(message);
    memcpy(body, (uint8_t[]){0, 0, 0, 0, (uint8_t)n}, 5);
    memcpy(body + 5, message, n);
    peer_answer(&peer, id, body, 1, -1, "");
    for (size_t i = 1; i < n + 5; i++) {
        net_settle(loop);
        peer_more(&peer, id, body + i, 1);
    }
    assert_int_equal(heard.times, 0);
    nghttp2_nv end = {(uint8_t *)"grpc-status", (uint8_t *)"0", 11, 1, 0};
    nghttp2_submit_trailer(peer.session, id, &end, 1);
    peer_take(&peer);
    run_until(loop, heard.times == 1);
    assert_int_equal(heard.revision, REVISION);
}

/* ---- errors that the peer reports ---- */

static void errors_are_explained(void **state)
{
    static const struct {
        int code;
        const char *words;
        enum stile_status status;
        const char *sentence;
    } cases[] = {
        {14, "etcdserver: no leader", STILE_UNREACHABLE, "no leader"},
        {14, "etcdserver: request timed out", STILE_UNCERTAIN, "in time"},
        {8, "etcdserver: mvcc: database space exceeded", STILE_REFUSED, "alarm disarm"},
        {5, "etcdserver: requested lease not found", STILE_LOST, "lease"},
        {7, "etcdserver: permission denied", STILE_REFUSED, "roles"},
        {12, "unknown service", STILE_REFUSED, "unknown service"},
        {2, "something%0Aelse", STILE_UNCERTAIN, "something?else"},
        {13, "", STILE_UNCERTAIN, "the server says"},
    };
    (void)state;
    scene_connect();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct heard heard = {0};
        scene_ask(&heard);
        peer_answer(&peer, scene_arrived(&peer, i)->id, NULL, 0, cases[i].code, cases[i].words);
        run_until(loop, heard.times == 1);
        assert_string_equal(stile_status_name(heard.err.status),
                            stile_status_name(cases[i].status));
        assert_true(heard_says(&heard, cases[i].sentence));
    }
}

static void an_answer_that_is_no_message(void **state)
{
    struct heard damaged = {0}, none = {0};
    (void)state;
    scene_connect();
    scene_ask(&damaged);
    peer_answer_message(&peer, scene_arrived(&peer, 0)->id, "\xff\xff\xff\xff", 4);
    run_until(loop, damaged.times == 1);
    assert_status(damaged.err.status, UNCERTAIN);
    scene_ask(&none);
    peer_answer(&peer, scene_arrived(&peer, 1)->id, NULL, 0, 0, "");
    run_until(loop, none.times == 1);
    assert_status(none.err.status, UNCERTAIN);
}

static void a_request_that_is_refused_was_not_looked_at(void **state)
{
    struct heard refused = {0}, reset = {0};
    (void)state;
    scene_connect();
    scene_ask(&refused);
    peer_reset(&peer, scene_arrived(&peer, 0)->id, NGHTTP2_REFUSED_STREAM);
    run_until(loop, refused.times == 1);
    assert_status(refused.err.status, UNREACHABLE);
    scene_ask(&reset);
    peer_reset(&peer, scene_arrived(&peer, 1)->id, NGHTTP2_INTERNAL_ERROR);
    run_until(loop, reset.times == 1);
    assert_status(reset.err.status, UNCERTAIN);
}

/* ---- logins ---- */

static void say_token(struct h2_peer *at, const struct peer_call *call, const char *token)
{
    uint8_t bytes[64];
    Etcd__AuthenticateResponse login = ETCD__AUTHENTICATE_RESPONSE__INIT;
    assert_string_equal(call->path, "/etcdserverpb.Auth/Authenticate");
    login.token = (char *)token;
    peer_answer_message(at, call->id, bytes, etcd__authenticate_response__pack(&login, bytes));
}

static void log_in(const char *token)
{
    options.user = "me";
    options.password = "secret";
    scene_start();
    net_settle(loop);
    peer_accept(&peer);
    say_token(&peer, scene_arrived(&peer, 0), token);
    run_until(loop, ups == 1);
}

static void a_login_that_has_expired_is_renewed_once(void **state)
{
    struct heard heard = {0};
    (void)state;
    log_in("first");
    scene_ask(&heard);
    assert_string_equal(scene_arrived(&peer, 1)->token, "first");
    peer_answer(&peer, peer.calls[1].id, NULL, 0, 16, "etcdserver: invalid auth token");
    say_token(&peer, scene_arrived(&peer, 2), "second");
    assert_string_equal(scene_arrived(&peer, 3)->token, "second");
    peer_answer(&peer, peer.calls[3].id, NULL, 0, 16, "etcdserver: invalid auth token");
    run_until(loop, heard.times == 1);
    assert_status(heard.err.status, UNREACHABLE);
}

/* Authentication may be turned off when we come, and on later. */
static void a_login_that_was_not_needed_is_made_up_for(void **state)
{
    struct heard heard = {0};
    (void)state;
    options.user = "me";
    options.password = "secret";
    scene_start();
    net_settle(loop);
    peer_accept(&peer);
    peer_answer(&peer, scene_arrived(&peer, 0)->id, NULL, 0, 9,
                "etcdserver: authentication is not enabled");
    run_until(loop, ups == 1);
    scene_ask(&heard);
    assert_string_equal(scene_arrived(&peer, 1)->token, "");
    peer_answer(&peer, peer.calls[1].id, NULL, 0, 3, "etcdserver: user name is empty");
    say_token(&peer, scene_arrived(&peer, 2), "token");
    assert_string_equal(scene_arrived(&peer, 3)->token, "token");
    scene_answer(&peer, &peer.calls[3]);
    run_until(loop, heard.times == 1);
    assert_status(heard.err.status, OK);
}

static void a_login_that_is_refused_says_so_without_the_password(void **state)
{
    struct heard heard = {0};
    (void)state;
    options.user = "me";
    options.password = "secret";
    scene_start();
    scene_ask(&heard);
    net_settle(loop);
    peer_accept(&peer);
    peer_answer(&peer, scene_arrived(&peer, 0)->id, NULL, 0, 3,
                "etcdserver: authentication failed, invalid user ID or password secret");
    run_until(loop, heard.times == 1);
    assert_status(heard.err.status, REFUSED);
    assert_false(heard_says(&heard, "secret"));
}

/* ---- streams ---- */

static unsigned stream_messages, stream_ends;

static void on_stream_message(struct conn_stream *stream, const ProtobufCMessage *message)
{
    (void)stream;
    assert_int_equal(((const Etcd__LeaseKeepAliveResponse *)message)->ttl, 5);
    stream_messages++;
}

static void on_stream_end(struct conn_stream *stream, const struct stile_error *err)
{
    assert_false(stream->open);
    assert_true(err->status != STILE_OK);
    stream_ends++;
}

static void open_stream(struct conn_stream *stream)
{
    Etcd__LeaseKeepAliveRequest request = ETCD__LEASE_KEEP_ALIVE_REQUEST__INIT;
    stream_messages = stream_ends = 0;
    stream->message = on_stream_message;
    stream->ended = on_stream_end;
    request.id = 1;
    assert_status(etcd_conn_stream_open(conn, stream, RPC_LEASE_KEEP_ALIVE, NULL), OK);
    assert_status(etcd_conn_stream_send(stream, &request.base, NULL), OK);
    run_until(loop, (peer_take(&peer), peer.n == 1 && peer.calls[0].n > 5));
}

static void a_stream_of_messages(void **state)
{
    struct conn_stream stream = {.open = false};
    static const uint8_t two[] = {0, 0, 0, 0, 4, 0x10, 1, 0x18, 5, 0, 0, 0, 0, 4, 0x10, 1, 0x18, 5};
    (void)state;
    scene_connect();
    assert_status(etcd_conn_stream_open(conn, &stream, RPC_WATCH, NULL), OK);
    etcd_conn_stream_close(&stream);
    peer_take(&peer);
    peer.n = 0;
    open_stream(&stream);
    peer_answer(&peer, peer.calls[0].id, two, sizeof two, -1, "");
    run_until(loop, stream_messages == 2);
    peer_more(&peer, peer.calls[0].id, two, sizeof two);
    run_until(loop, stream_messages == 4);
    peer_hang_up(&peer);
    run_until(loop, stream_ends == 1);
    assert_int_equal(downs, 1);
    assert_status(etcd_conn_stream_open(conn, &stream, RPC_WATCH, NULL), UNREACHABLE);
}

/* A watch that could not be sent would be waited for in vain; over the next connection it is sent.
 */
static void a_stream_that_cannot_send_ends_its_connection(void **state)
{
    static char key[2000];            /* longer than what is sent without an allocation */
    static struct conn_stream stream; /* a failed test returns before it is closed */
    Etcd__WatchCreate create = ETCD__WATCH_CREATE__INIT;
    Etcd__WatchRequest request = ETCD__WATCH_REQUEST__INIT;
    (void)state;
    scene_connect();
    open_stream(&stream);
    create.key = (ProtobufCBinaryData){sizeof key, (uint8_t *)key};
    request.create = &create;
    request.request_case = ETCD__WATCH_REQUEST__REQUEST_CREATE;
    scarcity_begin(0, false);
    enum stile_status status = etcd_conn_stream_send(&stream, &request.base, NULL);
    scarcity_end();
    assert_status(status, NOMEM);
    net_settle(loop); /* at once: in the end a silent connection would be given up as well */
    assert_int_equal(stream_ends, 1);
    assert_false(etcd_conn_is_up(conn));
}

static void a_stream_that_the_peer_ends(void **state)
{
    struct conn_stream stream = {.open = false};
    (void)state;
    scene_connect();
    open_stream(&stream);
    peer_answer(&peer, peer.calls[0].id, NULL, 0, 14, "etcdserver: no leader");
    run_until(loop, stream_ends == 1);
    assert_true(etcd_conn_is_up(conn)); /* there is nobody else to be asked */
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_open, scene_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_request_is_answered),
        TEST(requests_wait_for_the_connection),
        TEST(many_are_under_way_and_answered_in_any_order),
        TEST(an_answer_in_pieces),
        TEST(errors_are_explained),
        TEST(an_answer_that_is_no_message),
        TEST(a_request_that_is_refused_was_not_looked_at),
        TEST(a_login_that_has_expired_is_renewed_once),
        TEST(a_login_that_was_not_needed_is_made_up_for),
        TEST(a_login_that_is_refused_says_so_without_the_password),
        TEST(a_stream_of_messages),
        TEST(a_stream_that_cannot_send_ends_its_connection),
        TEST(a_stream_that_the_peer_ends),
    };
    return cmocka_run_group_tests_name("etcd_conn", tests, NULL, NULL);
}
