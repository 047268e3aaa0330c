/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Records of last holders.
 *
 * A node for each name would stay for ever: persistent nodes do not expire. So the names share
 * 4,096 nodes, by their hashes, "<base>/%stile/last-<hash>". Each has some lines of text, the
 * latest first; what does not fit is dropped. That is room for about 100,000 names, and 16 MB at
 * most. A node is read, and written if its version is still the one that was read.
 *
 * No name is stored as "%stile": '%' is always followed by two hexadecimal digits. With a user in
 * the URL the nodes are the user's own, as all nodes are, and have the user's hash in their path:
 * otherwise the first user would lock the others out. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/zookeeper/history.h"

#define TRIES_MAX 16 /* others write to the same node meanwhile */

struct recording {
    struct inquiry inquiry; /* first */
    struct requester requester;
    struct query *query;
    unsigned tries;
    char path[PATH_ROOM];
    char lines[HISTORY_LINES_MAX + 1];
};

static void look(struct recording *recording);

static struct recording *recording_of(struct requester *requester)
{
    return container_of(requester, struct recording, requester);
}

/* ---- lines: "name TAB token TAB record" ---- */

struct line {
    const char *name, *record;
    size_t len, name_len, record_len; /* len: of the whole, with its end */
    uint64_t token;
};

/* False: no line is left that could be ours. */
static bool next_line(struct line *line, const char *at, size_t n)
{
    char token[24] = "";
    const char *end = n ? memchr(at, '\n', n) : NULL;
    const char *tab = end ? memchr(at, '\t', (size_t)(end - at)) : NULL;
    const char *second = tab ? memchr(tab + 1, '\t', (size_t)(end - tab - 1)) : NULL;
    if (!second || (size_t)(second - tab - 1) >= sizeof token)
        return false;
    memcpy(token, tab + 1, (size_t)(second - tab - 1));
    *line = (struct line){.name = at,
                          .name_len = (size_t)(tab - at),
                          .record = second + 1,
                          .record_len = (size_t)(end - second - 1),
                          .len = (size_t)(end - at) + 1,
                          .token = strtoull(token, NULL, 10)};
    return true;
}

static bool is_of(const struct line *line, const struct query *query)
{
    return line->name_len == query->name_len &&
           memcmp(line->name, query->name, line->name_len) == 0;
}

const char *zk_history_find(size_t *len, const struct query *query, const char *lines, size_t n)
{
    struct line line;
    for (size_t at = 0; at < n && next_line(&line, lines + at, n - at); at += line.len) {
        if (!is_of(&line, query))
            continue;
        *len = line.record_len;
        return line.record;
    }
    return NULL;
}

/* Of two records of one token the greater text is the later one: it names the time of its end. */
static bool is_later(const struct line *line, const struct query *query)
{
    size_t len = strlen(query->record);
    size_t n = line->record_len < len ? line->record_len : len;
    if (line->token != query->token)
        return line->token > query->token;
    int order = memcmp(line->record, query->record, n);
    return order ? order > 0 : line->record_len > len;
}

static size_t write_line(char *out, const struct query *query)
{
    int n = snprintf(out, HISTORY_LINES_MAX + 1, "%s\t%" PRIu64 "\t%s\n", query->name, query->token,
                     query->record);
    return (size_t)n;
}

bool zk_history_merge(char out[HISTORY_LINES_MAX + 1], const struct query *query, const char *lines,
                      size_t n)
{
    struct line line;
    size_t used = write_line(out, query);
    for (size_t at = 0; at < n && next_line(&line, lines + at, n - at); at += line.len) {
        bool ours = is_of(&line, query);
        if (ours && is_later(&line, query))
            return false;
        if (ours || used + line.len > HISTORY_LINES_MAX || memchr(line.name, '\0', line.len))
            continue;
        memcpy(out + used, line.name, line.len);
        used += line.len;
    }
    out[used] = '\0';
    return true;
}

/* ---- the end ---- */

static void recording_free(struct recording *recording)
{
    zk_requester_forget(&recording->requester);
    recording->query->state = NULL;
    free(recording);
}

static void discard(struct inquiry *inquiry)
{
    recording_free((struct recording *)inquiry);
}

static void end(struct recording *recording, const struct stile_error *err)
{
    struct query *query = recording->query;
    recording_free(recording);
    query->engine->events->done(query, err);
}

static void fail(struct recording *recording, int rc, bool maybe)
{
    struct stile_error err;
    zk_error_set(&err, rc, maybe);
    end(recording, &err);
}

static void look_again(struct recording *recording)
{
    struct stile_error err;
    if (++recording->tries < TRIES_MAX) {
        look(recording);
        return;
    }
    error_set(&err, STILE_CONFLICT, 0, "others write to %.300s all the time", recording->path);
    end(recording, &err);
}

/* ---- writing ---- */

static struct session *session_of(const struct recording *recording)
{
    return zk_of(recording->query->engine)->main;
}

static void on_parent(struct requester *requester, const struct reply *reply)
{
    (void)requester, (void)reply; /* if it does not exist after all, the next request fails */
}

/* Containers: the server removes them if everything below is deleted by hand. */
static bool create_parents(struct recording *recording)
{
    char path[PATH_ROOM];
    bool sent = true;
    strcpy(path, recording->path);
    for (char *slash = strchr(path + 1, '/'); sent && slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        sent = zk_request_create(session_of(recording), &recording->requester, path, JUTE_CONTAINER,
                                 NULL, on_parent);
        *slash = '/';
    }
    return sent;
}

/* ZNONODE: of the node that was read before, or of its parents. */
static void on_written(struct requester *requester, const struct reply *reply)
{
    struct recording *recording = recording_of(requester);
    if (reply->rc == ZOK)
        end(recording, NULL);
    else if (reply->rc == ZNONODE && !create_parents(recording))
        fail(recording, ZNOMEMORY, false);
    else if (reply->rc == ZNONODE || reply->rc == ZNODEEXISTS || reply->rc == ZBADVERSION)
        look_again(recording);
    else
        fail(recording, reply->rc, reply->maybe);
}

static void on_read(struct requester *requester, const struct reply *reply)
{
    struct recording *recording = recording_of(requester);
    struct session *session = session_of(recording);
    if (reply->rc != ZOK && reply->rc != ZNONODE) {
        fail(recording, reply->rc, false);
        return;
    }
    if (!zk_history_merge(recording->lines, recording->query, reply->data, reply->data_len)) {
        end(recording, NULL);
        return;
    }
    bool sent = reply->rc == ZOK
                    ? zk_request_set(session, requester, recording->path, recording->lines,
                                     reply->stat->version, on_written)
                    : zk_request_create(session, requester, recording->path, JUTE_PERSISTENT,
                                        recording->lines, on_written);
    if (!sent)
        fail(recording, ZNOMEMORY, false);
}

static void look(struct recording *recording)
{
    if (!zk_request_get(session_of(recording), &recording->requester, recording->path, NULL,
                        on_read))
        fail(recording, ZNOMEMORY, false);
}

void zk_history_record(struct engine *engine, struct query *query)
{
    struct stile_error err;
    struct recording *recording = malloc(sizeof *recording);
    if (!recording) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->done(query, &err);
        return;
    }
    recording->inquiry.discard = discard;
    recording->requester = (struct requester){0};
    recording->query = query;
    recording->tries = 0;
    zk_path_of_history(recording->path, zk_of(engine), query->name, query->name_len);
    query->state = recording;
    look(recording);
}
