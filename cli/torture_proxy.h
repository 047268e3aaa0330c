/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The proxy inside `stile torture`: each worker reaches the servers through ports of its own on
 * loopback, so that its connections can be silenced or reset without touching the others'.
 *
 * Bytes are forwarded as they are. It cannot stand in front of servers that hand out addresses of
 * other servers (Sentinel, Cluster), of Unix sockets, nor of TLS that verifies the server's name.
 */
#ifndef STILE_CLI_TORTURE_PROXY_H
#define STILE_CLI_TORTURE_PROXY_H

#include <netdb.h>
#include <sys/socket.h>

#include "torture_poller.h"

#define PROXY_HOSTS_MAX 16

struct proxy_host {
    struct sockaddr_storage address;
    socklen_t size;
};

/* The servers that a URL names. */
struct proxy_target {
    struct proxy_host hosts[PROXY_HOSTS_MAX];
    size_t n_hosts;
    size_t before, after; /* the bytes of the URL before its hosts, and where they end */
};

/* NULL, or why the servers of this URL cannot be reached through the proxy. Resolves their names.
 */
const char *proxy_aim(struct proxy_target *target, const char *url);

struct proxy; /* one worker's */

/* NULL with errno. The target must last as long as it. */
struct proxy *proxy_open(const struct proxy_target *target);
void proxy_close(struct proxy *proxy);
/* The URL with its ports in place of the hosts. False: it would be too long. */
bool proxy_rewrite(char *out, size_t size, const struct proxy *proxy, const char *url);

/* Nothing is forwarded, accepted or closed, until it is resumed. What is on its way is delivered
 * then. */
void proxy_silence(struct proxy *proxy);
void proxy_resume(struct proxy *proxy);
/* Ends all its connections at once, in both directions; new ones may follow. */
void proxy_reset(struct proxy *proxy);

#endif
