/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/zookeeper_ensemble.h"

#include <inttypes.h>

#include "base/container.h"
#include "sim/zookeeper_reign.h"

#define LOOK_NS       (50 * MS)
#define PROBE_NS      (20 * MS) /* how often a pipe that is blocked is tried */
#define MOMENT_MIN_NS (50 * US)
#define MOMENT_MAX_NS (600 * US)
#define SLOW_ONCE_IN  40
#define SLOW_MAX_NS   (80 * MS)
#define JOIN_MAX_NS   (600 * MS)

struct zk_touched {
    struct zk_touched *next;
    int64_t id;
    int32_t timeout_ms;
};

enum message_kind { ASKED, SYNC, VALIDATE, ACK, BEAT, PROPOSAL, COMMIT, SYNCED, VALIDATED };

struct zk_message {
    struct zk_message *next;
    uint64_t at_ns;
    enum message_kind kind;
    unsigned term; /* of the follower when it asked */
    struct zk_txn *txn;
    void *request;
    struct zk_touched *touched; /* BEAT, upwards */
    struct zk_touched session;  /* VALIDATE */
    bool valid;
};

static uint64_t moment(struct zk_ensemble *ensemble)
{
    uint64_t ns = random_between(&ensemble->random, MOMENT_MIN_NS, MOMENT_MAX_NS);
    return random_once_in(&ensemble->random, SLOW_ONCE_IN)
               ? ns + random_below(&ensemble->random, SLOW_MAX_NS)
               : ns;
}

int64_t zk_member_clock_ms(const struct zk_member *member)
{
    return (int64_t)(WORLD_EPOCH_S * 1000 + world_now() / MS) + member->server->clock_us / 1000;
}

/* ---- messages ---- */

static void receive(struct zk_member *from, struct zk_member *to, struct zk_message *message);

static bool are_connected(const struct zk_member *a, const struct zk_member *b)
{
    return a == b || (!a->cut_off && !b->cut_off && !a->server->down && !b->server->down);
}

/* What was sent before a cut arrives when that is over, unless one side has hung up. */
static void pump(void *data)
{
    struct zk_pipe *pipe = data;
    pipe->pumping = false;
    while (pipe->first != NULL) {
        struct zk_message *message = pipe->first;
        bool blocked = !are_connected(pipe->from, pipe->to) || !server_runs(pipe->to->server);
        if (blocked || message->at_ns > world_now()) {
            pipe->pumping = true;
            world_at(blocked ? world_now() + PROBE_NS : message->at_ns, pump, pipe);
            return;
        }
        pipe->first = message->next;
        if (pipe->first == NULL)
            pipe->last = &pipe->first;
        receive(pipe->from, pipe->to, message);
    }
}

static void post(struct zk_pipe *pipe, const struct zk_message *message)
{
    struct zk_message *copy = world_alloc(sizeof *copy);
    uint64_t at_ns = world_now() + moment(pipe->from->ensemble);
    *copy = *message;
    copy->next = NULL;
    pipe->latest_ns = copy->at_ns = at_ns > pipe->latest_ns ? at_ns : pipe->latest_ns;
    *pipe->last = copy;
    pipe->last = &copy->next;
    if (!pipe->pumping) {
        pipe->pumping = true;
        world_at(copy->at_ns, pump, pipe);
    }
}

static void open_pipe(struct zk_pipe *pipe, struct zk_member *from, struct zk_member *to)
{
    pipe->from = from;
    pipe->to = to;
    pipe->first = NULL;
    pipe->last = &pipe->first;
}

static void hang_up(struct zk_member *follower)
{
    follower->up.first = follower->down.first = NULL;
    follower->up.last = &follower->up.first;
    follower->down.last = &follower->down.first;
}

/* ---- sessions, as the leader counts them ---- */

static struct tracked *find_tracked(const struct zk_reign *reign, int64_t id)
{
    struct tracked *session = reign->sessions;
    while (session != NULL && session->id != id)
        session = session->next;
    return session;
}

/* Servers end sessions at whole ticks, and never early. */
static uint64_t expiry(const struct zk_ensemble *ensemble, int32_t timeout_ms)
{
    uint64_t at_ns = world_now() + (uint64_t)timeout_ms * MS;
    return (at_ns / ensemble->tick_ns + 1) * ensemble->tick_ns;
}

static struct tracked *track(struct zk_reign *reign, int64_t id, int32_t timeout_ms)
{
    struct tracked *session = world_alloc(sizeof *session);
    *session = (struct tracked){
        .next = reign->sessions, .id = id, .expires_ns = expiry(reign->ensemble, timeout_ms)};
    reign->sessions = session;
    return session;
}

static bool touch(struct zk_reign *reign, int64_t id, int32_t timeout_ms)
{
    struct tracked *session = find_tracked(reign, id);
    if (session == NULL || session->closing)
        return false;
    session->expires_ns = expiry(reign->ensemble, timeout_ms);
    return true;
}

/* The session must be alive, and its client connected to this member. */
static int check_session(struct zk_reign *reign, int64_t id, const struct zk_member *member)
{
    struct tracked *session = find_tracked(reign, id);
    if (session == NULL || session->closing)
        return ZSESSIONEXPIRED;
    if (session->owner == NULL)
        session->owner = member;
    return session->owner == member ? ZOK : ZSESSIONMOVED;
}

static bool validate(struct zk_reign *reign, struct zk_member *member,
                     const struct zk_touched *asked)
{
    if (!touch(reign, asked->id, asked->timeout_ms))
        return false;
    find_tracked(reign, asked->id)->owner = member;
    return true;
}

/* ---- applying ---- */

static void apply(struct zk_member *member, struct zk_txn *txn)
{
    member->applied = txn;
    zk_txn_apply(txn, &member->tree, member->ensemble->changed, member);
    member->ensemble->applied(member, txn);
}

/* ---- proposing ---- */

static unsigned bit(const struct zk_member *member)
{
    return 1u << member->number;
}

static bool is_majority(const struct zk_ensemble *ensemble, unsigned members)
{
    return (unsigned)__builtin_popcount(members) > ensemble->n / 2;
}

/* One that has turned to another leader has hung up. */
static bool is_follower(const struct zk_reign *reign, const struct zk_member *member)
{
    return reign->follows[member->number] && member->reign == reign;
}

static void tell_all(struct zk_reign *reign, enum message_kind kind, struct zk_txn *txn)
{
    for (unsigned i = 0; i < reign->ensemble->n; i++) {
        struct zk_member *member = &reign->ensemble->members[i];
        if (is_follower(reign, member))
            post(&member->down, &(struct zk_message){.kind = kind, .txn = txn});
    }
}

static void answer_sync(struct zk_reign *reign, struct zk_member *member, void *request,
                        unsigned term)
{
    if (member == reign->leader && member->term == term)
        member->ensemble->synced(member, request);
    else if (is_follower(reign, member))
        post(&member->down, &(struct zk_message){.kind = SYNCED, .request = request, .term = term});
}

static void answer_syncs(struct zk_reign *reign, const struct zk_txn *txn)
{
    while (reign->syncs != NULL && reign->syncs->behind == txn) {
        struct waiting_sync *sync = reign->syncs;
        reign->syncs = sync->next;
        if (reign->syncs == NULL)
            reign->last_sync = &reign->syncs;
        answer_sync(reign, sync->member, sync->request, sync->term);
    }
}

static void commit(struct zk_reign *reign, struct zk_txn *txn)
{
    reign->first = txn->next;
    if (reign->first == NULL)
        reign->last = &reign->first;
    reign->ensemble->agreed = txn;
    tell_all(reign, COMMIT, txn);
    apply(reign->leader, txn);
    answer_syncs(reign, txn);
}

static void commit_ready(struct zk_reign *reign)
{
    while (!reign->over && reign->first != NULL && is_majority(reign->ensemble, reign->first->acks))
        commit(reign, reign->first);
}

struct own_ack {
    struct zk_reign *reign;
    struct zk_txn *txn;
};

static void acknowledge_own(void *data)
{
    struct own_ack *ack = data;
    struct zk_reign *reign = ack->reign;
    if (!reign->over && !server_runs(reign->leader->server)) {
        world_at(world_now() + PROBE_NS, acknowledge_own, ack);
        return;
    }
    if (reign->over)
        return;
    reign->leader->synced = ack->txn;
    ack->txn->acks |= bit(reign->leader);
    commit_ready(reign);
}

static void log_own(struct zk_reign *reign, struct zk_txn *txn)
{
    struct own_ack *ack = world_alloc(sizeof *ack);
    *ack = (struct own_ack){reign, txn};
    txn->before = reign->leader->logged;
    reign->leader->logged = txn;
    world_at(world_now() + moment(reign->ensemble), acknowledge_own, ack);
}

void zk_reign_propose(struct zk_reign *reign, struct zk_txn *txn)
{
    txn->zxid = ++reign->zxid;
    txn->time_ms = zk_member_clock_ms(reign->leader);
    txn->acks = 0;
    if (txn->rc == ZOK)
        zk_txn_prepare(txn, &reign->proposed);
    zk_txn_apply(txn, &reign->proposed, NULL, NULL);
    txn->next = NULL;
    *reign->last = txn;
    reign->last = &txn->next;
    log_own(reign, txn);
    tell_all(reign, PROPOSAL, txn);
}

struct zk_txn *zk_txn_new(enum zk_op_kind kind, int64_t session, const char *path)
{
    struct zk_txn *txn = world_alloc(sizeof *txn);
    txn->ops = world_alloc(sizeof *txn->ops);
    *txn->ops = (struct zk_op){.kind = kind, .path = path, .version = -1};
    txn->session = session;
    txn->n = 1;
    return txn;
}

void zk_reign_end_session(struct zk_reign *reign, struct tracked *session)
{
    session->closing = true;
    zk_reign_propose(reign, zk_txn_new(ZK_OP_CLOSE_SESSION, session->id, NULL));
}

static void expire_sessions(struct zk_reign *reign)
{
    for (struct tracked *session = reign->sessions; session != NULL; session = session->next) {
        if (session->closing || session->expires_ns > world_now())
            continue;
        world_trace("%s: session %" PRIx64 " has expired", reign->leader->server->host,
                    (uint64_t)session->id);
        zk_reign_end_session(reign, session);
    }
}

/* ---- what clients ask, at the leader ---- */

static void take_request(struct zk_reign *reign, struct zk_member *member, struct zk_txn *txn)
{
    struct tracked *session = find_tracked(reign, txn->session);
    enum zk_op_kind kind = txn->ops[0].kind;
    if (kind == ZK_OP_OPEN_SESSION)
        track(reign, txn->session, txn->ops[0].timeout_ms)->owner = member;
    else if (kind != ZK_OP_CLOSE_SESSION)
        txn->rc = check_session(reign, txn->session, member);
    else if (session != NULL)
        session->closing = true;
    zk_reign_propose(reign, txn);
}

/* Of a leader it has no answer before what is proposed so far is agreed on; it asks no majority. */
static void take_sync(struct zk_reign *reign, struct zk_member *member, void *request,
                      unsigned term)
{
    if (reign->first == NULL) {
        answer_sync(reign, member, request, term);
        return;
    }
    struct waiting_sync *sync = world_alloc(sizeof *sync);
    *sync = (struct waiting_sync){.member = member,
                                  .behind = container_of(reign->last, struct zk_txn, next),
                                  .request = request,
                                  .term = term};
    *reign->last_sync = sync;
    reign->last_sync = &sync->next;
}

static void take_touched(struct zk_reign *reign, const struct zk_touched *touched)
{
    for (; touched != NULL; touched = touched->next)
        touch(reign, touched->id, touched->timeout_ms);
}

/* ---- receiving ---- */

static void receive_as_leader(struct zk_reign *reign, struct zk_member *follower,
                              struct zk_message *message)
{
    reign->silent_ns[follower->number] = 0;
    switch (message->kind) {
    case ASKED:
        take_request(reign, follower, message->txn);
        break;
    case SYNC:
        take_sync(reign, follower, message->request, message->term);
        break;
    case VALIDATE:
        post(&follower->down,
             &(struct zk_message){.kind = VALIDATED,
                                  .request = message->request,
                                  .term = message->term,
                                  .valid = validate(reign, follower, &message->session)});
        break;
    case ACK:
        message->txn->acks |= bit(follower);
        commit_ready(reign);
        break;
    default:
        take_touched(reign, message->touched);
    }
}

/* The sessions that it has heard from go up with every beat of its leader. */
static void answer_beat(struct zk_member *follower)
{
    post(&follower->up, &(struct zk_message){.kind = BEAT, .touched = follower->touched});
    follower->touched = NULL;
}

static void receive_as_follower(struct zk_member *follower, const struct zk_message *message)
{
    const struct zk_ensemble *ensemble = follower->ensemble;
    follower->silent_ns = 0;
    switch (message->kind) {
    case PROPOSAL:
        follower->logged = follower->synced = message->txn;
        post(&follower->up, &(struct zk_message){.kind = ACK, .txn = message->txn});
        break;
    case COMMIT:
        apply(follower, message->txn);
        break;
    case SYNCED:
        if (message->term == follower->term)
            ensemble->synced(follower, message->request);
        break;
    case VALIDATED:
        if (message->term == follower->term)
            ensemble->validated(follower, message->request, message->valid);
        break;
    default:
        answer_beat(follower);
    }
}

static void receive(struct zk_member *from, struct zk_member *to, struct zk_message *message)
{
    struct zk_reign *reign = to->reign;
    if (reign == NULL || reign->over)
        return;
    if (to == reign->leader && is_follower(reign, from))
        receive_as_leader(reign, from, message);
    else if (to != reign->leader)
        receive_as_follower(to, message);
}

/* ---- what a member asks ---- */

void zk_member_propose(struct zk_member *member, struct zk_txn *txn)
{
    if (member->role == ZK_LEADING)
        take_request(member->reign, member, txn);
    else if (member->role == ZK_FOLLOWING)
        post(&member->up, &(struct zk_message){.kind = ASKED, .txn = txn, .term = member->term});
}

void zk_member_sync(struct zk_member *member, void *request)
{
    if (member->role == ZK_LEADING)
        take_sync(member->reign, member, request, member->term);
    else if (member->role == ZK_FOLLOWING)
        post(&member->up,
             &(struct zk_message){.kind = SYNC, .request = request, .term = member->term});
}

void zk_member_validate(struct zk_member *member, void *request, int64_t session,
                        int32_t timeout_ms)
{
    const struct zk_touched asked = {.id = session, .timeout_ms = timeout_ms};
    if (member->role == ZK_LEADING)
        member->ensemble->validated(member, request, validate(member->reign, member, &asked));
    else if (member->role == ZK_FOLLOWING)
        post(&member->up,
             &(struct zk_message){
                 .kind = VALIDATE, .request = request, .session = asked, .term = member->term});
}

void zk_member_touch(struct zk_member *member, int64_t session, int32_t timeout_ms)
{
    if (member->role == ZK_LEADING) {
        touch(member->reign, session, timeout_ms);
        return;
    }
    for (struct zk_touched *each = member->touched; each != NULL; each = each->next) {
        if (each->id == session)
            return;
    }
    struct zk_touched *touched = world_alloc(sizeof *touched);
    *touched = (struct zk_touched){member->touched, session, timeout_ms};
    member->touched = touched;
}

/* ---- the end of a reign ---- */

void zk_member_stop_serving(struct zk_member *member)
{
    if (member->role == ZK_LOOKING)
        return;
    struct zk_reign *reign = member->reign;
    world_trace("%s no longer %s", member->server->host,
                member->role == ZK_LEADING ? "leads" : "follows");
    if (member->role == ZK_LEADING)
        reign->over = true;
    hang_up(member);
    member->role = ZK_LOOKING;
    member->reign = NULL;
    member->touched = NULL;
    member->looks_ns = world_now();
    member->term++;
    member->ensemble->stopped(member);
}

/* Its leader has gone or has hung up, or was not heard for too long. */
static bool has_lost_leader(const struct zk_member *member)
{
    const struct zk_reign *reign = member->reign;
    bool hung_up = reign->over || !reign->follows[member->number];
    return (hung_up && are_connected(member, reign->leader)) ||
           (hung_up && reign->leader->server->down && !member->cut_off) ||
           member->silent_ns > ZK_LIMIT_TICKS * member->ensemble->tick_ns;
}

static bool has_left(const struct zk_reign *reign, const struct zk_member *member)
{
    return member->reign != reign && (are_connected(member, reign->leader) ||
                                      (member->server->down && !reign->leader->cut_off));
}

static unsigned count_followers(struct zk_reign *reign)
{
    struct zk_ensemble *ensemble = reign->ensemble;
    unsigned members = bit(reign->leader);
    for (unsigned i = 0; i < ensemble->n; i++) {
        struct zk_member *member = &ensemble->members[i];
        if (!reign->follows[i])
            continue;
        if (has_left(reign, member) || reign->silent_ns[i] > ZK_LIMIT_TICKS * ensemble->tick_ns)
            reign->follows[i] = false;
        else
            members |= bit(member);
    }
    return members;
}

/* Twice in a tick. */
static void beat(void *data)
{
    struct zk_reign *reign = data;
    struct zk_ensemble *ensemble = reign->ensemble;
    if (reign->over || ensemble->over)
        return;
    if (!server_runs(reign->leader->server)) { /* one that continues is late, and beats at once */
        world_at(world_now() + PROBE_NS, beat, reign);
        return;
    }
    world_at(world_now() + ensemble->tick_ns / 2, beat, reign);
    if (!is_majority(ensemble, count_followers(reign))) {
        zk_member_stop_serving(reign->leader);
        return;
    }
    for (unsigned i = 0; i < ensemble->n; i++)
        reign->silent_ns[i] += ensemble->tick_ns / 2;
    tell_all(reign, BEAT, NULL);
}

/* ---- empty containers ---- */

struct containers {
    struct zk_reign *reign;
    const char *paths[8];
    size_t n;
};

static void note_container(struct zk_node *node, void *data)
{
    struct containers *found = data;
    if (node->stat.ephemeral_owner == ZK_CONTAINER_OWNER && node->stat.cversion > 0 &&
        node->first == NULL && found->n < sizeof found->paths / sizeof *found->paths)
        found->paths[found->n++] = zk_node_path(node);
}

static void remove_containers(void *data)
{
    struct zk_reign *reign = data;
    struct containers found = {.reign = reign};
    if (reign->over || reign->ensemble->over)
        return;
    world_at(world_now() + reign->ensemble->containers_ns, remove_containers, reign);
    if (!server_runs(reign->leader->server))
        return;
    zk_tree_walk(reign->leader->tree.root, note_container, &found);
    for (size_t i = 0; i < found.n; i++)
        zk_reign_propose(reign, zk_txn_new(ZK_OP_DELETE_CONTAINER, 0, found.paths[i]));
}

/* ---- the beginning of a reign ---- */

static void apply_log(struct zk_member *member, struct zk_txn *txn)
{
    if (txn == NULL || txn == member->applied)
        return;
    apply_log(member, txn->before);
    apply(member, txn);
}

/* It has no clients yet, so nobody sees how it catches up. */
static void follow(struct zk_member *member, struct zk_reign *reign)
{
    member->role = ZK_FOLLOWING;
    member->reign = reign;
    member->silent_ns = reign->silent_ns[member->number] = 0;
    member->logged = member->synced = reign->leader->logged;
    member->applied = reign->leader->applied;
    zk_tree_copy(&member->tree, &reign->leader->tree);
    reign->follows[member->number] = true;
    open_pipe(&member->up, member, reign->leader);
    open_pipe(&member->down, reign->leader, member);
    for (struct zk_txn *txn = reign->first; txn != NULL; txn = txn->next)
        txn->acks |= bit(member);
    world_trace("%s follows %s", member->server->host, reign->leader->server->host);
    commit_ready(reign);
}

bool zk_log_has(const struct zk_txn *at, const struct zk_txn *txn)
{
    while (at != NULL && at != txn)
        at = at->before;
    return at == txn;
}

/* What it has becomes what is agreed on. A single server continues to count where it was. */
static void lead(struct zk_member *member)
{
    struct zk_ensemble *ensemble = member->ensemble;
    struct zk_reign *reign = world_alloc(sizeof *reign);
    *reign = (struct zk_reign){.ensemble = ensemble, .leader = member};
    ensemble->forgot |= !zk_log_has(member->logged, ensemble->agreed);
    member->synced = ensemble->agreed = member->logged;
    apply_log(member, member->logged);
    if (ensemble->n > 1)
        member->tree.zxid = ++ensemble->epoch << 32;
    reign->zxid = member->tree.zxid;
    reign->last = &reign->first;
    reign->last_sync = &reign->syncs;
    zk_tree_copy(&reign->proposed, &member->tree);
    for (const struct zk_live_session *each = member->tree.sessions; each; each = each->next)
        track(reign, each->id, each->timeout_ms);
    member->role = ZK_LEADING;
    ensemble->reign = member->reign = reign;
    world_trace("%s leads, from zxid %" PRIx64, member->server->host, (uint64_t)reign->zxid);
    world_at(world_now() + random_below(&ensemble->random, ensemble->tick_ns / 2), beat, reign);
    world_at(world_now() + ensemble->containers_ns, remove_containers, reign);
}

/* ---- elections ---- */

static bool can_vote(const struct zk_member *member)
{
    return member->role == ZK_LOOKING && server_runs(member->server) &&
           world_now() >= member->looks_ns && (!member->cut_off || member->ensemble->n == 1);
}

static int64_t last_zxid(const struct zk_member *member)
{
    return member->logged != NULL ? member->logged->zxid : 0;
}

static void elect(struct zk_ensemble *ensemble)
{
    struct zk_member *best = NULL;
    for (unsigned i = 0; i < ensemble->n; i++) {
        struct zk_member *member = &ensemble->members[i];
        if (can_vote(member) && (best == NULL || last_zxid(member) >= last_zxid(best)))
            best = member;
    }
    lead(best);
    for (unsigned i = 0; i < ensemble->n; i++) {
        if (can_vote(&ensemble->members[i]))
            follow(&ensemble->members[i], best->reign);
    }
}

static unsigned count_voters(const struct zk_ensemble *ensemble)
{
    unsigned voters = 0;
    for (unsigned i = 0; i < ensemble->n; i++) {
        if (can_vote(&ensemble->members[i]))
            voters |= bit(&ensemble->members[i]);
    }
    return voters;
}

static void look_for_leader(struct zk_ensemble *ensemble)
{
    if (!is_majority(ensemble, count_voters(ensemble))) {
        ensemble->elects_ns = 0;
    } else if (ensemble->elects_ns == 0) {
        ensemble->elects_ns =
            world_now() + random_between(&ensemble->random, ELECT_MIN_NS, ELECT_MAX_NS);
    } else if (world_now() >= ensemble->elects_ns) {
        ensemble->elects_ns = 0;
        elect(ensemble);
    }
}

/* Another one leads already: it is found a little later. */
static void join(struct zk_member *member)
{
    struct zk_reign *reign = member->ensemble->reign;
    if (reign != NULL && !reign->over && can_vote(member) && server_runs(reign->leader->server) &&
        are_connected(member, reign->leader) &&
        random_once_in(&member->ensemble->random, JOIN_MAX_NS / LOOK_NS / 2))
        follow(member, reign);
}

static void look_at(struct zk_member *member)
{
    if (!server_runs(member->server))
        return;
    if (member->role == ZK_FOLLOWING) {
        member->silent_ns += LOOK_NS;
        if (has_lost_leader(member))
            zk_member_stop_serving(member);
    } else if (member->role == ZK_LEADING) {
        expire_sessions(member->reign);
    } else {
        join(member);
    }
}

static void look(void *data)
{
    struct zk_ensemble *ensemble = data;
    if (ensemble->over)
        return;
    world_at(world_now() + LOOK_NS, look, ensemble);
    for (unsigned i = 0; i < ensemble->n; i++)
        look_at(&ensemble->members[i]);
    look_for_leader(ensemble);
}

/* ---- its life ---- */

void zk_ensemble_begin(struct zk_ensemble *ensemble, unsigned n, uint64_t tick_ns)
{
    ensemble->n = n;
    ensemble->random = random_stream(world_seed(), 6);
    ensemble->tick_ns = tick_ns;
    ensemble->least_ms = (int32_t)(2 * tick_ns / MS);
    ensemble->most_ms = 10 * ensemble->least_ms;
    ensemble->containers_ns = random_between(&ensemble->random, 500 * MS, 60 * SEC);
    for (unsigned i = 0; i < n; i++) {
        struct zk_member *member = &ensemble->members[i];
        member->ensemble = ensemble;
        member->number = i;
        zk_tree_begin(&member->tree);
    }
    zk_tree_begin(&ensemble->saved);
    elect(ensemble);
    world_at(LOOK_NS, look, ensemble);
}

void zk_ensemble_end(struct zk_ensemble *ensemble)
{
    ensemble->over = true;
}

struct zk_member *zk_ensemble_leader(const struct zk_ensemble *ensemble)
{
    struct zk_reign *reign = ensemble->reign;
    return reign != NULL && !reign->over && server_runs(reign->leader->server) ? reign->leader
                                                                               : NULL;
}
