/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions: each has one connection at a time, and its requests, watches and claims. */
#ifndef STILE_ZOOKEEPER_SESSION_H
#define STILE_ZOOKEEPER_SESSION_H

#include "engines/engine.h"
#include "engines/zookeeper/requests.h"

struct zk;

enum session_state { SESSION_DOWN, SESSION_UP, SESSION_DEAD };

/* marks.c: which process has broken locks of the session. */
struct mark_watch {
    struct requester requester;
    struct node_watch *watch;
    bool reading;
    char text[768]; /* the last mark */
};

struct session {
    struct session *next;
    struct zk *zk;
    int asked_ms;
    struct connection *connection; /* NULL: between two attempts */
    enum session_state state;
    bool refused;        /* the server refuses our credentials */
    bool ending;         /* expired on the servers; the task begins a new one */
    unsigned generation; /* counts the sessions that the servers gave for this one */
    unsigned resumes;    /* how often a server has taken it up, or up again */
    struct session_id id;
    int64_t zxid; /* the greatest seen: a server that is behind it must not be believed */
    uint64_t ttl_ns;
    int timeout_ms;         /* as the server gave it; before that, as asked for */
    struct stile_error why; /* it is down */
    struct timer timer;     /* the next attempt, or the end of the present one */
    struct task task;       /* for what must not happen inside a request or an event */
    struct sender sender;
    struct zk_claim *claims;
    void *lines;  /* line.c: by their paths, as tsearch(3) keeps them */
    size_t bytes; /* of the paths of its nodes */

    /* requests.c */
    struct request *queue, **queue_tail;   /* not sent yet */
    size_t in_flight;                      /* sent and not answered */
    struct request *failed, **failed_tail; /* to be reported by the task */
    struct batch *batch;                   /* of deletes, to be sent before the loop sleeps */
    struct watches watches;
    bool watches_lost; /* they could not be restored */

    /* liveness.c */
    struct requester requester; /* of the probes */
    struct timer probe_timer;
    bool renewing, probing;
    uint64_t proven_ns;   /* the leader has heard of the session at this time or later */
    uint64_t heard_ns;    /* when a request was sent that the leader has answered; 0: none was */
    uint64_t leader_ns;   /* when that answer came */
    uint64_t probed_ns;   /* when the last probe was sent, */
    uint64_t answered_ns; /* and when the last one was answered */
    uint64_t connect_ns;  /* no later than its present connection was begun */

    struct mark_watch marks;
    struct requester strays; /* strays.c */
    bool strays_due;         /* its nodes have not been compared with its claims yet */

    /* which server is tried next, and when */
    unsigned first_host;    /* at random */
    unsigned dials;         /* since the session was last up for a while */
    unsigned silences;      /* of these, the ones that no server has answered */
    uint64_t up_ns;         /* when it came up; 0: it is down */
    uint64_t down_ns;       /* when it was last up, or was created */
    uint64_t dial_ns;       /* no attempt before this */
    uint64_t dial_until_ns; /* when the present attempt is given up */
    bool fresh;             /* this attempt asks for a new session, to see whether one is given */
};

/* The limit of all node paths of one session, in bytes. When a session ends, the servers write all
 * its nodes into one record, and refuse to read back a record larger than 1 MB (jute.maxbuffer):
 * they could not read their own log. */
#define SESSION_BYTES_MAX (512u << 10)
#define SESSIONS_MAX      48 /* by default a server accepts 60 connections from one address */

struct session_events {
    /* The session has ended on the servers, with all its nodes; none of its requests is under way.
     * A new one takes its place. */
    void (*ended)(struct session *session);
    /* May be NULL. A server has taken it up again, with its nodes: strays_due is set. Repeated with
     * each answered probe until that is false. */
    void (*resumed)(struct session *session);
    /* May be NULL. The server has hung up, as zk_sessions_end() asked it to. */
    void (*closed)(struct session *session);
};

/* A session with this TTL, and room for a path of so many bytes. NULL: see err. */
struct session *zk_session_for(struct zk *zk, uint64_t ttl_ns, size_t bytes,
                               struct stile_error *err);
void zk_session_claimed(struct session *session); /* it has claims from now on */
/* How long the servers have for that: if our last request were lost, a session would live on for
 * its timeout, with all its nodes. */
#define SESSION_END_NS (500 * NS_PER_MS)
/* Asks the servers to end them. True: a server has to; closed() is called when it has. */
bool zk_sessions_end(struct zk *zk);
bool zk_sessions_are_connected(const struct zk *zk);
/* Ends them, unless that was done, and frees them. Blocks, for SESSION_END_NS at most. */
void zk_sessions_close(struct zk *zk);
void zk_session_forked(struct session *session);
void zk_session_leave_server(struct session *session); /* for the next one; not inside an event */
void zk_sessions_renew(struct engine *engine, struct claim *const *claims, size_t n);

/* ---- which server is tried, and when; exported for the unit tests ---- */

void zk_dial_begin(struct session *session);
void zk_dial_end(struct session *session); /* no connection is left; sets dial_ns */
uint64_t zk_dial_timeout_ns(const struct session *session); /* of one attempt */
const struct zk_host *zk_dial_host(const struct session *session);

/* ---- liveness.c ---- */

void zk_liveness_begin(struct session *session, uint64_t now_ns); /* a server has accepted it */
void zk_liveness_observe_reply(struct session *session, uint64_t sent_ns, uint64_t now_ns,
                               bool via_leader);
/* When the probe timer is due: the next probe, or the end of our patience with the present one. */
uint64_t zk_liveness_due_ns(const struct session *session);

#endif
