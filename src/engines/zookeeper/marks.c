/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Which process has broken a lock.
 *
 * The event of a deleted node does not name the client that deleted it, and a loss must not wait
 * for an answer. So `stile break` first creates an ephemeral node, "<base>/%stile/break-<session>",
 * and gives the session whose nodes it is about to delete the time to read it. A session that holds
 * locks for longer than a moment watches for that node: one watch, however many locks there are. If
 * the deletion is faster than the read, the event of the mark alone still says that it was a break.
 *
 * A mark is a line "pid host token token ...". It proves nothing, and decides nothing. */
#include "engines/zookeeper/marks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARK_MAX 768 /* as in struct mark_watch */

static void path_of_mark(char path[PATH_ROOM], const struct zk *zk, int64_t session_id)
{
    char mark[32];
    snprintf(mark, sizeof mark, "break-%" PRIx64, (uint64_t)session_id);
    zk_path_of_own(path, zk, mark);
}

/* ---- the holder's side ---- */

static struct session *session_of(struct requester *requester)
{
    return container_of(requester, struct session, marks.requester);
}

static void on_mark_read(struct requester *requester, const struct reply *reply)
{
    struct mark_watch *marks = &session_of(requester)->marks;
    size_t n = reply->rc == ZOK ? reply->data_len : 0;
    marks->reading = false;
    if (n == 0)
        return;
    n = n < sizeof marks->text - 1 ? n : sizeof marks->text - 1;
    memcpy(marks->text, reply->data, n);
    marks->text[n] = '\0';
    for (char *c = marks->text; *c; c++)
        *c = (unsigned char)*c < ' ' || *c == 127 ? '?' : *c;
}

static void on_mark_watched(struct requester *requester, const struct reply *reply)
{
    (void)requester, (void)reply; /* else the watch has gone, and the next holder sets it */
}

static void on_mark_event(struct requester *requester, int type)
{
    struct session *session = session_of(requester);
    char path[PATH_ROOM];
    path_of_mark(path, session->zk, session->id.id);
    if (type != JUTE_EVENT_DELETED)
        session->marks.reading = zk_request_get(session, requester, path, NULL, on_mark_read);
    zk_marks_watch(session);
}

void zk_marks_watch(struct session *session)
{
    struct mark_watch *marks = &session->marks;
    char path[PATH_ROOM];
    if (marks->watch)
        return;
    path_of_mark(path, session->zk, session->id.id);
    if (zk_watch_add(&marks->watch, session, 'e', path, &marks->requester, on_mark_event))
        zk_request_exists(session, &marks->requester, path, marks->watch, on_mark_watched);
}

static bool names_token(const char *tokens, uint64_t token)
{
    char *rest;
    for (; *tokens; tokens = rest) {
        if (strtoull(tokens, &rest, 10) == token && rest != tokens)
            return true;
        if (rest == tokens)
            return false;
    }
    return false;
}

static bool was_broken(const char *text, uint64_t token, struct stile_error *err)
{
    char host[SELF_HOST_MAX + 1];
    long long pid;
    int tokens = 0;
    _Static_assert(SELF_HOST_MAX == 64, "as below");
    if (sscanf(text, "%lld %64s%n", &pid, host, &tokens) != 2 || !names_token(text + tokens, token))
        return false;
    error_set(err, STILE_LOST, ZNONODE, "taken by stile break (%s pid %lld)", host, pid);
    return true;
}

void zk_marks_explain(struct session *session, uint64_t token, struct stile_error *err)
{
    struct mark_watch *marks = &session->marks;
    if (was_broken(marks->text, token, err))
        return;
    if (marks->reading)
        error_set(err, STILE_LOST, ZNONODE, "taken by stile break");
    else
        error_set(err, STILE_LOST, ZNONODE, "its node was removed by another client");
}

/* ---- the breaker's side ---- */

static void write_mark(char text[MARK_MAX], const struct zk *zk, const uint64_t *tokens, size_t n)
{
    int used = snprintf(text, MARK_MAX, "%ld %s", zk->pid, zk->host);
    for (size_t i = 0; i < n; i++)
        used += snprintf(text + used, MARK_MAX - (size_t)used, " %" PRIu64, tokens[i]);
}

/* One that another breaker has left goes first. Nothing depends on the replies. */
bool zk_marks_put(struct zk *zk, int64_t session_id, const uint64_t *tokens, size_t n)
{
    char path[PATH_ROOM], text[MARK_MAX];
    path_of_mark(path, zk, session_id);
    write_mark(text, zk, tokens, n);
    bool sent = zk_request_delete(zk->main, NULL, path, NULL);
    for (char *slash = strchr(path + 1, '/'); sent && slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        sent = zk_request_create(zk->main, NULL, path, JUTE_CONTAINER, NULL, NULL);
        *slash = '/';
    }
    return sent && zk_request_create(zk->main, NULL, path, JUTE_EPHEMERAL, text, NULL);
}

void zk_marks_remove(struct zk *zk, int64_t session_id)
{
    char path[PATH_ROOM];
    path_of_mark(path, zk, session_id);
    zk_request_delete(zk->main, NULL, path, NULL); /* else it goes with our session */
}
