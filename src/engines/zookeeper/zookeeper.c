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
 *     needs a listing that contains our node; without it the claim starts over.
 *  5. A release deletes the node. The GUID in its name finds a node whose creation was not
 * answered.
 *  6. There is one session for each TTL in use. When it ends, all its nodes go. Only requests in
 *     which the leader takes part renew it.
 *
 *     jute.c, connection.c              the encoding, and one connection
 *     requests.c                        requests, replies and watches of a session
 *     session.c, liveness.c             sessions, and which replies prove that they are alive
 *     names.c                           names as nodes, dialects, hold records
 *     claims.c, queue.c, release.c      the life of a claim
 *     inspect.c                         list, show, watch, break
 *     doctor_probe.c, doctor_rules.c    the conditions of what caps promises
 */
#include "engines/zookeeper/zookeeper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/url.h"
#include "engines/zookeeper/claims.h"
#include "io/tls.h"

#define DEFAULT_TTL_NS   (10 * NS_PER_SEC)
#define OPEN_PATIENCE_NS (5 * NS_PER_SEC)
#define ROUNDS           3 /* of all servers; each gives a slow server more time */
#define DEFAULT_PORT     2181

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
    [KAZOO] = CONDITION "kazoo's Lock, or its ReadLock and WriteLock",
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
        return error_set(err, STILE_MISUSE, 0, "dialect= is curator, curator-rw or kazoo");
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

/* ---- opening ---- */

struct opening {
    struct timer timer;
    struct requester requester;
    bool over;
    int rc;
};

static void on_open_timer(struct timer *timer)
{
    struct opening *opening = container_of(timer, struct opening, timer);
    opening->over = true;
    opening->rc = ZOPERATIONTIMEOUT;
}

static void on_reply(struct requester *requester, const struct reply *reply)
{
    struct opening *opening = container_of(requester, struct opening, requester);
    opening->over = true;
    opening->rc = reply->rc;
}

/* Of several servers the last attempt may have met one that is down. */
static bool try_again(struct zk *zk, struct opening *opening, uint64_t until_ns)
{
    bool again = zk_error_is_transient(opening->rc) && loop_now(zk->engine.loop) < until_ns;
    opening->over =
        !again || !zk_request_exists(zk->main, &opening->requester, "/", NULL, on_reply);
    return !opening->over;
}

static enum stile_status await_session(struct zk *zk, struct stile_error *err)
{
    struct loop *loop = zk->engine.loop;
    struct opening opening = {.timer.fn = on_open_timer, .rc = ZCONNECTIONLOSS};
    uint64_t until_ns = loop_now(loop) + OPEN_PATIENCE_NS;
    size_t tries_left = (size_t)ROUNDS * zk->n_hosts;
    const struct stile_error *why = &zk->main->why;
    if (loop_reserve(loop, 1))
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    loop_arm(loop, &opening.timer, until_ns);
    while (tries_left-- > 0 && try_again(zk, &opening, until_ns)) {
        while (!opening.over) {
            loop_prepare(loop);
            loop_wait(loop, true);
            loop_run(loop);
        }
    }
    zk_requester_forget(&opening.requester);
    loop_disarm(loop, &opening.timer);
    loop_unreserve(loop, 1);
    if (zk_error_is_transient(opening.rc))
        return error_set(err, STILE_UNREACHABLE, opening.rc,
                         "no ZooKeeper server answers, or none has a leader (%.200s%s); stile "
                         "doctor checks each of them",
                         why->status ? why->message : zk_dial_host(zk->main)->where,
                         why->status ? "" : ": no answer in time");
    return opening.rc ? zk_error_set(err, opening.rc, false) : STILE_OK;
}

/* ---- the class ---- */

static void on_session_ended(struct session *session)
{
    zk_queue_session_ended(session);
    zk_inspect_session_ended(session);
}

static const struct session_events session_events = {.ended = on_session_ended};

static void dispose(struct zk *zk)
{
    struct loop *loop = zk->engine.loop;
    zk_release_close(zk);
    doctor_visits_drop(&zk->visits);
    for (struct session *session = zk->sessions; session; session = session->next) {
        while (session->claims)
            zk_claim_forget(session->claims);
    }
    zk_sessions_close(zk);
    loop_disarm(loop, &zk->recent_timer);
    loop_unreserve(loop, 1);
    if (zk->credentials)
        explicit_bzero(zk->credentials, strlen(zk->credentials));
    free(zk->credentials);
    free(zk->hosts);
    buffer_free(&zk->writer.buffer);
    tls_context_free(zk->tls);
}

static enum stile_status open_now(struct engine *engine, const struct url *url,
                                  struct stile_error *err)
{
    struct zk *zk = zk_of(engine);
    enum stile_status status;
    if (loop_reserve(engine->loop, 1))
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    zk->recent_tail = &zk->recent;
    zk->recent_timer.fn = zk_queue_watch_recent;
    zk->session_events = &session_events;
    read_self(zk);
    status = read_path(zk, url, err);
    if (!status)
        status = read_security(zk, url, err);
    if (!status)
        status = read_user(zk, url, err);
    if (!status)
        status = read_hosts(zk, url, err);
    if (!status) {
        zk->main = zk_session_for(zk, DEFAULT_TTL_NS, 0, err);
        status = zk->main ? await_session(zk, err) : err ? err->status : STILE_REFUSED;
        if (zk->main && engine->examining) {
            error_copy(&zk->session_error, status ? err : NULL);
            status = STILE_OK; /* the doctor asks each server by itself */
        }
    }
    if (status)
        dispose(zk);
    return status;
}

static void zk_open(struct engine *engine, const struct url *url)
{
    struct stile_error err;
    enum stile_status status = open_now(engine, url, &err);
    engine->events->opened(engine, status ? &err : NULL);
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
    .watch = zk_inspect_watch,
    .unwatch = zk_inspect_unwatch,
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
    .admin = &admin,
};
