/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated etcd beside a real one, which has one member: the same random calls get the same
 * answers, and the same watches the same events. Usage: sim-etcd-store URL */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "etcd_rig.h"
#include "sim/etcd_streams.h"

#define ROUNDS      4000 /* a hundred times as many with STILE_SOAK */
#define MEMBERS_MAX 3
#define SETTLE_NS   (400 * MS) /* every member has applied all, and every watch has caught up */
#define LEASES      5
#define LONG_S      1000000 /* no lease runs out meanwhile */
#define HEARD_MAX   4096
#define PACKAGE     "/etcdserverpb."

static const char *address;
static struct rig real, simulated[MEMBERS_MAX];
static struct etcd_cluster *cluster;
static struct process process = {.name = "test"};
static struct random dice;
static int64_t revision;  /* of the last answer */
static int64_t compacted; /* the last compaction */
static int64_t last_lease;

/* ---- messages as text: what both servers must agree on ---- */

/* What names a member or is measured is there, or is not. */
static bool is_own(const ProtobufCFieldDescriptor *field)
{
    static const char *const names[] = {"cluster_id", "member_id",          "leader", "version",
                                        "db_size",    "raft_applied_index", "ttl",    "name"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(field->name, names[i]) == 0)
            return true;
    }
    return false;
}

static void write_bytes(FILE *out, const ProtobufCBinaryData *bytes)
{
    fputc('"', out);
    for (size_t i = 0; i < bytes->len; i++)
        fprintf(out, bytes->data[i] < ' ' ? "\\%d" : "%c", bytes->data[i]);
    fputc('"', out);
}

static void write_message(FILE *out, const ProtobufCMessage *message);

static void write_value(FILE *out, const ProtobufCFieldDescriptor *field, const void *at)
{
    int64_t number = 0;
    switch (field->type) {
    case PROTOBUF_C_TYPE_MESSAGE:
        write_message(out, *(const ProtobufCMessage *const *)at);
        return;
    case PROTOBUF_C_TYPE_BYTES:
        write_bytes(out, at);
        return;
    case PROTOBUF_C_TYPE_STRING:
        fputs(is_own(field) ? "-" : *(const char *const *)at, out);
        return;
    case PROTOBUF_C_TYPE_INT64:
        number = *(const int64_t *)at;
        break;
    case PROTOBUF_C_TYPE_UINT64: /* the id of a member, or of the cluster */
        number = *(const uint64_t *)at != 0;
        break;
    default: /* enums and booleans */
        number = *(const int *)at;
    }
    fprintf(out, "%lld", (long long)(is_own(field) ? (number > 0) - (number < 0) : number));
}

static size_t size_of(const ProtobufCFieldDescriptor *field)
{
    return field->type == PROTOBUF_C_TYPE_BYTES  ? sizeof(ProtobufCBinaryData)
           : field->type == PROTOBUF_C_TYPE_ENUM ? sizeof(int)
                                                 : sizeof(void *);
}

static int by_bytes(const void *a, const void *b)
{
    return etcd_bytes_compare(*(const etcd_bytes *)a, *(const etcd_bytes *)b);
}

/* The keys of a lease come in any order. */
static void write_list(FILE *out, const ProtobufCFieldDescriptor *field, const char *base)
{
    size_t n = *(const size_t *)(const void *)(base + field->quantifier_offset);
    char *items = *(char *const *)(const void *)(base + field->offset);
    if (field->type == PROTOBUF_C_TYPE_BYTES && n > 1)
        qsort(items, n, sizeof(etcd_bytes), by_bytes);
    for (size_t i = 0; i < n; i++) {
        fputc(' ', out);
        write_value(out, field, items + i * size_of(field));
    }
}

static bool is_there(const ProtobufCFieldDescriptor *field, const char *base)
{
    if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
        return *(const uint32_t *)(const void *)(base + field->quantifier_offset) == field->id;
    return (field->type != PROTOBUF_C_TYPE_MESSAGE && field->type != PROTOBUF_C_TYPE_STRING) ||
           *(void *const *)(const void *)(base + field->offset) != NULL;
}

static void write_message(FILE *out, const ProtobufCMessage *message)
{
    const char *base = (const char *)message;
    fputc('{', out);
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        bool list = field->label == PROTOBUF_C_LABEL_REPEATED;
        if (!list && !is_there(field, base))
            continue;
        fprintf(out, " %s", field->name);
        fputc(':', out);
        if (list)
            write_list(out, field, base);
        else
            write_value(out, field, base + field->offset);
    }
    fputs(" }", out);
}

static char *text_of(const ProtobufCMessage *message)
{
    char *text;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    write_message(out, message);
    fclose(out);
    return text;
}

/* cmocka would cut it short. */
static void fail_different(const char *what, const char *real_one, const char *simulated_one)
{
    fprintf(stderr, "%s\n  etcd:      %s\n  simulated: %s\n", what, real_one, simulated_one);
    fail();
}

/* ---- calls with one answer ---- */

/* Status, words and answer. */
static char *answer_of(struct rig *rig, const char *path, const struct buffer *request,
                       const ProtobufCMessageDescriptor *class)
{
    struct rig_call call;
    const uint8_t *bytes;
    size_t n;
    char *text, full[80];
    snprintf(full, sizeof full, PACKAGE "%s", path);
    rig_begin(rig, &call, full);
    rig_send(rig, &call, buffer_at(request), buffer_len(request), true);
    while (!call.over)
        assert_true(rig_step(rig));
    FILE *out = open_memstream(&text, &n);
    fprintf(out, "%d %s ", call.status, call.words);
    size_t len;
    if (rig_message(&call, &bytes, &len)) {
        ProtobufCMessage *answer = protobuf_c_message_unpack(class, NULL, len, bytes);
        assert_non_null(answer);
        write_message(out, answer);
        const Etcd__Header *header = ((const struct etcd_answer *)answer)->header;
        if (header != NULL && header->revision > revision)
            revision = header->revision;
        protobuf_c_message_free_unpacked(answer, NULL);
    }
    fclose(out);
    rig_call_free(&call);
    return text;
}

static struct buffer packed(const ProtobufCMessage *message)
{
    struct buffer bytes = {0};
    uint8_t *room = malloc(protobuf_c_message_get_packed_size(message) + 1);
    buffer_put(&bytes, room, protobuf_c_message_pack(message, room));
    free(room);
    return bytes;
}

static struct rig *any_member(void)
{
    return &simulated[random_below(&dice, cluster->n)];
}

static void compare(const char *path, const ProtobufCMessage *request,
                    const ProtobufCMessageDescriptor *class)
{
    struct buffer bytes = packed(request);
    char *theirs = answer_of(&real, path, &bytes, class);
    char *ours = answer_of(any_member(), path, &bytes, class);
    buffer_free(&bytes);
    if (strcmp(theirs, ours) != 0) {
        fprintf(stderr, "%s\n", text_of(request));
        fail_different(path, theirs, ours);
    }
    free(theirs);
    free(ours);
}

/* ---- random requests; their memory is the world's ---- */

static bool once_in(uint64_t n)
{
    return random_once_in(&dice, n);
}

#define BYTES(text)  ((etcd_bytes){sizeof(text) - 1, (uint8_t *)(text)})
#define ONE_OF(list) ((list)[random_below(&dice, sizeof(list) / sizeof *(list))])

static etcd_bytes draw_key(void)
{
    static const etcd_bytes keys[] = {BYTES("a"), BYTES("b"),  BYTES("c"),    BYTES("d"),
                                      BYTES("e"), BYTES("ab"), BYTES("a\0b"), BYTES("\1stile")};
    return once_in(60) ? BYTES("") : ONE_OF(keys);
}

static etcd_bytes draw_end(void)
{
    static const etcd_bytes ends[] = {BYTES("\0"), BYTES("a"), BYTES("c"), BYTES("e"), BYTES("z")};
    return once_in(2) ? BYTES("") : ONE_OF(ends);
}

static etcd_bytes draw_value(void)
{
    static const etcd_bytes values[] = {BYTES(""), BYTES("1"), BYTES("2"), BYTES("10")};
    return ONE_OF(values);
}

/* Present, recent, compacted, in the future, or nonsense. */
static int64_t draw_revision(void)
{
    switch (random_below(&dice, 12)) {
    case 0:
        return revision - (int64_t)random_below(&dice, 6);
    case 1:
        return revision + (int64_t)random_below(&dice, 3);
    case 2:
        return compacted + (int64_t)random_below(&dice, 3) - 1;
    case 3:
        return once_in(2) ? -1 : 1;
    default:
        return 0;
    }
}

static int64_t draw_lease(void)
{
    return once_in(2) ? 0 : 1 + (int64_t)random_below(&dice, LEASES);
}

static Etcd__RangeRequest *draw_range(void)
{
    Etcd__RangeRequest *range = world_alloc(sizeof *range);
    etcd__range_request__init(range);
    range->key = draw_key();
    range->range_end = draw_end();
    range->limit = (int64_t)random_below(&dice, 8) - 3;
    range->revision = draw_revision();
    range->sort_order = (int)random_below(&dice, 3);
    range->sort_target = (int)random_below(&dice, 3);
    range->keys_only = once_in(3);
    range->max_create_revision = once_in(3) ? revision - (int64_t)random_below(&dice, 40) : 0;
    return range;
}

static Etcd__PutRequest *draw_put(void)
{
    Etcd__PutRequest *put = world_alloc(sizeof *put);
    etcd__put_request__init(put);
    put->key = draw_key();
    put->value = draw_value();
    put->lease = draw_lease();
    put->prev_kv = once_in(2);
    return put;
}

static Etcd__DeleteRequest *draw_delete(void)
{
    Etcd__DeleteRequest *deletion = world_alloc(sizeof *deletion);
    etcd__delete_request__init(deletion);
    deletion->key = draw_key();
    deletion->range_end = once_in(4) ? draw_end() : BYTES("");
    return deletion;
}

static Etcd__Compare *draw_compare(void)
{
    Etcd__Compare *compare = world_alloc(sizeof *compare);
    etcd__compare__init(compare);
    compare->key = draw_key();
    compare->range_end = once_in(4) ? draw_end() : BYTES("");
    compare->result = (int)random_below(&dice, 4);
    compare->target = (int)random_below(&dice, 5);
    switch (once_in(8) ? random_below(&dice, 5) : compare->target) {
    case ETCD__COMPARE__TARGET__CREATE:
        compare->target_union_case = ETCD__COMPARE__TARGET_UNION_CREATE_REVISION;
        compare->create_revision = draw_revision();
        break;
    case ETCD__COMPARE__TARGET__MOD:
        compare->target_union_case = ETCD__COMPARE__TARGET_UNION_MOD_REVISION;
        compare->mod_revision = draw_revision();
        break;
    case ETCD__COMPARE__TARGET__VALUE:
        compare->target_union_case = ETCD__COMPARE__TARGET_UNION_VALUE;
        compare->value = draw_value();
        break;
    case ETCD__COMPARE__TARGET__LEASE:
        compare->target_union_case = ETCD__COMPARE__TARGET_UNION_LEASE;
        compare->lease = draw_lease();
        break;
    default: /* the engine's messages have no version */
        break;
    }
    return compare;
}

static Etcd__TxnRequest *draw_txn(unsigned depth);

static Etcd__RequestOp *draw_op(unsigned depth)
{
    Etcd__RequestOp *op = world_alloc(sizeof *op);
    etcd__request_op__init(op);
    switch (random_below(&dice, depth < 2 ? 8 : 7)) {
    case 0:
    case 1:
    case 2:
        op->request_case = ETCD__REQUEST_OP__REQUEST_RANGE;
        op->range = draw_range();
        break;
    case 3:
    case 4:
    case 5:
        op->request_case = ETCD__REQUEST_OP__REQUEST_PUT;
        op->put = draw_put();
        break;
    case 6:
        op->request_case = ETCD__REQUEST_OP__REQUEST_DELETE_RANGE;
        op->delete_range = draw_delete();
        break;
    default:
        op->request_case = ETCD__REQUEST_OP__REQUEST_TXN;
        op->txn = draw_txn(depth + 1);
    }
    if (once_in(200))
        op->request_case = ETCD__REQUEST_OP__REQUEST__NOT_SET;
    return op;
}

static Etcd__RequestOp **draw_ops(size_t *n, unsigned depth)
{
    *n = random_below(&dice, 4);
    if (once_in(150))
        *n = 127 + random_below(&dice, 3); /* 128 are allowed */
    Etcd__RequestOp **ops = world_alloc(*n * sizeof *ops);
    for (size_t i = 0; i < *n; i++)
        ops[i] = draw_op(depth);
    return ops;
}

static Etcd__TxnRequest *draw_txn(unsigned depth)
{
    Etcd__TxnRequest *txn = world_alloc(sizeof *txn);
    etcd__txn_request__init(txn);
    txn->n_compare = random_below(&dice, 3);
    txn->compare = world_alloc(txn->n_compare * sizeof *txn->compare);
    for (size_t i = 0; i < txn->n_compare; i++)
        txn->compare[i] = draw_compare();
    txn->success = draw_ops(&txn->n_success, depth);
    txn->failure = draw_ops(&txn->n_failure, depth);
    return txn;
}

/* ---- leases ---- */

/* What is short is granted under an id of its own, and never looked at again. */
static void grant(void)
{
    static const int64_t short_ones[] = {-1, 0, 1, 2, 9000000001};
    Etcd__LeaseGrantRequest request = ETCD__LEASE_GRANT_REQUEST__INIT;
    bool is_long = !once_in(3);
    request.id = is_long ? 1 + (int64_t)random_below(&dice, LEASES) : ++last_lease;
    request.ttl = is_long ? LONG_S : ONE_OF(short_ones);
    compare("Lease/LeaseGrant", &request.base, &etcd__lease_grant_response__descriptor);
}

static void revoke(void)
{
    Etcd__LeaseRevokeRequest request = ETCD__LEASE_REVOKE_REQUEST__INIT;
    request.id = (int64_t)random_below(&dice, 6);
    compare("Lease/LeaseRevoke", &request.base, &etcd__lease_revoke_response__descriptor);
}

static void time_to_live(void)
{
    Etcd__LeaseTimeToLiveRequest request = ETCD__LEASE_TIME_TO_LIVE_REQUEST__INIT;
    request.id = (int64_t)random_below(&dice, 7);
    request.keys = once_in(2);
    compare("Lease/LeaseTimeToLive", &request.base, &etcd__lease_time_to_live_response__descriptor);
}

/* ---- streams: one on the real server, one on a simulated member ---- */

struct stream {
    struct rig_call theirs, ours;
    struct rig *member;
};

static struct stream keep_alives, watches;

static void stream_open(struct stream *stream, const char *path)
{
    stream->member = any_member();
    rig_begin(&real, &stream->theirs, path);
    rig_begin(stream->member, &stream->ours, path);
}

static void stream_say(struct stream *stream, const ProtobufCMessage *message)
{
    struct buffer bytes = packed(message);
    rig_send(&real, &stream->theirs, buffer_at(&bytes), buffer_len(&bytes), false);
    rig_send(stream->member, &stream->ours, buffer_at(&bytes), buffer_len(&bytes), false);
    buffer_free(&bytes);
}

static void stream_close(struct stream *stream)
{
    rig_call_free(&stream->theirs);
    rig_call_free(&stream->ours);
}

/* A member answers with what it has applied. */
static void settle(void)
{
    world_run(world_now() + SETTLE_NS);
}

static char *kept(struct rig *rig, struct rig_call *call)
{
    const uint8_t *bytes;
    size_t n;
    rig_await(rig, call);
    assert_true(rig_message(call, &bytes, &n));
    ProtobufCMessage *answer =
        protobuf_c_message_unpack(&etcd__lease_keep_alive_response__descriptor, NULL, n, bytes);
    assert_non_null(answer);
    char *text = text_of(answer);
    protobuf_c_message_free_unpacked(answer, NULL);
    rig_drop(call);
    return text;
}

static void keep_alive(void)
{
    Etcd__LeaseKeepAliveRequest request = ETCD__LEASE_KEEP_ALIVE_REQUEST__INIT;
    request.id = (int64_t)random_below(&dice, 7);
    settle();
    stream_say(&keep_alives, &request.base);
    char *theirs = kept(&real, &keep_alives.theirs);
    char *ours = kept(keep_alives.member, &keep_alives.ours);
    if (strcmp(theirs, ours) != 0)
        fail_different("LeaseKeepAlive", theirs, ours);
    free(theirs);
    free(ours);
}

/* ---- watches ---- */

/* What came since the last comparison, by watch. */
struct heard {
    struct line {
        int64_t watch;
        size_t number;
        char *text;
    } lines[HEARD_MAX];
    size_t n;
};

static struct heard theirs, ours;

static void note(struct heard *heard, int64_t watch, const ProtobufCMessage *message)
{
    assert_true(heard->n < HEARD_MAX);
    heard->lines[heard->n] = (struct line){watch, heard->n, text_of(message)};
    heard->n++;
}

/* Events of several revisions may come in one message. */
static void hear(struct heard *heard, struct rig_call *call)
{
    const uint8_t *bytes;
    size_t n;
    while (rig_message(call, &bytes, &n)) {
        Etcd__WatchResponse *answer = etcd__watch_response__unpack(NULL, n, bytes);
        assert_non_null(answer);
        for (size_t i = 0; i < answer->n_events; i++) {
            assert_true(answer->header->revision >= answer->events[i]->kv->mod_revision);
            note(heard, answer->watch_id, &answer->events[i]->base);
        }
        if (answer->n_events == 0)
            note(heard, answer->watch_id, &answer->base);
        etcd__watch_response__free_unpacked(answer, NULL);
        rig_drop(call);
    }
}

static int by_watch(const void *a, const void *b)
{
    const struct line *one = a, *two = b;
    return one->watch != two->watch ? (one->watch > two->watch) - (one->watch < two->watch)
                                    : (one->number > two->number) - (one->number < two->number);
}

static void forget(struct heard *heard)
{
    for (size_t i = 0; i < heard->n; i++)
        free(heard->lines[i].text);
    heard->n = 0;
}

static void compare_lines(const struct line *real_one, const struct line *simulated_one)
{
    if (real_one != NULL && simulated_one != NULL && real_one->watch == simulated_one->watch &&
        strcmp(real_one->text, simulated_one->text) == 0)
        return;
    fprintf(stderr, "watches %lld and %lld\n", real_one != NULL ? (long long)real_one->watch : 0,
            simulated_one != NULL ? (long long)simulated_one->watch : 0);
    fail_different("Watch", real_one != NULL ? real_one->text : "nothing",
                   simulated_one != NULL ? simulated_one->text : "nothing");
}

static void compare_watches(void)
{
    for (uint64_t end_ns = world_now() + SETTLE_NS; world_now() < end_ns;)
        rig_step(watches.member);
    hear(&ours, &watches.ours);
    hear(&theirs, &watches.theirs);
    while (theirs.n < ours.n && rig_step(&real))
        hear(&theirs, &watches.theirs);
    qsort(theirs.lines, theirs.n, sizeof *theirs.lines, by_watch);
    qsort(ours.lines, ours.n, sizeof *ours.lines, by_watch);
    for (size_t i = 0; i < theirs.n || i < ours.n; i++)
        compare_lines(i < theirs.n ? &theirs.lines[i] : NULL, i < ours.n ? &ours.lines[i] : NULL);
    forget(&theirs);
    forget(&ours);
}

static void say_to_watches(const Etcd__WatchRequest *request)
{
    compare_watches();
    stream_say(&watches, &request->base);
    compare_watches();
}

static void create_watch(void)
{
    Etcd__WatchRequest request = ETCD__WATCH_REQUEST__INIT;
    Etcd__WatchCreate create = ETCD__WATCH_CREATE__INIT;
    Etcd__WatchCreate__Filter filter = (int)random_below(&dice, 2);
    create.key = draw_key();
    create.range_end = draw_end();
    create.prev_kv = once_in(2);
    create.fragment = once_in(2);
    create.watch_id = once_in(2) ? (int64_t)random_below(&dice, 8) : 0;
    create.filters = &filter;
    create.n_filters = once_in(3) ? 1 : 0;
    request.request_case = ETCD__WATCH_REQUEST__REQUEST_CREATE;
    request.create = &create;
    say_to_watches(&request);
}

static void cancel_watch(void)
{
    Etcd__WatchRequest request = ETCD__WATCH_REQUEST__INIT;
    Etcd__WatchCancel cancel = ETCD__WATCH_CANCEL__INIT;
    cancel.watch_id = (int64_t)random_below(&dice, 10);
    request.request_case = ETCD__WATCH_REQUEST__REQUEST_CANCEL;
    request.cancel = &cancel;
    say_to_watches(&request);
}

/* ---- other calls ---- */

static void ask_a_member(void)
{
    Etcd__StatusRequest status = ETCD__STATUS_REQUEST__INIT;
    Etcd__AlarmRequest alarms = ETCD__ALARM_REQUEST__INIT;
    Etcd__AuthenticateRequest login = ETCD__AUTHENTICATE_REQUEST__INIT;
    settle();
    compare("Maintenance/Status", &status.base, &etcd__status_response__descriptor);
    compare("Maintenance/Alarm", &alarms.base, &etcd__alarm_response__descriptor);
    login.name = "root";
    login.password = "wrong";
    compare("Auth/Authenticate", &login.base, &etcd__authenticate_response__descriptor);
}

/* The engine never compacts, so there are no messages for it. */
static void compact_real(int64_t at)
{
    struct buffer bytes = {0};
    uint64_t rest = (uint64_t)at;
    uint8_t byte = 0x08;
    buffer_put(&bytes, &byte, 1);
    for (; rest >= 0x80; rest >>= 7) {
        byte = (uint8_t)(rest | 0x80);
        buffer_put(&bytes, &byte, 1);
    }
    byte = (uint8_t)rest;
    buffer_put(&bytes, &byte, 1);
    char *answer = answer_of(&real, "KV/Compact", &bytes, &etcd__put_response__descriptor);
    if (answer[0] != '0')
        fail_msg("compacting: %s", answer);
    free(answer);
    buffer_free(&bytes);
}

/* Watches want the values before: they must have had their events. */
static void compact(void)
{
    compare_watches();
    if (revision == compacted)
        return;
    compact_real(revision);
    etcd_cluster_compact(cluster);
    compacted = revision;
}

/* ---- all of it ---- */

static void one_call(void)
{
    switch (random_below(&dice, 40)) {
    case 0:
        create_watch();
        break;
    case 1:
        if (once_in(2))
            cancel_watch();
        break;
    case 2:
        if (once_in(4))
            compact();
        break;
    case 3:
    case 4:
    case 5:
        grant();
        break;
    case 6:
        revoke();
        break;
    case 7:
        time_to_live();
        break;
    case 8:
        keep_alive();
        break;
    case 9:
        if (once_in(8))
            ask_a_member();
        break;
    case 10:
    case 11:
    case 12:
    case 13:
    case 14:
        compare("KV/DeleteRange", &draw_delete()->base, &etcd__delete_response__descriptor);
        break;
    case 15:
    case 16:
    case 17:
    case 18:
    case 19:
        compare("KV/Range", &draw_range()->base, &etcd__range_response__descriptor);
        break;
    case 20:
    case 21:
    case 22:
    case 23:
    case 24:
        compare("KV/Put", &draw_put()->base, &etcd__put_response__descriptor);
        break;
    default:
        compare("KV/Txn", &draw_txn(0)->base, &etcd__txn_response__descriptor);
    }
}

/* ---- the two servers ---- */

static void forget_leases(void)
{
    Etcd__LeaseRevokeRequest request = ETCD__LEASE_REVOKE_REQUEST__INIT;
    for (request.id = 1; request.id <= LEASES; request.id++) {
        struct buffer bytes = packed(&request.base);
        free(answer_of(&real, "Lease/LeaseRevoke", &bytes,
                       &etcd__lease_revoke_response__descriptor));
        buffer_free(&bytes);
    }
}

/* The real one is emptied; the simulated one begins at its revision. */
static void start_even(unsigned members)
{
    Etcd__DeleteRequest all = ETCD__DELETE_REQUEST__INIT;
    all.key = all.range_end = BYTES("\0");
    rig_connect(&real, address);
    forget_leases();
    struct buffer bytes = packed(&all.base);
    revision = 0;
    free(answer_of(&real, "KV/DeleteRange", &bytes, &etcd__delete_response__descriptor));
    buffer_free(&bytes);
    if (revision > 1)
        compact_real(revision);
    compacted = revision;
    cluster = sim_etcd_new(members);
    etcd_cluster_restore(cluster, false, revision - 1);
    world_run(world_now() + 10 * SEC);
    for (unsigned i = 0; i < members; i++)
        rig_connect_simulated(&simulated[i], cluster->members[i].server, &process);
}

static void same_answers(unsigned members)
{
    world_begin(members, NULL);
    dice = random_stream(members, 5);
    last_lease = 1000 * members;
    start_even(members);
    stream_open(&keep_alives, PACKAGE "Lease/LeaseKeepAlive");
    stream_open(&watches, PACKAGE "Watch/Watch");
    for (unsigned i = 0; i < (getenv("STILE_SOAK") != NULL ? 100 * ROUNDS : ROUNDS); i++)
        one_call();
    compare_watches();
    assert_int_equal(sim_etcd_failures(), 0);
    rig_close(&real);
    for (unsigned i = 0; i < members; i++)
        rig_close(&simulated[i]);
    stream_close(&keep_alives);
    stream_close(&watches);
    sim_etcd_dispose(cluster);
    world_end();
}

static void same_answers_from_one_member(void **state)
{
    (void)state;
    same_answers(1);
}

static void same_answers_from_three_members(void **state)
{
    (void)state;
    same_answers(3);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_answers_from_one_member),
        cmocka_unit_test(same_answers_from_three_members),
    };
    if (argc != 2 || strncmp(argv[1], "etcd://", 7) != 0) {
        fprintf(stderr, "usage: %s etcd://HOST:PORT\n", argv[0]);
        return 2;
    }
    address = argv[1] + 7;
    return cmocka_run_group_tests_name("sim-etcd-store", tests, NULL, NULL);
}
