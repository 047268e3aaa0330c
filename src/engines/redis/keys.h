/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of one name: K = prefix + name, and the keys that belong to it. */
#ifndef STILE_REDIS_KEYS_H
#define STILE_REDIS_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engines/redis/connection.h"
#include "engines/redis/identity.h"
#include "stile.h"

/* Ends the part of a key that names a lock. */
#define KEY_MARK "\x1f"

/* redlock has these keys as well. */
#define BROKEN_SUFFIX KEY_MARK "broken"
#define LAST_SUFFIX   KEY_MARK "last"

/* For n keys of a name. */
#define KEYS_ROOM(n, prefix_len, name_len) ((n) * (2 * ((prefix_len) + (name_len)) + 16))

/* suffixes[0] is "", for K itself. Returns where it stopped writing. */
char *redis_keys_of_name(struct conn_arg *args, char *room, const char *const *suffixes, size_t n,
                         const char *prefix, const char *name, size_t name_len);
/* Whether this key belongs to a lock, of any prefix, without being its own key. */
bool redis_key_is_derived(const char *key, size_t len);

/* The keys of a resource, in the slot of a data key with its name, as guard/lib/names.lua names
 * them: stile:guard:{name}, stile:cell:{name}, stile:pace:{name}. No prefix of locks: users' own
 * scripts name them, too. */
#define GUARD_STEM    "stile:guard:"
#define CELL_STEM     "stile:cell:"
#define PACE_STEM     "stile:pace:"
#define RESOURCE_ROOM (2 * STILE_NAME_MAX + 32)
/* Returns where it stopped writing. */
char *redis_key_of_resource(struct conn_arg *arg, char *at, const char *stem, const char *name,
                            size_t len);
/* The name in such a key, or NULL. */
const char *redis_resource_of_key(size_t *len, const char *stem, const char *key, size_t key_len);

/* The slots of a Redis Cluster: which one a key is in, and text that puts other keys into it. */

#define SLOTS 16384

uint16_t redis_slot_of(const char *key, size_t len);

/* Letters and digits that hash to this slot. */
#define SLOT_TEXT 3
void redis_slot_text(char text[SLOT_TEXT], uint16_t slot);

/* The session's digits, then 24 of its own: a new one for each claim, so that a late
 * request of an earlier claim can never touch a later one. 0 or an errno value. */
int redis_owner_draw(char owner[OWNER_LEN + 1], const char *channel, struct loop *loop);

#endif
