/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* stile torture: worker processes use locks on the user's own servers and are stopped, killed and
 * cut off, and what they did and were told is checked.
 *
 *     torture ──fork──► worker ... ──► its port of the proxy, which is in torture ──► servers
 *        │ ◄── a pipe from each: struct message, one write each
 *        │ ──► a pipe to each, which is closed when it shall end
 *        └──fork──► errands: begin, break a lock, read the counters and clean up
 *
 * docs/internals.md, section 7, has the rules by which times are taken. This process opens no
 * client of its own: it must be able to fork, and nothing that happens to a server may stop it.
 */
#ifndef STILE_CLI_TORTURE_H
#define STILE_CLI_TORTURE_H

#include <limits.h>
#include <sys/types.h>

#include "cli.h"
#include "sim/check.h"
#include "torture_poller.h"
#include "torture_proxy.h"

#define CLIENTS_MAX  64
#define NAMES_MAX    32
#define TTL_MS       2000
#define KEY_MAX      64
#define REASON_MAX   256
#define TAKEOVER_MAX 1024  /* times that are kept of one kind of injection */
#define WAIT_MS      12000 /* of a worker for a lock: longer than a free name may stay free */

/* The same for all processes. */
struct plan {
    const char *url;
    char prefix[40];  /* of every name, cell and guard */
    uint32_t n_names; /* locks PREFIX:lock:I, counters PREFIX:guarded:I and PREFIX:plain:I */
    uint32_t n_clients;
    char dir[PATH_MAX]; /* of the counters; "": they are cells */
    bool keeps;         /* cells can have an end */
    bool guarded;       /* the engine grants tokens: one of the counters has a guard */
};

/* ---- torture_store.c: the counters ---- */

enum counter_kind { GUARDED, PLAIN, COUNTERS };

/* How often a counter was changed, and the number of its last change. */
struct counter {
    uint64_t count, value;
};

void counter_key(char key[KEY_MAX], const struct plan *plan, enum counter_kind kind, uint32_t name);
/* client is not used where counters are files. */
enum stile_status counter_begin(const struct plan *plan, struct stile_client *client,
                                const char *key, struct stile_error *err);
enum stile_status counter_raise(const struct plan *plan, struct stile_client *client,
                                const char *key, uint64_t token);
enum stile_status counter_read(struct counter *counter, const struct plan *plan,
                               struct stile_client *client, const char *key,
                               struct stile_error *err);
/* token 0: without the guard. */
enum stile_status counter_write(const struct counter *counter, const struct plan *plan,
                                struct stile_client *client, const char *key, uint64_t token);
/* Removes it, its guard included where the engine can. */
enum stile_status counter_end(const struct plan *plan, struct stile_client *client, const char *key,
                              struct stile_error *err);

/* ---- torture_worker.c ---- */

enum message_kind {
    MESSAGE_OPENED,   /* ready, with caps: lease, outcome (has cells), token (has tokens), keeps */
    MESSAGE_FAILED,   /* status, text */
    MESSAGE_ASKED,    /* ns: before the request */
    MESSAGE_GRANTED,  /* ns: after the grant was known; token, deadline_ns, ttl_ms */
    MESSAGE_RENEWED,  /* deadline_ns */
    MESSAGE_PAUSED,   /* ns: since when it had no time */
    MESSAGE_READ,     /* it has read both counters, and writes soon */
    MESSAGE_WRITES,   /* ns: before the request; counter, token, seen, value */
    MESSAGE_WROTE,    /* outcome, status */
    MESSAGE_RELEASED, /* ns: before the request */
    MESSAGE_ENDED,    /* the release was answered: status */
    MESSAGE_LOST,
    MESSAGE_UNTOLD,   /* the lock is gone, and that was not reported */
    MESSAGE_ANSWERED, /* status */
    MESSAGE_COUNTER,  /* errand: what a counter contained at the end */
    MESSAGE_DONE,     /* errand: status, text */
};

/* At most PIPE_BUF bytes: it is written as a whole, or not at all if its writer is killed. */
struct message {
    enum message_kind kind;
    uint32_t claim; /* of this process, from 1 on */
    uint64_t ns;
    uint32_t name;
    enum counter_kind counter;
    enum write_outcome outcome;
    enum stile_status status;
    enum stile_lease lease;
    bool has_cells, has_tokens, keeps;
    uint64_t token, deadline_ns, seen, value, count;
    int64_t ttl_ms;
    char text[REASON_MAX];
};

void message_send(int fd, const struct message *message);
/* The life of a worker. out: its messages; control: it ends when this is closed. number: of this
 * process among all that ever were; it makes its values unique. */
int worker_run(const struct plan *plan, const char *url, uint32_t number, int out, int control);

/* Errands, each in a process of its own. */
int errand_begin(const struct plan *plan, const char *url, int out);
int errand_open(const struct plan *plan, const char *url, int out);
int errand_break(const struct plan *plan, const char *url, int out, uint32_t name, uint64_t token);
int errand_end(const struct plan *plan, const char *url, int out);

/* ---- torture_record.c: from messages to a history ---- */

#define INJECTIONS(X)                                                                              \
    X(STOP, "stop")   /* a holder is stopped between its read and its write, past its TTL */       \
    X(KILL, "kill")   /* a holder is killed with -9, and another worker starts */                  \
    X(CUT, "cut")     /* nothing passes between a worker and the servers, past its TTL */          \
    X(RESET, "reset") /* a worker's connections are reset */                                       \
    X(SLOW, "slow")   /* what passes waits, time and again */                                      \
    X(BREAK, "break") /* a holder is stopped, and its lock broken as by stile break */             \
    X(ALL, "all")     /* all workers are stopped at once */                                        \
    X(FAULT, "fault") /* the user's script breaks a server, and heals it */

enum injection_kind {
#define INJECTION_KIND(name, text) INJECT_##name,
    INJECTIONS(INJECTION_KIND)
#undef INJECTION_KIND
        INJECTION_KINDS
};

const char *injection_text(enum injection_kind kind);

/* What was done to a worker, or to all of them. */
struct injection {
    enum injection_kind kind;
    uint32_t slot; /* of the worker; NO_NUMBER: all */
    uint32_t name; /* of the lock that it held then; NO_NUMBER: none */
    uint64_t from_ns, until_ns;
};

/* What is known of a worker from its messages. */
struct worker_seen {
    uint32_t client; /* its number in the history */
    uint32_t claim;  /* in the history; NO_NUMBER: none */
    uint32_t own_claim;
    uint32_t name;
    bool holds, in_gap; /* in_gap: between its reads and its writes */
    uint64_t token, deadline_ns;
    uint64_t renewed_ns; /* when it was last seen to hold its lock */
    uint64_t heard_ns;   /* when it was last seen to be alive */
    size_t write;        /* the event of the write that is under way; SIZE_MAX: none */
    uint64_t died_ns;    /* 0: it was not killed */
    uint64_t resumed_ns; /* when it was last continued */
    uint64_t broken_from_ns, broken_until_ns; /* its connection may take its locks with it */
};

struct recording {
    struct event *events;
    size_t n, room;
    struct injection *injections;
    size_t n_injections, injection_room;
    uint32_t slots[1 << 16]; /* of each client in the history */
    uint32_t n_clients, n_claims, n_names;
    struct counter ends[COUNTERS][NAMES_MAX];
    size_t losses, late_losses, failures;
    size_t crashes, killed_by_others; /* workers that this command has not ended */
    int crash_status;                 /* of the last crash, as from waitpid() */
    size_t script_failures, untold;
    size_t grants;      /* so far, for the progress line */
    int64_t ttl_ms;     /* the longest that was granted */
    bool by_connection; /* the engine's locks end with a connection */
    uint64_t began_ns, ended_ns;
    bool out_of_memory;
};

/* The first message of a new worker in a slot will be about this client. False: there were too
 * many.
 */
bool recording_enrol(struct recording *recording, struct worker_seen *seen, uint32_t slot);
/* It could not be started. */
void recording_dismiss(struct recording *recording);
void recording_take(struct recording *recording, struct worker_seen *seen,
                    const struct message *message);
void recording_add(struct recording *recording, const struct event *event);
/* Before it is killed. */
void recording_died(struct recording *recording, struct worker_seen *seen);
/* It has ended, although it was neither killed by this command nor told to end. Nobody saw when. */
void recording_crashed(struct recording *recording, struct worker_seen *seen, int status);
/* Its waits are owed nothing. */
void recording_excused(struct recording *recording, const struct worker_seen *seen);
/* Before its lock is broken. */
void recording_broken(struct recording *recording, struct worker_seen *seen);
/* From now on its connections may end, and its locks with them, where locks live so. until_ns:
 * when that is over; UINT64_MAX: not known yet. */
void recording_endanger(struct recording *recording, struct worker_seen *seen, uint64_t until_ns);
/* A fault of the network or a server begins, or ends. */
void recording_fault(struct recording *recording, bool healed);
/* Its number, for the end of it. */
size_t recording_inject(struct recording *recording, const struct injection *injection);
void recording_free(struct recording *recording);

/* ---- torture_judge.c: from a recording to findings ---- */

struct tally {
    size_t accepted, refused, unknown, lost;
};

struct takeovers {
    size_t n;
    uint64_t ns[TAKEOVER_MAX]; /* in order, once judged */
};

/* From a release until a waiter was granted the lock. */
struct handovers {
    size_t n;
    uint64_t median_ns, p99_ns;
};

struct complaint {
    const char *rule; /* NULL: none */
    char sentence[320];
};

struct findings {
    struct history history;
    struct verdict verdict;
    struct complaint complaint; /* about what the checker does not look at */
    struct handovers handovers;
    struct tally tallies[COUNTERS];
    size_t injected[INJECTION_KINDS];
    struct takeovers takeovers[INJECTION_KINDS];
};

/* False: there is no memory for it. */
bool judge(struct findings *findings, struct recording *recording, const struct plan *plan);
void findings_free(struct findings *findings);

/* ---- torture_report.c ---- */

enum conclusion { HOLDS, TOOTHLESS, VIOLATED };

enum conclusion report_conclusion(const struct findings *findings);
void report_print(const struct findings *findings, const struct recording *recording,
                  const struct plan *plan);
void report_json(const struct findings *findings, const struct recording *recording,
                 const struct plan *plan);

/* ---- torture_timeline.c ---- */

/* As HTML if the path ends so, else as SVG. False after a message. */
bool timeline_write(const char *path, const struct findings *findings,
                    const struct recording *recording, const struct plan *plan);

#endif
