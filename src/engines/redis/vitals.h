/* What a Redis server tells of itself, for the doctor: how safe locks are on it.
 *
 * Asked of the one server of redis, and of each node of redlock. Nothing is changed on it. What may
 * not be asked is said, and not taken for an error. */
#ifndef STILE_REDIS_VITALS_H
#define STILE_REDIS_VITALS_H

#include "core/url.h"
#include "engines/engine.h"
#include "engines/redis/conn.h"

#define VITALS_WORD 64

/* An answer of one word, or why there is none. */
struct vital {
    bool known;
    char text[VITALS_WORD];
    struct stile_error error;
};

struct vitals {
    /* Set by the caller; borrowed. */
    struct loop *loop;
    struct conn *conn;
    const char *where, *cli; /* as vitals_where() and vitals_cli() write them */
    const char *prefix;
    void (*done)(struct vitals *vitals); /* once, in any case, perhaps from inside vitals_ask() */
    void *owner;

    /* What came back. */
    unsigned pending;
    char *info; /* NULL: info_error */
    struct stile_error info_error;
    struct vital appendfsync, save, no_fsync_on_rewrite; /* CONFIG GET */
    struct vital scripts, own_keys, messages;            /* may we, and does it work? */
    long long sentinels;                                 /* that watch it */
    long long lease_ms;                                  /* the longest of our locks there now */
    struct vital clock;
    bool timed;
    uint64_t sent_ns;
    long long ahead_ms; /* of our clock, by clock.known */
};

/* "host:port" or the socket. Yours to free; NULL: no memory. */
char *vitals_where(const struct conn_options *options);
/* "redis-cli -h host -p port", with what it needs for TLS, without secrets. */
char *vitals_cli(const struct conn_options *options, const struct url *url);

/* done() may also come when the server is gone: then info_error says so. */
void vitals_ask(struct vitals *vitals);
void vitals_free(struct vitals *vitals); /* what came back; no done() comes any more */

/* A field of INFO: its length without the end of its line, 0 if it is not there. */
size_t vitals_field(const char **value, const struct vitals *vitals, const char *name);
bool vitals_is(const struct vitals *vitals, const char *name, const char *value);
long long vitals_number(const struct vitals *vitals, const char *name); /* -1: not there */
bool vitals_is_durable(const struct vitals *vitals);

/* ---- verdict.c ---- */

#define VERDICT_TEXT 512

struct verdict {
    enum stile_severity severity;
    const char *id, *why, *cure;
    const char *commands[4]; /* for redis-cli, NULL at their end */
};

/* Tells a finding about this server: format is what is the matter. */
void verdict_tell(struct query *query, const struct vitals *vitals, const struct verdict *verdict,
                  const char *format, ...) __attribute__((format(printf, 4, 5)));

/* rights.c: what its ACL forbids. */
void rights_of(struct query *query, const struct vitals *vitals);

/* Everything that one server's vitals say. wait_replicas: as in the URL, or -1: it has none. */
void verdict_of(struct query *query, const struct vitals *vitals, int wait_replicas);

#endif
