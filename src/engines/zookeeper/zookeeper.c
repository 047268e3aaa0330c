/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* zookeeper: the nodes and rules of Curator's InterProcessMutex or InterProcessReadWriteLock, or of
 * kazoo's locks, behind the engine's contract.
 *
 *  1. A claim is an ephemeral sequential node "<base>/<name>/<guid><digits>". The server numbers
 *     the nodes of a name in the order of their creation; the first one holds the lock.
 *  2. The token is the czxid, the transaction that created the holder's node. It only grows, while
 *     the numbers start again when the name's node is created anew.
 *  3. The node and a listing behind it are requested together. A claim that is first needs nothing
 *     more: one round trip.
 *  4. Any other claim watches the node before its own, and lists again when that goes. A grant
 *     needs a listing that contains our node; without it the claim starts over. Behind a claim of
 *     our own neither is needed, just a look at our node.
 *  5. A release deletes the node. The GUID in its name finds a node whose creation was not
 * answered.
 *  6. There is one session for each TTL in use. When it ends, all its nodes go. Only requests in
 *     which the leader takes part renew it.
 *
 *     jute.c, connection.c              the encoding, and one connection
 *     requests.c, errors.c              requests, replies and watches of a session
 *     session.c, liveness.c             sessions, and which replies prove that they are alive
 *     names.c                           names as nodes, dialects, hold records
 *     claims.c, line.c, queue.c, held.c, release.c
 *                                       the life of a claim
 *     strays.c                          nodes without a claim, after older data was restored
 *     inspect.c, push.c                 list, show, break; watch
 *     proclaim.c                        another public value for a claim that is held
 *     history.c, marks.c                records of last holders, marks of broken locks
 *     cells.c, cell_read.c, cell_form.c cells and guards
 *     doctor_probe.c, doctor_rules.c    the conditions of what caps promises
 */
#include "engines/zookeeper/zookeeper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/url.h"
#include "engines/zookeeper/cells.h"
#include "engines/zookeeper/claims.h"
#include "engines/zookeeper/history.h"
#include "io/tls.h"

#define DEFAULT_TTL_NS   (10 * NS_PER_SEC)
#define OPEN_PATIENCE_NS (5 * NS_PER_SEC)
#define ROUNDS           3 /* of all servers; each gives a slow server more time */
#define DEFAULT_PORT     2181
#define ZK_TIMERS        2

/* ---- the URL ---- */

/* How others see us. */
static void read_self(struct zk *zk)
{
    zk->pid = (long)zk->engine.pid;
    self_host(zk->host);
    self_command(zk->command, sizeof zk->command, zk->engine.label);
}

static enum stile_status read_security(struct zk *zk, const struct url *url,
                                       struct stile_error *err)
{
    struct tls_options tls = {.ca = url_param(url, "ca"),
                              .cert = url_param(url, "cert"),
                              .key = url_param(url, "key"),
                              .server_name = url_param(url, "server_name")};
    bool sasl = false;
    enum stile_status status = url_param_bool(&sasl, url, "sasl", err);
    if (!status)
        status = url_param_bool(&tls.insecure, url, "insecure", err);
    if (status)
        return status;
    if (sasl)
        return error_set(err, STILE_UNSUPPORTED, 0,
                         "SASL is not supported; use digest credentials: zk://user:password@host");
    if (strcmp(url->scheme, "zks") == 0)
        return tls_context_new(&zk->tls, &tls, err);
    if (tls.ca || tls.cert || tls.key || tls.server_name || tls.insecure)
        return error_set(err, STILE_MISUSE, 0, "TLS parameters need a zks:// URL");
    return STILE_OK;
}

/* The server refuses "", "." and ".." in a path, but only when a request uses it. */
static bool is_path(const char *path)
{
    for (const char *at = path; *at == '/';) {
        size_t n = strcspn(++at, "/");
        if (n == 0 || (n == 1 && at[0] == '.') || (n == 2 && at[0] == '.' && at[1] == '.'))
            return false;
        at += n;
    }
    return true;
}

#define CONDITION                                                                                  \
    "the servers' disks keep what was written, and their tickTime is 2 s or less; the servers "    \
    "bound the length of a session (2 to 20 ticks); other clients that lock the names use "

static const char *const conditions[] = {
    [CURATOR] = CONDITION "Curator's InterProcessMutex",
    [CURATOR_RW] = CONDITION "Curator's InterProcessReadWriteLock",
    [CURATOR_LATCH] = CONDITION "Curator's LeaderLatch",
    [KAZOO] = CONDITION "kazoo's Lock, Election, or ReadLock and WriteLock",
};

static enum stile_status read_path(struct zk *zk, const struct url *url, struct stile_error *err)
{
    const char *dialect = url_param(url, "dialect");
    size_t len = strlen(url->path);
    while (len > 0 && url->path[len - 1] == '/')
        len--;
    if (len > BASE_MAX)
        return error_set(err, STILE_MISUSE, 0, "the path has more than %d bytes", BASE_MAX);
    memcpy(zk->base, url->path, len);
    if (!is_path(zk->base))
        return error_set(err, STILE_MISUSE, 0, "the path has an empty part, or '.' or '..' in it");
    if (!zk_dialect_find(&zk->dialect, dialect ? dialect : "curator"))
        return error_set(err, STILE_MISUSE, 0,
                         "dialect= is curator, curator-rw, curator-latch or kazoo");
    zk->engine.caps.condition = conditions[zk->dialect];
    return STILE_OK;
}

static enum stile_status read_user(struct zk *zk, const struct url *url, struct stile_error *err)
{
    char secret[URL_SECRET_MAX];
    const char *password = url->password;
    if (!url->user || !*url->user)
        return url->password || url_param(url, "password_file")
                   ? error_set(err, STILE_MISUSE, 0,
                               "a password is given without its user: zk://user:password@host")
                   : STILE_OK;
    enum stile_status status = url_secret(&password, url, "password_file", secret, err);
    if (!status && asprintf(&zk->credentials, "%s:%s", url->user, password ? password : "") < 0) {
        zk->credentials = NULL;
        status = error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    explicit_bzero(secret, sizeof secret);
    return status;
}

static enum stile_status read_hosts(struct zk *zk, const struct url *url, struct stile_error *err)
{
    static const struct url_host here = {"127.0.0.1", DEFAULT_PORT};
    const struct url_host *named = url->n_hosts ? url->hosts : &here;
    size_t n = url->n_hosts ? url->n_hosts : 1;
    zk->hosts = calloc(n, sizeof *zk->hosts);
    if (!zk->hosts)
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    for (size_t i = 0; i < n; i++) {
        struct zk_host *host = &zk->hosts[zk->n_hosts];
        if (strlen(named[i].host) >= sizeof host->name)
            return error_set(err, STILE_MISUSE, 0, "a host name has more than %zu bytes",
                             sizeof host->name - 1);
        strcpy(host->name, named[i].host);
        host->port = named[i].port ? named[i].port : DEFAULT_PORT;
        snprintf(host->where, sizeof host->where, strchr(host->name, ':') ? "[%s]:%u" : "%s:%u",
                 host->name, (unsigned)host->port);
        zk->n_hosts++;
    }
    return STILE_OK;
}

/* ---- opening ----
 *
 * The main session is asked whether "/" exists, until a server answers. Replies and the timer only
 * record what has happened: the next step is taken from the loop, where no connection is in use
 * that it may have to close. */

static void look_soon(struct zk *zk)
{
    loop_soon(zk->engine.loop, &zk->opening.look);
}

static void out_of_patience(struct timer *timer)
{
    struct zk *zk = container_of(timer, struct zk, opening.patience);
    zk->opening.late = true;
    look_soon(zk);
}

static void begin_stage(struct zk *zk, enum opening_stage stage, uint64_t patience_ns)
{
    struct loop *loop = zk->engine.loop;
    zk->opening.stage = stage;
    zk->opening.late = false;
    loop_arm(loop, &zk->opening.patience, loop_now(loop) + patience_ns);
}

static void end_opening(struct zk *zk)
{
    struct loop *loop = zk->engine.loop;
    if (zk->opening.stage == OPENING_NOT)
        return;
    loop_disarm(loop, &zk->opening.patience);
    loop_forget(loop, &zk->opening.look);
    zk_requester_forget(&zk->opening.requester);
    zk->opening = (struct zk_opening){0};
}

static void dispose(struct zk *zk)
{
    struct loop *loop = zk->engine.loop;
    end_opening(zk);
    zk_release_close(zk);
    zk_cells_close(zk);
    doctor_visits_drop(&zk->visits);
    for (struct session *session = zk->sessions; session; session = session->next) {
        while (session->claims)
            zk_claim_forget(session->claims);
    }
    zk_sessions_close(zk);
    loop_disarm(loop, &zk->recent_timer);
    loop_unreserve(loop, ZK_TIMERS);
    if (zk->credentials)
        explicit_bzero(zk->credentials, strlen(zk->credentials));
    free(zk->credentials);
    free(zk->hosts);
    buffer_free(&zk->writer.buffer);
    tls_context_free(zk->tls);
}

/* The only way out: err NULL, the servers can be used. */
static void finish(struct zk *zk, const struct stile_error *err)
{
    struct engine *engine = &zk->engine;
    struct stile_error why;
    error_copy(&why, err);
    if (err)
        dispose(zk);
    else
        end_opening(zk);
    engine->events->opened(engine, err ? &why : NULL);
}

/* ---- its end, if it fails ---- */

static void look_for_end(struct zk *zk)
{
    if (!zk_sessions_are_connected(zk) || zk->opening.late)
        finish(zk, &zk->opening.error);
}

static void on_session_closed(struct session *session)
{
    if (session->zk->opening.stage == OPENING_ENDED)
        look_soon(session->zk);
}

/* The doctor asks each server by itself. */
static void fail(struct zk *zk, const struct stile_error *err)
{
    if (zk->engine.examining) {
        error_copy(&zk->session_error, err);
        finish(zk, NULL);
        return;
    }
    error_copy(&zk->opening.error, err);
    zk_requester_forget(&zk->opening.requester);
    begin_stage(zk, OPENING_ENDED, SESSION_END_NS);
    zk_sessions_end(zk);
    look_for_end(zk);
}

/* ---- the first request ---- */

static void on_reply(struct requester *requester, const struct reply *reply)
{
    struct zk *zk = container_of(requester, struct zk, opening.requester);
    zk->opening.answered = true;
    zk->opening.rc = reply->rc;
    look_soon(zk);
}

/* False: no server was asked. */
static bool ask(struct zk *zk)
{
    struct zk_opening *opening = &zk->opening;
    if (opening->tries_left == 0)
        return false;
    opening->tries_left--;
    opening->answered = false;
    return zk_request_exists(zk->main, &opening->requester, "/", NULL, on_reply);
}

static void explain(const struct zk *zk, struct stile_error *err)
{
    const struct stile_error *why = &zk->main->why;
    if (zk_error_is_transient(zk->opening.rc))
        error_set(err, STILE_UNREACHABLE, zk->opening.rc,
                  "no ZooKeeper server answers, or none has a leader (%.200s%s); stile "
                  "doctor checks each of them",
                  why->status ? why->message : zk_dial_host(zk->main)->where,
                  why->status ? "" : ": no answer in time");
    else
        zk_error_set(err, zk->opening.rc, false);
}

/* Of several servers the last attempt may have met one that is down. */
static void look_for_session(struct zk *zk)
{
    struct zk_opening *opening = &zk->opening;
    struct stile_error err;
    if (!opening->answered && !opening->late)
        return;
    if (!opening->answered)
        opening->rc = ZOPERATIONTIMEOUT;
    if (opening->rc == ZOK) {
        finish(zk, NULL);
    } else if (!zk_error_is_transient(opening->rc) || opening->late || !ask(zk)) {
        explain(zk, &err);
        fail(zk, &err);
    }
}

/* ---- the class ---- */

static void on_session_ended(struct session *session)
{
    zk_queue_session_ended(session);
    zk_push_session_ended(session);
}

static const struct session_events session_events = {
    .ended = on_session_ended,
    .resumed = zk_strays_remove,
    .closed = on_session_closed,
};

static void look(struct task *task)
{
    static void (*const looks[])(struct zk *) = {
        [OPENING_SESSION] = look_for_session,
        [OPENING_ENDED] = look_for_end,
    };
    struct zk *zk = container_of(task, struct zk, opening.look);
    looks[zk->opening.stage](zk);
}

static void begin_opening(struct zk *zk)
{
    zk->opening = (struct zk_opening){
        .patience.fn = out_of_patience,
        .look.fn = look,
        .tries_left = (size_t)ROUNDS * zk->n_hosts,
        .rc = ZCONNECTIONLOSS,
    };
    begin_stage(zk, OPENING_SESSION, OPEN_PATIENCE_NS);
    if (!ask(zk)) {
        zk->opening.answered = true;
        look_soon(zk);
    }
}

static enum stile_status read_url(struct zk *zk, const struct url *url, struct stile_error *err)
{
    enum stile_status status = read_path(zk, url, err);
    if (!status)
        status = read_security(zk, url, err);
    if (!status)
        status = read_user(zk, url, err);
    return status ? status : read_hosts(zk, url, err);
}

static void zk_open(struct engine *engine, const struct url *url)
{
    struct zk *zk = zk_of(engine);
    struct stile_error err = {0};
    if (loop_reserve(engine->loop, ZK_TIMERS)) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->opened(engine, &err);
        return;
    }
    zk->recent_tail = &zk->recent;
    zk->recent_timer.fn = zk_held_watch_recent;
    zk->session_events = &session_events;
    read_self(zk);
    if (!read_url(zk, url, &err))
        zk->main = zk_session_for(zk, DEFAULT_TTL_NS, 0, &err);
    if (zk->main)
        begin_opening(zk);
    else
        finish(zk, &err);
}

static void close_engine(struct engine *engine)
{
    dispose(zk_of(engine));
}

static void forked(struct engine *engine)
{
    for (struct session *session = zk_of(engine)->sessions; session; session = session->next)
        zk_session_forked(session);
    doctor_visits_forked(zk_of(engine)->visits);
}

static const char *const params[] = {"ca",      "cert",          "key",  "server_name", "insecure",
                                     "dialect", "password_file", "sasl", NULL};

static const struct engine_push push = {
    .watch = zk_push_watch,
    .unwatch = zk_push_unwatch,
};

static const struct engine_cells cells = {
    .run = zk_cells_run,
    .clock_unit_us = 1000,
    .watch = zk_push_watch_cell,
    .unwatch = zk_push_unwatch,
};

static const struct engine_history history = {
    .record = zk_history_record,
};

static const struct engine_proclaims proclaims = {
    .proclaim = zk_proclaim,
};

static const struct engine_admin admin = {
    .examine = zk_doctor_examine,
};

extern const struct engine_class zk_class;
const struct engine_class zk_class = {
    .schemes = "zk zks",
    .params = params,
    .caps =
        {
            .engine = "zk",
            .modes = 1u << STILE_EXCLUSIVE | 1u << STILE_SHARED | 1u << STILE_SLOTS,
            .lease = STILE_LEASE_SESSION,
            .fifo = true,
            .token = true,
            .hold_at_least = true,
            .lock_delay = true,
            .proclaims = true,
            .cells = true,
            .paces = true,
            .token_is = "the transaction that created the holder's node (czxid)",
            .survives = "a holder's crash: free after its session; a server's crash: everything, "
                        "while more than half of the servers are up",
            .condition = CONDITION "the same dialect",
        },
    .apart = true,
    .in_flight = 256, /* up to three requests each; a server works on about a thousand */
    .engine_size = sizeof(struct zk),
    .claim_size = sizeof(struct zk_claim),
    .open = zk_open,
    .close = close_engine,
    .forked = forked,
    .claim = zk_queue_claim,
    .release = zk_release,
    .renew = zk_sessions_renew,
    .list = zk_inspect_list,
    .show = zk_inspect_show,
    .break_ = zk_inspect_break,
    .cancel = zk_inspect_cancel,
    .push = &push,
    .cells = &cells,
    .admin = &admin,
    .history = &history,
    .proclaims = &proclaims,
};
