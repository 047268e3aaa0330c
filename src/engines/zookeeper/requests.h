/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of a session, their replies, and watches. */
#ifndef STILE_ZOOKEEPER_REQUESTS_H
#define STILE_ZOOKEEPER_REQUESTS_H

#include "engines/zookeeper/connection.h"

struct session;

/* ---- errors (errors.c) ---- */

/* The server's codes, under the names that all clients give them, and one of our own. */
enum zk_code {
    ZOK = 0,
    ZRUNTIMEINCONSISTENCY = -2,
    ZCONNECTIONLOSS = -4,
    ZUNIMPLEMENTED = -6,
    ZOPERATIONTIMEOUT = -7,
    ZNONODE = -101,
    ZNOAUTH = -102,
    ZBADVERSION = -103,
    ZNOCHILDRENFOREPHEMERALS = -108,
    ZNODEEXISTS = -110,
    ZSESSIONEXPIRED = -112,
    ZINVALIDACL = -114,
    ZAUTHFAILED = -115,
    ZSESSIONMOVED = -118,
    ZQUOTAEXCEEDED = -125,
    ZTHROTTLEDOP = -127,
    ZNOMEMORY = 1, /* ours: no server sends a positive code */
};

/* The error that a failed request is reported as. maybe: the request may have been executed. */
enum stile_status zk_error_set(struct stile_error *err, int rc, bool maybe);
/* The connection, the session or the server's load failed, not the request: it may be repeated. */
bool zk_error_is_transient(int rc);

/* ---- replies ---- */

/* Valid during the callback only. */
struct reply {
    int rc;
    bool maybe;       /* rc is about the connection, and the request may have been executed */
    const char *path; /* of the node that was created */
    const struct jute_stat *stat;
    const struct jute_strings *children;
    const char *data;
    size_t data_len;
};

/* Embedded by whatever sends requests; replies go to it until it is forgotten. */
struct requester {
    struct request *requests;
};

typedef void reply_fn(struct requester *requester, const struct reply *reply);

void zk_requester_forget(struct requester *requester);

/* ---- watches ---- */

/* A watch on one node or its children. It fires once. It ends when the server reports a change,
 * when its owner removes it, or with its session. */
typedef void watch_fn(struct requester *requester, int type);

struct node_watch {
    struct node_watch *next, **link; /* in its bucket */
    struct node_watch **slot;        /* where its owner keeps it */
    struct session *session;
    struct requester *requester;
    watch_fn *fn;
    struct request *request; /* that sets it; NULL: answered */
    bool set;                /* the server has it */
    bool absent;             /* the node did not exist when the watch was set */
    char kind;
    uint64_t hash;
    char path[];
};

/* All watches of one session, by the hash of their paths. */
struct watches {
    struct node_watch **table;
    size_t buckets, n; /* buckets: a power of two, or 0 */
};

/* kind: the request that sets it: 'e' exists, 'g' get, 'c' children. *slot becomes NULL again when
 * the watch has fired, could not be set, or its session has ended. False: out of memory. */
bool zk_watch_add(struct node_watch **slot, struct session *session, char kind, const char *path,
                  struct requester *requester, watch_fn *fn);
void zk_watch_remove(struct node_watch **slot);
void zk_watches_report(struct session *session, int type, const char *path);
/* Sets all of them on a new connection of the same session, in packets well below the server's
 * limit. */
void zk_watches_restore(struct session *session);
void zk_watches_free(struct session *session);

/* ---- requests ---- */

/* False: out of memory, and no reply follows. The server executes the requests of one session in
 * the order in which they were made. */
bool zk_request_create(struct session *session, struct requester *requester, const char *path,
                       int mode, const char *data, reply_fn *fn);
bool zk_request_delete(struct session *session, struct requester *requester, const char *path,
                       reply_fn *fn);
/* The same, in one multi with the other batched deletes of this turn of the loop, behind every
 * other request of the turn. */
bool zk_request_delete_batched(struct session *session, struct requester *requester,
                               const char *path, reply_fn *fn);
bool zk_request_set(struct session *session, struct requester *requester, const char *path,
                    const char *data, int version, reply_fn *fn);

/* What a node holds: the head, and the body behind it. No head: nothing. */
struct node_data {
    const void *head;
    size_t head_len;
    const void *body;
    size_t body_len;
};

bool zk_request_create_node(struct session *session, struct requester *requester, const char *path,
                            int mode, const struct node_data *data, reply_fn *fn);
/* A node's version is an int, which overflows, and this one stands for any. So a node never stays
 * at it: the write before it is made twice, in one transaction. */
#define ANY_VERSION (-1)
bool zk_request_set_node(struct session *session, struct requester *requester, const char *path,
                         const struct node_data *data, int version, reply_fn *fn);

bool zk_request_sync(struct session *session, struct requester *requester, const char *path,
                     reply_fn *fn);
/* watch may be NULL. */
bool zk_request_exists(struct session *session, struct requester *requester, const char *path,
                       struct node_watch *watch, reply_fn *fn);
bool zk_request_get(struct session *session, struct requester *requester, const char *path,
                    struct node_watch *watch, reply_fn *fn);
bool zk_request_children(struct session *session, struct requester *requester, const char *path,
                         struct node_watch *watch, reply_fn *fn);
/* The paths of the session's nodes, as children. */
bool zk_request_ephemerals(struct session *session, struct requester *requester, reply_fn *fn);

/* ---- for the session ---- */

void zk_requests_schedule(struct session *session); /* to be sent before the loop sleeps */
/* Sends what is queued, as far as the window allows. */
void zk_requests_send(struct session *session);
void zk_requests_send_batch(struct session *session); /* queues it as one multi */
/* Fails every unanswered request: those that were sent as uncertain, the others as never sent. */
void zk_requests_fail(struct session *session, int rc);
void zk_requests_report_failed(struct session *session); /* those that could not be sent */

#endif
