/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Host names to addresses, on a thread of its own.
 *
 * getaddrinfo() may block for as long as the resolver waits: half a minute if a name server is
 * down. Called from the loop it would keep the client's mutex that long, and no loss of a lock
 * would be reported meanwhile. So it runs on a thread that ends with the lookup. */
#ifndef STILE_RESOLVE_H
#define STILE_RESOLVE_H

#include <netdb.h>

#include "base/error.h"
#include "io/loop.h"

struct resolve;

/* found is the callee's, for freeaddrinfo(); NULL: see err. Called once, from the loop. */
typedef void resolve_fn(void *data, struct addrinfo *found, const struct stile_error *err);

/* A numeric address needs no resolver: 0 and *found, at once. Else a getaddrinfo() error. */
int resolve_numeric(struct addrinfo **found, const char *host, uint16_t port);

enum stile_status resolve_start(struct resolve **resolve, struct loop *loop, const char *host,
                                uint16_t port, resolve_fn *fn, void *data, struct stile_error *err);
void resolve_free(struct resolve *resolve); /* no callback comes afterwards; safe inside it */
void resolve_forked(struct resolve *resolve);

#endif
