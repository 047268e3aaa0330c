/* One connection to a Redis server, kept up: RESP2 over a stream, answers in the order of requests.
 *
 * A connection is made for one server and comes up by itself: it connects, authenticates, selects
 * its database, and says up(). When it breaks it says down(why) and tries again, after a random
 * time up to 20 ms × 2ⁿ, 2 s at most; each failed attempt is a down(), too. One that is to carry
 * messages subscribes and sends nothing else.
 *
 * Every request that redis_conn_send() or redis_conn_eval() took is answered through its callback
 * exactly once, from the loop and never from inside the call:
 *
 *   - reply, err NULL: the server's answer;
 *   - reply and err: the server's error; err is its meaning, reply its own words, and
 * redis_error_of() of fault.h tells MOVED from READONLY;
 *   - err alone: UNCERTAIN if it was sent, and the connection broke or nothing came back in time;
 * the server may have executed it, or still do so. Any other status, mostly UNREACHABLE: it was
 * never executed.
 *
 * Requests wait while a connection is being made, and fail at once between two attempts: who asks
 * for a lock on a server that is down hears of it now.
 *
 * A request that is overdue is answered with UNCERTAIN, but its connection stays for a while, so
 * that a withdrawal sent after it can't overtake it: bytes of a closed connection may be read by a
 * stopped server after those of a newer one. Its answer is dropped when it comes. With no word from
 * the server for four times as long the connection is given up, and earlier where a lease depends
 * on it: after a quarter of the shortest one. Of a lease that is renewed when a third of it is over
 * there is then time left for two more connections; so connecting takes no longer than that,
 * either, and the pause before the next attempt no longer than an eighth.
 *
 * A server that answers READONLY or MASTERDOWN is a replica: behind a virtual address, a proxy or a
 * name, the primary is elsewhere by now, while the old connection would last for ever. What was
 * sent is waited for, then the name is resolved again and connected to at once; new requests wait
 * for that. Until a primary has been found every connection is asked for its role first.
 *
 * What a server can make us allocate is bounded, see resp.h. */
#ifndef STILE_REDIS_CONNECTION_H
#define STILE_REDIS_CONNECTION_H

#include <hiredis/hiredis.h>

#include "engines/redis/lua.h"
#include "io/stream.h"

struct conn;
struct request;

/* ---- leases ---- */

#define LEASES_KINDS 64

/* The leases that depend on a connection. The shortest limits how long the connection may be
 * silent: it must be given up early enough for a second and a third one to renew in time.
 *
 * All zero at the start. Counted by powers of two, so that adding or removing one looks at no
 * other. */
struct leases {
    uint32_t n[LEASES_KINDS];
};

/* Returns the kind that redis_leases_remove() needs. */
unsigned redis_leases_add(struct leases *leases, uint64_t lease_ns);
void redis_leases_remove(struct leases *leases, unsigned kind);

/* At most the shortest lease and more than half of it; UINT64_MAX: there is none. */
uint64_t redis_leases_shortest(const struct leases *leases);

/* ---- connections ---- */

/* Copied by redis_conn_new(), but for target.tls, which must outlive the connection. */
struct conn_options {
    struct stream_target target; /* timeout_ns: for AUTH and SELECT once more */
    const char *user, *password; /* NULL: none; a user without password is MISUSE */
    unsigned db;
    bool primary;                /* what turns out to be a replica is not connected to */
    uint64_t answer_ns;          /* how long a request may go unanswered; 0: 3 s */
    const struct leases *leases; /* the leases that depend on it; borrowed; NULL: none */
    size_t window; /* so many may be sent and unanswered; the rest wait here, in order, and
                    * their time begins when they are sent; 0: any number */
};

struct conn_events {
    void (*up)(struct conn *conn);
    void (*down)(struct conn *conn, const struct stile_error *why);
    /* May be NULL. The subscription is in effect, after each up() anew: what was published while
     * it was not is gone, so look for yourself what has changed. */
    void (*subscribed)(struct conn *conn, const char *channel, size_t channel_len);
    void (*message)(struct conn *conn, const char *channel, size_t channel_len, const char *bytes,
                    size_t n);
    /* May be NULL. The server is a replica, and this connection is about to leave it: another one
     * to the same place should, too. */
    void (*replica)(struct conn *conn, const struct stile_error *why);
    /* May be NULL. Something went unanswered for its time; the connection is still there. */
    void (*late)(struct conn *conn);
    /* May be NULL. Sees each answer that somebody waits for before it is given. True: it has taken
     * the request over, and ends it with redis_conn_give() or redis_conn_answer(). */
    bool (*answers)(struct conn *conn, struct request *request, const redisReply *reply);
};

/* The reply is freed after the call. */
typedef void conn_fn(void *data, const redisReply *reply, const struct stile_error *err);

struct conn_arg {
    const void *bytes;
    size_t len;
};

#define CONN_TEXT(text) ((struct conn_arg){(text), strlen(text)})

/* Starts to connect; how that ends is told by up() or down(). Fails only for lack of memory or for
 * options that make no sense. */
enum stile_status redis_conn_new(struct conn **conn, struct loop *loop,
                                 const struct conn_options *options,
                                 const struct conn_events *events, void *owner,
                                 struct stile_error *err);
void *redis_conn_owner(const struct conn *conn);
bool redis_conn_is_up(const struct conn *conn);
bool redis_conn_is_idle(const struct conn *conn); /* nobody waits for an answer */
const struct conn_options *
redis_conn_options(const struct conn *conn); /* for another one like it */

/* OK: fn will be called. NOMEM, or REFUSED if CONN_PENDING_MAX requests or 16 MiB are under way
 * already: it won't. */
#define CONN_PENDING_MAX 65536
enum stile_status redis_conn_send(struct conn *conn, const struct conn_arg *args, size_t n,
                                  conn_fn *fn, void *data, struct stile_error *err);

/* args: the keys first. A script's source is sent once a connection, its SHA1 afterwards. If the
 * server has forgotten it (SCRIPT FLUSH), source and all are sent again, and scripts that were on
 * their way behind it are executed behind it. */
enum stile_status redis_conn_eval(struct conn *conn, const struct lua *lua,
                                  const struct conn_arg *args, size_t n_keys, size_t n, conn_fn *fn,
                                  void *data, struct stile_error *err);

/* No callback comes any more for requests with this data. They are not taken back. */
void redis_conn_forget(struct conn *conn, const void *data);

/* The same, but what has not been sent yet is taken back: it will never be executed. True: that was
 * so. */
bool redis_conn_cancel(struct conn *conn, const void *data);
/* Some requests have not been sent yet, or are more than the server reads at once: it reads no more
 * once it can't answer, and so would never see the rest if the connection was closed now. */
bool redis_conn_is_behind(const struct conn *conn);

/* Kept over reconnections. OK or NOMEM. After the first one redis_conn_send() is MISUSE. */
enum stile_status redis_conn_subscribe(struct conn *conn, const char *channel, size_t len,
                                       struct stile_error *err);
void redis_conn_unsubscribe(struct conn *conn, const char *channel, size_t len);

/* What was sent in this turn of the loop leaves together before the loop sleeps; this sends it now.
 */
void redis_conn_flush(struct conn *conn);

/* A request that was taken over: asked here, with ASKING before it if so, or answered. */
void redis_conn_give(struct conn *conn, struct request *request, bool asking);
void redis_conn_answer(struct request *request, const struct stile_error *err);

/* Connects there from now on, at once; the present connection ends with down(why). For a primary
 * that has moved. why NULL: nothing ends, but the next attempt goes there. */
enum stile_status redis_conn_move(struct conn *conn, const char *host, uint16_t port,
                                  const struct stile_error *why, struct stile_error *err);

/* Resolves and connects again, once what was sent is answered; down(why) comes then. For a server
 * that is no longer the primary. Does nothing more to a connection that is not up than to have the
 * next one asked for its role. */
void redis_conn_reconnect(struct conn *conn, const struct stile_error *why);

void redis_conn_free(struct conn *conn); /* no callback or event comes any more; safe inside one */
void redis_conn_forked(struct conn *conn); /* in a child: closes the fd and nothing else */

#endif
