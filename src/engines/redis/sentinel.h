/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Redis Sentinel: which server is the primary, asked of the Sentinels that watch it.
 *
 * They are asked in turn until one names it; each connection checks its role (see
 * conn_options.primary), since they may be late. They are asked again whenever a connection to the
 * primary ends, and one of them publishes when another primary was elected, which also reaches a
 * client that is cut off from the others together with an old primary. Our connections then move.
 * Locks stay held until their deadline, and their next renewal shows whether the new primary has
 * them. */
#ifndef STILE_REDIS_SENTINEL_H
#define STILE_REDIS_SENTINEL_H

#include "base/url.h"
#include "engines/redis/topology.h"

#define SENTINEL_PORT 26379

struct sentinel;

/* Begins to ask at once. */
enum stile_status redis_sentinel_new(struct sentinel **sentinel, struct redis *redis,
                                     const struct url *url, struct stile_error *err);
void redis_sentinel_free(struct sentinel *sentinel);
void redis_sentinel_forked(struct sentinel *sentinel);

/* OK: go on waiting. Else all were asked and none names a primary, or the primary refuses us. */
enum stile_status redis_sentinel_gave_up(const struct sentinel *sentinel, struct stile_error *err);
/* Why it took too long. */
enum stile_status redis_sentinel_explain(const struct sentinel *sentinel, struct stile_error *err);

void redis_sentinel_listen(
    struct sentinel *sentinel); /* subscribes to one, for changes of the primary */

/* For route.c: a connection of the primary has ended. */
void redis_sentinel_down(struct sentinel *sentinel, const struct stile_error *why);

#endif
