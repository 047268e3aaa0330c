/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/zookeeper_server.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "sim/zookeeper_text.h"

#define PASSWORD_LEN  16
#define FORGOTTEN_NS  (10 * SEC) /* until a server closes what it has forgotten */
#define THROTTLE_ONCE 2
#define PACKET_MAX    (1 << 20)
#define OPS_MAX       128

enum { JUTE_PING = 11, JUTE_XID_PING = -2 };

static unsigned failures;

unsigned sim_zk_failures(void)
{
    return failures;
}

enum client_state { NEW, OPENING, OPEN, ENDED };

struct watching {
    struct watching *next;
    bool children;
    uint64_t hash;
    const char *path;
};

struct zk_client {
    struct zk_client *next; /* of the same member */
    struct zk_member *member;
    const struct zk_client_events *events;
    void *owner;
    const char *name; /* for the trace */
    enum client_state state;
    bool forgotten;
    int64_t session;
    int32_t timeout_ms;
    struct request *first, **last; /* in the order in which they are answered */
    struct watching *watches;
};

/* The engine has a struct request, too: this one is the server's. */
struct request {
    struct request *next;
    struct zk_client *client;
    int32_t xid, type;
    const char *path;
    bool watched;
    char *body; /* setWatches */
    size_t n;
    struct zk_txn *txn;
    bool waits; /* for its leader */
    int rc;     /* it is turned away */
};

static struct jute_writer writer;

/* ---- sending ---- */

static void send_packet(struct zk_client *client)
{
    size_t n;
    const char *packet = zk_jute_end(&writer, &n);
    client->events->write(client->owner, packet, n);
}

static void hang_up(struct zk_client *client)
{
    if (client->state == ENDED)
        return;
    zk_client_gone(client);
    client->events->end(client->owner);
}

static void begin_reply(const struct zk_client *client, int32_t xid, int rc)
{
    zk_jute_begin(&writer);
    zk_jute_write_int(&writer, xid);
    zk_jute_write_long(&writer, client->member->tree.zxid);
    zk_jute_write_int(&writer, rc);
}

static void write_stat(const struct jute_stat *stat)
{
    zk_jute_write_long(&writer, stat->czxid);
    zk_jute_write_long(&writer, stat->mzxid);
    zk_jute_write_long(&writer, stat->ctime);
    zk_jute_write_long(&writer, stat->mtime);
    zk_jute_write_int(&writer, stat->version);
    zk_jute_write_int(&writer, stat->cversion);
    zk_jute_write_int(&writer, stat->aversion);
    zk_jute_write_long(&writer, stat->ephemeral_owner);
    zk_jute_write_int(&writer, stat->data_length);
    zk_jute_write_int(&writer, stat->num_children);
    zk_jute_write_long(&writer, stat->pzxid);
}

static void write_node_stat(const struct zk_node *node)
{
    struct jute_stat stat;
    zk_node_stat(&stat, node);
    write_stat(&stat);
}

/* ---- watches ---- */

static void send_event(struct zk_client *client, enum jute_event type, const char *path)
{
    const int32_t connected = 3;
    zk_jute_begin(&writer);
    zk_jute_write_int(&writer, JUTE_XID_EVENT);
    zk_jute_write_long(&writer, -1);
    zk_jute_write_int(&writer, 0);
    zk_jute_write_int(&writer, type);
    zk_jute_write_int(&writer, connected);
    zk_jute_write_string(&writer, path);
    world_trace("%s: event %d of %s for %s", client->member->server->host, (int)type, path,
                client->name);
    send_packet(client);
}

static uint64_t hash_of(const char *path)
{
    return fnv_add(FNV_START, path, strlen(path));
}

static struct watching **find_watch(struct zk_client *client, bool children, uint64_t hash,
                                    const char *path)
{
    struct watching **at = &client->watches;
    while (*at != NULL &&
           ((*at)->hash != hash || (*at)->children != children || strcmp((*at)->path, path) != 0))
        at = &(*at)->next;
    return at;
}

static void set_watch(struct zk_client *client, bool children, const char *path)
{
    uint64_t hash = hash_of(path);
    struct watching **at = find_watch(client, children, hash, path);
    if (*at != NULL)
        return;
    *at = world_alloc(sizeof **at);
    **at = (struct watching){.children = children, .hash = hash, .path = path};
}

static bool take_watch(struct zk_client *client, bool children, uint64_t hash, const char *path)
{
    struct watching **at = find_watch(client, children, hash, path);
    bool found = *at != NULL;
    if (found)
        *at = (*at)->next;
    return found;
}

/* Of a node that goes, one event serves both kinds of watches. */
static void trigger(struct zk_member *member, enum jute_event type, const char *path)
{
    uint64_t hash = hash_of(path);
    for (struct zk_client *client = member->clients; client != NULL; client = client->next) {
        bool wanted = type != JUTE_EVENT_CHILD && take_watch(client, false, hash, path);
        if (type == JUTE_EVENT_CHILD || type == JUTE_EVENT_DELETED)
            wanted |= take_watch(client, true, hash, path);
        if (wanted)
            send_event(client, type, path);
    }
}

static const char *parent_of(const char *path)
{
    size_t n = (size_t)(strrchr(path, '/') - path);
    char *parent = world_alloc(n + 2);
    memcpy(parent, path, n > 0 ? n : 1);
    return parent;
}

static void on_changed(void *data, enum jute_event type, const char *path)
{
    struct zk_member *member = data;
    if (member->clients == NULL)
        return;
    trigger(member, type, path);
    if (type != JUTE_EVENT_CHANGED)
        trigger(member, JUTE_EVENT_CHILD, parent_of(path));
}

/* Those of an earlier connection. What has changed since is reported at once. */
static void set_again(struct zk_client *client, struct jute_reader *reader)
{
    int64_t seen = zk_jute_read_long(reader);
    for (int list = 0; list < 3; list++) {
        struct jute_strings paths;
        zk_jute_read_strings(reader, &paths);
        for (size_t i = 0; i < paths.n; i++) {
            const char *path = world_print("%s", paths.list[i]);
            const struct zk_node *node = zk_tree_find(&client->member->tree, path);
            if (list == 1 && node != NULL)
                send_event(client, JUTE_EVENT_CREATED, path);
            else if (list != 1 && node == NULL)
                send_event(client, JUTE_EVENT_DELETED, path);
            else if (list == 0 && node->stat.mzxid > seen)
                send_event(client, JUTE_EVENT_CHANGED, path);
            else if (list == 2 && node->stat.pzxid > seen)
                send_event(client, JUTE_EVENT_CHILD, path);
            else
                set_watch(client, list == 2, path);
        }
        zk_jute_strings_free(&paths);
    }
}

/* ---- answers ---- */

struct listing {
    int64_t session;
    int32_t n;
    bool writes;
};

static void write_children(const struct zk_node *node)
{
    int32_t n = 0;
    for (const struct zk_node *child = node->first; child != NULL; child = child->next)
        n++;
    zk_jute_write_int(&writer, n);
    for (const struct zk_node *child = node->first; child != NULL; child = child->next)
        zk_jute_write_string(&writer, child->name);
}

static void answer_read(const struct request *request)
{
    struct zk_client *client = request->client;
    const struct zk_node *node = zk_tree_find(&client->member->tree, request->path);
    begin_reply(client, request->xid, node != NULL ? ZOK : ZNONODE);
    if (node != NULL && request->type == JUTE_GET_CHILDREN)
        write_children(node);
    if (node != NULL && request->type == JUTE_GET_DATA)
        zk_jute_write_bytes(&writer, node->data.bytes, node->data.n);
    if (node != NULL)
        write_node_stat(node);
    send_packet(client);
    if (request->watched && (node != NULL || request->type == JUTE_EXISTS))
        set_watch(client, request->type == JUTE_GET_CHILDREN, request->path);
}

static void note_path(struct zk_node *node, void *data)
{
    struct listing *listing = data;
    if (node->stat.ephemeral_owner != listing->session)
        return;
    listing->n++;
    if (listing->writes)
        zk_jute_write_string(&writer, zk_node_path(node));
}

static void answer_ephemerals(const struct request *request)
{
    struct zk_node *root = request->client->member->tree.root;
    struct listing listing = {.session = request->client->session};
    zk_tree_walk(root, note_path, &listing);
    begin_reply(request->client, request->xid, ZOK);
    zk_jute_write_int(&writer, listing.n);
    listing.writes = true;
    zk_tree_walk(root, note_path, &listing);
    send_packet(request->client);
}

static void write_result(const struct zk_op *op)
{
    if (op->kind == ZK_OP_CREATE)
        zk_jute_write_string(&writer, op->path);
    if (op->kind == ZK_OP_CREATE || op->kind == ZK_OP_SET)
        write_stat(&op->stat);
}

static void write_results(const struct zk_txn *txn)
{
    for (size_t i = 0; i < txn->n; i++) {
        const struct zk_op *op = &txn->ops[i];
        int32_t type = op->kind == ZK_OP_DELETE ? JUTE_DELETE : JUTE_SET_DATA;
        zk_jute_write_int(&writer, txn->rc != ZOK ? -1 : type);
        zk_jute_write_bool(&writer, false);
        zk_jute_write_int(&writer, op->rc);
        if (txn->rc != ZOK)
            zk_jute_write_int(&writer, op->rc);
        else
            write_result(op);
    }
    zk_jute_write_int(&writer, -1);
    zk_jute_write_bool(&writer, true);
    zk_jute_write_int(&writer, -1);
}

static void answer_write(const struct request *request)
{
    const struct zk_txn *txn = request->txn;
    bool refused = txn->rc != ZOK && !(txn->multi && txn->rc == ZK_API_ERROR);
    begin_reply(request->client, request->xid, refused ? txn->rc : ZOK);
    if (txn->multi && !refused)
        write_results(txn);
    else if (!refused)
        write_result(txn->ops);
    send_packet(request->client);
}

static void answer_plainly(const struct request *request)
{
    begin_reply(request->client, request->xid, request->rc);
    if (request->type == JUTE_SYNC && request->rc == ZOK)
        zk_jute_write_string(&writer, request->path);
    send_packet(request->client);
}

static void answer(const struct request *request)
{
    struct jute_reader reader = {.at = request->body, .end = request->body + request->n};
    bool reads = request->type == JUTE_EXISTS || request->type == JUTE_GET_DATA ||
                 request->type == JUTE_GET_CHILDREN;
    if (request->rc == ZOK && request->type == JUTE_SET_WATCHES)
        set_again(request->client, &reader);
    if (request->txn != NULL)
        answer_write(request);
    else if (reads && request->rc == ZOK)
        answer_read(request);
    else if (request->type == JUTE_GET_EPHEMERALS && request->rc == ZOK)
        answer_ephemerals(request);
    else
        answer_plainly(request);
}

/* A read waits for the writes before it. */
static void answer_ready(struct zk_client *client)
{
    while (client->state == OPEN && client->first != NULL && !client->first->waits) {
        const struct request *request = client->first;
        client->first = request->next;
        if (client->first == NULL)
            client->last = &client->first;
        answer(request);
        if (request->type == JUTE_CLOSE_SESSION)
            hang_up(client);
    }
}

/* ---- requests ---- */

static const char *keep_string(struct jute_reader *reader)
{
    const char *text = zk_jute_read_string(reader);
    if (text == NULL)
        return "";
    char *copy = world_alloc(strlen(text) + 1);
    return strcpy(copy, text);
}

static struct zk_data keep_data(struct jute_reader *reader)
{
    struct zk_data data;
    const char *bytes = zk_jute_read_bytes(reader, &data.n);
    char *copy = bytes != NULL ? world_alloc(data.n + 1) : NULL;
    if (bytes != NULL)
        memcpy(copy, bytes, data.n);
    data.bytes = copy;
    return data;
}

static void skip_acl(struct jute_reader *reader)
{
    int32_t n = zk_jute_read_int(reader);
    for (int32_t i = 0; i < n && !reader->bad; i++) {
        (void)zk_jute_read_int(reader);
        (void)keep_string(reader);
        (void)keep_string(reader);
    }
}

/* False: it is none that is simulated. */
static bool read_op(struct zk_op *op, int32_t type, struct jute_reader *reader)
{
    op->path = type != JUTE_CLOSE_SESSION ? keep_string(reader) : NULL;
    if (type == JUTE_CREATE || type == JUTE_CREATE_CONTAINER) {
        op->kind = ZK_OP_CREATE;
        op->data = keep_data(reader);
        skip_acl(reader);
        op->mode = zk_jute_read_int(reader);
    } else if (type == JUTE_DELETE) {
        op->kind = ZK_OP_DELETE;
        op->version = zk_jute_read_int(reader);
    } else if (type == JUTE_SET_DATA) {
        op->kind = ZK_OP_SET;
        op->data = keep_data(reader);
        op->version = zk_jute_read_int(reader);
    } else if (type == JUTE_CLOSE_SESSION) {
        op->kind = ZK_OP_CLOSE_SESSION;
    } else {
        return false;
    }
    return !reader->bad;
}

static bool read_multi(struct zk_txn *txn, struct jute_reader *reader)
{
    txn->multi = true;
    txn->ops = world_alloc(OPS_MAX * sizeof *txn->ops);
    for (;;) {
        int32_t type = zk_jute_read_int(reader);
        bool done = zk_jute_read_bool(reader);
        (void)zk_jute_read_int(reader);
        if (done || reader->bad)
            return !reader->bad;
        if (txn->n == OPS_MAX || (type != JUTE_DELETE && type != JUTE_SET_DATA) ||
            !read_op(&txn->ops[txn->n++], type, reader))
            return false;
    }
}

static bool read_write(struct request *request, struct jute_reader *reader)
{
    struct zk_txn *txn = request->txn = world_alloc(sizeof *txn);
    txn->request = request;
    txn->session = request->client->session;
    if (request->type == JUTE_MULTI)
        return read_multi(txn, reader);
    txn->n = 1;
    txn->ops = world_alloc(sizeof *txn->ops);
    return read_op(txn->ops, request->type, reader);
}

static bool read_read(struct request *request, struct jute_reader *reader)
{
    request->path = keep_string(reader);
    if (request->type != JUTE_SYNC && request->type != JUTE_GET_EPHEMERALS)
        request->watched = zk_jute_read_bool(reader);
    return !reader->bad;
}

static bool keep_rest(struct request *request, const struct jute_reader *reader)
{
    request->n = (size_t)(reader->end - reader->at);
    request->body = world_alloc(request->n + 1);
    memcpy(request->body, reader->at, request->n);
    return true;
}

static bool read_body(struct request *request, struct jute_reader *reader)
{
    switch (request->type) {
    case JUTE_EXISTS:
    case JUTE_GET_DATA:
    case JUTE_GET_CHILDREN:
    case JUTE_SYNC:
    case JUTE_GET_EPHEMERALS:
        return read_read(request, reader);
    case JUTE_SET_WATCHES:
        return keep_rest(request, reader);
    case JUTE_PING:
    case JUTE_AUTH:
        return true;
    default:
        return read_write(request, reader);
    }
}

static bool is_turned_away(const struct request *request)
{
    struct zk_member *member = request->client->member;
    return member->throttles && request->type != JUTE_CLOSE_SESSION &&
           random_once_in(&member->ensemble->random, THROTTLE_ONCE);
}

static void ask_leader(struct request *request)
{
    struct zk_member *member = request->client->member;
    request->waits = true;
    if (request->txn != NULL)
        zk_member_propose(member, request->txn);
    else
        zk_member_sync(member, request);
}

static void trace_request(const struct request *request)
{
    const char *path = request->path != NULL  ? request->path
                       : request->txn != NULL ? request->txn->ops->path
                                              : NULL;
    world_trace("%s from %s: %d, type %d %s%s", request->client->member->server->host,
                request->client->name, request->xid, request->type, path != NULL ? path : "",
                request->rc != ZOK ? ", turned away" : "");
}

static void take_request(struct zk_client *client, struct jute_reader *reader)
{
    struct request *request = world_alloc(sizeof *request);
    request->client = client;
    request->xid = zk_jute_read_int(reader);
    request->type = zk_jute_read_int(reader);
    zk_member_touch(client->member, client->session, client->timeout_ms);
    if (!read_body(request, reader)) {
        failures++;
        world_trace("request %d is not simulated", request->type);
        hang_up(client);
        return;
    }
    if (is_turned_away(request)) {
        request->rc = ZTHROTTLEDOP;
        request->txn = NULL;
    }
    trace_request(request);
    *client->last = request;
    client->last = &request->next;
    if (request->txn != NULL || (request->type == JUTE_SYNC && request->rc == ZOK))
        ask_leader(request);
    answer_ready(client);
}

/* ---- sessions ---- */

/* Every server can compute it. */
static void password_of(char password[PASSWORD_LEN], int64_t session)
{
    struct random random = random_stream((uint64_t)session, 7);
    for (size_t i = 0; i < PASSWORD_LEN; i++)
        password[i] = (char)random_next(&random);
}

/* session 0: it has expired, or is not the client's. */
static void answer_greeting(struct zk_client *client, int64_t session)
{
    char password[PASSWORD_LEN] = {0};
    if (session != 0)
        password_of(password, session);
    zk_jute_begin(&writer);
    zk_jute_write_int(&writer, 0);
    zk_jute_write_int(&writer, session != 0 ? client->timeout_ms : 0);
    zk_jute_write_long(&writer, session);
    zk_jute_write_bytes(&writer, password, sizeof password);
    zk_jute_write_bool(&writer, false);
    world_trace("%s: %s has session %" PRIx64, client->member->server->host, client->name,
                (uint64_t)session);
    send_packet(client);
    client->state = OPEN;
    if (session == 0)
        hang_up(client);
}

static void open_session(struct zk_client *client)
{
    struct request *request = world_alloc(sizeof *request);
    struct zk_txn *txn = world_alloc(sizeof *txn);
    struct zk_member *member = client->member;
    *request = (struct request){.client = client, .txn = txn};
    client->session = (int64_t)(member->number + 1) << 56 |
                      (int64_t)(random_next(&member->ensemble->random) >> 9);
    *txn = (struct zk_txn){.session = client->session, .n = 1, .request = request};
    txn->ops = world_alloc(sizeof *txn->ops);
    *txn->ops = (struct zk_op){.kind = ZK_OP_OPEN_SESSION, .timeout_ms = client->timeout_ms};
    zk_member_propose(member, txn);
}

static void hang_up_session(struct zk_member *member, int64_t session, const struct zk_client *but)
{
    for (struct zk_client *each = member->clients, *next; each != NULL; each = next) {
        next = each->next;
        if (each != but && each->session == session)
            hang_up(each);
    }
}

static void reopen_session(struct zk_client *client, const char *password, size_t n)
{
    char expected[PASSWORD_LEN];
    struct request *request = world_alloc(sizeof *request);
    password_of(expected, client->session);
    hang_up_session(client->member, client->session, client);
    request->client = client;
    if (n != sizeof expected || memcmp(password, expected, n) != 0)
        answer_greeting(client, 0);
    else
        zk_member_validate(client->member, request, client->session, client->timeout_ms);
}

static int32_t negotiate(const struct zk_client *client, int32_t timeout_ms)
{
    int32_t least = client->member->ensemble->least_ms, most = client->member->ensemble->most_ms;
    return timeout_ms < least ? least : timeout_ms > most ? most : timeout_ms;
}

/* A server without a leader hangs up, and so does one that is behind what the client has seen. */
static void take_greeting(struct zk_client *client, struct jute_reader *reader)
{
    size_t n;
    (void)zk_jute_read_int(reader);
    int64_t seen = zk_jute_read_long(reader);
    client->timeout_ms = negotiate(client, zk_jute_read_int(reader));
    client->session = zk_jute_read_long(reader);
    const char *password = zk_jute_read_bytes(reader, &n);
    client->state = OPENING;
    if (client->forgotten)
        return;
    if (reader->bad || client->member->role == ZK_LOOKING || seen > client->member->tree.zxid)
        hang_up(client);
    else if (client->session == 0)
        open_session(client);
    else
        reopen_session(client, password, password != NULL ? n : 0);
}

/* ---- what the ensemble answers ---- */

static void on_applied(struct zk_member *member, struct zk_txn *txn)
{
    struct request *request = txn->request;
    if (request != NULL && request->client->member == member && request->waits) {
        request->waits = false;
        if (txn->rc == ZSESSIONMOVED)
            hang_up(request->client);
        answer_ready(request->client);
    } else if (request != NULL && request->client->member == member &&
               request->client->state == OPENING) {
        answer_greeting(request->client, txn->session);
    }
    if (txn->rc == ZOK && txn->ops->kind == ZK_OP_CLOSE_SESSION)
        hang_up_session(member, txn->session, NULL);
}

static void on_synced(struct zk_member *member, void *data)
{
    struct request *request = data;
    (void)member;
    request->waits = false;
    answer_ready(request->client);
}

static void on_validated(struct zk_member *member, void *data, bool valid)
{
    struct request *request = data;
    (void)member;
    if (request->client->state == OPENING)
        answer_greeting(request->client, valid ? request->client->session : 0);
}

static void on_stopped(struct zk_member *member)
{
    while (member->clients != NULL)
        hang_up(member->clients);
}

/* ---- connections ---- */

struct zk_client *zk_client_new(struct zk_member *member, const struct zk_client_events *events,
                                void *owner, const char *name)
{
    struct zk_client *client = world_alloc(sizeof *client);
    *client = (struct zk_client){
        .next = member->clients, .member = member, .events = events, .owner = owner, .name = name};
    client->last = &client->first;
    member->clients = client;
    return client;
}

void zk_client_gone(struct zk_client *client)
{
    struct zk_client **at = (struct zk_client **)&client->member->clients;
    client->state = ENDED;
    client->watches = NULL;
    while (*at != NULL && *at != client)
        at = &(*at)->next;
    if (*at != NULL)
        *at = client->next;
}

size_t zk_client_receive(struct zk_client *client, const char *bytes, size_t n)
{
    size_t used = 0;
    while (client->state != ENDED && client->state != OPENING && n - used >= 4) {
        char *packet = world_alloc(n - used);
        memcpy(packet, bytes + used, n - used);
        struct jute_reader reader = {.at = packet, .end = packet + n - used};
        int32_t len = zk_jute_read_int(&reader);
        if (len < 0 || len > PACKET_MAX) {
            hang_up(client);
            break;
        }
        if (n - used - 4 < (size_t)len)
            break;
        reader.end = reader.at + len;
        used += 4 + (size_t)len;
        if (client->state == NEW)
            take_greeting(client, &reader);
        else
            take_request(client, &reader);
    }
    return used;
}

/* ---- on the simulated network ---- */

static void write_out(void *owner, const void *bytes, size_t n)
{
    connection_reply(owner, bytes, n);
}

static void end_connection(void *owner)
{
    connection_end(owner);
}

static const struct zk_client_events network = {.write = write_out, .end = end_connection};

static void end_forgotten(void *data)
{
    hang_up(data);
}

static void on_accepted(struct connection *connection)
{
    struct zk_member *member = sim_zk_member(connection->server);
    struct zk_client *client =
        zk_client_new(member, &network, connection, connection->process->name);
    connection->data = client;
    if (member->forgets_ns <= world_now() || random_once_in(&member->ensemble->random, 2))
        return;
    client->forgotten = true;
    world_at(world_now() + FORGOTTEN_NS, end_forgotten, client);
}

static void on_data(struct connection *connection)
{
    struct buffer *in = &connection->received;
    buffer_drop(in, zk_client_receive(connection->data, buffer_at(in), buffer_len(in)));
}

static void on_closed(struct connection *connection)
{
    zk_client_gone(connection->data);
}

static const struct server_class zk_server_class = {
    .accepted = on_accepted, .data = on_data, .closed = on_closed, .describe = zk_describe};

/* ---- its life ---- */

struct zk_member *sim_zk_member(const struct server *server)
{
    return server->data;
}

void sim_zk_forget_connections(struct zk_member *member, uint64_t for_ns)
{
    member->forgets_ns = world_now() + for_ns;
}

struct zk_ensemble *sim_zk_new(unsigned n_members, uint64_t tick_ns)
{
    struct zk_ensemble *ensemble = world_alloc(sizeof *ensemble);
    failures = 0;
    ensemble->changed = on_changed;
    ensemble->applied = on_applied;
    ensemble->synced = on_synced;
    ensemble->validated = on_validated;
    ensemble->stopped = on_stopped;
    for (unsigned i = 0; i < n_members; i++) {
        struct server *server = world_alloc(sizeof *server);
        *server = (struct server){.class = &zk_server_class,
                                  .host = world_print("n%u", i + 1),
                                  .port = 2181,
                                  .data = &ensemble->members[i]};
        ensemble->members[i].server = server;
        net_add(server);
    }
    zk_ensemble_begin(ensemble, n_members, tick_ns);
    return ensemble;
}

void sim_zk_dispose(struct zk_ensemble *ensemble)
{
    zk_ensemble_end(ensemble);
    for (unsigned i = 0; i < ensemble->n; i++)
        server_dispose(ensemble->members[i].server);
    buffer_free(&writer.buffer);
}
