/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What a Redis server reports about itself, for the doctor: how safe locks are on it.
 *
 * Probes the one server of redis, and each node of redlock. Nothing is changed on it. A denied
 * question is reported, and is not an error. */
#ifndef STILE_REDIS_DOCTOR_PROBE_H
#define STILE_REDIS_DOCTOR_PROBE_H

#include "base/url.h"
#include "engines/kit/doctor.h"
#include "engines/redis/connection.h"

#define PROBE_WORD        64
#define PROBE_DENIED_SIZE 256
#define PROBE_QUESTIONS   20
#define PROBE_ROUNDS      2

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

struct probe_question;
typedef void probe_fn(const struct probe_question *question, const redisReply *reply,
                      const struct stile_error *err);

struct probe {
    /* Set by the caller; borrowed. */
    struct doctor_visit *visit;
    enum probe_role role;
    unsigned wait_replicas; /* as in the URL */
    struct conn *conn;
    const char *where, *cli; /* as redis_probe_where() and redis_probe_cli() write them */
    const char *prefix;
    bool shares_counter; /* its locks count their tokens at stile:...; of a Cluster, each in its
                            slot */

    /* Questions under way. */
    struct probe_question {
        struct probe *probe;
        probe_fn *fn;
        struct probe_word *word;
    } questions[PROBE_QUESTIONS];
    size_t n_questions;
    struct conn *listens;
    uint64_t sent_ns; /* the question for its time */

    /* Results. */
    char *info; /* NULL: info_error */
    struct stile_error info_error;
    struct probe_word appendfsync, save, no_fsync_on_rewrite; /* CONFIG GET */
    struct probe_word
        active_replica; /* the same; KeyDB: every one of several servers takes writes */
    struct probe_word scripts, own_keys, messages; /* allowed, and working? */
    struct probe_word listening, waits, clock;
    /* Commands that scripts may not call, separated by spaces: those of locks, and of cells. */
    char denied[PROBE_DENIED_SIZE], denied_to_cells[PROBE_DENIED_SIZE];
    long long sentinels;  /* that watch it */
    bool cluster_is_down; /* as it reports */
    long long lease_ms;   /* the longest remaining lease of our locks there */
    long long ahead_ms;   /* of our clock, by clock.known */
};

/* "host:port" or the socket. The caller frees it; NULL: no memory. */
char *redis_probe_where(const struct conn_options *options);
/* "redis-cli -h host -p port" and the flags. */
char *redis_probe_cli(const struct conn_options *options, const char *flags);
/* What redis-cli needs for TLS and a user, without secrets. */
char *redis_probe_flags(const struct conn_options *options, const struct url *url);

/* Asks the questions of a round of its visit; of PROBE_ROUNDS. */
void redis_probe_ask(struct probe *probe, unsigned round);
void redis_probe_free(struct probe *probe); /* questions, and results */
void redis_probe_forked(struct probe *probe);

bool redis_probe_is_up(const struct probe *probe); /* else info_error says why not */
/* A field of INFO: its length without the end of its line, 0 if it is not there. */
size_t redis_probe_field(const char **value, const struct probe *probe, const char *name);
bool redis_probe_is(const struct probe *probe, const char *name, const char *value);
long long redis_probe_number(const struct probe *probe, const char *name); /* -1: not there */
long long redis_probe_now_ms(const struct probe *probe); /* on its clock, by clock.known */
bool redis_probe_is_durable(const struct probe *probe);

/* ---- doctor_rules.c ---- */

/* Reports all findings of one probe. */
void redis_rules_judge(const struct probe *probe);

/* Reports the finding of a rule whose commands, one a line, are for redis-cli on that server. */
void redis_rules_report(void *probe, const struct stile_finding *rule);

#endif
