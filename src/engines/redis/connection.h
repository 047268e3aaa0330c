/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* One connection to a Redis server, kept up: RESP2 over a stream, replies in the order of requests.
 *
 * A connection is made for one server and comes up by itself: it connects, authenticates, selects
 * its database, and calls up(). When it breaks it calls down(why) and connects again, as kit/link.h
 * says; each failed attempt calls down(), too. A connection for messages subscribes and sends
 * nothing else.
 *
 * Every request that redis_conn_send() or redis_conn_eval() took is answered through its callback
 * exactly once, from the loop and never from inside the call:
 *
 *   - reply, err NULL: the server's answer;
 *   - reply and err: the server's error; err says what it means, reply has the original text, and
 *     redis_error_of() of errors.h distinguishes MOVED from READONLY;
 *   - err alone: UNCERTAIN if it was sent and the connection broke or no reply came in time; the
 *     server may have executed it, or may do so later. Any other status, mostly UNREACHABLE: it was
 *     never executed.
 *
 * kit/link.h has the rest: which requests wait and which fail at once, what happens to those that
 * are overdue, and how long a silent server is given.
 *
 * A server that answers READONLY or MASTERDOWN is a replica: behind a virtual address, a proxy or a
 * name, the primary is elsewhere by now, while the old connection would last for ever. The
 * connection waits for the replies to what it has sent, resolves the name again and connects at
 * once; new requests wait for that. Until a primary is found, every new connection asks for the
 * role first.
 *
 * The memory that a server can make us allocate is bounded, see resp.h. */
#ifndef STILE_REDIS_CONNECTION_H
#define STILE_REDIS_CONNECTION_H

#include "engines/redis/resp.h"

struct conn;

/* Copied by redis_conn_new(), but for target.tls, which must outlive the connection. */
struct conn_options {
    struct stream_target target; /* timeout_ns: for AUTH and SELECT once more */
    const char *user, *password; /* NULL: none; a user without password is MISUSE */
    unsigned db;
    bool primary;                     /* a server that turns out to be a replica is left */
    uint64_t answer_ns;               /* how long a request may go unanswered; 0: 3 s */
    const struct link_leases *leases; /* that depend on it; borrowed; NULL: none */
    size_t window; /* how many may be sent and unanswered; the rest wait here in order, and
                    * their time begins when they are sent; 0: any number */
};

struct conn_events {
    void (*up)(struct conn *conn);
    void (*down)(struct conn *conn, const struct stile_error *why);
    /* May be NULL. The subscription is in effect, after each up() anew. Messages
     * published while it was not are lost: check what has changed. */
    void (*subscribed)(struct conn *conn, const char *channel, size_t channel_len);
    void (*message)(struct conn *conn, const char *channel, size_t channel_len, const char *bytes,
                    size_t n);
    /* May be NULL. The server is a replica, and this connection is about to leave it: others to
     * the same address should, too. */
    void (*replica)(struct conn *conn, const struct stile_error *why);
    /* May be NULL. A request was not answered in time; the connection is still there. */
    void (*late)(struct conn *conn);
    /* May be NULL. Called with each reply before its callback, unless the request was forgotten.
     * True: the callee has taken the request over, and ends it with redis_conn_give() or
     * redis_conn_answer(). */
    bool (*answers)(struct conn *conn, struct request *request, const redisReply *reply);
};

/* Starts to connect, which ends in up() or down(). Fails only for lack of memory or for
 * options that make no sense. */
enum stile_status redis_conn_new(struct conn **conn, struct loop *loop,
                                 const struct conn_options *options,
                                 const struct conn_events *events, void *owner,
                                 struct stile_error *err);
void *redis_conn_owner(const struct conn *conn);
bool redis_conn_is_up(const struct conn *conn);
bool redis_conn_is_idle(const struct conn *conn); /* no request is unanswered */
const struct conn_options *
redis_conn_options(const struct conn *conn); /* for another one like it */

/* OK: fn will be called. NOMEM, or REFUSED if CONN_PENDING_MAX requests or 16 MiB are under way
 * already: it won't. */
#define CONN_PENDING_MAX 65536
enum stile_status redis_conn_send(struct conn *conn, const struct conn_arg *args, size_t n,
                                  conn_fn *fn, void *data, struct stile_error *err);

/* args: the keys first. A script's source is sent once a connection, its SHA1 afterwards. If the
 * server has forgotten it (SCRIPT FLUSH), source and all are sent again, and scripts that were sent
 * after it are executed after it. */
enum stile_status redis_conn_eval(struct conn *conn, const struct lua *lua,
                                  const struct conn_arg *args, size_t n_keys, size_t n, conn_fn *fn,
                                  void *data, struct stile_error *err);

/* Requests with this data get no callback. They are not taken back. */
void redis_conn_forget(struct conn *conn, const void *data);

/* The same, but requests that have not been sent yet are removed and never executed. True: there
 * was one. */
bool redis_conn_cancel(struct conn *conn, const void *data);
/* Some requests have not been sent yet, or are more than the server reads at once: a server that
 * can't answer stops reading, and would never see the rest if the connection were closed now. */
bool redis_conn_is_behind(const struct conn *conn);

/* Restored after reconnections. OK or NOMEM. After the first one redis_conn_send() is MISUSE. */
enum stile_status redis_conn_subscribe(struct conn *conn, const char *channel, size_t len,
                                       struct stile_error *err);
void redis_conn_unsubscribe(struct conn *conn, const char *channel, size_t len);

/* What was sent in this turn of the loop leaves together before the loop sleeps; this sends it now.
 */
void redis_conn_flush(struct conn *conn);
/* If it is down: tries again now, however often that has failed. */
void redis_conn_hurry(struct conn *conn);

/* For a request that was taken over: sends it here, after ASKING if so, or answers it. */
void redis_conn_give(struct conn *conn, struct request *request, bool asking);
void redis_conn_answer(struct request *request, const struct stile_error *err);

/* Connects to that address from now on, at once; the present connection ends with down(why). For a
 * primary that has moved. why NULL: only the next attempt goes there. */
enum stile_status redis_conn_move(struct conn *conn, const char *host, uint16_t port,
                                  const struct stile_error *why, struct stile_error *err);

/* Resolves and connects again, once what was sent is answered; down(why) comes then. For a server
 * that is no longer the primary. If the connection is not up, only the next one asks for the role.
 */
void redis_conn_reconnect(struct conn *conn, const struct stile_error *why);

void redis_conn_free(struct conn *conn);   /* no callback or event follows; safe inside one */
void redis_conn_forked(struct conn *conn); /* in a child: closes the fd and nothing else */

/* ---- inside of it, for connection.c and its tests ---- */

#define CONN_KNOWN_MAX 24

struct conn_channel {
    struct conn_channel *next;
    size_t len;
    char name[];
};

struct conn {
    struct link link;
    const struct conn_events *events;
    void *owner;
    struct conn_options options; /* owns its strings */
    char *host, *path, *user, *password;

    struct resp *resp;                       /* while the stream is open */
    const struct lua *known[CONN_KNOWN_MAX]; /* scripts whose source the server has seen */
    unsigned n_known;
    bool pushes; /* for subscriptions only */
    struct conn_channel *channels;

    bool moved;      /* connect to another address, at once */
    bool suspect;    /* a replica answered: the next connection asks for the role first */
    bool role_asked; /* on this connection */
};

#endif
