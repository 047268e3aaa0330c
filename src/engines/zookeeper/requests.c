/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of a session, their replies, and watches.
 *
 * A request is a packet in the queue of its session. At most WINDOW of them are under way; the
 * others wait here. A server works on about a thousand requests at a time, and a longer backlog in
 * its sockets would delay the probes (liveness.c) as well. Probes go before everything that waits.
 *
 * Deletes of one turn of the loop are one multi, which is one transaction of the servers. They
 * execute all of it or nothing: if one of the nodes is already gone, each of the others is deleted
 * by itself.
 *
 * The server keeps one watch for each path and connection, however often it is set, and drops it
 * when it has fired. So a watch that is removed here costs nothing there but one report that
 * has no watch. */
#include "engines/zookeeper/requests.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "engines/zookeeper/zookeeper.h"

#define WINDOW        1024
#define RECORD_AT     12 /* in a packet, behind its length and the request's header */
#define BATCH_MAX     64 /* deletes in one multi: a packet has 1 MB at most */
#define BUCKETS_FIRST 64
#define RESTORE_BYTES (128u << 10) /* of paths in one packet; a server accepts up to 1 MB */

/* Where the parts of a reply are kept while it is reported. */
struct parts {
    struct jute_stat stat;
    struct jute_strings children;
};

typedef void read_fn(struct jute_reader *reader, struct reply *reply, struct parts *parts);

struct request {
    struct connection_request wire; /* first */
    struct request *next, **link;   /* of its requester */
    struct request *queue_next;     /* of its session */
    struct requester *requester;
    struct session *session;
    reply_fn *fn;
    read_fn *read;
    struct batch *batch;      /* of these it is the multi */
    uint64_t sent_ns;         /* read before it was sent */
    bool via_leader;          /* the leader takes part in the reply */
    struct node_watch *watch; /* that it sets */
    int rc;                   /* if it has failed */
    bool maybe;
    size_t n;
    char packet[];
};

struct batch {
    size_t n;
    struct request *requests[BATCH_MAX];
};

static void batch_answered(struct batch *batch, int rc, bool maybe);
static void watch_settle(struct node_watch *watch, int rc);

static struct loop *loop_of(const struct session *session)
{
    return session->zk->engine.loop;
}

/* ---- requesters ---- */

static void request_join(struct request *request, struct requester *requester)
{
    request->requester = requester;
    request->next = requester->requests;
    request->link = &requester->requests;
    if (request->next)
        request->next->link = &request->next;
    requester->requests = request;
}

static void request_leave(struct request *request)
{
    if (!request->link)
        return;
    *request->link = request->next;
    if (request->next)
        request->next->link = request->link;
    request->link = NULL;
    request->requester = NULL;
}

void zk_requester_forget(struct requester *requester)
{
    while (requester->requests)
        request_leave(requester->requests);
}

/* ---- replies ---- */

/* Neither a failure of the connection nor one of our own. */
static bool is_from_server(int rc)
{
    return rc <= ZOK && !zk_error_is_transient(rc);
}

static void finish(struct request *request, struct reply *reply)
{
    struct requester *requester = request->requester;
    reply_fn *fn = request->fn;
    if (is_from_server(reply->rc) && request->session->state == SESSION_UP)
        zk_liveness_observe_reply(request->session, request->sent_ns,
                                  loop_now(loop_of(request->session)), request->via_leader);
    if (request->watch)
        watch_settle(request->watch, reply->rc);
    if (request->batch)
        batch_answered(request->batch, reply->rc, reply->maybe);
    request_leave(request);
    free(request);
    if (requester)
        fn(requester, reply);
}

static void finish_failed(struct request *request, int rc, bool maybe)
{
    finish(request, &(struct reply){.rc = rc, .maybe = maybe});
}

static bool on_answered(struct connection_request *wire, int32_t code, struct jute_reader *body)
{
    struct request *request = (struct request *)wire;
    struct session *session = request->session;
    struct reply reply = {.rc = code, .maybe = zk_error_is_transient(code)};
    struct parts parts = {.children = {0}};
    if (code == ZOK && request->read)
        request->read(body, &reply, &parts);
    if (!body->bad) {
        session->in_flight--;
        if (session->queue)
            zk_requests_schedule(session);
        finish(request, &reply);
    }
    zk_jute_strings_free(&parts.children);
    return !body->bad;
}

static void read_created(struct jute_reader *reader, struct reply *reply, struct parts *parts)
{
    reply->path = zk_jute_read_string(reader);
    zk_jute_read_stat(reader, &parts->stat);
    reply->stat = &parts->stat;
}

static void read_stat(struct jute_reader *reader, struct reply *reply, struct parts *parts)
{
    zk_jute_read_stat(reader, &parts->stat);
    reply->stat = &parts->stat;
}

static void read_data(struct jute_reader *reader, struct reply *reply, struct parts *parts)
{
    reply->data = zk_jute_read_bytes(reader, &reply->data_len);
    read_stat(reader, reply, parts);
}

static void read_children(struct jute_reader *reader, struct reply *reply, struct parts *parts)
{
    zk_jute_read_strings(reader, &parts->children);
    reply->children = &parts->children;
    read_stat(reader, reply, parts);
}

static void read_paths(struct jute_reader *reader, struct reply *reply, struct parts *parts)
{
    zk_jute_read_strings(reader, &parts->children);
    reply->children = &parts->children;
}

/* The results of a multi of deletes and sets; its first error is the error of the whole. */
static void read_multi(struct jute_reader *reader, struct reply *reply, struct parts *parts)
{
    bool done = false;
    while (!reader->bad && !done) {
        int32_t type = zk_jute_read_int(reader);
        done = zk_jute_read_bool(reader);
        (void)zk_jute_read_int(reader);
        int32_t code = !done && type == -1 ? zk_jute_read_int(reader) : ZOK;
        if (!done && type == JUTE_SET_DATA)
            read_stat(reader, reply, parts);
        if (code && (reply->rc == ZOK || reply->rc == ZRUNTIMEINCONSISTENCY))
            reply->rc = code;
    }
    reply->maybe = zk_error_is_transient(reply->rc);
}

/* ---- the queue ---- */

void zk_requests_schedule(struct session *session)
{
    loop_gather(loop_of(session), &session->sender);
}

static void enqueue(struct request *request)
{
    struct session *session = request->session;
    request->queue_next = NULL;
    *session->queue_tail = request;
    session->queue_tail = &request->queue_next;
    zk_requests_schedule(session);
    if (session->state == SESSION_DEAD)
        loop_soon(loop_of(session), &session->task);
}

static void put_first(struct request *request)
{
    struct session *session = request->session;
    request->queue_next = session->queue;
    if (!session->queue)
        session->queue_tail = &request->queue_next;
    session->queue = request;
}

static struct request *dequeue(struct session *session)
{
    struct request *request = session->queue;
    if (request)
        session->queue = request->queue_next;
    if (!session->queue)
        session->queue_tail = &session->queue;
    return request;
}

static void fail_later(struct request *request, int rc)
{
    struct session *session = request->session;
    request->rc = rc;
    request->queue_next = NULL;
    *session->failed_tail = request;
    session->failed_tail = &request->queue_next;
    loop_soon(loop_of(session), &session->task);
}

/* A probe passes even when the window is full. */
void zk_requests_send(struct session *session)
{
    bool up = session->connection && session->state == SESSION_UP;
    while (up && session->queue &&
           (session->in_flight < WINDOW || session->queue->requester == &session->requester)) {
        struct request *request = dequeue(session);
        int error =
            zk_connection_send(session->connection, &request->wire, request->packet, request->n);
        if (error == ENOMEM) {
            fail_later(request, ZNOMEMORY);
        } else if (error) { /* the stream is full, or its end is about to be reported */
            put_first(request);
            break;
        } else {
            session->in_flight++;
        }
    }
    if (up)
        zk_connection_flush(session->connection);
}

void zk_requests_report_failed(struct session *session)
{
    struct request *request = session->failed, *next;
    session->failed = NULL;
    session->failed_tail = &session->failed;
    for (; request; request = next) {
        next = request->queue_next;
        finish_failed(request, request->rc, request->maybe);
    }
}

/* All are marked before the first of them is reported: a requester may send new ones at once, and
 * those must not fail, too. */
void zk_requests_fail(struct session *session, int rc)
{
    struct connection_request *wire;
    struct request *request;
    bool left;
    zk_requests_send_batch(session);
    while (session->connection && (wire = zk_connection_pop(session->connection, &left))) {
        request = (struct request *)wire;
        request->maybe = left;
        fail_later(request, rc);
    }
    session->in_flight = 0;
    while ((request = dequeue(session)))
        fail_later(request, rc);
    zk_requests_report_failed(session);
}

/* ---- requests ---- */

static struct jute_writer *begin(struct session *session, enum jute_request type)
{
    struct jute_writer *writer = &session->zk->writer;
    zk_jute_begin(writer);
    zk_jute_write_int(writer, 0); /* its xid is filled in when it is sent */
    zk_jute_write_int(writer, type);
    return writer;
}

/* Of the packet in the writer. NULL: out of memory. */
static struct request *request_new(struct session *session, struct requester *requester,
                                   reply_fn *fn, read_fn *read)
{
    size_t n;
    const char *packet = zk_jute_end(&session->zk->writer, &n);
    struct request *request = packet ? malloc(sizeof *request + n) : NULL;
    if (!request)
        return NULL;
    *request = (struct request){.wire.answered = on_answered,
                                .session = session,
                                .fn = fn,
                                .read = read,
                                .sent_ns = loop_now(loop_of(session)),
                                .n = n};
    memcpy(request->packet, packet, n);
    if (requester)
        request_join(request, requester);
    return request;
}

static bool send_to_leader(struct session *session, struct requester *requester, reply_fn *fn,
                           read_fn *read)
{
    struct request *request = request_new(session, requester, fn, read);
    if (!request)
        return false;
    request->via_leader = true;
    if (requester == &session->requester)
        put_first(request);
    else
        enqueue(request);
    zk_requests_schedule(session);
    return true;
}

/* All permissions: for our user alone, or without a user for all users. */
static void write_acl(struct jute_writer *writer, const struct zk *zk)
{
    const int32_t all = 31;
    zk_jute_write_int(writer, 1);
    zk_jute_write_int(writer, all);
    zk_jute_write_string(writer, zk->credentials ? "auth" : "world");
    zk_jute_write_string(writer, zk->credentials ? "" : "anyone");
}

static void write_data(struct jute_writer *writer, const struct node_data *data)
{
    zk_jute_write_int(writer, data->head ? (int32_t)(data->head_len + data->body_len) : -1);
    if (data->head_len > 0)
        zk_jute_write_record(writer, data->head, data->head_len);
    if (data->body_len > 0)
        zk_jute_write_record(writer, data->body, data->body_len);
}

bool zk_request_create_node(struct session *session, struct requester *requester, const char *path,
                            int mode, const struct node_data *data, reply_fn *fn)
{
    struct jute_writer *writer =
        begin(session, mode == JUTE_CONTAINER ? JUTE_CREATE_CONTAINER : JUTE_CREATE);
    zk_jute_write_string(writer, path);
    write_data(writer, data);
    write_acl(writer, session->zk);
    zk_jute_write_int(writer, mode);
    return send_to_leader(session, requester, fn, read_created);
}

bool zk_request_create(struct session *session, struct requester *requester, const char *path,
                       int mode, const char *data, reply_fn *fn)
{
    struct node_data bytes = {.head = data, .head_len = data ? strlen(data) : 0};
    return zk_request_create_node(session, requester, path, mode, &bytes, fn);
}

static struct request *new_delete(struct session *session, struct requester *requester,
                                  const char *path, reply_fn *fn)
{
    struct jute_writer *writer = begin(session, JUTE_DELETE);
    zk_jute_write_string(writer, path);
    zk_jute_write_int(writer, -1);
    struct request *request = request_new(session, requester, fn, NULL);
    if (request)
        request->via_leader = true;
    return request;
}

bool zk_request_delete(struct session *session, struct requester *requester, const char *path,
                       reply_fn *fn)
{
    struct request *request = new_delete(session, requester, path, fn);
    if (request)
        enqueue(request);
    return request != NULL;
}

static void write_set(struct jute_writer *writer, const char *path, const struct node_data *data,
                      int version)
{
    zk_jute_write_string(writer, path);
    write_data(writer, data);
    zk_jute_write_int(writer, version);
}

static void write_operation(struct jute_writer *writer, int32_t type, bool done)
{
    zk_jute_write_int(writer, type);
    zk_jute_write_bool(writer, done);
    zk_jute_write_int(writer, -1);
}

/* Twice in one transaction: no client ever sees the version in between. */
static bool set_past_any_version(struct session *session, struct requester *requester,
                                 const char *path, const struct node_data *data, reply_fn *fn)
{
    struct jute_writer *writer = begin(session, JUTE_MULTI);
    write_operation(writer, JUTE_SET_DATA, false);
    write_set(writer, path, data, ANY_VERSION - 1);
    write_operation(writer, JUTE_SET_DATA, false);
    write_set(writer, path, data, ANY_VERSION);
    write_operation(writer, -1, true);
    return send_to_leader(session, requester, fn, read_multi);
}

bool zk_request_set_node(struct session *session, struct requester *requester, const char *path,
                         const struct node_data *data, int version, reply_fn *fn)
{
    if (version == ANY_VERSION - 1)
        return set_past_any_version(session, requester, path, data, fn);
    write_set(begin(session, JUTE_SET_DATA), path, data, version);
    return send_to_leader(session, requester, fn, read_stat);
}

bool zk_request_set(struct session *session, struct requester *requester, const char *path,
                    const char *data, int version, reply_fn *fn)
{
    struct node_data bytes = {.head = data, .head_len = strlen(data)};
    return zk_request_set_node(session, requester, path, &bytes, version, fn);
}

bool zk_request_sync(struct session *session, struct requester *requester, const char *path,
                     reply_fn *fn)
{
    zk_jute_write_string(begin(session, JUTE_SYNC), path);
    return send_to_leader(session, requester, fn, NULL);
}

/* A watch that the server already has is not set a second time. */
static bool send_read(struct session *session, struct requester *requester, enum jute_request type,
                      const char *path, struct node_watch *watch, reply_fn *fn, read_fn *read)
{
    bool fresh = watch && !watch->set;
    struct jute_writer *writer = begin(session, type);
    zk_jute_write_string(writer, path);
    zk_jute_write_bool(writer, fresh);
    struct request *request = request_new(session, requester, fn, read);
    if (fresh && !request)
        zk_watch_remove(watch->slot);
    if (!request)
        return false;
    if (fresh) {
        request->watch = watch;
        watch->request = request;
    }
    enqueue(request);
    return true;
}

bool zk_request_exists(struct session *session, struct requester *requester, const char *path,
                       struct node_watch *watch, reply_fn *fn)
{
    return send_read(session, requester, JUTE_EXISTS, path, watch, fn, read_stat);
}

bool zk_request_get(struct session *session, struct requester *requester, const char *path,
                    struct node_watch *watch, reply_fn *fn)
{
    return send_read(session, requester, JUTE_GET_DATA, path, watch, fn, read_data);
}

bool zk_request_children(struct session *session, struct requester *requester, const char *path,
                         struct node_watch *watch, reply_fn *fn)
{
    return send_read(session, requester, JUTE_GET_CHILDREN, path, watch, fn, read_children);
}

bool zk_request_ephemerals(struct session *session, struct requester *requester, reply_fn *fn)
{
    zk_jute_write_string(begin(session, JUTE_GET_EPHEMERALS), "/");
    struct request *request = request_new(session, requester, fn, read_paths);
    if (request)
        enqueue(request);
    return request != NULL;
}

/* ---- batches of deletes ---- */

/* False: out of memory. */
static bool send_multi(struct batch *batch)
{
    struct session *session = batch->requests[0]->session;
    struct jute_writer *writer = begin(session, JUTE_MULTI);
    for (size_t i = 0; i < batch->n; i++) {
        const struct request *one = batch->requests[i];
        write_operation(writer, JUTE_DELETE, false);
        zk_jute_write_record(writer, one->packet + RECORD_AT, one->n - RECORD_AT);
    }
    write_operation(writer, -1, true);
    struct request *request = request_new(session, NULL, NULL, read_multi);
    if (!request)
        return false;
    request->via_leader = true;
    request->batch = batch;
    enqueue(request);
    return true;
}

static void send_each(const struct batch *batch)
{
    for (size_t i = 0; i < batch->n; i++)
        enqueue(batch->requests[i]);
}

static void batch_answered(struct batch *batch, int rc, bool maybe)
{
    bool true_of_all = rc == ZOK || zk_error_is_transient(rc);
    if (!true_of_all)
        send_each(batch);
    for (size_t i = 0; true_of_all && i < batch->n; i++)
        finish_failed(batch->requests[i], rc, maybe);
    free(batch);
}

void zk_requests_send_batch(struct session *session)
{
    struct batch *batch = session->batch;
    session->batch = NULL;
    if (!batch || (batch->n > 1 && send_multi(batch)))
        return;
    send_each(batch);
    free(batch);
}

static struct batch *batch_of(struct session *session)
{
    if (session->batch && session->batch->n == BATCH_MAX)
        zk_requests_send_batch(session);
    if (!session->batch)
        session->batch = calloc(1, sizeof *session->batch);
    return session->batch;
}

bool zk_request_delete_batched(struct session *session, struct requester *requester,
                               const char *path, reply_fn *fn)
{
    struct batch *batch = batch_of(session);
    struct request *request = batch ? new_delete(session, requester, path, fn) : NULL;
    if (!request)
        return false;
    batch->requests[batch->n++] = request;
    zk_requests_schedule(session);
    return true;
}

/* ---- watches: the table ---- */

static uint64_t hash_of(const char *path)
{
    return fnv_add(FNV_START, path, strlen(path));
}

static void insert(struct watches *watches, struct node_watch *watch)
{
    struct node_watch **at = &watches->table[watch->hash & (watches->buckets - 1)];
    watch->next = *at;
    watch->link = at;
    if (watch->next)
        watch->next->link = &watch->next;
    *at = watch;
}

/* Without memory for a larger table the old one serves, more slowly. */
static bool grow(struct watches *watches)
{
    size_t buckets = watches->buckets ? 2 * watches->buckets : BUCKETS_FIRST;
    struct watches larger = {.table = calloc(buckets, sizeof *larger.table), .buckets = buckets};
    if (!larger.table)
        return watches->buckets > 0;
    for (size_t i = 0; i < watches->buckets; i++) {
        for (struct node_watch *watch = watches->table[i], *next; watch; watch = next) {
            next = watch->next;
            insert(&larger, watch);
        }
    }
    free(watches->table);
    watches->table = larger.table;
    watches->buckets = buckets;
    return true;
}

static void watch_free(struct node_watch *watch)
{
    *watch->slot = NULL;
    *watch->link = watch->next;
    if (watch->next)
        watch->next->link = watch->link;
    watch->session->watches.n--;
    if (watch->request)
        watch->request->watch = NULL;
    free(watch);
}

/* ---- watches: adding and removing ---- */

bool zk_watch_add(struct node_watch **slot, struct session *session, char kind, const char *path,
                  struct requester *requester, watch_fn *fn)
{
    struct watches *watches = &session->watches;
    size_t size = strlen(path) + 1;
    zk_watch_remove(slot);
    if (watches->n >= watches->buckets && !grow(watches))
        return false;
    struct node_watch *watch = malloc(sizeof *watch + size);
    if (!watch)
        return false;
    *watch = (struct node_watch){.slot = slot,
                                 .session = session,
                                 .requester = requester,
                                 .fn = fn,
                                 .kind = kind,
                                 .hash = hash_of(path)};
    memcpy(watch->path, path, size);
    insert(watches, watch);
    watches->n++;
    *slot = watch;
    return true;
}

void zk_watch_remove(struct node_watch **slot)
{
    if (*slot)
        watch_free(*slot);
}

/* exists also watches a node that does not exist yet. */
static void watch_settle(struct node_watch *watch, int rc)
{
    watch->request = NULL;
    watch->absent = rc == ZNONODE && watch->kind == 'e';
    watch->set = rc == ZOK || watch->absent;
    if (!watch->set)
        watch_free(watch);
}

void zk_watches_free(struct session *session)
{
    struct watches *watches = &session->watches;
    for (size_t i = 0; i < watches->buckets; i++) {
        while (watches->table[i])
            watch_free(watches->table[i]);
    }
    free(watches->table);
    *watches = (struct watches){0};
}

/* ---- watches: events ---- */

static bool concerns(const struct node_watch *watch, int type)
{
    if (type == JUTE_EVENT_CHILD)
        return watch->kind == 'c';
    return type == JUTE_EVENT_DELETED || watch->kind != 'c';
}

/* A watch whose request is not answered yet is set after this event, and reports the next one. */
static struct node_watch *find(const struct watches *watches, uint64_t hash, int type,
                               const char *path)
{
    struct node_watch *watch =
        watches->buckets ? watches->table[hash & (watches->buckets - 1)] : NULL;
    while (watch && !(watch->set && watch->hash == hash && concerns(watch, type) &&
                      strcmp(watch->path, path) == 0))
        watch = watch->next;
    return watch;
}

/* The callback may add and remove watches, so the table is searched again after each. Watches added
 * meanwhile are not set yet, and are not found. */
void zk_watches_report(struct session *session, int type, const char *path)
{
    uint64_t hash = hash_of(path);
    struct node_watch *watch;
    while ((watch = find(&session->watches, hash, type, path))) {
        struct requester *requester = watch->requester;
        watch_fn *fn = watch->fn;
        watch_free(watch);
        fn(requester, type);
    }
}

/* ---- watches: on the next connection ---- */

enum watch_list { DATA, ABSENT, CHILDREN, LISTS };

struct restore {
    struct session *session;
    const char *paths[LISTS][RESTORE_BYTES / 64];
    size_t n[LISTS], bytes;
};

static enum watch_list list_of(const struct node_watch *watch)
{
    return watch->kind == 'c' ? CHILDREN : watch->absent ? ABSENT : DATA;
}

static void send_restore(struct restore *restore)
{
    struct session *session = restore->session;
    struct jute_writer *writer = &session->zk->writer;
    size_t n;
    zk_jute_begin(writer);
    zk_jute_write_int(writer, JUTE_XID_SET_WATCHES);
    zk_jute_write_int(writer, JUTE_SET_WATCHES);
    zk_jute_write_long(writer, session->zxid);
    for (int list = 0; list < LISTS; list++) {
        zk_jute_write_int(writer, (int32_t)restore->n[list]);
        for (size_t i = 0; i < restore->n[list]; i++)
            zk_jute_write_string(writer, restore->paths[list][i]);
        restore->n[list] = 0;
    }
    restore->bytes = 0;
    const char *packet = zk_jute_end(writer, &n);
    if (!packet || zk_connection_send_unanswered(session->connection, packet, n))
        session->watches_lost = true;
}

static void add_restore(struct restore *restore, const struct node_watch *watch)
{
    enum watch_list list = list_of(watch);
    restore->paths[list][restore->n[list]++] = watch->path;
    restore->bytes += strlen(watch->path) + sizeof(int32_t);
    if (restore->bytes >= RESTORE_BYTES ||
        restore->n[list] == sizeof restore->paths[list] / sizeof restore->paths[list][0])
        send_restore(restore);
}

void zk_watches_restore(struct session *session)
{
    struct restore *restore = session->watches.n ? malloc(sizeof *restore) : NULL;
    session->watches_lost = session->watches.n && !restore;
    if (!restore)
        return;
    *restore = (struct restore){.session = session};
    for (size_t i = 0; i < session->watches.buckets; i++) {
        for (const struct node_watch *watch = session->watches.table[i]; watch;
             watch = watch->next) {
            if (watch->set)
                add_restore(restore, watch);
        }
    }
    if (restore->bytes > 0)
        send_restore(restore);
    free(restore);
}
