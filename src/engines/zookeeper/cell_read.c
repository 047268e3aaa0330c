/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Reading cells.
 *
 * A server may be behind the others, so every read follows a sync, in the same packet: it costs no
 * round trip more. Then it includes every write that was answered before it began, by whichever
 * server. */
#include "engines/zookeeper/cell_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW 256 /* requests of one listing under way at a time */

/* ---- work ---- */

void zk_cell_work_begin(struct cell_work *work, struct cell_request *request,
                        void (*free)(struct cell_work *work))
{
    struct zk *zk = zk_of(request->engine);
    work->request = request;
    work->free = free;
    work->next = zk->cell_work;
    work->link = &zk->cell_work;
    if (work->next)
        work->next->link = &work->next;
    zk->cell_work = work;
}

void zk_cell_work_leave(struct cell_work *work)
{
    zk_requester_forget(&work->requester);
    *work->link = work->next;
    if (work->next)
        work->next->link = work->link;
}

struct session *zk_cell_session(const struct cell_request *request)
{
    return zk_of(request->engine)->main;
}

void zk_cell_report(struct cell_request *request, const struct zk_cell *cell)
{
    bool with_value = cell->live && request->verb == CELL_GET;
    struct stile_cell reported = {.key = request->key,
                                  .value = with_value ? cell->value : NULL,
                                  .size = cell->size,
                                  .version = cell->live ? cell->version : 0,
                                  .token = cell->token,
                                  .issuer = cell->issuer,
                                  .time_us = cell->time_us};
    request->engine->events->cell(request, &reported);
}

void zk_cell_fail(struct cell_request *request, int rc, bool maybe)
{
    struct stile_error err;
    zk_error_set(&err, rc, maybe);
    request->engine->events->cell_done(request, &err);
}

/* ---- one node ---- */

bool zk_cell_request(struct cell_work *work, const char *path, reply_fn *on_synced, reply_fn *fn)
{
    struct session *session = zk_cell_session(work->request);
    return zk_request_sync(session, &work->requester, "/", on_synced) &&
           zk_request_get(session, &work->requester, path, NULL, fn);
}

enum stile_status zk_cell_of_reply(struct zk_cell *cell, const struct reply *reply,
                                   const char *path, struct stile_error *err)
{
    *cell = (struct zk_cell){0};
    if (reply->rc == ZNONODE)
        return STILE_OK;
    if (reply->rc != ZOK)
        return zk_error_set(err, reply->rc, false);
    enum stile_status status = zk_cell_read(cell, reply->data, reply->data_len, err);
    return status ? error_wrap(err, status, "the node %.300s holds no cell", path) : STILE_OK;
}

/* ---- list: the shards, then the nodes in each ---- */

struct item {
    struct requester requester;
    struct listing *listing;
    bool is_shard;
    uint64_t version; /* 0: not read, or there is no cell */
    uint64_t token;
    size_t size;
    char *issuer;
    char name[]; /* a shard's node, or a key */
};

struct listing {
    struct cell_work work;
    struct item **items;
    size_t n, room;
    size_t next, pending;
};

static void advance(struct listing *listing);

static void listing_free(struct cell_work *work)
{
    struct listing *listing = container_of(work, struct listing, work);
    zk_cell_work_leave(work);
    for (size_t i = 0; i < listing->n; i++) {
        zk_requester_forget(&listing->items[i]->requester);
        free(listing->items[i]->issuer);
        free(listing->items[i]);
    }
    free(listing->items);
    free(listing);
}

static void end_listing(struct listing *listing, const struct stile_error *err)
{
    struct cell_request *request = listing->work.request;
    struct stile_error why;
    error_copy(&why, err);
    listing_free(&listing->work);
    request->engine->events->cell_done(request, why.status ? &why : NULL);
}

static void fail_listing(struct listing *listing, int rc)
{
    struct stile_error err;
    zk_error_set(&err, rc, false);
    end_listing(listing, &err);
}

static bool make_room(struct listing *listing)
{
    if (listing->n < listing->room)
        return true;
    size_t room = listing->room ? 2 * listing->room : 64;
    struct item **grown = realloc(listing->items, room * sizeof(struct item *));
    if (!grown)
        return false;
    listing->items = grown;
    listing->room = room;
    return true;
}

static bool add_item(struct listing *listing, bool is_shard, const char *name)
{
    size_t size = strlen(name) + 1;
    struct item *item = make_room(listing) ? malloc(sizeof *item + size) : NULL;
    if (!item)
        return false;
    *item = (struct item){.listing = listing, .is_shard = is_shard};
    memcpy(item->name, name, size);
    listing->items[listing->n++] = item;
    return true;
}

/* Nodes that stand for no key, or lie where none of ours would, are not ours. */
static bool is_wanted(const struct listing *listing, const struct item *shard, const char *key)
{
    const struct cell_request *request = listing->work.request;
    char number[8];
    snprintf(number, sizeof number, "%02x", zk_shard_of_cell(key, strlen(key)));
    return strcmp(number, shard->name) == 0 && strncmp(key, request->key, request->key_len) == 0;
}

static void on_shard(struct requester *requester, const struct reply *reply)
{
    struct item *shard = container_of(requester, struct item, requester);
    struct listing *listing = shard->listing;
    size_t n = reply->rc == ZOK ? reply->children->n : 0;
    char key[PATH_ROOM];
    bool added = true;
    if (reply->rc != ZOK && reply->rc != ZNONODE) {
        fail_listing(listing, reply->rc);
        return;
    }
    for (size_t i = 0; added && i < n; i++) {
        if (zk_name_of_child(key, zk_of(listing->work.request->engine), reply->children->list[i]) &&
            is_wanted(listing, shard, key))
            added = add_item(listing, false, key);
    }
    if (!added) {
        fail_listing(listing, ZNOMEMORY);
        return;
    }
    listing->pending--;
    advance(listing);
}

/* What is not even a damaged cell of ours is ignored. */
static enum stile_status read_item(struct item *item, const struct reply *reply, const char *path,
                                   struct stile_error *err)
{
    struct zk_cell cell;
    if (reply->rc == ZOK && !zk_cell_is_ours(reply->data, reply->data_len))
        return STILE_OK;
    enum stile_status status = zk_cell_of_reply(&cell, reply, path, err);
    if (status || !cell.live)
        return status;
    item->issuer = strdup(cell.issuer);
    if (!item->issuer)
        return zk_error_set(err, ZNOMEMORY, false);
    item->version = cell.version;
    item->token = cell.token;
    item->size = cell.size;
    return STILE_OK;
}

static void on_cell(struct requester *requester, const struct reply *reply)
{
    struct item *item = container_of(requester, struct item, requester);
    struct listing *listing = item->listing;
    struct stile_error err;
    char path[PATH_ROOM];
    zk_path_of_cell(path, zk_of(listing->work.request->engine), item->name, strlen(item->name));
    if (read_item(item, reply, path, &err)) {
        end_listing(listing, &err);
        return;
    }
    listing->pending--;
    advance(listing);
}

static bool request_item(struct listing *listing, struct item *item)
{
    struct zk *zk = zk_of(listing->work.request->engine);
    char path[PATH_ROOM];
    if (!item->is_shard) {
        zk_path_of_cell(path, zk, item->name, strlen(item->name));
        return zk_request_get(zk->main, &item->requester, path, NULL, on_cell);
    }
    zk_path_of_own(path, zk, CELLS_NODE);
    size_t n = strlen(path);
    snprintf(path + n, sizeof path - n, "/%s", item->name);
    return zk_request_children(zk->main, &item->requester, path, NULL, on_shard);
}

static int by_key(const void *a, const void *b)
{
    return strcmp((*(struct item *const *)a)->name, (*(struct item *const *)b)->name);
}

static void report_item(struct cell_request *request, const struct item *item)
{
    struct stile_cell cell = {.key = item->name,
                              .size = item->size,
                              .version = item->version,
                              .token = item->token,
                              .issuer = item->issuer};
    if (item->version > 0)
        request->engine->events->cell(request, &cell);
}

static void report_all(struct listing *listing)
{
    if (listing->n > 1)
        qsort(listing->items, listing->n, sizeof *listing->items, by_key);
    for (size_t i = 0; i < listing->n; i++)
        report_item(listing->work.request, listing->items[i]);
    end_listing(listing, NULL);
}

static void advance(struct listing *listing)
{
    bool sent = true;
    while (sent && listing->pending < WINDOW && listing->next < listing->n) {
        sent = request_item(listing, listing->items[listing->next++]);
        listing->pending += sent;
    }
    if (!sent)
        fail_listing(listing, ZNOMEMORY);
    else if (listing->pending == 0)
        report_all(listing);
}

static void on_shards(struct requester *requester, const struct reply *reply)
{
    struct listing *listing = container_of(requester, struct listing, work.requester);
    size_t n = reply->rc == ZOK ? reply->children->n : 0;
    bool added = true;
    if (reply->rc != ZOK && reply->rc != ZNONODE) {
        fail_listing(listing, reply->rc);
        return;
    }
    for (size_t i = 0; added && i < n; i++)
        added = strlen(reply->children->list[i]) != 2 ||
                add_item(listing, true, reply->children->list[i]);
    if (added)
        advance(listing);
    else
        fail_listing(listing, ZNOMEMORY);
}

static void on_listing_synced(struct requester *requester, const struct reply *reply)
{
    if (reply->rc != ZOK)
        fail_listing(container_of(requester, struct listing, work.requester), reply->rc);
}

void zk_cell_list(struct cell_request *request)
{
    char path[PATH_ROOM];
    struct listing *listing = calloc(1, sizeof *listing);
    if (!listing) {
        zk_cell_fail(request, ZNOMEMORY, false);
        return;
    }
    zk_cell_work_begin(&listing->work, request, listing_free);
    zk_path_of_own(path, zk_of(request->engine), CELLS_NODE);
    struct session *session = zk_cell_session(request);
    if (!zk_request_sync(session, &listing->work.requester, "/", on_listing_synced) ||
        !zk_request_children(session, &listing->work.requester, path, NULL, on_shards))
        fail_listing(listing, ZNOMEMORY);
}
