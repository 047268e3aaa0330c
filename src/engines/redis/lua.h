/* A Lua script and the name under which a server keeps it. */
#ifndef STILE_REDIS_LUA_H
#define STILE_REDIS_LUA_H

#include <stddef.h>

struct lua {
    const char *source; /* borrowed */
    size_t len;
    char sha1[41]; /* hex */
};

void lua_init(struct lua *lua, const char *source);

#endif
