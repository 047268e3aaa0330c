/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a simulated Redis server, for its commands. */
#ifndef STILE_SIM_REDIS_KEYS_H
#define STILE_SIM_REDIS_KEYS_H

#include "sim/redis_store.h"

#define NO_END INT64_MAX

enum kind { STRING, HASH, ZSET, LIST };

/* A field and its value, a member and its score, or an element. */
struct item {
    struct bytes name, value;
    double score;
};

struct redis_key {
    struct bytes name;
    enum kind kind;
    int64_t ends_ms; /* NO_END: never */
    struct bytes string;
    struct item *items; /* of a zset: by score, then by name */
    size_t n_items, room;
};

struct bytes bytes_copy(struct bytes bytes);

/* NULL if there is none, or if it has ended: then it is removed. */
struct redis_key *redis_key_find(const struct redis_call *call, struct bytes name);
struct redis_key *redis_key_make(const struct redis_call *call, struct bytes name, enum kind kind);
void redis_key_remove(struct redis_store *store, size_t i);
/* False: there is none. */
bool redis_key_drop(const struct redis_call *call, struct bytes name);
/* Its change goes to the replicas. */
void redis_key_note(struct redis_store *store, struct bytes name);

struct item *redis_item_find(const struct redis_key *key, struct bytes name);
void redis_item_insert(struct redis_key *key, size_t at, struct item item);
void redis_item_insert_by_score(struct redis_key *key, struct bytes name, double score);
/* The last one takes its key along. */
void redis_item_remove(const struct redis_call *call, struct redis_key *key, size_t at);

#endif
