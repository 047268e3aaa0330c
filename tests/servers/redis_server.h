/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A redis-server of a test's own: on a free loopback port and a Unix socket, in a temporary
 * directory, without persistence; it ends with the test, even if that is killed. */
#ifndef STILE_REDIS_SERVER_H
#define STILE_REDIS_SERVER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct redis_server {
    pid_t pid; /* 0: not running */
    uint16_t port, tls_port;
    char dir[64];
    char path[96]; /* of its Unix socket */
    const char *const *args;
};

/* Back when it is ready to accept. args: further arguments of redis-server, NULL-terminated, or
 * NULL; "@DIR@" alone stands for its directory and "@TLS@" for a second free port, tls_port. Ends
 * the test with a sentence if it can't be started. */
void redis_server_start(struct redis_server *server, const char *const *args);
/* The same directory, ports and arguments again. */
void redis_server_restart(struct redis_server *server);
void redis_server_kill(struct redis_server *server, int signal); /* and wait until it is gone */
void redis_server_stop(struct redis_server *server);             /* and remove its directory */

void make_directory(char *path, size_t size); /* temporary, from then on remove_tree()'s */
void remove_tree(const char *path);
uint16_t free_port(void);
void make_certificates(const char *directory); /* see tests/servers/certs */

#endif
