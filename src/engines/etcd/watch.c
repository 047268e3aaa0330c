/* Many watches on one stream. Each knows the first revision it has not heard of. It is always asked
 * for from now on: from an earlier revision it would be served by a loop of the server's that runs
 * ten times a second, and where many write every revision is earlier by the time it is asked for.
 * So the server's word that it has begun tells the revision, and if that is past what its owner
 * knows of, its owner looks for itself. After a broken stream it always does: nothing is missed,
 * and compaction is nobody's concern. */
#include <stdlib.h>
#include <string.h>

#include "engines/etcd/etcd.h"
#include "mutant.h"

#define REWATCH_NS (100 * NS_PER_MS)
#define REFUSED_NS (1 * NS_PER_SEC) /* by the user's roles, or for an old login */

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

static void say_create(struct etcd *etcd, struct watching *w)
{
    Pb__WatchCreate__Filter no_puts = PB__WATCH_CREATE__FILTER__NOPUT;
    Pb__WatchRequest request = PB__WATCH_REQUEST__INIT;
    Pb__WatchCreate create = PB__WATCH_CREATE__INIT;
    create.key = data_of(w->key);
    if (w->end)
        create.range_end = data_of(w->end);
    create.watch_id = w->id;
    create.fragment = true; /* one message for all that has happened may be too long */
    create.filters = &no_puts;
    create.n_filters = w->puts ? 0 : 1;
    request.request_case = PB__WATCH_REQUEST__REQUEST_CREATE;
    request.create = &create;
    w->said = conn_stream_send(&etcd->watch_stream, &request.base, NULL) == STILE_OK;
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

/* What happened before it began, its owner has to see for itself. Behind an interruption there may
 * be a server that was restored from a snapshot: its revision can be lower than what we know of, or
 * the same by chance, with other keys. Only a look tells. */
static void begun(struct etcd *etcd, struct watching *w, const Pb__WatchResponse *answer)
{
    int64_t now = answer->header ? answer->header->revision : INT64_MAX - 1;
    bool interrupted = w->interruptions != etcd->interruptions;
    w->interruptions = etcd->interruptions;
    if (!interrupted && now == w->from - 1)
        return;
    w->from = now + 1;
#ifndef MUTANT_ETCD_WATCH_MISSES
    w->fn(w, NULL, false);
#endif
}

static void ask_again_later(struct etcd *etcd, uint64_t ns)
{
    struct loop *loop = etcd->engine.loop;
    if (!etcd->rewatch.place)
        loop_arm(loop, &etcd->rewatch, loop_now(loop) + ns);
}

static void on_message(struct conn_stream *stream, const ProtobufCMessage *message)
{
    struct etcd *etcd = conn_owner(stream->conn);
    const Pb__WatchResponse *answer = (const Pb__WatchResponse *)message;
    struct watching *w = find(etcd, answer->watch_id);
    if (w && answer->canceled) {
        w->said = false;
        ask_again_later(etcd, REFUSED_NS);
        return;
    }
    if (w && answer->created)
        begun(etcd, w, answer);
    /* One that was stopped by an earlier event of the same message hears no more of it. */
    for (size_t i = 0; i < answer->n_events; i++) {
        const Pb__Event *event = answer->events[i];
        w = find(etcd, answer->watch_id);
        if (!w || !event->kv)
            return;
        w->from = event->kv->mod_revision + 1;
        w->told = true;
        w->fn(w, event->kv, event->type == PB__EVENT__TYPE__DELETE);
    }
}

static void unsay_all(struct etcd *etcd)
{
    for (size_t i = 0; i < WATCH_HEADS; i++) {
        for (struct watching *w = etcd->watches[i]; w; w = w->next)
            w->said = w->told = false;
    }
}

static void on_ended(struct conn_stream *stream, const struct stile_error *err)
{
    struct etcd *etcd = conn_owner(stream->conn);
    (void)err; /* they begin again, and see what they have missed */
    etcd->interruptions++;
    unsay_all(etcd);
    ask_again_later(etcd, REWATCH_NS);
}

static bool any(const struct etcd *etcd)
{
    for (size_t i = 0; i < WATCH_HEADS; i++) {
        if (etcd->watches[i])
            return true;
    }
    return false;
}

/* Without the stream they are asked for when the connection is up. */
static void ask_for_all(struct etcd *etcd)
{
    if (!conn_is_up(etcd->conn) || !any(etcd))
        return;
    if (!etcd->watch_stream.open &&
        conn_stream_open(etcd->conn, &etcd->watch_stream, RPC_WATCH, NULL)) {
        ask_again_later(etcd, REWATCH_NS);
        return;
    }
    for (size_t i = 0; i < WATCH_HEADS; i++) {
        for (struct watching *w = etcd->watches[i]; w; w = w->next) {
            if (!w->said)
                say_create(etcd, w);
        }
    }
}

/* After a new login as well: what is asked for on a stream is judged by the token it began with. */
void watches_up(struct etcd *etcd)
{
    conn_stream_close(&etcd->watch_stream);
    unsay_all(etcd);
    ask_for_all(etcd);
}

static void on_rewatch(struct timer *timer)
{
    struct etcd *etcd = (struct etcd *)((char *)timer - offsetof(struct etcd, rewatch));
    ask_for_all(etcd);
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
    w->interruptions = etcd->interruptions;
    w->said = w->told = false;
    enlist(etcd, w);
    if (etcd->watch_stream.open)
        say_create(etcd, w);
    else
        ask_for_all(etcd);
    return STILE_OK;
}

void watching_move(struct watching *to, struct watching *from)
{
    watching_fn *fn = to->fn;
    *to = *from;
    to->fn = fn;
    *to->link = to;
    if (to->next)
        to->next->link = &to->next;
    *from = (struct watching){0};
}

void watching_stop(struct etcd *etcd, struct watching *w)
{
    if (!w->id)
        return;
    if (w->said && etcd->watch_stream.open)
        say_cancel(etcd, w->id);
    unlist(w);
}

void watches_init(struct etcd *etcd)
{
    etcd->watch_stream.message = on_message;
    etcd->watch_stream.ended = on_ended;
    etcd->rewatch.fn = on_rewatch;
    etcd->keeping.fn = kept_expire;
}

void watches_close(struct etcd *etcd)
{
    kept_close(etcd);
    loop_disarm(etcd->engine.loop, &etcd->rewatch);
    conn_stream_close(&etcd->watch_stream);
}
