/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The guard of Redis as texts. They need no hiredis: the command prints them even where the engine
 * was left out of the build. */
#ifndef STILE_REDIS_GUARD_TEXTS_H
#define STILE_REDIS_GUARD_TEXTS_H

#include <stddef.h>

struct redis_guard_text {
    const char *name;
    const char *source;
    size_t len;
    char sha1[41]; /* of the source, in hex: under which a server keeps a script */
};

/* For FUNCTION LOAD REPLACE. */
extern const struct redis_guard_text redis_guard_library;
/* For EVAL and EVALSHA: set, hset, ... The last one's name is NULL. */
extern const struct redis_guard_text redis_guard_scripts[];

#endif
