/* Requests, and their answers: to the asker, if it still wants them.
 *
 * Each is a packet in the queue of its session. As many as WINDOW are under way, and the others
 * wait here: a server works on some thousand at a time at most, and what waits in its sockets would
 * keep the proofs of told.c waiting, too. Those go before all that waits. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engines/zookeeper/zookeeper.h"

#define WINDOW    1024
#define RECORD_AT 12 /* in a packet, behind its length and the request's header */

/* Where an answer's parts are while it is reported. */
struct parts {
    struct jute_stat stat;
    struct jute_strings children;
};

typedef void read_fn(struct jute_reader *reader, struct answer *answer, struct parts *parts);

struct ask {
    struct connection_request request; /* first */
    struct ask *next, **link;          /* of its asker */
    struct ask *queue_next;            /* of its session */
    struct asker *asker;
    struct session *session;
    ask_fn *fn;
    read_fn *read;
    struct together *together; /* it asks for all of these */
    uint64_t sent_ns;
    bool by_leader;          /* it has a part in the answer */
    struct watcher *watcher; /* comes with it */
    int rc;                  /* if it has failed */
    bool maybe;
    size_t n;
    char packet[];
};

static struct loop *loop_of(const struct session *session)
{
    return session->zoo->engine.loop;
}

/* ---- askers ---- */

static void ask_join(struct ask *ask, struct asker *asker)
{
    ask->asker = asker;
    ask->next = asker->asks;
    ask->link = &asker->asks;
    if (ask->next)
        ask->next->link = &ask->next;
    asker->asks = ask;
}

static void ask_leave(struct ask *ask)
{
    if (!ask->link)
        return;
    *ask->link = ask->next;
    if (ask->next)
        ask->next->link = ask->link;
    ask->link = NULL;
    ask->asker = NULL;
}

void asker_forget(struct asker *asker)
{
    while (asker->asks)
        ask_leave(asker->asks);
}

/* ---- answers ---- */

/* Not our own. */
static bool is_servers_word(int rc)
{
    return rc <= ZOK && !fault_may_pass(rc);
}

static void finish(struct ask *ask, struct answer *answer)
{
    struct asker *asker = ask->asker;
    ask_fn *fn = ask->fn;
    answer->sent_ns = ask->sent_ns;
    if (is_servers_word(answer->rc) && ask->session->state == SESSION_UP)
        told_answered(ask->session, ask->sent_ns, ask->by_leader);
    if (ask->watcher)
        watcher_settle(ask->watcher, answer->rc);
    if (ask->together)
        together_answered(ask->together, answer->rc, answer->maybe);
    ask_leave(ask);
    free(ask);
    if (asker)
        fn(asker, answer);
}

void ask_finish(struct ask *ask, int rc, bool maybe)
{
    finish(ask, &(struct answer){.rc = rc, .maybe = maybe});
}

static bool on_answered(struct connection_request *request, int32_t code, struct jute_reader *body)
{
    struct ask *ask = (struct ask *)request;
    struct session *session = ask->session;
    struct answer answer = {.rc = code, .maybe = fault_may_pass(code)};
    struct parts parts = {.children = {0}};
    if (code == ZOK && ask->read)
        ask->read(body, &answer, &parts);
    if (!body->bad) {
        session->in_flight--;
        if (session->queue)
            session_gather(session);
        finish(ask, &answer);
    }
    jute_strings_free(&parts.children);
    return !body->bad;
}

static void read_created(struct jute_reader *reader, struct answer *answer, struct parts *parts)
{
    answer->path = jute_read_string(reader);
    jute_read_stat(reader, &parts->stat);
    answer->stat = &parts->stat;
}

static void read_stat(struct jute_reader *reader, struct answer *answer, struct parts *parts)
{
    jute_read_stat(reader, &parts->stat);
    answer->stat = &parts->stat;
}

static void read_data(struct jute_reader *reader, struct answer *answer, struct parts *parts)
{
    answer->data = jute_read_bytes(reader, &answer->data_len);
    read_stat(reader, answer, parts);
}

static void read_children(struct jute_reader *reader, struct answer *answer, struct parts *parts)
{
    jute_read_strings(reader, &parts->children);
    answer->children = &parts->children;
    read_stat(reader, answer, parts);
}

/* What became of each; the first error is that of all. */
static void read_all(struct jute_reader *reader, struct answer *answer, struct parts *parts)
{
    bool done = false;
    (void)parts;
    while (!reader->bad && !done) {
        int32_t type = jute_read_int(reader);
        done = jute_read_bool(reader);
        (void)jute_read_int(reader);
        int32_t code = !done && type == -1 ? jute_read_int(reader) : ZOK;
        if (code && (answer->rc == ZOK || answer->rc == ZRUNTIMEINCONSISTENCY))
            answer->rc = code;
    }
    answer->maybe = fault_may_pass(answer->rc);
}

/* ---- the queue ---- */

void ask_enqueue(struct ask *ask)
{
    struct session *session = ask->session;
    ask->queue_next = NULL;
    *session->queue_tail = ask;
    session->queue_tail = &ask->queue_next;
    session_gather(session);
    if (session->state == SESSION_DEAD)
        loop_soon(loop_of(session), &session->task);
}

static void put_first(struct ask *ask)
{
    struct session *session = ask->session;
    ask->queue_next = session->queue;
    if (!session->queue)
        session->queue_tail = &ask->queue_next;
    session->queue = ask;
}

static struct ask *dequeue(struct session *session)
{
    struct ask *ask = session->queue;
    if (ask)
        session->queue = ask->queue_next;
    if (!session->queue)
        session->queue_tail = &session->queue;
    return ask;
}

static void fail_later(struct ask *ask, int rc)
{
    struct session *session = ask->session;
    ask->rc = rc;
    ask->queue_next = NULL;
    *session->failed_tail = ask;
    session->failed_tail = &ask->queue_next;
    loop_soon(loop_of(session), &session->task);
}

/* What is before the window's end, and a proof, which asks for no room in it. */
void asks_send(struct session *session)
{
    bool up = session->connection && session->state == SESSION_UP;
    while (up && session->queue &&
           (session->in_flight < WINDOW || session->queue->asker == &session->asker)) {
        struct ask *ask = dequeue(session);
        int error = connection_send(session->connection, &ask->request, ask->packet, ask->n);
        if (error == ENOMEM) {
            fail_later(ask, ZNOMEMORY);
        } else if (error) { /* no room, or its end is about to be reported */
            put_first(ask);
            break;
        } else {
            session->in_flight++;
        }
    }
    if (up)
        connection_flush(session->connection);
}

void asks_answer_failed(struct session *session)
{
    struct ask *ask = session->failed, *next;
    session->failed = NULL;
    session->failed_tail = &session->failed;
    for (; ask; ask = next) {
        next = ask->queue_next;
        ask_finish(ask, ask->rc, ask->maybe);
    }
}

/* All are marked before the first of them is answered: what askers ask for then is none of them. */
void asks_fail(struct session *session, int rc)
{
    struct connection_request *request;
    struct ask *ask;
    bool left;
    together_send(session);
    while (session->connection && (request = connection_pop(session->connection, &left))) {
        ask = (struct ask *)request;
        ask->maybe = left;
        fail_later(ask, rc);
    }
    session->in_flight = 0;
    while ((ask = dequeue(session)))
        fail_later(ask, rc);
    asks_answer_failed(session);
}

/* ---- requests ---- */

static struct jute_writer *begin(struct session *session, enum jute_request type)
{
    struct jute_writer *writer = &session->zoo->writer;
    jute_begin(writer);
    jute_write_int(writer, 0); /* its number comes when it is sent */
    jute_write_int(writer, type);
    return writer;
}

/* The packet that was begun. NULL: out of memory. */
static struct ask *ask_new(struct session *session, struct asker *asker, ask_fn *fn, read_fn *read)
{
    size_t n;
    const char *packet = jute_end(&session->zoo->writer, &n);
    struct ask *ask = packet ? malloc(sizeof *ask + n) : NULL;
    if (!ask)
        return NULL;
    *ask = (struct ask){.request.answered = on_answered,
                        .session = session,
                        .fn = fn,
                        .read = read,
                        .sent_ns = loop_now(loop_of(session)),
                        .n = n};
    memcpy(ask->packet, packet, n);
    if (asker)
        ask_join(ask, asker);
    return ask;
}

static bool ask_leader(struct session *session, struct asker *asker, ask_fn *fn, read_fn *read)
{
    struct ask *ask = ask_new(session, asker, fn, read);
    if (!ask)
        return false;
    ask->by_leader = true;
    if (asker == &session->asker)
        put_first(ask);
    else
        ask_enqueue(ask);
    session_gather(session);
    return true;
}

/* Everybody may do everything, or our user alone. */
static void write_acl(struct jute_writer *writer, const struct zoo *zoo)
{
    const int32_t all = 31;
    jute_write_int(writer, 1);
    jute_write_int(writer, all);
    jute_write_string(writer, zoo->credentials ? "auth" : "world");
    jute_write_string(writer, zoo->credentials ? "" : "anyone");
}

bool ask_create(struct session *session, struct asker *asker, const char *path, int mode,
                const char *data, ask_fn *fn)
{
    struct jute_writer *writer =
        begin(session, mode == JUTE_CONTAINER ? JUTE_CREATE_CONTAINER : JUTE_CREATE);
    jute_write_string(writer, path);
    jute_write_bytes(writer, data, data ? strlen(data) : 0);
    write_acl(writer, session->zoo);
    jute_write_int(writer, mode);
    return ask_leader(session, asker, fn, read_created);
}

struct ask *ask_new_delete(struct session *session, struct asker *asker, const char *path,
                           ask_fn *fn)
{
    struct jute_writer *writer = begin(session, JUTE_DELETE);
    jute_write_string(writer, path);
    jute_write_int(writer, -1);
    struct ask *ask = ask_new(session, asker, fn, NULL);
    if (ask)
        ask->by_leader = true;
    return ask;
}

bool ask_delete(struct session *session, struct asker *asker, const char *path, ask_fn *fn)
{
    struct ask *ask = ask_new_delete(session, asker, path, fn);
    if (ask)
        ask_enqueue(ask);
    return ask != NULL;
}

static void write_operation(struct jute_writer *writer, int32_t type, bool done)
{
    jute_write_int(writer, type);
    jute_write_bool(writer, done);
    jute_write_int(writer, -1);
}

bool ask_delete_all(struct together *together, struct ask *const *asks, size_t n)
{
    struct session *session = asks[0]->session;
    struct jute_writer *writer = begin(session, JUTE_MULTI);
    for (size_t i = 0; i < n; i++) {
        write_operation(writer, JUTE_DELETE, false);
        jute_write_record(writer, asks[i]->packet + RECORD_AT, asks[i]->n - RECORD_AT);
    }
    write_operation(writer, -1, true);
    struct ask *ask = ask_new(session, NULL, NULL, read_all);
    if (!ask)
        return false;
    ask->by_leader = true;
    ask->together = together;
    ask_enqueue(ask);
    return true;
}

bool ask_set(struct session *session, struct asker *asker, const char *path, const char *data,
             int version, ask_fn *fn)
{
    struct jute_writer *writer = begin(session, JUTE_SET_DATA);
    jute_write_string(writer, path);
    jute_write_bytes(writer, data, strlen(data));
    jute_write_int(writer, version);
    return ask_leader(session, asker, fn, read_stat);
}

bool ask_sync(struct session *session, struct asker *asker, const char *path, ask_fn *fn)
{
    jute_write_string(begin(session, JUTE_SYNC), path);
    return ask_leader(session, asker, fn, NULL);
}

/* One that is set already needs no second watch. */
static bool ask_watching(struct session *session, struct asker *asker, enum jute_request type,
                         const char *path, struct watcher *watcher, ask_fn *fn, read_fn *read)
{
    bool fresh = watcher && !watcher->set;
    struct jute_writer *writer = begin(session, type);
    jute_write_string(writer, path);
    jute_write_bool(writer, fresh);
    struct ask *ask = ask_new(session, asker, fn, read);
    if (fresh && !ask)
        watcher_leave(watcher->slot);
    if (!ask)
        return false;
    if (fresh) {
        ask->watcher = watcher;
        watcher->ask = ask;
    }
    ask_enqueue(ask);
    return true;
}

bool ask_exists(struct session *session, struct asker *asker, const char *path,
                struct watcher *watcher, ask_fn *fn)
{
    return ask_watching(session, asker, JUTE_EXISTS, path, watcher, fn, read_stat);
}

bool ask_get(struct session *session, struct asker *asker, const char *path,
             struct watcher *watcher, ask_fn *fn)
{
    return ask_watching(session, asker, JUTE_GET_DATA, path, watcher, fn, read_data);
}

bool ask_children(struct session *session, struct asker *asker, const char *path,
                  struct watcher *watcher, ask_fn *fn)
{
    return ask_watching(session, asker, JUTE_GET_CHILDREN, path, watcher, fn, read_children);
}

void ask_unwatch(struct ask *ask)
{
    ask->watcher = NULL;
}
