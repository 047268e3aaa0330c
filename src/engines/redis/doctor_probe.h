/* What a Redis server reports about itself, for the doctor: how safe locks are on it.
 *
 * Probes the one server of redis, and each node of redlock. Nothing is changed on it. A denied
 * question is reported, and is not an error. */
#ifndef STILE_REDIS_DOCTOR_PROBE_H
#define STILE_REDIS_DOCTOR_PROBE_H

#include "base/url.h"
#include "engines/engine.h"
#include "engines/redis/connection.h"

#define PROBE_WORD 64

/* An answer of one word, or why there is none. */
struct probe_word {
    bool known;
    char text[PROBE_WORD];
    struct stile_error error;
};

/* What a server is relied on for. */
enum probe_role {
    PROBE_SERVER,      /* all locks */
    PROBE_FENCED_NODE, /* a vote; after a loss of data it detects that and does not vote */
    PROBE_PLAIN_NODE,  /* a vote */
};

struct probe {
    /* Set by the caller; borrowed. */
    enum probe_role role;
    unsigned wait_replicas; /* as in the URL */
    struct loop *loop;
    struct conn *conn;
    const char *where, *cli; /* as redis_probe_where() and redis_probe_cli() write them */
    const char *prefix;
    bool shares_counter; /* its locks count their tokens at stile:...; of a Cluster, each in its
                            slot */
    void (*done)(
        struct probe *probe); /* once, in any case, perhaps from inside redis_probe_start() */
    void *owner;

    /* Results. */
    unsigned pending;
    char *info; /* NULL: info_error */
    struct stile_error info_error;
    struct probe_word appendfsync, save, no_fsync_on_rewrite; /* CONFIG GET */
    struct probe_word scripts, own_keys, messages;            /* allowed, and working? */
    struct probe_word listening, waits;
    struct conn *listens;
    struct timer patience; /* for a subscription that is not confirmed */
    char denied[256];      /* commands that scripts may not call, separated by spaces */
    bool active_replica;   /* KeyDB: every one of several servers takes writes */
    long long sentinels;   /* that watch it */
    bool cluster_is_down;  /* as it reports */
    long long lease_ms;    /* the longest remaining lease of our locks there */
    struct probe_word clock;
    bool timed;
    uint64_t sent_ns;
    long long ahead_ms; /* of our clock, by clock.known */
};

/* "host:port" or the socket. The caller frees it; NULL: no memory. */
char *redis_probe_where(const struct conn_options *options);
/* "redis-cli -h host -p port" and the flags. */
char *redis_probe_cli(const struct conn_options *options, const char *flags);
/* What redis-cli needs for TLS and a user, without secrets. */
char *redis_probe_flags(const struct conn_options *options, const struct url *url);

/* done() may also come when the server is gone: then info_error says so. */
void redis_probe_start(struct probe *probe);
void redis_probe_free(struct probe *probe); /* the results; done() is no longer called */

/* A field of INFO: its length without the end of its line, 0 if it is not there. */
size_t redis_probe_field(const char **value, const struct probe *probe, const char *name);
bool redis_probe_is(const struct probe *probe, const char *name, const char *value);
long long redis_probe_number(const struct probe *probe, const char *name); /* -1: not there */
long long redis_probe_now_ms(const struct probe *probe); /* on its clock, by clock.known */
bool redis_probe_is_durable(const struct probe *probe);

/* ---- doctor_rules.c ---- */

#define RULE_TEXT 512

struct rule {
    enum stile_severity severity;
    const char *id, *why, *cure;
    const char *commands[4]; /* for redis-cli, NULL at their end */
};

/* Reports a finding about this server; format says what is wrong. */
void redis_rules_report(struct query *query, const struct probe *probe, const struct rule *rule,
                        const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Reports all findings of one probe. */
void redis_rules_judge(struct query *query, const struct probe *probe);

#endif
