/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/etcd_conn_kit.h"

struct loop *loop;
struct conn *conn;
struct conn_options options;
struct h2_peer peer, other;
unsigned ups, downs;

static void on_up(struct conn *c)
{
    assert_true(etcd_conn_is_up(c));
    ups++;
}

static void on_down(struct conn *c, const struct stile_error *why)
{
    assert_false(etcd_conn_is_up(c));
    assert_true(why->status && why->message[0]);
    downs++;
}

static const struct conn_events events = {.up = on_up, .down = on_down};

int scene_open(void **state)
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

int scene_close(void **state)
{
    (void)state;
    etcd_conn_free(conn);
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

void scene_start(void)
{
    struct stile_error err;
    assert_status(etcd_conn_new(&conn, loop, &options, &events, NULL, &err), OK);
}

void scene_connect(void)
{
    scene_start();
    net_settle(loop);
    peer_accept(&peer);
    run_until(loop, ups == 1);
}

static void hear(void *data, const ProtobufCMessage *answer, const struct stile_error *err)
{
    struct heard *heard = data;
    const Etcd__TxnResponse *txn = (const Etcd__TxnResponse *)answer;
    heard->times++;
    heard->revision = txn && txn->header ? txn->header->revision : 0;
    error_copy(&heard->err, err);
    if (heard->then)
        scene_ask(heard->then);
    if (heard->frees) {
        etcd_conn_free(conn);
        conn = NULL;
    }
}

void scene_ask(struct heard *heard)
{
    Etcd__TxnRequest request = ETCD__TXN_REQUEST__INIT;
    assert_status(etcd_conn_request(conn, RPC_TXN, &request.base, hear, heard, NULL), OK);
    assert_int_equal(heard->times, 0);
}

/* The peer has it whole. */
struct peer_call *scene_arrived(struct h2_peer *at, size_t n)
{
    uint64_t end_ns = loop_now(loop) + NET_PATIENCE_NS;
    while ((at->n <= n || !at->calls[n].whole) && loop_now(loop) < end_ns) {
        net_settle(loop);
        peer_take(at);
    }
    assert_true(at->n > n && at->calls[n].whole);
    return &at->calls[n];
}

size_t scene_pack_answer(uint8_t bytes[64])
{
    Etcd__Header header = ETCD__HEADER__INIT;
    Etcd__TxnResponse answer = ETCD__TXN_RESPONSE__INIT;
    header.revision = REVISION;
    answer.header = &header;
    return etcd__txn_response__pack(&answer, bytes);
}

void scene_answer(struct h2_peer *at, const struct peer_call *call)
{
    uint8_t bytes[64];
    peer_answer_message(at, call->id, bytes, scene_pack_answer(bytes));
}

bool heard_says(const struct heard *heard, const char *words)
{
    return strstr(heard->err.message, words);
}
