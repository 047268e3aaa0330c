/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A Lua script and the SHA1 under which a server caches it. */
#ifndef STILE_REDIS_LUA_H
#define STILE_REDIS_LUA_H

#include <stddef.h>

struct lua {
    const char *source;
    size_t len;
    char sha1[41]; /* of the source, in hex: written by the build (embed_lua.py) */
};

#endif
