/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/redis_cluster.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sim/redis_server.h"

#define BUS_MAX_NS (3 * MS)

/* ---- slots ---- */

static unsigned crc16(const char *bytes, size_t n)
{
    unsigned crc = 0;
    for (size_t i = 0; i < n; i++) {
        crc ^= (unsigned)(unsigned char)bytes[i] << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc << 1 ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff;
    }
    return crc;
}

/* Of a key with braces, what is between the first of them counts, unless that is nothing. */
unsigned redis_cluster_slot(struct bytes key)
{
    const char *open = memchr(key.at, '{', key.n);
    const char *close = open != NULL ? memchr(open, '}', key.n - (size_t)(open - key.at)) : NULL;
    if (close != NULL && close > open + 1)
        return crc16(open + 1, (size_t)(close - open) - 1) % CLUSTER_SLOTS;
    return crc16(key.at, key.n) % CLUSTER_SLOTS;
}

static unsigned first_of(unsigned shard)
{
    return shard * CLUSTER_SLOTS / CLUSTER_SHARDS;
}

unsigned redis_cluster_shard(const struct cluster_view *view, unsigned slot)
{
    unsigned shard = CLUSTER_SHARDS - 1;
    for (size_t i = 0; i < view->n_moved; i++) {
        if (view->moved[i].slot == slot)
            return view->moved[i].shard;
    }
    while (slot < first_of(shard))
        shard--;
    return shard;
}

bool redis_cluster_move(struct cluster_view *view, unsigned slot, unsigned shard)
{
    size_t i = 0;
    while (i < view->n_moved && view->moved[i].slot != slot)
        i++;
    if (i == CLUSTER_MOVED)
        return false;
    view->moved[i].slot = slot;
    view->moved[i].shard = shard;
    if (i == view->n_moved)
        view->n_moved++;
    return true;
}

/* ---- CLUSTER ---- */

static bool is(struct bytes bytes, const char *word)
{
    return bytes.n == strlen(word) && strncasecmp(bytes.at, word, bytes.n) == 0;
}

static void put_address(struct buffer *out, const struct redis_node *node)
{
    char id[48];
    snprintf(id, sizeof id, "%040u", node->server->number + 1);
    resp_array(out, 4);
    resp_bulk(out, node->server->host, strlen(node->server->host));
    resp_number(out, node->server->port);
    resp_bulk(out, id, strlen(id));
    resp_array(out, 0);
}

static void put_range(struct buffer *out, const struct cluster_view *view, unsigned first,
                      unsigned last)
{
    resp_array(out, 3);
    resp_number(out, first);
    resp_number(out, last);
    put_address(out, view->primaries[redis_cluster_shard(view, first)]);
}

/* Ranges of neighbours in one shard. */
static void put_slots(struct buffer *out, const struct cluster_view *view)
{
    struct buffer ranges = {0};
    size_t n = 0;
    for (unsigned first = 0, slot = 1; slot <= CLUSTER_SLOTS; slot++) {
        if (slot < CLUSTER_SLOTS &&
            redis_cluster_shard(view, slot) == redis_cluster_shard(view, first))
            continue;
        put_range(&ranges, view, first, slot - 1);
        first = slot;
        n++;
    }
    resp_array(out, n);
    buffer_put(out, buffer_at(&ranges), buffer_len(&ranges));
    buffer_free(&ranges);
}

static bool is_down(const struct cluster_node *self)
{
    bool down = self->isolated;
    for (unsigned i = 0; i < CLUSTER_SHARDS; i++)
        down |= self->view.failed[i];
    return down;
}

static void run_cluster(const struct cluster_node *self, const struct redis_call *call)
{
    if (call->n_args == 2 && is(call->args[1], "SLOTS")) {
        put_slots(call->out, &self->view);
    } else if (call->n_args == 2 && is(call->args[1], "INFO")) {
        const char *text = is_down(self) ? "cluster_state:fail\r\n" : "cluster_state:ok\r\n";
        resp_bulk(call->out, text, strlen(text));
    } else if (call->n_args == 3 && is(call->args[1], "KEYSLOT")) {
        resp_number(call->out, redis_cluster_slot(call->args[2]));
    } else {
        resp_error(call->out, "ERR unknown subcommand");
    }
}

/* ---- where a command belongs ---- */

/* The keys among its arguments. */
static size_t keys_of(const struct redis_call *call, const struct bytes **keys)
{
    static const char *const without[] = {"AUTH",   "CLIENT",    "CONFIG", "FLUSHALL",    "INFO",
                                          "PING",   "PUBLISH",   "PUBSUB", "ROLE",        "SCAN",
                                          "SELECT", "SUBSCRIBE", "TIME",   "UNSUBSCRIBE", "WAIT"};
    bool script = is(call->args[0], "EVAL") || is(call->args[0], "EVALSHA");
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        if (is(call->args[0], without[i]))
            return 0;
    }
    *keys = call->args + (script ? 3 : 1);
    if (script)
        return call->n_args > 2 ? strtoul(call->args[2].at, NULL, 10) : 0;
    bool several = is(call->args[0], "DEL") || is(call->args[0], "EXISTS");
    return several ? call->n_args - 1 : call->n_args > 1;
}

static size_t count_present(const struct redis_call *call, const struct bytes *keys, size_t n)
{
    size_t present = 0;
    for (size_t i = 0; i < n; i++)
        present += redis_store_has(call->store, keys[i], call->now_us);
    return present;
}

static bool in_one_slot(const struct bytes *keys, size_t n)
{
    bool one = true;
    for (size_t i = 1; i < n; i++)
        one &= redis_cluster_slot(keys[i]) == redis_cluster_slot(keys[0]);
    return one;
}

static void redirect(const struct redis_call *call, const char *word, unsigned slot,
                     const struct redis_node *to)
{
    resp_error(call->out,
               world_print("%s %u %s:%u", word, slot, to->server->host, to->server->port));
}

static const char TRY_AGAIN[] = "TRYAGAIN Multiple keys request during rehashing of slot";

/* As getNodeByQuery() of Redis 7. False: it is executed here. */
static bool is_redirected(const struct redis_node *node, bool asking, const struct redis_call *call,
                          const struct bytes *keys, size_t n)
{
    const struct cluster_node *self = node->data;
    unsigned slot = redis_cluster_slot(keys[0]);
    const struct redis_node *owner = self->view.primaries[redis_cluster_shard(&self->view, slot)];
    size_t present = count_present(call, keys, n);
    bool migrating = owner == node && self->migrating == (int)slot;
    bool importing = owner != node && self->importing == (int)slot;
    if (!in_one_slot(keys, n))
        resp_error(call->out, "CROSSSLOT Keys in request don't hash to the same slot");
    else if (is_down(self))
        resp_error(call->out, "CLUSTERDOWN The cluster is down");
    else if (migrating && present < n && present > 0)
        resp_error(call->out, TRY_AGAIN);
    else if (migrating && present < n)
        redirect(call, "ASK", slot, self->partner);
    else if (importing && asking && n > 1 && present < n)
        resp_error(call->out, TRY_AGAIN);
    else if (owner != node && !(importing && asking))
        redirect(call, "MOVED", slot, owner);
    else
        return false;
    return true;
}

static bool command(struct redis_node *node, struct session *session, const struct redis_call *call)
{
    const struct bytes *keys;
    bool asking = session != NULL && session->asking;
    if (session != NULL)
        session->asking = is(call->args[0], "ASKING");
    if (is(call->args[0], "ASKING")) {
        resp_status(call->out, "OK");
        return true;
    }
    if (is(call->args[0], "CLUSTER")) {
        run_cluster(node->data, call);
        return true;
    }
    size_t n = keys_of(call, &keys);
    return n > 0 && is_redirected(node, asking, call, keys, n);
}

/* ---- the bus ---- */

struct note {
    struct server *server;
    struct bytes channel, message;
};

static void arrive(void *data)
{
    const struct note *note = data;
    if (server_runs(note->server) && !redis_node_of(note->server)->replication.cut)
        sim_redis_deliver(note->server, note->channel, note->message);
}

static struct bytes keep(struct bytes bytes)
{
    char *at = world_alloc(bytes.n + 1);
    memcpy(at, bytes.at, bytes.n);
    return (struct bytes){at, bytes.n};
}

/* Whatever is published goes to the subscribers of all nodes; only its own are counted. */
static void published(struct redis_node *node, struct bytes channel, struct bytes message)
{
    struct replication *r = &node->replication;
    for (size_t i = 0; i < net_count() && !r->cut; i++) {
        struct note *note;
        if (net_server(i) == node->server)
            continue;
        note = world_alloc(sizeof *note);
        *note = (struct note){net_server(i), keep(channel), keep(message)};
        world_at(world_now() + random_below(&r->random, BUS_MAX_NS), arrive, note);
    }
}

const struct redis_mode redis_cluster_mode = {
    .command = command,
    .published = published,
    .info = "redis_mode:cluster\r\ncluster_enabled:1\r\n",
};
