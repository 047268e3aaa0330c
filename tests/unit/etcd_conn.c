/* The connection to etcd against a peer that does what the test says: late, wrong, in pieces, or
 * not at all. Against real members: the contract suite and fault/etcd.py. */
#include <stdio.h>
#include <stdlib.h>

#include "engines/etcd/conn_inner.h"
#include "support/h2_peer.h"

#define REVISION 4711

struct heard {
    unsigned times;
    int64_t revision; /* of the answer's header; 0: none */
    struct stile_error err;
    bool frees; /* the connection, from inside */
};

static struct loop *loop;
static struct conn *conn;
static struct conn_options options;
static struct h2_peer peer, other;
static unsigned ups, downs;

/* ---- set-up ---- */

static void on_up(struct conn *c)
{
    assert_true(conn_is_up(c));
    ups++;
}

static void on_down(struct conn *c, const struct stile_error *why)
{
    assert_false(conn_is_up(c));
    assert_true(why->status && why->message[0]);
    downs++;
}

static const struct conn_events events = {.up = on_up, .down = on_down};

static int set_up(void **state)
{
    (void)state;
    ups = downs = 0;
    loop = net_loop();
    peer_listen(&peer);
    peer_listen(&other);
    options = (struct conn_options){.n_endpoints = 1};
    options.endpoints[0] = (struct conn_endpoint){"127.0.0.1", peer.fake.port};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    conn_free(conn);
    conn = NULL;
    assert_int_equal(loop->n_timers, 0);
    assert_int_equal(loop->reserved, 1);
    assert_null(loop->tasks);
    assert_null(loop->senders);
    loop_free(loop);
    peer_free(&peer);
    peer_free(&other);
    return 0;
}

static void start(void)
{
    struct stile_error err;
    assert_status(conn_new(&conn, loop, &options, &events, NULL, &err), OK);
}

static void connect_up(void)
{
    start();
    net_settle(loop);
    peer_accept(&peer);
    run_until(loop, ups == 1);
}

static void hear(void *data, const ProtobufCMessage *answer, const struct stile_error *err)
{
    struct heard *heard = data;
    const Pb__TxnResponse *txn = (const Pb__TxnResponse *)answer;
    heard->times++;
    heard->revision = txn && txn->header ? txn->header->revision : 0;
    error_copy(&heard->err, err);
    if (heard->frees) {
        conn_free(conn);
        conn = NULL;
    }
}

static void ask(struct heard *heard)
{
    Pb__TxnRequest request = PB__TXN_REQUEST__INIT;
    assert_status(conn_ask(conn, RPC_TXN, &request.base, hear, heard, NULL), OK);
    assert_int_equal(heard->times, 0);
}

/* The peer has it whole. */
static struct peer_call *arrived(struct h2_peer *at, size_t n)
{
    uint64_t end_ns = loop_now(loop) + NET_PATIENCE_NS;
    while ((at->n <= n || !at->calls[n].whole) && loop_now(loop) < end_ns) {
        net_settle(loop);
        peer_take(at);
    }
    assert_true(at->n > n && at->calls[n].whole);
    return &at->calls[n];
}

static size_t pack_answer(uint8_t bytes[64])
{
    Pb__Header header = PB__HEADER__INIT;
    Pb__TxnResponse answer = PB__TXN_RESPONSE__INIT;
    header.revision = REVISION;
    answer.header = &header;
    return pb__txn_response__pack(&answer, bytes);
}

static void answer(struct h2_peer *at, const struct peer_call *call)
{
    uint8_t bytes[64];
    peer_answer_message(at, call->id, bytes, pack_answer(bytes));
}

static bool says(const struct heard *heard, const char *words)
{
    return strstr(heard->err.message, words);
}

/* ---- requests ---- */

static void a_request_is_answered(void **state)
{
    struct heard heard = {0};
    (void)state;
    connect_up();
    ask(&heard);
    struct peer_call *call = arrived(&peer, 0);
    assert_string_equal(call->path, "/etcdserverpb.KV/Txn");
    assert_string_equal(call->token, "");
    assert_int_equal(call->n, 5); /* an empty message */
    answer(&peer, call);
    run_until(loop, heard.times == 1);
    assert_status(heard.err.status, OK);
    assert_int_equal(heard.revision, REVISION);
}

static void requests_wait_for_the_connection(void **state)
{
    struct heard heard = {0};
    (void)state;
    start();
    ask(&heard);
    net_settle(loop);
    peer_accept(&peer);
    answer(&peer, arrived(&peer, 0));
    run_until(loop, heard.times == 1);
    assert_int_equal(heard.revision, REVISION);
}

static void many_are_under_way_and_answered_in_any_order(void **state)
{
    struct heard heard[20] = {{0}};
    (void)state;
    connect_up();
    for (size_t i = 0; i < 20; i++)
        ask(&heard[i]);
    arrived(&peer, 19);
    for (size_t i = 20; i-- > 0;)
        answer(&peer, &peer.calls[i]);
    for (size_t i = 0; i < 20; i++)
        run_until(loop, heard[i].times == 1 && heard[i].revision == REVISION);
}

static void an_answer_in_pieces(void **state)
{
    struct heard heard = {0};
    uint8_t message[64], body[80];
    (void)state;
    connect_up();
    ask(&heard);
    int32_t id = arrived(&peer, 0)->id;
    size_t n = pack_answer(message);
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

/* ---- errors the peer tells of ---- */

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
    connect_up();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct heard heard = {0};
        ask(&heard);
        peer_answer(&peer, arrived(&peer, i)->id, NULL, 0, cases[i].code, cases[i].words);
        run_until(loop, heard.times == 1);
        assert_string_equal(stile_status_name(heard.err.status),
                            stile_status_name(cases[i].status));
        assert_true(says(&heard, cases[i].sentence));
    }
}

static void an_answer_that_is_no_message(void **state)
{
    struct heard damaged = {0}, none = {0};
    (void)state;
    connect_up();
    ask(&damaged);
    peer_answer_message(&peer, arrived(&peer, 0)->id, "\xff\xff\xff\xff", 4);
    run_until(loop, damaged.times == 1);
    assert_status(damaged.err.status, UNCERTAIN);
    ask(&none);
    peer_answer(&peer, arrived(&peer, 1)->id, NULL, 0, 0, "");
    run_until(loop, none.times == 1);
    assert_status(none.err.status, UNCERTAIN);
}

static void a_request_that_is_refused_was_not_looked_at(void **state)
{
    struct heard refused = {0}, reset = {0};
    (void)state;
    connect_up();
    ask(&refused);
    peer_reset(&peer, arrived(&peer, 0)->id, NGHTTP2_REFUSED_STREAM);
    run_until(loop, refused.times == 1);
    assert_status(refused.err.status, UNREACHABLE);
    ask(&reset);
    peer_reset(&peer, arrived(&peer, 1)->id, NGHTTP2_INTERNAL_ERROR);
    run_until(loop, reset.times == 1);
    assert_status(reset.err.status, UNCERTAIN);
}

/* ---- bytes that should not be ---- */

static void hung_up_on(struct heard *heard)
{
    run_until(loop, heard->times == 1);
    assert_true(heard->err.status != STILE_OK);
    assert_int_equal(downs, 1);
    assert_false(conn_is_up(conn));
}

static void a_message_longer_than_allowed(void **state)
{
    struct heard heard = {0};
    (void)state;
    connect_up();
    ask(&heard);
    peer_answer(&peer, arrived(&peer, 0)->id, "\0\x40\0\0\1", 5, -1, "");
    hung_up_on(&heard);
    assert_true(says(&heard, "too long"));
}

static void a_message_that_is_compressed(void **state)
{
    struct heard heard = {0};
    (void)state;
    connect_up();
    ask(&heard);
    peer_answer(&peer, arrived(&peer, 0)->id, "\1\0\0\0\1x", 6, -1, "");
    hung_up_on(&heard);
}

static void what_answers_is_not_http2(void **state)
{
    static const char *const babble[] = {"HTTP/1.1 400 Bad Request\r\n\r\n", "-ERR unknown\r\n",
                                         "\x15\x03\x01\x00\x02\x02\x46"};
    (void)state;
    start();
    for (size_t i = 0; i < 3; i++) {
        struct heard heard = {0};
        ask(&heard);
        if (conn->state == PAUSED)
            loop_arm(loop, &conn->retry, loop_now(loop));
        run_until(loop, conn->state == CONNECTING || heard.times);
        if (heard.times) { /* between two attempts it is told at once */
            i--;
            continue;
        }
        net_settle(loop);
        fake_accept(&peer.fake);
        fake_say(&peer.fake, babble[i]);
        fake_say(&peer.fake, "and more of it, so that a frame's head is there");
        run_until(loop, heard.times == 1);
        assert_status(heard.err.status, REFUSED);
        assert_true(says(&heard, "does not speak gRPC"));
    }
    assert_int_equal(ups, 0);
}

static void headers_without_end(void **state)
{
    struct heard heard = {0};
    static char value[15000];
    (void)state;
    connect_up();
    ask(&heard);
    int32_t id = arrived(&peer, 0)->id;
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
    assert_true(says(&heard, "stream reset"));
    assert_true(conn_is_up(conn));
}

/* Whatever comes after the SETTINGS: a broken frame at every place of a good conversation. */
static void frames_that_are_damaged(void **state)
{
    unsigned seed = 7;
    (void)state;
    start();
    for (int round = 0; round < 40; round++) {
        struct heard heard = {0};
        uint8_t bytes[200];
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)rand_r(&seed);
        bytes[0] = 0; /* a length that is allowed */
        bytes[1] = (uint8_t)(bytes[1] % 2);
        bytes[3] = (uint8_t)(bytes[3] % 12);
        if (conn->state == PAUSED)
            loop_arm(loop, &conn->retry, loop_now(loop));
        run_until(loop, conn->state == CONNECTING);
        net_settle(loop);
        peer_accept(&peer);
        unsigned up = ups;
        run_until(loop, ups > up);
        ask(&heard);
        arrived(&peer, 0);
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
    connect_up();
    ask(&sent);
    arrived(&peer, 0);
    peer_hang_up(&peer);
    run_until(loop, sent.times == 1);
    assert_status(sent.err.status, UNCERTAIN);
}

static void what_never_left_us_is_not(void **state)
{
    struct heard waiting = {0};
    (void)state;
    start();
    ask(&waiting);
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
    start();
    ask(&heard);
    run_until(loop, heard.times == 1);
    assert_status(heard.err.status, UNREACHABLE);
    peer_listen(&other);
}

static void a_request_is_overdue(void **state)
{
    struct heard late = {0}, quick = {0};
    (void)state;
    connect_up();
    ask(&late);
    arrived(&peer, 0);
    ask(&quick);
    answer(&peer, arrived(&peer, 1));
    run_until(loop, quick.times == 1);
    conn->sent.first->until_ns = loop_now(loop);
    conn_watch_time(conn);
    run_until(loop, late.times == 1);
    assert_status(late.err.status, UNCERTAIN);
    assert_true(conn_is_up(conn)); /* something came since: it is the request, not the member */
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
    connect_up();
    options.n_endpoints = 2;
    conn->options.endpoints[1].host = strdup("127.0.0.1");
    conn->options.endpoints[1].port = other.fake.port;
    conn->options.n_endpoints = 2;
    ask(&heard);
    arrived(&peer, 0);
    conn->sent.first->sent_ns = conn->sent.first->until_ns = loop_now(loop);
    conn_watch_time(conn);
    run_until(loop, heard.times == 1);
    assert_status(heard.err.status, UNCERTAIN);
    peer_accept(&other);
    run_until(loop, ups == 2);
}

/* ---- going away ---- */

static void goaway_lets_what_is_under_way_finish(void **state)
{
    struct heard before = {0}, after = {0};
    (void)state;
    connect_up();
    ask(&before);
    struct peer_call *call = arrived(&peer, 0);
    conn->up_ns = 0; /* it was up for long enough */
    peer_goaway(&peer, call->id);
    run_until(loop, conn->state == GOING);
    ask(&after);
    answer(&peer, call);
    run_until(loop, before.times == 1);
    assert_status(before.err.status, OK);
    run_until(loop, downs == 1);
    net_settle(loop);
    peer_accept(&peer);
    answer(&peer, arrived(&peer, 0));
    run_until(loop, after.times == 1);
    assert_status(after.err.status, OK);
}

/* ---- logins ---- */

static void say_token(struct h2_peer *at, const struct peer_call *call, const char *token)
{
    uint8_t bytes[64];
    Pb__AuthenticateResponse login = PB__AUTHENTICATE_RESPONSE__INIT;
    assert_string_equal(call->path, "/etcdserverpb.Auth/Authenticate");
    login.token = (char *)token;
    peer_answer_message(at, call->id, bytes, pb__authenticate_response__pack(&login, bytes));
}

static void log_in(const char *token)
{
    options.user = "me";
    options.password = "secret";
    start();
    net_settle(loop);
    peer_accept(&peer);
    say_token(&peer, arrived(&peer, 0), token);
    run_until(loop, ups == 1);
}

static void a_login_that_has_expired_is_renewed_once(void **state)
{
    struct heard heard = {0};
    (void)state;
    log_in("first");
    ask(&heard);
    assert_string_equal(arrived(&peer, 1)->token, "first");
    peer_answer(&peer, peer.calls[1].id, NULL, 0, 16, "etcdserver: invalid auth token");
    say_token(&peer, arrived(&peer, 2), "second");
    assert_string_equal(arrived(&peer, 3)->token, "second");
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
    start();
    net_settle(loop);
    peer_accept(&peer);
    peer_answer(&peer, arrived(&peer, 0)->id, NULL, 0, 9,
                "etcdserver: authentication is not enabled");
    run_until(loop, ups == 1);
    ask(&heard);
    assert_string_equal(arrived(&peer, 1)->token, "");
    peer_answer(&peer, peer.calls[1].id, NULL, 0, 3, "etcdserver: user name is empty");
    say_token(&peer, arrived(&peer, 2), "token");
    assert_string_equal(arrived(&peer, 3)->token, "token");
    answer(&peer, &peer.calls[3]);
    run_until(loop, heard.times == 1);
    assert_status(heard.err.status, OK);
}

static void a_login_that_is_refused_says_so_without_the_password(void **state)
{
    struct heard heard = {0};
    (void)state;
    options.user = "me";
    options.password = "secret";
    start();
    ask(&heard);
    net_settle(loop);
    peer_accept(&peer);
    peer_answer(&peer, arrived(&peer, 0)->id, NULL, 0, 3,
                "etcdserver: authentication failed, invalid user ID or password secret");
    run_until(loop, heard.times == 1);
    assert_status(heard.err.status, REFUSED);
    assert_false(says(&heard, "secret"));
}

/* ---- streams ---- */

static unsigned stream_messages, stream_ends;

static void on_stream_message(struct conn_stream *stream, const ProtobufCMessage *message)
{
    (void)stream;
    assert_int_equal(((const Pb__LeaseKeepAliveResponse *)message)->ttl, 5);
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
    Pb__LeaseKeepAliveRequest request = PB__LEASE_KEEP_ALIVE_REQUEST__INIT;
    stream_messages = stream_ends = 0;
    stream->message = on_stream_message;
    stream->ended = on_stream_end;
    request.id = 1;
    assert_status(conn_stream_open(conn, stream, RPC_LEASE_KEEP_ALIVE, NULL), OK);
    assert_status(conn_stream_send(stream, &request.base, NULL), OK);
    run_until(loop, (peer_take(&peer), peer.n == 1 && peer.calls[0].n > 5));
}

static void a_stream_of_messages(void **state)
{
    struct conn_stream stream = {.open = false};
    static const uint8_t two[] = {0, 0, 0, 0, 4, 0x10, 1, 0x18, 5, 0, 0, 0, 0, 4, 0x10, 1, 0x18, 5};
    (void)state;
    connect_up();
    assert_status(conn_stream_open(conn, &stream, RPC_WATCH, NULL), OK);
    conn_stream_close(&stream);
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
    assert_status(conn_stream_open(conn, &stream, RPC_WATCH, NULL), UNREACHABLE);
}

static void a_stream_that_the_peer_ends(void **state)
{
    struct conn_stream stream = {.open = false};
    (void)state;
    connect_up();
    open_stream(&stream);
    peer_answer(&peer, peer.calls[0].id, NULL, 0, 14, "etcdserver: no leader");
    run_until(loop, stream_ends == 1);
    assert_true(conn_is_up(conn)); /* there is nobody else to be asked */
}

/* ---- freeing ---- */

static void freed_from_inside_an_answer(void **state)
{
    struct heard first = {.frees = true}, second = {0};
    (void)state;
    connect_up();
    ask(&first);
    ask(&second);
    arrived(&peer, 1);
    answer(&peer, &peer.calls[0]);
    answer(&peer, &peer.calls[1]);
    run_until(loop, first.times == 1);
    net_settle(loop);
    assert_int_equal(second.times, 0);
}

static void freed_from_inside_a_broken_connection(void **state)
{
    struct heard first = {.frees = true}, second = {0};
    (void)state;
    connect_up();
    ask(&first);
    ask(&second);
    arrived(&peer, 1);
    peer_hang_up(&peer);
    run_until(loop, first.times == 1);
    net_settle(loop);
    assert_int_equal(second.times, 0);
}

static void forgotten_requests_hear_nothing(void **state)
{
    struct heard forgotten = {0}, kept = {0};
    (void)state;
    connect_up();
    ask(&forgotten);
    ask(&kept);
    conn_forget(conn, &forgotten);
    arrived(&peer, 1);
    answer(&peer, &peer.calls[0]);
    answer(&peer, &peer.calls[1]);
    run_until(loop, kept.times == 1);
    assert_int_equal(forgotten.times, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

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
        TEST(a_message_longer_than_allowed),
        TEST(a_message_that_is_compressed),
        TEST(what_answers_is_not_http2),
        TEST(headers_without_end),
        TEST(frames_that_are_damaged),
        TEST(what_left_us_and_is_not_answered_is_in_doubt),
        TEST(what_never_left_us_is_not),
        TEST(nobody_listens),
        TEST(a_request_is_overdue),
        TEST(a_member_that_is_silent_is_given_up),
        TEST(goaway_lets_what_is_under_way_finish),
        TEST(a_login_that_has_expired_is_renewed_once),
        TEST(a_login_that_was_not_needed_is_made_up_for),
        TEST(a_login_that_is_refused_says_so_without_the_password),
        TEST(a_stream_of_messages),
        TEST(a_stream_that_the_peer_ends),
        TEST(freed_from_inside_an_answer),
        TEST(freed_from_inside_a_broken_connection),
        TEST(forgotten_requests_hear_nothing),
    };
    return cmocka_run_group_tests_name("etcd_conn", tests, NULL, NULL);
}
