/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/session_server.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/faults.h"

#define WORD_ROOM 32
#define LOOK_NS   (100 * MS) /* at a timeout that passed while the server was stopped */
/* Numbers of a sequence that are logged ahead: a crash skips them. */
#define LOGGED_AHEAD 32

/* A plain client goes on until it uses its connection again, and one whose wait is ended gives up.
 * The end of a session may concern a grant that is under way: its client learns of it after the
 * next holder, whose token is larger. */
#define ENDED (BIT(OVERLAP) | BIT(UNTOLD) | BIT(TOKEN_ORDER) | BIT(GAVE_UP))

struct session {
    struct session *next;
    struct connection *connection; /* NULL: it is the pooler's, or over */
    const char *name;              /* application_name */
    struct session_lock *waits_for;
    uint64_t idle_since_ns;
};

struct session_lock {
    struct session_lock *next;
    char name[WORD_ROOM];
    struct session *holder; /* NULL: it is free */
    unsigned times;         /* it was locked by its holder */
    struct waiting *first;
};

struct waiting {
    struct waiting *next;
    struct session *session;
};

static struct session_options next_options;

static struct {
    struct server server;
    struct session_options options;
    struct session *sessions;
    struct session *shared; /* the pooler's */
    struct session_lock *locks;
    uint64_t token;
    unsigned broken;
} db;

void sim_sessions_configure(const struct session_options *options)
{
    next_options = *options;
}

/* ---- answers ---- */

static void reply(struct connection *connection, const char *text)
{
    const char *line = world_print("%s\n", text);
    if (connection != NULL)
        connection_reply(connection, line, strlen(line));
}

static void end_session(struct session *session, const char *why);

static void check_idle(void *data)
{
    struct session *session = data;
    uint64_t at_ns = session->idle_since_ns + db.options.idle_timeout_ns;
    if (session->connection == NULL || session->waits_for != NULL || at_ns > world_now())
        return;
    if (!server_runs(&db.server)) {
        world_at(world_now() + LOOK_NS, check_idle, session);
        return;
    }
    end_session(session, "FATAL: terminating connection due to idle-session timeout");
}

static void becomes_idle(struct session *session)
{
    session->idle_since_ns = world_now();
    if (db.options.idle_timeout_ns != 0)
        world_at(world_now() + db.options.idle_timeout_ns, check_idle, session);
}

/* ---- locks ---- */

static struct session_lock *lock_named(const char *name)
{
    for (struct session_lock *each = db.locks; each != NULL; each = each->next) {
        if (strcmp(each->name, name) == 0)
            return each;
    }
    struct session_lock *lock = world_alloc(sizeof *lock);
    snprintf(lock->name, sizeof lock->name, "%s", name);
    lock->next = db.locks;
    db.locks = lock;
    return lock;
}

static bool take(struct session_lock *lock, struct session *session)
{
    if (lock->holder != NULL && lock->holder != session)
        return false;
    lock->holder = session;
    lock->times++;
    return true;
}

static void wait_for(struct session_lock *lock, struct session *session)
{
    struct waiting **at = &lock->first, *waiting = world_alloc(sizeof *waiting);
    while (*at != NULL)
        at = &(*at)->next;
    waiting->session = session;
    session->waits_for = lock;
    *at = waiting;
}

static void stop_waiting(struct session *session)
{
    if (session->waits_for == NULL)
        return;
    struct waiting **at = &session->waits_for->first;
    while ((*at)->session != session)
        at = &(*at)->next;
    *at = (*at)->next;
    session->waits_for = NULL;
}

/* The first waiter has it at once. */
static void set_free(struct session_lock *lock)
{
    lock->holder = NULL;
    lock->times = 0;
    if (lock->first == NULL)
        return;
    struct session *session = lock->first->session;
    stop_waiting(session);
    take(lock, session);
    world_trace("%s: %s has the lock %s", db.server.host, session->name, lock->name);
    reply(session->connection, "(1 row)");
    becomes_idle(session);
}

static bool give_back(struct session_lock *lock, const struct session *session)
{
    if (lock->holder != session)
        return false;
    if (--lock->times == 0)
        set_free(lock);
    return true;
}

/* ---- sessions ---- */

static void drop_locks(const struct session *session)
{
    for (struct session_lock *each = db.locks; each != NULL; each = each->next) {
        if (each->holder == session)
            set_free(each);
    }
}

/* why NULL: its client has ended it. */
static void end_session(struct session *session, const char *why)
{
    struct connection *connection = session->connection;
    if (connection == NULL)
        return;
    world_trace("%s: the session of %s has ended", db.server.host, session->name);
    session->connection = NULL;
    stop_waiting(session);
    if (why != NULL) {
        db.broken |= ENDED;
        reply(connection, why);
        connection_end(connection);
    }
    drop_locks(session);
}

static struct session *session_new(const char *name, struct connection *connection)
{
    struct session *session = world_alloc(sizeof *session);
    *session = (struct session){.next = db.sessions, .name = name, .connection = connection};
    db.sessions = session;
    return session;
}

/* One that is among them gets no answer. */
static void terminate(struct connection *connection, const char *name)
{
    bool found = false;
    for (struct session *each = db.sessions; each != NULL; each = each->next)
        found |= each->connection != NULL && strcmp(each->name, name) == 0;
    if (strcmp(connection->process->name, name) != 0 || db.shared != NULL)
        reply(connection, found ? "t" : "(0 rows)");
    for (struct session *each = db.sessions; each != NULL; each = each->next) {
        if (strcmp(each->name, name) == 0)
            end_session(each, "FATAL: terminating connection due to administrator command");
    }
}

/* ---- statements ---- */

static bool is_call(char name[WORD_ROOM], const char *statement, const char *function)
{
    const char *format = world_print("SELECT %s(hashtextextended('%%31[^']', 0))%%n", function);
    int n = 0;
    return sscanf(statement, format, name, &n) == 1 && n > 0;
}

static void lock_or_wait(struct connection *connection, struct session *session, const char *name)
{
    struct session_lock *lock = lock_named(name);
    if (take(lock, session))
        reply(connection, "(1 row)");
    else
        wait_for(lock, session);
}

static void unlock(struct connection *connection, const struct session *session, const char *name)
{
    bool had = give_back(lock_named(name), session);
    reply(connection, had ? "t" : "f (WARNING: you don't own a lock of type ExclusiveLock)");
}

static void execute(struct connection *connection, struct session *session, const char *statement)
{
    char name[WORD_ROOM];
    if (is_call(name, statement, "pg_advisory_lock"))
        lock_or_wait(connection, session, name);
    else if (is_call(name, statement, "pg_try_advisory_lock"))
        reply(connection, take(lock_named(name), session) ? "t" : "f");
    else if (is_call(name, statement, "pg_advisory_unlock"))
        unlock(connection, session, name);
    else if (strcmp(statement, "SELECT nextval('tokens')") == 0)
        reply(connection, world_print("%" PRIu64, ++db.token));
    else if (sscanf(statement,
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name = '%31[^']'",
                    name) == 1)
        terminate(connection, name);
    else
        reply(connection, "1");
}

/* ---- connections ---- */

static void accepted(struct connection *connection)
{
    if (db.shared != NULL) {
        connection->data = db.shared;
        return;
    }
    struct session *session = session_new(connection->process->name, connection);
    connection->data = session;
    becomes_idle(session);
}

static void data(struct connection *connection)
{
    struct session *session = connection->data;
    struct buffer *in = &connection->received;
    while (!connection->ended && buffer_len(in) > 0) {
        const char *line = buffer_at(in), *end = memchr(line, '\n', buffer_len(in));
        if (end == NULL)
            return;
        char *statement = world_print("%.*s", (int)(end - line), line);
        buffer_drop(in, (size_t)(end - line) + 1);
        execute(connection, session, statement);
        if (session->waits_for == NULL)
            becomes_idle(session);
    }
}

/* The pooler keeps its session. */
static void closed(struct connection *connection)
{
    struct session *session = connection->data;
    if (session != db.shared)
        end_session(session, NULL);
}

/* ---- for a reader of the run ---- */

static void describe(struct buffer *text, enum direction way, const void *bytes, size_t n)
{
    (void)way;
    buffer_put(text, bytes, n - (((const char *)bytes)[n - 1] == '\n'));
}

static bool stored(struct stored *stored, const struct server *server, const char *name)
{
    (void)server;
    for (const struct session_lock *each = db.locks; each != NULL; each = each->next) {
        if (each->holder == NULL || strcmp(each->name, name) != 0)
            continue;
        snprintf(stored->holder, sizeof stored->holder, "%s", each->holder->name);
        stored->until_ns = UINT64_MAX;
        return true;
    }
    return false;
}

static const struct server_class class = {accepted, data, closed, describe, stored};

/* ---- faults ---- */

/* Nobody is granted what others had: all sessions end together. */
static void crash(struct fault *fault)
{
    struct server *server = fault->server;
    db.locks = NULL;
    for (struct session *each = db.sessions; each != NULL; each = each->next)
        each->waits_for = NULL;
    server->down = true;
    server_cut(server);
    db.broken |= ENDED;
}

static void restart(struct fault *fault)
{
    if (fault->server->down)
        db.token += LOGGED_AHEAD;
    fault->server->down = false;
}

static const struct fault_class faults[] = {
    {"a server is stopped", 0, 0, AT_SERVER, strike_stop, heal_stop},
    {"a server crashes and keeps its data", 0, ENDED, AT_SERVER, crash, restart},
    {0},
};

/* ---- the class ---- */

static const char *begin(struct random *random)
{
    (void)random;
    memset(&db, 0, sizeof db);
    db.options = next_options;
    db.server =
        (struct server){.class = &class, .host = db.options.pooled ? "pool" : "db", .port = 5432};
    if (db.options.pooled) {
        db.shared = session_new("the pooler", NULL);
        db.broken = ENDED;
    }
    net_add(&db.server);
    return world_print("postgresql://%s", db.server.host);
}

static void dispose(void)
{
    server_dispose(&db.server);
}

static unsigned also_broken(void)
{
    return db.broken;
}

const struct sim_engine_class sim_sessions_class = {
    .name = "sessions",
    .exclusive_only = true,
    .tokens = true,
    .fifo = true,
    .begin = begin,
    .dispose = dispose,
    .faults = faults,
    .also_broken = also_broken,
};
