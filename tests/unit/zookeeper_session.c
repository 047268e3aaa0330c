/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A session, over real sockets, with a server that does what the test says. */
#include <stdio.h>
#include <stdlib.h>

#include "base/url.h"
#include "engines/zookeeper/zookeeper.h"
#include "support/net.h"

#define ID         UINT64_C(0x1234)
#define ZXID       77
#define LONG_MS    60000
#define SHORT_MS   200 /* so that a whole one goes by in a test */
#define PACKET_MAX (1u << 20)
#define MANY       3000

struct packet {
    int32_t xid, type;
    size_t n; /* of all of it */
    char bytes[PACKET_MAX];
};

static struct fake fake;
static struct zk zk;
static struct zk_host host;
static struct session *session;
static struct packet packet;
static unsigned n_lost;
static int64_t zxid;       /* of the last greeting */
static int32_t timeout_ms; /* that the server gives */

/* ---- the server ---- */

static void read_exactly(char *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        size_t got = fake_read(&fake, bytes + at, n - at);
        assert_true(got > 0);
        at += got;
    }
}

static void read_packet(void)
{
    char length[4];
    read_exactly(length, sizeof length);
    struct jute_reader reader = {.at = length, .end = length + 4};
    packet.n = (size_t)zk_jute_read_int(&reader);
    assert_in_range(packet.n, 1, PACKET_MAX);
    read_exactly(packet.bytes, packet.n);
    reader = (struct jute_reader){.at = packet.bytes, .end = packet.bytes + packet.n};
    packet.xid = zk_jute_read_int(&reader);
    packet.type = zk_jute_read_int(&reader);
}

static void say(struct jute_writer *writer)
{
    size_t n;
    const char *bytes = zk_jute_end(writer, &n);
    assert_non_null(bytes);
    fake_say_bytes(&fake, bytes, n);
    buffer_free(&writer->buffer);
}

/* Which session the client wants; and what it has seen. */
static int64_t hear_greeting(void)
{
    struct jute_reader reader;
    read_packet();
    reader = (struct jute_reader){.at = packet.bytes + 4, .end = packet.bytes + packet.n};
    zxid = zk_jute_read_long(&reader);
    (void)zk_jute_read_int(&reader);
    return zk_jute_read_long(&reader);
}

static void greet(int64_t id)
{
    struct jute_writer writer = {.failed = false};
    zk_jute_begin(&writer);
    zk_jute_write_int(&writer, 0);
    zk_jute_write_int(&writer, timeout_ms);
    zk_jute_write_long(&writer, id);
    zk_jute_write_bytes(&writer, "sixteen bytes...", 16);
    say(&writer);
}

static void reply(int32_t xid, int32_t code, const char *path)
{
    struct jute_writer writer = {.failed = false};
    zk_jute_begin(&writer);
    zk_jute_write_int(&writer, xid);
    zk_jute_write_long(&writer, ZXID);
    zk_jute_write_int(&writer, code);
    if (path)
        zk_jute_write_string(&writer, path);
    say(&writer);
}

static void report(int32_t type, const char *path)
{
    struct jute_writer writer = {.failed = false};
    zk_jute_begin(&writer);
    zk_jute_write_int(&writer, JUTE_XID_EVENT);
    zk_jute_write_long(&writer, -1);
    zk_jute_write_int(&writer, 0);
    zk_jute_write_int(&writer, type);
    zk_jute_write_int(&writer, 3);
    zk_jute_write_string(&writer, path);
    say(&writer);
}

/* ---- the client ---- */

struct heard {
    struct requester requester;
    unsigned times;
    int rc;
    bool maybe;
    int event;
};

static void on_answer(struct requester *requester, const struct reply *got)
{
    struct heard *heard = (struct heard *)requester;
    heard->times++;
    heard->rc = got->rc;
    heard->maybe = got->maybe;
}

static void on_event(struct requester *requester, int type)
{
    ((struct heard *)requester)->event = type;
}

static void on_lost(struct engine *engine, const void *one, const struct stile_error *err)
{
    (void)engine, (void)one;
    assert_status(err->status, LOST);
    n_lost++;
}

static const struct engine_events events = {.session_lost = on_lost};

static void on_ended(struct session *ended)
{
    assert_ptr_equal(ended, session);
}

static const struct session_events session_events = {.ended = on_ended};

static bool has_connection(void)
{
    return session->connection && zk_connection_greeted_ns(session->connection);
}

static int64_t accept_one(void)
{
    run_until(zk.engine.loop, has_connection());
    fake_accept(&fake);
    net_settle(zk.engine.loop);
    return hear_greeting();
}

static void come_up(void)
{
    (void)accept_one();
    greet(ID);
    run_until(zk.engine.loop, session->state == SESSION_UP);
}

static int set_up(void **state)
{
    (void)state;
    fake_listen(&fake);
    host = (struct zk_host){.name = "127.0.0.1", .port = fake.port, .where = "here"};
    zk = (struct zk){.engine = {.events = &events, .loop = net_loop()},
                     .session_events = &session_events,
                     .hosts = &host,
                     .n_hosts = 1};
    n_lost = 0;
    timeout_ms = LONG_MS;
    session = zk_session_for(&zk, NS_PER_SEC, 0, NULL);
    assert_non_null(session);
    run_until(zk.engine.loop, session->connection != NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    zk_session_leave_server(session); /* nobody would hang up */
    zk_sessions_close(&zk);
    buffer_free(&zk.writer.buffer);
    loop_free(zk.engine.loop);
    fake_free(&fake);
    return 0;
}

static void send_now(void)
{
    net_settle(zk.engine.loop);
}

/* ---- tests ---- */

static void requests_are_answered_in_order(void **state)
{
    struct heard one = {.times = 0}, two = {.times = 0};
    (void)state;
    come_up();
    assert_int_equal(session->id.id, ID);
    assert_true(zk_request_sync(session, &one.requester, "/a", on_answer));
    assert_true(zk_request_delete(session, &two.requester, "/b", on_answer));
    send_now();
    read_packet();
    assert_int_equal(packet.type, JUTE_SYNC);
    reply(packet.xid, 0, "/a");
    read_packet();
    assert_int_equal(packet.type, JUTE_DELETE);
    reply(packet.xid, ZNONODE, NULL);
    run_until(zk.engine.loop, two.times == 1);
    assert_int_equal(one.times, 1);
    assert_int_equal(one.rc, ZOK);
    assert_int_equal(two.rc, ZNONODE);
    assert_false(two.maybe);
}

/* An answer to another request: neither of them can be trusted, and both may have been executed. */
static void an_answer_to_another_request_ends_the_connection(void **state)
{
    struct heard one = {.times = 0}, two = {.times = 0};
    (void)state;
    come_up();
    assert_true(zk_request_delete(session, &one.requester, "/a", on_answer));
    assert_true(zk_request_delete(session, &two.requester, "/b", on_answer));
    send_now();
    read_packet();
    reply(packet.xid + 1, 0, NULL);
    run_until(zk.engine.loop, two.times == 1);
    assert_int_equal(one.rc, ZCONNECTIONLOSS);
    assert_int_equal(two.rc, ZCONNECTIONLOSS);
    assert_true(one.maybe && two.maybe);
}

static void what_never_left_is_not_in_doubt(void **state)
{
    struct heard heard = {.times = 0};
    (void)state;
    assert_true(zk_request_delete(session, &heard.requester, "/a", on_answer));
    (void)accept_one();
    fake_hang_up(&fake);
    run_until(zk.engine.loop, heard.times == 1);
    assert_int_equal(heard.rc, ZCONNECTIONLOSS);
    assert_false(heard.maybe);
}

/* The proofs of liveness.c overtake waiting requests. */
static void no_more_than_a_window_is_under_way(void **state)
{
    static struct heard heard[MANY];
    int32_t n = 0;
    (void)state;
    memset(heard, 0, sizeof heard);
    come_up();
    for (size_t i = 0; i < MANY; i++)
        assert_true(zk_request_sync(session, &heard[i].requester, "/a", on_answer));
    send_now();
    assert_in_range(session->in_flight, 1000, 1100);
    size_t in_flight = session->in_flight;
    assert_true(zk_request_sync(session, &session->requester, "/proof", on_answer));
    send_now();
    assert_int_equal(session->in_flight, in_flight + 1);
    zk_requester_forget(&session->requester);
    while (heard[MANY - 1].times == 0) {
        size_t before = session->in_flight;
        struct request *waiting = session->queue;
        read_packet();
        reply(packet.xid, 0, "/a");
        run_until(zk.engine.loop, session->in_flight < before || session->queue != waiting);
        send_now();
        n++;
    }
    assert_int_equal(n, MANY + 1);
    for (size_t i = 0; i < MANY; i++)
        assert_int_equal(heard[i].rc, ZOK);
}

static void a_session_is_taken_up_again(void **state)
{
    (void)state;
    come_up();
    fake_hang_up(&fake);
    run_until(zk.engine.loop, session->state == SESSION_DOWN);
    assert_int_equal(accept_one(), ID);
    greet(ID);
    run_until(zk.engine.loop, session->state == SESSION_UP);
    assert_int_equal(n_lost, 0);
}

static void an_expired_session_is_followed_by_a_new_one(void **state)
{
    (void)state;
    come_up();
    fake_hang_up(&fake);
    run_until(zk.engine.loop, session->state == SESSION_DOWN);
    assert_int_equal(accept_one(), ID);
    greet(0);
    run_until(zk.engine.loop, n_lost == 1);
    assert_int_equal(accept_one(), 0);
    greet(ID + 1);
    run_until(zk.engine.loop, session->state == SESSION_UP);
    assert_int_equal(session->id.id, ID + 1);
}

/* Once it has been down for its whole timeout: a server that takes a new one has lost the old. */
static void a_server_that_refuses_the_session_for_ever(void **state)
{
    (void)state;
    timeout_ms = SHORT_MS;
    come_up();
    fake_hang_up(&fake);
    run_until(zk.engine.loop, session->state == SESSION_DOWN);
    uint64_t since_ns = loop_now(zk.engine.loop);
    while (accept_one() == (int64_t)ID) {
        fake_hang_up(&fake);
        run_until(zk.engine.loop, !session->connection || !has_connection());
    }
    assert_true(loop_now(zk.engine.loop) - since_ns >= SHORT_MS * NS_PER_MS);
    assert_int_equal(n_lost, 0);
    greet(ID + 1);
    run_until(zk.engine.loop, n_lost == 1);
    assert_int_equal(accept_one(), 0);
}

/* As a server that follows no leader does. */
static void a_server_that_refuses_everybody(void **state)
{
    struct heard heard = {.times = 0};
    (void)state;
    timeout_ms = SHORT_MS;
    come_up();
    assert_true(zk_request_sync(session, &heard.requester, "/a", on_answer));
    send_now();
    read_packet();
    reply(packet.xid, 0, "/a");
    run_until(zk.engine.loop, heard.times == 1);
    fake_hang_up(&fake);
    run_until(zk.engine.loop, session->state == SESSION_DOWN);
    for (unsigned fresh = 0; fresh < 2;) {
        bool is_fresh = accept_one() == 0;
        assert_int_equal(zxid, is_fresh ? 0 : ZXID);
        fresh += is_fresh;
        fake_hang_up(&fake);
        run_until(zk.engine.loop, !session->connection || !has_connection());
    }
    assert_int_equal(n_lost, 0);
    while (accept_one() == 0) {
        fake_hang_up(&fake);
        run_until(zk.engine.loop, !session->connection || !has_connection());
    }
    greet(ID);
    run_until(zk.engine.loop, session->state == SESSION_UP);
    assert_int_equal(n_lost, 0);
}

static void watches_report_once(void **state)
{
    struct heard heard = {.times = 0};
    struct node_watch *watch = NULL;
    (void)state;
    come_up();
    assert_true(zk_watch_add(&watch, session, 'e', "/a", &heard.requester, on_event));
    assert_true(zk_request_exists(session, &heard.requester, "/a", watch, on_answer));
    send_now();
    read_packet();
    report(JUTE_EVENT_CREATED, "/a"); /* of a watch that was set before: not of this one */
    reply(packet.xid, ZNONODE, NULL);
    run_until(zk.engine.loop, heard.times == 1);
    assert_int_equal(heard.event, 0);
    report(JUTE_EVENT_CREATED, "/b");
    report(JUTE_EVENT_CHILD, "/a");
    report(JUTE_EVENT_CREATED, "/a");
    run_until(zk.engine.loop, heard.event == JUTE_EVENT_CREATED);
    assert_null(watch);
    assert_int_equal(session->watches.n, 0);
}

/* In packets that a server takes, and each of them once. */
static void watches_are_set_again_in_pieces(void **state)
{
    static struct node_watch *watches[MANY];
    struct heard heard = {.times = 0};
    char path[512];
    size_t paths = 0, packets = 0;
    (void)state;
    come_up();
    memset(path, 'x', sizeof path);
    for (int i = 0; i < MANY; i++) {
        path[snprintf(path, sizeof path, "/%d", i)] = 'x';
        path[sizeof path - 1] = '\0';
        assert_true(
            zk_watch_add(&watches[i], session, "gc"[i % 2], path, &heard.requester, on_event));
        watches[i]->set = true; /* as if the server had answered */
    }
    fake_hang_up(&fake);
    run_until(zk.engine.loop, session->state == SESSION_DOWN);
    (void)accept_one();
    greet(ID);
    run_until(zk.engine.loop, session->state == SESSION_UP);
    while (paths < MANY) {
        net_settle(zk.engine.loop);
        read_packet();
        assert_int_equal(packet.xid, JUTE_XID_SET_WATCHES);
        assert_in_range(packet.n, 1, 256 << 10);
        struct jute_reader reader = {.at = packet.bytes + 16, .end = packet.bytes + packet.n};
        for (int list = 0; list < 3; list++) {
            struct jute_strings strings;
            zk_jute_read_strings(&reader, &strings);
            paths += strings.n;
            zk_jute_strings_free(&strings);
        }
        assert_false(reader.bad);
        packets++;
    }
    assert_int_equal(paths, MANY);
    assert_true(packets > 10);
    for (int i = 0; i < MANY; i++)
        zk_watch_remove(&watches[i]);
}

/* ---- opening the engine ---- */

extern const struct engine_class zk_class;

static unsigned n_opened;
static struct stile_error opened_with;

static void on_opened(struct engine *engine, const struct stile_error *err)
{
    assert_ptr_equal(engine, &zk.engine);
    error_copy(&opened_with, err);
    n_opened++;
}

static const struct engine_events open_events = {.opened = on_opened, .session_lost = on_lost};

static void begin_opening(struct url **url)
{
    char text[64];
    fake_listen(&fake);
    snprintf(text, sizeof text, "zk://127.0.0.1:%u", fake.port);
    assert_status(url_parse(url, text, NULL), OK);
    zk = (struct zk){.engine = {.class = &zk_class, .events = &open_events, .loop = net_loop()}};
    timeout_ms = LONG_MS;
    n_opened = 0;
    zk_class.open(&zk.engine, *url);
    session = zk.main;
    come_up();
    net_settle(zk.engine.loop);
    read_packet();
    assert_int_equal(packet.type, JUTE_EXISTS);
}

static void end_opening(struct url *url)
{
    url_free(url);
    loop_free(zk.engine.loop);
    fake_free(&fake);
}

/* Else the server would keep it for its timeout. Only then is the failure reported. */
static void an_open_that_fails_ends_its_session(void **state)
{
    struct url *url;
    (void)state;
    begin_opening(&url);
    reply(packet.xid, ZNOAUTH, NULL);
    run_until(zk.engine.loop, zk.opening.stage == OPENING_ENDED);
    read_packet();
    assert_int_equal(packet.type, JUTE_CLOSE_SESSION);
    net_settle(zk.engine.loop);
    assert_int_equal(n_opened, 0);
    fake_hang_up(&fake);
    run_until(zk.engine.loop, n_opened > 0);
    net_settle(zk.engine.loop);
    assert_int_equal(n_opened, 1);
    assert_status(opened_with.status, REFUSED);
    end_opening(url);
}

static void closed_while_it_fails(void **state)
{
    struct url *url;
    (void)state;
    begin_opening(&url);
    reply(packet.xid, ZNOAUTH, NULL);
    run_until(zk.engine.loop, zk.opening.stage == OPENING_ENDED);
    zk_class.close(&zk.engine);
    net_settle(zk.engine.loop);
    assert_int_equal(n_opened, 0);
    end_opening(url);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(requests_are_answered_in_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_answer_to_another_request_ends_the_connection, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_never_left_is_not_in_doubt, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_more_than_a_window_is_under_way, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_session_is_taken_up_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_expired_session_is_followed_by_a_new_one, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_server_that_refuses_the_session_for_ever, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_server_that_refuses_everybody, set_up, tear_down),
        cmocka_unit_test_setup_teardown(watches_report_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(watches_are_set_again_in_pieces, set_up, tear_down),
        cmocka_unit_test(an_open_that_fails_ends_its_session),
        cmocka_unit_test(closed_while_it_fails),
    };
    return cmocka_run_group_tests_name("zookeeper_session", tests, NULL, NULL);
}
