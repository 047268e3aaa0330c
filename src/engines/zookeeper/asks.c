/* Requests to the client library, and their answers: to who asked, if that still wants them.
 *
 * The library writes what is asked for at once, and as far as the socket takes it; if that is not
 * all, a look a little later finds it out (NUDGE_NS). */
#include <stdlib.h>
#include <string.h>

#include "engines/zookeeper/zookeeper.h"

struct ask {
    struct ask *next, **link; /* of its asker */
    struct ask *failed_next;  /* of its session */
    int rc;                   /* if it has failed */
    struct asker *asker;
    struct session *session;
    ask_fn *fn;
    uint64_t sent_ns;
    unsigned ups;
    bool was_up;
    bool by_leader;          /* it has a part in the answer */
    struct watcher *watcher; /* comes with it */
};

static struct loop *loop_of(const struct session *session)
{
    return session->zoo->engine.loop;
}

static struct ask *ask_new(struct session *session, struct asker *asker, ask_fn *fn)
{
    struct ask *ask = malloc(sizeof *ask);
    if (!ask)
        return NULL;
    session_gather(session);
    *ask = (struct ask){.next = asker->asks,
                        .link = &asker->asks,
                        .asker = asker,
                        .session = session,
                        .fn = fn,
                        .sent_ns = loop_now(loop_of(session)),
                        .ups = session->ups,
                        .was_up = session->state == SESSION_UP};
    if (ask->next)
        ask->next->link = &ask->next;
    asker->asks = ask;
    return ask;
}

struct ask *ask_begin(struct session *session, struct asker *asker, ask_fn *fn)
{
    struct ask *ask = ask_new(session, asker, fn);
    if (ask)
        ask->by_leader = true;
    return ask;
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

/* exists() also watches for what is not there yet. */
static void settle_watcher(struct watcher *watcher, int rc)
{
    watcher->set = rc == ZOK || (rc == ZNONODE && watcher->kind == 'e');
    if (!watcher->set)
        watcher_free(watcher);
}

/* Not the library's own. */
static bool is_servers_word(int rc)
{
    return (rc == ZOK || rc < ZAPIERROR) && !fault_may_pass(rc);
}

static void finish(struct ask *ask, struct answer *answer)
{
    struct asker *asker = ask->asker;
    ask_fn *fn = ask->fn;
    answer->sent_ns = ask->sent_ns;
    answer->maybe = fault_may_pass(answer->rc) && (ask->was_up || ask->ups != ask->session->ups);
    if (is_servers_word(answer->rc) && ask->session->state == SESSION_UP)
        told_answered(ask->session, ask->sent_ns, ask->by_leader);
    if (ask->watcher)
        settle_watcher(ask->watcher, answer->rc);
    ask_leave(ask);
    free(ask);
    if (asker)
        fn(asker, answer);
}

void ask_finish(struct ask *ask, int rc)
{
    finish(ask, &(struct answer){.rc = rc});
}

static void on_void(int rc, const void *data)
{
    ask_finish((struct ask *)data, rc);
}

static void on_string(int rc, const char *path, const void *data)
{
    finish((struct ask *)data, &(struct answer){.rc = rc, .path = path});
}

static void on_created(int rc, const char *path, const struct Stat *stat, const void *data)
{
    finish((struct ask *)data, &(struct answer){.rc = rc, .path = path, .stat = stat});
}

static void on_stat(int rc, const struct Stat *stat, const void *data)
{
    finish((struct ask *)data, &(struct answer){.rc = rc, .stat = stat});
}

static void on_data(int rc, const char *value, int len, const struct Stat *stat, const void *data)
{
    finish((struct ask *)data,
           &(struct answer){.rc = rc, .data = value, .data_len = len, .stat = stat});
}

static void on_children(int rc, const struct String_vector *children, const struct Stat *stat,
                        const void *data)
{
    finish((struct ask *)data, &(struct answer){.rc = rc, .children = children, .stat = stat});
}

/* What the library refuses is answered by a task, so that no answer comes from inside the question.
 */
static bool asked(struct session *session, struct ask *ask, int rc)
{
    struct loop *loop = loop_of(session);
    if (rc != ZOK) {
        ask->rc = rc;
        ask->was_up = false;
        ask->ups = session->ups;
        *session->failed_tail = ask;
        session->failed_tail = &ask->failed_next;
        loop_soon(loop, &session->task);
    } else if (!session->timer.place || session->timer.at_ns > ask->sent_ns + NUDGE_NS) {
        loop_arm(loop, &session->timer, ask->sent_ns + NUDGE_NS);
    }
    return true;
}

/* A request of this session, or ZINVALIDSTATE where there is no handle to ask through. */
#define ASK(call) (session->handle ? (call) : ZINVALIDSTATE)

static void on_watched(zhandle_t *handle, int type, int state, const char *path, void *data);

bool ask_create(struct session *session, struct asker *asker, const char *path, int mode,
                const char *data, ask_fn *fn)
{
    struct ask *ask = ask_begin(session, asker, fn);
    return ask && asked(session, ask,
                        ASK(zoo_acreate2(session->handle, path, data, data ? (int)strlen(data) : -1,
                                         session->zoo->acl, mode, on_created, ask)));
}

void ask_again_delete(struct ask *ask, const char *path)
{
    struct session *session = ask->session;
    asked(session, ask, ASK(zoo_adelete(session->handle, path, -1, on_void, ask)));
}

bool ask_delete(struct session *session, struct asker *asker, const char *path, ask_fn *fn)
{
    struct ask *ask = ask_begin(session, asker, fn);
    if (ask)
        ask_again_delete(ask, path);
    return ask != NULL;
}

bool ask_set(struct session *session, struct asker *asker, const char *path, const char *data,
             int version, ask_fn *fn)
{
    struct ask *ask = ask_begin(session, asker, fn);
    return ask && asked(session, ask,
                        ASK(zoo_aset(session->handle, path, data, (int)strlen(data), version,
                                     on_stat, ask)));
}

bool ask_sync(struct session *session, struct asker *asker, const char *path, ask_fn *fn)
{
    struct ask *ask = ask_begin(session, asker, fn);
    return ask && asked(session, ask, ASK(zoo_async(session->handle, path, on_string, ask)));
}

/* One that is set already needs no second watch. */
static struct ask *ask_watching(struct session *session, struct asker *asker,
                                struct watcher *watcher, ask_fn *fn)
{
    struct ask *ask = ask_new(session, asker, fn);
    bool fresh = watcher && !watcher->set;
    if (ask && fresh)
        ask->watcher = watcher;
    else if (fresh)
        watcher_free(watcher);
    return ask;
}

#define WATCH(ask) (ask)->watcher ? on_watched : NULL, (ask)->watcher

bool ask_exists(struct session *session, struct asker *asker, const char *path,
                struct watcher *watcher, ask_fn *fn)
{
    struct ask *ask = ask_watching(session, asker, watcher, fn);
    return ask &&
           asked(session, ask, ASK(zoo_awexists(session->handle, path, WATCH(ask), on_stat, ask)));
}

bool ask_get(struct session *session, struct asker *asker, const char *path,
             struct watcher *watcher, ask_fn *fn)
{
    struct ask *ask = ask_watching(session, asker, watcher, fn);
    return ask &&
           asked(session, ask, ASK(zoo_awget(session->handle, path, WATCH(ask), on_data, ask)));
}

bool ask_children(struct session *session, struct asker *asker, const char *path,
                  struct watcher *watcher, ask_fn *fn)
{
    struct ask *ask = ask_watching(session, asker, watcher, fn);
    return ask &&
           asked(session, ask,
                 ASK(zoo_awget_children2(session->handle, path, WATCH(ask), on_children, ask)));
}

static void on_watched(zhandle_t *handle, int type, int state, const char *path, void *data)
{
    (void)handle, (void)state, (void)path;
    if (type != ZOO_SESSION_EVENT)
        watcher_tell(data, type);
}

void asks_answer_failed(struct session *session)
{
    struct ask *ask = session->failed, *next;
    session->failed = NULL;
    session->failed_tail = &session->failed;
    for (; ask; ask = next) {
        next = ask->failed_next;
        ask_finish(ask, ask->rc);
    }
}
