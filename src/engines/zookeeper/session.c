/* Sessions: known to all servers, and driven over a connection to one of them at a time.
 *
 *     DOWN ──► UP        a server has given it, or taken it up again
 *      ▲       │
 *      └───────┘         the connection broke: the next server is tried (dial.c)
 *     DOWN, UP ──► DEAD  the servers say that it is over, or want no such user; then a new one
 * begins
 *
 * Requests are in asks.c; when the leader has heard of us is the matter of told.c. There is one
 * session for each TTL in use, and more where the paths of its nodes would become too many bytes
 * (SESSION_BYTES_MAX). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/zookeeper/zookeeper.h"

#define AGAIN_NS       (1 * NS_PER_SEC)
#define GOODBYE_NS     (500 * NS_PER_MS)
#define SESSION_TIMERS 2

static struct loop *loop_of(const struct session *session)
{
    return session->zoo->engine.loop;
}

void session_gather(struct session *session)
{
    loop_gather(loop_of(session), &session->sender);
}

static void send_gathered(struct sender *sender)
{
    struct session *session = (struct session *)((char *)sender - offsetof(struct session, sender));
    together_send(session);
    loop_ungather(loop_of(session), sender); /* what goes together was put into the queue */
    asks_send(session);
}

/* ---- down ---- */

static void explain(struct session *session, const struct stile_error *why)
{
    session->why = *why;
    error_wrap(&session->why, why->status, "%.100s", dial_host(session)->where);
}

/* The connection has ended, or is given up. */
static void go_down(struct session *session, const struct stile_error *why)
{
    struct loop *loop = loop_of(session);
    struct connection *connection = session->connection;
    bool fresh = dial_wants_fresh(session);
    explain(session, why);
    if (connection && connection_zxid(connection) > session->zxid)
        session->zxid = connection_zxid(connection);
    dial_ends(session);
    if (session->state == SESSION_UP)
        session->state = SESSION_DOWN;
    session->fresh = fresh;
    if (session->state == SESSION_DOWN && !session->zoo->closing)
        loop_arm(loop, &session->timer, fresh ? loop_now(loop) : session->dial_ns);
    asks_fail(session, ZCONNECTIONLOSS);
    session->connection = NULL;
    connection_free(connection);
}

static void on_closed(struct connection *connection, const struct stile_error *why)
{
    go_down(connection_owner(connection), why);
}

void session_leave_server(struct session *session)
{
    struct stile_error why;
    if (!session->connection)
        return;
    error_set(&why, STILE_UNREACHABLE, ETIMEDOUT, "the server does not answer");
    go_down(session, &why);
}

/* ---- up ---- */

static void end_later(struct session *session)
{
    session->state = SESSION_DEAD;
    session->ending = true;
    loop_soon(loop_of(session), &session->task);
}

/* A session without nodes, which was asked for to see whether it is given. */
static void send_goodbye(struct session *session)
{
    struct jute_writer *writer = &session->zoo->writer;
    size_t n;
    jute_begin(writer);
    jute_write_int(writer, 0);
    jute_write_int(writer, JUTE_CLOSE_SESSION);
    const char *packet = jute_end(writer, &n);
    if (packet && connection_say(session->connection, packet, n) == 0)
        connection_flush(session->connection);
}

static void on_up(struct connection *connection, const struct session_id *id, int32_t timeout_ms)
{
    struct session *session = connection_owner(connection);
    if (session->fresh && id->id)
        send_goodbye(session);
    if (session->fresh || id->id == 0) {
        end_later(session);
        return;
    }
    loop_disarm(loop_of(session), &session->timer);
    session->id = *id;
    session->timeout_ms = timeout_ms;
    session->ttl_ns = (uint64_t)timeout_ms * NS_PER_MS;
    session->state = SESSION_UP;
    session->up_ns = loop_now(loop_of(session));
    session->connect_ns = connection_greeted_ns(connection);
    watchers_set_again(session);
    if (session->unwatched)
        loop_soon(loop_of(session), &session->task);
    session_gather(session);
    told_up(session);
}

static void on_unauthorized(struct connection *connection)
{
    struct session *session = connection_owner(connection);
    session->refused = true;
    end_later(session);
}

static void on_event(struct connection *connection, int32_t type, const char *path)
{
    watchers_report(connection_owner(connection), type, path);
}

static const struct connection_events connection_events = {
    .up = on_up, .event = on_event, .unauthorized = on_unauthorized, .closed = on_closed};

/* ---- connecting ---- */

static void dial(struct session *session)
{
    struct zoo *zoo = session->zoo;
    dial_begins(session);
    const struct zoo_host *host = dial_host(session);
    struct connection_options options = {
        .target = {.host = host->name,
                   .port = host->port,
                   .tls = zoo->tls,
                   .rotate = session->dials / (unsigned)zoo->n_hosts,
                   .timeout_ns = dial_patience_ns(session)},
        .timeout_ms = session->asked_ms,
        .credentials = zoo->credentials};
    struct stile_error why;
    if (!session->fresh) {
        options.session = session->id;
        options.last_zxid = session->zxid;
    }
    loop_arm(loop_of(session), &session->timer,
             loop_now(loop_of(session)) + options.target.timeout_ns);
    if (connection_open(&session->connection, loop_of(session), &options, &connection_events,
                        session, &why))
        go_down(session, &why);
}

static void on_time(struct timer *timer)
{
    struct session *session = (struct session *)((char *)timer - offsetof(struct session, timer));
    if (session->connection) {
        session_leave_server(session);
        return;
    }
    session->state = SESSION_DOWN;
    dial(session);
}

/* ---- its life ---- */

static void restart(struct session *session)
{
    struct loop *loop = loop_of(session);
    struct engine *engine = &session->zoo->engine;
    struct stile_error err;
    bool refused = session->refused;
    asks_fail(session, refused ? ZAUTHFAILED : ZSESSIONEXPIRED);
    connection_free(session->connection);
    session->connection = NULL;
    watchers_free(session);
    session->ending = session->renewing = session->asking = session->refused = session->fresh =
        false;
    session->id = (struct session_id){0};
    session->zxid = 0;
    session->generation++;
    dial_ends(session);
    if (!refused)
        session->state = SESSION_DOWN;
    loop_arm(loop, &session->timer, refused ? loop_now(loop) + AGAIN_NS : session->dial_ns);
    error_set(&err, STILE_LOST, ZSESSIONEXPIRED, "the server has ended our session");
    engine->events->session_lost(engine, session, &err);
    claims_session_ends(session);
}

static void on_task(struct task *task)
{
    struct session *session = (struct session *)((char *)task - offsetof(struct session, task));
    asks_answer_failed(session);
    if (session->ending)
        restart(session);
    else if (session->state == SESSION_DEAD) /* its user was refused, a moment ago */
        asks_fail(session, ZAUTHFAILED);
    else if (session->unwatched)
        session_leave_server(session);
    session->unwatched = false;
}

static struct session *session_new(struct zoo *zoo, int asked_ms, struct stile_error *err)
{
    struct session *session = calloc(1, sizeof *session);
    if (!session || loop_reserve(zoo->engine.loop, SESSION_TIMERS)) {
        free(session);
        error_set(err, STILE_NOMEM, 0, "out of memory");
        return NULL;
    }
    *session = (struct session){.zoo = zoo,
                                .asked_ms = asked_ms,
                                .timeout_ms = asked_ms,
                                .ttl_ns = (uint64_t)asked_ms * NS_PER_MS,
                                .down_ns = loop_now(zoo->engine.loop),
                                .timer.fn = on_time,
                                .told_timer.fn = told_ask,
                                .task.fn = on_task,
                                .sender.fn = send_gathered};
    session->queue_tail = &session->queue;
    session->failed_tail = &session->failed;
    loop_random(zoo->engine.loop, &session->first_host, sizeof session->first_host);
    session->first_host %= (unsigned)zoo->n_hosts;
    session->next = zoo->sessions;
    zoo->sessions = session;
    loop_arm(zoo->engine.loop, &session->timer, loop_now(zoo->engine.loop));
    return session;
}

struct session *session_for(struct zoo *zoo, uint64_t ttl_ns, size_t bytes, struct stile_error *err)
{
    uint64_t seconds = (ttl_ns + NS_PER_SEC - 1) / NS_PER_SEC;
    int asked_ms = seconds < 1000000 ? (int)seconds * 1000 : 1000000000;
    size_t n = 0;
    for (struct session *session = zoo->sessions; session; session = session->next, n++) {
        if (session->asked_ms == asked_ms && session->bytes + bytes <= SESSION_BYTES_MAX)
            return session;
    }
    if (n < SESSIONS_MAX)
        return session_new(zoo, asked_ms, err);
    error_set(err, STILE_REFUSED, 0,
              "this client has %d sessions, one for each TTL in seconds and each %u kB of node "
              "paths: use fewer TTLs, hold fewer locks, or open another client",
              SESSIONS_MAX, SESSION_BYTES_MAX >> 10);
    return NULL;
}

/* ---- the end ---- */

static void session_free(struct session *session)
{
    struct loop *loop = loop_of(session);
    session->state = SESSION_DEAD;
    session->ending = true;
    asker_forget(&session->asker);
    asks_fail(session, ZCONNECTIONLOSS);
    connection_free(session->connection);
    session->connection = NULL;
    watchers_free(session);
    loop_ungather(loop, &session->sender);
    loop_forget(loop, &session->task);
    loop_disarm(loop, &session->timer);
    loop_disarm(loop, &session->told_timer);
    loop_unreserve(loop, SESSION_TIMERS);
    explicit_bzero(&session->id, sizeof session->id);
    free(session);
}

static bool any_connected(const struct zoo *zoo)
{
    for (const struct session *session = zoo->sessions; session; session = session->next) {
        if (session->connection)
            return true;
    }
    return false;
}

static void enough(struct timer *timer)
{
    (void)timer; /* the loop has woken up */
}

/* Until the servers have hung up: a session whose last request is lost lives on for its timeout,
 * with all its nodes. */
static void await_end(struct zoo *zoo)
{
    struct loop *loop = zoo->engine.loop;
    struct timer timer = {.fn = enough};
    uint64_t until_ns = loop_now(loop) + GOODBYE_NS;
    if (loop_reserve(loop, 1))
        return;
    loop_arm(loop, &timer, until_ns);
    while (any_connected(zoo) && loop_now(loop) < until_ns) {
        loop_prepare(loop);
        loop_wait(loop, true);
        loop_run(loop);
    }
    loop_disarm(loop, &timer);
    loop_unreserve(loop, 1);
}

void sessions_close(struct zoo *zoo)
{
    zoo->closing = true;
    for (struct session *session = zoo->sessions; session; session = session->next) {
        loop_disarm(zoo->engine.loop, &session->timer);
        loop_disarm(zoo->engine.loop, &session->told_timer);
        together_send(session);
        asks_send(session);
        if (session->state == SESSION_UP) {
            send_goodbye(session);
        } else {
            connection_free(session->connection);
            session->connection = NULL;
        }
    }
    if (any_connected(zoo))
        await_end(zoo);
    while (zoo->sessions) {
        struct session *session = zoo->sessions;
        zoo->sessions = session->next;
        session_free(session);
    }
}

void session_forked(struct session *session)
{
    connection_forked(session->connection);
}
