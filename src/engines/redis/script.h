/* A Lua script and the name under which a server keeps it. */
#ifndef STILE_REDIS_SCRIPT_H
#define STILE_REDIS_SCRIPT_H

#include <stddef.h>

struct script {
    const char *source; /* borrowed */
    size_t len;
    char sha1[41]; /* hex */
};

void script_init(struct script *script, const char *source);

#endif
