/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The data of one simulated Redis server, and the commands that stile and its scripts use
 * (redis_commands.c), with Redis's own answers. Any other command is an error, so a script that
 * uses a new one fails at once. tests/sim/redis.c runs the same random commands on a real server
 * and compares.
 */
#ifndef STILE_SIM_REDIS_STORE_H
#define STILE_SIM_REDIS_STORE_H

#include "base/buffer.h"
#include "sim/world.h"

struct bytes {
    const char *at;
    size_t n;
};

struct redis_store {
    struct redis_key *keys;
    size_t n, room;
    bool noting; /* changes are noted, for replicas */
    bool flushed;
    struct bytes *changed; /* the names of keys */
    size_t n_changed, changed_room;
};

/* What a command needs beside the data. */
struct redis_call {
    struct redis_store *store;
    int64_t now_us; /* by the server's clock */
    const struct bytes *args;
    size_t n_args;
    struct buffer *out; /* the answer, as RESP2 */
    bool read_only;     /* as on a replica: commands that write are refused */
    /* Delivers a message, and returns how many subscribers there were. */
    long long (*publish)(void *data, struct bytes channel, struct bytes message);
    void *data;
};

void redis_store_copy(struct redis_store *to, const struct redis_store *from);
void redis_store_clear(struct redis_store *store);
/* Executes one command. */
void redis_store_run(const struct redis_call *call);
/* Whether there is such a key at this time. */
bool redis_store_has(const struct redis_store *store, struct bytes name, int64_t now_us);

/* The value of a string, and when it ends by the server's clock (INT64_MAX: never), without
 * touching it. False: there is no such key. */
bool redis_store_peek(struct bytes *value, int64_t *ends_ms, const struct redis_store *store,
                      struct bytes name, int64_t now_us);

/* ---- changes ---- */

/* All that was changed since the last call; NULL: nothing. */
struct redis_change *redis_store_changes(struct redis_store *store);
/* Makes the same change to another store. */
void redis_store_apply(struct redis_store *store, const struct redis_change *change);

/* As MIGRATE: the first key that is wanted, whose end is put off by later_ms. False: there is none.
 */
typedef bool redis_wanted_fn(struct bytes name, unsigned what);
bool redis_store_migrate(struct redis_store *to, struct redis_store *from, redis_wanted_fn *wanted,
                         unsigned what, int64_t later_ms);

/* As DEL by hand, or eviction: the n-th key there is. False: there is none. */
bool redis_store_drop(struct redis_store *store, size_t n);

/* ---- answers ---- */

void resp_error(struct buffer *out, const char *text);
void resp_status(struct buffer *out, const char *text);
void resp_number(struct buffer *out, long long number);
void resp_bulk(struct buffer *out, const void *bytes, size_t n);
void resp_nil(struct buffer *out);
void resp_array(struct buffer *out, size_t n);

#endif
