/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What a ZooKeeper server may send: whatever comes, and in whatever pieces, stays within its
 * bounds, each request is answered once at most, and the connection ends once at most. The first
 * byte says how long the pieces are. The stream below is played here; a request of each kind is
 * under way. */
#include "engines/zookeeper/zookeeper.h"
#include "fuzz.h"

/* ---- the stream ---- */

struct stream {
    const struct stream_events *events;
    void *owner;
    uint64_t written;
};

static struct stream wire;

enum stile_status stream_open(struct stream **stream, struct loop *loop,
                              const struct stream_target *target,
                              const struct stream_events *events, void *owner,
                              struct stile_error *err)
{
    (void)loop, (void)target, (void)err;
    wire = (struct stream){.events = events, .owner = owner};
    *stream = &wire;
    return STILE_OK;
}

void *stream_owner(const struct stream *stream)
{
    return stream->owner;
}

int stream_write(struct stream *stream, const void *bytes, size_t n)
{
    (void)bytes;
    stream->written += n;
    return 0;
}

void stream_flush(struct stream *stream)
{
    (void)stream;
}

uint64_t stream_sent(const struct stream *stream)
{
    return stream->written;
}

uint64_t stream_written(const struct stream *stream)
{
    return stream->written;
}

void stream_free(struct stream *stream)
{
    (void)stream;
}

void stream_forked(struct stream *stream)
{
    (void)stream;
}

/* ---- the engine around it ---- */

static void ignore_session(struct engine *engine, const void *session,
                           const struct stile_error *err)
{
    (void)engine, (void)session, (void)err;
}

static const struct engine_events events = {.session_lost = ignore_session};

static void ignore_end(struct session *session)
{
    (void)session;
}

static const struct session_events session_events = {.ended = ignore_end};

static unsigned asked, answered;

static size_t length_of(const char *text)
{
    return text ? strlen(text) : 0;
}

/* Every byte that is handed on is looked at, for a sanitizer to see. */
static void on_answer(struct requester *requester, const struct reply *reply)
{
    volatile size_t sum = length_of(reply->path);
    (void)requester;
    answered++;
    for (size_t i = 0; i < reply->data_len; i++)
        sum += (unsigned char)reply->data[i];
    if (reply->stat)
        sum += (size_t)reply->stat->czxid + (size_t)reply->stat->pzxid;
    for (size_t i = 0; reply->children && i < reply->children->n; i++)
        sum += length_of(reply->children->list[i]);
}

static void on_event(struct requester *requester, int type)
{
    (void)requester, (void)type;
}

static void ask_everything(struct session *session, struct requester *requester,
                           struct node_watch **watch)
{
    MUST(zk_watch_add(watch, session, 'g', "/x/1", requester, on_event));
    bool all = zk_request_create(session, requester, "/x/c", JUTE_EPHEMERAL_SEQUENTIAL, "data",
                                 on_answer) &&
               zk_request_children(session, requester, "/x", NULL, on_answer) &&
               zk_request_get(session, requester, "/x/1", *watch, on_answer) &&
               zk_request_exists(session, requester, "/x/2", NULL, on_answer) &&
               zk_request_set(session, requester, "/x/1", "data", -1, on_answer) &&
               zk_request_sync(session, requester, "/", on_answer) &&
               zk_request_delete(session, requester, "/x/3", on_answer) &&
               zk_request_delete_batched(session, requester, "/x/4", on_answer) &&
               zk_request_delete_batched(session, requester, "/x/5", on_answer);
    MUST(all);
    zk_requests_send_batch(session);
    MUST(zk_request_set(session, requester, "/x/6", "data", ANY_VERSION - 1, on_answer));
    asked = 10;
}

static void turn(struct loop *loop)
{
    loop_prepare(loop);
    loop_wait(loop, false);
    loop_run(loop);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct zk_host host = {.name = "zoo", .port = 2181, .where = "zoo:2181"};
    struct zk zk = {
        .engine.events = &events, .session_events = &session_events, .hosts = &host, .n_hosts = 1};
    struct requester requester = {0};
    struct node_watch *watch = NULL;
    MUST(loop_epoll_new(&zk.engine.loop) == 0);
    struct session *session = zk_session_for(&zk, 10 * NS_PER_SEC, 0, NULL);
    MUST(session);
    wire = (struct stream){0};
    answered = 0;
    while (!session->connection)
        turn(zk.engine.loop);
    ask_everything(session, &requester, &watch);
    wire.events->opened(&wire);
    size_t piece = size > 0 && data[0] ? data[0] : 65536;
    for (size_t at = 1; at < size && session->connection; at += piece) {
        wire.events->data(&wire, data + at, size - at < piece ? size - at : piece);
        loop_prepare(zk.engine.loop); /* sends what waits until it is up */
    }
    MUST(answered <= asked);
    zk_requester_forget(&requester);
    zk_watch_remove(&watch);
    zk_session_leave_server(session); /* nobody would hang up */
    zk_sessions_close(&zk);
    buffer_free(&zk.writer.buffer);
    loop_free(zk.engine.loop);
    return 0;
}
