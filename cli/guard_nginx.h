/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration of nginx that guards an HTTP API; its text is in guard/nginx.conf and nginx.lua.
 */
#ifndef STILE_CLI_GUARD_NGINX_H
#define STILE_CLI_GUARD_NGINX_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* NULL and 0 mean the default. */
struct guard_nginx {
    const char *listen;   /* as in nginx's listen: 8080, 127.0.0.1:8080, unix:PATH */
    const char *upstream; /* as in proxy_pass: http://127.0.0.1:8000 */
    const char *state;    /* a directory of the workers' user */
    const char *require;  /* which requests must carry a token: all, writes or none */
    const char *memory;   /* of the dictionary: 10m */
    int64_t wait_ms;      /* how long a larger token waits for smaller ones before it gets 503 */
    int64_t settle_ms;    /* how long the upstream may keep working after its connection was cut */
};

/* False for what would end a directive of nginx or a string of Lua. */
bool guard_nginx_accepts(const char *value);
void guard_nginx_print(FILE *out, const struct guard_nginx *values);

#endif
