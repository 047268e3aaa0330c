/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/etcd_cluster.h"

#include <string.h>

#define MOMENT_MIN_NS  (50 * US)
#define MOMENT_MAX_NS  (600 * US)
#define SLOW_ONCE_IN   40
#define SLOW_MAX_NS    (80 * MS)
#define EXPIRY_LOOP_NS (500 * MS) /* how often a leader looks for leases that have run out */
#define NOTICE_MAX_NS  (200 * MS) /* after a deposed leader has continued */

uint64_t etcd_cluster_moment(struct etcd_cluster *cluster)
{
    uint64_t ns = random_between(&cluster->random, MOMENT_MIN_NS, MOMENT_MAX_NS);
    return random_once_in(&cluster->random, SLOW_ONCE_IN)
               ? ns + random_below(&cluster->random, SLOW_MAX_NS)
               : ns;
}

/* ---- which members are there ---- */

bool etcd_member_runs(const struct etcd_member *member)
{
    return !member->server->down && !member->server->stopped;
}

static bool is_connected(const struct etcd_member *member)
{
    return etcd_member_runs(member) && !(member->cut_off && member->cluster->n > 1);
}

static bool has_majority(const struct etcd_cluster *cluster)
{
    unsigned connected = 0;
    for (unsigned i = 0; i < cluster->n; i++)
        connected += is_connected(&cluster->members[i]) ? 1 : 0;
    return connected > cluster->n / 2;
}

/* There is a leader that can get agreement. */
static bool is_led(const struct etcd_cluster *cluster)
{
    return cluster->leader != NULL && is_connected(cluster->leader) && has_majority(cluster);
}

bool etcd_member_sees_leader(const struct etcd_member *member)
{
    return member->silent_ns < member->cluster->timeout_ns;
}

int64_t etcd_member_revision(const struct etcd_member *member)
{
    return etcd_store_revision_at(&member->cluster->store, member->applied);
}

/* ---- applying ---- */

static void answer(struct etcd_task *task, enum etcd_refusal refusal)
{
    if (!task->answered && task->incarnation == task->member->incarnation)
        task->done(task, refusal);
    task->answered = true;
    if (task->state != TASK_IN_DOUBT)
        task->state = TASK_OVER;
}

static void answer_ready(struct etcd_member *member)
{
    for (struct etcd_task *task = member->cluster->tasks; task != NULL; task = task->next) {
        if (task->member != member || task->state != TASK_AGREED || task->index > member->applied)
            continue;
        if (!task->writes && !task->answered)
            task->refusal = task->run(task, etcd_member_revision(member));
        answer(task, task->refusal);
    }
}

static void apply(struct etcd_member *member, uint64_t index)
{
    if (index > member->applied) {
        member->applied = index;
        member->cluster->applied(member);
    }
    answer_ready(member);
}

struct application {
    struct etcd_member *member;
    unsigned incarnation;
    uint64_t index;
};

/* What a member misses it applies when it is back. */
static void apply_now(void *data)
{
    const struct application *application = data;
    struct etcd_member *member = application->member;
    if (is_connected(member) && member->incarnation == application->incarnation)
        apply(member, application->index);
}

static void spread(struct etcd_cluster *cluster)
{
    for (unsigned i = 0; i < cluster->n; i++) {
        struct etcd_member *member = &cluster->members[i];
        if (!is_connected(member))
            continue;
        struct application *application = world_alloc(sizeof *application);
        *application = (struct application){member, member->incarnation, cluster->store.index};
        member->have = cluster->store.index;
        world_at(world_now() + etcd_cluster_moment(cluster), apply_now, application);
    }
}

static void commit(struct etcd_cluster *cluster)
{
    etcd_store_commit(&cluster->store);
    spread(cluster);
}

/* ---- tasks ---- */

static void agree(struct etcd_task *task)
{
    struct etcd_cluster *cluster = task->member->cluster;
    if (task->writes) {
        task->refusal = task->run(task, 0);
        commit(cluster);
    }
    task->index = cluster->store.index;
    task->state = TASK_AGREED;
}

/* An entry that a leader without a majority has put into its log is in doubt. What a follower can't
 * pass on to the leader is lost; a read waits for it. */
static void propose(struct etcd_task *task)
{
    const struct etcd_member *member = task->member, *leader = member->cluster->leader;
    if (is_led(member->cluster) && is_connected(member))
        agree(task);
    else if (!task->writes)
        task->state = TASK_WAITING;
    else if (leader != NULL && (member == leader || (is_connected(member) && is_connected(leader))))
        task->state = TASK_IN_DOUBT;
    else
        task->state = TASK_LOST;
    if (task->state == TASK_AGREED)
        answer_ready(task->member);
}

static void arrive(void *data)
{
    struct etcd_task *task = data;
    if (task->incarnation != task->member->incarnation)
        task->state = TASK_OVER;
    else if (!etcd_member_runs(task->member))
        world_at(world_now() + ETCD_TICK_NS, arrive, task);
    else
        propose(task);
}

void etcd_task_start(struct etcd_task *task)
{
    struct etcd_cluster *cluster = task->member->cluster;
    task->next = cluster->tasks;
    cluster->tasks = task;
    task->state = TASK_ON_ITS_WAY;
    task->incarnation = task->member->incarnation;
    task->until_ns = world_now() + ETCD_PATIENCE_NS;
    task->term = cluster->term;
    world_at(world_now() + etcd_cluster_moment(cluster), arrive, task);
}

/* What has waited for a leader, or too long. */
static void look_after(struct etcd_task *task)
{
    const struct etcd_member *member = task->member;
    bool can = is_led(member->cluster) && is_connected(member);
    if (task->state == TASK_IN_DOUBT && is_led(member->cluster)) {
        agree(task);
    } else if (task->incarnation != member->incarnation) {
        task->state = task->state == TASK_IN_DOUBT ? TASK_IN_DOUBT : TASK_OVER;
    } else if (task->state == TASK_LOST && task->answered) {
        task->state = TASK_OVER;
    } else if (etcd_member_runs(member)) {
        if (task->state == TASK_WAITING && task->term != member->cluster->term)
            answer(task, REFUSED_LEADER_CHANGED);
        else if (task->state == TASK_WAITING && can)
            agree(task);
        else if (!task->answered && world_now() >= task->until_ns)
            answer(task, REFUSED_TIMED_OUT);
    }
}

static void sweep_tasks(struct etcd_cluster *cluster)
{
    struct etcd_task **at = &cluster->tasks;
    while (*at != NULL) {
        look_after(*at);
        if ((*at)->state == TASK_OVER)
            *at = (*at)->next;
        else
            at = &(*at)->next;
    }
}

/* ---- leases ---- */

struct expiry {
    struct etcd_cluster *cluster;
    struct etcd_lease *lease;
    uint64_t term;
};

static void expire(void *data)
{
    struct expiry *expiry = data;
    struct etcd_cluster *cluster = expiry->cluster;
    if (expiry->term != cluster->term || expiry->lease->ended != 0)
        return;
    if (!is_led(cluster)) {
        world_at(world_now() + EXPIRY_LOOP_NS, expire, expiry);
        return;
    }
    world_trace("lease %llx has run out", (unsigned long long)expiry->lease->id);
    etcd_store_revoke(&cluster->store, expiry->lease);
    commit(cluster);
}

static void look_for_expired(struct etcd_cluster *cluster)
{
    for (struct etcd_lease *lease = cluster->store.leases; lease != NULL; lease = lease->next) {
        if (lease->ended != 0 || lease->revoking || lease->expires_ns > world_now())
            continue;
        struct expiry *expiry = world_alloc(sizeof *expiry);
        *expiry = (struct expiry){cluster, lease, cluster->term};
        lease->revoking = true;
        world_at(world_now() + random_below(&cluster->random, EXPIRY_LOOP_NS), expire, expiry);
    }
}

/* It gets its full time again, and an election timeout: the former leader may have renewed it
 * meanwhile. */
static void renew_all(struct etcd_cluster *cluster)
{
    for (struct etcd_lease *lease = cluster->store.leases; lease != NULL; lease = lease->next) {
        lease->former_ns = lease->expires_ns;
        lease->expires_ns = world_now() + (uint64_t)lease->ttl_s * SEC + ETCD_ELECTION_NS;
        lease->revoking = false;
    }
}

/* A deposed leader answers from what it knows, and its answer is worth nothing. */
static bool is_misled(struct etcd_member *member)
{
    member->deposed =
        member->deposed && (member->notices_ns == 0 || world_now() < member->notices_ns);
    return member->deposed;
}

/* Soon after it has continued, from the others; or by itself, if it hears nothing of them. */
static void will_notice(struct etcd_member *member)
{
    if (!member->deposed || member->notices_ns != 0)
        return;
    member->notices_ns =
        world_now() +
        random_below(&member->cluster->random, member->cut_off ? ETCD_ELECTION_NS : NOTICE_MAX_NS);
}

static enum etcd_renewal renew_misled(struct etcd_member *member, int64_t id, int64_t *ttl_s)
{
    const struct etcd_lease *lease = etcd_store_lease(&member->cluster->store, id, member->applied);
    if (lease == NULL) {
        member->cluster->missed = true;
        return ETCD_LEASE_GONE;
    }
    if (lease->former_ns <= world_now())
        return ETCD_RENEW_LATER;
    world_trace("%s no longer leads, and renews lease %llx", member->server->host,
                (unsigned long long)id);
    member->cluster->misled = true;
    *ttl_s = lease->ttl_s;
    return ETCD_RENEWED;
}

/* A lease that has run out is not renewed: its end is on its way. */
enum etcd_renewal etcd_member_renew(struct etcd_member *member, int64_t id, int64_t *ttl_s)
{
    struct etcd_cluster *cluster = member->cluster;
    bool leads = member == cluster->leader && etcd_member_sees_leader(member);
    if (is_misled(member))
        return renew_misled(member, id, ttl_s);
    if (!leads && !(is_led(cluster) && is_connected(member)))
        return ETCD_RENEW_LATER;
    struct etcd_lease *lease = etcd_store_lease(&cluster->store, id, cluster->store.index);
    if (lease == NULL)
        return ETCD_LEASE_GONE;
    if (lease->expires_ns <= world_now())
        return ETCD_RENEW_LATER;
    *ttl_s = lease->ttl_s;
    lease->expires_ns = world_now() + (uint64_t)lease->ttl_s * SEC;
    return ETCD_RENEWED;
}

/* ---- elections ---- */

/* What the former leader had in its log may be in that of the new one, or not. */
static void settle_doubts(struct etcd_cluster *cluster, bool same_leader)
{
    for (struct etcd_task *task = cluster->tasks; task != NULL; task = task->next) {
        if (task->state != TASK_IN_DOUBT)
            continue;
        if (same_leader || random_once_in(&cluster->random, 2))
            agree(task);
        else
            task->state = TASK_LOST;
    }
}

static void elect(struct etcd_cluster *cluster, struct etcd_member *member)
{
    struct etcd_member *former = cluster->leader;
    world_trace("%s is elected", member->server->host);
    if (former != NULL && former != member && former->server->stopped) {
        former->deposed = true;
        former->notices_ns = 0;
    }
    member->deposed = false;
    cluster->leader = member;
    cluster->term++;
    cluster->lost_ns = 0;
    renew_all(cluster);
    settle_doubts(cluster, member == former);
}

/* One that has everything that was agreed on. */
static struct etcd_member *candidate(struct etcd_cluster *cluster, const struct etcd_member * not )
{
    unsigned first = (unsigned)random_below(&cluster->random, cluster->n);
    for (unsigned i = 0; i < cluster->n; i++) {
        struct etcd_member *member = &cluster->members[(first + i) % cluster->n];
        if (member != not &&is_connected(member) && member->have == cluster->store.index)
            return member;
    }
    return NULL;
}

/* A single member need not wait for others. */
static uint64_t election_timeout(struct etcd_cluster *cluster)
{
    return cluster->n == 1 ? random_between(&cluster->random, 100 * MS, 1100 * MS)
                           : ETCD_ELECTION_NS + random_below(&cluster->random, ETCD_ELECTION_NS);
}

static void look_for_leader(struct etcd_cluster *cluster)
{
    if (cluster->lost_ns == 0) {
        cluster->lost_ns = world_now();
        cluster->timeout_ns = election_timeout(cluster);
    }
    if (world_now() - cluster->lost_ns < cluster->timeout_ns)
        return;
    /* A leader that runs without a majority steps down; one that is stopped does nothing. */
    if (cluster->leader != NULL && etcd_member_runs(cluster->leader))
        cluster->leader = NULL;
    struct etcd_member *next = has_majority(cluster) ? candidate(cluster, NULL) : NULL;
    if (next != NULL)
        elect(cluster, next);
}

/* ---- time ---- */

static void catch_up(struct etcd_member *member)
{
    uint64_t had = member->have;
    member->silent_ns = 0;
    member->have = member->cluster->store.index;
    apply(member, had);
}

static void tick(void *data)
{
    struct etcd_cluster *cluster = data;
    if (cluster->over)
        return;
    bool led = is_led(cluster);
    if (!led)
        look_for_leader(cluster);
    else
        cluster->lost_ns = 0;
    for (unsigned i = 0; i < cluster->n; i++) {
        struct etcd_member *member = &cluster->members[i];
        if (led && is_connected(member))
            catch_up(member);
        else if (etcd_member_runs(member))
            member->silent_ns += ETCD_TICK_NS;
        if (etcd_member_runs(member))
            will_notice(member);
    }
    if (led)
        look_for_expired(cluster);
    sweep_tasks(cluster);
    world_at(world_now() + ETCD_TICK_NS, tick, cluster);
}

/* ---- its life ---- */

static void choose_ids(struct etcd_cluster *cluster)
{
    cluster->id = random_next(&cluster->random) | 1;
    for (unsigned i = 0; i < cluster->n; i++)
        cluster->members[i].id = random_next(&cluster->random) | 1;
}

/* The servers are known; the first member leads. */
void etcd_cluster_begin(struct etcd_cluster *cluster, unsigned n)
{
    cluster->n = n;
    cluster->random = random_stream(world_seed(), 6);
    cluster->timeout_ns = ETCD_ELECTION_NS;
    etcd_store_begin(&cluster->store);
    etcd_store_begin(&cluster->saved);
    choose_ids(cluster);
    for (unsigned i = 0; i < n; i++) {
        cluster->members[i].cluster = cluster;
        cluster->members[i].have = cluster->members[i].applied = cluster->store.index;
    }
    cluster->leader = &cluster->members[random_below(&cluster->random, n)];
    world_at(world_now(), tick, cluster);
}

void etcd_cluster_end(struct etcd_cluster *cluster)
{
    cluster->over = true;
}

/* ---- faults ---- */

void etcd_cluster_save(struct etcd_cluster *cluster)
{
    etcd_store_copy(&cluster->saved, &cluster->store);
}

void etcd_member_crash(struct etcd_member *member)
{
    world_trace("%s crashes", member->server->host);
    member->incarnation++;
    member->silent_ns = NEVER / 2;
    member->deposed = false;
    member->server->down = true;
    if (member->cluster->leader == member)
        member->cluster->leader = NULL;
    server_cut(member->server);
}

/* It comes back with its data, and hears of the leader at the next tick. */
void etcd_member_restart(struct etcd_member *member)
{
    world_trace("%s restarts", member->server->host);
    member->server->down = false;
}

void etcd_cluster_move_leader(struct etcd_cluster *cluster)
{
    struct etcd_member *next = candidate(cluster, cluster->leader);
    if (is_led(cluster) && next != NULL)
        elect(cluster, next);
}

void etcd_cluster_stop(struct etcd_cluster *cluster)
{
    for (unsigned i = 0; i < cluster->n; i++) {
        if (!cluster->members[i].server->down)
            etcd_member_crash(&cluster->members[i]);
    }
    cluster->tasks = NULL;
    cluster->term++;
}

void etcd_cluster_restore(struct etcd_cluster *cluster, bool snapshot, int64_t bump)
{
    static const struct etcd_store empty = {.revision = 1};
    const struct etcd_store *from = snapshot ? &cluster->saved : &empty;
    world_trace("the cluster starts again from revision %lld and %lld", (long long)from->revision,
                (long long)bump);
    etcd_cluster_stop(cluster);
    etcd_store_restore(&cluster->store, from, bump);
    choose_ids(cluster);
    for (unsigned i = 0; i < cluster->n; i++) {
        cluster->members[i].have = cluster->members[i].applied = cluster->store.index;
        etcd_member_restart(&cluster->members[i]);
    }
}

void etcd_cluster_compact(struct etcd_cluster *cluster)
{
    if (cluster->store.revision > cluster->store.compacted)
        cluster->store.compacted = cluster->store.revision;
}

void etcd_cluster_revoke_one(struct etcd_cluster *cluster, unsigned n)
{
    struct etcd_lease *lease = cluster->store.leases;
    for (; lease != NULL && (lease->ended != 0 || n-- > 0);)
        lease = lease->next;
    if (lease == NULL || !is_led(cluster))
        return;
    world_trace("lease %llx is revoked by hand", (unsigned long long)lease->id);
    etcd_store_revoke(&cluster->store, lease);
    commit(cluster);
}

void etcd_cluster_delete_one(struct etcd_cluster *cluster, unsigned n)
{
    const struct etcd_store *store = &cluster->store;
    for (size_t i = 0; i < store->n_keys && is_led(cluster); i++) {
        etcd_bytes name = store->keys[i]->name;
        if (name.len == 0 || name.data[0] < ' ' || n-- > 0 ||
            etcd_store_delete(&cluster->store, name, (etcd_bytes){0}) == 0)
            continue;
        world_trace("%.*s is deleted by hand", (int)name.len, name.data);
        commit(cluster);
        return;
    }
}

static bool is_ghost_of(etcd_bytes ghost, etcd_bytes own)
{
    return ghost.len > own.len && ghost.data[own.len] == '-' &&
           memcmp(ghost.data, own.data, own.len) == 0;
}

static bool has_ghost(const struct etcd_store *store, etcd_bytes own)
{
    for (size_t i = 0; i < store->n_keys; i++) {
        if (etcd_version_at(store->keys[i], store->revision) != NULL &&
            is_ghost_of(store->keys[i]->name, own))
            return true;
    }
    return false;
}

void etcd_cluster_delete_waiter(struct etcd_cluster *cluster)
{
    const struct etcd_store *store = &cluster->store;
    const struct etcd_version *last = NULL;
    for (size_t i = 0; i < store->n_keys && is_led(cluster); i++) {
        const struct etcd_version *version = etcd_version_at(store->keys[i], store->revision);
        if (version != NULL && has_ghost(store, store->keys[i]->name) &&
            (last == NULL || version->created > last->created))
            last = version;
    }
    if (last == NULL)
        return;
    world_trace("%.*s is deleted by hand", (int)last->key->name.len, last->key->name.data);
    etcd_store_delete(&cluster->store, last->key->name, (etcd_bytes){0});
    commit(cluster);
}
