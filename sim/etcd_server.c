/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/etcd_server.h"

#include <string.h>

#include "base/container.h"
#include "sim/etcd_streams.h"

#define VERSION "3.4.23"

static unsigned failures;

unsigned sim_etcd_failures(void)
{
    return failures;
}

/* A connection of a client to a member. */
struct session {
    struct connection *connection;
    struct etcd_member *member;
    struct grpc *grpc;
};

/* A call that has one answer. */
struct unary {
    struct etcd_task task;
    struct grpc_call *call;
    const char *client; /* its name, for the trace */
    const struct rpc *rpc;
    ProtobufCMessage *request;
    uint8_t *answer;
    size_t n;
    int64_t revision; /* that it names */
};

typedef enum etcd_refusal run_fn(struct etcd_answer **answer, struct unary *unary,
                                 int64_t revision);

enum rpc_kind { READS, WRITES, ALONE, STREAM };

struct rpc {
    const char *path;
    const ProtobufCMessageDescriptor *request;
    enum rpc_kind kind;
    run_fn *run;
};

static struct etcd_store *store_of(struct unary *unary)
{
    return &unary->task.member->cluster->store;
}

/* ---- KV ---- */

static enum etcd_refusal run_range(struct etcd_answer **answer, struct unary *unary,
                                   int64_t revision)
{
    return etcd_kv_range((Etcd__RangeResponse **)answer, store_of(unary), revision,
                         (const Etcd__RangeRequest *)unary->request);
}

static enum etcd_refusal run_put(struct etcd_answer **answer, struct unary *unary, int64_t revision)
{
    (void)revision;
    return etcd_kv_put((Etcd__PutResponse **)answer, store_of(unary),
                       (const Etcd__PutRequest *)unary->request);
}

static enum etcd_refusal run_delete(struct etcd_answer **answer, struct unary *unary,
                                    int64_t revision)
{
    (void)revision;
    return etcd_kv_delete((Etcd__DeleteResponse **)answer, store_of(unary),
                          (const Etcd__DeleteRequest *)unary->request);
}

static enum etcd_refusal run_txn(struct etcd_answer **answer, struct unary *unary, int64_t revision)
{
    return etcd_kv_txn((Etcd__TxnResponse **)answer, store_of(unary), revision,
                       (const Etcd__TxnRequest *)unary->request);
}

/* ---- Lease ---- */

static enum etcd_refusal run_grant(struct etcd_answer **answer, struct unary *unary,
                                   int64_t revision)
{
    const Etcd__LeaseGrantRequest *request = (const Etcd__LeaseGrantRequest *)unary->request;
    struct etcd_cluster *cluster = unary->task.member->cluster;
    struct etcd_store *store = &cluster->store;
    int64_t id = request->id;
    (void)revision;
    while (id == 0)
        id = (int64_t)(random_next(&cluster->random) >> 1);
    if (request->ttl > ETCD_MAX_TTL_S)
        return REFUSED_LEASE_TTL;
    if (etcd_store_lease(store, id, store->index) != NULL)
        return REFUSED_LEASE_EXISTS;
    struct etcd_lease *lease =
        etcd_store_grant(store, id, request->ttl < ETCD_MIN_TTL_S ? ETCD_MIN_TTL_S : request->ttl);
    lease->expires_ns = world_now() + (uint64_t)lease->ttl_s * SEC;
    Etcd__LeaseGrantResponse *granted = etcd_answer_part(sizeof *granted);
    etcd__lease_grant_response__init(granted);
    granted->header = etcd_header(store->revision);
    granted->id = id;
    granted->ttl = lease->ttl_s;
    *answer = (struct etcd_answer *)granted;
    return REFUSED_NONE;
}

static enum etcd_refusal run_revoke(struct etcd_answer **answer, struct unary *unary,
                                    int64_t revision)
{
    const Etcd__LeaseRevokeRequest *request = (const Etcd__LeaseRevokeRequest *)unary->request;
    struct etcd_store *store = store_of(unary);
    struct etcd_lease *lease = etcd_store_lease(store, request->id, store->index);
    (void)revision;
    if (lease == NULL)
        return REFUSED_NO_LEASE;
    etcd_store_revoke(store, lease);
    Etcd__LeaseRevokeResponse *revoked = etcd_answer_part(sizeof *revoked);
    etcd__lease_revoke_response__init(revoked);
    revoked->header = etcd_header(etcd_store_present(store));
    *answer = (struct etcd_answer *)revoked;
    return REFUSED_NONE;
}

static void list_keys(Etcd__LeaseTimeToLiveResponse *answer, const struct etcd_store *store)
{
    answer->keys = etcd_answer_part(store->n_keys * sizeof *answer->keys);
    for (size_t i = 0; i < store->n_keys; i++) {
        const struct etcd_version *version = etcd_version_at(store->keys[i], store->revision);
        if (version != NULL && version->lease == answer->id)
            answer->keys[answer->n_keys++] = store->keys[i]->name;
    }
}

/* The leader answers it, whichever member was asked. */
static enum etcd_refusal run_time_to_live(struct etcd_answer **answer, struct unary *unary,
                                          int64_t revision)
{
    const Etcd__LeaseTimeToLiveRequest *request =
        (const Etcd__LeaseTimeToLiveRequest *)unary->request;
    const struct etcd_store *store = store_of(unary);
    const struct etcd_lease *lease = etcd_store_lease(store, request->id, store->index);
    Etcd__LeaseTimeToLiveResponse *left = etcd_answer_part(sizeof *left);
    etcd__lease_time_to_live_response__init(left);
    left->header = etcd_header(revision);
    left->id = request->id;
    left->ttl = -1;
    if (lease != NULL) {
        left->ttl = ((int64_t)lease->expires_ns - (int64_t)world_now()) / (int64_t)SEC;
        left->granted_ttl = lease->ttl_s;
        if (request->keys)
            list_keys(left, store);
    }
    *answer = (struct etcd_answer *)left;
    return REFUSED_NONE;
}

/* ---- what a member answers alone, and what is not used here ---- */

static enum etcd_refusal run_status(struct etcd_answer **answer, struct unary *unary,
                                    int64_t revision)
{
    const struct etcd_member *member = unary->task.member;
    const struct etcd_member *leader = member->cluster->leader;
    Etcd__StatusResponse *status = etcd_answer_part(sizeof *status);
    etcd__status_response__init(status);
    status->header = etcd_header(revision);
    status->version = VERSION;
    status->db_size = 1 << 20;
    status->raft_applied_index = member->applied;
    if (leader != NULL && etcd_member_sees_leader(member))
        status->leader = leader->id;
    *answer = (struct etcd_answer *)status;
    return REFUSED_NONE;
}

static enum etcd_refusal run_members(struct etcd_answer **answer, struct unary *unary,
                                     int64_t revision)
{
    const struct etcd_cluster *cluster = unary->task.member->cluster;
    Etcd__MemberListResponse *list = etcd_answer_part(sizeof *list);
    etcd__member_list_response__init(list);
    list->header = etcd_header(revision);
    list->n_members = cluster->n;
    list->members = etcd_answer_part(cluster->n * sizeof *list->members);
    for (unsigned i = 0; i < cluster->n; i++) {
        list->members[i] = etcd_answer_part(sizeof **list->members);
        etcd__member__init(list->members[i]);
        list->members[i]->id = cluster->members[i].id;
        list->members[i]->name = (char *)cluster->members[i].server->host;
    }
    *answer = (struct etcd_answer *)list;
    return REFUSED_NONE;
}

static enum etcd_refusal run_alarms(struct etcd_answer **answer, struct unary *unary,
                                    int64_t revision)
{
    Etcd__AlarmResponse *none = etcd_answer_part(sizeof *none);
    (void)unary, (void)revision;
    etcd__alarm_response__init(none); /* the only answer without a header */
    *answer = (struct etcd_answer *)none;
    return REFUSED_NONE;
}

static enum etcd_refusal run_login(struct etcd_answer **answer, struct unary *unary,
                                   int64_t revision)
{
    (void)answer, (void)unary, (void)revision;
    return REFUSED_NO_AUTH;
}

static const struct rpc rpcs[] = {
    {"KV/Range", &etcd__range_request__descriptor, READS, run_range},
    {"KV/Put", &etcd__put_request__descriptor, WRITES, run_put},
    {"KV/DeleteRange", &etcd__delete_request__descriptor, WRITES, run_delete},
    {"KV/Txn", &etcd__txn_request__descriptor, WRITES, run_txn},
    {"Lease/LeaseGrant", &etcd__lease_grant_request__descriptor, WRITES, run_grant},
    {"Lease/LeaseRevoke", &etcd__lease_revoke_request__descriptor, WRITES, run_revoke},
    {"Lease/LeaseTimeToLive", &etcd__lease_time_to_live_request__descriptor, READS,
     run_time_to_live},
    {"Lease/LeaseKeepAlive", &etcd__lease_keep_alive_request__descriptor, STREAM, NULL},
    {"Watch/Watch", &etcd__watch_request__descriptor, STREAM, NULL},
    {"Maintenance/Status", &etcd__status_request__descriptor, ALONE, run_status},
    {"Maintenance/Alarm", &etcd__alarm_request__descriptor, READS, run_alarms},
    {"Cluster/MemberList", &etcd__member_list_request__descriptor, ALONE, run_members},
    {"Auth/Authenticate", &etcd__authenticate_request__descriptor, ALONE, run_login},
};

static const struct rpc *find_rpc(const char *path)
{
    static const char package[] = "/etcdserverpb.";
    size_t n = sizeof package - 1;
    for (size_t i = 0; i < sizeof rpcs / sizeof *rpcs; i++) {
        if (strncmp(path, package, n) == 0 && strcmp(path + n, rpcs[i].path) == 0)
            return &rpcs[i];
    }
    return NULL;
}

/* ---- a call with one answer ---- */

/* Packed at once: answers share their memory. */
static enum etcd_refusal run(struct etcd_task *task, int64_t revision)
{
    struct unary *unary = container_of(task, struct unary, task);
    struct etcd_answer *answer = NULL;
    enum etcd_refusal refusal = unary->rpc->run(&answer, unary, revision);
    if (refusal == REFUSED_NONE) {
        if (answer->header != NULL) {
            answer->header->cluster_id = task->member->cluster->id;
            answer->header->member_id = task->member->id;
            unary->revision = answer->header->revision;
        }
        unary->n = protobuf_c_message_get_packed_size(&answer->base);
        unary->answer = world_alloc(unary->n + 1);
        protobuf_c_message_pack(&answer->base, unary->answer);
    }
    etcd_answers_drop();
    return refusal;
}

static void end_unary(struct unary *unary, enum etcd_refusal refusal)
{
    world_trace("%s from %s: %s: %s, revision %lld", unary->task.member->server->host,
                unary->client, unary->rpc->path,
                refusal == REFUSED_NONE ? "ok" : etcd_refusal_words(refusal),
                (long long)unary->revision);
    if (refusal == REFUSED_NONE)
        grpc_send(unary->call, unary->answer, unary->n);
    grpc_end(unary->call, etcd_refusal_code(refusal), etcd_refusal_words(refusal));
}

static void done(struct etcd_task *task, enum etcd_refusal refusal)
{
    end_unary(container_of(task, struct unary, task), refusal);
}

static enum etcd_refusal refusal_before(const struct unary *unary)
{
    struct etcd_member *member = unary->task.member;
    if (unary->call->led && !etcd_member_sees_leader(member))
        return REFUSED_NO_LEADER;
    if (unary->rpc->run == run_txn)
        return etcd_kv_check_txn((const Etcd__TxnRequest *)unary->request);
    if (member->busy && unary->rpc->kind == WRITES && random_once_in(&member->cluster->random, 2))
        return REFUSED_BUSY;
    return REFUSED_NONE;
}

/* The request is the world's: it may wait for longer than its call. */
static void *allocate(void *data, size_t size)
{
    (void)data;
    return world_alloc(size);
}

static void forget(void *data, void *memory)
{
    (void)data, (void)memory;
}

static ProtobufCAllocator allocator = {.alloc = allocate, .free = forget};

static void take_unary(struct grpc_call *call, const struct session *session, const struct rpc *rpc,
                       ProtobufCMessage *request)
{
    struct unary *unary = world_alloc(sizeof *unary);
    *unary = (struct unary){
        .call = call, .client = session->connection->process->name, .rpc = rpc, .request = request};
    unary->task.member = session->member;
    unary->task.run = run;
    unary->task.done = done;
    unary->task.writes =
        rpc->kind == WRITES &&
        !(rpc->run == run_txn && etcd_txn_only_reads((const Etcd__TxnRequest *)request));
    enum etcd_refusal refusal = refusal_before(unary);
    if (refusal == REFUSED_NONE && rpc->kind != ALONE) {
        etcd_task_start(&unary->task);
        return;
    }
    if (refusal == REFUSED_NONE)
        refusal = run(&unary->task, etcd_member_revision(session->member));
    end_unary(unary, refusal);
}

/* ---- calls ---- */

static void take_stream(struct grpc_call *call, struct etcd_member *member, const struct rpc *rpc,
                        const ProtobufCMessage *request)
{
    if (call->data == NULL && call->led && !etcd_member_sees_leader(member))
        grpc_end(call, etcd_refusal_code(REFUSED_NO_LEADER), etcd_refusal_words(REFUSED_NO_LEADER));
    else if (rpc->request == &etcd__watch_request__descriptor)
        etcd_watch_take(call, member, (const Etcd__WatchRequest *)request);
    else
        etcd_keep_alive_take(call, member, (const Etcd__LeaseKeepAliveRequest *)request);
}

/* A field that the simulator does not know must not be ignored in silence. */
static void refuse_unknown(struct grpc_call *call)
{
    failures++;
    world_trace("%s is not simulated, or one of its fields is not", call->path);
    grpc_end(call, etcd_refusal_code(REFUSED_UNKNOWN), etcd_refusal_words(REFUSED_UNKNOWN));
}

static void on_message(struct grpc_call *call, const uint8_t *bytes, size_t n)
{
    struct session *session = grpc_owner(call->grpc);
    const struct rpc *rpc = find_rpc(call->path);
    ProtobufCMessage *request =
        rpc != NULL ? protobuf_c_message_unpack(rpc->request, &allocator, n, bytes) : NULL;
    if (request == NULL || request->n_unknown_fields > 0)
        refuse_unknown(call);
    else if (rpc->kind == STREAM)
        take_stream(call, session->member, rpc, request);
    else
        take_unary(call, session, rpc, request);
}

static void on_over(struct grpc_call *call)
{
    const struct session *session = grpc_owner(call->grpc);
    if (call->data != NULL)
        etcd_watch_over(call, session->member);
}

static void write_out(struct grpc *grpc, const void *bytes, size_t n)
{
    const struct session *session = grpc_owner(grpc);
    connection_reply(session->connection, bytes, n);
}

static const struct grpc_events grpc_events = {
    .message = on_message, .over = on_over, .write = write_out};

/* ---- connections ---- */

static void on_accepted(struct connection *connection)
{
    struct session *session = world_alloc(sizeof *session);
    *session = (struct session){connection, sim_etcd_member(connection->server), NULL};
    session->grpc = grpc_new(&grpc_events, session);
    connection->data = session;
}

static void on_data(struct connection *connection)
{
    struct session *session = connection->data;
    struct buffer received = connection->received;
    connection->received = (struct buffer){0};
    grpc_receive(session->grpc, buffer_at(&received), buffer_len(&received));
    buffer_free(&received);
}

static void hang_up(struct connection *connection)
{
    struct session *session = connection->data;
    if (session->grpc != NULL)
        grpc_free(session->grpc);
    session->grpc = NULL;
}

static const struct server_class etcd_server_class = {
    .accepted = on_accepted, .data = on_data, .closed = hang_up};

/* ---- its life ---- */

struct etcd_member *sim_etcd_member(const struct server *server)
{
    return server->data;
}

struct etcd_cluster *sim_etcd_new(unsigned n_members)
{
    struct etcd_cluster *cluster = world_alloc(sizeof *cluster);
    failures = 0;
    cluster->applied = etcd_watches_applied;
    for (unsigned i = 0; i < n_members; i++) {
        struct server *server = world_alloc(sizeof *server);
        *server = (struct server){.class = &etcd_server_class,
                                  .host = world_print("n%u", i + 1),
                                  .port = 2379,
                                  .data = &cluster->members[i]};
        cluster->members[i].server = server;
        net_add(server);
    }
    etcd_cluster_begin(cluster, n_members);
    return cluster;
}

void sim_etcd_dispose(struct etcd_cluster *cluster)
{
    etcd_cluster_end(cluster);
    for (unsigned i = 0; i < cluster->n; i++) {
        struct server *server = cluster->members[i].server;
        for (struct connection *each = server->connections; each != NULL; each = each->next)
            hang_up(each);
        server_dispose(server);
    }
}
