/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Watched cells: inotify reports writes to the file `cells`, and each watched cell is read again.
 * The last write of a transaction is the one that makes it valid, so a reader that was told of it
 * sees it. The directory is watched, because there may be no file yet. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "engines/local/local.h"

/* What is removed is reported, too: the next read says so, and ends the watch. */
#define EVENTS (IN_MODIFY | IN_MOVED_TO | IN_DELETE | IN_MOVED_FROM)
/* Where inotify cannot be had: a user may have 128 of them. */
#define LOOK_NS (NS_PER_SEC / 10)

struct cell_watcher {
    struct cell_watcher *next, **link;
    struct query *query;
};

struct cell_push {
    struct local *local;
    struct watch watch; /* fd -1: no inotify */
    int directory;      /* inotify's number for it; -1: not watched */
    struct timer timer;
    struct cell_watcher *watchers;
};

static void report_all(const struct cell_push *push)
{
    for (const struct cell_watcher *at = push->watchers; at; at = at->next)
        at->query->engine->events->changed(at->query);
}

/* ---- inotify ---- */

static bool concerns_cells(const struct inotify_event *event)
{
    return event->mask & (IN_Q_OVERFLOW | IN_IGNORED) ||
           (event->len > 0 && strcmp(event->name, "cells") == 0);
}

static void on_event(struct watch *watch, uint32_t events)
{
    struct cell_push *push = container_of(watch, struct cell_push, watch);
    _Alignas(struct inotify_event) char buffer[4096];
    bool changed = false;
    ssize_t n;
    (void)events;
    while ((n = read(watch->fd, buffer, sizeof buffer)) > 0)
        for (const char *at = buffer; at < buffer + n;) {
            const struct inotify_event *event = (const struct inotify_event *)at;
            changed |= concerns_cells(event);
            at += sizeof *event + event->len;
        }
    if (changed)
        report_all(push);
}

static void watch_directory(struct cell_push *push)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", push->local->env->dir.fd);
    if (push->watch.fd >= 0)
        push->directory = inotify_add_watch(push->watch.fd, path, EVENTS);
}

static void on_look(struct timer *timer)
{
    struct cell_push *push = container_of(timer, struct cell_push, timer);
    struct loop *loop = push->local->engine.loop;
    report_all(push);
    loop_arm(loop, timer, loop_now(loop) + LOOK_NS);
}

/* ---- the first watch and the last ---- */

static struct cell_push *make_push(struct local *local)
{
    struct loop *loop = local->engine.loop;
    struct cell_push *push = calloc(1, sizeof *push);
    if (!push || loop_reserve(loop, 1)) {
        free(push);
        return NULL;
    }
    push->local = local;
    push->watch.fn = on_event;
    push->timer.fn = on_look;
    push->directory = -1;
    push->watch.fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (push->watch.fd >= 0 && loop_watch(loop, &push->watch, EPOLLIN) != 0) {
        close(push->watch.fd);
        push->watch.fd = -1;
    }
    return push;
}

static void start(struct cell_push *push)
{
    struct loop *loop = push->local->engine.loop;
    watch_directory(push);
    if (push->directory < 0)
        loop_arm(loop, &push->timer, loop_now(loop) + LOOK_NS);
}

/* inotify itself stays: the kernel takes some 10 ms to close it. */
static void stop(struct cell_push *push)
{
    if (push->directory >= 0)
        inotify_rm_watch(push->watch.fd, push->directory);
    push->directory = -1;
    loop_disarm(push->local->engine.loop, &push->timer);
}

void local_cells_watch(struct engine *engine, struct query *query)
{
    struct local *local = local_of(engine);
    struct cell_watcher *watcher = malloc(sizeof *watcher);
    struct stile_error err;
    if (!local->cell_push)
        local->cell_push = make_push(local);
    struct cell_push *push = local->cell_push;
    if (!push || !watcher) {
        free(watcher);
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->done(query, &err);
        return;
    }
    if (!push->watchers)
        start(push);
    *watcher = (struct cell_watcher){push->watchers, &push->watchers, query};
    if (watcher->next)
        watcher->next->link = &watcher->next;
    push->watchers = watcher;
    query->state = watcher;
}

void local_cells_unwatch(struct engine *engine, struct query *query)
{
    struct cell_push *push = local_of(engine)->cell_push;
    struct cell_watcher *watcher = query->state;
    if (!watcher)
        return;
    *watcher->link = watcher->next;
    if (watcher->next)
        watcher->next->link = watcher->link;
    free(watcher);
    query->state = NULL;
    if (!push->watchers)
        stop(push);
}

void local_cells_report_gone(struct local *local)
{
    if (local->cell_push)
        report_all(local->cell_push);
}

void local_cells_end_watches(struct local *local)
{
    struct cell_push *push = local->cell_push;
    if (!push)
        return;
    loop_disarm(local->engine.loop, &push->timer);
    loop_unreserve(local->engine.loop, 1);
    if (push->watch.fd >= 0) {
        loop_unwatch(local->engine.loop, &push->watch);
        close(push->watch.fd);
    }
    free(push);
    local->cell_push = NULL;
}

void local_cells_forked(struct local *local)
{
    struct cell_push *push = local->cell_push;
    if (!push)
        return;
    if (push->watch.fd >= 0)
        close(push->watch.fd);
    while (push->watchers) {
        struct cell_watcher *next = push->watchers->next;
        free(push->watchers);
        push->watchers = next;
    }
    free(push);
    local->cell_push = NULL;
}
