/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* list, show and break: the nodes of a name, or of all names, as claims in the order of the
 * queue.
 *
 * An inspection lists the nodes of each name, then reads every node. All of it follows a sync, so
 * that it includes what was done before through another server. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engines/zookeeper/history.h"
#include "engines/zookeeper/marks.h"

#define WINDOW     256 /* requests under way at a time */
#define BREAKS_MAX 4
#define MARKS_MAX  16 /* sessions; the others are not told which process breaks their locks */

enum inspection_kind { LIST, SHOW, BREAK };

/* One node in the queue, or an orphaned hold record. */
struct entry {
    struct requester requester;
    struct inspection *inspection;
    char *path;
    enum stile_mode mode;
    bool exists; /* it was read, and is a claim or keeps the name locked */
    bool held;
    bool orphan;      /* its node has gone, and its record keeps the name locked */
    bool marked;      /* its session was told of the break */
    int64_t until_ms; /* of an orphan */
    char *record;     /* the path of its hold record; NULL: none */
    unsigned slots;
    int64_t czxid, ctime_ms, session_id;
    uint64_t token;
    char *data; /* cut up in place */
    int64_t pid, timeout_ms;
    const char *host, *command, *proclaimed;
};

/* One name, with its queue. */
struct name_view {
    struct requester requester;
    struct inspection *inspection;
    char *name, *path;
    int64_t pzxid; /* of the last change among its nodes; 0: the name has no node */
    struct entry *entries;
    size_t n;
};

struct inspection {
    struct inquiry inquiry; /* first */
    struct requester requester;
    struct query *query;
    enum inspection_kind kind;
    struct name_view *views;
    size_t n;
    size_t next_view, next_entry; /* to be requested */
    bool reading;                 /* entries, no longer names */
    size_t pending;
    struct stile_error error;
    bool broken; /* at least one node was deleted */
    unsigned tries;
    char record[RECORD_MAX]; /* show: of the last holder */
    size_t record_len;       /* 0: none */
};

static void advance(struct inspection *inspection);
static void on_gathered(struct inspection *inspection);

static struct zk *zk_of_inspection(const struct inspection *inspection)
{
    return zk_of(inspection->query->engine);
}

static struct session *session_of(const struct inspection *inspection)
{
    return zk_of_inspection(inspection)->main;
}

static struct inspection *inspection_of(struct requester *requester)
{
    return container_of(requester, struct inspection, requester);
}

/* ---- the queue of a name ---- */

/* Ages are shown by our own wall clock; it decides nothing else. */
static int64_t wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static struct entry *add(struct name_view *view, const char *node, enum stile_mode mode)
{
    struct entry *entry = &view->entries[view->n++];
    entry->inspection = view->inspection;
    entry->mode = mode;
    if (asprintf(&entry->path, "%s/%s", view->path, node) >= 0)
        return entry;
    entry->path = NULL;
    return NULL;
}

static bool add_orphans(struct name_view *view, const struct node_list *queue,
                        const struct jute_strings *children)
{
    bool added = true;
    for (size_t i = 0; added && i < children->n; i++) {
        enum stile_mode mode;
        const char *guid = zk_record_guid(&mode, children->list[i]);
        if (!guid || !zk_record_is_orphan(queue, guid))
            continue;
        struct entry *entry = add(view, children->list[i], mode);
        added = entry != NULL;
        if (added)
            entry->orphan = true;
    }
    return added;
}

/* The hold record of the node's claim, if it has one. */
static bool add_record(struct entry *entry, const char *node, const struct name_view *view,
                       const struct jute_strings *children)
{
    for (size_t i = 0; i < children->n; i++) {
        enum stile_mode mode;
        const char *guid = zk_record_guid(&mode, children->list[i]);
        if (guid && strstr(node, guid))
            return asprintf(&entry->record, "%s/%s", view->path, children->list[i]) >= 0 ||
                   (entry->record = NULL);
    }
    return true;
}

static enum stile_status fill_entries(struct name_view *view, const struct zk *zk,
                                      const struct jute_strings *children, struct stile_error *err)
{
    struct node_list queue;
    enum stile_status status = zk_nodes_sort(&queue, zk, children, err);
    if (status)
        return status;
    view->entries = calloc(children->n + 1, sizeof *view->entries);
    bool filled = view->entries && add_orphans(view, &queue, children);
    for (size_t i = 0; filled && i < queue.n; i++) {
        struct entry *entry = add(view, queue.nodes[i], zk_node_mode(zk, queue.nodes[i]));
        filled = entry && add_record(entry, queue.nodes[i], view, children);
    }
    zk_nodes_free(&queue);
    return filled ? STILE_OK : error_set(err, STILE_NOMEM, 0, "out of memory");
}

static void drop_entries(struct name_view *view)
{
    for (size_t i = 0; i < view->n; i++) {
        zk_requester_forget(&view->entries[i].requester);
        free(view->entries[i].path);
        free(view->entries[i].record);
        free(view->entries[i].data);
    }
    free(view->entries);
    view->entries = NULL;
    view->n = 0;
}

static void mask_controls(char *text)
{
    for (; *text; text++)
        *text = (unsigned char)*text < ' ' || *text == 127 ? '?' : *text;
}

/* Data of other clients: a participant's name in some dialects, and shown as it is in the others.
 */
static void read_foreign(struct entry *entry)
{
    if (zk_dialect_names_by_data(zk_of_inspection(entry->inspection)->dialect))
        entry->proclaimed = entry->data;
    else
        entry->command = entry->data;
}

/* "pid host timeout/slots command" as stile writes it, and behind a newline what is proclaimed. */
static void read_data(struct entry *entry)
{
    long long pid, timeout_ms;
    unsigned slots;
    int host = 0, host_end = 0, command = 0;
    char *data = entry->data, *newline = strchr(data, '\n');
    if (newline)
        *newline = '\0';
    bool ours = sscanf(data, "%lld %n%*s%n %lld/%u %n", &pid, &host, &host_end, &timeout_ms, &slots,
                       &command) == 3 &&
                command;
    if (newline && !ours)
        *newline = '\n';
    mask_controls(data);
    if (!ours) {
        read_foreign(entry);
        return;
    }
    data[host_end] = '\0';
    entry->pid = pid;
    entry->host = data + host;
    entry->timeout_ms = timeout_ms;
    entry->slots = slots;
    entry->command = data + command;
    entry->proclaimed = newline ? newline + 1 : "";
}

static void read_record(struct entry *entry, const struct jute_stat *stat)
{
    struct record record = {.host = "", .command = ""};
    int64_t now_ms = wall_ms();
    if (zk_record_read(&record, entry->data))
        entry->until_ms = zk_record_until_ms(&record, stat, now_ms);
    entry->exists = entry->until_ms > now_ms;
    entry->token = record.token;
    entry->pid = record.pid;
    entry->host = record.host;
    entry->command = record.command;
}

static void read_entry(struct entry *entry, const struct reply *reply)
{
    size_t n = reply->data_len;
    /* Only ephemeral nodes are claims; nothing else is ever shown or deleted. */
    entry->exists = reply->stat->ephemeral_owner != 0;
    entry->session_id = reply->stat->ephemeral_owner;
    entry->czxid = reply->stat->czxid;
    entry->token = (uint64_t)entry->czxid;
    entry->ctime_ms = reply->stat->ctime;
    entry->host = entry->command = entry->proclaimed = "";
    entry->data = strndup(n ? reply->data : "", n < DATA_MAX ? n : DATA_MAX);
    if (!entry->data)
        return;
    if (entry->orphan) {
        mask_controls(entry->data);
        read_record(entry, reply->stat);
    } else {
        read_data(entry);
    }
}

/* ---- holders and waiters ---- */

static bool is_holder(const size_t before[3], const struct entry *entry)
{
    size_t exclusive = before[STILE_EXCLUSIVE], shared = before[STILE_SHARED],
           slots = before[STILE_SLOTS];
    switch (entry->mode) {
    case STILE_SHARED:
        return exclusive + slots == 0;
    case STILE_SLOTS:
        return exclusive + shared == 0 && (slots == 0 || slots < entry->slots);
    default:
        return exclusive + shared + slots == 0;
    }
}

static void find_holders(struct name_view *view)
{
    size_t before[3] = {0};
    for (size_t i = 0; i < view->n; i++) {
        struct entry *entry = &view->entries[i];
        entry->held = entry->exists && (entry->orphan || is_holder(before, entry));
        before[entry->mode] += entry->exists;
    }
}

static void describe_claim(struct stile_claim_info *claim, const struct entry *entry,
                           int64_t now_ms)
{
    int64_t age_ms = entry->ctime_ms > 0 ? now_ms - entry->ctime_ms : 0; /* it may be anything */
    int64_t left_ms = entry->until_ms > now_ms ? entry->until_ms - now_ms : 1;
    *claim = (struct stile_claim_info){.held = entry->held,
                                       .ghost = entry->orphan,
                                       .mode = entry->mode,
                                       .token = entry->held ? entry->token : 0,
                                       .age_ms = age_ms > 0 ? age_ms : 0,
                                       .expires_ms = entry->orphan ? left_ms : entry->timeout_ms,
                                       .pid = entry->pid,
                                       .host = entry->host,
                                       .command = entry->command,
                                       .proclaimed = entry->proclaimed,
                                       .owner = strrchr(entry->path, '/') + 1};
}

/* Holders first, then waiters, each in the order of the queue. */
static void describe(const struct name_view *view, struct stile_info *info,
                     struct stile_claim_info *claims)
{
    int64_t now_ms = wall_ms();
    size_t n = 0;
    /* The token of a name without a holder is not known: none so far is greater than this. */
    *info =
        (struct stile_info){.name = view->name, .claims = claims, .token = (uint64_t)view->pzxid};
    for (size_t i = 0; i < view->n; i++) {
        if (!view->entries[i].held)
            continue;
        describe_claim(&claims[n++], &view->entries[i], now_ms);
        info->token = claims[n - 1].token;
    }
    info->holders = n;
    for (size_t i = 0; i < view->n; i++) {
        if (view->entries[i].exists && !view->entries[i].held)
            describe_claim(&claims[n++], &view->entries[i], now_ms);
    }
    info->waiters = n - info->holders;
}

/* ---- reading from the server ---- */

static void drop_views(struct inspection *inspection)
{
    for (size_t i = 0; i < inspection->n; i++) {
        zk_requester_forget(&inspection->views[i].requester);
        drop_entries(&inspection->views[i]);
        free(inspection->views[i].name);
        free(inspection->views[i].path);
    }
    free(inspection->views);
    inspection->views = NULL;
    inspection->n = inspection->pending = 0;
}

static void fail(struct inspection *inspection, int rc)
{
    if (!inspection->error.status)
        zk_error_set(&inspection->error, rc, false);
}

static void on_entry(struct requester *requester, const struct reply *reply)
{
    struct entry *entry = container_of(requester, struct entry, requester);
    struct inspection *inspection = entry->inspection;
    if (reply->rc == ZOK)
        read_entry(entry, reply);
    else if (reply->rc != ZNONODE)
        fail(inspection, reply->rc);
    inspection->pending--;
    advance(inspection);
}

static bool request_entry(struct inspection *inspection)
{
    while (inspection->next_view < inspection->n) {
        struct name_view *view = &inspection->views[inspection->next_view];
        if (inspection->next_entry < view->n) {
            struct entry *entry = &view->entries[inspection->next_entry++];
            return zk_request_get(session_of(inspection), &entry->requester, entry->path, NULL,
                                  on_entry);
        }
        inspection->next_view++;
        inspection->next_entry = 0;
    }
    return false;
}

static void on_nodes(struct requester *requester, const struct reply *reply)
{
    struct name_view *view = container_of(requester, struct name_view, requester);
    struct inspection *inspection = view->inspection;
    view->pzxid = reply->rc == ZOK ? reply->stat->pzxid : 0;
    if (reply->rc == ZOK)
        fill_entries(view, zk_of_inspection(inspection), reply->children, &inspection->error);
    else if (reply->rc != ZNONODE)
        fail(inspection, reply->rc);
    inspection->pending--;
    advance(inspection);
}

static bool request_nodes(struct inspection *inspection)
{
    if (inspection->next_view == inspection->n)
        return false;
    struct name_view *view = &inspection->views[inspection->next_view++];
    return zk_request_children(session_of(inspection), &view->requester, view->path, NULL,
                               on_nodes);
}

/* Keeps a window of requests under way: first the queues of all names, then their nodes. */
static void advance(struct inspection *inspection)
{
    while (inspection->pending < WINDOW && !inspection->error.status &&
           (inspection->reading ? request_entry(inspection) : request_nodes(inspection)))
        inspection->pending++;
    if (inspection->pending > 0)
        return;
    if (inspection->reading || inspection->error.status) {
        on_gathered(inspection);
        return;
    }
    inspection->reading = true;
    inspection->next_view = inspection->next_entry = 0;
    advance(inspection);
}

static void on_synced(struct requester *requester, const struct reply *reply)
{
    struct inspection *inspection = inspection_of(requester);
    if (reply->rc != ZOK)
        fail(inspection, reply->rc);
    inspection->pending--;
    advance(inspection);
}

/* ---- names ---- */

static enum stile_status add_view(struct inspection *inspection, const char *name, size_t len)
{
    char path[PATH_ROOM];
    zk_path_of_name(path, zk_of_inspection(inspection), name, len);
    struct name_view *view = &inspection->views[inspection->n];
    *view = (struct name_view){
        .inspection = inspection, .name = strndup(name, len), .path = strdup(path)};
    inspection->n++;
    return view->name && view->path
               ? STILE_OK
               : error_set(&inspection->error, STILE_NOMEM, 0, "out of memory");
}

static enum stile_status make_views(struct inspection *inspection, size_t n)
{
    inspection->views = calloc(n + 1, sizeof *inspection->views);
    return inspection->views ? STILE_OK
                             : error_set(&inspection->error, STILE_NOMEM, 0, "out of memory");
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct name_view *)a)->name, ((const struct name_view *)b)->name);
}

static void on_names(struct requester *requester, const struct reply *reply)
{
    struct inspection *inspection = inspection_of(requester);
    const struct query *query = inspection->query;
    size_t n = reply->rc == ZOK ? reply->children->n : 0;
    char name[PATH_ROOM];
    if (reply->rc != ZOK && reply->rc != ZNONODE)
        fail(inspection, reply->rc);
    else
        make_views(inspection, n);
    for (size_t i = 0; i < n && !inspection->error.status; i++) {
        if (zk_name_of_child(name, zk_of_inspection(inspection), reply->children->list[i]) &&
            strncmp(name, query->name, query->name_len) == 0)
            add_view(inspection, name, strlen(name));
    }
    if (!inspection->error.status && inspection->n > 1)
        qsort(inspection->views, inspection->n, sizeof *inspection->views, by_name);
    inspection->pending--;
    advance(inspection);
}

static bool request_names(struct inspection *inspection)
{
    const char *base = zk_of_inspection(inspection)->base;
    return zk_request_children(session_of(inspection), &inspection->requester, *base ? base : "/",
                               NULL, on_names);
}

/* ---- the record of the last holder ---- */

/* It is only information: a node that can't be read hides nothing else. */
static void on_record(struct requester *requester, const struct reply *reply)
{
    struct inspection *inspection = inspection_of(requester);
    size_t len;
    const char *text = reply->rc == ZOK
                           ? zk_history_find(&len, inspection->query, reply->data, reply->data_len)
                           : NULL;
    if (text && len <= RECORD_MAX) {
        memcpy(inspection->record, text, len);
        inspection->record_len = len;
    }
    inspection->pending--;
    advance(inspection);
}

static bool request_record(struct inspection *inspection)
{
    const struct query *query = inspection->query;
    char path[PATH_ROOM];
    zk_path_of_history(path, zk_of_inspection(inspection), query->name, query->name_len);
    return zk_request_get(session_of(inspection), &inspection->requester, path, NULL, on_record);
}

/* ---- everything ---- */

static void gather(struct inspection *inspection)
{
    const struct query *query = inspection->query;
    drop_views(inspection);
    inspection->error = (struct stile_error){0};
    inspection->reading = false;
    inspection->next_view = inspection->next_entry = 0;
    bool sent = zk_request_sync(session_of(inspection), &inspection->requester, "/", on_synced);
    inspection->pending = sent;
    if (sent && inspection->kind == LIST) { /* executed behind it */
        sent = request_names(inspection);
        inspection->pending += sent;
    } else if (sent && !make_views(inspection, 1)) {
        add_view(inspection, query->name, query->name_len);
        inspection->pending += inspection->kind == SHOW && request_record(inspection);
    }
    if (sent)
        return;
    fail(inspection, ZNOMEMORY);
    if (inspection->pending == 0)
        on_gathered(inspection);
}

/* ---- its end ---- */

static void inspection_free(struct inspection *inspection)
{
    zk_requester_forget(&inspection->requester);
    drop_views(inspection);
    inspection->query->state = NULL;
    free(inspection);
}

static void inspection_discard(struct inquiry *inquiry)
{
    inspection_free((struct inspection *)inquiry);
}

static void end(struct inspection *inspection, const struct stile_error *err)
{
    struct query *query = inspection->query;
    struct stile_error why;
    error_copy(&why, err);
    inspection_free(inspection);
    query->engine->events->done(query, why.status ? &why : NULL);
}

/* ---- reporting ---- */

static void report(struct inspection *inspection, const struct name_view *view)
{
    struct stile_info info;
    struct stile_claim_info *claims = calloc(view->n + 1, sizeof *claims);
    if (!claims) {
        error_set(&inspection->error, STILE_NOMEM, 0, "out of memory");
        return;
    }
    describe(view, &info, claims);
    bool empty = info.holders + info.waiters == 0;
    if (inspection->record_len > 0)
        inspection->query->engine->events->record(inspection->query, inspection->record,
                                                  inspection->record_len);
    if (!empty || inspection->kind != LIST)
        inspection->query->engine->events->info(inspection->query, &info);
    free(claims);
}

/* ---- break: the nodes of the holders, and their hold records ---- */

static void finish_break(struct inspection *inspection)
{
    struct stile_error *err = &inspection->error;
    if (inspection->broken || err->status) {
        end(inspection, err->status ? err : NULL);
    } else if (++inspection->tries < BREAKS_MAX) {
        gather(inspection);
    } else {
        error_set(err, STILE_CONFLICT, 0, "the holders keep changing");
        end(inspection, err);
    }
}

static void on_broken(struct requester *requester, const struct reply *reply)
{
    struct inspection *inspection = inspection_of(requester);
    if (reply->rc == ZOK)
        inspection->broken = true;
    else if (reply->rc != ZNONODE)
        zk_error_set(&inspection->error, reply->rc, reply->maybe);
    if (--inspection->pending == 0)
        finish_break(inspection);
}

/* ---- their sessions are told first (marks.c) ---- */

static void remove_holders(struct inspection *inspection);
static bool is_to_break(const struct inspection *inspection, const struct entry *entry);

/* Sessions of other programs read no marks. */
static bool can_be_marked(const struct inspection *inspection, const struct entry *entry)
{
    return is_to_break(inspection, entry) && !entry->orphan && *entry->host;
}

/* With all tokens of the session of this entry, unless an earlier one has the same session. */
static bool put_mark(struct inspection *inspection, size_t first)
{
    const struct name_view *view = &inspection->views[0];
    int64_t session_id = view->entries[first].session_id;
    uint64_t tokens[MARK_TOKENS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < view->n && n < MARK_TOKENS_MAX; i++) {
        const struct entry *entry = &view->entries[i];
        if (!can_be_marked(inspection, entry) || entry->session_id != session_id)
            continue;
        if (i < first)
            return false;
        tokens[n++] = entry->token;
    }
    return zk_marks_put(zk_of_inspection(inspection), session_id, tokens, n);
}

static void on_marks_read(struct requester *requester, const struct reply *reply)
{
    (void)reply; /* the deletion fails the same way */
    inspection_of(requester)->pending--;
    remove_holders(inspection_of(requester));
}

/* The marks are there. Another round trip is the time that their readers need. */
static void on_marks_put(struct requester *requester, const struct reply *reply)
{
    struct inspection *inspection = inspection_of(requester);
    if (!zk_request_sync(session_of(inspection), requester, "/", on_marks_read))
        on_marks_read(requester, reply);
}

static void break_now(struct inspection *inspection)
{
    struct name_view *view = &inspection->views[0];
    size_t n = 0;
    for (size_t i = 0; i < view->n && n < MARKS_MAX; i++) {
        struct entry *entry = &view->entries[i];
        entry->marked = can_be_marked(inspection, entry) && put_mark(inspection, i);
        n += entry->marked;
    }
    if (n > 0 && zk_request_sync(session_of(inspection), &inspection->requester, "/", on_marks_put))
        inspection->pending = 1;
    else
        remove_holders(inspection);
}

/* ---- their nodes ---- */

static void remove_node(struct inspection *inspection, const char *path)
{
    if (path && zk_request_delete(session_of(inspection), &inspection->requester, path, on_broken))
        inspection->pending++;
}

static bool is_to_break(const struct inspection *inspection, const struct entry *entry)
{
    uint64_t token = inspection->query->token;
    return entry->held && (!token || token == entry->token);
}

static bool is_any_held(const struct name_view *view)
{
    for (size_t i = 0; i < view->n; i++) {
        if (view->entries[i].held)
            return true;
    }
    return false;
}

static void remove_holders(struct inspection *inspection)
{
    const struct name_view *view = &inspection->views[0];
    for (size_t i = 0; i < view->n; i++) {
        const struct entry *entry = &view->entries[i];
        if (!is_to_break(inspection, entry))
            continue;
        remove_node(inspection, entry->record);
        remove_node(inspection, entry->path);
        if (entry->marked)
            zk_marks_remove(zk_of_inspection(inspection), entry->session_id);
    }
    if (inspection->pending > 0)
        return;
    error_set(&inspection->error, STILE_CONFLICT, 0,
              is_any_held(view) ? "the grant with that token is over" : "it isn't held");
    end(inspection, &inspection->error);
}

/* ---- everything is read, or could not be ---- */

static void on_gathered(struct inspection *inspection)
{
    struct stile_error *err = &inspection->error;
    for (size_t i = 0; i < inspection->n; i++)
        find_holders(&inspection->views[i]);
    if (inspection->kind == BREAK && !err->status) {
        break_now(inspection);
        return;
    }
    for (size_t i = 0; i < inspection->n && !err->status; i++)
        report(inspection, &inspection->views[i]);
    end(inspection, err->status ? err : NULL);
}

static void begin(struct engine *engine, struct query *query, enum inspection_kind kind)
{
    struct stile_error err;
    struct inspection *inspection = calloc(1, sizeof *inspection);
    if (!inspection) {
        error_set(&err, STILE_NOMEM, 0, "out of memory");
        engine->events->done(query, &err);
        return;
    }
    inspection->inquiry.discard = inspection_discard;
    inspection->query = query;
    inspection->kind = kind;
    query->state = inspection;
    gather(inspection);
}

void zk_inspect_list(struct engine *engine, struct query *query)
{
    begin(engine, query, LIST);
}

void zk_inspect_show(struct engine *engine, struct query *query)
{
    begin(engine, query, SHOW);
}

void zk_inspect_break(struct engine *engine, struct query *query)
{
    begin(engine, query, BREAK);
}

void zk_inspect_cancel(struct engine *engine, struct query *query)
{
    struct inquiry *inquiry = query->state;
    (void)engine;
    inquiry->discard(inquiry);
}
