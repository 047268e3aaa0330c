/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The least that a lock on a ZooKeeper server costs: an ephemeral sequential node that is created,
 * and deleted, through the C client. Nobody looks whether it is the first one. One handle for all,
 * one request at a time or many in flight. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zookeeper/zookeeper.h>

#include "bench.h"

#define SESSION_MS 10000
#define DATA       "12345 some.host.name 10000/0 some-command"

struct bare {
    char prefix[128];
    char node[160];
    int rc;
    bool answered;
    bench_done_fn *done;
    void *data;
};

static zhandle_t *handle;

static void on_session(zhandle_t *zh, int type, int state, const char *path, void *data)
{
    (void)zh, (void)type, (void)state, (void)path, (void)data;
}

/* One turn of a loop as its manual has it. */
static void turn(void)
{
    struct timeval wait = {0};
    struct pollfd ready = {.fd = -1};
    int interest = 0, events;
    int rc = zookeeper_interest(handle, &ready.fd, &interest, &wait);
    if (rc != ZOK)
        bench_die("zookeeper: %s", zerror(rc));
    ready.events = (short)((interest & ZOOKEEPER_READ ? POLLIN : 0) |
                           (interest & ZOOKEEPER_WRITE ? POLLOUT : 0));
    poll(&ready, 1, (int)(wait.tv_sec * 1000 + wait.tv_usec / 1000));
    events = (ready.revents & POLLOUT ? ZOOKEEPER_WRITE : 0) |
             (ready.revents & ~POLLOUT ? ZOOKEEPER_READ : 0);
    while ((rc = zookeeper_process(handle, events)) == ZOK)
        events = ZOOKEEPER_READ;
    if (rc != ZNOTHING)
        bench_die("zookeeper: %s", zerror(rc));
}

static void answer(struct bare *bare, int rc)
{
    if (rc != ZOK && rc != ZNODEEXISTS)
        bench_die("zookeeper: %s: %s", bare->prefix, zerror(rc));
    bare->answered = true;
    if (bare->done)
        bare->done(bare->data);
}

static void await(struct bare *bare)
{
    while (!bare->answered)
        turn();
}

static void on_made(int rc, const char *path, const void *data)
{
    struct bare *bare = (struct bare *)data;
    snprintf(bare->node, sizeof bare->node, "%s", path ? path : "");
    answer(bare, rc);
}

static void on_void(int rc, const void *data)
{
    answer((struct bare *)data, rc);
}

static void on_stat(int rc, const struct Stat *stat, const void *data)
{
    (void)stat;
    answer((struct bare *)data, rc);
}

static void make(struct bare *bare, const char *path, int mode)
{
    bare->answered = false;
    if (zoo_acreate(handle, path, DATA, sizeof DATA - 1, &ZOO_OPEN_ACL_UNSAFE, mode, on_made, bare))
        bench_die("zookeeper: %s: the client refuses it", path);
}

static void connect_to(const char *url)
{
    if (handle)
        return;
    zoo_set_debug_level(0);
    handle = zookeeper_init(strstr(url, "//") + 2, on_session, SESSION_MS, NULL, NULL, 0);
    if (!handle)
        bench_die("zookeeper: the client does not start");
    zoo_set_servers_resolution_delay(handle, -1); /* by default in every turn */
    struct bare root = {0};
    make(&root, "/bare", ZOO_PERSISTENT);
    await(&root);
}

static void *open_zookeeper(const char *place, const char *lock_name)
{
    struct bare *bare = calloc(1, sizeof *bare);
    connect_to(place);
    snprintf(bare->prefix, sizeof bare->prefix, "/bare/%s", lock_name);
    make(bare, bare->prefix, ZOO_PERSISTENT);
    await(bare);
    strcat(bare->prefix, "/_c_01234567-89ab-4def-8123-456789abcdef-lock-");
    return bare;
}

static void start_take(void *taken, bench_done_fn *done, void *data)
{
    struct bare *bare = taken;
    bare->done = done;
    bare->data = data;
    make(bare, bare->prefix, ZOO_EPHEMERAL_SEQUENTIAL);
}

static void start_give(void *given, bench_done_fn *done, void *data)
{
    struct bare *bare = given;
    bare->done = done;
    bare->data = data;
    bare->answered = false;
    if (zoo_adelete(handle, bare->node, -1, on_void, bare))
        bench_die("zookeeper: %s: the client refuses to delete it", bare->node);
}

static void take_zookeeper(void *bare)
{
    start_take(bare, NULL, NULL);
    await(bare);
}

static void give_zookeeper(void *bare)
{
    start_give(bare, NULL, NULL);
    await(bare);
}

void zookeeper_write(const char *url)
{
    static struct bare bare;
    connect_to(url);
    bare.answered = false;
    if (zoo_aset(handle, "/bare", DATA, sizeof DATA - 1, -1, on_stat, &bare))
        bench_die("zookeeper: the client refuses to write");
    await(&bare);
}

const struct subject subject_zookeeper = {
    .name = "zookeeper", .open = open_zookeeper, .take = take_zookeeper, .give = give_zookeeper};
const struct async_subject async_zookeeper = {.name = "zookeeper",
                                              .open = open_zookeeper,
                                              .take = start_take,
                                              .give = start_give,
                                              .turn = turn};
