/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/redis_replica.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define USUAL_MIN_NS (50 * US)
#define USUAL_MAX_NS (2 * MS)
#define PROBE_NS     (20 * MS)
#define SYNC_MIN_NS  (20 * MS)
#define SYNC_MAX_NS  (300 * MS)

/* What one command, or one script, has changed. */
struct unit {
    struct unit *next;
    uint64_t offset, at_ns;
    struct redis_change *change;
};

/* What arrives later, unless the replica has begun to follow anew meanwhile. */
struct arrival {
    struct redis_node *node;
    unsigned link;
    uint64_t offset;
};

struct wait {
    struct session *session;
    uint64_t offset;
    long long wanted;
    bool over;
};

static void pump(void *data);
static void sync(void *data);

static struct redis_node *node_at(size_t number)
{
    return redis_node_of(net_server(number));
}

static bool follows(size_t number, const struct redis_node *primary)
{
    return node_at(number) != NULL && node_at(number)->replication.primary == primary;
}

static bool runs(const struct redis_node *node)
{
    return server_runs(node->server);
}

/* ---- WAIT ---- */

static long long count_acks(const struct redis_node *primary, uint64_t offset)
{
    long long n = 0;
    for (size_t i = 0; i < net_count(); i++)
        n += follows(i, primary) && node_at(i)->replication.next != NULL &&
             node_at(i)->replication.acked >= offset;
    return n;
}

static void end_wait(struct wait *wait, const char *error)
{
    struct connection *connection = wait->session->connection;
    struct redis_node *node = redis_node_of(connection->server);
    struct buffer out = {0};
    wait->over = true;
    wait->session->wait = NULL;
    if (connection->ended)
        return;
    if (error != NULL)
        resp_error(&out, error);
    else
        resp_number(&out, count_acks(node, wait->offset));
    connection_reply(connection, buffer_at(&out), buffer_len(&out));
    buffer_free(&out);
    connection->server->class->data(connection); /* what came behind it */
}

static void wait_timed_out(void *data)
{
    struct wait *wait = data;
    if (wait->over)
        return;
    if (wait->session->connection->server->stopped)
        world_at(world_now() + PROBE_NS, wait_timed_out, wait);
    else
        end_wait(wait, NULL);
}

static struct wait *wait_of(const struct connection *connection)
{
    const struct session *session = connection->data;
    return connection->ended || session == NULL ? NULL : session->wait;
}

static void look_at_waits(struct redis_node *primary)
{
    for (struct connection *each = primary->server->connections; each != NULL; each = each->next) {
        struct wait *wait = wait_of(each);
        if (wait != NULL && count_acks(primary, wait->offset) >= wait->wanted)
            end_wait(wait, NULL);
    }
}

static void begin_wait(const struct redis_node *node, struct session *session,
                       const struct redis_call *call)
{
    long long wanted = strtoll(call->args[1].at, NULL, 10);
    long long ms = strtoll(call->args[2].at, NULL, 10);
    if (node->replication.primary != NULL) {
        resp_error(call->out, "ERR WAIT cannot be used with replica instances. Please also note "
                              "that writes to replicas are just local and are not propagated.");
        return;
    }
    if (session == NULL || count_acks(node, session->offset) >= wanted) {
        resp_number(call->out, count_acks(node, session != NULL ? session->offset : 0));
        return;
    }
    session->wait = world_alloc(sizeof *session->wait);
    *session->wait = (struct wait){.session = session, .offset = session->offset, .wanted = wanted};
    if (ms > 0)
        world_at(world_now() + (uint64_t)ms * MS, wait_timed_out, session->wait);
}

static void send_waiters_away(struct redis_node *node)
{
    for (struct connection *each = node->server->connections; each != NULL; each = each->next) {
        if (wait_of(each) == NULL)
            continue;
        end_wait(wait_of(each), "UNBLOCKED force unblock from blocking operation, instance state "
                                "changed (master -> replica?)");
        connection_end(each);
    }
}

/* ---- the way of changes ---- */

static uint64_t delay(struct replication *r)
{
    uint64_t ns = random_between(&r->random, USUAL_MIN_NS, USUAL_MAX_NS);
    return ns + (r->lag_ns != 0 ? random_below(&r->random, r->lag_ns) : 0);
}

static void later(struct redis_node *node, uint64_t in_ns, happening_fn *fn)
{
    struct arrival *arrival = world_alloc(sizeof *arrival);
    *arrival = (struct arrival){node, node->replication.link, node->replication.offset};
    world_at(world_now() + in_ns, fn, arrival);
}

static void acknowledge(void *data)
{
    struct arrival *arrival = data;
    struct replication *r = &arrival->node->replication;
    if (r->link != arrival->link || r->primary == NULL)
        return;
    if (r->cut || !runs(r->primary)) {
        world_at(world_now() + PROBE_NS, acknowledge, arrival);
        return;
    }
    if (arrival->offset > r->acked)
        r->acked = arrival->offset;
    look_at_waits(r->primary);
}

static bool can_pass(const struct redis_node *node)
{
    return !node->replication.cut && !node->replication.primary->replication.cut && runs(node);
}

static void pump_at(struct redis_node *node, uint64_t in_ns)
{
    if (node->replication.pumping)
        return;
    node->replication.pumping = true;
    later(node, in_ns, pump);
}

static void pump(void *data)
{
    const struct arrival *arrival = data;
    struct redis_node *node = arrival->node;
    struct replication *r = &node->replication;
    if (r->link != arrival->link || r->primary == NULL || r->next == NULL)
        return;
    r->pumping = false;
    if (*r->next == NULL || r->primary->server->down)
        return; /* what a primary that has crashed did not deliver is lost */
    if (!can_pass(node)) {
        pump_at(node, PROBE_NS);
        return;
    }
    const struct unit *unit = *r->next;
    redis_store_apply(&node->store, unit->change);
    r->offset = unit->offset;
    r->next = &((struct unit *)unit)->next;
    later(node, delay(r), acknowledge);
    if (*r->next != NULL)
        pump_at(node, delay(r));
}

/* All data, as they are now. */
static void sync(void *data)
{
    const struct arrival *arrival = data;
    struct redis_node *node = arrival->node;
    struct replication *r = &node->replication;
    if (r->link != arrival->link || r->primary == NULL)
        return;
    if (!can_pass(node) || !runs(r->primary)) {
        later(node, PROBE_NS, sync);
        return;
    }
    world_trace("%s has all of %s", node->server->host, r->primary->server->host);
    redis_store_copy(&node->store, &r->primary->store);
    r->next = r->primary->replication.end;
    r->offset = r->primary->replication.offset;
    later(node, delay(r), acknowledge);
}

void redis_replica_commit(struct redis_node *node, struct session *session)
{
    struct replication *r = &node->replication;
    struct redis_change *change = redis_store_changes(&node->store);
    if (change != NULL && r->primary == NULL) {
        struct unit *unit = world_alloc(sizeof *unit);
        *unit = (struct unit){.offset = ++r->offset, .change = change};
        *r->end = unit;
        r->end = &unit->next;
        for (size_t i = 0; i < net_count(); i++) {
            if (follows(i, node) && node_at(i)->replication.next != NULL)
                pump_at(node_at(i), delay(&node_at(i)->replication));
        }
    }
    if (session != NULL)
        session->offset = r->offset;
}

/* ---- roles ---- */

void redis_replica_begin(struct redis_node *node)
{
    struct replication *r = &node->replication;
    r->random = random_stream(world_seed(), 5000 + node->server->number);
    r->end = world_alloc(sizeof *r->end);
    node->store.noting = true;
}

static void follow(struct redis_node *node, struct redis_node *primary)
{
    struct replication *r = &node->replication;
    r->link++;
    r->primary = primary;
    r->next = NULL;
    r->acked = 0;
    r->pumping = false;
    if (primary != NULL)
        later(node, random_between(&r->random, SYNC_MIN_NS, SYNC_MAX_NS), sync);
}

void redis_replica_follow(struct redis_node *node, struct redis_node *primary)
{
    world_trace("%s %s %s", node->server->host, primary != NULL ? "follows" : "is a",
                primary != NULL ? primary->server->host : "primary");
    if (primary != NULL && node->replication.primary == NULL)
        send_waiters_away(node);
    follow(node, primary);
}

void redis_replica_restarted(struct redis_node *node)
{
    if (node->replication.primary != NULL)
        follow(node, node->replication.primary);
    for (size_t i = 0; i < net_count(); i++) {
        if (follows(i, node))
            follow(node_at(i), node);
    }
}

bool redis_replica_is_current(const struct redis_node *node)
{
    const struct replication *r = &node->replication;
    return r->next != NULL && r->offset == r->primary->replication.offset;
}

/* ---- commands ---- */

static bool is(struct bytes bytes, const char *word)
{
    return bytes.n == strlen(word) && strncasecmp(bytes.at, word, bytes.n) == 0;
}

static void put_text(struct buffer *out, const char *text)
{
    resp_bulk(out, text, strlen(text));
}

static void put_number(struct buffer *out, unsigned long long number)
{
    char text[32];
    snprintf(text, sizeof text, "%llu", number);
    put_text(out, text);
}

static size_t count_replicas(const struct redis_node *node)
{
    size_t n = 0;
    for (size_t i = 0; i < net_count(); i++)
        n += follows(i, node) && node_at(i)->replication.next != NULL;
    return n;
}

static void put_role_of_primary(const struct redis_node *node, struct buffer *out)
{
    resp_array(out, 3);
    put_text(out, "master");
    resp_number(out, (long long)node->replication.offset);
    resp_array(out, count_replicas(node));
    for (size_t i = 0; i < net_count(); i++) {
        if (!follows(i, node) || node_at(i)->replication.next == NULL)
            continue;
        resp_array(out, 3);
        put_text(out, net_server(i)->host);
        put_number(out, net_server(i)->port);
        put_number(out, node_at(i)->replication.acked);
    }
}

static void put_role(const struct redis_node *node, struct buffer *out)
{
    const struct replication *r = &node->replication;
    if (r->primary == NULL) {
        put_role_of_primary(node, out);
        return;
    }
    resp_array(out, 5);
    put_text(out, "slave");
    put_text(out, r->primary->server->host);
    resp_number(out, r->primary->server->port);
    put_text(out, r->next != NULL ? "connected" : "connect");
    resp_number(out, r->next != NULL ? (long long)r->offset : -1);
}

bool redis_replica_command(struct redis_node *node, struct session *session,
                           const struct redis_call *call)
{
    if (is(call->args[0], "WAIT") && call->n_args == 3)
        begin_wait(node, session, call);
    else if (is(call->args[0], "ROLE") && call->n_args == 1)
        put_role(node, call->out);
    else
        return false;
    return true;
}

int redis_replica_info(const struct redis_node *node, char *text, size_t size)
{
    const struct replication *r = &node->replication;
    if (r->primary == NULL)
        return snprintf(text, size, "role:master\r\nconnected_slaves:%zu\r\n",
                        count_replicas(node));
    return snprintf(text, size,
                    "role:slave\r\nmaster_host:%s\r\nmaster_port:%u\r\nmaster_link_status:%s\r\n"
                    "connected_slaves:0\r\n",
                    r->primary->server->host, r->primary->server->port,
                    r->next != NULL ? "up" : "down");
}
