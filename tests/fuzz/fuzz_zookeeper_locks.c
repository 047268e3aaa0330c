/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What a ZooKeeper server may send to the engine as a whole: greetings, replies to every request,
 * listings with claims of all dialects and with anything else, and events of watches that nobody
 * has set. The streams are played here; jute has a target of its own, so the form of a reply is
 * mostly that of its request. Nodes that the engine has created come back, so that the input gets
 * behind the first look at them. */
#include <errno.h>

#include "base/container.h"
#include "engines/zookeeper/jute.h"
#include "engines/zookeeper/requests.h"
#include "fuzz/played.h"
#include "io/stream.h"

extern const struct engine_class zk_class;

#define MEMORY       4 /* paths that the engine has named last */
#define ROOM         2200
#define QUESTIONS    512
#define CHILDREN_MAX 5
#define SESSION      0x100000000000005

struct question {
    int32_t xid, type;
    int32_t mode; /* of a creation */
    char path[ROOM];
    unsigned parts; /* of a multi */
};

struct stream {
    struct stream *next;
    struct loop *loop;
    struct timer timer;
    const struct stream_events *events;
    void *owner;
    uint64_t written;
    bool opened, greeted, closed, freed;
    bool word; /* one of four letters was asked, not for a session */
    size_t n_asked, n_answered;
    struct question questions[QUESTIONS];
};

static struct stream *all; /* freed when the run is over: some are freed inside of an event */

static struct {
    char created[MEMORY][ROOM], asked[MEMORY][ROOM];
    size_t n_created, n_asked;
    int64_t zxid;
    int32_t sequence;
} named;

static struct jute_writer out;

/* ---- what was asked ---- */

/* How many operations a multi has, behind its header. */
static unsigned count_parts(struct jute_reader *reader)
{
    unsigned n = 0;
    for (;;) {
        int32_t type = zk_jute_read_int(reader);
        bool done = zk_jute_read_bool(reader);
        size_t len;
        (void)zk_jute_read_int(reader);
        if (done || reader->bad)
            return n;
        n++;
        MUST(zk_jute_read_bytes(reader, &len));
        if (type == JUTE_SET_DATA)
            (void)zk_jute_read_bytes(reader, &len);
        (void)zk_jute_read_int(reader);
    }
}

static void read_question(struct question *q, struct jute_reader *reader)
{
    char *end = reader->end;
    q->xid = zk_jute_read_int(reader);
    q->type = zk_jute_read_int(reader);
    q->path[0] = '\0';
    q->parts = q->type == JUTE_MULTI ? count_parts(reader) : 0;
    if (q->type == JUTE_MULTI || q->type == JUTE_CLOSE_SESSION || q->xid < 0)
        return;
    const char *path = zk_jute_read_string(reader);
    MUST(path && strlen(path) < ROOM);
    strcpy(q->path, path);
    struct jute_reader last = {.at = end - sizeof(int32_t), .end = end};
    q->mode = q->type == JUTE_CREATE ? zk_jute_read_int(&last) : JUTE_PERSISTENT;
    strcpy(named.asked[named.n_asked++ % MEMORY], path);
}

/* ---- values ---- */

static int64_t number(void)
{
    static const int64_t numbers[] = {0,         1,         2,   5,         -1,       40,
                                      INT64_MAX, INT64_MIN, 600, 1LL << 40, INT32_MAX};
    unsigned i = played_pick(16), n = sizeof numbers / sizeof *numbers;
    return i < n ? numbers[i] : named.zxid + (int64_t)i - (int64_t)n;
}

static void write_stat(void)
{
    unsigned plain = played_pick(4);
    for (unsigned i = 0; i < 4; i++) /* czxid, mzxid, ctime, mtime */
        zk_jute_write_long(&out, plain ? named.zxid : number());
    for (unsigned i = 0; i < 3; i++) /* versions */
        zk_jute_write_int(&out, plain ? 0 : (int32_t)number());
    zk_jute_write_long(&out, plain == 1 ? 0 : plain ? SESSION : number());
    zk_jute_write_int(&out, plain ? 0 : (int32_t)number());
    zk_jute_write_int(&out, plain ? (int32_t)played_pick(3) : (int32_t)number());
    zk_jute_write_long(&out, plain ? named.zxid : number());
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void write_raw(void)
{
    size_t n;
    const uint8_t *bytes = played_bytes(&n, 200);
    zk_jute_write_bytes(&out, bytes, n);
}

static void write_child(void)
{
    static const char *const children[] = {
        "_c_00000000-0000-4000-8000-000000000000-lock-0000000000",
        "_c_00000000-0000-4000-8000-000000000000-read-lock-0000000001",
        "_c_00000000-0000-4000-8000-000000000000-slots-lock-0000000002",
        "_c_00000000-0000-4000-8000-000000000000-lock--2147483648",
        "00000000000000000000000000000000__lock__0000000000",
        "00000000000000000000000000000000__rlock__0000000001",
        "lock-2147483647",
        "stile-kept-x-00000000-0000-4000-8000-000000000000",
        "stile-kept-s-",
        "%stile",
        "x",
        "%00",
        ""};
    unsigned i = played_pick(20), n = sizeof children / sizeof *children;
    if (i < n)
        zk_jute_write_string(&out, children[i]);
    else if (i == 19)
        write_raw();
    else
        zk_jute_write_string(
            &out, base_name(named.created[(named.n_created + MEMORY - 1 - i % MEMORY) % MEMORY]));
}

static void write_children(void)
{
    unsigned n = played_pick(4) == 3 ? played_pick(CHILDREN_MAX + 1) : 1 + played_pick(2);
    zk_jute_write_int(&out, (int32_t)n);
    for (unsigned i = 0; i < n; i++)
        write_child();
}

static void write_value(void)
{
    static const char *const values[] = {"",
                                         "12 host command",
                                         "12",
                                         "99999999999999999999 h c",
                                         "x",
                                         "500 500 5 12 host command",
                                         "stile 500 500 5 12 host command",
                                         "-1 -1 -1 -1",
                                         "two\nlines"};
    unsigned i = played_pick(12), n = sizeof values / sizeof *values;
    if (i < n)
        zk_jute_write_bytes(&out, values[i], strlen(values[i]));
    else if (i == n)
        zk_jute_write_bytes(&out, NULL, 0);
    else
        write_raw();
}

static void write_paths(void)
{
    unsigned n = played_pick(MEMORY);
    zk_jute_write_int(&out, (int32_t)n);
    for (unsigned i = 0; i < n; i++)
        zk_jute_write_string(&out, played_pick(8) == 7 ? "/x/foreign"
                                                       : named.created[played_pick(MEMORY)]);
}

/* ---- replies ---- */

static void write_created(const struct question *q)
{
    char path[ROOM + 16];
    bool numbered = q->mode == JUTE_EPHEMERAL_SEQUENTIAL && played_pick(16) != 15;
    snprintf(path, sizeof path, numbered ? "%s%010d" : "%s", q->path, named.sequence);
    named.sequence += played_pick(16) == 15 ? INT32_MAX / 2 : 1;
    named.zxid++;
    if (strlen(path) < ROOM)
        strcpy(named.created[named.n_created++ % MEMORY], path);
    zk_jute_write_string(&out, played_pick(16) == 15 ? "/other" : path);
    write_stat();
}

static void write_multi(const struct question *q)
{
    unsigned n = played_pick(16) == 15 ? played_pick(4) : q->parts;
    for (unsigned i = 0; i < n; i++) {
        unsigned how = played_pick(8);
        int32_t type = how == 7 ? -1 : how == 6 ? JUTE_SET_DATA : JUTE_DELETE;
        zk_jute_write_int(&out, type);
        zk_jute_write_bool(&out, false);
        zk_jute_write_int(&out, 0);
        if (type == -1)
            zk_jute_write_int(&out, played_pick(2) ? ZNONODE : ZRUNTIMEINCONSISTENCY);
        else if (type == JUTE_SET_DATA)
            write_stat();
    }
    zk_jute_write_int(&out, -1);
    zk_jute_write_bool(&out, true);
    zk_jute_write_int(&out, -1);
}

static void write_body(const struct question *q)
{
    switch (q->type) {
    case JUTE_CREATE:
    case JUTE_CREATE_CONTAINER:
        write_created(q);
        break;
    case JUTE_GET_DATA:
        write_value();
        write_stat();
        break;
    case JUTE_GET_CHILDREN:
        write_children();
        write_stat();
        break;
    case JUTE_GET_EPHEMERALS:
        write_paths();
        break;
    case JUTE_SYNC:
        zk_jute_write_string(&out, q->path);
        break;
    case JUTE_MULTI:
        write_multi(q);
        break;
    case JUTE_DELETE:
        break;
    default:
        write_stat();
    }
}

static int32_t code(void)
{
    static const int32_t codes[] = {ZNONODE,
                                    ZNODEEXISTS,
                                    ZBADVERSION,
                                    ZNOAUTH,
                                    ZSESSIONEXPIRED,
                                    ZSESSIONMOVED,
                                    ZOPERATIONTIMEOUT,
                                    ZCONNECTIONLOSS,
                                    ZUNIMPLEMENTED,
                                    ZQUOTAEXCEEDED,
                                    ZNOCHILDRENFOREPHEMERALS,
                                    -999};
    unsigned i = played_pick(48), n = sizeof codes / sizeof *codes;
    return i < n ? codes[n - 1 - i] : i == 47 ? ZNONODE : ZOK;
}

static void begin(int32_t xid, int32_t result)
{
    unsigned how = played_pick(16);
    zk_jute_begin(&out);
    zk_jute_write_int(&out, xid);
    zk_jute_write_long(&out, how == 15 ? number() : named.zxid);
    zk_jute_write_int(&out, result);
}

/* In an allocation of just its size. */
static void send_packet(struct stream *stream)
{
    size_t n;
    const char *packet = zk_jute_end(&out, &n);
    char *exact = malloc(n);
    MUST(packet && exact);
    memcpy(exact, packet, n);
    stream->events->data(stream, exact, n);
    free(exact);
}

static void reply(struct stream *stream)
{
    struct question q = stream->questions[stream->n_answered++ % QUESTIONS];
    int32_t result = code();
    if (q.type == JUTE_CLOSE_SESSION)
        result = ZOK;
    begin(played_pick(64) == 63 ? q.xid + 1 : q.xid, result);
    if (!result && q.type != JUTE_CLOSE_SESSION && q.xid >= 0)
        write_body(&q);
    send_packet(stream);
}

static void send_event(struct stream *stream)
{
    begin(JUTE_XID_EVENT, 0);
    zk_jute_write_int(&out,
                      played_pick(8) == 7 ? (int32_t)number() : (int32_t)(1 + played_pick(4)));
    zk_jute_write_int(&out, 3);
    zk_jute_write_string(&out, played_pick(2) ? named.created[played_pick(MEMORY)]
                                              : named.asked[played_pick(MEMORY)]);
    send_packet(stream);
}

static void greet(struct stream *stream)
{
    static const char password[16] = "0123456789abcdef";
    unsigned how = played_pick(16);
    zk_jute_begin(&out);
    zk_jute_write_int(&out, 0);
    zk_jute_write_int(&out, how == 15 ? (int32_t)number() : 2000);
    zk_jute_write_long(&out, how == 14 ? 0 : how == 13 ? number() : SESSION);
    zk_jute_write_bytes(&out, password, how == 12 ? 1 : sizeof password);
    stream->greeted = true;
    send_packet(stream);
}

/* The doctor's words of four letters are answered with a text, and the end. */
static void answer_word(struct stream *stream)
{
    static const char text[] =
        "zookeeper.version=3.8.0\nserver.1=a:1:2:participant;0.0.0.0:2181\n"
        "ensemble\nMode: leader\nzk_version\t3.8.0\nzk_server_state\tleader\n"
        "zk_synced_followers\t2\nminSessionTimeout=4000\n"
        "maxSessionTimeout=40000\nmaxClientCnxns=60\ntickTime=2000\n";
    size_t n, at = played_pick(2) ? played_pick(sizeof text - 1) : 0;
    const uint8_t *bytes = played_bytes(&n, 255);
    char all_of_it[sizeof text + 255];
    stream->greeted = true;
    memcpy(all_of_it, text + at, sizeof text - 1 - at);
    if (n)
        memcpy(all_of_it + sizeof text - 1 - at, bytes, n);
    stream->events->data(stream, all_of_it, sizeof text - 1 - at + n);
}

/* ---- the stream ---- */

static void hang_up(struct stream *stream)
{
    struct stile_error why;
    error_set(&why, STILE_UNREACHABLE, 0, "the server closed the connection");
    stream->closed = true;
    stream->events->closed(stream, &why);
}

/* Behind the input no server answers a connection, and what was asked is answered with errors. */
static void go_on(struct stream *stream)
{
    unsigned what = played_pick(32);
    bool asked = stream->n_answered < stream->n_asked;
    if (what == 31 || (played_is_over() && !stream->greeted)) {
        hang_up(stream);
    } else if (!stream->opened) {
        stream->opened = true;
        stream->events->opened(stream);
    } else if (stream->word && !stream->greeted) {
        answer_word(stream);
    } else if (stream->word) {
        hang_up(stream);
    } else if (!stream->greeted) {
        greet(stream);
    } else if (what >= 24 && !played_is_over()) {
        send_event(stream);
    } else if (asked) {
        reply(stream);
    }
}

static void wait(struct stream *stream)
{
    bool asked = stream->n_answered < stream->n_asked;
    if (stream->freed || stream->closed || stream->timer.place ||
        (stream->greeted && !asked && !stream->word && played_is_over()))
        return;
    uint64_t pause_ns = stream->greeted && !asked ? 300 * NS_PER_MS : 0;
    loop_arm(stream->loop, &stream->timer, loop_now(stream->loop) + pause_ns + played_delay_ns());
}

static void on_time(struct timer *timer)
{
    struct stream *stream = container_of(timer, struct stream, timer);
    go_on(stream);
    wait(stream);
}

/* ---- io/stream.h ---- */

enum stile_status stream_open(struct stream **out_, struct loop *loop,
                              const struct stream_target *target,
                              const struct stream_events *events, void *owner,
                              struct stile_error *err)
{
    struct stream *stream = calloc(1, sizeof *stream);
    (void)err;
    MUST(stream && target->host && !loop_reserve(loop, 1));
    stream->loop = loop;
    stream->timer.fn = on_time;
    stream->events = events;
    stream->owner = owner;
    stream->next = all;
    all = stream;
    wait(stream);
    *out_ = stream;
    return STILE_OK;
}

void *stream_owner(const struct stream *stream)
{
    return stream->owner;
}

/* A packet, or the greeting, which comes first. */
int stream_write(struct stream *stream, const void *bytes, size_t n)
{
    MUST(!stream->freed && n >= 4);
    if (stream->closed)
        return EPIPE;
    stream->word = n == 4;
    if (stream->n_asked - stream->n_answered == QUESTIONS)
        return ENOBUFS;
    if (stream->written) {
        char *packet = malloc(n);
        MUST(packet);
        memcpy(packet, bytes, n);
        struct jute_reader reader = {.at = packet, .end = packet + n};
        MUST((size_t)zk_jute_read_int(&reader) == n - 4);
        read_question(&stream->questions[stream->n_asked++ % QUESTIONS], &reader);
        MUST(!reader.bad);
        free(packet);
    }
    stream->written += n;
    wait(stream);
    return 0;
}

void stream_flush(struct stream *stream)
{
    MUST(!stream->freed);
}

uint64_t stream_sent(const struct stream *stream)
{
    return stream->written;
}

uint64_t stream_written(const struct stream *stream)
{
    return stream->written;
}

bool stream_has_unread(const struct stream *stream)
{
    (void)stream;
    return false;
}

void stream_free(struct stream *stream)
{
    if (!stream || stream->freed)
        return;
    loop_disarm(stream->loop, &stream->timer);
    loop_unreserve(stream->loop, 1);
    stream->freed = true;
}

void stream_forked(struct stream *stream)
{
    (void)stream;
}

/* ---- the target ---- */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const urls[] = {"zk://127.0.0.1",
                                       "zk://127.0.0.1,127.0.0.2/base",
                                       "zk://127.0.0.1?dialect=kazoo",
                                       "zk://127.0.0.1?dialect=curator-rw",
                                       "zk://127.0.0.1?dialect=curator-latch",
                                       "zk://user:password@127.0.0.1"};
    memset(&named, 0, sizeof named);
    named.zxid = 5;
    played_run(&zk_class, urls, sizeof urls / sizeof *urls, data, size);
    while (all) {
        struct stream *stream = all;
        MUST(stream->freed);
        all = stream->next;
        free(stream);
    }
    return 0;
}
