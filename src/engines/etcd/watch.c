/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Many watches on one stream. Each knows the first revision it has no events of. It always begins
 * at the present: from an earlier revision it would be served by a loop of the server that runs ten
 * times a second, and under many writes every revision is earlier by the time the request arrives.
 * The server's answer names the revision at which the watch has begun; if that is past what its
 * owner knows, its owner looks for itself. After a broken stream it always does: nothing is missed,
 * and compaction does not matter. */
#include "engines/etcd/watch.h"

#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "engines/etcd/etcd.h"

#define REWATCH_NS (100 * NS_PER_MS)
#define IDLE_MAX   64
#define IDLE_NS    (1 * NS_PER_SEC)
#define REFUSED_NS (1 * NS_PER_SEC) /* by the user's roles, or for an old login */

/* ---- by id ---- */

static struct key_watch **bucket_of(struct etcd *etcd, int64_t id)
{
    return &etcd->watches[(uint64_t)id % WATCH_BUCKETS];
}

static struct key_watch *find(struct etcd *etcd, int64_t id)
{
    struct key_watch *w = *bucket_of(etcd, id);
    while (w && w->id != id)
        w = w->next;
    return w;
}

static void list_add(struct etcd *etcd, struct key_watch *w)
{
    struct key_watch **bucket = bucket_of(etcd, w->id);
    w->next = *bucket;
    w->link = bucket;
    if (w->next)
        w->next->link = &w->next;
    *bucket = w;
}

static struct key *copy_key(const struct key *key)
{
    struct key *copy = key ? malloc(offsetof(struct key, bytes) + key->len) : NULL;
    if (copy) {
        copy->len = key->len;
        memcpy(copy->bytes, key->bytes, key->len);
    }
    return copy;
}

static void list_remove(struct key_watch *w)
{
    *w->link = w->next;
    if (w->next)
        w->next->link = w->link;
    w->id = 0;
    w->last_values = false;
    free(w->key);
    free(w->end);
    w->key = w->end = NULL;
}

/* ---- the stream ---- */

static void send_create(struct etcd *etcd, struct key_watch *w)
{
    Etcd__WatchCreate__Filter no_puts = ETCD__WATCH_CREATE__FILTER__NOPUT;
    Etcd__WatchRequest request = ETCD__WATCH_REQUEST__INIT;
    Etcd__WatchCreate create = ETCD__WATCH_CREATE__INIT;
    create.key = data_of(w->key);
    if (w->end)
        create.range_end = data_of(w->end);
    create.watch_id = w->id;
    create.fragment = true; /* one message with all events may be too long */
    create.prev_kv = w->last_values;
    create.filters = &no_puts;
    create.n_filters = w->puts ? 0 : 1;
    request.request_case = ETCD__WATCH_REQUEST__REQUEST_CREATE;
    request.create = &create;
    w->requested = etcd_conn_stream_send(&etcd->watch_stream, &request.base, NULL) == STILE_OK;
}

static void send_cancel(struct etcd *etcd, int64_t id)
{
    Etcd__WatchRequest request = ETCD__WATCH_REQUEST__INIT;
    Etcd__WatchCancel cancel = ETCD__WATCH_CANCEL__INIT;
    cancel.watch_id = id;
    request.request_case = ETCD__WATCH_REQUEST__REQUEST_CANCEL;
    request.cancel = &cancel;
    etcd_conn_stream_send(&etcd->watch_stream, &request.base, NULL);
}

/* What happened before it began, its owner has to look for. After an interruption the server may
 * have been restored from a snapshot: its revision can be lower than what we know of, or the same
 * by chance, with other keys. Only another look shows. */
static void begun(struct etcd *etcd, struct key_watch *w, const Etcd__WatchResponse *answer)
{
    int64_t now = answer->header ? answer->header->revision : INT64_MAX - 1;
    bool interrupted = w->interruptions != etcd->interruptions;
    w->interruptions = etcd->interruptions;
    if (!interrupted && now == w->from - 1)
        return;
    w->from = now + 1;
    w->fn(w, NULL, false);
}

static void ask_again_later(struct etcd *etcd, uint64_t ns)
{
    struct loop *loop = etcd->engine.loop;
    if (!etcd->rewatch.place)
        loop_arm(loop, &etcd->rewatch, loop_now(loop) + ns);
}

/* The event of a deletion has no value; here it has the last one, if that was asked for. */
static void report(struct key_watch *w, const Etcd__Event *event)
{
    Etcd__KeyValue kv = *event->kv;
    bool deleted = event->type == ETCD__EVENT__TYPE__DELETE;
    if (deleted && event->prev_kv)
        kv.value = event->prev_kv->value;
    w->from = kv.mod_revision < INT64_MAX ? kv.mod_revision + 1 : INT64_MAX; /* it may lie */
    w->live = true;
    w->fn(w, &kv, deleted);
}

static void on_watch_message(struct conn_stream *stream, const ProtobufCMessage *message)
{
    struct etcd *etcd = etcd_conn_owner(stream->conn);
    const Etcd__WatchResponse *answer = (const Etcd__WatchResponse *)message;
    struct key_watch *w = find(etcd, answer->watch_id);
    if (w && answer->canceled) {
        w->requested = false;
        ask_again_later(etcd, REFUSED_NS);
        return;
    }
    if (w && answer->created)
        begun(etcd, w, answer);
    /* An earlier event of the same message may have stopped it. */
    for (size_t i = 0; i < answer->n_events; i++) {
        const Etcd__Event *event = answer->events[i];
        w = find(etcd, answer->watch_id);
        if (!w || !event->kv)
            return;
        report(w, event);
    }
}

static void forget_requests(struct etcd *etcd)
{
    for (size_t i = 0; i < WATCH_BUCKETS; i++) {
        for (struct key_watch *w = etcd->watches[i]; w; w = w->next)
            w->requested = w->live = false;
    }
}

static void on_watch_ended(struct conn_stream *stream, const struct stile_error *err)
{
    struct etcd *etcd = etcd_conn_owner(stream->conn);
    (void)err; /* they begin again, and their owners look for what they missed */
    etcd->interruptions++;
    forget_requests(etcd);
    ask_again_later(etcd, REWATCH_NS);
}

static bool any_watch(const struct etcd *etcd)
{
    for (size_t i = 0; i < WATCH_BUCKETS; i++) {
        if (etcd->watches[i])
            return true;
    }
    return false;
}

/* Without a connection they are requested when it is up. */
static void ask_for_all(struct etcd *etcd)
{
    if (!etcd_conn_is_up(etcd->conn) || !any_watch(etcd))
        return;
    if (!etcd->watch_stream.open &&
        etcd_conn_stream_open(etcd->conn, &etcd->watch_stream, RPC_WATCH, NULL)) {
        ask_again_later(etcd, REWATCH_NS);
        return;
    }
    for (size_t i = 0; i < WATCH_BUCKETS; i++) {
        for (struct key_watch *w = etcd->watches[i]; w; w = w->next) {
            if (!w->requested)
                send_create(etcd, w);
        }
    }
}

/* After a new login as well: requests on a stream are judged by the token it began with. */
void etcd_watches_restart(struct etcd *etcd)
{
    etcd_conn_stream_close(&etcd->watch_stream);
    forget_requests(etcd);
    ask_for_all(etcd);
}

static void on_rewatch(struct timer *timer)
{
    struct etcd *etcd = container_of(timer, struct etcd, rewatch);
    ask_for_all(etcd);
}

/* ---- starting and stopping ---- */

enum stile_status etcd_watch_start(struct etcd *etcd, struct key_watch *w, const struct key *key,
                                   const struct key *end, int64_t from, struct stile_error *err)
{
    w->key = copy_key(key);
    w->end = copy_key(end);
    if (!w->key || (end && !w->end)) {
        free(w->key);
        free(w->end);
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    w->id = ++etcd->last_watch;
    w->from = from;
    w->interruptions = etcd->interruptions;
    w->requested = w->live = false;
    list_add(etcd, w);
    if (etcd->watch_stream.open)
        send_create(etcd, w);
    else
        ask_for_all(etcd);
    return STILE_OK;
}

void etcd_watch_stop(struct etcd *etcd, struct key_watch *w)
{
    if (!w->id)
        return;
    if (w->requested && etcd->watch_stream.open)
        send_cancel(etcd, w->id);
    list_remove(w);
}

/* ---- idle watches ----
 *
 * Where several claims want one name again and again, each stands behind the same one every time:
 * its key is watched already, and a watch that has had an event gets every later one at once.
 * Reusing it saves a watch's beginning, the look for what was missed before it, and its end. */

static void move_watch(struct key_watch *to, struct key_watch *from)
{
    key_watch_fn *fn = to->fn;
    *to = *from;
    to->fn = fn;
    *to->link = to;
    if (to->next)
        to->next->link = &to->next;
    *from = (struct key_watch){0};
}

struct idle_watch {
    struct key_watch watch;
    struct idle_watch *next; /* idle since later */
    uint64_t since_ns;
};

static void ignore(struct key_watch *watch, const Etcd__KeyValue *kv, bool deleted)
{
    (void)watch, (void)kv, (void)deleted; /* its revision counts when it is reused */
}

static struct idle_watch **last_idle(struct etcd *etcd)
{
    struct idle_watch **link = &etcd->idle_watches;
    while (*link)
        link = &(*link)->next;
    return link;
}

static void drop_idle(struct etcd *etcd, struct idle_watch **link)
{
    struct idle_watch *idle = *link;
    *link = idle->next;
    etcd->n_idle--;
    etcd_watch_stop(etcd, &idle->watch);
    free(idle);
}

static void expire_idle(struct timer *timer)
{
    struct etcd *etcd = container_of(timer, struct etcd, idle_timer);
    struct loop *loop = etcd->engine.loop;
    while (etcd->idle_watches && etcd->idle_watches->since_ns + IDLE_NS <= loop_now(loop))
        drop_idle(etcd, &etcd->idle_watches);
    if (etcd->idle_watches)
        loop_arm(loop, timer, etcd->idle_watches->since_ns + IDLE_NS);
}

void etcd_watch_idle(struct etcd *etcd, struct key_watch *watch)
{
    struct idle_watch *idle = watch->id && !watch->end ? calloc(1, sizeof *idle) : NULL;
    if (!idle) {
        etcd_watch_stop(etcd, watch);
        return;
    }
    if (etcd->n_idle == IDLE_MAX)
        drop_idle(etcd, &etcd->idle_watches);
    move_watch(&idle->watch, watch);
    idle->watch.fn = ignore;
    idle->since_ns = loop_now(etcd->engine.loop);
    *last_idle(etcd) = idle;
    etcd->n_idle++;
    if (!etcd->idle_timer.place)
        loop_arm(etcd->engine.loop, &etcd->idle_timer, idle->since_ns + IDLE_NS);
}

static bool starts_with(const struct key *key, const struct key *start)
{
    return key->len >= start->len && memcmp(key->bytes, start->bytes, start->len) == 0;
}

/* The others of this name are no longer needed: the queue has changed. Two claims of one client may
 * have watched the same key. */
bool etcd_watch_reuse(struct etcd *etcd, struct key_watch *watch, const struct key *name,
                      const struct key *key)
{
    struct idle_watch **link = &etcd->idle_watches;
    while (*link) {
        struct key_watch *w = &(*link)->watch;
        bool same_name = starts_with(w->key, name);
        if (!watch->id && w->key->len == key->len && starts_with(w->key, key))
            move_watch(watch, w);
        if (same_name)
            drop_idle(etcd, link);
        else
            link = &(*link)->next;
    }
    return watch->id != 0;
}

static void close_idle(struct etcd *etcd)
{
    loop_disarm(etcd->engine.loop, &etcd->idle_timer);
    while (etcd->idle_watches)
        drop_idle(etcd, &etcd->idle_watches);
}

void etcd_watches_init(struct etcd *etcd)
{
    etcd->watch_stream.message = on_watch_message;
    etcd->watch_stream.ended = on_watch_ended;
    etcd->rewatch.fn = on_rewatch;
    etcd->idle_timer.fn = expire_idle;
}

void etcd_watches_close(struct etcd *etcd)
{
    close_idle(etcd);
    loop_disarm(etcd->engine.loop, &etcd->rewatch);
    etcd_conn_stream_close(&etcd->watch_stream);
}
