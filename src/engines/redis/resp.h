/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* RESP: requests as bytes, and replies of a Redis server, read by hiredis and bounded by us.
 *
 * hiredis takes every length a header promises: it would collect 2 GiB for one string, and allocate
 * 16 GiB for an array of which no element has come (0.14; 1.x: up to 32 GiB). A server that is
 * broken, hostile or not Redis at all must not be able to do that to its clients. */
#ifndef STILE_REDIS_RESP_H
#define STILE_REDIS_RESP_H

#include <hiredis/hiredis.h>

#include "engines/kit/link.h"
#include "engines/redis/lua.h"

/* ---- requests ---- */

struct conn_arg {
    const void *bytes;
    size_t len;
};

#define CONN_TEXT(text) ((struct conn_arg){(text), strlen(text)})

/* The reply is freed after the call. */
typedef void conn_fn(void *data, const redisReply *reply, const struct stile_error *err);

struct request {
    struct link_request link; /* the first member; len: of bytes */
    conn_fn *fn;              /* called with link.data */
    bool secret;              /* wiped when freed */
    bool asking;              /* send ASKING before it (Cluster) */
    uint8_t hops;             /* how often it was redirected */
    bool forgotten;           /* the server no longer has its script: send the source */
    const struct lua *lua;
    size_t n;     /* with lua: all arguments, EVAL and the script included */
    char bytes[]; /* the whole command, or with lua what follows the script */
};

struct request *redis_request_new(const struct conn_arg *args, size_t n); /* NULL: no memory */
struct request *redis_request_new_eval(const struct lua *lua, const struct conn_arg *args,
                                       size_t n_keys, size_t n);
void redis_request_free(struct request *request);

/* A script by its SHA1, or with its source. 0, or the error of stream_write(): then part of it may
 * be in the stream, which can no longer be used. */
int redis_request_write(struct request *request, struct stream *stream, bool with_source);

/* NULL: the queue is empty. */
static inline struct request *redis_request_pop(struct link_queue *queue)
{
    return (struct request *)link_queue_pop(queue);
}

/* ---- replies ---- */

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
