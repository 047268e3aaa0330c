/* Replies of a Redis server, read by hiredis and bounded by us.
 *
 * hiredis takes every length a header promises: it would collect 2 GiB for one string, and allocate
 * 16 GiB for an array of which no element has come (0.14; 1.x: up to 32 GiB). A server that is
 * broken, hostile or not Redis at all must not be able to do that to its clients. */
#ifndef STILE_REDIS_RESP_H
#define STILE_REDIS_RESP_H

#include <hiredis/hiredis.h>

#include "base/error.h"

#define RESP_BULK_MAX     (1u << 20)  /* bytes of one string */
#define RESP_REPLY_MAX    (16u << 20) /* bytes of all strings of one reply */
#define RESP_ELEMENTS_MAX 65536       /* of all arrays of one reply */
#define RESP_DEPTH_MAX    7           /* arrays around an array, as in hiredis 0.14 */

struct resp;

enum resp_step {
    RESP_MORE,  /* feed it */
    RESP_REPLY, /* freeReplyObject() is the caller's */
    RESP_BAD,   /* for good; err says why */
};

struct resp *redis_resp_new(void); /* NULL: no memory */
void redis_resp_free(struct resp *resp);
enum stile_status redis_resp_feed(struct resp *resp, const void *bytes, size_t n,
                                  struct stile_error *err);
enum resp_step redis_resp_next(struct resp *resp, redisReply **reply, struct stile_error *err);

#endif
