/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of a name: from the first request of a claim to its grant.
 *
 * The node and the listing behind it are requested together, so an uncontended claim waits for one
 * round trip. A listing that contains our node proves that it still exists, with the owner that was
 * compared when it was created: neither can change. So one request, after any wait, both verifies a
 * grant and finds the node before ours. That node is watched, and no other: one that goes wakes one
 * waiter. Where the node before ours is our own, neither the watch nor a listing is needed
 * (line.c).
 *
 * Hold records whose claims have gone (orphans) keep the name locked for a time on the server's
 * clock. That clock can't be read, but every write shows it: our node when it was created, and the
 * same node written once more when an orphan's time should be over by our clock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/zookeeper/claims.h"

#define TRIES_MAX 6
#define NUDGE_NS  (20 * NS_PER_MS)

static void list_again(struct zk_claim *zc);
static void on_list_timer(struct timer *timer);
static void start_over(struct zk_claim *zc);
static void watch_node(struct zk_claim *zc, const char *node);
static void wait_for_change(struct zk_claim *zc);
static reply_fn on_orphan_cleared;

static void path_of(char path[PATH_ROOM], struct zk_claim *zc)
{
    zk_path_of_name(path, zk_of_claim(zc), core_claim(zc)->name, core_claim(zc)->name_len);
}

static void grant(struct zk_claim *zc)
{
    struct claim *claim = core_claim(zc);
    zk_claim_stop_waiting(zc);
    zk_claim_move_to(zc, CLAIM_HELD);
    zc->was_held = true;
    zc->tries = 0;
    zc->adjacent = false;
    zc->granted_after = zc->session->resumes;
    zc->granted_ns = loop_now(claim->engine->loop);
    zk_held_begin(zc);
    claim->engine->events->granted(claim, (uint64_t)zc->czxid, zc->session->proven_ns,
                                   zc->session->ttl_ns);
}

/* ---- its hold record ---- */

/* A record that already exists was written before a connection broke: it is too old. */
static void on_recorded(struct requester *requester, const struct reply *reply)
{
    struct zk_claim *zc = claim_of_requester(requester);
    char path[PATH_ROOM];
    zc->record_state = reply->rc == ZOK ? RECORD_WRITTEN : RECORD_UNCERTAIN;
    if (zk_release_owns_reply(zc))
        return;
    if (reply->rc == ZNODEEXISTS) {
        zk_claim_record_path(path, zc);
        zc->in_flight += zk_request_delete(zc->session, &zc->requester, path, on_orphan_cleared);
    } else if (reply->rc != ZOK && reply->rc != ZNONODE && !zk_error_is_transient(reply->rc)) {
        zk_claim_fail_code(zc, reply->rc, true);
    }
}

/* The listing behind it shows that the node still exists, so the record is a holder's. If that
 * listing failed, the record is too old when another one succeeds: a hold counts from the grant. */
static void write_record(struct zk_claim *zc)
{
    char path[PATH_ROOM], data[INFO_MAX];
    zk_claim_record_path(path, zc);
    zk_claim_record_data(data, zc, true);
    if (zc->record_state != RECORD_NONE)
        zc->in_flight += zk_request_delete(zc->session, &zc->requester, path, on_orphan_cleared);
    if (!zk_request_create(zc->session, &zc->requester, path, JUTE_PERSISTENT, data, on_recorded)) {
        zk_claim_fail_code(zc, ZNOMEMORY, true);
        return;
    }
    zc->record_state = RECORD_UNCERTAIN;
    zc->in_flight++;
    list_again(zc);
    zc->recorded = true;
}

/* ---- orphans in the way ---- */

static void set_clock(struct zk_claim *zc, int64_t server_ms)
{
    zc->clock_ms = server_ms;
    zc->clock_ns = loop_now(core_claim(zc)->engine->loop);
}

/* An unreadable record keeps nothing locked, or it would forever. */
static void read_orphan(struct orphan *orphan, const struct reply *reply)
{
    size_t n = reply->data_len;
    char data[INFO_MAX];
    struct record record;
    n = n < sizeof data ? n : sizeof data - 1;
    memcpy(data, n ? reply->data : "", n);
    data[n] = '\0';
    free(orphan->data);
    orphan->data = strdup(data);
    orphan->exists = true;
    orphan->until_ms = 0;
    if (!zk_record_read(&record, data))
        return;
    orphan->unmarked = zk_record_is_unmarked(&record, reply->stat);
    orphan->until_ms = zk_record_until_ms(&record, reply->stat, orphan->zc->clock_ms);
}

static void on_orphan_cleared(struct requester *requester, const struct reply *reply)
{
    struct zk_claim *zc = claim_of_requester(requester);
    bool fine = reply->rc == ZOK || reply->rc == ZNONODE || reply->rc == ZBADVERSION;
    if (!zk_release_owns_reply(zc) && !fine && !zk_error_is_transient(reply->rc))
        zk_claim_fail_code(zc, reply->rc, true);
}

/* Deletes it if its time is over, or marks it. True: something about it changes, so all of them are
 * read again. */
static bool clear_orphan(struct zk_claim *zc, const struct orphan *orphan)
{
    bool sent = false;
    if (orphan->exists && orphan->until_ms <= zc->clock_ms)
        sent = zk_request_delete(zc->session, &zc->requester, orphan->path, on_orphan_cleared);
    else if (orphan->exists && orphan->unmarked)
        sent = orphan->data && zk_request_set(zc->session, &zc->requester, orphan->path,
                                              orphan->data, 0, on_orphan_cleared);
    zc->in_flight += sent;
    return sent || !orphan->exists;
}

static void on_clock(struct requester *requester, const struct reply *reply)
{
    struct zk_claim *zc = claim_of_requester(requester);
    if (reply->rc == ZOK)
        set_clock(zc, reply->stat->mtime);
    zk_release_owns_reply(zc);
}

static void read_clock(struct zk_claim *zc)
{
    char data[DATA_MAX];
    zk_claim_node_data(data, zc);
    zc->in_flight += zk_request_set(zc->session, &zc->requester, zc->node, data, -1, on_clock);
    list_again(zc);
}

static void on_orphan_due(struct timer *timer)
{
    struct zk_claim *zc = claim_of_timer(timer);
    struct loop *loop = core_claim(zc)->engine->loop;
    if (zc->in_flight == 0)
        read_clock(zc);
    else /* its watch is being set */
        loop_arm(loop, timer, loop_now(loop) + NUDGE_NS);
}

/* Of several slots any may come free first, also that of a living holder. */
static void wait_for_orphan(struct zk_claim *zc, const struct orphan *orphan)
{
    struct loop *loop = core_claim(zc)->engine->loop;
    int64_t left_ms = orphan->until_ms - zc->clock_ms;
    uint64_t at_ns = zc->clock_ns + (left_ms > 0 ? (uint64_t)left_ms : 0) * NS_PER_MS;
    if (at_ns <= loop_now(loop)) {
        read_clock(zc);
        return;
    }
    if (core_claim(zc)->mode == STILE_SLOTS)
        wait_for_change(zc);
    else
        watch_node(zc, strrchr(orphan->path, '/') + 1);
    if (zc->state != CLAIM_WAITING || !(zc->watch || zc->looking.link))
        return;
    zc->timer.fn = on_orphan_due;
    loop_arm(loop, &zc->timer, at_ns);
}

static void all_orphans_read(struct zk_claim *zc)
{
    struct orphans *orphans = zc->orphans;
    const struct orphan *soonest = NULL;
    bool changes = false, waits = core_claim(zc)->wait;
    for (size_t i = 0; i < orphans->n; i++) {
        const struct orphan *orphan = &orphans->list[i];
        changes = clear_orphan(zc, orphan) || changes;
        if (!soonest || orphan->until_ms < soonest->until_ms)
            soonest = orphan;
    }
    if (changes && (waits || soonest->until_ms <= zc->clock_ms))
        list_again(zc);
    else if (!waits)
        zk_release_withdraw(zc);
    else
        wait_for_orphan(zc, soonest);
    if (waits)
        core_claim(zc)->engine->events->queued(core_claim(zc));
}

static void on_orphan(struct requester *requester, const struct reply *reply)
{
    struct orphan *orphan = container_of(requester, struct orphan, requester);
    struct zk_claim *zc = orphan->zc;
    struct orphans *orphans = zc->orphans;
    if (reply->rc == ZOK)
        read_orphan(orphan, reply);
    else if (reply->rc != ZNONODE)
        orphans->rc = reply->rc;
    bool all = --orphans->pending == 0;
    if (zk_release_owns_reply(zc) || !all)
        return;
    if (!orphans->rc)
        all_orphans_read(zc);
    else if (zk_error_is_transient(orphans->rc) && core_claim(zc)->wait)
        zk_claim_retry_later(zc, on_list_timer);
    else
        zk_claim_fail_code(zc, orphans->rc, true);
}

static bool add_orphan(struct zk_claim *zc, const char *node)
{
    struct orphan *orphan = &zc->orphans->list[zc->orphans->n++];
    char path[PATH_ROOM];
    path_of(path, zc);
    *orphan = (struct orphan){.zc = zc};
    return asprintf(&orphan->path, "%s/%s", path, node) >= 0 || (orphan->path = NULL);
}

static bool request_orphans(struct zk_claim *zc)
{
    struct orphans *orphans = zc->orphans;
    for (size_t i = 0; i < orphans->n; i++) {
        struct orphan *orphan = &orphans->list[i];
        if (!zk_request_get(zc->session, &orphan->requester, orphan->path, NULL, on_orphan))
            return false;
        orphans->pending++;
        zc->in_flight++;
    }
    return true;
}

/* Readers do not exclude readers; slots are counted, together with those before us in the queue. */
static bool is_in_the_way(const struct claim *claim, enum stile_mode mode, size_t slots)
{
    if (claim->mode == STILE_EXCLUSIVE || mode != claim->mode)
        return true;
    return claim->mode == STILE_SLOTS && slots >= claim->slots;
}

static size_t count_orphaned_slots(const struct node_list *queue,
                                   const struct jute_strings *children)
{
    size_t n = 0;
    for (size_t i = 0; i < children->n; i++) {
        enum stile_mode mode;
        const char *guid = zk_record_guid(&mode, children->list[i]);
        n += guid && mode == STILE_SLOTS && zk_record_is_orphan(queue, guid);
    }
    return n;
}

/* False: out of memory. */
static bool find_orphans(struct zk_claim *zc, const struct node_list *queue,
                         const struct jute_strings *children, size_t slots)
{
    bool found = true;
    slots += count_orphaned_slots(queue, children);
    for (size_t i = 0; found && i < children->n; i++) {
        enum stile_mode mode;
        const char *guid = zk_record_guid(&mode, children->list[i]);
        if (guid && is_in_the_way(core_claim(zc), mode, slots) && zk_record_is_orphan(queue, guid))
            found = add_orphan(zc, children->list[i]);
    }
    return found;
}

/* The claim is first but for slots of others. False: no orphan is in its way. */
static bool check_orphans(struct zk_claim *zc, const struct node_list *queue,
                          const struct jute_strings *children, size_t slots)
{
    size_t n = 0;
    enum stile_mode mode;
    for (size_t i = 0; i < children->n; i++)
        n += zk_record_guid(&mode, children->list[i]) != NULL;
    if (n == 0)
        return false;
    zk_claim_drop_orphans(zc);
    zc->orphans = calloc(1, sizeof *zc->orphans + n * sizeof zc->orphans->list[0]);
    bool known = zc->orphans && find_orphans(zc, queue, children, slots);
    if (known && zc->orphans->n == 0)
        return false;
    zk_claim_move_to(zc, CLAIM_LISTING);
    if (!known || !request_orphans(zc))
        zk_claim_fail_code(zc, ZNOMEMORY, true);
    return true;
}

/* ---- waiting ---- */

static void on_list_timer(struct timer *timer)
{
    list_again(claim_of_timer(timer));
}

static void on_queue_event(struct requester *requester, int type)
{
    struct zk_claim *zc = claim_of_requester(requester);
    (void)type;
    if (zc->state == CLAIM_WAITING && zc->in_flight == 0)
        list_again(zc);
}

/* A claim's node is ephemeral. A persistent one, made by hand or by another client, would be waited
 * for until it is deleted. */
static bool is_persistent(const struct zk_claim *zc, const struct reply *reply)
{
    enum stile_mode mode;
    return reply->rc == ZOK && reply->stat->ephemeral_owner == 0 && zc->watch &&
           !zk_record_guid(&mode, strrchr(zc->watch->path, '/') + 1);
}

static void on_watched(struct requester *requester, const struct reply *reply)
{
    struct zk_claim *zc = claim_of_requester(requester);
    if (zk_release_owns_reply(zc))
        return;
    if (is_persistent(zc, reply)) {
        zc->refusal = NOT_A_CLAIM;
        zk_release_withdraw(zc);
    } else if (reply->rc == ZOK && zc->watch)
        zc->tries = 0;
    else if (reply->rc == ZNONODE || reply->rc == ZOK)
        list_again(zc); /* the node went meanwhile */
    else if (zk_error_is_transient(reply->rc))
        zk_claim_retry_later(zc, on_list_timer);
    else
        zk_claim_fail_code(zc, reply->rc, false);
}

static void watch_node(struct zk_claim *zc, const char *node)
{
    char path[PATH_ROOM];
    struct session *session = zc->session;
    path_of(path, zc);
    size_t n = strlen(path);
    zk_claim_move_to(zc, CLAIM_WAITING);
    zk_watch_remove(&zc->watch);
    if (snprintf(path + n, sizeof path - n, "/%s", node) < (int)(sizeof path - n) &&
        zk_watch_add(&zc->watch, session, 'g', path, &zc->requester, on_queue_event) &&
        zk_request_get(session, &zc->requester, path, zc->watch, on_watched))
        zc->in_flight++;
    else
        zk_claim_retry_later(zc, on_list_timer);
}

/* Until any node of the name comes or goes. The listing must have been made behind the watch. */
static void wait_for_change(struct zk_claim *zc)
{
    if (zk_line_await_change(zc))
        zk_claim_move_to(zc, CLAIM_WAITING);
    else
        list_again(zc);
}

static void wait_behind(struct zk_claim *zc)
{
    zk_watch_remove(&zc->watch);
    zk_claim_move_to(zc, CLAIM_WAITING);
    zc->adjacent = true;
    zc->tries = 0;
}

/* ---- the position in the queue ---- */

struct position {
    const char *nearest; /* the last of those that must all go first; NULL: none */
    bool full;           /* no slot is free: any of those before it may go first */
    size_t slots;        /* before it */
};

/* A reader waits only for earlier writers; slots are counted. */
static struct position find_position(const struct claim *claim, const struct node_list *queue,
                                     size_t at)
{
    const struct zk *zk = zk_of(claim->engine);
    struct position position = {NULL};
    while (at-- > 0 && !position.nearest && !position.full) {
        enum stile_mode mode = zk_nodes_mode(queue, zk, at);
        if (claim->mode == STILE_EXCLUSIVE || mode != claim->mode)
            position.nearest = queue->nodes[at];
        position.slots += mode == STILE_SLOTS;
        position.full = claim->mode == STILE_SLOTS && position.slots >= claim->slots;
    }
    return position;
}

static void wait_or_withdraw(struct zk_claim *zc, const struct position *position)
{
    struct claim *claim = core_claim(zc);
    if (!claim->wait) {
        zk_release_withdraw(zc);
        return;
    }
    if (position->nearest && zk_line_is_before(zc, position->nearest))
        wait_behind(zc);
    else if (position->nearest)
        watch_node(zc, position->nearest);
    else
        wait_for_change(zc);
    claim->engine->events->queued(claim);
}

static void reached_head(struct zk_claim *zc)
{
    if (zk_claim_wants_record(zc) && (zc->record_state != RECORD_WRITTEN || !zc->recorded))
        write_record(zc);
    else
        grant(zc);
}

/* Verifies that our node is in the queue, and grants the claim, waits or withdraws it. */
static void examine_queue(struct zk_claim *zc, const struct node_list *queue,
                          const struct jute_strings *children)
{
    size_t place = zk_nodes_find(queue, zk_of_claim(zc), strrchr(zc->node, '/') + 1);
    bool ours = place < queue->n && zc->owner == zc->session->id.id &&
                zc->generation == zc->session->generation;
    zc->adjacent = false;
    if (!ours) {
        start_over(zc);
        return;
    }
    struct position position = find_position(core_claim(zc), queue, place);
    if (position.nearest || position.full)
        wait_or_withdraw(zc, &position);
    else if (!check_orphans(zc, queue, children, position.slots))
        reached_head(zc);
}

static void on_listed(struct zk_claim *zc, const struct node_list *queue, const struct reply *reply)
{
    if (zc->session->ending)
        return;
    if (queue)
        examine_queue(zc, queue, reply->children);
    else if (reply->rc == ZNONODE)
        start_over(zc);
    else if (reply->rc == ZNOMEMORY || (zk_error_is_transient(reply->rc) && core_claim(zc)->wait))
        zk_claim_retry_later(zc, on_list_timer);
    else
        zk_claim_fail_code(zc, reply->rc, true);
}

static void list_again(struct zk_claim *zc)
{
    zc->recorded = false;
    zk_claim_move_to(zc, CLAIM_LISTING);
    loop_disarm(core_claim(zc)->engine->loop, &zc->timer);
    zk_watch_remove(&zc->watch);
    zk_line_look(zc);
}

/* ---- its turn ---- */

static void on_verified(struct requester *requester, const struct reply *reply)
{
    struct zk_claim *zc = claim_of_requester(requester);
    if (zk_release_owns_reply(zc))
        return;
    bool ours = reply->rc == ZOK && reply->stat->czxid == zc->czxid &&
                reply->stat->ephemeral_owner == zc->session->id.id &&
                zc->generation == zc->session->generation;
    if (ours)
        grant(zc);
    else if (reply->rc == ZOK || reply->rc == ZNONODE)
        start_over(zc);
    else if (zk_error_is_transient(reply->rc))
        zk_claim_retry_later(zc, on_list_timer);
    else
        zk_claim_fail_code(zc, reply->rc, true);
}

static void on_unsure(struct zk_claim *zc)
{
    if (zc->state == CLAIM_WAITING)
        list_again(zc);
}

/* Nothing is before its node. What a listing would add is whether that still exists. */
static void on_turn(struct zk_claim *zc)
{
    bool waits = zc->state == CLAIM_WAITING;
    if (waits && !zk_claim_wants_record(zc) &&
        zk_request_get(zc->session, &zc->requester, zc->node, NULL, on_verified)) {
        zk_claim_move_to(zc, CLAIM_LISTING);
        loop_disarm(core_claim(zc)->engine->loop, &zc->timer);
        zc->in_flight++;
    } else if (waits) {
        list_again(zc);
    }
}

static void on_change(struct zk_claim *zc)
{
    if (zc->in_flight == 0)
        list_again(zc);
}

static const struct line_events line_events = {
    .listed = on_listed, .changed = on_change, .turn = on_turn, .unsure = on_unsure};

/* ---- creating the node ---- */

static void send_claim(struct zk_claim *zc);

/* What failed is dealt with. */
static bool is_created(struct zk_claim *zc)
{
    if (zc->created == ZNONODE && zc->tries++ < TRIES_MAX) {
        zc->parents = true;
        send_claim(zc);
    } else if (zc->created != ZOK || !zc->node) {
        zk_claim_fail_code(zc, zc->created ? zc->created : ZNOMEMORY,
                           zc->node_state == NODE_UNCERTAIN);
    } else if (zk_node_numbers_run_out(zk_of_claim(zc), core_claim(zc), zc->guid, zc->node)) {
        zc->refusal = NUMBERS_USED_UP;
        zk_release_withdraw(zc);
    } else {
        return true;
    }
    return false;
}

/* Other claims of ours are before it: most often right before it. */
static void take_place(struct zk_claim *zc)
{
    struct claim *claim = core_claim(zc);
    if (!is_created(zc))
        return;
    if (!zc->adjacent) {
        list_again(zc);
    } else if (!claim->wait) {
        zk_release_withdraw(zc);
    } else {
        wait_behind(zc);
        claim->engine->events->queued(claim);
    }
}

static void on_created(struct requester *requester, const struct reply *reply)
{
    struct zk_claim *zc = claim_of_requester(requester);
    zc->created = reply->rc;
    if (reply->rc == ZOK) {
        zc->node = strdup(reply->path);
        zc->node_state = zc->node ? NODE_PRESENT : NODE_UNCERTAIN;
        zc->czxid = reply->stat->czxid;
        zc->owner = reply->stat->ephemeral_owner;
        set_clock(zc, reply->stat->ctime);
    } else if (!reply->maybe) {
        zc->node_state = NODE_NONE;
    }
    zk_line_created(zc);
    if (zc->node)
        zk_line_append(zc);
    if (!zk_release_owns_reply(zc) && zc->lists_later)
        take_place(zc);
}

/* The listing that was requested together with the node. */
static void on_first_listed(struct requester *requester, const struct reply *reply)
{
    struct zk_claim *zc = claim_of_requester(requester);
    struct claim *claim = core_claim(zc);
    struct stile_error err;
    struct node_list queue;
    if (zk_release_owns_reply(zc) || !is_created(zc))
        return;
    if (reply->rc == ZOK && zk_nodes_sort(&queue, zk_of_claim(zc), reply->children, &err)) {
        zk_claim_fail(zc, &err);
    } else if (reply->rc == ZOK) {
        examine_queue(zc, &queue, reply->children);
        zk_nodes_free(&queue);
    } else if (zk_error_is_transient(reply->rc) && claim->wait) {
        zk_claim_move_to(zc, CLAIM_WAITING);
        zk_claim_retry_later(zc, on_list_timer);
        claim->engine->events->queued(claim);
    } else {
        zk_claim_fail_code(zc, reply->rc, true);
    }
}

static void on_parent(struct requester *requester, const struct reply *reply)
{
    (void)reply; /* if it does not exist after all, the next request fails */
    zk_release_owns_reply(claim_of_requester(requester));
}

/* Containers: the server removes them when they are empty. */
static bool create_parents(struct zk_claim *zc, char path[PATH_ROOM])
{
    bool sent = true;
    for (char *slash = strchr(path + 1, '/'); sent && slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        sent =
            zk_request_create(zc->session, &zc->requester, path, JUTE_CONTAINER, NULL, on_parent);
        zc->in_flight += sent;
        *slash = '/';
    }
    return sent;
}

static bool request_first_list(struct zk_claim *zc)
{
    char path[PATH_ROOM];
    path_of(path, zc);
    bool sent = zk_request_children(zc->session, &zc->requester, path, NULL, on_first_listed);
    zc->in_flight += sent;
    return sent;
}

static void send_claim(struct zk_claim *zc)
{
    struct claim *claim = core_claim(zc);
    struct zk *zk = zk_of_claim(zc);
    struct stile_error err;
    char path[PATH_ROOM], data[DATA_MAX];
    uint8_t random[16];
    zk_claim_move_to(zc, CLAIM_CREATING);
    zc->generation = zc->session->generation;
    int error = loop_random(claim->engine->loop, random, sizeof random);
    if (error) {
        error_errno(&err, STILE_REFUSED, error, "no random numbers");
        zk_claim_fail(zc, &err);
        return;
    }
    zk_guid_write(zc->guid, zk->dialect, random);
    zk_path_of_claim(path, zk, claim, zc->guid);
    zk_claim_node_data(data, zc);
    bool parents = !zc->parents || create_parents(zc, path);
    bool created = parents && zk_request_create(zc->session, &zc->requester, path,
                                                JUTE_EPHEMERAL_SEQUENTIAL, data, on_created);
    zc->in_flight += created;
    zc->node_state = created ? NODE_UNCERTAIN : NODE_NONE;
    zc->lists_later = zk_line_creating(zc);
    if (created && (zc->lists_later || request_first_list(zc)))
        return;
    zk_line_created(zc);
    zk_requester_forget(&zc->requester);
    zc->in_flight = 0;
    zk_claim_fail_code(zc, ZNOMEMORY, created);
}

/* Its node has gone, and with it its place in the queue: the session ended, or the node was
 * deleted. */
static void start_over(struct zk_claim *zc)
{
    struct stile_error err;
    zk_claim_stop_waiting(zc);
    zk_claim_drop_node(zc);
    zk_release_drop_record(zc);
    if (zc->tries++ < TRIES_MAX) {
        send_claim(zc);
        return;
    }
    error_set(&err, STILE_UNREACHABLE, 0, "the claim's node is deleted as soon as it is created");
    zk_claim_fail(zc, &err);
}

void zk_queue_claim(struct engine *engine, struct claim *claim)
{
    struct zk_claim *zc = zk_claim_of(claim);
    struct stile_error err;
    size_t bytes = zk_path_bytes_of_claim(zk_of(engine), claim);
    struct session *session = zk_session_for(zk_of(engine), claim->ttl_ns, bytes, &err);
    *zc = (struct zk_claim){.state = CLAIM_IDLE, .bytes = bytes};
    if (!session || loop_reserve(engine->loop, 1)) {
        if (session)
            error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->failed(claim, &err);
        return;
    }
    zk_claim_begin(zc, session);
    if (zk_line_join(zc, &line_events))
        send_claim(zc);
    else
        zk_claim_fail_code(zc, ZNOMEMORY, false);
}

/* ---- the end of a session ---- */

static void session_ended(struct zk_claim *zc)
{
    zc->generation = zc->session->generation;
    zc->in_flight = 0;
    zk_requester_forget(&zc->requester);
    zk_claim_drop_orphans(zc);
    switch (zc->state) {
    case CLAIM_CREATING:
    case CLAIM_LISTING:
    case CLAIM_WAITING:
        zc->tries = 0;
        start_over(zc);
        break;
    case CLAIM_HELD: /* core knows that the session has ended */
        zk_claim_stop_waiting(zc);
        zk_claim_drop_node(zc);
        zk_claim_move_to(zc, CLAIM_LOST);
        break;
    default:
        zk_release_session_ended(zc);
    }
}

void zk_queue_session_ended(struct session *session)
{
    struct zk_claim *zc;
    do {
        zc = session->claims;
        while (zc && zc->generation == session->generation)
            zc = zc->next;
        if (zc)
            session_ended(zc);
    } while (zc);
}
