/* Many watches on one stream. Each knows the first revision it has not heard of: when the stream
 * breaks it is asked for again from there, and nothing is missed unless the server has compacted
 * it. A watch from above the server's present revision is served at once; from below, it would wait
 * for a loop of the server's that runs ten times a second. */
#include <stdlib.h>
#include <string.h>

#include "engines/etcd/etcd.h"
#include "mutant.h"

#define REWATCH_NS (100 * NS_PER_MS)

/* ---- by id ---- */

static struct watching **head_of(struct etcd *etcd, int64_t id)
{
    return &etcd->watches[(uint64_t)id % WATCH_HEADS];
}

static struct watching *find(struct etcd *etcd, int64_t id)
{
    struct watching *w = *head_of(etcd, id);
    while (w && w->id != id)
        w = w->next;
    return w;
}

static void enlist(struct etcd *etcd, struct watching *w)
{
    struct watching **head = head_of(etcd, w->id);
    w->next = *head;
    w->link = head;
    if (w->next)
        w->next->link = &w->next;
    *head = w;
}

static struct key *keep(const struct key *key)
{
    struct key *copy = key ? malloc(offsetof(struct key, bytes) + key->len) : NULL;
    if (copy) {
        copy->len = key->len;
        memcpy(copy->bytes, key->bytes, key->len);
    }
    return copy;
}

static void unlist(struct watching *w)
{
    *w->link = w->next;
    if (w->next)
        w->next->link = w->link;
    w->id = 0;
    free(w->key);
    free(w->end);
    w->key = w->end = NULL;
}

/* ---- the stream ---- */

static enum stile_status say_create(struct etcd *etcd, struct watching *w, struct stile_error *err)
{
    Pb__WatchCreate__Filter no_puts = PB__WATCH_CREATE__FILTER__NOPUT;
    Pb__WatchRequest request = PB__WATCH_REQUEST__INIT;
    Pb__WatchCreate create = PB__WATCH_CREATE__INIT;
    create.key = data_of(w->key);
    if (w->end)
        create.range_end = data_of(w->end);
    create.start_revision = w->from;
    create.watch_id = w->id;
    create.filters = &no_puts;
    create.n_filters = w->puts ? 0 : 1;
    request.request_case = PB__WATCH_REQUEST__REQUEST_CREATE;
    request.create = &create;
    return conn_stream_send(&etcd->watch_stream, &request.base, err);
}

static void say_cancel(struct etcd *etcd, int64_t id)
{
    Pb__WatchRequest request = PB__WATCH_REQUEST__INIT;
    Pb__WatchCancel cancel = PB__WATCH_CANCEL__INIT;
    cancel.watch_id = id;
    request.request_case = PB__WATCH_REQUEST__REQUEST_CANCEL;
    request.cancel = &cancel;
    conn_stream_send(&etcd->watch_stream, &request.base, NULL);
}

/* Of the server: it cannot go on. Its owner looks for itself and starts it anew. */
static void end_watching(struct watching *w)
{
    watching_fn *fn = w->fn;
    unlist(w);
    fn(w, NULL, false);
}

static void on_message(struct conn_stream *stream, const ProtobufCMessage *message)
{
    struct etcd *etcd = conn_owner(stream->conn);
    const Pb__WatchResponse *answer = (const Pb__WatchResponse *)message;
    struct watching *w = find(etcd, answer->watch_id);
    if (w && answer->canceled) {
        end_watching(w);
        return;
    }
    /* One that was stopped by an earlier event of the same message hears no more of it. */
    for (size_t i = 0; i < answer->n_events; i++) {
        const Pb__Event *event = answer->events[i];
        w = find(etcd, answer->watch_id);
        if (!w || !event->kv)
            return;
        w->from = event->kv->mod_revision + 1;
        w->fn(w, event->kv, event->type == PB__EVENT__TYPE__DELETE);
    }
}

static void on_ended(struct conn_stream *stream, const struct stile_error *err)
{
    struct etcd *etcd = conn_owner(stream->conn);
    (void)err; /* they begin again where they were; nobody has missed anything */
    loop_arm(etcd->engine.loop, &etcd->rewatch, loop_now(etcd->engine.loop) + REWATCH_NS);
}

static bool any(const struct etcd *etcd)
{
    for (size_t i = 0; i < WATCH_HEADS; i++) {
        if (etcd->watches[i])
            return true;
    }
    return false;
}

/* Without the stream the watch is asked for when the connection is up. */
static void open_stream(struct etcd *etcd)
{
    struct stile_error err;
    if (etcd->watch_stream.open || !conn_is_up(etcd->conn) || !any(etcd))
        return;
    if (conn_stream_open(etcd->conn, &etcd->watch_stream, RPC_WATCH, &err))
        return;
    loop_disarm(etcd->engine.loop, &etcd->rewatch);
    for (size_t i = 0; i < WATCH_HEADS; i++) {
        for (struct watching *w = etcd->watches[i]; w; w = w->next)
            say_create(etcd, w, NULL);
    }
}

void watches_up(struct etcd *etcd)
{
    open_stream(etcd);
}

static void on_rewatch(struct timer *timer)
{
    struct etcd *etcd = (struct etcd *)((char *)timer - offsetof(struct etcd, rewatch));
    open_stream(etcd);
}

/* ---- starting and stopping ---- */

enum stile_status watching_start(struct etcd *etcd, struct watching *w, const struct key *key,
                                 const struct key *end, int64_t from, struct stile_error *err)
{
    w->key = keep(key);
    w->end = keep(end);
    if (!w->key || (end && !w->end)) {
        free(w->key);
        free(w->end);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    w->id = ++etcd->last_watch;
    w->from = from;
#ifdef MUTANT_ETCD_WATCH_TOO_EARLY
    w->from--;
#endif
    enlist(etcd, w);
    if (etcd->watch_stream.open)
        say_create(etcd, w, NULL);
    else
        open_stream(etcd);
    return STILE_OK;
}

void watching_stop(struct etcd *etcd, struct watching *w)
{
    if (!w->id)
        return;
    if (etcd->watch_stream.open)
        say_cancel(etcd, w->id);
    unlist(w);
}

void watches_init(struct etcd *etcd)
{
    etcd->watch_stream.message = on_message;
    etcd->watch_stream.ended = on_ended;
    etcd->rewatch.fn = on_rewatch;
}

void watches_close(struct etcd *etcd)
{
    loop_disarm(etcd->engine.loop, &etcd->rewatch);
    conn_stream_close(&etcd->watch_stream);
}
