/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The least that a lock costs on etcd: over our own connection a transaction that puts a key bound
 * to a lease, and one that deletes it. One connection for all, and a loop that is driven by the
 * thread that waits; several may be under way at once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "engines/etcd/etcd.h"

#define LEASE_S 60

static struct loop *loop;
static struct conn *conn;
static int64_t lease;

struct bare {
    struct key key;
    bench_done_fn *done;
    void *data;
    bool over;
    int64_t revision; /* of its last swap */
};

static void on_change(struct conn *of)
{
    (void)of;
}

static void on_down(struct conn *of, const struct stile_error *why)
{
    (void)of;
    bench_die("etcd: %s", why->message);
}

static const struct conn_events events = {.up = on_change, .down = on_down};

static void turn(void)
{
    loop_prepare(loop);
    loop_wait(loop, true);
    loop_run(loop);
}

static void check(const struct stile_error *err)
{
    if (err)
        bench_die("etcd: %s", err->message);
}

static void on_answer(void *data, const ProtobufCMessage *answer, const struct stile_error *err)
{
    struct bare *bare = data;
    (void)answer;
    check(err);
    bare->over = true;
    if (bare->done)
        bare->done(bare->data);
}

static void on_lease(void *data, const ProtobufCMessage *answer, const struct stile_error *err)
{
    (void)data;
    check(err);
    lease = ((const Etcd__LeaseGrantResponse *)answer)->id;
}

static void grant_lease(void)
{
    Etcd__LeaseGrantRequest request = ETCD__LEASE_GRANT_REQUEST__INIT;
    struct stile_error err;
    request.ttl = LEASE_S;
    while (!etcd_conn_is_up(conn))
        turn();
    if (etcd_conn_request(conn, RPC_LEASE_GRANT, &request.base, on_lease, NULL, &err))
        check(&err);
    while (!lease)
        turn();
}

/* place: etcd://HOST:PORT */
static void connect_to(const char *place)
{
    char host[64];
    unsigned port;
    struct stile_error err;
    if (conn)
        return;
    if (sscanf(place, "etcd://%63[^:]:%u", host, &port) != 2)
        bench_die("'%s': want etcd://HOST:PORT", place);
    struct conn_options options = {.endpoints = {{host, (uint16_t)port}}, .n_endpoints = 1};
    if (loop_epoll_new(&loop) || etcd_conn_new(&conn, loop, &options, &events, NULL, &err))
        bench_die("etcd: cannot connect");
    grant_lease();
}

static void *open_etcd(const char *place, const char *lock_name)
{
    struct bare *bare = calloc(1, sizeof *bare);
    connect_to(place);
    bare->key.len = (size_t)snprintf((char *)bare->key.bytes, KEY_MAX, "bare %s/%llx", lock_name,
                                     (unsigned long long)lease);
    return bare;
}

static void send_txn(struct bare *bare, struct txn *txn, bench_done_fn *done, void *data)
{
    struct stile_error err;
    bare->done = done;
    bare->data = data;
    bare->over = false;
    if (etcd_conn_request(conn, RPC_TXN, &txn->request.base, on_answer, bare, &err))
        check(&err);
}

static void start_take(void *handle, bench_done_fn *done, void *data)
{
    struct bare *bare = handle;
    struct txn txn;
    etcd_txn_init(&txn);
    etcd_txn_if_created(&txn, &bare->key, 0);
    etcd_txn_put(&txn, THEN, &bare->key, "", lease);
    send_txn(bare, &txn, done, data);
}

static void start_give(void *handle, bench_done_fn *done, void *data)
{
    struct bare *bare = handle;
    struct txn txn;
    etcd_txn_init(&txn);
    etcd_txn_delete(&txn, THEN, &bare->key);
    send_txn(bare, &txn, done, data);
}

static void await(struct bare *bare)
{
    while (!bare->over)
        turn();
}

static void take_etcd(void *handle)
{
    start_take(handle, NULL, NULL);
    await(handle);
}

static void give_etcd(void *handle)
{
    start_give(handle, NULL, NULL);
    await(handle);
}

void etcd_write(const char *url)
{
    static struct bare *bare;
    struct txn txn;
    if (!bare)
        bare = open_etcd(url, "put");
    etcd_txn_init(&txn);
    etcd_txn_put(&txn, THEN, &bare->key, "", 0);
    send_txn(bare, &txn, NULL, NULL);
    await(bare);
}

static void on_swapped(void *data, const ProtobufCMessage *message, const struct stile_error *err)
{
    struct bare *bare = data;
    const Etcd__TxnResponse *answer = (const Etcd__TxnResponse *)message;
    check(err);
    if (!answer->succeeded)
        bench_die("etcd: another revision");
    bare->revision = answer->header->revision;
    bare->over = true;
}

static void swap(void *handle, const void *value, size_t size)
{
    struct bare *bare = handle;
    struct stile_error err;
    struct txn txn;
    etcd_txn_init(&txn);
    etcd_txn_if_modified(&txn, &bare->key, bare->revision);
    etcd_txn_put(&txn, THEN, &bare->key, "", 0)->value =
        (ProtobufCBinaryData){.len = size, .data = (uint8_t *)value};
    bare->over = false;
    if (etcd_conn_request(conn, RPC_TXN, &txn.request.base, on_swapped, bare, &err))
        check(&err);
    await(bare);
}

const struct swap_subject swap_etcd = {.name = "etcd", .open = open_etcd, .swap = swap};
const struct subject subject_etcd = {
    .name = "etcd", .open = open_etcd, .take = take_etcd, .give = give_etcd};
const struct async_subject async_etcd = {
    .name = "etcd", .open = open_etcd, .take = start_take, .give = start_give, .turn = turn};
