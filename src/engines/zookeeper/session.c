/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions: known to all servers, and driven over a connection to one of them at a time.
 *
 *     DOWN ──► UP        a server has given the session, or taken it up again
 *      ▲       │
 *      └───────┘         the connection broke: the next server is tried
 *     DOWN, UP ──► DEAD  the servers say that it has expired, or refuse our user; then a new one
 *                        begins
 *
 * There is one session for each TTL in use, and more of them where the paths of its nodes would
 * exceed SESSION_BYTES_MAX.
 *
 * Servers are tried in turn, each at once while there is one that was not tried, then after a pause
 * that grows from round to round. So servers that restart are not met by all their clients at the
 * same instant, and a waiting client is back within PAUSE_MAX_NS. An attempt that the server leaves
 * unanswered ends after a twelfth of the session at first, even where there is no other server: a
 * server that is starting accepts connections and may forget the first of them. That timeout grows
 * with each round of silence, so that a slow server can answer in the end; servers that refuse
 * connections do not count. Every attempt resolves the server's name again: it may have moved.
 *
 * A server that lost its data, or was restored from an older copy, hangs up forever on sessions
 * that have seen a later transaction than its own last. Servers without a leader hang up on
 * every client. So when a session was down for its whole timeout, a server that hangs up on it is
 * asked for a new session at once: if it gives one, the old session is over. */
#include "engines/zookeeper/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/zookeeper/zookeeper.h"

#define AUTH_AGAIN_NS    (1 * NS_PER_SEC)
#define SESSION_TIMERS   2
#define PAUSE_FIRST_NS   (20 * NS_PER_MS)
#define PAUSE_MAX_NS     NS_PER_SEC
#define STEADY_NS        NS_PER_SEC /* a session that was up for less counts as an attempt only */
#define TIMEOUT_FIRST_NS NS_PER_SEC
#define TIMEOUT_FRACTION 12 /* of the session, if that is less */
#define ROUNDS_MAX       7

static struct loop *loop_of(const struct session *session)
{
    return session->zk->engine.loop;
}

/* ---- which server is tried, and when ---- */

/* How often all servers have been tried with so many attempts. */
static unsigned rounds(const struct session *session, unsigned attempts)
{
    unsigned n = attempts / (unsigned)session->zk->n_hosts;
    return n < ROUNDS_MAX ? n : ROUNDS_MAX;
}

void zk_dial_begin(struct session *session)
{
    if (!session->fresh)
        session->dials++;
    session->dial_until_ns = loop_now(loop_of(session)) + zk_dial_timeout_ns(session);
}

void zk_dial_end(struct session *session)
{
    uint64_t now_ns = loop_now(loop_of(session));
    if (!session->up_ns && now_ns >= session->dial_until_ns)
        session->silences++;
    if (session->up_ns && now_ns - session->up_ns >= STEADY_NS)
        session->dials = session->silences = 0;
    if (session->up_ns)
        session->down_ns = now_ns;
    session->up_ns = 0;
    session->dial_ns = now_ns;
    if (!session->fresh && session->dials > 0 && session->dials % session->zk->n_hosts == 0)
        session->dial_ns += loop_backoff(loop_of(session), PAUSE_FIRST_NS, PAUSE_MAX_NS,
                                         rounds(session, session->dials) - 1);
}

const struct zk_host *zk_dial_host(const struct session *session)
{
    const struct zk *zk = session->zk;
    return &zk->hosts[(session->first_host + session->dials) % zk->n_hosts];
}

/* Before the session exists there is nothing to lose, and the only server may well be slow. */
uint64_t zk_dial_timeout_ns(const struct session *session)
{
    uint64_t timeout_ns = (uint64_t)session->timeout_ms * NS_PER_MS, max_ns = timeout_ns / 3 * 2;
    uint64_t first_ns = timeout_ns / TIMEOUT_FRACTION;
    unsigned growth = session->zk->n_hosts < 2 && !session->id.id ? 2 : 1;
    first_ns = first_ns < TIMEOUT_FIRST_NS ? first_ns : TIMEOUT_FIRST_NS;
    uint64_t ns = first_ns << growth * rounds(session, session->silences);
    return ns < max_ns ? ns : max_ns;
}

/* The server hung up on a session that may have expired: the same server is asked for a new one. */
static bool wants_new_session(const struct session *session)
{
    return session->id.id && !session->fresh && session->connection &&
           zk_connection_greeted_ns(session->connection) && session->state == SESSION_DOWN &&
           loop_now(loop_of(session)) >= session->down_ns + session->ttl_ns;
}

/* ---- down ---- */

static void describe_failure(struct session *session, const struct stile_error *why)
{
    session->why = *why;
    error_wrap(&session->why, why->status, "%.100s", zk_dial_host(session)->where);
}

/* The connection has ended, or is abandoned. */
static void go_down(struct session *session, const struct stile_error *why)
{
    struct loop *loop = loop_of(session);
    struct connection *connection = session->connection;
    bool fresh = wants_new_session(session);
    describe_failure(session, why);
    if (connection && zk_connection_zxid(connection) > session->zxid)
        session->zxid = zk_connection_zxid(connection);
    zk_dial_end(session);
    if (session->state == SESSION_UP)
        session->state = SESSION_DOWN;
    session->fresh = fresh;
    if (session->state == SESSION_DOWN && !session->zk->closing)
        loop_arm(loop, &session->timer, fresh ? loop_now(loop) : session->dial_ns);
    zk_requests_fail(session, ZCONNECTIONLOSS);
    session->connection = NULL;
    zk_connection_free(connection);
    if (session->zk->closing && session->zk->session_events->closed)
        session->zk->session_events->closed(session);
}

static void on_closed(struct connection *connection, const struct stile_error *why)
{
    go_down(zk_connection_owner(connection), why);
}

void zk_session_leave_server(struct session *session)
{
    struct stile_error why;
    if (!session->connection)
        return;
    error_set(&why, STILE_UNREACHABLE, ETIMEDOUT, "the server does not answer");
    go_down(session, &why);
}

/* ---- probes (liveness.c) ---- */

static void look_for_strays(struct session *session)
{
    if (session->strays_due && session->zk->session_events->resumed)
        session->zk->session_events->resumed(session);
}

static void arm_probe(struct session *session)
{
    if (session->state == SESSION_UP)
        loop_arm(loop_of(session), &session->probe_timer, zk_liveness_due_ns(session));
}

static void report_renewal(struct session *session, bool answered)
{
    struct engine *engine = &session->zk->engine;
    bool wanted = session->renewing;
    session->renewing = false;
    if (answered && session->claims)
        engine->events->session_renewed(engine, session, session->proven_ns, session->ttl_ns);
    else if (wanted)
        engine->events->session_unknown(engine, session);
}

static void on_probe_reply(struct requester *requester, const struct reply *reply)
{
    struct session *session = container_of(requester, struct session, requester);
    session->probing = false;
    session->answered_ns = loop_now(loop_of(session));
    arm_probe(session);
    if (session->state == SESSION_UP)
        look_for_strays(session);
    report_renewal(session, reply->rc == ZOK && session->state == SESSION_UP);
}

static void on_probe_timer(struct timer *timer)
{
    struct session *session = container_of(timer, struct session, probe_timer);
    if (session->state != SESSION_UP)
        return;
    if (session->probing) {
        zk_session_leave_server(session);
        return;
    }
    session->probed_ns = session->answered_ns = loop_now(loop_of(session));
    session->probing = zk_request_sync(session, &session->requester, "/", on_probe_reply);
    arm_probe(session);
    if (!session->probing)
        report_renewal(session, false);
}

void zk_session_claimed(struct session *session)
{
    arm_probe(session);
}

/* The engine's renew(). The reply of the next probe answers it. */
void zk_sessions_renew(struct engine *engine, struct claim *const *claims, size_t n)
{
    (void)claims, (void)n;
    for (struct session *session = zk_of(engine)->sessions; session; session = session->next) {
        if (!session->claims || session->renewing)
            continue;
        session->renewing = session->state == SESSION_UP;
        if (!session->renewing)
            engine->events->session_unknown(engine, session);
    }
}

/* ---- up ---- */

static void expire(struct session *session)
{
    session->state = SESSION_DEAD;
    session->ending = true;
    loop_soon(loop_of(session), &session->task);
}

static void send_close(struct session *session)
{
    struct jute_writer *writer = &session->zk->writer;
    size_t n;
    zk_jute_begin(writer);
    zk_jute_write_int(writer, 0);
    zk_jute_write_int(writer, JUTE_CLOSE_SESSION);
    const char *packet = zk_jute_end(writer, &n);
    if (packet && zk_connection_send_unanswered(session->connection, packet, n) == 0)
        zk_connection_flush(session->connection);
}

static void on_up(struct connection *connection, const struct session_id *id, int32_t timeout_ms)
{
    struct session *session = zk_connection_owner(connection);
    if (session->fresh && id->id)
        send_close(session); /* it has no nodes, and only shows that the old one is over */
    if (session->fresh || id->id == 0) {
        expire(session);
        return;
    }
    bool resumed = session->id.id != 0;
    loop_disarm(loop_of(session), &session->timer);
    session->id = *id;
    session->timeout_ms = timeout_ms;
    session->ttl_ns = (uint64_t)timeout_ms * NS_PER_MS;
    session->state = SESSION_UP;
    session->resumes++;
    session->up_ns = loop_now(loop_of(session));
    session->connect_ns = zk_connection_greeted_ns(connection);
    zk_watches_restore(session);
    session->strays_due = resumed;
    look_for_strays(session);
    if (session->watches_lost)
        loop_soon(loop_of(session), &session->task);
    zk_requests_schedule(session);
    zk_liveness_begin(session, loop_now(loop_of(session)));
    arm_probe(session);
    report_renewal(session, true);
}

static void on_unauthorized(struct connection *connection)
{
    struct session *session = zk_connection_owner(connection);
    session->refused = true;
    expire(session);
}

static void on_event(struct connection *connection, int32_t type, const char *path)
{
    zk_watches_report(zk_connection_owner(connection), type, path);
}

static const struct connection_events connection_events = {
    .up = on_up, .event = on_event, .unauthorized = on_unauthorized, .closed = on_closed};

/* ---- connecting ---- */

static void dial(struct session *session)
{
    struct zk *zk = session->zk;
    zk_dial_begin(session);
    const struct zk_host *host = zk_dial_host(session);
    struct connection_options options = {
        .target = {.host = host->name,
                   .port = host->port,
                   .tls = zk->tls,
                   .rotate = session->dials / (unsigned)zk->n_hosts,
                   .timeout_ns = zk_dial_timeout_ns(session)},
        .timeout_ms = session->asked_ms,
        .credentials = zk->credentials};
    struct stile_error why;
    if (!session->fresh) {
        options.session = session->id;
        options.last_zxid = session->zxid;
    }
    loop_arm(loop_of(session), &session->timer, session->dial_until_ns);
    if (zk_connection_open(&session->connection, loop_of(session), &options, &connection_events,
                           session, &why))
        go_down(session, &why);
}

static void on_time(struct timer *timer)
{
    struct session *session = container_of(timer, struct session, timer);
    if (session->connection) {
        zk_session_leave_server(session);
        return;
    }
    session->state = SESSION_DOWN;
    dial(session);
}

/* ---- its end, and the next one ---- */

static void explain_end(const struct session *session, struct stile_error *err)
{
    uint64_t age_ns = loop_now(loop_of(session)) - session->proven_ns;
    if (session->refused)
        error_set(err, STILE_LOST, ZAUTHFAILED, "the server refuses the URL's user");
    else if (age_ns >= session->ttl_ns)
        error_set(err, STILE_LOST, ZSESSIONEXPIRED,
                  "the session of %.0f s expired: not renewed for %.1f s",
                  (double)session->ttl_ns / NS_PER_SEC, (double)age_ns / NS_PER_SEC);
    else
        error_set(err, STILE_LOST, ZSESSIONEXPIRED,
                  "the server has ended the session before its time: somebody closed it, or the "
                  "server has lost data");
}

static void restart(struct session *session)
{
    struct loop *loop = loop_of(session);
    struct engine *engine = &session->zk->engine;
    struct stile_error err;
    bool refused = session->refused;
    explain_end(session, &err);
    zk_requests_fail(session, refused ? ZAUTHFAILED : ZSESSIONEXPIRED);
    zk_connection_free(session->connection);
    session->connection = NULL;
    zk_watches_free(session);
    session->ending = session->renewing = session->probing = session->refused = session->fresh =
        false;
    session->id = (struct session_id){0};
    session->zxid = 0;
    session->generation++;
    zk_dial_end(session);
    if (!refused)
        session->state = SESSION_DOWN;
    loop_arm(loop, &session->timer, refused ? loop_now(loop) + AUTH_AGAIN_NS : session->dial_ns);
    engine->events->session_lost(engine, session, &err);
    session->zk->session_events->ended(session);
}

static void on_task(struct task *task)
{
    struct session *session = container_of(task, struct session, task);
    zk_requests_report_failed(session);
    if (session->ending)
        restart(session);
    else if (session->state == SESSION_DEAD) /* its user was refused a moment ago */
        zk_requests_fail(session, ZAUTHFAILED);
    else if (session->watches_lost)
        zk_session_leave_server(session);
    session->watches_lost = false;
}

static void flush_requests(struct sender *sender)
{
    struct session *session = container_of(sender, struct session, sender);
    zk_requests_send_batch(session);
    loop_ungather(loop_of(session), sender); /* queueing the batch has scheduled it again */
    zk_requests_send(session);
}

static struct session *session_new(struct zk *zk, int asked_ms, struct stile_error *err)
{
    struct session *session = calloc(1, sizeof *session);
    if (!session || loop_reserve(zk->engine.loop, SESSION_TIMERS)) {
        free(session);
        error_set(err, STILE_NOMEM, 0, "out of memory");
        return NULL;
    }
    *session = (struct session){.zk = zk,
                                .asked_ms = asked_ms,
                                .timeout_ms = asked_ms,
                                .ttl_ns = (uint64_t)asked_ms * NS_PER_MS,
                                .down_ns = loop_now(zk->engine.loop),
                                .timer.fn = on_time,
                                .probe_timer.fn = on_probe_timer,
                                .task.fn = on_task,
                                .sender.fn = flush_requests};
    session->queue_tail = &session->queue;
    session->failed_tail = &session->failed;
    loop_random(zk->engine.loop, &session->first_host, sizeof session->first_host);
    session->first_host %= (unsigned)zk->n_hosts;
    session->next = zk->sessions;
    zk->sessions = session;
    loop_arm(zk->engine.loop, &session->timer, loop_now(zk->engine.loop));
    return session;
}

struct session *zk_session_for(struct zk *zk, uint64_t ttl_ns, size_t bytes,
                               struct stile_error *err)
{
    uint64_t seconds = (ttl_ns + NS_PER_SEC - 1) / NS_PER_SEC;
    int asked_ms = seconds < 1000000 ? (int)seconds * 1000 : 1000000000;
    size_t n = 0;
    for (struct session *session = zk->sessions; session; session = session->next, n++) {
        if (session->asked_ms == asked_ms && session->bytes + bytes <= SESSION_BYTES_MAX)
            return session;
    }
    if (n < SESSIONS_MAX)
        return session_new(zk, asked_ms, err);
    error_set(err, STILE_REFUSED, 0,
              "this client has %d sessions, one for each TTL in seconds and each %u kB of node "
              "paths: use fewer TTLs, hold fewer locks, or open another client",
              SESSIONS_MAX, SESSION_BYTES_MAX >> 10);
    return NULL;
}

/* ---- closing ---- */

static void session_free(struct session *session)
{
    struct loop *loop = loop_of(session);
    session->state = SESSION_DEAD;
    session->ending = true;
    zk_requester_forget(&session->requester);
    zk_requester_forget(&session->marks.requester);
    zk_requester_forget(&session->strays);
    zk_requests_fail(session, ZCONNECTIONLOSS);
    zk_connection_free(session->connection);
    session->connection = NULL;
    zk_watches_free(session);
    loop_ungather(loop, &session->sender);
    loop_forget(loop, &session->task);
    loop_disarm(loop, &session->timer);
    loop_disarm(loop, &session->probe_timer);
    loop_unreserve(loop, SESSION_TIMERS);
    explicit_bzero(&session->id, sizeof session->id);
    free(session);
}

bool zk_sessions_are_connected(const struct zk *zk)
{
    for (const struct session *session = zk->sessions; session; session = session->next) {
        if (session->connection)
            return true;
    }
    return false;
}

bool zk_sessions_end(struct zk *zk)
{
    zk->closing = true;
    for (struct session *session = zk->sessions; session; session = session->next) {
        loop_disarm(zk->engine.loop, &session->timer);
        loop_disarm(zk->engine.loop, &session->probe_timer);
        zk_requests_send_batch(session);
        zk_requests_send(session);
        if (session->state == SESSION_UP) {
            send_close(session);
        } else {
            zk_connection_free(session->connection);
            session->connection = NULL;
        }
    }
    return zk_sessions_are_connected(zk);
}

static void on_end_timer(struct timer *timer)
{
    (void)timer; /* the loop has woken up */
}

static void await_end(struct zk *zk)
{
    struct loop *loop = zk->engine.loop;
    struct timer timer = {.fn = on_end_timer};
    uint64_t until_ns = loop_now(loop) + SESSION_END_NS;
    if (loop_reserve(loop, 1))
        return;
    loop_arm(loop, &timer, until_ns);
    while (zk_sessions_are_connected(zk) && loop_now(loop) < until_ns) {
        loop_prepare(loop);
        loop_wait(loop, true);
        loop_run(loop);
    }
    loop_disarm(loop, &timer);
    loop_unreserve(loop, 1);
}

void zk_sessions_close(struct zk *zk)
{
    if (!zk->closing && zk_sessions_end(zk))
        await_end(zk);
    while (zk->sessions) {
        struct session *session = zk->sessions;
        zk->sessions = session->next;
        session_free(session);
    }
}

void zk_session_forked(struct session *session)
{
    zk_connection_forked(session->connection);
}
