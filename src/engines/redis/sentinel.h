/* Redis Sentinel: who the primary is, asked of those who watch it.
 *
 * They are asked in turn, until one names it; its role is compared at each connection (see
 * conn_options.primary), since they may be late. They are asked again whenever a connection to the
 * primary ends, and one of them tells by itself when another one was elected, which also serves who
 * is cut off from the others together with an old primary. Our connections then move; what is held
 * stays held until its deadline, and its next renewal finds out what the new primary knows. */
#ifndef STILE_REDIS_SENTINEL_H
#define STILE_REDIS_SENTINEL_H

#include "base/url.h"
#include "engines/redis/node.h"

#define SENTINEL_PORT 26379

struct sentinel;

/* Begins to ask at once. */
enum stile_status redis_sentinel_new(struct sentinel **sentinel, struct redis *redis,
                                     const struct url *url, struct stile_error *err);
void redis_sentinel_free(struct sentinel *sentinel);
void redis_sentinel_forked(struct sentinel *sentinel);

/* OK: go on waiting. Else all were asked and none names a primary, or it does not want us. */
enum stile_status redis_sentinel_gave_up(const struct sentinel *sentinel, struct stile_error *err);
/* Why it took too long. */
enum stile_status redis_sentinel_explain(const struct sentinel *sentinel, struct stile_error *err);

void redis_sentinel_listen(struct sentinel *sentinel); /* to one who tells of the next primary */

/* For route.c: a connection of the primary has ended. */
void redis_sentinel_down(struct sentinel *sentinel, const struct stile_error *why);

#endif
