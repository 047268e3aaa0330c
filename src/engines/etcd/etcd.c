/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* etcd: the keys and rules of Go's concurrency.Mutex and `etcdctl lock`, in the engine's contract.
 *
 * A claim is a key "<prefix><name>/<lease in hex>", bound to our lease. The server orders the keys
 * of a name by the revision that created them; the first one holds, and its revision is the token.
 * One transaction puts the key and reads what is before it: an uncontended claim needs no more.
 * Every other claim watches the last key in its way, and when that is deleted looks again, in one
 * step with the proof that its own key still exists.
 *
 * There is one lease for each TTL in use, kept alive for all locks together; its keys go with it.
 * Requests, keep-alives and watches share one HTTP/2 connection to one member; if that fails, the
 * next member takes over.
 *
 *     connection.c, http2.c          requests and streams to one member at a time
 *     session.c, watch.c             leases and watches, each over one stream
 *     requests.c, keys.c             what is sent: RPCs, transactions, keys
 *     acquire.c, queue.c, claim.c    a claim: to the grant, its place in the queue, to its end
 *     batch.c                        what many claims ask for in one transaction
 *     side_keys.c                    hold_at_least, lock-delay, etcd3's Lock
 *     inspect.c, break.c             list, show, watch, break
 *     reading.c, view.c              the keys of names, as claims in the order of the queue
 *     history.c                      the records of last holders
 *     proclaim.c                     another public value for a claim that is held
 *     cells.c, cell_list.c           cells and guards
 *     cell_found.c                   what the server has stored of them
 *     doctor_probe.c, doctor_rules.c examine
 */
#include "engines/etcd/etcd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/self.h"
#include "base/url.h"
#include "io/tls.h"

#define DEFAULT_PORT     2379
#define OPEN_PATIENCE_NS (5 * NS_PER_SEC)
#define OTHERS_NS        (200 * NS_PER_MS) /* for the other members, once one has answered */
#define ETCD_TIMERS      4
#define OLDEST_MINOR     4 /* of version 3: watches with ids of our own, transactions over ranges */

/* ---- the client, as `show` prints it ---- */

static void introduce(struct etcd *etcd)
{
    char host[SELF_HOST_MAX + 1], command[INFO_MAX / 2];
    self_host(host);
    self_command(command, sizeof command, etcd->engine.label);
    snprintf(etcd->info, sizeof etcd->info, "%lld %s %s", (long long)etcd->engine.pid, host,
             command);
    snprintf(etcd->self, sizeof etcd->self, "%lld@%s", (long long)etcd->engine.pid, host);
}

/* ---- the URL ---- */

static enum stile_status read_dialect(struct etcd *etcd, const char *dialect,
                                      struct stile_error *err)
{
    if (!dialect || strcmp(dialect, "mutex") == 0)
        return STILE_OK;
    etcd->rwmutex = strcmp(dialect, "rwmutex") == 0;
    etcd->plain_key = strcmp(dialect, "etcd3") == 0;
    if (!etcd->rwmutex && !etcd->plain_key)
        return error_set(err, STILE_MISUSE, 0, "dialect= is mutex, rwmutex or etcd3");
    if (etcd->plain_key)
        etcd_plain_set_caps(&etcd->engine.caps);
    return STILE_OK;
}

static enum stile_status read_path(struct etcd *etcd, const struct url *url,
                                   struct stile_error *err)
{
    const char *prefix = *url->path ? url->path + 1 : "";
    if (strlen(prefix) > PREFIX_MAX)
        return error_set(err, STILE_MISUSE, 0,
                         "the path, which is the prefix of all keys, has more "
                         "than %d bytes",
                         PREFIX_MAX);
    strcpy(etcd->prefix, prefix);
    return read_dialect(etcd, url_param(url, "dialect"), err);
}

static enum stile_status read_tls(struct etcd *etcd, const struct url *url, struct stile_error *err)
{
    struct tls_options tls = {.ca = url_param(url, "ca"),
                              .cert = url_param(url, "cert"),
                              .key = url_param(url, "key"),
                              .server_name = url_param(url, "server_name"),
                              .alpn = "h2"};
    enum stile_status status = url_param_bool(&tls.insecure, url, "insecure", err);
    if (status)
        return status;
    if (strcmp(url->scheme, "etcds") == 0)
        return tls_context_new(&etcd->tls, &tls, err);
    if (tls.ca || tls.cert || tls.key || tls.server_name || tls.insecure)
        return error_set(err, STILE_MISUSE, 0, "TLS parameters need an etcds:// URL");
    return STILE_OK;
}

static void read_hosts(struct conn_options *options, const struct url *url)
{
    options->n_endpoints = url->n_hosts ? url->n_hosts : 1;
    options->endpoints[0] = (struct conn_endpoint){"127.0.0.1", DEFAULT_PORT};
    for (size_t i = 0; i < url->n_hosts; i++)
        options->endpoints[i] = (struct conn_endpoint){
            url->hosts[i].host, url->hosts[i].port ? url->hosts[i].port : DEFAULT_PORT};
}

static void choose_record_leases(struct etcd *etcd, const char *user)
{
    etcd->record_leases = fnv_add(FNV_START, etcd->prefix, strlen(etcd->prefix) + 1);
    if (user)
        etcd->record_leases = fnv_add(etcd->record_leases, user, strlen(user));
}

/* ---- the connection ---- */

static void on_up(struct conn *conn)
{
    etcd_watches_restart(etcd_conn_owner(conn));
}

static void on_down(struct conn *conn, const struct stile_error *why)
{
    struct etcd *etcd = etcd_conn_owner(conn);
    (void)why; /* reported to each request and stream */
    etcd->interruptions++;
    etcd_session_audit_later(etcd);
}

static uint64_t patience_ns(const struct conn *conn)
{
    return etcd_session_patience_ns(etcd_conn_owner(conn));
}

static const struct conn_events conn_events = {
    .up = on_up, .down = on_down, .patience_ns = patience_ns};

static enum stile_status connect_to(struct etcd *etcd, const struct url *url,
                                    struct stile_error *err)
{
    char secret[URL_SECRET_MAX];
    struct conn_options options = {.tls = etcd->tls, .password = url->password};
    enum stile_status status = url_secret(&options.password, url, "password_file", secret, err);
    options.user = url->user && *url->user ? url->user : NULL;
    choose_record_leases(etcd, options.user);
    if (!status && options.password && !options.user)
        status = error_set(err, STILE_MISUSE, 0,
                           "a password is given without its user: etcd://user:password@host");
    read_hosts(&options, url);
    etcd->n_members = options.n_endpoints;
    if (!status)
        status = etcd_conn_new(&etcd->conn, etcd->engine.loop, &options, &conn_events, etcd, err);
    explicit_bzero(secret, sizeof secret);
    return status;
}

/* ---- whether all endpoints of the URL belong to one cluster ----
 *
 * At open, each is asked beside the connection, all at once; those that do not answer in time are
 * checked when the connection comes to them (connection.h). */

struct members {
    struct etcd *etcd;
    size_t n, pending;
    struct member {
        struct members *members;
        struct conn *conn;
        uint64_t cluster_id; /* 0: it has not answered */
    } each[];
};

static void ignore_up(struct conn *conn)
{
    (void)conn;
}

static void ignore_down(struct conn *conn, const struct stile_error *why)
{
    (void)conn, (void)why; /* reported to its request */
}

static const struct conn_events member_events = {.up = ignore_up, .down = ignore_down};

static void look_soon(struct etcd *etcd)
{
    loop_soon(etcd->engine.loop, &etcd->opening.look);
}

static void on_member_status(void *data, const ProtobufCMessage *answer,
                             const struct stile_error *err)
{
    struct member *member = data;
    const Etcd__StatusResponse *status = (const Etcd__StatusResponse *)answer;
    member->members->pending--;
    if (!err && status->header)
        member->cluster_id = status->header->cluster_id;
    look_soon(member->members->etcd);
}

static void ask_member(struct members *members, const struct etcd *etcd, size_t endpoint)
{
    Etcd__StatusRequest request = ETCD__STATUS_REQUEST__INIT;
    struct member *member = &members->each[members->n];
    struct stile_error err;
    member->members = members;
    if (etcd_conn_new_to(&member->conn, etcd->conn, endpoint, true, &member_events, member, &err))
        return;
    members->n++;
    if (etcd_conn_request(member->conn, RPC_STATUS, &request.base, on_member_status, member,
                          &err) == STILE_OK)
        members->pending++;
}

/* The first one is where the connection goes by itself. */
static struct members *ask_members(struct etcd *etcd)
{
    size_t n = etcd->n_members - 1;
    struct members *members = n ? calloc(1, sizeof *members + n * sizeof(struct member)) : NULL;
    if (members)
        members->etcd = etcd;
    for (size_t i = 1; members && i <= n; i++)
        ask_member(members, etcd, i);
    return members;
}

static bool members_answered(const struct members *members)
{
    return !members || members->pending == 0;
}

static enum stile_status compare_members(const struct members *members, uint64_t cluster_id,
                                         struct stile_error *err)
{
    for (size_t i = 0; members && i < members->n; i++) {
        const struct member *member = &members->each[i];
        if (cluster_id && member->cluster_id && member->cluster_id != cluster_id)
            return error_set(err, STILE_REFUSED, 0,
                             "%s belongs to another cluster than the other members (%llx and "
                             "%llx): two programs could hold one lock; name members of one "
                             "cluster",
                             etcd_conn_address(member->conn),
                             (unsigned long long)member->cluster_id,
                             (unsigned long long)cluster_id);
    }
    return STILE_OK;
}

static void fork_members(struct members *members)
{
    for (size_t i = 0; members && i < members->n; i++)
        etcd_conn_forked(members->each[i].conn);
}

static void free_members(struct members *members)
{
    for (size_t i = 0; members && i < members->n; i++)
        etcd_conn_free(members->each[i].conn);
    free(members);
}

/* ---- opening ----
 *
 * A member is asked for its status, and the others for their cluster. Answers and the timer only
 * record what has happened: the next step is taken from the loop, where no connection is in use
 * that it may have to close. */

static void ask_status(struct etcd *etcd);

static void out_of_patience(struct timer *timer)
{
    struct etcd *etcd = container_of(timer, struct etcd, opening.patience);
    etcd->opening.late = true;
    look_soon(etcd);
}

static void begin_stage(struct etcd *etcd, enum opening_stage stage, uint64_t patience_ns)
{
    struct loop *loop = etcd->engine.loop;
    etcd->opening.stage = stage;
    etcd->opening.late = false;
    loop_arm(loop, &etcd->opening.patience, loop_now(loop) + patience_ns);
}

static void end_opening(struct etcd *etcd)
{
    struct loop *loop = etcd->engine.loop;
    if (etcd->opening.stage == OPENING_NOT)
        return;
    loop_disarm(loop, &etcd->opening.patience);
    loop_forget(loop, &etcd->opening.look);
    etcd_conn_forget(etcd->conn, &etcd->opening);
    free_members(etcd->opening.members);
    etcd->opening = (struct etcd_opening){0};
}

static void dispose(struct etcd *etcd)
{
    end_opening(etcd);
    doctor_visits_drop(&etcd->visits);
    if (etcd->conn) {
        etcd_cells_close(etcd);
        etcd_ghosts_close(etcd);
        etcd_claims_close(etcd);
        etcd_batches_close(etcd);
        etcd_session_close(etcd);
        etcd_watches_close(etcd);
    }
    etcd_conn_free(etcd->conn);
    loop_disarm(etcd->engine.loop, &etcd->recent_timer);
    loop_unreserve(etcd->engine.loop, ETCD_TIMERS);
    tls_context_free(etcd->tls);
}

/* The only way out: err NULL, the cluster can be used. */
static void finish(struct etcd *etcd, const struct stile_error *err)
{
    struct engine *engine = &etcd->engine;
    struct stile_error why;
    error_copy(&why, err);
    if (err)
        dispose(etcd);
    else
        end_opening(etcd);
    engine->events->opened(engine, err ? &why : NULL);
}

/* ---- the other members ---- */

static void look_for_others(struct etcd *etcd)
{
    struct etcd_opening *opening = &etcd->opening;
    struct stile_error err;
    if (!members_answered(opening->members) && !opening->late)
        return;
    if (compare_members(opening->members, opening->cluster_id, &err)) {
        finish(etcd, &err);
        return;
    }
    etcd_conn_set_cluster(etcd->conn, opening->cluster_id);
    finish(etcd, NULL);
}

/* ---- the status of a member ---- */

static enum stile_status check_status(const Etcd__StatusResponse *status, struct stile_error *err)
{
    unsigned major = 0, minor = 0;
    if (sscanf(status->version, "%u.%u", &major, &minor) != 2 || major < 3 ||
        (major == 3 && minor < OLDEST_MINOR))
        return error_set(err, STILE_REFUSED, 0,
                         "the server's version %.20s is too old: 3.4 is needed", status->version);
    if (status->is_learner)
        return error_set(err, STILE_REFUSED, ETCD_ERROR_LEARNER,
                         "this member is only a learner: name the voting members");
    if (status->leader == 0)
        return error_set(err, STILE_UNREACHABLE, ETCD_ERROR_NO_LEADER,
                         "the members have no leader: too few of them are up, or can't reach one "
                         "another");
    return STILE_OK;
}

/* A member that is cut off from the others knows no leader; the others may have one. */
static bool ask_another(struct etcd *etcd)
{
    struct etcd_opening *opening = &etcd->opening;
    const struct stile_error *err = &opening->error;
    if (etcd->engine.examining ||
        (err->native != ETCD_ERROR_NO_LEADER && err->native != ETCD_ERROR_LEARNER) ||
        ++opening->asked >= etcd->n_members || !etcd_conn_try_another(etcd->conn, err))
        return false;
    if (err->native == ETCD_ERROR_NO_LEADER)
        opening->no_leader = *err;
    ask_status(etcd);
    return true;
}

static void on_status(void *data, const ProtobufCMessage *answer, const struct stile_error *err)
{
    struct etcd_opening *opening = data;
    struct etcd *etcd = container_of(opening, struct etcd, opening);
    const Etcd__StatusResponse *status = (const Etcd__StatusResponse *)answer;
    opening->error = (struct stile_error){0};
    if (err)
        error_copy(&opening->error, err);
    else
        check_status(status, &opening->error);
    if (!err && status->header)
        opening->cluster_id = status->header->cluster_id;
    if (ask_another(etcd))
        return;
    opening->answered = true;
    if (!err && etcd->engine.examining)
        opening->error.status = STILE_OK; /* the doctor reports it */
    if (opening->error.status == STILE_UNCERTAIN)
        opening->error.status = STILE_UNREACHABLE;
    look_soon(etcd);
}

static void ask_status(struct etcd *etcd)
{
    Etcd__StatusRequest request = ETCD__STATUS_REQUEST__INIT;
    struct etcd_opening *opening = &etcd->opening;
    opening->answered = etcd_conn_request(etcd->conn, RPC_STATUS, &request.base, on_status, opening,
                                          &opening->error) != STILE_OK;
    if (opening->answered)
        look_soon(etcd);
}

/* "Too few members are up" is more useful than that the last one asked is down. */
static void fail(struct etcd *etcd)
{
    const struct etcd_opening *opening = &etcd->opening;
    bool leaderless = opening->error.status == STILE_UNREACHABLE && opening->no_leader.status;
    finish(etcd, leaderless ? &opening->no_leader : &opening->error);
}

/* The doctor compares the members itself. */
static void look_for_status(struct etcd *etcd)
{
    struct etcd_opening *opening = &etcd->opening;
    if (!opening->answered && !opening->late)
        return;
    if (!opening->answered)
        error_set(&opening->error, STILE_UNREACHABLE, 0, "the server does not answer");
    if (opening->error.status) {
        fail(etcd);
    } else if (etcd->engine.examining) {
        finish(etcd, NULL);
    } else {
        begin_stage(etcd, OPENING_OTHERS, OTHERS_NS);
        look_for_others(etcd);
    }
}

/* ---- the engine ---- */

static void look(struct task *task)
{
    static void (*const looks[])(struct etcd *) = {
        [OPENING_STATUS] = look_for_status,
        [OPENING_OTHERS] = look_for_others,
    };
    struct etcd *etcd = container_of(task, struct etcd, opening.look);
    looks[etcd->opening.stage](etcd);
}

static void begin_opening(struct etcd *etcd)
{
    etcd->opening = (struct etcd_opening){.patience.fn = out_of_patience, .look.fn = look};
    begin_stage(etcd, OPENING_STATUS, OPEN_PATIENCE_NS);
    if (!etcd->engine.examining)
        etcd->opening.members = ask_members(etcd);
    ask_status(etcd);
}

static enum stile_status read_url(struct etcd *etcd, const struct url *url, struct stile_error *err)
{
    enum stile_status status = read_path(etcd, url, err);
    if (!status)
        status = read_tls(etcd, url, err);
    return status ? status : connect_to(etcd, url, err);
}

static const struct batch_class *const batch_classes[BATCH_KINDS] = {
    [BATCH_DELETE] = &etcd_batch_delete,
    [BATCH_JOIN] = &etcd_batch_join,
    [BATCH_CHECK] = &etcd_batch_check,
    [BATCH_SINCE] = &etcd_batch_since,
};

static void etcd_open(struct engine *engine, const struct url *url)
{
    struct etcd *etcd = etcd_of(engine);
    struct stile_error err;
    if (loop_reserve(engine->loop, ETCD_TIMERS)) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->opened(engine, &err);
        return;
    }
    etcd->recent_tail = &etcd->recent;
    etcd->recent_timer.fn = etcd_claims_watch_recent;
    introduce(etcd);
    etcd_session_init(etcd, &etcd_claim_lease_events);
    etcd_watches_init(etcd);
    etcd_batches_init(etcd, batch_classes);
    if (read_url(etcd, url, &err))
        finish(etcd, &err);
    else
        begin_opening(etcd);
}

static void etcd_close(struct engine *engine)
{
    dispose(etcd_of(engine));
}

static void etcd_forked(struct engine *engine)
{
    etcd_conn_forked(etcd_of(engine)->conn);
    fork_members(etcd_of(engine)->opening.members);
    doctor_visits_forked(etcd_of(engine)->visits);
}

static void etcd_renew(struct engine *engine, struct claim *const *claims, size_t n)
{
    (void)claims, (void)n; /* the claims of a lease live by it together */
    for (struct lease *lease = etcd_of(engine)->leases; lease; lease = lease->next) {
        etcd_lease_renew(lease);
        etcd_ghosts_keep_alive(lease);
    }
}

static const char *const etcd_params[] = {"ca",       "cert",    "key",           "server_name",
                                          "insecure", "dialect", "password_file", NULL};

static const struct engine_push push = {
    .watch = etcd_inspect_watch,
    .unwatch = etcd_inspect_unwatch,
};

static const struct engine_history history = {
    .record = etcd_history_record,
};

static const struct engine_cells cells = {
    .run = etcd_cells_run,
    .watch = etcd_cells_watch,
    .unwatch = etcd_inspect_unwatch,
};

static const struct engine_proclaims proclaims = {
    .proclaim = etcd_proclaim,
};

static const struct engine_admin admin = {
    .examine = etcd_doctor_examine,
};

const struct engine_class etcd_class = {
    .schemes = "etcd etcds",
    .params = etcd_params,
    .caps =
        {
            .engine = "etcd",
            .modes = 1u << STILE_EXCLUSIVE | 1u << STILE_SHARED | 1u << STILE_SLOTS,
            .lease = STILE_LEASE_SESSION,
            .fifo = true,
            .token = true,
            .hold_at_least = true,
            .lock_delay = true,
            .proclaims = true,
            .cells = true,
            .keeps = true,
            .token_is = "the revision that created the holder's key",
            .survives = "a holder's crash: free after its lease; a member's crash: everything, "
                        "while more than half of the members are up",
            .condition = "the members keep what is on their disks; a TTL is rounded up to whole "
                         "seconds, and to the shortest the servers allow (2 s with the default "
                         "election timeout)",
        },
    .apart_sharing = true,
    .in_flight = 128, /* more would not make a member faster, only each answer later */
    .engine_size = sizeof(struct etcd),
    .claim_size = sizeof(struct etcd_claim),
    .open = etcd_open,
    .close = etcd_close,
    .forked = etcd_forked,
    .claim = etcd_claim_acquire,
    .release = etcd_claim_release,
    .renew = etcd_renew,
    .list = etcd_inspect_list,
    .show = etcd_inspect_show,
    .break_ = etcd_inspect_break,
    .cancel = etcd_inspect_cancel,
    .push = &push,
    .cells = &cells,
    .admin = &admin,
    .history = &history,
    .proclaims = &proclaims,
};
