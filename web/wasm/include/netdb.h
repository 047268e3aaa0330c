/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Names are those of the simulator: no address is ever looked up (system.c). */
#ifndef STILE_WASM_NETDB_H
#define STILE_WASM_NETDB_H

#include <sys/socket.h>

struct addrinfo {
    int ai_flags, ai_family, ai_socktype, ai_protocol;
    socklen_t ai_addrlen;
    struct sockaddr *ai_addr;
    char *ai_canonname;
    struct addrinfo *ai_next;
};

void freeaddrinfo(struct addrinfo *found);

#endif
