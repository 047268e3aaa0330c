/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What an etcd server may answer to the engine as a whole: statuses, leases, transactions, ranges,
 * events of watches and keep-alives, of every shape that the messages allow, late, in any order or
 * never. The connection is played here; http2.c has a target of its own. Keys, leases and watches
 * that the engine has named come back, so that the input gets behind the first look at them. */
#include "base/container.h"
#include "engines/etcd/connection.h"
#include "fuzz/played.h"

extern const struct engine_class etcd_class;

#define MEMORY  4 /* keys, leases and watches that the engine has named last */
#define KVS_MAX 4
#define OPS_MAX 8
#define STREAMS 2

struct question {
    struct question *next;
    enum rpc rpc;
    ProtobufCMessage *request;
    conn_fn *fn;
    void *data;
};

struct played {
    struct conn base;
    struct played *next;
    struct loop *loop;
    struct timer timer;
    struct question *questions;
    struct conn_stream *streams[STREAMS];
    bool up, freed;
};

static struct played *all; /* freed when the run is over: some are freed inside of a callback */

static struct {
    char keys[MEMORY][KEY_MAX];
    size_t lens[MEMORY], n_keys;
    int64_t leases[MEMORY], watches[MEMORY];
    size_t n_leases, n_watches;
    int64_t revision;
} named;

/* ---- what was asked ---- */

static void name_key(const ProtobufCBinaryData *key)
{
    size_t i = named.n_keys++ % MEMORY;
    named.lens[i] = key->len < KEY_MAX ? key->len : KEY_MAX;
    if (key->len)
        memcpy(named.keys[i], key->data, named.lens[i]);
}

static void name_lease(int64_t id)
{
    named.leases[named.n_leases++ % MEMORY] = id;
}

static void name_watch(int64_t id)
{
    named.watches[named.n_watches++ % MEMORY] = id;
}

static void learn_ops(Etcd__RequestOp **ops, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (ops[i]->request_case == ETCD__REQUEST_OP__REQUEST_PUT)
            name_key(&ops[i]->put->key);
        else if (ops[i]->request_case == ETCD__REQUEST_OP__REQUEST_RANGE)
            name_key(&ops[i]->range->key);
    }
}

static void learn(enum rpc rpc, const ProtobufCMessage *message)
{
    if (rpc == RPC_TXN) {
        const Etcd__TxnRequest *txn = (const Etcd__TxnRequest *)message;
        learn_ops(txn->success, txn->n_success);
        learn_ops(txn->failure, txn->n_failure);
    } else if (rpc == RPC_RANGE) {
        name_key(&((const Etcd__RangeRequest *)message)->key);
    } else if (rpc == RPC_LEASE_GRANT) {
        name_lease(((const Etcd__LeaseGrantRequest *)message)->id);
    } else if (rpc == RPC_WATCH) {
        const Etcd__WatchRequest *watch = (const Etcd__WatchRequest *)message;
        if (watch->request_case == ETCD__WATCH_REQUEST__REQUEST_CREATE)
            name_watch(watch->create->watch_id);
    }
}

static ProtobufCMessage *copy(const ProtobufCMessage *message)
{
    size_t n = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = malloc(n + 1);
    MUST(protobuf_c_message_check(message) && bytes);
    protobuf_c_message_pack(message, bytes);
    ProtobufCMessage *made = protobuf_c_message_unpack(message->descriptor, NULL, n, bytes);
    MUST(made);
    free(bytes);
    return made;
}

/* ---- values ---- */

static int64_t number(void)
{
    static const int64_t numbers[] = {0, 1, 2, 5, -1, 60, INT64_MAX, INT64_MIN, 1LL << 40};
    unsigned i = played_pick(16), n = sizeof numbers / sizeof *numbers;
    return i < n ? numbers[i] : named.revision + (int64_t)i - (int64_t)n;
}

static int64_t lease_id(void)
{
    unsigned i = played_pick(8);
    if (i >= 6)
        return number();
    return named.n_leases ? named.leases[(named.n_leases - 1 - i % 2) % MEMORY] : 0;
}

static int64_t watch_id(void)
{
    unsigned i = played_pick(8);
    if (i >= 7)
        return number();
    return named.n_watches ? named.watches[(named.n_watches - 1 - i % MEMORY) % MEMORY] : 0;
}

static ProtobufCBinaryData bytes_of(const char *text)
{
    return (ProtobufCBinaryData){.len = strlen(text), .data = *text ? (uint8_t *)text : NULL};
}

static ProtobufCBinaryData raw(size_t most)
{
    size_t n;
    const uint8_t *bytes = played_bytes(&n, most);
    return (ProtobufCBinaryData){.len = n, .data = n ? (uint8_t *)bytes : NULL};
}

static ProtobufCBinaryData key(char room[KEY_MAX])
{
    static const char *const keys[] = {
        "p/x/00000000000000aa", "p/x/s/00000000000000aa-1",     "p/x/", "p/x", "p/x/hold",
        "p/\1stile/cell/x",     "p/\1stile/x/00000000000000aa", ""};
    unsigned i = played_pick(16), n = sizeof keys / sizeof *keys;
    if (i == 15)
        return raw(64);
    if (i >= n || !named.n_keys) {
        size_t at = (named.n_keys + MEMORY - 1 - i % MEMORY) % MEMORY;
        size_t len = named.lens[at];
        memcpy(room, named.keys[at], len);
        if (i >= 12 && len) /* a neighbour */
            room[len - 1] = (char)(room[len - 1] ^ (char)played_next());
        return (ProtobufCBinaryData){.len = len, .data = len ? (uint8_t *)room : NULL};
    }
    return bytes_of(keys[i]);
}

static ProtobufCBinaryData value(void)
{
    static const char *const values[] = {"",
                                         "12 host command",
                                         "12",
                                         "99999999999999999999 h c",
                                         "-1 h",
                                         "x",
                                         "0000000000000000005",
                                         "a b\nc",
                                         "stile 1 5 500 500",
                                         "12 host command\npublic"};
    unsigned i = played_pick(12), n = sizeof values / sizeof *values;
    return i < n ? bytes_of(values[i]) : raw(255);
}

/* ---- parts of answers ---- */

struct kv {
    Etcd__KeyValue kv;
    char room[KEY_MAX];
};

static Etcd__KeyValue *fill_kv(struct kv *kv)
{
    etcd__key_value__init(&kv->kv);
    kv->kv.key = key(kv->room);
    kv->kv.value = value();
    kv->kv.create_revision = number();
    kv->kv.mod_revision = number();
    kv->kv.lease = lease_id();
    return &kv->kv;
}

static Etcd__Header *fill_header(Etcd__Header *header)
{
    etcd__header__init(header);
    unsigned i = played_pick(32);
    header->cluster_id = i == 30 ? 0 : i == 29 ? 8 : 7;
    header->revision = i < 28 ? (named.revision += i % 4) : number();
    return i == 31 ? NULL : header;
}

struct part {
    Etcd__ResponseOp op;
    Etcd__RangeResponse range;
    Etcd__PutResponse put;
    Etcd__DeleteResponse gone;
    struct kv kvs[KVS_MAX];
    Etcd__KeyValue *list[KVS_MAX];
};

static void fill_range(struct part *part)
{
    etcd__range_response__init(&part->range);
    part->range.kvs = part->list;
    part->range.n_kvs = played_pick(4) == 3 ? played_pick(KVS_MAX + 1) : played_pick(2);
    part->range.more = played_pick(16) == 15;
    for (size_t i = 0; i < part->range.n_kvs; i++)
        part->list[i] = fill_kv(&part->kvs[i]);
}

/* Mostly the answer to what was asked. */
static void fill_op(struct part *part, const Etcd__RequestOp *asked)
{
    static const Etcd__ResponseOp__ResponseCase cases[] = {
        [ETCD__REQUEST_OP__REQUEST_RANGE] = ETCD__RESPONSE_OP__RESPONSE_RANGE,
        [ETCD__REQUEST_OP__REQUEST_PUT] = ETCD__RESPONSE_OP__RESPONSE_PUT,
        [ETCD__REQUEST_OP__REQUEST_DELETE_RANGE] = ETCD__RESPONSE_OP__RESPONSE_DELETE_RANGE,
        [ETCD__REQUEST_OP__REQUEST_TXN] = ETCD__RESPONSE_OP__RESPONSE__NOT_SET,
    };
    unsigned other = played_pick(32);
    etcd__response_op__init(&part->op);
    part->op.response_case = other >= 28 ? (Etcd__ResponseOp__ResponseCase)(other - 28)
                             : asked     ? cases[asked->request_case]
                                         : ETCD__RESPONSE_OP__RESPONSE_RANGE;
    if (part->op.response_case == ETCD__RESPONSE_OP__RESPONSE_RANGE) {
        fill_range(part);
        part->op.range = &part->range;
    } else if (part->op.response_case == ETCD__RESPONSE_OP__RESPONSE_PUT) {
        etcd__put_response__init(&part->put);
        part->put.prev_kv = played_pick(8) == 7 ? fill_kv(&part->kvs[0]) : NULL;
        part->op.put = &part->put;
    } else if (part->op.response_case == ETCD__RESPONSE_OP__RESPONSE_DELETE_RANGE) {
        etcd__delete_response__init(&part->gone);
        part->gone.deleted = number();
        part->op.delete_range = &part->gone;
    }
}

/* ---- answers ---- */

static Etcd__Header header;

static void answer_txn(const struct question *q)
{
    static struct part parts[OPS_MAX];
    const Etcd__TxnRequest *asked = (const Etcd__TxnRequest *)q->request;
    Etcd__ResponseOp *ops[OPS_MAX];
    Etcd__TxnResponse answer = ETCD__TXN_RESPONSE__INIT;
    answer.succeeded = played_pick(3) != 2;
    size_t n = answer.succeeded ? asked->n_success : asked->n_failure;
    Etcd__RequestOp **list = answer.succeeded ? asked->success : asked->failure;
    size_t m = played_pick(16) == 15 ? played_pick(OPS_MAX + 1) : n;
    answer.header = fill_header(&header);
    answer.responses = ops;
    answer.n_responses = m < OPS_MAX ? m : OPS_MAX;
    for (size_t i = 0; i < answer.n_responses; i++) {
        fill_op(&parts[i], i < n ? list[i] : NULL);
        ops[i] = &parts[i].op;
    }
    q->fn(q->data, &answer.base, NULL);
}

static void answer_range(const struct question *q)
{
    static struct part part;
    fill_range(&part);
    part.range.header = fill_header(&header);
    q->fn(q->data, &part.range.base, NULL);
}

static void answer_grant(const struct question *q)
{
    static const int64_t ttls[] = {2, 2, 5, 1, 0, -1, INT64_MAX, 3};
    Etcd__LeaseGrantResponse answer = ETCD__LEASE_GRANT_RESPONSE__INIT;
    const Etcd__LeaseGrantRequest *asked = (const Etcd__LeaseGrantRequest *)q->request;
    unsigned i = played_pick(16);
    answer.header = fill_header(&header);
    answer.id = i == 15 ? number() : asked->id ? asked->id : 0xaa;
    answer.ttl = ttls[i % 8];
    answer.error = i == 14 ? "because" : (char *)protobuf_c_empty_string;
    name_lease(answer.id);
    q->fn(q->data, &answer.base, NULL);
}

static void answer_ttl(const struct question *q)
{
    static char room[KEY_MAX];
    Etcd__LeaseTimeToLiveResponse answer = ETCD__LEASE_TIME_TO_LIVE_RESPONSE__INIT;
    ProtobufCBinaryData keys[2];
    answer.header = fill_header(&header);
    answer.id = lease_id();
    answer.ttl = number();
    answer.granted_ttl = number();
    answer.keys = keys;
    answer.n_keys = played_pick(3);
    for (size_t i = 0; i < answer.n_keys; i++)
        keys[i] = key(room);
    q->fn(q->data, &answer.base, NULL);
}

static void answer_status(const struct question *q)
{
    static const char *const versions[] = {"3.5.9", "3.4.0", "3",
                                           "",      "x.y",   "99999999999.99999999999"};
    Etcd__StatusResponse answer = ETCD__STATUS_RESPONSE__INIT;
    unsigned i = played_pick(16);
    answer.header = fill_header(&header);
    answer.version = (char *)versions[i < 10 ? 0 : i - 10];
    answer.leader = played_pick(16) != 15;
    answer.is_learner = played_pick(16) == 15;
    answer.db_size = number();
    answer.raft_applied_index = (uint64_t)number();
    q->fn(q->data, &answer.base, NULL);
}

static void answer_members(const struct question *q)
{
    Etcd__MemberListResponse answer = ETCD__MEMBER_LIST_RESPONSE__INIT;
    Etcd__Member members[3], *list[3];
    answer.header = fill_header(&header);
    answer.members = list;
    answer.n_members = played_pick(4);
    for (size_t i = 0; i < answer.n_members; i++) {
        etcd__member__init(&members[i]);
        members[i].id = (uint64_t)number();
        members[i].is_learner = played_pick(2);
        list[i] = &members[i];
    }
    q->fn(q->data, &answer.base, NULL);
}

static void answer_alarms(const struct question *q)
{
    Etcd__AlarmResponse answer = ETCD__ALARM_RESPONSE__INIT;
    Etcd__AlarmMember members[2], *list[2];
    answer.header = fill_header(&header);
    answer.alarms = list;
    answer.n_alarms = played_pick(3);
    for (size_t i = 0; i < answer.n_alarms; i++) {
        etcd__alarm_member__init(&members[i]);
        members[i].member_id = (uint64_t)number();
        members[i].alarm = number();
        list[i] = &members[i];
    }
    q->fn(q->data, &answer.base, NULL);
}

/* A message of the right type without a field in it, except for a header. */
static void answer_plainly(const struct question *q)
{
    union {
        ProtobufCMessage base;
        Etcd__PutResponse put;
        Etcd__LeaseRevokeResponse revoke;
        Etcd__AuthenticateResponse authenticate;
    } answer;
    protobuf_c_message_init(etcd_rpc_classes[q->rpc].answer, &answer);
    q->fn(q->data, &answer.base, NULL);
}

static void answer_error(const struct question *q)
{
    static const struct {
        enum stile_status status;
        enum etcd_error native;
    } errors[] = {{STILE_UNREACHABLE, ETCD_ERROR_NO_LEADER},
                  {STILE_UNCERTAIN, ETCD_ERROR_OTHER},
                  {STILE_UNCERTAIN, ETCD_ERROR_TIMED_OUT},
                  {STILE_REFUSED, ETCD_ERROR_NO_LEASE},
                  {STILE_REFUSED, ETCD_ERROR_LEASE_EXISTS},
                  {STILE_REFUSED, ETCD_ERROR_COMPACTED},
                  {STILE_UNCERTAIN, ETCD_ERROR_TOO_LONG},
                  {STILE_REFUSED, ETCD_ERROR_DENIED},
                  {STILE_REFUSED, ETCD_ERROR_NO_SPACE},
                  {STILE_UNREACHABLE, ETCD_ERROR_BUSY},
                  {STILE_REFUSED, ETCD_ERROR_LEARNER},
                  {STILE_REFUSED, ETCD_ERROR_NO_AUTH},
                  {STILE_NOMEM, ETCD_ERROR_NONE}};
    unsigned i = played_pick(sizeof errors / sizeof *errors);
    struct stile_error err;
    error_set(&err, errors[i].status, (int)errors[i].native, "because");
    q->fn(q->data, NULL, &err);
}

static void answer(const struct question *q)
{
    static void (*const answers[])(const struct question *) = {
        [RPC_RANGE] = answer_range,
        [RPC_PUT] = answer_plainly,
        [RPC_TXN] = answer_txn,
        [RPC_LEASE_GRANT] = answer_grant,
        [RPC_LEASE_REVOKE] = answer_plainly,
        [RPC_LEASE_TTL] = answer_ttl,
        [RPC_AUTHENTICATE] = answer_plainly,
        [RPC_STATUS] = answer_status,
        [RPC_ALARM] = answer_alarms,
        [RPC_MEMBER_LIST] = answer_members,
    };
    if (played_is_over() || played_pick(16) == 15)
        answer_error(q);
    else
        answers[q->rpc](q);
}

/* ---- streams ---- */

static void say_events(struct conn_stream *stream)
{
    static struct kv kvs[2 * KVS_MAX];
    Etcd__Event events[KVS_MAX], *list[KVS_MAX];
    Etcd__WatchResponse message = ETCD__WATCH_RESPONSE__INIT;
    message.header = fill_header(&header);
    message.watch_id = watch_id();
    message.events = list;
    message.n_events = played_pick(KVS_MAX);
    for (size_t i = 0; i < message.n_events; i++) {
        etcd__event__init(&events[i]);
        events[i].type =
            played_pick(3) ? ETCD__EVENT__TYPE__DELETE : (Etcd__Event__Type)played_pick(3);
        events[i].kv = played_pick(16) == 15 ? NULL : fill_kv(&kvs[2 * i]);
        events[i].prev_kv = played_pick(4) == 3 ? fill_kv(&kvs[2 * i + 1]) : NULL;
        list[i] = &events[i];
    }
    stream->message(stream, &message.base);
}

static void say_watch(struct conn_stream *stream)
{
    Etcd__WatchResponse message = ETCD__WATCH_RESPONSE__INIT;
    message.header = fill_header(&header);
    message.watch_id = watch_id();
    switch (played_pick(4)) {
    case 0:
        say_events(stream);
        return;
    case 1:
        message.canceled = true;
        message.compact_revision = number();
        message.cancel_reason = played_pick(2) ? "permission denied" : "because";
        break;
    default:
        message.created = true;
    }
    stream->message(stream, &message.base);
}

static void say_kept_alive(struct conn_stream *stream)
{
    Etcd__LeaseKeepAliveResponse message = ETCD__LEASE_KEEP_ALIVE_RESPONSE__INIT;
    message.header = fill_header(&header);
    message.id = lease_id();
    message.ttl = played_pick(4) == 3 ? number() : 2;
    stream->message(stream, &message.base);
}

static void say(struct conn_stream *stream)
{
    if (stream->rpc == RPC_WATCH)
        say_watch(stream);
    else
        say_kept_alive(stream);
}

/* ---- the connection ---- */

static struct played *of(const struct conn *conn)
{
    return container_of(conn, struct played, base);
}

static struct question *take(struct played *p, unsigned i)
{
    struct question **link = &p->questions;
    while (i-- && (*link)->next)
        link = &(*link)->next;
    struct question *q = *link;
    *link = q->next;
    return q;
}

static void drop(struct question *q)
{
    protobuf_c_message_free_unpacked(q->request, NULL);
    free(q);
}

static void end_streams(struct played *p, const struct stile_error *why)
{
    for (size_t i = 0; i < STREAMS && !p->freed; i++) {
        struct conn_stream *stream = p->streams[i];
        if (stream) {
            etcd_conn_stream_close(stream);
            stream->ended(stream, why);
        }
    }
}

static void break_off(struct played *p)
{
    struct stile_error why;
    p->up = false;
    error_set(&why, STILE_UNREACHABLE, 0, "the server closed the connection");
    while (p->questions && !p->freed) {
        struct question *q = take(p, 0);
        why.status = etcd_rpc_classes[q->rpc].reads ? STILE_UNREACHABLE : STILE_UNCERTAIN;
        q->fn(q->data, NULL, &why);
        drop(q);
    }
    why.status = STILE_UNREACHABLE;
    end_streams(p, &why);
    if (!p->freed)
        p->base.events->down(&p->base, &why);
}

/* One thing after the other: an answer, a word on a stream, or the end of the connection. */
static void go_on(struct played *p)
{
    struct conn_stream *stream = p->streams[played_pick(STREAMS)];
    unsigned what = played_pick(32);
    if (!p->up) {
        p->up = true;
        p->base.events->up(&p->base);
    } else if (what == 31) {
        break_off(p);
    } else if (what >= 20 && stream && !played_is_over()) {
        say(stream);
    } else if (p->questions) {
        struct question *q = take(p, what < 16 ? 0 : what - 16);
        answer(q);
        drop(q);
    }
}

static bool has_streams(const struct played *p)
{
    return p->streams[0] || p->streams[1];
}

static void wait(struct played *p)
{
    if (p->freed || p->timer.place || (p->up && !p->questions && !has_streams(p)) ||
        (p->up && !p->questions && played_is_over()))
        return;
    loop_arm(p->loop, &p->timer, loop_now(p->loop) + played_delay_ns());
}

static void on_time(struct timer *timer)
{
    struct played *p = container_of(timer, struct played, timer);
    go_on(p);
    wait(p);
}

/* ---- connection.h ---- */

enum stile_status etcd_conn_new(struct conn **out, struct loop *loop,
                                const struct conn_options *options,
                                const struct conn_events *events, void *owner,
                                struct stile_error *err)
{
    struct played *p = calloc(1, sizeof *p);
    (void)err;
    MUST(p && !loop_reserve(loop, 1) && options->n_endpoints);
    p->base.options.n_endpoints = options->n_endpoints;
    p->base.events = events;
    p->base.owner = owner;
    p->loop = loop;
    p->timer.fn = on_time;
    p->next = all;
    all = p;
    wait(p);
    *out = &p->base;
    return STILE_OK;
}

enum stile_status etcd_conn_new_to(struct conn **out, const struct conn *like, size_t i,
                                   bool anonymous, const struct conn_events *events, void *owner,
                                   struct stile_error *err)
{
    struct conn_options options = {.n_endpoints = 1};
    (void)anonymous;
    MUST(i < like->options.n_endpoints);
    return etcd_conn_new(out, of(like)->loop, &options, events, owner, err);
}

void *etcd_conn_owner(const struct conn *conn)
{
    return conn->owner;
}

bool etcd_conn_is_up(const struct conn *conn)
{
    return of(conn)->up;
}

size_t etcd_conn_unanswered(const struct conn *conn)
{
    (void)conn;
    return 0;
}

void etcd_conn_set_cluster(struct conn *conn, uint64_t cluster_id)
{
    conn->cluster_id = cluster_id;
}

const char *etcd_conn_address(const struct conn *conn)
{
    (void)conn;
    return "127.0.0.1:2379";
}

enum stile_status etcd_conn_request(struct conn *conn, enum rpc rpc,
                                    const ProtobufCMessage *message, conn_fn *fn, void *data,
                                    struct stile_error *err)
{
    struct played *p = of(conn);
    struct question **link = &p->questions, *q;
    MUST(!p->freed);
    if (!played_is_over() && played_pick(64) == 63)
        return error_set(err, STILE_UNREACHABLE, 0, "not connected");
    learn(rpc, message);
    q = malloc(sizeof *q);
    MUST(q);
    *q = (struct question){.rpc = rpc, .request = copy(message), .fn = fn, .data = data};
    while (*link)
        link = &(*link)->next;
    *link = q;
    wait(p);
    return STILE_OK;
}

void etcd_conn_forget(struct conn *conn, const void *data)
{
    struct question **link = &of(conn)->questions, *q;
    while ((q = *link)) {
        if (q->data == data) {
            *link = q->next;
            drop(q);
        } else {
            link = &q->next;
        }
    }
}

void etcd_conn_suspect(struct conn *conn, uint64_t for_ns)
{
    (void)conn, (void)for_ns;
}

bool etcd_conn_try_another(struct conn *conn, const struct stile_error *why)
{
    MUST(why);
    return conn->options.n_endpoints > 1;
}

enum stile_status etcd_conn_stream_open(struct conn *conn, struct conn_stream *stream, enum rpc rpc,
                                        struct stile_error *err)
{
    struct played *p = of(conn);
    size_t i = rpc == RPC_WATCH;
    MUST(!p->streams[i] && (rpc == RPC_WATCH || rpc == RPC_LEASE_KEEP_ALIVE));
    if (!p->up)
        return error_set(err, STILE_UNREACHABLE, 0, "not connected");
    stream->conn = conn;
    stream->rpc = rpc;
    stream->open = true;
    p->streams[i] = stream;
    wait(p);
    return STILE_OK;
}

enum stile_status etcd_conn_stream_send(struct conn_stream *stream, const ProtobufCMessage *message,
                                        struct stile_error *err)
{
    (void)err;
    MUST(stream->open && protobuf_c_message_check(message));
    learn(stream->rpc, message);
    wait(of(stream->conn));
    return STILE_OK;
}

void etcd_conn_stream_close(struct conn_stream *stream)
{
    if (!stream->open)
        return;
    of(stream->conn)->streams[stream->rpc == RPC_WATCH] = NULL;
    stream->open = false;
}

void etcd_conn_free(struct conn *conn)
{
    struct played *p = conn ? of(conn) : NULL;
    if (!p || p->freed)
        return;
    loop_disarm(p->loop, &p->timer);
    loop_unreserve(p->loop, 1);
    while (p->questions)
        drop(take(p, 0));
    p->freed = true;
}

void etcd_conn_forked(struct conn *conn)
{
    (void)conn;
}

/* ---- the target ---- */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const urls[] = {"etcd://127.0.0.1/p/", "etcd://127.0.0.1,127.0.0.2/p/",
                                       "etcd://127.0.0.1/p/?dialect=rwmutex",
                                       "etcd://127.0.0.1/p/?dialect=etcd3"};
    memset(&named, 0, sizeof named);
    named.revision = 5;
    played_run(&etcd_class, urls, sizeof urls / sizeof *urls, data, size);
    while (all) {
        struct played *p = all;
        MUST(p->freed && !p->questions);
        all = p->next;
        free(p);
    }
    return 0;
}
