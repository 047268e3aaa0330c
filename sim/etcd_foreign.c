/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/etcd_foreign.h"

#include <string.h>

#include "base/container.h"
#include "sim/foreign.h"

#define PATIENCE_NS (2 * SEC)  /* for an answer */
#define LOOK_NS     (1 * SEC)  /* how often a program looks whether its member is still there */
#define RETRY_NS    (100 * MS) /* before it asks the next member */

struct program;
struct call;

struct operation {
    const char *text;
    bool writes;
    enum etcd_refusal (*execute)(struct call *call, struct etcd_store *store, int64_t revision);
    void (*answered)(struct program *program, const struct call *call);
};

struct program {
    struct foreign foreign;
    struct etcd_member *member;
    const char *key;          /* its own */
    int64_t lease;            /* 0: none was granted */
    int64_t revision;         /* that created its key; 0: unknown */
    const char *watched;      /* a key, until it goes; NULL: none */
    int64_t watched_revision; /* that created it */
    struct call *call;        /* that it waits for; NULL: none */
    uint64_t renewing_ns;     /* when it sent its last keep-alive */
};

/* A request. It may be executed when its program has long done something else. */
struct call {
    struct etcd_task task;
    struct program *program;
    const struct operation *operation;
    uint64_t cycle, sent_ns;
    bool arrived, done;
    enum etcd_refusal refusal;
    const char *key; /* what is asked for */
    int64_t lease, ttl_s, revision;
    const char *found; /* what is answered; NULL: nothing */
    int64_t found_revision, own_revision;
};

static struct {
    struct etcd_cluster *cluster;
    void (*applied)(struct etcd_member *member); /* of the server */
    struct program *programs[FOREIGN_MAX];
    unsigned n;
} others;

static struct program *program_of(struct foreign *foreign)
{
    return container_of(foreign, struct program, foreign);
}

static void after(struct program *program, uint64_t ns, foreign_fn *fn)
{
    foreign_at(&program->foreign, world_now() + ns, fn);
}

static uint64_t moment(struct program *program)
{
    return foreign_moment(&program->foreign);
}

/* ---- requests ---- */

static void send(struct program *program, const struct operation *operation);

static void look_again(struct foreign *foreign);

static void notice(struct program *program)
{
    program->watched = NULL;
    after(program, moment(program), look_again);
}

/* What it watches it has to look at again. */
static void turn_to_next(struct program *program)
{
    struct etcd_cluster *cluster = others.cluster;
    size_t at = (size_t)(program->member - cluster->members);
    program->member = &cluster->members[(at + 1) % cluster->n];
    if (program->watched != NULL)
        notice(program);
}

static void send_again(struct foreign *foreign)
{
    struct program *program = program_of(foreign);
    const struct call *call = program->call;
    if (call == NULL || call->cycle != foreign->cycle ||
        (!call->done && world_now() < call->sent_ns + PATIENCE_NS))
        return;
    turn_to_next(program);
    send(program, call->operation);
}

static void take_answer(struct foreign *foreign)
{
    struct program *program = program_of(foreign);
    const struct call *call = program->call;
    if (call == NULL || !call->done || call->cycle != foreign->cycle)
        return;
    if (call->refusal == REFUSED_NONE) {
        program->call = NULL;
        call->operation->answered(program, call);
    } else if (call->refusal == REFUSED_NO_LEASE && foreign->state == ENTERING) {
        foreign_lose(foreign);
    } else if (call->refusal == REFUSED_NO_LEASE) {
        foreign_left(foreign);
    } else {
        after(program, RETRY_NS, send_again);
    }
}

static enum etcd_refusal execute(struct etcd_task *task, int64_t revision)
{
    struct call *call = container_of(task, struct call, task);
    struct etcd_store *store = &others.cluster->store;
    return call->operation->execute(call, store, task->writes ? store->revision + 1 : revision);
}

static void done(struct etcd_task *task, enum etcd_refusal refusal)
{
    struct call *call = container_of(task, struct call, task);
    world_trace("%s from f%u: %s %s: %s", task->member->server->host, call->program->foreign.client,
                call->operation->text, call->key,
                refusal == REFUSED_NONE ? "ok" : etcd_refusal_words(refusal));
    call->done = true;
    call->refusal = refusal;
    if (call == call->program->call)
        after(call->program, moment(call->program), take_answer);
}

static void arrive(struct foreign *foreign)
{
    struct call *call = program_of(foreign)->call;
    if (call == NULL || call->arrived || call->task.member->server->down)
        return;
    call->arrived = true;
    etcd_task_start(&call->task);
}

static struct call *new_call(struct program *program, const struct operation *operation)
{
    struct call *call = world_alloc(sizeof *call);
    *call = (struct call){.task = {.member = program->member,
                                   .writes = operation->writes,
                                   .run = execute,
                                   .done = done},
                          .program = program,
                          .operation = operation,
                          .cycle = program->foreign.cycle,
                          .sent_ns = world_now(),
                          .key = program->key,
                          .lease = program->lease,
                          .ttl_s = (int64_t)(program->foreign.ttl_ns / SEC),
                          .revision = program->revision};
    return call;
}

static void send(struct program *program, const struct operation *operation)
{
    program->call = new_call(program, operation);
    after(program, moment(program), arrive);
    after(program, PATIENCE_NS, send_again);
}

/* ---- keys ---- */

static etcd_bytes bytes_of(const char *text)
{
    return (etcd_bytes){.len = strlen(text), .data = (uint8_t *)text};
}

/* The revision that created the key, if it is there at that revision; else 0. */
static int64_t created(const struct etcd_store *store, const char *key, int64_t revision)
{
    etcd_bytes name = bytes_of(key);
    size_t at = etcd_store_find(store, name);
    if (at == store->n_keys || etcd_bytes_compare(store->keys[at]->name, name) != 0)
        return 0;
    const struct etcd_version *version = etcd_version_at(store->keys[at], revision);
    return version != NULL ? version->created : 0;
}

/* The last key of its name that was created before its own, or the first. */
static void find(struct call *call, const struct etcd_store *store, int64_t revision, bool first)
{
    size_t n = (size_t)(strrchr(call->key, '/') - call->key) + 1;
    for (size_t i = 0; i < store->n_keys; i++) {
        const struct etcd_version *version = etcd_version_at(store->keys[i], revision);
        etcd_bytes name = store->keys[i]->name;
        if (version == NULL || name.len < n || memcmp(name.data, call->key, n) != 0)
            continue;
        if (first ? call->found != NULL && version->created >= call->found_revision
                  : version->created >= call->revision || version->created < call->found_revision)
            continue;
        call->found = world_print("%.*s", (int)name.len, (const char *)name.data);
        call->found_revision = version->created;
    }
}

static enum etcd_refusal put_if_missing(struct call *call, struct etcd_store *store,
                                        int64_t revision)
{
    if (created(store, call->key, revision) == 0) {
        if (etcd_store_lease(store, call->lease, store->index) == NULL)
            return REFUSED_NO_LEASE;
        etcd_store_put(store, bytes_of(call->key), bytes_of(""), call->lease);
        call->own_revision = created(store, call->key, revision);
    }
    return REFUSED_NONE;
}

/* ---- leases ---- */

static void keep_alive(struct foreign *foreign);

static void renew(struct foreign *foreign)
{
    struct program *program = program_of(foreign);
    int64_t ttl_s = 0;
    enum etcd_renewal answer = ETCD_RENEW_LATER;
    if (foreign->state == LEAVING)
        return;
    if (etcd_member_runs(program->member))
        answer = etcd_member_renew(program->member, program->lease, &ttl_s);
    if (answer == ETCD_LEASE_GONE) {
        foreign_lose(foreign);
        return;
    }
    if (answer == ETCD_RENEWED)
        foreign_renewed(foreign, program->renewing_ns + (uint64_t)ttl_s * SEC);
    else
        turn_to_next(program);
    after(program, answer == ETCD_RENEWED ? foreign->ttl_ns / 3 : RETRY_NS, keep_alive);
}

static void keep_alive(struct foreign *foreign)
{
    struct program *program = program_of(foreign);
    program->renewing_ns = world_now();
    after(program, moment(program), renew);
}

static enum etcd_refusal execute_grant(struct call *call, struct etcd_store *store,
                                       int64_t revision)
{
    (void)revision;
    call->lease = (int64_t)(random_next(&call->program->foreign.random) >> 1 | 1);
    struct etcd_lease *lease = etcd_store_grant(store, call->lease, call->ttl_s);
    lease->expires_ns = world_now() + (uint64_t)call->ttl_s * SEC;
    return REFUSED_NONE;
}

static enum etcd_refusal execute_revoke(struct call *call, struct etcd_store *store,
                                        int64_t revision)
{
    struct etcd_lease *lease = etcd_store_lease(store, call->lease, store->index);
    (void)revision;
    if (lease == NULL)
        return REFUSED_NO_LEASE;
    etcd_store_revoke(store, lease);
    return REFUSED_NONE;
}

static void revoked(struct program *program, const struct call *call)
{
    (void)call;
    foreign_left(&program->foreign);
}

static const struct operation revoke = {"revoke", true, execute_revoke, revoked};

static void begin_session(struct program *program, const struct call *call)
{
    program->lease = call->lease;
    foreign_renewed(&program->foreign, call->sent_ns + program->foreign.ttl_ns);
    after(program, program->foreign.ttl_ns / 3, keep_alive);
}

/* ---- watches ---- */

static bool is_gone(const struct program *program)
{
    return created(&others.cluster->store, program->watched,
                   etcd_member_revision(program->member)) != program->watched_revision;
}

static void watch(struct program *program, const char *key, int64_t revision)
{
    program->watched = key;
    program->watched_revision = revision;
    if (is_gone(program))
        notice(program);
}

static void on_applied(struct etcd_member *member)
{
    others.applied(member);
    for (unsigned i = 0; i < others.n; i++) {
        struct program *program = others.programs[i];
        enum foreign_state state = program->foreign.state;
        if ((state == ENTERING || state == HOLDING) && program->watched != NULL &&
            program->member == member && is_gone(program))
            notice(program);
    }
}

/* A watch of a member that says nothing any longer is begun anew at the next one. */
static void look_at_member(struct foreign *foreign)
{
    struct program *program = program_of(foreign);
    after(program, LOOK_NS, look_at_member);
    if (!etcd_member_runs(program->member) || !etcd_member_sees_leader(program->member))
        turn_to_next(program);
}

/* ---- a Mutex ---- */

static enum etcd_refusal execute_enter(struct call *call, struct etcd_store *store,
                                       int64_t revision)
{
    enum etcd_refusal refusal = put_if_missing(call, store, revision);
    call->own_revision = created(store, call->key, revision);
    find(call, store, revision, true);
    return refusal;
}

static enum etcd_refusal execute_find(struct call *call, struct etcd_store *store, int64_t revision)
{
    find(call, store, revision, false);
    return REFUSED_NONE;
}

static enum etcd_refusal execute_own(struct call *call, struct etcd_store *store, int64_t revision)
{
    call->own_revision = created(store, call->key, revision);
    return REFUSED_NONE;
}

static enum etcd_refusal execute_delete(struct call *call, struct etcd_store *store,
                                        int64_t revision)
{
    (void)revision;
    etcd_store_delete(store, bytes_of(call->key), (etcd_bytes){0});
    return REFUSED_NONE;
}

static void seen_own(struct program *program, const struct call *call)
{
    if (call->own_revision != program->revision) {
        foreign_lose(&program->foreign);
        return;
    }
    if (program->foreign.state == ENTERING)
        foreign_granted(&program->foreign, (uint64_t)program->revision);
    watch(program, program->key, program->revision);
}

static const struct operation own = {"get", false, execute_own, seen_own};

static void found_before(struct program *program, const struct call *call)
{
    if (call->found == NULL)
        send(program, &own);
    else
        watch(program, call->found, call->found_revision);
}

static const struct operation before = {"find what is before", false, execute_find, found_before};

static void look_again(struct foreign *foreign)
{
    struct program *program = program_of(foreign);
    if (program->call == NULL && (foreign->state == ENTERING || foreign->state == HOLDING))
        send(program, foreign->state == HOLDING ? &own : &before);
}

static void entered(struct program *program, const struct call *call)
{
    program->revision = call->own_revision;
    foreign_queued(&program->foreign);
    if (call->found_revision == call->own_revision) {
        foreign_granted(&program->foreign, (uint64_t)program->revision);
        watch(program, program->key, program->revision);
    } else if (!program->foreign.waits) {
        foreign_turn_away(&program->foreign);
    } else {
        send(program, &before);
    }
}

static const struct operation enter = {"put", true, execute_enter, entered};

static void started(struct program *program, const struct call *call)
{
    begin_session(program, call);
    program->key =
        world_print("%s/%llx", program->foreign.name, (unsigned long long)program->lease);
    send(program, &enter);
}

static const struct operation start = {"grant a lease", true, execute_grant, started};

/* What of its requests is still under way goes with its lease. */
static void deleted(struct program *program, const struct call *call)
{
    struct call *end = new_call(program, &revoke);
    (void)call;
    if (etcd_member_runs(program->member))
        etcd_task_start(&end->task);
    foreign_left(&program->foreign);
}

static const struct operation delete = {"delete", true, execute_delete, deleted};

static void begin_claim(struct program *program, const struct operation *operation)
{
    program->lease = program->revision = 0;
    program->watched = NULL;
    program->key = program->foreign.name;
    send(program, operation);
    after(program, LOOK_NS, look_at_member);
}

static void enter_mutex(struct foreign *foreign)
{
    begin_claim(program_of(foreign), &start);
}

static void leave_by(struct program *program, const struct operation *operation)
{
    program->watched = NULL;
    if (program->lease == 0)
        foreign_left(&program->foreign);
    else
        send(program, operation);
}

static void leave_mutex(struct foreign *foreign)
{
    leave_by(program_of(foreign), &delete);
}

static const struct foreign_class mutex_class = {.enter = enter_mutex, .leave = leave_mutex};

/* ---- npm's etcd3 ---- */

static void taken(struct program *program, const struct call *call)
{
    if (call->own_revision == 0) {
        foreign_turn_away(&program->foreign);
        return;
    }
    program->revision = call->own_revision;
    foreign_granted(&program->foreign, 0);
    watch(program, program->key, program->revision);
}

static const struct operation take = {"take", true, put_if_missing, taken};

static void started_plain(struct program *program, const struct call *call)
{
    begin_session(program, call);
    send(program, &take);
}

static const struct operation start_plain = {"grant a lease", true, execute_grant, started_plain};

static void enter_plain(struct foreign *foreign)
{
    begin_claim(program_of(foreign), &start_plain);
}

static void leave_plain(struct foreign *foreign)
{
    leave_by(program_of(foreign), &revoke);
}

static const struct foreign_class plain_class = {
    .enter = enter_plain, .leave = leave_plain, .never_waits = true, .ignores_holds = true};

/* ---- all of them ---- */

static struct foreign *make(void)
{
    struct program *program = world_alloc(sizeof *program);
    program->member = &others.cluster->members[others.n % others.cluster->n];
    others.programs[others.n++] = program;
    return &program->foreign;
}

static void begin(const struct foreign_class *class, struct etcd_cluster *cluster, uint64_t end_ns,
                  struct random *random)
{
    others.cluster = cluster;
    others.n = 0;
    others.applied = cluster->applied;
    cluster->applied = on_applied;
    foreign_begin(class, end_ns, random, make);
}

void etcd_foreign_begin_mutexes(struct etcd_cluster *cluster, uint64_t end_ns,
                                struct random *random)
{
    begin(&mutex_class, cluster, end_ns, random);
}

void etcd_foreign_begin_plain(struct etcd_cluster *cluster, uint64_t end_ns, struct random *random)
{
    begin(&plain_class, cluster, end_ns, random);
}
