/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The network between processes and servers, and the streams of io/stream.h on it.
 *
 * A connection has two directions. Each carries pieces of bytes in order, with a delay of their
 * own. A direction that is blocked delivers nothing and loses nothing, as TCP does while packets
 * are dropped: what was sent arrives when it is unblocked, even if its sender has closed the
 * connection meanwhile. A connection that is cut loses what is under way, and both ends learn of
 * it.
 */
#ifndef STILE_SIM_NET_H
#define STILE_SIM_NET_H

#include "base/buffer.h"
#include "sim/process.h"

struct server;
struct connection;
struct stored;

enum direction { TO_SERVER, TO_CLIENT };

struct server_class {
    void (*accepted)(struct connection *connection);
    /* Bytes have arrived in connection->received; the server drops what it has used. */
    void (*data)(struct connection *connection);
    void (*closed)(struct connection *connection);

    /* ---- for a reader of the run; all may be NULL ---- */

    /* What these bytes say, a line for each request or answer. */
    void (*describe)(struct buffer *text, enum direction way, const void *bytes, size_t n);
    /* What the server has stored about the lock of this name. False: nothing. */
    bool (*stored)(struct stored *stored, const struct server *server, const char *name);
};

struct stored {
    char holder[48];   /* the value of the key, or its beginning; "": there is none */
    uint64_t until_ns; /* when it ends, by the world's clock; UINT64_MAX: never */
    uint64_t fence;    /* 0: none */
};

#define SERVERS_MAX 16

struct server {
    const struct server_class *class;
    const char *host; /* "n1" */
    uint16_t port;
    uint32_t number;                /* in the order of net_add() */
    bool down;                      /* nothing listens */
    bool stopped;                   /* its kernel accepts and buffers, the server does nothing */
    int64_t clock_us;               /* what its wall clock is off by */
    const void *drifts;             /* the fault by which it drifts, or NULL */
    uint64_t slow_ns;               /* its answers take up to this much longer */
    struct connection *connections; /* all there ever were, the latest first */
    void *data;
};

static inline bool server_runs(const struct server *server)
{
    return !server->down && !server->stopped;
}

/* What may be wrong between one process and one server. */
struct path {
    bool blocked[2];   /* by direction */
    uint64_t delay_ns; /* more than usual */
};

struct connection {
    struct connection *next;
    struct server *server;
    struct process *process;
    struct stream *stream; /* NULL: the client has closed it */
    bool accepted, ended;  /* ended: the server has closed it, or has learned of its end */
    bool blocked;          /* what its client sends on it does not arrive; other connections work */
    struct buffer received;
    struct flight *first[2], **last[2];
    uint64_t number;       /* from 1, in the order in which they were begun */
    uint64_t latest_ns[2]; /* nothing overtakes what was sent before */
    bool pumping[2];
    void *data;
};

void net_begin(void);
void net_add(struct server *server);
size_t net_count(void);
struct server *net_server(size_t number);
struct path *net_path(const struct process *process, const struct server *server);
void net_unblock(struct path *path);

/* Follows every piece of bytes, by its number. It arrives, is lost, or is still under way at the
 * end of the run. */
struct net_observer {
    void (*sent)(uint64_t piece, const struct connection *connection, enum direction way,
                 const void *bytes, size_t n);
    void (*held_up)(uint64_t piece); /* it should have arrived by now */
    void (*arrived)(uint64_t piece); /* what follows from it comes after this */
    void (*lost)(uint64_t piece);
};

/* Until the end of the run; NULL: no longer. */
void net_observe(const struct net_observer *observer);

/* ---- one piece, by its number; nothing happens if it is no longer under way ---- */

/* NULL: it is not. */
const struct connection *net_connection_of(uint64_t piece);
/* It and all that follows it in its direction wait. */
void net_hold(uint64_t piece);
void net_let_go(uint64_t piece);
void net_delay(uint64_t piece, uint64_t ns);
/* As TCP loses it: with its connection. */
void net_lose(uint64_t piece);

/* ---- for servers ---- */

void connection_reply(struct connection *connection, const void *bytes, size_t n);
/* The server closes it; what it has sent before arrives. */
void connection_end(struct connection *connection);
/* Frees what it has of its connections: at the end of a run. */
void server_dispose(struct server *server);
/* Work that has arrived meanwhile is done. */
void server_continue(struct server *server);

/* ---- faults ---- */

/* after: the server executes what was sent, and its answers are lost; else what was sent is lost.
 */
void connection_cut(struct connection *connection, bool after);
/* Its client sees the end now, and the server late_ns later, behind what was sent: as if something
 * between them had kept it. Answers are lost. */
void connection_cut_late(struct connection *connection, uint64_t late_ns);
/* All of a server's, as when it crashes; of a process, as when it is killed. */
void server_cut(struct server *server);
void process_cut(struct process *process, bool silently);

#endif
