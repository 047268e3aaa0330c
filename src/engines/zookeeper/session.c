/* Sessions: a handle of the client library each, driven by our loop.
 *
 * The library asks for its socket, for events on it and for a time by zookeeper_interest(), which
 * also connects, sends pings and gives up a silent server; zookeeper_process() reads, and calls
 * back. Requests are in asks.c.
 *
 * The library may close its socket in any call. What the loop watches is a duplicate, which is ours
 * and is closed after it was taken out of the loop.
 *
 * When the leader has heard of us is the matter of told.c. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engines/zookeeper/zookeeper.h"

#define AGAIN_NS       (1 * NS_PER_SEC)
#define DRAIN_MS       500
#define SESSIONS_MAX   16
#define SESSION_TIMERS 2
#define PACKETS_MAX    256 /* read in one go, before others have their turn */

static struct loop *loop_of(const struct session *session)
{
    return session->zoo->engine.loop;
}

/* ---- the socket ---- */

static void close_socket(struct session *session)
{
    loop_unwatch(loop_of(session), &session->watch);
    if (session->watch.fd >= 0)
        close(session->watch.fd);
    session->watch.fd = session->lib_fd = -1;
    session->inode = 0;
}

/* The library writes each request at once, and in two pieces: the kernel keeps them back until
 * there are no more. */
static void cork(struct session *session, int corked)
{
    if (session->watch.fd >= 0)
        setsockopt(session->watch.fd, IPPROTO_TCP, TCP_CORK, &corked, sizeof corked);
}

void session_gather(struct session *session)
{
    if (session->sender.queued)
        return;
    cork(session, 1);
    loop_gather(loop_of(session), &session->sender);
}

static void send_gathered(struct sender *sender)
{
    struct session *session = (struct session *)((char *)sender - offsetof(struct session, sender));
    together_send(session);
    cork(session, 0);
}

static uint64_t inode_of(int fd)
{
    struct stat stat;
    return fd >= 0 && fstat(fd, &stat) == 0 ? stat.st_ino : 0;
}

static int take_socket(struct session *session, int fd)
{
    uint64_t inode = inode_of(fd);
    if (inode && inode == session->inode)
        return 0;
    close_socket(session);
    session->events = 0;
    if (!inode)
        return 0;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    session->watch.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (session->watch.fd < 0)
        return errno;
    session->lib_fd = fd;
    session->inode = inode;
    session->connect_ns = session->pumped_ns;
    dial_begins(session);
    return 0;
}

/* The library notices the end of the connection, and goes on to the next server. */
void session_leave_server(struct session *session)
{
    if (session->watch.fd >= 0)
        shutdown(session->watch.fd, SHUT_RDWR);
}

static int watch_socket(struct session *session, int fd, int interest)
{
    uint32_t events =
        (interest & ZOOKEEPER_READ ? EPOLLIN : 0u) | (interest & ZOOKEEPER_WRITE ? EPOLLOUT : 0u);
    int error = take_socket(session, fd);
    if (error || session->watch.fd < 0 || events == session->events)
        return error;
    error = loop_watch(loop_of(session), &session->watch, events);
    session->events = error ? 0 : events;
    return error;
}

static void restart_later(struct session *session)
{
    loop_arm(loop_of(session), &session->timer, loop_now(loop_of(session)) + AGAIN_NS);
}

static bool has_lost_socket(const struct session *session)
{
    return session->watch.fd >= 0 && inode_of(session->lib_fd) != session->inode;
}

/* When it has to be asked again. */
static uint64_t next_ns(struct session *session, const struct timeval *time)
{
    uint64_t now_ns = loop_now(loop_of(session));
    uint64_t at_ns =
        now_ns + (uint64_t)time->tv_sec * NS_PER_SEC + (uint64_t)time->tv_usec * (NS_PER_MS / 1000);
    uint64_t patience_ns = dial_patience_ns(session);
    if (now_ns >= patience_ns)
        session_leave_server(session);
    else if (patience_ns < at_ns)
        at_ns = patience_ns;
    return at_ns;
}

/* What the library wants next. It may call back from here. */
static uint64_t consult(struct session *session)
{
    struct timeval time = {0};
    int fd = -1, interest = 0;
    session->pumped_ns = loop_now(loop_of(session));
    int rc = zookeeper_interest(session->handle, &fd, &interest, &time);
    /* Out of file descriptors or memory: it is tried again, before the session ends. */
    int error = watch_socket(session, rc == ZOK ? fd : -1, interest);
    if (error)
        return session->pumped_ns + NUDGE_NS;
    if (rc == ZOK && fd < 0) /* it pauses, but it is we who do that */
        return session->pumped_ns;
    if (rc == ZOK)
        return next_ns(session, &time);
    dial_ends(session);
    return session->dial_ns > session->pumped_ns + NUDGE_NS ? session->dial_ns
                                                            : session->pumped_ns + NUDGE_NS;
}

static void pump(struct session *session)
{
    struct loop *loop = loop_of(session);
    if (session->state == SESSION_DEAD)
        return;
    if (has_lost_socket(session)) {
        close_socket(session);
        dial_ends(session);
    }
    bool pauses = session->watch.fd < 0 && loop_now(loop) < session->dial_ns;
    uint64_t at_ns = pauses ? session->dial_ns : consult(session);
    if (session->state != SESSION_DEAD)
        loop_arm(loop, &session->timer, at_ns);
}

static void on_ready(struct watch *watch, uint32_t events)
{
    struct session *session = (struct session *)((char *)watch - offsetof(struct session, watch));
    int wanted = (events & EPOLLOUT ? ZOOKEEPER_WRITE : 0) |
                 (events & ~(uint32_t)EPOLLOUT ? ZOOKEEPER_READ : 0);
    for (int i = 0; i < PACKETS_MAX && session->state != SESSION_DEAD; i++) {
        if (zookeeper_process(session->handle, wanted) != ZOK)
            break;
        wanted = ZOOKEEPER_READ;
    }
    pump(session);
}

/* ---- its life ---- */

static void on_up(struct session *session)
{
    session->timeout_ms = zoo_recv_timeout(session->handle);
    session->state = SESSION_UP;
    session->up_ns = loop_now(loop_of(session));
    session->ups++;
    session->id = zoo_client_id(session->handle)->client_id;
    session->ttl_ns = (uint64_t)session->timeout_ms * NS_PER_MS;
    told_up(session);
}

/* A handle is never closed in one of its own callbacks. */
static void on_session(zhandle_t *handle, int type, int state, const char *path, void *data)
{
    struct session *session = data;
    (void)path;
    if (type != ZOO_SESSION_EVENT || session->state == SESSION_DEAD || handle != session->handle)
        return;
    if (state == ZOO_CONNECTED_STATE) {
        on_up(session);
    } else if (state == ZOO_EXPIRED_SESSION_STATE || state == ZOO_AUTH_FAILED_STATE) {
        session->refused = state == ZOO_AUTH_FAILED_STATE;
        session->state = SESSION_DEAD;
        session->ending = true;
        loop_soon(loop_of(session), &session->task);
    } else {
        session->state = SESSION_DOWN;
    }
}

static void ignore_log(const char *message)
{
    (void)message;
}

static int start(struct session *session)
{
    const struct zoo *zoo = session->zoo;
    session->state = SESSION_DOWN;
    session->handle = zookeeper_init2(zoo->servers, on_session, session->asked_ms, NULL, session,
                                      ZOO_NO_LOG_CLIENTENV, ignore_log);
    int error = session->handle ? 0 : errno;
    if (!error && zoo->credentials &&
        zoo_add_auth(session->handle, "digest", zoo->credentials, (int)strlen(zoo->credentials),
                     NULL, NULL) != ZOK)
        error = ENOMEM;
    if (error) {
        session->state = SESSION_DEAD;
        return error;
    }
    /* Else it looks them up, and asks the kernel for its networks, in every turn. */
    zoo_set_servers_resolution_delay(session->handle, -1);
    loop_arm(loop_of(session), &session->timer, loop_now(loop_of(session)));
    return 0;
}

/* Until the server has hung up: a session whose last words are lost lives on for its timeout, with
 * all that it has. */
static void drain(int fd)
{
    char bytes[512];
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    while (poll(&ready, 1, DRAIN_MS) > 0 && recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
}

/* Answers to all that is in flight come from inside. */
static void stop(struct session *session)
{
    bool up = session->state == SESSION_UP;
    zhandle_t *handle = session->handle;
    together_send(session);
    session->state = SESSION_DEAD;
    loop_unwatch(loop_of(session), &session->watch);
    session->handle = NULL;
    cork(session, 0); /* its last words leave as well */
    if (handle)
        zookeeper_close(handle);
    if (up && session->watch.fd >= 0)
        drain(session->watch.fd);
    close_socket(session);
    session->events = 0;
    asks_answer_failed(session);
    while (session->watchers)
        watcher_free(session->watchers);
}

static void restart(struct session *session)
{
    struct engine *engine = &session->zoo->engine;
    struct stile_error err;
    bool refused = session->refused;
    stop(session);
    session->ending = session->renewing = session->asking = session->refused = false;
    session->generation++;
    if (refused || start(session))
        restart_later(session);
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
}

static void on_time(struct timer *timer)
{
    struct session *session = (struct session *)((char *)timer - offsetof(struct session, timer));
    if (session->state == SESSION_DEAD && !session->handle && start(session))
        restart_later(session);
    else
        pump(session);
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
                                .watch = {.fd = -1, .fn = on_ready},
                                .lib_fd = -1,
                                .timer.fn = on_time,
                                .told_timer.fn = told_ask,
                                .task.fn = on_task,
                                .sender.fn = send_gathered};
    session->failed_tail = &session->failed;
    int error = start(session);
    if (error) {
        error_errno(err, STILE_REFUSED, error, "starting the client library");
        loop_unreserve(zoo->engine.loop, SESSION_TIMERS);
        free(session);
        return NULL;
    }
    session->next = zoo->sessions;
    zoo->sessions = session;
    return session;
}

struct session *session_for(struct zoo *zoo, uint64_t ttl_ns, struct stile_error *err)
{
    uint64_t seconds = (ttl_ns + NS_PER_SEC - 1) / NS_PER_SEC;
    int asked_ms = seconds < 1000000 ? (int)seconds * 1000 : 1000000000;
    size_t n = 0;
    for (struct session *session = zoo->sessions; session; session = session->next, n++) {
        if (session->asked_ms == asked_ms)
            return session;
    }
    if (n < SESSIONS_MAX)
        return session_new(zoo, asked_ms, err);
    error_set(err, STILE_REFUSED, 0,
              "more than %d different TTLs in one client, in seconds: use fewer", SESSIONS_MAX);
    return NULL;
}

void session_free(struct session *session)
{
    struct loop *loop = loop_of(session);
    session->ending = true;
    asker_forget(&session->asker);
    stop(session);
    loop_ungather(loop, &session->sender);
    loop_forget(loop, &session->task);
    loop_disarm(loop, &session->timer);
    loop_disarm(loop, &session->told_timer);
    loop_unreserve(loop, SESSION_TIMERS);
    free(session);
}

void session_forked(struct session *session)
{
    if (session->watch.fd >= 0)
        close(session->watch.fd);
    if (session->lib_fd >= 0)
        close(session->lib_fd);
}
