/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of a name or a cell, reported to core.
 *
 * A watch on the children of the name's node; while there is no such node, on its creation. The
 * first of the children is watched as well: its data is what the holder proclaims. For a cell, a
 * watch on its node, whether it exists or not. It fires once, and is set again before the change is
 * reported: requests are executed in order, so a read that follows sees everything that the new
 * watch does not report. */
#include <stdio.h>
#include <stdlib.h>

#include "engines/zookeeper/zookeeper.h"

#define AGAIN_NS (200 * NS_PER_MS)

struct subscription {
    struct requester requester;
    struct query *query;
    struct subscription *next, **link; /* of zk->subscriptions */
    struct node_watch *watch;
    struct requester first;                /* the holder's node */
    struct node_watch *watched;            /* its data */
    void (*set)(struct subscription *sub); /* sets the watch */
    struct timer timer;                    /* a server could not be asked */
    char path[PATH_ROOM];
    char holder[PATH_ROOM]; /* the path of the holder's node */
};

static struct subscription *subscription_of(struct requester *requester)
{
    return container_of(requester, struct subscription, requester);
}

static struct session *session_of_subscription(const struct subscription *sub)
{
    return zk_of(sub->query->engine)->main;
}

static void report_change(struct subscription *sub)
{
    sub->query->engine->events->changed(sub->query);
}

static void drop_first(struct subscription *sub)
{
    zk_requester_forget(&sub->first);
    zk_watch_remove(&sub->watched);
}

static void subscription_free(struct subscription *sub)
{
    struct loop *loop = sub->query->engine->loop;
    zk_requester_forget(&sub->requester);
    zk_watch_remove(&sub->watch);
    drop_first(sub);
    loop_disarm(loop, &sub->timer);
    loop_unreserve(loop, 1);
    *sub->link = sub->next;
    if (sub->next)
        sub->next->link = sub->link;
    sub->query->state = NULL;
    free(sub);
}

static void try_later(struct subscription *sub)
{
    struct loop *loop = sub->query->engine->loop;
    loop_arm(loop, &sub->timer, loop_now(loop) + AGAIN_NS);
}

static void watch_failed(struct subscription *sub, int rc)
{
    struct query *query = sub->query;
    struct stile_error err;
    if (zk_error_is_transient(rc) || rc == ZNOMEMORY) {
        try_later(sub);
        return;
    }
    zk_error_set(&err, rc, false);
    subscription_free(sub);
    query->engine->events->done(query, &err);
}

static void set_watch(struct subscription *sub)
{
    zk_requester_forget(&sub->requester);
    loop_disarm(sub->query->engine->loop, &sub->timer);
    sub->set(sub);
}

static void on_fired(struct requester *requester, int type)
{
    struct subscription *sub = subscription_of(requester);
    (void)type;
    set_watch(sub);
    report_change(sub);
}

static void on_creation_watched(struct requester *requester, const struct reply *reply)
{
    struct subscription *sub = subscription_of(requester);
    if (reply->rc != ZOK && reply->rc != ZNONODE) {
        watch_failed(sub, reply->rc);
        return;
    }
    if (reply->rc == ZOK)
        set_watch(sub);
    report_change(sub); /* the last show may have seen nodes that have gone since */
}

static void on_first_event(struct requester *requester, int type);

/* The data may have changed since it was shown. A failure is made good by the next change of the
 * children. */
static void on_first_watched(struct requester *requester, const struct reply *reply)
{
    struct subscription *sub = container_of(requester, struct subscription, first);
    if (reply->rc == ZOK)
        report_change(sub);
}

static void watch_data(struct subscription *sub, const char *path)
{
    struct session *session = session_of_subscription(sub);
    if (zk_watch_add(&sub->watched, session, 'g', path, &sub->first, on_first_event))
        zk_request_get(session, &sub->first, path, sub->watched, on_first_watched);
}

/* A node that is gone is reported by the watch on its parent. */
static void on_first_event(struct requester *requester, int type)
{
    struct subscription *sub = container_of(requester, struct subscription, first);
    if (type != JUTE_EVENT_CHANGED)
        return;
    watch_data(sub, sub->holder);
    report_change(sub);
}

static void watch_first(struct subscription *sub, const struct jute_strings *children)
{
    struct node_list queue;
    drop_first(sub);
    if (zk_nodes_sort(&queue, zk_of(sub->query->engine), children, NULL))
        return;
    if (queue.n > 0 && snprintf(sub->holder, sizeof sub->holder, "%s/%s", sub->path,
                                queue.nodes[0]) < (int)sizeof sub->holder)
        watch_data(sub, sub->holder);
    zk_nodes_free(&queue);
}

static void on_children_watched(struct requester *requester, const struct reply *reply)
{
    struct subscription *sub = subscription_of(requester);
    struct session *session = session_of_subscription(sub);
    if (reply->rc != ZOK && reply->rc != ZNONODE)
        watch_failed(sub, reply->rc);
    else if (reply->rc == ZNONODE &&
             (!zk_watch_add(&sub->watch, session, 'e', sub->path, &sub->requester, on_fired) ||
              !zk_request_exists(session, &sub->requester, sub->path, sub->watch,
                                 on_creation_watched)))
        try_later(sub);
    else if (reply->rc == ZOK)
        watch_first(sub, reply->children);
}

static void watch_children(struct subscription *sub)
{
    struct session *session = session_of_subscription(sub);
    if (!zk_watch_add(&sub->watch, session, 'c', sub->path, &sub->requester, on_fired) ||
        !zk_request_children(session, &sub->requester, sub->path, sub->watch, on_children_watched))
        try_later(sub);
}

static void on_cell_watched(struct requester *requester, const struct reply *reply)
{
    if (reply->rc != ZOK && reply->rc != ZNONODE)
        watch_failed(subscription_of(requester), reply->rc);
}

static void watch_cell(struct subscription *sub)
{
    struct session *session = session_of_subscription(sub);
    if (!zk_watch_add(&sub->watch, session, 'e', sub->path, &sub->requester, on_fired) ||
        !zk_request_exists(session, &sub->requester, sub->path, sub->watch, on_cell_watched))
        try_later(sub);
}

static void on_try_again(struct timer *timer)
{
    struct subscription *sub = container_of(timer, struct subscription, timer);
    set_watch(sub);
    report_change(sub);
}

/* Watches end with their session. */
void zk_push_session_ended(struct session *session)
{
    struct subscription *sub = session->zk->main == session ? session->zk->subscriptions : NULL;
    for (; sub; sub = sub->next) {
        set_watch(sub);
        report_change(sub);
    }
}

/* NULL: out of memory, and the query has ended. */
static struct subscription *subscribe(struct engine *engine, struct query *query)
{
    struct zk *zk = zk_of(engine);
    struct stile_error err;
    struct subscription *sub = calloc(1, sizeof *sub);
    if (!sub || loop_reserve(engine->loop, 1)) {
        free(sub);
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->done(query, &err);
        return NULL;
    }
    sub->query = query;
    sub->timer.fn = on_try_again;
    sub->next = zk->subscriptions;
    sub->link = &zk->subscriptions;
    if (sub->next)
        sub->next->link = &sub->next;
    zk->subscriptions = sub;
    query->state = sub;
    return sub;
}

void zk_push_watch(struct engine *engine, struct query *query)
{
    struct subscription *sub = subscribe(engine, query);
    if (!sub)
        return;
    sub->set = watch_children;
    zk_path_of_name(sub->path, zk_of(engine), query->name, query->name_len);
    set_watch(sub);
}

void zk_push_watch_cell(struct engine *engine, struct query *query)
{
    struct subscription *sub = subscribe(engine, query);
    if (!sub)
        return;
    sub->set = watch_cell;
    zk_path_of_cell(sub->path, zk_of(engine), query->name, query->name_len);
    set_watch(sub);
}

void zk_push_unwatch(struct engine *engine, struct query *query)
{
    (void)engine;
    subscription_free(query->state);
}
