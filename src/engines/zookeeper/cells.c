/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Cells: small values with versions and guards.
 *
 * A cell is one node, "<base>/%stile/cells/<hash>/<key>" (cell_form.c). A write reads it, judges,
 * and writes it if its version is still the one that was read; otherwise it does all of it again.
 * So what was judged is what is replaced. Nothing ever deletes the node.
 *
 * What a client has last seen of a cell is remembered. A put or a removal that would pass is sent
 * at once, with the version that was seen: if that is still the node's version, what is remembered
 * was true. That is one packet, as for any conditional write. Nothing is refused without a read.
 *
 * The server's time is the mtime of a node that is written for it, "<base>/%stile/clock". Its
 * leader takes it, in milliseconds, while the request is under way.
 *
 * Writes of one client to one cell wait for each other, in lanes by the key's hash: they would only
 * fail one another's version checks. */
#include "engines/zookeeper/cells.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "engines/zookeeper/cell_read.h"

#define CLOCK_NODE     "clock"
#define LANES          1024
#define TRIES_MAX      64 /* of a write that always meets another client's */
#define PAUSE_FIRST_NS (1 * NS_PER_MS)
#define PAUSE_MAX_NS   (50 * NS_PER_MS)

/* What was last seen of a cell. */
struct known {
    int32_t node_version;
    bool live;
    uint64_t version, token;
    char texts[]; /* the key, and behind it the issuer */
};

struct cell_lane {
    struct known *known; /* NULL: nothing */
    struct op *first, **tail;
    bool starting; /* inside start_all() */
};

/* A get or a write. */
struct op {
    struct cell_work work;
    struct cell_lane *lane;
    struct op *behind; /* of a write, in its lane */
    struct timer pause;
    bool started;
    bool reserved; /* the timer */
    bool exists;   /* the node */
    int32_t node_version;
    unsigned tries;
    int64_t clock_ms;    /* the server's; 0: not read */
    struct zk_cell next; /* what is written */
};

static void read_node(struct op *op);
static reply_fn on_read;

static struct op *op_of(struct requester *requester)
{
    return container_of(requester, struct op, work.requester);
}

static void path_of(char path[PATH_ROOM], const struct op *op)
{
    const struct cell_request *request = op->work.request;
    zk_path_of_cell(path, zk_of(request->engine), request->key, request->key_len);
}

/* ---- what was last seen ---- */

static const char *issuer_of(const struct known *known)
{
    return known->texts + strlen(known->texts) + 1;
}

static struct known *known_of(const struct op *op)
{
    struct known *known = op->lane->known;
    return known && strcmp(known->texts, op->work.request->key) == 0 ? known : NULL;
}

static void forget(struct op *op)
{
    if (!known_of(op))
        return;
    free(op->lane->known);
    op->lane->known = NULL;
}

/* Without memory it is read again the next time. */
static struct known *known_new(const char *key, const char *issuer)
{
    size_t key_size = strlen(key) + 1, issuer_size = strlen(issuer) + 1;
    struct known *known = malloc(sizeof *known + key_size + issuer_size);
    if (!known)
        return NULL;
    memcpy(known->texts, key, key_size);
    memcpy(known->texts + key_size, issuer, issuer_size);
    return known;
}

static void remember(struct op *op, const struct zk_cell *cell, int32_t node_version)
{
    struct known *known = known_of(op);
    if (!known || strcmp(issuer_of(known), cell->issuer) != 0) {
        free(op->lane->known);
        known = op->lane->known = known_new(op->work.request->key, cell->issuer);
    }
    if (!known)
        return;
    known->node_version = node_version;
    known->live = cell->live;
    known->version = cell->version;
    known->token = cell->token;
}

/* ---- the end ---- */

static void op_free(struct cell_work *work)
{
    struct op *op = container_of(work, struct op, work);
    struct loop *loop = work->request->engine->loop;
    zk_cell_work_leave(work);
    if (op->reserved) {
        loop_disarm(loop, &op->pause);
        loop_unreserve(loop, 1);
    }
    free(op);
}

/* ---- lanes ---- */

static void start_write(struct op *op);

/* One that fails at once has left the lane when start_write() returns. */
static void start_first(struct cell_lane *lane)
{
    if (lane->starting)
        return;
    lane->starting = true;
    while (lane->first && !lane->first->started) {
        lane->first->started = true;
        start_write(lane->first);
    }
    lane->starting = false;
}

static void enter_lane(struct op *op)
{
    struct cell_lane *lane = op->lane;
    if (!lane->first)
        lane->tail = &lane->first;
    *lane->tail = op;
    lane->tail = &op->behind;
    start_first(lane);
}

/* cell: is reported before the end; NULL: none. */
static void finish(struct op *op, const struct zk_cell *cell, const struct stile_error *err)
{
    struct cell_request *request = op->work.request;
    struct cell_lane *lane = op->lane;
    if (cell)
        zk_cell_report(request, cell);
    if (lane->first == op)
        lane->first = op->behind;
    op_free(&op->work);
    request->engine->events->cell_done(request, err);
    start_first(lane);
}

/* Those behind it would wait for the same server, each for its own time. */
static void fail_lane(struct op *op, int rc, bool maybe)
{
    struct cell_lane *lane = op->lane;
    if (lane->first == op)
        lane->first = NULL;
    for (struct op *behind; op; op = behind, maybe = false) {
        struct cell_request *request = op->work.request;
        behind = op->behind;
        op_free(&op->work);
        zk_cell_fail(request, rc, maybe);
    }
    start_first(lane);
}

static void fail(struct op *op, int rc, bool maybe)
{
    struct stile_error err;
    if (zk_error_is_transient(rc)) {
        fail_lane(op, rc, maybe);
        return;
    }
    zk_error_set(&err, rc, maybe);
    finish(op, NULL, &err);
}

/* Core explains it. */
static void refuse(struct op *op, const struct zk_cell *now, enum stile_status status)
{
    struct stile_error err;
    error_set(&err, status, 0, "refused");
    finish(op, now, &err);
}

/* ---- writing ---- */

static void on_pause_over(struct timer *timer)
{
    read_node(container_of(timer, struct op, pause));
}

/* Others were faster. The first time nothing is known about how many they are. */
static void again(struct op *op)
{
    struct loop *loop = op->work.request->engine->loop;
    struct stile_error err;
    if (++op->tries > TRIES_MAX) {
        error_set(&err, STILE_CONFLICT, 0, "others write to it all the time");
        finish(op, NULL, &err);
    } else if (op->tries == 1) {
        read_node(op);
    } else if (!op->reserved && loop_reserve(loop, 1)) {
        fail(op, ZNOMEMORY, false);
    } else {
        op->reserved = true;
        loop_arm(loop, &op->pause,
                 loop_now(loop) + loop_backoff(loop, PAUSE_FIRST_NS, PAUSE_MAX_NS, op->tries));
    }
}

static void on_parent(struct requester *requester, const struct reply *reply)
{
    (void)requester, (void)reply; /* if it does not exist after all, the next request fails */
}

/* Containers: the server removes them if everything below is deleted by hand. */
static bool create_parents(struct op *op, char path[PATH_ROOM])
{
    bool sent = true;
    for (char *slash = strchr(path + 1, '/'); sent && slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        sent = zk_request_create(zk_cell_session(op->work.request), &op->work.requester, path,
                                 JUTE_CONTAINER, NULL, on_parent);
        *slash = '/';
    }
    return sent;
}

static bool create_parents_of_cell(struct op *op)
{
    char path[PATH_ROOM];
    path_of(path, op);
    return create_parents(op, path);
}

static void on_written(struct requester *requester, const struct reply *reply)
{
    struct op *op = op_of(requester);
    if (reply->rc == ZOK) {
        remember(op, &op->next, reply->stat->version);
        finish(op, &op->next, NULL);
        return;
    }
    forget(op);
    if (reply->rc == ZNONODE && !op->exists && !create_parents_of_cell(op))
        fail(op, ZNOMEMORY, false);
    else if (reply->rc == ZNONODE || reply->rc == ZNODEEXISTS || reply->rc == ZBADVERSION)
        again(op);
    else
        fail(op, reply->rc, reply->maybe);
}

static void write_node(struct op *op)
{
    struct session *session = zk_cell_session(op->work.request);
    char path[PATH_ROOM], head[CELL_HEAD_MAX];
    struct node_data data = {.head = head,
                             .head_len = zk_cell_write_head(head, &op->next),
                             .body = op->next.value,
                             .body_len = op->next.size};
    path_of(path, op);
    bool sent = op->exists ? zk_request_set_node(session, &op->work.requester, path, &data,
                                                 op->node_version, on_written)
                           : zk_request_create_node(session, &op->work.requester, path,
                                                    JUTE_PERSISTENT, &data, on_written);
    if (!sent)
        fail(op, ZNOMEMORY, false);
}

/* ---- judging ---- */

static uint64_t seen_zxid(const struct session *session)
{
    int64_t zxid = session->connection ? zk_connection_zxid(session->connection) : 0;
    return (uint64_t)(zxid > session->zxid ? zxid : session->zxid);
}

static void judge(struct op *op, const struct zk_cell *now)
{
    struct cell_request *request = op->work.request;
    enum stile_status status =
        zk_cell_change(&op->next, now, request, seen_zxid(zk_cell_session(request)));
    if (status)
        refuse(op, now, status);
    else if (zk_cell_is_unchanged(now, request))
        finish(op, &op->next, NULL);
    else
        write_node(op);
}

/* True: it would pass, and is under way. What concerns the guard alone keeps the value, which is
 * not remembered. */
static bool write_known(struct op *op)
{
    const struct cell_request *request = op->work.request;
    const struct known *known = known_of(op);
    struct zk_cell now = {0};
    if (!known || known->version == 0 ||
        (request->verb != CELL_PUT && request->verb != CELL_REMOVE))
        return false;
    now.live = known->live;
    now.version = known->version;
    now.token = known->token;
    strcpy(now.issuer, issuer_of(known));
    if (zk_cell_change(&op->next, &now, request, 0) || zk_cell_is_unchanged(&now, request))
        return false;
    op->exists = true;
    op->node_version = known->node_version;
    write_node(op);
    return true;
}

/* ---- reading ---- */

static enum stile_status check_version(const struct reply *reply, const char *path,
                                       struct stile_error *err)
{
    if (reply->rc != ZOK || reply->stat->version != ANY_VERSION)
        return STILE_OK;
    return error_set(err, STILE_CORRUPT, 0,
                     "the node %.300s has the version %d, for which the server compares nothing; "
                     "write it once more by hand",
                     path, ANY_VERSION);
}

static void on_clock_made(struct requester *requester, const struct reply *reply)
{
    if (reply->rc != ZOK && reply->rc != ZNODEEXISTS)
        fail(op_of(requester), reply->rc, false);
}

static void make_clock(struct op *op)
{
    char path[PATH_ROOM];
    zk_path_of_own(path, zk_of(op->work.request->engine), CLOCK_NODE);
    if (create_parents(op, path) &&
        zk_request_create(zk_cell_session(op->work.request), &op->work.requester, path,
                          JUTE_PERSISTENT, "", on_clock_made))
        again(op);
    else
        fail(op, ZNOMEMORY, false);
}

/* The time is rounded up: it is later than the clock was. */
static void on_clock(struct requester *requester, const struct reply *reply)
{
    struct op *op = op_of(requester);
    if (reply->rc == ZOK)
        op->clock_ms = reply->stat->mtime + 1;
    else if (reply->rc != ZNONODE)
        fail(op, reply->rc, false);
}

/* A read behind a write includes what the write has met. */
static bool read_behind_clock(struct op *op, const char *path)
{
    struct session *session = zk_cell_session(op->work.request);
    char clock[PATH_ROOM];
    zk_path_of_own(clock, zk_of(op->work.request->engine), CLOCK_NODE);
    op->clock_ms = 0;
    return zk_request_set(session, &op->work.requester, clock, "", ANY_VERSION, on_clock) &&
           zk_request_get(session, &op->work.requester, path, NULL, on_read);
}

static void on_read(struct requester *requester, const struct reply *reply)
{
    struct op *op = op_of(requester);
    struct stile_error err;
    struct zk_cell now;
    char path[PATH_ROOM];
    path_of(path, op);
    if (zk_error_is_transient(reply->rc)) {
        fail(op, reply->rc, false);
        return;
    }
    if (zk_cell_of_reply(&now, reply, path, &err) || check_version(reply, path, &err)) {
        forget(op);
        finish(op, NULL, &err);
        return;
    }
    if (op->work.request->clock && op->clock_ms == 0) {
        make_clock(op);
        return;
    }
    now.time_us = op->clock_ms * 1000;
    op->exists = reply->rc == ZOK;
    op->node_version = op->exists ? reply->stat->version : 0;
    if (op->exists)
        remember(op, &now, op->node_version);
    if (op->work.request->verb == CELL_GET)
        finish(op, &now, NULL);
    else
        judge(op, &now);
}

static void on_synced(struct requester *requester, const struct reply *reply)
{
    if (reply->rc != ZOK)
        fail(op_of(requester), reply->rc, false);
}

static void read_node(struct op *op)
{
    char path[PATH_ROOM];
    path_of(path, op);
    bool sent = op->work.request->clock ? read_behind_clock(op, path)
                                        : zk_cell_request(&op->work, path, on_synced, on_read);
    if (!sent)
        fail(op, ZNOMEMORY, false);
}

/* ---- requests ---- */

static void start_write(struct op *op)
{
    if (!write_known(op))
        read_node(op);
}

static struct cell_lane *lane_of(struct zk *zk, const struct cell_request *request)
{
    if (!zk->cell_lanes)
        zk->cell_lanes = calloc(LANES, sizeof *zk->cell_lanes);
    uint64_t hash = fnv_add(FNV_START, request->key, request->key_len);
    return zk->cell_lanes ? &zk->cell_lanes[hash % LANES] : NULL;
}

static struct op *op_new(struct cell_request *request)
{
    struct cell_lane *lane = lane_of(zk_of(request->engine), request);
    struct op *op = lane ? malloc(sizeof *op) : NULL;
    if (!op)
        return NULL;
    *op = (struct op){.lane = lane, .pause.fn = on_pause_over};
    zk_cell_work_begin(&op->work, request, op_free);
    return op;
}

void zk_cells_run(struct engine *engine, struct cell_request *request)
{
    (void)engine;
    if (request->verb == CELL_LIST) {
        zk_cell_list(request);
        return;
    }
    struct op *op = op_new(request);
    if (!op)
        zk_cell_fail(request, ZNOMEMORY, false);
    else if (request->verb == CELL_GET)
        read_node(op);
    else
        enter_lane(op);
}

void zk_cells_close(struct zk *zk)
{
    while (zk->cell_work)
        zk->cell_work->free(zk->cell_work);
    for (size_t i = 0; zk->cell_lanes && i < LANES; i++)
        free(zk->cell_lanes[i].known);
    free(zk->cell_lanes);
    zk->cell_lanes = NULL;
}
