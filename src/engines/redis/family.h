/* The keys of one name: K = prefix + name, and what belongs to it. */
#ifndef STILE_REDIS_FAMILY_H
#define STILE_REDIS_FAMILY_H

#include "engines/redis/conn.h"

/* Ends the part of a key that names a lock. */
#define KEY_MARK "\x1f"

/* For n keys of a name. */
#define FAMILY_ROOM(n, prefix_len, name_len) ((n) * (2 * ((prefix_len) + (name_len)) + 16))

/* suffixes[0] is K's own, "". Returns where it stopped writing. */
char *family_write(struct conn_arg *args, char *room, const char *const *suffixes, size_t n,
                   const char *prefix, const char *name, size_t name_len);
bool family_is_derived(const char *const *suffixes, size_t n, const char *prefix, const char *key,
                       size_t len);

#endif
