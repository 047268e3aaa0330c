/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* An engine that does what a test scripts; scheme `test`.
 *
 * A struct script is a server (script_model.h) and the wire to it. Each request is answered by a
 * rule: as the model says, after so long; or busy, failed, unknown, lost, or never. Clients of one
 * script, each on a loop of its own, share the server. Every request is recorded.
 *
 * It also checks what core promises to an engine, and aborts with a sentence when core breaks it:
 * no claim twice, no renewal of what is not granted, no request after release, one claim per name
 * where the class is not `apart`. */
#ifndef STILE_SCRIPT_ENGINE_H
#define STILE_SCRIPT_ENGINE_H

#include <stdio.h>

#include "support/script_model.h"

enum script_call {
    SCRIPT_CLAIM,
    SCRIPT_RESUME,
    SCRIPT_RELEASE,
    SCRIPT_RENEW,
    SCRIPT_QUERY, /* list, show, watch, break, examine, adopt */
    SCRIPT_RECORD,
    SCRIPT_CALLS,
};

enum script_act {
    SCRIPT_MODEL,   /* what the model says */
    SCRIPT_NEVER,   /* no answer */
    SCRIPT_BUSY,    /* claim: with hint_ns */
    SCRIPT_FAIL,    /* with status; OK here means: released, without asking the model */
    SCRIPT_UNKNOWN, /* renew */
    SCRIPT_LOST,    /* renew */
};

struct script_rule {
    enum script_act act;
    bool inside;                /* answered from inside the request */
    bool reached;               /* not SCRIPT_MODEL: the model does it all the same */
    uint64_t there_ns, back_ns; /* how long request and answer travel; back: from sending, if the
                                 * model isn't asked */
    uint64_t hint_ns;
    uint64_t ttl_ns; /* what the server keeps it for; 0: what was asked for */
    enum stile_status status;
};

struct script_event {
    enum script_call call;
    const char *verb; /* "claim", "list", ... */
    uint64_t at_ns;
    char name[48];
    size_t n; /* renew: how many; 0: the session */
    bool wait, unused;
    uint64_t ttl_ns, hold_ns, delay_ns, token;
};

#define SCRIPT_NEXT_MAX 32

struct script {
    struct model model;
    bool polled; /* it has no queue: a claim that would wait is answered busy */
    struct script_rule always[SCRIPT_CALLS];
    struct script_rule next[SCRIPT_CALLS][SCRIPT_NEXT_MAX];
    unsigned n_next[SCRIPT_CALLS];
    struct script_rule (*decide)(struct script *script, enum script_call call); /* instead */
    void *data;                                                                 /* the test's */
    bool untraced;
    struct stile_finding findings[8]; /* what examine() reports; adopt() reports the first only */
    size_t n_findings;
    struct script_event *events;
    size_t n_events, cap_events;
    FILE *log; /* NULL: none; else requests and answers with their times */
    struct letter *letters;
    struct script_engine *engines;
    unsigned n_opened;
    uint64_t closed_ns;                    /* when the last one was closed, by its client's loop */
    void (*before)(struct script *script); /* the state may be elsewhere: fetch it */
    void (*after)(struct script *script);  /* and put it back */
    bool owned;                            /* made by open(), goes with its client */
};

/* clock NULL: the loop of its first client, which then has to be closed last. */
struct script *script_new(struct loop *clock);
void script_free(struct script *script);
void script_use(struct script *script); /* clients opened from now on reach this one */

void script_always(struct script *script, enum script_call call, struct script_rule rule);
void script_next(struct script *script, enum script_call call, struct script_rule rule);
#define SCRIPT_ALWAYS(script, call, ...)                                                           \
    script_always(script, call, (struct script_rule){__VA_ARGS__})
#define SCRIPT_NEXT(script, call, ...) script_next(script, call, (struct script_rule){__VA_ARGS__})

/* Somebody else takes a free name, and gives it back. */
void script_occupy(struct script *script, const char *name, uint64_t for_ns); /* NEVER: for good */
void script_vacate(struct script *script, const char *name);
/* The server says by itself that this one is lost; all of the session's. */
void script_tell_lost(struct script *script, const char *name);
void script_tell_session_lost(struct script *script);

/* "claim a, renew 2, release a": what core has asked for since the last script_forget(). */
const char *script_trace(const struct script *script, char *out, size_t out_size);
void script_forget(struct script *script);
size_t script_count(const struct script *script, enum script_call call);
const struct script_event *script_last(const struct script *script, enum script_call call);

#define SCRIPT_APART    1u
#define SCRIPT_DETACHED 2u
const struct engine_class *script_variant(enum stile_lease lease, unsigned flags);
extern const struct engine_class script_class; /* claim lease; what `test:` opens */

#endif
