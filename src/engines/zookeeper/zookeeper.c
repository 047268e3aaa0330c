/* zookeeper: the nodes and rules of Curator's InterProcessMutex or InterProcessReadWriteLock, or of
 * kazoo's locks, in the engine's contract.
 *
 * A claim is an ephemeral node "<base>/<name>/<guid><digits>": the server numbers the nodes of a
 * name in the order in which they come, and the first one holds. The transaction that made it is
 * the token: it only grows, while numbers start again when the name's node is made anew. The node
 * and the listing behind it are asked for in one go; who is first at once needs no more. Everybody
 * else watches the node before its own, and when that goes lists again: ours is in it, or is lost.
 *
 * A session for each TTL in use; when it ends, all its nodes go. What a broken connection left in
 * doubt is found again by the GUID in its name.
 *
 *     jute.c, connection.c                          the protocol, over one connection
 *     session.c, dial.c, told.c                     sessions, and when the leader has heard of us
 *     asks.c, together.c, watchers.c                what is asked of the servers
 *     claims.c, standing.c, holding.c, release.c    the life of a claim
 *     legacy.c, ghosts.c, records.c                 names that are kept when their holder has gone
 *     people.c, gather.c, view.c                    for people
 *     doctor.c, diagnosis.c                         what their promises rest on
 *     hosts.c, names.c, fault.c
 */
#include "engines/zookeeper/zookeeper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/url.h"
#include "io/tls.h"

#define DEFAULT_TTL_NS   (10 * NS_PER_SEC)
#define OPEN_PATIENCE_NS (5 * NS_PER_SEC)
#define ROUNDS           3 /* a server that is slow is given more time in each */

/* ---- who we are, for people ---- */

static void introduce(struct zoo *zoo)
{
    zoo->pid = (long)zoo->engine.pid;
    self_host(zoo->host);
    self_command(zoo->command, sizeof zoo->command, zoo->engine.label);
}

/* ---- the URL ---- */

static enum stile_status read_security(struct zoo *zoo, const struct url *url,
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
                         "there is no SASL here: use digest, zk://user:password@host");
    if (strcmp(url->scheme, "zks") == 0)
        return tls_context_new(&zoo->tls, &tls, err);
    if (tls.ca || tls.cert || tls.key || tls.server_name || tls.insecure)
        return error_set(err, STILE_MISUSE, 0, "TLS parameters need a zks:// URL");
    return STILE_OK;
}

/* "", "." and ".." as parts of it would be refused by the server, one request at a time. */
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
    "the servers keep what they have on their disks, and their tickTime is 2 s or less; a "        \
    "session "                                                                                     \
    "lasts as long as the servers say (2 to 20 ticks); who else locks the names uses "

static const char *const conditions[] = {
    [CURATOR] = CONDITION "Curator's InterProcessMutex",
    [CURATOR_RW] = CONDITION "Curator's InterProcessReadWriteLock",
    [KAZOO] = CONDITION "kazoo's Lock, or its ReadLock and WriteLock",
};

static enum stile_status read_path(struct zoo *zoo, const struct url *url, struct stile_error *err)
{
    const char *dialect = url_param(url, "dialect");
    size_t len = strlen(url->path);
    while (len > 0 && url->path[len - 1] == '/')
        len--;
    if (len > BASE_MAX)
        return error_set(err, STILE_MISUSE, 0, "the path has more than %d bytes", BASE_MAX);
    memcpy(zoo->base, url->path, len);
    if (!is_path(zoo->base))
        return error_set(err, STILE_MISUSE, 0, "the path has an empty part, or '.' or '..'");
    if (!dialect_find(&zoo->dialect, dialect ? dialect : "curator"))
        return error_set(err, STILE_MISUSE, 0, "dialect= is curator, curator-rw or kazoo");
    zoo->engine.caps.condition = conditions[zoo->dialect];
    return STILE_OK;
}

static enum stile_status read_user(struct zoo *zoo, const struct url *url, struct stile_error *err)
{
    char secret[URL_SECRET_MAX];
    const char *password = url->password;
    if (!url->user || !*url->user)
        return url->password || url_param(url, "password_file")
                   ? error_set(err, STILE_MISUSE, 0,
                               "a password is given without its user: zk://user:password@host")
                   : STILE_OK;
    enum stile_status status = url_secret(&password, url, "password_file", secret, err);
    if (!status && asprintf(&zoo->credentials, "%s:%s", url->user, password ? password : "") < 0) {
        zoo->credentials = NULL;
        status = error_set(err, STILE_NOMEM, 0, "out of memory");
    }
    explicit_bzero(secret, sizeof secret);
    return status;
}

/* ---- opening ---- */

struct opening {
    struct timer timer;
    struct asker asker;
    bool over;
    int rc;
};

static void out_of_patience(struct timer *timer)
{
    struct opening *opening = (struct opening *)((char *)timer - offsetof(struct opening, timer));
    opening->over = true;
    opening->rc = ZOPERATIONTIMEOUT;
}

static void on_answer(struct asker *asker, const struct answer *answer)
{
    struct opening *opening = (struct opening *)((char *)asker - offsetof(struct opening, asker));
    opening->over = true;
    opening->rc = answer->rc;
}

/* With several servers the last attempt may have met one that is down. */
static bool asks_again(struct zoo *zoo, struct opening *opening, uint64_t until_ns)
{
    bool again = fault_may_pass(opening->rc) && loop_now(zoo->engine.loop) < until_ns;
    opening->over = !again || !ask_exists(zoo->main, &opening->asker, "/", NULL, on_answer);
    return !opening->over;
}

static enum stile_status await_session(struct zoo *zoo, struct stile_error *err)
{
    struct loop *loop = zoo->engine.loop;
    struct opening opening = {.timer.fn = out_of_patience, .rc = ZCONNECTIONLOSS};
    uint64_t until_ns = loop_now(loop) + OPEN_PATIENCE_NS;
    size_t tries_left = (size_t)ROUNDS * zoo->n_hosts;
    const struct stile_error *why = &zoo->main->why;
    if (loop_reserve(loop, 1))
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    loop_arm(loop, &opening.timer, until_ns);
    while (tries_left-- > 0 && asks_again(zoo, &opening, until_ns)) {
        while (!opening.over) {
            loop_prepare(loop);
            loop_wait(loop, true);
            loop_run(loop);
        }
    }
    asker_forget(&opening.asker);
    loop_disarm(loop, &opening.timer);
    loop_unreserve(loop, 1);
    if (fault_may_pass(opening.rc))
        return error_set(err, STILE_UNREACHABLE, opening.rc,
                         "no ZooKeeper server answers, or none follows a leader (%.200s%s); stile "
                         "doctor asks each of them",
                         why->status ? why->message : dial_host(zoo->main)->where,
                         why->status ? "" : ": no answer in time");
    return opening.rc ? fault_set(err, opening.rc, false) : STILE_OK;
}

static void dispose(struct zoo *zoo)
{
    struct loop *loop = zoo->engine.loop;
    legacy_close(zoo);
    doctor_close(zoo);
    for (struct session *session = zoo->sessions; session; session = session->next) {
        while (session->claims)
            claim_forget(session->claims);
    }
    sessions_close(zoo);
    loop_disarm(loop, &zoo->sweep);
    loop_unreserve(loop, 1);
    if (zoo->credentials)
        explicit_bzero(zoo->credentials, strlen(zoo->credentials));
    free(zoo->credentials);
    free(zoo->hosts);
    buffer_free(&zoo->writer.buffer);
    tls_context_free(zoo->tls);
}

static enum stile_status zookeeper_open(struct engine *engine, const struct url *url,
                                        struct stile_error *err)
{
    struct zoo *zoo = zoo_of(engine);
    enum stile_status status;
    if (loop_reserve(engine->loop, 1))
        return error_set(err, STILE_NOMEM, 0, "out of memory");
    zoo->fresh_tail = &zoo->fresh;
    zoo->sweep.fn = holding_watch_fresh;
    introduce(zoo);
    status = read_path(zoo, url, err);
    if (!status)
        status = read_security(zoo, url, err);
    if (!status)
        status = read_user(zoo, url, err);
    if (!status)
        status = hosts_read(zoo, url, err);
    if (!status) {
        zoo->main = session_for(zoo, DEFAULT_TTL_NS, 0, err);
        status = zoo->main ? await_session(zoo, err) : err ? err->status : STILE_REFUSED;
        if (zoo->main && engine->examining) {
            error_copy(&zoo->session_error, status ? err : NULL);
            status = STILE_OK; /* each server is asked by itself */
        }
    }
    if (status)
        dispose(zoo);
    return status;
}

static void zookeeper_close_engine(struct engine *engine)
{
    dispose(zoo_of(engine));
}

static void zookeeper_forked(struct engine *engine)
{
    for (struct session *session = zoo_of(engine)->sessions; session; session = session->next)
        session_forked(session);
    doctor_forked(zoo_of(engine));
}

static const char *const zookeeper_params[] = {
    "ca", "cert", "key", "server_name", "insecure", "dialect", "password_file", "sasl", NULL};

static const struct engine_push push = {
    .watch = people_watch,
    .unwatch = people_unwatch,
};

static const struct engine_admin admin = {
    .examine = doctor_examine,
};

extern const struct engine_class zookeeper_class;
const struct engine_class zookeeper_class = {
    .schemes = "zk zks",
    .params = zookeeper_params,
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
    .in_flight = 256, /* each is up to three requests, and a server works on some thousand */
    .engine_size = sizeof(struct zoo),
    .claim_size = sizeof(struct zoo_claim),
    .open = zookeeper_open,
    .close = zookeeper_close_engine,
    .forked = zookeeper_forked,
    .claim = claims_claim,
    .release = claims_release,
    .renew = sessions_renew,
    .list = people_list,
    .show = people_show,
    .break_ = people_break,
    .push = &push,
    .admin = &admin,
};
