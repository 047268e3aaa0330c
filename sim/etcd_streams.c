/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/etcd_streams.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"

#define QUEUE_MAX     64
#define LATE_ONCE_IN  4          /* of watchers */
#define LATE_MAX_NS   (100 * MS) /* the server's loop for watchers that have missed something */
#define NO_LEADER_MAX 3          /* looks, one in each election timeout */

void etcd_answer_send(struct grpc_call *call, const struct etcd_member *member,
                      struct etcd_answer *answer)
{
    answer->header->cluster_id = member->cluster->id;
    answer->header->member_id = member->id;
    size_t n = protobuf_c_message_get_packed_size(&answer->base);
    uint8_t *bytes = etcd_answer_part(n + 1);
    protobuf_c_message_pack(&answer->base, bytes);
    grpc_send(call, bytes, n);
    etcd_answers_drop();
}

static void refuse(struct grpc_call *call, enum etcd_refusal refusal)
{
    grpc_end(call, etcd_refusal_code(refusal), etcd_refusal_words(refusal));
}

/* ---- without a leader ---- */

struct lasting {
    struct grpc_call *call;
    struct etcd_member *member;
    unsigned without_leader;
};

/* A client that wants a leader loses its streams to a member that has had none for a while. */
static void look_for_leader(void *data)
{
    struct lasting *stream = data;
    if (stream->call->grpc == NULL || stream->call->ended)
        return;
    if (etcd_member_runs(stream->member))
        stream->without_leader =
            etcd_member_sees_leader(stream->member) ? 0 : stream->without_leader + 1;
    if (stream->without_leader == NO_LEADER_MAX)
        refuse(stream->call, REFUSED_NO_LEADER);
    else
        world_at(world_now() + ETCD_ELECTION_NS, look_for_leader, stream);
}

static void begin_stream(struct lasting *stream, struct grpc_call *call, struct etcd_member *member)
{
    *stream = (struct lasting){.call = call, .member = member};
    call->data = stream;
    if (call->led)
        world_at(world_now() + random_below(&member->cluster->random, ETCD_ELECTION_NS),
                 look_for_leader, stream);
}

/* ---- LeaseKeepAlive ---- */

/* Its requests are answered one after the other. */
struct keep_alives {
    struct lasting stream;
    int64_t ids[QUEUE_MAX];
    unsigned first, n;
    int64_t revision; /* before the first was renewed */
    uint64_t until_ns;
};

static void renew(void *data);

static void begin_first(struct keep_alives *all)
{
    struct etcd_member *member = all->stream.member;
    all->revision = etcd_member_revision(member);
    all->until_ns = world_now() + ETCD_PATIENCE_NS;
    world_at(world_now() + etcd_cluster_moment(member->cluster), renew, all);
}

static void answer_first(struct keep_alives *all, int64_t ttl_s)
{
    Etcd__LeaseKeepAliveResponse answer = ETCD__LEASE_KEEP_ALIVE_RESPONSE__INIT;
    answer.id = all->ids[all->first];
    answer.ttl = ttl_s;
    answer.header = etcd_header(all->revision);
    all->first = (all->first + 1) % QUEUE_MAX;
    all->n--;
    world_trace("%s: lease %llx is kept for %lld s", all->stream.member->server->host,
                (unsigned long long)answer.id, (long long)ttl_s);
    etcd_answer_send(all->stream.call, all->stream.member, (struct etcd_answer *)&answer);
    if (all->n > 0)
        begin_first(all);
}

static void renew(void *data)
{
    struct keep_alives *all = data;
    struct etcd_member *member = all->stream.member;
    int64_t ttl_s = 0;
    if (all->stream.call->grpc == NULL || all->stream.call->ended)
        return;
    if (etcd_member_runs(member)) {
        if (etcd_member_renew(member, all->ids[all->first], &ttl_s) != ETCD_RENEW_LATER) {
            answer_first(all, ttl_s);
            return;
        }
        if (world_now() >= all->until_ns) {
            refuse(all->stream.call, REFUSED_TIMED_OUT);
            return;
        }
    }
    world_at(world_now() + ETCD_TICK_NS, renew, all);
}

void etcd_keep_alive_take(struct grpc_call *call, struct etcd_member *member,
                          const Etcd__LeaseKeepAliveRequest *request)
{
    struct keep_alives *all = call->data;
    if (all == NULL) {
        all = world_alloc(sizeof *all);
        begin_stream(&all->stream, call, member);
    }
    if (all->n == QUEUE_MAX) {
        refuse(call, REFUSED_BUSY);
        return;
    }
    all->ids[(all->first + all->n++) % QUEUE_MAX] = request->id;
    if (all->n == 1)
        begin_first(all);
}

/* ---- Watch ---- */

struct watcher {
    struct watcher *next;
    struct watchers *watchers;
    int64_t id;
    etcd_bytes key, end;
    bool no_puts, no_deletions, with_previous;
    bool late, over;
    size_t at; /* the first change that it has not seen */
};

struct watchers {
    struct lasting stream;
    struct watchers *next; /* of the same member */
    struct watcher *first;
    int64_t last_id;
};

static struct watcher *find(const struct watchers *watchers, int64_t id)
{
    struct watcher *watcher = watchers->first;
    while (watcher != NULL && watcher->id != id)
        watcher = watcher->next;
    return watcher;
}

static Etcd__Event *event_of(const struct watcher *watcher, const struct etcd_version *change)
{
    Etcd__Event *event = etcd_answer_part(sizeof *event);
    const struct etcd_version *before = change->older;
    etcd__event__init(event);
    event->kv = etcd_key_value(change, true);
    if (change->deleted)
        event->type = ETCD__EVENT__TYPE__DELETE;
    /* As of the revision before: what the same transaction did before does not count. */
    while (before != NULL && before->revision == change->revision)
        before = before->older;
    bool is_new = !change->deleted && change->created == change->revision;
    if (watcher->with_previous && !is_new && before != NULL && !before->deleted)
        event->prev_kv = etcd_key_value(before, true);
    return event;
}

static bool is_wanted(const struct watcher *watcher, const struct etcd_version *change)
{
    if (change->deleted ? watcher->no_deletions : watcher->no_puts)
        return false;
    return etcd_range_has(watcher->key, watcher->end, change->key->name);
}

/* What happened in one revision goes out in one message. */
static void report_revision(struct watcher *watcher, const struct etcd_store *store)
{
    int64_t revision = store->changes[watcher->at]->revision;
    Etcd__WatchResponse answer = ETCD__WATCH_RESPONSE__INIT;
    size_t end = watcher->at;
    while (end < store->n_changes && store->changes[end]->revision == revision)
        end++;
    answer.events = etcd_answer_part((end - watcher->at) * sizeof *answer.events);
    for (; watcher->at < end; watcher->at++) {
        if (is_wanted(watcher, store->changes[watcher->at]))
            answer.events[answer.n_events++] = event_of(watcher, store->changes[watcher->at]);
    }
    if (answer.n_events == 0) {
        etcd_answers_drop();
        return;
    }
    answer.watch_id = watcher->id;
    answer.header = etcd_header(revision);
    world_trace("%s: watch %lld has %zu events of revision %lld",
                watcher->watchers->stream.member->server->host, (long long)watcher->id,
                answer.n_events, (long long)revision);
    etcd_answer_send(watcher->watchers->stream.call, watcher->watchers->stream.member,
                     (struct etcd_answer *)&answer);
}

static void report(struct watcher *watcher)
{
    const struct etcd_member *member = watcher->watchers->stream.member;
    const struct etcd_store *store = &member->cluster->store;
    int64_t revision = etcd_member_revision(member);
    while (!watcher->late && watcher->at < store->n_changes &&
           store->changes[watcher->at]->revision <= revision)
        report_revision(watcher, store);
}

static void wake(void *data)
{
    struct watcher *watcher = data;
    if (watcher->over || watcher->watchers->stream.call->grpc == NULL)
        return;
    if (!etcd_member_runs(watcher->watchers->stream.member)) {
        world_at(world_now() + ETCD_TICK_NS, wake, watcher);
        return;
    }
    watcher->late = false;
    report(watcher);
}

void etcd_watches_applied(struct etcd_member *member)
{
    for (struct watchers *each = member->streams; each != NULL; each = each->next) {
        for (struct watcher *watcher = each->first; watcher != NULL; watcher = watcher->next)
            report(watcher);
    }
}

static etcd_bytes keep(etcd_bytes bytes)
{
    etcd_bytes copy = {.len = bytes.len, .data = world_alloc(bytes.len + 1)};
    if (bytes.len > 0)
        memcpy(copy.data, bytes.data, bytes.len);
    return copy;
}

static size_t first_after(const struct etcd_store *store, int64_t revision)
{
    size_t at = store->n_changes;
    while (at > 0 && store->changes[at - 1]->revision > revision)
        at--;
    return at;
}

static void control(struct watchers *watchers, int64_t id, bool created, const char *refusal)
{
    Etcd__WatchResponse answer = ETCD__WATCH_RESPONSE__INIT;
    answer.header = etcd_header(etcd_member_revision(watchers->stream.member));
    answer.watch_id = id;
    answer.created = created;
    answer.canceled = !created || refusal != NULL;
    if (refusal != NULL)
        answer.cancel_reason = (char *)refusal;
    etcd_answer_send(watchers->stream.call, watchers->stream.member, (struct etcd_answer *)&answer);
}

static void set_filters(struct watcher *watcher, const Etcd__WatchCreate *create)
{
    for (size_t i = 0; i < create->n_filters; i++) {
        watcher->no_puts |= create->filters[i] == ETCD__WATCH_CREATE__FILTER__NOPUT;
        watcher->no_deletions |= create->filters[i] == ETCD__WATCH_CREATE__FILTER__NODELETE;
    }
}

static int64_t free_id(struct watchers *watchers)
{
    while (find(watchers, watchers->last_id) != NULL)
        watchers->last_id++;
    return watchers->last_id++;
}

static const char *refusal_of(const struct watchers *watchers, const Etcd__WatchCreate *create)
{
    bool to_the_end = create->range_end.len == 1 && create->range_end.data[0] == 0;
    if (create->range_end.len > 0 && !to_the_end &&
        etcd_bytes_compare(create->key, create->range_end) >= 0)
        return "mvcc: watcher range is empty";
    if (create->watch_id != 0 && find(watchers, create->watch_id) != NULL)
        return "mvcc: duplicate watch ID provided on the WatchStream";
    return NULL;
}

/* It begins at the present. If something is written while the server sets it up, its first events
 * come from a loop that runs ten times a second. */
static void create_watch(struct watchers *watchers, const Etcd__WatchCreate *create)
{
    const struct etcd_member *member = watchers->stream.member;
    const char *refusal = refusal_of(watchers, create);
    if (refusal != NULL) {
        control(watchers, -1, true, refusal);
        return;
    }
    struct watcher *watcher = world_alloc(sizeof *watcher);
    *watcher =
        (struct watcher){.next = watchers->first,
                         .watchers = watchers,
                         .id = create->watch_id != 0 ? create->watch_id : free_id(watchers),
                         .key = keep(create->key),
                         .end = keep(create->range_end),
                         .with_previous = create->prev_kv,
                         .late = random_once_in(&member->cluster->random, LATE_ONCE_IN),
                         .at = first_after(&member->cluster->store, etcd_member_revision(member))};
    set_filters(watcher, create);
    watchers->first = watcher;
    if (watcher->late)
        world_at(world_now() + random_below(&member->cluster->random, LATE_MAX_NS), wake, watcher);
    control(watchers, watcher->id, true, NULL);
}

static void cancel_watch(struct watchers *watchers, int64_t id)
{
    struct watcher **at = &watchers->first;
    while (*at != NULL && (*at)->id != id)
        at = &(*at)->next;
    if (*at == NULL)
        return;
    (*at)->over = true;
    *at = (*at)->next;
    control(watchers, id, false, NULL);
}

void etcd_watch_take(struct grpc_call *call, struct etcd_member *member,
                     const Etcd__WatchRequest *request)
{
    struct watchers *watchers = call->data;
    if (watchers == NULL) {
        watchers = world_alloc(sizeof *watchers);
        begin_stream(&watchers->stream, call, member);
        watchers->next = member->streams;
        member->streams = watchers;
    }
    if (request->request_case == ETCD__WATCH_REQUEST__REQUEST_CREATE)
        create_watch(watchers, request->create);
    else if (request->request_case == ETCD__WATCH_REQUEST__REQUEST_CANCEL)
        cancel_watch(watchers, request->cancel->watch_id);
    else
        refuse(call, REFUSED_UNKNOWN);
}

void etcd_watch_over(struct grpc_call *call, struct etcd_member *member)
{
    for (struct watchers **at = (struct watchers **)&member->streams; *at != NULL;
         at = &(*at)->next) {
        if (*at == call->data) {
            *at = (*at)->next;
            return;
        }
    }
}
