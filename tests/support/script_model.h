/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A small server in memory, for the scripted engine: names, holders with a TTL, queues in order of
 * arrival, tokens, hold_at_least and lock-delay. Its clock is a loop's, so in tests it is virtual.
 * Exclusive locks only. It knows nothing of delays and lost messages: those are the wire's. */
#ifndef STILE_SCRIPT_MODEL_H
#define STILE_SCRIPT_MODEL_H

#include "engines/engine.h"

#define OWNER_SIZE 48

enum whereabouts { GONE, QUEUED, HOLDS };

/* One lease for many records. */
struct session {
    uint64_t expires_ns, ttl_ns;
};

/* What the server knows of one claim. Lives as long as the model, so that a late message about it
 * never meets freed memory. */
struct record {
    struct record *all_next;
    struct place *place;
    struct record *next; /* behind it in the queue */
    enum whereabouts at;
    bool wait;
    struct session *session; /* NULL: it has a lease of its own */
    uint64_t token, since_ns, expires_ns, ttl_ns, hold_ns, delay_ns;
    char owner[OWNER_SIZE];

    /* the engine's side of it */
    struct engine *engine;
    struct claim *claim; /* NULL: core has forgotten it, so no answer may come */
    bool granted, releasing, queued;
    bool unreleased; /* a release had an answer that was not final */
};

struct watcher {
    struct watcher *next;
    struct query *query; /* NULL: no longer interested */
    struct engine *engine;
};

struct place {
    struct place *next;
    struct model *model;
    char *name;
    uint64_t hash, token;
    struct record *holder, *queue;
    uint64_t ghost_until_ns; /* nobody's, and not to be had before that */
    struct timer timer;
    struct watcher *watchers;
    char record[1024]; /* of its last holder; "": none */
    uint64_t record_token;
};

#define MODEL_BUCKETS 4096

struct model {
    struct loop *loop; /* its clock, NULL: none */
    struct place *buckets[MODEL_BUCKETS];
    struct record *records;
    uint64_t salt, last_id; /* of owner values */
    size_t n_places, grants;
    void (*woken)(struct record *record); /* granted after having waited */
    void (*lost)(struct record *record);  /* broken */
    void (*changed)(struct place *place);
    void *data;
};

enum model_answer { MODEL_GRANTED, MODEL_QUEUED, MODEL_BUSY };

void model_init(struct model *model);
void model_fini(struct model *model);
int model_clock(struct model *model, struct loop *loop); /* 0 or ENOMEM */
void model_unclock(struct model *model);                 /* its loop is about to go */

struct place *model_place(struct model *model, const char *name); /* NULL: out of memory */
struct record *model_record(struct model *model, const char *name);

enum model_answer model_claim(struct record *record);
bool model_touch(struct record *record);   /* renew its lease; false: it isn't the holder */
bool model_release(struct record *record); /* false: it was neither holder nor in the queue */
void model_vacate(struct place *place);    /* the holder is gone as if it had released */
void model_settle(struct place *place);    /* what time has done to it meanwhile */

uint64_t model_now(const struct model *model);
uint64_t model_expires(const struct record *record);
size_t model_waiting(const struct model *model); /* in all queues */
struct record *model_find_owner(struct model *model, const char *name, const char *owner);

#endif
