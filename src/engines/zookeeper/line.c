/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The claims of one session on one name: what they need not ask the server for.
 *
 * A listing has all nodes of the name: with 10,000 waiters 700 KB, and milliseconds of the server's
 * and our time. If each of them listed for itself they would keep both busy for minutes, and a
 * release would wait behind their replies until its caller gives up. So
 *
 * - Claims that want a listing share one. At most one is under way for each line; those that ask
 *   meanwhile share the next, since the present one may have been executed before what woke them.
 *
 * - Exclusive claims know their own neighbours. The server numbers the nodes of a name without a
 *   gap, so nothing is between two nodes with successive numbers, and nothing can come between
 *   them later. A listing that shows two of ours next to each other says the same. The claim
 *   behind then needs no watch: the node before it is deleted by ourselves. If that node's claim
 *   held, and the server confirms that our request deleted the node, then nothing is before the
 *   next claim, which has but to verify its own node (queue.c).
 *
 * All of this rests on what one session sees: its requests are executed, and answered, in order. So
 * a listing that shows a neighbour was executed before that neighbour's deletion, and is answered
 * before it. Whatever else makes a neighbour go - another client, the end of the session, an
 * unanswered request - the claim behind it looks for itself. So it does if the connection broke
 * while its neighbour held, because the servers may have been restored from an older copy. */
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "engines/zookeeper/claims.h"

#define DIGITS 10
/* Readers and slots may be granted together with the listing behind their creation. */
#define CREATING_MAX 8

struct line {
    struct session *session;
    const struct line_events *events;
    struct requester requester;
    struct sender sender;
    struct node_watch *watch;  /* on its children, while a claim awaits a change */
    struct zk_claim *last;     /* of the ordered ones */
    struct zk_claim *looking;  /* these share the next listing, */
    struct zk_claim *asked;    /* these the present one */
    struct zk_claim *awaiting; /* these list again after the next change */
    size_t claims, creating;
    bool listing, busy;
    char path[];
};

/* ---- lists ---- */

static void put(struct zk_claim **list, struct zk_claim *zc)
{
    zc->looking = (struct line_place){.next = *list, .link = list};
    if (*list)
        (*list)->looking.link = &zc->looking.next;
    *list = zc;
}

static void take(struct zk_claim *zc)
{
    if (!zc->looking.link)
        return;
    *zc->looking.link = zc->looking.next;
    if (zc->looking.next)
        zc->looking.next->looking.link = zc->looking.link;
    zc->looking.link = NULL;
}

static void move_all(struct zk_claim **to, struct zk_claim **from)
{
    struct zk_claim *zc;
    while ((zc = *from)) {
        take(zc);
        put(to, zc);
    }
}

/* ---- lines ---- */

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct line *)a)->path, ((const struct line *)b)->path);
}

static void line_free(struct line *line)
{
    tdelete(line, &line->session->lines, by_path);
    zk_requester_forget(&line->requester);
    zk_watch_remove(&line->watch);
    loop_ungather(line->session->zk->engine.loop, &line->sender);
    free(line);
}

static void free_unused(struct line *line)
{
    if (line->claims == 0 && !line->busy)
        line_free(line);
}

static void send_listing(struct sender *sender);

static struct line *line_new(struct session *session, const char *path)
{
    struct line *line = calloc(1, sizeof *line + strlen(path) + 1);
    if (!line)
        return NULL;
    line->session = session;
    line->sender.fn = send_listing;
    strcpy(line->path, path);
    struct line **found = tsearch(line, &session->lines, by_path);
    if (found && *found == line)
        return line;
    free(line);
    return found ? *found : NULL;
}

bool zk_line_join(struct zk_claim *zc, const struct line_events *events)
{
    char path[PATH_ROOM];
    zk_path_of_name(path, zk_of_claim(zc), core_claim(zc)->name, core_claim(zc)->name_len);
    zc->line = line_new(zc->session, path);
    if (!zc->line)
        return false;
    zc->line->events = events;
    zc->line->claims++;
    return true;
}

void zk_line_leave(struct zk_claim *zc)
{
    struct line *line = zc->line;
    if (!line)
        return;
    zk_line_stop(zc);
    zk_line_created(zc);
    zk_line_drop_node(zc);
    zc->line = NULL;
    line->claims--;
    free_unused(line);
}

/* ---- creation ---- */

/* Until its deletion was answered: if that was requested before the next creation, it is answered
 * before it. */
static bool is_there(const struct zk_claim *zc)
{
    return zc->node_state == NODE_PRESENT;
}

bool zk_line_creating(struct zk_claim *zc)
{
    struct line *line = zc->line;
    bool exclusive = core_claim(zc)->mode == STILE_EXCLUSIVE;
    bool behind_ours = line->creating > 0 ||
                       (line->last && is_there(line->last) && line->last->state != CLAIM_RELEASING);
    line->creating += !zc->creating;
    zc->creating = true;
    return exclusive ? behind_ours : line->creating > CREATING_MAX;
}

void zk_line_created(struct zk_claim *zc)
{
    if (zc->creating)
        zc->line->creating--;
    zc->creating = false;
}

/* ---- neighbours ---- */

static int64_t number_of(const char *node)
{
    size_t n = strlen(node);
    return n < DIGITS ? -1 : strtoll(node + n - DIGITS, NULL, 10);
}

void zk_line_append(struct zk_claim *zc)
{
    struct line *line = zc->line;
    if (core_claim(zc)->mode != STILE_EXCLUSIVE)
        return;
    zc->number = number_of(zc->node);
    zc->before = line->last;
    zc->behind = NULL;
    zc->adjacent = line->last && is_there(line->last) && line->last->number + 1 == zc->number;
    zc->ordered = true;
    if (line->last)
        line->last->behind = zc;
    line->last = zc;
}

bool zk_line_is_before(const struct zk_claim *zc, const char *node)
{
    const struct zk_claim *before = zc->ordered ? zc->before : NULL;
    return before && is_there(before) && strcmp(strrchr(before->node, '/') + 1, node) == 0;
}

static void unlink_from_order(struct zk_claim *zc)
{
    if (zc->before)
        zc->before->behind = zc->behind;
    if (zc->behind)
        zc->behind->before = zc->before;
    else
        zc->line->last = zc->before;
    zc->before = zc->behind = NULL;
    zc->ordered = false;
}

/* A record may have stayed, and would keep the name locked; and servers that were restored
 * meanwhile may have other nodes before it. */
static bool was_first(struct zk_claim *zc)
{
    return zc->was_held && !zk_claim_wants_record(zc) && zc->granted_after == zc->session->resumes;
}

/* If it was between two others of ours, those are next to each other now. */
void zk_line_drop_node(struct zk_claim *zc)
{
    struct zk_claim *next = zc->behind;
    bool deleted = zc->deleted, adjacent = zc->adjacent;
    zc->deleted = zc->adjacent = false;
    if (!zc->ordered)
        return;
    unlink_from_order(zc);
    if (!next || !next->adjacent || (deleted && adjacent))
        return;
    next->adjacent = false;
    if (deleted && was_first(zc))
        zc->line->events->turn(next);
    else
        zc->line->events->unsure(next);
}

/* ---- listings ---- */

static void schedule(struct line *line)
{
    if (line->looking && !line->listing)
        loop_gather(line->session->zk->engine.loop, &line->sender);
}

static void report(struct line *line, const struct node_list *queue, const struct reply *reply)
{
    struct zk_claim *zc;
    line->busy = true;
    while ((zc = line->asked)) {
        take(zc);
        line->events->listed(zc, queue, reply);
    }
    line->busy = false;
}

static void report_failure(struct line *line, int rc)
{
    report(line, NULL, &(struct reply){.rc = rc});
}

static void on_listed(struct requester *requester, const struct reply *reply)
{
    struct line *line = container_of(requester, struct line, requester);
    struct node_list queue;
    line->listing = false;
    if (reply->rc != ZOK) {
        report_failure(line, reply->rc);
    } else if (zk_nodes_sort(&queue, line->session->zk, reply->children, NULL)) {
        report_failure(line, ZNOMEMORY);
    } else {
        report(line, &queue, reply);
        zk_nodes_free(&queue);
    }
    schedule(line);
    free_unused(line);
}

static void on_change(struct requester *requester, int type)
{
    struct line *line = container_of(requester, struct line, requester);
    struct zk_claim *zc;
    (void)type;
    line->busy = true;
    while ((zc = line->awaiting)) {
        take(zc);
        line->events->changed(zc);
    }
    line->busy = false;
    free_unused(line);
}

static bool wants_changes(struct zk_claim *zc)
{
    return core_claim(zc)->mode == STILE_SLOTS && core_claim(zc)->wait;
}

/* Of several slots any may come free first. */
static bool watch_changes(struct line *line)
{
    struct zk_claim *zc = line->asked;
    while (zc && !wants_changes(zc))
        zc = zc->looking.next;
    return !zc || line->watch ||
           zk_watch_add(&line->watch, line->session, 'c', line->path, &line->requester, on_change);
}

static void send_listing(struct sender *sender)
{
    struct line *line = container_of(sender, struct line, sender);
    if (line->listing || !line->looking)
        return;
    move_all(&line->asked, &line->looking);
    line->listing = watch_changes(line) && zk_request_children(line->session, &line->requester,
                                                               line->path, line->watch, on_listed);
    if (line->listing)
        return;
    report_failure(line, ZNOMEMORY);
    free_unused(line);
}

void zk_line_look(struct zk_claim *zc)
{
    take(zc);
    put(&zc->line->looking, zc);
    schedule(zc->line);
}

bool zk_line_await_change(struct zk_claim *zc)
{
    if (!zc->line->watch)
        return false;
    take(zc);
    put(&zc->line->awaiting, zc);
    return true;
}

void zk_line_stop(struct zk_claim *zc)
{
    take(zc);
    if (zc->line && !zc->line->awaiting && !zc->line->looking && !zc->line->asked)
        zk_watch_remove(&zc->line->watch);
}
