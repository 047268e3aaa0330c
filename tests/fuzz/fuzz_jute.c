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

static unsigned asked, answered;

static size_t length_of(const char *text)
{
    return text ? strlen(text) : 0;
}

/* Every byte that is handed on is looked at, for a sanitizer to see. */
static void on_answer(struct asker *asker, const struct answer *answer)
{
    volatile size_t sum = length_of(answer->path);
    (void)asker;
    answered++;
    for (size_t i = 0; i < answer->data_len; i++)
        sum += (unsigned char)answer->data[i];
    if (answer->stat)
        sum += (size_t)answer->stat->czxid + (size_t)answer->stat->pzxid;
    for (size_t i = 0; answer->children && i < answer->children->n; i++)
        sum += length_of(answer->children->list[i]);
}

static void on_event(struct asker *asker, int type)
{
    (void)asker, (void)type;
}

static void ask_everything(struct session *session, struct asker *asker, struct watcher **watcher)
{
    MUST(watcher_take(watcher, session, 'g', "/x/1", asker, on_event));
    bool all = ask_create(session, asker, "/x/c", JUTE_EPHEMERAL_SEQUENTIAL, "data", on_answer) &&
               ask_children(session, asker, "/x", NULL, on_answer) &&
               ask_get(session, asker, "/x/1", *watcher, on_answer) &&
               ask_exists(session, asker, "/x/2", NULL, on_answer) &&
               ask_set(session, asker, "/x/1", "data", -1, on_answer) &&
               ask_sync(session, asker, "/", on_answer) &&
               ask_delete(session, asker, "/x/3", on_answer) &&
               ask_delete_together(session, asker, "/x/4", on_answer) &&
               ask_delete_together(session, asker, "/x/5", on_answer);
    MUST(all);
    asked = 9;
}

static void turn(struct loop *loop)
{
    loop_prepare(loop);
    loop_wait(loop, false);
    loop_run(loop);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct zoo_host host = {.name = "zoo", .port = 2181, .where = "zoo:2181"};
    struct zoo zoo = {.engine.events = &events, .hosts = &host, .n_hosts = 1};
    struct asker asker = {0};
    struct watcher *watcher = NULL;
    MUST(loop_epoll_new(&zoo.engine.loop) == 0);
    struct session *session = session_for(&zoo, 10 * NS_PER_SEC, 0, NULL);
    MUST(session);
    wire = (struct stream){0};
    answered = 0;
    while (!session->connection)
        turn(zoo.engine.loop);
    ask_everything(session, &asker, &watcher);
    wire.events->opened(&wire);
    size_t piece = size > 0 && data[0] ? data[0] : 65536;
    for (size_t at = 1; at < size && session->connection; at += piece) {
        wire.events->data(&wire, data + at, size - at < piece ? size - at : piece);
        loop_prepare(zoo.engine.loop); /* sends what waits until it is up */
    }
    MUST(answered <= asked);
    asker_forget(&asker);
    watcher_leave(&watcher);
    session_leave_server(session); /* nobody would hang up */
    sessions_close(&zoo);
    buffer_free(&zoo.writer.buffer);
    loop_free(zoo.engine.loop);
    return 0;
}
